//! Start, stop, restart, and folders that cannot be used.

use super::*;
use crate::wire::ErrorCode;

#[test]
fn what_was_acknowledged_is_there_after_a_restart_under_a_new_leader_epoch() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let config = config(dir.path());
    crate::io::real::block_on_test(|env| async move {
        for start in 0..3 {
            let broker = std::sync::Arc::new(Broker::start(env.clone(), config.clone()).await.expect("starts"));
            let fixture = Fixture { env: env.clone(), broker };
            let connection = fixture.connect().await;
            if start == 0 {
                assert_eq!(create(&connection, "t", 1, &[]).await.error_code, 0);
            }
            let response = produce(&connection, "t", 0, batch(&[b"a", b"b"])).await;
            assert_eq!((response.error_code, response.base_offset), (0, 2 * start));
            let mut epochs = Vec::new();
            let mut offset = 0;
            while offset < 2 * (start + 1) {
                let read = fetch(&connection, "t", 0, offset, 0).await;
                assert_eq!(read.high_watermark, 2 * (start + 1));
                let records = read.records.expect("never null");
                for batch in crate::wire::batch::RecordBatch::split(records).expect("whole batches") {
                    epochs.push(i64::from(batch.leader_epoch()));
                    offset = batch.last_offset() + 1;
                }
            }
            assert_eq!(epochs, (0..=start).collect::<Vec<_>>(), "one epoch for each start");
            fixture.broker.stop().await;
        }
    });
}

#[test]
fn a_folder_in_use_is_named() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let config = config(dir.path());
    crate::io::real::block_on_test(|env| async move {
        let first = Broker::start(env.clone(), config.clone()).await.expect("starts");
        let error = Broker::start(env.clone(), config.clone()).await.err().expect("the folder is taken");
        assert!(matches!(error, StartError::Folder(_)), "{error}");
        assert!(error.to_string().contains("in use"), "{error}");
        first.stop().await;
        Broker::start(env, config).await.expect("the folder is free again").stop().await;
    });
}

#[test]
fn a_port_in_use_is_named_and_the_folder_is_left_in_order() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let other = tempfile::tempdir().expect("a temporary directory");
    let (config, second) = (config(dir.path()), self::config(other.path()));
    crate::io::real::block_on_test(|env| async move {
        let first = Broker::start(env.clone(), config).await.expect("starts");
        let taken = Endpoint { host: "127.0.0.1".to_owned(), port: first.local_addr().port() };
        let blocked = Config { listeners: taken, ..second.clone() };
        let error = Broker::start(env.clone(), blocked).await.err().expect("the port is taken");
        assert!(error.to_string().starts_with("cannot listen on 127.0.0.1:"), "{error}");
        assert!(error.to_string().contains("--set listeners="), "{error}");
        Broker::start(env, second).await.expect("the folder was left in order").stop().await;
        first.stop().await;
    });
}

#[test]
fn a_stop_answers_what_waits_and_refuses_what_comes_later() {
    with_broker(|fixture| async move {
        let connection = fixture.connect().await;
        create(&connection, "t", 1, &[]).await;
        let waiting = connection.start(&fetch_request("t", 0, 0, 15_000, 1000)).expect("sent");
        // The answer to this one shows that the fetch has been read.
        produce(&fixture.connect().await, "other-topic", 0, batch(&[b"x"])).await;
        fixture.env.sleep(Duration::from_millis(50)).await;
        let before = fixture.env.now();
        fixture.broker.stop().await;
        let response = waiting.response().await.expect("answered before the end");
        assert_eq!(response.error_code, ErrorCode::None.code());
        assert!(fixture.env.now() - before < Duration::from_secs(5), "nobody waits for a long poll");
        assert!(connection.call(&fetch_request("t", 0, 0, 0, 1000)).await.is_err());
    });
}

#[test]
fn a_stop_answers_a_producer_that_waits_for_room_however_long_it_would_wait() {
    with_config(
        |config| config.queue_size = 1024,
        |fixture| async move {
            let connection = fixture.connect().await;
            create(&connection, "t", 1, &[]).await;
            let log = fixture.broker.shared.ctx.logs.all().remove(0);
            let large = crate::wire::batch::RecordBatch::split(batch(&[&[0; 2000]])).expect("one batch").remove(0);
            let _all = log.reserve(&large, std::future::pending()).await.expect("the queue is empty");
            let request =
                ProduceRequestData { timeout_ms: i32::MAX, ..produce_request("t", 0, batch(&[b"waits"]), -1) };
            let waiting = connection.start(&request).expect("sent");
            fixture.env.sleep(Duration::from_millis(100)).await;
            let before = fixture.env.now();
            fixture.broker.stop().await;
            let response = waiting.response().await.expect("answered before the end");
            let error = response.responses[0].partition_responses[0].error_code;
            assert_eq!(error, ErrorCode::NotLeaderOrFollower.code());
            assert!(fixture.env.now() - before < Duration::from_secs(1), "nobody waits for the queue");
        },
    );
}

#[test]
fn a_folder_that_lost_its_identity_is_refused_until_someone_writes_it() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let config = config(dir.path());
    crate::io::real::block_on_test(|env| async move {
        let broker = Broker::start(env.clone(), config.clone()).await.expect("starts");
        let cluster_id = broker.cluster_id().to_owned();
        broker.stop().await;
        let meta = dir.path().join("kilo.meta");
        env.disk().remove_file(&meta).await.expect("it is there");
        for wal in ["wal", "gone"] {
            let error = Broker::start(env.clone(), config.clone()).await.err().expect("refused").to_string();
            assert!(error.contains("kilo.meta is missing") && error.contains("crc=none"), "{error}");
            if wal == "wal" {
                // The metadata alone says as much.
                env.disk().rename(&dir.path().join("wal"), &dir.path().join("gone")).await.expect("renamed");
            }
        }
        env.disk().rename(&dir.path().join("gone"), &dir.path().join("wal")).await.expect("renamed");
        let text = format!("version=1\ncluster.id={cluster_id}\nnode.id={}\ncrc=none\n", config.node_id);
        let file = env.disk().open(&meta, crate::io::OpenMode::CreateNew).await.expect("created");
        file.write_at(0, vec![text.into()]).await.expect("written");
        let broker = Broker::start(env.clone(), config).await.expect("starts");
        assert_eq!(broker.cluster_id(), cluster_id);
        broker.stop().await;
    });
}
