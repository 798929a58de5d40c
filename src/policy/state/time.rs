//! Points of time in the policy file: seconds since 1970, kept as whole milliseconds so that sums are exact.

use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// Largest distance from 1970 in milliseconds, 35 000 years: up to there a number of seconds with three decimals reads
/// back as the same millisecond.
const MS_MAX: i64 = 1 << 50;

/// A point of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(i64);

impl Timestamp {
    /// The point that many milliseconds after 1970, or before it; what is too far becomes the farthest.
    pub fn from_ms(ms: i64) -> Timestamp {
        Timestamp(ms.clamp(-MS_MAX, MS_MAX))
    }

    /// Milliseconds since 1970.
    pub fn ms(self) -> i64 {
        self.0
    }

    /// A later point.
    #[must_use]
    pub fn plus(self, duration: Duration) -> Timestamp {
        let ms = i64::try_from(duration.as_millis()).unwrap_or(MS_MAX);
        Timestamp::from_ms(self.0.saturating_add(ms))
    }

    /// Whole seconds from `now` until this point, rounded up; 0 when it has passed.
    pub fn seconds_after(self, now: Timestamp) -> u64 {
        let ms = self.0.saturating_sub(now.0);
        u64::try_from(ms).map_or(0, |ms| ms.div_ceil(1000))
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let seconds = self.0 as f64 / 1000.0;
        serializer.serialize_f64(seconds)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Timestamp, D::Error> {
        let seconds = f64::deserialize(deserializer)?;
        let ms = (seconds * 1000.0).round();
        let max = MS_MAX as f64;
        if !ms.is_finite() || ms.abs() > max {
            return Err(de::Error::custom(format_args!("the time {seconds} is out of range")));
        }
        #[expect(clippy::cast_possible_truncation, reason = "within 2^50 and a whole number")]
        let ms = ms as i64;
        Ok(Timestamp(ms))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn whole_and_broken_numbers_are_read_and_others_refused() {
        for (text, ms) in [("0", 0), ("1.5", 1500), ("-2", -2000), ("1764518400.1204", 1_764_518_400_120)] {
            assert_eq!(serde_json::from_str::<Timestamp>(text).unwrap().ms(), ms);
        }
        for text in ["true", "\"1\"", "null", "1e300", "-1e300", "1e999", "NaN"] {
            assert!(serde_json::from_str::<Timestamp>(text).is_err(), "{text}");
        }
    }

    #[test]
    fn seconds_left_are_rounded_up() {
        let at = Timestamp::from_ms;
        assert_eq!(at(1001).seconds_after(at(0)), 2);
        assert_eq!(at(1000).seconds_after(at(0)), 1);
        assert_eq!(at(0).seconds_after(at(0)), 0);
        assert_eq!(at(0).seconds_after(at(1)), 0);
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back_as_the_same(ms in -MS_MAX..=MS_MAX) {
            let time = Timestamp::from_ms(ms);
            let json = serde_json::to_string(&time).unwrap();
            prop_assert_eq!(serde_json::from_str::<Timestamp>(&json).unwrap(), time);
        }
    }
}
