//! The ground that other tests stand on, tested with OpenSSH's own client: counters count, cuts cut.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    missing_docs,
    reason = "tests fail by panicking"
)]

mod support;

use portable_pty::CommandBuilder;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};
use support::link::Refuse;
use support::{
    Auth, Direction, Endpoint, Link, PATIENCE, Pty, Shape, Slurm, Sshd, TempHome, ThrowawayOptions, census,
    server,
};

/// OpenSSH's client with the home's config; never asks.
fn ssh(home: &TempHome, words: &[&str]) -> Output {
    Command::new("ssh")
        .arg("-F")
        .arg(home.ssh_config())
        .args(["-o", "BatchMode=yes", "login"])
        .args(words)
        .env_remove("SSH_AUTH_SOCK")
        .output()
        .expect("ssh runs")
}

fn stdout(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn on_terminal(home: &TempHome, words: &[&str]) -> Pty {
    let mut command = CommandBuilder::new("ssh");
    command.args(["-F", home.ssh_config().to_str().unwrap(), "login"]);
    command.args(words);
    command.env_remove("SSH_AUTH_SOCK");
    Pty::spawn(command)
}

#[test]
fn a_server_counts_its_own_connections_and_sessions() {
    let (server, other) = (Sshd::key_only(), Sshd::key_only());
    let home = TempHome::for_server(&server, "alice");
    for _ in 0..2 {
        assert_eq!(stdout(&ssh(&home, &["hostname"])), "login1\n");
    }
    server.wait_until_idle();
    assert_eq!(
        (server.connections(), server.session_channels(), server.sessions(), server.logins()),
        (2, 2, 2, 2)
    );
    assert_eq!((server.prompts(), server.forwarded_channels()), (0, 0));
    assert_eq!((other.connections(), other.session_channels(), other.logins()), (0, 0, 0));
}

#[test]
fn every_login_shell_of_the_matrix_gets_in() {
    let server = Sshd::key_only();
    for user in server::SHELL_USERS {
        let home = TempHome::for_server(&server, user);
        assert_eq!(stdout(&ssh(&home, &["id -un"])), format!("{user}\n"));
    }
}

#[test]
fn the_second_factor_counts_each_prompt_wrong_answers_included() {
    let server = Sshd::second_factor();
    let home = TempHome::for_server(&server, "alice");
    let mut terminal = on_terminal(&home, &["echo", "in"]);
    terminal.wait_for("Passcode or option (1-2): ", PATIENCE);
    terminal.type_line("000000");
    let menu = terminal.wait_for("Passcode or option (1-2): ", PATIENCE);
    assert!(menu.contains("Incorrect passcode"), "{menu}");
    terminal.type_line("1");
    terminal.wait_for("in\r\n", PATIENCE);
    assert_eq!(terminal.wait_exit(PATIENCE), 0);
    server.wait_until_idle();
    assert_eq!((server.connections(), server.prompts(), server.logins()), (1, 2, 1));
}

#[test]
fn a_denied_push_lets_nobody_in() {
    let options = ThrowawayOptions {
        auth: Auth::Menu,
        factor: "deny tries=1".to_owned(),
        ..ThrowawayOptions::default()
    };
    let server = Sshd::throwaway(options);
    let home = TempHome::for_server(&server, "alice");
    let mut terminal = on_terminal(&home, &["-o", "NumberOfPasswordPrompts=1", "true"]);
    terminal.wait_for("Passcode or option", PATIENCE);
    terminal.type_line("1");
    terminal.wait_for("Permission denied", PATIENCE);
    assert_eq!(terminal.wait_exit(PATIENCE), 255);
    server.wait_until_idle();
    assert_eq!((server.logins(), server.sessions()), (0, 0));
}

#[test]
fn code_and_password_servers_ask_what_they_say() {
    let of = |auth| Sshd::throwaway(ThrowawayOptions { auth, ..ThrowawayOptions::default() });
    let code = of(Auth::Code);
    let home = TempHome::for_server(&code, "bob");
    let mut terminal = on_terminal(&home, &["true"]);
    terminal.wait_for("Verification code: ", PATIENCE);
    terminal.type_line(server::PASSCODE);
    assert_eq!(terminal.wait_exit(PATIENCE), 0, "{}", terminal.transcript());
    let password = of(Auth::Password);
    let home = TempHome::for_server(&password, "bob");
    let mut terminal = on_terminal(&home, &["true"]);
    terminal.wait_for("password: ", PATIENCE);
    terminal.type_line(server::PASSWORD);
    terminal.wait_for("Passcode or option", PATIENCE);
    terminal.type_line(server::PASSCODE);
    assert_eq!(terminal.wait_exit(PATIENCE), 0, "{}", terminal.transcript());
    assert!(!terminal.transcript().contains(server::PASSWORD), "the terminal echoed the password");
    assert_eq!((code.prompts(), password.prompts()), (1, 1));
}

#[test]
fn extra_lines_win_and_a_match_block_stays_one() {
    let lines = ["MaxSessions 3", "Match User bob", "ForceCommand echo forced"].map(str::to_owned).to_vec();
    let server = Sshd::throwaway(ThrowawayOptions { lines, ..ThrowawayOptions::default() });
    assert_eq!(stdout(&ssh(&TempHome::for_server(&server, "bob"), &["true"])), "forced\n");
    assert_eq!(stdout(&ssh(&TempHome::for_server(&server, "alice"), &["echo free"])), "free\n");
}

#[test]
fn a_dropped_server_takes_its_logins_with_it() {
    let server = Sshd::key_only();
    let home = TempHome::for_server(&server, "carol");
    let marker = format!("TOWLINE_TEST_MARK={}", server.port());
    let mut terminal = on_terminal(&home, &["-tt", &format!("env {marker} sh -c 'echo up; exec sleep 600'")]);
    terminal.wait_for("up", PATIENCE);
    assert_eq!(census::with_environment(&marker).len(), 1);
    assert!(census::of_user("carol").iter().any(|process| process.command == "sleep 600"));
    drop(server);
    census::wait_until_none(PATIENCE, || census::with_environment(&marker));
}

#[test]
fn the_fixed_servers_and_dropbear_answer() {
    server::require("sshd");
    server::require("dropbear");
    let home = TempHome::empty();
    home.add_host("login", ([127, 0, 0, 1], 2261).into(), "tl-fish", "ed25519");
    assert_eq!(stdout(&ssh(&home, &["echo $version | wc -l"])), "1\n");
    let key = std::fs::read_to_string(server::state_directory().join("keys/host_dropbear.pub")).unwrap();
    let words: Vec<_> = key.split_whitespace().take(2).collect();
    let home = TempHome::empty();
    home.add_host("login", ([127, 0, 0, 1], 2271).into(), "alice", "ed25519");
    std::fs::write(home.known_hosts(), format!("[127.0.0.1]:2271 {}\n", words.join(" "))).unwrap();
    assert_eq!(stdout(&ssh(&home, &["hostname"])), "login1\n");
}

#[test]
fn slurm_runs_a_job_that_was_submitted_over_ssh() {
    let slurm = Slurm::start();
    let server = Sshd::key_only();
    let home = TempHome::for_server(&server, "alice");
    let answer =
        stdout(&ssh(&home, &["sbatch --parsable --wait --output=/dev/null --wrap 'exit 3'; echo $?"]));
    let (id, code) = answer.trim().split_once('\n').unwrap();
    assert_eq!(code, "3");
    let show = slurm.run_as("alice", &["scontrol", "show", "job", id]);
    assert!(stdout(&show).contains("JobState=FAILED"), "{show:?}");
}

/// A server that sends back what it gets, for as many connections as come.
fn echo() -> std::net::SocketAddr {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            // A link that is cut ends the copy with an error; the next connection is served.
            std::thread::spawn(move || std::io::copy(&mut stream.try_clone().unwrap(), &mut stream).is_ok());
        }
    });
    address
}

