//! Entries to write, and a visitor that remembers.

use std::path::Path;
use std::sync::{Arc, Mutex};

use bytes::{BufMut, Bytes, BytesMut};
use tokio::sync::oneshot;

use crate::io::{BoxFuture, Env};
use crate::storage::wal::{Entry, KnownLsns, ReplayVisitor, VisitError, Wal, WalConfig, WalFailed, WalOpenError};
use crate::storage::{Lsn, PartitionKey, TopicId};
use crate::wire::batch::RecordBatch;

/// Partition `index` of the one test topic.
pub(super) fn partition(index: i32) -> PartitionKey {
    PartitionKey { topic: TopicId([7; 16]), index }
}

/// A batch of `bytes` in all with `base_offset`, filled with `fill`. Header and records are as a producer would frame
/// them; the log looks at nothing else.
pub(super) fn batch(base_offset: i64, bytes: usize, fill: u8) -> RecordBatch {
    let mut whole = BytesMut::with_capacity(bytes);
    whole.put_i64(base_offset);
    whole.put_i32(i32::try_from(bytes - 12).expect("small"));
    whole.put_i32(0);
    whole.put_i8(2);
    whole.put_bytes(fill, bytes - whole.len());
    RecordBatch::split(whole.freeze()).expect("one batch").remove(0)
}

/// An Append of one batch.
pub(super) fn append(index: i32, base_offset: i64, bytes: usize) -> Entry {
    let fill = (base_offset % 251) as u8;
    Entry::Append { partition: partition(index), batches: vec![batch(base_offset, bytes, fill)] }
}

/// Remembers what was replayed.
#[derive(Default)]
pub(super) struct Replayed(pub(super) Vec<(Lsn, Entry)>);

impl ReplayVisitor for Replayed {
    fn entry(&mut self, lsn: Lsn, entry: Entry) -> BoxFuture<'_, Result<(), VisitError>> {
        self.0.push((lsn, entry));
        Box::pin(async { Ok(()) })
    }
}

impl Replayed {
    pub(super) fn entries(self) -> Vec<Entry> {
        self.0.into_iter().map(|(_, entry)| entry).collect()
    }
}

/// Opens with nothing known.
pub(super) async fn open(env: &Env, dir: &Path, config: WalConfig) -> Result<(Wal, Vec<Entry>), WalOpenError> {
    let mut replayed = Replayed::default();
    let wal = Wal::open(env, dir, config, KnownLsns::default(), &mut replayed).await?;
    Ok((wal, replayed.entries()))
}

/// Submits and waits.
pub(super) async fn write(wal: &Wal, entry: Entry) -> Result<Lsn, WalFailed> {
    submit(wal, entry).await.expect("a callback runs")
}

/// Submits.
pub(super) fn submit(wal: &Wal, entry: Entry) -> oneshot::Receiver<Result<Lsn, WalFailed>> {
    let (sender, receiver) = oneshot::channel();
    wal.submit(
        entry,
        Box::new(move |result| {
            let _ = sender.send(result);
        }),
    );
    receiver
}

/// Which entry was answered, and with what.
pub(super) type Answer = (usize, Result<Lsn, WalFailed>);

/// The order in which callbacks ran.
#[derive(Clone, Default)]
pub(super) struct Order(Arc<Mutex<Vec<Answer>>>);

impl Order {
    pub(super) fn submit(&self, wal: &Wal, number: usize, entry: Entry) {
        let order = self.0.clone();
        wal.submit(entry, Box::new(move |result| order.lock().expect("no panic").push((number, result))));
    }

    pub(super) fn taken(&self) -> Vec<Answer> {
        std::mem::take(&mut *self.0.lock().expect("no panic"))
    }
}

/// All bytes of a file.
pub(super) async fn contents(env: &Env, path: &Path) -> Bytes {
    let file = env.disk().open(path, crate::io::OpenMode::Read).await.expect("it exists");
    let bytes = file.len().await.expect("readable");
    file.read_at(0, usize::try_from(bytes).expect("small")).await.expect("readable")
}
