//! Sizes as people write them: `64K`, `512M`, `16G`, `1T`, powers of 1024; without a letter, bytes.

/// Letters from the largest to the smallest, with the power of two that they stand for.
const UNITS: [(char, u32); 4] = [('T', 40), ('G', 30), ('M', 20), ('K', 10)];

/// Why a text is not a size.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SizeError {
    /// The text is not a whole number with at most one letter.
    #[error(
        "`{0}` is not a size: write a whole number of bytes, or one with K, M, G or T, such as 64K or 16G"
    )]
    Form(String),
    /// The size does not fit in 64 bits.
    #[error("the size `{0}` is too large")]
    TooLarge(String),
}

/// Reads a size in bytes; the letters may be small.
///
/// ```
/// assert_eq!(towline::config::size::parse("64K"), Ok(65_536));
/// ```
///
/// # Errors
/// [`SizeError`] when the text has another form or the value does not fit.
pub fn parse(text: &str) -> Result<u64, SizeError> {
    let form = || SizeError::Form(text.to_owned());
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, letter) = text.split_at_checked(digits).ok_or_else(form)?;
    let power = match letter {
        "" => 0,
        letter => {
            UNITS
                .iter()
                .find(|(name, _)| letter.eq_ignore_ascii_case(name.encode_utf8(&mut [0; 4])))
                .ok_or_else(form)?
                .1
        }
    };
    if number.is_empty() {
        return Err(form());
    }
    let too_large = || SizeError::TooLarge(text.to_owned());
    let count: u64 = number.parse().map_err(|_overflow| too_large())?;
    count.checked_mul(1 << power).ok_or_else(too_large)
}

/// Writes a size with the largest letter that loses nothing.
pub fn print(bytes: u64) -> String {
    UNITS
        .iter()
        .find(|(_, power)| bytes > 0 && bytes.is_multiple_of(1 << power))
        .map_or_else(|| bytes.to_string(), |(letter, power)| format!("{}{letter}", bytes >> power))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_letter_of_the_contract_is_read() {
        for (text, bytes) in [
            ("0", 0),
            ("100", 100),
            ("64K", 64 << 10),
            ("512M", 512 << 20),
            ("16G", 16 << 30),
            ("1T", 1 << 40),
            ("1k", 1024),
        ] {
            assert_eq!(parse(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn other_forms_are_refused() {
        for text in ["", "K", "-1", "+1", "1.5G", "1 K", "1KB", "1KiB", "0x10", "1P", "1é"] {
            assert_eq!(parse(text), Err(SizeError::Form(text.to_owned())), "{text:?}");
        }
        for text in ["18446744073709551616", "16777216T"] {
            assert_eq!(parse(text), Err(SizeError::TooLarge(text.to_owned())), "{text}");
        }
    }

    proptest! {
        #[test]
        fn what_is_printed_reads_back_as_the_same(bytes in any::<u64>(), power in 0_u32..64) {
            let bytes = bytes & (u64::MAX << power);
            prop_assert_eq!(parse(&print(bytes)), Ok(bytes));
        }

        #[test]
        fn no_text_panics(text in "\\PC{0,12}|[0-9]{0,30}[KMGT]?") {
            if let Ok(bytes) = parse(&text) {
                prop_assert_eq!(parse(&print(bytes)), Ok(bytes));
            }
        }
    }
}
