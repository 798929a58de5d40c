//! The line against OpenSSH and against the limit, side by side in one run.
//!
//! Each row asks one question; rivals are measured in turn, so that both see the same machine. What counts is the
//! ratio. `TOWLINE_BENCH_SMOKE=1` runs everything small, to show that it works.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    missing_docs,
    reason = "a bench fails by panicking"
)]

#[path = "../../tests/support/mod.rs"]
mod support;

mod measure;

use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use measure::{Samples, Table};
use ssh_config_parser::{Snapshot, World};
use support::home::{SITE, TempHome};
use support::server::{Sshd, ThrowawayOptions};
use towline::line::bootstrap::Helpers;
use towline::line::message::{Environment, Program};
use towline::line::{Line, Options};
use towline::ssh::{Deadlines, NoPrompter, Overrides, Target};

/// Sizes of one run.
struct Sizes {
    connects: usize,
    commands: usize,
    rounds: usize,
    bulk_bytes: u64,
}

fn main() {
    let smoke = std::env::var_os("TOWLINE_BENCH_SMOKE").is_some();
    let sizes = if smoke {
        Sizes { connects: 2, commands: 20, rounds: 1, bulk_bytes: 16 << 20 }
    } else {
        Sizes { connects: 20, commands: 300, rounds: 5, bulk_bytes: 1 << 30 }
    };
    let server = Sshd::throwaway(ThrowawayOptions {
        lines: vec!["MaxSessions 100".to_owned(), "LogLevel ERROR".to_owned()],
        ..ThrowawayOptions::default()
    });
    let home = TempHome::for_server(&server, "alice");
    let mut table = Table::new(smoke);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let ssh_connects = connecting(&home, &sizes, &mut table);
    let line = runtime.block_on(open(&home));
    let master = Master::start(&home);
    runtime.block_on(commands(&line, &master, &sizes, &mut table));
    runtime.block_on(bulk(&line, &home, &sizes, ssh_connects, &mut table));
    table.print();
    line.close();
}

async fn open(home: &TempHome) -> Line {
    let snapshot = Snapshot::read(Some(&home.ssh_config()), World::from_system().unwrap()).unwrap();
    let target = Target::from_config(&snapshot, "login", &Overrides::default()).unwrap();
    let options = Options {
        environment: Environment::None,
        helpers: Helpers::embedded(),
        exec_from_memory: false,
        deadlines: Deadlines { connect: Duration::from_secs(20), start: Duration::from_secs(90) },
    };
    towline::line::open(target, Arc::new(NoPrompter), options).await.unwrap()
}

fn ssh(home: &TempHome, options: &[&str]) -> Command {
    let mut command = Command::new("ssh");
    command.arg("-F").arg(home.ssh_config()).args([
        "-o",
        "Ciphers=aes128-gcm@openssh.com",
        "-o",
        "BatchMode=yes",
    ]);
    command.args(options).stdin(Stdio::null()).stderr(Stdio::null());
    command
}

/// The whole program: opens a line of its own, runs `true`, leaves.
fn towline(home: &TempHome) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_towline"));
    command.env_clear().envs(home.environment()).args(["exec", SITE, "--", "true"]);
    command.stdin(Stdio::null()).stderr(Stdio::null());
    command
}

fn remove_cached_helpers() {
    let cache = support::server::user_home("alice").join(".cache/towline");
    match std::fs::remove_dir_all(&cache) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => panic!("{}: {error}", cache.display()),
        _ => {}
    }
}

fn time(command: &mut Command) -> Duration {
    let began = Instant::now();
    let status = command.stdout(Stdio::null()).status().unwrap();
    assert!(status.success(), "{command:?} failed: {status}");
    began.elapsed()
}

/// Whole processes: connect, log in, run `true`, leave. Returns OpenSSH's median.
fn connecting(home: &TempHome, sizes: &Sizes, table: &mut Table) -> Duration {
    let (mut ours, mut cold, mut theirs) = (Samples::new(), Samples::new(), Samples::new());
    for _ in 0..sizes.connects {
        remove_cached_helpers();
        cold.push(time(&mut towline(home)));
        ours.push(time(&mut towline(home)));
        theirs.push(time(ssh(home, &["login", "true"]).stdout(Stdio::null())));
    }
    table.row("connect + `true`, helper cached", "ssh host true", &ours, &theirs);
    table.row("connect + `true`, helper sent", "ssh host true", &cold, &theirs);
    theirs.median()
}

/// An OpenSSH master connection.
struct Master {
    socket: String,
    home: std::path::PathBuf,
}

impl Master {
    fn start(home: &TempHome) -> Self {
        let socket = home.user_home().join("mux").display().to_string();
        let status =
            ssh(home, &["-M", "-S", &socket, "-o", "ControlPersist=yes", "-fN", "login"]).status().unwrap();
        assert!(status.success());
        Master { socket, home: home.ssh_config() }
    }

    fn command(&self) -> Command {
        let mut command = Command::new("ssh");
        // Never a new connection behind our back.
        command.arg("-F").arg(&self.home).args(["-S", &self.socket, "-o", "ProxyCommand=false", "login"]);
        command.stdin(Stdio::null()).stderr(Stdio::null());
        command
    }
}

impl Drop for Master {
    fn drop(&mut self) {
        let mut command = Command::new("ssh");
        command.arg("-F").arg(&self.home).args(["-S", &self.socket, "-O", "exit", "login"]);
        command.stderr(Stdio::null()).status().unwrap();
    }
}

async fn run_true(line: &Line) {
    let output = line.command(Program::Argv(vec!["true".into()])).output(Vec::new()).await.unwrap();
    assert_eq!(output.outcome.rc, 0);
}

