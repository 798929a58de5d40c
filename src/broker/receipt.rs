//! The receipt of a line's life, as it stands beside the socket.

use serde::{Deserialize, Serialize};

use super::place::RECEIPT;
use crate::audit::{Clock as _, SystemClock, rfc3339};
use crate::config::{self, Role, Site};
use crate::disk::{Fault, Folder};
use crate::line::Facts;
use crate::ssh::Target;

/// Version of the receipt's members.
const SCHEMA: u32 = 1;
/// Version of what is spoken behind the receipt; another one is another program.
pub const PROTOCOL: u32 = 2;
/// Largest receipt that is read.
const FILE_BYTES_MAX: u64 = 64 << 10;

/// How a line stands, as its broker last wrote it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// Its broker opens it.
    Starting,
    /// It can be used.
    Ready,
    /// Its broker closes it.
    Stopping,
    /// It was closed.
    Stopped,
    /// It could not be opened, or ended by itself.
    Failed,
}

impl Status {
    /// The word in the file.
    pub fn as_str(self) -> &'static str {
        match self {
            Status::Starting => "starting",
            Status::Ready => "ready",
            Status::Stopping => "stopping",
            Status::Stopped => "stopped",
            Status::Failed => "failed",
        }
    }
}

/// Where a line leads. Two are equal exactly when a line to one may be used for the other.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Destination {
    /// The host's name or address, as resolved.
    pub hostname: String,
    /// The user there.
    pub user: String,
    /// The port, as text.
    pub port: String,
    /// The jump hosts before it, in dial order.
    #[serde(default)]
    pub jumps: Vec<String>,
}

impl Destination {
    /// What a target resolves to.
    pub fn of(target: &Target) -> Destination {
        let (host, port, user) = target.destination().unwrap_or_default();
        Destination {
            hostname: host.to_owned(),
            user: user.to_owned(),
            port: port.to_string(),
            jumps: target.jumps(),
        }
    }
}

impl std::fmt::Display for Destination {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}@{} port {}", self.user, self.hostname, self.port)?;
        if self.jumps.is_empty() { Ok(()) } else { write!(f, " through {}", self.jumps.join(", ")) }
    }
}

/// The name by which the configuration knows a role's host.
///
/// # Errors
/// [`config::Error::NoRole`].
pub fn alias(site: &Site, role: Role) -> Result<String, config::Error> {
    Ok(match site.destination(role)? {
        config::Destination::Ssh { host } => host.clone(),
        config::Destination::Socket { path, .. } => path.to_string_lossy().into_owned(),
    })
}

/// The receipt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Receipt {
    /// Version of these members.
    pub schema_version: u32,
    /// Version of what is spoken over the socket.
    pub protocol: u32,
    /// How the line stands.
    pub status: Status,
    /// The broker's process.
    pub pid: u32,
    /// The host's name in the configuration.
    pub alias: String,
    /// Where the line leads.
    pub destination: Destination,
    /// When this was written.
    pub updated_at: String,
    /// Streams that have ended.
    pub commands_completed: u64,
    /// When the broker began.
    pub started_at: String,
    /// When the line could be used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready_at: Option<String>,
    /// When the last stream ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_command_at: Option<String>,
    /// Who or what stopped it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop_reason: Option<String>,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped_at: Option<String>,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The host key that was accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_key_sha256: Option<String>,
    /// The address that was dialled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// The helper at the far end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub helper_sha256: Option<String>,
    /// Whether the host held it already.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub helper_cached: Option<bool>,
    /// SSH connections to the host, ever.
    pub connections: u32,
    /// Session channels, ever.
    pub session_channels: u32,
    /// Questions that a human answered for it.
    pub prompts: u32,
}

impl Receipt {
    /// The receipt of a broker of this process that begins.
    pub fn starting(alias: String, destination: Destination) -> Receipt {
        let now = now();
        Receipt {
            schema_version: SCHEMA,
            protocol: PROTOCOL,
            status: Status::Starting,
            pid: std::process::id(),
            alias,
            destination,
            updated_at: now.clone(),
            commands_completed: 0,
            started_at: now,
            ready_at: None,
            last_command_at: None,
            stop_reason: None,
            stopped_at: None,
            error: None,
            host_key_sha256: None,
            address: None,
            helper_sha256: None,
            helper_cached: None,
            connections: 0,
            session_channels: 0,
            prompts: 0,
        }
    }

    /// Notes that the line can be used.
    pub fn ready(&mut self, facts: &Facts) {
        self.status = Status::Ready;
        self.ready_at = Some(now());
        self.helper_sha256 = Some(facts.helper.hello.sha256.clone());
        self.helper_cached = Some(facts.helper.cached);
        self.session_channels = facts.session_channels;
        if let Some(ssh) = &facts.ssh {
            self.host_key_sha256 = Some(ssh.host_key_sha256.clone());
            self.address = ssh.address.map(|address| address.to_string());
            self.connections = ssh.connections;
            self.prompts = ssh.prompts;
        }
    }

    /// Notes that the line is over: closed by somebody, or failed.
    pub fn over(&mut self, end: Result<String, String>) {
        self.stopped_at = Some(now());
        match end {
            Ok(reason) => {
                self.status = Status::Stopped;
                self.stop_reason = Some(reason);
            }
            Err(error) => {
                self.status = Status::Failed;
                self.error = Some(error);
            }
        }
    }

    /// Replaces the file.
    ///
    /// # Errors
    /// [`Fault`] of the file; the old one is then still whole.
    pub fn write(&mut self, folder: &Folder) -> Result<(), Fault> {
        self.updated_at = now();
        let bytes = serde_json::to_vec(self).map_err(|error| Fault::Io {
            doing: "encode",
            path: folder.path_of(RECEIPT),
            source: error.into(),
        })?;
        folder.replace(RECEIPT, &bytes)
    }

    /// Reads the file; none when there is none.
    ///
    /// # Errors
    /// What makes it untrusted, for people.
    pub fn read(folder: &Folder) -> Result<Option<Receipt>, String> {
        let bytes = match folder.read(RECEIPT, FILE_BYTES_MAX) {
            Ok((bytes, _)) => bytes,
            Err(Fault::Missing { .. }) => return Ok(None),
            Err(fault) => return Err(fault.to_string()),
        };
        let receipt: Receipt = serde_json::from_slice(&bytes)
            .map_err(|error| format!("{} is malformed: {error}", folder.path_of(RECEIPT).display()))?;
        let empty = [&receipt.destination.hostname, &receipt.destination.user, &receipt.destination.port]
            .into_iter()
            .any(String::is_empty);
        match (receipt.schema_version, empty) {
            (SCHEMA, false) => Ok(Some(receipt)),
            (SCHEMA, true) => Err("the receipt names no destination".to_owned()),
            (other, _) => Err(format!("the receipt has schema version {other}, this program knows {SCHEMA}")),
        }
    }
}

fn now() -> String {
    rfc3339(SystemClock.unix_ms())
}
