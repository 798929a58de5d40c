//! Effective values as the types that a connection works with.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::canonical;
use crate::effective::Effective;
use crate::expand::Tokens;
use crate::expanded::Expanded;
use crate::jump::Hop;
use crate::keywords::Keyword;
use crate::rejection::Note;
use crate::resolved::{FingerprintHash, Jump, Resolved, StrictHostKeyChecking};
use crate::values::Value;

/// Notes, and what prints.
type Told = (Vec<Note>, BTreeMap<String, serde_json::Value>);

/// Puts the answer for one host together.
pub(crate) fn answer(
    effective: &Effective,
    tokens: &Tokens,
    port: u16,
    expanded: Expanded,
    (notes, printed): Told,
) -> Resolved {
    let word = |keyword| effective.text(keyword).map(text);
    let is = |keyword, default| flag(effective, keyword, default);
    let count = |keyword, default| count(effective, keyword, default);
    let seconds = |keyword| positive_seconds(effective, keyword);
    let lists = expanded.algorithms;
    Resolved {
        typed_host: text(&tokens.typed),
        hostname: text(&tokens.host),
        user: tokens.user.as_deref().map(text).unwrap_or_default(),
        port,
        address_family: canonical::family(effective),
        bind_address: word(Keyword::BindAddress),
        bind_interface: word(Keyword::BindInterface),
        connect_timeout: seconds(Keyword::ConnectTimeout),
        connection_attempts: count(Keyword::ConnectionAttempts, 1),
        server_alive_interval: seconds(Keyword::ServerAliveInterval),
        server_alive_count_max: count(Keyword::ServerAliveCountMax, 3),
        tcp_keep_alive: is(Keyword::TcpKeepAlive, true),
        compression: is(Keyword::Compression, false),
        ciphers: lists.ciphers,
        macs: lists.macs,
        kex_algorithms: lists.kex,
        host_key_algorithms: effective.value(Keyword::HostKeyAlgorithms).map(|_| lists.host_key),
        pubkey_accepted_algorithms: lists.pubkey,
        ca_signature_algorithms: lists.ca_signature,
        rekey_limit_bytes: effective.number(Keyword::RekeyLimit).filter(|bytes| *bytes != 0),
        rekey_interval: seconds(Keyword::RekeyInterval),
        required_rsa_size: count(Keyword::RequiredRsaSize, 1024),
        identity_files: expanded.identity_files,
        certificate_files: expanded.certificate_files,
        identities_only: is(Keyword::IdentitiesOnly, false),
        identity_agent: expanded.identity_agent,
        preferred_authentications: word(Keyword::PreferredAuthentications)
            .map(|list| list.split(',').map(str::to_owned).collect()),
        pubkey_authentication: is(Keyword::PubkeyAuthentication, true),
        password_authentication: is(Keyword::PasswordAuthentication, true),
        kbd_interactive_authentication: is(Keyword::KbdInteractiveAuthentication, true),
        number_of_password_prompts: count(Keyword::NumberOfPasswordPrompts, 3),
        batch_mode: is(Keyword::BatchMode, false),
        strict_host_key_checking: strict_host_key_checking(effective),
        user_known_hosts_files: expanded.user_known_hosts_files,
        global_known_hosts_files: expanded.global_known_hosts_files,
        host_key_alias: word(Keyword::HostKeyAlias).map(|alias| alias.to_ascii_lowercase()),
        hash_known_hosts: is(Keyword::HashKnownHosts, false),
        revoked_host_keys: expanded.revoked_host_keys,
        fingerprint_hash: match effective.choice(Keyword::FingerprintHash) {
            Some("MD5") => FingerprintHash::Md5,
            _ => FingerprintHash::Sha256,
        },
        jump: jumps(effective),
        log_level: effective.choice(Keyword::LogLevel).unwrap_or("INFO").to_owned(),
        notes,
        printed,
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Every word but `no` and `false` switches a keyword on, in one way or another.
fn flag(effective: &Effective, keyword: Keyword, default: bool) -> bool {
    match effective.choice(keyword) {
        Some(word) => !matches!(word, "no" | "false"),
        None => default,
    }
}

fn count(effective: &Effective, keyword: Keyword, default: u32) -> u32 {
    match effective.number(keyword) {
        // A count was checked to fit 31 bits when its line was read.
        Some(number) => u32::try_from(number).unwrap_or(u32::MAX),
        None => default,
    }
}

/// Gives a time; none when it is not configured or zero, which switches it off.
fn positive_seconds(effective: &Effective, keyword: Keyword) -> Option<Duration> {
    let seconds = effective.number(keyword).filter(|seconds| *seconds != 0);
    seconds.map(Duration::from_secs)
}

fn strict_host_key_checking(effective: &Effective) -> StrictHostKeyChecking {
    match effective.choice(Keyword::StrictHostKeyChecking) {
        Some("true") => StrictHostKeyChecking::Yes,
        Some("false") => StrictHostKeyChecking::No,
        Some("accept-new") => StrictHostKeyChecking::AcceptNew,
        _ => StrictHostKeyChecking::Ask,
    }
}

fn jumps(effective: &Effective) -> Vec<Jump> {
    match effective.value(Keyword::ProxyJump) {
        Some(Value::Jump(spec)) => spec.hops().iter().map(Hop::to_jump).collect(),
        _ => Vec::new(),
    }
}
