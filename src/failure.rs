//! What every face says when something failed: the contract's kind, a message, what to do next, and the facts.
//!
//! Stands right below the faces and imports every room, to map each room's error in one `match` without a wildcard: a
//! new variant does not compile until somebody has decided its kind, its hint and whether the call may be repeated.

mod jobs;
mod policy;
mod transport;

use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use serde_json::{Map, Value, json};
use ssh_config_parser::{Reason, Rejection};
use towline_helper::wire::ByteText;

use crate::config;
use crate::kind::Kind;

/// A failed operation, ready to be shown by any face.
#[derive(Clone, Debug, PartialEq)]
pub struct Failure {
    /// The contract's kind.
    pub kind: Kind,
    /// What happened: the thing, the value and the bound.
    pub message: String,
    /// What to do next.
    pub hint: String,
    /// Whether the same call may be repeated as it is; only when nothing was done and it costs no login.
    pub retry_safe: bool,
    /// The facts of the kind, such as `file`, `line`, `site`, `reason`.
    pub fields: Map<String, Value>,
}

impl Failure {
    /// Makes a failure with what its kind says by default.
    pub fn new(kind: Kind, message: impl Into<String>) -> Failure {
        Failure {
            kind,
            message: message.into(),
            hint: kind.default_hint().to_owned(),
            retry_safe: kind.retry_safe_by_default(),
            fields: Map::new(),
        }
    }

    /// Replaces the kind's hint by a more exact one.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Failure {
        self.hint = hint.into();
        self
    }

    /// Adds a fact.
    #[must_use]
    pub fn field(mut self, name: &str, value: impl Into<Value>) -> Failure {
        self.fields.insert(name.to_owned(), value.into());
        self
    }

    /// Says that a failed pure read may be repeated.
    #[must_use]
    pub fn of_pure_read(mut self) -> Failure {
        self.retry_safe = true;
        self
    }

    /// The object that stands on stderr with `--json`.
    pub fn to_json(&self) -> Value {
        // The pinned names go in last, so that no fact can replace them.
        let mut error = self.fields.clone();
        error.insert("kind".to_owned(), self.kind.as_str().into());
        error.insert("message".to_owned(), self.message.clone().into());
        error.insert("hint".to_owned(), self.hint.clone().into());
        error.insert("retry_safe".to_owned(), self.retry_safe.into());
        json!({ "error": error })
    }

    /// What a person reads after `error:`; a mistake in a file begins with its place.
    pub fn human_message(&self) -> String {
        let text = |value: &Value| value.as_str().map(str::to_owned);
        match (self.fields.get("file").and_then(text), self.fields.get("line").map(Value::as_u64)) {
            (Some(file), Some(Some(line))) => format!("{file}:{line}: {}", self.message),
            (Some(file), Some(None)) => format!("{file}: {}", self.message),
            (_, None) | (None, _) => self.message.clone(),
        }
    }

    fn at(self, place: &config::Place) -> Failure {
        self.field("file", shown(&place.file)).field("line", place.line)
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.human_message())
    }
}

impl std::error::Error for Failure {}

impl From<config::Error> for Failure {
    fn from(error: config::Error) -> Failure {
        use config::Error;
        let failure = Failure::new(error.kind(), error.to_string());
        match error {
            Error::Variable { variable, .. } => {
                failure.hint(format!("correct {variable}, or unset it")).field("which", variable)
            }
            Error::NoHome => failure.hint("set HOME, or TOWLINE_HOME to an absolute path"),
            Error::Entry { place, nearest: Some(nearest), .. } => {
                failure.hint(format!("did you mean `{nearest}`?")).at(&place)
            }
            Error::Entry { place, nearest: None, .. } => failure.hint("correct that line").at(&place),
            Error::UnknownSite { name, file, line, nearest, known } => {
                let hint = match (nearest, known.as_slice()) {
                    (Some(nearest), _) => format!("did you mean `{nearest}`?"),
                    (None, []) => format!(
                        "no site is configured; begin with [site.NAME] and host = \"…\" in {}",
                        file.display()
                    ),
                    (None, known) => format!("the configured sites are {}", known.join(", ")),
                };
                let failure = failure.hint(hint).field("site", name).field("file", shown(&file));
                match line {
                    Some(line) => failure.field("line", line),
                    None => failure,
                }
            }
            Error::NoRole { site, role, place } => failure
                .hint("set transfer_host in that site's table, or leave --role out")
                .field("site", site)
                .field("role", role.as_str())
                .at(&place),
            Error::MissingKey { site, key, place } => failure
                .hint(format!("set {key} in that site's table"))
                .field("site", site)
                .field("which", key)
                .at(&place),
            Error::Untrusted { file, mend, .. } => failure.hint(mend).field("file", shown(&file)),
            Error::Io { path, source, .. } => {
                let hint = match source.kind() {
                    std::io::ErrorKind::PermissionDenied => {
                        "give yourself the right to it: `ls -ld` shows owner and mode"
                    }
                    _ => "see the system's message",
                };
                failure.hint(hint).field("file", shown(&path))
            }
            Error::Home { path, mend, .. } => failure.hint(mend).field("file", shown(&path)),
            Error::SocketPath { path, bytes, limit } => failure
                .hint("set TOWLINE_HOME to a shorter path, or give the site a shorter name")
                .field("file", shown(&path))
                .field("length", bytes)
                .field("limit", limit),
            Error::SharedDirectory { first, second } => failure
                .hint(format!("remove the link {}, while no line of either role is open", second.display()))
                .field("file", shown(&first)),
        }
    }
}

