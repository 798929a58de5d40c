//! The answer for one host: everything a connection needs, typed and expanded.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;

use crate::rejection::Note;

/// Which addresses of a name may be dialled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AddressFamily {
    /// Either family.
    Any,
    /// IPv4 only.
    Inet,
    /// IPv6 only.
    Inet6,
}

/// What happens when a host key is not known yet; a changed or revoked one is refused whatever this says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StrictHostKeyChecking {
    /// Refuse.
    Yes,
    /// Ask a human; refuse where nobody can be asked.
    Ask,
    /// Record it and go on.
    AcceptNew,
    /// Record it, warn and go on.
    No,
}

/// How fingerprints are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FingerprintHash {
    /// MD5 in colon-separated hexadecimal.
    Md5,
    /// SHA-256 in base64 without padding.
    Sha256,
}

/// Where the key agent is found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IdentityAgent {
    /// The socket that `SSH_AUTH_SOCK` names.
    Default,
    /// No agent is used.
    None,
    /// This socket.
    Path(PathBuf),
}

/// A private key file to try.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdentityFile {
    /// The expanded path.
    pub path: PathBuf,
    /// Whether the configuration names it; a default file that is missing is skipped silently.
    pub configured: bool,
}

/// One hop of `ProxyJump`, as written; what is absent comes from the hop's own configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Jump {
    /// The user to log in as on the hop.
    pub user: Option<String>,
    /// The name to look up and dial, without brackets.
    pub host: String,
    /// The port to dial.
    pub port: Option<u16>,
}

/// Everything a connection to one host needs, typed and already expanded.
///
/// Algorithm lists are those of OpenSSH 9.2; a connection keeps the ones that it implements.
#[derive(Debug, Clone, PartialEq)]
pub struct Resolved {
    /// The name as the caller typed it, without `user@` and URI parts.
    pub typed_host: String,
    /// The final name that is dialled and checked.
    pub hostname: String,
    /// The user to log in as.
    pub user: String,
    /// The port to dial.
    pub port: u16,
    /// Which addresses may be dialled.
    pub address_family: AddressFamily,
    /// The local address to bind to.
    pub bind_address: Option<String>,
    /// The local interface to bind to.
    pub bind_interface: Option<String>,
    /// Bounds TCP, version and key exchange together; none means the caller's own default.
    pub connect_timeout: Option<Duration>,
    /// How many times a connection is tried; at least 1.
    pub connection_attempts: u32,
    /// Pause between keepalives; none means not configured or switched off.
    pub server_alive_interval: Option<Duration>,
    /// Keepalives that may stay without answer.
    pub server_alive_count_max: u32,
    /// Whether TCP keepalive is on.
    pub tcp_keep_alive: bool,
    /// Whether compression is asked for.
    pub compression: bool,
    /// Ciphers in order of preference.
    pub ciphers: Vec<String>,
    /// Message authentication codes in order of preference.
    pub macs: Vec<String>,
    /// Key exchange methods in order of preference.
    pub kex_algorithms: Vec<String>,
    /// Host key algorithms; none means not configured: choose by what is known of the host.
    pub host_key_algorithms: Option<Vec<String>>,
    /// Signature algorithms for user keys.
    pub pubkey_accepted_algorithms: Vec<String>,
    /// Signature algorithms that a certificate authority may have used.
    pub ca_signature_algorithms: Vec<String>,
    /// Bytes after which keys are renewed; none means the protocol's own limit.
    pub rekey_limit_bytes: Option<u64>,
    /// Time after which keys are renewed; none means never for time.
    pub rekey_interval: Option<Duration>,
    /// Least size of an RSA key of host or user, in bits.
    pub required_rsa_size: u32,
    /// Private key files in the order in which they are tried.
    pub identity_files: Vec<IdentityFile>,
    /// Certificate files that the configuration names.
    pub certificate_files: Vec<PathBuf>,
    /// Whether only the keys of `identity_files` are offered, also from the agent.
    pub identities_only: bool,
    /// Where the key agent is found.
    pub identity_agent: IdentityAgent,
    /// Authentication methods in order; none means the usual order.
    pub preferred_authentications: Option<Vec<String>>,
    /// Whether public keys may be used.
    pub pubkey_authentication: bool,
    /// Whether passwords may be used.
    pub password_authentication: bool,
    /// Whether keyboard-interactive may be used.
    pub kbd_interactive_authentication: bool,
    /// How many times a password is asked for.
    pub number_of_password_prompts: u32,
    /// Whether prompts are forbidden.
    pub batch_mode: bool,
    /// What happens when a host key is not known.
    pub strict_host_key_checking: StrictHostKeyChecking,
    /// The user's known_hosts files; only the first is ever written.
    pub user_known_hosts_files: Vec<PathBuf>,
    /// The system's known_hosts files.
    pub global_known_hosts_files: Vec<PathBuf>,
    /// The name to look up in known_hosts instead of the host's, in lower case.
    pub host_key_alias: Option<String>,
    /// Whether names are written hashed.
    pub hash_known_hosts: bool,
    /// Lists of revoked keys.
    pub revoked_host_keys: Vec<PathBuf>,
    /// How fingerprints are shown.
    pub fingerprint_hash: FingerprintHash,
    /// Hops in the order in which they are dialled; empty means a direct connection.
    pub jump: Vec<Jump>,
    /// The log level in capitals, as `ssh -G` prints it.
    pub log_level: String,
    /// What the effective configuration asks for without effect.
    pub notes: Vec<Note>,
    /// Lower-case keyword to string or list of strings, as `ssh -G` prints them.
    pub printed: BTreeMap<String, Value>,
}

impl Resolved {
    /// Renders the one object that `ssh-config resolve` prints.
    pub fn to_json(&self) -> Value {
        Value::Object(self.printed.iter().map(|(key, value)| (key.clone(), value.clone())).collect())
    }
}
