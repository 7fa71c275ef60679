//! Standard error as a place for log lines that can lose them and can do no more harm than that.
//!
//! | what becomes of standard error | what becomes of a line |
//! |---|---|
//! | it takes what is written | written by the thread `kilo-log`, in order |
//! | it stands still, as a pipe that nobody reads | waits in memory; once that is full, it is dropped and counted |
//! | it refuses: the reader of the pipe has ended, the disk is full | dropped and counted |
//! | it takes again | written, beside a line that says how many were lost |
//!
//! Whoever writes a line never waits and gets no error, so it may hold a lock, or be the reactor.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::fmt::Write as _;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use crate::{LogLimit, Monotonic};

/// Bytes of lines that may wait to be written: about ten thousand lines.
const QUEUE_BYTES_MAX: usize = 1024 * 1024;
/// How long a stop, a fail-stop or a message waits for standard error at most.
const WAIT_MAX: Duration = Duration::from_secs(1);

/// The one of this process, once it has been started.
static STARTED: OnceLock<LogWriter> = OnceLock::new();

/// Takes log lines. Cheap to clone.
#[derive(Clone)]
pub struct LogWriter(Arc<Shared>);

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    more: Condvar,
    idle: Condvar,
}

#[derive(Default)]
struct Queue {
    bytes: Vec<u8>,
    /// Lines dropped since the thread has taken `bytes`. Once it is not 0, all are, so that the count has one place.
    dropped: u64,
    is_writing: bool,
    /// The thread ends when it has written what there is.
    is_last: bool,
}

impl LogWriter {
    /// Starts the thread that writes to standard error, or returns the one that runs. Fails when the system refuses a
    /// thread.
    pub fn stderr() -> io::Result<Self> {
        if let Some(writer) = STARTED.get() {
            return Ok(writer.clone());
        }
        let writer = Self::start(io::stderr())?;
        Ok(STARTED.get_or_init(|| writer).clone())
    }

    /// Nobody waits for the thread to end: it may be in a write that never returns.
    fn start(to: impl AsFd + Send + 'static) -> io::Result<Self> {
        let writer = Self(Arc::default());
        let shared = Arc::clone(&writer.0);
        std::thread::Builder::new().name("kilo-log".to_owned()).spawn(move || shared.run(&to))?;
        Ok(writer)
    }

