//! The metadata log behind `propose(command).await`: one task owns the log, makes commands durable in groups, applies
//! them and publishes the new image.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::{mpsc, oneshot, watch};

use super::command::Command;
use super::image::{ClusterImage, LogId, Outcome, Rejection};
use super::log::{AppendError, Expect, LogError, MetadataLog};
use super::look::Found;
use crate::io::{Env, FailStop};

/// Commands that may wait. Past it, proposers do.
const QUEUE_LEN: usize = 256;
/// Commands that share one flush.
const GROUP_LEN_MAX: usize = 256;

/// A command that took effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Applied {
    /// Its place in the log.
    pub id: LogId,
    /// What it did.
    pub outcome: Outcome,
}

/// Why a command did not take effect.
#[derive(Debug, thiserror::Error)]
pub enum ProposeError {
    /// This broker does not decide: ask `controller`, if it is known.
    #[error("this broker is not the controller")]
    NotController {
        /// The controller's broker id.
        controller: Option<i32>,
    },
    /// The state machine refused it.
    #[error(transparent)]
    Rejected(#[from] Rejection),
    /// The disk refused it; nothing has changed and a later try may succeed.
    #[error("metadata cannot be written: {0}")]
    Storage(String),
}

enum Message {
    Propose(Command, oneshot::Sender<Result<Applied, ProposeError>>),
    Close(oneshot::Sender<()>),
}

/// Metadata that has been read, and not changed.
pub struct FoundMetadata(Found);

impl FoundMetadata {
    /// Whether anything was ever noted in it.
    pub fn holds(&self) -> bool {
        self.0.image().applied().index > 0
    }

    /// Opens it for writing.
    pub async fn open(self, env: &Env, snapshot_after: u64) -> Result<MetadataStore, LogError> {
        let (log, image) = self.0.open().await?;
        let (sender, receiver) = mpsc::channel(QUEUE_LEN);
        let (publish, image_receiver) = watch::channel(Arc::new(image));
        // Whoever opens a cluster of one is elected by opening it.
        let term = publish.borrow().applied().term + 1;
        let owner = Owner { env: env.clone(), log, publish, term, snapshot_after };
        env.spawn_core("metadata", owner.run(receiver));
        Ok(MetadataStore { sender, image: image_receiver, closed: Arc::default() })
    }
}

/// The cluster's metadata as this broker holds it. Cheap to clone.
#[derive(Clone)]
pub struct MetadataStore {
    sender: mpsc::Sender<Message>,
    image: watch::Receiver<Arc<ClusterImage>>,
    closed: Arc<AtomicBool>,
}

impl MetadataStore {
    /// Opens the metadata of the data folder's subdirectory `dir`, creating it unless `formatted` says that it must be
    /// there. A snapshot is written whenever the log has grown past `snapshot_after` bytes. Everything read is durable when
    /// this returns.
    pub async fn open(env: &Env, dir: &Path, formatted: bool, snapshot_after: u64) -> Result<Self, LogError> {
        Self::look(env, dir, formatted).await?.open(env, snapshot_after).await
    }

    /// Reads the metadata as [`Self::open`] does, and changes nothing.
    pub async fn look(env: &Env, dir: &Path, formatted: bool) -> Result<FoundMetadata, LogError> {
        let expect = if formatted { Expect::MustExist } else { Expect::MayBeNew };
        Ok(FoundMetadata(Found::look(env, dir, expect).await?))
    }

    /// The image as it is now.
    pub fn image(&self) -> Arc<ClusterImage> {
        self.image.borrow().clone()
    }

    /// Follows the image.
    pub fn watch(&self) -> watch::Receiver<Arc<ClusterImage>> {
        self.image.clone()
    }

    /// Makes `command` durable and applies it. Once this returns, [`Self::image`] shows the effect.
    pub async fn propose(&self, command: Command) -> Result<Applied, ProposeError> {
        let gone = || ProposeError::NotController { controller: None };
        if self.closed.load(Ordering::Acquire) {
            return Err(gone());
        }
        let (reply, answer) = oneshot::channel();
        self.sender.send(Message::Propose(command, reply)).await.map_err(|_| gone())?;
        answer.await.unwrap_or_else(|_| Err(gone()))
    }

