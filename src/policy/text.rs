//! Texts for the record: one line, not empty, not long.

use super::error::Error;

/// Longest text for the record, in characters.
pub(super) const TEXT_CHARS_MAX: usize = 240;

/// Collapses white space and checks the bounds.
///
/// # Errors
/// [`Error::Text`] when nothing is left, or too much.
pub(super) fn reference(what: &'static str, text: &str) -> Result<String, Error> {
    let collapsed = collapse(text);
    let count = collapsed.chars().count();
    if count == 0 {
        return Err(Error::Text { what, reason: "is empty".to_owned() });
    }
    if count > TEXT_CHARS_MAX {
        let reason = format!("has {count} characters, the limit is {TEXT_CHARS_MAX}");
        return Err(Error::Text { what, reason });
    }
    Ok(collapsed)
}

/// Whether a stored text is as [`reference`] makes it.
pub(super) fn is_reference(text: &str) -> bool {
    reference("text", text).is_ok_and(|right| right == text)
}

/// Makes a text for the record of anything: a `disable` must not fail for its reason.
pub(super) fn lenient(text: &str) -> String {
    let collapsed = collapse(text);
    if collapsed.is_empty() {
        return "no reason given".to_owned();
    }
    collapsed.chars().take(TEXT_CHARS_MAX).collect::<String>().trim_end().to_owned()
}

fn collapse(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reference_is_one_line_within_its_bounds() {
        assert_eq!(reference("reason", " a\n\t b ").unwrap(), "a b");
        assert!(reference("reason", &"é".repeat(240)).is_ok());
        for wrong in ["", " \n", &"x".repeat(241)] {
            assert!(matches!(reference("reason", wrong), Err(Error::Text { .. })));
        }
        assert!(is_reference("a b") && !is_reference("a  b") && !is_reference(" a") && !is_reference(""));
    }

    #[test]
    fn a_disables_reason_always_does() {
        assert_eq!(lenient(" \n"), "no reason given");
        assert_eq!(lenient(&format!("{} b", "é".repeat(239))).chars().count(), 239);
        for text in ["a  b", "", &"x y ".repeat(999)] {
            assert!(is_reference(&lenient(text)));
        }
    }
}
