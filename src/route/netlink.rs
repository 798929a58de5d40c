//! Netlink's messages as bytes (rtnetlink(7), linux/genetlink.h, linux/wireguard.h), as far as the guard asks.
//!
//! Pure, and written by hand: it reads the few attributes that matter and skips whatever else a kernel, however
//! new, puts beside them. Numbers are in the machine's byte order unless said otherwise.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use super::error::Error;
use super::kernel::{Link, LinkKind, Peer, Way, WayKind};

/// Message that ends a list.
pub const DONE: u16 = 0x3;
/// Message with the number of an error, or with 0.
pub const ERROR: u16 = 0x2;
/// Message with an interface.
pub const NEW_LINK: u16 = 0x10;
/// Message with an address.
pub const NEW_ADDRESS: u16 = 0x14;
/// Message with a route.
pub const NEW_ROUTE: u16 = 0x18;
/// Family of the messages about families of generic netlink.
pub const GENERIC_CONTROL: u16 = 0x10;

const GET_LINK: u16 = 0x12;
const GET_ADDRESS: u16 = 0x16;
const GET_ROUTE: u16 = 0x1a;
const FLAG_REQUEST: u16 = 0x1;
const FLAG_DUMP: u16 = 0x300;
const FLAG_PART_OF_LIST: u16 = 0x2;
/// The list changed while it was told.
const FLAG_INTERRUPTED: u16 = 0x10;
const HEADER_BYTES: usize = 16;
const GENERIC_HEADER_BYTES: usize = 4;
const FAMILY_V4: u8 = 2;
const FAMILY_V6: u8 = 10;

/// A message of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    /// What it is.
    pub kind: u16,
    /// The number of the question that it answers.
    pub sequence: u32,
    /// Whether the list was changed while it was told, so that it may be wrong.
    pub interrupted: bool,
    /// Whether more messages follow, up to one that ends the list.
    pub part_of_list: bool,
    /// What it says.
    pub payload: &'a [u8],
}

/// Splits a datagram into its messages.
///
/// # Errors
/// [`Error::Malformed`] when a length does not fit.
pub fn messages(mut datagram: &[u8]) -> Result<Vec<Message<'_>>, Error> {
    let mut found = Vec::new();
    while !datagram.is_empty() {
        let length = usize::try_from(u32_at(datagram, 0)?).map_err(|_| malformed("a length is too large"))?;
        let payload =
            datagram.get(HEADER_BYTES..length).ok_or_else(|| malformed("a message's length does not fit"))?;
        let flags = u16_at(datagram, 6)?;
        found.push(Message {
            kind: u16_at(datagram, 4)?,
            sequence: u32_at(datagram, 8)?,
            interrupted: flags & FLAG_INTERRUPTED != 0,
            part_of_list: flags & FLAG_PART_OF_LIST != 0,
            payload,
        });
        datagram = datagram.get(aligned(length)..).unwrap_or_default();
    }
    Ok(found)
}

/// Reads the error number of an [`ERROR`] or [`DONE`] message; 0 is success.
///
/// # Errors
/// [`Error::Malformed`] when it is cut.
pub fn error_number(payload: &[u8]) -> Result<i32, Error> {
    let number = i32::from_ne_bytes(array(payload, 0)?);
    number.checked_neg().filter(|number| *number >= 0).ok_or_else(|| malformed("an error's number is wrong"))
}

/// What decides about a connection's way, beside its destination.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Selector {
    /// The source address, where it is known.
    pub source: Option<IpAddr>,
    /// The socket's mark.
    pub mark: u32,
    /// The socket's owner.
    pub uid: u32,
    /// The interface that the socket is bound to.
    pub interface: Option<u32>,
    /// Whether the table's own entry is wanted, which shows several ways, instead of the way taken.
    pub entry: bool,
}

