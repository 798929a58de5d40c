//! Every login shell brings up the helper, whatever its start-up files print, read or run.

use std::path::PathBuf;

use towline::line::bootstrap::BootstrapError;
use towline::line::{Line, OpenError};

use crate::acceptance::shell;
use crate::far::{Far, Folder};
use crate::support::{server, towline};

/// What start-up files of real sites print, and what is made to mislead: the seed's constant marker, our own frames'.
fn noise() -> Vec<u8> {
    let mut noise = b"Welcome to the cluster!\r\n\x1b[1;31m  ___  \x1b[0m\n".to_vec();
    while noise.len() < 10 << 10 {
        noise.extend_from_slice(b"Maintenance on Monday. Use scratch. \x1b[32m* * *\x1b[0m\n");
    }
    noise.extend_from_slice(b"O2B1\0\0\0\x02{}TLN1\0\0\0\x02{}");
    // Bytes of every value, in an order without a pattern; the same each time.
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    noise.extend((0..5000).map(|_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    }));
    noise
}

/// A start-up file that prints `noise` (a file beside it), fails at terminals, traces itself and reads its input.
fn noisy_start_up(user: &str, folder: &Folder) -> (PathBuf, String) {
    let noise = folder.there("noise");
    let plain = format!("cat {noise}\ntty\nstty erase x\nmesg n\n");
    let sh = format!("{plain}set -xv\n");
    let bash = format!("{plain}read -t 0.1 answer\nset -xv\n");
    let (path, text) = match user {
        "tl-bash" | "tl-rbash" => (folder.here(".bashrc"), bash),
        "tl-zsh" => (folder.here(".zshenv"), bash),
        "tl-csh" | "tl-tcsh" => (folder.here(".cshrc"), format!("{plain}set echo\nset verbose\n")),
        "tl-fish" => (folder.here(".config/fish/config.fish"), format!("{plain}set fish_trace 1\n")),
        // These read no file for a command; what prints there is sshd's own hook, in the account's home.
        _ => (server::user_home(user).join(".ssh/rc"), sh),
    };
    (path, text)
}

/// Removes a file when dropped.
struct Removed(PathBuf);

impl Drop for Removed {
    fn drop(&mut self) {
        // It may never have been made.
        drop(std::fs::remove_file(&self.0));
    }
}

/// What a line says to a few commands, as one text.
async fn talk(line: &Line) -> String {
    let output =
        shell(line, "printf '%s|' \"$((6 * 7))\" it\\'s fine; printf err >&2; printf '\\377' | od -An -tx1")
            .await;
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[tokio::test]
async fn every_login_shell_brings_up_the_helper_cold_and_cached_in_silence_and_in_noise() {
    for user in server::SHELL_USERS {
        let far = Far::new(user);
        let (quiet, cold) = far.opening().await;
        assert!(cold.sent(1), "{user}, cold: {cold:?}");
        let (_quiet_again, cached) = far.opening().await;
        assert!(cached.sent(0), "{user}, cached: {cached:?}");
        assert_eq!(talk(&quiet).await, "42|it's|fine| ff\nerr", "{user}");

        let (path, text) = noisy_start_up(user, &far.folder);
        let _removed = Removed(path.clone());
        far.folder.write("noise", noise());
        if let Ok(inside) = path.strip_prefix(far.folder.here("")) {
            far.folder.write(inside.to_str().unwrap(), text);
        } else {
            std::fs::write(&path, text).unwrap();
            far.folder.give(&path, 0o600);
        }
        let (noisy, cached) = far.opening().await;
        assert!(cached.sent(0), "{user}, cached, in noise: {cached:?}");
        assert!(far.link.passed(crate::support::Direction::Down) > 15_000, "{user}: the noise was made");
        std::fs::remove_dir_all(far.folder.here(".cache")).unwrap();
        let (noisy_again, cold) = far.opening().await;
        assert!(cold.sent(1), "{user}, cold, in noise: {cold:?}");
        for line in [&noisy, &noisy_again] {
            assert_eq!(talk(line).await, "42|it's|fine| ff\nerr", "{user}, in noise");
        }
    }
}

#[test]
fn case_055_200_kib_of_noise_end_the_opening_with_their_count_and_beginning() {
    let far = Far::new("tl-bash");
    far.folder.write("noise", [b"\x1b[31mWelcome to the cluster!\n".as_slice(), &[b'.'; 200 << 10]].concat());
    far.folder.write(".bashrc", format!("cat {}\n", far.folder.there("noise")));
    let answer = far.exec("true");
    assert_eq!(answer.failure(), (Some(5), "bootstrap_failed"), "{}", answer.text);
    let error = &answer.error["error"];
    assert!(error["skipped_bytes"].as_u64().unwrap() > 64 << 10, "{}", answer.text);
    let message = error["message"].as_str().unwrap();
    assert!(message.contains("\\u{1b}[31mWelcome to the cluster!\\n..."), "{message}");
    assert!(!message.contains('\u{1b}'), "{message}");
    assert_eq!(error["retry_safe"], false, "a repetition costs a login");
}

#[test]
fn case_055_what_was_skipped_is_in_the_log_for_those_who_ask() {
    let far = Far::new("tl-bash");
    far.folder.write(".bashrc", "printf 'Welcome to the \\033[1mcluster!\\n'; stty erase x\n");
    let output =
        towline(&far.home).env("TOWLINE_LOG", "towline=info").args(["exec", "hpc", "--", "echo x"]).output();
    let output = output.unwrap();
    let log = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.stdout, b"x\n", "{log}");
    assert!(log.contains("Welcome to the") && log.contains("Inappropriate ioctl for device"), "{log}");
    assert!(!log.contains('\u{1b}'), "{log}");
    let quiet = towline(&far.home).args(["exec", "hpc", "--", "echo x"]).output().unwrap();
    assert!(
        !String::from_utf8_lossy(&quiet.stderr).contains("Welcome"),
        "without TOWLINE_LOG nobody is bothered"
    );
}

