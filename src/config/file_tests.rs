use super::*;
use crate::config::{Approval, Destination, EnvironmentRecipe, Role, RouteKind, SchedulerChoice};
use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

/// Every key of the contract's example, as a user would write it.
const FULL: &str = r#"
[site.hpc]
host = "hpc-login"
transfer_host = "hpc-dtn"
ssh_config = "~/.ssh/other"
approval = "vpn"
scheduler = "slurm"
known_hosts = "~/.ssh/known_hosts"
keepalive = "30s"
connect_timeout = 20
start_timeout = "90s"
remote_dir = "~/.towline"
environment = "none"
scheduler_calls_per_min = 4
latency_wait = "60s"
launch_window = "15m"
askpass = "/path/program"
submit_held = false
exec_from_memory = true
route = { interface = "wg*", kind = "wireguard", evidence = { cidr = "10.8.0.0/16" } }
roots = { home = "/home/u", scratch = "/scratch/u", group = "/g/lab", standby = "/arc/lab" }
gc = { snapshot_keep = 3, rules = "FILE.toml" }
rundir = { views = ["_v"], keep = ["official"], sweep = [] }

[retention]
succeeded_days = 30

[provider.runpod]
kind = "runpod"

[pod.trainer]
provider = "runpod"
[pod.trainer.ready]
budget = "5m"
"#;

fn parse(text: &str) -> Result<Config, Error> {
    let environment = Environment {
        home: Some("/home/u".into()),
        towline_home: Some("/t".into()),
        ..Environment::default()
    };
    Config::parse(Home::from_environment(&environment).unwrap(), environment, text)
}

/// The line, the message and the proposal of the first mistake.
fn mistake(text: &str) -> (u64, String, Option<String>) {
    match parse(text) {
        Err(Error::Entry { place, message, nearest }) => {
            assert_eq!(place.file, Path::new("/t/config.toml"));
            (place.line, message, nearest)
        }
        other => panic!("{text}\n{other:?}"),
    }
}

#[test]
fn every_key_of_the_contract_is_read() {
    let config = parse(FULL).unwrap();
    let site = config.site("hpc").unwrap();
    assert_eq!(site.place.line, 2);
    assert_eq!(site.destination(Role::Transfer).unwrap(), &Destination::Ssh { host: "hpc-dtn".to_owned() });
    assert_eq!(site.ssh_config.as_deref(), Some(Path::new("/home/u/.ssh/other")));
    assert_eq!((site.approval, site.scheduler), (Approval::Vpn, SchedulerChoice::Slurm));
    assert_eq!(site.connect_timeout, Some(Duration::from_secs(20)));
    assert_eq!(site.launch_window, Duration::from_secs(900));
    assert_eq!(site.environment, EnvironmentRecipe::None);
    assert!(site.exec_from_memory && !site.submit_held);
    let route = site.route.as_ref().unwrap();
    assert_eq!(
        (route.kind, route.evidence.cidr),
        (RouteKind::Wireguard, Some(("10.8.0.0".parse().unwrap(), 16)))
    );
    assert_eq!(site.roots.standby.as_deref(), Some("/arc/lab"));
    assert_eq!((site.gc.snapshot_keep, site.gc.rules.as_deref()), (3, Some(Path::new("/t/FILE.toml"))));
    assert_eq!(site.rundir.keep.as_deref(), Some(["official".to_owned()].as_slice()));
    assert_eq!(config.retention, Retention { succeeded_days: Some(30), failed_days: None });
    let pod = config.pods.values().next().unwrap();
    assert_eq!((pod.place.line, pod.table.len()), (31, 2));
    assert_eq!(config.providers.len(), 1);
}

#[test]
fn a_host_is_enough_and_the_rest_has_its_defaults() {
    let config = parse("[site.a]\nhost = \"u@h:22\"\n").unwrap();
    let site = config.site("a").unwrap();
    assert_eq!((site.approval, site.scheduler), (Approval::Grant, SchedulerChoice::Auto));
    assert_eq!((site.start_timeout, site.latency_wait), (Duration::from_secs(90), Duration::from_secs(60)));
    assert_eq!((site.keepalive, site.ssh_config.as_ref()), (None, None));
    assert_eq!((site.remote_dir.as_str(), site.scheduler_calls_per_min), ("~/.towline", 4));
    assert_eq!(site.environment, EnvironmentRecipe::LoginIfPossible);
    assert!(site.submit_held && !site.exec_from_memory);
    assert_eq!(site.roles().collect::<Vec<_>>(), [Role::Login]);
    assert!(matches!(site.destination(Role::Transfer), Err(Error::NoRole { .. })));
    assert_eq!(parse("").unwrap().sites().count(), 0);
}

