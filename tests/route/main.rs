//! The route guard in network namespaces: real routes, rules and devices, and what the guard makes of them.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    missing_docs,
    reason = "tests fail by panicking"
)]
#![cfg(target_os = "linux")]

mod doctor;
mod world;

use std::net::{SocketAddr, UdpSocket};

use towline::config::RouteKind;
use towline::route::{Error, Kernel as _, Linux, Status, prove};
use world::{
    HOST, assert_problem, assert_proven, in_namespace, ip, leave, prove as guard, prove_as, spec, try_ip,
    tunnel, uplink,
};

const HOST_V6: &str = "[2001:db8::7]:22";

#[test]
fn a_tunnel_with_the_evidence_is_proven_in_both_families() {
    in_namespace(|| {
        uplink();
        let _served = tunnel("tun0");
        let proof = guard(HOST);
        assert_proven(&proof);
        assert_eq!(proof.addresses[0].interface, "tun0");
        assert_eq!(proof.addresses[0].source.to_string(), "10.8.0.2");
        // A resolver may give IPv4 addresses in IPv6's clothes.
        assert_proven(&guard("[::ffff:192.0.2.7]:22"));
        let mut v6 = spec("tun?", RouteKind::Any);
        v6.evidence.cidr = Some(("fd00:8::".parse().unwrap(), 64));
        let proof = prove(&v6, &[HOST_V6.parse().unwrap()]);
        assert_proven(&proof);
        assert_eq!(proof.addresses[0].source.to_string(), "fd00:8::2");
    });
}

#[test]
fn a_host_that_is_reached_by_the_uplink_is_off_the_vpn() {
    in_namespace(|| {
        uplink();
        let _served = tunnel("tun0");
        for host in ["203.0.113.1:22", "[fd00:1::1]:22"] {
            let problem = assert_problem(&guard(host), "interface", Status::Failed);
            assert!(problem.message.contains("eth0"), "{}", problem.message);
        }
        // Of a host with both kinds of addresses only the proven one may be dialled.
        let both: Vec<SocketAddr> = ["203.0.113.1:22", HOST].map(|address| address.parse().unwrap()).to_vec();
        let proof = prove(&spec("tun*", RouteKind::Tun), &both);
        assert_eq!(proof.addresses.iter().map(|checked| checked.address).collect::<Vec<_>>(), both[1..]);
    });
}

#[test]
fn a_tunnel_with_the_right_name_whose_address_is_not_in_the_evidence_is_off_the_vpn() {
    in_namespace(|| {
        uplink();
        let _served = tunnel("tun0");
        let mut spec = spec("tun*", RouteKind::Tun);
        spec.evidence.cidr = Some(("10.9.0.0".parse().unwrap(), 16));
        assert_problem(&prove(&spec, &[HOST.parse().unwrap()]), "cidr", Status::Failed);
    });
}

#[test]
fn a_device_that_only_bears_a_tunnel_s_name_is_off_the_vpn() {
    in_namespace(|| {
        ip("link add wg0 type veth peer name far0");
        ip("link set far0 up");
        ip("link set wg0 up");
        ip("address add 10.8.0.2/24 dev wg0");
        ip("route add 192.0.2.0/24 dev wg0");
        for kind in [RouteKind::Wireguard, RouteKind::Tun, RouteKind::Any] {
            let proof = prove(&spec("wg*", kind), &[HOST.parse().unwrap()]);
            let problem = assert_problem(&proof, "link", Status::Failed);
            assert!(problem.message.contains("veth"), "{}", problem.message);
        }
    });
}

#[test]
fn a_tunnel_that_nobody_serves_is_off_the_vpn() {
    in_namespace(|| {
        ip("tuntap add dev tun0 mode tun");
        let served = tunnel("tun0");
        assert_proven(&guard(HOST));
        leave(served, "tun0");
        assert_problem(&guard(HOST), "link", Status::Failed);
    });
}

#[test]
fn routes_that_lead_nowhere_cannot_be_told() {
    in_namespace(|| {
        uplink();
        let _served = tunnel("tun0");
        ip("route add unreachable 198.51.100.1");
        ip("route add blackhole 198.51.100.2");
        ip("route add prohibit 198.51.100.3");
        ip("-6 route add unreachable 2001:db9::1");
        ip("-6 route add blackhole 2001:db9::2");
        ip("-6 route add prohibit 2001:db9::3");
        for (host, what) in [
            ("127.0.0.1:22", "this machine"),
            ("[::1]:22", "this machine"),
            ("10.8.0.2:22", "this machine"),
            ("[fd00:8::2]:22", "this machine"),
            ("198.51.100.1:22", "unreachable"),
            ("198.51.100.2:22", "blackhole"),
            ("198.51.100.3:22", "prohibited"),
            ("[2001:db9::1]:22", "unreachable"),
            ("[2001:db9::2]:22", "blackhole"),
            ("[2001:db9::3]:22", "prohibited"),
        ] {
            let problem = assert_problem(&guard(host), "route", Status::Indeterminate);
            assert!(problem.message.contains(what), "{host}: {}", problem.message);
        }
        ip("route del default");
        ip("route del default via fd00:1::1");
        for host in ["203.0.113.1:22", "[2001:db9::4]:22"] {
            assert_problem(&guard(host), "route", Status::Indeterminate);
        }
    });
}

