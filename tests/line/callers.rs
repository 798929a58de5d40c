//! What happens when a caller leaves: what it stood for ends at the far side, and nothing else does.

use std::io::{BufRead as _, BufReader, Read as _};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use portable_pty::CommandBuilder;
use towline::line::{Line, message::Program};

use crate::far_side::{self, GONE, Running, mark, shell, wait_for_marked, wait_until_gone};
use crate::support::{PATIENCE, Pty, Sshd, TempHome, census, wait_for};

/// A tree of three that ignores TERM, one of it in a session of its own; says `up`.
const STUBBORN: &str = "trap '' TERM HUP INT; setsid sleep 600 & sleep 600 & echo up; wait; wait; sleep 600";

/// Starts `towline exec` with marked processes and waits for its first line.
fn started(home: &TempHome, options: &[&str], mark: &str, text: &str) -> Running {
    let arguments = [&["exec", "--env", mark], options, &["hpc", "--", text]].concat();
    let mut running = Running::towline(home, &arguments);
    let mut line = String::new();
    BufReader::new(running.0.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "up\n");
    running
}

fn signal(running: &Running, signal: Signal) {
    kill(Pid::from_raw(i32::try_from(running.0.id()).unwrap()), signal).unwrap();
}

#[test]
fn a_killed_program_ends_the_whole_tree_of_its_command_unless_detached() {
    let server = Sshd::key_only();
    let home = TempHome::for_server(&server, "alice");
    let (bound, detached) = (mark(), mark());
    let mut running = started(&home, &[], &bound, STUBBORN);
    wait_for_marked(&bound, 3);
    let mut kept = started(&home, &["--detach"], &detached, "echo up; exec sleep 600");
    signal(&running, Signal::SIGKILL);
    signal(&kept, Signal::SIGKILL);
    assert_eq!((running.exit_code(PATIENCE), kept.exit_code(PATIENCE)), (None, None));
    census::wait_until_none(GONE, || census::with_environment(&bound));
    let helpers = || {
        let logins = census::of_logins(server.port()).into_iter();
        logins.filter(|process| process.name.starts_with("towline-")).collect()
    };
    census::wait_until_none(GONE, helpers);
    let survivors = census::with_environment(&detached);
    assert_eq!(survivors.len(), 1, "{survivors:?}");
    survivors[0].signal(Signal::SIGKILL);
    wait_until_gone(&server);
}

#[test]
fn ctrl_c_exits_130_and_ends_the_command_even_a_stubborn_one() {
    let server = Sshd::key_only();
    let home = TempHome::for_server(&server, "alice");
    for text in ["echo up; exec sleep 600", STUBBORN] {
        let mark = mark();
        let mut pty = Pty::towline(&home, &["exec", "--env", &mark, "hpc", "--", text]);
        pty.wait_for("up", PATIENCE);
        pty.type_bytes(b"\x03");
        assert_eq!(pty.wait_exit(Duration::from_secs(10)), 130, "{}", pty.transcript());
        census::wait_until_none(GONE, || census::with_environment(&mark));
    }
    wait_until_gone(&server);
}

