//! Every case of `ssh_config_cases/`: real files with the answers of the real `ssh -G`.
//!
//! The README beside them tells their form. The files that belong below `~/.ssh` are put there, in a folder of
//! their own, because the home folder is the user database's and cannot be moved.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    missing_docs,
    reason = "tests fail by panicking"
)]

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use serde_json::Value;
use sha1::{Digest, Sha1};
use ssh_config_parser::{Rejection, Snapshot, World};

/// Keywords of which the README says that their defaults are not compared.
const UNCOMPARED_DEFAULTS: &[&str] = &[
    "ciphers",
    "macs",
    "kexalgorithms",
    "hostkeyalgorithms",
    "pubkeyacceptedalgorithms",
    "hostbasedacceptedalgorithms",
    "casignaturealgorithms",
    "identityfile",
    // These follow from the name that is asked for, or from other keywords.
    "host",
    "updatehostkeys",
    // The answers leave this one out.
    "ignoreunknown",
];

struct Case {
    folder: tempfile::TempDir,
    home_folder: Option<tempfile::TempDir>,
    world: World,
    expected: Value,
}

impl Case {
    /// Copies a case, replaces its place holders, sets modes and links.
    fn prepare(source: &Path) -> Case {
        let folder = tempfile::tempdir().unwrap();
        let mut world = World::from_system().unwrap();
        let home_folder = source.join("home-ssh").is_dir().then(|| {
            let ssh = world.home.join(".ssh");
            fs::create_dir_all(&ssh).unwrap();
            tempfile::tempdir_in(ssh).unwrap()
        });
        let mut case = Case { folder, home_folder, world: world.clone(), expected: Value::Null };
        case.copy(source, case.folder.path());
        let text = fs::read(source.join("expected.json")).unwrap();
        case.expected = serde_json::from_slice(&case.fill(&text)).unwrap();
        for (name, mode) in entries(&case.expected["modes"]) {
            let mode = u32::from_str_radix(&mode, 8).unwrap();
            let path = case.folder.path().join(name);
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        }
        for (name, target) in entries(&case.expected["links"]) {
            let link = case.folder.path().join(name);
            fs::create_dir_all(link.parent().unwrap()).unwrap();
            std::os::unix::fs::symlink(target, link).unwrap();
        }
        for (name, value) in entries(&case.expected["env"]) {
            world.env.insert(name.into(), value.into());
        }
        case.world = world;
        case
    }

    fn copy(&self, source: &Path, target: &Path) {
        for entry in fs::read_dir(source).unwrap() {
            let entry = entry.unwrap();
            let name = entry.file_name();
            if name == "home-ssh" {
                let home = self.home_folder.as_ref().unwrap().path().to_path_buf();
                self.copy(&entry.path(), &home);
            } else if entry.file_type().unwrap().is_dir() {
                let folder = target.join(&name);
                fs::create_dir(&folder).unwrap();
                fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).unwrap();
                self.copy(&entry.path(), &folder);
            } else if name != "expected.json" {
                let path = target.join(&name);
                fs::write(&path, self.fill(&fs::read(entry.path()).unwrap())).unwrap();
                fs::set_permissions(path, fs::Permissions::from_mode(0o644)).unwrap();
            }
        }
    }

    fn fill(&self, text: &[u8]) -> Vec<u8> {
        let world = &self.world;
        let short = world.local_host.split('.').next().unwrap();
        let sub = self.home_folder.as_ref().map(|home| home.path().file_name().unwrap().to_owned());
        let values: [(&str, OsString); 7] = [
            ("@DIR@", self.folder.path().into()),
            ("@SSHSUB@", sub.unwrap_or_default()),
            ("@HOME@", world.home.clone().into()),
            ("@USER@", world.user.clone().into()),
            ("@UID@", world.uid.to_string().into()),
            ("@LOCALHOST@", world.local_host.clone().into()),
            ("@LOCALSHORT@", short.into()),
        ];
        let mut text = text.to_vec();
        for (holder, value) in values {
            text = replace(&text, holder.as_bytes(), value.as_bytes());
        }
        self.fill_hashes(&text)
    }

    fn fill_hashes(&self, text: &[u8]) -> Vec<u8> {
        let text = String::from_utf8_lossy(text).into_owned();
        let Some(start) = text.find("@C{") else {
            return OsString::from(text).into_vec();
        };
        let end = start + text[start..].find("}@").unwrap();
        let parts = text[start + 3..end].replace('|', "");
        let digest = Sha1::digest(format!("{}{parts}", self.world.local_host));
        let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        self.fill_hashes([&text[..start], &hex, &text[end + 2..]].concat().as_bytes())
    }
}

