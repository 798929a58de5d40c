//! known_hosts lines and verdicts, as tables; what a line matches is also asked of `ssh-keygen -F`.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    missing_docs,
    reason = "tests fail by panicking"
)]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use proptest::prelude::*;
use ssh_config_parser::known_hosts::{
    CertificateFacts, CertificateVerdict, KeyBlob, KnownHosts, ListError, LookupName, Verdict, WriteError,
    append, revoked_by_list,
};

fn field(bytes: &[u8]) -> Vec<u8> {
    [&(bytes.len() as u32).to_be_bytes(), bytes].concat()
}

fn ed25519(seed: u8) -> KeyBlob {
    KeyBlob::from_blob([field(b"ssh-ed25519"), field(&[seed; 32])].concat()).unwrap()
}

fn rsa(seed: u8) -> KeyBlob {
    let modulus = [&[0x40][..], &[seed; 255]].concat();
    KeyBlob::from_blob([field(b"ssh-rsa"), field(&[1, 0, 1]), field(&modulus)].concat()).unwrap()
}

fn ecdsa(bits: usize, seed: u8) -> KeyBlob {
    let curve = format!("nistp{bits}");
    let point = [&[0x04][..], &vec![seed; 2 * bits.div_ceil(8)]].concat();
    let blob =
        [field(format!("ecdsa-sha2-{curve}").as_bytes()), field(curve.as_bytes()), field(&point)].concat();
    KeyBlob::from_blob(blob).unwrap()
}

fn text(key: &KeyBlob) -> String {
    format!("{} {}", key.key_type(), key.to_base64())
}

fn known(text: &str) -> KnownHosts {
    KnownHosts::parse(Path::new("known_hosts"), text.as_bytes())
}

fn name(host: &str) -> LookupName {
    match host.rsplit_once(':') {
        Some((host, port)) if !host.contains(':') => LookupName::new(host, port.parse().unwrap(), None),
        _ => LookupName::new(host, 22, None),
    }
}

/// `ok LINE`, `new`, `changed LINES` or `revoked LINE`.
fn verdict(text: &str, host: &LookupName, key: &KeyBlob) -> String {
    match known(text).judge_key(host, key) {
        Verdict::Ok { line } => format!("ok {}", line.line),
        Verdict::New => "new".to_owned(),
        Verdict::Revoked { line } => format!("revoked {}", line.line),
        Verdict::Changed { lines } => {
            let lines: Vec<String> = lines.iter().map(|place| place.line.to_string()).collect();
            format!("changed {}", lines.join(" "))
        }
    }
}

/// Replaces A and B by ed25519 keys, R by an RSA key.
fn filled(lines: &str) -> String {
    let key = |word: &str| {
        let letter = word.trim_end_matches('\r');
        let key = match letter {
            "A" => text(&ed25519(1)),
            "B" => text(&ed25519(2)),
            "R" => text(&rsa(3)),
            other => other.to_owned(),
        };
        key + &word[letter.len()..]
    };
    let line = |line: &str| {
        let words: Vec<String> = line.split(' ').map(key).collect();
        words.join(" ")
    };
    lines.split('\n').map(line).collect::<Vec<_>>().join("\n")
}

