//! What partitions, power cuts, kills and resets do to connections.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::time::Duration;

use kilo::io::{Env, Listener, Stream};
use kilo_sim::disk::Keep;
use kilo_sim::host::{Node, Sim, SimConfig, run};
use kilo_sim::net::LinkConfig;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

struct Pair {
    sim: Sim,
    client_node: Node,
    server_node: Node,
    client_env: Env,
    listener: Box<dyn Listener>,
    addr: SocketAddr,
    client: Stream,
    server: Stream,
}

fn with_pair<F: Future>(test: impl Fn(Pair) -> F) -> Vec<F::Output> {
    let in_world = |sim: Sim| async {
        let (client_node, server_node) = (sim.create_node("client"), sim.create_node("server"));
        let (client_env, server_env) = (client_node.enter(), server_node.enter());
        let addr = SocketAddr::new(server_node.ip(), 9092);
        let listener = server_env.net().listen(addr).await.expect("listens");
        let (client, server) = tokio::join!(client_env.net().connect(addr), listener.accept());
        let (client, server) = (client.expect("connects"), server.expect("accepts"));
        // Not taken apart by the closures: an end that a test does not name would be dropped before it begins.
        test(Pair { sim, client_node, server_node, client_env, listener, addr, client, server }).await
    };
    (0..10).map(|seed| run(SimConfig::new(seed), in_world)).collect()
}

async fn within<T>(sim: &Sim, seconds: u64, future: impl Future<Output = T>) -> Option<T> {
    tokio::select! {
        biased;
        output = future => Some(output),
        () = sim.sleep(Duration::from_secs(seconds)) => None,
    }
}

#[test]
fn a_partition_stalls_and_heals() {
    with_pair(|pair| async move {
        let mut pair = pair;
        pair.sim.net().partition(&[&pair.client_node], &[&pair.server_node]);
        pair.client.write.write_all(b"delayed").await.expect("is buffered");
        let mut buf = [0; 7];
        assert!(within(&pair.sim, 10, pair.server.read.read_exact(&mut buf)).await.is_none());
        pair.sim.net().heal();
        within(&pair.sim, 3, pair.server.read.read_exact(&mut buf)).await.expect("goes on").expect("reads");
        assert_eq!(&buf, b"delayed");
        pair.server.write.write_all(b"answers").await.expect("writes");
        within(&pair.sim, 3, pair.client.read.read_exact(&mut buf)).await.expect("goes on").expect("reads");
        assert_eq!(&buf, b"answers");
    });
}

#[test]
fn a_long_partition_ends_the_sender_and_leaves_the_receiver_half_open() {
    with_pair(|pair| async move {
        let mut pair = pair;
        pair.sim.net().partition(&[&pair.client_node], &[&pair.server_node]);
        pair.client.write.write_all(b"lost").await.expect("is buffered");
        let error = within(&pair.sim, 30, pair.client.read.read_u8()).await.expect("gives up").expect_err("fails");
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        pair.sim.net().heal();
        assert!(within(&pair.sim, 3600, pair.server.read.read_u8()).await.is_none());
        pair.server.write.write_all(b"hello?").await.expect("is buffered");
        let error = within(&pair.sim, 5, pair.server.read.read_u8()).await.expect("is told").expect_err("fails");
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    });
}

#[test]
fn a_one_way_partition_delivers_and_still_ends_the_sender() {
    with_pair(|pair| async move {
        let mut pair = pair;
        pair.sim.net().block(&pair.server_node, &pair.client_node);
        pair.client.write.write_all(b"through").await.expect("is buffered");
        let mut buf = [0; 7];
        within(&pair.sim, 1, pair.server.read.read_exact(&mut buf)).await.expect("arrives").expect("reads");
        let error = within(&pair.sim, 30, pair.client.read.read_u8()).await.expect("gives up").expect_err("fails");
        assert_eq!(error.kind(), ErrorKind::TimedOut);
    });
}

#[test]
fn a_peer_without_power_is_silent_and_knows_nothing_later() {
    with_pair(|pair| async move {
        let mut pair = pair;
        pair.server_node.power_loss(Keep::None);
        let heard = within(&pair.sim, 600, pair.client.read.read_u8()).await;
        assert!(heard.is_none(), "{heard:?} {}", pair.sim.trace_text());
        pair.server_node.enter();
        let heard = within(&pair.sim, 600, pair.client.read.read_u8()).await;
        assert!(heard.is_none(), "{heard:?} {}", pair.sim.trace_text());
        pair.client.write.write_all(b"still there?").await.expect("is buffered");
        let error = within(&pair.sim, 5, pair.client.read.read_u8()).await.expect("is told").expect_err("fails");
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    });
}

