//! Our side of russh's callbacks: the host key check, the banner, refusing whatever the server would open,
//! and remembering why a connection ended.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use russh::client::{ChannelOpenHandle, DisconnectReason, Handler, Msg, Session};
use russh::keys::PublicKeyOrCertificate;
use russh::{Channel, ChannelId, ChannelOpenFailure};
use ssh_config_parser::known_hosts::KnownHosts;
use tokio::sync::watch;

use super::error::Error;
use super::host_key::{self, Shown};
use super::prompt::{Human, printable};
use super::target::Hop;

/// What a server may show before the login, in all its banners together; the rest is dropped.
const BANNER_CHARACTERS_MAX: usize = 16 * 1024;

const REFUSAL_TEXT_TIME_MAX: Duration = Duration::from_secs(1);

/// What the callbacks learn and others want to know.
#[derive(Debug)]
pub(super) struct Noted {
    /// Why the connection ended; none while it lives.
    ended: watch::Sender<Option<String>>,
    /// Guards our own reason for ending the connection, set before the end is sent.
    ending: Mutex<Option<String>>,
    /// Guards the accepted host key's fingerprint, set once before authentication begins.
    host_key_sha256: Mutex<Option<String>>,
    /// The server's text for a refused channel.
    channel_refusal: watch::Sender<Option<String>>,
}

impl Noted {
    pub fn new() -> Arc<Noted> {
        Arc::new(Noted {
            ended: watch::Sender::new(None),
            ending: Mutex::new(None),
            host_key_sha256: Mutex::new(None),
            channel_refusal: watch::Sender::new(None),
        })
    }

    pub fn host_key_sha256(&self) -> String {
        let noted = self.host_key_sha256.lock().unwrap_or_else(PoisonError::into_inner);
        noted.clone().unwrap_or_default()
    }

    /// russh reports a refusal to its opener just before it gives us the text, so this waits a moment.
    pub async fn channel_refusal(&self) -> Option<String> {
        let mut watching = self.channel_refusal.subscribe();
        let text = tokio::time::timeout(REFUSAL_TEXT_TIME_MAX, watching.wait_for(Option::is_some));
        text.await.ok()?.ok()?.clone()
    }

    /// Why the connection ended, if it has.
    pub fn ended(&self) -> Option<String> {
        self.ended.borrow().clone()
    }

    /// Waits for the end of the connection. Cancel safe.
    pub async fn until_ended(&self) -> String {
        let mut watching = self.ended.subscribe();
        // The sender lives in `self`, so waiting cannot fail; an empty reason stands for that.
        match watching.wait_for(Option::is_some).await {
            Ok(reason) => reason.clone().unwrap_or_default(),
            Err(_) => String::new(),
        }
    }

    /// Tells that it is us who end the connection, for this reason.
    pub fn ending(&self, reason: &str) {
        let mut ending = self.ending.lock().unwrap_or_else(PoisonError::into_inner);
        ending.get_or_insert_with(|| format!("ended here: {reason}"));
    }

    fn end(&self, reason: String) {
        let ours = self.ending.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let reason = ours.unwrap_or(reason);
        self.ended.send_if_modified(|ended| {
            let first = ended.is_none();
            if first {
                *ended = Some(reason);
            }
            first
        });
    }
}

/// An error out of the session: russh's own, or our refusal of the host key.
#[derive(Debug)]
pub(super) enum SessionError {
    Russh(russh::Error),
    Refused(Error),
}

impl From<russh::Error> for SessionError {
    fn from(error: russh::Error) -> Self {
        SessionError::Russh(error)
    }
}

/// Handles the events of one hop's connection.
pub(super) struct Events {
    hop: Arc<Hop>,
    known: KnownHosts,
    human: Arc<Human>,
    noted: Arc<Noted>,
    banner_room: usize,
}

impl Events {
    pub fn new(hop: Arc<Hop>, known: KnownHosts, human: Arc<Human>, noted: Arc<Noted>) -> Self {
        Events { hop, known, human, noted, banner_room: BANNER_CHARACTERS_MAX }
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        // Also reached when the session's task panics: nobody may wait for it for ever.
        self.noted.end("the connection was closed".to_owned());
    }
}

/// Says what ended a connection, as a fragment.
pub(super) fn describe(error: &russh::Error) -> String {
    match error {
        russh::Error::KeepaliveTimeout => "no answer to keepalives".to_owned(),
        russh::Error::Disconnect | russh::Error::HUP => "the server closed the connection".to_owned(),
        russh::Error::NoAuthMethod => "the server has no further method that we know".to_owned(),
        russh::Error::IO(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
            "the server closed the connection".to_owned()
        }
        russh::Error::IO(error) => format!("the network failed: {error}"),
        other => format!("protocol error: {other}"),
    }
}

