//! Public keys as they travel, and what is read from a certificate.

/// A public key in the form of RFC 4253, section 6.6.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct KeyBlob {
    key_type: String,
    blob: Vec<u8>,
}

/// Says that some bytes are not a public key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a public key: {0}")]
pub struct InvalidKey(pub(crate) String);

impl KeyBlob {
    /// Takes the bytes of a public key as they travel.
    ///
    /// # Errors
    /// When they do not begin with a key type.
    pub fn from_blob(blob: Vec<u8>) -> Result<KeyBlob, InvalidKey> {
        Err(InvalidKey(format!("{} bytes", blob.len())))
    }

    /// Gives the key type, such as `ssh-ed25519`.
    pub fn key_type(&self) -> &str {
        &self.key_type
    }

    /// Gives the bytes as they travel.
    pub fn blob(&self) -> &[u8] {
        &self.blob
    }

    /// Gives `SHA256:` and the digest in base64 without padding.
    pub fn sha256_fingerprint(&self) -> String {
        String::new()
    }

    /// Gives `MD5:` and the digest in colon-separated hexadecimal.
    pub fn md5_fingerprint(&self) -> String {
        String::new()
    }
}

/// What a host certificate says, as the connection read it.
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
