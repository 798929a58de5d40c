//! The grammar of `towline job`.

use std::ffi::OsString;
use std::time::Duration;

use clap::builder::{OsStringValueParser, TypedValueParser as _};
use clap::{Args, Subcommand};

use super::values;
use super::{ScriptSource, Variable};
use crate::config::size;

/// Arguments of `job`.
#[derive(Clone, Debug, Args)]
pub struct JobArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: JobCommand,
}

/// The commands of `job`.
#[derive(Clone, Debug, Subcommand)]
pub enum JobCommand {
    /// Submit a script, exactly once
    Submit(Box<SubmitArgs>),
    /// List live jobs, and ended ones that the queue still shows
    List(ListArgs),
    /// Show jobs
    Show(JobIds),
    /// Wait until jobs have ended
    Wait(WaitArgs),
    /// Cancel jobs
    Cancel(JobIds),
    /// Keep pending jobs from starting
    Hold(JobIds),
    /// Let held jobs start
    Release(JobIds),
    /// Print a job's output
    Logs(LogsArgs),
    /// List the queues
    Queues {
        /// The site's name in config.toml
        site: String,
    },
}

/// Arguments of `job submit`. Texts go to the scheduler's own rules unread; the jobs room checks them.
#[derive(Clone, Debug, Args)]
pub struct SubmitArgs {
    /// The site's name in config.toml
    pub site: String,
    /// A local file, remote:PATH, or - for standard input
    #[arg(value_parser = OsStringValueParser::new().try_map(values::script))]
    pub script: ScriptSource,
    /// Arguments of the script
    #[arg(last = true, value_name = "ARGS")]
    pub args: Vec<OsString>,
    /// Name of the job [default: the script's]
    #[arg(long)]
    pub name: Option<OsString>,
    /// Queue or partition
    #[arg(long)]
    pub queue: Option<String>,
    /// Account that pays
    #[arg(long)]
    pub account: Option<String>,
    /// Time limit, such as 90m or 2d
    #[arg(long, value_name = "DURATION", value_parser = values::job_time)]
    pub time: Option<Duration>,
    /// How many nodes
    #[arg(long, value_name = "N")]
    pub nodes: Option<u64>,
    /// How many tasks
    #[arg(long, value_name = "N")]
    pub tasks: Option<u64>,
    /// How many CPUs a task
    #[arg(long, value_name = "N")]
    pub cpus: Option<u64>,
    /// Memory a node, such as 16G
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    pub mem: Option<u64>,
    /// How many GPUs, all nodes together
    #[arg(long, value_name = "[TYPE:]N")]
    pub gpus: Option<String>,
    /// Tasks of an array, such as 1-10%2
    #[arg(long, value_name = "SPEC")]
    pub array: Option<String>,
    /// Start only after these jobs ended well
    #[arg(long, value_name = "IDS", value_delimiter = ',')]
    pub after_ok: Vec<String>,
    /// Start only after these jobs ended
    #[arg(long, value_name = "IDS", value_delimiter = ',')]
    pub after_any: Vec<String>,
    /// Leave it held until it is released
    #[arg(long)]
    pub hold: bool,
    /// Working directory on the host
    #[arg(long, value_name = "DIR")]
    pub chdir: Option<OsString>,
    /// File of its standard output
    #[arg(long, value_name = "FILE")]
    pub output: Option<OsString>,
    /// File of its standard error
    #[arg(long, value_name = "FILE")]
    pub error: Option<OsString>,
    /// Set a variable for the job; may be given several times
    #[arg(long, value_name = "NAME=VALUE", value_parser = OsStringValueParser::new().try_map(values::variable))]
    pub env: Vec<Variable>,
    /// Quality of service
    #[arg(long)]
    pub qos: Option<String>,
    /// Reservation
    #[arg(long)]
    pub reservation: Option<String>,
    /// Mail these events, such as end,fail=me@example.org
    #[arg(long, value_name = "EVENTS[=ADDRESS]")]
    pub mail: Option<String>,
    /// A flag of the scheduler's own, as one argument; may be given several times
    #[arg(long, value_name = "FLAG", allow_hyphen_values = true)]
    pub native: Vec<OsString>,
    /// Submission key: the same key never makes a second job [default: a random one]
    #[arg(long, value_name = "KEY", allow_hyphen_values = true)]
    pub key: Option<String>,
    /// Show what would be submitted, and send nothing
    #[arg(long)]
    pub dry_run: bool,
}

/// Arguments of `job list`.
#[derive(Clone, Debug, Args)]
pub struct ListArgs {
    /// The site's name in config.toml
    pub site: String,
    /// Only your own jobs, which is the default
    #[arg(long, conflicts_with = "all_users")]
    pub mine: bool,
    /// Everybody's jobs
    #[arg(long)]
    pub all_users: bool,
    /// Only jobs in this state
    #[arg(long, value_parser = STATES)]
    pub state: Option<String>,
    /// Only jobs with a name like this, with * and ?
    #[arg(long, value_name = "GLOB")]
    pub name: Option<String>,
}

/// The contract's words for the state of a job.
const STATES: [&str; 14] = [
    "pending",
    "held",
    "running",
    "suspended",
    "completing",
    "succeeded",
    "failed",
    "timed_out",
    "out_of_memory",
    "cancelled",
    "node_failed",
    "preempted",
    "lost",
    "unknown",
];

/// One job of a site.
#[derive(Clone, Debug, Args)]
pub struct JobId {
    /// The site's name in config.toml
    pub site: String,
    /// The scheduler's own id
    pub id: String,
}

/// Jobs of a site.
#[derive(Clone, Debug, Args)]
pub struct JobIds {
    /// The site's name in config.toml
    pub site: String,
    /// The scheduler's own ids
    #[arg(required = true, value_name = "ID")]
    pub ids: Vec<String>,
}

/// Arguments of `job wait`.
#[derive(Clone, Debug, Args)]
pub struct WaitArgs {
    /// Which jobs.
    #[command(flatten)]
    pub jobs: JobIds,
    /// Stop waiting after this time; the jobs go on
    #[arg(long, value_name = "DURATION", value_parser = values::time_limit)]
    pub timeout: Option<Duration>,
}

/// Arguments of `job logs`.
#[derive(Clone, Debug, Args)]
pub struct LogsArgs {
    /// Which job.
    #[command(flatten)]
    pub job: JobId,
    /// Go on printing what is appended, until the job has ended
    #[arg(long)]
    pub follow: bool,
    /// Begin this many lines before the end
    #[arg(long, value_name = "LINES")]
    pub tail: Option<u64>,
    /// Standard error instead of standard output
    #[arg(long)]
    pub stderr: bool,
}
