//! What the tests of breaking lines share: a line with given settings, and who is left at its far end.

use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use ssh_config_parser::{Snapshot, World};
use towline::line::bootstrap::Helpers;
use towline::line::message::{Environment, Program};
use towline::line::{self, Line, OpenError, Options};
use towline::ssh::{Deadlines, NoPrompter, Overrides, Target};

use crate::support::{PATIENCE, Process, Sshd, TempHome, census, wait_for};

/// Within which all that a line has started must be gone after its end.
pub const GONE: Duration = Duration::from_secs(10);

/// Opens a line as the home's site, with a keepalive of its own.
pub async fn open(home: &TempHome, keepalive: Option<Duration>) -> Result<Line, OpenError> {
    let snapshot = Snapshot::read(Some(&home.ssh_config()), World::from_system().unwrap()).unwrap();
    let overrides = Overrides { keepalive, ..Overrides::default() };
    let target = Target::from_config(&snapshot, "login", &overrides).unwrap();
    let options = Options {
        environment: Environment::None,
        helpers: Helpers::embedded(),
        exec_from_memory: false,
        deadlines: Deadlines { connect: Duration::from_secs(20), start: Duration::from_secs(60) },
    };
    line::open(target, Arc::new(NoPrompter), options).await
}

/// Shell text as a program.
pub fn shell(text: &str) -> Program {
    Program::Shell(text.into())
}

/// The helper of the one line to `server`.
pub fn helper(server: &Sshd) -> Process {
    let find =
        || census::of_logins(server.port()).into_iter().find(|process| process.name == "towline-helper");
    wait_for(PATIENCE, "the helper runs", find)
}

/// Waits until nothing is left of any login at `server`: no connection, no helper, no command.
pub fn wait_until_gone(server: &Sshd) {
    census::wait_until_none(GONE, || census::of_logins(server.port()));
    server.wait_until_idle();
}

/// A variable that marks the processes of one command, as `NAME=VALUE`; no two calls give the same.
pub fn mark() -> String {
    static COUNT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let count = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    format!("TOWLINE_TEST_MARK={}-{count}", std::process::id())
}

/// Waits until at least `count` processes carry a mark.
pub fn wait_for_marked(mark: &str, count: usize) -> Vec<Process> {
    wait_for(PATIENCE, "the command runs", || {
        Some(census::with_environment(mark)).filter(|marked| marked.len() >= count)
    })
}

/// The built `towline` with pipes in place of its three streams; killed when dropped.
pub struct Running(pub Child);

impl Running {
    pub fn towline(home: &TempHome, args: &[&str]) -> Running {
        let mut command = Command::new(env!("CARGO_BIN_EXE_towline"));
        command.env_clear().envs(home.environment()).current_dir(home.user_home()).args(args);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Running(command.spawn().unwrap())
    }

    /// Waits for its end; none when a signal ended it.
    pub fn exit_code(&mut self, within: Duration) -> Option<i32> {
        wait_for(within, "towline ends", || self.0.try_wait().unwrap()).code()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended already.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}
