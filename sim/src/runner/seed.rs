//! Runs one seed of a scenario: faults, heal, liveness; then the checkers judge. What comes out is a [`Report`].

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use kilo::io::Monotonic;
use kilo::server::Config;

use super::broker::BrokerNode;
use super::clients::ClientNodes;
use super::execute::{self, Targets};
use super::report::{Failure, Report};
use super::spec::Run;
use crate::cpu_time::cpu_time;
use crate::disk::Fault;
use crate::history::{Beyond, EventKind, History, Outcome};
use crate::host::{Finding, Sim, SimConfig};
use crate::oracle::{self, Violation};
use crate::plan::Plan;
use crate::scenario::{Checks, Scenario};
use crate::timeline;
use crate::workload::world::{Phase, World};
use crate::workload::{self, Clients};

/// Simulated time after which a run is broken: far beyond what any scenario lasts.
const TIME_LIMIT: Duration = Duration::from_secs(3600);
const BROKER_PORT: u16 = 9092;
/// How often something that has no event of its own is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Stack of the thread that a run has to itself.
const STACK_BYTES: usize = 16 << 20;

/// Runs one seed. One run a process: a second one would not be deterministic.
///
/// It has a thread to itself: the standard library seeds its hash maps once a thread, and whoever made one on this
/// thread before, a logger for example, would have done so with keys that are different each time.
pub fn run(run: &Run) -> Report {
    let report = std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("simulation".to_owned()).stack_size(STACK_BYTES);
        thread.spawn_scoped(scope, || run_here(run)).map(std::thread::ScopedJoinHandle::join)
    });
    match report {
        Ok(Ok(report)) => report,
        Ok(Err(panic)) => std::panic::resume_unwind(panic),
        Err(error) => {
            let failures = vec![Failure::new("simulator", format!("no thread for the run: {error}"))];
            Report::broken(run, run.plan.clone().unwrap_or_default(), failures)
        }
    }
}

/// The names of what a run can fail with, besides the properties of [`oracle`].
pub const CHECKS: &[&str] =
    &["complaint", "fail-stop", "finding", "invariant", "liveness", "load", "panic", "scenario", "simulator", "start"];

/// How many clients a run has.
pub fn clients(scenario: &Scenario, seed: u64) -> u32 {
    workload::draw(scenario, &mut crate::host::stream(seed, "workload")).len() as u32
}

fn run_here(run: &Run) -> Report {
    let scheduler = run.scheduler.unwrap_or(run.seed);
    let config = SimConfig { trace: run.trace, scheduler, time_limit: TIME_LIMIT, ..SimConfig::new(run.seed) };
    crate::host::run(config, |sim| async move {
        let mut rng = sim.rng("workload");
        let clients = workload::draw(&run.scenario, &mut rng);
        let drawn = || Plan::draw(&run.scenario, clients.len() as u32, &mut sim.rng("plan"));
        let plan = run.plan.clone().unwrap_or_else(drawn);
        let mut failures = Vec::new();
        if let Err(error) = plan.check(clients.len() as u32) {
            return Report::broken(run, plan, vec![Failure::new("scenario", error)]);
        }
        if run.timeline {
            sim.keep_positions();
        }
        let mut hits = 0;
        let world = match run.scenario.broker_config() {
            Ok(config) => phases(&sim, &run.scenario, config, &clients, &plan, &mut failures, &mut hits).await,
            Err(error) => {
                failures.push(Failure::new("scenario", error));
                return Report::broken(run, plan, failures);
            }
        };
        let judged = judge(&sim, &world, &run.scenario.checks, &mut failures);
        load(&run.scenario.checks, world.history().acknowledged() as u64, hits, &mut failures);
        let report = Report::new(run, plan, failures, judged.beyond, &sim, &world.history());
        let report = Report { hits, judge_us: judged.took.as_micros() as u64, ..report };
        if !run.timeline {
            return report;
        }
        let timeline = timeline::page(&report, &world, &clients, &judged.violations);
        Report { timeline, ..report }
    })
}

