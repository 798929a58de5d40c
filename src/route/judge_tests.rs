//! The judge over a made-up system: one that is in order, and each thing that can be wrong with it.

use std::time::Duration;

use super::*;
use crate::config::Evidence;
use crate::route::error::Error;
use crate::route::{Connection, GlobalProtect, Peer};

const SOURCE: &str = "10.8.0.2";
const HOST: &str = "192.0.2.7:22";
const KEY: [u8; 32] = [7; 32];
const UUID: &str = "3f3c9d8e-8a67-4c3e-9c3c-6f3d1d1f0a11";

/// A system whose answers a test can spoil.
struct World {
    way: Option<Way>,
    way_from_source: Option<Way>,
    link: Option<Link>,
    addresses: Option<Vec<IpAddr>>,
    peers: Option<Vec<Peer>>,
    connection: Option<Option<Connection>>,
    global_protect: Option<GlobalProtect>,
}

fn unsupported() -> Error {
    Error::Unsupported { asked: "it" }
}

impl Kernel for World {
    fn way(&self, to: SocketAddr, from: Option<IpAddr>) -> Result<Way, Error> {
        // Addresses of the documentation's second network are off the VPN.
        if to.ip().to_string().starts_with("198.51.100.") {
            return Ok(Way { interface: Some(2), ..way() });
        }
        let way = if from.is_some() { &self.way_from_source } else { &self.way };
        way.clone().ok_or_else(unsupported)
    }

    fn link(&self, index: u32) -> Result<Link, Error> {
        if index == 2 {
            return Ok(Link {
                index,
                name: "eth0".to_owned(),
                kind: LinkKind::Other(String::new()),
                ..link()
            });
        }
        self.link.clone().ok_or_else(unsupported)
    }

    fn addresses(&self, _link: &Link) -> Result<Vec<IpAddr>, Error> {
        self.addresses.clone().ok_or_else(unsupported)
    }

    fn peers(&self, _link: &Link) -> Result<Vec<Peer>, Error> {
        self.peers.clone().ok_or(Error::Privilege { asked: "the WireGuard peers" })
    }

    fn connection(&self, _uuid: &str) -> Result<Option<Connection>, Error> {
        self.connection.clone().ok_or_else(unsupported)
    }

    fn global_protect(&self) -> Result<GlobalProtect, Error> {
        self.global_protect.clone().ok_or_else(unsupported)
    }

    fn now(&self) -> Duration {
        Duration::from_secs(1000)
    }
}

fn way() -> Way {
    let source = Some(SOURCE.parse().unwrap());
    Way { kind: WayKind::Unicast, interface: Some(5), source, table: Some(254), several: false }
}

fn link() -> Link {
    let kind = LinkKind::Wireguard;
    Link { index: 5, name: "wg0".to_owned(), kind, up: true, carrier: true, loopback: false }
}

fn world() -> World {
    let source: IpAddr = SOURCE.parse().unwrap();
    let handshake = Some(Duration::from_secs(990));
    let peer = Peer { key: KEY, handshake, allowed: vec![("0.0.0.0".parse().unwrap(), 0)] };
    let connection =
        Connection { activated: true, vpn: false, devices: vec!["wg0".to_owned()], addresses: vec![source] };
    World {
        way: Some(way()),
        way_from_source: Some(way()),
        link: Some(link()),
        addresses: Some(vec![source]),
        peers: Some(vec![peer]),
        connection: Some(Some(connection)),
        global_protect: Some(GlobalProtect { portal: "vpn.example.org".to_owned(), addresses: vec![source] }),
    }
}

fn spec() -> Route {
    use base64::Engine as _;
    let evidence = Evidence {
        wireguard_peer: Some(base64::engine::general_purpose::STANDARD.encode(KEY)),
        nm_uuid: Some(UUID.to_owned()),
        portal: Some("VPN.example.org".to_owned()),
        cidr: Some(("10.8.0.0".parse().unwrap(), 16)),
    };
    Route { interface: "wg*".to_owned(), kind: RouteKind::Wireguard, evidence }
}

fn prove(world: &World, spec: &Route) -> Proof {
    prove_with(world, spec, &[HOST.parse().unwrap()])
}

