//! Connections.

use std::io::{ErrorKind, IoSlice};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::world::{World, soon};
use crate::{Env, Listener, Stream};

async fn listen(World { env, ip, .. }: &World) -> Box<dyn Listener> {
    env.net().listen((*ip, 0).into()).await.expect("listens")
}

/// A connection: the end that connected, and the one that accepted.
async fn pair(world: &World) -> (Stream, Stream) {
    let listener = listen(world).await;
    let (client, server) =
        soon(&world.env, async { tokio::join!(world.env.net().connect(listener.local_addr()), listener.accept()) })
            .await;
    (client.expect("connects"), server.expect("accepts"))
}

async fn expect_end(env: &Env, stream: &mut Stream) {
    let mut rest = Vec::new();
    let end = soon(env, stream.read.read_to_end(&mut rest)).await;
    assert_eq!((end.ok(), rest.len()), (Some(0), 0));
}

/// Each end's peer is the other's local address.
pub async fn both_ends_know_their_addresses(world: World) {
    let listener = listen(&world).await;
    assert_ne!(listener.local_addr().port(), 0);
    let (client, server) = tokio::join!(world.env.net().connect(listener.local_addr()), listener.accept());
    let (client, server) = (client.expect("connects"), server.expect("accepts"));
    assert_eq!(client.peer, listener.local_addr());
    assert_eq!(server.local, listener.local_addr());
    assert_eq!(client.local, server.peer);
}

/// FIN is one direction's end.
pub async fn shutdown_is_end_of_file_and_the_other_direction_goes_on(world: World) {
    let (mut client, mut server) = pair(&world).await;
    client.write.write_all(b"request").await.expect("writes");
    client.write.shutdown().await.expect("shuts down");
    assert!(client.write.write_all(b"more").await.is_err());
    let mut request = Vec::new();
    soon(&world.env, server.read.read_to_end(&mut request)).await.expect("ends");
    assert_eq!(request, b"request");
    expect_end(&world.env, &mut server).await;
    let mut answer = Vec::new();
    let exchange = async {
        tokio::join!(client.read.read_to_end(&mut answer), async {
            server.write.write_all(&vec![7; 100_000]).await.expect("writes");
            server.write.shutdown().await.expect("shuts down");
        })
    };
    soon(&world.env, exchange).await.0.expect("ends");
    assert_eq!(answer, vec![7; 100_000]);
}

/// What was written still arrives, then the end. One half alone ends nothing.
pub async fn dropping_both_halves_ends_the_connection(world: World) {
    let (mut client, mut server) = pair(&world).await;
    client.write.write_all(b"last words").await.expect("writes");
    drop(client.read);
    world.env.sleep(Duration::from_millis(20)).await;
    client.write.write_all(b", indeed").await.expect("writes");
    drop(client.write);
    let mut words = Vec::new();
    soon(&world.env, server.read.read_to_end(&mut words)).await.expect("ends");
    assert_eq!(words, b"last words, indeed");
}

/// The peer is told that somebody did not listen.
pub async fn closing_with_unread_data_resets(world: World) {
    let (client, mut server) = pair(&world).await;
    server.write.write_all(b"nobody reads this").await.expect("writes");
    world.env.sleep(Duration::from_millis(50)).await;
    drop((client.read, client.write));
    let error = soon(&world.env, server.read.read_u8()).await.expect_err("is reset");
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
}

/// Who waits on either half is woken with an error, here and there.
pub async fn abort_fails_both_halves_and_resets_the_peer(world: World) {
    let (mut client, mut server) = pair(&world).await;
    let abort = client.abort.clone();
    let env = world.env.clone();
    let (mut client_read, mut server_read) = (client.read, server.read);
    let waiting = async {
        tokio::join!(client_read.read_u8(), server_read.read_u8(), async {
            env.sleep(Duration::from_millis(20)).await;
            abort.abort();
            abort.abort();
        })
    };
    let (here, there, ()) = soon(&world.env, waiting).await;
    assert_eq!(here.expect_err("is aborted").kind(), ErrorKind::ConnectionAborted);
    assert_eq!(there.expect_err("is reset").kind(), ErrorKind::ConnectionReset);
    assert!(client.write.write_all(b"x").await.is_err());
    assert!(client_read.read_u8().await.is_err());
    assert!(server.write.write_all(b"x").await.is_err());
    assert_eq!(server_read.read(&mut [0]).await.expect("ends after its error"), 0);
    drop((client.write, client_read));
    abort.abort();
}

