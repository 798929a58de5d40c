//! Typed values: what a word means as a number, a time, a size or a port.

use std::collections::BTreeMap;

use crate::forward::Forward;
use crate::jump::JumpSpec;

/// What a directive's words mean.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Value {
    /// One of a fixed list, as it prints.
    Choice(&'static str),
    /// A count, a port or seconds.
    Number(u64),
    /// Checked, and then as if the line were not there: `none` for a time.
    Unset,
    /// A word, the rest of a line, or a value that is only ever printed.
    Text(Vec<u8>),
    /// Several words.
    List(Vec<Vec<u8>>),
    /// Bytes and seconds; absent seconds leave them to later lines.
    Rekey(u64, Option<u64>),
    /// The hops of `ProxyJump`, or its `none`.
    Jump(JumpSpec),
    /// A port forwarding.
    Forward(Forward),
}

impl Value {
    /// Gives the value on one line, as `ssh -G` prints it.
    pub(crate) fn printed(&self) -> Vec<u8> {
        match self {
            Value::Choice(word) => word.as_bytes().to_vec(),
            Value::Number(number) => number.to_string().into_bytes(),
            Value::Unset => Vec::new(),
            Value::Text(text) => text.clone(),
            Value::List(words) => words.join(&b' '),
            Value::Rekey(bytes, seconds) => format!("{bytes} {}", seconds.unwrap_or(0)).into_bytes(),
            Value::Jump(spec) => spec.printed(),
            Value::Forward(forward) => forward.printed(),
        }
    }

    /// Tells whether it is the word `none` in any case.
    pub(crate) fn is_none_word(&self) -> bool {
        match self {
            Value::Text(text) => text.eq_ignore_ascii_case(b"none"),
            Value::List(words) => {
                matches!(words.as_slice(), [word] if word.eq_ignore_ascii_case(b"none"))
            }
            _ => false,
        }
    }
}

/// Largest count, and largest time in seconds.
pub(crate) const COUNT_MAX: u64 = i32::MAX as u64;

/// Reads a decimal number up to `max` as `strtoll` does: blanks and a sign before the digits are allowed.
pub(crate) fn number(word: &[u8], max: u64) -> Option<u64> {
    let blanks = word.iter().take_while(|byte| matches!(byte, b' ' | b'\t'..=b'\r')).count();
    let text = word.get(blanks..)?;
    let (negative, digits) = match text.split_first()? {
        (b'+', digits) => (false, digits),
        (b'-', digits) => (true, digits),
        _ => (false, text),
    };
    if digits.is_empty() {
        return None;
    }
    let mut value: u64 = 0;
    for digit in digits {
        let digit = digit.is_ascii_digit().then(|| u64::from(digit - b'0'))?;
        value = value.checked_mul(10)?.checked_add(digit)?;
    }
    (value <= max && (!negative || value == 0)).then_some(value)
}

/// Reads a count: 0 to 2^31-1.
pub(crate) fn count(word: &[u8]) -> Option<u64> {
    number(word, COUNT_MAX)
}

/// The TCP services of the local database, by name and alias.
pub(crate) type Services = BTreeMap<Vec<u8>, u16>;

/// Reads a services database; malformed lines are skipped, the first of equal names wins.
pub(crate) fn services(text: &[u8]) -> Services {
    let mut services = Services::new();
    for line in text.split(|byte| *byte == b'\n') {
        let line = line.split(|byte| *byte == b'#').next().unwrap_or_default();
        let mut fields = line.split(|byte| byte.is_ascii_whitespace()).filter(|field| !field.is_empty());
        let (Some(name), Some(port)) = (fields.next(), fields.next()) else {
            continue;
        };
        let port = port
            .strip_suffix(b"/tcp")
            .and_then(|digits| number(digits, u64::from(u16::MAX)))
            .and_then(|port| u16::try_from(port).ok());
        let Some(port) = port else { continue };
        for name in std::iter::once(name).chain(fields) {
            services.entry(name.to_vec()).or_insert(port);
        }
    }
    services
}

/// Reads a port, 0 included: a number, or the name of a TCP service.
pub(crate) fn port_or_zero(word: &[u8], services: &Services) -> Option<u16> {
    number(word, u64::from(u16::MAX))
        .and_then(|port| u16::try_from(port).ok())
        .or_else(|| services.get(word).copied())
}

/// Reads a port from 1 on.
pub(crate) fn port(word: &[u8], services: &Services) -> Option<u16> {
    port_or_zero(word, services).filter(|port| *port != 0)
}

/// Reads a sum of `<digits>[unit]` in seconds; the word `none` is not one.
///
/// Fractions are allowed for seconds and dropped; a second seconds term is an error. Both as 10.3 and later.
pub(crate) fn time(word: &[u8]) -> Option<u64> {
    if word.is_empty() {
        return None;
    }
    let mut total: u64 = 0;
    let mut seconds_seen = false;
    let mut rest = word;
    while !rest.is_empty() {
        let end = rest.iter().position(|byte| !byte.is_ascii_digit() && *byte != b'.').unwrap_or(rest.len());
        let (term, behind) = rest.split_at_checked(end)?;
        let unit = match behind.first().map(u8::to_ascii_lowercase) {
            None | Some(b's') => 1,
            Some(b'm') => 60,
            Some(b'h') => 3600,
            Some(b'd') => 86_400,
            Some(b'w') => 604_800,
            Some(_) => return None,
        };
        if unit == 1 && std::mem::replace(&mut seconds_seen, true) {
            return None;
        }
        let whole = term_value(term, unit == 1)?;
        total = total.checked_add(whole.checked_mul(unit)?)?;
        if total > COUNT_MAX {
            return None;
        }
        rest = behind.get(1..).unwrap_or_default();
    }
    Some(total)
}

