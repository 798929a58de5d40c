//! What travels between a broker's process and whoever starts it: the launch, questions, answers, the result.
//!
//! One JSON line each, on the child's standard input and output, from its start to ready. Answers are secrets: they
//! travel nowhere else, and buffers that held them are wiped.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::fd::AsFd as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use zeroize::{Zeroize as _, Zeroizing};

use super::error::Error;
use super::receipt::{Destination, Receipt};
use crate::ssh::{Prompt, Prompter, Secret, Unanswered};

/// Longest line on either pipe.
pub(super) const LINE_BYTES_MAX: u64 = 1 << 20;
/// Version of the launch payload.
pub(super) const SCHEMA: u32 = 1;

/// What a broker is started for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Payload {
    pub(super) schema: u32,
    pub(super) site: String,
    pub(super) role: String,
    pub(super) alias: String,
    pub(super) destination: Destination,
    /// The name of the grant that was spent.
    pub(super) grant: String,
    /// The client that the attempt belongs to.
    pub(super) client: String,
    pub(super) launcher_pid: u32,
}

/// What the broker tells.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum Note {
    /// The connection was started.
    Ack,
    /// A human has to answer.
    Prompt { id: u64, question: Question },
    /// A human should read it.
    Tell { text: String },
    /// The line is ready.
    Ready { receipt: Box<Receipt> },
    /// The line could not be opened.
    Failed { error: Value },
}

/// A prompt as it travels.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum Question {
    HostKey { host: String, key_type: String, fingerprint: String, note: Option<String> },
    Password { user: String, host: String },
    Passphrase { path: String },
    KeyboardInteractive { name: String, instructions: String, prompt: String, echo: bool },
}

/// The launcher's answer.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Answer {
    pub(super) id: u64,
    /// The secret, or why there is none.
    pub(super) answer: Option<String>,
    pub(super) unanswered: Option<Why>,
}

/// Why there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Why {
    Nobody,
    Declined,
    Failed,
}

impl Drop for Answer {
    fn drop(&mut self) {
        self.answer.zeroize();
    }
}

impl Answer {
    pub(super) fn new(id: u64, result: &Result<Secret, Unanswered>) -> Answer {
        match result {
            Ok(secret) => Answer { id, answer: Some(secret.reveal().to_owned()), unanswered: None },
            Err(unanswered) => {
                let why = match unanswered {
                    Unanswered::Nobody => Why::Nobody,
                    Unanswered::Declined => Why::Declined,
                    Unanswered::Failed(_) => Why::Failed,
                };
                Answer { id, answer: None, unanswered: Some(why) }
            }
        }
    }

    fn result(&mut self) -> Result<Secret, Unanswered> {
        match (self.answer.take(), self.unanswered) {
            (Some(answer), _) => Ok(Secret::new(answer)),
            (None, Some(Why::Nobody)) => Err(Unanswered::Nobody),
            (None, Some(Why::Declined) | None) => Err(Unanswered::Declined),
            (None, Some(Why::Failed)) => Err(Unanswered::Failed("see its terminal".to_owned())),
        }
    }
}

impl Question {
    pub(super) fn of(prompt: &Prompt) -> Question {
        match prompt.clone() {
            Prompt::HostKey { host, key_type, fingerprint, note } => {
                Question::HostKey { host, key_type, fingerprint, note }
            }
            Prompt::Password { user, host } => Question::Password { user, host },
            Prompt::Passphrase { path } => Question::Passphrase { path: path.to_string_lossy().into_owned() },
            Prompt::KeyboardInteractive { name, instructions, prompt, echo } => {
                Question::KeyboardInteractive { name, instructions, prompt, echo }
            }
        }
    }

    pub(super) fn prompt(self) -> Prompt {
        match self {
            Question::HostKey { host, key_type, fingerprint, note } => {
                Prompt::HostKey { host, key_type, fingerprint, note }
            }
            Question::Password { user, host } => Prompt::Password { user, host },
            Question::Passphrase { path } => Prompt::Passphrase { path: path.into() },
            Question::KeyboardInteractive { name, instructions, prompt, echo } => {
                Prompt::KeyboardInteractive { name, instructions, prompt, echo }
            }
        }
    }
}

/// Writes one line; secrets in it are wiped afterwards.
pub(super) fn write_line(mut to: impl std::io::Write, message: &impl Serialize) -> std::io::Result<()> {
    let mut line = Zeroizing::new(serde_json::to_vec(message)?);
    line.push(b'\n');
    to.write_all(&line)?;
    to.flush()
}

/// Reads one line; none at the end of input.
pub(super) fn read_line<T: serde::de::DeserializeOwned>(
    from: &mut BufReader<impl std::io::Read>,
) -> std::io::Result<Option<T>> {
    let mut line = Zeroizing::new(Vec::new());
    from.by_ref().take(LINE_BYTES_MAX + 1).read_until(b'\n', &mut line)?;
    if line.is_empty() {
        return Ok(None);
    }
    if line.last() != Some(&b'\n') {
        let message = match line.len() as u64 > LINE_BYTES_MAX {
            true => format!("a line is longer than {LINE_BYTES_MAX} bytes, the limit"),
            false => "the last line is incomplete".to_owned(),
        };
        return Err(std::io::Error::new(std::io::ErrorKind::InvalidData, message));
    }
    Ok(Some(serde_json::from_slice(&line)?))
}

