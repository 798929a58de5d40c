//! What a person at a terminal is asked before a line opens, and what happens where nobody can be asked.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use portable_pty::CommandBuilder;

use crate::support::home::SITE;
use crate::support::server::{KEY_PASSPHRASE, PASSCODE, PASSWORD, identity, state_directory};
use crate::support::{Auth, PATIENCE, Pty, Sshd, TempHome, ThrowawayOptions, census, run_json, wait_for};

const MENU: &str = "Passcode or option (1-2): ";

/// A server that lets people in this way, with more options of the second factor and more lines of sshd.
fn server(auth: Auth, factor: &str, lines: &[&str]) -> Sshd {
    Sshd::throwaway(ThrowawayOptions {
        auth,
        factor: factor.to_owned(),
        lines: lines.iter().map(|line| (*line).to_owned()).collect(),
        ..ThrowawayOptions::default()
    })
}

/// A home whose site has this identity.
fn home_with(server: &Sshd, kind: &str) -> TempHome {
    let home = TempHome::empty();
    home.add_host("login", server.address(), "alice", kind);
    home.set_config(&format!(
        "[site.{SITE}]\nhost = \"login\"\nssh_config = \"{}\"\nenvironment = \"none\"\n",
        home.ssh_config().display()
    ));
    home
}

/// The fingerprint as OpenSSH shows it.
fn fingerprint(public: &Path) -> String {
    let output = std::process::Command::new("ssh-keygen").arg("-lf").arg(public).output().unwrap();
    String::from_utf8(output.stdout).unwrap().split_whitespace().nth(1).unwrap().to_owned()
}

fn exec_on_terminal(home: &TempHome, json: bool) -> Pty {
    let words: &[&str] = if json { &["--json"] } else { &[] };
    Pty::towline(home, &[words, &["exec", SITE, "--", "echo came through"]].concat())
}

/// Whether anybody has tried to log in, by the server's own log.
fn login_was_tried(server: &Sshd) -> bool {
    server.wait_until_idle();
    server.log().contains("userauth-request for user")
}

#[test]
fn an_unknown_host_key_is_shown_and_recorded_only_when_it_is_accepted() {
    let server = Sshd::key_only();
    let shown = fingerprint(&state_directory().join("keys/host_ed25519.pub"));
    let home = home_with(&server, "ed25519");
    fs::write(home.known_hosts(), "").unwrap();

    for (answer, json, code) in
        [("no", false, 255), ("no", true, 5), ("SHA256:wrong", false, 255), ("", false, 255)]
    {
        let mut terminal = exec_on_terminal(&home, json);
        let question = terminal.wait_for("(yes, no, or the fingerprint)? ", PATIENCE);
        assert!(question.contains(&shown), "{question}");
        terminal.type_line(answer);
        assert_eq!(terminal.wait_exit(PATIENCE), code, "{answer:?}: {}", terminal.transcript());
        let text = terminal.transcript();
        assert!(!json || text.contains("\"host_key_unknown\""), "{answer:?}: {text}");
        assert_eq!(fs::read_to_string(home.known_hosts()).unwrap(), "", "{answer:?}: nothing is recorded");
    }
    // Nobody to ask: the same refusal, and the hint names what to compare.
    let answer = run_json(&home, &["exec", SITE, "--", "true"]);
    assert_eq!(answer.failure(), (Some(5), "host_key_unknown"), "{}", answer.text);
    assert_eq!(answer.error["error"]["fingerprint"], shown.as_str());
    assert!(answer.error["error"]["hint"].as_str().unwrap().contains(&shown), "{}", answer.text);
    assert_eq!(fs::read_to_string(home.known_hosts()).unwrap(), "");
    assert!(!login_was_tried(&server), "a credential was sent to a host that nobody has accepted");

    for answer in ["yes", &shown] {
        fs::write(home.known_hosts(), "").unwrap();
        let mut terminal = exec_on_terminal(&home, false);
        terminal.wait_for("(yes, no, or the fingerprint)? ", PATIENCE);
        terminal.type_line(answer);
        terminal.wait_for("came through", PATIENCE);
        assert_eq!(terminal.wait_exit(PATIENCE), 0, "{answer}: {}", terminal.transcript());
        // From now on nobody is asked.
        assert_eq!(run_json(&home, &["exec", SITE, "--", "true"]).code, Some(0), "{answer}");
        assert_eq!(fs::read_to_string(home.known_hosts()).unwrap().lines().count(), 1, "{answer}");
    }
}

