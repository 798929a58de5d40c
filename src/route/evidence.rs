//! What binds a tunnel to the organisation: each evidence that is given must hold.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::error::Error;
use super::kernel::{Kernel, Link, Peer};
use super::network_manager::Connection;
use super::proof::{Check, Status};
use crate::config::Evidence;

/// WireGuard renews a session that is in use every 120 s and forgets it after 180 s.
pub(super) const HANDSHAKE_AGE_MAX: Duration = Duration::from_secs(180);

/// How an evidence came out, and what was found.
type Finding = (Status, String);

/// Checks each given evidence.
pub(super) fn checks(
    kernel: &impl Kernel,
    evidence: &Evidence,
    link: &Link,
    to: SocketAddr,
    source: IpAddr,
) -> Vec<Check> {
    let mut checks = Vec::new();
    let mut note = |name, finding: Result<Finding, Error>| {
        let (status, message) = finding.unwrap_or_else(|error| (Status::Indeterminate, error.to_string()));
        checks.push(Check { name, status, message });
    };
    if let Some(key) = &evidence.wireguard_peer {
        let finding = kernel.peers(link).map(|peers| wireguard(&peers, key, to.ip(), kernel.now()));
        note("wireguard_peer", finding);
    }
    if let Some(uuid) = &evidence.nm_uuid {
        let finding =
            kernel.connection(uuid).map(|found| network_manager(found.as_ref(), uuid, link, source));
        note("nm_uuid", finding);
    }
    if let Some(portal) = &evidence.portal {
        let finding = kernel.global_protect().map(|report| {
            if !report.portal.eq_ignore_ascii_case(portal) {
                let message = format!("GlobalProtect's portal is {}, not {portal}", report.portal);
                (Status::Failed, message)
            } else if !report.addresses.contains(&source) {
                (Status::Failed, format!("{source} is not an address that GlobalProtect knows"))
            } else {
                (Status::Ok, format!("GlobalProtect has {source} from {portal}"))
            }
        });
        note("portal", finding);
    }
    if let Some((network, length)) = evidence.cidr {
        note("cidr", Ok(cidr(source, network, length)));
    }
    if checks.is_empty() {
        // The configuration demands evidence; a proof by an interface's name must not arise by another way either.
        let message = "no evidence is configured".to_owned();
        checks.push(Check { name: "evidence", status: Status::Indeterminate, message });
    }
    checks
}

fn cidr(source: IpAddr, network: IpAddr, length: u8) -> Finding {
    if contains(network, length, source) {
        (Status::Ok, format!("{source} is in {network}/{length}"))
    } else {
        (Status::Failed, format!("{source} is not in {network}/{length}"))
    }
}

fn wireguard(peers: &[Peer], key: &str, to: IpAddr, now: Duration) -> Finding {
    let Some(wanted) = STANDARD.decode(key).ok().and_then(|bytes| <[u8; 32]>::try_from(bytes).ok()) else {
        // Why base64 is wrong does not matter: the message names the value.
        return (Status::Indeterminate, format!("`{key}` is not a WireGuard key"));
    };
    let Some(peer) = peers.iter().find(|peer| peer.key == wanted) else {
        return (Status::Failed, format!("the device has no peer {key}"));
    };
    if chosen(peers, to).is_none_or(|chosen| chosen.key != wanted) {
        return (Status::Failed, format!("the device does not send {to} to the peer {key}"));
    }
    let Some(handshake) = peer.handshake else {
        return (Status::Failed, format!("there was no handshake with {key} yet"));
    };
    match now.checked_sub(handshake) {
        None => {
            (Status::Indeterminate, format!("the handshake with {key} is later than now: the clock was set"))
        }
        Some(age) if age >= HANDSHAKE_AGE_MAX => {
            let (age, bound) = (age.as_secs(), HANDSHAKE_AGE_MAX.as_secs());
            (
                Status::Failed,
                format!("the handshake with {key} is {age} s old, it must be younger than {bound} s"),
            )
        }
        Some(age) => (Status::Ok, format!("the handshake with {key} is {} s old", age.as_secs())),
    }
}

/// The peer that WireGuard sends to an address: the one with the longest matching network.
fn chosen(peers: &[Peer], to: IpAddr) -> Option<&Peer> {
    let longest = |peer: &Peer| {
        let matching = peer.allowed.iter().filter(|(network, length)| contains(*network, *length, to));
        matching.map(|(_, length)| *length).max()
    };
    let reached = peers.iter().filter_map(|peer| longest(peer).map(|length| (length, peer)));
    reached.max_by_key(|(length, _)| *length).map(|(_, peer)| peer)
}

