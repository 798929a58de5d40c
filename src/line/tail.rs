//! The end of a file as it grows.

use bytes::Bytes;

use super::error::Error;
use super::message::Outcome;
use super::stream::{Stream, StreamEvent};

/// Bytes of a file as they appear. Dropping it ends the tail.
#[derive(Debug)]
pub struct Tail {
    stream: Stream,
    end: Option<(u64, u64)>,
}

impl Tail {
    pub(super) fn new(stream: Stream) -> Self {
        Tail { stream, end: None }
    }

    /// Waits for more bytes; `None` when the tail has ended.
    ///
    /// # Errors
    /// [`Error`] when the file can't be read or the line ends; a repetition is safe.
    ///
    /// # Cancel safety
    /// A dropped call loses nothing.
    pub async fn next(&mut self) -> Result<Option<Bytes>, Error> {
        while let Some(event) = self.stream.next().await {
            match event {
                StreamEvent::Data { bytes, .. } if !bytes.is_empty() => return Ok(Some(bytes)),
                StreamEvent::Data { .. } | StreamEvent::Dispatched(_) => {}
                StreamEvent::End(Ok(outcome)) => match *outcome {
                    Outcome::Read { end, size } => {
                        self.end = Some((end, size));
                        return Ok(None);
                    }
                    _ => return Err(Error::Unexpected { asked: "tail" }),
                },
                StreamEvent::End(Err(error)) => return Err(error),
            }
        }
        match self.end {
            Some(_) => Ok(None),
            // Without its outcome the content may lack something, so its end is no end.
            None => Err(Error::Unexpected { asked: "tail" }),
        }
    }

    /// After the end: the offset behind the last byte, and the file's size when it was opened.
    pub fn end(&self) -> Option<(u64, u64)> {
        self.end
    }
}
