//! The acceptance cases H1 to H5 and B1's count, through one line of the library.

use std::sync::Arc;
use std::time::Duration;

use ssh_config_parser::{Snapshot, World};
use towline::line::bootstrap::Helpers;
use towline::line::message::{Environment, Program};
use towline::line::{Line, Options, Output};
use towline::ssh::{Deadlines, NoPrompter, Overrides, Target};

use crate::support::{Sshd, TempHome};

/// Opens a line as `user` of the home's site.
pub async fn open(home: &TempHome, environment: Environment) -> Line {
    let snapshot = Snapshot::read(Some(&home.ssh_config()), World::from_system().unwrap()).unwrap();
    let target = Target::from_config(&snapshot, "login", &Overrides::default()).unwrap();
    let options = Options {
        environment,
        helpers: Helpers::embedded(),
        exec_from_memory: false,
        deadlines: Deadlines { connect: Duration::from_secs(20), start: Duration::from_secs(60) },
    };
    towline::line::open(target, Arc::new(NoPrompter), options).await.unwrap()
}

/// Runs shell text.
pub async fn shell(line: &Line, text: &str) -> Output {
    line.command(Program::Shell(text.into())).output(Vec::new()).await.unwrap()
}

#[tokio::test]
async fn h1_to_h5_hold_on_one_line_and_the_server_counts_one_session_channel() {
    let server = Sshd::key_only();
    let home = TempHome::for_server(&server, "alice");
    let line = open(&home, Environment::None).await;

    let slow = line.command(Program::Shell("sleep 20".into())).deadline(Duration::from_millis(100));
    let h1 = slow.output(Vec::new()).await.unwrap();
    assert_eq!((h1.outcome.rc, h1.outcome.timed_out), (124, true));
    assert_eq!(shell(&line, "printf alive").await.stdout, b"alive");

    let both = "head -c 2097152 /dev/zero; head -c 2097152 /dev/zero >&2";
    let h2 = line.command(Program::Shell(both.into())).keep(1 << 20, 0).output(Vec::new()).await.unwrap();
    assert_eq!((h2.stdout.len(), h2.stderr.len()), (1 << 20, 1 << 20));
    assert_eq!((h2.outcome.stdout_dropped, h2.outcome.stderr_dropped), (1 << 20, 1 << 20));
    assert_eq!(shell(&line, "echo exact").await.stdout, b"exact\n");

    // `sleep` in a session of its own keeps the pipe of the first command.
    let h3 = shell(&line, "echo important; setsid sleep 4 &").await;
    assert_eq!((h3.stdout.as_slice(), h3.outcome.pipes_held), (b"important\n".as_slice(), true));
    let six = shell(&line, "for i in 1 2 3 4 5 6; do echo line $i; sleep 0.8; done").await;
    assert_eq!(six.stdout, b"line 1\nline 2\nline 3\nline 4\nline 5\nline 6\n");

    shell(&line, "cd /tmp; export Z=1").await;
    assert_eq!(shell(&line, "pwd; echo [$Z]").await.stdout, b"/home/alice\n[]\n");

    // What the bootstrap needed for itself does not reach commands.
    assert_eq!(shell(&line, "umask; echo ${LC_ALL-unset}").await.stdout, b"0022\nunset\n");

    let all: Vec<_> = (0..64)
        .map(|n| {
            let line = line.clone();
            tokio::spawn(async move { shell(&line, &format!("echo {n}")).await.stdout })
        })
        .collect();
    for (n, task) in all.into_iter().enumerate() {
        assert_eq!(task.await.unwrap(), format!("{n}\n").into_bytes());
    }
    line.close();
    line.closed().await;
    server.wait_until_idle();
    assert_eq!((server.connections(), server.session_channels(), server.sessions()), (1, 1, 1));
}
