//! Times as Slurm prints and reads them.

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;

/// Now, in seconds since 1970.
pub(super) fn now() -> i64 {
    Timestamp::now().as_second()
}

/// `2026-11-30T14:27:24` in local time, or the word for a time that isn't.
pub(super) fn stamp(seconds: Option<i64>, none: &str) -> String {
    let time = seconds.and_then(|seconds| Timestamp::from_second(seconds).ok());
    time.map_or_else(
        || none.to_owned(),
        |time| time.to_zoned(TimeZone::system()).strftime("%Y-%m-%dT%H:%M:%S").to_string(),
    )
}

/// `[D-]HH:MM:SS`, as sacct and scontrol print durations.
pub(super) fn full(seconds: i64) -> String {
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    match (hours / 24, hours % 24) {
        (0, hours) => format!("{hours:02}:{minutes:02}:{seconds:02}"),
        (days, hours) => format!("{days}-{hours:02}:{minutes:02}:{seconds:02}"),
    }
}

/// `M:SS`, `H:MM:SS` or `D-HH:MM:SS`, as squeue prints durations.
pub(super) fn brief(seconds: i64) -> String {
    let (hours, minutes, rest) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    match hours {
        0 => format!("{minutes}:{rest:02}"),
        1..24 => format!("{hours}:{minutes:02}:{rest:02}"),
        _ => full(seconds),
    }
}

/// Reads `M`, `M:S`, `H:M:S`, `D-H`, `D-H:M` or `D-H:M:S` as seconds. Unlike Slurm, seconds count.
pub(super) fn parse_limit(text: &str) -> Option<i64> {
    let (days, rest) = text.split_once('-').map_or((None, text), |(days, rest)| (Some(days), rest));
    let parts = rest.split(':').map(|part| part.parse::<u32>().ok().map(i64::from));
    let parts = parts.collect::<Option<Vec<_>>>()?;
    let (hours, minutes, seconds) = match (days, parts.as_slice()) {
        (Some(_), [hours]) => (*hours, 0, 0),
        (Some(_), [hours, minutes]) => (*hours, *minutes, 0),
        (None, [minutes]) => (0, *minutes, 0),
        (None, [minutes, seconds]) => (0, *minutes, *seconds),
        (_, [hours, minutes, seconds]) => (*hours, *minutes, *seconds),
        _ => return None,
    };
    let days = days.map_or(Some(0), |days| days.parse::<u32>().ok().map(i64::from))?;
    Some(days * 86_400 + hours * 3600 + minutes * 60 + seconds)
}

/// Reads a local `YYYY-MM-DD[THH:MM[:SS]]`; `None` for the other ways to say a time.
pub(super) fn parse_stamp(text: &str) -> Option<i64> {
    let time: DateTime = text.parse().ok()?;
    Some(time.to_zoned(TimeZone::system()).ok()?.timestamp().as_second())
}
