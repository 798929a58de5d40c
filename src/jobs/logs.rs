//! The output files of jobs: where they are, what is in them, and what comes next.

use std::collections::VecDeque;
use std::time::Duration;

use base64::Engine as _;
use serde::Serialize;
use tokio::time::{Instant, sleep};

use super::driver::{Jobs, present};
use super::error::Error;
use super::id::{JobId, Part};
use super::pace::Look;
use super::record::{Job, Presence, shown};
use super::remote::{Fault, FilePart, Remote};

/// Most bytes of a log that one call returns; a longer one is cut at the front and said to be.
const LOG_BYTES_MAX: u64 = 8 << 20;
/// How much is read at once.
const BLOCK: u64 = 256 << 10;
/// Pause between two looks at a file that is followed.
const FOLLOW_PAUSE: Duration = Duration::from_millis(500);
/// How long a file is read on after the job's end, since compute nodes write late.
const AFTER_END: Duration = Duration::from_secs(10);

/// Which output of a job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Output {
    /// Standard output.
    #[default]
    Stdout,
    /// Standard error; the same file unless the job keeps them apart.
    Stderr,
}

/// What of a log is wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogOptions {
    /// Which output.
    pub output: Output,
    /// Only that many last lines; all that fits when absent.
    pub tail: Option<u64>,
}

/// Some of a log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LogPart {
    /// The file, escaped where it is not UTF-8.
    pub path: String,
    /// The text, or its base64.
    pub text: String,
    /// `utf-8` or `base64`.
    pub encoding: &'static str,
    /// Offset of the first byte in the file.
    pub offset: u64,
    /// Size of the file when it was read.
    pub size: u64,
    /// Whether bytes before or behind these were left out because of the bound.
    pub truncated: bool,
}

impl LogPart {
    fn new(path: &[u8], bytes: &[u8], offset: u64, size: u64) -> Self {
        let (text, encoding) = match std::str::from_utf8(bytes) {
            Ok(text) => (text.to_owned(), "utf-8"),
            Err(_not_text) => (base64::engine::general_purpose::STANDARD.encode(bytes), "base64"),
        };
        LogPart { path: shown(path), text, encoding, offset, size, truncated: false }
    }

    /// The bytes, exactly as they are in the file.
    pub fn bytes(&self) -> Vec<u8> {
        match self.encoding {
            // What `new` encoded decodes.
            "base64" => base64::engine::general_purpose::STANDARD.decode(&self.text).unwrap_or_default(),
            _ => self.text.clone().into_bytes(),
        }
    }
}

impl<R: Remote> Jobs<R> {
    /// Reads a job's log as it is now.
    ///
    /// # Errors
    /// [`Error::NoLog`] with the reason when there is no file, [`Error::NotFound`], [`Error::InvalidInput`] for an
    /// array as a whole (name a task), [`Error::Unreachable`], [`Error::Remote`]. It is a pure read: a retry is safe.
    ///
    /// # Cancel safety
    /// It may be dropped.
    pub async fn logs(&self, id: &str, options: &LogOptions) -> Result<LogPart, Error> {
        let (job, path) = self.log_path(id, options.output).await?;
        match options.tail {
            Some(lines) => self.last_lines(&job, &path, lines).await,
            None => {
                let size = self.read_log(&job, &path, 0, 0).await?.size;
                let offset = size.saturating_sub(LOG_BYTES_MAX);
                let (bytes, size) = self.read_range(&job, &path, offset, LOG_BYTES_MAX).await?;
                let mut part = LogPart::new(&path, &bytes, offset, size);
                part.truncated = offset > 0;
                Ok(part)
            }
        }
    }

