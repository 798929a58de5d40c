//! `towline doctor` for a site with `approval = "vpn"`, as a user without any privilege.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::world::{in_namespace, ip, tunnel, uplink};

/// The user `nobody`, who may nothing; a user must have an entry for the ssh config to be read.
const NOBODY: u32 = 65_534;

/// The checks of the site `hpc` by name, with status and message.
fn doctor(scratch: &Path) -> Vec<(String, String, String)> {
    let output = Command::new(scratch.join("towline"))
        .args(["--json", "doctor", "hpc"])
        .env_clear()
        .env("HOME", scratch.join("home"))
        .env("TOWLINE_HOME", scratch.join("home/state"))
        .uid(NOBODY)
        .gid(NOBODY)
        .output()
        .unwrap();
    let stdout = String::from_utf8(output.stdout).unwrap();
    let answer: Value = serde_json::from_str(&stdout).unwrap_or_else(|error| panic!("{error}: {stdout}"));
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let checks = answer["checks"].as_array().unwrap_or_else(|| panic!("{answer}"));
    let of_site = checks.iter().filter(|check| check["site"] == "hpc");
    of_site.map(|check| (text(&check["name"]), text(&check["status"]), text(&check["message"]))).collect()
}

/// A home of that user with one site, beside a copy of the program that he may run.
fn scratch(config: &str) -> tempfile::TempDir {
    let scratch =
        tempfile::Builder::new().permissions(Permissions::from_mode(0o755)).tempdir_in("/tmp").unwrap();
    let path = scratch.path();
    // By a program of its own: a child of another test, between fork and exec, would hold our file open for writing,
    // and such a file cannot be run.
    let copied = Command::new("cp").arg(env!("CARGO_BIN_EXE_towline")).arg(path.join("towline")).status();
    assert!(copied.unwrap().success());
    fs::set_permissions(path.join("towline"), Permissions::from_mode(0o755)).unwrap();
    for folder in ["home", "home/state"] {
        fs::create_dir(path.join(folder)).unwrap();
        fs::set_permissions(path.join(folder), Permissions::from_mode(0o700)).unwrap();
        chown(path.join(folder), Some(NOBODY), Some(NOBODY)).unwrap();
    }
    fs::write(path.join("home/state/config.toml"), config).unwrap();
    chown(path.join("home/state/config.toml"), Some(NOBODY), Some(NOBODY)).unwrap();
    scratch
}

#[test]
fn doctor_shows_each_check_of_the_route_and_needs_no_privilege() {
    in_namespace(|| {
        uplink();
        let _served = tunnel("tun0");
        let home = scratch(
            "[site.hpc]\nhost = \"someone@192.0.2.7:22\"\napproval = \"vpn\"\n\
             route = { interface = \"tun*\", kind = \"tun\", evidence = { cidr = \"10.8.0.0/16\" } }\n",
        );
        let status = |name: &str| {
            let checks = doctor(home.path());
            assert!(checks.iter().any(|(found, ..)| found == "route"), "{checks:?}");
            let found = checks.into_iter().find(|(found, ..)| found == name);
            found.map(|(_, status, message)| (status, message))
        };
        for name in ["route", "interface", "link", "source", "cidr"] {
            let (status, message) = status(name).unwrap_or_else(|| panic!("no check {name}"));
            assert_eq!(status, "ok", "{name}: {message}");
        }
        ip("route replace 192.0.2.0/24 via 192.168.1.1");
        let (failing, message) = status("interface").unwrap();
        assert_eq!(failing, "fail");
        assert!(message.contains("eth0"), "{message}");
        assert_eq!(status("cidr"), None);
        // A rule that concerns this user alone.
        ip("route replace 192.0.2.0/24 dev tun0");
        ip("route add default via 192.168.1.1 table 100");
        ip(&format!("rule add uidrange {NOBODY}-{NOBODY} table 100"));
        assert_eq!(status("interface").unwrap().0, "fail");
    });
}