/// Reads the whole part of one term; only seconds may have a fraction, which needs digits and is dropped.
fn term_value(term: &[u8], fraction_allowed: bool) -> Option<u64> {
    let mut halves = term.splitn(2, |byte| *byte == b'.');
    let whole = halves.next()?;
    let Some(part) = halves.next() else {
        return count(whole);
    };
    if !fraction_allowed || part.is_empty() || part.contains(&b'.') {
        return None;
    }
    if whole.is_empty() {
        return Some(0);
    }
    count(whole)
}

/// Reads a size with an optional scale letter (B K M G T P E), in bytes.
pub(crate) fn scaled(word: &[u8]) -> Option<u64> {
    let blanks = word.iter().take_while(|byte| matches!(byte, b' ' | b'\t'..=b'\r')).count();
    let text = word.get(blanks..)?;
    let text = text.strip_prefix(b"+").unwrap_or(text);
    let end = text.iter().position(|byte| !byte.is_ascii_digit() && *byte != b'.').unwrap_or(text.len());
    let (digits, scale) = text.split_at_checked(end)?;
    let mut halves = digits.splitn(2, |byte| *byte == b'.');
    let whole = halves.next()?;
    let part = halves.next().unwrap_or_default();
    if part.contains(&b'.') || whole.len() > 19 {
        return None;
    }
    let whole = if whole.is_empty() { 0 } else { number(whole, i64::MAX as u64)? };
    let Some((letter, behind)) = scale.split_first() else {
        return Some(whole);
    };
    if behind.first().is_some_and(u8::is_ascii_alphanumeric) {
        return None;
    }
    let power = b"BKMGTPE".iter().position(|known| *known == letter.to_ascii_uppercase())?;
    let factor = 1_u64 << (10 * power);
    let scaled = whole.checked_mul(factor)?.checked_add(scaled_part(part, factor)?)?;
    (scaled <= i64::MAX as u64).then_some(scaled)
}

/// Scales the digits behind the point; digits beyond the eighteenth do not count.
fn scaled_part(part: &[u8], factor: u64) -> Option<u64> {
    let part = part.get(..part.len().min(18))?;
    if part.is_empty() {
        return Some(0);
    }
    let digits = u128::from(number(part, i64::MAX as u64)?);
    let unit = 10_u128.checked_pow(u32::try_from(part.len()).ok()?)?;
    u64::try_from(digits * u128::from(factor) / unit).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_take_blanks_plus_and_zeros_but_no_minus() {
        for (word, expected) in [
            ("0", Some(0)),
            ("007", Some(7)),
            (" +5", Some(5)),
            ("-0", Some(0)),
            ("-1", None),
            ("", None),
            ("+", None),
            ("5 ", None),
            ("0x5", None),
            ("2147483647", Some(2_147_483_647)),
            ("2147483648", None),
            ("99999999999999999999999", None),
        ] {
            assert_eq!(count(word.as_bytes()), expected, "{word:?}");
        }
    }

    #[test]
    fn times_are_sums_with_units_and_at_most_one_seconds_term() {
        for (word, expected) in [
            ("5", Some(5)),
            ("007", Some(7)),
            ("1m30s", Some(90)),
            ("1M30", Some(90)),
            ("1w2D3h", Some(604_800 + 2 * 86_400 + 3 * 3600)),
            ("1.5s", Some(1)),
            ("1.9", Some(1)),
            ("1.", None),
            ("1.5m", None),
            ("5s5s", None),
            ("5s5", None),
            ("5x", None),
            ("", None),
            ("none", None),
            ("-5", None),
            (" 5", None),
            ("s", None),
            ("2147483647", Some(2_147_483_647)),
            ("2147483648", None),
            ("3551w", None),
        ] {
            assert_eq!(time(word.as_bytes()), expected, "{word:?}");
        }
    }

    #[test]
    fn sizes_take_a_scale_letter() {
        for (word, expected) in [
            ("1G", Some(1 << 30)),
            ("1.5k", Some(1536)),
            ("100", Some(100)),
            ("1KB", None),
            ("K", Some(0)),
            ("16E", None),
            ("1.2.3", None),
            ("-5", None),
            ("1x", None),
        ] {
            assert_eq!(scaled(word.as_bytes()), expected, "{word:?}");
        }
    }

    #[test]
    fn a_port_is_a_number_or_a_service() {
        let services = services(b"ssh 22/tcp # x\nhttps 443/tcp www-s\nntp 123/udp\nbad\n");
        for (word, expected) in [
            ("22", Some(22)),
            ("+23", Some(23)),
            ("0", None),
            ("65536", None),
            ("https", Some(443)),
            ("www-s", Some(443)),
            ("ntp", None),
            ("HTTPS", None),
        ] {
            assert_eq!(port(word.as_bytes(), &services), expected, "{word:?}");
        }
    }
}
