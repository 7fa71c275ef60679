//! Carries out a fault plan. What stands on one track follows one after the other, an action that takes long delaying
//! the next, which is left out if the phase is over by then; different tracks overlap.

use std::sync::Arc;
use std::time::Duration;

use super::broker::BrokerNode;
use super::clients::ClientNodes;
use crate::disk::{DiskFaults, Injection, Keep};
use crate::history::Stamp;
use crate::host::{Cause, Node, Sim};
use crate::net::LinkConfig;
use crate::plan::{Clients, Crash, FaultKind, Machine, Plan, Track};
use crate::scenario::Checks;
use crate::workload::world::World;

/// How long a flush that is to fail is waited for.
const SYNC_FAILURE_PATIENCE: Duration = Duration::from_secs(2);
/// How often something that has no event of its own is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// What faults happen to. Cheap to clone.
#[derive(Clone)]
pub struct Targets {
    /// The simulated world.
    pub sim: Sim,
    /// What the clients share.
    pub world: Arc<World>,
    /// The broker.
    pub broker: BrokerNode,
    /// The clients.
    pub clients: ClientNodes,
    /// What is to be kept to.
    pub checks: Arc<Checks>,
}

/// Carries out the plan; returns when the fault phase is over and every fault has ended. Says how many faults hit.
pub async fn execute(targets: &Targets, plan: &Plan) -> u64 {
    let began = targets.sim.now();
    let until = began + Duration::from_millis(plan.faults_ms);
    let tracks = Track::ALL.map(|track| {
        let actions: Vec<_> = plan.actions.iter().filter(|action| action.what.track() == track).cloned().collect();
        let targets = targets.clone();
        madsim::task::spawn(async move {
            let mut hits = 0;
            for action in actions {
                targets.sim.sleep_until(began + Duration::from_millis(action.at_ms)).await;
                if targets.sim.now() > until {
                    // What came before took so long.
                    break;
                }
                let number = targets.world.fault_begins(&action.what);
                hits += targets.act(number, &action.what).await;
                targets.world.fault_ends(number);
            }
            hits
        })
    });
    let mut hits = 0;
    for track in tracks {
        // A track that panicked has panicked the run already.
        hits += track.await.unwrap_or_default();
    }
    targets.sim.sleep_until(until).await;
    hits
}

impl Targets {
    /// Ends all faults and starts what is down.
    pub fn heal(&self) {
        self.broker.heal();
        self.sim.net().heal();
        self.set_links(&Clients::default(), &LinkConfig::default());
        for node in self.clients.nodes().chain([&self.broker.node]) {
            node.drift_wall_clock(0);
        }
    }

    /// Does it, and says how many faults hit.
    async fn act(&self, fault: u32, what: &FaultKind) -> u64 {
        match what {
            FaultKind::Crashes(crashes) => {
                let mut hits = 0;
                for one in crashes {
                    hits += u64::from(self.crash(fault, one).await);
                }
                return hits;
            }
            FaultKind::SyncFailure { injection, down_ms, then } => {
                let mut hits = u64::from(self.sync_failure(fault, injection, *down_ms).await);
                if let Some(one) = then {
                    hits += u64::from(self.crash(fault, one).await);
                }
                return hits;
            }
            FaultKind::Stop { down_ms, cut_us } => return self.stop(fault, *down_ms, *cut_us).await.into(),
            FaultKind::DiskFull { .. }
            | FaultKind::DiskTrouble { .. }
            | FaultKind::DiskFault { .. }
            | FaultKind::FewDescriptors { .. } => {
                self.act_on_disk(fault, what).await;
            }
            FaultKind::Pause { for_ms } => {
                kilo::sometimes!("sim.pause");
                if self.broker.node.is_running() {
                    self.hits(fault, "the broker stands still");
                }
                self.broker.node.pause();
                self.pause(*for_ms).await;
                self.broker.node.resume();
            }
            FaultKind::ClientCrash { client, power_loss, down_ms } => {
                if self.clients.get(*client).is_some_and(Node::is_running) {
                    self.hits(fault, if *power_loss { "the client loses power" } else { "the client is killed" });
                }
                self.clients.crash(&self.world, *client, *power_loss);
                self.pause(*down_ms).await;
                self.clients.restart(&self.world, *client);
            }
            FaultKind::ClockJump { whom, by_ms } => {
                kilo::sometimes!("sim.clock_jump");
                self.machine(*whom).inspect(|node| {
                    node.jump_wall_clock(*by_ms);
                    self.hits(fault, "the clock jumps");
                });
            }
            FaultKind::ClockDrift { whom, ppm, for_ms } => {
                kilo::sometimes!("sim.clock_drift");
                self.machine(*whom).inspect(|node| {
                    node.drift_wall_clock(*ppm);
                    self.hits(fault, "the clock begins to drift");
                });
                self.pause(*for_ms).await;
                self.machine(*whom).inspect(|node| node.drift_wall_clock(0));
            }
            FaultKind::Resets { .. } | FaultKind::Partition { .. } | FaultKind::SlowNetwork { .. } => {
                self.act_on_links(fault, what).await
            }
        }
        self.sim.has_hit(fault).into()
    }

