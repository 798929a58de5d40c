//! What holds for any bytes at all; the fuzz targets and the test over their corpora share it.

use std::path::Path;

use ssh_config_parser::known_hosts::{KeyBlob, KnownHosts, LookupName, Verdict};
use ssh_config_parser::{Snapshot, World};

const HOSTS: &[&str] = &["web", "db.example.net", "user@10.1", "ssh://u@h:2222"];

fn world() -> World {
    World {
        home: "/home/me".into(),
        home_env: None,
        user: "me".to_owned(),
        uid: 1000,
        local_host: "here.lan".to_owned(),
        env: [("SET".into(), "/set".into())].into(),
    }
}

/// No bytes make the reader panic, the answer depends on nothing else, and flattening keeps it.
pub fn ssh_config(bytes: &[u8]) {
    let path = Path::new("config");
    let nobody = |_: &str| Vec::new();
    let snapshot = Snapshot::from_bytes(path, bytes, world());
    let flat = snapshot.flatten().ok();
    for host in HOSTS {
        let answer = snapshot.resolve_with(host, &nobody);
        assert_eq!(answer.is_ok(), snapshot.resolve_with(host, &nobody).is_ok());
        if let Err(rejection) = &answer {
            assert!(!rejection.message.is_empty());
        }
        let Some(flat) = &flat else {
            // What is wrong for every host is wrong for this one.
            assert!(answer.is_err());
            continue;
        };
        let again = Snapshot::from_bytes(path, &flat.text, world()).resolve_with(host, &nobody);
        match (&answer, &again) {
            (Ok(answer), Ok(again)) => assert_eq!(answer.printed, again.printed),
            (answer, again) => assert_eq!(answer.is_err(), again.is_err()),
        }
    }
}

/// No bytes make the reader panic; a line counts, is told, or is a comment; what is preferred is only reordered.
pub fn known_hosts(bytes: &[u8]) {
    let known = KnownHosts::parse(Path::new("known_hosts"), bytes);
    let lines = bytes.split(|byte| *byte == b'\n').count() as u64;
    assert!(known.notes().iter().all(|note| (1..=lines).contains(&note.line)));
    let blob = [b"\0\0\0\x0bssh-ed25519\0\0\0\x20".as_slice(), &[7; 32]].concat();
    // The bytes are a key, whatever stands in the file.
    let Ok(key) = KeyBlob::from_blob(blob) else { panic!("no key") };
    for name in [LookupName::new("web", 22, None), LookupName::new("web", 2222, None)] {
        match known.judge_key(&name, &key) {
            Verdict::Changed { lines } => assert!(lines.iter().all(|line| line.key != key)),
            Verdict::Ok { line } | Verdict::Revoked { line } => assert_eq!(line.key, key),
            Verdict::New => {}
        }
        let mut default: Vec<String> =
            ["ssh-ed25519", "rsa-sha2-512", "ecdsa-sha2-nistp256"].map(str::to_owned).to_vec();
        let mut preferred = known.prefer_algorithms(&name, &default);
        preferred.sort();
        default.sort();
        assert_eq!(preferred, default);
    }
    if let Ok(key) = KeyBlob::from_blob(bytes.to_vec()) {
        assert_eq!(KeyBlob::from_text(key.key_type().as_bytes(), key.to_base64().as_bytes()), Ok(key));
    }
}