fn network_manager(found: Option<&Connection>, uuid: &str, link: &Link, source: IpAddr) -> Finding {
    let name = &link.name;
    match found {
        None => (Status::Failed, format!("NetworkManager has no connection {uuid}")),
        Some(connection) if !connection.activated => {
            (Status::Failed, format!("NetworkManager's connection {uuid} is not active"))
        }
        Some(connection) if connection.devices.iter().any(|device| device == name) => {
            (Status::Ok, format!("NetworkManager's connection {uuid} owns {name}"))
        }
        // A VPN plugin's connection names the device below; its own tun device is known by the address it got.
        Some(connection) if connection.vpn && connection.addresses.contains(&source) => {
            (Status::Ok, format!("NetworkManager's connection {uuid} gave {source} to {name}"))
        }
        Some(_) => (Status::Failed, format!("NetworkManager's connection {uuid} does not own {name}")),
    }
}

/// Tells whether an address is in a network; a length beyond the family's contains nothing.
fn contains(network: IpAddr, length: u8, address: IpAddr) -> bool {
    let (bits, network, address) = match (network, address) {
        (IpAddr::V4(network), IpAddr::V4(address)) => {
            (32, u128::from(network.to_bits()), u128::from(address.to_bits()))
        }
        (IpAddr::V6(network), IpAddr::V6(address)) => (128, network.to_bits(), address.to_bits()),
        _ => return false,
    };
    let length = u32::from(length);
    // Shifting by the whole width is no shift in Rust: /0 contains all.
    length <= bits && (network ^ address).checked_shr(bits - length).is_none_or(|rest| rest == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_contains_what_shares_its_prefix_and_family() {
        let inside = |network: &str, length, address: &str| {
            contains(network.parse().unwrap(), length, address.parse().unwrap())
        };
        for (network, length, address) in [
            ("10.8.0.0", 16, "10.8.255.255"),
            ("10.8.3.4", 16, "10.8.0.1"),
            ("0.0.0.0", 0, "203.0.113.9"),
            ("10.8.0.2", 32, "10.8.0.2"),
            ("fd00::", 8, "fdff::1"),
            ("::", 0, "2001:db8::1"),
            ("2001:db8::1", 128, "2001:db8::1"),
        ] {
            assert!(inside(network, length, address), "{address} in {network}/{length}");
        }
        for (network, length, address) in [
            ("10.8.0.0", 16, "10.9.0.0"),
            ("10.8.0.2", 32, "10.8.0.3"),
            ("10.8.0.0", 33, "10.8.0.0"),
            ("0.0.0.0", 0, "::1"),
            ("::", 0, "10.8.0.1"),
            ("fd00::", 8, "fe00::1"),
        ] {
            assert!(!inside(network, length, address), "{address} in {network}/{length}");
        }
    }

    proptest::proptest! {
        #[test]
        fn a_network_contains_just_the_addresses_with_its_leading_bits(
            network: u32, address: u32, length in 0_u8..=32,
        ) {
            let leading = |value: u32| (0..length).map(|bit| value >> (31 - bit) & 1).collect::<Vec<_>>();
            let found = contains(IpAddr::V4(network.into()), length, IpAddr::V4(address.into()));
            proptest::prop_assert_eq!(found, leading(network) == leading(address));
        }
    }

    fn peer(key: u8, age: Option<u64>, allowed: &str, length: u8) -> Peer {
        let handshake = age.map(|age| Duration::from_secs(1000 - age));
        Peer { key: [key; 32], handshake, allowed: vec![(allowed.parse().unwrap(), length)] }
    }

    #[test]
    fn a_peer_holds_when_the_address_goes_to_it_and_its_handshake_is_young() {
        let judge = |peers: &[Peer], key: &str| {
            wireguard(peers, key, "10.8.0.9".parse().unwrap(), Duration::from_secs(1000)).0
        };
        let ours = STANDARD.encode([1; 32]);
        for (peers, status) in [
            (vec![peer(1, Some(179), "10.8.0.0", 16)], Status::Ok),
            (vec![peer(1, Some(180), "10.8.0.0", 16)], Status::Failed),
            (vec![peer(1, None, "10.8.0.0", 16)], Status::Failed),
            (vec![peer(1, Some(1), "10.9.0.0", 16)], Status::Failed),
            (vec![peer(2, Some(1), "10.8.0.0", 16)], Status::Failed),
            (vec![peer(2, Some(1), "0.0.0.0", 0), peer(1, Some(1), "10.8.0.0", 16)], Status::Ok),
            (vec![peer(2, Some(1), "10.8.0.9", 32), peer(1, Some(1), "10.8.0.0", 16)], Status::Failed),
            (Vec::new(), Status::Failed),
        ] {
            assert_eq!(judge(&peers, &ours), status, "{peers:?}");
        }
        let mut future = peer(1, None, "10.8.0.0", 16);
        future.handshake = Some(Duration::from_secs(1001));
        assert_eq!(judge(&[future.clone()], &ours), Status::Indeterminate);
        assert_eq!(judge(&[future], "no key"), Status::Indeterminate);
    }
}
