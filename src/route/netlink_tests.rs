//! Netlink's bytes, as the kernel's headers lay them out, and whatever else could come; tests/route asks a real kernel.

use proptest::prelude::*;

use super::*;

/// Encodes attributes as the kernel does.
fn attributes_of(list: &[(u16, Vec<u8>)]) -> Vec<u8> {
    let mut body = Vec::new();
    for (kind, value) in list {
        attribute(&mut body, *kind, value);
    }
    body
}

fn route(kind: u8, attributes: &[(u16, Vec<u8>)]) -> Vec<u8> {
    [vec![FAMILY_V4, 32, 0, 0, 254, 0, 0, kind, 0, 0, 0, 0], attributes_of(attributes)].concat()
}

#[test]
fn a_route_s_interface_source_table_and_kind_are_read() {
    let way = read_route(&route(
        1,
        &[
            (15, 100_u32.to_ne_bytes().to_vec()),
            (1, vec![192, 0, 2, 7]),
            (4, 5_u32.to_ne_bytes().to_vec()),
            (7, vec![10, 8, 0, 2]),
            (999, vec![1, 2, 3]),
        ],
    ));
    let source = Some("10.8.0.2".parse().unwrap());
    let expected =
        Way { kind: WayKind::Unicast, interface: Some(5), source, table: Some(100), several: false };
    assert_eq!(way.unwrap(), expected);
    let kinds =
        [WayKind::Local, WayKind::Blackhole, WayKind::Unreachable, WayKind::Prohibit, WayKind::Other(9)];
    for (number, kind) in [2, 6, 7, 8, 9].into_iter().zip(kinds) {
        assert_eq!(read_route(&route(number, &[])).unwrap().kind, kind);
    }
    assert!(read_route(&route(1, &[(9, vec![0; 16])])).unwrap().several);
    // Asked about a source, the kernel repeats it and names none of its own.
    assert_eq!(read_route(&route(1, &[(2, vec![10, 8, 0, 2])])).unwrap().source, source);
    assert!(read_route(&route(1, &[(7, vec![10, 8, 0])])).is_err());
}

#[test]
fn a_link_s_kind_comes_from_its_driver_s_name() {
    let link = |kind: &[u8], flags: u32| {
        let info = attributes_of(&[(1, kind.to_vec()), (2, vec![0; 5])]);
        let mut bytes = vec![0; 4];
        bytes.extend(5_u32.to_ne_bytes());
        bytes.extend(flags.to_ne_bytes());
        bytes.extend([0; 4]);
        bytes.extend(attributes_of(&[(3, b"wg0\0".to_vec()), (0x8000 | 18, info)]));
        read_link(&bytes).unwrap()
    };
    assert_eq!(link(b"wireguard\0", 0).kind, LinkKind::Wireguard);
    assert_eq!(link(b"tun\0", 0).kind, LinkKind::Tun);
    assert_eq!(link(b"bridge\0", 0).kind, LinkKind::Other("bridge".to_owned()));
    let up = link(b"wireguard", 0x1_0041);
    assert_eq!((up.name.as_str(), up.index), ("wg0", 5));
    assert_eq!((up.up, up.carrier, up.loopback), (true, true, false));
    let loopback = link(b"", 0x9);
    assert_eq!((loopback.up, loopback.carrier, loopback.loopback), (true, false, true));
}

#[test]
fn the_near_end_s_address_is_taken_not_the_far_end_s() {
    let address = |attributes: &[(u16, Vec<u8>)]| {
        let header = [&[FAMILY_V4, 32, 0, 0][..], &5_u32.to_ne_bytes()].concat();
        read_address(&[header, attributes_of(attributes)].concat()).unwrap()
    };
    let both = address(&[(1, vec![10, 8, 0, 1]), (2, vec![10, 8, 0, 2])]);
    assert_eq!(both, (5, Some("10.8.0.2".parse().unwrap())));
    assert_eq!(address(&[(1, vec![0; 16])]), (5, Some("::".parse().unwrap())));
    assert_eq!(address(&[]), (5, None));
}

/// One peer as WireGuard tells it; a continued one comes without its handshake.
fn peer(key: u8, handshake: Option<i64>, network: [u8; 4]) -> Vec<u8> {
    let allowed = attributes_of(&[(1, 2_u16.to_ne_bytes().to_vec()), (2, network.to_vec()), (3, vec![24])]);
    let mut list = vec![(1, vec![key; 32])];
    if let Some(seconds) = handshake {
        list.push((6, [seconds.to_ne_bytes(), 5_i64.to_ne_bytes()].concat()));
    }
    list.push((0x8000 | 9, attributes_of(&[(0x8000, allowed)])));
    attributes_of(&list)
}

fn device(peers: &[Vec<u8>]) -> Vec<u8> {
    let list: Vec<(u16, Vec<u8>)> = peers.iter().map(|peer| (0x8000, peer.clone())).collect();
    let body = attributes_of(&[(1, 5_u32.to_ne_bytes().to_vec()), (0x8000 | 8, attributes_of(&list))]);
    [vec![0, 1, 0, 0], body].concat()
}

#[test]
fn wireguard_peers_are_joined_over_messages() {
    let mut peers = Vec::new();
    read_peers(&device(&[peer(1, Some(0), [10, 1, 0, 0]), peer(2, Some(77), [10, 2, 0, 0])]), &mut peers)
        .unwrap();
    read_peers(&device(&[peer(2, None, [10, 3, 0, 0])]), &mut peers).unwrap();
    assert_eq!(peers.len(), 2);
    assert_eq!((peers[0].key, peers[0].handshake), ([1; 32], None));
    assert_eq!(peers[1].handshake, Some(Duration::from_secs(77)));
    let allowed = ["10.2.0.0", "10.3.0.0"].map(|network| (network.parse().unwrap(), 24));
    assert_eq!(peers[1].allowed, allowed);
    assert!(read_peers(&device(&[peer(1, Some(-1), [10, 1, 0, 0])]), &mut peers).is_err());
}

