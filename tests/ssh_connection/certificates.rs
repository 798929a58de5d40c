//! Certificates of hosts and of users.

use std::path::{Path, PathBuf};

use towline::ssh::{Error, Prompt};

use crate::bench::{Bench, Human, block_on, fingerprint, keygen, public, run};
use crate::support::server::{Sshd, ThrowawayOptions};

/// An authority and a host key in a scratch folder that outlives the server.
struct Authority {
    dir: tempfile::TempDir,
}

impl Authority {
    fn new() -> Authority {
        let dir = tempfile::tempdir_in("/tmp").unwrap();
        keygen(&dir.path().join("ca"), "ed25519");
        keygen(&dir.path().join("host"), "ed25519");
        Authority { dir }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn sign(&self, key: &Path, arguments: &[&str]) {
        let (ca, key) = (self.path("ca"), key.display().to_string());
        let mut all = vec!["-q", "-s", ca.to_str().unwrap(), "-I", "test"];
        all.extend(arguments);
        all.push(&key);
        run("ssh-keygen", &all);
    }

    /// A server that shows the host key with a certificate made with `arguments`.
    fn server(&self, arguments: &[&str]) -> Sshd {
        self.sign(&self.path("host.pub"), arguments);
        Sshd::throwaway(ThrowawayOptions {
            lines: vec![
                format!("HostKey {}", self.path("host").display()),
                format!("HostCertificate {}", self.path("host-cert.pub").display()),
                format!("TrustedUserCAKeys {}", self.path("ca.pub").display()),
            ],
            ..ThrowawayOptions::default()
        })
    }

    fn trusted(&self, bench: &Bench, more: &str) {
        bench.know(&format!("@cert-authority * {}\n{more}\n", public(&self.path("ca.pub"))));
    }
}

const HOST: [&str; 5] = ["-h", "-n", "127.0.0.1", "-V", "+1d"];

#[test]
fn a_host_certificate_of_a_known_authority_needs_no_question() {
    let authority = Authority::new();
    let sshd = authority.server(&HOST);
    let bench = Bench::for_site(sshd.address(), "ed25519");
    authority.trusted(&bench, "");
    let transport = block_on(bench.connect(Human::answering([]))).unwrap();
    assert_eq!(transport.facts().host_key_sha256, fingerprint(&authority.path("host.pub")));
}

#[test]
fn a_certificate_that_counts_for_nothing_says_why_in_the_question() {
    let user: [&str; 4] = ["-n", "127.0.0.1", "-V", "+1d"];
    let cases: [(&[&str], &str); 4] = [
        (&["-h", "-n", "127.0.0.1", "-V", "20200101:20200102"], "expired"),
        (&["-h", "-n", "elsewhere", "-V", "+1d"], "does not name"),
        (&user, "host"),
        (&["-h", "-n", "127.0.0.1", "-V", "+1d", "-O", "critical:odd=1"], "critical"),
    ];
    for (arguments, word) in cases {
        let authority = Authority::new();
        let sshd = authority.server(arguments);
        let bench = Bench::for_site(sshd.address(), "ed25519");
        authority.trusted(&bench, "");
        let human = Human::answering(["no"]);
        let error = block_on(bench.connect(human.clone())).unwrap_err();
        // sshd itself may decline to show an unfit certificate; then there is nothing to explain.
        let Error::HostKeyUnknown(refusal) = error else { panic!("{word}: {error}") };
        let Prompt::HostKey { note, .. } = human.asked().remove(0) else { panic!("no question") };
        let note = note.unwrap_or_else(|| panic!("{word}: no certificate was shown"));
        assert!(note.contains(word), "{word}: {note}");
        assert!(refusal.detail.unwrap().contains(&note));
    }
}

#[test]
fn case_047_a_revoked_key_inside_a_good_certificate_is_refused() {
    let authority = Authority::new();
    let sshd = authority.server(&HOST);
    for revoked in ["host.pub", "ca.pub"] {
        let bench = Bench::for_site(sshd.address(), "ed25519");
        authority.trusted(&bench, &format!("@revoked * {}", public(&authority.path(revoked))));
        let error = block_on(bench.connect(Human::answering(["yes"]))).unwrap_err();
        assert!(matches!(error, Error::HostKeyRevoked(_)), "{revoked}: {error}");
    }
    sshd.wait_until_idle();
    assert!(!sshd.log().contains("userauth-request"));
}

#[test]
fn a_user_certificate_beside_its_key_logs_in() {
    let authority = Authority::new();
    let sshd = authority.server(&HOST);
    for kind in ["ed25519", "rsa", "ecdsa"] {
        let mut bench = Bench::for_site(sshd.address(), "none");
        authority.trusted(&bench, "");
        let key = bench.path("certified");
        keygen(&key, kind);
        authority.sign(&key.with_extension("pub"), &["-n", "alice", "-V", "+1d"]);
        bench.prepend(&format!("IdentityFile {}", key.display()));
        block_on(bench.connect(Human::answering([]))).unwrap_or_else(|error| panic!("{kind}: {error}"));

        // The same through CertificateFile, with the certificate elsewhere.
        let elsewhere = bench.path("elsewhere.pub");
        std::fs::rename(bench.path("certified-cert.pub"), &elsewhere).unwrap();
        assert!(block_on(bench.connect(Human::answering([]))).is_err());
        bench.prepend(&format!("CertificateFile {}", elsewhere.display()));
        block_on(bench.connect(Human::answering([]))).unwrap();
    }
}
