//! The metadata log after a flush that failed: what the next start reads may stand in the page cache alone, as clean
//! pages, and must survive a power cut once it has been built on. (Found by `failed_fsync`, seed 9.)

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kilo::io::{Env, FailStop};
use kilo::metadata::{Command, MetadataStore};
use kilo_sim::disk::{Fault, Injection, Keep, OpKind};
use kilo_sim::host::{Exit, SimConfig, run};

/// No snapshot is due.
const NEVER: u64 = u64::MAX;
const DIR: &str = "/metadata";

/// What an incarnation found at its start, by its metadata index, or why it did not start.
type Starts = Arc<Mutex<Vec<Result<u64, String>>>>;

async fn serve(env: Env, starts: Starts, snapshot_after: u64) {
    let opened = MetadataStore::open(&env, Path::new(DIR), false, snapshot_after).await;
    let found = opened.as_ref().map(|store| store.image().applied().index).map_err(ToString::to_string);
    starts.lock().expect("nothing panics while it holds this lock").push(found);
    let Ok(store) = opened else { return };
    let (broker_id, host, port) = (1, "broker".to_owned(), 9092);
    let command = Command::RegisterBroker { broker_id, host, port, rack: None, started_ms: 0 };
    // Whether this incarnation outlives it shows elsewhere.
    let _ = store.propose(command).await;
    std::future::pending::<()>().await;
}

#[test]
fn an_entry_whose_flush_failed_survives_once_it_has_been_built_on() {
    for keep in [Keep::None, Keep::Some, Keep::All] {
        let starts = Starts::default();
        let seen = starts.clone();
        run(SimConfig::new(9), |sim| async move {
            let node = sim.create_node("broker");
            let settle = Duration::from_millis(200);
            node.start(move |env| serve(env, starts.clone(), NEVER));
            sim.sleep(settle).await;
            node.kill();
            // The start flushes what it read; the next flush is the one of its own entry.
            let path = "metadata/log".to_owned();
            node.disk().inject(Injection { op: OpKind::Sync, path, nth: 1, fault: Fault::Eio });
            node.restart();
            assert!(matches!(node.exited().await, Exit::FailStop(..)), "a failed flush ends the incarnation");
            node.restart();
            sim.sleep(settle).await;
            node.power_loss(keep);
            node.restart();
            sim.sleep(settle).await;
        });
        let seen = seen.lock().expect("nothing panics while it holds this lock").clone();
        assert_eq!(seen, [Ok(0), Ok(1), Ok(2), Ok(3)], "{keep:?}");
    }
}

/// Each flush of a snapshot counts: of the snapshot, of the log that goes on after it, and of their names. (Found by
/// `topic_creation`, where the broker went on after a failed flush of the new log.)
#[test]
fn a_failed_flush_of_a_snapshot_ends_the_incarnation() {
    let flushes = [
        (OpKind::Sync, "metadata/snapshot.tmp"),
        (OpKind::Sync, "metadata/log-00000000000000000002"),
        (OpKind::SyncDir, "metadata"),
    ];
    for (op, path) in flushes {
        for keep in [Keep::None, Keep::Some, Keep::All] {
            let starts = Starts::default();
            let seen = starts.clone();
            run(SimConfig::new(53), |sim| async move {
                let node = sim.create_node("broker");
                let settle = Duration::from_millis(200);
                // The first start has nothing to say yet: its log is made, and the folder flushed for it.
                let made = starts.clone();
                node.start(move |env| {
                    let made = made.clone();
                    async move {
                        let opened = MetadataStore::open(&env, Path::new(DIR), false, NEVER).await;
                        made.lock()
                            .expect("nothing panics while it holds this lock")
                            .push(opened.map(|_| 0).map_err(|error| error.to_string()));
                    }
                });
                sim.sleep(settle).await;
                node.kill();
                node.start(move |env| serve(env, starts.clone(), 0));
                let path = path.to_owned();
                node.disk().inject(Injection { op, path, nth: 0, fault: Fault::Eio });
                assert!(matches!(node.exited().await, Exit::FailStop(FailStop::FsyncFailed, _)), "{op:?}");
                node.power_loss(keep);
                node.restart();
                sim.sleep(settle).await;
                node.power_loss(keep);
                node.restart();
                sim.sleep(settle).await;
            });
            let seen = seen.lock().expect("nothing panics while it holds this lock").clone();
            assert_eq!(seen, [Ok(0), Ok(0), Ok(1), Ok(2)], "{op:?} {path} {keep:?}");
        }
    }
}
