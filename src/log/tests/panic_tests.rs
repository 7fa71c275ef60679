//! What a panic ends: under a lock of the core the whole process, elsewhere its own task. Each case is a process of its own.

use std::process::Command;

use super::*;

const INSIDE: &str = "KILO_TEST_INSIDE";

/// Runs the body of the test of this name in a process of its own, and returns its exit code.
fn exit_code(test: &str) -> Option<i32> {
    let binary = std::env::current_exe().expect("a test knows its binary");
    let mut command = Command::new(binary);
    command.args([&format!("log::tests::panic_tests::{test}"), "--exact"]).env(INSIDE, test);
    command.output().expect("a process").status.code()
}

fn with_log<F: Future<Output = ()>>(test: impl FnOnce(Env, LogManager, Arc<PartitionLog>) -> F) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    block_on_test(|env| async move {
        let logs = open_with(&env, dir.path(), spec(1, 1 << 20)).await;
        let log = logs.partition(&KEY).expect("it was opened");
        test(env, logs, log).await;
    });
}

#[test]
fn under_the_lock_of_a_partition_it_is_a_fail_stop() {
    if std::env::var_os(INSIDE).is_none() {
        assert_eq!(exit_code("under_the_lock_of_a_partition_it_is_a_fail_stop"), Some(71));
        return;
    }
    with_log(|env, _logs, log| async move {
        let connection = async move {
            let _inner = log.lock();
            panic!("planted");
        };
        env.spawn("connection", connection).join().await;
    });
}

#[test]
fn elsewhere_in_a_connection_it_ends_its_task_alone() {
    if std::env::var_os(INSIDE).is_none() {
        assert_eq!(exit_code("elsewhere_in_a_connection_it_ends_its_task_alone"), Some(0));
        return;
    }
    with_log(|env, _logs, log| async move {
        /// Takes the lock while a panic of somebody else unwinds.
        struct Guard(Arc<PartitionLog>);
        impl Drop for Guard {
            fn drop(&mut self) {
                drop(self.0.lock());
            }
        }
        let guard = Guard(log.clone());
        let connection = async move {
            drop(guard.0.lock());
            let _guard = guard;
            panic!("planted");
        };
        env.spawn("connection", connection).join().await;
        assert_eq!(append(&env, &log, batch(0, 1, None)).await, Ok(0));
    });
}
