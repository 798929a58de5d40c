//! What a caller of a line can meet.

use towline_helper::wire::message::Refusal;

/// Why a line ended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EndReason {
    /// This side closed it.
    #[error("the line was closed")]
    Closed,
    /// The channel or the connection ended.
    #[error("the connection ended: {0}")]
    Connection(String),
    /// The far end broke a rule of the protocol.
    #[error("the helper sent what no helper sends: {0}")]
    Protocol(String),
    /// The helper closed the line with this reason.
    #[error("the helper closed the line: {0}")]
    Bye(String),
    /// The helper does not answer although the SSH server does.
    #[error("the helper has not answered for {silent_s} s while the SSH server does")]
    Stalled {
        /// Seconds without a byte from the helper.
        silent_s: u64,
    },
}

impl EndReason {
    /// One word for scripts.
    pub fn as_str(&self) -> &'static str {
        match self {
            EndReason::Closed => "closed",
            EndReason::Connection(_) => "connection",
            EndReason::Protocol(_) => "protocol",
            EndReason::Bye(_) => "helper_closed",
            EndReason::Stalled { .. } => "helper_stalled",
        }
    }
}

/// Why an operation on a line failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The line had ended before the request was sent; nothing was done.
    #[error("there is no line: {0}")]
    NotConnected(EndReason),
    /// The line ended while a pure read or a wait was open.
    #[error("the line was lost: {0}")]
    Lost(EndReason),
    /// The line ended after the request was sent: it may have taken effect.
    #[error("the line ended after the request was sent, so its outcome is unknown: {0}")]
    OutcomeUnknown(EndReason),
    /// The helper could not do it.
    #[error("{}", .0.message)]
    Refused(Box<Refusal>),
    /// The request breaks a bound; nothing was sent.
    #[error("{message}")]
    Invalid {
        /// What is out of bounds, with the value and the bound.
        message: String,
    },
    /// The helper answered with something else than was asked for: a bug in one of the two.
    #[error("the helper answered a {asked} request with something else")]
    Unexpected {
        /// The request.
        asked: &'static str,
    },
}

impl Error {
    /// Whether the request may have reached the far side and taken effect.
    pub fn dispatched(&self) -> bool {
        match self {
            Error::OutcomeUnknown(_) | Error::Unexpected { .. } => true,
            Error::NotConnected(_) | Error::Lost(_) | Error::Refused(_) | Error::Invalid { .. } => false,
        }
    }

    /// Whether nothing was done and the same call may be repeated as it is.
    pub fn retry_safe(&self) -> bool {
        matches!(self, Error::NotConnected(_) | Error::Lost(_))
    }
}
