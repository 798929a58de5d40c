//! Configurations that cannot lead anywhere: each has its kind, the value in its message, and a hint that helps.

use std::os::unix::fs::PermissionsExt as _;

use crate::support::{Answer, TempHome, run_json};

/// A home whose `config.toml` is `text`, with `SSH_CONFIG` replaced by the path of its ssh config.
fn home(config: &str, ssh_config: &str) -> TempHome {
    let home = TempHome::empty();
    std::fs::write(home.ssh_config(), ssh_config).unwrap();
    home.set_config(&config.replace("SSH_CONFIG", &home.ssh_config().display().to_string()));
    home
}

/// What `towline exec hpc` answers there.
fn refused(config: &str, ssh_config: &str) -> Answer {
    run_json(&home(config, ssh_config), &["exec", "hpc", "--", "true"])
}

/// Asserts kind and code, that the message holds `value`, that there is a hint, and that no retry helps.
fn assert_failure(answer: &Answer, code: i32, kind: &str, value: &str) {
    assert_eq!(answer.failure(), (Some(code), kind), "{}", answer.text);
    let error = &answer.error["error"];
    assert!(error["message"].as_str().unwrap().contains(value), "no {value:?}: {}", answer.text);
    assert!(!error["hint"].as_str().unwrap().is_empty(), "{}", answer.text);
    assert_eq!(
        (&error["retry_safe"], &answer.json),
        (&false.into(), &serde_json::Value::Null),
        "{}",
        answer.text
    );
}

const ALIAS: &str = "[site.hpc]\nhost = \"hpc-login\"\nssh_config = \"SSH_CONFIG\"\n";

#[test]
fn a_configuration_that_others_may_write_is_not_used() {
    let home = home(ALIAS, "");
    let file = home.path().join("config.toml");
    for mode in [0o602, 0o646, 0o666] {
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
        let answer = run_json(&home, &["exec", "hpc", "--", "true"]);
        assert_failure(&answer, 2, "config", "config.toml");
        assert!(answer.error["error"]["hint"].as_str().unwrap().contains("chmod go-w"), "{}", answer.text);
    }
    // Others may read it, though, and a group of one's own may even write it.
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o664)).unwrap();
    let answer = run_json(&home, &["exec", "hpc", "--", "true"]);
    assert_eq!(answer.failure(), (Some(5), "connect_failed"), "{}", answer.text);
}

#[test]
fn a_configuration_that_cannot_be_read_is_told_with_its_path() {
    let home = home(ALIAS, "");
    let file = home.path().join("config.toml");
    std::fs::remove_file(&file).unwrap();
    // Root may read everything but a folder, and what is no text.
    std::fs::create_dir(&file).unwrap();
    let answer = run_json(&home, &["exec", "hpc", "--", "true"]);
    assert_failure(&answer, 2, "config", file.to_str().unwrap());
    std::fs::remove_dir(&file).unwrap();
    std::fs::write(&file, b"[site.hpc]\nhost = \"\xFF\"\n").unwrap();
    let answer = run_json(&home, &["exec", "hpc", "--", "true"]);
    assert_failure(&answer, 2, "config", "UTF-8");
    // A missing one is empty: then the site is what is missing.
    std::fs::remove_file(&file).unwrap();
    let answer = run_json(&home, &["exec", "hpc", "--", "true"]);
    assert_failure(&answer, 2, "config", "`hpc`");
}

#[test]
fn an_alias_that_no_file_knows_is_dialled_as_a_name() {
    // The name ends in a domain that never exists, so no network is asked for long.
    let answer = refused(&ALIAS.replace("hpc-login", "hpc-login.invalid"), "Host other\n  Port 2222\n");
    assert_failure(&answer, 5, "connect_failed", "hpc-login.invalid:22");
    assert_eq!(answer.error["error"]["phase"], "resolve", "{}", answer.text);
}

