//! Time, as something that tests and simulations replace.

use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Where the time comes from.
pub trait Clock: Send + Sync + std::fmt::Debug {
    /// The wall clock, in milliseconds since 1970; it may jump in both directions.
    fn unix_ms(&self) -> i64;
    /// Time since some beginning; it never goes back.
    fn monotonic(&self) -> Duration;
}

/// The system's clocks.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn unix_ms(&self) -> i64 {
        let ms = |duration: Duration| i64::try_from(duration.as_millis()).unwrap_or(i64::MAX);
        match SystemTime::now().duration_since(UNIX_EPOCH) {
            Ok(after) => ms(after),
            Err(before) => -ms(before.duration()),
        }
    }

    fn monotonic(&self) -> Duration {
        static BEGINNING: OnceLock<Instant> = OnceLock::new();
        BEGINNING.get_or_init(Instant::now).elapsed()
    }
}

/// Writes milliseconds since 1970 as RFC 3339 in UTC, with milliseconds; what no calendar holds becomes its edge.
pub fn rfc3339(unix_ms: i64) -> String {
    let edge = if unix_ms < 0 { jiff::Timestamp::MIN } else { jiff::Timestamp::MAX };
    format!("{:.3}", jiff::Timestamp::from_millisecond(unix_ms).unwrap_or(edge))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_rfc_3339_in_utc() {
        assert_eq!(rfc3339(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(rfc3339(1_764_518_400_120), "2025-11-30T16:00:00.120Z");
        assert!(rfc3339(i64::MAX).starts_with("9999") && rfc3339(i64::MIN).starts_with('-'));
        assert!(SystemClock.unix_ms() > 1_700_000_000_000);
    }
}