#[test]
fn rules_about_marks_users_ports_and_sources_are_honoured() {
    in_namespace(|| {
        uplink();
        let _served = tunnel("tun0");
        ip("route add default via 192.168.1.1 table 100");
        ip("rule add fwmark 7 table 100");
        assert_proven(&prove_as(0, 0, HOST));
        assert_proven(&guard(HOST));
        assert_problem(&prove_as(7, 0, HOST), "interface", Status::Failed);
        ip("rule del fwmark 7 table 100");

        ip("rule add uidrange 1000-1000 table 100");
        assert_proven(&prove_as(0, 0, HOST));
        assert_problem(&prove_as(0, 1000, HOST), "interface", Status::Failed);
        ip("rule del uidrange 1000-1000 table 100");

        ip("rule add ipproto tcp dport 22 table 100");
        assert_problem(&guard(HOST), "interface", Status::Failed);
        assert_proven(&guard("192.0.2.7:2222"));
        ip("rule del ipproto tcp dport 22 table 100");

        // The first packet is routed without a source, the following ones with it.
        ip("rule add from 10.8.0.2 table 100");
        assert_problem(&guard(HOST), "source", Status::Failed);
        ip("rule del from 10.8.0.2 table 100");
        assert_proven(&guard(HOST));
    });
}

#[test]
fn a_source_that_is_not_the_tunnel_s_is_off_the_vpn() {
    in_namespace(|| {
        uplink();
        let _served = tunnel("tun0");
        ip("route replace 192.0.2.0/24 dev tun0 src 192.168.1.2");
        assert_problem(&guard(HOST), "source", Status::Failed);
    });
}

#[test]
fn ways_that_share_the_traffic_cannot_be_told() {
    in_namespace(|| {
        uplink();
        let _served = tunnel("tun0");
        ip("route replace 192.0.2.0/24 nexthop dev tun0 nexthop via 192.168.1.1");
        ip("route del 2001:db8::/32 dev tun0");
        ip("-6 route add 2001:db8::/32 nexthop via fd00:8::1 dev tun0 nexthop via fd00:1::1 dev eth0");
        for host in [HOST, HOST_V6] {
            assert_problem(&guard(host), "route", Status::Indeterminate);
        }
    });
}

#[test]
fn a_route_that_changes_is_seen_by_the_second_proof_and_by_the_socket() {
    in_namespace(|| {
        uplink();
        let served = tunnel("tun0");
        let proof = guard(HOST);
        assert_proven(&proof);
        // Connecting a datagram socket sends nothing; it only makes the kernel choose the way.
        let local = || {
            let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
            socket.connect(HOST).unwrap();
            socket.local_addr().unwrap()
        };
        proof.verify_socket(HOST.parse().unwrap(), local()).unwrap();
        ip("route replace 192.0.2.0/24 via 192.168.1.1");
        assert_problem(&guard(HOST), "interface", Status::Failed);
        let other = proof.verify_socket(HOST.parse().unwrap(), local());
        assert!(matches!(other, Err(Error::OtherSource { .. })), "{other:?}");
        // The VPN's end takes device and route away, and the default route takes over.
        ip("route replace 192.0.2.0/24 dev tun0");
        assert_proven(&guard(HOST));
        leave(served, "tun0");
        assert_problem(&guard(HOST), "interface", Status::Failed);
    });
}

#[test]
fn evidence_that_is_not_there_cannot_be_told_and_every_evidence_must_hold() {
    in_namespace(|| {
        let _served = tunnel("tun0");
        let mut spec = spec("tun*", RouteKind::Tun);
        spec.evidence.wireguard_peer = Some("AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=".to_owned());
        assert_problem(&prove(&spec, &[HOST.parse().unwrap()]), "wireguard_peer", Status::Indeterminate);
        spec.evidence.wireguard_peer = None;
        spec.evidence.portal = Some("vpn.example.org".to_owned());
        assert_problem(&prove(&spec, &[HOST.parse().unwrap()]), "portal", Status::Indeterminate);
    });
}

/// On a kernel without WireGuard the refusal is asserted instead, and what the guard says then.
#[test]
fn a_wireguard_device_is_told_from_a_tun_and_its_missing_peer_is_off_the_vpn() {
    in_namespace(|| {
        let made = try_ip("link add wg0 type wireguard");
        let mut spec = spec("wg*", RouteKind::Wireguard);
        if made.status.success() {
            ip("link set wg0 up");
            ip("address add 10.8.0.2/24 dev wg0");
            ip("route add 192.0.2.0/24 dev wg0");
            assert_proven(&prove(&spec, &[HOST.parse().unwrap()]));
            spec.evidence.wireguard_peer = Some("AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=".to_owned());
            assert_problem(&prove(&spec, &[HOST.parse().unwrap()]), "wireguard_peer", Status::Failed);
            return;
        }
        let refusal = String::from_utf8_lossy(&made.stderr).into_owned();
        assert!(refusal.contains("Unknown device type") || refusal.contains("not supported"), "{refusal}");
        let _served = tunnel("wg0");
        // A program that serves a tun device under WireGuard's name is not the kernel's WireGuard.
        assert_problem(&prove(&spec, &[HOST.parse().unwrap()]), "link", Status::Failed);
        let kernel = Linux::new().unwrap();
        let index = nix::net::if_::if_nametoindex("wg0").unwrap();
        let told = kernel.peers(&kernel.link(index).unwrap());
        assert!(matches!(told, Err(Error::Kernel { .. })), "{told:?}");
    });
}
