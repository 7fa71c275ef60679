//! What peers do to connections: order, limits, hostile bytes, slowness.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;
use crate::io::Stream;
use crate::wire::messages::{ApiVersionsRequestData, decode_response, encode_request};

/// ApiVersions v0 without a client id.
const PLAIN: [u8; 14] = [0, 0, 0, 10, 0, 18, 0, 0, 0, 0, 0, 9, 0xff, 0xff];

async fn raw(fixture: &Fixture) -> Stream {
    let addr: SocketAddr = fixture.broker.local_addr();
    fixture.env.net().connect(addr).await.expect("the broker listens")
}

/// Whether the peer ends the connection within `limit`.
async fn closed_within(env: &Env, stream: &mut Stream, limit: Duration) -> bool {
    let deadline = env.now() + limit;
    let mut buffer = [0; 4096];
    loop {
        tokio::select! { biased;
            read = stream.read.read(&mut buffer) => if read.map_or(true, |len| len == 0) { return true },
            () = env.sleep_until(deadline) => return false,
        }
    }
}

/// Reads one frame without its length.
async fn frame(stream: &mut Stream) -> Bytes {
    let len = stream.read.read_u32().await.expect("a length");
    let mut bytes = vec![0; len as usize];
    stream.read.read_exact(&mut bytes).await.expect("a frame");
    bytes.into()
}

#[test]
fn answers_come_in_the_order_of_the_requests() {
    with_broker(|fixture| async move {
        create(&fixture.connect().await, "t", 1, &[]).await;
        let mut stream = raw(&fixture).await;
        let mut bytes = Vec::new();
        for number in 0..60 {
            let value = number.to_string();
            bytes.extend_from_slice(&match number % 3 {
                0 => encode_request(&ApiVersionsRequestData::default(), 0, number, None).expect("encodes"),
                1 => encode_request(&produce_request("t", 0, batch(&[value.as_bytes()]), 1), 7, number, None)
                    .expect("encodes"),
                _ => encode_request(&fetch_request("t", 0, 1000, 0, 100), 11, number, None).expect("encodes"),
            });
        }
        stream.write.write_all(&bytes).await.expect("sent");
        for number in 0..60 {
            let mut response = frame(&mut stream).await;
            assert_eq!(bytes::Buf::get_i32(&mut response), number);
        }
        let read = fetch(&fixture.connect().await, "t", 0, 0, 0).await;
        let batches = crate::wire::batch::RecordBatch::split(read.records.expect("never null")).expect("whole");
        let limit = 1 << 20;
        let values: Vec<String> = batches
            .iter()
            .flat_map(|batch| batch.records(limit).expect("readable").collect::<Vec<_>>())
            .map(|record| {
                String::from_utf8(record.expect("readable").value.expect("a value").to_vec()).expect("digits")
            })
            .collect();
        let expected: Vec<String> = (0..60).filter(|number| number % 3 == 1).map(|number| number.to_string()).collect();
        assert_eq!(values, expected, "the log holds the records in the order they were sent");
    });
}

#[test]
fn no_acks_means_no_answer_and_a_failure_closes() {
    with_broker(|fixture| async move {
        create(&fixture.connect().await, "t", 1, &[]).await;
        let mut stream = raw(&fixture).await;
        let quiet = encode_request(&produce_request("t", 0, batch(&[b"x"]), 0), 7, 1, None).expect("encodes");
        stream.write.write_all(&quiet).await.expect("sent");
        stream.write.write_all(&PLAIN).await.expect("sent");
        let (correlation_id, _) =
            decode_response::<crate::wire::messages::ApiVersionsResponseData>(frame(&mut stream).await, 0)
                .expect("an answer");
        assert_eq!(correlation_id, 9, "the first answer is that of the second request");
        let bad = encode_request(&produce_request("no-such-topic", 0, batch(&[b"x"]), 0), 7, 2, None).expect("encodes");
        stream.write.write_all(&bad).await.expect("sent");
        assert!(closed_within(&fixture.env, &mut stream, Duration::from_secs(3)).await);
    });
}

