//! Numeric addresses: recognised and put in canonical form as the system's own functions do, without asking them.

use std::net::{Ipv4Addr, Ipv6Addr};

use crate::resolved::AddressFamily;

/// Tells whether a name can only be an address, well-formed or not; such a name is never put in lower case.
pub(crate) fn looks_numeric(name: &[u8]) -> bool {
    name.iter().any(|byte| matches!(byte, b'%' | b':'))
        || name.iter().all(|byte| byte.is_ascii_digit() || *byte == b'.')
}

/// Gives the canonical text of an address of the family, none for anything else.
///
/// An interface behind `%` is looked up by name or number, and printed by name where the address is link-local.
pub(crate) fn canonical(name: &[u8], family: AddressFamily) -> Option<String> {
    let text = std::str::from_utf8(name).ok()?;
    if let Some(address) = v4(text) {
        return (family != AddressFamily::Inet6).then(|| address.to_string());
    }
    let (text, scope) = match text.split_once('%') {
        Some((text, scope)) => (text, Some(scope)),
        None => (text, None),
    };
    let address: Ipv6Addr = text.parse().ok()?;
    if family == AddressFamily::Inet {
        return None;
    }
    let mut canonical = v6_text(address);
    if let Some(scope) = scope {
        let local = address.is_unicast_link_local()
            || (address.is_multicast() && address.segments().first().is_some_and(|s| s & 0xf == 2));
        let index = scope_index(scope, local)?;
        if index != 0 {
            canonical.push('%');
            canonical.push_str(&scope_text(index, local));
        }
    }
    Some(canonical)
}

fn scope_index(scope: &str, local: bool) -> Option<u32> {
    if local && let Ok(index) = nix::net::if_::if_nametoindex(scope) {
        return Some(index);
    }
    scope.bytes().all(|byte| byte.is_ascii_digit()).then(|| scope.parse().ok())?
}

fn scope_text(index: u32, local: bool) -> String {
    local
        .then(|| nix::net::if_::if_indextoname(index).ok())
        .flatten()
        .map_or_else(|| index.to_string(), |name| name.to_string_lossy().into_owned())
}

/// Writes a v6 address as the C library does: one that only ends in a v4 address shows it.
fn v6_text(address: Ipv6Addr) -> String {
    let segments = address.segments();
    let [.., high, low] = segments;
    let leading_zeros = segments.iter().take_while(|segment| **segment == 0).count();
    if leading_zeros == 6 {
        let [[a, b], [c, d]] = [high.to_be_bytes(), low.to_be_bytes()];
        return format!("::{}", Ipv4Addr::new(a, b, c, d));
    }
    address.to_string()
}

/// Reads a v4 address of one to four parts, each decimal, octal or hexadecimal, as `inet_aton` does.
fn v4(text: &str) -> Option<Ipv4Addr> {
    let parts: Option<Vec<u32>> = text.split('.').map(v4_part).collect();
    let parts = parts?;
    let (last, leading) = parts.split_last()?;
    if leading.len() > 3 || leading.iter().any(|part| *part > 0xff) {
        return None;
    }
    let shift = 8 * u32::try_from(leading.len()).ok()?;
    if u64::from(*last) >> (32 - shift) != 0 {
        return None;
    }
    let mut bits = *last;
    for (part, place) in leading.iter().zip([24_u32, 16, 8]) {
        bits |= part << place;
    }
    Some(Ipv4Addr::from(bits))
}

fn v4_part(text: &str) -> Option<u32> {
    if !text.starts_with(|first: char| first.is_ascii_digit()) {
        return None;
    }
    let lower = text.to_ascii_lowercase();
    let (digits, radix) = match lower.strip_prefix("0x") {
        Some(digits) => (digits, 16),
        None if lower.len() > 1 && lower.starts_with('0') => (lower.as_str(), 8),
        None => (lower.as_str(), 10),
    };
    if digits.is_empty() || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    u32::from_str_radix(digits, radix).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_come_out_in_the_c_librarys_form() {
        for (name, expected) in [
            ("127.1", Some("127.0.0.1")),
            ("0x7f.1", Some("127.0.0.1")),
            ("1", Some("0.0.0.1")),
            ("010.0.0.1", Some("8.0.0.1")),
            ("192.168.257", Some("192.168.1.1")),
            ("4294967295", Some("255.255.255.255")),
            ("4294967296", None),
            ("256.1", None),
            ("1.2.3.4.5", None),
            ("1.", None),
            ("08.1", None),
            ("0x", None),
            ("2001:0DB8:0:0::1", Some("2001:db8::1")),
            ("::102:304", Some("::1.2.3.4")),
            ("::1", Some("::1")),
            ("0::ffff:1.2.3.4", Some("::ffff:1.2.3.4")),
            ("::1%3", Some("::1%3")),
            ("fe80::1%lo", Some("fe80::1%lo")),
            ("::1.2.3", None),
            ("web", None),
            ("Web:1", None),
            ("", None),
        ] {
            let got = canonical(name.as_bytes(), AddressFamily::Any);
            assert_eq!(got.as_deref(), expected, "{name}");
        }
        assert_eq!(canonical(b"127.1", AddressFamily::Inet6), None);
        assert_eq!(canonical(b"::1", AddressFamily::Inet), None);
    }
}
