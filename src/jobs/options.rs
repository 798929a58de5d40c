//! What a job asks for, checked before anything is sent.

use std::time::Duration;

use super::error::Error;
use super::id::parse_tasks;
use super::key::SubmissionKey;

/// Longest time that a job may ask for: 10 years, which is beyond any scheduler's limit.
const TIME_MAX: Duration = Duration::from_secs(10 * 366 * 86_400);

/// Where a script comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Script {
    /// These bytes; `name` is the file's base name, which names the job when nothing else does.
    Bytes {
        /// The script, unchanged.
        bytes: Vec<u8>,
        /// Base name of the file it was read from, if any.
        name: Option<Vec<u8>>,
    },
    /// A file at the far end, literal but for a leading `~/`.
    Remote(Vec<u8>),
}

/// GPUs that a job wants, all nodes together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gpus {
    /// Their type, such as `a100`.
    pub kind: Option<String>,
    /// How many, at least 1.
    pub count: u64,
}

impl Gpus {
    /// Reads `[TYPE:]N`.
    ///
    /// # Errors
    /// [`Error::InvalidInput`] when it is not that.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let (kind, count) = match text.split_once(':') {
            Some((kind, count)) => (Some(kind), count),
            None => (None, text),
        };
        let plain = |kind: &str| {
            !kind.is_empty() && kind.bytes().all(|b| b.is_ascii_alphanumeric() || b"_.-".contains(&b))
        };
        match (kind, super::id::digits(count)) {
            (kind, Some(count)) if count > 0 && kind.is_none_or(plain) => {
                Ok(Gpus { kind: kind.map(str::to_owned), count })
            }
            _ => Err(Error::invalid("gpus", format!("gpus {text:?} is not [TYPE:]N with N at least 1"))),
        }
    }
}

/// Which events are mailed, and where to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mail {
    /// Events in the scheduler's words, such as `end,fail`.
    pub events: String,
    /// The address; the scheduler's own choice when absent.
    pub address: Option<String>,
}

impl Mail {
    /// Reads `EVENTS[=ADDRESS]`.
    ///
    /// # Errors
    /// [`Error::InvalidInput`] when the events are not words with commas between.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let (events, address) = match text.split_once('=') {
            Some((events, address)) => (events, Some(address)),
            None => (text, None),
        };
        let word =
            |word: &str| !word.is_empty() && word.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
        if !events.split(',').all(word) || address.is_some_and(str::is_empty) {
            return Err(Error::invalid(
                "mail",
                format!("mail {text:?} is not EVENTS[=ADDRESS], such as end,fail=me@example.org"),
            ));
        }
        Ok(Mail { events: events.to_owned(), address: address.map(str::to_owned) })
    }
}

/// All that `job submit` can ask for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SubmitOptions {
    /// The job's name, any bytes but NUL.
    pub name: Option<Vec<u8>>,
    /// The queue (Slurm: partition).
    pub queue: Option<String>,
    /// The account that pays.
    pub account: Option<String>,
    /// The time limit; schedulers that count minutes get it rounded up.
    pub time: Option<Duration>,
    /// How many nodes.
    pub nodes: Option<u64>,
    /// How many tasks.
    pub tasks: Option<u64>,
    /// How many CPUs a task.
    pub cpus: Option<u64>,
    /// How much memory a node, in bytes.
    pub mem_bytes: Option<u64>,
    /// How many GPUs, all nodes together.
    pub gpus: Option<Gpus>,
    /// The tasks of an array: `1-10:2,20%5`.
    pub array: Option<String>,
    /// Start only after these ended well.
    pub after_ok: Vec<String>,
    /// Start only after these ended.
    pub after_any: Vec<String>,
    /// Submit it held.
    pub hold: bool,
    /// The working directory, literal but for a leading `~/`.
    pub chdir: Option<Vec<u8>>,
    /// The file of standard output, with the scheduler's own patterns.
    pub output: Option<Vec<u8>>,
    /// The file of standard error, with the scheduler's own patterns.
    pub error: Option<Vec<u8>>,
    /// Variables of the job, exactly these.
    pub env: Vec<(String, Vec<u8>)>,
    /// The quality of service.
    pub qos: Option<String>,
    /// The reservation.
    pub reservation: Option<String>,
    /// What is mailed.
    pub mail: Option<Mail>,
    /// The scheduler's own flags, each one argument.
    pub native: Vec<Vec<u8>>,
    /// Arguments of the script.
    pub args: Vec<Vec<u8>>,
    /// The submission key; a random one when absent.
    pub key: Option<SubmissionKey>,
}

