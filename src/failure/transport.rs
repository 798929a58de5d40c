//! The errors of `ssh` and `line` as the contract's kinds.

use serde_json::{Value, json};
use towline_helper::wire::message::{Code, Refusal};

use super::{Failure, shown};
use crate::kind::Kind;
use crate::line::bootstrap::BootstrapError;
use crate::line::{self, EndReason, OpenError};
use crate::opening;
use crate::ssh::{self, HostKeyRefusal};

impl From<ssh::Error> for Failure {
    fn from(error: ssh::Error) -> Failure {
        use ssh::Error;
        let (message, hint) = (error.to_string(), error.hint());
        let failure = match error {
            Error::ConfigRejected(rejection) => return Failure::from(*rejection),
            Error::ConnectFailed { phase, .. } => {
                // A phase that times out is the kind of its phase.
                let kind = match phase {
                    ssh::Phase::Authentication => Kind::AuthFailed,
                    ssh::Phase::Resolve
                    | ssh::Phase::Tcp
                    | ssh::Phase::Version
                    | ssh::Phase::KeyExchange
                    | ssh::Phase::Channel => Kind::ConnectFailed,
                };
                Failure::new(kind, message).field("phase", phase.as_str())
            }
            Error::HostKeyUnknown(refusal) => host_key(Failure::new(Kind::HostKeyUnknown, message), *refusal),
            Error::HostKeyChanged(refusal) => host_key(Failure::new(Kind::HostKeyChanged, message), *refusal),
            Error::HostKeyRevoked(refusal) => host_key(Failure::new(Kind::HostKeyRevoked, message), *refusal),
            Error::AuthFailed(auth) => Failure::new(Kind::AuthFailed, message)
                .field("phase", ssh::Phase::Authentication.as_str())
                .field("methods_left", auth.methods_left)
                .field("prompts", auth.prompts),
            Error::Ended { .. } => Failure::new(Kind::ConnectFailed, message),
        };
        match hint {
            Some(hint) => failure.hint(hint),
            None => failure,
        }
    }
}

fn host_key(failure: Failure, refusal: HostKeyRefusal) -> Failure {
    let known: Vec<Value> = refusal
        .known
        .iter()
        .map(|entry| {
            json!({ "file": shown(&entry.file), "line": entry.line, "fingerprint": entry.fingerprint })
        })
        .collect();
    let failure = match refusal.known.first() {
        Some(entry) => failure.field("file", shown(&entry.file)).field("line", entry.line),
        None => failure,
    };
    failure
        .field("name", refusal.name)
        .field("key_type", refusal.key_type)
        .field("fingerprint", refusal.fingerprint)
        .field("known", known)
}

impl From<OpenError> for Failure {
    fn from(error: OpenError) -> Failure {
        let message = error.to_string();
        match error {
            OpenError::Ssh(error) => Failure::from(error),
            OpenError::Bootstrap(error) => bootstrap(&error, message),
            OpenError::Protocol(_) | OpenError::OtherHelper { .. } => {
                Failure::new(Kind::BootstrapFailed, message)
                    .field("phase", "hello")
                    .hint("remove the cached helper on the host (~/.cache/towline), then connect again")
            }
            OpenError::NoHello { .. } | OpenError::Ended(_) => {
                Failure::new(Kind::BootstrapFailed, message).field("phase", "hello")
            }
            OpenError::Thread(_) => Failure::new(Kind::Internal, message)
                .hint("this machine cannot start another thread; see `ulimit -u`"),
        }
    }
}

