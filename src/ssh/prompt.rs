//! Questions to a human, who answers them, and how the answers are kept.

use std::fmt;
use std::io::{self, Read};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use socket2::SockRef;
use tokio::io::Interest;
use tokio::net::TcpStream;
use zeroize::Zeroizing;

use super::clock::HumanTime;

/// An askpass program's answer is one line; more than this is not an answer.
const ANSWER_BYTES_MAX: u64 = 64 * 1024;

/// An answer that is wiped from memory when dropped, and never printed.
pub struct Secret(Zeroizing<String>);

impl Secret {
    /// Takes over an answer.
    pub fn new(text: String) -> Self {
        Secret(Zeroizing::new(text))
    }

    /// Shows the answer to the one place that sends it.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// A question to a human. Texts that come from a server have their control characters escaped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Prompt {
    /// Is this the right host? Answered by `yes` or by typing the fingerprint.
    HostKey {
        /// The name that is looked up in known_hosts.
        host: String,
        /// The key's type, e.g. `ssh-ed25519`.
        key_type: String,
        /// `SHA256:…` of the key.
        fingerprint: String,
        /// Why a certificate that the server showed counted for nothing, and which files could not be read.
        note: Option<String>,
    },
    /// The password for an account.
    Password {
        /// The account.
        user: String,
        /// The host.
        host: String,
    },
    /// The passphrase of a private key file.
    Passphrase {
        /// The key file.
        path: PathBuf,
    },
    /// A question of the server itself, such as a second factor's.
    KeyboardInteractive {
        /// The server's title, often empty.
        name: String,
        /// The server's instructions, often empty; only the first question of a round carries them.
        instructions: String,
        /// The question.
        prompt: String,
        /// Whether the answer may be shown while it is typed.
        echo: bool,
    },
}

impl Prompt {
    /// Tells whether the answer may be shown while it is typed.
    pub fn echo(&self) -> bool {
        match self {
            Prompt::HostKey { .. } => true,
            Prompt::Password { .. } | Prompt::Passphrase { .. } => false,
            Prompt::KeyboardInteractive { echo, .. } => *echo,
        }
    }
}

impl fmt::Display for Prompt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Prompt::HostKey { host, key_type, fingerprint, note } => {
                writeln!(f, "The host key of {host} is not known yet.")?;
                writeln!(f, "{key_type} key fingerprint is {fingerprint}.")?;
                if let Some(note) = note {
                    writeln!(f, "Mind: {note}.")?;
                }
                write!(f, "Is this the right host (yes, no, or the fingerprint)? ")
            }
            Prompt::Password { user, host } => write!(f, "{user}@{host}'s password: "),
            Prompt::Passphrase { path } => write!(f, "Passphrase for key {}: ", path.display()),
            Prompt::KeyboardInteractive { name, instructions, prompt, .. } => {
                for line in [name, instructions] {
                    if !line.trim().is_empty() {
                        writeln!(f, "{}", line.trim_end())?;
                    }
                }
                f.write_str(prompt)
            }
        }
    }
}

/// Why a question got no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unanswered {
    /// There is no terminal and no askpass program.
    #[error("there is nobody to ask")]
    Nobody,
    /// The human declined or ended the input.
    #[error("the question was declined")]
    Declined,
    /// The terminal or the askpass program failed.
    #[error("the question could not be asked: {0}")]
    Failed(String),
}

/// Asks a human. Called on a thread of its own, so an implementation may block.
pub trait Prompter: Send + Sync {
    /// Puts a question and waits for its answer, however long it takes.
    ///
    /// # Errors
    /// [`Unanswered`] when nobody can be asked or nobody answered.
    fn ask(&self, prompt: &Prompt) -> Result<Secret, Unanswered>;

    /// Shows a text that needs no answer, such as a banner.
    fn tell(&self, text: &str);
}

/// Answers nothing: for runs without a terminal and without an askpass program.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoPrompter;

impl Prompter for NoPrompter {
    fn ask(&self, _prompt: &Prompt) -> Result<Secret, Unanswered> {
        Err(Unanswered::Nobody)
    }

    fn tell(&self, text: &str) {
        tracing::info!("{text}");
    }
}

/// Asks through a program: the question is its one argument, the answer the first line of its stdout.
#[derive(Clone, Debug)]
pub struct AskpassPrompter {
    program: PathBuf,
}

impl AskpassPrompter {
    /// Uses the given program; it is started anew for each question.
    pub fn new(program: PathBuf) -> Self {
        AskpassPrompter { program }
    }
}

impl Prompter for AskpassPrompter {
    fn ask(&self, prompt: &Prompt) -> Result<Secret, Unanswered> {
        let failed = |what: &str, problem: &dyn fmt::Display| {
            Unanswered::Failed(format!("askpass program {} {what}: {problem}", self.program.display()))
        };
        let mut command = Command::new(&self.program);
        command.arg(prompt.to_string()).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(|error| failed("cannot be started", &error))?;
        let mut answer = Zeroizing::new(Vec::new());
        if let Some(stdout) = child.stdout.take() {
            stdout
                .take(ANSWER_BYTES_MAX)
                .read_to_end(&mut answer)
                .map_err(|error| failed("cannot be read", &error))?;
        }
        let status = child.wait().map_err(|error| failed("was lost", &error))?;
        if !status.success() {
            return Err(Unanswered::Declined);
        }
        let line = answer.split(|byte| *byte == b'\n').next().unwrap_or_default();
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let text = std::str::from_utf8(line).map_err(|error| failed("answered badly", &error))?;
        Ok(Secret::new(text.to_owned()))
    }