    /// Begins to follow a job's log: from its beginning, or from the last lines that `options` ask for.
    ///
    /// # Errors
    /// As [`Jobs::logs`], but a file that isn't there yet is waited for.
    ///
    /// # Cancel safety
    /// It may be dropped.
    pub async fn follow(&self, id: &str, options: &LogOptions) -> Result<Follow<'_, R>, Error> {
        let (job, path) = self.log_path(id, options.output).await?;
        let mut follow = Follow {
            jobs: self,
            id: self.parse_id(id)?,
            path,
            offset: 0,
            kept: Vec::new(),
            ready: VecDeque::new(),
            ended: job.state.terminal().then(Instant::now),
            next_look: Instant::now(),
            look: Look { young: true, questions: 2, ..Look::default() },
            job,
        };
        if let Some(lines) = options.tail {
            match self.last_lines(&follow.job, &follow.path, lines).await {
                Ok(part) => {
                    follow.offset = part.size;
                    follow.ready.push_back(part);
                }
                Err(Error::NoLog { .. }) => {} // It is waited for.
                Err(error) => return Err(error),
            }
        }
        Ok(follow)
    }

    /// Finds the file: what the scheduler reports, else what was asked for, else the scheduler's default.
    async fn log_path(&self, id: &str, output: Output) -> Result<(Job, Vec<u8>), Error> {
        let id = self.parse_id(id)?;
        let ids = std::slice::from_ref(&id);
        let Some(mut job) = present(ids, self.look(ids).await?)?.into_iter().next() else {
            return Err(Error::NotFound { ids: vec![id.to_string()] });
        };
        if id.part == Part::Whole && job.array.is_some() && job.id.part == Part::Whole {
            return Err(Error::invalid(
                "id",
                format!("job {id} is an array, each task has a log of its own: name one, such as {id}_1"),
            ));
        }
        self.add_detail(&id, &mut job).await?;
        let own = self.own(&job.id);
        let asked = |stderr: bool| {
            let own = own.as_ref()?;
            if stderr { own.error.clone() } else { own.output.clone() }
        };
        let stdout = job.stdout.clone().or_else(|| asked(false));
        let pattern = match output {
            Output::Stdout => stdout,
            Output::Stderr => job.stderr.clone().or_else(|| asked(true)).or(stdout),
        };
        let pattern = pattern.unwrap_or_else(|| self.scheduler.default_output(&job));
        let path = self.scheduler.expand(&pattern, &job).ok_or_else(|| Error::NoLog {
            id: id.to_string(),
            path: Some(shown(&pattern)),
            explanation: format!(
                "the log of job {id} is {}, and what its patterns stand for is not known yet (state {})",
                shown(&pattern),
                job.state.as_str()
            ),
        })?;
        let absolute = path.starts_with(b"/") || path.starts_with(b"~/");
        let path = match &job.work_dir {
            Some(directory) if !absolute => [directory.as_slice(), b"/", &path].concat(),
            _ => path,
        };
        Ok((job, path))
    }

    async fn read_log(&self, job: &Job, path: &[u8], offset: u64, length: u64) -> Result<FilePart, Error> {
        match self.remote.read(path, offset, length).await {
            Ok(part) => Ok(part),
            Err(error) if error.fault == Fault::NotFound => Err(self.no_log(job, path)),
            Err(source) => Err(Error::Remote { doing: format!("reading the log {}", shown(path)), source }),
        }
    }

    fn no_log(&self, job: &Job, path: &[u8]) -> Error {
        let explanation = self.scheduler.explain_missing_log(job).unwrap_or_else(|| {
            let state = job.state.as_str();
            let path = shown(path);
            if job.state.terminal() {
                format!("job {} ended ({state}), and there is no file {path}", job.id.text)
            } else {
                format!("job {} is {state}, and there is no file {path} yet", job.id.text)
            }
        });
        Error::NoLog { id: job.id.to_string(), path: Some(shown(path)), explanation }
    }

    /// Reads a range block by block.
    async fn read_range(
        &self,
        job: &Job,
        path: &[u8],
        offset: u64,
        length: u64,
    ) -> Result<(Vec<u8>, u64), Error> {
        let mut bytes = Vec::new();
        loop {
            let got = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
            let want = length.saturating_sub(got).min(BLOCK);
            let part = self.read_log(job, path, offset.saturating_add(got), want).await?;
            if part.bytes.is_empty() {
                return Ok((bytes, part.size));
            }
            bytes.extend_from_slice(&part.bytes);
        }
    }

    /// Reads the last lines, backwards block by block.
    async fn last_lines(&self, job: &Job, path: &[u8], lines: u64) -> Result<LogPart, Error> {
        let size = self.read_log(job, path, 0, 0).await?.size;
        let mut start = size;
        let mut bytes: Vec<u8> = Vec::new();
        loop {
            if let Some(at) = start_of_last(&bytes, lines) {
                let cut = u64::try_from(at).unwrap_or(u64::MAX);
                return Ok(LogPart::new(path, bytes.get(at..).unwrap_or_default(), start + cut, size));
            }
            if start == 0 || size - start >= LOG_BYTES_MAX {
                let mut part = LogPart::new(path, &bytes, start, size);
                part.truncated = start > 0;
                return Ok(part);
            }
            let begin = start.saturating_sub(BLOCK);
            let (mut front, _) = self.read_range(job, path, begin, start - begin).await?;
            front.append(&mut bytes);
            (bytes, start) = (front, begin);
        }
    }
}

/// Finds where the last `lines` lines begin; `None` when more may stand in front. A final line end belongs to the
/// last line.
fn start_of_last(bytes: &[u8], lines: u64) -> Option<usize> {
    if lines == 0 {
        return Some(bytes.len());
    }
    let body = bytes.strip_suffix(b"\n").unwrap_or(bytes);
    let nth = usize::try_from(lines - 1).ok()?; // More lines than memory: all of them.
    let mut ends = body.iter().enumerate().rev().filter(|(_, byte)| **byte == b'\n');
    ends.nth(nth).map(|(at, _)| at + 1)
}

