//! A plan as text, for people and for the trace.

use std::fmt::{self, Display, Formatter};

use super::{Clients, Crash, FaultKind, Machine, Plan};

impl Display for Plan {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(f, "faults for {} ms; times are from the beginning of that phase", self.faults_ms)?;
        if !self.without_clients.is_empty() {
            writeln!(f, "  without clients {:?}", self.without_clients)?;
        }
        for action in &self.actions {
            writeln!(f, "  at {:>6} ms: {}", action.at_ms, action.what)?;
        }
        Ok(())
    }
}

impl Display for Clients {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if self.is_all() { write!(f, "all clients") } else { write!(f, "clients {:?}", self.0) }
    }
}

impl Display for Machine {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Broker => write!(f, "the broker"),
            Self::Client(number) => write!(f, "client {number}"),
        }
    }
}

impl Display for FaultKind {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Crashes(crashes) => {
                for (index, crash) in crashes.iter().enumerate() {
                    let comma = if index == 0 { "" } else { ", " };
                    write!(f, "{comma}{crash}")?;
                }
                Ok(())
            }
            Self::SyncFailure { injection, down_ms, then } => {
                write!(f, "flush {} of `{}` fails, down {down_ms} ms", injection.nth, injection.path)?;
                then.as_ref().map_or(Ok(()), |crash| write!(f, ", {crash}"))
            }
            Self::Stop { down_ms, cut_us } => {
                write!(f, "stop, down {down_ms} ms")?;
                cut_us.map_or(Ok(()), |us| write!(f, ", power loss {us} us after the asking"))
            }
            Self::Pause { for_ms } => write!(f, "pause for {for_ms} ms"),
            Self::DiskFull { free_bytes, for_ms } => write!(f, "{free_bytes} bytes left on the disk for {for_ms} ms"),
            Self::DiskTrouble { rates, for_ms } => write!(f, "disk trouble for {for_ms} ms: {rates}"),
            Self::DiskFault { injection, for_ms } => write!(f, "{injection}, within {for_ms} ms"),
            Self::FewDescriptors { max, for_ms } => write!(f, "at most {max} descriptors for {for_ms} ms"),
            Self::Resets { clients, rate, for_ms } => {
                write!(f, "resets at a rate of {rate} for {for_ms} ms, {clients}")
            }
            Self::Partition { clients, inward, outward, for_ms, reset } => {
                let direction = match (inward, outward) {
                    (true, false) => " (to the broker alone)",
                    (false, true) => " (from the broker alone)",
                    _ => "",
                };
                let end = if *reset { ", then connections are reset" } else { "" };
                write!(f, "partition{direction} for {for_ms} ms, {clients}{end}")
            }
            Self::SlowNetwork { clients, link, for_ms } => write!(
                f,
                "slow network for {for_ms} ms, {clients}: latency {} us + {} us, {} bytes/s, loss {}",
                link.latency_us, link.jitter_us, link.bytes_per_s, link.loss
            ),
            Self::ClockJump { whom, by_ms } => write!(f, "wall clock of {whom} jumps by {by_ms} ms"),
            Self::ClockDrift { whom, ppm, for_ms } => {
                write!(f, "wall clock of {whom} drifts by {ppm} ppm for {for_ms} ms")
            }
            Self::ClientCrash { client, power_loss, down_ms } => {
                let how = if *power_loss { "loses power" } else { "is killed" };
                write!(f, "client {client} {how}, down {down_ms} ms")
            }
        }
    }
}

impl Display for Crash {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if self.after_us > 0 {
            write!(f, "{} us after the start ", self.after_us)?;
        }
        match self.power_loss {
            Some(keep) => write!(f, "power loss that keeps {keep}")?,
            None => write!(f, "kill")?,
        }
        write!(f, ", down {} ms", self.down_ms)?;
        if self.clock_by_ms != 0 {
            write!(f, ", clock moved by {} ms", self.clock_by_ms)?;
        }
        Ok(())
    }
}
