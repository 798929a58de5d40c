//! Which algorithms are offered to a server whose own offer is already known.

use std::borrow::Cow;
use std::time::Duration;

use russh::client::Config;
use russh::keys::{Algorithm, EcdsaCurve, HashAlg};
use russh::{Limits, Preferred, SshId, cipher, compression, kex, mac};
use ssh_config_parser::Resolved;

use super::offer::Offer;
use super::preamble::CLIENT_ID;

/// russh refills at half: at 100 ms round trip 64 MiB carry 270 MB/s, 2 MiB carry 10.
const WINDOW_BYTES: u32 = 64 * 1024 * 1024;
const PACKET_BYTES_MAX: u32 = 32 * 1024;
/// Messages of up to 32 KiB that wait for our reader before russh stops reading the connection.
const CHANNEL_QUEUE_MESSAGES: usize = 256;
/// russh asserts this bound: beyond it nonces could repeat.
const REKEY_BYTES_MAX: u64 = 1 << 30;
/// Renewing keys more often than this would leave little time for anything else.
const REKEY_BYTES_MIN: u64 = 1 << 20;
/// russh's own default, kept where the ssh config says nothing.
const REKEY_INTERVAL_DEFAULT: Duration = Duration::from_secs(3600);

/// AES-GCM first: half the processor time of chacha20 on both ends. CTR last: four times as much.
const CIPHERS: &[cipher::Name] = &[
    cipher::AES_128_GCM,
    cipher::AES_256_GCM,
    cipher::CHACHA20_POLY1305,
    cipher::AES_256_CTR,
    cipher::AES_192_CTR,
    cipher::AES_128_CTR,
];
const MACS: &[mac::Name] = &[
    mac::HMAC_SHA256_ETM,
    mac::HMAC_SHA512_ETM,
    mac::HMAC_SHA256,
    mac::HMAC_SHA512,
    mac::HMAC_SHA1_ETM,
    mac::HMAC_SHA1,
];
const KEX: &[kex::Name] = &[
    kex::MLKEM768X25519_SHA256,
    kex::CURVE25519,
    kex::CURVE25519_PRE_RFC_8731,
    kex::ECDH_SHA2_NISTP256,
    kex::ECDH_SHA2_NISTP384,
    kex::ECDH_SHA2_NISTP521,
    kex::DH_GEX_SHA256,
    kex::DH_G16_SHA512,
    kex::DH_G18_SHA512,
    kex::DH_G14_SHA256,
];
/// Host key algorithms in OpenSSH's default order, certificates first, without the FIDO types that russh lacks.
const HOST_KEYS: &[&str] = &[
    "ssh-ed25519-cert-v01@openssh.com",
    "ecdsa-sha2-nistp256-cert-v01@openssh.com",
    "ecdsa-sha2-nistp384-cert-v01@openssh.com",
    "ecdsa-sha2-nistp521-cert-v01@openssh.com",
    "rsa-sha2-512-cert-v01@openssh.com",
    "rsa-sha2-256-cert-v01@openssh.com",
    "ssh-ed25519",
    "ecdsa-sha2-nistp256",
    "ecdsa-sha2-nistp384",
    "ecdsa-sha2-nistp521",
    "rsa-sha2-512",
    "rsa-sha2-256",
];

// OpenSSH 9.2's default lists, as the parser resolves them when the config names none: then our own order
// applies. A list that the config names keeps the config's order.
const OPENSSH_CIPHERS: &str = "chacha20-poly1305@openssh.com,aes128-ctr,aes192-ctr,aes256-ctr,\
    aes128-gcm@openssh.com,aes256-gcm@openssh.com";
const OPENSSH_MACS: &str = "umac-64-etm@openssh.com,umac-128-etm@openssh.com,\
    hmac-sha2-256-etm@openssh.com,hmac-sha2-512-etm@openssh.com,hmac-sha1-etm@openssh.com,\
    umac-64@openssh.com,umac-128@openssh.com,hmac-sha2-256,hmac-sha2-512,hmac-sha1";
const OPENSSH_KEX: &str = "sntrup761x25519-sha512,sntrup761x25519-sha512@openssh.com,\
    curve25519-sha256,curve25519-sha256@libssh.org,ecdh-sha2-nistp256,ecdh-sha2-nistp384,\
    ecdh-sha2-nistp521,diffie-hellman-group-exchange-sha256,diffie-hellman-group16-sha512,\
    diffie-hellman-group18-sha512,diffie-hellman-group14-sha256";

