//! Hops of `ProxyJump`, and the host that a caller types.

use crate::resolved::Jump;
use crate::values::{Services, port};

/// The value of a `ProxyJump` line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum JumpSpec {
    /// No hop; a comment behind the word makes OpenSSH look for a host called `none`, which we don't.
    None {
        /// Whether such a comment stands there.
        commented: bool,
    },
    /// Hops in the order in which they are dialled.
    Hops {
        /// All but the last, as written.
        before: Option<Vec<u8>>,
        /// The parsed hops, at least one.
        hops: Vec<Hop>,
    },
}

/// One hop: an optional user, a host without brackets, an optional port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Hop {
    pub(crate) user: Option<Vec<u8>>,
    pub(crate) host: Vec<u8>,
    pub(crate) port: Option<u16>,
}

/// What a text that may be a URI turns out to be.
pub(crate) enum Uri {
    /// It does not begin with `ssh://`.
    No,
    /// It does, and is malformed.
    Bad,
    /// It is one.
    Hop(Hop),
}

impl JumpSpec {
    /// Reads the raw rest of a `ProxyJump` line; none when a hop is malformed.
    pub(crate) fn parse(raw: &[u8], services: &Services) -> Option<JumpSpec> {
        let cut = raw.split(|byte| *byte == b'#').next().unwrap_or_default();
        let text = cut.trim_ascii_end();
        if text.eq_ignore_ascii_case(b"none") {
            let commented = cut.len() != raw.len();
            return Some(JumpSpec::None { commented });
        }
        let hops: Option<Vec<Hop>> =
            text.split(|byte| *byte == b',').map(|hop| Hop::parse(hop, services)).collect();
        let before = text
            .iter()
            .rposition(|byte| *byte == b',')
            .and_then(|comma| text.get(..comma))
            .map(<[u8]>::to_vec);
        Some(JumpSpec::Hops { before, hops: hops? })
    }

    /// Gives the hops, none of them for `none`.
    pub(crate) fn hops(&self) -> &[Hop] {
        match self {
            JumpSpec::None { .. } => &[],
            JumpSpec::Hops { hops, .. } => hops,
        }
    }

    /// Gives all but the last hop as written, then the last one in normal form.
    pub(crate) fn printed(&self) -> Vec<u8> {
        let JumpSpec::Hops { before, hops } = self else {
            return b"none".to_vec();
        };
        let mut text = Vec::new();
        if let Some(before) = before {
            text.extend_from_slice(before);
            text.push(b',');
        }
        let Some(last) = hops.last() else {
            return text;
        };
        if let Some(user) = &last.user {
            text.extend_from_slice(user);
            text.push(b'@');
        }
        let numeric =
            last.host.contains(&b':') || last.host.iter().all(|byte| byte.is_ascii_digit() || *byte == b'.');
        let (open, close): (&[u8], &[u8]) = if numeric { (b"[", b"]") } else { (b"", b"") };
        text.extend_from_slice(&[open, last.host.as_slice(), close].concat());
        if let Some(port) = last.port {
            text.extend_from_slice(format!(":{port}").as_bytes());
        }
        text
    }
}

impl Hop {
    /// Reads `[user@]host[:port]`, `[user@][v6]:port` or an `ssh://` URI.
    pub(crate) fn parse(text: &[u8], services: &Services) -> Option<Hop> {
        match uri(text, services) {
            Uri::Hop(hop) => return Some(hop),
            Uri::Bad => return None,
            Uri::No => {}
        }
        let (user, rest) = match text.iter().rposition(|byte| *byte == b'@') {
            Some(at) => (Some(text.get(..at)?), text.get(at + 1..)?),
            None => (None, text),
        };
        if user.is_some_and(<[u8]>::is_empty) {
            return None;
        }
        let (host, behind) = host_and_rest(rest)?;
        if host.is_empty() {
            return None;
        }
        let port = match behind {
            // Only a URI has a path.
            Some((b'/', _)) => return None,
            Some((_, digits)) if !digits.is_empty() => Some(port(digits, services)?),
            _ => None,
        };
        Some(Hop { user: user.map(<[u8]>::to_vec), host: without_brackets(host).to_vec(), port })
    }

    /// Gives the public form; bytes that are not UTF-8 are replaced.
    pub(crate) fn to_jump(&self) -> Jump {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Jump { user: self.user.as_deref().map(text), host: text(&self.host), port: self.port }
    }
}

/// Reads an `ssh://[user@]host[:port]` URI.
pub(crate) fn uri(text: &[u8], services: &Services) -> Uri {
    match text.strip_prefix(b"ssh://") {
        None => Uri::No,
        Some(rest) => uri_hop(rest, services).map_or(Uri::Bad, Uri::Hop),
    }
}

