//! From an `exec` request to what the kernel is told: checks, environment, files to try. Pure.

use std::ffi::{CString, OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};

use towline_helper::wire::ByteText;
use towline_helper::wire::message::{
    ARGV_BYTES_MAX, Code, DEADLINE_MS_MAX, Exec, OUTPUT_TAIL_BYTES_MAX, Program, Refusal,
    SHELL_TEXT_BYTES_MAX,
};

use super::fault::refuse;
use super::session::{STREAM_VARIABLE, Session, Variables};

/// Where programs are looked up when the environment has no PATH, as `confstr(_CS_PATH)` says.
const PATH_DEFAULT: &[u8] = b"/bin:/usr/bin";

/// Everything that a fork needs, allocated beforehand: nothing may be allocated between fork and exec.
#[derive(Debug)]
pub(crate) struct Image {
    /// Files to try in this order, each with the number of its argument vector.
    pub(crate) attempts: Vec<(CString, usize)>,
    pub(crate) argvs: Vec<Vec<CString>>,
    pub(crate) environment: Vec<CString>,
    /// The working directory; the helper's own when absent.
    pub(crate) cwd: Option<CString>,
    /// The program as people know it, for error texts.
    pub(crate) shown: String,
}

/// Checks a request's bounds again, whoever checked them before (`o2.md` 3.2).
pub(crate) fn check(exec: &Exec) -> Result<(), Refusal> {
    match &exec.command {
        Program::Argv(argv) => {
            if argv.first().is_none_or(|name| name.as_bytes().is_empty()) {
                return Err(refuse(Code::InvalidRequest, "argv has no program".to_owned()));
            }
            let bytes: usize = argv.iter().map(|argument| argument.as_bytes().len() + 1).sum();
            check_length("argv", bytes, ARGV_BYTES_MAX)?;
            argv.iter().try_for_each(|argument| check_nul("an argument", argument))?;
        }
        Program::Shell(text) => {
            if text.as_bytes().is_empty() {
                return Err(refuse(Code::InvalidRequest, "shell text is empty".to_owned()));
            }
            check_length("shell text", text.as_bytes().len(), SHELL_TEXT_BYTES_MAX)?;
            check_nul("shell text", text)?;
        }
    }
    for (name, value) in &exec.env {
        if name.as_bytes().is_empty() || name.as_bytes().contains(&b'=') {
            let message = format!("variable name {:?} is empty or holds an equals sign", name.escaped());
            return Err(refuse(Code::InvalidRequest, message));
        }
        check_nul("a variable's name", name)?;
        check_nul("a variable's value", value)?;
    }
    if let Some(deadline) = exec.deadline_ms
        && !(1..=DEADLINE_MS_MAX).contains(&deadline)
    {
        let message = format!("deadline is {deadline} ms, the bounds are 1 to {DEADLINE_MS_MAX}");
        return Err(refuse(Code::InvalidRequest, message));
    }
    match exec.keep {
        Some(keep) if keep.tail > OUTPUT_TAIL_BYTES_MAX => {
            let message =
                format!("tail to keep is {} bytes, the limit is {OUTPUT_TAIL_BYTES_MAX}", keep.tail);
            Err(refuse(Code::TooLarge, message))
        }
        _ => Ok(()),
    }
}

/// Prepares a checked request.
pub(crate) fn image(exec: &Exec, stream: u32, session: &Session, base: &Variables) -> Result<Image, Refusal> {
    let mut variables = base.clone();
    for (name, value) in &exec.env {
        variables.insert(os(name), os(value));
    }
    variables.insert(STREAM_VARIABLE.into(), session.stream_mark(stream, exec.detach));
    let cwd = match &exec.cwd {
        Some(cwd) => Some(c_string(session.resolve(cwd)?.into_os_string().into_vec())?),
        None => None,
    };
    let environment = environment(&variables)?;
    match &exec.command {
        Program::Argv(argv) => {
            let name = argv.first().map(ByteText::as_bytes).unwrap_or_default();
            let arguments = argv.iter().map(|argument| c_string(argument.0.clone()));
            Ok(Image {
                attempts: candidates(name, variables.get(OsStr::new("PATH")))?,
                argvs: vec![arguments.collect::<Result<_, _>>()?],
                environment,
                cwd,
                shown: String::from_utf8_lossy(name).into_owned(),
            })
        }
        // Bash without any start-up file, or the system's own shell where there is no bash.
        Program::Shell(text) => Ok(Image {
            attempts: shells()?,
            argvs: vec![
                argv(&[b"bash", b"--noprofile", b"--norc", b"-c", text.as_bytes()])?,
                argv(&[b"sh", b"-c", text.as_bytes()])?,
            ],
            environment,
            cwd,
            shown: "/bin/sh".to_owned(),
        }),
    }
}

