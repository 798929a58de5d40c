//! Several clients, one line.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::Desk;
use crate::support::{PATIENCE, census, wait_for};

#[test]
fn two_clients_and_a_shell_share_one_line_with_one_session_channel() {
    let desk = Desk::open();
    let answer = desk.connect();
    assert_eq!((&answer["reused"], &answer["session_channels"]), (&false.into(), &1.into()));
    let first = desk.start("sleep 1; echo first");
    let second = desk.start("sleep 1; echo second");
    let third = desk.exec("echo third; exit 7");
    assert_eq!((third.code, &third.json["stdout"]), (Some(7), &"third\n".into()), "{}", third.text);
    for (child, word) in [(first, "first\n"), (second, "second\n")] {
        let output = child.wait_with_output().unwrap();
        let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(json["stdout"], word, "{}", String::from_utf8_lossy(&output.stderr));
    }
    assert_eq!((desk.server.logins(), desk.server.session_channels()), (1, 1));
    let line = desk.line();
    assert_eq!((&line["state"], &line["commands_completed"]), (&"ready".into(), &3.into()), "{line}");
}

#[test]
fn a_killed_client_ends_its_command_and_not_the_line() {
    let desk = Desk::open();
    desk.connect();
    let child = desk.start("echo $$ > ~/../alice-never 2>/dev/null; exec sleep 4321");
    let sleeps = || {
        census::of_logins(desk.server.port())
            .into_iter()
            .filter(|p| p.command == "sleep 4321")
            .collect::<Vec<_>>()
    };
    wait_for(PATIENCE, "the command runs", || (!sleeps().is_empty()).then_some(()));
    kill(Pid::from_raw(child.id() as i32), Signal::SIGKILL).unwrap();
    census::wait_until_none(PATIENCE, sleeps);
    assert_eq!(crate::error_of(child).0, None);
    assert_eq!(desk.exec("echo alive").ok()["stdout"], "alive\n");
    assert_eq!(desk.server.session_channels(), 1);
}

#[test]
fn a_client_that_sends_half_a_line_is_dropped_after_five_seconds_and_delays_nobody() {
    let desk = Desk::open();
    desk.connect();
    let begun = Instant::now();
    let mut half = UnixStream::connect(desk.home.path().join("lines/hpc.login/command.sock")).unwrap();
    half.write_all(b"{\"protocol\":[1,1],\"want\":").unwrap();
    assert_eq!(desk.exec("true").code, Some(0));
    half.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut answer = Vec::new();
    half.read_to_end(&mut answer).unwrap();
    assert!(answer.is_empty());
    let waited = begun.elapsed();
    assert!(waited > Duration::from_millis(4900) && waited < Duration::from_secs(15), "{waited:?}");
}

#[test]
fn a_client_that_sends_nonsense_instead_of_frames_harms_nobody() {
    let desk = Desk::open();
    desk.connect();
    let mut liar = UnixStream::connect(desk.home.path().join("lines/hpc.login/command.sock")).unwrap();
    let first = br#"{"protocol":[1,1],"want":"line","client":{"pid":1,"program":"liar","id":"x"}}"#;
    liar.write_all(first).unwrap();
    liar.write_all(b"\n").unwrap();
    liar.write_all(&[0xff; 4096]).unwrap();
    liar.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut rest = Vec::new();
    // The broker hangs up; how much of its greeting arrived before does not matter.
    drop(liar.read_to_end(&mut rest));
    assert_eq!(desk.exec("echo alive").ok()["stdout"], "alive\n");
    let line = desk.line();
    assert_eq!((&line["state"], &line["clients"]), (&"ready".into(), &0.into()), "{line}");
}

#[test]
fn every_command_is_in_the_audit_log_before_it_runs() {
    let desk = Desk::open();
    desk.connect();
    desk.exec("echo hello").ok();
    let log = std::fs::read_to_string(desk.home.path().join("audit.jsonl")).unwrap();
    let lines: Vec<serde_json::Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let exec = lines.iter().find(|line| line["what"]["kind"] == "exec").expect("the command is logged");
    assert_eq!((&exec["site"], &exec["role"]), (&"hpc".into(), &"login".into()));
    assert!(exec["what"]["detail"].as_str().unwrap().contains("echo hello"), "{exec}");
    assert_eq!(exec["who"]["program"], "towline");
    assert!(lines.iter().any(|line| line["what"]["kind"] == "login_attempt_finished"), "{log}");
    crate::support::run_json(&desk.home, &["audit", "verify"]).ok();
}
