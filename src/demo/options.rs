//! What a demo server can be told, and what it counts.

use std::ffi::OsString;
use std::fmt;
use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Decides whether the push for the n-th session channel (from 1) is approved; it may block.
#[derive(Clone)]
pub struct Push(Arc<dyn Fn(u64) -> bool + Send + Sync>);

impl Push {
    /// Wraps the decision.
    pub fn new(decide: impl Fn(u64) -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(decide))
    }

    pub(super) fn approves(&self, channel: u64) -> bool {
        (self.0)(channel)
    }
}

impl fmt::Debug for Push {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Push")
    }
}

/// How a [`Server`](super::Server) behaves; the default is a strict site: one session a connection, a passcode a login.
#[derive(Debug)]
pub struct Options {
    /// Session channels that a connection may have open at once; 1 by default.
    pub max_sessions: usize,
    /// Whether a passcode is asked after the key; true by default.
    pub second_factor: bool,
    /// The passcode; six random digits by default.
    pub passcode: Option<String>,
    /// Asked for every session channel as well, as sites do that push to a phone; nobody by default.
    pub push: Option<Push>,
    /// How long the second factor takes to answer; zero by default.
    pub delay: Duration,
    /// How long a command may outlive its channel before its process group is killed; one second by default.
    pub grace: Duration,
    /// The directory to live in, kept at the end; a temporary one, removed at the end, by default.
    pub scratch: Option<PathBuf>,
    /// The program that stands behind `sbatch` and its like; the running one by default.
    pub program: Option<PathBuf>,
    /// Further variables of every command.
    pub environment: Vec<(OsString, OsString)>,
    /// A bound loopback listener to serve besides the socket.
    pub listener: Option<TcpListener>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            max_sessions: 1,
            second_factor: true,
            passcode: None,
            push: None,
            delay: Duration::ZERO,
            grace: Duration::from_secs(1),
            scratch: None,
            program: None,
            environment: Vec::new(),
            listener: None,
        }
    }
}

/// What clients have cost so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Connections accepted.
    pub connections: u64,
    /// Session channels granted.
    pub session_channels: u64,
    /// Session channels refused, by `max_sessions` or a denied push.
    pub refused_channels: u64,
    /// Times a person had to answer: passcodes asked and pushes sent.
    pub second_factor_prompts: u64,
    /// Wrong keys, users and passcodes.
    pub refused_logins: u64,
    /// Commands started.
    pub exec_requests: u64,
}

/// The counters while they move.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) connections: AtomicU64,
    pub(super) session_channels: AtomicU64,
    pub(super) refused_channels: AtomicU64,
    pub(super) second_factor_prompts: AtomicU64,
    pub(super) refused_logins: AtomicU64,
    pub(super) exec_requests: AtomicU64,
}

impl Tally {
    pub(super) fn snapshot(&self) -> Counters {
        Counters {
            connections: self.connections.load(Ordering::SeqCst),
            session_channels: self.session_channels.load(Ordering::SeqCst),
            refused_channels: self.refused_channels.load(Ordering::SeqCst),
            second_factor_prompts: self.second_factor_prompts.load(Ordering::SeqCst),
            refused_logins: self.refused_logins.load(Ordering::SeqCst),
            exec_requests: self.exec_requests.load(Ordering::SeqCst),
        }
    }
}

/// Adds one and tells the new count.
pub(super) fn count(counter: &AtomicU64) -> u64 {
    counter.fetch_add(1, Ordering::SeqCst).saturating_add(1)
}