/// The check that does not hold, and how; there must be one alone.
fn problem(world: &World, spec: &Route) -> (&'static str, Status) {
    let proof = prove(world, spec);
    assert!(!proof.proven(), "{proof:?}");
    let bad: Vec<&Check> = proof.checks.iter().filter(|check| check.status != Status::Ok).collect();
    assert_eq!(bad.len(), 1, "{:?}", proof.checks);
    assert_eq!(proof.status(), bad[0].status);
    assert_eq!(proof.first_problem(), Some(bad[0]));
    (bad[0].name, bad[0].status)
}

#[test]
fn a_system_in_order_proves_the_address_with_every_evidence() {
    let proof = prove(&world(), &spec());
    let checked = CheckedAddress {
        address: HOST.parse().unwrap(),
        source: SOURCE.parse().unwrap(),
        interface: "wg0".to_owned(),
    };
    assert_eq!(proof.addresses, [checked]);
    assert_eq!((proof.status(), proof.first_problem()), (Status::Ok, None));
    let names: Vec<&str> = proof.checks.iter().map(|check| check.name).collect();
    assert_eq!(
        names,
        ["route", "interface", "link", "source", "wireguard_peer", "nm_uuid", "portal", "cidr"]
    );
}

#[test]
fn each_thing_that_is_wrong_is_told_by_its_check() {
    use Status::{Failed, Indeterminate};
    let spoilers: Vec<(&str, Status, fn(&mut World))> = vec![
        ("route", Indeterminate, |w| w.way = None),
        ("route", Indeterminate, |w| w.way = Some(Way { kind: WayKind::Local, ..way() })),
        ("route", Indeterminate, |w| w.way = Some(Way { kind: WayKind::Unreachable, ..way() })),
        ("route", Indeterminate, |w| w.way = Some(Way { kind: WayKind::Blackhole, ..way() })),
        ("route", Indeterminate, |w| w.way = Some(Way { kind: WayKind::Prohibit, ..way() })),
        ("route", Indeterminate, |w| w.way = Some(Way { kind: WayKind::Other(9), ..way() })),
        ("route", Indeterminate, |w| w.way = Some(Way { several: true, ..way() })),
        ("route", Indeterminate, |w| w.way = Some(Way { interface: None, ..way() })),
        ("route", Indeterminate, |w| w.link = None),
        ("route", Indeterminate, |w| w.link = Some(Link { loopback: true, ..link() })),
        ("interface", Failed, |w| w.link = Some(Link { name: "eth0".to_owned(), ..link() })),
        ("link", Failed, |w| w.link = Some(Link { kind: LinkKind::Tun, ..link() })),
        ("link", Failed, |w| w.link = Some(Link { kind: LinkKind::Other("bridge".to_owned()), ..link() })),
        ("link", Failed, |w| w.link = Some(Link { up: false, ..link() })),
        ("link", Failed, |w| w.link = Some(Link { carrier: false, ..link() })),
        ("route", Indeterminate, |w| w.addresses.as_mut().unwrap().push("192.0.2.7".parse().unwrap())),
        ("source", Indeterminate, |w| w.addresses = None),
        ("source", Failed, |w| w.addresses = Some(vec!["10.8.0.3".parse().unwrap()])),
        ("source", Failed, |w| w.way_from_source = Some(Way { interface: Some(2), ..way() })),
        ("source", Failed, |w| w.way_from_source = Some(Way { kind: WayKind::Blackhole, ..way() })),
        ("source", Failed, |w| w.way_from_source = Some(Way { several: true, ..way() })),
        ("source", Indeterminate, |w| w.way_from_source = None),
        ("wireguard_peer", Indeterminate, |w| w.peers = None),
        ("wireguard_peer", Failed, |w| w.peers = Some(Vec::new())),
        ("nm_uuid", Indeterminate, |w| w.connection = None),
        ("nm_uuid", Failed, |w| w.connection = Some(None)),
        ("nm_uuid", Failed, |w| w.connection = Some(Some(Connection::default()))),
        ("nm_uuid", Failed, |w| w.connection.as_mut().unwrap().as_mut().unwrap().activated = false),
        ("nm_uuid", Failed, |w| {
            w.connection.as_mut().unwrap().as_mut().unwrap().devices = vec!["eth0".into()]
        }),
        ("portal", Indeterminate, |w| w.global_protect = None),
        ("portal", Failed, |w| w.global_protect.as_mut().unwrap().portal = "vpn.example.com".into()),
        ("portal", Failed, |w| w.global_protect.as_mut().unwrap().addresses.clear()),
    ];
    for (index, (name, status, spoil)) in spoilers.into_iter().enumerate() {
        let mut world = world();
        spoil(&mut world);
        assert_eq!(problem(&world, &spec()), (name, status), "spoiler {index}");
    }
}

