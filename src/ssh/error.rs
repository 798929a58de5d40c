//! What can go wrong between the ssh config and an open channel, with the facts in fields.

use std::fmt;
use std::path::PathBuf;

/// The part of a connection's opening that failed; each has a deadline of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The host name is looked up.
    Resolve,
    /// A TCP connection, or a tunnel through a jump host, is made.
    Tcp,
    /// The server's version line is awaited.
    Version,
    /// Algorithms and keys are agreed on, and the host key is checked.
    KeyExchange,
    /// The user proves who they are.
    Authentication,
    /// The one channel is opened and its command is started.
    Channel,
}

impl Phase {
    /// Names the phase as errors do: `resolve`, `tcp`, `version`, `key_exchange`, `authentication`, `channel`.
    pub fn as_str(self) -> &'static str {
        match self {
            Phase::Resolve => "resolve",
            Phase::Tcp => "tcp",
            Phase::Version => "version",
            Phase::KeyExchange => "key_exchange",
            Phase::Authentication => "authentication",
            Phase::Channel => "channel",
        }
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Phase::Resolve => "name look-up",
            Phase::KeyExchange => "key exchange",
            other => other.as_str(),
        })
    }
}

/// Why a host key was not accepted, with everything a person needs to judge it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostKeyRefusal {
    /// The name that was looked up in known_hosts (`host`, `[host]:port` or the alias).
    pub name: String,
    /// The type of the key that the server showed, e.g. `ssh-ed25519`.
    pub key_type: String,
    /// The shown key's fingerprint, `SHA256:…`.
    pub fingerprint: String,
    /// What known_hosts holds instead: fingerprint, file and line of each entry that did not match.
    pub known: Vec<KnownEntry>,
    /// What else mattered: why a certificate counted for nothing, or who could not be asked.
    pub detail: Option<String>,
}

/// One known_hosts entry that played a part in a refusal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownEntry {
    /// The file that holds the entry.
    pub file: PathBuf,
    /// Its line, counted from 1.
    pub line: u64,
    /// The fingerprint of the key on that line, `SHA256:…`.
    pub fingerprint: String,
}

impl fmt::Display for KnownEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{} ({})", self.file.display(), self.line, self.fingerprint)
    }
}

impl HostKeyRefusal {
    fn entries(&self) -> String {
        let entries: Vec<String> = self.known.iter().map(ToString::to_string).collect();
        entries.join(", ")
    }

    fn suffix(&self) -> String {
        self.detail.as_ref().map(|detail| format!("; {detail}")).unwrap_or_default()
    }
}

/// How far authentication came and why it stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthFailure {
    /// Whom the login was for.
    pub user: String,
    /// The host that refused, as it was dialled.
    pub host: String,
    /// Why it stopped, as a fragment.
    pub reason: String,
    /// The methods that the server would still have taken; empty when it said nothing.
    pub methods_left: Vec<String>,
    /// The methods that the server accepted as one of several steps.
    pub accepted: Vec<String>,
    /// Keys, files and agents that were left out, each with the reason.
    pub notes: Vec<String>,
    /// How many questions a person answered.
    pub prompts: u32,
    /// Whether nobody answered a question that the server had to have answered.
    pub unanswered: bool,
}

impl fmt::Display for AuthFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "login as {}@{} failed: {}", self.user, self.host, self.reason)?;
        if !self.accepted.is_empty() {
            write!(f, "; accepted so far: {}", self.accepted.join(", "))?;
        }
        if !self.methods_left.is_empty() {
            write!(f, "; methods left: {}", self.methods_left.join(", "))?;
        }
        for note in &self.notes {
            write!(f, "; {note}")?;
        }
        Ok(())
    }
}

/// Why no channel came about, or why an open one ended.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The ssh config cannot be used (`ssh_config_rejected`).
    #[error("{0}")]
    ConfigRejected(Box<ssh_config_parser::Rejection>),
    /// The host could not be reached or does not speak SSH as we need it (`connect_failed`).
    #[error("{phase} with {host}:{port} failed: {problem}")]
    ConnectFailed {
        /// The phase that failed.
        phase: Phase,
        /// The host that was dialled.
        host: String,
        /// Its port.
        port: u16,
        /// What happened, as a fragment.
        problem: String,
        /// What to do about it.
        hint: Option<String>,
    },
    /// The host key is in no known_hosts file and nobody accepted it (`host_key_unknown`).
    #[error("host key of {} is not known: {} {}{}", .0.name, .0.key_type, .0.fingerprint, .0.suffix())]
    HostKeyUnknown(Box<HostKeyRefusal>),
    /// Another host key is on record (`host_key_changed`).
    #[error("host key of {} has changed: it shows {} {}, on record is {}{}", .0.name, .0.key_type, .0.fingerprint, .0.entries(), .0.suffix())]
    HostKeyChanged(Box<HostKeyRefusal>),
    /// The host key or its certificate's authority is revoked (`host_key_revoked`).
    #[error("host key of {} is revoked: {} {}{}{}", .0.name, .0.key_type, .0.fingerprint, if .0.known.is_empty() { String::new() } else { format!(", by {}", .0.entries()) }, .0.suffix())]
    HostKeyRevoked(Box<HostKeyRefusal>),
    /// The server did not let the user in (`auth_failed`).
    #[error("{0}")]
    AuthFailed(Box<AuthFailure>),
    /// The open connection ended or cannot carry more (`line_lost`).
    #[error("the connection ended: {reason}")]
    Ended {
        /// What ended it, as a fragment.
        reason: String,
    },
}

impl Error {
    /// Tells what a person can do next, when that is known.
    pub fn hint(&self) -> Option<String> {
        match self {
            Error::ConnectFailed { hint, .. } => hint.clone(),
            Error::HostKeyUnknown(refusal) => Some(format!(
                "compare {} with what the site publishes, then accept it on a terminal",
                refusal.fingerprint
            )),
            Error::HostKeyChanged(_) => {
                Some("ask the site whether it changed its key; only then remove the old line".to_owned())
            }
            Error::AuthFailed(auth) if auth.unanswered => Some(
                "answer on a terminal, or name a program that answers as `askpass` of the site".to_owned(),
            ),
            Error::AuthFailed(auth) if auth.prompts > 0 => {
                Some("call again to be asked anew; nothing is tried twice by itself".to_owned())
            }
            Error::HostKeyRevoked(_)
            | Error::AuthFailed(_)
            | Error::Ended { .. }
            | Error::ConfigRejected(_) => None,
        }
    }
}

impl From<ssh_config_parser::Rejection> for Error {
    fn from(rejection: ssh_config_parser::Rejection) -> Self {
        Error::ConfigRejected(Box::new(rejection))
    }
}