fn bootstrap(error: &BootstrapError, message: String) -> Failure {
    let failure = Failure::new(Kind::BootstrapFailed, message).field("phase", "bootstrap");
    match error {
        BootstrapError::Noise { bytes, .. } => failure
            .field("skipped_bytes", *bytes)
            .hint("make the login's start-up files print less when there is no terminal"),
        BootstrapError::Ended { .. } => failure.hint(
            "the host must run the command that towline sends: see the account's shell, ForceCommand and start-up files",
        ),
        BootstrapError::TimedOut { .. } => {
            failure.hint("a start-up file may wait for input, or the host is very slow")
        }
        BootstrapError::Platform { platform } => failure
            .field("platform", platform.as_str())
            .hint("build towline with a helper for that platform (TOWLINE_HELPER_X86_64, TOWLINE_HELPER_AARCH64)"),
        BootstrapError::NoPlace { places, .. } => failure
            .field("places", places.clone())
            .hint("make one of these places writable and executable, or set XDG_CACHE_HOME on the host"),
        BootstrapError::Garbled { .. } => failure.hint("see the account's shell and start-up files"),
    }
}

impl From<line::Error> for Failure {
    fn from(error: line::Error) -> Failure {
        use line::Error;
        let message = error.to_string();
        let retry_safe = error.retry_safe();
        match error {
            Error::NotConnected(reason) => ended(Failure::new(Kind::NotConnected, message), &reason),
            Error::Lost(reason) => ended(Failure::new(Kind::LineLost, message), &reason),
            Error::OutcomeUnknown(reason) => ended(Failure::new(Kind::OutcomeUnknown, message), &reason),
            Error::Refused(refusal) => {
                // A broker tells of what never reached the line.
                let retry_safe = retry_safe || refusal.code == Code::NotConnected;
                Failure { retry_safe, ..Failure::from(*refusal) }
            }
            Error::Invalid { .. } => Failure::new(Kind::InvalidInput, message),
            Error::Unexpected { .. } => Failure::new(Kind::Internal, message),
        }
    }
}

fn ended(failure: Failure, reason: &EndReason) -> Failure {
    failure.field("reason", reason.as_str())
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Failure {
        let (kind, reason) = match refusal.code {
            Code::InvalidRequest => (Kind::Internal, Some("invalid_request")),
            Code::TooLarge => (Kind::InvalidInput, Some("too_large")),
            Code::NotFound => (Kind::NotFound, None),
            Code::Exists => (Kind::Exists, None),
            Code::Permission => (Kind::Permission, None),
            Code::NoSpace => (Kind::NoSpace, None),
            Code::IsDirectory => (Kind::RemoteError, Some("is_directory")),
            Code::NotDirectory => (Kind::RemoteError, Some("not_directory")),
            Code::Io => (Kind::RemoteError, Some("io")),
            Code::Unsupported => (Kind::RemoteError, Some("unsupported")),
            Code::Cancelled => (Kind::RemoteError, Some("cancelled")),
            Code::Busy => (Kind::Busy, None),
            Code::ChecksumMismatch => (Kind::ChecksumMismatch, None),
            Code::PolicyDenied => (Kind::PolicyDenied, None),
            Code::PolicyInvalid => (Kind::PolicyInvalid, None),
            Code::NotConnected => (Kind::NotConnected, None),
        };
        let mut failure = Failure::new(kind, refusal.message);
        if let Some(reason) = reason {
            failure = failure.field("reason", reason);
        }
        if let Some(which) = refusal.which {
            failure = failure.field("which", which);
        }
        match refusal.path {
            Some(path) => failure.field("path", path.escaped()),
            None => failure,
        }
    }
}

impl From<opening::Error> for Failure {
    fn from(error: opening::Error) -> Failure {
        use opening::Error;
        let message = error.to_string();
        match error {
            Error::Config(error) => Failure::from(error),
            Error::SshConfig(rejection) => Failure::from(*rejection),
            Error::Ssh(error) => Failure::from(error),
            Error::Helper { path, .. } => Failure::new(Kind::Config, message)
                .hint("set TOWLINE_HELPER to a readable helper, or unset it")
                .field("file", shown(&path)),
            Error::NoHelper => Failure::new(Kind::BootstrapFailed, message).hint(
                "build towline on Linux, or set TOWLINE_HELPER_X86_64 at build time, or TOWLINE_HELPER now",
            ),
        }
    }
}
