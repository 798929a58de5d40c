//! The submission key: what makes a job ours and a repeated submission the same one.

use std::fmt;

use super::error::Error;

/// Longest submission key, in bytes.
pub const KEY_BYTES_MAX: usize = 64;

/// What a job's carrier (Slurm's comment) begins its mark with.
const MARK: &str = "towline:";

/// A submission's own name: 1 to 64 characters of `[A-Za-z0-9_-]`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize)]
#[serde(transparent)]
pub struct SubmissionKey(String);

impl SubmissionKey {
    /// Checks a key that a caller chose.
    ///
    /// # Errors
    /// [`Error::InvalidInput`] when it is empty, too long or holds another character.
    pub fn parse(text: &str) -> Result<Self, Error> {
        if text.is_empty() || text.len() > KEY_BYTES_MAX {
            return Err(Error::invalid(
                "key",
                format!("submission key has {} bytes, allowed are 1 to {KEY_BYTES_MAX}", text.len()),
            ));
        }
        if let Some(odd) = text.chars().find(|c| !c.is_ascii_alphanumeric() && *c != '_' && *c != '-') {
            return Err(Error::invalid(
                "key",
                format!("submission key holds {odd:?}, allowed are A-Z a-z 0-9 _ -"),
            ));
        }
        Ok(Self(text.to_owned()))
    }

    /// Makes a key of 128 random bits.
    pub fn from_random(bytes: [u8; 16]) -> Self {
        Self(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
    }

    /// Shows the key.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Writes the mark for a job's comment, behind what the script's author put there.
    pub fn comment(&self, own: Option<&[u8]>) -> Vec<u8> {
        let mut comment = own.map(<[u8]>::to_vec).unwrap_or_default();
        if !comment.is_empty() {
            comment.push(b' ');
        }
        comment.extend_from_slice(MARK.as_bytes());
        comment.extend_from_slice(self.0.as_bytes());
        comment
    }

    /// Finds the mark in a job's comment: its last word.
    pub fn in_comment(comment: &[u8]) -> Option<Self> {
        let last = comment.rsplit(|byte| *byte == b' ').next()?;
        let text = std::str::from_utf8(last).ok()?; // Bytes that are not UTF-8 are nobody's key.
        // A word that only looks like a mark is somebody else's text, not an error.
        Self::parse(text.strip_prefix(MARK)?).ok()
    }
}

impl fmt::Display for SubmissionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_outside_the_alphabet_or_length_is_refused() {
        for text in ["", "a b", "a:b", "é", &"x".repeat(65)] {
            assert!(SubmissionKey::parse(text).is_err(), "{text:?}");
        }
        assert!(SubmissionKey::parse(&"x".repeat(64)).is_ok());
    }

    #[test]
    fn the_authors_comment_is_kept_and_the_key_is_found_behind_it() {
        let key = SubmissionKey::from_random([0xa5; 16]);
        let comment = key.comment(Some(b"rerun of towline:other"));
        assert_eq!(SubmissionKey::in_comment(&comment), Some(key));
        assert_eq!(SubmissionKey::in_comment(b"(null)"), None);
        assert_eq!(SubmissionKey::in_comment(b"towline:"), None);
    }
}
