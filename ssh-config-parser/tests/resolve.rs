//! Promises of the resolver beyond what the real client can judge: refusals, notes, places, routes, snapshots.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    missing_docs,
    reason = "tests fail by panicking"
)]

use std::cell::RefCell;
use std::fs;
use std::net::IpAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ssh_config_parser::{
    IdentityAgent, Reason, Rejection, Resolved, Severity, Snapshot, StrictHostKeyChecking, World, check,
};

/// A world of its own in a folder.
struct Room {
    folder: tempfile::TempDir,
}

impl Room {
    fn new() -> Room {
        Room { folder: tempfile::tempdir().unwrap() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text.replace("DIR", self.folder.path().to_str().unwrap())).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        path
    }

    fn world(&self) -> World {
        World {
            home: self.folder.path().to_path_buf(),
            home_env: None,
            user: "me".to_owned(),
            uid: nix::unistd::getuid().as_raw(),
            local_host: "here.lan".to_owned(),
            env: [("SET".into(), "/set".into())].into(),
        }
    }

    fn snapshot(&self, text: &str) -> Snapshot {
        let file = self.file("config", text);
        Snapshot::read(Some(&file), self.world()).unwrap()
    }

    fn resolve(&self, text: &str, host: &str) -> Result<Resolved, Rejection> {
        self.snapshot(text).resolve(host)
    }

    fn rejected(&self, text: &str, host: &str) -> (Reason, Option<u64>) {
        let rejection = self.resolve(text, host).unwrap_err();
        (rejection.reason, rejection.line)
    }
}

#[test]
fn an_effective_value_that_is_refused_names_the_line_that_won() {
    let room = Room::new();
    for (text, line) in [
        ("Host web\nProxyCommand nc %h %p", 2),
        ("KnownHostsCommand /x", 1),
        ("User a\nPKCS11Provider /x.so", 2),
        ("NoHostAuthenticationForLocalhost yes", 1),
        ("LocalCommand x\nPermitLocalCommand yes", 1),
        ("CanonicalizeHostname yes\nCanonicalizePermittedCNAMEs a:b", 2),
        ("RefuseConnection \"gone\"\nPort 0", 1),
        ("ProxyCommand x\nKnownHostsCommand y", 1),
        ("KnownHostsCommand y\nProxyCommand x", 1),
    ] {
        assert_eq!(room.rejected(text, "web"), (Reason::Refused, Some(line)), "{text}");
    }
    for text in [
        "Host db\nProxyCommand nc\nKnownHostsCommand /x\nRefuseConnection no",
        "ProxyCommand none\nProxyCommand nc",
        "ProxyJump j\nProxyCommand nc",
        "KnownHostsCommand none\nPKCS11Provider none\nNoHostAuthenticationForLocalhost no",
        "LocalCommand x",
        "PermitLocalCommand yes",
        "CanonicalizePermittedCNAMEs a:b",
    ] {
        assert!(room.resolve(text, "web").is_ok(), "{text}");
    }
}

#[test]
fn the_first_problem_in_reading_order_is_the_one_that_is_told() {
    let room = Room::new();
    room.file("match.conf", "User a\n=Match exec \"touch DIR/F\"\n");
    for (text, expected) in [
        ("Include DIR/match.conf\nPort 0", (Reason::Match, Some(2))),
        ("Port 0\nInclude DIR/match.conf", (Reason::Syntax, Some(1))),
        ("Match", (Reason::Match, Some(1))),
        ("Match host \"open", (Reason::Match, Some(1))),
        ("IgnoreUnknown *\nHost db\nmAtCh all", (Reason::Match, Some(3))),
        ("ProxyCommand x\nPort 0", (Reason::Syntax, Some(2))),
        ("IdentityAgent ${NOPE}", (Reason::Expansion, Some(1))),
        ("ProxyCommand x\nUserKnownHostsFile %z", (Reason::Refused, Some(1))),
        ("UserKnownHostsFile %z\nProxyCommand x", (Reason::Expansion, Some(1))),
        ("Port 22\nHostName %p", (Reason::Expansion, Some(2))),
        ("Host *\n\nProxyJump web", (Reason::JumpLoop, Some(3))),
        ("Ciphers aes128-ctr\nHostKeyAlgorithms !ssh-rsa", (Reason::Syntax, Some(2))),
        ("ConnectionAttempts 0", (Reason::Syntax, Some(1))),
        ("Include %z", (Reason::Expansion, Some(1))),
        ("Include ${NOPE}/x", (Reason::Expansion, Some(1))),
    ] {
        assert_eq!(room.rejected(text, "web"), expected, "{text}");
    }
    assert!(!room.path("F").exists());
}

