//! The clients' lanes.

use serde::Serialize;

use crate::workload::Clients;

/// A client.
#[derive(Serialize)]
pub(super) struct Lane {
    name: String,
    /// Its number, as faults name it; absent for those that only prepare or judge.
    client: Option<u32>,
}

/// The clients' lanes: producers, readers, admins, then those that only prepare or judge.
pub(super) struct Lanes {
    pub(super) list: Vec<Lane>,
    producers: usize,
    admins: usize,
    clients: usize,
}

impl Lanes {
    /// A lane for everyone who might have had something to do.
    pub(super) fn new(clients: &Clients) -> Self {
        let producers = clients.producers().len();
        let admins = clients.admins().start;
        let name = |index: usize| match index {
            _ if index < producers => format!("producer {index}"),
            _ if index < admins => format!("reader {}", index - producers),
            _ => format!("admin {}", index - admins),
        };
        let client = |index: usize| Lane { name: name(index), client: Some(index as u32) };
        let mut list: Vec<Lane> = (0..clients.len()).map(client).collect();
        list.push(Lane { name: "set-up, prober".to_owned(), client: None });
        list.push(Lane { name: "last read".to_owned(), client: None });
        Self { list, producers, admins, clients: clients.len() }
    }

    pub(super) fn of_producer(&self, producer: u32) -> usize {
        if producer == u32::MAX { self.clients } else { producer as usize }
    }

    pub(super) fn of_reader(&self, reader: u32) -> usize {
        if reader == u32::MAX { self.clients + 1 } else { self.producers + reader as usize }
    }

    pub(super) fn of_admin(&self, admin: u32, others: usize) -> usize {
        if admin == u32::MAX { self.clients + others } else { self.admins + admin as usize }
    }

    /// Leaves the lanes away that are not in `used`, as those of clients that a shrunk run does without. Returns where each
    /// lane stands now.
    pub(super) fn leave_out_empty(&mut self, used: impl Iterator<Item = usize>) -> Vec<usize> {
        let mut is_used = vec![false; self.list.len()];
        for lane in used {
            is_used[lane] = true;
        }
        let mut next = 0;
        let mut places = Vec::with_capacity(is_used.len());
        for is_used in &is_used {
            places.push(next);
            next += usize::from(*is_used);
        }
        let mut is_used = is_used.into_iter();
        self.list.retain(|_| is_used.next().unwrap_or(false));
        places
    }
}