/// What may be used with a hop, in order of preference, before the server's side is known.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    ciphers: Vec<cipher::Name>,
    macs: Vec<mac::Name>,
    kex: Vec<kex::Name>,
    /// What the config named and we lack, for the message of an empty list.
    asked: [String; 3],
    host_keys: Option<Vec<String>>,
    compression: bool,
    rekey_bytes: u64,
    rekey_interval: Duration,
}

/// Nothing in common with a server, or nothing safe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mismatch {
    pub problem: String,
    pub hint: String,
}

impl Wanted {
    pub fn from_resolved(resolved: &Resolved) -> Wanted {
        Wanted {
            ciphers: chosen(&resolved.ciphers, OPENSSH_CIPHERS, CIPHERS),
            macs: chosen(&resolved.macs, OPENSSH_MACS, MACS),
            kex: chosen(&resolved.kex_algorithms, OPENSSH_KEX, KEX),
            asked: [resolved.ciphers.join(","), resolved.macs.join(","), resolved.kex_algorithms.join(",")],
            host_keys: resolved.host_key_algorithms.clone(),
            compression: resolved.compression,
            rekey_bytes: resolved
                .rekey_limit_bytes
                .filter(|bytes| *bytes > 0)
                .map_or(REKEY_BYTES_MAX, |bytes| bytes.clamp(REKEY_BYTES_MIN, REKEY_BYTES_MAX)),
            rekey_interval: resolved
                .rekey_interval
                .filter(|interval| !interval.is_zero())
                .unwrap_or(REKEY_INTERVAL_DEFAULT),
        }
    }

    /// Our own choice, for a host that no ssh config describes.
    pub fn ours() -> Wanted {
        Wanted {
            ciphers: CIPHERS.to_vec(),
            macs: MACS.to_vec(),
            kex: KEX.to_vec(),
            asked: Default::default(),
            host_keys: None,
            compression: false,
            rekey_bytes: REKEY_BYTES_MAX,
            rekey_interval: REKEY_INTERVAL_DEFAULT,
        }
    }

    /// Signature algorithms for user keys where no config restricts them.
    pub fn user_key_algorithms(&self) -> Vec<String> {
        HOST_KEYS.iter().map(|name| (*name).to_owned()).collect()
    }

    /// The configured host key algorithms, or none: then the default list is ordered by what is known.
    pub fn host_keys(&self) -> Option<&[String]> {
        self.host_keys.as_deref()
    }

    /// Settles every algorithm against the server's offer.
    pub fn settle(&self, offer: &Offer, host_key_order: &[String]) -> Result<Config, Mismatch> {
        let strict = offer.strict_kex();
        let kex = shared("key exchange method", "KexAlgorithms", &self.kex, &self.asked[2], &[&offer.kex])?;
        let ciphers = self.ciphers(offer, strict)?;
        let macs = self.macs(offer, strict, &ciphers)?;
        let (key, host_key_certificates) = host_keys(offer, host_key_order)?;
        let compressed = self.compression
            && offer.compression.iter().all(|list| contains(list, compression::ZLIB_LEGACY.as_ref()));
        let mut kex_names = kex;
        kex_names.push(kex::EXTENSION_SUPPORT_AS_CLIENT);
        kex_names.push(kex::EXTENSION_OPENSSH_STRICT_KEX_AS_CLIENT);
        // Bounded by REKEY_BYTES_MAX, so it fits on every platform.
        let rekey = usize::try_from(self.rekey_bytes).unwrap_or(usize::MAX >> 4);
        Ok(Config {
            client_id: SshId::Standard(Cow::Borrowed(CLIENT_ID)),
            limits: Limits::new(rekey, rekey, self.rekey_interval),
            window_size: WINDOW_BYTES,
            maximum_packet_size: PACKET_BYTES_MAX,
            channel_buffer_size: CHANNEL_QUEUE_MESSAGES,
            // russh's own limit would end an idle line; only the keepalive may.
            inactivity_timeout: None,
            preferred: Preferred {
                kex: kex_names.into(),
                key: key.into(),
                host_key_certificates: host_key_certificates.into(),
                cipher: ciphers.into(),
                mac: macs.into(),
                compression: if compressed {
                    Cow::Borrowed(&[compression::ZLIB_LEGACY, compression::NONE])
                } else {
                    Cow::Borrowed(&[compression::NONE])
                },
            },
            ..Config::default()
        })
    }

