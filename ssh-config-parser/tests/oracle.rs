//! Random configurations, compared with the real client.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    missing_docs,
    reason = "tests fail by panicking"
)]

mod support;

use std::collections::BTreeMap;
use std::path::Path;

use proptest::prelude::*;
use serde_json::Value;
use ssh_config_parser::{Reason, Snapshot, World};
use support::generator::{Generator, HOSTS};
use support::{is_9_2, ssh_g};

/// What the client sees of the environment.
const ENV: &[(&str, &str)] = &[("AGENT", "/run/agent"), ("HOME", "/nonexistent")];

/// Keywords whose defaults or spelling differ between releases and builds.
const VERSIONED: &[&str] = &[
    "ciphers",
    "macs",
    "kexalgorithms",
    "hostkeyalgorithms",
    "pubkeyacceptedalgorithms",
    "hostbasedacceptedalgorithms",
    "casignaturealgorithms",
    "identityfile",
    "loglevel",
    "ipqos",
    "forwardx11trusted",
    "xauthlocation",
    "gssapikexalgorithms",
    "controlpath",
    "userknownhostsfile",
];

fn world() -> World {
    let mut world = World::from_system().unwrap();
    world.env = ENV.iter().map(|(name, value)| (name.into(), value.into())).collect();
    world.home_env = Some("/nonexistent".into());
    world
}

/// Says where two answers differ, ignoring what we do otherwise on purpose.
fn difference(ours: &BTreeMap<String, Value>, theirs: &BTreeMap<String, Value>) -> Option<String> {
    let exact = is_9_2();
    let mut keywords: Vec<&String> = ours.keys().chain(theirs.keys()).collect();
    keywords.dedup();
    keywords.into_iter().find_map(|keyword| {
        let (ours, theirs) = (ours.get(keyword), theirs.get(keyword));
        // Debian's build changes this default under BatchMode; we do not.
        let skipped = (keyword == "serveraliveinterval" && theirs == Some(&Value::from("300")))
            || (!exact && (VERSIONED.contains(&keyword.as_str()) || ours.is_none() || theirs.is_none()));
        (!skipped && ours != theirs).then(|| format!("{keyword}: ours {ours:?}, theirs {theirs:?}"))
    })
}

fn shown(folder: &Path) -> String {
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let text = |path: &Path| String::from_utf8_lossy(&std::fs::read(path).unwrap()).into_owned();
    files.iter().map(|path| format!("--- {}\n{}\n", path.display(), text(path))).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(200), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_random_configuration_resolves_as_the_real_client_says(seed in any::<u64>()) {
        let folder = tempfile::tempdir().unwrap();
        Generator::new(seed).write(folder.path());
        let config = folder.path().join("config");
        let snapshot = Snapshot::read(Some(&config), world()).unwrap();
        for host in &HOSTS[..3] {
            let theirs = ssh_g(&config, host, ENV);
            let answer = snapshot.resolve(host);
            match (&answer, &theirs) {
                (Ok(ours), Some(theirs)) => {
                    let difference = difference(&ours.printed, theirs);
                    prop_assert!(difference.is_none(), "{host}: {}\n{}", difference.unwrap(), shown(folder.path()));
                }
                (Err(rejection), None) => prop_assert_ne!(rejection.reason, Reason::Refused),
                (Err(rejection), Some(_)) => {
                    prop_assert!(false, "{host}: {rejection}\n{}", shown(folder.path()));
                }
                (Ok(_), None) => prop_assert!(false, "{host}: accepted\n{}", shown(folder.path())),
            }
        }
    }

    #[test]
    fn a_flattened_configuration_means_the_same_for_every_host(seed in any::<u64>()) {
        let folder = tempfile::tempdir().unwrap();
        Generator::new(seed).write(folder.path());
        let config = folder.path().join("config");
        let snapshot = Snapshot::read(Some(&config), world()).unwrap();
        let Ok(flat) = snapshot.flatten() else {
            // What is wrong for every host is wrong for the first one too.
            prop_assert!(ssh_g(&config, HOSTS[0], ENV).is_none(), "{}", shown(folder.path()));
            return Ok(());
        };
        let text = flat.text_lossy().to_ascii_lowercase();
        prop_assert!(!text.lines().any(|line| line.trim_start().starts_with("include /")));
        let place = folder.path().join("flat");
        std::fs::write(&place, &flat.text).unwrap();
        let again = Snapshot::read(Some(&place), world()).unwrap();
        for host in HOSTS {
            let (ours, theirs) = (snapshot.resolve(host), again.resolve(host));
            let (ours, theirs) = (ours.map(|answer| answer.printed), theirs.map(|answer| answer.printed));
            prop_assert_eq!(ours.is_ok(), theirs.is_ok(), "{}\n{}", host, shown(folder.path()));
            if let (Ok(ours), Ok(theirs)) = (ours, theirs) {
                prop_assert_eq!(ours, theirs, "{}\n{}", host, shown(folder.path()));
            }
        }
        for host in &HOSTS[..2] {
            prop_assert_eq!(ssh_g(&config, host, ENV), ssh_g(&place, host, ENV), "{}\n{}", host, shown(folder.path()));
        }
    }
}

