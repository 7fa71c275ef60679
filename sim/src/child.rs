//! One process per seed: two runs in one process would share counters and not be alike. Whoever wants a seed run
//! executes its own program again with [`ARGUMENT`]; [`serve`] is what that copy does.

use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::plan::Plan;
use crate::runner::{self, Failure, Report, Run};
use crate::scenario::{self, ScenarioError};
use crate::trace::TraceMode;

/// The first argument of a copy, which reads a [`Request`] from its standard input.
pub const ARGUMENT: &str = "__one";
/// Names of planted faults that are switched on, separated by commas.
pub const MUTANTS: &str = "KILO_MUTANTS";
/// How often a seed is looked at.
pub const LOOK_EVERY: Duration = Duration::from_millis(2);
/// Looks after which a seed counts as hanging: minutes. Not measured by a clock, which goes on while the machine stands
/// still.
const LOOKS_MAX: u32 = 90_000;

/// Switches on the planted faults that the environment names. Only this program looks there, never the broker.
pub fn plant_mutants() {
    let names = std::env::var(MUTANTS).unwrap_or_default();
    kilo::io::probe::plant(names.split(',').filter(|name| !name.is_empty()).map(str::to_owned));
}

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
    /// Where the whole trace goes, if it is asked for.
    pub trace_file: Option<PathBuf>,
}

impl Request {
    /// A seed as it is drawn.
    pub fn new(scenario: impl Into<String>, seed: u64) -> Self {
        Self { scenario: scenario.into(), seed, scheduler: None, plan: None, trace_file: None }
    }

    /// Runs it in this process.
    pub fn run(self, trace: TraceMode) -> Result<Report, ScenarioError> {
        let Self { seed, scheduler, plan, .. } = self;
        Ok(runner::run(&Run { scenario: scenario::find(&self.scenario)?, seed, scheduler, plan, trace }))
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

fn one() -> Result<(), Box<dyn std::error::Error>> {
    plant_mutants();
    let request: Request = serde_json::from_reader(io::stdin().lock())?;
    let trace_file = request.trace_file.clone();
    let report = request.run(if trace_file.is_some() { TraceMode::Keep } else { TraceMode::Hash })?;
    if let Some(path) = trace_file {
        fs::write(path, &report.trace)?;
    }
    io::stdout().write_all(&serde_json::to_vec(&report)?)?;
    Ok(())
}

/// A seed that runs in a process of its own.
pub struct Seed {
    scenario: String,
    seed: u64,
    child: Child,
    output: PathBuf,
    errors: PathBuf,
    looks: u32,
}

impl Seed {
    /// Starts it.
    pub fn start(request: &Request) -> io::Result<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let stem = std::env::temp_dir().join(format!("kilo-sim-{}-{number}", std::process::id()));
        let (output, errors) = (stem.with_extension("out"), stem.with_extension("err"));
        let mut command = Command::new(std::env::current_exe()?);
        command.arg(ARGUMENT).stdin(Stdio::piped());
        command.stdout(File::create(&output)?).stderr(File::create(&errors)?);
        let mut child = command.spawn()?;
        if let Some(mut stdin) = child.stdin.take() {
            stdin.write_all(&serde_json::to_vec(request)?)?;
        }
        Ok(Self { scenario: request.scenario.clone(), seed: request.seed, child, output, errors, looks: 0 })
    }

    /// Ends it without a report.
    pub fn stop(mut self) -> io::Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        fs::remove_file(&self.output).and(fs::remove_file(&self.errors))
    }

    /// The report, once the process has ended.
    pub fn poll(&mut self) -> io::Result<Option<Report>> {
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
        let read = |path: &Path| {
            let mut bytes = Vec::new();
            File::open(path).and_then(|mut file| file.read_to_end(&mut bytes)).map(|_| bytes)
        };
        let (output, errors) = (read(&self.output)?, read(&self.errors)?);
        // Left behind at worst; the next run has other names.
        let _ = fs::remove_file(&self.output).and(fs::remove_file(&self.errors));
        let report = serde_json::from_slice(&output).ok();
        Ok(Some(report.unwrap_or_else(|| {
            let errors = String::from_utf8_lossy(&errors);
            let what =
                if hangs { format!("it did not end within {:?}", LOOK_EVERY * LOOKS_MAX) } else { tail(&errors) };
            Report::lost(&self.scenario, self.seed, Failure::new("simulator", what))
        })))
    }

    /// Waits for the report.
    pub fn wait(mut self) -> io::Result<Report> {
        loop {
            if let Some(report) = self.poll()? {
                return Ok(report);
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }
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

/// Runs a seed twice in processes of their own and compares the whole traces, byte for byte. `Err` says where they
/// part.
pub fn compare(scenario: &str, seed: u64) -> io::Result<Result<Report, String>> {
    let paths = [trace_path(scenario, seed, 0), trace_path(scenario, seed, 1)];
    let request = |path: &PathBuf| Request { trace_file: Some(path.clone()), ..Request::new(scenario, seed) };
    let runs = [Seed::start(&request(&paths[0]))?, Seed::start(&request(&paths[1]))?];
    let [first, second] = runs.map(Seed::wait);
    let (first, second) = (first?, second?);
    let traces = paths.each_ref().map(|path| fs::read(path).unwrap_or_default());
    for path in &paths {
        // Absent if the run broke off, which the comparison below tells.
        let _ = fs::remove_file(path);
    }
    if traces[0].is_empty() {
        return Ok(Err(format!("there is no trace\n{first}")));
    }
    if traces[0] != traces[1] || first.trace_hash != second.trace_hash {
        return Ok(Err(difference(&traces[0], &traces[1])));
    }
    Ok(Ok(first))
}

fn difference(first: &[u8], second: &[u8]) -> String {
    let lines = |bytes: &[u8]| -> Vec<String> { String::from_utf8_lossy(bytes).lines().map(str::to_owned).collect() };
    let (first, second) = (lines(first), lines(second));
    let at = first.iter().zip(&second).take_while(|(a, b)| a == b).count();
    let line = |lines: &[String]| lines.get(at).cloned().unwrap_or_else(|| "(its end)".to_owned());
    let before = first[at.saturating_sub(5)..at].join("\n    ");
    format!("the traces part at line {}:\n    {before}\n  < {}\n  > {}", at + 1, line(&first), line(&second))
}
