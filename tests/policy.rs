#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    missing_docs,
    reason = "tests fail by panicking"
)]
//! What is permitted, from outside: the built program, real files, a terminal where a human must answer.
//!
//! Nothing here opens a connection.

mod support;

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use serde_json::Value;
use support::{PATIENCE, Pty, TempHome, run_json, towline};
use towline::audit::{SystemClock, Who};
use towline::config::Role;
use towline::disk::System;
use towline::policy::SiteId;
use towline::policy::requests::{Asked, Request, Requests, Wanted};

fn home() -> TempHome {
    let home = TempHome::empty();
    home.set_config("[site.hpc]\nhost = \"login\"\ntransfer_host = \"dtn\"\n");
    home
}

fn file(home: &TempHome) -> PathBuf {
    home.path().join("policy.json")
}

fn mode_of(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777
}

fn policy(home: &TempHome) -> Value {
    run_json(home, &["policy", "show"]).ok()["policy"].clone()
}

fn disable(home: &TempHome) -> Value {
    run_json(home, &["policy", "disable", "--reason", "test"]).ok()["policy"].clone()
}

/// Runs a command in a session of its own, where there is no terminal whatever this test runs on.
fn without_terminal(home: &TempHome, arguments: &[&str]) -> (Option<i32>, Value) {
    let output = Command::new("setsid")
        .arg("--wait")
        .arg(env!("CARGO_BIN_EXE_towline"))
        .arg("--json")
        .args(arguments)
        .env_clear()
        .envs(home.environment())
        .stdin(Stdio::null())
        .output()
        .expect("setsid of util-linux runs");
    (
        output.status.code(),
        serde_json::from_slice::<Value>(&output.stderr).unwrap_or_default()["error"].clone(),
    )
}

/// Types `word` where `arguments` ask for it, and gives the exit code and all that the terminal showed.
fn answer(home: &TempHome, arguments: &[&str], word: &str) -> (i32, String) {
    let mut terminal = Pty::towline(home, arguments);
    terminal.wait_for("to approve: ", PATIENCE);
    terminal.type_line(word);
    (terminal.wait_exit(PATIENCE), terminal.transcript())
}

fn enable(home: &TempHome) {
    let (code, shown) = answer(home, &["policy", "enable-reuse"], "enable");
    assert_eq!(code, 0, "{shown}");
}

/// Gives a grant and returns its id.
fn grant(home: &TempHome, more: &[&str]) -> String {
    let arguments = [&["policy", "grant", "hpc", "--reason", "maintenance is over"], more].concat();
    let (code, shown) = answer(home, &arguments, "hpc");
    assert_eq!(code, 0, "{shown}");
    let id = |line: &&str| line.len() == 40 && line.bytes().all(|byte| byte.is_ascii_hexdigit());
    shown.lines().map(str::trim).find(id).expect("the id stands alone on a line").to_owned()
}

