//! Host keys are checked before any credential is sent.

use towline::ssh::{Error, HostKeyRefusal, Prompt};

use crate::bench::{Bench, Human, block_on, fingerprint, public};
use crate::support::server::{Sshd, known_hosts, state_directory};

fn host_key(kind: &str) -> std::path::PathBuf {
    state_directory().join(format!("keys/host_{kind}.pub"))
}

/// A refusal, and the proof that the server has seen no attempt to log in.
fn refusal(sshd: &Sshd, error: Error) -> (&'static str, HostKeyRefusal) {
    sshd.wait_until_idle();
    assert!(!sshd.log().contains("userauth-request"), "{}", sshd.log());
    match error {
        Error::HostKeyUnknown(refusal) => ("unknown", *refusal),
        Error::HostKeyChanged(refusal) => ("changed", *refusal),
        Error::HostKeyRevoked(refusal) => ("revoked", *refusal),
        other => panic!("not about the host key: {other}"),
    }
}

#[test]
fn an_unknown_key_is_shown_with_its_fingerprint_and_recorded_on_yes() {
    let sshd = Sshd::key_only();
    let bench = Bench::for_site(sshd.address(), "ed25519");
    bench.know("# mine");
    let human = Human::answering(["yes"]);
    let transport = block_on(bench.connect(human.clone())).unwrap();
    let name = format!("[127.0.0.1]:{}", sshd.port());
    let shown = fingerprint(&host_key("ed25519"));
    assert_eq!(transport.facts().host_key_sha256, shown);
    assert_eq!(
        human.asked(),
        [Prompt::HostKey {
            host: name.clone(),
            key_type: "ssh-ed25519".to_owned(),
            fingerprint: shown,
            note: None
        }]
    );
    let line = format!("{name} {}", public(&host_key("ed25519")));
    assert_eq!(bench.known(), format!("# mine\n{line}\n"));
    // Known from now on: nobody is asked.
    block_on(bench.connect(Human::answering([]))).unwrap();
}

#[test]
fn the_fingerprint_typed_in_is_an_answer_too() {
    let sshd = Sshd::key_only();
    let bench = Bench::for_site(sshd.address(), "ed25519");
    bench.know("");
    let shown = fingerprint(&host_key("ed25519"));
    block_on(bench.connect(Human::answering([&shown]))).unwrap();
}

#[test]
fn an_unknown_key_is_refused_when_declined_unanswered_or_forbidden() {
    let sshd = Sshd::key_only();
    for (lines, answer) in [
        ("", Some("no")),
        ("", Some("SHA256:other")),
        ("", None),
        ("StrictHostKeyChecking yes", Some("yes")),
        ("BatchMode yes", Some("yes")),
    ] {
        let mut bench = Bench::for_site(sshd.address(), "ed25519");
        bench.know("");
        bench.prepend(lines);
        let human = answer.map_or_else(|| Human::answering([]), |answer| Human::answering([answer]));
        let error = block_on(bench.connect(human)).unwrap_err();
        let (kind, refusal) = refusal(&sshd, error);
        assert_eq!(kind, "unknown", "{lines} {answer:?}");
        assert_eq!(refusal.fingerprint, fingerprint(&host_key("ed25519")));
        assert_eq!(bench.known(), "");
    }
}

#[test]
fn a_known_hosts_file_that_cannot_be_read_is_named_beside_the_unknown_key() {
    let sshd = Sshd::key_only();
    let bench = Bench::for_site(sshd.address(), "ed25519");
    std::fs::remove_file(bench.path("known_hosts")).unwrap();
    std::fs::create_dir(bench.path("known_hosts")).unwrap();
    let error = block_on(bench.connect(Human::answering([]))).unwrap_err();
    let (kind, refusal) = refusal(&sshd, error);
    let detail = refusal.detail.unwrap();
    let place = format!("{}: known hosts file is skipped", bench.path("known_hosts").display());
    assert!(kind == "unknown" && detail.starts_with(&place) && detail.contains("nobody"), "{detail}");
}

