//! The hops of a site's role: resolved once, ready to dial, never re-read.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::time::Duration;

use ssh_config_parser::known_hosts::LookupName;
use ssh_config_parser::{
    AddressFamily, FingerprintHash, IdentityAgent, IdentityFile, Resolved, Snapshot, StrictHostKeyChecking,
};

use super::algorithms::Wanted;
use super::error::Error;

/// Sent when the ssh config sets no ServerAliveInterval: a NAT forgets silent connections after minutes.
const KEEPALIVE_DEFAULT: Duration = Duration::from_secs(30);

/// The look-up name of the server behind a Unix socket.
const SOCKET_NAME: &str = "towline-demo";

/// What the site's own configuration says; each value wins over the ssh config's.
#[derive(Clone, Debug, Default)]
pub struct Overrides {
    /// Replaces UserKnownHostsFile of the site's host (jump hosts keep their own).
    pub known_hosts: Option<PathBuf>,
    /// Pause between keepalives; the default is 30 s.
    pub keepalive: Option<Duration>,
    /// Bounds TCP, version line and key exchange together.
    pub connect_timeout: Option<Duration>,
}

/// The hops on the way to a site's host: resolved, ready to dial.
#[derive(Clone, Debug)]
pub struct Target {
    pub(super) hops: Vec<Hop>,
}

impl Target {
    /// Resolves `host` (an alias, or `user@host:port`) and every jump host before it.
    ///
    /// # Errors
    /// [`Error::ConfigRejected`] for the first problem of the config that matters for one of the hops.
    pub fn from_config(snapshot: &Snapshot, host: &str, overrides: &Overrides) -> Result<Target, Error> {
        let route = snapshot.resolve_route(&as_uri(host))?;
        let last = route.len().saturating_sub(1);
        // The environment was taken with the config: it cannot change in between.
        let agent = snapshot.world().env.get(OsStr::new("SSH_AUTH_SOCK"));
        let agent = agent.filter(|name| !name.is_empty()).map(PathBuf::from);
        let hop = |(index, resolved)| {
            Hop::new(resolved, overrides, &Place { agent: agent.clone(), destination: index == last })
        };
        let hops = route.into_iter().enumerate().map(hop).collect();
        Ok(Target { hops })
    }

    /// Makes the target of a server behind a Unix socket, such as the embedded one of the demonstration.
    ///
    /// Only the given key file and known_hosts file are used; its look-up name is `towline-demo`.
    pub fn unix_socket(path: PathBuf, user: String, known_hosts: PathBuf, identity: PathBuf) -> Target {
        Target { hops: vec![Hop::on_socket(path, user, known_hosts, identity)] }
    }

    /// The host, port and user that the last hop resolves to.
    pub fn destination(&self) -> Option<(&str, u16, &str)> {
        self.hops.last().map(|hop| (hop.host.as_str(), hop.port, hop.user.as_str()))
    }

    /// The first hop's host and port: the only ones that this machine looks up and dials.
    pub fn first_hop(&self) -> Option<(&str, u16)> {
        self.hops.first().map(|hop| (hop.host.as_str(), hop.port))
    }

    /// The jump hosts before the destination, in dial order, as `user@host:port`.
    pub fn jumps(&self) -> Vec<String> {
        let jumps = self.hops.len().saturating_sub(1);
        self.hops.iter().take(jumps).map(Hop::shown).collect()
    }
}

/// Writes a host as the ssh config's resolver wants it: a site's config may name one as `user@host:port`, the
/// resolver's own word for that is the URI.
pub fn as_uri(host: &str) -> String {
    let after_user = host.rsplit_once('@').map_or(host, |(_, rest)| rest);
    let port = match after_user.rsplit_once(':') {
        // Several colons without brackets are a bare v6 address.
        Some((name, port)) if !name.contains(':') || name.ends_with(']') => port,
        _ => return host.to_owned(),
    };
    let numeric = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    if numeric && !host.contains("://") { format!("ssh://{host}") } else { host.to_owned() }
}

/// How a hop's socket is made.
#[derive(Clone, Debug)]
pub(super) struct Dialing {
    pub family: AddressFamily,
    pub bind_address: Option<String>,
    pub bind_interface: Option<String>,
    pub attempts: u32,
    pub keep_alive: bool,
    /// Unacknowledged data older than this ends the connection; the SSH keepalive cannot see that
    /// while a write blocks.
    pub user_timeout: Duration,
}

/// How a hop's host key is judged.
#[derive(Clone, Debug)]
pub(super) struct HostKeyRules {
    pub name: LookupName,
    pub strict: StrictHostKeyChecking,
    pub user_files: Vec<PathBuf>,
    pub global_files: Vec<PathBuf>,
    pub hash_names: bool,
    pub revoked_lists: Vec<PathBuf>,
    pub ca_algorithms: Vec<String>,
    pub rsa_bits_min: u32,
    pub fingerprint_hash: FingerprintHash,
}

/// How the user logs in on a hop.
#[derive(Clone, Debug)]
pub(super) struct Login {
    pub identity_files: Vec<IdentityFile>,
    pub certificate_files: Vec<PathBuf>,
    pub identities_only: bool,
    pub agent: Option<PathBuf>,
    pub preferred: Option<Vec<String>>,
    pub publickey: bool,
    pub password: bool,
    pub keyboard_interactive: bool,
    /// How often a passphrase is asked for; 0 switches all questions of the login off.
    pub prompts_max: u32,
    pub accepted_algorithms: Vec<String>,
    pub rsa_bits_min: u32,
}

