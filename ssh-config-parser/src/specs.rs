//! Values whose form only one keyword has.

use crate::context::Fault;
use crate::expand::shown;
use crate::jump::{domain, host_and_rest};
use crate::keywords::{Choices, Special};
use crate::parse::{Args, bad, choice, time, word_list};
use crate::values::{self, Value};

/// Reads the value of a keyword that has a form of its own.
pub(crate) fn parse(special: Special, args: &mut Args<'_>) -> Result<Value, Fault> {
    match special {
        Special::AddKeysToAgent => add_keys_to_agent(args),
        Special::CanonicalDomains => canonical_domains(args),
        Special::ChannelTimeout => channel_timeout(args),
        Special::CnameRules => cname_rules(args),
        Special::ControlPersist => control_persist(args),
        Special::EscapeChar => escape_char(args),
        Special::IpQos => ip_qos(args),
        Special::LogVerbose => log_verbose(args),
        Special::ObscureKeystrokeTiming => obscure_keystroke_timing(args),
        Special::PermitRemoteOpen => permit_remote_open(args),
        Special::RekeyLimit => rekey_limit(args),
        Special::SendEnv => send_env(args),
        Special::SetEnv => set_env(args),
        Special::SocketMask => socket_mask(args),
        Special::TunnelDevice => tunnel_device(args),
        Special::VersionAddendum => version_addendum(args),
    }
}

fn add_keys_to_agent(args: &mut Args<'_>) -> Result<Value, Fault> {
    const CHOICES: Choices = &[
        ("yes", "true"),
        ("true", "true"),
        ("no", "false"),
        ("false", "false"),
        ("ask", "ask"),
        ("confirm", "confirm"),
    ];
    let word = args.needed()?;
    let life = args.next();
    let seconds = |word: &[u8]| values::time(word).ok_or_else(|| bad("time", word));
    let (word, seconds) = match (choice(word, CHOICES), life) {
        (Ok("confirm"), Some(life)) => ("confirm", seconds(life)?),
        (Ok(word), None) => (word, 0),
        (Err(_), None) => ("true", seconds(word)?),
        (_, Some(life)) => return Err(bad("use of a life time", life)),
    };
    Ok(match (word, seconds) {
        (word, 0) => Value::Choice(word),
        ("confirm", seconds) => Value::Text(format!("confirm {seconds}").into_bytes()),
        (_, seconds) => Value::Text(seconds.to_string().into_bytes()),
    })
}

fn canonical_domains(args: &mut Args<'_>) -> Result<Value, Fault> {
    let words = needed_list(args)?;
    let domains: Result<Vec<Vec<u8>>, Fault> = words
        .iter()
        .map(|word| {
            let domain = domain(word).ok_or_else(|| bad("domain name", word))?;
            Ok(domain.to_ascii_lowercase())
        })
        .collect();
    Ok(Value::List(domains?))
}

fn needed_list(args: &mut Args<'_>) -> Result<Vec<Vec<u8>>, Fault> {
    let words = word_list(args)?;
    if words.is_empty() {
        return Err(Fault::syntax("value is missing"));
    }
    Ok(words)
}

fn channel_timeout(args: &mut Args<'_>) -> Result<Value, Fault> {
    let words = needed_list(args)?;
    for word in &words {
        let time =
            word.iter().position(|byte| *byte == b'=').filter(|at| *at > 0).and_then(|at| word.get(at + 1..));
        if !word.eq_ignore_ascii_case(b"none") && time.and_then(values::time).is_none() {
            return Err(bad("channel timeout", word));
        }
    }
    Ok(Value::List(words))
}

/// Reads `source:target` rules; they print in lower case, `*` as `*:*` and `none` as `none`.
fn cname_rules(args: &mut Args<'_>) -> Result<Value, Fault> {
    let words = needed_list(args)?;
    let rules: Result<Vec<Vec<u8>>, Fault> = words
        .iter()
        .map(|word| match word.iter().position(|byte| *byte == b':') {
            _ if word.eq_ignore_ascii_case(b"none") => Ok(b"none".to_vec()),
            _ if word == b"*" => Ok(b"*:*".to_vec()),
            Some(at) if at + 1 < word.len() => Ok(word.to_ascii_lowercase()),
            _ => Err(bad("rule of names", word)),
        })
        .collect();
    Ok(Value::List(rules?))
}

fn control_persist(args: &mut Args<'_>) -> Result<Value, Fault> {
    let word = args.needed()?;
    // Unlike other flags, these are exact.
    match word {
        b"no" | b"false" => Ok(Value::Choice("no")),
        b"yes" | b"true" => Ok(Value::Choice("yes")),
        _ => match values::time(word) {
            Some(0) => Ok(Value::Choice("yes")),
            Some(seconds) => Ok(Value::Number(seconds)),
            None => Err(bad("flag or time", word)),
        },
    }
}