#[test]
fn a_changed_host_key_is_refused_before_any_authentication_with_its_place_and_both_fingerprints() {
    let server = Sshd::key_only();
    let home = home_with(&server, "ed25519");
    // Another key of the type that the server shows, on line 3.
    let stranger = fs::read_to_string(identity("stranger").with_extension("pub")).unwrap();
    let key: Vec<_> = stranger.split_whitespace().take(2).collect();
    let known = format!("# ours\n\n[127.0.0.1]:{} {}\n", server.port(), key.join(" "));
    fs::write(home.known_hosts(), &known).unwrap();
    let place = format!("{}:3", home.known_hosts().display());
    let recorded = fingerprint(&identity("stranger").with_extension("pub"));
    let shown = fingerprint(&state_directory().join("keys/host_ed25519.pub"));

    let answer = run_json(&home, &["exec", SITE, "--", "true"]);
    assert_eq!(answer.failure(), (Some(5), "host_key_changed"), "{}", answer.text);
    let error = &answer.error["error"];
    assert_eq!((error["line"].as_u64(), error["fingerprint"].as_str()), (Some(3), Some(shown.as_str())));
    assert_eq!(error["file"], home.known_hosts().to_str().unwrap());
    assert_eq!(error["known"][0]["fingerprint"], recorded.as_str(), "{}", answer.text);

    // A terminal changes nothing: it is not asked.
    let mut terminal = exec_on_terminal(&home, false);
    assert_eq!(terminal.wait_exit(PATIENCE), 255);
    let text = terminal.transcript().replace("\r\n", "");
    for part in [&place, &recorded, &shown] {
        assert!(text.contains(part.as_str()), "{part} is missing in: {text}");
    }
    assert!(!text.contains("yes"), "it is not a question: {text}");
    assert_eq!(fs::read_to_string(home.known_hosts()).unwrap(), known);
    assert!(!login_was_tried(&server), "a credential was sent to a host with a changed key");
}

#[test]
fn an_encrypted_key_takes_its_passphrase_from_the_terminal_or_the_askpass_program() {
    let server = Sshd::key_only();
    let home = home_with(&server, "encrypted");
    let mut terminal = exec_on_terminal(&home, false);
    let question = terminal.wait_for("id_encrypted: ", PATIENCE);
    assert!(question.contains("Passphrase for key "), "{question}");
    terminal.type_line("wrong");
    terminal.wait_for("id_encrypted: ", PATIENCE);
    terminal.type_line(KEY_PASSPHRASE);
    terminal.wait_for("came through", PATIENCE);
    assert_eq!(terminal.wait_exit(PATIENCE), 0, "{}", terminal.transcript());

    // Wrong as often as it is asked.
    let mut terminal = exec_on_terminal(&home, true);
    for _ in 0..3 {
        terminal.wait_for("id_encrypted: ", PATIENCE);
        terminal.type_line("wrong");
    }
    assert_eq!(terminal.wait_exit(PATIENCE), 5, "{}", terminal.transcript());
    assert!(terminal.transcript().contains("\"auth_failed\""), "{}", terminal.transcript());

    // Without a terminal nobody is asked, unless the site names a program.
    let answer = run_json(&home, &["exec", SITE, "--", "true"]);
    assert_eq!(answer.failure(), (Some(5), "auth_failed"), "{}", answer.text);
    let askpass = home.user_home().join("askpass");
    let asked = home.user_home().join("asked");
    fs::write(&askpass, format!("#!/bin/sh\necho \"$1\" >> {}\necho {KEY_PASSPHRASE}\n", asked.display()))
        .unwrap();
    fs::set_permissions(&askpass, fs::Permissions::from_mode(0o700)).unwrap();
    home.extend_config(&format!("askpass = \"{}\"\n", askpass.display()));
    let answer = run_json(&home, &["exec", SITE, "--", "echo asked"]);
    assert_eq!(answer.ok()["stdout"], "asked\n", "{}", answer.text);
    let asked = fs::read_to_string(asked).unwrap();
    assert!(asked.lines().count() == 1 && asked.starts_with("Passphrase for key "), "{asked}");
}