/// A log that is followed: its parts one after the other, until the job's end and a little longer.
#[derive(Debug)]
pub struct Follow<'a, R> {
    jobs: &'a Jobs<R>,
    id: JobId,
    path: Vec<u8>,
    offset: u64,
    /// Bytes of a character that was cut by the end of a block.
    kept: Vec<u8>,
    ready: VecDeque<LogPart>,
    job: Job,
    ended: Option<Instant>,
    next_look: Instant,
    look: Look,
}

impl<R: Remote> Follow<'_, R> {
    /// Waits for the next part; `None` when the job has ended and its file has been quiet since.
    ///
    /// A file that shrank was begun anew, so it is read from its beginning; one that isn't there yet is waited for.
    ///
    /// # Errors
    /// [`Error::NoLog`] when the job ended without a file; [`Error::Remote`] when the line ended. A scheduler that
    /// can't be asked doesn't end it.
    ///
    /// # Cancel safety
    /// A part is lost only when the future is dropped after its bytes were read; begin again with [`Jobs::follow`].
    pub async fn next(&mut self) -> Result<Option<LogPart>, Error> {
        if let Some(part) = self.ready.pop_front() {
            return Ok(Some(part));
        }
        loop {
            let late = self.ended.is_some_and(|ended| ended.elapsed() >= AFTER_END);
            match self.jobs.read_log(&self.job, &self.path, self.offset, BLOCK).await {
                Ok(part) if part.size < self.offset => {
                    (self.offset, self.kept) = (0, Vec::new());
                    continue;
                }
                Ok(part) if !part.bytes.is_empty() => {
                    if let Some(part) = self.take(part) {
                        return Ok(Some(part));
                    }
                    continue;
                }
                Ok(part) if late => return Ok(self.rest(part.size)),
                Err(error @ Error::NoLog { .. }) if late => return Err(error),
                Err(Error::NoLog { .. }) | Ok(_) => {}
                Err(error) => return Err(error),
            }
            self.look_at_job().await?;
            sleep(FOLLOW_PAUSE).await;
        }
    }

    /// Makes a part, keeping back a character that is not whole yet.
    fn take(&mut self, part: FilePart) -> Option<LogPart> {
        let kept = u64::try_from(self.kept.len()).unwrap_or(u64::MAX);
        let start = self.offset - kept;
        self.offset += u64::try_from(part.bytes.len()).unwrap_or(u64::MAX);
        let mut bytes = std::mem::take(&mut self.kept);
        bytes.extend_from_slice(&part.bytes);
        if let Err(error) = std::str::from_utf8(&bytes)
            && error.error_len().is_none()
        {
            self.kept = bytes.split_off(error.valid_up_to());
        }
        (!bytes.is_empty()).then(|| LogPart::new(&self.path, &bytes, start, part.size))
    }

    /// What was kept back never became whole.
    fn rest(&mut self, size: u64) -> Option<LogPart> {
        let bytes = std::mem::take(&mut self.kept);
        let kept = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        (!bytes.is_empty()).then(|| LogPart::new(&self.path, &bytes, self.offset - kept, size))
    }

    async fn look_at_job(&mut self) -> Result<(), Error> {
        let now = Instant::now();
        if self.ended.is_some() || now < self.next_look {
            return Ok(());
        }
        let told = self.jobs.look(std::slice::from_ref(&self.id)).await?;
        match told.into_iter().next() {
            Some(Presence::Present(job)) => {
                self.look.failures = 0;
                if job.state.terminal() {
                    self.ended = Some(Instant::now());
                    // The paths are known already; what explains a missing file is not.
                    let paths = (self.job.stdout.take(), self.job.stderr.take());
                    self.job = job;
                    (self.job.stdout, self.job.stderr) = paths;
                }
            }
            // Nobody knows it any more: there is nothing to wait for.
            Some(Presence::Absent) | None => self.ended = Some(Instant::now()),
            Some(Presence::CouldNotAsk(_)) => {
                self.look.failures = self.look.failures.saturating_add(1);
            }
        }
        self.look.looks = self.look.looks.saturating_add(1);
        self.next_look = self.jobs.pace().next(Instant::now(), &self.look);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_begin_behind_the_right_line_end() {
        assert_eq!(start_of_last(b"a\nb\nc\n", 1), Some(4));
        assert_eq!(start_of_last(b"a\nb\nc\n", 2), Some(2));
        assert_eq!(start_of_last(b"a\nb\nc", 2), Some(2));
        assert_eq!(start_of_last(b"a\nb\n", 2), None);
        assert_eq!(start_of_last(b"", 3), None);
        assert_eq!(start_of_last(b"a\n", 0), Some(2));
    }
}
