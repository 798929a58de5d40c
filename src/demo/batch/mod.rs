//! A batch system in a directory: first in, first out, one node, one job at a time, no daemon.
//!
//! Promises the commands, states, texts and formats of Slurm 22.05 as far as towline asks for them, and refuses the
//! rest. The state is a file a job under [`CLUSTER`]; whoever changes it holds a lock. `sbatch` and `scontrol release`
//! start a detached runner, which works through the queue and ends when nothing is left to run.

mod arguments;
mod clock;
mod control;
mod report;
mod runner;
mod store;
mod submit;

use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use store::Store;

/// The environment variable that names the cluster's directory and makes the program answer to [`COMMANDS`].
pub const CLUSTER: &str = "TOWLINE_DEMO_CLUSTER";

/// The names under which the program is the batch system.
pub const COMMANDS: [&str; 6] = ["sbatch", "squeue", "sacct", "scancel", "scontrol", "sinfo"];

const VERSION: &str = "slurm-wlm 22.05.8 (towline demo)\n";
const CLUSTER_NAME: &str = "towline-demo";
const NODE: &str = "node1";
const NODE_CPUS: u32 = 2;
const PARTITION: &str = "debug";

/// The argument with which `sbatch` starts the runner.
const RUNNER: &str = "--towline-demo-runner";

/// What a command prints on stdout, or its complaint.
type Answer = Result<String, Failure>;

/// What a command says on stderr instead, and its exit code, which Slurm sometimes leaves at 0.
#[derive(Debug)]
struct Failure {
    text: String,
    code: u8,
}

impl Failure {
    fn new(code: u8, text: impl Into<String>) -> Self {
        let text = text.into();
        Self { text, code }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::new(1, format!("towline demo: {error}\n"))
    }
}

/// Runs the batch command that this process was called as; `None` where it was called as anything else.
pub fn called() -> Option<ExitCode> {
    let mut arguments = std::env::args_os();
    let called = arguments.next()?;
    let name = Path::new(&called).file_name().and_then(OsStr::to_str)?;
    let known = COMMANDS.contains(&name) && std::env::var_os(CLUSTER).is_some();
    known.then(|| main(name, arguments))
}

/// Runs the batch command `name` on the cluster that [`CLUSTER`] names.
pub fn main(name: &str, arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let arguments: Vec<String> = arguments.map(|argument| argument.to_string_lossy().into_owned()).collect();
    let answer = Store::from_environment().and_then(|store| match (name, arguments.as_slice()) {
        (_, [only]) if only == "--version" || only == "-V" => Ok(VERSION.to_owned()),
        ("sbatch", [only]) if only == RUNNER => runner::run(&store),
        ("sbatch", arguments) => submit::sbatch(&store, arguments),
        ("squeue", arguments) => report::squeue(&store, arguments),
        ("sacct", arguments) => report::sacct(&store, arguments),
        ("scancel", arguments) => control::scancel(&store, arguments),
        ("scontrol", arguments) => control::scontrol(&store, arguments),
        (_, arguments) => control::sinfo(&store, arguments),
    });
    let (printed, code) = match answer {
        Ok(text) => (io::stdout().write_all(text.as_bytes()), 0),
        Err(failure) => (io::stderr().write_all(failure.text.as_bytes()), failure.code),
    };
    if printed.is_ok() { ExitCode::from(code) } else { ExitCode::FAILURE }
}

/// Cancels every job and waits until the runner has ended them.
///
/// # Errors
/// When the cluster's directory can't be read or written.
pub(super) fn end_all(cluster: &Path) -> io::Result<()> {
    let store = Store::at(cluster);
    control::cancel(&store, |_| true)?;
    store.await_runner()
}
