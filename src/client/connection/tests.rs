//! The connection against peers that answer, are silent, lie and hang up.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use kilo_io::real::block_on_test;
use kilo_wire::api::APIS;
use kilo_wire::header::RequestHeader;
use kilo_wire::messages::api_versions::ApiVersion;
use kilo_wire::messages::metadata::MetadataRequestTopic;
use kilo_wire::messages::produce_types::ProduceRequestData;
use kilo_wire::messages::{MetadataRequestData, MetadataResponseData, decode_request, encode_response};

/// What the peer does about a request.
enum Act {
    Response(Bytes),
    Nothing,
    HangUp,
}

/// A peer that accepts one connection and lets `script` decide.
async fn peer(env: &Env, mut script: impl FnMut(RequestHeader, Bytes) -> Act + Send + 'static) -> SocketAddr {
    let listener = env.net().listen(([127, 0, 0, 1], 0).into()).await.expect("a free port");
    let addr = listener.local_addr();
    env.spawn("peer", async move {
        let mut stream = listener.accept().await.expect("a connection");
        let mut frames = FrameReader::new(stream.read, FrameLimits::REQUESTS);
        while let Ok(Some(mut frame)) = frames.next().await {
            let header = RequestHeader::decode(&mut frame).expect("a request");
            match script(header, frame) {
                Act::Response(bytes) => stream.write.write_all(&bytes).await.expect("the client reads"),
                Act::Nothing => {}
                Act::HangUp => return,
            }
        }
    });
    addr
}

fn versions(header: &RequestHeader) -> Option<Act> {
    if header.api_key != ApiKey::ApiVersions.code() {
        return None;
    }
    let each = APIS.iter().map(|api| ApiVersion {
        api_key: api.key.code(),
        min_version: api.advertised_min,
        max_version: api.max,
        ..ApiVersion::default()
    });
    let response = ApiVersionsResponseData { api_keys: each.collect(), ..ApiVersionsResponseData::default() };
    Some(Act::Response(encode_response(&response, header.api_version, header.correlation_id).expect("supported")))
}

/// Answers Metadata with the asked name as the cluster's id.
fn echo(header: &RequestHeader, body: Bytes) -> Bytes {
    let request: MetadataRequestData = decode_request(body, header.api_version).expect("Metadata");
    let name = request.topics.and_then(|topics| topics.into_iter().next()).and_then(|topic| topic.name);
    let response = MetadataResponseData { cluster_id: name, ..MetadataResponseData::default() };
    encode_response(&response, header.api_version, header.correlation_id).expect("supported")
}

fn ask(name: &str) -> MetadataRequestData {
    let topic = MetadataRequestTopic { name: Some(string(name)), ..MetadataRequestTopic::default() };
    MetadataRequestData { topics: Some(vec![topic]), ..MetadataRequestData::default() }
}

/// Waited out by some tests, and long enough for an answer on a busy machine.
const QUICK: Duration = Duration::from_secs(1);

fn quick() -> ConnectionConfig {
    ConnectionConfig { connect_timeout: QUICK, request_timeout: QUICK, ..ConnectionConfig::default() }
}

async fn connect(env: &Env, addr: SocketAddr, config: ConnectionConfig) -> Connection {
    Connection::connect(env, addr, config).await.expect("the peer answers")
}

fn id(response: &MetadataResponseData) -> &str {
    response.cluster_id.as_ref().map_or("", KafkaString::as_str)
}

#[test]
fn pipelined_requests_get_their_own_answers() {
    block_on_test(|env| async move {
        let addr =
            peer(&env, |header, body| versions(&header).unwrap_or_else(|| Act::Response(echo(&header, body)))).await;
        let connection = connect(&env, addr, ConnectionConfig::default()).await;
        assert_eq!(connection.version(ApiKey::Metadata), Some(12));
        let names: Vec<_> = (0..200).map(|i| format!("topic-{i}")).collect();
        let calls: Vec<_> = names.iter().map(|name| connection.start(&ask(name)).expect("open")).collect();
        for (call, name) in calls.into_iter().zip(&names) {
            assert_eq!(id(&call.response().await.expect("answered")), name);
        }
        connection.close().await;
    });
}

#[test]
fn a_hang_up_tells_what_was_sent_from_what_was_not() {
    block_on_test(|env| async move {
        let addr = peer(&env, |header, _| versions(&header).unwrap_or(Act::HangUp)).await;
        let connection = connect(&env, addr, ConnectionConfig::default()).await;
        let error = connection.call(&ask("x")).await.expect_err("no answer");
        assert!(matches!(error, CallError::Unknown { .. }), "{error:?}");
        assert!(!error.is_surely_not_sent());
        let error = connection.call(&ask("y")).await.expect_err("closed");
        assert!(error.is_surely_not_sent(), "{error:?}");
        assert!(connection.is_closed());
    });
}