/// What a hop does not know from its own configuration.
struct Place {
    /// The socket that `SSH_AUTH_SOCK` names.
    agent: Option<PathBuf>,
    /// Whether it is the last hop.
    destination: bool,
}

/// One host on the way, with everything that its connection needs.
#[derive(Clone, Debug)]
pub(super) struct Hop {
    pub host: String,
    pub port: u16,
    pub user: String,
    pub socket: Option<PathBuf>,
    pub dialing: Dialing,
    pub connect_timeout: Option<Duration>,
    pub keepalive: Duration,
    pub keepalive_max: u32,
    pub wanted: Wanted,
    pub host_key: HostKeyRules,
    pub login: Login,
    pub batch: bool,
}

impl Hop {
    /// `user@host:port`, with brackets where the host needs them.
    pub fn shown(&self) -> String {
        if self.host.contains(':') {
            format!("{}@[{}]:{}", self.user, self.host, self.port)
        } else {
            format!("{}@{}:{}", self.user, self.host, self.port)
        }
    }

    fn new(resolved: Resolved, overrides: &Overrides, place: &Place) -> Hop {
        let keepalive = overrides
            .keepalive
            .or(resolved.server_alive_interval)
            .filter(|pause| !pause.is_zero())
            .unwrap_or(KEEPALIVE_DEFAULT);
        let keepalive_max = resolved.server_alive_count_max.max(1);
        let agent = match &resolved.identity_agent {
            IdentityAgent::None => None,
            IdentityAgent::Path(path) => Some(path.clone()),
            IdentityAgent::Default => place.agent.clone(),
        };
        let mut user_files = resolved.user_known_hosts_files.clone();
        if let (Some(file), true) = (&overrides.known_hosts, place.destination) {
            user_files = vec![file.clone()];
        }
        Hop {
            socket: None,
            dialing: Dialing {
                family: resolved.address_family,
                bind_address: resolved.bind_address.clone(),
                bind_interface: resolved.bind_interface.clone(),
                attempts: resolved.connection_attempts.max(1),
                keep_alive: resolved.tcp_keep_alive,
                user_timeout: keepalive.saturating_mul(keepalive_max.saturating_add(1)),
            },
            connect_timeout: overrides.connect_timeout.or(resolved.connect_timeout),
            keepalive,
            keepalive_max,
            wanted: Wanted::from_resolved(&resolved),
            host_key: HostKeyRules {
                name: LookupName::new(&resolved.hostname, resolved.port, resolved.host_key_alias.as_deref()),
                strict: resolved.strict_host_key_checking,
                user_files,
                global_files: resolved.global_known_hosts_files,
                hash_names: resolved.hash_known_hosts,
                revoked_lists: resolved.revoked_host_keys,
                ca_algorithms: resolved.ca_signature_algorithms,
                rsa_bits_min: resolved.required_rsa_size,
                fingerprint_hash: resolved.fingerprint_hash,
            },
            login: Login {
                identity_files: resolved.identity_files,
                certificate_files: resolved.certificate_files,
                identities_only: resolved.identities_only,
                agent,
                preferred: resolved.preferred_authentications,
                publickey: resolved.pubkey_authentication,
                password: resolved.password_authentication,
                keyboard_interactive: resolved.kbd_interactive_authentication,
                prompts_max: resolved.number_of_password_prompts,
                accepted_algorithms: resolved.pubkey_accepted_algorithms,
                rsa_bits_min: resolved.required_rsa_size,
            },
            batch: resolved.batch_mode,
            host: resolved.hostname,
            port: resolved.port,
            user: resolved.user,
        }
    }

    fn on_socket(path: PathBuf, user: String, known_hosts: PathBuf, identity: PathBuf) -> Hop {
        let host = SOCKET_NAME.to_owned();
        let wanted = Wanted::ours();
        Hop {
            dialing: Dialing {
                family: AddressFamily::Any,
                bind_address: None,
                bind_interface: None,
                attempts: 1,
                keep_alive: false,
                user_timeout: KEEPALIVE_DEFAULT * 4,
            },
            connect_timeout: None,
            keepalive: KEEPALIVE_DEFAULT,
            keepalive_max: 3,
            host_key: HostKeyRules {
                name: LookupName::new(&host, 22, None),
                strict: StrictHostKeyChecking::Ask,
                user_files: vec![known_hosts],
                global_files: Vec::new(),
                hash_names: false,
                revoked_lists: Vec::new(),
                ca_algorithms: Vec::new(),
                rsa_bits_min: 2048,
                fingerprint_hash: FingerprintHash::Sha256,
            },
            login: Login {
                identity_files: vec![IdentityFile { path: identity, configured: true }],
                certificate_files: Vec::new(),
                identities_only: true,
                agent: None,
                preferred: None,
                publickey: true,
                password: true,
                keyboard_interactive: true,
                prompts_max: 3,
                accepted_algorithms: wanted.user_key_algorithms(),
                rsa_bits_min: 2048,
            },
            wanted,
            batch: false,
            host,
            port: 22,
            user,
            socket: Some(path),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_after_the_host_becomes_a_uri_and_an_alias_stays_as_it_is() {
        for (given, uri) in [
            ("hpc-login", "hpc-login"),
            ("alice@hpc", "alice@hpc"),
            ("alice@hpc:2222", "ssh://alice@hpc:2222"),
            ("hpc:2222", "ssh://hpc:2222"),
            ("2001:db8::1", "2001:db8::1"),
            ("a@[2001:db8::1]:22", "ssh://a@[2001:db8::1]:22"),
            ("ssh://a@hpc:22", "ssh://a@hpc:22"),
            ("hpc:", "hpc:"),
        ] {
            assert_eq!(as_uri(given), uri);
        }
    }
}