    fn tell(&self, text: &str) {
        tracing::info!("{text}");
    }
}

/// The human side of one connection's opening: whom to ask, how often it happened, how long it took.
pub(super) struct Human {
    prompter: Arc<dyn Prompter>,
    pub(super) time: HumanTime,
    answered: AtomicU32,
    /// Guards a second handle of the connection's socket, there while the connection is being opened.
    socket: Mutex<Option<Arc<TcpStream>>>,
}

impl Human {
    pub(super) fn new(prompter: Arc<dyn Prompter>) -> Self {
        let (time, answered) = (HumanTime::new(), AtomicU32::new(0));
        Human { prompter, time, answered, socket: Mutex::new(None) }
    }

    /// From here on, a question ends when the far end of this socket hangs up; `None` lets go of it.
    ///
    /// While a question is open russh reads nothing, so that it would notice only after the answer.
    pub(super) fn watch(&self, socket: Option<&TcpStream>) {
        let copy = socket.and_then(|socket| {
            let copied = SockRef::from(socket).try_clone();
            // Without it everything still works, only the question stays open for longer.
            copied.and_then(|copy| TcpStream::from_std(copy.into())).ok()
        });
        *self.socket.lock().unwrap_or_else(PoisonError::into_inner) = copy.map(Arc::new);
    }

    async fn hung_up(&self) {
        let socket = self.socket.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let Some(socket) = socket else { return std::future::pending().await };
        while let Ok(ready) = socket.ready(Interest::READABLE).await {
            if ready.is_read_closed() {
                return;
            }
            // Bytes are there, which are not ours to read: forget them, and wait for what comes next.
            let forgotten: io::Result<()> =
                socket.try_io(Interest::READABLE, || Err(io::ErrorKind::WouldBlock.into()));
            drop(forgotten);
        }
    }

    /// How many questions were answered so far.
    pub(super) fn prompts(&self) -> u32 {
        self.answered.load(Ordering::Relaxed)
    }

    /// Asks on a thread of its own, with all deadlines standing still.
    pub(super) async fn ask(&self, prompt: Prompt) -> Result<Secret, Unanswered> {
        let asking = self.time.asking();
        // Dropping the question leaves its thread behind, whose late answer nobody takes.
        let answer = tokio::select! {
            biased;
            answer = self.on_thread(move |prompter| prompter.ask(&prompt)) => answer,
            () = self.hung_up() => Some(Err(Unanswered::Failed("the server has hung up".to_owned()))),
        };
        drop(asking);
        let answer = answer
            .unwrap_or_else(|| Err(Unanswered::Failed("the prompter ended without an answer".to_owned())))?;
        self.answered.fetch_add(1, Ordering::Relaxed);
        Ok(answer)
    }

    /// Shows a text; it waits until it is shown, so that texts and questions keep their order.
    pub(super) async fn tell(&self, text: String) {
        let asking = self.time.asking();
        if self.on_thread(move |prompter| prompter.tell(&text)).await.is_none() {
            tracing::warn!("a text could not be shown");
        }
        drop(asking);
    }

    /// A plain thread, not the runtime's pool: a question that is never answered must not keep the
    /// runtime from shutting down.
    async fn on_thread<T: Send + 'static>(
        &self,
        work: impl FnOnce(&dyn Prompter) -> T + Send + 'static,
    ) -> Option<T> {
        let (done, answer) = tokio::sync::oneshot::channel();
        let prompter = Arc::clone(&self.prompter);
        let thread = std::thread::Builder::new().name("prompt".to_owned()).spawn(move || {
            // The asker may have given up (the server hung up): then nobody wants the answer.
            drop(done.send(work(prompter.as_ref())));
        });
        if let Err(error) = thread {
            tracing::warn!("no thread for a prompt: {error}");
            return None;
        }
        answer.await.ok()
    }
}

/// Escapes what a server's text could do to a terminal: control, escape and direction characters.
pub(super) fn printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        let turns_text =
            matches!(character, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
        match character {
            '\n' | '\t' => shown.push(character),
            // Servers end lines with CR LF; the CR alone would let later text overwrite earlier.
            '\r' => {}
            _ if character.is_control() || turns_text => shown.extend(character.escape_unicode()),
            _ => shown.push(character),
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_never_printed() {
        assert_eq!(format!("{:?}", Secret::new("hunter2".to_owned())), "Secret(…)");
    }

    #[test]
    fn a_servers_text_cannot_drive_the_terminal() {
        assert_eq!(printable("a\x1b[2Jb\r\nc\u{202e}d"), "a\\u{1b}[2Jb\nc\\u{202e}d");
    }

    #[test]
    fn an_askpass_program_answers_with_its_first_line() {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("askpass");
        std::fs::write(&program, "#!/bin/sh\nprintf 'got %s\\nmore\\n' \"$1\"\n").unwrap();
        use std::os::unix::fs::PermissionsExt;
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o700)).unwrap();
        let prompt = Prompt::Password { user: "u".to_owned(), host: "h".to_owned() };
        let answer = AskpassPrompter::new(program).ask(&prompt).unwrap();
        assert_eq!(answer.reveal(), "got u@h's password: ");
    }

    #[test]
    fn an_askpass_program_that_fails_is_a_refusal() {
        let prompt = Prompt::Password { user: "u".to_owned(), host: "h".to_owned() };
        let answer = AskpassPrompter::new(PathBuf::from("/bin/false")).ask(&prompt);
        assert_eq!(answer.unwrap_err(), Unanswered::Declined);
    }
}
