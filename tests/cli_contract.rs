#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    missing_docs,
    reason = "tests fail by panicking"
)]
//! The command line keeps the contract: exit codes, one JSON document, error objects, help texts.
//!
//! Everything here is local: no test opens a connection.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Output;

use assert_cmd::Command;
use serde_json::Value;
use tempfile::TempDir;

/// A user with a home of its own and an environment that holds nothing of the machine's.
struct Desk {
    scratch: TempDir,
}

impl Desk {
    fn new() -> Desk {
        Desk { scratch: private_directory() }
    }

    fn with_config(text: &str) -> Desk {
        let desk = Desk::new();
        std::fs::write(desk.config(), text).unwrap();
        desk
    }

    fn home(&self) -> &Path {
        self.scratch.path()
    }

    fn config(&self) -> PathBuf {
        self.home().join("config.toml")
    }

    fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.home().join(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_towline"));
        command.env_clear().env("HOME", self.home()).env("TOWLINE_HOME", self.home()).args(arguments);
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// Runs a command that must fail with one error object on stderr and nothing on stdout.
    fn refused(&self, arguments: &[&str]) -> (i32, Value) {
        let output = self.run(arguments);
        assert_eq!(text(&output.stdout), "", "{arguments:?}");
        (output.status.code().unwrap(), document(&output.stderr)["error"].clone())
    }
}

/// Scratch directories follow the umask otherwise, and towline refuses a home that others may enter.
fn private_directory() -> TempDir {
    let mode = std::fs::Permissions::from_mode(0o700);
    tempfile::Builder::new().permissions(mode).tempdir().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// Exactly one JSON document on a line of its own, and nothing else.
fn document(bytes: &[u8]) -> Value {
    let text = text(bytes);
    assert_eq!(text.matches('\n').count(), 1, "{text}");
    assert!(text.ends_with('\n'), "{text}");
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

#[test]
fn a_wrong_command_line_is_usage_with_exit_2() {
    let desk = Desk::new();
    for arguments in [
        &["--json"][..],
        &["--json", "job"],
        &["--json", "nonsense"],
        &["--json", "exec"],
        &["--json", "exec", "hpc"],
        &["--json", "exec", "hpc", "ls"],
        &["--json", "exec", "hpc", "--timeout", "5", "--", "ls"],
        &["--json", "exec", "hpc", "--timeout", "0s", "--", "ls"],
        &["--json", "exec", "hpc", "--timeout", "8d", "--", "ls"],
        &["--json", "exec", "hpc", "--env", "A", "--", "ls"],
        &["--json", "exec", "hpc", "--max-output", "1:17M", "--", "ls"],
        &["--json", "exec", "hpc", "--detach", "--end-background", "--", "ls"],
        &["--json", "exec", "hpc", "--role", "both", "--", "ls"],
        &["--json", "job", "list", "hpc", "--state", "done"],
        &["--json", "job", "list", "hpc", "--mine", "--all-users"],
        &["--json", "job", "submit", "hpc", "a.sh", "--mem", "1KB"],
        &["--json", "job", "show", "hpc"],
        &["--json", "doctor", "a", "b"],
    ] {
        let (code, error) = desk.refused(arguments);
        assert_eq!((code, &error["kind"]), (2, &"usage".into()), "{arguments:?}");
        assert_eq!(error["retry_safe"], false);
        for key in ["message", "hint"] {
            let said = error[key].as_str().unwrap();
            assert!(!said.is_empty() && !said.contains('\n'), "{arguments:?}: {said}");
        }
    }
}

#[test]
fn without_json_an_error_is_two_lines_of_text() {
    let output = Desk::new().run(&["docter"]);
    assert_eq!(output.status.code(), Some(2));
    insta::assert_snapshot!(text(&output.stderr));
}

#[test]
fn without_any_command_the_help_is_shown_on_stderr() {
    for arguments in [&[][..], &["job"]] {
        let output = Desk::new().run(arguments);
        assert_eq!((output.status.code(), text(&output.stdout)), (Some(2), ""));
        assert!(text(&output.stderr).contains("Commands:"));
    }
}

#[test]
fn max_output_without_json_is_refused_rather_than_ignored() {
    let output = Desk::new().run(&["exec", "hpc", "--max-output", "1K", "--", "ls"]);
    assert!(text(&output.stderr).contains("--json"), "{}", text(&output.stderr));
}

#[test]
fn json_may_stand_before_or_after_the_command_but_not_in_the_remote_one() {
    let desk = Desk::new();
    for arguments in [
        &["--json", "exec", "hpc", "--", "ls"][..],
        &["exec", "--json", "hpc", "--", "ls"],
        &["exec", "hpc", "--json", "--", "ls"],
        &["--json", "exec", "hpc", "--json", "--", "ls"],
    ] {
        let (code, error) = desk.refused(arguments);
        assert_eq!((code, &error["kind"]), (2, &"config".into()), "{arguments:?}");
    }
    let output = desk.run(&["exec", "hpc", "--", "ls", "--json"]);
    assert!(text(&output.stderr).starts_with("error: "));
}

#[test]
fn exec_fails_with_255_without_json_and_by_the_table_with_it() {
    let desk = Desk::new();
    assert_eq!(desk.run(&["exec", "hpc", "--", "ls"]).status.code(), Some(255));
    assert_eq!(desk.run(&["exec"]).status.code(), Some(255));
    assert_eq!(desk.run(&["--json", "exec", "hpc", "--", "ls"]).status.code(), Some(2));
    assert_eq!(desk.run(&["job", "list", "hpc"]).status.code(), Some(2));
}

#[test]
fn a_mistake_in_the_configuration_has_file_line_and_the_nearest_name() {
    let desk = Desk::with_config("[site.hpc]\nhost = \"h\"\nkeep_alive = \"30s\"\n");
    let (code, error) = desk.refused(&["job", "list", "hpc", "--json"]);
    assert_eq!((code, &error["kind"], &error["line"]), (2, &"config".into(), &3.into()));
    assert_eq!(error["file"], desk.config().to_str().unwrap());
    assert_eq!(error["hint"], "did you mean `keepalive`?");
    let output = desk.run(&["job", "list", "hpc"]);
    let place = format!("error: {}:3: ", desk.config().display());
    assert!(text(&output.stderr).starts_with(&place), "{}", text(&output.stderr));

    let desk = Desk::with_config("[site.hpc]\nhost = \"h\"\nsubmit_held = 1\n");
    let (_, error) = desk.refused(&["job", "list", "hpc", "--json"]);
    assert_eq!((&error["kind"], &error["line"]), (&"config".into(), &3.into()));

    let desk = Desk::with_config("[site.hpc]\nhost = \"h\"\n[site.lab]\nhost = \"h\"\n");
    let (_, error) = desk.refused(&["job", "list", "lav", "--json"]);
    assert_eq!(
        (&error["kind"], &error["site"], &error["line"]),
        (&"config".into(), &"lav".into(), &3.into())
    );
    assert_eq!(error["hint"], "did you mean `lab`?");
}

#[test]
fn a_role_that_the_site_lacks_is_a_config_error() {
    let desk = Desk::with_config("[site.hpc]\nhost = \"h\"\n");
    let (code, error) = desk.refused(&["exec", "hpc", "--role", "transfer", "--json", "--", "ls"]);
    assert_eq!((code, &error["kind"], &error["role"]), (2, &"config".into(), &"transfer".into()));
}

#[test]
fn a_relative_towline_home_is_refused_before_anything_is_read() {
    let output = Desk::new().command(&["--json", "doctor"]).env("TOWLINE_HOME", "relative").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(document(&output.stderr)["error"]["kind"], "config");
}

#[test]
fn a_configuration_that_anybody_may_write_or_nobody_may_read_is_told_with_its_mend() {
    let desk = Desk::with_config("[site.hpc]\nhost = \"h\"\n");
    std::fs::set_permissions(desk.config(), std::fs::Permissions::from_mode(0o666)).unwrap();
    let (code, error) = desk.refused(&["--json", "job", "list", "hpc"]);
    assert_eq!((code, &error["kind"]), (2, &"config".into()));
    assert!(error["hint"].as_str().unwrap().contains("chmod go-w"));

    std::fs::remove_file(desk.config()).unwrap();
    std::fs::create_dir(desk.config()).unwrap();
    let (code, error) = desk.refused(&["--json", "job", "list", "hpc"]);
    assert_eq!((code, &error["kind"]), (2, &"config".into()));
}

#[test]
fn two_roles_that_share_a_directory_are_refused_and_nothing_is_made() {
    let desk = Desk::with_config("[site.hpc]\nhost = \"h\"\ntransfer_host = \"t\"\n");
    std::fs::create_dir_all(desk.home().join("lines/hpc.transfer")).unwrap();
    std::os::unix::fs::symlink("hpc.transfer", desk.home().join("lines/hpc.login")).unwrap();
    let (code, error) = desk.refused(&["--json", "exec", "hpc", "--", "ls"]);
    assert_eq!((code, &error["kind"]), (2, &"config".into()));
    assert_eq!(std::fs::read_dir(desk.home()).unwrap().count(), 2);
}

#[test]
fn no_command_of_this_page_writes_anything_by_looking() {
    let desk = Desk::new();
    for arguments in [&["doctor"][..], &["exec", "x", "--", "ls"], &["ssh-config", "check"]] {
        desk.run(arguments);
    }
    assert_eq!(std::fs::read_dir(desk.home()).unwrap().count(), 0);
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let desk = Desk::new();
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_towline"));
    command.arg("--help").env_clear().env("HOME", desk.home()).stdout(writer);
    let output = command.output().unwrap();
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), ""));
}

