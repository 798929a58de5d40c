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
    #![proptest_config(ProptestConfig { cases: cases(250), failure_persistence: None, ..ProptestConfig::default() })]

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

/// Gives the number of cases: `PROPTEST_CASES` where it is set, for longer runs by hand.
fn cases(default: u32) -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}
