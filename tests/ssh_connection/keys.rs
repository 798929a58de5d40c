//! Logging in with keys: files of all types, passphrases, the agent.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Stdio};

use towline::ssh::{Error, Prompt};

use crate::bench::{Bench, Human, block_on, keygen, run};
use crate::support::server::{KEY_PASSPHRASE, Sshd, ThrowawayOptions};

fn auth_failure(error: Error) -> towline::ssh::AuthFailure {
    match error {
        Error::AuthFailed(failure) => *failure,
        other => panic!("not a failed login: {other}"),
    }
}

#[test]
fn each_type_of_key_file_logs_in_with_one_attempt() {
    let sshd = Sshd::key_only();
    for kind in ["ed25519", "ecdsa", "rsa"] {
        let ran = block_on(Bench::for_site(sshd.address(), kind).run("id -un"));
        assert_eq!((ran.text(), ran.exit), ("alice", Some(0)), "{kind}");
    }
    sshd.wait_until_idle();
    assert_eq!(sshd.connections(), 3);
    assert_eq!(sshd.session_channels(), 3);
    assert!(!sshd.log().contains("Failed publickey"), "{}", sshd.log());
}

#[test]
fn an_encrypted_key_asks_for_its_passphrase_until_it_is_right() {
    let sshd = Sshd::key_only();
    let bench = Bench::for_site(sshd.address(), "encrypted");
    let human = Human::answering(["wrong", KEY_PASSPHRASE]);
    let transport = block_on(bench.connect(human.clone())).unwrap();
    assert_eq!(transport.facts().prompts, 2);
    let path = bench.path("id_encrypted");
    assert_eq!(human.asked(), vec![Prompt::Passphrase { path: path.clone() }, Prompt::Passphrase { path }]);
    assert!(human.told().contains("wrong passphrase"));
}

#[test]
fn a_passphrase_is_asked_for_as_often_as_configured_and_never_in_vain() {
    let sshd = Sshd::key_only();
    let mut bench = Bench::for_site(sshd.address(), "encrypted");
    bench.prepend("NumberOfPasswordPrompts 2");
    let human = Human::answering(["a", "b", "c"]);
    let failure = auth_failure(block_on(bench.connect(human.clone())).unwrap_err());
    assert_eq!((human.asked().len(), failure.prompts), (2, 2));
    assert!(failure.notes.iter().any(|note| note.contains("wrong passphrase (2 tries)")), "{failure}");
    assert_eq!(failure.methods_left, ["publickey"]);

    // A key that the server does not take is never unlocked.
    let stranger = bench.path("stranger");
    run("ssh-keygen", &["-q", "-t", "ed25519", "-N", "secret", "-f", stranger.to_str().unwrap()]);
    let mut bench = Bench::for_site(sshd.address(), "ed25519");
    bench.prepend(&format!("IdentityFile {}", stranger.display()));
    let human = Human::answering(["secret"]);
    block_on(bench.connect(human.clone())).unwrap();
    assert!(human.asked().is_empty());
}

#[test]
fn batch_mode_never_asks() {
    let sshd = Sshd::second_factor();
    let mut bench = Bench::for_site(sshd.address(), "ed25519");
    bench.prepend("BatchMode yes");
    let human = Human::answering(["1"]);
    let failure = auth_failure(block_on(bench.connect(human.clone())).unwrap_err());
    assert!(human.asked().is_empty());
    assert!(failure.reason.contains("BatchMode"), "{failure}");
    assert_eq!(failure.methods_left, ["keyboard-interactive"]);
    assert_eq!(failure.accepted, ["publickey"]);
}

