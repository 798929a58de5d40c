//! Is this the right host? The judgement on a shown key, and what follows from it.

use std::time::{SystemTime, UNIX_EPOCH};

use russh::keys::ssh_key::public::KeyData;
use russh::keys::{Certificate, PublicKeyOrCertificate};
use ssh_config_parser::known_hosts::{
    CertificateFacts, CertificateVerdict, KeyBlob, KnownHosts, Place, Verdict, append, revoked_by_list,
};
use ssh_config_parser::{FingerprintHash, StrictHostKeyChecking};

use super::error::{Error, HostKeyRefusal, KnownEntry, Phase};
use super::prompt::{Human, Prompt};
use super::target::{Hop, HostKeyRules};

/// What a server showed, in the forms that the judgement needs.
pub(super) struct Shown {
    pub plain: KeyBlob,
    pub rsa_bits: Option<u32>,
    pub certificate: Option<ShownCertificate>,
}

/// A certificate, and whether its authority's signature really is one.
pub(super) struct ShownCertificate {
    pub facts: CertificateFacts,
    pub signed: bool,
}

impl Shown {
    /// Takes the parts of a shown key; the error is a fragment.
    pub fn new(key: &PublicKeyOrCertificate) -> Result<Shown, String> {
        let public = key.public_key();
        let certificate = key.certificate().map(shown_certificate).transpose()?;
        Ok(Shown { plain: blob(public.key_data())?, rsa_bits: rsa_bits(public.key_data()), certificate })
    }

    pub fn fingerprint(&self) -> String {
        self.plain.sha256_fingerprint()
    }
}

fn blob(key: &KeyData) -> Result<KeyBlob, String> {
    let bytes = russh::keys::PublicKey::from(key.clone()).to_bytes().map_err(|error| error.to_string())?;
    KeyBlob::from_blob(bytes).map_err(|error| error.to_string())
}

/// The size of an RSA key's modulus; other types have a fixed size.
pub(super) fn rsa_bits(key: &KeyData) -> Option<u32> {
    key.rsa().map(|rsa| rsa.key_size())
}

fn shown_certificate(certificate: &Certificate) -> Result<ShownCertificate, String> {
    Ok(ShownCertificate {
        facts: CertificateFacts {
            key: blob(certificate.public_key())?,
            ca: blob(certificate.signature_key())?,
            host: certificate.cert_type().is_host(),
            valid_after: certificate.valid_after(),
            valid_before: certificate.valid_before(),
            principals: certificate.valid_principals().to_vec(),
            critical_options: certificate.critical_options().keys().cloned().collect(),
            signature_algorithm: certificate.signature().algorithm().to_string(),
        },
        signed: certificate.verify_signature().is_ok(),
    })
}

/// What the known lines say, before StrictHostKeyChecking is applied.
#[derive(Debug, PartialEq, Eq)]
enum Standing {
    Known,
    New { detail: Option<String> },
    Changed { known: Vec<KnownEntry>, detail: Option<String> },
    Revoked { known: Vec<KnownEntry>, detail: Option<String> },
}

/// Judges a shown key by the files and lists of `rules`; pure but for reading the revocation lists.
fn standing(rules: &HostKeyRules, known: &KnownHosts, shown: &Shown, now_unix: u64) -> Standing {
    let authority = shown.certificate.as_ref().map(|certificate| &certificate.facts.ca);
    // Revocation first, for the key, the certified key and the authority, whatever else matches.
    match revoked_by_list(&rules.revoked_lists, &shown.plain, authority) {
        Ok(false) => {}
        Ok(true) => {
            let detail = Some("it is on a list of RevokedHostKeys".to_owned());
            return Standing::Revoked { known: Vec::new(), detail };
        }
        Err(error) => {
            let detail = Some(format!("no host key can be accepted: {error}"));
            return Standing::Revoked { known: Vec::new(), detail };
        }
    }
    let mut detail = None;
    if let Some(certificate) = &shown.certificate {
        let verdict =
            known.judge_certificate(&rules.name, &certificate.facts, now_unix, &rules.ca_algorithms);
        match verdict {
            CertificateVerdict::Revoked { line } => {
                return Standing::Revoked { known: vec![entry(&line)], detail: None };
            }
            CertificateVerdict::Ok { .. } if certificate.signed => return Standing::Known,
            CertificateVerdict::Ok { .. } => {
                detail = Some("the authority's signature on the certificate is not valid".to_owned());
            }
            CertificateVerdict::JudgePlainKey { reason } => {
                detail = Some(format!("certificate not used: {reason}"));
            }
        }
    }
    match known.judge_key(&rules.name, &shown.plain) {
        Verdict::Ok { .. } => Standing::Known,
        Verdict::New => Standing::New { detail: unread(known).into_iter().chain(detail).reduce(with) },
        Verdict::Changed { lines } => Standing::Changed { known: lines.iter().map(entry).collect(), detail },
        Verdict::Revoked { line } => Standing::Revoked { known: vec![entry(&line)], detail },
    }
}

