//! Ids and names: of grants, of clients, of sites.

use rand::TryRngCore as _;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use zeroize::Zeroizing;

use super::error::Error;
use crate::config::SiteName;

/// Bytes of a grant's id: 160 bits from the system's generator.
const SECRET_BYTES: usize = 20;
/// Hexadecimal digits of a grant's name.
const NAME_DIGITS: usize = 12;
/// What a pod's site begins with.
const POD: &str = "pod:";

/// The id of a grant: whoever has it may use the grant. It is shown once and never stored.
#[derive(Clone)]
pub struct GrantSecret(Zeroizing<String>);

impl GrantSecret {
    /// Draws a new one from the system's generator.
    ///
    /// # Errors
    /// [`Error::Denied`] when the system has no randomness to give.
    pub fn random() -> Result<GrantSecret, Error> {
        let mut bytes = Zeroizing::new([0; SECRET_BYTES]);
        rand::rngs::OsRng.try_fill_bytes(bytes.as_mut()).map_err(|error| Error::Denied {
            reason: format!("the system gives no random bytes for a grant: {error}"),
        })?;
        Ok(GrantSecret(Zeroizing::new(hex(bytes.as_ref()))))
    }

    /// Takes what a caller presents; whether it is right shows when its hash is compared.
    pub fn presented(text: &str) -> GrantSecret {
        GrantSecret(Zeroizing::new(text.trim().to_owned()))
    }

    /// The text, to be shown to the human who approved it, or to be handed to the process that connects.
    pub fn danger_reveal(&self) -> &str {
        &self.0
    }

    /// What is stored of it.
    pub fn hash(&self) -> GrantHash {
        GrantHash(hex(&Sha256::digest(self.0.as_bytes())))
    }
}

impl std::fmt::Debug for GrantSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "GrantSecret(of {})", self.hash().name())
    }
}

/// SHA-256 of a grant's id, in lower-case hexadecimal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct GrantHash(String);

impl GrantHash {
    /// Reads one from the policy file.
    pub(super) fn parse(text: &str) -> Option<GrantHash> {
        let digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        (text.len() == 64 && text.bytes().all(digit)).then(|| GrantHash(text.to_owned()))
    }

    /// The grant's name.
    pub fn name(&self) -> GrantName {
        GrantName(self.0.chars().take(NAME_DIGITS).collect())
    }
}

/// What a grant is called everywhere: the first 12 digits of its hash, which open nothing.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct GrantName(pub(super) String);

impl GrantName {
    /// Takes a name, or an id whose name is meant.
    pub fn of_name_or_id(text: &str) -> GrantName {
        let text = text.trim();
        if text.len() == NAME_DIGITS {
            GrantName(text.to_owned())
        } else {
            GrantSecret::presented(text).hash().name()
        }
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Display for GrantName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// A process as the record knows it: its pid and random digits, the same for the process's whole life.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientId(pub(super) String);

impl ClientId {
    /// The identity of this process.
    pub fn of_this_process() -> ClientId {
        static THIS: std::sync::OnceLock<ClientId> = std::sync::OnceLock::new();
        THIS.get_or_init(|| ClientId(format!("{}-{}", std::process::id(), uuid::Uuid::new_v4()))).clone()
    }

    /// Takes the identity of another process, or a made-up one of a simulation; never empty.
    pub fn named(text: &str) -> ClientId {
        ClientId(if text.is_empty() { "unnamed".to_owned() } else { text.to_owned() })
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A site as the policy knows it: a site of the configuration, or `pod:` and the profile of a pod.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct SiteId(String);

impl SiteId {
    /// Reads a site's name.
    ///
    /// # Errors
    /// [`Error::Input`] when it has another form.
    pub fn parse(text: &str) -> Result<SiteId, Error> {
        match SiteName::parse(text.strip_prefix(POD).unwrap_or(text)) {
            Ok(_) => Ok(SiteId(text.to_owned())),
            Err(error) => Err(Error::Input { what: "site", reason: format!("is wrong: {error}") }),
        }
    }

    /// What the attempt of a repaired file counts for: whose attempt it was, the damage has taken.
    pub(super) fn every() -> SiteId {
        SiteId("*".to_owned())
    }

    /// Reads the site of a stored attempt.
    pub(super) fn stored(text: &str) -> Option<SiteId> {
        if text == "*" { Some(SiteId::every()) } else { SiteId::parse(text).ok() }
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<&SiteName> for SiteId {
    fn from(name: &SiteName) -> SiteId {
        SiteId(name.as_str().to_owned())
    }
}

impl std::fmt::Display for SiteId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_has_160_bits_and_only_its_name_is_ever_printed() {
        let (one, other) = (GrantSecret::random().unwrap(), GrantSecret::random().unwrap());
        assert_eq!(one.danger_reveal().len(), 40);
        assert_ne!(one.danger_reveal(), other.danger_reveal());
        assert!(!format!("{one:?}").contains(one.danger_reveal()));
        assert_eq!(one.hash().name().as_str().len(), 12);
        assert_eq!(GrantName::of_name_or_id(one.danger_reveal()), one.hash().name());
        assert_eq!(GrantName::of_name_or_id(one.hash().name().as_str()), one.hash().name());
        assert_eq!(GrantSecret::presented(&format!(" {}\n", one.danger_reveal())).hash(), one.hash());
    }

    #[test]
    fn the_hash_is_sha_256_of_the_text() {
        let hash = GrantSecret::presented("abc").hash();
        assert_eq!(hash.0, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        assert_eq!(hash.name().as_str(), "ba7816bf8f01");
        assert!(GrantHash::parse(&hash.0).is_some());
        assert!(GrantHash::parse(&hash.0.to_uppercase()).is_none() && GrantHash::parse("ab").is_none());
    }

    #[test]
    fn sites_are_named_as_in_the_configuration() {
        for right in ["hpc", "pod:a100"] {
            assert_eq!(SiteId::parse(right).unwrap().as_str(), right);
        }
        for wrong in ["", "*", "pod:", "pod:pod:x", "a/b", "..", "x:y"] {
            assert!(SiteId::parse(wrong).is_err(), "{wrong}");
        }
    }
}