/// The shells that are tried, each with the number of its argument vector.
pub(crate) fn shells() -> Result<Vec<(CString, usize)>, Refusal> {
    Ok(vec![(c_string(b"/bin/bash".to_vec())?, 0), (c_string(b"/bin/sh".to_vec())?, 1)])
}

/// An argument vector from byte strings.
pub(crate) fn argv(arguments: &[&[u8]]) -> Result<Vec<CString>, Refusal> {
    arguments.iter().map(|argument| c_string(argument.to_vec())).collect()
}

/// The environment as the kernel wants it.
pub(crate) fn environment(variables: &Variables) -> Result<Vec<CString>, Refusal> {
    let entries =
        variables.iter().map(|(name, value)| c_string([name.as_bytes(), b"=", value.as_bytes()].concat()));
    entries.collect()
}

/// A C string; a NUL inside is the client's fault.
pub(crate) fn c_string(bytes: Vec<u8>) -> Result<CString, Refusal> {
    CString::new(bytes).map_err(|_nul| refuse(Code::InvalidRequest, "a text holds a NUL byte".to_owned()))
}

/// The files that a program's name may mean, looked up as `execvp` does.
fn candidates(name: &[u8], path: Option<&OsString>) -> Result<Vec<(CString, usize)>, Refusal> {
    if name.contains(&b'/') {
        return Ok(vec![(c_string(name.to_vec())?, 0)]);
    }
    let path = path.map_or(PATH_DEFAULT, |path| path.as_bytes());
    let files = path.split(|byte| *byte == b':').map(|folder| {
        let folder = if folder.is_empty() { b"." } else { folder };
        Ok((c_string([folder, b"/", name].concat())?, 0))
    });
    files.collect()
}

fn os(text: &ByteText) -> OsString {
    OsString::from_vec(text.0.clone())
}

fn check_length(what: &str, bytes: usize, most: usize) -> Result<(), Refusal> {
    if bytes > most {
        return Err(refuse(Code::TooLarge, format!("{what} is {bytes} bytes, the limit is {most}")));
    }
    Ok(())
}

fn check_nul(what: &str, text: &ByteText) -> Result<(), Refusal> {
    if text.as_bytes().contains(&0) {
        return Err(refuse(Code::InvalidRequest, format!("{what} holds a NUL byte")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exec(command: Program) -> Exec {
        Exec {
            command,
            cwd: None,
            env: Vec::new(),
            deadline_ms: None,
            stdin: false,
            detach: false,
            end_background: false,
            keep: None,
        }
    }

    fn code(exec: &Exec) -> Option<Code> {
        check(exec).err().map(|refusal| refusal.code)
    }

    #[test]
    fn bounds_hold_at_the_limit_and_one_byte_above() {
        let text = |bytes: usize| exec(Program::Shell(ByteText(vec![b'x'; bytes])));
        assert_eq!(code(&text(SHELL_TEXT_BYTES_MAX)), None);
        assert_eq!(code(&text(SHELL_TEXT_BYTES_MAX + 1)), Some(Code::TooLarge));
        let argv = |bytes: usize| exec(Program::Argv(vec!["p".into(), ByteText(vec![b'x'; bytes - 3])]));
        assert_eq!(code(&argv(ARGV_BYTES_MAX)), None);
        assert_eq!(code(&argv(ARGV_BYTES_MAX + 1)), Some(Code::TooLarge));
    }

    #[test]
    fn what_no_correct_client_sends_is_an_invalid_request() {
        let valid = exec(Program::Shell("true".into()));
        let wrong = [
            exec(Program::Argv(Vec::new())),
            exec(Program::Argv(vec!["".into()])),
            exec(Program::Argv(vec!["a\0b".into()])),
            exec(Program::Shell("".into())),
            exec(Program::Shell("a\0b".into())),
            Exec { deadline_ms: Some(0), ..valid.clone() },
            Exec { deadline_ms: Some(DEADLINE_MS_MAX + 1), ..valid.clone() },
            Exec { env: vec![("A=B".into(), "".into())], ..valid.clone() },
            Exec { env: vec![("".into(), "".into())], ..valid.clone() },
            Exec { env: vec![("A".into(), "\0".into())], ..valid.clone() },
        ];
        for request in wrong {
            assert_eq!(code(&request), Some(Code::InvalidRequest), "{request:?}");
        }
        assert_eq!(code(&valid), None);
    }

    #[test]
    fn names_are_looked_up_on_the_path_as_execvp_does() {
        let files = |name: &str, path: Option<&str>| -> Vec<String> {
            let path = path.map(OsString::from);
            let files = candidates(name.as_bytes(), path.as_ref()).unwrap();
            files.into_iter().map(|(file, _)| file.into_string().unwrap()).collect()
        };
        assert_eq!(files("./a", Some("/x")), ["./a"]);
        assert_eq!(files("a", Some("/x::/y")), ["/x/a", "./a", "/y/a"]);
        assert_eq!(files("a", None), ["/bin/a", "/usr/bin/a"]);
    }
}
