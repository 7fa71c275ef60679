//! The clients' machines.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::disk::Keep;
use crate::history::EventKind;
use crate::host::{Node, Sim};
use crate::plan;
use crate::workload::Clients;
use crate::workload::world::World;

/// The machines by number of the client: producers first, then readers. Cheap to clone.
#[derive(Clone)]
pub struct ClientNodes {
    nodes: Arc<BTreeMap<u32, Node>>,
}

impl ClientNodes {
    /// Starts all clients but those that the plan does without.
    pub fn start(sim: &Sim, world: &Arc<World>, clients: &Clients, without: &[u32]) -> Self {
        let start = |index: u32| {
            let node = sim.create_node(&format!("client-{index}"));
            let (shared, clients) = (world.clone(), clients.clone());
            world.event(EventKind::ClientStarts(index), format!("client {index} starts"));
            node.start(move |env| clients.clone().run(index as usize, shared.clone(), env));
            (index, node)
        };
        let numbers = (0..clients.len() as u32).filter(|index| !without.contains(index));
        Self { nodes: Arc::new(numbers.map(start).collect()) }
    }

    /// A client's machine.
    pub fn get(&self, number: u32) -> Option<&Node> {
        self.nodes.get(&number)
    }

    /// All machines.
    pub fn nodes(&self) -> impl Iterator<Item = &Node> {
        self.nodes.values()
    }

    /// Those that a fault concerns.
    pub fn some<'a>(&'a self, which: &'a plan::Clients) -> impl Iterator<Item = (u32, &'a Node)> {
        self.nodes.iter().filter(|(number, _)| which.includes(**number)).map(|(&number, node)| (number, node))
    }

    /// Ends a client suddenly. It stays down until [`Self::restart`].
    pub fn crash(&self, world: &World, number: u32, power_loss: bool) {
        let Some(node) = self.get(number).filter(|node| node.is_running()) else { return };
        if power_loss {
            kilo::sometimes!("sim.client_power_loss");
            world.event(EventKind::ClientEnds(number), format!("client {number} loses power"));
            node.power_loss(Keep::None);
        } else {
            kilo::sometimes!("sim.client_kill");
            world.event(EventKind::ClientEnds(number), format!("client {number} is killed"));
            node.kill();
        }
    }

    /// Starts a client again unless it runs.
    pub fn restart(&self, world: &World, number: u32) {
        let Some(node) = self.get(number).filter(|node| !node.is_running()) else { return };
        world.event(EventKind::ClientStarts(number), format!("client {number} starts"));
        node.restart();
    }
}
