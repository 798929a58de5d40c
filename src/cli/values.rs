//! Values of the command line, parsed once, at the edge.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::time::Duration;

use towline_helper::wire::message::{Keep, OUTPUT_TAIL_BYTES_MAX};

use crate::config::duration::{self, DURATION_MAX, DurationError};
use crate::config::size;

/// Longest time limit that a job may ask for: ten years, which no scheduler grants.
const JOB_TIME_MAX: Duration = Duration::from_secs(10 * 366 * 86_400);

/// A variable for a remote command: `NAME=VALUE`, any bytes in the value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variable {
    /// Its name.
    pub name: String,
    /// Its value.
    pub value: Vec<u8>,
}

/// Reads `NAME=VALUE`.
pub(super) fn variable(text: OsString) -> Result<Variable, String> {
    let form = || "write NAME=VALUE".to_owned();
    let bytes = text.into_vec();
    let at = bytes.iter().position(|byte| *byte == b'=').ok_or_else(form)?;
    let (name, value) = bytes.split_at(at);
    let name = std::str::from_utf8(name).map_err(|_not_text| "the name is not UTF-8".to_owned())?;
    if name.is_empty() || name.chars().any(char::is_control) {
        return Err(form());
    }
    Ok(Variable { name: name.to_owned(), value: value.strip_prefix(b"=").unwrap_or(value).to_vec() })
}

/// Reads a time limit of ours.
pub(super) fn time_limit(text: &str) -> Result<Duration, DurationError> {
    duration::parse(text, DURATION_MAX)
}

/// Reads a job's time limit.
pub(super) fn job_time(text: &str) -> Result<Duration, DurationError> {
    duration::parse(text, JOB_TIME_MAX)
}

/// Reads `HEAD[:TAIL]`.
pub(super) fn keep(text: &str) -> Result<Keep, String> {
    let read = |text: &str| size::parse(text).map_err(|error| error.to_string());
    let (head, tail) = match text.split_once(':') {
        Some((head, tail)) => (read(head)?, read(tail)?),
        None => (read(text)?, 0),
    };
    if tail > OUTPUT_TAIL_BYTES_MAX {
        return Err(format!(
            "the tail is {} bytes, the limit is {}",
            tail,
            size::print(OUTPUT_TAIL_BYTES_MAX)
        ));
    }
    Ok(Keep { head, tail })
}

/// Where a job's script comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScriptSource {
    /// A file on this workstation.
    Local(std::path::PathBuf),
    /// A file on the host, literal but for a leading `~/`.
    Remote(Vec<u8>),
    /// Standard input.
    Stdin,
}

/// Reads a local path, `remote:PATH`, or `-`.
pub(super) fn script(text: OsString) -> Result<ScriptSource, String> {
    if text == "-" {
        return Ok(ScriptSource::Stdin);
    }
    match text.as_bytes().strip_prefix(b"remote:") {
        Some([]) => Err("the path after remote: is empty".to_owned()),
        Some(path) => Ok(ScriptSource::Remote(path.to_vec())),
        None => Ok(ScriptSource::Local(text.into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_keep_every_byte_of_their_value() {
        let read = |bytes: &[u8]| variable(OsString::from_vec(bytes.to_vec()));
        let expected = Variable { name: "A".to_owned(), value: b"b=\xE9 c".to_vec() };
        assert_eq!(read(b"A=b=\xE9 c"), Ok(expected));
        assert_eq!(read(b"A=").unwrap().value, b"");
        for wrong in [&b"A"[..], b"=x", b"", b"\xE9=x", b"a\nb=x"] {
            assert!(read(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn the_kept_bytes_are_a_head_and_maybe_a_tail() {
        assert_eq!(keep("1M"), Ok(Keep { head: 1 << 20, tail: 0 }));
        assert_eq!(keep("0:4K"), Ok(Keep { head: 0, tail: 4096 }));
        assert_eq!(keep("1:16M"), Ok(Keep { head: 1, tail: 16 << 20 }));
        for wrong in ["", ":", "1:", ":1", "1:2:3", "1:17M", "-1"] {
            assert!(keep(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_script_is_local_remote_or_stdin() {
        assert_eq!(script("-".into()), Ok(ScriptSource::Stdin));
        assert_eq!(script("a.sh".into()), Ok(ScriptSource::Local("a.sh".into())));
        assert_eq!(script("./-".into()), Ok(ScriptSource::Local("./-".into())));
        assert_eq!(script("remote:~/a  b.sh".into()), Ok(ScriptSource::Remote(b"~/a  b.sh".to_vec())));
        assert!(script("remote:".into()).is_err());
    }
}