#[test]
fn a_wrong_log_filter_names_the_variable() {
    let output =
        Desk::new().command(&["--json", "doctor"]).env("TOWLINE_LOG", "towline=loud").output().unwrap();
    let error = &document(&output.stderr)["error"];
    assert_eq!((&error["kind"], &error["which"]), (&"config".into(), &"TOWLINE_LOG".into()));
}

#[test]
fn help_texts_are_as_they_were() {
    let desk = Desk::new();
    for arguments in [
        &["--help"][..],
        &["exec", "--help"],
        &["job", "--help"],
        &["job", "submit", "--help"],
        &["ssh-config", "--help"],
        &["policy", "--help"],
        &["policy", "grant", "--help"],
        &["audit", "--help"],
    ] {
        let output = desk.run(arguments);
        assert_eq!(output.status.code(), Some(0));
        assert!(output.stderr.is_empty());
        insta::assert_snapshot!(arguments.join("_").replace("--", ""), text(&output.stdout));
    }
}

#[test]
fn the_version_is_the_packages() {
    let output = Desk::new().run(&["--version"]);
    assert_eq!(text(&output.stdout), format!("towline {}\n", env!("CARGO_PKG_VERSION")));
}

mod doctor {
    use super::*;

    fn checks(output: &Output) -> Vec<Value> {
        document(&output.stdout)["checks"].as_array().unwrap().clone()
    }