fn audit_kinds(home: &TempHome) -> Vec<String> {
    let answer = run_json(home, &["audit"]);
    let entries = answer.ok()["entries"].as_array().unwrap().clone();
    entries.iter().map(|entry| entry["what"]["kind"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn p1_without_a_file_nothing_is_permitted_and_none_is_made() {
    let home = home();
    let shown = policy(&home);
    assert_eq!(
        (&shown["valid"], &shown["mode"], &shown["revision"]),
        (&false.into(), &"disabled".into(), &0.into())
    );
    assert!(shown["generation"].is_null() && shown["error"].is_string());
    for refused in [
        &["policy", "grant", "hpc", "--reason", "x"][..],
        &["policy", "enable-reuse"],
        &["policy", "revoke", "0123456789ab"],
    ] {
        let (code, error) = without_terminal(&home, refused);
        assert_eq!((code, &error["kind"]), (Some(3), &"policy_invalid".into()), "{refused:?}: {error}");
    }
    let names: Vec<_> = fs::read_dir(home.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["config.toml"]);
}

#[test]
fn p2_disable_makes_a_private_file_and_counts_on() {
    let home = home();
    // In a directory that does not exist yet.
    fs::remove_file(home.path().join("config.toml")).unwrap();
    fs::remove_dir(home.path()).unwrap();
    let (first, second) = (disable(&home), disable(&home));
    assert_eq!((&first["revision"], &second["revision"]), (&1.into(), &2.into()));
    assert_eq!(first["generation"], second["generation"]);
    assert_eq!((&second["mode"], &second["valid"]), (&"disabled".into(), &true.into()));
    assert_eq!(
        (first["events"].as_array().unwrap().len(), second["events"].as_array().unwrap().len()),
        (1, 2)
    );
    assert_eq!((mode_of(&home.path()), mode_of(&file(&home))), (0o700, 0o600));
}

#[test]
fn p3_a_human_enables_only_what_was_just_shown() {
    let home = home();
    for _ in 0..4 {
        disable(&home);
    }
    let before = fs::read(file(&home)).unwrap();
    let generation = policy(&home)["generation"].as_str().unwrap().to_owned();
    let stale = ["policy", "enable-reuse", "--generation", &generation, "--revision", "3"];
    let (code, error) = without_terminal(&home, &stale);
    assert_eq!((code, &error["kind"]), (Some(3), &"policy_conflict".into()));
    let right = ["policy", "enable-reuse", "--generation", &generation, "--revision", "4"];
    let (code, error) = without_terminal(&home, &right);
    assert_eq!((code, &error["kind"]), (Some(3), &"policy_denied".into()), "a human has to answer");
    for wrong in ["", "yes", "hpc"] {
        assert_eq!(answer(&home, &right, wrong).0, 3, "{wrong:?}");
    }
    assert_eq!(fs::read(file(&home)).unwrap(), before);
    assert_eq!(answer(&home, &right, "enable").0, 0);
    let shown = policy(&home);
    assert_eq!((&shown["mode"], &shown["revision"]), (&"reuse_only".into(), &5.into()));
}

#[test]
fn an_answer_to_what_has_changed_meanwhile_is_a_conflict() {
    let home = home();
    disable(&home);
    let mut terminal = Pty::towline(&home, &["policy", "enable-reuse"]);
    terminal.wait_for("to approve: ", PATIENCE);
    disable(&home);
    terminal.type_line("enable");
    assert_eq!(terminal.wait_exit(PATIENCE), 3);
    assert_eq!(policy(&home)["mode"], "disabled");
}

#[test]
fn p4_a_link_in_the_files_place_permits_nothing_and_stays() {
    let home = home();
    disable(&home);
    enable(&home);
    let target = home.user_home().join("target.json");
    fs::rename(file(&home), &target).unwrap();
    symlink(&target, file(&home)).unwrap();
    let before = fs::read(&target).unwrap();
    let shown = policy(&home);
    assert_eq!((&shown["valid"], &shown["mode"]), (&false.into(), &"disabled".into()));
    let refused = run_json(&home, &["policy", "disable", "--reason", "x"]);
    assert_eq!(refused.failure(), (Some(3), "policy_invalid"));
    assert_eq!(fs::read(&target).unwrap(), before);
    assert_eq!(fs::read_link(file(&home)).unwrap(), target);
}

#[test]
fn a_file_of_somebody_else_or_open_to_others_permits_nothing_and_stays() {
    let home = home();
    disable(&home);
    enable(&home);
    let before = fs::read(file(&home)).unwrap();
    let refused = |what: &str| {
        let shown = policy(&home);
        assert_eq!((&shown["valid"], &shown["mode"]), (&false.into(), &"disabled".into()), "{what}");
        let answer = run_json(&home, &["policy", "disable", "--reason", "x"]);
        assert_eq!(answer.failure(), (Some(3), "policy_invalid"), "{what}");
        assert_eq!(fs::read(file(&home)).unwrap(), before, "{what}");
    };
    for mode in [0o640, 0o604, 0o622] {
        fs::set_permissions(file(&home), fs::Permissions::from_mode(mode)).unwrap();
        refused(&format!("{mode:o}"));
        assert_eq!(mode_of(&file(&home)), mode);
    }
    fs::set_permissions(file(&home), fs::Permissions::from_mode(0o600)).unwrap();
    // Only root can give a file away, as the full run of the tests is.
    std::os::unix::fs::chown(file(&home), Some(65_534), None).unwrap();
    refused("a foreign owner");
    std::os::unix::fs::chown(file(&home), Some(nix::unistd::geteuid().as_raw()), None).unwrap();
    assert_eq!(policy(&home)["mode"], "reuse_only");
    fs::set_permissions(home.path(), fs::Permissions::from_mode(0o750)).unwrap();
    refused("an open directory");
    assert_eq!(mode_of(&home.path()), 0o750);
}

#[test]
fn a_grant_is_shown_once_named_ever_after_and_bound_by_its_limits() {
    let home = home();
    disable(&home);
    let (code, error) = without_terminal(&home, &["policy", "grant", "hpc", "--reason", "x"]);
    assert_eq!((code, &error["kind"]), (Some(3), &"policy_denied".into()));
    enable(&home);
    for (more, kind) in [
        (&["hpc", "--reason", "x", "--ttl", "301s"][..], "invalid_input"),
        (&["hpc", "--reason", "x", "--ttl", "0s"], "invalid_input"),
        (&["hpc", "--reason", "x", "--ttl", "8d"], "invalid_input"),
        (&["hpc", "--reason", "x", "--ttl", "soon"], "usage"),
        (&["hpc", "--reason", " "], "policy_invalid"),
        (&["hcp", "--reason", "x"], "config"),
        (&["hpc", "--reason", "x"], "policy_denied"),
    ] {
        let (_, error) = without_terminal(&home, &[&["policy", "grant"], more].concat());
        assert_eq!(error["kind"], kind, "{more:?}: {error}");
    }
    assert!(policy(&home)["grant"].is_null());
    let id = grant(&home, &["--role", "transfer", "--ttl", "90s"]);
    let shown = policy(&home);
    assert_eq!((&shown["grant"]["site"], &shown["grant"]["role"]), (&"hpc".into(), &"transfer".into()));
    let name = shown["grant"]["name"].as_str().unwrap();
    assert_eq!(name.len(), 12);
    let (code, error) = without_terminal(&home, &["policy", "grant", "hpc", "--reason", "x"]);
    assert_eq!(
        (code, &error["kind"]),
        (Some(3), &"grant_invalid".into()),
        "a second one is told before anybody is asked"
    );
    for kept in [file(&home), home.path().join("audit.jsonl")] {
        let text = fs::read_to_string(kept).unwrap();
        assert!(!text.contains(&id) && text.contains(name));
    }
    // By id or by name, and once.
    let revoked = run_json(&home, &["policy", "revoke", &id]);
    assert!(revoked.ok()["policy"]["grant"].is_null());
    assert_eq!(run_json(&home, &["policy", "revoke", name]).failure(), (Some(3), "grant_invalid"));
    assert_eq!(
        audit_kinds(&home),
        ["policy_disabled", "policy_reuse_enabled", "login_authorized", "login_grant_revoked",]
    );
}

#[test]
fn with_json_the_grant_is_one_document() {
    let home = home();
    disable(&home);
    enable(&home);
    let (code, shown) =
        answer(&home, &["--json", "policy", "grant", "hpc", "--allow-offvpn", "--reason", "x"], "hpc");
    assert_eq!(code, 0, "{shown}");
    let document = shown.lines().find(|line| line.trim_start().starts_with('{')).unwrap();
    let grant = serde_json::from_str::<Value>(document.trim()).unwrap()["grant"].clone();
    for key in ["id", "name", "site", "role", "expires_at"] {
        assert!(grant[key].is_string(), "{key}: {grant}");
    }
}

#[test]
fn p7_a_half_file_is_repaired_with_a_cooldown_as_old_as_it_is() {
    let home = home();
    let before = disable(&home);
    let bytes = fs::read(file(&home)).unwrap();
    fs::write(file(&home), &bytes[..bytes.len() / 2]).unwrap();
    let modified = SystemTime::now() - Duration::from_secs(100);
    fs::File::options().write(true).open(file(&home)).unwrap().set_modified(modified).unwrap();
    assert_eq!(policy(&home)["valid"], false);
    let repaired = disable(&home);
    assert_ne!(repaired["generation"], before["generation"]);
    assert_eq!((&repaired["revision"], &repaired["attempts"][0]["outcome"]), (&1.into(), &"error".into()));
    enable(&home);
    let (code, error) = without_terminal(&home, &["policy", "grant", "hpc", "--reason", "x"]);
    assert_eq!((code, &error["kind"]), (Some(3), &"cooldown".into()));
    let left = error["seconds_left"].as_u64().unwrap();
    assert!((150..=200).contains(&left), "{left}");
}

/// A process that has a file's lock and is stopped.
struct StoppedHolder(Child);

impl StoppedHolder {
    fn of(path: &Path) -> StoppedHolder {
        let mut child = Command::new("flock")
            .arg(path)
            .args(["sh", "-c", "echo held; exec sleep 600"])
            .stdout(Stdio::piped())
            .process_group(0)
            .spawn()
            .expect("flock of util-linux runs");
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "held\n");
        let holder = StoppedHolder(child);
        killpg(holder.group(), Signal::SIGSTOP).unwrap();
        holder
    }

    fn group(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.0.id()).unwrap())
    }
}

