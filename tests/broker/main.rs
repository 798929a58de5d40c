//! One broker, one line, many clients: on real processes and a real sshd.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    missing_docs,
    reason = "tests fail by panicking"
)]

#[path = "../support/mod.rs"]
mod support;

mod approval;
mod clients;
mod ends;
mod life;

use std::process::{Child, Command, Stdio};

use serde_json::Value;
use support::{Answer, Sshd, TempHome, run_json};
use towline::config::{Environment, Home};
use towline::policy::Store;

/// A home whose site is `alice` on a server of its own, with a policy that lets lines be used.
///
/// Its lines are closed when it is dropped, so that no broker outlives its test.
pub struct Desk {
    pub server: Sshd,
    pub home: TempHome,
}

impl Desk {
    pub fn open() -> Desk {
        let server = Sshd::key_only();
        let home = TempHome::for_server(&server, "alice");
        let desk = Desk { server, home };
        enable(&desk.home);
        desk
    }

    pub fn connect(&self) -> Value {
        run_json(&self.home, &["connect", "hpc"]).ok().clone()
    }

    pub fn exec(&self, text: &str) -> Answer {
        run_json(&self.home, &["exec", "hpc", "--", text])
    }

    /// What `status` says of the one line.
    pub fn line(&self) -> Value {
        run_json(&self.home, &["status"]).ok()["lines"][0].clone()
    }

    /// Starts `towline exec --json hpc -- TEXT` and leaves it running.
    pub fn start(&self, text: &str) -> Child {
        let mut command = Command::new(env!("CARGO_BIN_EXE_towline"));
        command.env_clear().envs(self.home.environment()).current_dir(self.home.user_home());
        command.args(["--json", "exec", "hpc", "--", text]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }
}

impl Drop for Desk {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let file =
                |name: &str| std::fs::read_to_string(self.home.path().join("lines/hpc.login").join(name));
            println!("log: {:?}\nreceipt: {:?}", file("log"), file("receipt.json"));
        }
        // Whatever the test has left; a home without a line is none.
        run_json(&self.home, &["policy", "disable", "--hard", "--reason", "the test is over"]);
    }
}

/// Makes a policy that lets lines be used, as a human would on a terminal.
pub fn enable(home: &TempHome) {
    let environment = Environment {
        home: Some(home.user_home()),
        towline_home: Some(home.path()),
        ..Environment::default()
    };
    let store = Store::new(&Home::from_environment(&environment).unwrap());
    store.disable("a test begins").unwrap();
    store.enable_reuse(store.show().cas().unwrap(), "a test's approval").unwrap();
}

/// The error object of a child that has ended.
pub fn error_of(child: Child) -> (Option<i32>, Value) {
    let output = child.wait_with_output().unwrap();
    let error: Value = serde_json::from_slice(&output.stderr).unwrap_or(Value::Null);
    (output.status.code(), error["error"].clone())
}