/// The three phases. Whatever goes wrong with them ends up in `failures`.
async fn phases(
    sim: &Sim,
    scenario: &Scenario,
    config: Config,
    clients: &Clients,
    plan: &Plan,
    failures: &mut Vec<Failure>,
    hits: &mut u64,
) -> Arc<World> {
    let node = sim.create_node("broker");
    if !scenario.disk.speeds.is_empty() {
        let at = sim.rng("disk speed").usize(..scenario.disk.speeds.len());
        node.disk().set_speed(scenario.disk.speeds[at].clone());
    }
    let timeout = Duration::from_millis(clients.request_timeout_ms);
    let address = SocketAddr::new(node.ip(), BROKER_PORT);
    let world = Arc::new(World::new(sim.clone(), address, &clients.topics, timeout));
    let broker = BrokerNode::start(sim, node, world.clone(), config, plan);
    let bound = Duration::from_millis(scenario.checks.live_within_ms.into());

    let (setup_world, topics) = (world.clone(), clients.topics.clone());
    let setup = sim.create_node("setup");
    setup.start(move |env| workload::create_topics(setup_world.clone(), env, topics.clone()));
    let due = Due::from_now(sim, bound);
    if !due.comes(setup.exited()).await {
        failures.push(due.missed("the topics could not be created before anything went wrong".to_owned()));
        broker.collect(failures);
        return world;
    }

    let nodes = ClientNodes::start(sim, &world, clients, &plan.without_clients);
    let checks = Arc::new(scenario.checks.clone());
    let targets = Targets { sim: sim.clone(), world: world.clone(), broker: broker.clone(), clients: nodes, checks };
    world.event(EventKind::Phase, "faults");
    *hits = execute::execute(&targets, plan).await;
    world.event(EventKind::Phase, "heal");
    targets.heal();
    let due = Due::from_now(sim, bound);
    if !due.comes(broker.serving()).await {
        failures.push(due.missed(format!("the broker does not serve {bound:?} after healing")));
        broker.collect(failures);
        return world;
    }
    sim.sleep(Duration::from_millis(scenario.phases.calm_ms.into())).await;
    // A run that was down for most of its time makes up for it; `load` says if it could not.
    let enough = scenario.checks.acknowledged_min;
    let made_up = async {
        while (world.history().acknowledged() as u64) < enough {
            sim.sleep(LOOK_EVERY).await;
        }
    };
    Due::from_now(sim, bound).comes(made_up).await;
    broker.excuse_no_more();
    liveness(&targets, clients, bound, failures).await;
    if broker.node.disk().hits_by(Fault::FlipBit) > 0 {
        world.exceed(Beyond::FlippedBit);
    }
    broker.collect(failures);
    world
}

/// After healing: new traffic flows to every partition, idempotent producers finish what they began, and everything
/// can be read, each within the bound.
async fn liveness(targets: &Targets, clients: &Clients, bound: Duration, failures: &mut Vec<Failure>) {
    let Targets { sim, world, clients: nodes, .. } = targets;
    let prober = sim.create_node("prober");
    let shared = world.clone();
    prober.start(move |env| workload::probe(shared.clone(), env));
    let due = Due::from_now(sim, bound);
    if !due.comes(prober.exited()).await {
        failures.push(due.missed(format!("no new traffic to some partition within {bound:?}")));
    }
    world.event(EventKind::Phase, "drain");
    world.enter(Phase::Drain);
    for index in clients.producers() {
        let Some(node) = nodes.get(index as u32) else { continue };
        let due = Due::from_now(sim, bound);
        if !due.comes(node.exited()).await {
            failures
                .push(due.missed(format!("producer {index} does not learn what became of its sends within {bound:?}")));
        }
    }
    let reader = sim.create_node("last");
    let shared = world.clone();
    reader.start(move |env| workload::last_read(shared.clone(), env));
    let due = Due::from_now(sim, bound);
    if !due.comes(reader.exited()).await {
        failures.push(due.missed(format!("not everything could be read within {bound:?}")));
    }
    world.enter(Phase::Stop);
}

/// A bound on something, from when it is due.
struct Due<'a> {
    sim: &'a Sim,
    since: Monotonic,
    bound: Duration,
}