#[test]
fn a_link_is_transparent_and_passes_half_closes_on() {
    let link = Link::to_tcp(echo(), Shape::default());
    let mut stream = TcpStream::connect(link.address()).unwrap();
    let sent: Vec<u8> = (0..3_000_000_u32).map(|i| (i % 251) as u8).collect();
    let mut writer = stream.try_clone().unwrap();
    let copy = sent.clone();
    let sender = std::thread::spawn(move || {
        writer.write_all(&copy).unwrap();
        writer.shutdown(Shutdown::Write).unwrap();
    });
    let mut got = Vec::new();
    stream.read_to_end(&mut got).unwrap();
    sender.join().unwrap();
    assert!(got == sent, "{} bytes came back", got.len());
    assert_eq!((link.passed(Direction::Up), link.passed(Direction::Down)), (3_000_000, 3_000_000));
    assert_eq!(link.connections(), 1);
}

#[test]
fn a_cut_comes_after_exactly_so_many_bytes() {
    let link = Link::to_tcp(echo(), Shape::default());
    link.cut_after(Direction::Down, 1_000);
    let mut stream = TcpStream::connect(link.address()).unwrap();
    stream.write_all(&[7; 5_000]).unwrap();
    let mut got = Vec::new();
    // A reset instead of an end is what a cut may look like too.
    let end = stream.read_to_end(&mut got);
    assert_eq!(got.len(), 1_000, "{end:?}");
    assert_eq!(link.passed(Direction::Down), 1_000);
    link.refuse(Refuse::New);
    let mut refused = TcpStream::connect(link.address()).unwrap();
    assert!(matches!(refused.read(&mut [0; 1]), Ok(0) | Err(_)));
    link.refuse(Refuse::None);
    let mut again = TcpStream::connect(link.address()).unwrap();
    again.write_all(b"x").unwrap();
    again.read_exact(&mut [0; 1]).unwrap();
}