/// The settings of the terminal that a program runs on.
fn settings(terminal: &Pty) -> String {
    let path = std::fs::read_link(format!("/proc/{}/fd/0", terminal.pid())).unwrap();
    let output = std::process::Command::new("stty").arg("-aF").arg(path).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn ctrl_c_at_a_prompt_exits_130_and_gives_the_terminal_its_echo_back() {
    let server = Sshd::second_factor();
    let home = TempHome::for_server(&server, "alice");
    // A passphrase is asked for without echo, the menu with it.
    let encrypted = TempHome::empty();
    encrypted.add_host("login", server.address(), "alice", "encrypted");
    let ssh_config = encrypted.ssh_config();
    encrypted
        .set_config(&format!("[site.hpc]\nhost = \"login\"\nssh_config = \"{}\"\n", ssh_config.display()));
    let menu = "Passcode or option (1-2):";
    let cases = [
        (&encrypted, "exec hpc -- true", "id_encrypted:"),
        (&encrypted, "job list hpc", "id_encrypted:"),
        (&home, "exec hpc -- true", menu),
    ];
    for (home, args, prompt) in cases {
        let mut shell = CommandBuilder::new("/bin/sh");
        let towline = env!("CARGO_BIN_EXE_towline");
        shell.args(["-c", &format!("trap : INT; {towline} {args}; echo code $?; stty -a")]);
        shell.env_clear();
        home.environment().iter().for_each(|(key, value)| shell.env(key, value));
        let mut terminal = Pty::spawn(shell);
        terminal.wait_for(prompt, PATIENCE);
        if prompt != menu {
            wait_for(PATIENCE, "the echo is off", || settings(&terminal).contains("-echo ").then_some(()));
        }
        terminal.type_bytes(b"\x03");
        terminal.wait_for("code 130", PATIENCE);
        let settings = terminal.wait_for("echok", PATIENCE);
        assert!(!settings.contains("-echo "), "{settings}");
        assert_eq!(terminal.wait_exit(PATIENCE), 0);
    }
    server.wait_until_idle();
    assert_eq!(server.logins(), 0);
}

#[test]
fn ctrl_c_is_heard_while_nobody_reads_our_output() {
    let server = Sshd::key_only();
    let home = TempHome::for_server(&server, "alice");
    let mark = mark();
    let mut running = started(&home, &[], &mark, "echo up; exec yes");
    let writer = wait_for_marked(&mark, 1).remove(0);
    wait_until_writing_stops(writer.pid);
    signal(&running, Signal::SIGINT);
    assert_eq!(running.exit_code(Duration::from_secs(10)), Some(130));
    census::wait_until_none(GONE, || census::with_environment(&mark));
    wait_until_gone(&server);
}

/// Waits until a process has not written for half a second: there is no event that tells of nothing.
fn wait_until_writing_stops(pid: u32) -> u64 {
    let mut seen = (0, std::time::Instant::now());
    wait_for(PATIENCE, "the command is held back", || {
        let written = census::bytes_written(pid).expect("the command still runs");
        if written != seen.0 {
            seen = (written, std::time::Instant::now());
        }
        (written > 0 && seen.1.elapsed() > Duration::from_millis(500)).then_some(written)
    })
}

#[test]
fn a_slow_reader_slows_the_command_in_bounded_memory_and_one_that_leaves_ends_it() {
    let server = Sshd::key_only();
    let home = TempHome::for_server(&server, "alice");
    let mark = mark();
    let mut running = started(&home, &[], &mark, "echo up; exec yes");
    let writer = wait_for_marked(&mark, 1).remove(0);
    let mut buffer = vec![0; 1 << 20];
    let stdout = running.0.stdout.as_mut().unwrap();
    stdout.read_exact(&mut buffer).unwrap();
    let held_back_at = wait_until_writing_stops(writer.pid);
    assert!(held_back_at < 32 << 20, "{held_back_at} bytes are on their way");
    let peak = |pid| census::memory_peak(pid).unwrap() >> 20;
    let helper = far_side::helper(&server);
    let peaks = (peak(running.0.id()), peak(helper.pid));
    assert!(peaks.0 <= 64 && peaks.1 <= 64, "{peaks:?} MiB");
    let stdout = running.0.stdout.as_mut().unwrap();
    for _ in 0..8 {
        stdout.read_exact(&mut buffer).unwrap();
    }
    assert!(census::bytes_written(writer.pid).unwrap() > held_back_at, "it goes on with its reader");
    drop(running.0.stdout.take());
    assert_eq!(running.exit_code(Duration::from_secs(10)), Some(141), "as a command that SIGPIPE ended");
    census::wait_until_none(GONE, || census::with_environment(&mark));
    wait_until_gone(&server);
}

/// A command that runs until its line or its caller ends it.
fn marked(line: &Line, mark: &str, text: &str) -> towline::line::Command {
    let (name, value) = mark.split_once('=').unwrap();
    line.command(shell(text)).env(name, value)
}

/// Waits on a thread of its own: what was dropped here is ended by tasks of this one's runtime.
async fn beside<T: Send + 'static>(wait: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(wait).await.unwrap()
}

