//! A client of the key agent: lists keys and has data signed, with every answer bounded in size and time.
//!
//! Ours, not russh's: one key of an unknown type must not hide all others, and a silent agent must not hang.

use std::path::{Path, PathBuf};
use std::time::Duration;

use russh::keys::agent::AgentSessionBinding;
use russh::keys::key::parse_public_key;
use russh::keys::{Algorithm, Certificate, HashAlg, PublicKey};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::time::timeout;

use super::offer::string;

/// Within this an agent must list its keys.
pub(super) const ANSWER_TIME_MAX: Duration = Duration::from_secs(5);
/// A signature may wait for a touch or a confirmation by a human.
const SIGNATURE_TIME_MAX: Duration = Duration::from_secs(120);
const ANSWER_BYTES_MAX: u32 = 256 * 1024;
const KEYS_MAX: u32 = 1024;

const REQUEST_IDENTITIES: u8 = 11;
const IDENTITIES_ANSWER: u8 = 12;
const SIGN_REQUEST: u8 = 13;
const SIGN_RESPONSE: u8 = 14;
const EXTENSION: u8 = 27;

const RSA_SHA2_256: u32 = 2;
const RSA_SHA2_512: u32 = 4;

/// Why an agent was of no use.
#[derive(Debug, thiserror::Error)]
pub(super) enum AgentProblem {
    /// Nothing listens there; usual for a socket that outlived its agent.
    #[error("key agent {} is not there: {source}", path.display())]
    Absent { path: PathBuf, source: std::io::Error },
    #[error("key agent {} did not answer within {} s", path.display(), limit.as_secs())]
    Silent { path: PathBuf, limit: Duration },
    #[error("key agent {} answered badly: {problem}", path.display())]
    Broken { path: PathBuf, problem: String },
    #[error("key agent {} would not sign", path.display())]
    Refused { path: PathBuf },
}

/// A key that the agent holds.
pub(super) struct AgentKey {
    pub blob: Vec<u8>,
    pub comment: String,
    pub public: AgentPublic,
}

pub(super) enum AgentPublic {
    Plain(PublicKey),
    Certificate(Box<Certificate>),
}

/// A connection to an agent.
pub(super) struct Agent {
    stream: UnixStream,
    path: PathBuf,
}

impl Agent {
    pub async fn connect(path: &Path) -> Result<Agent, AgentProblem> {
        match timeout(ANSWER_TIME_MAX, UnixStream::connect(path)).await {
            Ok(Ok(stream)) => Ok(Agent { stream, path: path.to_owned() }),
            Ok(Err(source)) => Err(AgentProblem::Absent { path: path.to_owned(), source }),
            Err(_) => Err(AgentProblem::Silent { path: path.to_owned(), limit: ANSWER_TIME_MAX }),
        }
    }

    /// Tells the agent which server it signs for, so that keys limited to destinations can be used.
    ///
    /// Older agents do not know it and say so; that changes nothing for other keys.
    pub async fn bind(&mut self, binding: &AgentSessionBinding) -> Result<(), AgentProblem> {
        let mut request = vec![EXTENSION];
        put(&mut request, b"session-bind@openssh.com");
        put(&mut request, binding.host_key());
        put(&mut request, binding.session_id());
        put(&mut request, binding.signature());
        request.push(0);
        self.ask(&request, ANSWER_TIME_MAX).await.map(drop)
    }

    /// Lists the keys in the agent's order; the second value says what was skipped.
    pub async fn list(&mut self) -> Result<(Vec<AgentKey>, Vec<String>), AgentProblem> {
        let answer = self.ask(&[REQUEST_IDENTITIES], ANSWER_TIME_MAX).await?;
        identities(&answer, &self.path).ok_or_else(|| self.broken("its list of keys cannot be read"))
    }

    /// Has `data` signed; the result is a signature as it travels, without its outer length.
    pub async fn sign(
        &mut self,
        blob: &[u8],
        data: &[u8],
        hash: Option<HashAlg>,
    ) -> Result<Vec<u8>, AgentProblem> {
        let flags = match hash {
            Some(HashAlg::Sha256) => RSA_SHA2_256,
            Some(HashAlg::Sha512) => RSA_SHA2_512,
            _ => 0,
        };
        let mut request = vec![SIGN_REQUEST];
        put(&mut request, blob);
        put(&mut request, data);
        request.extend(flags.to_be_bytes());
        let answer = self.ask(&request, SIGNATURE_TIME_MAX).await?;
        let Some((&SIGN_RESPONSE, mut rest)) = answer.split_first() else {
            return Err(AgentProblem::Refused { path: self.path.clone() });
        };
        let signature = string(&mut rest).map(<[u8]>::to_vec);
        signature.ok_or_else(|| self.broken("its signature cannot be read"))
    }

