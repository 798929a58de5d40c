//! Who permits an opening.

use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::Desk;
use crate::support::server::PASSCODE;
use crate::support::{PATIENCE, Pty, Sshd, run_json};

/// A desk whose site needs a human's grant.
fn guarded() -> Desk {
    let desk = Desk::open();
    desk.home.set_config(&format!(
        "[site.hpc]\nhost = \"login\"\nssh_config = \"{}\"\n",
        desk.home.ssh_config().display()
    ));
    desk
}

/// Runs `towline --json ARGS` in a session without a terminal, whatever the test itself runs on.
fn without_terminal(desk: &Desk, args: &[&str]) -> (Option<i32>, Value, Value) {
    let mut command = Command::new("setsid");
    command.arg0("setsid").arg("--wait").arg(env!("CARGO_BIN_EXE_towline")).arg("--json").args(args);
    command.env_clear().envs(desk.home.environment()).current_dir(desk.home.user_home()).stdin(Stdio::null());
    let output = command.output().unwrap();
    let json = |bytes: &[u8]| serde_json::from_slice(bytes).unwrap_or(Value::Null);
    (output.status.code(), json(&output.stdout), json(&output.stderr)["error"].clone())
}

#[test]
fn a_human_types_the_sites_name_and_that_is_the_approval() {
    let desk = guarded();
    let mut pty = Pty::towline(&desk.home, &["connect", "hpc"]);
    pty.wait_for("Type `hpc` to approve: ", PATIENCE);
    pty.type_line("hpc");
    pty.wait_for("is open", PATIENCE);
    assert_eq!(pty.wait_exit(PATIENCE), 0);
    assert_eq!(desk.exec("echo alive").ok()["stdout"], "alive\n");
    let policy = run_json(&desk.home, &["policy", "show"]).ok()["policy"].clone();
    assert_eq!((&policy["attempts"][0]["outcome"], &policy["grant"]), (&"success".into(), &Value::Null));
}

#[test]
fn another_answer_opens_nothing_and_spends_nothing() {
    let desk = guarded();
    let mut pty = Pty::towline(&desk.home, &["connect", "hpc"]);
    pty.wait_for("Type `hpc` to approve: ", PATIENCE);
    pty.type_line("yes");
    assert_eq!(pty.wait_exit(PATIENCE), 3);
    assert_eq!(desk.server.connections(), 0);
    assert_eq!(run_json(&desk.home, &["policy", "show"]).ok()["policy"]["attempts"], serde_json::json!([]));
}

#[test]
fn without_a_terminal_a_request_is_left_and_its_approval_opens_the_line() {
    let desk = guarded();
    let (code, _, error) = without_terminal(&desk, &["connect", "hpc"]);
    assert_eq!((code, &error["kind"]), (Some(3), &"policy_denied".into()), "{error}");
    let id = error["approval"]["request"].as_str().unwrap().to_owned();
    assert_eq!(error["approval"]["command"], format!("towline approve {id}"));
    assert!(error["approval"]["expires_at"].is_string());
    assert_eq!(desk.server.connections(), 0);
    // Nobody without a terminal can answer it.
    assert_eq!(without_terminal(&desk, &["approve", &id]).0, Some(3));
    let mut pty = Pty::towline(&desk.home, &["approve", &id]);
    pty.wait_for("Type `hpc` to approve: ", PATIENCE);
    pty.type_line("hpc");
    assert_eq!(pty.wait_exit(PATIENCE), 0, "{}", pty.transcript());
    let (code, answer, _) = without_terminal(&desk, &["connect", "hpc"]);
    assert_eq!((code, &answer["reused"]), (Some(0), &true.into()));
    assert_eq!(run_json(&desk.home, &["approve"]).ok()["requests"], serde_json::json!([]));
}

#[test]
fn where_no_policy_exists_one_question_on_a_terminal_makes_it_and_connects() {
    let desk = guarded();
    std::fs::remove_file(desk.home.path().join("policy.json")).unwrap();
    let mut pty = Pty::towline(&desk.home, &["connect", "hpc"]);
    pty.wait_for("There is no policy yet", PATIENCE);
    pty.wait_for("Type `hpc` to approve: ", PATIENCE);
    pty.type_line("hpc");
    pty.wait_for("is open", PATIENCE);
    assert_eq!(pty.wait_exit(PATIENCE), 0);
    assert_eq!(run_json(&desk.home, &["policy", "show"]).ok()["policy"]["mode"], "reuse_only");
}

#[test]
fn a_second_factor_is_asked_once_on_the_terminal_that_connects_and_the_answer_is_nowhere() {
    let mut desk = guarded();
    desk.server = Sshd::second_factor();
    desk.home = crate::support::TempHome::for_server(&desk.server, "alice");
    crate::enable(&desk.home);
    let mut pty = Pty::towline(&desk.home, &["connect", "hpc"]);
    pty.wait_for("Passcode or option (1-2): ", PATIENCE);
    pty.type_line(PASSCODE);
    pty.wait_for("is open", PATIENCE);
    assert_eq!(pty.wait_exit(PATIENCE), 0);
    for _ in 0..3 {
        assert_eq!(desk.exec("echo alive").ok()["stdout"], "alive\n");
    }
    let line = desk.line();
    assert_eq!((&line["prompts"], &line["session_channels"]), (&1.into(), &1.into()), "{line}");
    assert_eq!((desk.server.logins(), desk.server.prompts()), (1, 1));
    for file in ["lines/hpc.login/log", "lines/hpc.login/receipt.json", "audit.jsonl", "policy.json"] {
        let text = std::fs::read_to_string(desk.home.path().join(file)).unwrap();
        assert!(!text.contains(PASSCODE), "{file}");
    }
}

#[test]
fn a_second_factor_that_nobody_can_be_asked_for_fails_the_attempt_unanswered() {
    let mut desk = Desk::open();
    desk.server = Sshd::second_factor();
    desk.home = crate::support::TempHome::for_server(&desk.server, "alice");
    crate::enable(&desk.home);
    let (code, _, error) = without_terminal(&desk, &["connect", "hpc"]);
    assert_eq!((code, &error["kind"]), (Some(5), &"auth_failed".into()), "{error}");
    let policy = run_json(&desk.home, &["policy", "show"]).ok()["policy"].clone();
    assert_eq!(policy["attempts"][0]["outcome"], "failed", "{policy}");
    assert_eq!(desk.line()["state"], "failed");
}
