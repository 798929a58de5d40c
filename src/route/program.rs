//! Runs a system program that knows an evidence: by absolute path, with no environment of ours, within bounds.

use std::io::Read as _;
use std::os::fd::AsFd as _;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::error::Error;

/// A program that has not answered by then is killed, and what it knows cannot be told.
const RUN_TIME_MAX: Duration = Duration::from_secs(2);
const OUTPUT_BYTES_MAX: usize = 256 << 10;
/// Between two looks at a program that has closed its output but not ended.
const END_PAUSE: Duration = Duration::from_millis(5);

/// What a program said.
#[derive(Debug)]
pub(super) struct Output {
    /// Its exit code; none when a signal ended it.
    pub code: Option<i32>,
    /// Its standard output.
    pub text: String,
}

/// Runs a program and keeps what it writes to its standard output.
pub(super) fn run(program: &'static str, arguments: &[&str]) -> Result<Output, Error> {
    let failed = |problem: String| Error::Program { program, problem };
    let mut child = Command::new(program)
        .args(arguments)
        .env_clear()
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| failed(error.to_string()))?;
    let due = Instant::now() + RUN_TIME_MAX;
    let said = listen(&mut child, due).and_then(|bytes| Ok((bytes, end(&mut child, due)?)));
    if said.is_err() {
        // It may have ended by itself just now; either way it is reaped, and its answer counts no more.
        if let Err(error) = child.kill().and_then(|()| child.wait()) {
            tracing::debug!("{program}: {error}");
        }
    }
    let (bytes, code) = said.map_err(failed)?;
    let text = String::from_utf8(bytes).map_err(|_| failed("its output is not UTF-8".to_owned()))?;
    Ok(Output { code, text })
}

fn listen(child: &mut Child, due: Instant) -> Result<Vec<u8>, String> {
    let mut stdout = child.stdout.take().ok_or("its output is not connected")?;
    let (mut bytes, mut buffer) = (Vec::new(), [0; 4096]);
    loop {
        let left = due.saturating_duration_since(Instant::now());
        let wait = PollTimeout::try_from(left).map_err(|error| error.to_string())?;
        let ready = poll(&mut [PollFd::new(stdout.as_fd(), PollFlags::POLLIN)], wait);
        match ready {
            Err(nix::errno::Errno::EINTR) => continue,
            Err(error) => return Err(error.to_string()),
            Ok(0) => return Err(too_slow()),
            Ok(_) => {}
        }
        let count = stdout.read(&mut buffer).map_err(|error| error.to_string())?;
        if count == 0 {
            return Ok(bytes);
        }
        bytes.extend_from_slice(buffer.get(..count).unwrap_or_default());
        if bytes.len() > OUTPUT_BYTES_MAX {
            return Err(format!("its output is longer than {OUTPUT_BYTES_MAX} bytes"));
        }
    }
}

fn end(child: &mut Child, due: Instant) -> Result<Option<i32>, String> {
    loop {
        if let Some(status) = child.try_wait().map_err(|error| error.to_string())? {
            return Ok(status.code());
        }
        if Instant::now() >= due {
            return Err(too_slow());
        }
        thread::sleep(END_PAUSE);
    }
}

fn too_slow() -> String {
    format!("no answer within {} s", RUN_TIME_MAX.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Result<Output, Error> {
        run("/bin/sh", &["-c", script])
    }

    #[test]
    fn what_a_program_says_is_kept_with_its_code_and_it_gets_no_environment() {
        let output = shell("echo \"$HOME$PATH_OF_OURS$LC_ALL\"; exit 3").unwrap();
        assert_eq!((output.code, output.text.as_str()), (Some(3), "C\n"));
    }

    #[test]
    fn an_absent_a_silent_and_an_endless_program_are_errors_within_the_bound() {
        assert!(run("/nonexistent/program", &[]).is_err());
        let begin = Instant::now();
        for script in ["exec sleep 60", "exec >&-; exec sleep 60", "exec yes", "kill -9 $$"] {
            let said = shell(script);
            assert!(said.as_ref().map_or(true, |output| output.code.is_none()), "{script}: {said:?}");
        }
        assert!(begin.elapsed() < 4 * RUN_TIME_MAX, "{:?}", begin.elapsed());
    }
}