impl<'a> Due<'a> {
    fn from_now(sim: &'a Sim, bound: Duration) -> Self {
        Self { sim, since: sim.now(), bound }
    }

    /// Waits for it, but not longer than the bound; says whether it came.
    async fn comes<T>(&self, what: impl Future<Output = T>) -> bool {
        tokio::select! {
            biased;
            _ = what => true,
            () = self.sim.sleep(self.bound) => false,
        }
    }

    /// The failure if it did not come.
    fn missed(&self, what: String) -> Failure {
        Failure::between(self.since, self.sim.now(), "liveness", what)
    }
}

/// Checks that a broker fails which refuses to serve what it knows to be damaged.
const REFUSALS: &[&str] = &["liveness", "start"];

/// What the judges found besides failures.
struct Judged {
    /// What faults explain that are beyond any promise.
    beyond: Vec<Failure>,
    /// Every violation, the explained ones last.
    violations: Vec<Violation>,
    /// Processor time that the oracle took.
    took: Duration,
}

/// Judges the run.
fn judge(sim: &Sim, world: &World, checks: &Checks, failures: &mut Vec<Failure>) -> Judged {
    let complaints = world.complaints().into_iter();
    failures.extend(complaints.map(|(first, last, what)| Failure::between(first, last, "complaint", what)));
    let finding = |found: &Finding| {
        let at = Monotonic(found.at_ns);
        Failure::between(at, at, "finding", found.to_string())
    };
    failures.extend(sim.findings().iter().map(finding));
    // A probe of this prefix marks what cannot be, where the broker itself would rather go on.
    let never = kilo::io::probe::snapshot().into_iter().filter(|(name, _)| name.starts_with("never."));
    failures.extend(never.map(|(name, count)| Failure::new("invariant", format!("{name} was hit {count} times"))));
    let history = world.history();
    let began = cpu_time();
    let verdict = oracle::judge(&history, &checks.without);
    let took = cpu_time().saturating_sub(began);
    let refused = |failure: &mut Failure| {
        // Where records are lost, the state of their producers is too.
        let forgotten = failure.check == "complaint" && failure.what.contains("OUT_OF_ORDER_SEQUENCE_NUMBER");
        !history.beyond.is_empty() && (forgotten || REFUSALS.contains(&failure.check.as_str()))
    };
    let mut beyond: Vec<Failure> = failures.extract_if(.., refused).collect();
    beyond.extend(verdict.beyond.iter().map(|found| Failure::new(found.check, found.report(&history))));
    kilo::sometimes!("oracle.beyond_promise", !beyond.is_empty());
    failures.extend(verdict.violations.iter().map(|found| Failure::new(found.check, found.report(&history))));
    probe_history(&history);
    // The trace ends with what was judged, so that two equal traces mean two equal histories.
    for line in history.to_string().lines() {
        sim.trace(format_args!("{line}"));
    }
    drop(history);
    let violations = verdict.violations.into_iter().chain(verdict.beyond).collect();
    Judged { beyond, violations, took }
}

/// A run with too little load, or too few faults, proves nothing.
fn load(checks: &Checks, acknowledged: u64, hits: u64, failures: &mut Vec<Failure>) {
    let counted =
        [("sends were acknowledged", acknowledged, checks.acknowledged_min), ("faults hit", hits, checks.hits_min)];
    for (what, found, least) in counted {
        if found < least {
            failures
                .push(Failure::new("load", format!("the run proves too little: {found} {what}, of at least {least}")));
        }
    }
}

/// Rare situations that the history alone shows.
fn probe_history(history: &History) {
    let unknown = history.sends.iter().filter(|send| send.outcome == Outcome::Maybe);
    let values: std::collections::BTreeSet<u64> = history.seen.iter().map(|seen| seen.value).collect();
    for send in unknown {
        if values.contains(&send.first_value) {
            kilo::sometimes!("history.unknown_send_is_in_the_log");
        } else {
            kilo::sometimes!("history.unknown_send_is_not_in_the_log");
        }
    }
}