#[test]
fn a_stalled_link_holds_bytes_and_loses_none() {
    let link = Link::to_tcp(echo(), Shape::default());
    let mut stream = TcpStream::connect(link.address()).unwrap();
    link.stall(Direction::Down);
    stream.write_all(b"kept").unwrap();
    support::wait_for(PATIENCE, "the bytes went up", || (link.passed(Direction::Up) == 4).then_some(()));
    stream.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    assert!(stream.read(&mut [0; 8]).is_err(), "bytes passed a stalled link");
    link.resume();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut got = [0; 4];
    stream.read_exact(&mut got).unwrap();
    assert_eq!(&got, b"kept");
}

#[test]
fn latency_and_rate_are_lower_bounds() {
    let shape =
        Shape { latency: Duration::from_millis(40), bytes_per_second: Some(1_000_000), ..Shape::default() };
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("link");
    let back = Link::listen_unix(&path, Endpoint::Tcp(echo()), Shape::default());
    let link = Link::listen_tcp(Endpoint::Unix(path), shape);
    let mut stream = TcpStream::connect(link.address()).unwrap();
    let begin = Instant::now();
    stream.write_all(&[1]).unwrap();
    stream.read_exact(&mut [0; 1]).unwrap();
    assert!(begin.elapsed() >= Duration::from_millis(80), "{:?}", begin.elapsed());
    let begin = Instant::now();
    stream.write_all(&[1; 100_000]).unwrap();
    stream.read_exact(&mut vec![0; 100_000]).unwrap();
    // 100 ms for the bytes and 80 ms for the way.
    assert!(begin.elapsed() >= Duration::from_millis(180), "{:?}", begin.elapsed());
    assert_eq!(back.connections(), 1);
}

#[test]
fn a_terminal_waits_types_and_reports_the_exit_code() {
    let mut command = CommandBuilder::new("sh");
    command
        .args(["-c", "test -t 0 && printf 'name? ' && read name && echo \"hello $name\"; stty size; exit 7"]);
    let mut terminal = Pty::spawn(command);
    terminal.wait_for("name? ", PATIENCE);
    terminal.type_line("you");
    terminal.wait_for("hello you", PATIENCE);
    assert_eq!(terminal.wait_exit(PATIENCE), 7);
    assert!(terminal.transcript().ends_with("24 80\r\n"), "{}", terminal.transcript());
    assert!(!Path::new(&format!("/proc/{}/exe", terminal.pid())).exists());
}
