//! How long one host of a large ssh config takes to resolve, against `ssh -G` in the same run.
//!
//! The config has 1,000 hosts over 20 included files. Ours is timed in the process (read and resolve), `ssh -G` as the
//! process that it is, and our own program as a process too. `TOWLINE_BENCH_SMOKE=1` takes few samples.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    missing_docs,
    reason = "a bench fails by panicking"
)]

#[path = "../line/measure.rs"]
#[allow(dead_code, reason = "each bench uses its part")]
mod measure;

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use measure::{Samples, Table};
use ssh_config_parser::{Snapshot, World};

const FILES: usize = 20;
const HOSTS_A_FILE: usize = 50;

fn main() {
    let smoke = std::env::var_os("TOWLINE_BENCH_SMOKE").is_some();
    let samples = if smoke { 3 } else { 100 };
    let folder = tempfile::tempdir().unwrap();
    let config = write_config(folder.path());
    let host = "node-19-49";
    let (mut inside, mut ours, mut theirs) = (Samples::new(), Samples::new(), Samples::new());
    for _ in 0..samples {
        let began = Instant::now();
        let snapshot = Snapshot::read(Some(&config), World::from_system().unwrap()).unwrap();
        let resolved = snapshot.resolve(host).unwrap();
        inside.push(began.elapsed());
        assert_eq!(resolved.hostname, "10.0.19.49");
        let mut program = Command::new(env!("CARGO_BIN_EXE_towline"));
        ours.push(time(program.args(["ssh-config", "resolve", "--file"]).arg(&config).arg(host)));
        theirs.push(time(Command::new("ssh").arg("-F").arg(&config).args(["-G", host])));
    }
    let mut table = Table::new(smoke);
    table.row("read and resolve, in the process", "ssh -G, a process", &inside, &theirs);
    table.row("`towline ssh-config resolve`, a process", "ssh -G, a process", &ours, &theirs);
    table.print();
}

fn time(command: &mut Command) -> std::time::Duration {
    let began = Instant::now();
    assert!(command.stdin(Stdio::null()).stdout(Stdio::null()).status().unwrap().success());
    began.elapsed()
}

fn write_config(folder: &Path) -> std::path::PathBuf {
    let mut main = String::new();
    for file in 0..FILES {
        let path = folder.join(format!("part-{file:02}"));
        let hosts: String = (0..HOSTS_A_FILE)
            .map(|host| {
                format!(
                    "Host node-{file}-{host} n{file}x{host}\n  HostName 10.0.{file}.{host}\n  User u{host}\n  \
                     Port {}\n  IdentityFile ~/.ssh/id_{file}\n  SendEnv LC_*\n",
                    2000 + host
                )
            })
            .collect();
        std::fs::write(&path, hosts).unwrap();
        main.push_str(&format!("Include {}\n", path.display()));
    }
    main.push_str("Host *\n  ServerAliveInterval 30\n  Compression no\n");
    let path = folder.join("config");
    std::fs::write(&path, main).unwrap();
    path
}