    /// Finishes what has been proposed and stops. Later proposals get `NotController`.
    pub async fn close(&self) {
        self.closed.store(true, Ordering::Release);
        let (done, closed) = oneshot::channel();
        if self.sender.send(Message::Close(done)).await.is_ok() {
            let _ = closed.await;
        }
    }
}

type Waiting = (oneshot::Sender<Result<Applied, ProposeError>>, Applied);

struct Owner {
    env: Env,
    log: MetadataLog,
    publish: watch::Sender<Arc<ClusterImage>>,
    term: u64,
    snapshot_after: u64,
}

impl Owner {
    async fn run(mut self, mut receiver: mpsc::Receiver<Message>) {
        while let Some(first) = receiver.recv().await {
            let mut group = vec![first];
            while group.len() < GROUP_LEN_MAX {
                match receiver.try_recv() {
                    Ok(message) => group.push(message),
                    Err(_) => break,
                }
            }
            if let Some(done) = self.handle(group).await {
                receiver.close();
                // Proposals that slipped in behind the close find their answer's sender dropped.
                let _ = done.send(());
                return;
            }
        }
    }

    /// Decides a group of commands with one write and one flush. Returns where to report a close.
    async fn handle(&mut self, group: Vec<Message>) -> Option<oneshot::Sender<()>> {
        let before = self.publish.borrow().clone();
        let mut image = ClusterImage::clone(&before);
        let (mut entries, mut waiting, mut close) = (Vec::new(), Vec::<Waiting>::new(), None);
        for message in group {
            match message {
                Message::Propose(command, reply) => {
                    let last = image.applied;
                    let id = LogId { term: self.term, index: last.index + 1 };
                    match image.apply(id, &command) {
                        Ok(outcome) => {
                            entries.push((id, command.encode()));
                            waiting.push((reply, Applied { id, outcome }));
                        }
                        Err(rejection) => {
                            // Refused before it is written: it takes no place in the log.
                            image.applied = last;
                            let _ = reply.send(Err(rejection.into()));
                        }
                    }
                }
                Message::Close(done) => {
                    close = Some(done);
                    break;
                }
            }
        }
        if let Some((last, _)) = entries.last() {
            self.commit(&entries, *last, image, waiting).await;
        }
        close
    }

    async fn commit(
        &mut self,
        entries: &[(LogId, bytes::Bytes)],
        last: LogId,
        image: ClusterImage,
        waiting: Vec<Waiting>,
    ) {
        let end = match self.log.write(entries).await {
            Ok(end) => end,
            Err(AppendError::Refused(source)) => {
                if self.env.may_log("metadata that cannot be written", None) {
                    tracing::error!("metadata cannot be written, nothing has changed: {source}");
                }
                for (reply, _) in waiting {
                    let _ = reply.send(Err(ProposeError::Storage(source.to_string())));
                }
                return;
            }
            Err(error @ AppendError::Stuck(_)) => {
                self.env.fail_stop(FailStop::WriteFailed, &error.to_string()).await;
            }
        };
        if let Err(source) = self.log.flush(end, last).await {
            let message = format!("the metadata log could not be flushed: {source}");
            self.env.fail_stop(FailStop::FsyncFailed, &message).await;
        }
        self.publish.send_replace(Arc::new(image));
        for (reply, applied) in waiting {
            let _ = reply.send(Ok(applied));
        }
        if self.log.len() > self.snapshot_after {
            let image = self.publish.borrow().clone();
            // Not fatal: the log stays whole and longer; the next command tries again.
            if let Err(error) = self.log.snapshot(&image).await
                && self.env.may_log("metadata logs that cannot be cut", None)
            {
                tracing::warn!("the metadata log could not be cut: {error}");
            }
        }
    }
}