#[test]
fn plain_lines_are_judged_as_the_page_says() {
    for (lines, host, expected) in [
        ("WEB.Example A", "web.example", "ok 1"),
        ("web.example A", "WEB.Example", "ok 1"),
        ("db A", "web", "new"),
        ("web B", "web", "changed 1"),
        ("web R", "web", "changed 1"),
        ("web B\nweb R\nweb A", "web", "ok 3"),
        ("web B\nweb R", "web", "changed 1 2"),
        ("* A", "web:2222", "ok 1"),
        ("[web]:* A", "web:2222", "ok 1"),
        ("[web]:2222 A", "web:2222", "ok 1"),
        ("[web]:2222 A", "web", "new"),
        ("*.example.com A", "web.example.com:2222", "ok 1"),
        ("*.example.com B", "web.example.com:2222", "new"),
        ("[web]:2222 B\nweb A", "web:2222", "changed 1"),
        ("!web,* A", "web", "new"),
        ("*,!web A", "web", "new"),
        ("!db A", "web", "new"),
        ("!db,w?b A", "web", "ok 1"),
        ("web,192.0.2.1 A", "192.0.2.1", "ok 1"),
        ("2001:db8::1 A", "2001:db8::1", "ok 1"),
        ("@revoked * A\nweb A", "web", "revoked 1"),
        ("web A\n@revoked db A", "web", "ok 1"),
        ("web A\n@revoked web B", "web", "ok 1"),
        ("@revoked web A", "web:2222", "revoked 1"),
        ("@revoked\tweb A", "web", "revoked 1"),
        ("@cert-authority * A", "web", "new"),
        ("@cert-authority * A\nweb A", "web", "ok 2"),
        ("@cert-authority * A\nweb B", "web", "changed 2"),
        ("@revoked @revoked web A", "web", "new"),
        ("@Revoked web A", "web", "new"),
        ("@other web A", "web", "new"),
        ("web, db A", "web", "new"),
        ("  \t web A comment # x", "web", "ok 1"),
        ("# c\r\n\r\nweb A\r\nweb B\r", "web", "ok 3"),
        ("web ssh-ed25519 AAAA\nweb A", "web", "ok 2"),
        ("web 1024 65537 123456789\nweb A", "web", "ok 2"),
        ("web\nweb A", "web", "ok 2"),
    ] {
        let lines = filled(lines);
        assert_eq!(verdict(&lines, &name(host), &ed25519(1)), expected, "{lines}\n{host}");
    }
}

#[test]
fn an_alias_is_looked_up_without_a_port() {
    let alias = LookupName::new("web", 2222, Some("Cluster"));
    assert_eq!(alias.text(), "cluster");
    assert_eq!(verdict(&filled("cluster A"), &alias, &ed25519(1)), "ok 1");
    assert_eq!(verdict(&filled("web A"), &alias, &ed25519(1)), "new");
    assert_eq!(verdict(&filled("[cluster]:2222 A"), &alias, &ed25519(1)), "new");
}

#[test]
fn a_hashed_name_is_one_name_in_lower_case() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("known_hosts");
    append(&file, &name("web:2222"), &ed25519(1), true).unwrap();
    append(&file, &name("db"), &ed25519(1), true).unwrap();
    let lines = fs::read_to_string(&file).unwrap();
    assert!(!lines.contains("web") && lines.starts_with("|1|"));
    assert_eq!(verdict(&lines, &name("WEB:2222"), &ed25519(1)), "ok 1");
    assert_eq!(verdict(&lines, &name("db"), &ed25519(1)), "ok 2");
    assert_eq!(verdict(&lines, &name("web:2223"), &ed25519(1)), "new");
    // Hashed by hand of the name in capitals: no look-up name is ever in capitals.
    let salt = &lines[3..31];
    let wrong = format!("|1|{salt}|{salt} {}", text(&ed25519(1)));
    assert_eq!(verdict(&wrong, &name("web:2222"), &ed25519(1)), "new");
}

#[test]
fn ignored_lines_are_told_with_their_place_and_a_long_line_is_read() {
    let key = text(&ed25519(1));
    let lines = [
        "@other web x".to_owned(),
        "@revoked @revoked web x".to_owned(),
        "web, db ssh-ed25519 AAAA".to_owned(),
        "web".to_owned(),
        "web ssh-ed25519".to_owned(),
        format!("web ssh-rsa {}", ed25519(1).to_base64()),
        format!("web {}", &key[..key.len() - 4]),
        format!("web {}AAAA", key),
        "web 1024 65537 123".to_owned(),
        format!("|1|AAAA|AAAA {key}"),
        format!("|2|x {key}"),
        "web ssh-new AAAA".to_owned(),
        format!("{},web {key}", "x".repeat(1000)),
        format!("web {key} {}", "c".repeat(100_000)),
        "# comment".to_owned(),
        String::new(),
    ];
    let known = known(&lines.join("\n"));
    let told: Vec<u64> = known.notes().iter().map(|note| note.line).collect();
    assert_eq!(told, (1..=12).collect::<Vec<u64>>());
    assert!(matches!(known.judge_key(&name("web"), &ed25519(1)), Verdict::Ok { line } if line.line == 13));
}