#[tokio::test]
async fn a_dropped_future_ends_its_command_and_no_other() {
    let server = Sshd::key_only();
    let home = TempHome::for_server(&server, "alice");
    let line = far_side::open(&home, None).await.unwrap();
    let (dropped, dropped_child, other) = (mark(), mark(), mark());
    let mut witness = marked(&line, &other, "read word; echo $word").spawn(true).await.unwrap();
    let future = tokio::spawn(marked(&line, &dropped, STUBBORN).output(Vec::new()));
    let child = marked(&line, &dropped_child, STUBBORN).spawn(false).await.unwrap();
    for mark in [&dropped, &dropped_child] {
        let mark = mark.clone();
        beside(move || wait_for_marked(&mark, 3)).await;
    }
    future.abort();
    assert!(future.await.unwrap_err().is_cancelled());
    drop(child);
    for mark in [dropped, dropped_child] {
        beside(move || census::wait_until_none(GONE, || census::with_environment(&mark))).await;
    }
    // Another handle that goes takes nothing with it.
    drop(line.clone());
    drop(line.files());
    assert!(witness.stdin.as_mut().unwrap().send(b"still here\n".to_vec()).await);
    assert_eq!(witness.stdout.next().await.as_deref(), Some(b"still here\n".as_slice()));
    assert_eq!(witness.wait().await.unwrap().rc, 0);
    // The last handle is the line's end; an open command is one too.
    drop(witness);
    drop(line);
    let server = beside(move || {
        wait_until_gone(&server);
        server
    })
    .await;
    assert_eq!((server.connections(), server.session_channels()), (1, 1));
}

#[tokio::test]
async fn sixty_four_streams_run_at_once_and_the_next_waits_its_turn() {
    let server = Sshd::key_only();
    let home = TempHome::for_server(&server, "alice");
    let line = far_side::open(&home, None).await.unwrap();
    let mark = mark();
    let mut children = Vec::new();
    for _ in 0..64 {
        children.push(marked(&line, &mark, "echo up; read word; exit 9").spawn(true).await.unwrap());
    }
    for child in &mut children {
        assert_eq!(child.stdout.next().await.as_deref(), Some(b"up\n".as_slice()));
    }
    assert_eq!(census::with_environment(&mark).len(), 64);
    let late = tokio::spawn(marked(&line, &mark, "echo late").output(Vec::new()));
    let probing = line.clone();
    let probe = tokio::spawn(async move { probing.probe().await });
    // A ping goes after whatever was asked for before it, and needs no place.
    for _ in 0..3 {
        line.ping().await.unwrap();
    }
    assert!(!late.is_finished() && !probe.is_finished());
    assert_eq!(census::with_environment(&mark).len(), 64, "a 65th was started");
    // A caller that leaves the queue never had its command run.
    let never = self::mark();
    let leaving = marked(&line, &never, "touch never; sleep 600").output(Vec::new());
    assert!(tokio::time::timeout(Duration::from_millis(50), leaving).await.is_err());
    drop(children[0].stdin.take());
    drop(children[1].stdin.take());
    for child in &mut children[..2] {
        assert_eq!(child.wait().await.unwrap().rc, 9, "dropping the input ends it");
    }
    assert_eq!(late.await.unwrap().unwrap().stdout, b"late\n");
    assert!(probe.await.unwrap().is_ok());
    assert_eq!(census::with_environment(&never), []);
    for mut child in children.into_iter().skip(2) {
        assert!(child.stdin.as_mut().unwrap().send(b"go\n".to_vec()).await);
        assert_eq!(child.wait().await.unwrap().rc, 9);
    }
    let argv = Program::Argv(vec!["true".into()]);
    assert_eq!(line.command(argv).output(Vec::new()).await.unwrap().outcome.rc, 0);
}