    fn ciphers(&self, offer: &Offer, strict: bool) -> Result<Vec<cipher::Name>, Mismatch> {
        let [to_server, from_server] = &offer.ciphers;
        let both = shared("cipher", "Ciphers", &self.ciphers, &self.asked[0], &[to_server, from_server])?;
        if strict {
            return Ok(both);
        }
        // Without strict key exchange this cipher lets an attacker drop messages (Terrapin, CVE-2023-48795).
        let safe: Vec<_> = both.into_iter().filter(|name| *name != cipher::CHACHA20_POLY1305).collect();
        if safe.is_empty() {
            return Err(Mismatch {
                problem: "its only common cipher is chacha20-poly1305, and it lacks strict key exchange"
                    .to_owned(),
                hint: "the server is open to the Terrapin attack: it needs an update, or an AES cipher"
                    .to_owned(),
            });
        }
        Ok(safe)
    }

    fn macs(
        &self,
        offer: &Offer,
        strict: bool,
        ciphers: &[cipher::Name],
    ) -> Result<Vec<mac::Name>, Mismatch> {
        let first = ciphers.first().map(AsRef::<str>::as_ref).unwrap_or_default();
        if first.contains("-gcm@") || first.starts_with("chacha20") {
            // These authenticate by themselves; russh never looks at the list.
            return Ok(self.macs.clone());
        }
        let truncatable = |name: &mac::Name| {
            !strict && first.ends_with("-cbc") && AsRef::<str>::as_ref(name).contains("-etm@")
        };
        let safe: Vec<_> = self.macs.iter().filter(|name| !truncatable(name)).cloned().collect();
        let [to_server, from_server] = &offer.macs;
        shared("MAC", "MACs", &safe, &self.asked[1], &[to_server, from_server])
    }
}

/// The default order for host keys, to be sorted by what known_hosts holds.
pub(super) fn default_host_keys() -> Vec<String> {
    HOST_KEYS.iter().map(|name| (*name).to_owned()).collect()
}

/// Our order for the default list; the config's own order, as far as we have it, for any other.
fn chosen<N>(asked: &[String], default: &str, ours: &[N]) -> Vec<N>
where
    N: Clone + for<'a> TryFrom<&'a str>,
{
    if asked.iter().map(String::as_str).eq(default.split(',')) {
        return ours.to_vec();
    }
    let known = asked.iter().filter(|name| !matches!(name.as_str(), "none" | "clear"));
    known.filter_map(|name| N::try_from(name.as_str()).ok()).collect()
}

fn contains(list: &[String], name: &str) -> bool {
    list.iter().any(|other| other == name)
}

/// Those of `ours` that stand in every list of theirs.
fn shared<N: AsRef<str> + Clone>(
    what: &str,
    keyword: &str,
    ours: &[N],
    asked: &str,
    theirs: &[&Vec<String>],
) -> Result<Vec<N>, Mismatch> {
    if ours.is_empty() {
        return Err(Mismatch {
            problem: format!("no {what} of the configured list is available: {asked}"),
            hint: format!("change {keyword} for this host in the ssh config"),
        });
    }
    let both: Vec<N> = ours
        .iter()
        .filter(|name| theirs.iter().all(|list| contains(list, (*name).as_ref())))
        .cloned()
        .collect();
    if both.is_empty() {
        let offered = theirs.first().map(|list| list.join(",")).unwrap_or_default();
        let mine: Vec<&str> = ours.iter().map(AsRef::as_ref).collect();
        return Err(no_common(what, keyword, &offered, &mine.join(",")));
    }
    Ok(both)
}

fn no_common(what: &str, keyword: &str, theirs: &str, ours: &str) -> Mismatch {
    Mismatch {
        problem: format!("no common {what}: the server offers only {theirs}, allowed here are {ours}"),
        hint: format!(
            "the server's software is old; where it cannot be updated, {keyword} in the ssh config may allow one of its own"
        ),
    }
}

/// The first algorithm of our order that the server has: it decides which key the server shows.
///
/// russh always puts certificates before plain keys, so only the kind that was chosen is offered.
fn host_keys(offer: &Offer, order: &[String]) -> Result<(Vec<Algorithm>, Vec<Algorithm>), Mismatch> {
    let usable = order.iter().filter_map(|name| Some((name, host_key(name)?)));
    for (name, (algorithm, certificate)) in usable {
        if contains(&offer.host_keys, name) {
            return Ok(if certificate {
                // The list of plain keys may not be empty; the certificate is found before it.
                (vec![algorithm.clone()], vec![algorithm])
            } else {
                (vec![algorithm], Vec::new())
            });
        }
    }
    Err(no_common("host key algorithm", "HostKeyAlgorithms", &offer.host_keys.join(","), &order.join(",")))
}