/// Keywords with the pieces that random values are put together from.
///
/// What we do otherwise on purpose is left out: SendEnv, SetEnv and CanonicalDomains without a word are errors, as
/// in 10.x; a domain may begin with `_`, as in 10.x; a negated name in CASignatureAlgorithms is an error, as in
/// every other list; a second seconds term is an error, as in 10.3; `ProxyJump none` may have a comment; and 9.2 forgets
/// what stands behind a blank in ProxyJump.
const ALPHABETS: &[(&str, &[&str])] = &[
    ("", &["User", " ", "=", "\"", "a", "#", "'", "\\", "\t", "user", "\r", "\x0c"]),
    ("User ", &["a", "b", " ", "\t", "\"", "'", "\\", "#", "=", "\r", ","]),
    ("SendEnv X", &["A", "B", " ", "\"", "'", "\\", "#", "-", "*", "?", "="]),
    ("IdentityFile", &["a", " ", "=", "\"", "'", "\\", "#", "/", "~"]),
    ("SetEnv X", &["A", "=", " ", "B", "\"", "#", "'"]),
    (
        "ProxyJump ",
        &["a", "b", "@", ":", "[", "]", ",", "/", "ssh://", "22", "0", "#", "none", " #", ".", "%41", "::1"],
    ),
    ("LocalForward ", &["1", "80", ":", " ", "[", "]", "a", "/", "\\", "0", "*", "socks"]),
    ("RemoteForward ", &["1", "80", ":", " ", "[", "]", "a", "/", "0", "*"]),
    ("DynamicForward ", &["1", "80", ":", " ", "[", "]", "a", "/", "0", "*"]),
    ("HostName ", &["1", "2", ".", "0x", "a", "A", ":", "::", "ff", "%h", "%%", "0", "9", "255", "-"]),
    ("ConnectTimeout ", &["1", "20", "m", "H", "d", "w", "none", " ", "x", "99999999"]),
    ("Port ", &["1", "0", "22", "+", "-", " ", "\"", "ssh", "https", "65536", "x"]),
    ("ServerAliveCountMax ", &["1", "0", "+", "-", " ", "\"", "2147483647", "8", "x"]),
    ("RekeyLimit ", &["1", "16", "K", "g", ".", "5", " ", "default", "none", "1h", "B", "0"]),
    ("PermitRemoteOpen ", &["a", ":", "1", "*", " ", "any", "none", "[", "]", "0"]),
    ("UserKnownHostsFile ", &["/a", "~", " ", "none", "%h", "%%", "%", "\"", "#", "${AGENT}", "$", "{"]),
    ("CanonicalDomains ", &["a", ".", "-", " ", "none", "B", "1", "\""]),
    ("CanonicalizePermittedCNAMEs ", &["none"]),
    ("IPQoS ", &["af11", "CS0", "0x", "1", "0", "8", " ", "none", "le", "+"]),
    ("TunnelDevice ", &["any", ":", "1", "0", " ", "-"]),
    ("EscapeChar ", &["^", "a", "[", "none", "\\", "\"", " ", "~", "\t"]),
    ("StreamLocalBindMask ", &["0", "7", "1", "8", "-", "+", " "]),
    ("ControlPersist ", &["yes", "no", "1", "m", "No", "true", " "]),
    ("AddKeysToAgent ", &["yes", "confirm", "ask", "1", "m", " ", "none", "0"]),
    ("ForwardX11Timeout ", &["1", "m", "none", "0"]),
    ("IdentityAgent ", &["$", "{", "}", "AGENT", "none", "/", "%r", "~", "SSH_AUTH_SOCK", "%"]),
    ("ControlPath ", &["%", "h", "p", "r", "C", "k", "n", "L", "l", "d", "i", "u", "~", "/", "$", "z"]),
    ("Ciphers ", &["+", "-", "^", "aes128-ctr", ",", "*", "aes", "!", "3des-cbc"]),
    ("KexAlgorithms ", &["+", "-", "^", "curve25519-sha256", ",", "*", "ecdh-sha2-nistp256", "!"]),
    (
        "HostKeyAlgorithms ",
        &["+", "-", "^", "ssh-rsa", ",", "*", "ssh-", "!", "ed25519", "rsa-sha2-512", "ecdsa"],
    ),
    ("CASignatureAlgorithms ", &["+", "-", "^", "ssh-ed25519", ",", "*", "rsa-"]),
    ("Host ", &["w", "e", "b", "*", "?", "!", " ", "\"", "#", ","]),
    ("LogVerbose ", &["a", " ", "none", "\"\""]),
    ("FingerprintHash ", &["md5", "SHA", "sha", "256", "1"]),
];

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(500), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_line_of_odd_pieces_is_read_as_the_real_client_reads_it(
        keyword in any::<prop::sample::Index>(),
        pieces in prop::collection::vec(any::<prop::sample::Index>(), 1..7),
    ) {
        let (keyword, alphabet) = ALPHABETS[keyword.index(ALPHABETS.len())];
        let value: String = pieces.iter().map(|piece| alphabet[piece.index(alphabet.len())]).collect();
        prop_assume!(!(keyword == "ProxyJump " && value.contains("none") && value.contains('#')));
        let text = format!("{keyword}{value}\nConnectTimeout 9\n");
        let folder = tempfile::tempdir().unwrap();
        let config = folder.path().join("config");
        std::fs::write(&config, &text).unwrap();
        let ours = Snapshot::read(Some(&config), world()).unwrap().resolve("web");
        match (ours, ssh_g(&config, "web", ENV)) {
            (Ok(ours), Some(theirs)) => {
                let difference = difference(&ours.printed, &theirs);
                prop_assert!(difference.is_none(), "{:?}: {}", text, difference.unwrap());
            }
            (Err(_), None) => {}
            // 9.2 tells these errors and goes on without the list.
            (Err(rejection), Some(_)) if rejection.message.contains("leaves nothing") => {}
            (Err(rejection), Some(_)) if rejection.message.contains("negated name") => {}
            (ours, theirs) => prop_assert!(false, "{:?}: ours {:?}, theirs {:?}", text, ours.err(), theirs.is_some()),
        }
    }
}

/// Gives the number of cases: `PROPTEST_CASES` where it is set, for longer runs by hand.
fn cases(default: u32) -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}