/// Not the first write perhaps, but soon.
pub async fn writing_to_a_closed_peer_fails(world: World) {
    let (mut client, server) = pair(&world).await;
    drop((server.read, server.write));
    let error = soon(&world.env, async {
        loop {
            if let Err(error) = client.write.write_all(b"is anybody there?").await {
                return error;
            }
            world.env.sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    assert!(matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe), "{error}");
}

/// At once.
pub async fn connecting_to_nobody_is_refused(world: World) {
    let listener = listen(&world).await;
    let addr = listener.local_addr();
    drop(listener);
    let refused = soon(&world.env, world.env.net().connect(addr)).await.err().expect("nobody listens");
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
}

/// And free again when the listener is gone.
pub async fn an_address_is_bound_once(world: World) {
    let listener = listen(&world).await;
    let addr = listener.local_addr();
    let second = world.env.net().listen(addr).await.err().expect("is taken");
    assert_eq!(second.kind(), ErrorKind::AddrInUse);
    let (client, server) = tokio::join!(world.env.net().connect(addr), listener.accept());
    drop((client, server, listener));
    world.env.net().listen(addr).await.expect("listens again");
}

/// A connection is not lost with the future.
pub async fn accept_can_be_dropped(world: World) {
    let listener = listen(&world).await;
    for _ in 0..3 {
        tokio::select! {
            biased;
            _ = listener.accept() => panic!("nobody has connected"),
            () = world.env.sleep(Duration::from_millis(3)) => {}
        }
    }
    let client = world.env.net().connect(listener.local_addr()).await.expect("connects");
    let server = soon(&world.env, listener.accept()).await.expect("accepts");
    assert_eq!(client.local, server.peer);
}

/// Buffers are bounded, and nothing is lost.
pub async fn a_slow_reader_holds_the_writer_back(world: World) {
    const CHUNK: usize = 256 * 1024;
    const LIMIT: usize = 64 << 20;
    let (mut client, mut server) = pair(&world).await;
    let chunk: Vec<u8> = (0..CHUNK).map(|at| (at % 251) as u8).collect();
    let mut written = 0;
    loop {
        let part = &chunk[written % CHUNK..];
        tokio::select! {
            biased;
            count = client.write.write(part) => written += count.expect("writes"),
            () = world.env.sleep(Duration::from_millis(200)) => break,
        }
        assert!(written < LIMIT, "{written} bytes and no end");
    }
    let env = world.env.clone();
    let writer = env.spawn("writer", async move {
        let part = &chunk[written % CHUNK..];
        client.write.write_all(part).await.expect("goes on when there is room");
        client.write.shutdown().await.expect("shuts down");
    });
    let mut received = Vec::new();
    soon(&world.env, server.read.read_to_end(&mut received)).await.expect("reads it all");
    soon(&world.env, writer.join()).await;
    assert_eq!(received.len(), written.next_multiple_of(CHUNK).max(written + CHUNK - written % CHUNK));
    assert!(received.iter().enumerate().all(|(at, byte)| *byte == (at % CHUNK % 251) as u8));
}

/// Bytes come in order, however they are cut.
pub async fn short_reads_and_vectored_writes_keep_order(world: World) {
    let (mut client, mut server) = pair(&world).await;
    assert!(client.write.is_write_vectored());
    let expected: Vec<u8> = (0..20_000_u32).map(|at| (at % 253) as u8).collect();
    let to_send = expected.clone();
    let writer = world.env.spawn("writer", async move {
        let mut rest = &to_send[..];
        while !rest.is_empty() {
            let (left, right) = rest.split_at(rest.len() / 2);
            let (first, second) = left.split_at(left.len() / 3);
            let slices = [IoSlice::new(first), IoSlice::new(second), IoSlice::new(right)];
            let count = client.write.write_vectored(&slices).await.expect("writes");
            rest = &rest[count..];
        }
        client.write.flush().await.expect("flushes");
    });
    let mut received = Vec::new();
    let mut size = 1;
    while received.len() < expected.len() {
        let mut buf = vec![0; size];
        let count = soon(&world.env, server.read.read(&mut buf)).await.expect("reads");
        assert!(count > 0 && count <= size);
        received.extend_from_slice(&buf[..count]);
        size = size % 17 + 1;
    }
    assert_eq!(received, expected);
    soon(&world.env, writer.join()).await;
}

/// Numbers and the local name.
pub async fn resolves_addresses(world: World) {
    let net = world.env.net();
    assert_eq!(net.resolve("127.0.0.1:80").await.expect("is a number"), [([127, 0, 0, 1], 80).into()]);
    let local = net.resolve("localhost:9092").await.expect("is known everywhere");
    assert!(!local.is_empty() && local.iter().all(|addr| addr.ip().is_loopback() && addr.port() == 9092));
    assert!(net.resolve("no port").await.is_err());
}
