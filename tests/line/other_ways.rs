//! Other ways in: dropbear, a jump host, and a config that must lead nowhere.

use std::fs;
use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;
use towline::line::WriteOptions;
use towline::line::message::Environment;

use crate::acceptance::{open, shell};
use crate::far::Folder;
use crate::support::home::SITE;
use crate::support::{
    Auth, PATIENCE, Pty, Sshd, TempHome, ThrowawayOptions, census, run_json, server, towline, wait_for,
};

/// A dropbear of the test's own, on the login host; ends with its connections when dropped.
struct Dropbear {
    child: Child,
    pid: u32,
    port: u16,
    known_hosts: String,
    directory: TempDir,
}

impl Dropbear {
    fn start() -> Dropbear {
        server::require("base");
        let directory = tempfile::tempdir_in("/var/tmp").unwrap();
        let key = directory.path().join("host");
        let path = key.to_str().unwrap();
        let made = Command::new("dropbearkey").args(["-t", "ed25519", "-f", path]).output().unwrap();
        let text = String::from_utf8(made.stdout).unwrap();
        let public = text.lines().find(|line| line.starts_with("ssh-ed25519 ")).expect("a public key");
        let port = server::free_port();
        let known_hosts = format!("[127.0.0.1]:{port} {public}\n");
        let log = fs::File::create(directory.path().join("log")).unwrap();
        let child = server::inside("dropbear")
            // -E: log to stderr; -s: no passwords; -w: not for root.
            .args(["-F", "-E", "-s", "-w", "-r", path, "-p", &format!("127.0.0.1:{port}")])
            .args(["-P", directory.path().join("pid").to_str().unwrap()])
            .stdin(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        wait_for(PATIENCE, "dropbear listens", || TcpStream::connect(address).ok());
        let pid = wait_for(PATIENCE, "dropbear's pid file", || {
            fs::read_to_string(directory.path().join("pid")).ok()?.trim().parse().ok()
        });
        Dropbear { child, pid, port, known_hosts, directory }
    }

    fn address(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.port))
    }

    fn log(&self) -> String {
        fs::read_to_string(self.directory.path().join("log")).unwrap()
    }
}

impl Drop for Dropbear {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- log of dropbear ---\n{}", self.log());
        }
        let all = census::all();
        let own = |process: &&census::Process| process.pid == self.pid || process.parent == self.pid;
        all.iter().filter(own).for_each(|process| process.signal(nix::sys::signal::Signal::SIGTERM));
        drop(self.child.wait());
    }
}

#[tokio::test]
async fn dropbear_serves_a_line_commands_and_files() {
    let dropbear = Dropbear::start();
    let home = TempHome::for_address(dropbear.address(), "tl-profile");
    fs::write(home.known_hosts(), &dropbear.known_hosts).unwrap();
    let folder = Folder::of("tl-profile");
    let line = open(&home, Environment::LoginIfPossible).await;
    assert_eq!(shell(&line, "hostname; echo $((6 * 7))").await.stdout, b"login1\n42\n");

    // Larger than any window on the way, and without a pattern that a lost piece would keep.
    let content: Vec<u8> =
        (0..3_000_000_u32).flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
    let path = folder.there("file");
    let files = line.files();
    files.write(path.as_str(), content.as_slice(), WriteOptions::default()).await.unwrap();
    assert!(fs::read(folder.here("file")).unwrap() == content, "the file arrived as it was");
    let back = files.read_to_end(path.as_str(), content.len()).await.unwrap();
    assert!(back == content, "the file came back as it was");
    line.close();
    line.closed().await;

    // The second line finds the helper; the whole program does it too.
    assert!(open(&home, Environment::None).await.facts().helper.cached);
    assert_eq!(run_json(&home, &["exec", SITE, "--", "echo in"]).ok()["stdout"], "in\n");
    wait_for(PATIENCE, "dropbear's children end", || {
        census::children_of(dropbear.pid).is_empty().then_some(())
    });
    assert_eq!(dropbear.log().matches("Pubkey auth succeeded").count(), 3, "{}", dropbear.log());
}

