//! The corpora of the fuzz targets, as plain tests.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    missing_docs,
    reason = "tests fail by panicking"
)]

#[path = "support/properties.rs"]
mod properties;

use std::path::Path;

use proptest::prelude::*;

fn corpus(target: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus").join(target);
    let inputs: Vec<Vec<u8>> = std::fs::read_dir(&folder)
        .unwrap()
        .map(|entry| std::fs::read(entry.unwrap().path()).unwrap())
        .collect();
    assert!(!inputs.is_empty(), "{}", folder.display());
    inputs
}

#[test]
fn every_ssh_config_of_the_corpus_keeps_its_promises() {
    corpus("ssh_config").iter().for_each(|bytes| properties::ssh_config(bytes));
}

#[test]
fn every_known_hosts_file_of_the_corpus_keeps_its_promises() {
    corpus("known_hosts").iter().for_each(|bytes| properties::known_hosts(bytes));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_keep_the_promises(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        properties::ssh_config(&bytes);
        properties::known_hosts(&bytes);
    }

    #[test]
    fn a_corpus_file_with_changed_bytes_keeps_the_promises(
        pick in any::<prop::sample::Index>(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
    ) {
        for (target, check) in [
            ("ssh_config", properties::ssh_config as fn(&[u8])),
            ("known_hosts", properties::known_hosts as fn(&[u8])),
        ] {
            let corpus = corpus(target);
            let mut bytes = corpus[pick.index(corpus.len())].clone();
            for (place, byte) in &changes {
                if !bytes.is_empty() {
                    let place = place.index(bytes.len());
                    bytes[place] = *byte;
                }
            }
            check(&bytes);
        }
    }
}
