//! All lines of one or more known_hosts files, and what they say about an offered key.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::key::{CertificateFacts, KeyBlob};
use super::line::{Entry, Marker, parse};
use super::name::LookupName;
use super::verdict::{CertificateVerdict, Place, Verdict};
use crate::lines::numbered;
use crate::patterns;
use crate::reading;
use crate::rejection::Note;

/// All lines of one or more known_hosts files.
///
/// ```
/// use ssh_config_parser::known_hosts::{KeyBlob, KnownHosts, LookupName, Verdict};
///
/// let blob = [b"\0\0\0\x0bssh-ed25519\0\0\0\x20".as_slice(), &[7; 32]].concat();
/// let key = KeyBlob::from_blob(blob)?;
/// let text = format!("web.example.net {} {}\n", key.key_type(), key.to_base64());
/// let known = KnownHosts::parse("known_hosts".as_ref(), text.as_bytes());
/// let name = LookupName::new("WEB.example.net", 22, None);
/// assert!(matches!(known.judge_key(&name, &key), Verdict::Ok { .. }));
/// # Ok::<(), ssh_config_parser::known_hosts::InvalidKey>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct KnownHosts {
    lines: Vec<Line>,
    notes: Vec<Note>,
}

#[derive(Debug, Clone)]
struct Line {
    file: Arc<Path>,
    number: u64,
    entry: Entry,
}

impl Line {
    fn place(&self) -> Place {
        Place { file: self.file.to_path_buf(), line: self.number, key: self.entry.key.clone() }
    }
}

impl KnownHosts {
    /// Reads the user's files and then the system's; one that cannot be read is skipped with a note.
    ///
    /// A file that does not exist is skipped without one.
    pub fn load(user: &[PathBuf], global: &[PathBuf]) -> KnownHosts {
        let mut known = KnownHosts::default();
        for path in user.iter().chain(global) {
            match reading::whole(path) {
                Ok(bytes) => known.add(path, &bytes),
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                Err(error) => known.notes.push(Note {
                    file: path.clone(),
                    line: 0,
                    message: format!("known hosts file is skipped: {error}"),
                }),
            }
        }
        known
    }

    /// Takes the bytes of one file.
    pub fn parse(path: &Path, bytes: &[u8]) -> KnownHosts {
        let mut known = KnownHosts::default();
        known.add(path, bytes);
        known
    }

    fn add(&mut self, path: &Path, bytes: &[u8]) {
        let file: Arc<Path> = Arc::from(path);
        for (number, line) in numbered(bytes) {
            match parse(line) {
                None => {}
                Some(Ok(entry)) => self.lines.push(Line { file: Arc::clone(&file), number, entry }),
                Some(Err(why)) => self.notes.push(Note {
                    file: path.to_path_buf(),
                    line: number,
                    message: format!("line is ignored: {why}"),
                }),
            }
        }
    }

    /// Gives what was skipped: files (line 0) and malformed lines.
    pub fn notes(&self) -> &[Note] {
        &self.notes
    }

    /// Judges a plain key.
    ///
    /// A host that is new at an unusual port is looked up once more without the port: what is known there is
    /// accepted and what is revoked there is revoked, but a different key there leaves it new.
    pub fn judge_key(&self, name: &LookupName, key: &KeyBlob) -> Verdict {
        let verdict = self.judge_name(name, key);
        let Some(plain) = name.without_port().filter(|_| verdict == Verdict::New) else {
            return verdict;
        };
        match self.judge_name(&plain, key) {
            Verdict::Changed { .. } => Verdict::New,
            verdict => verdict,
        }
    }

    fn judge_name(&self, name: &LookupName, key: &KeyBlob) -> Verdict {
        let lines = self.matching(name);
        if let Some(line) = revoked(&lines, key) {
            return Verdict::Revoked { line: line.place() };
        }
        let known: Vec<&Line> = marked(&lines, Marker::None).collect();
        if let Some(line) = known.iter().find(|line| line.entry.key == *key) {
            return Verdict::Ok { line: line.place() };
        }
        if known.is_empty() {
            return Verdict::New;
        }
        Verdict::Changed { lines: known.iter().map(|line| line.place()).collect() }
    }