#[test]
fn a_late_answer_is_not_taken_for_the_next_one() {
    block_on_test(|env| async move {
        let mut held = None;
        let addr = peer(&env, move |header, body| {
            if let Some(act) = versions(&header) {
                return act;
            }
            let response = echo(&header, body);
            match held.take() {
                None => {
                    held = Some(response);
                    Act::Nothing
                }
                Some(first) => Act::Response([first, response].concat().into()),
            }
        })
        .await;
        let connection = connect(&env, addr, quick()).await;
        let error = connection.call(&ask("first")).await.expect_err("held back");
        assert_eq!(error, CallError::TimedOut { after: QUICK });
        assert_eq!(id(&connection.call(&ask("second")).await.expect("answered")), "second");
    });
}

#[test]
fn a_wrong_correlation_id_ends_the_connection() {
    block_on_test(|env| async move {
        let mut requests = 0;
        let addr = peer(&env, move |mut header, body| {
            versions(&header).unwrap_or_else(|| {
                requests += 1;
                header.correlation_id += 1;
                // Both have been sent when the connection ends.
                if requests < 2 { Act::Nothing } else { Act::Response(echo(&header, body)) }
            })
        })
        .await;
        let connection = connect(&env, addr, ConnectionConfig::default()).await;
        let calls = [connection.start(&ask("a")).expect("open"), connection.start(&ask("b")).expect("open")];
        let [first, second] = calls;
        assert!(matches!(first.response().await, Err(CallError::Protocol { .. })));
        assert!(matches!(second.response().await, Err(CallError::Unknown { .. })));
    });
}

#[test]
fn a_broker_without_version_3_of_api_versions_is_asked_again() {
    block_on_test(|env| async move {
        let asked = Arc::new(AtomicUsize::new(0));
        let counted = asked.clone();
        let addr = peer(&env, move |mut header, _| {
            counted.fetch_add(1, Ordering::Relaxed);
            if header.api_version > 0 {
                header.api_version = 0;
                let refused = ApiVersionsResponseData {
                    error_code: ErrorCode::UnsupportedVersion.code(),
                    ..ApiVersionsResponseData::default()
                };
                return Act::Response(encode_response(&refused, 0, header.correlation_id).expect("supported"));
            }
            versions(&header).expect("ApiVersions")
        })
        .await;
        let connection = connect(&env, addr, ConnectionConfig::default()).await;
        assert_eq!(connection.version(ApiKey::Fetch), Some(12));
        assert_eq!(asked.load(Ordering::Relaxed), 2);
    });
}

#[test]
fn connecting_fails_with_a_reason() {
    block_on_test(|env| async move {
        let silent = peer(&env, |_, _| Act::Nothing).await;
        let error = Connection::connect(&env, silent, quick()).await.err().expect("silent");
        assert!(matches!(error, ConnectError::TimedOut { .. }), "{error}");

        let web = peer(&env, |_, _| Act::Response(Bytes::from_static(b"HTTP/1.1 400 Bad Request\r\n\r\n"))).await;
        let error = Connection::connect(&env, web, quick()).await.err().expect("not Kafka");
        assert!(matches!(error, ConnectError::Handshake { .. }), "{error}");

        let listener = env.net().listen(([127, 0, 0, 1], 0).into()).await.expect("a free port");
        let gone = listener.local_addr();
        drop(listener);
        let error = Connection::connect(&env, gone, quick()).await.err().expect("nothing listens");
        assert!(matches!(error, ConnectError::Unreachable { .. }), "{error}");
    });
}

#[test]
fn requests_without_an_answer_are_written_before_the_end() {
    block_on_test(|env| async move {
        let received = Arc::new(AtomicUsize::new(0));
        let counted = received.clone();
        let addr = peer(&env, move |header, _| {
            versions(&header).unwrap_or_else(|| {
                counted.fetch_add(1, Ordering::Relaxed);
                Act::Nothing
            })
        })
        .await;
        let connection = connect(&env, addr, ConnectionConfig::default()).await;
        for _ in 0..50 {
            connection.tell(&ProduceRequestData::default()).await.expect("written");
        }
        connection.close().await;
        for _ in 0..100 {
            if received.load(Ordering::Relaxed) == 50 {
                return;
            }
            env.sleep(Duration::from_millis(10)).await;
        }
        panic!("{} of 50 arrived", received.load(Ordering::Relaxed));
    });
}

#[test]
fn dropping_the_last_clone_ends_the_connection() {
    block_on_test(|env| async move {
        let addr = peer(&env, |header, _| versions(&header).unwrap_or(Act::Nothing)).await;
        let connection = connect(&env, addr, ConnectionConfig::default()).await;
        let call = connection.clone().start(&ask("x")).expect("open");
        drop(connection);
        assert!(call.response().await.is_err());
    });
}