/// Asks for the way of a TCP connection.
pub fn route_request(sequence: u32, to: SocketAddr, selector: &Selector) -> Vec<u8> {
    const PROTOCOL_TCP: u8 = 6;
    const TELL_TABLE: u32 = 0x1000;
    const TELL_ENTRY: u32 = 0x2000;
    let (family, bits) = if to.is_ipv4() { (FAMILY_V4, 32) } else { (FAMILY_V6, 128) };
    let source_bits = if selector.source.is_some() { bits } else { 0 };
    let flags = if selector.entry { TELL_TABLE | TELL_ENTRY } else { TELL_TABLE };
    let mut body = vec![family, bits, source_bits, 0, 0, 0, 0, 0];
    body.extend(flags.to_ne_bytes());
    attribute(&mut body, 1, &address_bytes(to.ip()));
    if let Some(source) = selector.source {
        attribute(&mut body, 2, &address_bytes(source));
    }
    let interface = selector.interface.or(match to {
        SocketAddr::V6(to) if to.scope_id() != 0 => Some(to.scope_id()),
        _ => None,
    });
    if let Some(interface) = interface {
        attribute(&mut body, 4, &interface.to_ne_bytes());
    }
    attribute(&mut body, 16, &selector.mark.to_ne_bytes());
    attribute(&mut body, 25, &selector.uid.to_ne_bytes());
    // Policy rules may look at the protocol and the port; the port is in the network's byte order.
    attribute(&mut body, 27, &[PROTOCOL_TCP]);
    attribute(&mut body, 29, &to.port().to_be_bytes());
    request(GET_ROUTE, FLAG_REQUEST, sequence, &body)
}

/// Asks for one interface, without its counters.
pub fn link_request(sequence: u32, index: u32) -> Vec<u8> {
    const SKIP_STATISTICS: u32 = 0x8;
    let mut body = vec![0; 4];
    body.extend(index.to_ne_bytes());
    body.extend([0; 8]);
    attribute(&mut body, 29, &SKIP_STATISTICS.to_ne_bytes());
    request(GET_LINK, FLAG_REQUEST, sequence, &body)
}

/// Asks for all addresses of all interfaces.
pub fn addresses_request(sequence: u32) -> Vec<u8> {
    request(GET_ADDRESS, FLAG_REQUEST | FLAG_DUMP, sequence, &[0; 8])
}

/// Asks for the number of a family of generic netlink.
pub fn family_request(sequence: u32, name: &str) -> Vec<u8> {
    const GET_FAMILY: u8 = 0x3;
    let mut body = vec![GET_FAMILY, 1, 0, 0];
    attribute(&mut body, 2, &[name.as_bytes(), b"\0"].concat());
    request(GENERIC_CONTROL, FLAG_REQUEST, sequence, &body)
}

/// Asks a WireGuard device for its peers, given WireGuard's family number.
pub fn peers_request(sequence: u32, family: u16, index: u32) -> Vec<u8> {
    const GET_DEVICE: u8 = 0x0;
    let mut body = vec![GET_DEVICE, 1, 0, 0];
    attribute(&mut body, 1, &index.to_ne_bytes());
    request(family, FLAG_REQUEST | FLAG_DUMP, sequence, &body)
}

/// Reads a [`NEW_ROUTE`] message.
///
/// # Errors
/// [`Error::Malformed`]
pub fn read_route(payload: &[u8]) -> Result<Way, Error> {
    let kind = match byte_at(payload, 7)? {
        1 => WayKind::Unicast,
        2 => WayKind::Local,
        6 => WayKind::Blackhole,
        7 => WayKind::Unreachable,
        8 => WayKind::Prohibit,
        other => WayKind::Other(other),
    };
    let table = match byte_at(payload, 4)? {
        0 => None,
        table => Some(u32::from(table)),
    };
    let mut way = Way { kind, interface: None, source: None, table, several: false };
    let mut asked_source = None;
    for (kind, value) in attributes(payload, 12)? {
        match kind {
            2 => asked_source = Some(address(value)?),
            4 => way.interface = Some(u32_at(value, 0)?),
            7 => way.source = Some(address(value)?),
            9 => way.several = true,
            15 => way.table = Some(u32_at(value, 0)?),
            _ => {}
        }
    }
    // The kernel repeats the source that it was asked about, and names its own choice only where that differs.
    way.source = way.source.or(asked_source);
    Ok(way)
}

