//! How a line ends, and what its clients and `status` learn of it.

use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::support::{PATIENCE, census, run_json, wait_for};
use crate::{Desk, error_of};

fn wait_for_streams(desk: &Desk, count: u64) {
    wait_for(PATIENCE, "the command runs", || (desk.line()["streams"] == count).then_some(()));
}

fn kill_broker(desk: &Desk) {
    let pid = desk.line()["pid"].as_i64().unwrap();
    kill(Pid::from_raw(pid as i32), Signal::SIGKILL).unwrap();
    wait_for(PATIENCE, "the broker is gone", || (desk.line()["pid"] == Value::Null).then_some(()));
}

#[test]
fn disconnect_ends_what_runs_with_an_unknown_outcome_and_leaves_no_socket() {
    let desk = Desk::open();
    desk.connect();
    let child = desk.start("sleep 30");
    wait_for_streams(&desk, 1);
    let begun = Instant::now();
    assert_eq!(desk.line()["state"], "ready");
    // A process of a debug build on a busy machine needs some time of its own to start.
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    let begun = Instant::now();
    let answer = run_json(&desk.home, &["disconnect", "hpc"]);
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    assert_eq!(answer.ok(), &serde_json::json!({"site": "hpc", "role": "login", "state": "stopped"}));
    let (code, error) = error_of(child);
    assert_eq!(
        (code, &error["kind"], &error["retry_safe"]),
        (Some(6), &"outcome_unknown".into(), &false.into())
    );
    assert!(!desk.home.path().join("lines/hpc.login/command.sock").exists());
    assert_eq!(desk.line()["state"], "stopped");
    desk.server.wait_until_idle();
    assert_eq!(run_json(&desk.home, &["disconnect", "hpc"]).ok()["state"], "absent");
    assert_eq!(desk.connect()["reused"], false);
}

#[test]
fn a_killed_broker_is_explained_by_status_and_the_next_connect_works() {
    let desk = Desk::open();
    let first = desk.connect();
    let child = desk.start("sleep 4322");
    wait_for_streams(&desk, 1);
    kill_broker(&desk);
    let (code, error) = error_of(child);
    assert_eq!((code, &error["kind"]), (Some(6), &"outcome_unknown".into()));
    let line = desk.line();
    assert_eq!(line["state"], "failed");
    assert!(line["reason"].as_str().unwrap().contains("without a word"), "{line}");
    // The far side ends by itself what nobody holds any more.
    let sleeps = || {
        census::of_logins(desk.server.port())
            .into_iter()
            .filter(|p| p.command == "sleep 4322")
            .collect::<Vec<_>>()
    };
    census::wait_until_none(PATIENCE, sleeps);
    let second = desk.connect();
    assert_eq!(second["reused"], false);
    assert_ne!(first["pid"], second["pid"]);
    assert_eq!(desk.exec("echo alive").ok()["stdout"], "alive\n");
}

#[test]
fn a_lost_connection_fails_the_line_with_its_reason_and_is_not_made_anew() {
    let desk = Desk::open();
    desk.connect();
    let child = desk.start("sleep 30");
    wait_for_streams(&desk, 1);
    desk.server.kill_connections();
    let (code, error) = error_of(child);
    assert_eq!((code, &error["kind"]), (Some(6), &"outcome_unknown".into()));
    let line = wait_for(PATIENCE, "the line has failed", || {
        let line = desk.line();
        (line["state"] == "failed").then_some(line)
    });
    assert!(line["reason"].as_str().is_some_and(|reason| !reason.is_empty()), "{line}");
    assert!(!desk.home.path().join("lines/hpc.login/command.sock").exists());
    assert_eq!(desk.server.logins(), 1);
}

#[test]
fn a_disabled_policy_stops_the_next_command_and_hard_ends_the_line() {
    let desk = Desk::open();
    desk.connect();
    let child = desk.start("sleep 30");
    wait_for_streams(&desk, 1);
    run_json(&desk.home, &["policy", "disable", "--reason", "test"]).ok();
    let refused = desk.exec("touch never");
    assert_eq!(refused.failure(), (Some(3), "policy_denied"), "{}", refused.text);
    // What runs goes on, and so does the line.
    assert_eq!((&desk.line()["state"], &desk.line()["streams"]), (&"ready".into(), &1.into()));
    run_json(&desk.home, &["policy", "disable", "--hard", "--reason", "test"]).ok();
    assert_eq!(error_of(child).1["kind"], "outcome_unknown");
    assert_eq!(desk.line()["state"], "stopped");
}

#[test]
fn a_terminated_broker_closes_in_order() {
    let desk = Desk::open();
    let pid = desk.connect()["pid"].as_i64().unwrap();
    kill(Pid::from_raw(pid as i32), Signal::SIGTERM).unwrap();
    let line = wait_for(PATIENCE, "the line is closed", || {
        let line = desk.line();
        (line["state"] == "stopped").then_some(line)
    });
    assert!(line["reason"].as_str().unwrap().contains("SIGTERM"), "{line}");
    desk.server.wait_until_idle();
}