#[test]
fn names_that_a_shell_might_misread_are_not_hosts() {
    let room = Room::new();
    for host in
        ["-x", "a;b", "a b", "a,b", "$(x)", "a'b", "", "@web", "ssh://-x", "ssh://h/p", "-u@web", "a\\@web"]
    {
        assert_eq!(room.rejected("", host).0, Reason::Syntax, "{host:?}");
    }
    let resolved = room.resolve("User never\nPort 9", "ssh://al%20ice@WEB:2222").unwrap();
    assert_eq!((resolved.user.as_str(), resolved.port, resolved.hostname.as_str()), ("al ice", 2222, "web"));
    let resolved = room.resolve("User never", "a@b@web").unwrap();
    assert_eq!((resolved.user.as_str(), resolved.typed_host.as_str()), ("a@b", "web"));
}

#[test]
fn typed_values_are_expanded_and_ready_to_use() {
    let room = Room::new();
    let text = "Host web\nHostName web.example.net\nUser svc-%n\nPort 2222\nConnectTimeout 7\n\
        ServerAliveInterval 0\nIdentityFile ~/k-%r\nIdentityFile ${NOPE}/k\nIdentityFile none\n\
        CertificateFile ${SET}/c\nIdentityAgent $SET\nUserKnownHostsFile ~/kh-%k\nHostKeyAlias ALIAS\n\
        ProxyJump a@one:22,ssh://two:2200\nStrictHostKeyChecking off\nRekeyLimit 1G 1h\n\
        PreferredAuthentications publickey,password\nRevokedHostKeys ~/r1 /r2\nSetEnv A=%h B=${SET}\n";
    let resolved = room.resolve(text, "web").unwrap();
    let home = |name: &str| room.path(name);
    assert_eq!(resolved.user, "svc-web");
    assert_eq!(resolved.connect_timeout, Some(Duration::from_secs(7)));
    assert_eq!(resolved.server_alive_interval, None);
    let keys: Vec<&Path> = resolved.identity_files.iter().map(|key| key.path.as_path()).collect();
    assert_eq!(keys, [home("k-svc-web")]);
    assert!(resolved.identity_files[0].configured);
    assert_eq!(resolved.certificate_files, [Path::new("/set/c")]);
    assert_eq!(resolved.identity_agent, IdentityAgent::Path("/set".into()));
    assert_eq!(resolved.user_known_hosts_files, [home("kh-alias")]);
    assert_eq!(resolved.host_key_alias.as_deref(), Some("alias"));
    assert_eq!(resolved.strict_host_key_checking, StrictHostKeyChecking::No);
    assert_eq!(resolved.rekey_limit_bytes, Some(1 << 30));
    assert_eq!(resolved.rekey_interval, Some(Duration::from_secs(3600)));
    assert_eq!(resolved.revoked_host_keys, [home("r1"), PathBuf::from("/r2")]);
    assert_eq!(resolved.preferred_authentications.unwrap(), ["publickey", "password"]);
    let hops: Vec<(Option<&str>, &str, Option<u16>)> =
        resolved.jump.iter().map(|hop| (hop.user.as_deref(), hop.host.as_str(), hop.port)).collect();
    assert_eq!(hops, [(Some("a"), "one", Some(22)), (None, "two", Some(2200))]);
    assert_eq!(resolved.printed["setenv"], serde_json::json!(["A=web.example.net", "B=/set"]));
    assert_eq!(resolved.host_key_algorithms, None);
}