#[test]
fn a_port_that_is_none_is_refused_wherever_it_stands() {
    for port in ["0", "70000", "65536", "-1", "22x"] {
        let answer = refused(ALIAS, &format!("Host hpc-login\n  HostName 127.0.0.1\n  Port {port}\n"));
        assert_failure(&answer, 2, "ssh_config_rejected", port);
        assert_eq!(answer.error["error"]["line"], 3, "{}", answer.text);
        assert!(answer.error["error"]["file"].as_str().unwrap().ends_with("/.ssh/config"), "{}", answer.text);
    }
    for port in ["0", "70000", "65536", "999999999999", "", "http"] {
        let answer = refused(&format!("[site.hpc]\nhost = \"u@127.0.0.1:{port}\"\n"), "");
        assert_failure(&answer, 2, "config", &format!("u@127.0.0.1:{port}"));
        assert_eq!(answer.error["error"]["line"], 2, "{}", answer.text);
    }
    // The greatest one is a port: nobody listens there, or somebody who speaks no SSH.
    let answer = refused("[site.hpc]\nhost = \"u@127.0.0.1:65535\"\nssh_config = \"SSH_CONFIG\"\n", "");
    assert_failure(&answer, 5, "connect_failed", "127.0.0.1:65535");
}

#[test]
fn an_unknown_site_names_the_nearest_one() {
    let two = "[site.hpc]\nhost = \"a\"\n\n[site.laptop]\nhost = \"b\"\n";
    let home = home(two, "");
    for (typed, near) in [("hcp", Some("hpc")), ("labtop", Some("laptop")), ("zebra", None)] {
        let answer = run_json(&home, &["exec", typed, "--", "true"]);
        assert_failure(&answer, 2, "config", &format!("`{typed}`"));
        let hint = answer.error["error"]["hint"].as_str().unwrap();
        assert_eq!(near.is_some_and(|near| hint.contains(&format!("`{near}`"))), near.is_some(), "{hint}");
        assert_eq!(answer.error["error"]["site"], typed, "{}", answer.text);
    }
    // Not even a name.
    let answer = run_json(&home, &["exec", "../hpc", "--", "true"]);
    assert_failure(&answer, 2, "config", "../hpc");
}

#[test]
fn a_value_of_another_type_is_told_with_its_line() {
    let table = [
        ("host = 7", "`site.hpc.host`"),
        ("host = [\"a\"]", "`site.hpc.host`"),
        ("host = \"a\"\nkeepalive = true", "`site.hpc.keepalive`"),
        ("host = \"a\"\nkeepalive = \"soon\"", "soon"),
        ("host = \"a\"\nconnect_timeout = 604801", "604801"),
        ("host = \"a\"\nconnect_timeout = nan", "not a duration"),
        ("host = \"a\"\nstart_timeout = 0", "0"),
        ("host = \"a\"\nexec_from_memory = \"yes\"", "`site.hpc.exec_from_memory`"),
        ("host = \"a\"\napproval = \"always\"", "always"),
        ("host = \"a\"\nscheduler_calls_per_min = -1", "-1"),
        ("host = \"a b\"", "a b"),
        ("host = \"-oProxyCommand=x\"", "-oProxyCommand=x"),
    ];
    for (lines, value) in table {
        let answer = refused(&format!("[site.hpc]\n{lines}\n"), "");
        assert_failure(&answer, 2, "config", value);
        assert_eq!(answer.error["error"]["line"], 1 + lines.lines().count(), "{}", answer.text);
    }
    let answer = refused("[site.hpc]\nhots = \"a\"\n", "");
    assert_failure(&answer, 2, "config", "hots");
    assert!(answer.error["error"]["hint"].as_str().unwrap().contains("`host`"), "{}", answer.text);
    let answer = refused("[site]\nhpc = \"a\"\n", "");
    assert_failure(&answer, 2, "config", "hpc");
}
