//! Times as Slurm prints and reads them.

use jiff::tz::TimeZone;
use jiff::{Timestamp, civil};

/// Now, in seconds since 1970.
pub(super) fn now() -> i64 {
    Timestamp::now().as_second()
}

/// `2026-11-30T14:27:24` in local time.
pub(super) fn stamp(seconds: i64) -> String {
    Timestamp::from_second(seconds).map_or_else(
        |_| "Unknown".to_owned(),
        |time| {
            let local = time.to_zoned(TimeZone::system());
            local.strftime("%Y-%m-%dT%H:%M:%S").to_string()
        },
    )
}

/// `[D-]HH:MM:SS`, as sacct and scontrol print durations.
pub(super) fn full(seconds: i64) -> String {
    let (days, hours, minutes, seconds) = split(seconds);
    let day = if days > 0 { format!("{days}-") } else { String::new() };
    format!("{day}{hours:02}:{minutes:02}:{seconds:02}")
}

/// `M:SS`, `H:MM:SS` or `D-HH:MM:SS`, as squeue and sinfo print durations.
pub(super) fn brief(seconds: i64) -> String {
    match split(seconds) {
        (0, 0, minutes, seconds) => format!("{minutes}:{seconds:02}"),
        (0, hours, minutes, seconds) => format!("{hours}:{minutes:02}:{seconds:02}"),
        _ => full(seconds),
    }
}

fn split(seconds: i64) -> (i64, i64, i64, i64) {
    let seconds = seconds.max(0);
    (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60, seconds % 60)
}

/// Reads `M`, `M:S`, `H:M:S`, `D-H`, `D-H:M` or `D-H:M:S` as seconds. Unlike Slurm, seconds count.
pub(super) fn parse_limit(text: &str) -> Option<i64> {
    let (days, rest) = match text.split_once('-') {
        Some((days, rest)) => (Some(days.parse::<i64>().ok()?), rest),
        None => (None, text),
    };
    let parts: Vec<i64> =
        rest.split(':').map(|part| part.parse().ok().filter(|part| *part >= 0)).collect::<Option<_>>()?;
    let seconds = match (days.is_some(), parts.as_slice()) {
        (true, [h]) => h.checked_mul(3600)?,
        (true, [h, m]) => h.checked_mul(3600)?.checked_add(m.checked_mul(60)?)?,
        (false, [m]) => m.checked_mul(60)?,
        (false, [m, s]) => m.checked_mul(60)?.checked_add(*s)?,
        (_, [h, m, s]) => h.checked_mul(3600)?.checked_add(m.checked_mul(60)?.checked_add(*s)?)?,
        _ => return None,
    };
    seconds.checked_add(days.unwrap_or(0).checked_mul(86_400)?)
}

/// Reads a local `YYYY-MM-DD[THH:MM[:SS]]`; `None` for the other ways to say a time.
pub(super) fn parse_stamp(text: &str) -> Option<i64> {
    let time: civil::DateTime = text.parse().ok()?;
    let zoned = time.to_zoned(TimeZone::system()).ok()?;
    Some(zoned.timestamp().as_second())
}