/// Tells which files could not be read at all: the key may well stand there.
fn unread(known: &KnownHosts) -> Option<String> {
    // Other notes are about single lines.
    let files = known.notes().iter().filter(|note| note.line == 0);
    files.map(|note| format!("{}: {}", note.file.display(), note.message)).reduce(with)
}

fn entry(place: &Place) -> KnownEntry {
    KnownEntry { file: place.file.clone(), line: place.line, fingerprint: place.key.sha256_fingerprint() }
}

/// Accepts or refuses a shown key, asking and recording where the rules say so.
///
/// # Errors
/// One of the three host key errors; no credential has been sent by then.
pub(super) async fn check(hop: &Hop, known: &KnownHosts, shown: &Shown, human: &Human) -> Result<(), Error> {
    let rules = &hop.host_key;
    let refusal = |known: Vec<KnownEntry>, detail: Option<String>| {
        Box::new(HostKeyRefusal {
            name: rules.name.text().to_owned(),
            key_type: shown.plain.key_type().to_owned(),
            fingerprint: shown.fingerprint(),
            known,
            detail,
        })
    };
    if let Some(bits) = shown.rsa_bits.filter(|bits| *bits < rules.rsa_bits_min) {
        return Err(Error::ConnectFailed {
            phase: Phase::KeyExchange,
            host: hop.host.clone(),
            port: hop.port,
            problem: format!(
                "host key is an RSA key of {bits} bits, RequiredRSASize is {}",
                rules.rsa_bits_min
            ),
            hint: None,
        });
    }
    let now_unix = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    match standing(rules, known, shown, now_unix) {
        Standing::Known => Ok(()),
        Standing::Revoked { known, detail } => Err(Error::HostKeyRevoked(refusal(known, detail))),
        Standing::Changed { known, detail } => Err(Error::HostKeyChanged(refusal(known, detail))),
        Standing::New { detail } => match rules.strict {
            StrictHostKeyChecking::Yes => {
                let why = "StrictHostKeyChecking is yes".to_owned();
                Err(Error::HostKeyUnknown(refusal(Vec::new(), Some(and(detail, why)))))
            }
            StrictHostKeyChecking::AcceptNew | StrictHostKeyChecking::No => {
                let how = "accepted without asking, as StrictHostKeyChecking says";
                human
                    .tell(format!(
                        "host key of {} is new: {} {} ({how})",
                        rules.name.text(),
                        shown.plain.key_type(),
                        shown_fingerprint(rules, shown),
                    ))
                    .await;
                record(rules, shown, human).await;
                Ok(())
            }
            StrictHostKeyChecking::Ask => match ask(hop, shown, detail.clone(), human).await {
                Ok(()) => {
                    record(rules, shown, human).await;
                    Ok(())
                }
                Err(why) => Err(Error::HostKeyUnknown(refusal(Vec::new(), Some(and(detail, why))))),
            },
        },
    }
}

fn with(first: String, second: String) -> String {
    format!("{first}; {second}")
}

fn and(detail: Option<String>, why: String) -> String {
    detail.into_iter().chain([why]).reduce(with).unwrap_or_default()
}

fn shown_fingerprint(rules: &HostKeyRules, shown: &Shown) -> String {
    match rules.fingerprint_hash {
        FingerprintHash::Sha256 => shown.fingerprint(),
        FingerprintHash::Md5 => format!("{} ({})", shown.fingerprint(), shown.plain.md5_fingerprint()),
    }
}

/// Asks whether a new key is right; the error says why it was not accepted.
async fn ask(hop: &Hop, shown: &Shown, note: Option<String>, human: &Human) -> Result<(), String> {
    if hop.batch {
        return Err("BatchMode forbids asking".to_owned());
    }
    let prompt = Prompt::HostKey {
        host: hop.host_key.name.text().to_owned(),
        key_type: shown.plain.key_type().to_owned(),
        fingerprint: shown_fingerprint(&hop.host_key, shown),
        note,
    };
    let answer = human.ask(prompt).await.map_err(|unanswered| unanswered.to_string())?;
    let answer = answer.reveal().trim();
    if answer.eq_ignore_ascii_case("yes") || answer == shown.fingerprint() {
        Ok(())
    } else {
        Err("it was not accepted when asked".to_owned())
    }
}

/// Writes the plain key down; a failure costs only that the question comes again.
async fn record(rules: &HostKeyRules, shown: &Shown, human: &Human) {
    let Some(file) = rules.user_files.first() else {
        return;
    };
    if let Err(error) = append(file, &rules.name, &shown.plain, rules.hash_names) {
        let source = std::error::Error::source(&error).map(|source| format!(": {source}"));
        human.tell(format!("host key not recorded: {error}{}", source.unwrap_or_default())).await;
    }
}