fn certificate() -> CertificateFacts {
    CertificateFacts {
        key: ed25519(1),
        ca: ed25519(9),
        host: true,
        valid_after: 100,
        valid_before: 200,
        principals: vec!["web.example".to_owned()],
        critical_options: Vec::new(),
        signature_algorithm: "ssh-ed25519".to_owned(),
    }
}

fn certified(lines: &str, host: &LookupName, facts: &CertificateFacts, now: u64) -> String {
    let lines = lines.replace("CA", &text(&ed25519(9))).replace("KEY", &text(&ed25519(1)));
    match known(&lines).judge_certificate(host, facts, now, &["ssh-ed25519".to_owned()]) {
        CertificateVerdict::Ok { line } => format!("ok {}", line.line),
        CertificateVerdict::Revoked { line } => format!("revoked {}", line.line),
        CertificateVerdict::JudgePlainKey { reason } => reason,
    }
}

#[test]
fn a_certificate_counts_only_when_all_of_it_is_right() {
    let web = name("web.example");
    let judge = |lines: &str| certified(lines, &web, &certificate(), 150);
    assert_eq!(judge("@cert-authority *.example CA"), "ok 1");
    assert_eq!(judge("web.example KEY\n@cert-authority *.example CA"), "ok 2");
    assert_eq!(judge("web.example CA"), "no known authority signed the certificate");
    assert_eq!(judge("@cert-authority other CA"), "no known authority signed the certificate");
    assert_eq!(judge("@cert-authority * CA\n@revoked * CA"), "revoked 2");
    assert_eq!(judge("@cert-authority * CA\n@revoked * KEY"), "revoked 2");
    assert_eq!(judge("@cert-authority * CA\n@revoked db KEY"), "ok 1");
    let flawed = |change: fn(&mut CertificateFacts), now| {
        let mut facts = certificate();
        change(&mut facts);
        certified("@cert-authority * CA", &web, &facts, now)
    };
    assert_eq!(flawed(|_| (), 100), "ok 1");
    assert!(flawed(|_| (), 99).contains("not valid before"));
    assert!(flawed(|_| (), 200).contains("expired"));
    assert!(flawed(|facts| facts.host = false, 150).contains("not a host certificate"));
    assert!(flawed(|facts| facts.principals.clear(), 150).contains("names no host"));
    assert!(flawed(|facts| facts.principals = vec!["db".into()], 150).contains("does not name"));
    assert_eq!(flawed(|facts| facts.principals = vec!["*.example".into()], 150), "ok 1");
    assert!(flawed(|facts| facts.critical_options = vec!["x".into()], 150).contains("critical"));
    assert!(flawed(|facts| facts.signature_algorithm = "ssh-rsa".into(), 150).contains("not allowed"));
    let elsewhere = LookupName::new("web.example", 2222, None);
    assert_eq!(certified("@cert-authority [web.example]:2222 CA", &elsewhere, &certificate(), 150), "ok 1");
    assert_eq!(certified("@cert-authority web.example CA", &elsewhere, &certificate(), 150), "ok 1");
}

