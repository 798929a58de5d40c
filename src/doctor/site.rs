//! Checks of one site: its ssh config, host keys, agent, key files, sockets.

use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;

use ssh_config_parser::known_hosts::{KeyBlob, KnownHosts, LookupName, Place, Verdict};
use ssh_config_parser::{IdentityAgent, IdentityFile, Resolved, Snapshot, World};

use super::{Check, Status};
use super::{agent, vpn};
use crate::config::{Approval, Config, Destination, Role, Site};
use crate::failure::Failure;
use crate::ssh::as_uri;

/// Makes every check of a site.
pub(super) fn examine(config: &Config, site: &Site) -> Vec<Check> {
    let mut checks = Vec::new();
    for role in site.roles() {
        let of_role = match site.destination(role) {
            Ok(Destination::Ssh { host }) => over_ssh(config, site, host),
            Ok(Destination::Socket { path, identity, .. }) => over_socket(path, identity),
            Err(error) => vec![Check::failed("destination", &Failure::from(error))],
        };
        checks.extend(of_role.into_iter().map(|check| check.about(&site.name, Some(role))));
        checks.push(socket_path(config, site, role).about(&site.name, Some(role)));
    }
    if site.approval == Approval::Open {
        let check = Check::new("approval", Status::Warn, "approval = \"open\": each connect permits itself")
            .mend("keep that for hosts without a second factor");
        checks.push(check.about(&site.name, None));
    }
    let remote = Check::new("remote", Status::Skipped, "remote checks need an open line");
    checks.push(remote.about(&site.name, None));
    checks
}

fn over_ssh(config: &Config, site: &Site, host: &str) -> Vec<Check> {
    let route = World::from_system()
        .and_then(|world| Snapshot::read(site.ssh_config.as_deref(), world))
        .and_then(|snapshot| snapshot.resolve_route(&as_uri(host)));
    let route = match route {
        Ok(route) => route,
        Err(rejection) => {
            let skipped =
                Check::new("host_key", Status::Skipped, "not checked, since the ssh config is rejected");
            return vec![Check::failed("ssh_config", &Failure::from(rejection)), skipped];
        }
    };
    let mut checks = vec![ssh_config(host, &route)];
    checks.extend(route.iter().map(|hop| host_key(site, hop)));
    checks.extend(control_master(&route));
    checks.extend(route.first().into_iter().flat_map(|hop| vpn::checks(site, hop)));
    if let Some(target) = route.last() {
        checks.push(agent_keys(config, target));
        checks.extend(identities(&target.identity_files, target.identities_only));
    }
    checks
}

fn over_socket(path: &std::path::Path, identity: &std::path::Path) -> Vec<Check> {
    let socket = if path.exists() {
        Check::new("socket", Status::Ok, format!("the server's socket {} is there", path.display()))
    } else {
        Check::new("socket", Status::Fail, format!("the server's socket {} is not there", path.display()))
            .mend("start the server again: `towline demo --keep`")
    };
    vec![socket, key_file(identity, true).unwrap_or_else(|| missing_key(identity))]
}

fn ssh_config(host: &str, route: &[Resolved]) -> Check {
    let hops: Vec<String> =
        route.iter().map(|hop| format!("{}@{}:{}", hop.user, hop.hostname, hop.port)).collect();
    let check = Check::new("ssh_config", Status::Ok, format!("{host} is {}", hops.join(", then ")));
    match route.iter().flat_map(|hop| &hop.notes).count() {
        0 => check,
        1 => check.mend("`towline ssh-config check` shows one setting without effect"),
        notes => check.mend(format!("`towline ssh-config check` shows {notes} settings without effect")),
    }
}

fn host_key(site: &Site, hop: &Resolved) -> Check {
    const NAME: &str = "host_key";
    let user_files =
        site.known_hosts.clone().map_or_else(|| hop.user_known_hosts_files.clone(), |file| vec![file]);
    let known = KnownHosts::load(&user_files, &hop.global_known_hosts_files);
    let name = LookupName::new(&hop.hostname, hop.port, hop.host_key_alias.as_deref());
    let lines = match probe_key().map(|key| known.judge_key(&name, &key)) {
        Some(Verdict::Changed { lines }) => lines,
        Some(Verdict::Ok { line } | Verdict::Revoked { line }) => vec![line],
        Some(Verdict::New) | None => Vec::new(),
    };
    if lines.is_empty() {
        return Check::new(NAME, Status::Warn, format!("the key of {} is not known", name.text())).mend(
            "the first connect shows its fingerprint: compare it with the one that the site publishes",
        );
    }
    let shown = |line: &Place| {
        format!(
            "{} {} ({}:{})",
            line.key.key_type(),
            line.key.sha256_fingerprint(),
            line.file.display(),
            line.line
        )
    };
    let keys: Vec<String> = lines.iter().map(shown).collect();
    Check::new(NAME, Status::Ok, format!("{} is known by {}", name.text(), keys.join(", ")))
}

