//! The store on the real disk: what survives, what a crash may leave, what is refused.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use bytes::{Buf, Bytes};

use super::*;
use crate::io::{Env, OpenMode};
use crate::storage::TopicId;

fn register() -> Command {
    Command::RegisterBroker { broker_id: 1, host: "h".into(), port: 1, rack: None, started_ms: 0 }
}

fn create(number: u8) -> Command {
    Command::CreateTopic {
        id: TopicId([number; 16]),
        name: format!("topic-{number}"),
        partitions: vec![NewPartition { replicas: vec![1], isr: vec![1], leader: 1 }; 3],
        configs: BTreeMap::new(),
        created_ms: 0,
    }
}

fn test<F: Future<Output = ()>>(body: impl FnOnce(Env, PathBuf) -> F) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("metadata");
    crate::io::real::block_on_test(|env| body(env, path));
}

async fn read(env: &Env, path: &Path) -> Bytes {
    let file = env.disk().open(path, OpenMode::Read).await.unwrap();
    let len = file.len().await.unwrap();
    file.read_at(0, len as usize).await.unwrap()
}

async fn overwrite(env: &Env, path: &Path, bytes: Bytes) {
    let file = env.disk().open(path, OpenMode::Create).await.unwrap();
    file.set_len(0).await.unwrap();
    file.write_at_and_sync(0, vec![bytes]).await.unwrap();
}

/// A power cut may take what was never flushed.
async fn lose_end(env: &Env, dir: &Path) {
    env.disk().remove_file(&dir.join("end")).await.unwrap();
}

/// No snapshot is due.
const NEVER: u64 = u64::MAX;

/// A store with a broker and `topics` topics, closed again; the names of its log files.
async fn filled(env: &Env, dir: &Path, topics: u8, snapshot_after: u64) -> Vec<PathBuf> {
    let store = MetadataStore::open(env, dir, false, snapshot_after).await.unwrap();
    store.propose(register()).await.unwrap();
    for number in 1..=topics {
        store.propose(create(number)).await.unwrap();
    }
    store.close().await;
    let names = env.disk().list(dir).await.unwrap();
    names.into_iter().filter(|path| path.file_name().unwrap().to_str().unwrap().starts_with("log-")).collect()
}

async fn topics(env: &Env, dir: &Path) -> usize {
    let store = MetadataStore::open(env, dir, true, NEVER).await.unwrap();
    let count = store.image().topics().count();
    store.close().await;
    count
}

#[test]
fn what_was_proposed_is_there_after_a_restart() {
    test(|env, dir| async move {
        filled(&env, &dir, 2, u64::MAX).await;
        let store = MetadataStore::open(&env, &dir, true, NEVER).await.unwrap();
        assert_eq!(store.image().applied(), LogId { term: 1, index: 3 });
        let applied = store.propose(register()).await.unwrap();
        assert_eq!(
            applied,
            Applied { id: LogId { term: 2, index: 4 }, outcome: Outcome::Registered { broker_epoch: 4 } }
        );
        assert_eq!(store.image().topic("topic-1").unwrap().partitions[0].leader_epoch, 1);
        store.close().await;
        assert!(matches!(store.propose(register()).await, Err(ProposeError::NotController { .. })));
    });
}

#[test]
fn a_refused_command_takes_no_place_in_the_log() {
    test(|env, dir| async move {
        let store = MetadataStore::open(&env, &dir, false, NEVER).await.unwrap();
        store.propose(register()).await.unwrap();
        store.propose(create(1)).await.unwrap();
        let refused = store.propose(create(1)).await;
        assert!(matches!(refused, Err(ProposeError::Rejected(Rejection::TopicExists(_)))), "{refused:?}");
        assert_eq!(store.propose(create(2)).await.unwrap().id.index, 3);
        store.close().await;
        assert_eq!(topics(&env, &dir).await, 2);
    });
}