    /// Marks on the timeline that a fault is felt now.
    fn hits(&self, fault: u32, what: &str) {
        self.sim.note_hit(fault, format_args!("{what}"));
    }

    async fn pause(&self, ms: u64) {
        self.sim.sleep(Duration::from_millis(ms)).await;
    }

    async fn act_on_disk(&self, fault: u32, what: &FaultKind) {
        let disk = self.broker.node.disk();
        match what {
            FaultKind::DiskFull { free_bytes, for_ms } => {
                kilo::sometimes!("sim.disk_full");
                self.sim.blame(Cause::DiskSpace, fault);
                disk.set_capacity(Some(disk.used() + free_bytes));
                self.pause(*for_ms).await;
                disk.set_capacity(None);
            }
            FaultKind::DiskTrouble { rates, for_ms } => {
                kilo::sometimes!("sim.disk_trouble");
                self.sim.blame(Cause::DiskRates, fault);
                disk.set_faults(rates.clone());
                self.pause(*for_ms).await;
                disk.set_faults(DiskFaults::default());
            }
            FaultKind::DiskFault { injection, for_ms } => self.disk_fault(fault, injection, *for_ms).await,
            FaultKind::FewDescriptors { max, for_ms } => {
                kilo::sometimes!("sim.few_descriptors");
                self.sim.blame(Cause::Descriptors, fault);
                self.broker.node.limit_descriptors(*max);
                self.pause(*for_ms).await;
                self.broker.node.limit_descriptors(u32::MAX);
            }
            _ => {}
        }
    }

    async fn act_on_links(&self, fault: u32, what: &FaultKind) {
        self.sim.blame(Cause::Links, fault);
        match what {
            FaultKind::Resets { clients, rate, for_ms } => {
                kilo::sometimes!("sim.resets");
                self.set_links(clients, &LinkConfig { reset: *rate, ..LinkConfig::default() });
                self.pause(*for_ms).await;
                self.set_links(clients, &LinkConfig::default());
            }
            FaultKind::SlowNetwork { clients, link, for_ms } => {
                kilo::sometimes!("sim.slow_network");
                self.hits(fault, "the links become slow");
                self.set_links(clients, link);
                self.pause(*for_ms).await;
                self.set_links(clients, &LinkConfig::default());
            }
            FaultKind::Partition { clients, inward, outward, for_ms, reset } => {
                kilo::sometimes!("sim.partition");
                for (client, node) in self.clients.some(clients) {
                    kilo::sometimes!("sim.partition_of_some", !clients.0.is_empty() && client > 0);
                    if *inward {
                        self.sim.net().block(node, &self.broker.node);
                    }
                    if *outward {
                        self.sim.net().block(&self.broker.node, node);
                    }
                }
                self.pause(*for_ms).await;
                if *reset {
                    for (client, node) in self.clients.some(clients) {
                        let count = self.sim.net().reset(node, &self.broker.node);
                        if count > 0 {
                            let what = format_args!("connections of client {client} are reset: {count}");
                            self.sim.note_hit(fault, what);
                        }
                    }
                }
                self.sim.net().heal();
            }
            _ => {}
        }
    }

    /// A machine, if the run has it.
    fn machine(&self, whom: Machine) -> Option<&Node> {
        match whom {
            Machine::Broker => Some(&self.broker.node),
            Machine::Client(number) => self.clients.get(number),
        }
    }