impl Drop for StoppedHolder {
    fn drop(&mut self) {
        // Both it and its child have the lock's descriptor.
        killpg(self.group(), Signal::SIGKILL).expect("the group is there");
        drop(self.0.wait());
    }
}

#[test]
fn disable_is_done_within_2_s_while_a_stopped_process_holds_the_mutex() {
    let home = home();
    disable(&home);
    enable(&home);
    let holder = StoppedHolder::of(&home.path().join("policy.json.mutex"));
    let begun = Instant::now();
    let shown = disable(&home);
    let took = begun.elapsed();
    assert!(took < Duration::from_secs(2), "{took:?}");
    assert_eq!(shown["mode"], "disabled");
    assert!(home.path().join("policy.json.stop").exists());
    let (code, error) = without_terminal(&home, &["policy", "grant", "hpc", "--reason", "x"]);
    assert_eq!((code, &error["kind"]), (Some(3), &"policy_denied".into()));
    drop(holder);
    // The next one that gets the mutex writes it down.
    disable(&home);
    assert!(!home.path().join("policy.json.stop").exists());
    assert_eq!(policy(&home)["stop_marker"], false);
}

#[test]
fn disable_is_done_within_2_s_while_a_stopped_process_holds_the_audit_log() {
    let home = home();
    disable(&home);
    enable(&home);
    let _holder = StoppedHolder::of(&home.path().join("audit.jsonl"));
    let begun = Instant::now();
    assert_eq!(disable(&home)["mode"], "disabled");
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    let generation = policy(&home)["generation"].as_str().unwrap().to_owned();
    let revision = policy(&home)["revision"].to_string();
    let seen = ["policy", "enable-reuse", "--generation", &generation, "--revision", &revision];
    let (code, shown) = answer(&home, &seen, "enable");
    assert_eq!(code, 7, "what cannot be recorded is not done: {shown}");
    assert_eq!(policy(&home)["mode"], "disabled");
}