#[test]
fn a_forced_command_that_refuses_is_quoted_and_one_that_passes_the_command_on_works() {
    let refusing = "ForceCommand echo 'This account may only use rsync.'; exit 1";
    let far = Far::with(Folder::of("tl-bash"), &[], &[refusing]);
    let answer = far.exec("true");
    assert_eq!(answer.failure(), (Some(5), "bootstrap_failed"), "{}", answer.text);
    assert!(answer.text.contains("This account may only use rsync."), "{}", answer.text);
    assert_eq!(answer.error["error"]["phase"], "bootstrap");

    // Both ways that wrappers have: the user's shell again, and any shell's `eval`.
    for passing in
        ["exec \"$SHELL\" -c \"$SSH_ORIGINAL_COMMAND\"", "echo logged; eval \"$SSH_ORIGINAL_COMMAND\""]
    {
        let far = Far::with(Folder::of("tl-dash"), &[], &[&format!("ForceCommand {passing}")]);
        for round in ["cold", "cached"] {
            let answer = far.exec("echo through");
            assert_eq!(answer.ok()["stdout"], "through\n", "{passing}, {round}");
        }
    }
}

#[test]
fn an_account_without_a_shell_is_told_with_what_it_printed() {
    let far = Far::new("tl-nologin");
    let answer = far.exec("true");
    assert_eq!(answer.failure(), (Some(5), "bootstrap_failed"), "{}", answer.text);
    assert!(answer.text.contains("This account is currently not available."), "{}", answer.text);
}

/// Each of these is silent for 10 s, so that the command is also typed; they run side by side.
#[tokio::test]
async fn after_a_silence_the_command_is_typed_once() {
    let start_up = |text: &str| {
        let far = Far::new("tl-bash");
        far.folder.write(".bashrc", text);
        far
    };
    // Whoever replaces the login shell reads the command from its input.
    let replaced = start_up("echo changing shells; exec /bin/zsh\n");
    // Somebody asks a question and takes the typed line for the answer.
    let asked = start_up("read -r answer; echo \"you said $answer\"\n");
    // A slow login: the command is typed though the first one will still run.
    let slow = start_up("sleep 12\n");
    let slow_cached = start_up("[ -e \"$HOME/.cache\" ] && sleep 12\n");
    drop(slow_cached.open().await);
    let silent = Far::with(Folder::of("tl-bash"), &[], &["ForceCommand internal-sftp"]);

    let line = |far| async move { (Far::try_open(far, |_| {}).await, far) };
    let (replaced, asked, slow, slow_cached, silent) =
        tokio::join!(line(&replaced), line(&asked), line(&slow), line(&slow_cached), line(&silent));
    for (case, (line, _far)) in
        [("exec zsh", replaced), ("read", asked), ("slow", slow), ("slow, cached", slow_cached)]
    {
        let line = line.unwrap_or_else(|error| panic!("{case}: {error}"));
        assert_eq!(talk(&line).await, "42|it's|fine| ff\nerr", "{case}");
    }
    match silent.0 {
        Err(OpenError::Bootstrap(BootstrapError::Ended { .. })) => {}
        other => panic!("a server that only does sftp: {other:?}"),
    }
}