fn uri_hop(text: &[u8], services: &Services) -> Option<Hop> {
    let (user, rest) = match text.iter().position(|byte| *byte == b'@') {
        Some(at) => {
            // Parameters of the connection stand behind a semicolon and do not count.
            let user = text.get(..at)?.split(|byte| *byte == b';').next()?;
            if user.is_empty() {
                return None;
            }
            (Some(decode(user)?), text.get(at + 1..)?)
        }
        None => (None, text),
    };
    let (host, behind) = host_and_rest(rest)?;
    let host = domain(without_brackets(host))?;
    let (port_text, path) = match behind {
        Some((b':', rest)) if !rest.is_empty() => {
            let mut halves = rest.splitn(2, |byte| *byte == b'/');
            (halves.next(), halves.next().unwrap_or_default())
        }
        Some((_, rest)) => (None, rest),
        None => (None, [].as_slice()),
    };
    if !path.is_empty() {
        return None;
    }
    let port = match port_text {
        Some(digits) => Some(port(digits, services)?),
        None => None,
    };
    Some(Hop { user, host, port })
}

/// A host, and the delimiter and text behind it where there are any.
type HostAndRest<'a> = (&'a [u8], Option<(u8, &'a [u8])>);

/// Splits at the first `:` or `/` behind the host, which may be in brackets; none when a bracket stays open.
pub(crate) fn host_and_rest(text: &[u8]) -> Option<HostAndRest<'_>> {
    let end = if text.starts_with(b"[") {
        Some(text.iter().position(|byte| *byte == b']')? + 1)
    } else {
        text.iter().position(|byte| matches!(byte, b':' | b'/'))
    };
    let end = end.unwrap_or(text.len());
    let (host, behind) = text.split_at_checked(end)?;
    match behind.split_first() {
        None => Some((host, None)),
        Some((delimiter @ (b':' | b'/'), rest)) => Some((host, Some((*delimiter, rest)))),
        Some(_) => None,
    }
}

fn without_brackets(host: &[u8]) -> &[u8] {
    host.strip_prefix(b"[").and_then(|inner| inner.strip_suffix(b"]")).unwrap_or(host)
}

/// Checks that a name looks like a domain, and drops one dot at its end.
pub(crate) fn domain(name: &[u8]) -> Option<Vec<u8>> {
    let first = name.first()?;
    if !first.is_ascii_alphanumeric() && *first != b'_' {
        return None;
    }
    let legal = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
    if !name.iter().all(legal) || name.windows(2).any(|pair| pair == b"..") {
        return None;
    }
    Some(name.strip_suffix(b".").unwrap_or(name).to_vec())
}

/// Decodes the user of a URI; NUL is not allowed.
fn decode(text: &[u8]) -> Option<Vec<u8>> {
    let mut decoded = Vec::new();
    let mut bytes = text.iter();
    while let Some(byte) = bytes.next() {
        decoded.push(match byte {
            b'+' => b' ',
            b'%' => {
                let digits = [*bytes.next()?, *bytes.next()?];
                let digits = std::str::from_utf8(&digits).ok()?;
                if !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
                    return None;
                }
                u8::from_str_radix(digits, 16).ok().filter(|byte| *byte != 0)?
            }
            byte => *byte,
        });
    }
    Some(decoded)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(text: &str) -> Option<String> {
        let spec = JumpSpec::parse(text.as_bytes(), &Services::new())?;
        Some(String::from_utf8(spec.printed()).unwrap())
    }

    #[test]
    fn the_last_hop_is_printed_in_normal_form() {
        for (text, expected) in [
            ("jump", "jump"),
            ("a@b@jump:2232", "a@b@jump:2232"),
            ("ssh://alice@jump.example.net:2229", "alice@jump.example.net:2229"),
            ("ssh://inner.example.net,bob@last", "ssh://inner.example.net,bob@last"),
            ("[2001:db8::1]:22", "[2001:db8::1]:22"),
            ("192.0.2.1", "[192.0.2.1]"),
            ("jump: # x", "jump"),
            ("a,b # x,y", "a,b"),
            ("NONE", "none"),
            ("none # x", "none"),
            ("ssh://a%20b;x@h./", "a b@h"),
        ] {
            assert_eq!(printed(text).as_deref(), Some(expected), "{text}");
        }
    }

    #[test]
    fn malformed_hops_are_found_anywhere_in_the_list() {
        for text in [
            "one:99999,two",
            "a,,b",
            ",a",
            "@host",
            "user@",
            "a:0",
            "a:x",
            "[a",
            "[a]b",
            "ssh://-x",
            "ssh://h/path",
            "ssh://@h",
            "2001:db8::1",
            "# x",
            "a b:c d",
            "host/22",
        ] {
            assert_eq!(printed(text), None, "{text}");
        }
    }
}