#[test]
fn what_is_no_request_is_hung_up_on_and_others_never_notice() {
    with_broker(|fixture| async move {
        let good = fixture.connect().await;
        let hostile: &[(&str, &[u8])] = &[
            ("huge", &[0x7f, 0xff, 0xff, 0xff, 0, 18, 0, 0]),
            ("large", &[0x60, 0, 0, 0, 0, 18, 0, 0]),
            ("minus one", &[0xff, 0xff, 0xff, 0xff]),
            ("minus a lot", &[0x80, 0, 0, 0]),
            ("empty", &[0, 0, 0, 0]),
            ("HTTP", b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"),
            ("TLS", &[0x16, 3, 1, 0, 200, 1, 0, 0, 196, 3, 3]),
            ("SSH", b"SSH-2.0-OpenSSH_9.6\r\n"),
            ("unknown API", &[0, 0, 0, 10, 0x03, 0xe7, 0, 0, 0, 0, 0, 1, 0xff, 0xff]),
            ("unknown version", &[0, 0, 0, 10, 0, 3, 0, 150, 0, 0, 0, 1, 0xff, 0xff]),
            ("cut body", &[0, 0, 0, 12, 0, 3, 0, 4, 0, 0, 0, 1, 0xff, 0xff, 0x7f, 0xff]),
        ];
        for (name, bytes) in hostile {
            let mut stream = raw(&fixture).await;
            stream.write.write_all(bytes).await.expect("sent");
            assert!(closed_within(&fixture.env, &mut stream, Duration::from_secs(3)).await, "{name}");
            good.call(&ApiVersionsRequestData::default()).await.unwrap_or_else(|error| panic!("after {name}: {error}"));
        }
    });
}

#[test]
fn slow_and_idle_connections_are_closed_and_waiting_ones_are_not() {
    let change = |config: &mut Config| {
        config.socket_request_timeout_ms = 400;
        config.connections_max_idle_ms = 600;
    };
    with_config(change, |fixture| async move {
        let env = &fixture.env;
        create(&fixture.connect().await, "t", 1, &[]).await;
        let (mut slow, mut idle, mut waiting) = (raw(&fixture).await, raw(&fixture).await, raw(&fixture).await);
        slow.write.write_all(&PLAIN[..7]).await.expect("sent");
        let poll = encode_request(&fetch_request("t", 0, 0, 2000, 100), 11, 5, None).expect("encodes");
        waiting.write.write_all(&poll).await.expect("sent");
        assert!(closed_within(env, &mut slow, Duration::from_millis(1500)).await, "half a request");
        assert!(closed_within(env, &mut idle, Duration::from_millis(1500)).await, "nothing at all");
        let mut response = frame(&mut waiting).await;
        assert_eq!(bytes::Buf::get_i32(&mut response), 5, "a long poll is no idleness");
    });
}

#[test]
fn a_peer_that_takes_no_answers_stops_being_read() {
    let change = |config: &mut Config| {
        config.max_requests_in_flight_per_connection = 4;
        config.socket_request_timeout_ms = 500;
        config.fetch_max_bytes = 200_000;
    };
    with_config(change, |fixture| async move {
        let connection = fixture.connect().await;
        create(&connection, "t", 1, &[]).await;
        produce(&connection, "t", 0, batch(&[&[7; 200_000]])).await;
        let mut greedy = raw(&fixture).await;
        let request = encode_request(&fetch_request("t", 0, 0, 0, 1 << 20), 11, 5, None).expect("encodes");
        let deadline = fixture.env.now() + Duration::from_secs(10);
        // Written until the connection is reset, since its answers are never taken.
        loop {
            tokio::select! { biased;
                written = greedy.write.write_all(&request) => if written.is_err() { break },
                () = fixture.env.sleep_until(deadline) => panic!("the connection was never closed"),
            }
        }
        connection.call(&ApiVersionsRequestData::default()).await.expect("others never notice");
    });
}

#[test]
fn one_connection_more_than_allowed_is_closed() {
    with_config(
        |config| config.max_connections = 2,
        |fixture| async move {
            let (_first, second) = (fixture.connect().await, fixture.connect().await);
            // The reset may come before the connection is even usable.
            if let Ok(mut third) = fixture.env.net().connect(fixture.broker.local_addr()).await {
                assert!(closed_within(&fixture.env, &mut third, Duration::from_secs(3)).await);
            }
            second.close().await;
            fixture.env.sleep(Duration::from_millis(200)).await;
            fixture.connect().await;
        },
    );
}
