//! From `connect` to ready, and what stands in its way.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::time::Duration;

use crate::support::{Sshd, TempHome, run_json};
use crate::{Desk, enable};

#[test]
fn a_second_connect_finds_the_line_and_spends_nothing() {
    let desk = Desk::open();
    let first = desk.connect();
    let policy = fs::read(desk.home.path().join("policy.json")).unwrap();
    let second = desk.connect();
    assert_eq!((&first["reused"], &second["reused"]), (&false.into(), &true.into()));
    for key in ["pid", "host", "user", "port", "host_key_sha256", "connections", "session_channels", "helper"]
    {
        assert_eq!(first[key], second[key], "{key}");
    }
    assert_eq!(fs::read(desk.home.path().join("policy.json")).unwrap(), policy);
    assert_eq!((desk.server.logins(), desk.server.session_channels()), (1, 1));
    let dir = desk.home.path().join("lines/hpc.login");
    let mode = |name: &str| fs::metadata(dir.join(name)).unwrap().mode() & 0o7777;
    assert_eq!(fs::metadata(&dir).unwrap().permissions().mode() & 0o7777, 0o700);
    for name in ["command.sock", "receipt.json", "lock", "log"] {
        assert_eq!(mode(name), 0o600, "{name}");
    }
    let policy = run_json(&desk.home, &["policy", "show"]).ok()["policy"].clone();
    assert_eq!(policy["attempts"][0]["outcome"], "success", "{policy}");
}

#[test]
fn without_a_policy_nothing_is_opened_and_no_file_is_made() {
    let server = Sshd::key_only();
    let home = TempHome::for_server(&server, "alice");
    let before: Vec<_> = fs::read_dir(home.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    let answer = run_json(&home, &["connect", "hpc"]);
    assert_eq!(answer.failure(), (Some(3), "policy_invalid"), "{}", answer.text);
    let after: Vec<_> = fs::read_dir(home.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(before, after);
    assert_eq!(server.connections(), 0);
}

#[test]
fn a_changed_destination_is_never_used_and_can_still_be_disconnected() {
    let desk = Desk::open();
    desk.connect();
    let config = fs::read_to_string(desk.home.ssh_config()).unwrap();
    fs::write(desk.home.ssh_config(), config.replace("HostName 127.0.0.1", "HostName 127.0.0.2")).unwrap();
    for answer in [desk.exec("touch never"), run_json(&desk.home, &["connect", "hpc"])] {
        assert_eq!(answer.failure(), (Some(4), "destination_changed"), "{}", answer.text);
    }
    assert_eq!(desk.line()["commands_completed"], 0);
    assert_eq!(run_json(&desk.home, &["disconnect", "hpc"]).ok()["state"], "stopped");
}

#[test]
fn something_else_in_the_sockets_place_is_left_alone_and_the_attempt_has_failed() {
    let desk = Desk::open();
    let dir = desk.home.path().join("lines/hpc.login");
    for part in [desk.home.path().join("lines"), dir.clone()] {
        fs::create_dir(&part).unwrap();
        fs::set_permissions(&part, fs::Permissions::from_mode(0o700)).unwrap();
    }
    fs::write(dir.join("command.sock"), "mine").unwrap();
    let answer = run_json(&desk.home, &["connect", "hpc"]);
    assert_eq!(answer.failure(), (Some(3), "policy_invalid"), "{}", answer.text);
    assert_eq!(fs::read_to_string(dir.join("command.sock")).unwrap(), "mine");
    let policy = run_json(&desk.home, &["policy", "show"]).ok()["policy"].clone();
    assert_eq!(policy["attempts"][0]["outcome"], "failed", "{policy}");
    assert!(policy["attempts"][0]["seconds_left"].as_u64().unwrap() > 250, "{policy}");
    let again = run_json(&desk.home, &["connect", "hpc"]);
    assert_eq!(again.failure(), (Some(3), "cooldown"), "{}", again.text);
    desk.server.wait_until_idle();
    assert_eq!(desk.line()["state"], "failed");
}

#[test]
fn a_host_that_is_not_reached_blocks_for_seconds_only() {
    let desk = Desk::open();
    let config = fs::read_to_string(desk.home.ssh_config()).unwrap();
    let port = crate::support::server::free_port();
    let wrong = config.replace(&format!("Port {}", desk.server.port()), &format!("Port {port}"));
    fs::write(desk.home.ssh_config(), wrong).unwrap();
    let answer = run_json(&desk.home, &["connect", "hpc"]);
    assert_eq!(answer.failure(), (Some(5), "connect_failed"), "{}", answer.text);
    let policy = run_json(&desk.home, &["policy", "show"]).ok()["policy"].clone();
    assert!(policy["attempts"][0]["seconds_left"].as_u64().unwrap() <= 10, "{policy}");
}

#[test]
fn an_idle_broker_is_small() {
    let desk = Desk::open();
    let pid = desk.connect()["pid"].as_u64().unwrap();
    std::thread::sleep(Duration::from_millis(300));
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let kilobytes = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.trim().trim_end_matches(" kB").trim().parse::<u64>().unwrap()
    };
    // The pages of an unoptimised program file are no measure.
    if !cfg!(debug_assertions) {
        assert!(kilobytes("VmRSS:") <= 20 << 10, "{status}");
    }
    assert!(kilobytes("RssAnon:") <= 6 << 10, "{status}");
}

#[test]
fn a_site_that_needs_a_route_is_refused_without_touching_the_network() {
    let server = Sshd::key_only();
    let home = TempHome::for_server(&server, "alice");
    enable(&home);
    let before = fs::read(home.path().join("policy.json")).unwrap();
    home.set_config(&format!(
        "[site.hpc]\nhost = \"login\"\nssh_config = \"{}\"\napproval = \"vpn\"\nroute = {{ interface = \"wg*\", kind = \"wireguard\", evidence = {{ cidr = \"10.8.0.0/16\" }} }}\n",
        home.ssh_config().display()
    ));
    let answer = run_json(&home, &["connect", "hpc"]);
    assert_eq!(answer.failure(), (Some(3), "off_vpn"), "{}", answer.text);
    assert_eq!(fs::read(home.path().join("policy.json")).unwrap(), before);
    assert_eq!(server.connections(), 0);
}
