//! Large requests that compete for the broker's memory: honest ones, ones that stop half-way, ones whose peer has gone.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use kilo::io::{Env, Stream};
use kilo::server::{Broker, Config};
use kilo::wire::messages::produce_types::{PartitionProduceData, ProduceRequestData, TopicProduceData};
use kilo::wire::messages::{encode_request, string};
use kilo_sim::host::{Sim, SimConfig, run};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// What one large request holds.
const LARGE_BYTES: usize = 1_900_000;
/// How long a request may stand still.
const STALL: Duration = Duration::from_secs(30);

/// Runs a test against a broker whose memory holds two large requests.
fn with_broker<F: Future<Output = ()>>(test: impl Fn(Clients) -> F) {
    for seed in 0..3 {
        run(SimConfig::new(seed), |sim: Sim| {
            let test = &test;
            async move {
                let node = sim.create_node("broker");
                let addr = SocketAddr::new(node.ip(), 9092);
                node.start(|env| async move {
                    let config = Config { queued_max_request_bytes: 4 << 20, ..Config::sim() };
                    let _broker = Broker::start(env, config).await.expect("an empty folder is fine");
                    std::future::pending::<()>().await;
                });
                sim.sleep(Duration::from_secs(5)).await;
                let env = sim.create_node("clients").enter();
                test(Clients { env, addr }).await;
            }
        });
    }
}

struct Clients {
    env: Env,
    addr: SocketAddr,
}

impl Clients {
    async fn connect(&self) -> Stream {
        self.env.net().connect(self.addr).await.expect("the broker listens")
    }

    /// A connection that has sent so much of a large request.
    async fn stopped_after(&self, bytes: usize) -> Stream {
        let (mut stream, request) = (self.connect().await, large());
        tokio::select! { biased;
            written = stream.write.write_all(&request[..bytes]) => written.expect("connected"),
            // What is not read does not get away.
            () = self.env.sleep(Duration::from_secs(2)) => {}
        }
        stream
    }

    /// How long a whole large request takes to be answered.
    async fn honest(&self) -> Duration {
        let began = self.env.now();
        let mut stream = self.connect().await;
        stream.write.write_all(&large()).await.expect("the honest are not closed");
        let len = stream.read.read_u32().await.expect("the honest are answered");
        stream.read.read_exact(&mut vec![0; len as usize]).await.expect("a whole answer");
        self.env.now() - began
    }
}

/// A Produce request that is refused only when all of it has been read.
fn large() -> Bytes {
    let partition = PartitionProduceData { records: Some(vec![0; LARGE_BYTES].into()), ..Default::default() };
    let topic = TopicProduceData { name: string("t"), partition_data: vec![partition], ..Default::default() };
    let request = ProduceRequestData { acks: 1, topic_data: vec![topic], ..Default::default() };
    encode_request(&request, 7, 1, None).expect("encodes")
}

/// Runs all of them at the same time.
async fn all<T>(futures: Vec<impl Future<Output = T>>) -> Vec<T> {
    let mut running: Vec<_> = futures.into_iter().map(|future| (Box::pin(future), None)).collect();
    std::future::poll_fn(|context| {
        for (future, output) in running.iter_mut().filter(|(_, output)| output.is_none()) {
            if let std::task::Poll::Ready(value) = future.as_mut().poll(context) {
                *output = Some(value);
            }
        }
        if running.iter().all(|(_, output)| output.is_some()) {
            std::task::Poll::Ready(())
        } else {
            std::task::Poll::Pending
        }
    })
    .await;
    running.into_iter().filter_map(|(_, output)| output).collect()
}

#[test]
fn many_honest_large_requests_are_all_answered() {
    with_broker(|clients| async move {
        let took = all((0..40).map(|_| clients.honest()).collect()).await;
        assert!(took.iter().all(|took| *took < STALL), "{took:?}");
    });
}

#[test]
fn those_that_stop_half_way_are_ended_and_the_honest_go_on() {
    with_broker(|clients| async move {
        let mut stopped = all((0..4).map(|_| clients.stopped_after(LARGE_BYTES * 9 / 10)).collect()).await;
        // Two at a time fill the memory, and each pair is ended in its turn.
        let took = clients.honest().await;
        assert!(took < 2 * STALL + Duration::from_secs(10), "{took:?}");
        for stream in &mut stopped {
            assert!(!matches!(stream.read.read(&mut [0; 1]).await, Ok(1..)), "ended without an answer");
        }
    });
}

#[test]
fn those_that_are_gone_hold_up_nobody() {
    with_broker(|clients| async move {
        // More of them than the memory holds; some never sent enough to be given room.
        for bytes in [LARGE_BYTES / 2, 1000] {
            drop(all((0..20).map(|_| clients.stopped_after(bytes)).collect()).await);
        }
        let took = clients.honest().await;
        assert!(took < Duration::from_secs(10), "{took:?}");
    });
}
