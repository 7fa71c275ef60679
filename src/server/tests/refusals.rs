//! A start that is refused for what it finds in the data folder changes no byte there: whoever follows the advice of the
//! message, or restores a file from a copy, finds everything as it was.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::*;
use crate::io::OpenMode;

/// Every file and directory of the data folder but the lock, with what is in it.
async fn everything(env: &Env, dir: &Path) -> BTreeMap<PathBuf, Bytes> {
    let (mut everything, mut dirs) = (BTreeMap::new(), vec![dir.to_owned()]);
    while let Some(dir) = dirs.pop() {
        for path in env.disk().list(&dir).await.expect("a directory") {
            if path.ends_with(".lock") {
                continue;
            }
            let bytes = if env.disk().list(&path).await.is_ok() {
                dirs.push(path.clone());
                Bytes::new()
            } else {
                read(env, &path).await
            };
            everything.insert(path, bytes);
        }
    }
    everything
}

async fn read(env: &Env, path: &Path) -> Bytes {
    let file = env.disk().open(path, OpenMode::Read).await.expect("there");
    let len = usize::try_from(file.len().await.expect("readable")).expect("small");
    file.read_at(0, len).await.expect("readable")
}

async fn write(env: &Env, path: &Path, bytes: impl Into<Bytes>) {
    let file = env.disk().open(path, OpenMode::Create).await.expect("opened");
    file.set_len(0).await.expect("emptied");
    file.write_at(0, vec![bytes.into()]).await.expect("written");
}

async fn flip(env: &Env, path: &Path, at: usize) {
    let mut bytes = read(env, path).await.to_vec();
    bytes[at] ^= 1;
    write(env, path, bytes).await;
}

/// Damages the folder of a broker that had a topic `t`.
async fn provoke(env: &Env, dir: &Path, what: &str) {
    let disk = env.disk();
    let log = dir.join("metadata/log-00000000000000000001");
    let remove = async |name: &str| disk.remove_file(&dir.join(name)).await.expect("removed");
    match what {
        "other broker" => {}
        "identity damaged" => flip(env, &dir.join("kilo.meta"), 14).await,
        "identity newer" => write(env, &dir.join("kilo.meta"), &b"version=2\n"[..]).await,
        "identity lost" => remove("kilo.meta").await,
        "identity lost, and all but the metadata" => {
            remove("kilo.meta").await;
            remove("wal.files").await;
            disk.remove_dir_all(&dir.join("wal")).await.expect("removed");
            disk.remove_dir_all(&dir.join("t-0")).await.expect("removed");
            // A torn end, which a start that goes on cuts.
            let bytes = read(env, &log).await;
            write(env, &log, bytes.slice(..bytes.len() - 3)).await;
            remove("metadata/end").await;
        }
        "metadata lost" => disk.remove_dir_all(&dir.join("metadata")).await.expect("removed"),
        "metadata cut" => {
            let bytes = read(env, &log).await;
            write(env, &log, bytes.slice(..bytes.len() - 3)).await;
        }
        "metadata damaged" => flip(env, &log, 60).await,
        "metadata header damaged" => flip(env, &log, 3).await,
        "metadata snapshot damaged" => {
            write(env, &dir.join("metadata/snapshot.tmp"), &b"half"[..]).await;
            write(env, &dir.join("metadata/snapshot"), &b"rotten"[..]).await;
        }
        "segment gone" => remove("t-0/t-0_00000000000000000000.log").await,
        "write-ahead log lost" => {
            let files = disk.list(&dir.join("wal")).await.expect("readable");
            disk.remove_file(&files[0]).await.expect("removed");
        }
        other => panic!("{other}"),
    }
}

#[test]
fn a_start_that_is_refused_changes_no_byte() {
    let refusals = [
        ("other broker", "belongs to broker"),
        ("identity damaged", "is damaged"),
        ("identity newer", "use a newer one"),
        ("identity lost", "is missing, though"),
        ("identity lost, and all but the metadata", "is missing, though"),
        ("metadata lost", "holds no metadata"),
        ("metadata cut", "it was cut short or damaged"),
        ("metadata damaged", "is damaged at byte"),
        ("metadata header damaged", "is not a metadata log"),
        ("metadata snapshot damaged", "is not a metadata snapshot"),
        ("segment gone", "is missing. Restore it"),
        ("write-ahead log lost", "0: it is missing"),
    ];
    for (what, message) in refusals {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let (mut config, dir) = (config(dir.path()), dir.path());
        crate::io::real::block_on_test(|env| async move {
            let broker = std::sync::Arc::new(Broker::start(env.clone(), config.clone()).await.expect("starts"));
            let fixture = Fixture { env: env.clone(), broker: broker.clone() };
            let connection = fixture.connect().await;
            create(&connection, "t", 1, &[]).await;
            assert_eq!(produce(&connection, "t", 0, batch(&[b"a"])).await.error_code, 0);
            broker.stop().await;
            provoke(&env, dir, what).await;
            config.node_id += i32::from(what == "other broker");
            let before = everything(&env, dir).await;
            // The second one finds what the first found.
            for _ in 0..2 {
                let error = Broker::start(env.clone(), config.clone()).await.err();
                let error = error.unwrap_or_else(|| panic!("{what} is not refused")).to_string();
                assert!(error.contains(message), "{what}: {error}");
                let after = everything(&env, dir).await;
                let changed: Vec<_> =
                    before.keys().chain(after.keys()).filter(|it| before.get(*it) != after.get(*it)).collect();
                assert!(changed.is_empty(), "{what}: {changed:?}");
            }
        });
    }
}