impl SubmitOptions {
    /// Checks what no scheduler could take, whatever its dialect.
    ///
    /// # Errors
    /// [`Error::InvalidInput`] with the option, its value and the bound.
    pub fn check(&self) -> Result<(), Error> {
        for (what, bytes) in self.texts() {
            if bytes.contains(&0) {
                return Err(Error::invalid(
                    what,
                    format!("{what} {:?} holds a NUL byte", super::record::shown(bytes)),
                ));
            }
        }
        let words = [
            ("queue", &self.queue),
            ("account", &self.account),
            ("qos", &self.qos),
            ("reservation", &self.reservation),
        ];
        for (what, word) in words {
            if let Some(word) = word
                && (word.is_empty() || word.chars().any(|c| c.is_control() || c == ' '))
            {
                return Err(Error::invalid(what, format!("{what} {word:?} is empty or holds a blank")));
            }
        }
        for (what, number) in
            [("nodes", self.nodes), ("tasks", self.tasks), ("cpus", self.cpus), ("mem", self.mem_bytes)]
        {
            // Slurm reads 0 as "all of it" or as "no limit", which nobody means who types it.
            if number == Some(0) {
                return Err(Error::invalid(what, format!("{what} is 0, the least is 1")));
            }
        }
        if let Some(time) = self.time
            && (time.is_zero() || time > TIME_MAX)
        {
            return Err(Error::invalid(
                "time",
                format!("time is {} s, allowed are 1 to {} s", time.as_secs(), TIME_MAX.as_secs()),
            ));
        }
        if let Some(array) = &self.array
            && parse_tasks(array).is_none()
        {
            return Err(Error::invalid(
                "array",
                format!("array {array:?} is not a list such as 1-10:2,20%5"),
            ));
        }
        self.check_env()
    }

    fn check_env(&self) -> Result<(), Error> {
        for (at, (name, _)) in self.env.iter().enumerate() {
            let mut bytes = name.bytes();
            let starts = bytes.next().is_some_and(|b| b.is_ascii_alphabetic() || b == b'_');
            if !starts || !bytes.all(|b| b.is_ascii_alphanumeric() || b == b'_') {
                return Err(Error::invalid(
                    "env",
                    format!("env name {name:?} is not [A-Za-z_][A-Za-z0-9_]*"),
                ));
            }
            if self.env.iter().skip(at + 1).any(|(other, _)| other == name) {
                return Err(Error::invalid("env", format!("env sets {name} twice")));
            }
        }
        Ok(())
    }

    /// All free texts, with the option that each belongs to.
    fn texts(&self) -> Vec<(&'static str, &[u8])> {
        let mut texts: Vec<(&'static str, &[u8])> = Vec::new();
        let single =
            [("name", &self.name), ("chdir", &self.chdir), ("output", &self.output), ("error", &self.error)];
        for (what, text) in single {
            texts.extend(text.as_deref().map(|text| (what, text)));
        }
        texts.extend(self.native.iter().map(|text| ("native", text.as_slice())));
        texts.extend(self.args.iter().map(|text| ("args", text.as_slice())));
        texts.extend(self.env.iter().map(|(_, value)| ("env", value.as_slice())));
        if let Some(Mail { address: Some(address), .. }) = &self.mail {
            texts.push(("mail", address.as_bytes()));
        }
        texts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_scheduler_could_take_is_refused_with_the_option() {
        let refused = |options: SubmitOptions| match options.check() {
            Err(Error::InvalidInput { what, .. }) => what,
            other => panic!("{other:?}"),
        };
        let zero = Some(Duration::ZERO);
        assert_eq!(refused(SubmitOptions { time: zero, ..Default::default() }), "time");
        assert_eq!(refused(SubmitOptions { cpus: Some(0), ..Default::default() }), "cpus");
        let nul = Some(b"a\0b".to_vec());
        assert_eq!(refused(SubmitOptions { name: nul, ..Default::default() }), "name");
        let array = Some("5-1".to_owned());
        assert_eq!(refused(SubmitOptions { array, ..Default::default() }), "array");
        let env = vec![("A-B".to_owned(), vec![])];
        assert_eq!(refused(SubmitOptions { env, ..Default::default() }), "env");
        let twice = vec![("A".to_owned(), vec![]), ("A".to_owned(), vec![])];
        assert_eq!(refused(SubmitOptions { env: twice, ..Default::default() }), "env");
        assert!(SubmitOptions { name: Some(b"a|b\nc\xe9".to_vec()), ..Default::default() }.check().is_ok());
    }

    #[test]
    fn gpus_and_mail_are_read_or_refused() {
        assert_eq!(Gpus::parse("2").unwrap(), Gpus { kind: None, count: 2 });
        let typed = Gpus { kind: Some("a100".into()), count: 4 };
        assert_eq!(Gpus::parse("a100:4").unwrap(), typed);
        for text in ["0", "a100:", ":1", "a b:1", "-1", ""] {
            assert!(Gpus::parse(text).is_err(), "{text:?}");
        }
        let mail = Mail::parse("end,fail=me@example.org").unwrap();
        assert_eq!(mail.address.as_deref(), Some("me@example.org"));
        for text in ["", "end,", "end=", "e d"] {
            assert!(Mail::parse(text).is_err(), "{text:?}");
        }
    }
}