#[test]
fn no_other_mistake_keeps_anybody_from_disabling() {
    let home = home();
    home.set_config("this is [ no toml");
    fs::create_dir(home.path().join("audit.jsonl")).unwrap();
    let output = towline(&home)
        .args(["--json", "policy", "disable", "--reason", " a\n b "])
        .env("TOWLINE_LOG", "=?=")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let shown: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(shown["policy"]["events"][0]["reason"], "a b");
    for reason in ["", &"x".repeat(5000)] {
        assert_eq!(run_json(&home, &["policy", "disable", "--reason", reason]).code, Some(0));
    }
}

#[test]
fn a_writer_killed_at_any_moment_leaves_a_policy_that_can_be_disabled() {
    let home = home();
    disable(&home);
    for step in 0..60 {
        let mut child = Command::new(env!("CARGO_BIN_EXE_towline"))
            .args(["--json", "policy", "disable", "--reason", "killed"])
            .env_clear()
            .envs(home.environment())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        // The moment of the kill is what varies here, so it is a length of time.
        std::thread::sleep(Duration::from_micros(step * 250));
        // One that has ended already is not reaped yet, so it takes the signal too.
        kill(Pid::from_raw(i32::try_from(child.id()).unwrap()), Signal::SIGKILL).unwrap();
        child.wait().unwrap();
        let shown = policy(&home);
        assert_eq!((&shown["valid"], &shown["mode"]), (&true.into(), &"disabled".into()), "{step}: {shown}");
    }
    let revision = policy(&home)["revision"].as_u64().unwrap();
    assert_eq!(disable(&home)["revision"], revision + 1);
    let verified = run_json(&home, &["audit", "verify"]);
    assert_eq!(verified.ok()["ok"], true);
}