    fn check<'a>(checks: &'a [Value], name: &str) -> &'a Value {
        checks
            .iter()
            .find(|check| check["name"] == name)
            .unwrap_or_else(|| panic!("no check {name}: {checks:#?}"))
    }

    #[test]
    fn every_check_has_name_status_message_and_mend() {
        let desk = Desk::with_config("[site.hpc]\nhost = \"h\"\nssh_config = \"~/ssh\"\n");
        desk.file("ssh", "Host h\n  HostName 192.0.2.1\n");
        let output = desk.run(&["doctor", "--json"]);
        let checks = checks(&output);
        for check in &checks {
            assert!(["ok", "warn", "fail", "skipped"].contains(&check["status"].as_str().unwrap()));
            assert!(check["name"].is_string() && check["message"].is_string());
            assert!(check["mend"].is_string() || check["mend"].is_null());
            assert!(check["status"] != "fail" || check["mend"].is_string(), "{check}");
        }
        assert_eq!(check(&checks, "home")["status"], "ok");
        assert_eq!(check(&checks, "config")["status"], "ok");
        assert_eq!(check(&checks, "socket_path")["status"], "ok");
        assert_eq!(check(&checks, "remote")["status"], "skipped");
        let failing = checks.iter().any(|check| check["status"] == "fail");
        assert_eq!(output.status.code(), Some(i32::from(failing)));
    }

    #[test]
    fn a_home_open_to_others_fails_and_is_left_as_it_is() {
        let desk = Desk::new();
        std::fs::set_permissions(desk.home(), std::fs::Permissions::from_mode(0o755)).unwrap();
        let output = desk.run(&["doctor", "--json"]);
        let checks = checks(&output);
        assert_eq!(check(&checks, "home")["status"], "fail");
        assert!(check(&checks, "home")["mend"].as_str().unwrap().contains("chmod 700"));
        assert_eq!(output.status.code(), Some(1));
        assert_eq!(std::fs::metadata(desk.home()).unwrap().permissions().mode() & 0o777, 0o755);
    }

    #[test]
    fn a_broken_configuration_is_shown_and_ends_as_it_does_everywhere() {
        let desk = Desk::with_config("[site.hpc]\nhots = \"h\"\n");
        let output = desk.run(&["doctor", "--json"]);
        let checks = checks(&output);
        assert_eq!(check(&checks, "config")["status"], "fail");
        assert_eq!(check(&checks, "config")["mend"], "did you mean `host`?");
        assert_eq!(document(&output.stderr)["error"]["line"], 2);
        assert_eq!(output.status.code(), Some(2));
    }

    #[test]
    fn an_unknown_site_is_a_config_error() {
        let (code, error) = Desk::new().refused(&["doctor", "hpc", "--json"]);
        assert_eq!((code, &error["kind"], &error["site"]), (2, &"config".into(), &"hpc".into()));
    }

    #[test]
    fn a_socket_path_that_is_too_long_fails_with_its_length() {
        let desk = Desk::new();
        let home = desk.home().join("d".repeat(90));
        std::fs::create_dir(&home).unwrap();
        std::fs::set_permissions(&home, std::fs::Permissions::from_mode(0o700)).unwrap();
        std::fs::write(home.join("config.toml"), "[site.hpc]\nhost = \"h\"\n").unwrap();
        let output = desk.command(&["doctor", "--json"]).env("TOWLINE_HOME", &home).output().unwrap();
        let checks = checks(&output);
        let found = check(&checks, "socket_path");
        assert_eq!(found["status"], "fail");
        assert!(found["message"].as_str().unwrap().contains("the limit is 100"), "{found}");
    }

    #[test]
    fn a_dead_agent_is_a_warning_with_its_mend() {
        let desk = Desk::with_config("[site.hpc]\nhost = \"h\"\nssh_config = \"~/ssh\"\n");
        desk.file("ssh", "Host h\n  HostName 192.0.2.1\n");
        let output = desk
            .command(&["doctor", "hpc", "--json"])
            .env("SSH_AUTH_SOCK", "/nonexistent/agent")
            .output()
            .unwrap();
        let checks = checks(&output);
        let found = check(&checks, "agent");
        assert_eq!(found["status"], "warn");
        assert!(found["message"].as_str().unwrap().contains("/nonexistent/agent"), "{found}");
    }

    #[test]
    fn a_private_key_that_others_may_read_fails() {
        let desk = Desk::with_config("[site.hpc]\nhost = \"h\"\nssh_config = \"~/ssh\"\n");
        let key = desk.file("key", "not read");
        desk.file("ssh", &format!("Host h\n  HostName 192.0.2.1\n  IdentityFile {}\n", key.display()));
        std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o644)).unwrap();
        let status = || {
            let output = desk.run(&["doctor", "hpc", "--json"]);
            check(&checks(&output), "identity")["status"].clone()
        };
        assert_eq!(status(), "fail");
        std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).unwrap();
        assert_eq!(status(), "ok");
    }

    #[test]
    fn a_rejected_ssh_config_fails_with_its_place() {
        let desk = Desk::with_config("[site.hpc]\nhost = \"h\"\nssh_config = \"~/ssh\"\n");
        let file = desk.file("ssh", "Host h\n  ProxyCommand nc %h %p\n");
        let output = desk.run(&["doctor", "hpc", "--json"]);
        let checks = checks(&output);
        let found = check(&checks, "ssh_config");
        assert_eq!((output.status.code(), &found["status"]), (Some(1), &"fail".into()));
        let place = format!("{}:2: ", file.display());
        assert!(found["message"].as_str().unwrap().starts_with(&place), "{found}");
    }

    #[test]
    fn control_master_settings_are_said_to_have_no_effect() {
        let desk = Desk::with_config("[site.hpc]\nhost = \"h\"\nssh_config = \"~/ssh\"\n");
        desk.file("ssh", "Host h\n  HostName 192.0.2.1\n  ControlMaster auto\n  ControlPath ~/x\n");
        let output = desk.run(&["doctor", "hpc", "--json"]);
        let found = checks(&output);
        assert!(check(&found, "control_master")["message"].as_str().unwrap().contains("no effect"));
    }

    #[test]
    fn a_known_host_is_told_with_its_fingerprint() {
        let desk = Desk::with_config(
            "[site.hpc]\nhost = \"h\"\nssh_config = \"~/ssh\"\nknown_hosts = \"~/known\"\n",
        );
        desk.file("ssh", "Host h\n  HostName 192.0.2.1\n");
        let status = || {
            let output = desk.run(&["doctor", "hpc", "--json"]);
            check(&checks(&output), "host_key").clone()
        };
        assert_eq!(status()["status"], "warn");
        let key = "AAAAC3NzaC1lZDI1NTE5AAAAIAcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcH";
        desk.file("known", &format!("192.0.2.1 ssh-ed25519 {key}\n"));
        let known = status();
        assert_eq!(known["status"], "ok", "{known}");
        assert!(known["message"].as_str().unwrap().contains("SHA256:"), "{known}");
    }
}

