//! What of the lines that a peer can cause is written: the limit of [`LogLimit`](super::LogLimit), by this incarnation's clock.

use std::net::IpAddr;

use super::Env;
use super::log_limit::Summary;

impl Env {
    /// Whether a log line of this kind is to be written. For all lines that a peer can cause again and again; `from` is
    /// its address, where that is known. `kind` is a plural that fits behind "lines about".
    pub fn may_log(&self, kind: &'static str, from: Option<IpAddr>) -> bool {
        let from = from.map(|address| address.to_canonical());
        let verdict = self.limiter.limit().on_event(self.now(), kind, from);
        if !verdict.is_written {
            self.limiter.left_out.notify_one();
        }
        write(verdict.summaries);
        verdict.is_written
    }

    /// Writes each summary when it is due. Never ends.
    pub async fn sum_up_log(&self) {
        loop {
            let next = self.limiter.limit().next_due();
            match next {
                Some(due) => {
                    self.sleep_until(due).await;
                    let summaries = self.limiter.limit().due(self.now());
                    write(summaries);
                }
                None => self.limiter.left_out.notified().await,
            }
        }
    }

    /// Writes the summaries of all that has been left out, at a stop.
    pub fn sum_up_log_now(&self) {
        let summaries = self.limiter.limit().all(self.now());
        write(summaries);
    }
}

fn write(summaries: Vec<Summary>) {
    for summary in summaries {
        tracing::warn!("{summary}");
    }
}