#[test]
fn proposals_at_the_same_time_share_the_log_in_one_order() {
    test(|env, dir| async move {
        let store = MetadataStore::open(&env, &dir, false, NEVER).await.unwrap();
        store.propose(register()).await.unwrap();
        let mut answers = Vec::new();
        for number in 1..=40 {
            let (sender, receiver) = tokio::sync::oneshot::channel();
            let store = store.clone();
            env.spawn("proposer", async move {
                let _ = sender.send(store.propose(create(number)).await.unwrap().id.index);
            });
            answers.push(receiver);
        }
        let mut seen = Vec::new();
        for answer in answers {
            seen.push(answer.await.unwrap());
        }
        seen.sort_unstable();
        assert_eq!(seen, (2..=41).collect::<Vec<_>>());
        store.close().await;
        assert_eq!(topics(&env, &dir).await, 40);
    });
}

#[test]
fn a_torn_tail_is_cut_at_any_byte_and_the_log_goes_on() {
    test(|env, dir| async move {
        let log = filled(&env, &dir, 2, u64::MAX).await.remove(0);
        let whole = read(&env, &log).await;
        let last = whole.len() - (whole.len() - 24 - 32 - 30) / 2;
        for len in (last..whole.len()).step_by(7) {
            overwrite(&env, &log, whole.slice(..len)).await;
            lose_end(&env, &dir).await;
            let before = topics(&env, &dir).await;
            assert!(before < 2, "cut to {len}: {before} topics");
            let store = MetadataStore::open(&env, &dir, true, NEVER).await.unwrap();
            store.propose(create(9)).await.unwrap();
            store.close().await;
            assert_eq!(topics(&env, &dir).await, before + 1);
        }
    });
}

#[test]
fn noise_in_the_last_record_is_a_torn_tail() {
    test(|env, dir| async move {
        let log = filled(&env, &dir, 2, u64::MAX).await.remove(0);
        let mut bytes = read(&env, &log).await.to_vec();
        let at = bytes.len() - 20;
        bytes[at] ^= 1;
        overwrite(&env, &log, bytes.into()).await;
        lose_end(&env, &dir).await;
        assert_eq!(topics(&env, &dir).await, 1);
    });
}

#[test]
fn a_log_that_ends_before_what_was_flushed_is_refused_and_left_as_it_is() {
    test(|env, dir| async move {
        let log = filled(&env, &dir, 2, u64::MAX).await.remove(0);
        let whole = read(&env, &log).await;
        // Emptied, cut to its header, cut within and between records, and with rot in the last one.
        let mut rotten = whole.to_vec();
        rotten[whole.len() - 20] ^= 1;
        let cut = [0, 10, 24, 24 + 62, whole.len() - 1].map(|len| whole.slice(..len));
        for bytes in cut.into_iter().chain([rotten.into()]) {
            overwrite(&env, &log, bytes.clone()).await;
            for _ in 0..2 {
                let error = MetadataStore::open(&env, &dir, true, NEVER).await.err().expect("refused");
                assert!(matches!(error, LogError::Cut { flushed: 3, .. } | LogError::Header(_)), "{error}");
                assert!(error.to_string().contains("copy"), "{error}");
            }
            assert_eq!(read(&env, &log).await, bytes);
        }
        overwrite(&env, &log, whole.slice(..24 + 62)).await;
        lose_end(&env, &dir).await;
        assert_eq!(topics(&env, &dir).await, 0, "given up");
        // Without its end, too, a log that was emptied is none that a crash left.
        overwrite(&env, &log, Bytes::new()).await;
        lose_end(&env, &dir).await;
        assert!(matches!(MetadataStore::open(&env, &dir, true, NEVER).await.err(), Some(LogError::Header(_))));
    });
}