    /// Waits until everything has been written or lost, for a bounded time.
    pub fn flush_all(&self) {
        let deadline = Instant::now() + WAIT_MAX;
        let mut queue = self.0.queue();
        while !queue.bytes.is_empty() || queue.dropped > 0 || queue.is_writing {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            queue = self.0.idle.wait_timeout(queue, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn push(&self, line: &[u8]) {
        let mut queue = self.0.queue();
        if queue.dropped > 0 || queue.bytes.len() + line.len() > QUEUE_BYTES_MAX {
            queue.dropped += count_lines(line);
        } else {
            queue.bytes.extend_from_slice(line);
        }
        drop(queue);
        self.0.more.notify_one();
    }
}

/// One call is one line: the subscriber makes its lines whole before it writes them.
impl Write for LogWriter {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.push(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Shared {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self, to: &impl AsFd) {
        let (mut lost, mut is_torn) = (0_u64, false);
        while let Some((bytes, dropped)) = self.take() {
            let mut head = Vec::new();
            if is_torn {
                head.push(b'\n');
            }
            head.extend_from_slice(notice(lost).as_bytes());
            if write_whole(to, &head) < head.len() {
                lost += count_lines(&bytes) + dropped;
                continue;
            }
            let written = write_whole(to, &bytes);
            is_torn = written > 0 && bytes[written - 1] != b'\n';
            lost = count_lines(&bytes[written..]) + dropped;
            if written == bytes.len() {
                let tail = notice(dropped);
                let written = write_whole(to, tail.as_bytes());
                if written == tail.len() {
                    lost = 0;
                }
                is_torn = written > 0 && written < tail.len();
            }
        }
    }

    /// What waits, as soon as something does; `None` if nothing will.
    fn take(&self) -> Option<(Vec<u8>, u64)> {
        let mut queue = self.queue();
        while queue.bytes.is_empty() && queue.dropped == 0 {
            queue.is_writing = false;
            self.idle.notify_all();
            if queue.is_last {
                return None;
            }
            queue = self.more.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
        queue.is_writing = true;
        Some((std::mem::take(&mut queue.bytes), std::mem::take(&mut queue.dropped)))
    }
}

fn notice(lost: u64) -> String {
    match lost {
        0 => String::new(),
        lost => {
            format!("kilo: {lost} lines of the log were lost here: they could not be written, or nobody took them\n")
        }
    }
}

fn count_lines(bytes: &[u8]) -> u64 {
    bytes.iter().filter(|&&byte| byte == b'\n').count() as u64
}

/// Writes until an error; says how many bytes. Waits for as long as that takes.
fn write_whole(to: &impl AsFd, bytes: &[u8]) -> usize {
    let mut at = 0;
    while at < bytes.len() {
        match rustix::io::write(to, &bytes[at..]) {
            Ok(0) => break,
            Ok(written) => at += written,
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) if wait_writable(to) => {}
            Err(_) => break,
        }
    }
    at
}

fn wait_writable(to: &impl AsFd) -> bool {
    match poll(&mut [PollFd::new(to, PollFlags::OUT)], None) {
        Ok(ready) => ready > 0,
        Err(error) => error == Errno::INTR,
    }
}

/// Writes `text` to standard error, behind what the log holds, as far as that takes it: an error is ignored, and a pipe
/// that nobody reads holds nobody up for longer than a second.
pub fn print_to_stderr(text: &str) {
    print(LogWriter::stderr(), io::stderr(), text);
}

/// The same for standard output.
pub fn print_to_stdout(text: &str) {
    print(LogWriter::start(io::stdout()), io::stdout(), text);
}

/// Through a thread, since no write is sure to return: a pipe that has room may have none a moment later.
fn print(writer: io::Result<LogWriter>, to: impl AsFd, text: &str) {
    match writer {
        Ok(writer) => {
            writer.push(text.as_bytes());
            writer.flush_all();
            // Its thread ends, if it is not that of the log, which others write to.
            if !STARTED.get().is_some_and(|log| Arc::ptr_eq(&log.0, &writer.0)) {
                writer.0.queue().is_last = true;
                writer.0.more.notify_one();
            }
        }
        // The system has no thread left, and this may be the message that says so.
        Err(_) => drop(rustix::io::write(to, text.as_bytes())),
    }
}

/// Gives the log what it holds a bounded time to be written.
pub(super) fn flush_started() {
    if let Some(writer) = STARTED.get() {
        writer.flush_all();
    }
}

/// From now on, panics are told to the log. The default writes to standard error itself, and a thread that panics while
/// nobody reads it would stand still there with all its locks. A peer may find a request that panics, so they are limited.
pub fn log_panics(writer: LogWriter) {
    let (limit, start) = (Mutex::new(LogLimit::default()), Instant::now());
    std::panic::set_hook(Box::new(move |panic| {
        let now = Monotonic::default() + start.elapsed();
        let verdict = limit.lock().unwrap_or_else(PoisonError::into_inner).on_event(now, "panics", None);
        let mut text: String = verdict.summaries.iter().map(|summary| format!("{summary}\n")).collect();
        if verdict.is_written {
            let thread = std::thread::current();
            let _ = writeln!(text, "thread '{}' {panic}", thread.name().unwrap_or("unnamed"));
            let backtrace = Backtrace::capture();
            if backtrace.status() == BacktraceStatus::Captured {
                let _ = writeln!(text, "{backtrace}");
            }
        }
        writer.push(text.as_bytes());
    }));
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Read;
    use std::os::fd::OwnedFd;

    use super::*;

    fn pipe() -> (File, OwnedFd) {
        let (reader, writer) = io::pipe().expect("a test can open a pipe");
        (File::from(OwnedFd::from(reader)), OwnedFd::from(writer))
    }

    fn read_until(reader: &mut File, what: &str) -> String {
        let (mut text, mut piece) = (Vec::new(), [0; 65536]);
        while !String::from_utf8_lossy(&text).contains(what) {
            let read = reader.read(&mut piece).expect("the other end is open");
            text.extend_from_slice(&piece[..read]);
        }
        String::from_utf8_lossy(&text).into_owned()
    }

    /// The count at the beginning of a notice that may not have been read to its end.
    fn count_of(notice: &str) -> usize {
        notice.split_once(' ').and_then(|(count, _)| count.parse().ok()).unwrap_or_default()
    }

    #[test]
    fn lines_are_written_in_order() {
        let (mut reader, to) = pipe();
        let mut writer = LogWriter::start(to).expect("a thread");
        for number in 0..1000 {
            writeln!(writer, "line {number}").expect("never fails");
        }
        writer.flush_all();
        let wanted: String = (0..1000).map(|number| format!("line {number}\n")).collect();
        assert_eq!(read_until(&mut reader, "line 999\n"), wanted);
    }

    #[test]
    fn a_reader_that_stands_still_holds_nobody_up_and_is_told_what_it_missed() {
        let (mut reader, to) = pipe();
        let writer = LogWriter::start(to).expect("a thread");
        let line = [&[b'x'; 999][..], b"\n"].concat();
        let began = Instant::now();
        for _ in 0..3000 {
            writer.push(&line);
        }
        assert!(began.elapsed() < WAIT_MAX, "nobody waits for the reader");
        writer.flush_all();
        assert!(began.elapsed() < 3 * WAIT_MAX, "a stop waits for a bounded time");
        let (mut text, mut accounted) = (String::new(), 0);
        while accounted < 3000 {
            text += &read_until(&mut reader, "\n");
            accounted = text.lines().map(|line| line.strip_prefix("kilo: ").map_or(1, count_of)).sum();
        }
        assert_eq!(accounted, 3000, "each line is there or counted");
        assert!(text.contains("were lost here") && text.len() > QUEUE_BYTES_MAX - line.len(), "{}", text.len());
        writer.push(b"and on\n");
        assert!(read_until(&mut reader, "and on\n").ends_with("and on\n"));
    }

    #[test]
    fn a_sink_that_refuses_costs_lines_and_nothing_else() {
        let full = File::options().write(true).open("/dev/full").expect("every Linux has it");
        let writer = LogWriter::start(full).expect("a thread");
        writer.push(b"lost\n");
        writer.flush_all();
        let (reader, to) = pipe();
        drop(reader);
        let writer = LogWriter::start(to).expect("a thread");
        writer.push(b"lost\n");
        writer.flush_all();
    }

    #[test]
    fn a_message_to_a_pipe_that_nobody_reads_is_given_up() {
        let (_reader, to) = pipe();
        let began = Instant::now();
        print(LogWriter::start(to), io::stderr(), &"x".repeat(100_000));
        assert!(began.elapsed() >= WAIT_MAX && began.elapsed() < 3 * WAIT_MAX);
    }
}