fn escape_char(args: &mut Args<'_>) -> Result<Value, Fault> {
    let word = args.needed()?;
    let byte = match word {
        b"none" => return Ok(Value::Choice("none")),
        [byte] => *byte,
        [b'^', byte @ 64..128] => byte & 31,
        _ => return Err(bad("escape character", word)),
    };
    Ok(Value::Text(visible_char(byte)))
}

/// Writes a character visibly: `\^A` for a control one, `\M-a` for one with the high bit, octal for blanks.
fn visible_char(byte: u8) -> Vec<u8> {
    if byte & 0x7f == b' ' {
        return format!("\\{byte:03o}").into_bytes();
    }
    if byte.is_ascii_graphic() {
        return if byte == b'\\' { b"\\\\".to_vec() } else { vec![byte] };
    }
    let mut text = b"\\".to_vec();
    let low = byte & 0x7f;
    if byte != low {
        text.push(b'M');
    }
    match low {
        0x7f => text.extend_from_slice(b"^?"),
        0..=0x1f => text.extend_from_slice(&[b'^', low + b'@']),
        _ => text.extend_from_slice(&[b'-', low]),
    }
    text
}

/// Service classes by name; 9.2 still gives the last three values of their own.
const SERVICE_CLASSES: &[(&str, u8)] = &[
    ("af11", 0x28),
    ("af12", 0x30),
    ("af13", 0x38),
    ("af21", 0x48),
    ("af22", 0x50),
    ("af23", 0x58),
    ("af31", 0x68),
    ("af32", 0x70),
    ("af33", 0x78),
    ("af41", 0x88),
    ("af42", 0x90),
    ("af43", 0x98),
    ("cs0", 0x00),
    ("cs1", 0x20),
    ("cs2", 0x40),
    ("cs3", 0x60),
    ("cs4", 0x80),
    ("cs5", 0xa0),
    ("cs6", 0xc0),
    ("cs7", 0xe0),
    ("ef", 0xb8),
    ("le", 0x04),
    ("lowdelay", 0x10),
    ("throughput", 0x08),
    ("reliability", 0x04),
];

fn ip_qos(args: &mut Args<'_>) -> Result<Value, Fault> {
    let interactive = service_class(args.needed()?)?;
    let bulk = match args.next() {
        Some(word) => service_class(word)?,
        None => interactive.clone(),
    };
    Ok(Value::Text(format!("{interactive} {bulk}").into_bytes()))
}

fn service_class(word: &[u8]) -> Result<String, Fault> {
    let name = String::from_utf8_lossy(word).to_ascii_lowercase();
    // `va` came with 10.x and has no number before.
    if name == "none" || name == "va" {
        return Ok(name);
    }
    let named = SERVICE_CLASSES.iter().find(|(known, _)| *known == name);
    let number = match named {
        Some((_, number)) => *number,
        None => service_number(&name).ok_or_else(|| bad("service class", word))?,
    };
    // Of two names for a number the first one prints.
    let first = SERVICE_CLASSES.iter().find(|(_, value)| *value == number);
    Ok(first.map_or_else(|| format!("0x{number:02x}"), |(name, _)| (*name).to_owned()))
}

/// Reads a number in decimal, octal behind `0` or hexadecimal behind `0x`.
fn service_number(name: &str) -> Option<u8> {
    let unsigned = name.strip_prefix('+').unwrap_or(name);
    if !unsigned.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        return None;
    }
    let number = if let Some(digits) = unsigned.strip_prefix("0x") {
        u8::from_str_radix(digits, 16)
    } else if unsigned.len() > 1 && unsigned.starts_with('0') {
        u8::from_str_radix(unsigned, 8)
    } else {
        unsigned.parse()
    };
    // Whatever is wrong with it, it is no service class.
    number.ok()
}

/// Keeps the first word only, as OpenSSH does.
fn log_verbose(args: &mut Args<'_>) -> Result<Value, Fault> {
    let words = word_list(args)?;
    Ok(words.into_iter().next().map_or(Value::Unset, Value::Text))
}

fn obscure_keystroke_timing(args: &mut Args<'_>) -> Result<Value, Fault> {
    let word = args.needed()?;
    let interval = match word {
        b"yes" | b"true" => Some(20),
        b"no" | b"false" => Some(0),
        _ => word
            .strip_prefix(b"interval:")
            .and_then(values::count)
            .filter(|millis| (1..=1000).contains(millis)),
    };
    interval.map(Value::Number).ok_or_else(|| bad("flag or interval of 1 to 1000", word))
}

fn permit_remote_open(args: &mut Args<'_>) -> Result<Value, Fault> {
    let words = args.rest();
    if words.is_empty() {
        return Err(Fault::syntax("value is missing"));
    }
    let any = |word: &[u8]| word.eq_ignore_ascii_case(b"any") || word.eq_ignore_ascii_case(b"none");
    if words.len() > 1 && words.iter().any(|word| any(word)) {
        return Err(Fault::syntax("any and none must stand alone"));
    }
    for word in &words {
        let port = host_and_rest(word).and_then(|(_, rest)| rest);
        let services = args.context().services.get();
        let legal = match port {
            Some((b':', port)) => port == b"*" || values::port(port, services).is_some(),
            _ => false,
        };
        if !any(word) && !legal {
            return Err(bad("host and port", word));
        }
    }
    Ok(Value::List(words))
}