#[test]
fn a_tunnel_with_the_right_name_but_another_address_is_off_the_vpn() {
    let mut spec = spec();
    spec.evidence = Evidence { cidr: Some(("10.9.0.0".parse().unwrap(), 16)), ..Evidence::default() };
    assert_eq!(problem(&world(), &spec), ("cidr", Status::Failed));
}

#[test]
fn a_name_alone_never_proves_anything() {
    let spec = Route { evidence: Evidence::default(), ..spec() };
    assert_eq!(problem(&world(), &spec), ("evidence", Status::Indeterminate));
}

#[test]
fn the_kind_decides_which_devices_are_allowed() {
    let cidr = Some(("10.8.0.0".parse().unwrap(), 16));
    let other = LinkKind::Other("ipip".to_owned());
    for (kind, wireguard, tun) in [
        (RouteKind::Wireguard, true, false),
        (RouteKind::Tun, false, true),
        (RouteKind::Globalprotect, false, true),
        (RouteKind::Openconnect, false, true),
        (RouteKind::Any, true, true),
    ] {
        let spec = Route { kind, evidence: Evidence { cidr, ..Evidence::default() }, ..spec() };
        for (device, allowed) in
            [(LinkKind::Wireguard, wireguard), (LinkKind::Tun, tun), (other.clone(), false)]
        {
            let mut world = world();
            world.link = Some(Link { kind: device.clone(), ..link() });
            assert_eq!(prove(&world, &spec).proven(), allowed, "{kind:?} {device:?}");
        }
    }
}

#[test]
fn a_plugin_s_connection_is_known_by_the_address_that_it_gave() {
    let mut world = world();
    let connection = world.connection.as_mut().unwrap().as_mut().unwrap();
    (connection.vpn, connection.devices) = (true, vec!["eth0".to_owned()]);
    assert!(prove(&world, &spec()).proven());
    world.connection.as_mut().unwrap().as_mut().unwrap().addresses.clear();
    assert_eq!(problem(&world, &spec()), ("nm_uuid", Status::Failed));
}

#[test]
fn where_the_system_names_no_source_only_an_unambiguous_one_is_taken() {
    let mut world = world();
    let unnamed = Some(Way { source: None, ..way() });
    (world.way, world.way_from_source) = (unnamed.clone(), unnamed);
    world.addresses = Some(vec![SOURCE.parse().unwrap(), "fe80::1".parse().unwrap()]);
    assert!(prove(&world, &spec()).proven());
    world.addresses.as_mut().unwrap().push("10.8.0.3".parse().unwrap());
    assert_eq!(problem(&world, &spec()), ("source", Status::Indeterminate));
}

#[test]
fn only_proven_addresses_may_be_dialled() {
    let addresses: Vec<SocketAddr> =
        ["198.51.100.1:22", HOST, "198.51.100.2:22"].map(|address| address.parse().unwrap()).to_vec();
    let proof = prove_with(&world(), &spec(), &addresses);
    assert_eq!(proof.addresses.len(), 1);
    assert_eq!(proof.addresses[0].address, addresses[1]);
    assert!(proof.checks.iter().all(|check| check.status == Status::Ok), "{:?}", proof.checks);
    assert!(proof.checks.last().unwrap().message.contains("198.51.100.2:22"));
    assert_eq!(prove_with(&world(), &spec(), &addresses[..1]).status(), Status::Failed);
    assert_eq!(prove_with(&world(), &spec(), &[]).status(), Status::Indeterminate);
}

#[test]
fn no_more_addresses_than_the_bound_are_looked_at() {
    let mut addresses = vec!["198.51.100.1:22".parse().unwrap(); ADDRESSES_MAX];
    addresses.push(HOST.parse().unwrap());
    assert!(!prove_with(&world(), &spec(), &addresses).proven());
}