#[test]
fn unknown_keys_are_told_with_their_line_and_the_nearest_right_name() {
    for (text, line, key, nearest) in [
        ("[site.a]\nhost = \"h\"\nkeep_alive = \"3s\"\n", 3, "keep_alive", Some("keepalive")),
        ("[site.a]\nhots = \"h\"\n", 2, "hots", Some("host")),
        ("\n[sites.a]\nhost = \"h\"\n", 2, "sites", Some("site")),
        ("colour = 1\n", 1, "colour", None),
        ("[site.a]\nhost=\"h\"\n[site.a.roots]\nscratchh = \"/s\"\n", 4, "scratchh", Some("scratch")),
        (
            "[site.a]\nhost=\"h\"\nroute = { interface=\"w\", kind=\"any\", evidence = {\n portl = \"x\" } }\n",
            4,
            "portl",
            Some("portal"),
        ),
        ("[retention]\nsucceded_days = 1\n", 2, "succeded_days", Some("succeeded_days")),
        // The first in the file, though not the first in the alphabet.
        ("[site.a]\nzzzz = 1\naaaa = 1\n", 2, "zzzz", None),
    ] {
        let (at, message, proposal) = mistake(text);
        assert_eq!((at, proposal.as_deref()), (line, nearest), "{text}");
        assert!(message.contains(key), "{message}");
    }
}

#[test]
fn wrong_types_and_values_are_told_with_their_line() {
    let cases = [
        ("host = 1", "must be a text"),
        ("host = \"\"", "not empty"),
        ("host = \"a\\nb\"", "control characters"),
        ("host = \"-oProxyCommand=x\"", "begin with `-`"),
        ("host = \"a b\"", "no blanks"),
        ("host = \"u@h:0\"", "from 1 to 65535"),
        ("host = \"u@h:65536\"", "from 1 to 65535"),
        ("host = \"[::1]:\"", "from 1 to 65535"),
        ("host = \"h\"\nscheduler = \"slurmm\"", "must be one of"),
        ("host = \"h\"\nsubmit_held = \"yes\"", "true or false"),
        ("host = \"h\"\nkeepalive = \"30\"", "not a duration"),
        ("host = \"h\"\nkeepalive = 0", "zero"),
        ("host = \"h\"\nkeepalive = -1", "not a duration"),
        ("host = \"h\"\nkeepalive = 604801", "the limit is 7d"),
        ("host = \"h\"\nkeepalive = inf", "the limit is 7d"),
        ("host = \"h\"\nkeepalive = nan", "not a duration"),
        ("host = \"h\"\nkeepalive = true", "a duration"),
        ("host = \"h\"\nscheduler_calls_per_min = 0", "from 1 to 60"),
        ("host = \"h\"\nscheduler_calls_per_min = 99999999999999999999", "from 1 to 60"),
        ("host = \"h\"\nscheduler_calls_per_min = 1.5", "a whole number"),
        ("host = \"h\"\nremote_dir = \"x\"", "absolute or begin with ~/"),
        ("host = \"h\"\nssh_config = \"x\"", "absolute or begin with ~/"),
        ("host = \"h\"\nenvironment = \"logn\"", "none, login, or a script's path"),
        ("host = \"h\"\nroots = []", "must be a table"),
        ("host = \"h\"\nrundir = { views = [1] }", "must be a text"),
        ("host = \"h\"\nroute = { interface = \"w\", kind = \"any\", evidence = {} }", "evidence"),
        (
            "host = \"h\"\nroute = { interface = \"w\", kind = \"any\", evidence = { cidr = \"10.0.0.0/33\" } }",
            "prefix length",
        ),
        ("host = \"h\"\napproval = \"vpn\"", "needs a `route`"),
        ("host = \"h\"\nuser = \"u\"", "goes with `socket` only"),
        ("host = \"h\"\nhost = \"i\"", "not valid TOML"),
        ("host = ", "not valid TOML"),
    ];
    for (entry, reason) in cases {
        let (line, message, _) = mistake(&format!("[site.a]\n{entry}\n"));
        assert_eq!(line, 1 + entry.lines().count() as u64, "{entry}: {message}");
        assert!(message.contains(reason), "{entry}: {message}");
    }
    let (line, message, _) = mistake("\n[site.a]\nscheduler = \"none\"\n");
    assert_eq!((line, message.contains("`site.a.host` is missing")), (2, true), "{message}");
    let (_, message, _) = mistake("[site.\"a.b\"]\nhost = \"h\"\n");
    assert!(message.contains("is not a name"), "{message}");
    let (_, message, _) = mistake("[pod.\"-x\"]\n");
    assert!(message.contains("is not a name"), "{message}");
}