#[test]
fn the_audit_log_tells_a_changed_and_a_torn_line_apart() {
    let home = home();
    assert_eq!(run_json(&home, &["audit", "verify"]).ok()["entries"], 0);
    for _ in 0..3 {
        disable(&home);
    }
    let log = home.path().join("audit.jsonl");
    let whole = fs::read(&log).unwrap();
    fs::write(&log, &whole[..whole.len() - 20]).unwrap();
    let torn = run_json(&home, &["audit", "verify"]);
    assert_eq!((&torn.ok()["ok"], &torn.ok()["torn"][0]["line"]), (&true.into(), &3.into()));
    disable(&home);
    let sealed = run_json(&home, &["audit", "verify"]);
    assert_eq!((&sealed.ok()["entries"], &sealed.ok()["torn"][0]["line"]), (&4.into(), &3.into()));
    let text = fs::read_to_string(&log).unwrap();
    fs::write(&log, text.replacen("policy_disabled", "policy_enabled_", 1)).unwrap();
    let changed = run_json(&home, &["audit", "verify"]);
    assert_eq!((changed.code, &changed.json["broken"]["line"]), (Some(1), &1.into()), "{}", changed.text);
}

#[test]
fn a_follower_is_told_of_each_event_as_it_comes() {
    let home = home();
    disable(&home);
    let mut follower = Command::new(env!("CARGO_BIN_EXE_towline"))
        .args(["--json", "audit", "--follow"])
        .env_clear()
        .envs(home.environment())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(follower.stdout.take().unwrap()).lines();
    let mut next = || serde_json::from_str::<Value>(&lines.next().unwrap().unwrap()).unwrap();
    let first = next();
    assert_eq!(first["seq"], 1);
    for key in ["seq", "at", "who", "site", "role", "what", "outcome", "prev", "hash"] {
        assert!(first.get(key).is_some(), "{key}");
    }
    disable(&home);
    let second = next();
    assert_eq!((&second["seq"], &second["prev"]), (&2.into(), &first["hash"]));
    follower.kill().unwrap();
    follower.wait().unwrap();
}

/// Leaves a request as a client without a terminal does.
fn ask(home: &TempHome, site: &str) -> Request {
    let requests = Requests::on(std::sync::Arc::new(System), std::sync::Arc::new(SystemClock), &home.path());
    let asked = Asked {
        what: Wanted::Connect,
        site: Some(SiteId::parse(site).unwrap()),
        role: Some(Role::Login),
        reason: "to see the queue".to_owned(),
        who: Who { pid: 1, program: "agent\x1b[2J".to_owned(), client: "mcp".to_owned() },
    };
    requests.ask(&asked).unwrap()
}

#[test]
fn waiting_requests_are_listed_and_one_can_be_denied_once() {
    let home = home();
    assert_eq!(run_json(&home, &["approve"]).ok()["requests"], Value::Array(Vec::new()));
    let (first, second) = (ask(&home, "hpc"), ask(&home, "other"));
    let listed = run_json(&home, &["approve"]).ok()["requests"].clone();
    assert_eq!(listed.as_array().unwrap().len(), 2);
    for key in ["request", "what", "site", "role", "reason", "who", "created_at", "expires_at"] {
        assert!(listed[0].get(key).is_some(), "{key}");
    }
    let text = String::from_utf8(towline(&home).arg("approve").output().unwrap().stdout).unwrap();
    assert!(text.contains(&second.id) && !text.contains('\x1b'), "{text}");
    assert_eq!(run_json(&home, &["deny", &first.id]).ok()["denied"]["request"], first.id.as_str());
    assert_eq!(run_json(&home, &["deny", &first.id]).failure(), (Some(7), "not_found"));
    assert_eq!(run_json(&home, &["deny", "--", "../policy"]).failure(), (Some(7), "not_found"));
    assert_eq!(run_json(&home, &["approve"]).ok()["requests"][0]["request"], second.id.as_str());
}

#[test]
fn a_line_of_ones_own_obeys_a_policy_that_is_disabled_or_cannot_be_trusted() {
    let home = TempHome::empty();
    // Nobody listens there: whoever dials is refused with another kind.
    home.set_config("[site.hpc]\nhost = \"nobody@127.0.0.1:1\"\nssh_config = \"/dev/null\"\n");
    let exec = ["exec", "hpc", "--", "true"];
    let (code, error) = without_terminal(&home, &exec);
    assert_eq!(
        (code, &error["kind"]),
        (Some(5), &"connect_failed".into()),
        "without a policy it dials: {error}"
    );
    disable(&home);
    let (code, error) = without_terminal(&home, &exec);
    assert_eq!((code, &error["kind"]), (Some(3), &"policy_denied".into()), "{error}");
    fs::write(file(&home), "{").unwrap();
    let (code, error) = without_terminal(&home, &exec);
    assert_eq!((code, &error["kind"]), (Some(3), &"policy_invalid".into()), "{error}");
}
