//! The command line: parses, asks the rooms below, prints. No logic of its own.
//!
//! Promises: with `--json` exactly one document on stdout (or one a line while following) and one error object on
//! stderr; exit codes as the contract's table says. May import every room.

mod approve;
pub mod args;
mod ask;
mod audit;
#[cfg(feature = "demo")]
pub mod demo;
mod doctor;
pub mod exec;
pub mod job;
mod log;
pub mod output;
mod own_line;
mod policy;
mod ssh_config;
pub mod table;
mod usage;
mod values;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Parser as _;

use crate::config::Environment;
use crate::failure::Failure;
use crate::kind::EXIT_NOT_THE_COMMANDS;
use args::{Cli, Command};
use output::Output;
use usage::Invocation;

/// Runs the command line of this process, and returns its exit code.
pub fn run() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    let environment = Environment::capture();
    let invocation = Invocation::of(&arguments);
    let output = Output::new(invocation.json(), environment.no_color);
    let result = match Cli::try_parse_from(&arguments) {
        Ok(cli) => match log::start(&environment) {
            // Nothing may keep anybody from disabling, not even a mistake in what is to be logged.
            Err(failure) if !cli.command.disables() => Err(failure),
            Ok(()) | Err(_) => dispatch(cli, environment, &output),
        },
        Err(error) => usage::answer(&error, &output),
    };
    ExitCode::from(result.unwrap_or_else(|failure| {
        output.failure(&failure);
        // As ssh does: a script must be able to tell our failures from the remote command's own codes.
        if invocation.exec && !output.json() { EXIT_NOT_THE_COMMANDS } else { failure.kind.exit_code() }
    }))
}

/// Runs one command; an `Ok` holds the exit code of an answer.
fn dispatch(cli: Cli, environment: Environment, output: &Output) -> Result<u8, Failure> {
    match cli.command {
        #[cfg(feature = "demo")]
        Command::Demo(args) => demo::run(&args, output),
        Command::Exec(args) => exec::run(&args, environment, output),
        Command::SshConfig(args) => ssh_config::run(&args.command, output),
        Command::Doctor(args) => doctor::run(args.site.as_deref(), environment, output),
        Command::Job(args) => job::run(&args.command, environment, output),
        Command::Policy(args) => policy::run(&args.command, environment, output),
        Command::Approve => approve::list(&environment, output),
        Command::Deny(args) => approve::deny(&args, &environment, output),
        Command::Audit(args) => audit::run(&args, &environment, output),
    }
}