#[test]
fn a_socket_is_the_whole_destination() {
    let text = "[site.demo]\nsocket = \"/t/s\"\nuser = \"demo\"\nknown_hosts = \"/t/k\"\nidentity = \"~/id\"\napproval = \"open\"\n";
    let config = parse(text).unwrap();
    let expected = Destination::Socket {
        path: "/t/s".into(),
        user: "demo".to_owned(),
        known_hosts: "/t/k".into(),
        identity: "/home/u/id".into(),
    };
    assert_eq!(config.site("demo").unwrap().login, expected);
    assert!(mistake(&text.replace("user = \"demo\"\n", "")).1.contains("`site.demo.user` is missing"));
    assert!(mistake(&format!("{text}host = \"h\"\n")).1.contains("does not go with `socket`"));
}

#[test]
fn an_unknown_site_names_the_nearest_one() {
    let config = parse("[site.hpc]\nhost = \"h\"\n[site.lab]\nhost = \"h\"\n").unwrap();
    match config.site("hcp") {
        Err(Error::UnknownSite { line, nearest, known, .. }) => {
            assert_eq!((line, nearest.as_deref()), (Some(1), Some("hpc")));
            assert_eq!(known, ["hpc", "lab"]);
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_file_that_others_may_write_is_not_read() {
    let scratch = tempfile::tempdir().unwrap();
    let file = scratch.path().join("config.toml");
    let load = || {
        Config::load(Environment {
            home: Some("/home/u".into()),
            towline_home: Some(scratch.path().into()),
            ..Environment::default()
        })
    };
    assert_eq!(load().unwrap().sites().count(), 0, "a missing file is empty");
    std::fs::write(&file, "[site.a]\nhost = \"h\"\n").unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o602)).unwrap();
    assert!(matches!(load(), Err(Error::Untrusted { .. })));
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
    assert_eq!(load().unwrap().sites().count(), 1);
    std::fs::write(&file, b"# fine\nhost = \"\xE9\"\n").unwrap();
    assert!(matches!(load(), Err(Error::Entry { place: Place { line: 2, .. }, .. })));
    std::fs::remove_file(&file).unwrap();
    nix::unistd::mkfifo(&file, nix::sys::stat::Mode::from_bits_truncate(0o600)).unwrap();
    assert!(matches!(load(), Err(Error::Untrusted { .. })), "a pipe must not block");
}

#[test]
fn two_roles_in_one_directory_are_refused_before_anything_is_made() {
    let scratch = tempfile::tempdir().unwrap();
    std::fs::write(scratch.path().join("config.toml"), "[site.a]\nhost = \"h\"\ntransfer_host = \"t\"\n")
        .unwrap();
    std::fs::create_dir_all(scratch.path().join("lines/a.login")).unwrap();
    std::os::unix::fs::symlink("a.login", scratch.path().join("lines/a.transfer")).unwrap();
    let environment = Environment {
        home: Some("/home/u".into()),
        towline_home: Some(scratch.path().into()),
        ..Environment::default()
    };
    assert!(matches!(Config::load(environment), Err(Error::SharedDirectory { .. })));
    assert_eq!(std::fs::read_dir(scratch.path()).unwrap().count(), 2);
}

proptest::proptest! {
    #[test]
    fn no_text_panics(text in "\\PC{0,80}|(\\[site\\.[a-z]{1,3}\\]\n)?([a-z_]{1,12} ?= ?[\\[{\"a-z0-9.}\\]-]{0,12}\n){0,6}") {
        if let Err(Error::Entry { place, .. }) = parse(&text) {
            proptest::prop_assert!(place.line >= 1 && place.line <= text.lines().count() as u64 + 1);
        }
    }
}