/// Where a snapshot could not remove the old file, both are read: the old one ends before what had been flushed, and must
/// not be taken for the end.
#[test]
fn a_refusal_for_the_second_of_two_log_files_is_repeated() {
    test(|env, dir| async move {
        let log = filled(&env, &dir, 8, u64::MAX).await.remove(0);
        let whole = read(&env, &log).await;
        // Entries 1 to 5, and 6 to 9 in a file of their own, the last one torn.
        let border = (0..5).fold(24, |at, _| at + 32 + (&whole[at..]).get_u32() as usize);
        let mut second = whole[..12].to_vec();
        second.extend(6_u64.to_be_bytes());
        second.extend(crc32fast::hash(&second).to_be_bytes());
        second.extend(&whole[border..whole.len() - 3]);
        overwrite(&env, &log, whole.slice(..border)).await;
        overwrite(&env, &dir.join("log-00000000000000000006"), second.into()).await;
        for _ in 0..2 {
            let error = MetadataStore::open(&env, &dir, true, NEVER).await.err().expect("refused");
            assert!(matches!(error, LogError::Cut { found: 8, flushed: 9, .. }), "{error}");
        }
    });
}

#[test]
fn damage_in_the_middle_is_refused_wherever_it_is() {
    test(|env, dir| async move {
        let log = filled(&env, &dir, 3, u64::MAX).await.remove(0);
        let good = read(&env, &log).await;
        let record = (good.len() - 24 - 62) / 3;
        for at in (24..24 + 62 + 2 * record).step_by(11) {
            let mut bytes = good.to_vec();
            bytes[at] ^= 0x10;
            overwrite(&env, &log, bytes.into()).await;
            let error = MetadataStore::open(&env, &dir, true, NEVER).await.err().expect("damage is refused");
            assert!(matches!(error, LogError::Damaged { .. }), "byte {at}: {error}");
            assert!(error.to_string().contains("damaged at byte"), "{error}");
        }
    });
}

#[test]
fn snapshots_cut_the_log_and_hold_everything() {
    test(|env, dir| async move {
        let logs = filled(&env, &dir, 20, 300).await;
        assert_eq!(logs.len(), 1, "{logs:?}");
        assert!(!logs[0].ends_with("log-00000000000000000001"), "{logs:?}");
        assert_eq!(topics(&env, &dir).await, 20);
        let damaged = dir.join("snapshot");
        let mut bytes = read(&env, &damaged).await.to_vec();
        bytes[40] ^= 1;
        overwrite(&env, &damaged, bytes.into()).await;
        assert!(matches!(MetadataStore::open(&env, &dir, true, NEVER).await.err(), Some(LogError::Snapshot(..))));
    });
}

#[test]
fn a_crash_inside_a_snapshot_loses_nothing() {
    test(|env, dir| async move {
        // The whole history in one log, then the snapshot of another run of the same history: what a crash leaves
        // between the rename and the new log file.
        let whole = dir.join("whole");
        let cut = dir.join("cut");
        let log = filled(&env, &whole, 8, u64::MAX).await.remove(0);
        filled(&env, &cut, 8, 300).await;
        overwrite(&env, &whole.join("snapshot"), read(&env, &cut.join("snapshot")).await).await;
        assert_eq!(topics(&env, &whole).await, 8);
        // The same, and the new log file exists with a torn header.
        overwrite(&env, &whole.join("log-00000000000000000099"), Bytes::from_static(b"KILO")).await;
        overwrite(&env, &whole.join("snapshot.tmp"), Bytes::from_static(b"half")).await;
        assert_eq!(topics(&env, &whole).await, 8);
        assert!(!env.disk().exists(&whole.join("snapshot.tmp")).await.unwrap());
        // A hole between the two files.
        env.disk().remove_file(&whole.join("snapshot")).await.unwrap();
        let bytes = read(&env, &log).await;
        overwrite(&env, &log, bytes.slice(..24)).await;
        let newer = env
            .disk()
            .list(&cut)
            .await
            .unwrap()
            .into_iter()
            .find(|path| path.to_str().unwrap().contains("log-"))
            .unwrap();
        overwrite(&env, &whole.join(newer.file_name().unwrap()), read(&env, &newer).await).await;
        assert!(matches!(MetadataStore::open(&env, &whole, true, NEVER).await.err(), Some(LogError::Gap { .. })));
    });
}

