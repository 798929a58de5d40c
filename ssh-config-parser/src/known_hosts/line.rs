//! One line of a known_hosts file.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use sha1::Sha1;

use super::key::KeyBlob;
use super::name::LookupName;
use crate::expand::shown;
use crate::patterns::{ListMatch, list_matches};

/// Bytes of a salt and of a hash.
pub(super) const HASH_BYTES: usize = 20;
/// How a hashed name begins.
const HASH_MAGIC: &[u8] = b"|1|";

/// What a line says about its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Marker {
    /// It is the key of the hosts.
    None,
    /// It is an authority for the hosts.
    Authority,
    /// It is revoked for the hosts.
    Revoked,
}

/// Which hosts a line is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Names {
    /// A comma-separated list of patterns.
    Patterns(Vec<u8>),
    /// One name, hashed.
    Hashed { salt: [u8; HASH_BYTES], hash: [u8; HASH_BYTES] },
}

/// A line that counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) marker: Marker,
    pub(super) names: Names,
    pub(super) key: KeyBlob,
}

/// Reads one line, without its LF; none for an empty line or a comment, an error for one that is ignored.
pub(super) fn parse(line: &[u8]) -> Option<Result<Entry, String>> {
    // What stands behind a NUL is never seen; a CR at the end belongs to the comment or to nothing.
    let line = line.split(|byte| *byte == 0).next().unwrap_or_default();
    let line = skip_blanks(line.strip_suffix(b"\r").unwrap_or(line));
    if line.is_empty() || line.starts_with(b"#") {
        return None;
    }
    Some(entry(line))
}

fn entry(line: &[u8]) -> Result<Entry, String> {
    let (marker, line) = marker(line)?;
    let (names, rest) = field(line);
    let (key_type, rest) = field(rest);
    if key_type.is_empty() || key_type.starts_with(b"#") {
        return Err("no key type".to_owned());
    }
    if is_protocol_1(key_type) {
        return Err("key of protocol 1".to_owned());
    }
    let (base64, _comment) = field(rest);
    let key = KeyBlob::from_text(key_type, base64).map_err(|error| error.to_string())?;
    let names = self::names(names)?;
    Ok(Entry { marker, names, key })
}

/// Takes at most one marker, which ends at a blank.
///
/// OpenSSH ends it at the first space of the line, so that a tab behind it loses a revocation; here it does not.
fn marker(line: &[u8]) -> Result<(Marker, &[u8]), String> {
    if !line.starts_with(b"@") {
        return Ok((Marker::None, line));
    }
    let (word, rest) = field(line);
    let marker = match word {
        b"@cert-authority" => Marker::Authority,
        b"@revoked" => Marker::Revoked,
        _ => return Err(format!("marker {} is not known", shown(word))),
    };
    if rest.starts_with(b"@") {
        return Err("more than one marker".to_owned());
    }
    Ok((marker, rest))
}

fn names(field: &[u8]) -> Result<Names, String> {
    if !field.starts_with(b"|") {
        return Ok(Names::Patterns(field.to_vec()));
    }
    let decode = |text: &[u8]| -> Option<[u8; HASH_BYTES]> {
        // Anything but base64 of the right length makes the field none of ours.
        STANDARD.decode(text).ok()?.try_into().ok()
    };
    let mut parts =
        field.strip_prefix(HASH_MAGIC).into_iter().flat_map(|rest| rest.split(|byte| *byte == b'|'));
    match (parts.next().and_then(decode), parts.next().and_then(decode), parts.next()) {
        (Some(salt), Some(hash), None) => Ok(Names::Hashed { salt, hash }),
        _ => Err("hashed name is malformed".to_owned()),
    }
}

/// Splits off the text before the first space or tab, and the blanks behind it.
fn field(text: &[u8]) -> (&[u8], &[u8]) {
    let end = text.iter().position(|byte| matches!(byte, b' ' | b'\t')).unwrap_or(text.len());
    let (field, rest) = text.split_at(end);
    (field, skip_blanks(rest))
}

fn skip_blanks(text: &[u8]) -> &[u8] {
    let start = text.iter().position(|byte| !matches!(byte, b' ' | b'\t')).unwrap_or(text.len());
    text.get(start..).unwrap_or_default()
}

/// Tells a line of protocol 1 by the number of bits in the place of the key type.
fn is_protocol_1(key_type: &[u8]) -> bool {
    key_type.len() < 8 && key_type.iter().all(u8::is_ascii_digit)
}

impl Names {
    /// Tells whether the line is about a host.
    pub(super) fn match_name(&self, name: &LookupName) -> bool {
        match self {
            Names::Patterns(list) => list_matches(name.text().as_bytes(), list, true) == ListMatch::Yes,
            Names::Hashed { salt, hash } => {
                // The comparison takes the same time wherever the bytes differ.
                keyed(salt, name).is_some_and(|mac| mac.verify_slice(hash).is_ok())
            }
        }
    }
}

/// Writes a name hashed with `salt`; none never happens, as any length of salt is legal.
pub(super) fn hashed(name: &LookupName, salt: &[u8; HASH_BYTES]) -> Option<String> {
    let hash = keyed(salt, name)?.finalize().into_bytes();
    Some(format!("|1|{}|{}", STANDARD.encode(salt), STANDARD.encode(hash)))
}

fn keyed(salt: &[u8], name: &LookupName) -> Option<Hmac<Sha1>> {
    // HMAC takes keys of any length, so this has a value.
    let mut mac = Hmac::<Sha1>::new_from_slice(salt).ok()?;
    mac.update(name.text().as_bytes());
    Some(mac)
}