/// The words of RFC 4254, 5.1, for a refused channel.
pub(super) fn refusal_word(reason: &ChannelOpenFailure) -> &'static str {
    match reason {
        ChannelOpenFailure::AdministrativelyProhibited => "administratively prohibited",
        ChannelOpenFailure::ConnectFailed => "connect failed",
        ChannelOpenFailure::UnknownChannelType => "unknown channel type",
        ChannelOpenFailure::ResourceShortage => "resource shortage",
        ChannelOpenFailure::Other { .. } => "another reason",
    }
}

impl Handler for Events {
    type Error = SessionError;

    async fn check_server_key(&mut self, key: &PublicKeyOrCertificate) -> Result<bool, SessionError> {
        let shown = Shown::new(key).map_err(|problem| {
            SessionError::Refused(Error::ConnectFailed {
                phase: super::error::Phase::KeyExchange,
                host: self.hop.host.clone(),
                port: self.hop.port,
                problem: format!("host key cannot be read: {problem}"),
                hint: None,
            })
        })?;
        host_key::check(&self.hop, &self.known, &shown, &self.human).await.map_err(SessionError::Refused)?;
        let mut noted = self.noted.host_key_sha256.lock().unwrap_or_else(PoisonError::into_inner);
        *noted = Some(shown.fingerprint());
        Ok(true)
    }

    async fn auth_banner(&mut self, banner: &str, _session: &mut Session) -> Result<(), SessionError> {
        let text: String = printable(banner).chars().take(self.banner_room).collect();
        self.banner_room = self.banner_room.saturating_sub(banner.len().max(1));
        if !text.trim().is_empty() {
            self.human.tell(text).await;
        }
        Ok(())
    }

    async fn channel_open_failure(
        &mut self,
        _channel: ChannelId,
        reason: ChannelOpenFailure,
        description: &str,
        _language: &str,
        _session: &mut Session,
    ) -> Result<(), SessionError> {
        let text = match description.trim() {
            "" => refusal_word(&reason).to_owned(),
            description => format!("{} ({})", refusal_word(&reason), printable(description)),
        };
        self.noted.channel_refusal.send_replace(Some(text));
        Ok(())
    }

    async fn disconnected(&mut self, reason: DisconnectReason<SessionError>) -> Result<(), SessionError> {
        match reason {
            DisconnectReason::ReceivedDisconnect(info) => {
                self.noted.end(format!("the server ended it: {}", printable(info.message.trim())));
                Ok(())
            }
            DisconnectReason::Error(error) => {
                self.noted.end(match &error {
                    SessionError::Russh(error) => describe(error),
                    SessionError::Refused(error) => error.to_string(),
                });
                Err(error)
            }
        }
    }

    // Whatever a server opens towards us is refused: dropping the handle unanswered says so to it.

    async fn server_channel_open_forwarded_tcpip(
        &mut self,
        _channel: Channel<Msg>,
        _connected_address: &str,
        _connected_port: u32,
        _originator_address: &str,
        _originator_port: u32,
        _reply: ChannelOpenHandle,
        _session: &mut Session,
    ) -> Result<(), SessionError> {
        Ok(())
    }

    async fn server_channel_open_forwarded_streamlocal(
        &mut self,
        _channel: Channel<Msg>,
        _socket_path: &str,
        _reply: ChannelOpenHandle,
        _session: &mut Session,
    ) -> Result<(), SessionError> {
        Ok(())
    }

    async fn server_channel_open_agent_forward(
        &mut self,
        _channel: Channel<Msg>,
        _reply: ChannelOpenHandle,
        _session: &mut Session,
    ) -> Result<(), SessionError> {
        Ok(())
    }

    async fn server_channel_open_session(
        &mut self,
        _channel: Channel<Msg>,
        _reply: ChannelOpenHandle,
        _session: &mut Session,
    ) -> Result<(), SessionError> {
        Ok(())
    }

    async fn server_channel_open_direct_tcpip(
        &mut self,
        _channel: Channel<Msg>,
        _host_to_connect: &str,
        _port_to_connect: u32,
        _originator_address: &str,
        _originator_port: u32,
        _reply: ChannelOpenHandle,
        _session: &mut Session,
    ) -> Result<(), SessionError> {
        Ok(())
    }

    async fn server_channel_open_direct_streamlocal(
        &mut self,
        _channel: Channel<Msg>,
        _socket_path: &str,
        _reply: ChannelOpenHandle,
        _session: &mut Session,
    ) -> Result<(), SessionError> {
        Ok(())
    }

    async fn server_channel_open_x11(
        &mut self,
        _channel: Channel<Msg>,
        _originator_address: &str,
        _originator_port: u32,
        _reply: ChannelOpenHandle,
        _session: &mut Session,
    ) -> Result<(), SessionError> {
        Ok(())
    }
}