#[test]
fn a_family_s_number_and_an_error_s_number_are_read() {
    let family =
        [vec![1, 2, 0, 0], attributes_of(&[(2, b"wireguard\0".to_vec()), (1, vec![33, 0])])].concat();
    assert_eq!(read_family(&family).unwrap(), u16::from_ne_bytes([33, 0]));
    assert!(read_family(&[1, 2, 0, 0]).is_err());
    assert_eq!(error_number(&(-1_i32).to_ne_bytes()).unwrap(), 1);
    assert_eq!(error_number(&0_i32.to_ne_bytes()).unwrap(), 0);
    assert!(error_number(&1_i32.to_ne_bytes()).is_err());
    assert!(error_number(&i32::MIN.to_ne_bytes()).is_err());
    assert!(error_number(&[0; 3]).is_err());
}

#[test]
fn a_request_holds_what_policy_rules_may_ask_for() {
    let selector = Selector {
        source: Some("10.8.0.2".parse().unwrap()),
        mark: 7,
        uid: 1000,
        interface: Some(3),
        entry: true,
    };
    let bytes = route_request(9, "192.0.2.7:22".parse().unwrap(), &selector);
    let [message] = messages(&bytes).unwrap().try_into().unwrap();
    assert_eq!((message.kind, message.sequence, message.interrupted), (GET_ROUTE, 9, false));
    assert_eq!(message.payload[..12], [&[2, 32, 32, 0, 0, 0, 0, 0][..], &0x3000_u32.to_ne_bytes()].concat());
    let found = attributes(message.payload, 12).unwrap();
    let expected: Vec<(u16, Vec<u8>)> = vec![
        (1, vec![192, 0, 2, 7]),
        (2, vec![10, 8, 0, 2]),
        (4, 3_u32.to_ne_bytes().to_vec()),
        (16, 7_u32.to_ne_bytes().to_vec()),
        (25, 1000_u32.to_ne_bytes().to_vec()),
        (27, vec![6]),
        (29, vec![0, 22]),
    ];
    assert!(found.into_iter().eq(expected.iter().map(|(kind, value)| (*kind, value.as_slice()))));
}

/// The first message of a datagram that a Linux 6.18 sent, recorded in a namespace with tun0 and eth0.
fn recorded(name: &str) -> Vec<u8> {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus/route").join(name);
    let datagram = std::fs::read(path).unwrap();
    messages(&datagram).unwrap()[0].payload.to_vec()
}

#[test]
fn recorded_answers_of_a_kernel_are_read() {
    let tun = read_link(&recorded("link-tun")).unwrap();
    assert_eq!((tun.name.as_str(), &tun.kind, tun.up, tun.carrier), ("tun0", &LinkKind::Tun, true, true));
    let veth = read_link(&recorded("link-veth")).unwrap();
    assert_eq!((veth.name.as_str(), veth.kind), ("eth0", LinkKind::Other("veth".to_owned())));
    let v4 = read_route(&recorded("route-v4")).unwrap();
    let source = Some("10.8.0.2".parse().unwrap());
    let expected =
        Way { kind: WayKind::Unicast, interface: Some(tun.index), source, table: Some(254), several: false };
    assert_eq!(v4, expected);
    assert_eq!(read_route(&recorded("route-source")).unwrap(), expected);
    let v6 = read_route(&recorded("route-v6")).unwrap();
    assert_eq!(v6, Way { source: Some("fd00:8::2".parse().unwrap()), ..expected });
    assert!(read_route(&recorded("route-several")).unwrap().several);
    assert_eq!(read_route(&recorded("route-local")).unwrap().kind, WayKind::Local);
    assert_eq!(error_number(&recorded("route-none")).unwrap(), 101, "ENETUNREACH");
    assert_eq!(read_address(&recorded("addresses")).unwrap(), (1, Some("127.0.0.1".parse().unwrap())));
    assert_eq!(read_family(&recorded("family")).unwrap(), GENERIC_CONTROL);
}

proptest! {
    #[test]
    fn what_is_encoded_is_decoded(
        kind: u16, sequence: u32,
        list in prop::collection::vec((0_u16..0x4000, prop::collection::vec(any::<u8>(), 0..40)), 0..8),
    ) {
        let bytes = request(kind, FLAG_REQUEST, sequence, &attributes_of(&list));
        let twice = [bytes.clone(), bytes].concat();
        let found = messages(&twice).unwrap();
        prop_assert_eq!(found.len(), 2);
        prop_assert_eq!((found[0].kind, found[0].sequence), (kind, sequence));
        prop_assert_eq!(found[0].payload, found[1].payload);
        let read = attributes(found[0].payload, 0).unwrap();
        prop_assert!(read.into_iter().eq(list.iter().map(|(kind, value)| (*kind, value.as_slice()))));
    }

    #[test]
    fn no_bytes_panic_and_a_cut_attribute_is_never_read(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        read_everything(&bytes);
        let whole = device(&[peer(1, Some(5), [10, 1, 0, 0])]);
        let cut = usize::from(bytes.first().copied().unwrap_or(1)).clamp(1, whole.len() - 4);
        // Only a cut in the padding, or just before an attribute, leaves something whole.
        let mut peers = Vec::new();
        if read_peers(&whole[..whole.len() - cut], &mut peers).is_ok() {
            prop_assert!(peers.is_empty());
        }
    }
}
