//! The far side's files.

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncReadExt};
use towline_helper::wire::endpoint::STDIN;

use super::ByteText;
use super::error::Error;
use super::handle::Line;
use super::message::{self, DiskUsage, Entry, Metadata, Outcome, Request};
use super::stream::StreamEvent;
use super::tail::Tail;

/// Bytes of a file that are read and sent at a time.
const PIECE_BYTES: usize = 128 << 10;

/// Operations on files. Paths are literal, but for a leading `~/` that means the session's home.
#[derive(Clone, Debug)]
pub struct Files {
    line: Line,
}

/// How a file is written.
#[derive(Clone, Debug, Default)]
pub struct WriteOptions {
    /// Whether an existing file may be replaced.
    pub overwrite: bool,
    /// Mode bits before the umask.
    pub mode: Option<u32>,
    /// Exact size that must arrive.
    pub size: Option<u64>,
    /// SHA-256 in hexadecimal that the content must have.
    pub sha256: Option<String>,
    /// Whether missing parents are made.
    pub parents: bool,
}

impl Files {
    pub(super) fn new(line: Line) -> Self {
        Files { line }
    }

    /// Tells what a path is; a symbolic link is followed when `follow` is set.
    ///
    /// # Errors
    /// [`Error`] when there is no such path or the line ends; a repetition is safe.
    ///
    /// # Cancel safety
    /// A dropped call has no effect.
    pub async fn stat(&self, path: impl Into<ByteText>, follow: bool) -> Result<Metadata, Error> {
        match self.line.ask("stat", Request::Stat { path: path.into(), follow }).await? {
            Outcome::Stat(metadata) => Ok(metadata),
            _ => Err(Error::Unexpected { asked: "stat" }),
        }
    }

    /// Lists a directory in byte order of the names.
    ///
    /// # Errors
    /// [`Error`] when it is no directory, may not be read, or the line ends; a repetition is safe.
    ///
    /// # Cancel safety
    /// A dropped call has no effect.
    pub async fn list(&self, path: impl Into<ByteText>) -> Result<Vec<Entry>, Error> {
        let (lines, outcome) = self.collect("list", Request::List { path: path.into() }).await?;
        let entries: Vec<Entry> = lines
            .split(|byte| *byte == b'\n')
            .filter(|line| !line.is_empty())
            .map(|line| message::parse("entry", line))
            .collect::<Result<_, _>>()
            .map_err(|_malformed| Error::Unexpected { asked: "list" })?;
        match outcome {
            Outcome::List { entries: sent } if sent == entries.len() as u64 => Ok(entries),
            _ => Err(Error::Unexpected { asked: "list" }),
        }
    }

    /// Reads a range of a file as it arrives; see [`Tail::next`].
    ///
    /// # Errors
    /// [`Error`] when the line has ended.
    ///
    /// # Cancel safety
    /// Nothing remains at the far side when the future or the reader is dropped.
    pub async fn read(
        &self,
        path: impl Into<ByteText>,
        offset: u64,
        length: Option<u64>,
    ) -> Result<Tail, Error> {
        Ok(Tail::new(self.line.open(Request::Read { path: path.into(), offset, length }).await?))
    }

    /// Reads a range of a file into memory, at most `most` bytes.
    ///
    /// # Errors
    /// [`Error`] as for [`Files::read`], and [`Error::Invalid`] when there are more than `most` bytes.
    ///
    /// # Cancel safety
    /// A dropped call has no effect.
    pub async fn read_to_end(&self, path: impl Into<ByteText>, most: usize) -> Result<Vec<u8>, Error> {
        let path = path.into();
        let mut reader = self.read(path.clone(), 0, None).await?;
        let mut content = Vec::new();
        while let Some(bytes) = reader.next().await? {
            if content.len() + bytes.len() > most {
                let message = format!("{} has more than {most} bytes", path.escaped());
                return Err(Error::Invalid { message });
            }
            content.extend_from_slice(&bytes);
        }
        Ok(content)
    }