#[test]
fn a_file_that_is_no_key_is_named_and_others_are_still_tried() {
    let sshd = Sshd::key_only();
    let mut bench = Bench::for_site(sshd.address(), "stranger");
    let not_a_key = bench.path("notes.txt");
    std::fs::write(&not_a_key, "remember the milk\n").unwrap();
    std::fs::set_permissions(&not_a_key, std::fs::Permissions::from_mode(0o600)).unwrap();
    let open = bench.path("open_key");
    keygen(&open, "ed25519");
    std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o644)).unwrap();
    bench.prepend(&format!(
        "IdentityFile {}\nIdentityFile {}\nIdentityFile {}",
        not_a_key.display(),
        open.display(),
        bench.path("absent").display()
    ));
    let failure = auth_failure(block_on(bench.connect(Human::answering([]))).unwrap_err());
    let notes = failure.notes.join("\n");
    assert!(notes.contains(&format!("{} is not a private key", not_a_key.display())), "{notes}");
    assert!(notes.contains(&format!("{} ignored: mode 0644", open.display())), "{notes}");
    assert!(notes.contains(&format!("{} is not there", bench.path("absent").display())), "{notes}");
    assert_eq!(failure.methods_left, ["publickey"]);
}

#[test]
fn a_server_that_gives_up_first_is_quoted() {
    let sshd = Sshd::throwaway(ThrowawayOptions {
        lines: vec!["MaxAuthTries 1".to_owned()],
        ..ThrowawayOptions::default()
    });
    let mut bench = Bench::for_site(sshd.address(), "ed25519");
    bench.prepend(&format!("IdentityFile {}", bench.key("stranger").display()));
    let failure = auth_failure(block_on(bench.connect(Human::answering([]))).unwrap_err());
    assert!(failure.reason.contains("Too many authentication failures"), "{failure}");
}

/// An agent of the test's own.
struct Agent {
    process: Child,
    socket: String,
}

impl Agent {
    fn start(bench: &Bench) -> Agent {
        let socket = bench.path("agent.sock").display().to_string();
        let mut process =
            Command::new("ssh-agent").args(["-D", "-a", &socket]).stdout(Stdio::piped()).spawn().unwrap();
        // It prints its environment once it listens.
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        Agent { process, socket }
    }

    fn add(&self, key: &std::path::Path) {
        let added = Command::new("ssh-add")
            .args(["-q", key.to_str().unwrap()])
            .env("SSH_AUTH_SOCK", &self.socket)
            .status()
            .unwrap();
        assert!(added.success());
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

#[test]
fn keys_of_the_agent_log_in_and_identities_only_holds_them_back() {
    let sshd = Sshd::key_only();
    for kind in ["ed25519", "rsa", "ecdsa"] {
        let mut bench = Bench::for_site(sshd.address(), "none");
        let agent = Agent::start(&bench);
        agent.add(&bench.key(kind));
        bench.prepend(&format!("IdentityAgent {}", agent.socket));
        block_on(bench.connect(Human::answering([]))).unwrap();
        bench.prepend("IdentitiesOnly yes");
        let failure = auth_failure(block_on(bench.connect(Human::answering([]))).unwrap_err());
        assert_eq!(failure.methods_left, ["publickey"], "{kind}");
    }
}

#[test]
fn a_dead_agent_is_a_note_and_a_silent_one_an_error_that_names_its_socket() {
    let sshd = Sshd::key_only();
    let mut bench = Bench::for_site(sshd.address(), "ed25519");
    let socket = bench.path("dead.sock");
    drop(std::os::unix::net::UnixListener::bind(&socket).unwrap());
    bench.prepend(&format!("IdentityAgent {}", socket.display()));
    block_on(bench.connect(Human::answering([]))).unwrap();

    let mut bench = Bench::for_site(sshd.address(), "ed25519");
    let socket = bench.path("silent.sock");
    let listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    bench.prepend(&format!("IdentityAgent {}", socket.display()));
    let failure = auth_failure(block_on(bench.connect(Human::answering([]))).unwrap_err());
    assert!(failure.reason.contains(&socket.display().to_string()), "{failure}");
    drop(listener);
}
