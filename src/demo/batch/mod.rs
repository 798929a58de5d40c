//! The demo's batch system: first in, first out, one node, one job at a time.
//!
//! Promises what `jobs` asks of Slurm 22.05, in Slurm's words and formats, and refuses the rest. It has one
//! user, no arrays, dependencies or job steps, and never forgets a job (as with `MinJobAge=0`). The state is
//! a file a job under `CLUSTER`, changed under a lock by the commands and by the controller, a thread of
//! the server that runs the jobs: they are no descendants of a command, so they outlive its line.

mod arguments;
mod control;
mod controller;
mod report;
mod store;
mod submit;
mod times;

use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

pub(super) use controller::Controller;
use store::Store;

/// The environment variable that names the cluster's directory and makes the program answer to [`COMMANDS`].
pub const CLUSTER: &str = "TOWLINE_DEMO_CLUSTER";

/// The names under which the program is the batch system.
pub const COMMANDS: [&str; 5] = ["sbatch", "squeue", "sacct", "scancel", "scontrol"];

const CLUSTER_NAME: &str = "towline-demo";
const NODE: &str = "node1";
const NODE_CPUS: u32 = 2;
const PARTITION: &str = "debug";

/// What a command prints on stdout, or its complaint.
type Answer = Result<String, Failure>;

/// A command's exit code, and its complaint on stderr.
#[derive(Debug)]
struct Failure(u8, String);

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self(1, format!("towline demo: {error}\n"))
    }
}

/// Runs the batch command that this process was called as; `None` where it was called as anything else.
pub fn called() -> Option<ExitCode> {
    let mut arguments = std::env::args_os();
    let called = arguments.next()?;
    let name = Path::new(&called).file_name().and_then(OsStr::to_str)?;
    let cluster = std::env::var_os(CLUSTER).filter(|_| COMMANDS.contains(&name))?;
    Some(main(&Store(cluster.into()), name, arguments))
}

fn main(store: &Store, name: &str, arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let arguments: Vec<String> = arguments.map(|argument| argument.to_string_lossy().into_owned()).collect();
    let answer = match (name, arguments.as_slice()) {
        (_, [only]) if only == "--version" => Ok("slurm-wlm 22.05.8 (towline demo)\n".to_owned()),
        ("sbatch", arguments) => submit::sbatch(store, arguments),
        ("squeue", arguments) => report::squeue(store, arguments),
        ("sacct", arguments) => report::sacct(store, arguments),
        ("scancel", arguments) => control::scancel(store, arguments),
        (_, arguments) => control::scontrol(store, arguments),
    };
    let (printed, code) = match answer {
        Ok(text) => (io::stdout().write_all(text.as_bytes()), 0),
        Err(Failure(code, text)) => (io::stderr().write_all(text.as_bytes()), code),
    };
    if printed.is_ok() { ExitCode::from(code) } else { ExitCode::FAILURE }
}