#[test]
fn a_killed_peer_is_noticed() {
    let ends = with_pair(|pair| async move {
        let mut pair = pair;
        if pair.sim.seed().is_multiple_of(2) {
            pair.client.write.write_all(b"unread").await.expect("writes");
            pair.sim.sleep(Duration::from_millis(10)).await;
        }
        pair.server_node.kill();
        let end = within(&pair.sim, 1, pair.client.read.read(&mut [0])).await.expect("is told");
        end.map_err(|error| error.kind())
    });
    for (seed, end) in ends.iter().enumerate() {
        assert_eq!(*end, if seed % 2 == 0 { Err(ErrorKind::ConnectionReset) } else { Ok(0) });
    }
}

#[test]
fn connecting_is_refused_or_times_out() {
    with_pair(|pair| async move {
        let pair = pair;
        let connect = || async { pair.client_env.net().connect(pair.addr).await.err().map(|error| error.kind()) };
        pair.sim.net().block(&pair.server_node, &pair.client_node);
        assert_eq!(within(&pair.sim, 20, connect()).await, Some(Some(ErrorKind::TimedOut)));
        pair.sim.net().heal();
        assert_eq!(within(&pair.sim, 1, connect()).await, Some(None));
        pair.server_node.kill();
        assert_eq!(within(&pair.sim, 1, connect()).await, Some(Some(ErrorKind::ConnectionRefused)));
        pair.server_node.power_loss(Keep::None);
        assert_eq!(within(&pair.sim, 20, connect()).await, Some(Some(ErrorKind::TimedOut)));
        drop(pair.listener);
    });
}

#[test]
fn a_connection_made_during_a_short_partition_succeeds_after_it() {
    with_pair(|pair| async move {
        let pair = pair;
        pair.sim.net().partition(&[&pair.client_node], &[&pair.server_node]);
        let (sim, net) = (pair.sim.clone(), pair.sim.net());
        let heals = async {
            sim.sleep(Duration::from_secs(5)).await;
            net.heal();
        };
        let (stream, ()) = tokio::join!(pair.client_env.net().connect(pair.addr), heals);
        assert!(stream.is_ok());
        let before = pair.sim.now();
        pair.listener.accept().await.expect("accepts");
        assert!((pair.sim.now() - before) < Duration::from_secs(1));
    });
}

#[test]
fn resets_reach_both_ends() {
    with_pair(|pair| async move {
        let mut pair = pair;
        assert_eq!(pair.sim.net().reset(&pair.server_node, &pair.client_node), 1);
        for stream in [&mut pair.client, &mut pair.server] {
            let error = within(&pair.sim, 1, stream.read.read_u8()).await.expect("is told").expect_err("fails");
            assert_eq!(error.kind(), ErrorKind::ConnectionReset);
            assert!(stream.write.write_all(b"x").await.is_err());
        }
        assert_eq!(pair.sim.net().reset_node(&pair.client_node), 0);
    });
}

#[test]
fn links_can_lose_and_reset() {
    let broken = with_pair(|pair| async move {
        let mut pair = pair;
        pair.sim.net().set_all_links(LinkConfig { loss: 0.2, segment_bytes_max: 100, ..LinkConfig::default() });
        let data = vec![5; 10_000];
        let mut received = vec![0; 10_000];
        let (sent, got) = tokio::join!(pair.client.write.write_all(&data), pair.server.read.read_exact(&mut received));
        sent.and(got.map(|_| ())).expect("loss is repaired");
        assert_eq!(received, data);
        pair.sim.net().set_all_links(LinkConfig { reset: 0.02, segment_bytes_max: 100, ..LinkConfig::default() });
        let (sent, got) = tokio::join!(pair.client.write.write_all(&data), pair.server.read.read_exact(&mut received));
        sent.is_err() || got.is_err()
    });
    assert!(broken.contains(&true), "{broken:?}");
}

#[test]
fn bandwidth_and_latency_count() {
    with_pair(|pair| async move {
        let mut pair = pair;
        let slow = LinkConfig { latency_us: 50_000, jitter_us: 0, bytes_per_s: 100_000, ..LinkConfig::default() };
        pair.sim.net().set_link(&pair.client_node, &pair.server_node, slow);
        let before = pair.sim.now();
        let mut byte = [0; 1];
        let (sent, got) = tokio::join!(pair.client.write.write_all(b"x"), pair.server.read.read_exact(&mut byte));
        sent.and(got.map(|_| ())).expect("arrives");
        assert!((50..55).contains(&(pair.sim.now() - before).as_millis()));
        let mut received = vec![0; 500_000];
        let data = received.clone();
        let (sent, got) = tokio::join!(pair.client.write.write_all(&data), pair.server.read.read_exact(&mut received));
        sent.and(got.map(|_| ())).expect("arrives");
        assert!((pair.sim.now() - before).as_secs() >= 5);
    });
}

#[test]
fn a_paused_reader_holds_the_writer_back() {
    with_pair(|pair| async move {
        let mut pair = pair;
        let data = vec![1; 4 << 20];
        assert!(within(&pair.sim, 60, pair.client.write.write_all(&data)).await.is_none());
        let mut received = 0;
        while let Some(count) = within(&pair.sim, 1, pair.server.read.read(&mut vec![0; 65_536])).await {
            received += count.expect("reads");
        }
        assert!(received < 1 << 20, "{received}");
    });
}
