//! The broker's node: starting, crashing, starting again, and telling an end that is a bug from one that is not.
//!
//! | the broker's program ended because | that is |
//! |---|---|
//! | it was killed, or power was lost | the plan's doing; the plan starts it again |
//! | a flush or a write failed, and it stopped itself | right, if the plan made flushes or writes fail; started again |
//! | it could not start | right, if the plan makes the disk fail or takes the descriptors away, but not if it only fills the disk up; started again |
//! | it panicked, or stopped itself for a bug | always a failure; started again, to see what follows |

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use kilo::io::{Env, FailStop, Monotonic};
use kilo::server::{Broker, Config};
use tokio::sync::watch;

use super::report::Failure;
use crate::disk::{DiskFaults, Fault, Keep};
use crate::history::{Beyond, EventKind};
use crate::host::{Exit, Node, Sim};
use crate::plan::{FaultKind, Plan, Track};
use crate::workload::world::World;

/// How long the keeper waits before it starts a broker again that ended by itself.
const RESTART_MS: std::ops::Range<u64> = 5..200;
/// How often something that has no event of its own is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// The broker's node. Cheap to clone.
#[derive(Clone)]
pub struct BrokerNode {
    sim: Sim,
    /// The machine.
    pub node: Node,
    world: Arc<World>,
    shared: Arc<BrokerState>,
}

struct BrokerState {
    /// The incarnation that serves, 0 for none.
    serving: AtomicU32,
    /// Whether the broker is asked to stop.
    stop: watch::Sender<bool>,
    /// The plan takes care of starting: the keeper must not.
    held: AtomicBool,
    /// The disk may make the broker stop itself.
    may_fail_stop: AtomicBool,
    /// The disk may keep the broker from starting.
    may_not_start: AtomicBool,
    failures: Mutex<Vec<Failure>>,
    /// Why the last start did not work, and when that was.
    start_error: Mutex<Option<(Monotonic, String)>>,
}

impl BrokerNode {
    /// Starts the broker, and a keeper that starts it again when it ends by itself.
    pub fn start(sim: &Sim, node: Node, world: Arc<World>, config: Config, plan: &Plan) -> Self {
        let excuses =
            |excuse: fn(&FaultKind) -> bool| AtomicBool::new(plan.actions.iter().any(|action| excuse(&action.what)));
        let shared = Arc::new(BrokerState {
            serving: AtomicU32::new(0),
            stop: watch::Sender::new(false),
            held: AtomicBool::new(false),
            may_fail_stop: excuses(makes_flushes_fail),
            may_not_start: excuses(|what| makes_flushes_fail(what) || what.track() == Track::Descriptors),
            failures: Mutex::default(),
            start_error: Mutex::default(),
        });
        let broker = Self { sim: sim.clone(), node, world, shared };
        let (world, shared) = (broker.world.clone(), broker.shared.clone());
        broker.begins();
        broker.node.start(move |env| serve(env, config.clone(), world.clone(), shared.clone()));
        madsim::task::spawn(broker.clone().keep());
        broker
    }

    /// Starts the broker again unless it runs.
    pub fn restart(&self) {
        self.shared.held.store(false, Ordering::Relaxed);
        if !self.node.is_running() {
            self.shared.stop.send_replace(false);
            self.begins();
            self.node.restart();
        }
    }

    fn begins(&self) {
        let number = self.world.next_incarnation();
        self.world.event(EventKind::BrokerStarts(number), format!("broker starts as incarnation {number}"));
    }

    /// Ends the broker suddenly. It stays down until [`Self::restart`].
    pub fn crash(&self, power_loss: Option<Keep>) {
        self.shared.held.store(true, Ordering::Relaxed);
        let in_recovery = self.node.is_running() && !self.is_serving();
        kilo::sometimes!("sim.crash_in_recovery", in_recovery);
        match power_loss {
            None => {
                self.world.event(EventKind::BrokerEnds, "broker is killed");
                self.node.kill();
                kilo::sometimes!("sim.kill");
            }
            Some(keep) => {
                self.world.event(EventKind::BrokerEnds, format!("broker loses power, which keeps {keep}"));
                if self.node.disk().hits_by(Fault::Lie) > 0 {
                    self.world.exceed(Beyond::LossAfterLie);
                }
                let report = self.node.power_loss(keep);
                kilo::sometimes!("sim.power_loss");
                kilo::sometimes!("sim.unsynced_sector_dropped", report.sectors_lost > 0);
                kilo::sometimes!("sim.unsynced_name_dropped", report.names_lost > 0);
            }
        }
        self.shared.serving.store(0, Ordering::Relaxed);
    }

    /// Asks the broker to stop, as SIGTERM does; says whether it serves, so that it can be asked. It stays down until
    /// [`Self::restart`].
    pub fn ask_to_stop(&self) -> bool {
        if !self.is_serving() {
            return false;
        }
        self.hold();
        self.world.event(EventKind::BrokerStops, "broker is asked to stop");
        self.shared.stop.send_replace(true);
        true
    }

    /// The keeper leaves a broker that ends by itself alone until [`Self::restart`].
    pub fn hold(&self) {
        self.shared.held.store(true, Ordering::Relaxed);
    }

    /// Undoes [`Self::hold`].
    pub fn release(&self) {
        self.shared.held.store(false, Ordering::Relaxed);
    }