/// Reads an algorithm's name; the flag tells a certificate.
fn host_key(name: &str) -> Option<(Algorithm, bool)> {
    let (plain, certificate) = match name.strip_suffix("-cert-v01@openssh.com") {
        Some(plain) => (plain, true),
        None => (name, false),
    };
    let algorithm = match plain {
        "ssh-ed25519" => Algorithm::Ed25519,
        "ecdsa-sha2-nistp256" => Algorithm::Ecdsa { curve: EcdsaCurve::NistP256 },
        "ecdsa-sha2-nistp384" => Algorithm::Ecdsa { curve: EcdsaCurve::NistP384 },
        "ecdsa-sha2-nistp521" => Algorithm::Ecdsa { curve: EcdsaCurve::NistP521 },
        "rsa-sha2-512" => Algorithm::Rsa { hash: Some(HashAlg::Sha512) },
        "rsa-sha2-256" => Algorithm::Rsa { hash: Some(HashAlg::Sha256) },
        // SHA-1: reached only when the config names it.
        "ssh-rsa" => Algorithm::Rsa { hash: None },
        _ => return None,
    };
    Some((algorithm, certificate))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> Vec<String> {
        text.split(',').map(str::to_owned).collect()
    }

    fn offer(ciphers: &str, strict: bool) -> Offer {
        let mut kex = names("curve25519-sha256");
        if strict {
            kex.push("kex-strict-s-v00@openssh.com".to_owned());
        }
        Offer {
            kex,
            host_keys: names("ssh-ed25519,ssh-ed25519-cert-v01@openssh.com,rsa-sha2-512"),
            ciphers: [names(ciphers), names(ciphers)],
            macs: [names("hmac-sha2-256"), names("hmac-sha2-256")],
            compression: [names("none"), names("none")],
        }
    }

    fn ciphers(config: &Config) -> Vec<String> {
        config.preferred.cipher.iter().map(|name| name.as_ref().to_owned()).collect()
    }

    #[test]
    fn case_terrapin_chacha20_is_left_out_with_a_peer_that_lacks_strict_key_exchange() {
        let both = "chacha20-poly1305@openssh.com,aes256-ctr";
        let order = default_host_keys();
        let strict = Wanted::ours().settle(&offer(both, true), &order).unwrap();
        assert_eq!(ciphers(&strict), ["chacha20-poly1305@openssh.com", "aes256-ctr"]);
        let lax = Wanted::ours().settle(&offer(both, false), &order).unwrap();
        assert_eq!(ciphers(&lax), ["aes256-ctr"]);
        let only = offer("chacha20-poly1305@openssh.com", false);
        assert!(Wanted::ours().settle(&only, &order).unwrap_err().problem.contains("strict"));
    }

    #[test]
    fn a_configured_order_is_kept_and_the_default_is_replaced_by_ours() {
        let configured = names("aes256-ctr,aes128-gcm@openssh.com,nonsense");
        let kept: Vec<cipher::Name> = chosen(&configured, OPENSSH_CIPHERS, CIPHERS);
        assert_eq!(kept, [cipher::AES_256_CTR, cipher::AES_128_GCM]);
        let default: Vec<cipher::Name> = chosen(&names(OPENSSH_CIPHERS), OPENSSH_CIPHERS, CIPHERS);
        assert_eq!(default, CIPHERS);
    }

    #[test]
    fn a_list_without_anything_we_have_is_a_clear_error() {
        let wanted = Wanted {
            ciphers: Vec::new(),
            asked: ["rot13".to_owned(), String::new(), String::new()],
            ..Wanted::ours()
        };
        let mismatch = wanted.settle(&offer("aes256-ctr", true), &default_host_keys()).unwrap_err();
        assert!(mismatch.problem.contains("rot13"), "{}", mismatch.problem);
        assert!(mismatch.hint.contains("Ciphers"));
    }

    #[test]
    fn only_old_algorithms_are_named_in_the_error() {
        let old = offer("3des-cbc,arcfour", true);
        let mismatch = Wanted::ours().settle(&old, &default_host_keys()).unwrap_err();
        assert!(mismatch.problem.contains("3des-cbc,arcfour"), "{}", mismatch.problem);
    }

    #[test]
    fn a_known_plain_type_goes_before_a_certificate_that_the_server_also_has() {
        let offer = offer("aes256-ctr", true);
        let order = names("rsa-sha2-512,ssh-ed25519-cert-v01@openssh.com,ssh-ed25519");
        let (plain, certificates) = host_keys(&offer, &order).unwrap();
        assert_eq!(plain, [Algorithm::Rsa { hash: Some(HashAlg::Sha512) }]);
        assert!(certificates.is_empty());
        let (_, certificates) = host_keys(&offer, &default_host_keys()).unwrap();
        assert_eq!(certificates, [Algorithm::Ed25519]);
    }
}