/// Reads a [`NEW_LINK`] message.
///
/// # Errors
/// [`Error::Malformed`]
pub fn read_link(payload: &[u8]) -> Result<Link, Error> {
    const FLAG_UP: u32 = 0x1;
    const FLAG_LOOPBACK: u32 = 0x8;
    const FLAG_CARRIER: u32 = 0x1_0000;
    let flags = u32_at(payload, 8)?;
    let (mut name, mut kind) = (None, String::new());
    for (attribute, value) in attributes(payload, 16)? {
        match attribute {
            3 => name = Some(text(value)?),
            18 => {
                for (attribute, value) in attributes(value, 0)? {
                    if attribute == 1 {
                        kind = text(value)?;
                    }
                }
            }
            _ => {}
        }
    }
    let kind = match kind.as_str() {
        "wireguard" => LinkKind::Wireguard,
        // The driver that shows `tun_flags` in sysfs, which a network namespace may hide, names itself here.
        "tun" => LinkKind::Tun,
        _ => LinkKind::Other(kind),
    };
    Ok(Link {
        index: u32_at(payload, 4)?,
        name: name.ok_or_else(|| malformed("an interface has no name"))?,
        kind,
        up: flags & FLAG_UP != 0,
        carrier: flags & FLAG_CARRIER != 0,
        loopback: flags & FLAG_LOOPBACK != 0,
    })
}

/// Reads a [`NEW_ADDRESS`] message: the interface's index, and the address that it has on our side.
///
/// # Errors
/// [`Error::Malformed`]
pub fn read_address(payload: &[u8]) -> Result<(u32, Option<IpAddr>), Error> {
    let (mut local, mut other) = (None, None);
    for (kind, value) in attributes(payload, 8)? {
        match kind {
            1 => other = Some(address(value)?),
            2 => local = Some(address(value)?),
            _ => {}
        }
    }
    // On a point-to-point interface the first is the far end's; IPv6 has only that one without a far end.
    Ok((u32_at(payload, 4)?, local.or(other)))
}

/// Reads a message about a family: its number.
///
/// # Errors
/// [`Error::Malformed`]
pub fn read_family(payload: &[u8]) -> Result<u16, Error> {
    let found = attributes(payload, GENERIC_HEADER_BYTES)?.into_iter().find(|(kind, _)| *kind == 1);
    let (_, number) = found.ok_or_else(|| malformed("a family has no number"))?;
    u16_at(number, 0)
}

/// Reads a message about a WireGuard device into its peers; one with many networks goes on in the next message.
///
/// # Errors
/// [`Error::Malformed`]
pub fn read_peers(payload: &[u8], peers: &mut Vec<Peer>) -> Result<(), Error> {
    for (kind, list) in attributes(payload, GENERIC_HEADER_BYTES)? {
        if kind != 8 {
            continue;
        }
        for (_, value) in attributes(list, 0)? {
            let peer = read_peer(value)?;
            match peers.last_mut().filter(|last| last.key == peer.key) {
                Some(last) => {
                    last.handshake = last.handshake.or(peer.handshake);
                    last.allowed.extend(peer.allowed);
                }
                None => peers.push(peer),
            }
        }
    }
    Ok(())
}

/// Reads a datagram as every kind of answer; for the fuzzer, which watches that nothing panics.
pub fn read_everything(datagram: &[u8]) {
    let mut peers = Vec::new();
    for message in messages(datagram).unwrap_or_default() {
        // What comes out does not matter here.
        drop((read_route(message.payload), read_link(message.payload), read_address(message.payload)));
        drop((read_family(message.payload), error_number(message.payload)));
        drop(read_peers(message.payload, &mut peers));
    }
}