fn rekey_limit(args: &mut Args<'_>) -> Result<Value, Fault> {
    /// Less than this is refused, except 0 for the default.
    const BYTES_MIN: u64 = 16;
    let word = args.needed()?;
    let bytes = if word == b"default" {
        0
    } else {
        values::scaled(word)
            .filter(|bytes| *bytes == 0 || *bytes >= BYTES_MIN)
            .ok_or_else(|| bad("size of 16 bytes or more", word))?
    };
    let interval = match args.peek() {
        None => None,
        Some(_) => match time(args)? {
            Value::Number(seconds) => Some(seconds),
            _ => None,
        },
    };
    Ok(Value::Rekey(bytes, interval))
}

fn send_env(args: &mut Args<'_>) -> Result<Value, Fault> {
    let words = args.rest();
    if words.is_empty() {
        return Err(Fault::syntax("value is missing"));
    }
    match words.iter().find(|word| word.is_empty() || word.contains(&b'=')) {
        Some(word) => Err(bad("variable name", word)),
        None => Ok(Value::List(words)),
    }
}

/// Reads `NAME=value` words; of equal names the first counts.
fn set_env(args: &mut Args<'_>) -> Result<Value, Fault> {
    let name = |word: &[u8]| word.split(|byte| *byte == b'=').next().map(<[u8]>::to_vec);
    let mut kept: Vec<Vec<u8>> = Vec::new();
    for word in args.rest() {
        if !word.contains(&b'=') {
            return Err(bad("variable with a value", &word));
        }
        if kept.iter().all(|known| name(known) != name(&word)) {
            kept.push(word);
        }
    }
    if kept.is_empty() {
        return Err(Fault::syntax("value is missing"));
    }
    Ok(Value::List(kept))
}

/// Reads an octal mode; what stands behind its digits does not count.
fn socket_mask(args: &mut Args<'_>) -> Result<Value, Fault> {
    let word = args.needed()?;
    let text = word.trim_ascii_start();
    let (negative, text) = match text.split_first() {
        Some((b'-', rest)) => (true, rest),
        Some((b'+', rest)) => (false, rest),
        _ => (false, text),
    };
    let digits: Vec<u8> = text.iter().copied().take_while(|byte| matches!(byte, b'0'..=b'7')).collect();
    let mask = std::str::from_utf8(&digits)
        .ok()
        .and_then(|digits| u32::from_str_radix(digits, 8).ok())
        .filter(|mask| *mask <= 0o777 && (!negative || *mask == 0))
        .ok_or_else(|| bad("mask", word))?;
    Ok(Value::Text(format!("0{mask:o}").into_bytes()))
}

fn tunnel_device(args: &mut Args<'_>) -> Result<Value, Fault> {
    let word = args.needed()?;
    /// The two numbers above it stand for "any" and "error".
    const DEVICE_MAX: u64 = values::COUNT_MAX - 2;
    let device = |text: &[u8]| {
        if text.eq_ignore_ascii_case(b"any") {
            return Ok("any".to_owned());
        }
        let number = values::number(text, DEVICE_MAX).ok_or_else(|| bad("tunnel device", word))?;
        Ok(number.to_string())
    };
    let mut halves = word.splitn(2, |byte| *byte == b':');
    let local = device(halves.next().unwrap_or_default())?;
    let remote = halves.next().map_or(Ok("any".to_owned()), device)?;
    Ok(Value::Text(format!("{local}:{remote}").into_bytes()))
}

fn version_addendum(args: &mut Args<'_>) -> Result<Value, Fault> {
    let raw = args.raw();
    if raw.contains(&b'\r') {
        return Err(Fault::syntax(format!("carriage return in {}", shown(raw))));
    }
    let cut = raw.split(|byte| *byte == b'#').next().unwrap_or_default();
    Ok(Value::Text(cut.trim_ascii_end().to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_escape_character_is_written_visibly() {
        for (byte, expected) in [
            (b'~', "~"),
            (b'\\', "\\\\"),
            (b' ', "\\040"),
            (b'\t', "\\^I"),
            (0x7f, "\\^?"),
            (0xe9, "\\M-i"),
            (0xa0, "\\240"),
            (0x81, "\\M^A"),
        ] {
            assert_eq!(visible_char(byte), expected.as_bytes());
        }
    }

    #[test]
    fn service_classes_print_by_name_where_they_have_one() {
        for (word, expected) in
            [("0x10", "lowdelay"), ("AF11", "af11"), ("40", "af11"), ("3", "0x03"), ("reliability", "le")]
        {
            assert_eq!(service_class(word.as_bytes()).unwrap(), expected);
        }
        assert!(service_class(b"256").is_err());
    }
}
