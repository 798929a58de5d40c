//! The bytes below a line: an SSH channel, or any stream of bytes.

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::ssh;

/// Bytes that one read takes at most.
const READ_BYTES_MAX: usize = 64 << 10;

/// Something that came from the far end.
#[derive(Debug)]
pub(super) enum Part {
    /// Bytes of the protocol.
    Output(Bytes),
    /// Diagnostics of the shell or the helper; not part of the protocol.
    Diagnostics(Bytes),
    /// Nothing follows.
    End(String),
}

/// The receiving half of a link.
pub(super) enum LinkReader {
    /// Any byte stream.
    Io(Box<dyn AsyncRead + Send + Unpin>, BytesMut),
    /// The one session channel of a connection.
    Channel(ssh::ChannelReader),
}

/// The sending half of a link.
pub(super) enum LinkWriter {
    /// Any byte stream.
    Io(Box<dyn AsyncWrite + Send + Unpin>),
    /// The one session channel of a connection.
    Channel(ssh::ChannelWriter),
}

impl LinkReader {
    pub(super) fn over(io: impl AsyncRead + Send + Unpin + 'static) -> Self {
        LinkReader::Io(Box::new(io), BytesMut::new())
    }

    /// Waits for the next part. Cancel safe: a dropped call loses nothing.
    pub(super) async fn next(&mut self) -> Part {
        match self {
            LinkReader::Io(io, buffer) => {
                buffer.reserve(READ_BYTES_MAX);
                match io.read_buf(buffer).await {
                    Ok(0) => Part::End("end of input".to_owned()),
                    Ok(_) => Part::Output(buffer.split().freeze()),
                    Err(error) => Part::End(error.to_string()),
                }
            }
            LinkReader::Channel(channel) => loop {
                match channel.next().await {
                    Some(ssh::Part::Stdout(bytes)) => return Part::Output(bytes),
                    Some(ssh::Part::Stderr(bytes)) => return Part::Diagnostics(bytes),
                    // The close that follows tells the same and comes after the last byte.
                    Some(ssh::Part::Exit { .. }) => {}
                    Some(ssh::Part::Closed { reason }) => return Part::End(reason),
                    None => return Part::End("the channel was closed".to_owned()),
                }
            },
        }
    }
}

impl LinkReader {
    /// The next part if it is at hand.
    pub(super) fn try_next(&mut self) -> Option<Part> {
        match self {
            // A read of a plain stream takes all that is there already.
            LinkReader::Io(..) => None,
            LinkReader::Channel(channel) => loop {
                match channel.try_next()? {
                    ssh::Part::Stdout(bytes) => return Some(Part::Output(bytes)),
                    ssh::Part::Stderr(bytes) => return Some(Part::Diagnostics(bytes)),
                    ssh::Part::Exit { .. } => {}
                    ssh::Part::Closed { reason } => return Some(Part::End(reason)),
                }
            },
        }
    }
}

impl LinkWriter {
    pub(super) fn over(io: impl AsyncWrite + Send + Unpin + 'static) -> Self {
        LinkWriter::Io(Box::new(io))
    }

    /// Writes all bytes. Not cancel safe: one task owns the writer.
    pub(super) async fn write(&mut self, bytes: Bytes) -> Result<(), String> {
        match self {
            LinkWriter::Io(io) => {
                io.write_all(&bytes).await.map_err(|error| error.to_string())?;
                io.flush().await.map_err(|error| error.to_string())
            }
            LinkWriter::Channel(channel) => channel.write(bytes).await.map_err(|error| error.to_string()),
        }
    }

    /// Tells the far end that nothing follows.
    pub(super) async fn finish(&mut self) -> Result<(), String> {
        match self {
            LinkWriter::Io(io) => io.shutdown().await.map_err(|error| error.to_string()),
            LinkWriter::Channel(channel) => channel.finish().await.map_err(|error| error.to_string()),
        }
    }
}