#[test]
fn without_a_line_the_defaults_hold() {
    let room = Room::new();
    let resolved = room.resolve("", "web").unwrap();
    assert_eq!((resolved.user.as_str(), resolved.port), ("me", 22));
    assert_eq!(resolved.identity_files.len(), 7);
    assert!(resolved.identity_files.iter().all(|key| !key.configured));
    assert_eq!(
        resolved.user_known_hosts_files,
        [room.path(".ssh/known_hosts"), room.path(".ssh/known_hosts2")]
    );
    assert_eq!(resolved.identity_agent, IdentityAgent::Default);
    assert!(resolved.notes.is_empty());
}

#[test]
fn what_has_no_effect_is_noted_once_with_its_place() {
    let room = Room::new();
    let text = "ForwardAgent yes\nHost db\nForwardX11 yes\nHost *\nControlMaster auto\nControlPath /x\n\
        SendEnv A\nSendEnv B\nLocalForward 80 a:80\nForwardX11 no\nTunnel no\nProxyJump none # x\n\
        StrictHostKeyChecking no\nIdentityFile ${NOPE}\n";
    let resolved = room.resolve(text, "web").unwrap();
    let told: Vec<u64> = resolved.notes.iter().map(|note| note.line).collect();
    assert_eq!(told, [1, 5, 6, 7, 9, 12, 13, 14]);
    assert!(resolved.notes.iter().all(|note| note.file == room.path("config")));
    assert!(resolved.jump.is_empty());
}

#[test]
fn later_edits_change_nothing() {
    let room = Room::new();
    room.file("a.conf", "User one\n");
    room.file("d/x.conf", "Port 1\n");
    let snapshot = room.snapshot("Include DIR/a.conf DIR/d/*.conf DIR/late.conf\n");
    room.file("a.conf", "User two\n");
    room.file("config", "User three\n");
    room.file("d/y.conf", "ConnectTimeout 5\n");
    room.file("late.conf", "ConnectTimeout 6\n");
    fs::remove_file(room.path("d/x.conf")).unwrap();
    let resolved = snapshot.resolve("web").unwrap();
    assert_eq!((resolved.user.as_str(), resolved.port, resolved.connect_timeout), ("one", 1, None));
}

#[test]
fn an_include_may_name_the_host_and_is_then_kept_as_well() {
    let room = Room::new();
    room.file("web.conf", "User w\n");
    room.file("h.example-22-me.conf", "Port 5\n");
    let snapshot = room.snapshot("Include DIR/%n.conf\nHostName h.example\nInclude DIR/%h-%p-%u.conf\n");
    let resolved = snapshot.resolve("web").unwrap();
    assert_eq!((resolved.user.as_str(), resolved.port), ("w", 5));
    room.file("web.conf", "User later\n");
    assert_eq!(snapshot.resolve("web").unwrap().user, "w");
    assert_eq!(snapshot.resolve("db").unwrap().user, "me");
    assert_eq!(snapshot.flatten().unwrap_err().line, Some(1));
}

#[test]
fn the_default_file_may_be_missing_and_must_be_ones_own() {
    let room = Room::new();
    assert!(Snapshot::read(None, room.world()).unwrap().resolve("web").is_ok());
    let gone = room.path("gone");
    assert_eq!(Snapshot::read(Some(&gone), room.world()).unwrap_err().reason, Reason::Io);
    let default = room.file(".ssh/config", "User mine\nInclude rel.conf\n");
    room.file(".ssh/rel.conf", "Port 5\n");
    let resolved = Snapshot::read(None, room.world()).unwrap().resolve("web").unwrap();
    assert_eq!((resolved.user.as_str(), resolved.port), ("mine", 5));
    fs::set_permissions(&default, fs::Permissions::from_mode(0o664)).unwrap();
    let rejection = Snapshot::read(None, room.world()).unwrap_err();
    assert_eq!(
        (rejection.reason, rejection.file, rejection.line),
        (Reason::Permissions, Some(default), None)
    );
}