/// A snapshot that failed while it made the new log file leaves it behind empty, and the old one goes on: it may even
/// end with a torn entry.
#[test]
fn an_empty_log_file_beside_another_does_not_count() {
    test(|env, dir| async move {
        let log = filled(&env, &dir, 8, u64::MAX).await.remove(0);
        let whole = read(&env, &log).await;
        let header = |first: u64| {
            let mut bytes = whole[..12].to_vec();
            bytes.extend(first.to_be_bytes());
            bytes.extend(crc32fast::hash(&bytes).to_be_bytes());
            bytes
        };
        for (first, empty, torn_bytes) in [(4, header(4), 0), (10, header(10), 5), (5, header(5)[..9].to_vec(), 5)] {
            overwrite(&env, &log, whole.slice(..whole.len() - torn_bytes)).await;
            let path = dir.join(format!("log-{first:020}"));
            overwrite(&env, &path, empty.into()).await;
            lose_end(&env, &dir).await;
            let store = MetadataStore::open(&env, &dir, true, NEVER).await.unwrap();
            store.propose(create(20)).await.unwrap();
            store.close().await;
            assert_eq!(topics(&env, &dir).await, if torn_bytes == 0 { 9 } else { 8 }, "new log at {first}");
            assert!(!env.disk().exists(&path).await.unwrap());
        }
    });
}

#[test]
fn lost_metadata_and_newer_formats_are_refused() {
    test(|env, dir| async move {
        assert!(matches!(MetadataStore::open(&env, &dir, true, NEVER).await.err(), Some(LogError::Missing(_))));
        let log = filled(&env, &dir, 1, u64::MAX).await.remove(0);
        let mut bytes = read(&env, &log).await.to_vec();
        bytes[11] = 2;
        let crc = crc32fast::hash(&bytes[..20]).to_be_bytes();
        bytes[20..24].copy_from_slice(&crc);
        overwrite(&env, &log, bytes.into()).await;
        assert!(matches!(
            MetadataStore::open(&env, &dir, true, NEVER).await.err(),
            Some(LogError::Newer { found: 2, .. })
        ));
    });
}

#[test]
fn a_data_folder_belongs_to_one_broker_and_one_process() {
    test(|env, dir| async move {
        let id = || "cluster".to_owned();
        let mut first = DataFolder::open(&env, &dir, 1, id).await.unwrap();
        assert!(!first.formatted());
        let second = DataFolder::open(&env, &dir, 1, id).await.err();
        assert!(matches!(second, Some(FolderError::InUse(_))), "{second:?}");
        first.format(&env).await.unwrap();
        drop(first);
        let again = DataFolder::open(&env, &dir, 1, || unreachable!("the folder has an id")).await.unwrap();
        assert_eq!((again.cluster_id(), again.formatted()), ("cluster", true));
        drop(again);
        let other = DataFolder::open(&env, &dir, 2, id).await.err();
        assert!(matches!(other, Some(FolderError::OtherBroker { found: 1, wanted: 2, .. })), "{other:?}");
        let under_a_file = dir.join("kilo.meta/below");
        assert!(matches!(DataFolder::open(&env, &under_a_file, 1, id).await.err(), Some(FolderError::Io { .. })));
        let of_kafka = dir.join("kafka");
        env.disk().create_dir_all(&of_kafka).await.unwrap();
        overwrite(&env, &of_kafka.join("meta.properties"), Bytes::from_static(b"version=1")).await;
        assert!(matches!(DataFolder::open(&env, &of_kafka, 1, id).await.err(), Some(FolderError::OfKafka(_))));
    });
}