#[test]
fn accept_new_records_without_asking_and_says_so() {
    let sshd = Sshd::key_only();
    let mut bench = Bench::for_site(sshd.address(), "ed25519");
    bench.know("");
    bench.prepend("StrictHostKeyChecking accept-new\nHashKnownHosts yes");
    let human = Human::answering([]);
    block_on(bench.connect(human.clone())).unwrap();
    assert!(human.told().contains(&fingerprint(&host_key("ed25519"))), "{}", human.told());
    assert!(bench.known().starts_with("|1|"), "{}", bench.known());
    block_on(bench.connect(Human::answering([]))).unwrap();
}

#[test]
fn a_changed_key_is_refused_under_every_setting_with_both_fingerprints() {
    let sshd = Sshd::key_only();
    for strict in ["yes", "ask", "accept-new", "no"] {
        let mut bench = Bench::for_site(sshd.address(), "ed25519");
        let other = public(&state_directory().join("keys/id_stranger.pub"));
        bench.know(&format!("# old\n[127.0.0.1]:{} {other}\n", sshd.port()));
        bench.prepend(&format!("StrictHostKeyChecking {strict}"));
        let error = block_on(bench.connect(Human::answering(["yes"]))).unwrap_err();
        let text = error.to_string();
        let (kind, refusal) = refusal(&sshd, error);
        assert_eq!(kind, "changed");
        assert_eq!(refusal.fingerprint, fingerprint(&host_key("ed25519")));
        let old = fingerprint(&state_directory().join("keys/id_stranger.pub"));
        assert_eq!((refusal.known[0].line, &refusal.known[0].fingerprint), (2, &old));
        assert_eq!(refusal.known[0].file, bench.path("known_hosts"));
        assert!(text.contains(&format!("{}:2 ({old})", bench.path("known_hosts").display())), "{text}");
    }
}

#[test]
fn a_revoked_key_is_refused_even_where_it_is_also_known() {
    let sshd = Sshd::key_only();
    let bench = Bench::for_site(sshd.address(), "ed25519");
    let key = public(&host_key("ed25519"));
    bench.know(&format!("[127.0.0.1]:{} {key}\n@revoked * {key}\n", sshd.port()));
    let error = block_on(bench.connect(Human::answering(["yes"]))).unwrap_err();
    let (kind, refused) = refusal(&sshd, error);
    assert_eq!((kind, refused.known[0].line), ("revoked", 2));

    let mut bench = Bench::for_site(sshd.address(), "ed25519");
    std::fs::write(bench.path("revoked"), public(&host_key("ed25519"))).unwrap();
    bench.prepend(&format!("RevokedHostKeys {}", bench.path("revoked").display()));
    let error = block_on(bench.connect(Human::answering([]))).unwrap_err();
    assert_eq!(refusal(&sshd, error).0, "revoked");

    bench.prepend(&format!("RevokedHostKeys {}", bench.path("unreadable").display()));
    let error = block_on(bench.connect(Human::answering([]))).unwrap_err();
    let (kind, refused) = refusal(&sshd, error);
    assert_eq!(kind, "revoked");
    assert!(refused.detail.unwrap().contains("unreadable"));
}

#[test]
fn a_known_type_is_asked_for_before_the_servers_favourite() {
    let sshd = Sshd::key_only();
    for kind in ["rsa", "ecdsa"] {
        let bench = Bench::for_site(sshd.address(), "ed25519");
        bench.know(&format!("[127.0.0.1]:{} {}\n", sshd.port(), public(&host_key(kind))));
        let transport = block_on(bench.connect(Human::answering([]))).unwrap();
        assert_eq!(transport.facts().host_key_sha256, fingerprint(&host_key(kind)));
    }
}

#[test]
fn a_sites_own_known_hosts_file_replaces_the_configured_one() {
    let sshd = Sshd::key_only();
    let mut bench = Bench::for_site(sshd.address(), "ed25519");
    let own = bench.path("own_known_hosts");
    std::fs::write(&own, known_hosts(sshd.port())).unwrap();
    bench.know("");
    bench.overrides.known_hosts = Some(own);
    block_on(bench.connect(Human::answering([]))).unwrap();
}

#[test]
fn case_049_an_alias_replaces_host_and_port() {
    let sshd = Sshd::key_only();
    let mut bench = Bench::for_site(sshd.address(), "ed25519");
    bench.know(&format!("cluster {}\n", public(&host_key("ed25519"))));
    bench.prepend("HostKeyAlias CLUSTER");
    block_on(bench.connect(Human::answering([]))).unwrap();
}
