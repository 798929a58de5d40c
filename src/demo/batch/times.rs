//! Times as Slurm prints and reads them.

use jiff::Timestamp;
use jiff::tz::TimeZone;

/// Now, in seconds since 1970.
pub(super) fn now() -> i64 {
    Timestamp::now().as_second()
}

/// `2026-11-30T14:27:24` in local time, or the word for a time that isn't.
pub(super) fn stamp(seconds: Option<i64>, none: &str) -> String {
    let time = seconds.and_then(|seconds| Timestamp::from_second(seconds).ok()); // Beyond the calendar: none.
    let local = time.map(|time| time.to_zoned(TimeZone::system()).strftime("%Y-%m-%dT%H:%M:%S").to_string());
    local.unwrap_or_else(|| none.to_owned())
}

/// `[D-]HH:MM:SS`; squeue's own form, without leading zeros, is not imitated.
pub(super) fn duration(seconds: i64) -> String {
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    match (hours / 24, hours % 24) {
        (0, hours) => format!("{hours:02}:{minutes:02}:{seconds:02}"),
        (days, hours) => format!("{days}-{hours:02}:{minutes:02}:{seconds:02}"),
    }
}

/// Reads `M[:S]`, `H:M:S` or `D-H[:M[:S]]` as seconds, more than none. Unlike in Slurm, seconds count.
pub(super) fn limit(text: &str) -> Option<i64> {
    let (days, clock) = text.split_once('-').map_or((None, text), |(days, clock)| (Some(days), clock));
    let from_hours = days.is_some() || clock.matches(':').count() == 2;
    let mut units = if from_hours { [3600, 60, 1].iter() } else { [60, 1].iter() };
    let mut seconds = i64::from(days.unwrap_or("0").parse::<u32>().ok()?) * 86_400;
    for piece in clock.split(':') {
        seconds += i64::from(piece.parse::<u32>().ok()?) * units.next()?;
    }
    Some(seconds).filter(|seconds| *seconds > 0)
}
