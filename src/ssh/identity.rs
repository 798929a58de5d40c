//! Which keys are offered, in which order, and who can sign with them.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use russh::keys::ssh_key::public::KeyData;
use russh::keys::{Algorithm, Certificate, HashAlg, PrivateKey, PublicKey, decode_secret_key};
use zeroize::Zeroizing;

use super::agent::{AgentKey, AgentPublic};
use super::host_key::rsa_bits;
use super::target::Login;

/// A key file is a few KiB; a larger file is something else.
const KEY_FILE_BYTES_MAX: u64 = 1024 * 1024;

/// What is shown to the server.
#[derive(Clone, Debug)]
pub(super) enum Proof {
    Plain(PublicKey),
    Certificate(Box<Certificate>),
    /// An encrypted file that keeps its public key secret too, and has no `.pub` beside it.
    Hidden,
}

/// Who signs.
#[derive(Clone)]
pub(super) enum Holder {
    /// The agent, which knows the key by these bytes.
    Agent(Vec<u8>),
    Ready(Arc<PrivateKey>),
    Locked {
        path: PathBuf,
        text: Arc<Zeroizing<String>>,
    },
}

/// One thing to try with the publickey method.
#[derive(Clone)]
pub(super) struct Identity {
    pub label: String,
    pub proof: Proof,
    pub holder: Holder,
}

/// A private key file as it was found.
struct FileKey {
    path: PathBuf,
    public: Option<PublicKey>,
    holder: Option<Holder>,
    certificates: Vec<Certificate>,
}

/// Reads the configured files and sorts everything into the order in which it is offered:
/// agent keys that the config names, other agent keys, keys from files; a certificate before its plain key.
pub(super) fn gather(login: &Login, agent: &[AgentKey]) -> (Vec<Identity>, Vec<String>) {
    let mut notes = Vec::new();
    let (files, loose) = load(login, &mut notes);
    let mut list = List { login, identities: Vec::new(), notes };
    let configured = |key: &AgentKey| {
        let data = key.data();
        files.iter().any(|file| file.public.as_ref().is_some_and(|public| public.key_data() == data))
    };
    let (named, others): (Vec<_>, Vec<_>) = agent.iter().partition(|key| configured(key));
    let others = if login.identities_only { Vec::new() } else { others };
    for key in named.into_iter().chain(others) {
        let data = key.data();
        let certificates = files.iter().flat_map(|file| &file.certificates).chain(&loose);
        for certificate in certificates.filter(|certificate| certificate.public_key() == data) {
            let proof = Proof::Certificate(Box::new(certificate.clone()));
            // The agent knows the key under its plain name, whatever certificate goes with it.
            if let AgentPublic::Plain(_) = key.public {
                list.push(&key.comment, proof, Holder::Agent(key.blob.clone()));
            }
        }
        let proof = match &key.public {
            AgentPublic::Plain(public) => Proof::Plain(public.clone()),
            AgentPublic::Certificate(certificate) => Proof::Certificate(certificate.clone()),
        };
        list.push(&key.comment, proof, Holder::Agent(key.blob.clone()));
    }
    for file in &files {
        let Some(holder) = &file.holder else { continue };
        let label = file.path.display().to_string();
        let fits = |certificate: &&Certificate| {
            file.public.as_ref().is_some_and(|key| key.key_data() == certificate.public_key())
        };
        for certificate in file.certificates.iter().chain(loose.iter().filter(fits)) {
            list.push(&label, Proof::Certificate(Box::new(certificate.clone())), holder.clone());
        }
        let proof = file.public.clone().map_or(Proof::Hidden, Proof::Plain);
        list.push(&label, proof, holder.clone());
    }
    (list.identities, list.notes)
}

impl AgentKey {
    fn data(&self) -> &KeyData {
        match &self.public {
            AgentPublic::Plain(public) => public.key_data(),
            AgentPublic::Certificate(certificate) => certificate.public_key(),
        }
    }
}

struct List<'a> {
    login: &'a Login,
    identities: Vec<Identity>,
    notes: Vec<String>,
}

impl List<'_> {
    fn push(&mut self, label: &str, proof: Proof, holder: Holder) {
        let label = label.to_owned();
        if let Some(why) = unfit(self.login, &proof, &holder) {
            self.notes.push(format!("key {label} skipped: {why}"));
        } else if !self.identities.iter().any(|other| same(&other.proof, &proof)) {
            self.identities.push(Identity { label, proof, holder });
        }
    }
}

