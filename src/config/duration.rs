//! Durations as people write them: `100ms`, `90s`, `15m`, `2h`, `1d`.

use std::time::Duration;

/// Longest duration of a configuration key or a time limit of ours: seven days.
pub const DURATION_MAX: Duration = Duration::from_secs(604_800);

/// Units from the largest to the smallest, with their milliseconds.
const UNITS: [(&str, u64); 5] = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

/// Why a text is not a duration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DurationError {
    /// The text is not a whole number with a unit.
    #[error("`{0}` is not a duration: write a whole number with its unit, such as 100ms, 90s, 15m, 2h or 1d")]
    Form(String),
    /// The duration is zero.
    #[error("the duration `{0}` is zero; it must be more")]
    Zero(String),
    /// The duration is longer than allowed here.
    #[error("the duration `{text}` is too long; the limit is {}", print(*.max))]
    TooLong {
        /// What was written.
        text: String,
        /// The bound.
        max: Duration,
    },
}

/// Reads a duration of more than zero and at most `max`.
///
/// A number without unit is refused: seconds for some, minutes for a scheduler's user.
///
/// ```
/// use std::time::Duration;
/// use towline::config::duration::{DURATION_MAX, parse};
/// assert_eq!(parse("15m", DURATION_MAX), Ok(Duration::from_secs(900)));
/// assert!(parse("15", DURATION_MAX).is_err());
/// ```
///
/// # Errors
/// [`DurationError`] when the text has another form, or its value is out of bounds.
pub fn parse(text: &str, max: Duration) -> Result<Duration, DurationError> {
    let form = || DurationError::Form(text.to_owned());
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at_checked(digits).ok_or_else(form)?;
    let (_, unit_ms) = UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(form)?;
    if number.is_empty() {
        return Err(form());
    }
    // A number that overflows is a duration all right, only far too long.
    let too_long = || DurationError::TooLong { text: text.to_owned(), max };
    let count: u64 = number.parse().map_err(|_overflow| too_long())?;
    let duration = Duration::from_millis(count.checked_mul(*unit_ms).ok_or_else(too_long)?);
    bounded(duration, text, max)
}

/// Reads a number of seconds, as a configuration file may give it, with the same bounds as [`parse`].
///
/// # Errors
/// [`DurationError`] when the value is no number, not positive, or above `max`.
pub fn from_seconds(seconds: f64, max: Duration) -> Result<Duration, DurationError> {
    let text = seconds.to_string();
    if seconds > max.as_secs_f64() {
        return Err(DurationError::TooLong { text, max });
    }
    // Not a number and negative numbers end here.
    let duration =
        Duration::try_from_secs_f64(seconds).map_err(|_invalid| DurationError::Form(text.clone()))?;
    bounded(duration, &text, max)
}

fn bounded(duration: Duration, text: &str, max: Duration) -> Result<Duration, DurationError> {
    if duration.is_zero() {
        Err(DurationError::Zero(text.to_owned()))
    } else if duration > max {
        Err(DurationError::TooLong { text: text.to_owned(), max })
    } else {
        Ok(duration)
    }
}

/// Writes a duration with the largest unit that loses nothing; what is below a millisecond is left out.
pub fn print(duration: Duration) -> String {
    let ms = duration.as_millis();
    UNITS
        .iter()
        .find(|(_, unit_ms)| ms > 0 && ms.is_multiple_of(u128::from(*unit_ms)))
        .map_or_else(|| "0s".to_owned(), |(unit, unit_ms)| format!("{}{unit}", ms / u128::from(*unit_ms)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_unit_of_the_contract_is_read() {
        for (text, ms) in
            [("100ms", 100), ("90s", 90_000), ("15m", 900_000), ("2h", 7_200_000), ("1d", 86_400_000)]
        {
            assert_eq!(parse(text, DURATION_MAX), Ok(Duration::from_millis(ms)), "{text}");
        }
    }

    #[test]
    fn other_forms_are_refused() {
        for text in
            ["", "s", "90", "-1s", "+1s", "1.5h", "1 s", " 1s", "1s ", "1S", "1h30m", "1w", "١s", "ms", "é"]
        {
            assert_eq!(parse(text, DURATION_MAX), Err(DurationError::Form(text.to_owned())), "{text:?}");
        }
    }

    #[test]
    fn the_bounds_hold_on_both_sides() {
        assert!(matches!(parse("0s", DURATION_MAX), Err(DurationError::Zero(_))));
        assert_eq!(parse("7d", DURATION_MAX), Ok(DURATION_MAX));
        assert_eq!(parse("604800s", DURATION_MAX), Ok(DURATION_MAX));
        for text in ["604801s", "8d", "99999999999999999999999s", "18446744073709551615d"] {
            assert!(matches!(parse(text, DURATION_MAX), Err(DurationError::TooLong { .. })), "{text}");
        }
    }

    #[test]
    fn numbers_of_seconds_keep_the_same_bounds() {
        assert_eq!(from_seconds(0.5, DURATION_MAX), Ok(Duration::from_millis(500)));
        assert_eq!(from_seconds(604_800.0, DURATION_MAX), Ok(DURATION_MAX));
        for seconds in [0.0, -1.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 604_800.5, 1e300, 1e-300] {
            assert!(from_seconds(seconds, DURATION_MAX).is_err(), "{seconds}");
        }
    }

    proptest! {
        #[test]
        fn what_is_printed_reads_back_as_the_same(ms in 1_u64..=604_800_000) {
            let duration = Duration::from_millis(ms);
            prop_assert_eq!(parse(&print(duration), DURATION_MAX), Ok(duration));
        }

        #[test]
        fn round_durations_too(count in 1_u64..=7, unit in 0_usize..5) {
            let text = format!("{count}{}", UNITS[unit].0);
            let duration = parse(&text, DURATION_MAX).unwrap();
            prop_assert_eq!(print(duration), text);
        }

        #[test]
        fn no_text_panics_or_escapes_the_bounds(text in "\\PC{0,12}|[0-9]{0,30}(ms|s|m|h|d)?") {
            if let Ok(duration) = parse(&text, DURATION_MAX) {
                prop_assert!(!duration.is_zero() && duration <= DURATION_MAX);
            }
        }
    }
}