#[test]
fn known_types_are_asked_for_first() {
    let default: Vec<String> = [
        "ssh-ed25519-cert-v01@openssh.com",
        "ssh-ed25519",
        "ecdsa-sha2-nistp256",
        "ecdsa-sha2-nistp384",
        "rsa-sha2-512",
        "rsa-sha2-256",
    ]
    .map(str::to_owned)
    .to_vec();
    let prefer = |lines: &str| known(lines).prefer_algorithms(&name("web"), &default).join(" ");
    let plain = default.join(" ");
    assert_eq!(prefer(""), plain);
    assert_eq!(prefer(&format!("db {}", text(&rsa(1)))), plain);
    assert_eq!(prefer(&format!("web {}\nweb {}", text(&rsa(1)), text(&ed25519(1)))), plain);
    assert_eq!(
        prefer(&format!("web {}", text(&rsa(1)))),
        "rsa-sha2-512 rsa-sha2-256 ssh-ed25519-cert-v01@openssh.com ssh-ed25519 ecdsa-sha2-nistp256 ecdsa-sha2-nistp384"
    );
    assert!(
        prefer(&format!("web {}", text(&ecdsa(384, 1)))).starts_with("ecdsa-sha2-nistp384 ssh-ed25519-cert")
    );
    let authority = format!("web {}\n@cert-authority * {}", text(&rsa(1)), text(&ed25519(9)));
    assert!(
        prefer(&authority)
            .starts_with("ssh-ed25519-cert-v01@openssh.com rsa-sha2-512 rsa-sha2-256 ssh-ed25519 ")
    );
    let revoked = format!("web {0}\n@revoked * {0}", text(&rsa(1)));
    assert_eq!(prefer(&revoked), plain);
}

#[test]
fn recording_appends_one_line_and_touches_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("new/known_hosts");
    append(&file, &name("WEB"), &ed25519(1), false).unwrap();
    append(&file, &name("web:2222"), &ed25519(2), false).unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    assert_eq!((mode(&file), mode(file.parent().unwrap())), (0o600, 0o700));
    let written = format!("web {}\n[web]:2222 {}\n", text(&ed25519(1)), text(&ed25519(2)));
    assert_eq!(fs::read_to_string(&file).unwrap(), written);
    let odd = b"@odd line\xff\r\n# c".to_vec();
    fs::write(&file, &odd).unwrap();
    append(&file, &name("db"), &rsa(1), false).unwrap();
    let expected = [odd, format!("\ndb {}\n", text(&rsa(1))).into_bytes()].concat();
    assert_eq!(fs::read(&file).unwrap(), expected);
    for illegal in ["a@b", "a?", "*", "a#b", "[a]", "a|b", "a'b", "a\"b", "a\\b", "a b", "a,b", "!a"] {
        let name = LookupName::new(illegal, 2222, None);
        let error = append(&file, &name, &ed25519(1), true).unwrap_err();
        assert!(matches!(error, WriteError::Name { .. }), "{illegal}");
    }
    assert_eq!(fs::read(&file).unwrap(), expected);
}

#[test]
fn many_writers_at_once_lose_no_line() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("known_hosts");
    fs::write(&file, "# no newline").unwrap();
    std::thread::scope(|scope| {
        for seed in 0..16 {
            let file = &file;
            scope.spawn(move || append(file, &name(&format!("host{seed}")), &ed25519(seed), false).unwrap());
        }
    });
    let known = KnownHosts::load(std::slice::from_ref(&file), &[]);
    assert!(known.notes().is_empty());
    for seed in 0..16 {
        let verdict = known.judge_key(&name(&format!("host{seed}")), &ed25519(seed));
        assert!(matches!(verdict, Verdict::Ok { .. }), "{verdict:?}");
    }
    assert_eq!(fs::read_to_string(&file).unwrap().lines().count(), 17);
}

