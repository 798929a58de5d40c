//! The fuzzing corpora of the wire, and small changes of them, run as plain tests.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    missing_docs,
    reason = "tests fail by panicking"
)]

mod properties;

use std::path::Path;

use proptest::prelude::*;
use proptest::sample::Index;

fn corpus(target: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus").join(target);
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(!files.is_empty());
    files.iter().map(|file| std::fs::read(file).unwrap()).collect()
}

#[test]
fn every_input_of_the_frame_corpus_keeps_its_promises() {
    corpus("frame").iter().for_each(|bytes| properties::frame(bytes));
}

#[test]
fn every_input_of_the_message_corpus_keeps_its_promises() {
    corpus("message").iter().for_each(|bytes| properties::message(bytes));
}

#[test]
fn every_input_of_the_endpoint_corpus_keeps_its_promises() {
    corpus("endpoint").iter().for_each(|bytes| properties::endpoint(bytes));
}

proptest! {
    #[test]
    fn an_input_with_changed_bytes_keeps_the_promises(
        pick in any::<Index>(),
        changes in proptest::collection::vec((any::<Index>(), any::<u8>()), 0..6),
    ) {
        let targets: [(&str, fn(&[u8])); 3] = [
            ("frame", properties::frame), ("message", properties::message), ("endpoint", properties::endpoint),
        ];
        for (target, property) in targets {
            let corpus = corpus(target);
            let mut bytes = corpus[pick.index(corpus.len())].clone();
            for (place, byte) in &changes {
                let place = place.index(bytes.len());
                bytes[place] = *byte;
            }
            property(&bytes);
        }
    }

    #[test]
    fn any_script_keeps_the_promises_of_an_endpoint(script in proptest::collection::vec(any::<u8>(), 0..400)) {
        properties::endpoint(&script);
    }
}
