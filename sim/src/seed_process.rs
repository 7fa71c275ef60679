//! One process per seed: two runs in one process would share counters and not be alike. Whoever wants a seed run
//! executes its own program again with [`ARGUMENT`]; [`serve`] is what that copy does.

use std::error::Error;
use std::fs::{self, File};
use std::io::{self, IsTerminal as _, Read as _, Seek as _, Write as _};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::FormatTime;

use crate::cpu_time::cpu_time;
use crate::plan::Plan;
use crate::planted::mutants;
use crate::runner::{self, Failure, Report, Run};
use crate::scenario;
use crate::trace::TraceMode;

/// The first argument of a copy, which reads a [`Request`] from its standard input.
pub const ARGUMENT: &str = "__one";
/// How often a seed is looked at.
pub const LOOK_EVERY: Duration = Duration::from_millis(2);
/// Looks after which a seed counts as hanging: minutes. Not measured by a clock, which goes on while the machine stands
/// still.
const LOOKS_MAX: u32 = 90_000;

/// What a copy is asked to run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Request {
    /// The scenario's name, or the path of a file.
    pub scenario: String,
    /// The seed.
    pub seed: u64,
    /// The scheduler's seed, if another.
    pub scheduler: Option<u64>,
    /// The fault plan, if it is not to be drawn.
    pub plan: Option<Plan>,
    /// The arguments of `replay` that run precisely this again; see [`shell_word`].
    #[serde(default)]
    pub replay: String,
    /// Where the whole trace goes, if it is asked for.
    pub trace_file: Option<PathBuf>,
    /// Where the timeline goes, if it is asked for.
    #[serde(default)]
    pub timeline_file: Option<PathBuf>,
    /// Which log lines of the broker are printed to standard error: a filter such as `kilo=debug`.
    #[serde(default)]
    pub log: Option<String>,
}

impl Request {
    /// A seed as it is drawn.
    pub fn new(scenario: impl Into<String>, seed: u64) -> Self {
        let scenario = scenario.into();
        Self {
            replay: format!("{} --seed {seed}", shell_word(&scenario)),
            scenario,
            seed,
            scheduler: None,
            plan: None,
            trace_file: None,
            timeline_file: None,
            log: None,
        }
    }

    /// Runs it in this process, with the planted faults that the environment names.
    pub fn run(self, trace: TraceMode) -> Result<Report, Box<dyn Error>> {
        kilo::io::probe::plant(mutants());
        if let Some(filter) = &self.log {
            let filter = tracing_subscriber::EnvFilter::try_new(filter)?;
            let format = tracing_subscriber::fmt().with_timer(SimulatedTime).with_writer(std::io::stderr);
            format.with_ansi(std::io::stderr().is_terminal()).with_env_filter(filter).init();
        }
        let timeline = self.timeline_file.is_some();
        let Self { seed, scheduler, plan, replay, .. } = self;
        let run = Run { scenario: scenario::find(&self.scenario)?, seed, scheduler, plan, replay, trace, timeline };
        let report = runner::run(&run);
        Ok(Report { scenario: self.scenario, cpu_ms: cpu_time().as_millis() as u64, ..report })
    }
}

/// Whether a filter of log lines can be understood.
pub fn check_log_filter(filter: &str) -> Result<(), String> {
    let parsed = tracing_subscriber::EnvFilter::try_new(filter);
    parsed.map(drop).map_err(|error| format!("`{filter}` is no filter of log lines such as kilo=debug: {error}"))
}