    fn broken(&self, problem: &str) -> AgentProblem {
        AgentProblem::Broken { path: self.path.clone(), problem: problem.to_owned() }
    }

    /// After a failure the connection is out of step; the caller drops the agent.
    async fn ask(&mut self, request: &[u8], limit: Duration) -> Result<Vec<u8>, AgentProblem> {
        let exchange = async {
            let mut framed = Vec::with_capacity(request.len() + 4);
            put(&mut framed, request);
            self.stream.write_all(&framed).await?;
            let length = self.stream.read_u32().await?;
            if length > ANSWER_BYTES_MAX {
                let problem = format!("an answer of {length} bytes, the limit is {ANSWER_BYTES_MAX}");
                return Err(std::io::Error::other(problem));
            }
            let mut answer = vec![0; usize::try_from(length).unwrap_or_default()];
            self.stream.read_exact(&mut answer).await?;
            Ok(answer)
        };
        match timeout(limit, exchange).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => Err(self.broken(&error.to_string())),
            Err(_) => Err(AgentProblem::Silent { path: self.path.clone(), limit }),
        }
    }
}

/// Appends a length-prefixed string (RFC 4251, 5).
pub(super) fn put(buffer: &mut Vec<u8>, bytes: &[u8]) {
    let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    buffer.extend(length.to_be_bytes());
    buffer.extend(bytes);
}

fn identities(answer: &[u8], path: &Path) -> Option<(Vec<AgentKey>, Vec<String>)> {
    let (&IDENTITIES_ANSWER, rest) = answer.split_first()? else {
        return None;
    };
    let (count, mut rest) = rest.split_first_chunk::<4>()?;
    let count = u32::from_be_bytes(*count);
    let mut keys = Vec::new();
    let mut notes = Vec::new();
    for _ in 0..count.min(KEYS_MAX) {
        let blob = string(&mut rest)?;
        let comment = String::from_utf8_lossy(string(&mut rest)?).into_owned();
        match public(blob) {
            Ok(public) => keys.push(AgentKey { blob: blob.to_vec(), comment, public }),
            Err(kind) => notes.push(format!(
                "key {comment:?} of agent {} skipped: type {kind} is not supported",
                path.display()
            )),
        }
    }
    if count > KEYS_MAX {
        notes.push(format!("agent {} lists {count} keys, only {KEYS_MAX} are looked at", path.display()));
    }
    Some((keys, notes))
}

fn public(blob: &[u8]) -> Result<AgentPublic, String> {
    let mut rest = blob;
    let kind = string(&mut rest).unwrap_or(b"?");
    let kind = || super::prompt::printable(&String::from_utf8_lossy(kind));
    let key = parse_public_key(blob).map_err(|_| kind())?;
    if matches!(key.algorithm(), Algorithm::Other(_) | Algorithm::Dsa) {
        return Err(kind());
    }
    match key.key_data().certificate() {
        Some(certificate) => Ok(AgentPublic::Certificate(Box::new(certificate.clone()))),
        None => Ok(AgentPublic::Plain(key)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ED25519: &str = "AAAAC3NzaC1lZDI1NTE5AAAAIJdD7y3aLq454yWBdwLWbieU1ebz9/cu7/QEXn9OIeZJ";

    #[test]
    fn case_051_one_strange_key_hides_no_other() {
        use base64::Engine;
        let good = base64::engine::general_purpose::STANDARD.decode(ED25519).unwrap();
        let mut strange = Vec::new();
        put(&mut strange, b"webauthn-sk-ecdsa-sha2-nistp256@openssh.com");
        put(&mut strange, &[1, 2, 3]);
        let mut dss = Vec::new();
        put(&mut dss, b"ssh-dss");
        let mut answer = vec![IDENTITIES_ANSWER];
        answer.extend(4u32.to_be_bytes());
        for (blob, comment) in [(&strange, "w"), (&good, "first"), (&dss, "old"), (&good, "second")] {
            put(&mut answer, blob);
            put(&mut answer, comment.as_bytes());
        }
        let (keys, notes) = identities(&answer, Path::new("/a")).unwrap();
        let comments: Vec<&str> = keys.iter().map(|key| key.comment.as_str()).collect();
        assert_eq!(comments, ["first", "second"]);
        assert_eq!(notes.len(), 2);
        assert!(notes[0].contains("webauthn-sk"), "{notes:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn case_051_a_silent_agent_is_an_error_that_names_its_socket() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("agent");
        let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let mut agent = Agent::connect(&path).await.unwrap();
        let problem = agent.list().await.err().unwrap().to_string();
        assert!(problem.contains(&path.display().to_string()), "{problem}");
        assert!(problem.contains("5 s"), "{problem}");
        drop(listener);
    }
}
