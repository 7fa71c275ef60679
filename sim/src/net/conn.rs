//! A connection: two ends and two directions.
//!
//! An end is `Open` (a program holds it), `Closed` (the program let go; the system still delivers what was written and
//! FIN) or `Gone` (reset, aborted, given up or without power: the system knows nothing of it and answers RST).
//! A direction holds what was written and not yet sent, and what is under way, in order. Segments that meet a partition
//! wait at its edge and are sent again when it heals.

use std::io;

use super::state::{EndState, Segment};
use crate::host::{Cause, Effects, State};

/// Seconds until a sender gives up that gets no acknowledgement, in nanoseconds. (Linux takes a quarter of an hour.)
const GIVE_UP_NS: u64 = 20_000_000_000;

/// Sends what may be sent.
pub(super) fn pump(state: &mut State, now: u64, id: u64, from: usize, effects: &mut Effects) {
    loop {
        let Some(conn) = state.net.conns.get_mut(&id) else { return };
        if conn.ends[from].state == EndState::Gone {
            return;
        }
        let (sender, receiver) = (conn.ends[from].node, conn.ends[1 - from].node);
        let config = &state.net.link(sender, receiver).config;
        let (bytes_max, reset) = (config.segment_bytes_max.max(1), config.reset);
        let Some(conn) = state.net.conns.get_mut(&id) else { return };
        let Some((segment, len)) = conn.next_segment(from, bytes_max) else { return };
        let mut rng = conn.rng.fork();
        if reset > 0.0 && rng.f64() < reset {
            state.trace(now, sender, format_args!("net c{id} reset by the link"));
            let (a, b) = (state.nodes[sender].name.clone(), state.nodes[receiver].name.clone());
            state.hit(now, Cause::Links, format_args!("connection c{id} is reset as {a} sends to {b}"));
            return reset_both(state, id, effects);
        }
        let arrival = state.net.link(sender, receiver).arrival(now, len, &mut rng);
        let Some(conn) = state.net.conns.get_mut(&id) else { return };
        let direction = &mut conn.directions[from];
        direction.flying.push_back(segment);
        direction.last_arrival = direction.last_arrival.max(arrival);
        let at = direction.last_arrival;
        state.events.at(at, effects, move |state, now, effects| arrive(state, now, id, from, effects));
    }
}

/// The oldest segment under way reaches the other end, or a partition.
fn arrive(state: &mut State, now: u64, id: u64, from: usize, effects: &mut Effects) {
    let Some(conn) = state.net.conns.get_mut(&id) else { return };
    if conn.directions[from].stalled || conn.directions[from].flying.is_empty() {
        return;
    }
    let (sender, receiver) = (conn.ends[from].node, conn.ends[1 - from].node);
    if state.net.is_blocked(sender, receiver) || !state.nodes[receiver].powered {
        return stall(state, now, id, from, effects);
    }
    deliver(state, now, id, from, effects);
}

/// Hands the oldest segment under way to the other end's system.
fn deliver(state: &mut State, now: u64, id: u64, from: usize, effects: &mut Effects) {
    let Some(conn) = state.net.conns.get_mut(&id) else { return };
    let Some(segment) = conn.directions[from].flying.pop_front() else { return };
    let receiver = conn.ends[1 - from].node;
    let end = &mut conn.ends[1 - from];
    match (end.state, segment) {
        (EndState::Open, Segment::Data(bytes)) => {
            let len = bytes.len();
            end.received.push_back(bytes);
            end.received_bytes += len;
            effects.wakes.extend(end.reader.take());
            state.trace(now, receiver, format_args!("net c{id}.{from} {len}"));
            send_ack(state, now, id, from, len, effects);
        }
        (EndState::Open | EndState::Closed, Segment::Fin) => {
            end.fin_received = true;
            effects.wakes.extend(end.reader.take());
            state.trace(now, receiver, format_args!("net c{id}.{from} FIN"));
            forget_if_over(state, id, effects);
        }
        (EndState::Closed | EndState::Gone, Segment::Data(_)) => {
            conn.ends[1 - from].state = EndState::Gone;
            conn.directions[from].flying.clear();
            send_reset(state, now, id, 1 - from, effects);
        }
        (EndState::Gone, Segment::Fin) => send_reset(state, now, id, 1 - from, effects),
    }
}

fn send_ack(state: &mut State, now: u64, id: u64, from: usize, len: usize, effects: &mut Effects) {
    let Some(conn) = state.net.conns.get_mut(&id) else { return };
    let (sender, receiver) = (conn.ends[from].node, conn.ends[1 - from].node);
    let mut rng = conn.rng.fork();
    let at = now + state.net.link(receiver, sender).latency_ns(&mut rng);
    state.events.at(at, effects, move |state, now, effects| {
        let blocked = state.net.is_blocked(receiver, sender);
        let Some(conn) = state.net.conns.get_mut(&id) else { return };
        conn.directions[from].ack_held_bytes += len;
        if blocked {
            stall(state, now, id, from, effects);
        } else {
            acknowledge(state, now, id, from, effects);
        }
    });
}

