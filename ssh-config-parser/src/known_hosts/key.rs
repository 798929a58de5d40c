//! Public keys as they travel, and what is read from a certificate.

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use sha2::{Digest, Sha256};

use super::wire;

/// A public key in the form of RFC 4253, section 6.6: of a known type, whole, with nothing behind it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct KeyBlob {
    key_type: String,
    blob: Vec<u8>,
}

/// Says why some bytes are not a public key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidKey {
    /// The bytes do not begin with a type.
    #[error("key has no type")]
    NoType,
    /// The type is not understood.
    #[error("key type {0:?} is not known")]
    UnknownType(String),
    /// A field is missing, has a wrong length, or bytes are left over.
    #[error("key of type {0} is malformed")]
    Malformed(String),
    /// The text is not base64.
    #[error("key is not base64")]
    NotBase64,
    /// The text names another type than the bytes.
    #[error("key is called {written:?} and holds {held:?}")]
    OtherType {
        /// The type in front of the base64.
        written: String,
        /// The type inside it.
        held: String,
    },
}

impl KeyBlob {
    /// Takes the bytes of a public key as they travel.
    ///
    /// # Errors
    /// When they are not a whole key of a known type. Of a certificate only the type is checked.
    pub fn from_blob(blob: Vec<u8>) -> Result<KeyBlob, InvalidKey> {
        let held = wire::key_type(&blob).ok_or(InvalidKey::NoType)?;
        let key_type = String::from_utf8_lossy(held).into_owned();
        if !wire::is_known(held) {
            return Err(InvalidKey::UnknownType(key_type));
        }
        if !wire::is_whole(&blob) {
            return Err(InvalidKey::Malformed(key_type));
        }
        Ok(KeyBlob { key_type, blob })
    }

    /// Reads a type and base64, as they stand in a file.
    ///
    /// # Errors
    /// Also when the type is not the one inside the base64.
    pub fn from_text(key_type: &[u8], base64: &[u8]) -> Result<KeyBlob, InvalidKey> {
        if !wire::is_known(key_type) {
            let name = String::from_utf8_lossy(key_type).into_owned();
            return Err(InvalidKey::UnknownType(name));
        }
        let blob = STANDARD.decode(base64).map_err(|_| InvalidKey::NotBase64)?;
        let key = KeyBlob::from_blob(blob)?;
        if key.key_type.as_bytes() != key_type {
            return Err(InvalidKey::OtherType {
                written: String::from_utf8_lossy(key_type).into_owned(),
                held: key.key_type,
            });
        }
        Ok(key)
    }

    /// Gives the key type, such as `ssh-ed25519`.
    pub fn key_type(&self) -> &str {
        &self.key_type
    }

    /// Gives the bytes as they travel.
    pub fn blob(&self) -> &[u8] {
        &self.blob
    }

    /// Gives the bytes in base64, as they stand in a file.
    pub fn to_base64(&self) -> String {
        STANDARD.encode(&self.blob)
    }

    /// Gives `SHA256:` and the digest in base64 without padding.
    pub fn sha256_fingerprint(&self) -> String {
        let digest = Sha256::digest(&self.blob);
        format!("SHA256:{}", STANDARD_NO_PAD.encode(digest))
    }

    /// Gives `MD5:` and the digest in colon-separated hexadecimal.
    pub fn md5_fingerprint(&self) -> String {
        let digest = md5::compute(&self.blob);
        let bytes: Vec<String> = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("MD5:{}", bytes.join(":"))
    }
}

/// What a host certificate says, as the connection read it and checked its signature.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateFacts {
    /// The plain key inside.
    pub key: KeyBlob,
    /// The key that signed it.
    pub ca: KeyBlob,
    /// Whether it is a host certificate.
    pub host: bool,
    /// First second at which it is valid, since 1970.
    pub valid_after: u64,
    /// First second at which it is no longer valid, since 1970.
    pub valid_before: u64,
    /// The names that it vouches for, possibly patterns.
    pub principals: Vec<String>,
    /// Names of its critical options.
    pub critical_options: Vec<String>,
    /// The algorithm of the authority's signature.
    pub signature_algorithm: String,
}
