//! The first bytes of a server, read before russh sees them and then given to it again.
//!
//! Reading them ourselves tells apart what russh reports as one error: a peer that is no SSH server, one
//! that hangs up before or after its version line, one that is silent, and one with unfit algorithms.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader, ReadBuf};

use super::offer::{Offer, Packet, packet};
use super::prompt::printable;

/// Anything that SSH can run over: a TCP or Unix socket, or a tunnel through a jump host.
pub(super) trait ByteStream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> ByteStream for S {}

/// russh reads in small pieces; the buffer saves most system calls.
pub(super) const READ_BUFFER_BYTES: usize = 256 * 1024;

pub(super) type Wire = BufReader<Box<dyn ByteStream>>;

/// How we introduce ourselves.
pub(super) const CLIENT_ID: &str = concat!("SSH-2.0-towline_", env!("CARGO_PKG_VERSION"));

/// RFC 4253, 4.2: a version line has at most 255 bytes; other lines may come before it.
const VERSION_LINE_BYTES_MAX: usize = 255;
const TEXT_BEFORE_VERSION_BYTES_MAX: usize = 16 * 1024;
/// RFC 4253, 6.1, as OpenSSH bounds a first packet.
const PACKET_BYTES_MAX: u32 = 35_000;
const PACKETS_BEFORE_OFFER_MAX: usize = 8;

/// Why a server's first bytes are not those of a usable SSH server.
#[derive(Debug)]
pub(super) enum Fault {
    /// It closed or reset the connection before its version line; the text is what it said until then.
    ClosedBeforeVersion {
        said: String,
        reset: bool,
    },
    /// It says something that is not SSH.
    NotSsh {
        said: String,
    },
    /// It speaks only an older protocol.
    OldProtocol {
        version: String,
    },
    /// It closed the connection between its version line and its algorithms.
    ClosedInKeyExchange,
    /// It refused, with a text.
    Refused {
        text: String,
    },
    /// Its bytes are out of order.
    Malformed(&'static str),
    Io(io::Error),
}

/// Sends our version line and reads the server's, skipping text before it.
pub(super) async fn exchange_versions(wire: &mut Wire) -> Result<String, Fault> {
    // A reset that is already waiting is found by the read, which can still tell what was said before.
    if let Err(error) = wire.write_all(format!("{CLIENT_ID}\r\n").as_bytes()).await
        && !is_hang_up(&error)
    {
        return Err(Fault::Io(error));
    }
    let mut said = Vec::new();
    loop {
        let line = match read_line(wire).await {
            Ok(Some(line)) => line,
            Ok(None) if said.is_empty() => {
                return Err(Fault::ClosedBeforeVersion { said: String::new(), reset: false });
            }
            Ok(None) => {
                return Err(Fault::ClosedBeforeVersion { said: shown(&said), reset: false });
            }
            Err(error) if is_hang_up(&error) => {
                return Err(Fault::ClosedBeforeVersion { said: shown(&said), reset: true });
            }
            Err(error) => return Err(Fault::Io(error)),
        };
        if let Some(rest) = line.strip_prefix(b"SSH-") {
            return version(&line, rest);
        }
        said.extend_from_slice(&line);
        said.push(b'\n');
        let too_long = line.len() > VERSION_LINE_BYTES_MAX;
        if too_long || said.len() > TEXT_BEFORE_VERSION_BYTES_MAX || speaks_other_protocol(&line) {
            return Err(Fault::NotSsh { said: shown(&said) });
        }
    }
}

fn version(line: &[u8], rest: &[u8]) -> Result<String, Fault> {
    let text = std::str::from_utf8(line).map_err(|_| Fault::NotSsh { said: shown(line) })?;
    if rest.starts_with(b"2.0-") || rest.starts_with(b"1.99-") {
        Ok(text.to_owned())
    } else {
        Err(Fault::OldProtocol { version: printable(text) })
    }
}

/// Servers of these protocols wait for more of our request, so their first line must be enough.
fn speaks_other_protocol(line: &[u8]) -> bool {
    let first = [b"HTTP/".as_slice(), b"220 ", b"220-", b"+OK", b"* OK", b"<", b"RFB "];
    first.iter().any(|start| line.starts_with(start))
}

/// One line without its end; a last line without an end counts, nothing at all is `None`.
async fn read_line(wire: &mut Wire) -> io::Result<Option<Vec<u8>>> {
    let mut line = Vec::new();
    loop {
        let mut byte = [0];
        if wire.read(&mut byte).await? == 0 {
            return Ok(if line.is_empty() { None } else { Some(line) });
        }
        let [byte] = byte;
        if byte == b'\n' {
            if line.last() == Some(&b'\r') {
                line.pop();
            }
            return Ok(Some(line));
        }
        line.push(byte);
        if line.len() > VERSION_LINE_BYTES_MAX {
            return Ok(Some(line));
        }
    }
}

/// Reads the server's algorithm lists; the second value holds all bytes that were read.
pub(super) async fn read_offer(wire: &mut Wire) -> Result<(Offer, Vec<u8>), Fault> {
    let mut bytes = Vec::new();
    for _ in 0..PACKETS_BEFORE_OFFER_MAX {
        let mut length = [0; 4];
        read_exact(wire, &mut length).await?;
        bytes.extend(length);
        let length = u32::from_be_bytes(length);
        if length > PACKET_BYTES_MAX {
            return Err(Fault::Malformed("a packet longer than any first packet may be"));
        }
        let mut body = vec![0; usize::try_from(length).unwrap_or_default()];
        read_exact(wire, &mut body).await?;
        match packet(&body) {
            Packet::Offer(offer) => {
                bytes.extend(body);
                return Ok((*offer, bytes));
            }
            Packet::Disconnect(text) => {
                return Err(Fault::Refused { text: printable(&text) });
            }
            Packet::Malformed(what) => return Err(Fault::Malformed(what)),
            Packet::Skipped => bytes.extend(body),
        }
    }
    Err(Fault::Malformed("no key exchange message among its first packets"))
}

async fn read_exact(wire: &mut Wire, buffer: &mut [u8]) -> Result<(), Fault> {
    match wire.read_exact(buffer).await {
        Ok(_) => Ok(()),
        Err(error) if is_hang_up(&error) => Err(Fault::ClosedInKeyExchange),
        Err(error) => Err(Fault::Io(error)),
    }
}

fn is_hang_up(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::UnexpectedEof
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::BrokenPipe
            | io::ErrorKind::NotConnected
    )
}