fn read_peer(payload: &[u8]) -> Result<Peer, Error> {
    let (mut key, mut handshake, mut allowed) = (None, None, Vec::new());
    for (kind, value) in attributes(payload, 0)? {
        match kind {
            1 => key = Some(array(value, 0)?),
            6 => {
                let seconds = i64::from_ne_bytes(array(value, 0)?);
                let seconds = u64::try_from(seconds).map_err(|_| malformed("a handshake is before 1970"))?;
                // The time 0 stands for no handshake.
                handshake = Some(Duration::from_secs(seconds)).filter(|time| !time.is_zero());
            }
            9 => {
                for (_, value) in attributes(value, 0)? {
                    allowed.extend(read_allowed(value)?);
                }
            }
            _ => {}
        }
    }
    Ok(Peer { key: key.ok_or_else(|| malformed("a peer has no key"))?, handshake, allowed })
}

fn read_allowed(payload: &[u8]) -> Result<Option<(IpAddr, u8)>, Error> {
    let (mut network, mut length) = (None, None);
    for (kind, value) in attributes(payload, 0)? {
        match kind {
            2 => network = Some(address(value)?),
            3 => length = Some(byte_at(value, 0)?),
            _ => {}
        }
    }
    Ok(network.zip(length))
}

fn request(kind: u16, flags: u16, sequence: u32, body: &[u8]) -> Vec<u8> {
    // Every request here is below 200 bytes.
    let length = u32::try_from(HEADER_BYTES + body.len()).unwrap_or(u32::MAX);
    let mut bytes = length.to_ne_bytes().to_vec();
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(flags.to_ne_bytes());
    bytes.extend(sequence.to_ne_bytes());
    bytes.extend(0_u32.to_ne_bytes());
    bytes.extend(body);
    bytes
}

fn attribute(body: &mut Vec<u8>, kind: u16, value: &[u8]) {
    let length = u16::try_from(4 + value.len()).unwrap_or(u16::MAX);
    body.extend(length.to_ne_bytes());
    body.extend(kind.to_ne_bytes());
    body.extend(value);
    body.resize(aligned(body.len()), 0);
}

/// The attributes that follow a header, without the two bits that say how a value is written.
fn attributes(payload: &[u8], header_bytes: usize) -> Result<Vec<(u16, &[u8])>, Error> {
    let mut rest = payload.get(header_bytes..).ok_or_else(|| malformed("a header is cut"))?;
    let mut found = Vec::new();
    while !rest.is_empty() {
        let length = usize::from(u16_at(rest, 0)?);
        let value = rest.get(4..length).ok_or_else(|| malformed("an attribute's length does not fit"))?;
        found.push((u16_at(rest, 2)? & 0x3fff, value));
        rest = rest.get(aligned(length)..).unwrap_or_default();
    }
    Ok(found)
}

fn aligned(length: usize) -> usize {
    length.saturating_add(3) & !3
}

fn address_bytes(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    }
}

fn address(value: &[u8]) -> Result<IpAddr, Error> {
    match value.len() {
        4 => Ok(IpAddr::from(array::<4>(value, 0)?)),
        16 => Ok(IpAddr::from(array::<16>(value, 0)?)),
        _ => Err(malformed("an address is neither 4 nor 16 bytes long")),
    }
}

fn text(value: &[u8]) -> Result<String, Error> {
    let bytes = value.split(|byte| *byte == 0).next().unwrap_or_default();
    String::from_utf8(bytes.to_vec()).map_err(|_| malformed("a name is not UTF-8"))
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> Result<[u8; N], Error> {
    let found = bytes.get(at..).and_then(|rest| rest.first_chunk());
    found.copied().ok_or_else(|| malformed("it ends too early"))
}

fn byte_at(bytes: &[u8], at: usize) -> Result<u8, Error> {
    array(bytes, at).map(|[byte]| byte)
}

fn u16_at(bytes: &[u8], at: usize) -> Result<u16, Error> {
    array(bytes, at).map(u16::from_ne_bytes)
}

fn u32_at(bytes: &[u8], at: usize) -> Result<u32, Error> {
    array(bytes, at).map(u32::from_ne_bytes)
}

fn malformed(problem: &'static str) -> Error {
    Error::Malformed { asked: "netlink", problem }
}

#[cfg(test)]
#[path = "netlink_tests.rs"]
mod tests;
