//! A line as the far end of the jobs room.

use std::time::Duration;

use super::remote::{Answer, Call, Fault, FileFacts, FilePart, Remote, RemoteError};
use crate::line::message::{Code, FileKind, Program};
use crate::line::{self, ByteText, Line};

/// Bytes of standard error that are kept of a command.
const STDERR_BYTES_MAX: usize = 64 << 10;

impl Remote for Line {
    fn home(&self) -> Vec<u8> {
        self.facts().helper.hello.home.0.clone()
    }

    async fn run(&self, call: Call) -> Result<Answer, RemoteError> {
        let Call { argv, stdin, cwd, env, deadline, stdout_bytes_max } = call;
        let argv = argv.into_iter().map(ByteText).collect();
        // A deadline of nothing would be refused, and no question is worth asking for less.
        let mut command = self
            .command(Program::Argv(argv))
            .deadline(deadline.max(Duration::from_millis(1)))
            .keep(stdout_bytes_max, 0);
        if let Some(cwd) = cwd {
            command = command.cwd(cwd);
        }
        for (name, value) in env {
            command = command.env(name, value);
        }
        let output = command.output(stdin).await.map_err(remote_error)?;
        if let Some(message) = output.outcome.start_error {
            let fault = if output.outcome.rc == 127 { Fault::NotFound } else { Fault::Other };
            return Err(RemoteError { fault, dispatched: false, message, source: None });
        }
        let mut stderr = output.stderr;
        stderr.truncate(STDERR_BYTES_MAX);
        Ok(Answer {
            rc: output.outcome.signal.is_none().then_some(output.outcome.rc),
            stdout: output.stdout,
            stdout_dropped: output.outcome.stdout_dropped,
            stderr,
            timed_out: output.outcome.timed_out,
        })
    }

    async fn stat(&self, path: &[u8]) -> Result<Option<FileFacts>, RemoteError> {
        match self.files().stat(path, true).await {
            Ok(found) => {
                Ok(Some(FileFacts { size: found.size, directory: found.kind == FileKind::Directory }))
            }
            Err(line::Error::Refused(refusal)) if refusal.code == Code::NotFound => Ok(None),
            Err(error) => Err(remote_error(error)),
        }
    }

    async fn read(&self, path: &[u8], offset: u64, length: u64) -> Result<FilePart, RemoteError> {
        let mut reader = self.files().read(path, offset, Some(length)).await.map_err(remote_error)?;
        let mut bytes = Vec::new();
        while let Some(piece) = reader.next().await.map_err(remote_error)? {
            bytes.extend_from_slice(&piece);
        }
        let size = reader.end().map_or(offset + bytes.len() as u64, |(_, size)| size);
        Ok(FilePart { bytes, size })
    }
}

fn remote_error(error: line::Error) -> RemoteError {
    let fault = match &error {
        line::Error::NotConnected(_) | line::Error::Lost(_) | line::Error::OutcomeUnknown(_) => Fault::Line,
        line::Error::Refused(refusal) => match refusal.code {
            Code::NotFound => Fault::NotFound,
            Code::Permission => Fault::Permission,
            Code::InvalidRequest
            | Code::TooLarge
            | Code::Exists
            | Code::NoSpace
            | Code::IsDirectory
            | Code::NotDirectory
            | Code::Io
            | Code::Unsupported
            | Code::Cancelled
            | Code::Busy
            | Code::ChecksumMismatch
            | Code::PolicyDenied
            | Code::PolicyInvalid
            | Code::NotConnected => Fault::Other,
        },
        line::Error::Invalid { .. } | line::Error::Unexpected { .. } => Fault::Other,
    };
    RemoteError {
        fault,
        dispatched: error.dispatched(),
        message: error.to_string(),
        source: Some(Box::new(error)),
    }
}