/// The beginning of what a peer said, fit for a message.
fn shown(said: &[u8]) -> String {
    const SHOWN_CHARACTERS_MAX: usize = 200;
    let text = printable(String::from_utf8_lossy(said).trim()).replace('\n', " | ");
    text.chars().take(SHOWN_CHARACTERS_MAX).collect()
}

/// Gives russh the bytes that were read already, and swallows the version line that was sent already.
pub(super) struct Replay {
    wire: Wire,
    again: Vec<u8>,
    given: usize,
    swallow: usize,
}

impl Replay {
    pub fn new(wire: Wire, version: &str, offer: &[u8]) -> Self {
        let mut again = format!("{version}\r\n").into_bytes();
        again.extend_from_slice(offer);
        Replay { wire, again, given: 0, swallow: CLIENT_ID.len() + 2 }
    }
}

impl AsyncRead for Replay {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        match this.again.get(this.given..) {
            Some(rest) if !rest.is_empty() => {
                let taken = rest.len().min(buffer.remaining());
                buffer.put_slice(rest.get(..taken).unwrap_or_default());
                this.given += taken;
                Poll::Ready(Ok(()))
            }
            _ => Pin::new(&mut this.wire).poll_read(cx, buffer),
        }
    }
}

impl AsyncWrite for Replay {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if self.swallow > 0 {
            let swallowed = bytes.len().min(self.swallow);
            self.swallow -= swallowed;
            return Poll::Ready(Ok(swallowed));
        }
        Pin::new(&mut self.wire).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.wire).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.wire).poll_shutdown(cx)
    }
}