fn acknowledge(state: &mut State, now: u64, id: u64, from: usize, effects: &mut Effects) {
    let Some(conn) = state.net.conns.get_mut(&id) else { return };
    let direction = &mut conn.directions[from];
    direction.unacked_bytes -= std::mem::take(&mut direction.ack_held_bytes).min(direction.unacked_bytes);
    effects.wakes.extend(conn.ends[from].writer.take());
    pump(state, now, id, from, effects);
    forget_if_over(state, id, effects);
}

/// What was sent does not get through, or its acknowledgement does not. The sender gives up in the end.
fn stall(state: &mut State, now: u64, id: u64, from: usize, effects: &mut Effects) {
    let Some(conn) = state.net.conns.get_mut(&id) else { return };
    let direction = &mut conn.directions[from];
    if direction.stalled {
        return;
    }
    direction.stalled = true;
    direction.stall += 1;
    let (number, sender, receiver) = (direction.stall, conn.ends[from].node, conn.ends[1 - from].node);
    state.trace(now, sender, format_args!("net c{id}.{from} stalls"));
    if state.net.is_blocked(sender, receiver) || state.net.is_blocked(receiver, sender) {
        let (a, b) = (state.nodes[sender].name.clone(), state.nodes[receiver].name.clone());
        state.hit(now, Cause::Links, format_args!("connection c{id} stalls as {a} sends to {b}"));
    }
    state.events.at(now + GIVE_UP_NS, effects, move |state, now, effects| {
        let Some(conn) = state.net.conns.get_mut(&id) else { return };
        let direction = &conn.directions[from];
        if direction.stalled && direction.stall == number {
            state.trace(now, sender, format_args!("net c{id}.{from} gives up"));
            fail(state, id, from, io::ErrorKind::TimedOut, effects);
        }
    });
}

/// Something has changed: after a time both ends send again what did not get through.
pub(super) fn try_again_soon(state: &mut State, now: u64, id: u64, effects: &mut Effects) {
    let Some(conn) = state.net.conns.get_mut(&id) else { return };
    for from in 0..2 {
        let at = now + conn.rng.u64(1_000_000..1_500_000_000);
        state.events.at(at, effects, move |state, now, effects| try_again(state, now, id, from, effects));
    }
}

fn try_again(state: &mut State, now: u64, id: u64, from: usize, effects: &mut Effects) {
    let Some(conn) = state.net.conns.get_mut(&id) else { return };
    let (sender, receiver) = (conn.ends[from].node, conn.ends[1 - from].node);
    if state.net.is_blocked(sender, receiver)
        || state.net.is_blocked(receiver, sender)
        || !state.nodes[receiver].powered
    {
        return;
    }
    let Some(conn) = state.net.conns.get_mut(&id) else { return };
    let direction = &mut conn.directions[from];
    if direction.stalled {
        direction.stalled = false;
        for _ in 0..direction.flying.len() {
            deliver(state, now, id, from, effects);
        }
    }
    acknowledge(state, now, id, from, effects);
}

/// The program has read: the sender may send more, when it hears of it.
pub(super) fn after_read(state: &mut State, now: u64, id: u64, reader: usize, effects: &mut Effects) {
    let Some(conn) = state.net.conns.get_mut(&id) else { return };
    let from = 1 - reader;
    if conn.directions[from].queue.is_empty() {
        return;
    }
    let (sender, receiver) = (conn.ends[from].node, conn.ends[reader].node);
    let mut rng = conn.rng.fork();
    let at = now + state.net.link(receiver, sender).latency_ns(&mut rng);
    state.events.at(at, effects, move |state, now, effects| {
        if !state.net.is_blocked(receiver, sender) {
            pump(state, now, id, from, effects);
        }
    });
}

/// No more will be written: FIN follows the data.
pub(super) fn finish(state: &mut State, now: u64, id: u64, end: usize, effects: &mut Effects) {
    let Some(conn) = state.net.conns.get_mut(&id) else { return };
    conn.ends[end].shut = true;
    conn.directions[end].fin_queued = true;
    pump(state, now, id, end, effects);
}