#[test]
fn a_named_pipe_or_a_folder_in_a_files_place_is_told() {
    let room = Room::new();
    let pipe = room.path("pipe");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let refused = Snapshot::read(Some(&pipe), room.world()).unwrap_err();
    assert_eq!(refused.reason, Reason::Io);
    assert!(refused.message.contains("named pipe"), "{refused}");
    let refused = Snapshot::read(Some("/".as_ref()), room.world()).unwrap_err();
    assert!(refused.reason == Reason::Io && refused.message.contains("folder"), "{refused}");
    let text = format!("Port 22\nInclude {}\n", pipe.display());
    assert_eq!(room.rejected(&text, "web"), (Reason::Include, Some(2)));
    let known = ssh_config_parser::known_hosts::KnownHosts::load(std::slice::from_ref(&pipe), &[]);
    assert!(known.notes()[0].message.contains("named pipe"), "{:?}", known.notes());
    // An endless file is no reason to fill the memory.
    let known = ssh_config_parser::known_hosts::KnownHosts::load(&["/dev/zero".into()], &[]);
    assert!(known.notes()[0].message.contains("longer than"), "{:?}", known.notes());
}

#[test]
fn an_included_file_that_others_may_write_is_not_read() {
    let room = Room::new();
    let file = room.file("a.conf", "User a\n");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o646)).unwrap();
    let rejection = room.resolve("Host db\nInclude DIR/a.conf\n", "web").unwrap_err();
    assert_eq!((rejection.reason, rejection.file, rejection.line), (Reason::Permissions, Some(file), None));
}

#[test]
fn relative_names_and_tildes_of_include_follow_home() {
    let room = Room::new();
    room.file("other/.ssh/a.conf", "User a\n");
    room.file("other/b.conf", "Port 5\n");
    let file = room.file("config", "Include a.conf ~/b.conf\n");
    let world = World { home_env: Some(room.path("other")), ..room.world() };
    let resolved = Snapshot::read(Some(&file), world).unwrap().resolve("web").unwrap();
    assert_eq!((resolved.user.as_str(), resolved.port), ("a", 5));
}

#[test]
fn a_pattern_without_matches_is_no_error_wherever_the_main_file_lies() {
    let room = Room::new();
    room.file(".ssh/rel.conf", "User under_ssh\n");
    room.file("elsewhere/rel.conf", "User beside\n");
    let file = room.file("elsewhere/config", "Include none-*.conf\nInclude rel.conf\n");
    let resolved = Snapshot::read(Some(&file), room.world()).unwrap().resolve("web").unwrap();
    assert_eq!(resolved.user, "under_ssh");
}

#[test]
fn two_files_that_include_each_other_are_an_error_that_names_the_chain() {
    let room = Room::new();
    room.file("a.conf", "Include DIR/b.conf\n");
    room.file("b.conf", "Include DIR/a.conf\n");
    let rejection = room.resolve("Host db\nInclude DIR/a.conf\n", "web").unwrap_err();
    assert_eq!(rejection.reason, Reason::Include);
    assert!(rejection.message.contains("a.conf") && rejection.message.contains("b.conf"), "{rejection}");
    assert_eq!(room.snapshot("Include DIR/a.conf\n").flatten().unwrap_err().reason, Reason::Include);
}

#[test]
fn a_fan_out_of_includes_ends() {
    let room = Room::new();
    for depth in 0..15 {
        let next = format!("Include DIR/f{}.conf\n", depth + 1);
        room.file(&format!("f{depth}.conf"), &next.repeat(10));
    }
    room.file("f15.conf", "User deep\n");
    let rejection = room.resolve("Include DIR/f0.conf\n", "web").unwrap_err();
    assert_eq!(rejection.reason, Reason::Include);
    assert!(rejection.message.contains("10000"));
    assert!(check(Some(&room.path("config")), &room.world()).is_empty());
}

#[test]
fn the_scope_of_the_including_file_comes_back() {
    let room = Room::new();
    room.file("inc.conf", "Host other\n  Port 7\n");
    let resolved = room.resolve("Include DIR/inc.conf\nUser u\n", "o2").unwrap();
    assert_eq!((resolved.user.as_str(), resolved.port), ("u", 22));
}

