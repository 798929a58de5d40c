//! Splits the text behind a keyword into words.

/// Says that a quote is open at the end of the line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OpenQuote;

/// Splits `text` into words, removing quotes and the four escapes; `#` at the start of a word ends it all.
pub(crate) fn split(text: &[u8]) -> Result<Vec<Vec<u8>>, OpenQuote> {
    let mut words = Vec::new();
    let mut bytes = text.iter().copied().peekable();
    loop {
        while bytes.next_if(|byte| is_separator(*byte)).is_some() {}
        match bytes.peek() {
            None | Some(b'#') => return Ok(words),
            Some(_) => words.push(word(&mut bytes)?),
        }
    }
}

/// Takes one word, which ends at an unquoted separator or with the text.
fn word(bytes: &mut std::iter::Peekable<impl Iterator<Item = u8> + Clone>) -> Result<Vec<u8>, OpenQuote> {
    let mut word = Vec::new();
    let mut quote = None;
    while let Some(byte) = bytes.next() {
        match (byte, quote) {
            (b'\\', _) => word.push(escaped(bytes, quote.is_some()).unwrap_or(b'\\')),
            (_, None) if is_separator(byte) => return Ok(word),
            (b'"' | b'\'', None) => quote = Some(byte),
            (_, Some(open)) if byte == open => quote = None,
            _ => word.push(byte),
        }
    }
    if quote.is_some() {
        return Err(OpenQuote);
    }
    Ok(word)
}

/// Takes the character behind a backslash, if the backslash escapes it.
fn escaped(bytes: &mut std::iter::Peekable<impl Iterator<Item = u8>>, quoted: bool) -> Option<u8> {
    bytes.next_if(|byte| match byte {
        b'\'' | b'"' | b'\\' => true,
        b' ' => !quoted,
        _ => false,
    })
}

fn is_separator(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t')
}

/// Writes `word` so that [`split`] gives it back.
pub(crate) fn quote(word: &[u8]) -> Vec<u8> {
    let plain = |byte: &u8| !matches!(byte, b' ' | b'\t' | b'"' | b'\'' | b'\\' | b'#');
    if !word.is_empty() && word.iter().all(plain) {
        return word.to_vec();
    }
    let mut quoted = vec![b'"'];
    for byte in word {
        if matches!(byte, b'"' | b'\\') {
            quoted.push(b'\\');
        }
        quoted.push(*byte);
    }
    quoted.push(b'"');
    quoted
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn words(text: &str) -> Result<Vec<String>, OpenQuote> {
        let words = split(text.as_bytes())?;
        Ok(words.into_iter().map(|word| String::from_utf8(word).unwrap()).collect())
    }

    #[test]
    fn quotes_group_anywhere_and_only_four_escapes_exist() {
        for (text, expected) in [
            ("a b\tc", vec!["a", "b", "c"]),
            ("a # b", vec!["a"]),
            ("a#b c", vec!["a#b", "c"]),
            ("\"#1\"", vec!["#1"]),
            ("a \"don't\" # \"open", vec!["a", "don't"]),
            ("x\"y z\"'w v'", vec!["xy zw v"]),
            (r"C:\keys\id", vec![r"C:\keys\id"]),
            (r#"a\ b "a\ b" \\ \" \'"#, vec!["a b", r"a\ b", r"\", "\"", "'"]),
            ("\"\" ''", vec!["", ""]),
            ("a\rb", vec!["a\rb"]),
            ("AAA \\", vec!["AAA", "\\"]),
        ] {
            assert_eq!(words(text).unwrap(), expected, "{text}");
        }
        assert_eq!(words("a \"b c"), Err(OpenQuote));
        assert_eq!(words("a 'b\\'"), Err(OpenQuote));
    }

    proptest! {
        #[test]
        fn a_quoted_word_is_read_back_as_it_was(word in "[ -~\t]{0,12}") {
            prop_assert_eq!(split(&quote(word.as_bytes())).unwrap(), vec![word.into_bytes()]);
        }
    }
}
