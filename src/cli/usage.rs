//! What a wrong command line is answered with, and what can be told of it before it is parsed.

use std::ffi::OsString;

use clap::error::ErrorKind;

use super::output::Output;
use crate::failure::Failure;
use crate::kind::Kind;

/// What the raw arguments say about how to answer, even when they don't parse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Invocation {
    /// `--json` stands before any `--`.
    json_flag: bool,
    /// The command is `exec`, whose own failures have another exit code.
    pub(super) exec: bool,
    /// The command is `ssh-config resolve`, which always speaks JSON.
    resolve: bool,
}

impl Invocation {
    /// Looks at the arguments of a process, its name included.
    pub(super) fn of(arguments: &[OsString]) -> Invocation {
        let ours: Vec<&str> = arguments
            .iter()
            .skip(1)
            .map(|argument| argument.to_str().unwrap_or(""))
            .take_while(|argument| *argument != "--")
            .collect();
        let mut words = ours.iter().filter(|argument| !argument.starts_with('-'));
        let (first, second) = (words.next().copied(), words.next().copied());
        Invocation {
            json_flag: ours.contains(&"--json"),
            exec: first == Some("exec"),
            resolve: (first, second) == (Some("ssh-config"), Some("resolve")),
        }
    }

    /// Whether answers and errors are JSON.
    pub(super) fn json(self) -> bool {
        self.json_flag || self.resolve
    }
}

/// Answers what clap could not parse: help and version are answers, all else is `usage`.
pub(super) fn answer(error: &clap::Error, output: &Output) -> Result<u8, Failure> {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            let rendered = error.render();
            output.text(&rendered.to_string())?;
            Ok(0)
        }
        // Whoever gives no command at all wants to see which there are.
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand if !output.json() => {
            output.stderr_bytes(error.render().to_string().as_bytes())?;
            Ok(Kind::Usage.exit_code())
        }
        _ => Err(failure(error)),
    }
}

/// Turns clap's paragraphs into one message and one hint.
fn failure(error: &clap::Error) -> Failure {
    let text = error.render().to_string();
    let mut paragraphs = text.trim_end().split("\n\n");
    let one_line = |paragraph: &str| paragraph.lines().map(str::trim).collect::<Vec<_>>().join(" ");
    let message = one_line(paragraphs.next().unwrap_or_default());
    let mut hints: Vec<String> = Vec::new();
    for paragraph in paragraphs {
        // Clap's last paragraph only repeats that there is --help, which the usage line already shows.
        let wanted = ["tip:", "Usage:", "[possible values"]
            .iter()
            .any(|word| paragraph.trim_start().starts_with(word));
        if wanted {
            hints.push(one_line(paragraph).replacen("tip: ", "", 1).replacen("Usage: ", "usage: ", 1));
        }
    }
    let message = match error.kind() {
        // The first paragraph is then the help text's, which is no message.
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand | ErrorKind::MissingSubcommand => {
            "a command is missing"
        }
        _ => message.strip_prefix("error: ").unwrap_or(&message),
    };
    let failure = Failure::new(Kind::Usage, message);
    if hints.is_empty() { failure } else { failure.hint(hints.join("; ")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(words: &[&str]) -> Invocation {
        Invocation::of(&words.iter().map(OsString::from).collect::<Vec<_>>())
    }

    #[test]
    fn json_is_ours_only_before_the_dashes() {
        assert!(of(&["towline", "--json", "doctor"]).json());
        assert!(of(&["towline", "doctor", "--json"]).json());
        assert!(!of(&["towline", "exec", "hpc", "--", "ls", "--json"]).json());
    }

    #[test]
    fn resolve_always_speaks_json_and_exec_is_known() {
        assert!(of(&["towline", "ssh-config", "resolve"]).json());
        assert!(!of(&["towline", "ssh-config", "check"]).json());
        assert!(of(&["towline", "--json", "exec"]).exec);
        assert!(!of(&["towline", "job", "exec"]).exec);
    }
}