#[test]
fn a_flattened_text_keeps_scopes_and_restates_the_block() {
    let room = Room::new();
    room.file("inc.conf", "Port 1\nHost web*\n  Port 2\nHost z\n  Port 3\n");
    let snapshot = room.snapshot("User u\nHost *.net !db*\n  Include DIR/inc.conf\n  Compression yes\n");
    let flat = snapshot.flatten().unwrap();
    let text: Vec<String> = flat.text_lossy().lines().map(|line| line.trim().to_owned()).collect();
    let lines: Vec<&str> = text.iter().filter(|line| !line.starts_with('#')).map(String::as_str).collect();
    assert_eq!(
        lines,
        [
            "User u",
            "Host *.net !db*",
            "Port 1",
            "Host !db* web*.net",
            "Port 2",
            "Host !*",
            "Port 3",
            "Host !db* *.net",
            "Compression yes",
        ]
    );
    assert_eq!(flat.files, [room.path("config"), room.path("inc.conf")]);
}

#[test]
fn nested_blocks_that_no_line_can_name_are_an_error_with_their_place() {
    let room = Room::new();
    room.file("inc.conf", "User a\nHost ??\n  Port 1\n");
    let rejection = room.snapshot("Host *!x\n  Include DIR/inc.conf\n").flatten().unwrap_err();
    assert_eq!(
        (rejection.reason, rejection.file, rejection.line),
        (Reason::Include, Some(room.path("inc.conf")), Some(2))
    );
}

#[test]
fn domains_are_tried_in_order_and_the_files_read_again() {
    let room = Room::new();
    let text = "CanonicalizeHostname yes\nCanonicalDomains a.test b.test\nHost web.b.test\nUser found\n";
    let snapshot = room.snapshot(text);
    let asked = RefCell::new(Vec::new());
    let lookup = |name: &str| {
        asked.borrow_mut().push(name.to_owned());
        let address: IpAddr = "192.0.2.1".parse().unwrap();
        if name == "web.b.test." { vec![address] } else { Vec::new() }
    };
    let resolved = snapshot.resolve_with("WEB", &lookup).unwrap();
    assert_eq!((resolved.hostname.as_str(), resolved.user.as_str()), ("web.b.test", "found"));
    assert_eq!(*asked.borrow(), ["web.a.test.", "web.b.test."]);
    for host in ["10.1", "a.b.c", "2001:db8::1"] {
        snapshot.resolve_with(host, &lookup).unwrap();
    }
    assert_eq!(asked.borrow().len(), 2, "addresses and names with many dots are not looked up");
    assert_eq!(snapshot.resolve_with("db", &lookup).unwrap().hostname, "db");
    let strict = room.snapshot(&format!("CanonicalizeFallbackLocal no\n{text}"));
    assert!(strict.resolve_with("db", &lookup).is_err());
    let jumped = room.snapshot(&format!("ProxyJump j\n{text}"));
    assert_eq!(jumped.resolve_with("web", &lookup).unwrap().hostname, "web");
    let six = room.snapshot(&format!("AddressFamily inet6\n{text}"));
    assert_eq!(six.resolve_with("web", &lookup).unwrap().hostname, "web");
}

#[test]
fn a_route_lists_every_hop_and_follows_the_first_ones_own() {
    let room = Room::new();
    let text = "Host target\nProxyJump first,last:2200\nHost first\nProxyJump gate\nHost last\n\
        ProxyJump never\nUser l\nHost gate\nHostName 192.0.2.9\n";
    let snapshot = room.snapshot(text);
    let route = snapshot.resolve_route("target").unwrap();
    let hops: Vec<(&str, u16, &str)> =
        route.iter().map(|hop| (hop.hostname.as_str(), hop.port, hop.user.as_str())).collect();
    assert_eq!(
        hops,
        [("192.0.2.9", 22, "me"), ("first", 22, "me"), ("last", 2200, "l"), ("target", 22, "me")]
    );
}

#[test]
fn a_destination_may_be_an_address_in_brackets_with_a_port() {
    let room = Room::new();
    let snapshot = room.snapshot("Host 2001:db8::1\n  User alice\nHost *\n  Port 2200\n");
    for (typed, user, port) in [
        ("[2001:db8::1]:2222", "alice", 2222),
        ("bob@[2001:db8::1]:22", "bob", 22),
        ("[2001:db8::1]", "alice", 2200),
    ] {
        let route = snapshot.resolve_route(typed).unwrap();
        assert_eq!(
            (route[0].hostname.as_str(), route[0].user.as_str(), route[0].port),
            ("2001:db8::1", user, port)
        );
    }
    for typed in ["[2001:db8::1", "[::1]:0", "[::1]:70000", "@[::1]:22", "[]:22"] {
        assert_eq!(snapshot.resolve_route(typed).unwrap_err().reason, Reason::Syntax, "{typed}");
    }
}

