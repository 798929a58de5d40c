//! The final host name: addresses in canonical form, names in lower case, domains tried where that is asked for.

use std::net::{IpAddr, ToSocketAddrs};

use crate::address;
use crate::effective::Effective;
use crate::keywords::Keyword;
use crate::rejection::{Reason, Rejection};
use crate::resolved::AddressFamily;
use crate::values::Value;

/// Gives the addresses of a full name (it ends in a dot), none when it does not resolve.
pub type NameLookup<'a> = &'a dyn Fn(&str) -> Vec<IpAddr>;

/// Asks the system's resolver.
pub(crate) fn system_lookup(name: &str) -> Vec<IpAddr> {
    // A name that cannot be looked up, for whatever reason, does not resolve; OpenSSH makes no difference either.
    (name, 0)
        .to_socket_addrs()
        .map(|addresses| addresses.map(|address| address.ip()).collect())
        .unwrap_or_default()
}

/// Gives the family that the configuration allows.
pub(crate) fn family(effective: &Effective) -> AddressFamily {
    match effective.choice(Keyword::AddressFamily) {
        Some("inet") => AddressFamily::Inet,
        Some("inet6") => AddressFamily::Inet6,
        _ => AddressFamily::Any,
    }
}

/// Tells whether `CanonicalizeHostname` is on.
pub(crate) fn is_on(effective: &Effective) -> bool {
    matches!(effective.choice(Keyword::CanonicalizeHostname), Some("true" | "always"))
}

/// Gives the final form of a name that `HostName` has been applied to.
///
/// The error is that of a name which resolves under no domain while `CanonicalizeFallbackLocal` is off.
pub(crate) fn final_name(
    name: &[u8],
    effective: &Effective,
    lookup: NameLookup<'_>,
) -> Result<Vec<u8>, Rejection> {
    let family = family(effective);
    if let Some(canonical) = address::canonical(name, family) {
        // When only the case differs the text stays as it was.
        return Ok(if canonical.as_bytes().eq_ignore_ascii_case(name) {
            name.to_vec()
        } else {
            canonical.into_bytes()
        });
    }
    if address::looks_numeric(name) {
        return Ok(name.to_vec());
    }
    let name = name.to_ascii_lowercase();
    if !is_on(effective) || (!is_direct(effective) && !is_always(effective)) {
        return Ok(name);
    }
    let resolves = |full: &[u8]| {
        let full = String::from_utf8_lossy(full);
        lookup(&full).into_iter().any(|address| match family {
            AddressFamily::Any => true,
            AddressFamily::Inet => address.is_ipv4(),
            AddressFamily::Inet6 => address.is_ipv6(),
        })
    };
    let found = if name.ends_with(b".") {
        resolves(&name).then(|| name.clone())
    } else {
        let dots = name.iter().filter(|byte| **byte == b'.').count() as u64;
        if dots > effective.number(Keyword::CanonicalizeMaxDots).unwrap_or(1) {
            return Ok(name);
        }
        domains(effective)
            .map(|domain| [name.as_slice(), b".", domain, b"."].concat())
            .find(|full| resolves(full))
    };
    match found {
        Some(full) => Ok(full.strip_suffix(b".").unwrap_or(&full).to_vec()),
        None if effective.choice(Keyword::CanonicalizeFallbackLocal) == Some("no") => {
            Err(unresolved(&name, effective))
        }
        None => Ok(name),
    }
}

fn unresolved(name: &[u8], effective: &Effective) -> Rejection {
    let message = format!(
        "host {:?} resolves under no canonical domain, and the fallback is off",
        String::from_utf8_lossy(name)
    );
    let rejection = Rejection::new(Reason::Syntax, message);
    match effective.placed(Keyword::CanonicalizeFallbackLocal) {
        Some(placed) => rejection.at(&placed.origin.file, Some(placed.origin.line)),
        None => rejection,
    }
}

fn domains(effective: &Effective) -> impl Iterator<Item = &[u8]> {
    let words = match effective.value(Keyword::CanonicalDomains) {
        Some(Value::List(words)) => words.as_slice(),
        _ => &[],
    };
    words.iter().map(Vec::as_slice).take_while(|word| !word.eq_ignore_ascii_case(b"none"))
}

fn is_always(effective: &Effective) -> bool {
    effective.choice(Keyword::CanonicalizeHostname) == Some("always")
}

/// Tells whether the name is dialled from here; what a proxy resolves is looked up only on demand.
fn is_direct(effective: &Effective) -> bool {
    let jumps = match effective.value(Keyword::ProxyJump) {
        Some(Value::Jump(spec)) => !spec.hops().is_empty(),
        _ => false,
    };
    let command = effective.value(Keyword::ProxyCommand).is_some_and(|value| !value.is_none_word());
    !jumps && !command
}