/// Both halves are gone, or the process is: FIN after the data; RST if something had arrived that nobody read.
pub(super) fn close(state: &mut State, now: u64, id: u64, end: usize, effects: &mut Effects) {
    let Some(conn) = state.net.conns.get_mut(&id) else { return };
    conn.ends[end].held = false;
    if conn.ends[end].state != EndState::Open {
        return forget_if_over(state, id, effects);
    }
    effects.drop_later((conn.ends[end].reader.take(), conn.ends[end].writer.take()));
    if conn.ends[end].received_bytes > 0 {
        return abort(state, now, id, end, effects);
    }
    conn.ends[end].state = EndState::Closed;
    finish(state, now, id, end, effects);
    forget_if_over(state, id, effects);
}

/// Power is lost: the system forgets this end and says nothing.
pub(super) fn lose_power(state: &mut State, id: u64, end: usize, effects: &mut Effects) {
    if let Some(conn) = state.net.conns.get_mut(&id) {
        conn.ends[end].held = false;
        vanish(state, id, end, effects);
    }
}

/// Ends the connection at once and tells the other side, if it can be reached.
pub(super) fn abort(state: &mut State, now: u64, id: u64, end: usize, effects: &mut Effects) {
    let Some(conn) = state.net.conns.get_mut(&id) else { return };
    if conn.ends[end].state == EndState::Gone {
        return;
    }
    conn.ends[end].aborted = true;
    conn.ends[end].wake(effects);
    vanish(state, id, end, effects);
    send_reset(state, now, id, end, effects);
}

/// The system forgets this end.
fn vanish(state: &mut State, id: u64, end: usize, effects: &mut Effects) {
    let Some(conn) = state.net.conns.get_mut(&id) else { return };
    let this = &mut conn.ends[end];
    this.state = EndState::Gone;
    this.received.clear();
    this.received_bytes = 0;
    let direction = &mut conn.directions[end];
    direction.queue.clear();
    direction.queued_bytes = 0;
    direction.fin_queued = false;
    if std::mem::take(&mut direction.stalled) {
        // It would have had to be sent again.
        direction.flying.clear();
    }
    forget_if_over(state, id, effects);
}

fn send_reset(state: &mut State, now: u64, id: u64, from: usize, effects: &mut Effects) {
    let Some(conn) = state.net.conns.get_mut(&id) else { return };
    let (sender, receiver) = (conn.ends[from].node, conn.ends[1 - from].node);
    let mut rng = conn.rng.fork();
    let at = (now + state.net.link(sender, receiver).latency_ns(&mut rng)).max(conn_last_arrival(state, id, from));
    state.events.at(at, effects, move |state, now, effects| {
        // Nobody sends a reset again: if it is lost, the other end finds out when it next sends.
        if !state.net.is_blocked(sender, receiver) && state.nodes[receiver].powered {
            state.trace(now, receiver, format_args!("net c{id}.{from} RST"));
            fail(state, id, 1 - from, io::ErrorKind::ConnectionReset, effects);
        }
    });
}

fn conn_last_arrival(state: &State, id: u64, from: usize) -> u64 {
    state.net.conns.get(&id).map_or(0, |conn| conn.directions[from].last_arrival)
}

/// This end's connection has failed, as its program will hear.
fn fail(state: &mut State, id: u64, end: usize, error: io::ErrorKind, effects: &mut Effects) {
    let Some(conn) = state.net.conns.get_mut(&id) else { return };
    if conn.ends[end].state == EndState::Gone {
        return;
    }
    conn.ends[end].error = Some(error);
    conn.ends[end].wake(effects);
    let keeps_received = conn.rng.bool();
    let received = std::mem::take(&mut conn.ends[end].received);
    let received_bytes = std::mem::take(&mut conn.ends[end].received_bytes);
    vanish(state, id, end, effects);
    // What arrived before the reset may still be read, or may be discarded.
    if keeps_received && let Some(conn) = state.net.conns.get_mut(&id) {
        conn.ends[end].received = received;
        conn.ends[end].received_bytes = received_bytes;
    }
}

/// Both ends see a reset at once.
pub(super) fn reset_both(state: &mut State, id: u64, effects: &mut Effects) {
    fail(state, id, 0, io::ErrorKind::ConnectionReset, effects);
    fail(state, id, 1, io::ErrorKind::ConnectionReset, effects);
}

/// Forgets a connection that no program holds and that has nothing more to say.
pub(super) fn forget_if_over(state: &mut State, id: u64, effects: &mut Effects) {
    let Some(conn) = state.net.conns.get(&id) else { return };
    let is_over = (0..2).all(|end| match conn.ends[end].state {
        EndState::Open => false,
        EndState::Gone => conn.directions[end].flying.is_empty(),
        EndState::Closed => conn.directions[end].fin_sent && conn.directions[end].flying.is_empty(),
    });
    if is_over && conn.ends.iter().all(|end| !end.held) {
        effects.drop_later(state.net.conns.remove(&id));
    }
}