fn same(one: &Proof, other: &Proof) -> bool {
    match (one, other) {
        (Proof::Plain(one), Proof::Plain(other)) => one.key_data() == other.key_data(),
        (Proof::Certificate(one), Proof::Certificate(other)) => one == other,
        _ => false,
    }
}

/// Why a key is not offered at all.
fn unfit(login: &Login, proof: &Proof, holder: &Holder) -> Option<String> {
    let (algorithm, data, suffix) = match proof {
        Proof::Plain(public) => (public.algorithm(), public.key_data(), ""),
        Proof::Certificate(certificate) => {
            (certificate.algorithm(), certificate.public_key(), "-cert-v01@openssh.com")
        }
        Proof::Hidden => return None,
    };
    if let Proof::Certificate(certificate) = proof
        && certificate.cert_type().is_host()
    {
        return Some("its certificate is one for hosts".to_owned());
    }
    let security_key = matches!(algorithm, Algorithm::SkEd25519 | Algorithm::SkEcdsaSha2NistP256);
    if security_key && !matches!(holder, Holder::Agent(_)) {
        return Some("a security key can only be used through an agent".to_owned());
    }
    if let Some(bits) = rsa_bits(data).filter(|bits| *bits < login.rsa_bits_min) {
        return Some(format!("an RSA key of {bits} bits, the least allowed is {}", login.rsa_bits_min));
    }
    let name = algorithm.as_str().trim_end_matches("@openssh.com").to_owned();
    let accepted = |name: &str| login.accepted_algorithms.iter().any(|accepted| accepted == name);
    let fits = match algorithm {
        Algorithm::Rsa { .. } => ["rsa-sha2-512", "rsa-sha2-256", "ssh-rsa"]
            .iter()
            .any(|name| accepted(&format!("{name}{suffix}"))),
        _ if suffix.is_empty() => accepted(algorithm.as_str()),
        _ => accepted(&format!("{name}{suffix}")),
    };
    (!fits).then(|| format!("{} is not in PubkeyAcceptedAlgorithms", algorithm.as_str()))
}

/// Settles the one signature that is tried with an RSA key; the error says why there is none.
///
/// `server` is what `server-sig-algs` allows best: none when the server sent no such list.
pub(super) fn rsa_hash(
    accepted: &[String],
    server: Option<Option<HashAlg>>,
    certificate: bool,
) -> Result<Option<HashAlg>, String> {
    let suffix = if certificate { "-cert-v01@openssh.com" } else { "" };
    let accepted = |name: &str| accepted.iter().any(|other| *other == format!("{name}{suffix}"));
    let sha512 = accepted("rsa-sha2-512").then_some(Some(HashAlg::Sha512));
    let sha256 = accepted("rsa-sha2-256").then_some(Some(HashAlg::Sha256));
    let sha1 = accepted("ssh-rsa").then_some(None);
    let chosen = match server {
        // A server with SHA-512 has SHA-256 too; no list of a real server is known to differ.
        Some(Some(HashAlg::Sha512)) => sha512.or(sha256),
        Some(Some(_)) => sha256,
        Some(None) => sha1,
        // Without a list: SHA-1 where the config allows it (such servers are old), else the one
        // that servers learned first.
        None => sha1.or(sha256).or(sha512),
    };
    chosen.ok_or_else(|| "the server takes no RSA signature that PubkeyAcceptedAlgorithms allows".to_owned())
}

fn load(login: &Login, notes: &mut Vec<String>) -> (Vec<FileKey>, Vec<Certificate>) {
    let mut loose = Vec::new();
    for path in &login.certificate_files {
        match read_certificate(path) {
            Ok(Some(certificate)) => loose.push(certificate),
            Ok(None) => notes.push(format!("certificate {} is not there", path.display())),
            Err(problem) => notes.push(problem),
        }
    }
    let mut files = Vec::new();
    for identity in &login.identity_files {
        match read_key(&identity.path, identity.configured) {
            Ok(Some(mut key)) => {
                // Named certificates replace the look beside each key.
                if login.certificate_files.is_empty() {
                    match read_certificate(&beside(&identity.path, "-cert.pub")) {
                        Ok(found) => key.certificates.extend(found),
                        Err(problem) => notes.push(problem),
                    }
                }
                notes.extend(key_note(&key));
                files.push(key);
            }
            Ok(None) => {}
            Err(problem) => notes.push(problem),
        }
    }
    (files, loose)
}

