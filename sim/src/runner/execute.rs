//! Carries out a fault plan, one action after the other. An action that takes long delays those that follow.

use std::time::Duration;

use super::broker::BrokerNode;
use crate::disk::{DiskFaults, Injection};
use crate::host::{Node, Sim};
use crate::net::LinkConfig;
use crate::plan::{Crash, Plan, What};

/// How long a flush that is to fail is waited for.
const SYNC_FAILURE_PATIENCE: Duration = Duration::from_secs(2);
/// How long the broker may take to stop once a flush has failed.
const FAIL_STOP_WITHIN: Duration = Duration::from_millis(500);

/// Carries out the plan; returns when the fault phase is over.
pub async fn execute(sim: &Sim, broker: &BrokerNode, clients: &[Node], plan: &Plan) {
    let began = sim.now();
    for action in &plan.actions {
        sim.sleep_until(began + Duration::from_millis(action.at_ms)).await;
        sim.trace(format_args!("action: {}", action.what));
        act(sim, broker, clients, &action.what).await;
    }
    sim.sleep_until(began + Duration::from_millis(plan.faults_ms)).await;
}

async fn act(sim: &Sim, broker: &BrokerNode, clients: &[Node], what: &What) {
    match what {
        What::Crashes(crashes) => {
            for one in crashes {
                crash(sim, broker, one).await;
            }
        }
        What::SyncFailure { injection, down_ms, then } => {
            sync_failure(sim, broker, injection, *down_ms).await;
            if let Some(one) = then {
                crash(sim, broker, one).await;
            }
        }
        What::DiskFull { free_bytes, for_ms } => {
            let disk = broker.node.disk();
            disk.set_capacity(Some(disk.used() + free_bytes));
            kilo::sometimes!("sim.disk_full");
            sim.sleep(Duration::from_millis(*for_ms)).await;
            disk.set_capacity(None);
        }
        What::Resets { rate, for_ms } => {
            let faulty = LinkConfig { reset: *rate, ..LinkConfig::default() };
            set_links(sim, broker, clients, &faulty);
            kilo::sometimes!("sim.resets");
            sim.sleep(Duration::from_millis(*for_ms)).await;
            set_links(sim, broker, clients, &LinkConfig::default());
        }
        What::Partition { inward, outward, for_ms } => {
            for client in clients {
                if *inward {
                    sim.net().block(client, &broker.node);
                }
                if *outward {
                    sim.net().block(&broker.node, client);
                }
            }
            kilo::sometimes!("sim.partition");
            sim.sleep(Duration::from_millis(*for_ms)).await;
            sim.net().heal();
        }
        What::DiskTrouble { rates, for_ms } => {
            broker.node.disk().set_faults(rates.clone());
            kilo::sometimes!("sim.disk_trouble");
            sim.sleep(Duration::from_millis(*for_ms)).await;
            broker.node.disk().set_faults(DiskFaults::default());
        }
        What::Pause { for_ms } => {
            broker.node.pause();
            kilo::sometimes!("sim.pause");
            sim.sleep(Duration::from_millis(*for_ms)).await;
            broker.node.resume();
        }
        What::ClockJump { by_ms } => {
            broker.node.jump_wall_clock(*by_ms);
            kilo::sometimes!("sim.clock_jump");
        }
    }
}

/// Crashes and starts again.
async fn crash(sim: &Sim, broker: &BrokerNode, crash: &Crash) {
    sim.sleep(Duration::from_micros(crash.after_us)).await;
    broker.crash(crash.power_loss);
    sim.sleep(Duration::from_millis(crash.down_ms)).await;
    broker.restart();
}

/// Makes a flush fail and waits for the broker to stop itself, as it must.
async fn sync_failure(sim: &Sim, broker: &BrokerNode, injection: &Injection, down_ms: u64) {
    let failed = || -> u64 {
        broker.node.disk().bitten().range("sync ".to_owned().."sync!".to_owned()).map(|(_, count)| count).sum()
    };
    let before = failed();
    broker.hold();
    broker.node.disk().inject(injection.clone());
    let until = sim.now() + SYNC_FAILURE_PATIENCE;
    while failed() == before && broker.node.is_running() && sim.now() < until {
        sim.sleep(Duration::from_millis(1)).await;
    }
    broker.node.disk().clear_injections();
    if failed() > before {
        kilo::sometimes!("sim.sync_failed");
        if !broker.ended(FAIL_STOP_WITHIN).await {
            broker.fail("fail-stop", format!("a flush failed, and {FAIL_STOP_WITHIN:?} later the broker still runs"));
        }
    }
    if broker.node.is_running() {
        broker.release();
    } else {
        sim.sleep(Duration::from_millis(down_ms)).await;
        broker.restart();
    }
}

fn set_links(sim: &Sim, broker: &BrokerNode, clients: &[Node], config: &LinkConfig) {
    for client in clients {
        sim.net().set_link(client, &broker.node, config.clone());
        sim.net().set_link(&broker.node, client, config.clone());
    }
}