#[test]
fn a_line_through_a_jump_host_costs_one_channel_a_hop_and_asks_for_each_hop_alone() {
    let jump = Sshd::throwaway(ThrowawayOptions { auth: Auth::Menu, ..ThrowawayOptions::default() });
    let site = Sshd::key_only();
    let home = TempHome::for_server(&site, "alice");
    home.add_host("jump", jump.address(), "bob", "ed25519");
    let mut config = fs::OpenOptions::new().append(true).open(home.ssh_config()).unwrap();
    config.write_all(b"Host login\n  ProxyJump jump\n").unwrap();
    let mut terminal = Pty::towline(
        &home,
        &["exec", SITE, "--", "echo ${SSH_CONNECTION%% *}; id -un; seq 20000 | tail -n 1"],
    );
    let question = terminal.wait_for("Passcode or option (1-2): ", PATIENCE);
    assert!(question.contains("Two-factor login for bob"), "{question}");
    terminal.type_line("1");
    terminal.wait_for("127.0.0.1\r\nalice\r\n20000\r\n", PATIENCE);
    assert_eq!(terminal.wait_exit(PATIENCE), 0, "{}", terminal.transcript());
    for (server, forwarded, sessions, prompts) in [(&jump, 1, 0, 1), (&site, 0, 1, 0)] {
        server.wait_until_idle();
        assert_eq!((server.connections(), server.logins()), (1, 1));
        let channels = (server.forwarded_channels(), server.session_channels(), server.prompts());
        assert_eq!(channels, (forwarded, sessions, prompts));
    }
}

#[test]
fn s2_a_hidden_match_is_refused_with_its_place_and_its_program_never_runs() {
    let server = Sshd::key_only();
    for (case, line) in [
        ("hidden", "=Match exec \"touch {F}\""),
        ("plain", "Match exec \"touch {F}\""),
        ("quoted", "\"Match\" exec \"touch {F}\""),
        ("equals", "match=exec \"touch {F}\""),
        ("proxy", "ProxyCommand touch {F}"),
    ] {
        let home = TempHome::for_server(&server, "alice");
        let touched = home.user_home().join("F");
        let line = line.replace("{F}", touched.to_str().unwrap());
        let (number, before) = match case {
            // Of the same file, and of one that it includes.
            "proxy" => (1, ""),
            _ => (2, "# a comment\n"),
        };
        let included = home.user_home().join(".ssh/included");
        fs::write(&included, format!("{before}{line}\n")).unwrap();
        let config = fs::read_to_string(home.ssh_config()).unwrap();
        let (file, text) = match case {
            "hidden" => (home.ssh_config(), format!("{before}{line}\n{config}")),
            _ => (included.clone(), format!("Include {}\n{config}", included.display())),
        };
        fs::write(home.ssh_config(), text).unwrap();
        let path = home.ssh_config();
        for args in [
            vec!["ssh-config", "resolve", "--file", path.to_str().unwrap(), "login"],
            vec!["exec", SITE, "--", "true"],
        ] {
            let answer = run_json(&home, &args);
            assert_eq!(answer.failure(), (Some(2), "ssh_config_rejected"), "{case}: {}", answer.text);
            let error = &answer.error["error"];
            assert_eq!(
                (error["file"].as_str(), error["line"].as_u64()),
                (file.to_str(), Some(number)),
                "{case}: {}",
                answer.text
            );
            // Without --json `exec` fails as ssh does.
            if args[0] == "exec" {
                let output = towline(&home).args(&args).output().unwrap();
                let text = String::from_utf8_lossy(&output.stderr).into_owned();
                assert_eq!(output.status.code(), Some(255), "{case}: {text}");
                assert!(text.contains(&format!("{}:{number}: ", file.display())), "{case}: {text}");
            }
            assert!(!touched.exists(), "{case}: the config's program ran");
        }
    }
    assert_eq!(server.connections(), 0, "nothing is dialled");
}