    /// Crashes and starts again; says whether there was anything to crash.
    async fn crash(&self, fault: u32, crash: &Crash) -> bool {
        self.sim.sleep(Duration::from_micros(crash.after_us)).await;
        let hits = self.broker.node.is_running();
        if hits {
            let in_what = if self.broker.is_serving() { "" } else { " as it starts" };
            let how = if crash.power_loss.is_some() { "loses power" } else { "is killed" };
            self.hits(fault, &format!("the broker {how}{in_what}"));
        }
        self.broker.crash(crash.power_loss);
        self.sim.sleep(Duration::from_millis(crash.down_ms)).await;
        if crash.clock_by_ms != 0 {
            kilo::sometimes!("sim.restart_with_older_clock", crash.clock_by_ms < 0);
            self.broker.node.jump_wall_clock(crash.clock_by_ms);
        }
        self.broker.restart();
        hits
    }

    /// Asks the broker to stop, and starts it again; says whether it could be asked.
    async fn stop(&self, fault: u32, down_ms: u64, cut_us: Option<u64>) -> bool {
        let (sim, broker) = (&self.sim, &self.broker);
        let stop_within = Duration::from_millis(self.checks.stop_within_ms.into());
        let (hits, asked_at) = (broker.ask_to_stop(), sim.now());
        if hits {
            self.hits(fault, "the broker is asked to stop");
            let patience = cut_us.map_or(stop_within, Duration::from_micros);
            let ended = broker.ended(patience).await;
            match cut_us {
                Some(_) if !ended => {
                    kilo::sometimes!("sim.power_loss_while_stopping");
                    self.hits(fault, "the broker loses power as it stops");
                    broker.crash(Some(Keep::Some));
                }
                None if !ended => {
                    broker.fail_since(asked_at, "liveness", format!("it does not stop within {stop_within:?}"));
                }
                _ => kilo::sometimes!("sim.stopped"),
            }
        }
        sim.sleep(Duration::from_millis(down_ms)).await;
        broker.restart();
        hits
    }

    async fn disk_fault(&self, fault: u32, injection: &Injection, for_ms: u64) {
        let disk = self.broker.node.disk();
        let id = disk.inject(injection.clone());
        self.sim.blame(Cause::Injection(id), fault);
        let until = self.sim.now() + Duration::from_millis(for_ms);
        while !disk.has_hit(id) && self.sim.now() < until {
            self.sim.sleep(LOOK_EVERY).await;
        }
        let hits = disk.remove_injection(id).is_some();
        kilo::sometimes!("sim.disk_fault", hits);
    }

    /// Makes a flush fail and waits for the broker to stop itself, as it must; says whether there was such a flush.
    async fn sync_failure(&self, fault: u32, injection: &Injection, down_ms: u64) -> bool {
        let fail_stop_within = Duration::from_millis(self.checks.fail_stop_within_ms.into());
        let (sim, broker) = (&self.sim, &self.broker);
        broker.hold();
        let id = broker.node.disk().inject(injection.clone());
        sim.blame(Cause::Injection(id), fault);
        let until = sim.now() + SYNC_FAILURE_PATIENCE;
        while !broker.node.disk().has_hit(id) && broker.node.is_running() && sim.now() < until {
            sim.sleep(LOOK_EVERY).await;
        }
        let met = broker.node.disk().remove_injection(id);
        if let Some(path) = &met {
            kilo::sometimes!("sim.sync_failed");
            let failed_at = sim.now();
            if !broker.ended(fail_stop_within).await {
                let when = Stamp { order: 0, at_ns: failed_at.0 };
                let what = format!(
                    "{} of {path} fails at {when}, and {fail_stop_within:?} later the broker still runs",
                    injection.op.name()
                );
                broker.fail_since(failed_at, "fail-stop", what);
            }
        }
        if broker.node.is_running() {
            broker.release();
        } else {
            sim.sleep(Duration::from_millis(down_ms)).await;
            broker.restart();
        }
        met.is_some()
    }

    fn set_links(&self, clients: &Clients, config: &LinkConfig) {
        for (_, client) in self.clients.some(clients) {
            self.sim.net().set_link(client, &self.broker.node, config.clone());
            self.sim.net().set_link(&self.broker.node, client, config.clone());
        }
    }
}