    /// Writes a file beside its target and renames it when all has arrived. Returns its size and SHA-256.
    ///
    /// # Errors
    /// [`Error`] when something is in the way, there is no space, the digest differs or `content` can't be read:
    /// the target is as it was then. [`Error::OutcomeUnknown`] when the line ends meanwhile.
    ///
    /// # Cancel safety
    /// The target of a dropped call is either as it was or complete.
    pub async fn write<R>(
        &self,
        path: impl Into<ByteText>,
        mut content: R,
        options: WriteOptions,
    ) -> Result<(u64, String), Error>
    where
        R: AsyncRead + Unpin,
    {
        let WriteOptions { overwrite, mode, size, sha256, parents } = options;
        let path = path.into();
        let write = message::Write { path: path.clone(), overwrite, mode, size, sha256, parents };
        let mut stream = self.line.open(Request::Write(write)).await?;
        let sender = stream.sender();
        loop {
            let mut piece = Vec::with_capacity(PIECE_BYTES);
            // An unreadable source drops the stream, and so the half-written file at the far side.
            let count =
                (&mut content).take(PIECE_BYTES as u64).read_to_end(&mut piece).await.map_err(|error| {
                    Error::Invalid { message: format!("cannot read the content: {error}") }
                })?;
            if !sender.send(STDIN, piece, count == 0).await || count == 0 {
                break;
            }
        }
        while let Some(event) = stream.next().await {
            if let StreamEvent::End(end) = event {
                return match *end? {
                    Outcome::Written { size, sha256 } => Ok((size, sha256)),
                    _ => Err(Error::Unexpected { asked: "write" }),
                };
            }
        }
        Err(Error::Unexpected { asked: "write" })
    }

    /// Tells the size and SHA-256 of a range of a file.
    ///
    /// # Errors
    /// [`Error`] when the file can't be read or the line ends; a repetition is safe.
    ///
    /// # Cancel safety
    /// A dropped call has no effect.
    pub async fn hash(
        &self,
        path: impl Into<ByteText>,
        offset: u64,
        length: Option<u64>,
    ) -> Result<(u64, String), Error> {
        match self.line.ask("hash", Request::Hash { path: path.into(), offset, length }).await? {
            Outcome::Hash { size, sha256 } => Ok((size, sha256)),
            _ => Err(Error::Unexpected { asked: "hash" }),
        }
    }

    /// Makes a directory, with `parents` also missing ones above it.
    ///
    /// # Errors
    /// [`Error`] when something is in the way; [`Error::OutcomeUnknown`] when the line ends meanwhile.
    ///
    /// # Cancel safety
    /// A dropped call may have made the directory.
    pub async fn mkdir(&self, path: impl Into<ByteText>, parents: bool, mode: u32) -> Result<(), Error> {
        self.done("mkdir", Request::Mkdir { path: path.into(), parents, mode }).await
    }

    /// Renames a path within one file system.
    ///
    /// # Errors
    /// [`Error`] when it can't be done; [`Error::OutcomeUnknown`] when the line ends meanwhile.
    ///
    /// # Cancel safety
    /// A dropped call may have renamed it.
    pub async fn rename(
        &self,
        from: impl Into<ByteText>,
        to: impl Into<ByteText>,
        overwrite: bool,
    ) -> Result<(), Error> {
        self.done("rename", Request::Rename { from: from.into(), to: to.into(), overwrite }).await
    }

    /// Removes a file, a link, or with `recursive` a directory and all below it.
    ///
    /// # Errors
    /// [`Error`] when it can't be done; [`Error::OutcomeUnknown`] when the line ends meanwhile.
    ///
    /// # Cancel safety
    /// A dropped call may have removed it or a part of it.
    pub async fn remove(&self, path: impl Into<ByteText>, recursive: bool) -> Result<(), Error> {
        self.done("remove", Request::Remove { path: path.into(), recursive }).await
    }

    /// Adds up what lies below a path.
    ///
    /// # Errors
    /// [`Error`] when the path can't be read or the line ends; a repetition is safe.
    ///
    /// # Cancel safety
    /// A dropped call has no effect.
    pub async fn disk_usage(&self, path: impl Into<ByteText>) -> Result<DiskUsage, Error> {
        match self.line.ask("disk usage", Request::DiskUsage { path: path.into() }).await? {
            Outcome::DiskUsage(usage) => Ok(usage),
            _ => Err(Error::Unexpected { asked: "disk usage" }),
        }
    }

    async fn done(&self, asked: &'static str, request: Request) -> Result<(), Error> {
        match self.line.ask(asked, request).await? {
            Outcome::Done {} => Ok(()),
            _ => Err(Error::Unexpected { asked }),
        }
    }

    async fn collect(&self, asked: &'static str, request: Request) -> Result<(Vec<u8>, Outcome), Error> {
        let mut stream = self.line.open(request).await?;
        let mut content: Vec<Bytes> = Vec::new();
        while let Some(event) = stream.next().await {
            match event {
                StreamEvent::Data { bytes, .. } => content.push(bytes),
                StreamEvent::Dispatched(_) => {}
                StreamEvent::End(end) => return Ok((content.concat(), *end?)),
            }
        }
        Err(Error::Unexpected { asked })
    }
}