fn key_note(key: &FileKey) -> Option<String> {
    let public = key.public.as_ref()?;
    let other = |certificate: &&Certificate| certificate.public_key() != public.key_data();
    key.certificates.iter().find(other)?;
    Some(format!("the certificate beside {} belongs to another key", key.path.display()))
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

/// Reads a text file of bounded size; `None` when it is not there.
fn read_text(path: &Path) -> Result<Option<Zeroizing<String>>, String> {
    let failed = |problem: String| format!("{}: {problem}", path.display());
    let metadata = match std::fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(error.to_string())),
    };
    if !metadata.is_file() {
        return Err(failed("not a regular file".to_owned()));
    }
    if metadata.len() > KEY_FILE_BYTES_MAX {
        return Err(failed(format!("{} bytes are too many for a key", metadata.len())));
    }
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(Some(Zeroizing::new(text))),
        Err(error) if error.kind() == std::io::ErrorKind::InvalidData => {
            Err(failed("not a key: not text".to_owned()))
        }
        Err(error) => Err(failed(error.to_string())),
    }
}

fn read_certificate(path: &Path) -> Result<Option<Certificate>, String> {
    let Some(text) = read_text(path)? else {
        return Ok(None);
    };
    Certificate::from_openssh(text.trim())
        .map(Some)
        .map_err(|error| format!("{}: not a certificate: {error}", path.display()))
}

/// `None`: the file is not there, and neither is its public half.
fn read_key(path: &Path, configured: bool) -> Result<Option<FileKey>, String> {
    let public = read_text(&beside(path, ".pub"))
        .ok()
        .flatten()
        // A `.pub` that is no key only costs the look at it; the private file decides.
        .and_then(|text| PublicKey::from_openssh(text.trim()).ok());
    let mut key = FileKey { path: path.to_owned(), public, holder: None, certificates: Vec::new() };
    let Some(text) = read_text(path)? else {
        return match (key.public.is_some(), configured) {
            // The private half may be in the agent.
            (true, _) => Ok(Some(key)),
            (false, true) => Err(format!("key {} is not there", path.display())),
            (false, false) => Ok(None),
        };
    };
    if let Ok(public) = PublicKey::from_openssh(text.trim()) {
        // IdentityFile may name the public half of a key that the agent holds.
        key.public = Some(public);
        return Ok(Some(key));
    }
    let mode = std::fs::metadata(path).map_or(0, |metadata| {
        if metadata.uid() == nix::unistd::getuid().as_raw() { metadata.mode() } else { 0 }
    });
    if mode & 0o077 != 0 {
        return Err(format!(
            "key {} ignored: mode {:04o} lets others read it, 0600 is right",
            path.display(),
            mode & 0o7777
        ));
    }
    match decode_secret_key(&text, None) {
        Ok(private) => {
            key.public = Some(private.public_key().clone());
            key.holder = Some(Holder::Ready(Arc::new(private)));
        }
        Err(error) => {
            let clear_part = PrivateKey::from_openssh(text.as_str()).ok();
            if clear_part.is_none() && !is_encrypted_pem(&text) {
                return Err(format!("{} is not a private key: {error}", path.display()));
            }
            // The OpenSSH form keeps the public half readable.
            key.public = clear_part.map(|locked| locked.public_key().clone()).or(key.public);
            key.holder = Some(Holder::Locked { path: path.to_owned(), text: Arc::new(text) });
        }
    }
    Ok(Some(key))
}

fn is_encrypted_pem(text: &str) -> bool {
    text.contains("-----BEGIN ENCRYPTED PRIVATE KEY-----")
        || (text.contains("-----BEGIN ") && text.contains("Proc-Type: 4,ENCRYPTED"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn case_039_one_rsa_key_is_tried_with_one_signature() {
        let all = ["rsa-sha2-512".to_owned(), "rsa-sha2-256".to_owned()];
        let best = |server| rsa_hash(&all, server, false);
        assert_eq!(best(Some(Some(HashAlg::Sha512))), Ok(Some(HashAlg::Sha512)));
        assert_eq!(best(Some(Some(HashAlg::Sha256))), Ok(Some(HashAlg::Sha256)));
        assert_eq!(best(None), Ok(Some(HashAlg::Sha256)));
        assert!(best(Some(None)).is_err(), "SHA-1 is used only when the config names it");
        assert!(rsa_hash(&all, None, true).is_err());
    }
}
