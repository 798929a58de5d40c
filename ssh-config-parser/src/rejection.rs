//! What is reported about a configuration: rejections, findings and notes.

use std::fmt;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

/// Names the rule that a rejected configuration broke.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reason {
    /// OpenSSH itself rejects the line or the host name.
    Syntax,
    /// A `Match` line, which is refused wherever it stands.
    Match,
    /// An include chain that is too deep, or an included file that cannot be opened.
    Include,
    /// A file that somebody else owns or may write.
    Permissions,
    /// A token or an environment variable that has no value.
    Expansion,
    /// An effective keyword that would start a program, load code or weaken a check.
    Refused,
    /// A host that is reached through itself.
    JumpLoop,
    /// The main file cannot be read.
    Io,
}

impl Reason {
    /// Gives the word of the contract, in lower case.
    pub fn as_str(self) -> &'static str {
        match self {
            Reason::Syntax => "syntax",
            Reason::Match => "match",
            Reason::Include => "include",
            Reason::Permissions => "permissions",
            Reason::Expansion => "expansion",
            Reason::Refused => "refused",
            Reason::JumpLoop => "jump-loop",
            Reason::Io => "io",
        }
    }
}

/// Says why a configuration cannot be used, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejection {
    /// The rule that was broken.
    pub reason: Reason,
    /// The file at fault, where one is.
    pub file: Option<PathBuf>,
    /// The line at fault, counted from 1, where one is.
    pub line: Option<u64>,
    /// The thing, the value and the bound, as a lower-case fragment.
    pub message: String,
}

impl Rejection {
    pub(crate) fn new(reason: Reason, message: impl Into<String>) -> Self {
        Self { reason, file: None, line: None, message: message.into() }
    }

    pub(crate) fn at(mut self, file: &Path, line: Option<u64>) -> Self {
        self.file = Some(file.to_path_buf());
        self.line = line;
        self
    }

    /// Renders the object that stands under `error` in the JSON answer of a refused `resolve`.
    ///
    /// `file` and `line` are null where they make no sense; bytes of a path that are not UTF-8 are replaced.
    pub fn to_json(&self) -> Value {
        json!({
            "kind": "ssh_config_rejected",
            "reason": self.reason.as_str(),
            "file": self.file.as_ref().map(|file| file.to_string_lossy()),
            "line": self.line,
            "message": self.message,
        })
    }
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.file, self.line) {
            (Some(file), Some(line)) => write!(f, "{}:{line}: {}", file.display(), self.message),
            (Some(file), None) => write!(f, "{}: {}", file.display(), self.message),
            (None, _) => f.write_str(&self.message),
        }
    }
}

impl std::error::Error for Rejection {}

/// Something that a configuration asks for and that has no effect here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    /// The file that asks for it.
    pub file: PathBuf,
    /// The line that asks for it, counted from 1.
    pub line: u64,
    /// What is not done, as a lower-case fragment.
    pub message: String,
}

/// Tells whether a finding keeps a host from being used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Severity {
    /// At least one host cannot be used.
    Error,
    /// Accepted, but without effect.
    Note,
}

impl Severity {
    /// Gives the word of the contract: `error` or `note`.
    pub fn as_str(self) -> &'static str {
        match self {
            Severity::Error => "error",
            Severity::Note => "note",
        }
    }
}

/// One thing that [`crate::check`] found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The file at fault, where one is.
    pub file: Option<PathBuf>,
    /// The line at fault, counted from 1, where one is.
    pub line: Option<u64>,
    /// Whether it keeps a host from being used.
    pub severity: Severity,
    /// The rule in question; a note's is the word `note`.
    pub reason: String,
    /// The thing, the value and the bound, as a lower-case fragment.
    pub message: String,
}

impl Finding {
    /// Renders one element of the `findings` list of `ssh-config check`.
    pub fn to_json(&self) -> Value {
        json!({
            "file": self.file.as_ref().map(|file| file.to_string_lossy()),
            "line": self.line,
            "severity": self.severity.as_str(),
            "reason": self.reason,
            "message": self.message,
        })
    }
}

impl From<Rejection> for Finding {
    fn from(rejection: Rejection) -> Self {
        Self {
            file: rejection.file,
            line: rejection.line,
            severity: Severity::Error,
            reason: rejection.reason.as_str().to_owned(),
            message: rejection.message,
        }
    }
}

impl From<Note> for Finding {
    fn from(note: Note) -> Self {
        Self {
            file: Some(note.file),
            line: Some(note.line),
            severity: Severity::Note,
            reason: "note".to_owned(),
            message: note.message,
        }
    }
}