/// A word of a command as a shell must be given it: in quotes where it has anything unusual in it.
pub fn shell_word(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./,:=+@%".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

/// What stands before a log line, instead of the time of day.
struct SimulatedTime;

impl FormatTime for SimulatedTime {
    fn format_time(&self, writer: &mut Writer<'_>) -> std::fmt::Result {
        write!(writer, "{}", crate::host::Now)
    }
}

/// Does what a copy is for, if the arguments say that this is one; ends the process then.
pub fn serve() {
    if std::env::args().nth(1).as_deref() != Some(ARGUMENT) {
        return;
    }
    match one() {
        Ok(()) => std::process::exit(0),
        Err(error) => {
            eprintln!("{error}");
            std::process::exit(2);
        }
    }
}

fn one() -> Result<(), Box<dyn Error>> {
    // Whoever ends a campaign, however suddenly, ends its seeds with it.
    #[cfg(target_os = "linux")]
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
    let request: Request = serde_json::from_reader(io::stdin().lock())?;
    let (trace_file, timeline_file) = (request.trace_file.clone(), request.timeline_file.clone());
    let report = request.run(if trace_file.is_some() { TraceMode::Keep } else { TraceMode::Hash })?;
    if let Some(path) = trace_file {
        fs::write(path, &report.trace)?;
    }
    if let Some(path) = timeline_file {
        fs::write(&path, &report.timeline).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    io::stdout().write_all(&serde_json::to_vec(&report)?)?;
    Ok(())
}

/// A seed that runs in a process of its own.
pub struct Seed {
    scenario: String,
    seed: u64,
    replay: String,
    child: Child,
    /// What it writes: files without names, of which nothing is left behind whoever ends how.
    output: File,
    errors: File,
    looks: u32,
}

impl Seed {
    /// Starts it.
    pub fn start(request: &Request) -> io::Result<Self> {
        let (output, errors) = (tempfile::tempfile()?, tempfile::tempfile()?);
        let mut command = Command::new(std::env::current_exe()?);
        command.arg(ARGUMENT).stdin(Stdio::piped()).stdout(output.try_clone()?).stderr(errors.try_clone()?);
        let mut child = command.spawn()?;
        if let Some(mut stdin) = child.stdin.take() {
            stdin.write_all(&serde_json::to_vec(request)?)?;
        }
        let Request { scenario, seed, replay, .. } = request.clone();
        Ok(Self { scenario, seed, replay, child, output, errors, looks: 0 })
    }

    /// Ends it without a report.
    pub fn stop(self) {
        drop(self);
    }

    /// The report, once the process has ended.
    pub fn poll(&mut self) -> io::Result<Option<Report>> {
        Ok(self.poll_with_errors()?.map(|(report, _)| report))
    }

    /// The report and what the process wrote to standard error, once it has ended.
    fn poll_with_errors(&mut self) -> io::Result<Option<(Report, String)>> {
        let status = self.child.try_wait()?;
        self.looks += 1;
        let hangs = status.is_none() && self.looks > LOOKS_MAX;
        if status.is_none() && !hangs {
            return Ok(None);
        }
        if hangs {
            self.child.kill()?;
            self.child.wait()?;
        }
        let (output, errors) = (read_all(&mut self.output)?, read_all(&mut self.errors)?);
        let errors = String::from_utf8_lossy(&errors).into_owned();
        let report = serde_json::from_slice(&output).unwrap_or_else(|_| {
            let what =
                if hangs { format!("it did not end within {:?}", LOOK_EVERY * LOOKS_MAX) } else { tail(&errors) };
            Report::lost(&self.scenario, self.seed, &self.replay, Failure::new("simulator", what))
        });
        Ok(Some((report, errors)))
    }

    /// Waits for the report.
    pub fn wait(self) -> io::Result<Report> {
        Ok(self.wait_with_errors()?.0)
    }

    /// Waits for the report and what the process wrote to standard error.
    pub fn wait_with_errors(mut self) -> io::Result<(Report, String)> {
        loop {
            if let Some(ended) = self.poll_with_errors()? {
                return Ok(ended);
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }
}

impl Drop for Seed {
    fn drop(&mut self) {
        // Both fail if it has ended, which is as well.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn read_all(file: &mut File) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.rewind()?;
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The last few lines.
fn tail(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(40)..].join("\n")
}

/// A path for the trace of a seed, in the system's folder for such files.
pub fn trace_path(scenario: &str, seed: u64, which: u32) -> PathBuf {
    std::env::temp_dir().join(format!("kilo-sim-{}-{scenario}-{seed}-{which}.trace", std::process::id()))
}

/// A seed that runs twice, in processes of their own, to have the whole traces compared, byte for byte.
pub struct Comparison {
    scenario: String,
    seed: u64,
    runs: [(Seed, Option<Report>); 2],
    traces: [PathBuf; 2],
}

impl Comparison {
    /// Starts both.
    pub fn start(scenario: &str, seed: u64) -> io::Result<Self> {
        let file = |which| trace_path(&scenario.replace('/', "-"), seed, which);
        let traces = [file(0), file(1)];
        let request = |path: &PathBuf| Request { trace_file: Some(path.clone()), ..Request::new(scenario, seed) };
        let runs = [(Seed::start(&request(&traces[0]))?, None), (Seed::start(&request(&traces[1]))?, None)];
        Ok(Self { scenario: scenario.to_owned(), seed, runs, traces })
    }

    /// The scenario.
    pub fn scenario(&self) -> &str {
        &self.scenario
    }

    /// The seed.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Whether both have ended.
    pub fn is_done(&mut self) -> io::Result<bool> {
        for (run, report) in &mut self.runs {
            if report.is_none() {
                *report = run.poll()?;
            }
        }
        Ok(self.runs.iter().all(|(_, report)| report.is_some()))
    }

    /// Waits for both. `Err` says where the traces part.
    pub fn result(mut self) -> io::Result<Result<Report, String>> {
        while !self.is_done()? {
            std::thread::sleep(LOOK_EVERY);
        }
        let traces = self.traces.each_ref().map(|path| fs::read(path).unwrap_or_default());
        for path in &self.traces {
            // Absent if the run broke off, which the comparison below tells.
            let _ = fs::remove_file(path);
        }
        let [Some(first), Some(second)] = self.runs.map(|(_, report)| report) else {
            return Ok(Err("a run has no report".to_owned()));
        };
        if traces[0].is_empty() {
            return Ok(Err(format!("there is no trace\n{first}")));
        }
        if traces[0] != traces[1] || first.trace_hash != second.trace_hash {
            return Ok(Err(difference(&traces[0], &traces[1])));
        }
        Ok(Ok(first))
    }
}

fn difference(first: &[u8], second: &[u8]) -> String {
    let lines = |bytes: &[u8]| -> Vec<String> { String::from_utf8_lossy(bytes).lines().map(str::to_owned).collect() };
    let (first, second) = (lines(first), lines(second));
    let at = first.iter().zip(&second).take_while(|(a, b)| a == b).count();
    let line = |lines: &[String]| lines.get(at).cloned().unwrap_or_else(|| "(its end)".to_owned());
    let before = first[at.saturating_sub(5)..at].join("\n    ");
    format!("the traces part at line {}:\n    {before}\n  < {}\n  > {}", at + 1, line(&first), line(&second))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_can_be_pasted_into_a_shell() {
        assert_eq!(Request::new("mixed", 4).replay, "mixed --seed 4");
        assert_eq!(shell_word("out/mixed-42.toml"), "out/mixed-42.toml");
        assert_eq!(shell_word("my runs/it's.toml"), r"'my runs/it'\''s.toml'");
        assert_eq!(shell_word(""), "''");
    }
}
