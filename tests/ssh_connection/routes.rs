//! Jump hosts, and where connections go out.

use towline::ssh::{Error, Phase, connect};

use crate::bench::{Bench, DEADLINES, Human, block_on, collect};
use crate::support::server::{Auth, Sshd, ThrowawayOptions, known_hosts};

#[test]
fn each_hop_is_one_connection_with_one_channel_and_its_own_settings() {
    let outer = Sshd::throwaway(ThrowawayOptions { auth: Auth::Menu, ..ThrowawayOptions::default() });
    let middle = Sshd::key_only();
    let inner = Sshd::key_only();
    let mut bench = Bench::for_site(inner.address(), "ed25519");
    bench.host("outer", outer.address(), "rsa", " User bob");
    bench.host("middle", middle.address(), "ecdsa", "");
    bench.prepend("Host site\n ProxyJump outer,middle");
    bench.know(&[outer.port(), middle.port(), inner.port()].map(known_hosts).concat());
    let human = Human::answering(["1"]);
    let ran = block_on(async {
        let transport = connect(&bench.target("site"), human.clone(), &DEADLINES).await.unwrap();
        let facts = transport.facts().clone();
        assert_eq!((facts.connections, facts.prompts), (3, 1));
        assert_eq!(
            facts.jumps,
            [format!("bob@127.0.0.1:{}", outer.port()), format!("alice@127.0.0.1:{}", middle.port())]
        );
        assert_eq!(facts.address, Some(outer.address()));
        collect(transport.into_channel("id -un; head -c 3000000 /dev/zero | wc -c").await.unwrap()).await
    });
    assert_eq!(ran.text(), "alice\n3000000");
    for (sshd, forwarded, sessions) in [(&outer, 1, 0), (&middle, 1, 0), (&inner, 0, 1)] {
        sshd.wait_until_idle();
        assert_eq!(sshd.connections(), 1);
        assert_eq!((sshd.forwarded_channels(), sshd.session_channels()), (forwarded, sessions));
    }
}

#[test]
fn the_hosts_key_behind_a_jump_is_checked_under_its_own_name() {
    let outer = Sshd::key_only();
    let inner = Sshd::key_only();
    let mut bench = Bench::for_site(inner.address(), "ed25519");
    bench.host("outer", outer.address(), "ed25519", "");
    bench.prepend("Host site\n ProxyJump outer");
    bench.know(&known_hosts(outer.port()));
    let error = block_on(bench.connect(Human::answering([]))).unwrap_err();
    let Error::HostKeyUnknown(refusal) = error else { panic!("{error}") };
    assert_eq!(refusal.name, format!("[127.0.0.1]:{}", inner.port()));
    inner.wait_until_idle();
    assert!(!inner.log().contains("userauth-request"));
}

#[test]
fn a_jump_host_that_may_not_forward_is_named() {
    let outer = Sshd::throwaway(ThrowawayOptions {
        lines: vec!["AllowTcpForwarding no".to_owned()],
        ..ThrowawayOptions::default()
    });
    let inner = Sshd::key_only();
    let mut bench = Bench::for_site(inner.address(), "ed25519");
    bench.host("outer", outer.address(), "ed25519", "");
    bench.prepend("Host site\n ProxyJump outer");
    bench.know(&known_hosts(outer.port()));
    let error = block_on(bench.connect(Human::answering([]))).unwrap_err();
    let text = error.to_string();
    let Error::ConnectFailed { phase, .. } = error else { panic!("{text}") };
    assert_eq!(phase, Phase::Tcp);
    assert!(text.contains("jump host alice@127.0.0.1") && text.contains("prohibited"), "{text}");
    assert_eq!(inner.connections(), 0);
}

#[test]
fn bind_address_and_interface_are_honoured() {
    let sshd = Sshd::key_only();
    for (line, wanted) in [("BindAddress 127.0.0.5", "127.0.0.5"), ("BindInterface lo", "127.0.0.1")] {
        let mut bench = Bench::for_site(sshd.address(), "ed25519");
        bench.prepend(line);
        let transport = block_on(bench.connect(Human::answering([]))).unwrap();
        let local = transport.facts().local_address.unwrap();
        assert_eq!(local.ip().to_string(), wanted);
    }
    let mut bench = Bench::for_site(sshd.address(), "ed25519");
    bench.prepend("BindInterface no-such-if");
    let error = block_on(bench.connect(Human::answering([]))).unwrap_err().to_string();
    assert!(error.contains("no-such-if"), "{error}");
}

#[test]
fn all_addresses_of_a_name_are_tried_in_order() {
    let sshd = Sshd::key_only();
    // `localhost` may be ::1 first, where nothing listens.
    let mut bench = Bench::for_site(sshd.address(), "ed25519");
    bench.prepend("HostName localhost\nHostKeyAlias here");
    bench.know(&known_hosts(sshd.port()).replace(&format!("[127.0.0.1]:{}", sshd.port()), "here"));
    block_on(bench.connect(Human::answering([]))).unwrap();
}