/// A key that no host has: judging it makes known_hosts name the lines that it has for a host.
fn probe_key() -> Option<KeyBlob> {
    let mut blob = b"\0\0\0\x0bssh-ed25519\0\0\0\x20".to_vec();
    blob.extend([0; 32]);
    // The bytes above are a key; were they none, the host would be shown as unknown.
    KeyBlob::from_blob(blob).ok()
}

fn control_master(route: &[Resolved]) -> Option<Check> {
    let set = |hop: &&Resolved| {
        ["controlmaster", "controlpath", "controlpersist"].iter().any(|keyword| {
            let value = hop.printed.get(*keyword).and_then(|value| value.as_str());
            value.is_some_and(|value| !matches!(value, "no" | "false" | "none"))
        })
    };
    let hop = route.iter().find(set)?;
    let message = format!(
        "ControlMaster settings of {} have no effect: towline keeps its own connection",
        hop.typed_host
    );
    Some(Check::new("control_master", Status::Ok, message))
}

fn agent_keys(config: &Config, target: &Resolved) -> Check {
    const NAME: &str = "agent";
    let socket = match &target.identity_agent {
        IdentityAgent::None => return Check::new(NAME, Status::Ok, "the ssh config switches the agent off"),
        IdentityAgent::Path(path) => path.clone(),
        IdentityAgent::Default => match &config.environment.ssh_auth_sock {
            Some(path) => path.clone(),
            None => {
                return Check::new(NAME, Status::Warn, "no agent: SSH_AUTH_SOCK is not set")
                    .mend("start an agent and add a key: `eval $(ssh-agent)`, `ssh-add`");
            }
        },
    };
    match agent::keys(&socket) {
        Err(error) => Check::new(
            NAME,
            Status::Warn,
            format!("the agent at {} cannot be asked: {error}", socket.display()),
        )
        .mend("start an agent, or correct SSH_AUTH_SOCK or IdentityAgent"),
        Ok(keys) if keys.is_empty() => {
            Check::new(NAME, Status::Warn, format!("the agent at {} holds no key", socket.display()))
                .mend("add one with `ssh-add`")
        }
        Ok(keys) => {
            let shown: Vec<String> = keys
                .iter()
                .map(|key| format!("{} {} {}", key.key_type, key.fingerprint, key.comment))
                .collect();
            Check::new(
                NAME,
                Status::Ok,
                format!("the agent at {} holds {}", socket.display(), shown.join(", ")),
            )
        }
    }
}

fn identities(files: &[IdentityFile], only: bool) -> Vec<Check> {
    let checks: Vec<Check> = files
        .iter()
        .filter_map(|file| match key_file(&file.path, file.configured) {
            None if file.configured => Some(missing_key(&file.path)),
            check => check,
        })
        .collect();
    if checks.is_empty() {
        let status = if only { Status::Warn } else { Status::Ok };
        return vec![Check::new("identity", status, "there is no key file; keys come from the agent alone")];
    }
    checks
}

/// A private key that others can read is as good as published; OpenSSH ignores it too.
fn key_file(path: &std::path::Path, configured: bool) -> Option<Check> {
    const NAME: &str = "identity";
    let shown = path.display();
    match std::fs::metadata(path) {
        Ok(metadata) if metadata.mode() & 0o077 != 0 && metadata.uid() == nix::unistd::geteuid().as_raw() => {
            let mode = metadata.mode() & 0o7777;
            Some(
                Check::new(
                    NAME,
                    Status::Fail,
                    format!("the private key {shown} has mode {mode:04o}: others may read or change it"),
                )
                .mend(format!("chmod 600 {shown}")),
            )
        }
        Ok(_) => Some(Check::new(NAME, Status::Ok, format!("the private key {shown} is yours alone"))),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
        Err(error) => {
            let status = if configured { Status::Fail } else { Status::Warn };
            Some(Check::new(NAME, status, format!("the private key {shown} cannot be looked at: {error}")))
        }
    }
}

fn missing_key(path: &std::path::Path) -> Check {
    // The agent may hold the key of a file that is only a name, so this is no failure.
    let public = PathBuf::from(format!("{}.pub", path.display()));
    let message = format!("the private key {} does not exist", path.display());
    if public.exists() {
        return Check::new(
            "identity",
            Status::Ok,
            format!("{message}; its public half tells which key of the agent is meant"),
        );
    }
    Check::new("identity", Status::Warn, message)
        .mend("correct IdentityFile, or make the key with `ssh-keygen`")
}

fn socket_path(config: &Config, site: &Site, role: Role) -> Check {
    match config.home.line_socket(&site.name, role) {
        Ok(path) => {
            Check::new("socket_path", Status::Ok, format!("{} is short enough for a socket", path.display()))
        }
        Err(error) => Check::failed("socket_path", &Failure::from(error)),
    }
}
