//! Specifications of port forwardings: checked and printed, never opened.

use crate::values::{Services, port_or_zero};

/// Longest host name in a specification; the address structure of the system holds one byte more.
const HOST_BYTES_MAX: usize = 1024;
/// Longest path of a Unix socket, for the same reason.
const SOCKET_PATH_BYTES_MAX: usize = 107;

/// One end of a forwarding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum End {
    /// A Unix socket.
    Path(Vec<u8>),
    /// A port, possibly of a named host.
    Port(Option<Vec<u8>>, u16),
}

/// A forwarding from where it listens to where it connects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Forward {
    pub(crate) listen: End,
    pub(crate) connect: End,
}

/// Which directive a specification stands in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    Local,
    Remote,
    Dynamic,
}

/// A field of a specification.
struct Field {
    text: Vec<u8>,
    path: bool,
}

impl Forward {
    /// Reads `[host:]port:host:port` and its relatives, with one field for a dynamic forwarding.
    ///
    /// `text` has its environment variables expanded. `dynamic` also holds for a remote one without a target.
    pub(crate) fn parse(
        text: &[u8],
        direction: Direction,
        dynamic: bool,
        services: &Services,
    ) -> Option<Forward> {
        let fields = fields(text)?;
        let port = |field: &Field| port_or_zero(&field.text, services);
        let path = |field: &Field| End::Path(field.text.clone());
        let host = |field: &Field| Some(field.text.clone());
        let socks = || End::Port(Some(b"socks".to_vec()), 0);
        let (listen, connect) = match fields.as_slice() {
            [a] if a.path => (path(a), socks()),
            [a] => (End::Port(None, port(a)?), socks()),
            [a, b] if a.path && b.path => (path(a), path(b)),
            [a, b] if b.path => (End::Port(None, port(a)?), path(b)),
            [a, b] => (End::Port(host(a), port(b)?), socks()),
            [a, b, c] if a.path => (path(a), End::Port(host(b), port(c)?)),
            [a, b, c] if c.path => (End::Port(host(a), port(b)?), path(c)),
            [a, b, c] => (End::Port(None, port(a)?), End::Port(host(b), port(c)?)),
            [a, b, c, d] => (End::Port(host(a), port(b)?), End::Port(host(c), port(d)?)),
            _ => return None,
        };
        let forward = Forward { listen, connect };
        forward.is_legal(direction, dynamic, fields.len()).then_some(forward)
    }

    fn is_legal(&self, direction: Direction, dynamic: bool, fields: usize) -> bool {
        let connect_port_missing = matches!(self.connect, End::Port(_, 0));
        if dynamic {
            if fields > 2 {
                return false;
            }
        } else if connect_port_missing {
            return false;
        }
        // Only the server may choose the port that it listens on.
        if matches!(self.listen, End::Port(_, 0)) && direction != Direction::Remote {
            return false;
        }
        [&self.listen, &self.connect].iter().all(|end| match end {
            End::Path(path) => path.len() <= SOCKET_PATH_BYTES_MAX,
            End::Port(host, _) => host.as_ref().is_none_or(|host| host.len() <= HOST_BYTES_MAX),
        })
    }

    /// Tells whether `ssh -G` lists it under `dynamicforward`.
    pub(crate) fn prints_as_dynamic(&self) -> bool {
        match &self.connect {
            End::Path(_) | End::Port(None, _) => true,
            End::Port(Some(host), _) => host == b"socks",
        }
    }

    /// Tells whether `ssh -G` lists it under `localforward`; one to a Unix socket is in both lists.
    pub(crate) fn prints_as_local(&self) -> bool {
        !matches!(&self.connect, End::Port(Some(host), _) if host == b"socks")
    }

    /// Gives both ends as `ssh -G` prints them.
    pub(crate) fn printed(&self) -> Vec<u8> {
        [self.listen.printed(), self.connect.printed()].join(&b' ')
    }
}

impl End {
    /// Gives the end as `ssh -G` prints it.
    pub(crate) fn printed(&self) -> Vec<u8> {
        match self {
            End::Path(path) => path.clone(),
            End::Port(None, port) => port.to_string().into_bytes(),
            End::Port(Some(host), port) => {
                let mut text = b"[".to_vec();
                text.extend_from_slice(host);
                text.extend_from_slice(format!("]:{port}").as_bytes());
                text
            }
        }
    }
}

/// Splits a specification into its one to four fields.
fn fields(text: &[u8]) -> Option<Vec<Field>> {
    let mut rest = text.trim_ascii_start();
    let mut fields = Vec::new();
    while !rest.is_empty() {
        if fields.len() == 4 {
            return None;
        }
        let (field, behind) = field(rest)?;
        fields.push(field);
        rest = behind;
    }
    Some(fields)
}

/// Takes one field and the colon behind it; brackets protect colons, a backslash any character.
fn field(text: &[u8]) -> Option<(Field, &[u8])> {
    if let Some(inner) = text.strip_prefix(b"[") {
        let close = inner.iter().position(|byte| *byte == b']')?;
        let (literal, behind) = inner.split_at_checked(close)?;
        let behind = behind.get(1..)?;
        let rest = match behind.split_first() {
            None => behind,
            Some((b':', rest)) => rest,
            Some(_) => return None,
        };
        let path = literal.contains(&b'/');
        let text = literal.to_vec();
        return Some((Field { text, path }, rest));
    }
    let mut field = Field { text: Vec::new(), path: false };
    let mut bytes = text.iter().enumerate();
    while let Some((at, byte)) = bytes.next() {
        match byte {
            b'\\' => field.text.push(*bytes.next()?.1),
            b':' => return Some((field, text.get(at + 1..)?)),
            _ => {
                field.path |= *byte == b'/';
                field.text.push(*byte);
            }
        }
    }
    Some((field, &[]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(text: &str, direction: Direction, dynamic: bool) -> Option<String> {
        let services = Services::new();
        let forward = Forward::parse(text.as_bytes(), direction, dynamic, &services)?;
        Some(String::from_utf8(forward.printed()).unwrap())
    }

    #[test]
    fn every_form_of_a_specification_is_read() {
        let local = |text| printed(text, Direction::Local, false);
        assert_eq!(local("80:a:90").unwrap(), "80 [a]:90");
        assert_eq!(local("[::1]:80:a:90").unwrap(), "[::1]:80 [a]:90");
        assert_eq!(local("80:/x/y").unwrap(), "80 /x/y");
        assert_eq!(local("/a:/b").unwrap(), "/a /b");
        assert_eq!(local("/a:b:90").unwrap(), "/a [b]:90");
        assert_eq!(local(r"80:a\:b:90").unwrap(), "80 [a:b]:90");
        for bad in ["80", "80:a", "80:a:0", "0:a:90", "80:a:90:c:d", "x:a:90", "80:[a", ""] {
            assert_eq!(local(bad), None, "{bad}");
        }
        assert_eq!(printed("1080", Direction::Dynamic, true).unwrap(), "1080 [socks]:0");
        assert_eq!(printed("*:1080", Direction::Dynamic, true).unwrap(), "[*]:1080 [socks]:0");
        assert_eq!(printed("0", Direction::Dynamic, true), None);
        assert_eq!(printed("0", Direction::Remote, true).unwrap(), "0 [socks]:0");
    }
}