mod ssh_config {
    use super::*;

    #[test]
    fn resolve_speaks_json_with_and_without_the_flag() {
        let desk = Desk::new();
        let file = desk.file("c", "Host web\n  HostName example.org\n  Port 2222\n");
        let file = file.to_str().unwrap();
        for arguments in [
            &["ssh-config", "resolve", "--file", file, "web"][..],
            &["--json", "ssh-config", "resolve", "--file", file, "web"],
            &["ssh-config", "resolve", "web", "--file", file, "--json"],
        ] {
            let output = desk.run(arguments);
            assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), ""));
            let answer = document(&output.stdout);
            assert_eq!((&answer["hostname"], &answer["port"]), (&"example.org".into(), &"2222".into()));
        }
    }

    #[test]
    fn a_rejection_has_reason_file_and_line_and_exit_2() {
        let desk = Desk::new();
        let file = desk.file("c", "Host web\n  Port 22\nMatch all\n");
        let (code, error) = desk.refused(&["ssh-config", "resolve", "--file", file.to_str().unwrap(), "web"]);
        assert_eq!((code, &error["kind"]), (2, &"ssh_config_rejected".into()));
        assert_eq!((&error["reason"], &error["line"]), (&"match".into(), &3.into()));
        assert_eq!(error["file"], file.to_str().unwrap());
        let (code, error) = desk.refused(&["ssh-config", "resolve", "--file", "/nonexistent/c", "web"]);
        assert_eq!((code, &error["reason"]), (2, &"io".into()));
        assert!(error.as_object().unwrap().contains_key("line"));
    }

    #[test]
    fn usage_errors_of_resolve_are_json_too() {
        let (code, error) = Desk::new().refused(&["ssh-config", "resolve"]);
        assert_eq!((code, &error["kind"]), (2, &"usage".into()));
    }

    #[test]
    fn flatten_prints_the_text_or_one_document() {
        let desk = Desk::new();
        let included = desk.file("more", "Host web\n  User ada\n");
        let file = desk.file("c", &format!("Include {}\n", included.display()));
        let file = file.to_str().unwrap();
        let output = desk.run(&["ssh-config", "flatten", "--file", file]);
        assert_eq!(output.status.code(), Some(0));
        let directives: Vec<_> =
            text(&output.stdout).lines().map(str::trim).filter(|line| !line.starts_with('#')).collect();
        assert_eq!(directives, ["Host web", "User ada"]);
        let answer = document(&desk.run(&["ssh-config", "flatten", "--file", file, "--json"]).stdout);
        assert_eq!(answer["text"], text(&output.stdout));
        assert_eq!(answer["files"].as_array().unwrap().len(), 2);
    }

    #[test]
    fn check_lists_findings_and_exits_2_when_one_is_an_error() {
        let desk = Desk::new();
        let wrong = desk.file("wrong", "Host web\n  Port 0\nHost *\n  ForwardAgent yes\n");
        let output = desk.run(&["ssh-config", "check", "--file", wrong.to_str().unwrap(), "--json"]);
        assert_eq!((output.status.code(), text(&output.stderr)), (Some(2), ""));
        let findings = document(&output.stdout)["findings"].clone();
        let error =
            findings.as_array().unwrap().iter().find(|finding| finding["severity"] == "error").unwrap();
        assert_eq!((&error["line"], &error["reason"]), (&2.into(), &"syntax".into()));
        let human = desk.run(&["ssh-config", "check", "--file", wrong.to_str().unwrap()]);
        assert_eq!(human.status.code(), Some(2));
        assert!(text(&human.stdout).contains("wrong:2: error: "), "{}", text(&human.stdout));

        let fine = desk.file("fine", "Host web\n  Port 22\n");
        let output = desk.run(&["ssh-config", "check", "--file", fine.to_str().unwrap(), "--json"]);
        assert_eq!(output.status.code(), Some(0));
        assert_eq!(document(&output.stdout), serde_json::json!({"findings": []}));
    }
}