/// The broker's side of the two pipes; a [`Prompter`] for whoever opens the connection.
#[derive(Debug)]
pub(super) struct Pipe {
    answers: Mutex<mpsc::Receiver<Answer>>,
    next: AtomicU64,
}

impl std::fmt::Debug for Answer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Answer({})", self.id)
    }
}

impl Pipe {
    /// Reads the launch from our standard input; answers follow there. The receiver learns when the launcher has gone.
    ///
    /// # Errors
    /// [`Error::Launch`] when there is no valid payload, or no thread to read answers with.
    pub(super) fn open() -> Result<(Payload, Pipe, tokio::sync::oneshot::Receiver<()>), Error> {
        let wrong = |reason: String| Error::Launch { reason: format!("the launch payload {reason}") };
        let stdin =
            std::io::stdin().as_fd().try_clone_to_owned().map_err(|error| wrong(error.to_string()))?;
        let mut input = BufReader::new(File::from(stdin));
        let payload: Option<Payload> =
            read_line(&mut input).map_err(|error| wrong(format!("is wrong: {error}")))?;
        let payload = payload.ok_or_else(|| wrong("is missing".to_owned()))?;
        if payload.schema != SCHEMA {
            return Err(wrong(format!("has schema {}, this program knows {SCHEMA}", payload.schema)));
        }
        let (to, answers) = mpsc::channel();
        let (gone, is_gone) = tokio::sync::oneshot::channel();
        let read = move || {
            while let Ok(Some(answer)) = read_line(&mut input) {
                if to.send(answer).is_err() {
                    break;
                }
            }
            // Nobody may wait for it any more.
            gone.send(()).ok();
        };
        std::thread::Builder::new()
            .name("answers".to_owned())
            .spawn(read)
            .map_err(|error| wrong(format!("cannot be followed: {error}")))?;
        Ok((payload, Pipe { answers: Mutex::new(answers), next: AtomicU64::new(1) }, is_gone))
    }

    /// Closes our ends, so that nothing of the launcher's is held.
    pub(super) fn close() -> std::io::Result<()> {
        let null = File::options().read(true).write(true).open("/dev/null")?;
        nix::unistd::dup2_stdin(&null)?;
        nix::unistd::dup2_stdout(&null)?;
        Ok(())
    }
}

/// Tells the launcher something; one that is gone learns nothing, which its end of input tells us.
pub(super) fn tell(note: &Note) {
    if let Err(error) = write_line(std::io::stdout().lock(), note) {
        tracing::warn!("whoever started this broker does not listen: {error}");
    }
}

impl Prompter for Pipe {
    fn ask(&self, prompt: &Prompt) -> Result<Secret, Unanswered> {
        // One question at a time: the lock is held until its answer is there.
        let answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        tell(&Note::Prompt { id, question: Question::of(prompt) });
        loop {
            match answers.recv() {
                Ok(mut answer) if answer.id == id => return answer.result(),
                Ok(_late) => {}
                Err(_launcher_gone) => return Err(Unanswered::Nobody),
            }
        }
    }

    fn tell(&self, text: &str) {
        tell(&Note::Tell { text: text.to_owned() });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_over_its_bound_or_cut_short_is_an_error_and_no_end() {
        let read =
            |bytes: Vec<u8>| read_line::<Value>(&mut BufReader::new(&bytes[..])).map_err(|e| e.to_string());
        assert_eq!(read(Vec::new()), Ok(None));
        assert_eq!(read(b"{\"a\":1}\n".to_vec()), Ok(Some(serde_json::json!({"a": 1}))));
        assert!(read(b"{\"a\":1}".to_vec()).unwrap_err().contains("incomplete"));
        let limit = usize::try_from(LINE_BYTES_MAX).unwrap();
        assert!(read(vec![b' '; limit + 1]).unwrap_err().contains("limit"));
    }

    #[test]
    fn a_question_arrives_as_it_was_asked_and_an_answer_never_shows_itself() {
        let prompt = Prompt::KeyboardInteractive {
            name: "n".to_owned(),
            instructions: "i".to_owned(),
            prompt: "p: ".to_owned(),
            echo: true,
        };
        let mut line = Vec::new();
        write_line(&mut line, &Note::Prompt { id: 1, question: Question::of(&prompt) }).unwrap();
        let note: Option<Note> = read_line(&mut BufReader::new(&line[..])).unwrap();
        let Some(Note::Prompt { id: 1, question }) = note else { panic!("{note:?}") };
        assert_eq!(question.prompt(), prompt);
        let mut answer = Answer::new(1, &Ok(Secret::new("hunter2".to_owned())));
        assert!(!format!("{answer:?}").contains("hunter2"));
        assert_eq!(answer.result().unwrap().reveal(), "hunter2");
        let mut none = Answer::new(1, &Err(Unanswered::Nobody));
        assert_eq!(none.result().unwrap_err(), Unanswered::Nobody);
    }
}
