//! What is looked at in a script before it is sent: never changed, only judged.

use super::error::Error;

/// Largest script that towline sends, in bytes. Slurm's own limit is 4 MiB by default.
pub const SCRIPT_BYTES_MAX: usize = 16 << 20;

/// Checks what every scheduler would refuse or, worse, take without a word.
///
/// # Errors
/// [`Error::InvalidInput`] with the line for DOS line ends, a missing `#!`, a NUL byte, an empty or a huge script.
pub fn check(bytes: &[u8]) -> Result<(), Error> {
    let refuse =
        |line: Option<u64>, message: String| Err(Error::InvalidInput { what: "script", line, message });
    if bytes.iter().all(u8::is_ascii_whitespace) {
        return refuse(None, "script is empty".to_owned());
    }
    if bytes.len() > SCRIPT_BYTES_MAX {
        return refuse(None, format!("script has {} bytes, the limit is {SCRIPT_BYTES_MAX}", bytes.len()));
    }
    if !bytes.starts_with(b"#!") {
        return refuse(Some(1), "line 1 of the script does not begin with #! and an interpreter".to_owned());
    }
    for (at, line) in bytes.split(|byte| *byte == b'\n').enumerate() {
        let number = u64::try_from(at).unwrap_or(u64::MAX).saturating_add(1);
        if line.contains(&0) {
            return refuse(Some(number), format!("line {number} of the script holds a NUL byte"));
        }
        if line.ends_with(b"\r") {
            return refuse(Some(number), format!("line {number} of the script ends as in DOS (CR LF)"));
        }
    }
    Ok(())
}

/// One option that a script asks for in its head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Directive {
    /// The script's line, counted from 1.
    pub line: u64,
    /// The option's long name without dashes, or a short one with its dash.
    pub option: Vec<u8>,
    /// Its value, if one stands there.
    pub value: Option<Vec<u8>>,
}

/// Reads the directives behind `mark` (`#SBATCH`) up to the first line that is neither blank nor a comment.
///
/// This serves warnings and the job's name only, so words are split at blanks and quotes are taken off; what is
/// submitted is the script itself.
pub fn directives(bytes: &[u8], mark: &[u8]) -> Vec<Directive> {
    let mut found = Vec::new();
    for (number, line) in (1_u64..).zip(bytes.split(|byte| *byte == b'\n')) {
        let trimmed = line.trim_ascii_start();
        if trimmed.is_empty() {
            continue;
        }
        if !trimmed.starts_with(b"#") {
            break;
        }
        let Some(rest) = line.strip_prefix(mark) else {
            continue;
        };
        if rest.first().is_some_and(u8::is_ascii_whitespace) {
            read_line(number, rest, &mut found);
        }
    }
    found
}

fn read_line(line: u64, text: &[u8], found: &mut Vec<Directive>) {
    let mut words = words(text).into_iter().peekable();
    while let Some(word) = words.next() {
        if word.starts_with(b"#") {
            break;
        }
        let (option, value) = if let Some(long) = word.strip_prefix(b"--") {
            match long.iter().position(|byte| *byte == b'=') {
                Some(at) => {
                    let (name, value) = long.split_at(at);
                    (name.to_vec(), value.get(1..).map(<[u8]>::to_vec))
                }
                None => (long.to_vec(), None),
            }
        } else if word.first() == Some(&b'-') && word.len() > 2 {
            let (short, value) = word.split_at(2);
            (short.to_vec(), Some(value.to_vec()))
        } else {
            (word, None)
        };
        let value = value.or_else(|| words.next_if(|next| !next.starts_with(b"-")));
        found.push(Directive { line, option, value });
    }
}

/// Splits at blanks, with single and double quotes and backslashes taken as the scheduler takes them.
fn words(text: &[u8]) -> Vec<Vec<u8>> {
    let mut words = Vec::new();
    let mut word: Option<Vec<u8>> = None;
    let mut quote = None;
    let mut bytes = text.iter().copied();
    while let Some(byte) = bytes.next() {
        match (quote, byte) {
            (Some(open), _) if byte == open => quote = None,
            (None, b'"' | b'\'') => {
                quote = Some(byte);
                word.get_or_insert_default();
            }
            (None, b'\\') => word.get_or_insert_default().extend(bytes.next()),
            (None, _) if byte.is_ascii_whitespace() => words.extend(word.take()),
            _ => word.get_or_insert_default().push(byte),
        }
    }
    words.extend(word);
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line_of(script: &[u8]) -> Option<u64> {
        match check(script) {
            Err(Error::InvalidInput { line, .. }) => line,
            other => panic!("{script:?} gave {other:?}"),
        }
    }

    #[test]
    fn a_bad_script_is_refused_with_its_line() {
        assert_eq!(line_of(b""), None);
        assert_eq!(line_of(b" \n\n"), None);
        assert_eq!(line_of(b"echo hi\n"), Some(1));
        assert_eq!(line_of(b"\n\n#!/bin/sh\n"), Some(1));
        assert_eq!(line_of(b"#!/bin/sh\n:\r\n:\n"), Some(2));
        assert_eq!(line_of(b"#!/bin/sh\n:\n\0\n"), Some(3));
        assert!(check(b"#!/bin/sh\nprintf 'a\\r'\n").is_ok());
    }

    #[test]
    fn directives_end_at_the_first_command() {
        let script = b"#!/bin/sh\n#SBATCH --job-name=\"two words\" -p batch\n\n# a remark\n#SBATCH --time 10 # why\n#SBATCHX --no\nhostname\n#SBATCH --mem=1G\n";
        let found = directives(script, b"#SBATCH");
        let told: Vec<(u64, &[u8], Option<&[u8]>)> =
            found.iter().map(|d| (d.line, d.option.as_slice(), d.value.as_deref())).collect();
        let expected: Vec<(u64, &[u8], Option<&[u8]>)> =
            vec![(2, b"job-name", Some(b"two words")), (2, b"-p", Some(b"batch")), (5, b"time", Some(b"10"))];
        assert_eq!(told, expected);
    }
}