#[test]
fn one_login_is_one_prompt_and_a_wrong_answer_ends_it_without_a_second_one() {
    let right = server(Auth::Menu, "", &[]);
    let home = home_with(&right, "ed25519");
    for answer in ["1", PASSCODE] {
        let mut terminal = exec_on_terminal(&home, false);
        let question = terminal.wait_for(MENU, PATIENCE);
        assert!(question.contains("Two-factor login for alice"), "{question}");
        terminal.type_line(answer);
        terminal.wait_for("came through", PATIENCE);
        assert_eq!(terminal.wait_exit(PATIENCE), 0, "{}", terminal.transcript());
    }
    right.wait_until_idle();
    assert_eq!(
        (right.connections(), right.prompts(), right.logins(), right.session_channels()),
        (2, 2, 2, 2)
    );

    // A second round could be a second push: it is left to a new login that a person wants.
    for (case, factor, answer) in [("a wrong passcode", "", "000000"), ("a denied push", "deny", "1")] {
        let server = server(Auth::Menu, factor, &[]);
        let home = home_with(&server, "ed25519");
        let mut terminal = exec_on_terminal(&home, true);
        terminal.wait_for(MENU, PATIENCE);
        terminal.type_line(answer);
        assert_eq!(terminal.wait_exit(PATIENCE), 5, "{case}: {}", terminal.transcript());
        let text = terminal.transcript();
        assert!(text.contains("\"auth_failed\"") && text.matches(MENU).count() == 1, "{case}: {text}");
        server.wait_until_idle();
        assert_eq!((server.connections(), server.logins(), server.sessions()), (1, 0, 0), "{case}");
        // Then the right answer, in a login of its own.
        if factor.is_empty() {
            let mut terminal = exec_on_terminal(&home, false);
            terminal.wait_for(MENU, PATIENCE);
            terminal.type_line(PASSCODE);
            assert_eq!(terminal.wait_exit(PATIENCE), 0, "{case}: {}", terminal.transcript());
        }
    }
}

#[test]
fn a_prompt_that_nobody_can_be_asked_is_auth_failed_and_nothing_is_asked() {
    for auth in [Auth::Menu, Auth::Code, Auth::Password] {
        let server = server(auth, "", &[]);
        let home = home_with(&server, "ed25519");
        let answer = run_json(&home, &["exec", SITE, "--", "true"]);
        assert_eq!(answer.failure(), (Some(5), "auth_failed"), "{auth:?}: {}", answer.text);
        assert_eq!(answer.error["error"]["prompts"], 0, "{auth:?}: {}", answer.text);
        assert_eq!(answer.error["error"]["retry_safe"], false, "{auth:?}");
        assert!(answer.text.contains("nobody to ask"), "{auth:?}: {}", answer.text);
        server.wait_until_idle();
        assert_eq!((server.connections(), server.logins()), (1, 0), "{auth:?}");
    }
}

#[test]
fn case_039_one_rsa_key_and_a_second_factor_fit_into_three_attempts() {
    let server = server(Auth::Menu, "", &["MaxAuthTries 3"]);
    let home = home_with(&server, "rsa");
    let mut terminal = exec_on_terminal(&home, false);
    terminal.wait_for(MENU, PATIENCE);
    terminal.type_line("1");
    terminal.wait_for("came through", PATIENCE);
    assert_eq!(terminal.wait_exit(PATIENCE), 0, "{}", terminal.transcript());
    server.wait_until_idle();
    let log = server.log();
    assert_eq!(log.matches("Failed publickey").count(), 0, "{log}");
    assert_eq!(log.matches("Partial publickey for alice").count(), 1, "{log}");
}

