//! The grammar of the command line; names, options and their help.

mod job;
mod policy;

pub use super::values::{ScriptSource, Variable};
pub use job::{JobArgs, JobCommand, JobId, JobIds, ListArgs, LogsArgs, SubmitArgs, WaitArgs};
pub use policy::{AuditArgs, AuditCommand, DenyArgs, GrantArgs, PolicyArgs, PolicyCommand, SeenArgs};

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{OsStringValueParser, TypedValueParser as _};
use clap::{Args, Parser, Subcommand, ValueEnum};
use towline_helper::wire::message::Keep;

use super::values;
use crate::config::Role;

/// One SSH connection, one session channel: commands, jobs, logs and files on clusters behind a second factor.
#[derive(Clone, Debug, Parser)]
#[command(name = "towline", version, arg_required_else_help = true, max_term_width = 100)]
pub struct Cli {
    /// Print exactly one JSON document, and errors as one JSON object on stderr
    #[arg(long, global = true, overrides_with = "json")]
    pub json: bool,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    /// Show what towline does, on an embedded server and mini cluster of its own
    #[cfg(feature = "demo")]
    Demo(DemoArgs),
    /// Run a command on a site
    Exec(Box<ExecArgs>),
    /// Show what the ssh config means, without running anything
    SshConfig(SshConfigArgs),
    /// Check what an opening of a line needs, and tell how to mend it
    Doctor(DoctorArgs),
    /// Submit, watch and control batch jobs
    Job(JobArgs),
    /// Show and change what is permitted: the use of open lines, the opening of new ones
    Policy(PolicyArgs),
    /// List what clients without a terminal have asked for
    Approve,
    /// Refuse what a client has asked for
    Deny(DenyArgs),
    /// Show every policy event and remote operation: when, who, what, outcome
    Audit(AuditArgs),
}

impl Command {
    /// Whether it is the one command that nothing may keep from running.
    pub(super) fn disables(&self) -> bool {
        matches!(self, Command::Policy(PolicyArgs { command: PolicyCommand::Disable { .. } }))
    }
}

/// Arguments of `demo`.
#[cfg(feature = "demo")]
#[derive(Clone, Debug, Args)]
pub struct DemoArgs {
    /// Leave the server running and its home in place, to try the other commands on it
    #[arg(long)]
    pub keep: bool,
}

/// A role, as the command line names it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum RoleArg {
    /// The host where commands run and jobs are submitted
    #[default]
    Login,
    /// The host for bulk data
    Transfer,
}

impl From<RoleArg> for Role {
    fn from(role: RoleArg) -> Role {
        match role {
            RoleArg::Login => Role::Login,
            RoleArg::Transfer => Role::Transfer,
        }
    }
}

/// Arguments of `exec`.
#[derive(Clone, Debug, Args)]
pub struct ExecArgs {
    /// The site's name in config.toml
    pub site: String,
    /// Which host of the site
    #[arg(long, value_name = "ROLE", value_enum, default_value_t, hide_possible_values = true)]
    pub role: RoleArg,
    /// Run in this directory on the host; literal but for a leading ~/
    #[arg(long, value_name = "DIR")]
    pub cwd: Option<OsString>,
    /// Set a variable for the command; may be given several times
    #[arg(long, value_name = "NAME=VALUE", value_parser = OsStringValueParser::new().try_map(values::variable))]
    pub env: Vec<Variable>,
    /// End the command and all its processes after this time, such as 90s or 15m
    #[arg(long, value_name = "DURATION", value_parser = values::time_limit)]
    pub timeout: Option<Duration>,
    /// Forward our standard input; otherwise the command's is at its end at once
    #[arg(long)]
    pub stdin: bool,
    /// With --json: bytes kept of each stream, from its start and its end [default: 1M, no tail]
    #[arg(long, value_name = "HEAD[:TAIL]", value_parser = values::keep)]
    pub max_output: Option<Keep>,
    /// Let the command and its descendants outlive the deadline, this program and the line
    #[arg(long)]
    pub detach: bool,
    /// End what the command left running in the background and that still holds its output
    #[arg(long, conflicts_with = "detach")]
    pub end_background: bool,
    /// Open a line for this command alone, asking on this terminal, and close it afterwards
    #[arg(long)]
    pub own_line: bool,
    /// One argument is shell text; several are run as they are, without a shell
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

impl ExecArgs {
    /// How many bytes of each stream are kept with `--json`.
    pub fn keep(&self) -> Keep {
        self.max_output.unwrap_or(Keep { head: 1 << 20, tail: 0 })
    }
}

/// Arguments of `ssh-config`.
#[derive(Clone, Debug, Args)]
pub struct SshConfigArgs {
    /// What to show.
    #[command(subcommand)]
    pub command: SshConfigCommand,
}

/// The ssh config's commands.
#[derive(Clone, Debug, Subcommand)]
pub enum SshConfigCommand {
    /// Show what holds for a host, as `ssh -G` would; always JSON
    Resolve {
        /// Read this file instead of ~/.ssh/config
        #[arg(long, value_name = "FILE")]
        file: Option<PathBuf>,
        /// A name of the ssh config, or user@name
        host: String,
    },
    /// Print the text with every Include replaced by what it includes
    Flatten {
        /// Read this file instead of ~/.ssh/config
        #[arg(long, value_name = "FILE")]
        file: Option<PathBuf>,
    },
    /// List every finding with its file and line
    Check {
        /// Read this file instead of ~/.ssh/config
        #[arg(long, value_name = "FILE")]
        file: Option<PathBuf>,
    },
}

/// Arguments of `doctor`.
#[derive(Clone, Debug, Args)]
pub struct DoctorArgs {
    /// Check this site only [default: every configured site]
    pub site: Option<String>,
}