fn entries(object: &Value) -> BTreeMap<String, String> {
    let object = object.as_object().into_iter().flatten();
    object.map(|(key, value)| (key.clone(), value.as_str().unwrap().to_owned())).collect()
}

fn replace(text: &[u8], from: &[u8], to: &[u8]) -> Vec<u8> {
    let mut replaced = Vec::new();
    let mut at = 0;
    while at < text.len() {
        if text[at..].starts_with(from) {
            replaced.extend_from_slice(to);
            at += from.len();
        } else {
            replaced.push(text[at]);
            at += 1;
        }
    }
    replaced
}

/// Says how an answer differs from the expected one.
fn difference(case: &Case, query: &Value, defaults: &Value) -> Option<String> {
    let config = case.folder.path().join("config");
    let host = query["host"].as_str().unwrap();
    let answer =
        Snapshot::read(Some(&config), case.world.clone()).and_then(|snapshot| snapshot.resolve(host));
    match (answer, &query["error"]) {
        (Ok(resolved), Value::Null) => {
            let got = resolved.to_json();
            let mut keys: Vec<&String> = got.as_object().unwrap().keys().collect();
            keys.extend(query["values"].as_object().unwrap().keys());
            keys.into_iter().find_map(|key| {
                let expected = match &query["values"][key] {
                    Value::Null if UNCOMPARED_DEFAULTS.contains(&key.as_str()) => return None,
                    Value::Null => &defaults[key],
                    expected => expected,
                };
                (got[key] != *expected).then(|| format!("{key}: got {}, expected {expected}", got[key]))
            })
        }
        (Err(rejection), error @ Value::Object(_)) => rejected(&rejection, error),
        (Ok(_), error) => Some(format!("resolved, expected {error}")),
        (Err(rejection), _) => Some(format!("rejected: {rejection}")),
    }
}

fn rejected(rejection: &Rejection, expected: &Value) -> Option<String> {
    let got = rejection.to_json();
    let kinds = expected["kind"].as_array().unwrap();
    let name = got["file"].as_str().map(|file| Path::new(file).file_name().unwrap());
    let file = expected["file"].as_str();
    let same = kinds.contains(&got["reason"])
        && (file.is_none() || name == file.map(OsStr::new))
        && (expected["line"].is_null() || expected["line"] == got["line"]);
    (!same).then(|| format!("got {got}, expected {expected}"))
}

#[test]
fn every_case_is_answered_as_the_real_client_does() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/ssh_config_cases");
    let world = World::from_system().unwrap();
    let defaults = Snapshot::from_bytes(Path::new("config"), b"", world).resolve("web").unwrap().to_json();
    let (mut cases, mut queries, mut failures) = (0, 0, Vec::new());
    for entry in fs::read_dir(root).unwrap() {
        let path = entry.unwrap().path();
        if !path.is_dir() {
            continue;
        }
        cases += 1;
        let case = Case::prepare(&path);
        for query in case.expected["queries"].as_array().unwrap() {
            queries += 1;
            if let Some(why) = difference(&case, query, &defaults) {
                let name = path.file_name().unwrap().to_string_lossy().into_owned();
                failures.push(format!("{name} {}: {why}", query["host"]));
            }
        }
        for name in case.expected["must_not_exist"].as_array().into_iter().flatten() {
            assert!(!case.folder.path().join(name.as_str().unwrap()).exists());
        }
    }
    assert!(cases >= 88 && queries >= 88, "{cases} cases, {queries} queries");
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