impl From<Rejection> for Failure {
    fn from(rejection: Rejection) -> Failure {
        let hint = match rejection.reason {
            Reason::Syntax => "OpenSSH refuses it too; `towline ssh-config check` shows every finding",
            Reason::Match => "write what that block sets into Host blocks; towline never evaluates Match",
            Reason::Include => "look at the chain of Include lines that leads there",
            Reason::Permissions => {
                "the file must be yours or root's, and `chmod go-w` takes others' right to write"
            }
            Reason::Expansion => "set the variable, or write the value itself",
            Reason::Refused => "take the line out for this host, or set it to `none`",
            Reason::JumpLoop => "a hop of ProxyJump leads back to itself; give that hop its own Host block",
            Reason::Io => "name a file that you can read",
        };
        Failure::new(Kind::SshConfigRejected, rejection.message)
            .hint(hint)
            .field("reason", rejection.reason.as_str())
            .field("file", rejection.file.map_or(Value::Null, |file| shown(&file).into()))
            .field("line", rejection.line)
    }
}

/// A path for JSON and people: bytes that are not UTF-8 are escaped as `\xE9`.
fn shown(path: &Path) -> String {
    ByteText(path.as_os_str().as_bytes().to_vec()).escaped()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_json_form_is_the_contracts_and_facts_cannot_replace_it() {
        let failure = Failure::new(Kind::Busy, "the run is held").field("id", "r1").field("kind", "usage");
        let expected = json!({"error": {
            "kind": "busy", "message": "the run is held", "hint": Kind::Busy.default_hint(), "retry_safe": true, "id": "r1",
        }});
        assert_eq!(failure.to_json(), expected);
    }

    #[test]
    fn a_rejection_keeps_reason_file_and_line_even_when_null() {
        let rejection =
            Rejection { reason: Reason::JumpLoop, file: None, line: None, message: "a loop".to_owned() };
        let failure = Failure::from(rejection);
        assert_eq!((failure.kind, failure.retry_safe), (Kind::SshConfigRejected, false));
        assert_eq!(failure.to_json()["error"]["reason"], "jump-loop");
        assert!(failure.fields.contains_key("file") && failure.fields.contains_key("line"));
        assert_eq!(failure.human_message(), "a loop");
        let placed = Rejection {
            reason: Reason::Match,
            file: Some("/c".into()),
            line: Some(3),
            message: "no".to_owned(),
        };
        assert_eq!(Failure::from(placed).human_message(), "/c:3: no");
    }

    #[test]
    fn a_mistyped_key_has_place_and_proposal() {
        let place = config::Place { file: "/t/config.toml".into(), line: 7 };
        let error = config::Error::Entry {
            place,
            message: "[site.a] has no key `hots`".to_owned(),
            nearest: Some("host".to_owned()),
        };
        let failure = Failure::from(error);
        assert_eq!(failure.human_message(), "/t/config.toml:7: [site.a] has no key `hots`");
        assert_eq!(failure.hint, "did you mean `host`?");
        assert_eq!((failure.fields["line"].as_u64(), failure.kind.exit_code()), (Some(7), 2));
    }
}
