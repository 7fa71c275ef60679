//! The conformance suite on the real world, and what only the real world has.

use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use super::*;
use crate::conformance::{World, disk, net, time};

fn world(env: Env, dir: PathBuf) -> World {
    World { env, dir, ip: IpAddr::V4(Ipv4Addr::LOCALHOST) }
}

macro_rules! cases {
    ($($module:ident::$case:ident,)*) => {$(
        #[test]
        fn $case() {
            let dir = tempfile::tempdir().expect("a temporary directory");
            block_on_test(|env| $module::$case(world(env, dir.path().to_owned())));
        }
    )*};
}

crate::conformance_cases!(cases);

/// Tells a test that runs itself again, in a process with a limit, that it is inside.
const INSIDE: &str = "KILO_TEST_INSIDE";

/// Runs `test` of this binary again, in `shell` after its preparation.
fn again(test: &str, dir: &Path, shell: &[&str], preparation: &str) -> Output {
    let binary = std::env::current_exe().expect("a test knows its binary");
    Command::new(shell[0])
        .args(&shell[1..])
        .arg(format!("{preparation} && exec \"$0\" \"$@\""))
        .arg(binary)
        .args([&format!("real::tests::{test}"), "--exact", "--nocapture"])
        .env(INSIDE, dir)
        .output()
        .expect("a shell")
}

fn inside() -> Option<PathBuf> {
    std::env::var_os(INSIDE).map(PathBuf::from)
}

#[track_caller]
fn assert_passed(output: &Output) {
    let text = [&output.stdout[..], &output.stderr[..]].concat();
    let text = String::from_utf8_lossy(&text);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}

#[test]
fn a_full_disk_refuses_and_recovers() {
    if let Some(dir) = inside() {
        return block_on_test(|env| disk::a_full_disk_refuses_and_recovers(world(env, dir)));
    }
    let dir = tempfile::tempdir().expect("a temporary directory");
    let name = "a_full_disk_refuses_and_recovers";
    let mount = format!("mount -t tmpfs -o size=2m kilo-test '{}' && echo mounted", dir.path().display());
    // A small file system in a mount namespace of its own, as root or as a user who may have one.
    for shell in [&["unshare", "-m", "sh", "-c"][..], &["unshare", "-r", "-m", "sh", "-c"]] {
        let output = again(name, dir.path(), shell, &mount);
        if String::from_utf8_lossy(&output.stdout).contains("mounted") {
            return assert_passed(&output);
        }
    }
    // Where nothing can be mounted, a limit on the size of files is the nearest real refusal.
    eprintln!("no file system can be mounted here: the size of files is limited instead");
    let output = again(name, dir.path(), &["sh", "-c"], "trap '' XFSZ && ulimit -f 2048");
    assert_passed(&output);
}

#[test]
fn descriptors_run_out_and_come_back() {
    if let Some(dir) = inside() {
        return block_on_test(|env| disk::descriptors_run_out_and_come_back(world(env, dir)));
    }
    let dir = tempfile::tempdir().expect("a temporary directory");
    let output = again("descriptors_run_out_and_come_back", dir.path(), &["sh", "-c"], "ulimit -n 100");
    assert_passed(&output);
}

#[test]
fn the_lock_file_names_the_holder() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    block_on_test(|env| async move {
        let _lock = env.disk().lock_dir(dir.path()).await.expect("locks");
        let error = env.disk().lock_dir(dir.path()).await.err().expect("is held");
        assert!(error.to_string().contains(&format!("process {}", std::process::id())), "{error}");
    });
}

#[test]
fn there_are_as_many_threads_as_asked_for() {
    let count = |prefix: &str| {
        let tasks = std::fs::read_dir("/proc/self/task").expect("Linux lists threads");
        tasks
            .filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok())
            .filter(|name| name.starts_with(prefix))
            .count()
    };
    if inside().is_none() {
        // In a process of its own: other tests have threads with the same names.
        let output = again("there_are_as_many_threads_as_asked_for", Path::new("/"), &["sh", "-c"], "true");
        return assert_passed(&output);
    }
    let real = RealEnv::new(RealConfig { network_threads: 3, io_threads: 5 }).expect("starts");
    let env = real.env();
    real.block_on(async {
        env.net().resolve("localhost:1").await.expect("resolves");
        env.compute(|| ()).await.expect("computes");
    });
    // A thread takes its name when it begins to run, and leaves the list a little after it was joined.
    let becomes = |net: usize, io: usize| {
        for _ in 0..1000 {
            if (count("kilo-net-"), count("kilo-io-")) == (net, io) {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("{} and {} threads, not {net} and {io}", count("kilo-net-"), count("kilo-io-"));
    };
    becomes(3, 5);
    drop(real);
    becomes(0, 0);
}

#[test]
fn computations_leave_a_thread_for_the_disk() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    block_on_test(|env| async move {
        let (release, gate) = std::sync::mpsc::channel::<()>();
        let blocked = env.compute(move || gate.recv().is_ok());
        let queued = env.compute(|| 1);
        let work = env.spawn("computes", async move {
            assert_eq!(blocked.await, Some(true));
            assert_eq!(queued.await, Some(1));
        });
        assert_eq!(env.disk().list(dir.path()).await.expect("lists").len(), 0);
        release.send(()).expect("the computation waits");
        work.join().await;
    });
}

#[test]
fn what_was_submitted_is_done_before_the_threads_end() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let real = RealEnv::new(RealConfig { network_threads: 1, io_threads: 1 }).expect("starts");
    let env = real.env();
    real.block_on(async {
        let file = env.disk().open(&dir.path().join("file"), crate::OpenMode::Create).await.expect("opens");
        for index in 0..100 {
            drop(file.write_at(index * 4, vec![bytes::Bytes::from_static(b"done")]));
        }
    });
    drop(real);
    assert_eq!(std::fs::metadata(dir.path().join("file")).expect("exists").len(), 400);
    let late = RealEnv::new(RealConfig { network_threads: 0, io_threads: 1 });
    assert!(late.is_err());
}

#[test]
fn a_fail_stop_and_a_panic_end_as_they_should_while_nobody_reads_the_log() {
    let name = "a_fail_stop_and_a_panic_end_as_they_should_while_nobody_reads_the_log";
    if inside().is_some() {
        let log = LogWriter::stderr().expect("a thread");
        log_panics(log.clone());
        for _ in 0..10_000 {
            std::io::Write::write_all(&mut log.clone(), &[b'\n'; 1000]).expect("never fails");
        }
        block_on_test(|env| async move {
            env.spawn("connection", async { panic!("this ends its task alone") }).join().await;
            let task = env.clone();
            let _ = env.spawn_core("core", async { panic!("this ends the process") }).join().await;
            task.sleep(Duration::from_secs(60)).await;
        });
    }
    let began = Instant::now();
    let mut child = Command::new(std::env::current_exe().expect("a test knows its binary"))
        .args([&format!("real::tests::{name}"), "--exact", "--nocapture"])
        .env(INSIDE, "/")
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .expect("a process");
    // The other end of its standard error is open, and nobody reads it.
    assert_eq!(child.wait().expect("it ends").code(), Some(71));
    assert!(began.elapsed() < Duration::from_secs(20));
}