#[test]
fn a_route_that_comes_by_a_host_twice_or_never_ends_is_refused() {
    let room = Room::new();
    let rejected = |text: &str| room.snapshot(text).resolve_route("a").unwrap_err().reason;
    assert_eq!(rejected("Host a\nProxyJump b\nHost b\nProxyJump c\nHost c\nProxyJump b\n"), Reason::JumpLoop);
    assert_eq!(rejected("Host a\nProxyJump b\nHost b\nProxyJump a\n"), Reason::JumpLoop);
    let chain: String = (0..20).map(|hop| format!("Host h{hop}\nProxyJump h{}\n", hop + 1)).collect();
    assert_eq!(rejected(&format!("Host a\nProxyJump h0\n{chain}")), Reason::JumpLoop);
    assert_eq!(rejected("Host a\nProxyJump b\nHost b\nProxyCommand x\n"), Reason::Refused);
}

#[test]
fn check_tells_everything_in_reading_order() {
    let room = Room::new();
    let unsafe_file = room.file("w.conf", "Port 0\n");
    fs::set_permissions(&unsafe_file, fs::Permissions::from_mode(0o666)).unwrap();
    room.file("config2", "Include DIR/config\n");
    let text = "Port 0\nMatch all\nForwardAgent yes\nUnknown x\nIgnoreUnknown Unk*\nUnknown y\n\
        Host db\nProxyCommand x\nInclude DIR/w.conf\nInclude DIR/config2\nUserKnownHostsFile /x\nHost \"\"\n";
    let file = room.file("config", text);
    let told: Vec<(String, Option<u64>, &str)> = check(Some(&file), &room.world())
        .into_iter()
        .map(|finding| (finding.reason, finding.line, finding.severity.as_str()))
        .collect();
    let expected: Vec<(String, Option<u64>, &str)> = [
        ("syntax", Some(1), "error"),
        ("match", Some(2), "error"),
        ("note", Some(3), "note"),
        ("syntax", Some(4), "error"),
        ("refused", Some(8), "error"),
        ("permissions", None, "error"),
        ("syntax", Some(1), "error"),
        ("include", Some(1), "error"),
        ("syntax", Some(12), "error"),
    ]
    .map(|(reason, line, severity)| (reason.to_owned(), line, severity))
    .to_vec();
    assert_eq!(told, expected);
    let gone = check(Some(&room.path("gone")), &room.world());
    assert_eq!((gone[0].reason.as_str(), gone[0].severity), ("io", Severity::Error));
    assert!(check(Some(&room.file("good", "Host *\nUser a\n")), &room.world()).is_empty());
}

#[test]
fn a_rejection_renders_its_kind_place_and_message() {
    let room = Room::new();
    let json = room.resolve("User a\nPort 0\n", "web").unwrap_err().to_json();
    assert_eq!(json["kind"], "ssh_config_rejected");
    assert_eq!(json["reason"], "syntax");
    assert_eq!(json["file"], room.path("config").to_str().unwrap());
    assert_eq!(json["line"], 2);
    let json = room.resolve("", "-x").unwrap_err().to_json();
    assert!(json["file"].is_null() && json["line"].is_null());
}

#[test]
fn bytes_that_are_not_text_are_kept_and_noted() {
    let room = Room::new();
    let file = room.path("config");
    fs::write(&file, b"IdentityFile /k/\xff\nHostKeyAlias a\xff\n").unwrap();
    let resolved = Snapshot::read(Some(&file), room.world()).unwrap().resolve("web").unwrap();
    assert_eq!(resolved.printed["identityfile"], serde_json::json!(["/k/\u{fffd}"]));
    assert_eq!(resolved.identity_files[0].path.as_os_str().as_encoded_bytes(), b"/k/\xff");
    assert_eq!(resolved.notes.iter().map(|note| note.line).collect::<Vec<u64>>(), [1, 2]);
}