/// Small commands: one after the other, and 64 at once.
async fn commands(line: &Line, master: &Master, sizes: &Sizes, table: &mut Table) {
    let (mut ours, mut theirs, mut local) = (Samples::new(), Samples::new(), Samples::new());
    run_true(line).await;
    for _ in 0..sizes.commands {
        let began = Instant::now();
        run_true(line).await;
        ours.push(began.elapsed());
        local.push(time(&mut Command::new("true")));
        theirs.push(time(master.command().arg("true")));
    }
    table.row("`exec true`, line open", "ssh through a ControlMaster", &ours, &theirs);
    table.row("`exec true`, line open", "local fork + exec", &ours, &local);
    let (mut ours, mut theirs) = (Samples::new(), Samples::new());
    for _ in 0..sizes.rounds.max(2) {
        let began = Instant::now();
        let all: Vec<_> = (0..64).map(|_| run_true(line)).collect();
        futures_join(all).await;
        ours.push(began.elapsed());
        let began = Instant::now();
        let children: Vec<_> =
            (0..64).map(|_| master.command().arg("true").stdout(Stdio::null()).spawn().unwrap()).collect();
        for mut child in children {
            assert!(child.wait().unwrap().success());
        }
        theirs.push(began.elapsed());
    }
    table.row("64 commands at once", "64 ssh through a ControlMaster", &ours, &theirs);
}

async fn futures_join<F: Future<Output = ()>>(all: Vec<F>) {
    let mut all: Vec<_> = all.into_iter().map(Box::pin).collect();
    std::future::poll_fn(|context| {
        all.retain_mut(|future| future.as_mut().poll(context).is_pending());
        if all.is_empty() { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    })
    .await;
}

/// Bulk in both directions, its cost, its memory, and small commands meanwhile.
async fn bulk(line: &Line, home: &TempHome, sizes: &Sizes, connect: Duration, table: &mut Table) {
    let bytes = sizes.bulk_bytes;
    let (mut down, mut ssh_down) = (Samples::new(), Samples::new());
    let (mut up, mut ssh_up) = (Samples::new(), Samples::new());
    let (mut cpu, mut ssh_cpu) = (Samples::new(), Samples::new());
    for _ in 0..sizes.rounds {
        let (used, began) = (measure::own_cpu(), Instant::now());
        assert_eq!(read_zeros(line, bytes).await, bytes);
        down.push(began.elapsed());
        cpu.push(measure::own_cpu() - used);
        let used = measure::children_cpu();
        let whole = time(&mut ssh(home, &["login", &format!("head -c {bytes} /dev/zero")]));
        ssh_down.push(whole.saturating_sub(connect));
        ssh_cpu.push(measure::children_cpu() - used);
        let began = Instant::now();
        write_zeros(line, bytes).await;
        up.push(began.elapsed());
        let began = Instant::now();
        let mut child = ssh(home, &["login", "cat >/dev/null"]).stdin(Stdio::piped()).spawn().unwrap();
        std::io::copy(
            &mut std::io::Read::take(std::fs::File::open("/dev/zero").unwrap(), bytes),
            &mut child.stdin.take().unwrap(),
        )
        .unwrap();
        assert!(child.wait().unwrap().success());
        ssh_up.push(began.elapsed().saturating_sub(connect));
    }
    let size = measure::size(bytes);
    table.row(&format!("read {size}"), "ssh, same cipher, without its connecting", &down, &ssh_down);
    table.row("CPU of our end for that", "ssh, same cipher", &cpu, &ssh_cpu);
    table.row(&format!("write {size}"), "ssh, same cipher, without its connecting", &up, &ssh_up);
    let (mut idle, mut busy) = (Samples::new(), Samples::new());
    for _ in 0..sizes.commands {
        let began = Instant::now();
        run_true(line).await;
        idle.push(began.elapsed());
    }
    let reading = read_zeros(line, bytes * 2);
    tokio::pin!(reading);
    loop {
        let began = Instant::now();
        tokio::select! {
            biased;
            () = run_true(line) => busy.push(began.elapsed()),
            _ = &mut reading => break,
        }
    }
    table.row_p95("p95 of `exec true` during a bulk read", "the same, idle", &busy, &idle);
    table.note(&format!(
        "memory after {size}: our end {} peak, helper {} peak",
        measure::size(measure::peak_memory("self")),
        measure::size(measure::peak_memory(&line.facts().helper.hello.pid.to_string())),
    ));
}

async fn read_zeros(line: &Line, bytes: u64) -> u64 {
    let program =
        Program::Argv(vec!["head".into(), "-c".into(), bytes.to_string().into(), "/dev/zero".into()]);
    let mut child = line.command(program).spawn(false).await.unwrap();
    let mut total = 0;
    while let Some(piece) = child.stdout.next().await {
        total += piece.len() as u64;
    }
    assert_eq!(child.wait().await.unwrap().rc, 0);
    total
}

async fn write_zeros(line: &Line, bytes: u64) {
    let program = Program::Argv(vec!["wc".into(), "-c".into()]);
    let mut child = line.command(program).spawn(true).await.unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let mut left = bytes;
    while left > 0 {
        let piece = left.min(128 << 10);
        assert!(stdin.send(vec![0; piece as usize]).await);
        left -= piece;
    }
    stdin.finish().await;
    let mut counted = Vec::new();
    while let Some(piece) = child.stdout.next().await {
        counted.extend_from_slice(&piece);
    }
    assert_eq!(String::from_utf8_lossy(&counted).trim(), bytes.to_string());
}