    /// Judges a host certificate at a time in seconds since 1970.
    ///
    /// `ca_algorithms` are the signature algorithms that an authority may have used. The signature itself is the
    /// connection's to check.
    pub fn judge_certificate(
        &self,
        name: &LookupName,
        certificate: &CertificateFacts,
        now_unix: u64,
        ca_algorithms: &[String],
    ) -> CertificateVerdict {
        let mut authority = None;
        for name in std::iter::once(name.clone()).chain(name.without_port()) {
            let lines = self.matching(&name);
            for key in [&certificate.key, &certificate.ca] {
                if let Some(line) = revoked(&lines, key) {
                    return CertificateVerdict::Revoked { line: line.place() };
                }
            }
            let found = marked(&lines, Marker::Authority)
                .find(|line| line.entry.key == certificate.ca)
                .map(Line::place);
            authority = authority.or(found);
        }
        let Some(line) = authority else {
            return CertificateVerdict::JudgePlainKey {
                reason: "no known authority signed the certificate".to_owned(),
            };
        };
        match flaw(certificate, name.host(), now_unix, ca_algorithms) {
            None => CertificateVerdict::Ok { line },
            Some(reason) => CertificateVerdict::JudgePlainKey { reason },
        }
    }

    /// Orders host key algorithms so that types that are known of the host come first.
    ///
    /// `default` is the list to order; nothing is added to it or removed.
    pub fn prefer_algorithms(&self, name: &LookupName, default: &[String]) -> Vec<String> {
        let lines = self.matching(name);
        let is_known = |algorithm: &String| {
            let plain = plain_type(algorithm);
            marked(&lines, Marker::None)
                .find(|line| line.entry.key.key_type() == plain)
                .is_some_and(|line| revoked(&lines, &line.entry.key).is_none())
        };
        if default.first().is_some_and(is_known) {
            return default.to_vec();
        }
        let authority = marked(&lines, Marker::Authority).next().is_some();
        let preferred =
            |algorithm: &&String| (authority && is_certificate(algorithm.as_str())) || is_known(algorithm);
        let (mut first, rest): (Vec<&String>, Vec<&String>) = default.iter().partition(preferred);
        first.extend(rest);
        first.into_iter().cloned().collect()
    }

    fn matching(&self, name: &LookupName) -> Vec<&Line> {
        self.lines.iter().filter(|line| line.entry.names.match_name(name)).collect()
    }
}

fn marked<'a>(lines: &'a [&'a Line], marker: Marker) -> impl Iterator<Item = &'a Line> {
    lines.iter().copied().filter(move |line| line.entry.marker == marker)
}

fn revoked<'a>(lines: &'a [&'a Line], key: &KeyBlob) -> Option<&'a Line> {
    marked(lines, Marker::Revoked).find(|line| line.entry.key == *key)
}

/// Says why a certificate of a known authority does not count.
fn flaw(
    certificate: &CertificateFacts,
    host: &str,
    now_unix: u64,
    ca_algorithms: &[String],
) -> Option<String> {
    if !certificate.host {
        return Some("it is not a host certificate".to_owned());
    }
    if now_unix < certificate.valid_after {
        return Some(format!("it is not valid before {}", certificate.valid_after));
    }
    if now_unix >= certificate.valid_before {
        return Some(format!("it expired at {}", certificate.valid_before));
    }
    if certificate.principals.is_empty() {
        return Some("it names no host".to_owned());
    }
    let named = |principal: &String| patterns::matches(host.as_bytes(), principal.as_bytes());
    if !certificate.principals.iter().any(named) {
        return Some(format!("it does not name {host:?}"));
    }
    if let Some(option) = certificate.critical_options.first() {
        return Some(format!("its critical option {option:?} is not known"));
    }
    if !ca_algorithms.contains(&certificate.signature_algorithm) {
        return Some(format!(
            "it is signed with {:?}, which is not allowed",
            certificate.signature_algorithm
        ));
    }
    None
}

const CERTIFICATE_SUFFIX: &str = "-cert-v01@openssh.com";

fn is_certificate(algorithm: &str) -> bool {
    algorithm.ends_with(CERTIFICATE_SUFFIX)
}

/// Gives the type of the plain key that an algorithm uses; the RSA algorithms share one.
fn plain_type(algorithm: &str) -> &str {
    match algorithm.strip_suffix(CERTIFICATE_SUFFIX).unwrap_or(algorithm) {
        "rsa-sha2-512" | "rsa-sha2-256" | "ssh-rsa" => "ssh-rsa",
        "sk-ssh-ed25519" => "sk-ssh-ed25519@openssh.com",
        "sk-ecdsa-sha2-nistp256"
        | "webauthn-sk-ecdsa-sha2-nistp256"
        | "webauthn-sk-ecdsa-sha2-nistp256@openssh.com" => "sk-ecdsa-sha2-nistp256@openssh.com",
        plain => plain,
    }
}
