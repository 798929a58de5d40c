//! Asks the key agent for the names of its keys, and for nothing else.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use ssh_config_parser::known_hosts::KeyBlob;

/// Longest wait for the agent; a hardware token's agent may be slow, a dead one must not hold the doctor up.
const ANSWER_WAIT: Duration = Duration::from_secs(2);
/// Largest answer of an agent, the limit of OpenSSH's own.
const ANSWER_BYTES_MAX: usize = 256 << 10;
/// Message that asks for the identities (draft-miller-ssh-agent, section 3.5).
const REQUEST_IDENTITIES: u8 = 11;
/// Message that carries them.
const IDENTITIES_ANSWER: u8 = 12;

/// A key of the agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AgentKey {
    pub(super) key_type: String,
    pub(super) fingerprint: String,
    pub(super) comment: String,
}

/// Why the agent gave no list.
#[derive(Debug, thiserror::Error)]
pub(super) enum AgentError {
    #[error("{0}")]
    Io(#[from] std::io::Error),
    #[error("its answer is not a list of keys: {0}")]
    Answer(&'static str),
}

/// Lists the keys of the agent at a socket.
pub(super) fn keys(socket: &Path) -> Result<Vec<AgentKey>, AgentError> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(ANSWER_WAIT))?;
    stream.set_write_timeout(Some(ANSWER_WAIT))?;
    stream.write_all(&[0, 0, 0, 1, REQUEST_IDENTITIES])?;
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let length = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
    if length > ANSWER_BYTES_MAX {
        return Err(AgentError::Answer("longer than 256 KiB"));
    }
    let mut answer = vec![0; length];
    stream.read_exact(&mut answer)?;
    parse(&answer)
}

fn parse(answer: &[u8]) -> Result<Vec<AgentKey>, AgentError> {
    let short = || AgentError::Answer("it ends too early");
    let (&[kind], rest) = answer.split_first_chunk().ok_or_else(short)?;
    if kind != IDENTITIES_ANSWER {
        return Err(AgentError::Answer("the agent refused"));
    }
    let (count, mut rest) = rest.split_first_chunk().ok_or_else(short)?;
    let mut keys = Vec::new();
    // Each round consumes at least eight bytes or ends, so a wrong count costs nothing.
    for _ in 0..u32::from_be_bytes(*count) {
        let (blob, after) = string(rest).ok_or_else(short)?;
        let (comment, after) = string(after).ok_or_else(short)?;
        rest = after;
        let key =
            KeyBlob::from_blob(blob.to_vec()).map_err(|_invalid| AgentError::Answer("a key is malformed"))?;
        keys.push(AgentKey {
            key_type: key.key_type().to_owned(),
            fingerprint: key.sha256_fingerprint(),
            comment: String::from_utf8_lossy(comment).into_owned(),
        });
    }
    Ok(keys)
}

/// A string with its length in front, and what follows it.
fn string(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk()?;
    // A length beyond the address space is beyond the answer too.
    rest.split_at_checked(usize::try_from(u32::from_be_bytes(*length)).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    fn string(bytes: &[u8]) -> Vec<u8> {
        [&u32::try_from(bytes.len()).unwrap().to_be_bytes(), bytes].concat()
    }

    fn ed25519() -> Vec<u8> {
        [string(b"ssh-ed25519"), string(&[7; 32])].concat()
    }

    fn answer() -> Vec<u8> {
        [vec![IDENTITIES_ANSWER, 0, 0, 0, 1], string(&ed25519()), string(b"me@here")].concat()
    }

    /// What is made of an agent that answers each request with these bytes.
    fn asked(reply: Vec<u8>) -> Result<Vec<AgentKey>, AgentError> {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("agent");
        let listener = UnixListener::bind(&path).unwrap();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 5];
            stream.read_exact(&mut request).unwrap();
            assert_eq!(request, [0, 0, 0, 1, 11]);
            stream.write_all(&reply).unwrap();
        });
        let keys = keys(&path);
        server.join().unwrap();
        keys
    }

    #[test]
    fn a_list_is_read_over_a_socket() {
        let keys = asked(string(&answer())).unwrap();
        assert_eq!((keys[0].key_type.as_str(), keys[0].comment.as_str()), ("ssh-ed25519", "me@here"));
        assert!(keys[0].fingerprint.starts_with("SHA256:"));
    }

    #[test]
    fn an_answer_of_any_length_is_not_waited_for() {
        assert!(matches!(asked(vec![255; 8]), Err(AgentError::Answer(_))));
    }

    #[test]
    fn a_cut_or_foreign_answer_is_refused_at_every_length() {
        let whole = answer();
        for length in 0..whole.len() {
            assert!(parse(&whole[..length]).is_err(), "{length}");
        }
        assert!(parse(&[5]).is_err());
        assert!(parse(&[IDENTITIES_ANSWER, 255, 255, 255, 255, 255, 255, 255, 255]).is_err());
        assert_eq!(parse(&[IDENTITIES_ANSWER, 0, 0, 0, 0]).unwrap(), []);
    }

    #[test]
    fn a_socket_that_nobody_serves_is_an_error() {
        let scratch = tempfile::tempdir().unwrap();
        assert!(matches!(keys(&scratch.path().join("none")), Err(AgentError::Io(_))));
    }
}
