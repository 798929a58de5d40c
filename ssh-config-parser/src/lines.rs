//! Cuts a file into lines and a line into its keyword and the rest.

/// What is left of a line once its keyword is known.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Head<'a> {
    /// Empty, a comment, or a keyword whose quote never closes.
    Ignored,
    /// A keyword in lower case that nothing follows.
    Bare(Vec<u8>),
    /// A keyword in lower case and the text after its separator.
    Keyword(Vec<u8>, &'a [u8]),
}

/// Cuts `bytes` at every LF and numbers the pieces from 1; the last piece needs no LF.
pub(crate) fn numbered(bytes: &[u8]) -> impl Iterator<Item = (u64, &[u8])> {
    let body = bytes.strip_suffix(b"\n").unwrap_or(bytes);
    let pieces = (!bytes.is_empty()).then(|| body.split(|byte| *byte == b'\n'));
    (1..).zip(pieces.into_iter().flatten())
}

/// Removes what OpenSSH never sees: all from a NUL on, and blanks at the end.
///
/// The first character is kept even if it is a blank, as OpenSSH does; a lone form feed is thus a keyword.
pub(crate) fn visible(line: &[u8]) -> &[u8] {
    let text = line.split(|byte| *byte == 0).next().unwrap_or_default();
    let Some(rest) = text.get(1..) else {
        return text;
    };
    let kept = rest.iter().rposition(|byte| !is_blank(*byte) && *byte != b'\x0c').map_or(0, |last| last + 1);
    text.get(..=kept).unwrap_or(text)
}

/// Splits a visible line into its keyword and the rest.
pub(crate) fn head(line: &[u8]) -> Head<'_> {
    let Some((mut keyword, mut rest)) = keyword(line) else {
        return Head::Ignored;
    };
    // A line that begins with a blank or `=` has an empty first keyword; only one such is skipped.
    if keyword.is_empty() {
        let Some(second) = rest.and_then(self::keyword) else {
            return Head::Ignored;
        };
        (keyword, rest) = second;
    }
    if keyword.is_empty() || keyword.starts_with(b"#") {
        return Head::Ignored;
    }
    keyword.make_ascii_lowercase();
    match rest.map(skip_blanks) {
        Some(rest) if !rest.is_empty() => Head::Keyword(keyword, rest),
        _ => Head::Bare(keyword),
    }
}

/// Takes one keyword off the front, with its separator; none when a quote does not close.
fn keyword(text: &[u8]) -> Option<(Vec<u8>, Option<&[u8]>)> {
    let Some(stop) = text.iter().position(|byte| is_blank(*byte) || matches!(byte, b'=' | b'"')) else {
        return Some((text.to_vec(), None));
    };
    let (before, after) = text.split_at_checked(stop)?;
    let (separator, after) = after.split_first()?;
    let mut keyword = before.to_vec();
    if *separator == b'"' {
        let close = after.iter().position(|byte| *byte == b'"')?;
        let (quoted, rest) = after.split_at_checked(close)?;
        keyword.extend_from_slice(quoted);
        // Behind a quoted keyword an `=` is part of the value.
        return Some((keyword, Some(skip_blanks(rest.get(1..)?))));
    }
    let mut rest = skip_blanks(after);
    if *separator != b'='
        && let Some(behind) = rest.strip_prefix(b"=")
    {
        rest = skip_blanks(behind);
    }
    Some((keyword, Some(rest)))
}

/// Skips the blanks that may surround a keyword.
fn skip_blanks(text: &[u8]) -> &[u8] {
    let start = text.iter().position(|byte| !is_blank(*byte)).unwrap_or(text.len());
    text.get(start..).unwrap_or_default()
}

/// Tells the blanks that may surround a keyword; within a value only space and tab separate.
pub(crate) fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r' | b'\n')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(line: &str) -> Option<(String, String)> {
        match head(visible(line.as_bytes())) {
            Head::Keyword(keyword, rest) => {
                Some((String::from_utf8(keyword).unwrap(), String::from_utf8(rest.to_vec()).unwrap()))
            }
            Head::Ignored => None,
            Head::Bare(keyword) => Some((String::from_utf8(keyword).unwrap(), "<none>".into())),
        }
    }

    #[test]
    fn every_separator_form_gives_the_same_keyword_and_value() {
        for line in [
            "Port 22",
            "Port=22",
            "Port = 22",
            "Port= 22",
            " Port 22",
            "=Port 22",
            " = Port 22",
            "\"Port\" 22",
            "po\"RT\" 22",
        ] {
            assert_eq!(split(line), Some(("port".into(), "22".into())), "{line}");
        }
        assert_eq!(split("Port==22"), Some(("port".into(), "=22".into())));
        assert_eq!(split("\"Port\"=22"), Some(("port".into(), "=22".into())));
    }

    #[test]
    fn comments_and_open_quotes_are_ignored_and_bare_keywords_are_told() {
        for line in ["", " ", "\t", "# x", " # x", "\"Port 22", "  \"", "\0Port 22"] {
            assert_eq!(split(line), None, "{line:?}");
        }
        assert_eq!(split("Port"), Some(("port".into(), "<none>".into())));
        assert_eq!(split("Port = "), Some(("port".into(), "<none>".into())));
        assert_eq!(split("\x0c"), Some(("\x0c".into(), "<none>".into())));
        assert_eq!(split("User a\x0c \r"), Some(("user".into(), "a".into())));
        assert_eq!(split("User a\0 b"), Some(("user".into(), "a".into())));
    }

    #[test]
    fn lines_are_counted_from_one_with_and_without_a_final_newline() {
        let count = |text: &str| numbered(text.as_bytes()).count();
        assert_eq!(count(""), 0);
        assert_eq!(count("\n"), 1);
        assert_eq!(count("a\nb"), 2);
        assert_eq!(count("a\nb\n"), 2);
        assert_eq!(numbered(b"a\n\nb").last(), Some((3, b"b".as_slice())));
    }
}