#[test]
fn missing_files_are_skipped_and_unreadable_ones_noted() {
    let folder = tempfile::tempdir().unwrap();
    let user = folder.path().join("user");
    fs::write(&user, format!("web {}\n", text(&ed25519(1)))).unwrap();
    let files = [folder.path().join("gone"), user];
    // A folder cannot be read as a file, whoever asks.
    let known = KnownHosts::load(&files, &[folder.path().to_path_buf()]);
    assert!(matches!(known.judge_key(&name("web"), &ed25519(1)), Verdict::Ok { .. }));
    assert_eq!(known.notes().len(), 1);
    assert_eq!(known.notes()[0].file, folder.path());
    let none: &[PathBuf] = &[];
    assert_eq!(KnownHosts::load(none, none).judge_key(&name("web"), &ed25519(1)), Verdict::New);
}

#[test]
fn a_list_of_revoked_keys_refuses_its_keys_and_a_bad_list_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let list = |content: &[u8]| {
        let file = folder.path().join("list");
        fs::write(&file, content).unwrap();
        vec![file]
    };
    let files = list(format!("# c\n\n  {} comment\r\n{}", text(&rsa(1)), text(&ed25519(9))).as_bytes());
    assert!(revoked_by_list(&files, &rsa(1), None).unwrap());
    assert!(revoked_by_list(&files, &ed25519(1), Some(&ed25519(9))).unwrap());
    assert!(!revoked_by_list(&files, &ed25519(1), Some(&rsa(2))).unwrap());
    assert!(!revoked_by_list(&[], &ed25519(1), None).unwrap());
    let error = |content: &[u8]| revoked_by_list(&list(content), &ed25519(1), None).unwrap_err();
    assert!(matches!(error(b"SSHKRL\n\0\0\0\0\x01"), ListError::Binary { .. }));
    assert!(matches!(error(b"# c\nweb ssh-ed25519 AAAA"), ListError::Line { line: 2, .. }));
    let gone = [folder.path().join("gone")];
    assert!(matches!(revoked_by_list(&gone, &rsa(1), None), Err(ListError::Unreadable { .. })));
}

#[test]
fn fingerprints_are_those_of_ssh_keygen() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("key.pub");
    for key in [ed25519(1), rsa(2), ecdsa(256, 7)] {
        // A point need not lie on its curve for its digest to be taken, but the tool checks; skip where it does.
        fs::write(&file, text(&key)).unwrap();
        for (hash, ours) in [("sha256", key.sha256_fingerprint()), ("md5", key.md5_fingerprint())] {
            let output = keygen().args(["-l", "-E", hash, "-f"]).arg(&file).output().unwrap();
            if output.status.success() {
                let text = String::from_utf8(output.stdout).unwrap();
                assert_eq!(text.split(' ').nth(1), Some(ours.as_str()));
            } else {
                assert!(key.key_type().starts_with("ecdsa"));
            }
        }
    }
}

fn keygen() -> Command {
    assert!(
        Command::new("ssh-keygen").arg("-?").output().is_ok(),
        "the real tool is the judge: apt-get install openssh-client"
    );
    Command::new("ssh-keygen")
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_line_matches_the_names_that_ssh_keygen_finds(
        patterns in prop::collection::vec("!?[wx*?]{1,3}(\\.[a*])?", 1..4),
        bracketed in any::<bool>(),
        names in prop::collection::vec("[wxWX]{1,3}(\\.a)?", 1..3),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("known_hosts");
        let list = patterns.join(",");
        let list = if bracketed { format!("{list},[w*]:*") } else { list };
        let lines = format!("{list} {}\n", text(&ed25519(1)));
        fs::write(&file, &lines).unwrap();
        for host in names {
            for shown in [host.clone(), format!("[{host}]:2222")] {
                let found = keygen().arg("-F").arg(shown.to_lowercase()).arg("-f").arg(&file).output().unwrap();
                let theirs = found.status.success() && !found.stdout.is_empty();
                // The alias keeps the second look without a port out of it.
                let ours = verdict(&lines, &LookupName::new("", 22, Some(&shown)), &ed25519(1)) == "ok 1";
                prop_assert_eq!(ours, theirs, "{} {}", lines, shown);
            }
        }
    }
}