/// Everything that a person types here is a secret; each kind of it goes through one login with the log wide open.
#[test]
fn no_secret_is_in_any_output_log_or_argument_list() {
    let (code, password, key) =
        (server(Auth::Code, "", &[]), server(Auth::Password, "", &[]), Sshd::key_only());
    let secrets = [PASSCODE, PASSWORD, KEY_PASSPHRASE];
    for (case, server, kind, answers) in [
        ("passcode", &code, "ed25519", vec![("Verification code: ", PASSCODE)]),
        // The menu shows what is typed, as its server wants it; the push hides nothing.
        ("password", &password, "ed25519", vec![("password: ", PASSWORD), (MENU, "1")]),
        ("passphrase", &key, "encrypted", vec![("id_encrypted: ", KEY_PASSPHRASE)]),
    ] {
        let home = home_with(server, kind);
        let log = home.user_home().join("log");
        let mut command = CommandBuilder::new("/bin/sh");
        let text = format!(
            "exec {} exec --stdin {SITE} -- 'echo up; cat' 2>{}",
            env!("CARGO_BIN_EXE_towline"),
            log.display()
        );
        command.args(["-c", &text]);
        command.env_clear();
        home.environment().iter().for_each(|(name, value)| command.env(name, value));
        command.env("TOWLINE_LOG", "trace");
        command.cwd(home.user_home());
        let mut terminal = Pty::spawn(command);
        for (question, answer) in answers {
            terminal.wait_for(question, PATIENCE);
            terminal.type_line(answer);
        }
        terminal.wait_for("up\r\n", PATIENCE);
        // As a word, or as the value of an option; in the middle of a word it is somebody else's number.
        let tells = |word: &str| secrets.contains(&word.rsplit('=').next().unwrap_or(word));
        for process in census::all() {
            assert!(!process.command.split_whitespace().any(tells), "{case}: {process:?}");
        }
        terminal.type_bytes(b"\x04");
        assert_eq!(terminal.wait_exit(PATIENCE), 0, "{case}: {}", terminal.transcript());
        let log = wait_for(PATIENCE, "the log", || fs::read(&log).ok());
        let log = String::from_utf8_lossy(&log);
        assert!(log.contains("the helper runs"), "{case}: the log is wide open: {log}");
        let screen = terminal.transcript();
        for secret in secrets {
            assert!(!log.contains(secret), "{case}: the log tells a secret");
            assert!(!screen.contains(secret), "{case}: the terminal tells a secret: {screen}");
            // A log that shows bytes as numbers would hide it from a search for text.
            let numbers: Vec<_> = secret.bytes().map(|byte| byte.to_string()).collect();
            let hex: String = secret.bytes().map(|byte| format!("{byte:02x}")).collect();
            assert!(
                !log.contains(&numbers.join(", ")) && !log.contains(&hex),
                "{case}: the log tells a secret"
            );
        }
    }
}

#[test]
fn a_login_without_a_terminal_goes_through_the_askpass_program_once_a_question() {
    let server = server(Auth::Password, "", &[]);
    let home = home_with(&server, "ed25519");
    let askpass = home.user_home().join("askpass");
    let asked = home.user_home().join("asked");
    let script = format!(
        "#!/bin/sh\necho \"$1\" | tail -n 1 >> {}\ncase \"$1\" in *password*) echo {PASSWORD};; *) echo {PASSCODE};; esac\n",
        asked.display()
    );
    fs::write(&askpass, script).unwrap();
    fs::set_permissions(&askpass, fs::Permissions::from_mode(0o700)).unwrap();
    home.extend_config(&format!("askpass = \"{}\"\n", askpass.display()));
    let answer = run_json(&home, &["exec", SITE, "--", "echo in"]);
    assert_eq!(answer.ok()["stdout"], "in\n", "{}", answer.text);
    assert_eq!(fs::read_to_string(asked).unwrap().lines().count(), 2);
    server.wait_until_idle();
    assert_eq!((server.connections(), server.prompts(), server.logins()), (1, 1, 1));

    // A program that declines is a person who declines.
    fs::write(&askpass, "#!/bin/sh\nexit 1\n").unwrap();
    let answer = run_json(&home, &["exec", SITE, "--", "true"]);
    assert_eq!(answer.failure(), (Some(5), "auth_failed"), "{}", answer.text);
}