    /// Whether the current incarnation accepts connections.
    pub fn is_serving(&self) -> bool {
        self.node.is_running() && self.shared.serving.load(Ordering::Relaxed) == self.world.incarnation()
    }

    /// Waits until it serves.
    pub async fn serving(&self) {
        while !self.is_serving() {
            self.sim.sleep(LOOK_EVERY).await;
        }
    }

    /// Waits until it has ended, but not longer than `bound`; says whether it has.
    pub async fn ended(&self, bound: Duration) -> bool {
        let until = self.sim.now() + bound;
        while self.node.is_running() && self.sim.now() < until {
            self.sim.sleep(LOOK_EVERY).await;
        }
        !self.node.is_running()
    }

    /// Something that should not be happened to the broker.
    pub fn fail(&self, check: &'static str, what: String) {
        self.fail_since(self.sim.now(), check, what);
    }

    /// The same, where it began to go wrong before now.
    pub fn fail_since(&self, since: Monotonic, check: &'static str, what: String) {
        self.world.event(EventKind::Failure, format!("{check}: {what}"));
        let failure = Failure::between(since, self.sim.now(), check, what);
        self.shared.failures.lock().unwrap_or_else(PoisonError::into_inner).push(failure);
    }

    /// The disk has been well for a while: nothing that the broker does is excused by it any more.
    pub fn excuse_no_more(&self) {
        self.shared.may_fail_stop.store(false, Ordering::Relaxed);
        self.shared.may_not_start.store(false, Ordering::Relaxed);
    }

    /// Ends all faults and starts the broker if it is down.
    pub fn heal(&self) {
        let disk = self.node.disk();
        disk.set_faults(DiskFaults::default());
        disk.clear_injections();
        disk.set_capacity(None);
        self.node.limit_descriptors(u32::MAX);
        self.node.resume();
        self.restart();
    }

    /// Moves what went wrong with the broker to `failures`.
    pub fn collect(&self, failures: &mut Vec<Failure>) {
        failures.append(&mut self.shared.failures.lock().unwrap_or_else(PoisonError::into_inner));
        if let Some((at, error)) = self.shared.start_error.lock().unwrap_or_else(PoisonError::into_inner).take()
            && !self.is_serving()
        {
            failures.push(Failure::between(at, at, "start", format!("the broker does not start: {error}")));
        }
    }

    /// Starts a broker again that ended by itself.
    async fn keep(self) {
        let mut rng = self.sim.rng("keeper");
        loop {
            let exit = self.node.exited().await;
            if !matches!(exit, Exit::Killed | Exit::PowerLost) {
                self.judge_exit(&exit);
            }
            let number = self.world.incarnation();
            let pause = Duration::from_millis(rng.u64(RESTART_MS));
            self.sim.sleep(pause).await;
            while self.shared.held.load(Ordering::Relaxed) && !self.node.is_running() {
                self.sim.sleep(LOOK_EVERY).await;
            }
            if !self.node.is_running() && number == self.world.incarnation() {
                self.restart();
            }
        }
    }

    fn judge_exit(&self, exit: &Exit) {
        self.shared.serving.store(0, Ordering::Relaxed);
        self.world.event(EventKind::BrokerEnds, format!("broker ends: {exit:?}"));
        let may_fail_stop = self.shared.may_fail_stop.load(Ordering::Relaxed);
        let may_not_start = self.shared.may_not_start.load(Ordering::Relaxed);
        let asked = *self.shared.stop.borrow();
        match exit {
            Exit::Returned if asked => {}
            Exit::Panicked(message) => self.fail("panic", message.clone()),
            Exit::FailStop(FailStop::Bug, message) => self.fail("panic", message.clone()),
            Exit::FailStop(code, message) if !may_fail_stop => {
                self.fail("fail-stop", format!("{code:?} without a fault that explains it: {message}"));
            }
            Exit::Returned if !may_not_start => {
                let error = self.shared.start_error.lock().unwrap_or_else(PoisonError::into_inner).clone();
                let error = error.map_or_else(|| "no error".to_owned(), |(_, error)| error);
                self.fail("start", format!("the broker does not start, with no fault that explains it: {error}"));
            }
            Exit::FailStop(..) => kilo::sometimes!("sim.fail_stop"),
            Exit::Returned => kilo::sometimes!("sim.start_refused"),
            Exit::Killed | Exit::PowerLost => {}
        }
    }
}

fn makes_flushes_fail(what: &FaultKind) -> bool {
    what.track() == Track::Disk || matches!(what, FaultKind::SyncFailure { .. })
}

/// The program of the broker's node.
async fn serve(env: Env, config: Config, world: Arc<World>, shared: Arc<BrokerState>) {
    let number = world.incarnation();
    match Broker::start(env, config).await {
        Ok(broker) => {
            world.event(EventKind::BrokerServes(number), format!("incarnation {number} serves"));
            shared.serving.store(number, Ordering::Relaxed);
            *shared.start_error.lock().unwrap_or_else(PoisonError::into_inner) = None;
            // The sender lives as long as the run.
            let _ = shared.stop.subscribe().wait_for(|asked| *asked).await;
            shared.serving.store(0, Ordering::Relaxed);
            broker.stop().await;
        }
        Err(error) => {
            world.event(EventKind::BrokerEnds, format!("incarnation {number} does not start: {error}"));
            *shared.start_error.lock().unwrap_or_else(PoisonError::into_inner) =
                Some((world.sim.now(), error.to_string()));
        }
    }
}
