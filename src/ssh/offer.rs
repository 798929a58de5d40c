//! What a server puts forward before anything is encrypted: its version line and its algorithm lists.

/// A server's KEXINIT message (RFC 4253, 7.1), as far as a client's choice depends on it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Offer {
    pub kex: Vec<String>,
    pub host_keys: Vec<String>,
    /// Ciphers that it takes from us and those that it sends with.
    pub ciphers: [Vec<String>; 2],
    pub macs: [Vec<String>; 2],
    pub compression: [Vec<String>; 2],
}

/// The counter-measure to prefix truncation (Terrapin); only peers that name it have it.
const STRICT_KEX_OF_SERVER: &str = "kex-strict-s-v00@openssh.com";

impl Offer {
    pub fn strict_kex(&self) -> bool {
        self.kex.iter().any(|name| name == STRICT_KEX_OF_SERVER)
    }
}

/// What the first packets of a server can be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Packet {
    Offer(Box<Offer>),
    /// A refusal with its text.
    Disconnect(String),
    /// IGNORE, DEBUG or UNIMPLEMENTED: allowed before the offer, without meaning for us.
    Skipped,
    Malformed(&'static str),
}

const DISCONNECT: u8 = 1;
const IGNORE: u8 = 2;
const UNIMPLEMENTED: u8 = 3;
const DEBUG: u8 = 4;
const KEXINIT: u8 = 20;
const COOKIE_BYTES: usize = 16;

/// Reads a packet's body: everything behind its length field, padding included.
pub(super) fn packet(body: &[u8]) -> Packet {
    let Some((padding, rest)) = body.split_first() else {
        return Packet::Malformed("an empty packet");
    };
    let Some(payload) = rest.len().checked_sub(usize::from(*padding)).and_then(|end| rest.get(..end)) else {
        return Packet::Malformed("a packet that is all padding");
    };
    match payload.split_first() {
        Some((&KEXINIT, rest)) => match offer(rest) {
            Some(offer) => Packet::Offer(Box::new(offer)),
            None => Packet::Malformed("a key exchange message that cannot be read"),
        },
        Some((&DISCONNECT, rest)) => Packet::Disconnect(disconnect_text(rest)),
        Some((&(IGNORE | UNIMPLEMENTED | DEBUG), _)) => Packet::Skipped,
        Some(_) => Packet::Malformed("another message in place of the key exchange"),
        None => Packet::Malformed("a packet without a message"),
    }
}

fn offer(payload: &[u8]) -> Option<Offer> {
    let mut rest = payload.get(COOKIE_BYTES..)?;
    let mut list = || {
        let text = std::str::from_utf8(string(&mut rest)?).ok()?;
        Some(text.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect())
    };
    Some(Offer {
        kex: list()?,
        host_keys: list()?,
        ciphers: [list()?, list()?],
        macs: [list()?, list()?],
        compression: [list()?, list()?],
    })
}

fn disconnect_text(payload: &[u8]) -> String {
    let mut rest = payload.get(4..).unwrap_or_default();
    let text = string(&mut rest).unwrap_or_default();
    String::from_utf8_lossy(text).trim().to_owned()
}

/// Takes one length-prefixed string (RFC 4251, 5) off the front.
pub(super) fn string<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (length, tail) = rest.split_first_chunk::<4>()?;
    let length = usize::try_from(u32::from_be_bytes(*length)).ok()?;
    let (taken, tail) = tail.split_at_checked(length)?;
    *rest = tail;
    Some(taken)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kexinit(lists: &[&str]) -> Vec<u8> {
        let mut payload = vec![KEXINIT];
        payload.extend([7; COOKIE_BYTES]);
        for list in lists {
            payload.extend(u32::try_from(list.len()).unwrap().to_be_bytes());
            payload.extend(list.as_bytes());
        }
        payload.extend([0; 5]);
        let mut body = vec![4];
        body.extend(payload);
        body.extend([0; 4]);
        body
    }

    #[test]
    fn a_servers_lists_are_read_in_their_order() {
        let body = kexinit(&[
            "k1,kex-strict-s-v00@openssh.com",
            "h",
            "c,d",
            "e",
            "m",
            "n",
            "none",
            "none,z",
            "",
            "",
        ]);
        let Packet::Offer(offer) = packet(&body) else { panic!("not an offer") };
        assert!(offer.strict_kex());
        assert_eq!(offer.host_keys, ["h"]);
        assert_eq!(offer.ciphers, [vec!["c".to_owned(), "d".to_owned()], vec!["e".to_owned()]]);
        assert_eq!(offer.compression[1], ["none", "z"]);
    }

    #[test]
    fn a_truncated_offer_is_malformed_wherever_it_is_cut() {
        let body = kexinit(&["k", "h", "c", "c", "m", "m", "n", "n"]);
        for end in 0..body.len() - 9 {
            assert!(matches!(packet(&body[..end]), Packet::Malformed(_)), "cut at {end}");
        }
    }

    #[test]
    fn a_refusals_text_is_kept() {
        let mut body = vec![0, DISCONNECT, 0, 0, 0, 2, 0, 0, 0, 4];
        body.extend(b"busy");
        assert_eq!(packet(&body), Packet::Disconnect("busy".to_owned()));
    }
}
