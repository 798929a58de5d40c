//! The real Slurm: four nodes, two partitions, accounting.

use super::server;
use std::process::Output;

/// A running Slurm. It is shared by all tests and stays up when dropped; `cluster stop` ends it.
#[derive(Debug)]
pub struct Slurm(());

impl Slurm {
    /// Starts it, or waits until a start under way is done.
    pub fn start() -> Self {
        server::require("slurm");
        Self(())
    }

    /// Runs a command as `user` on the login host, in the user's home: what a test compares with.
    pub fn run_as(&self, user: &str, argv: &[&str]) -> Output {
        let mut command = server::inside("runuser");
        command.args(["--login", user, "--shell", "/bin/sh", "--command"]);
        command.arg(argv.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" "));
        command.output().expect("runuser runs")
    }

    /// Runs a command as root on the login host: `scontrol update` and other faults to inject.
    pub fn run_as_root(&self, argv: &[&str]) -> Output {
        server::inside(argv[0]).args(&argv[1..]).output().expect("the command runs")
    }
}

fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}
