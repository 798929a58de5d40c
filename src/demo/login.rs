//! What a login node does with one connection: who may come in, and which channels it gets.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use bytes::Bytes;
use russh::keys::PublicKey;
use russh::server::{
    Auth, ChannelOpenHandle, Handler, Msg, PublicKeyOffer, Response, Session as Ssh, VerifiedPublicKey,
};
use russh::{Channel, ChannelId, ChannelOpenFailure, MethodKind, MethodSet, Pty};
use tokio::sync::{mpsc, oneshot};

use super::account::Account;
use super::exec::{Input, Session, Slot};
use super::link::Backlog;
use super::options::{Push, Tally, count};
use super::outbox::Outbox;

/// What the passcode is asked with, in the words of a common push service.
const PROMPT: &str = "Passcode or option (1-1): ";

/// What all connections of a server share.
pub(super) struct Shared {
    pub(super) account: Arc<Account>,
    pub(super) key: PublicKey,
    pub(super) passcode: Option<String>,
    pub(super) push: Option<Push>,
    pub(super) delay: Duration,
    pub(super) grace: Duration,
    pub(super) max_sessions: usize,
    pub(super) tally: Tally,
}

/// One connection.
pub(super) struct Login {
    shared: Arc<Shared>,
    backlog: Arc<Backlog>,
    outbox: Arc<Outbox>,
    /// Held by everything that must have ended before the server has.
    alive: mpsc::Sender<()>,
    key_proven: bool,
    passcode_proven: bool,
    open: Arc<AtomicUsize>,
    channels: HashMap<ChannelId, Open>,
}

/// A session channel. Dropping it closes the command's stdin and tells its task that the client is gone.
struct Open {
    stdin: mpsc::UnboundedSender<Input>,
    closed: oneshot::Sender<()>,
    slot: Arc<Slot>,
    waiting: Option<Session>,
}

impl Login {
    pub(super) fn new(
        shared: Arc<Shared>,
        backlog: Arc<Backlog>,
        outbox: Arc<Outbox>,
        alive: mpsc::Sender<()>,
    ) -> Self {
        Self {
            shared,
            backlog,
            outbox,
            alive,
            key_proven: false,
            passcode_proven: false,
            open: Arc::default(),
            channels: HashMap::new(),
        }
    }

    fn knows(&self, user: &str, key: &PublicKey) -> bool {
        user == self.shared.account.user && key.key_data() == self.shared.key.key_data()
    }

    fn refuse(&self) -> Auth {
        count(&self.shared.tally.refused_logins);
        Auth::reject()
    }

    fn send(&self, channel: ChannelId, part: Input) {
        let bytes = match &part {
            Input::Data(bytes) => bytes.len(),
            Input::Eof => 0,
        };
        self.backlog.add(bytes);
        let sent = self.channels.get(&channel).is_some_and(|open| open.stdin.send(part).is_ok());
        if !sent {
            // Its command has ended: nobody will read these.
            self.backlog.consume(bytes);
        }
    }
}

impl Handler for Login {
    type Error = russh::Error;

    async fn auth_publickey_offered(
        &mut self,
        user: &str,
        offer: PublicKeyOffer<'_>,
    ) -> Result<Auth, Self::Error> {
        if self.knows(user, offer.public_key) {
            return Ok(Auth::Accept);
        }
        Ok(self.refuse())
    }

    async fn auth_publickey(&mut self, user: &str, key: VerifiedPublicKey<'_>) -> Result<Auth, Self::Error> {
        if !self.knows(user, key.public_key) {
            return Ok(self.refuse());
        }
        if self.shared.passcode.is_none() {
            return Ok(Auth::Accept);
        }
        self.key_proven = true;
        Ok(Auth::Reject {
            proceed_with_methods: Some(MethodSet::from(&[MethodKind::KeyboardInteractive][..])),
            partial_success: true,
        })
    }

    async fn auth_keyboard_interactive<'a>(
        &'a mut self,
        user: &str,
        _submethods: &str,
        response: Option<Response<'a>>,
    ) -> Result<Auth, Self::Error> {
        let Some(passcode) = &self.shared.passcode else {
            return Ok(self.refuse());
        };
        if !self.key_proven || user != self.shared.account.user {
            return Ok(self.refuse());
        }
        let Some(mut answers) = response else {
            count(&self.shared.tally.second_factor_prompts);
            return Ok(ask(vec![(Cow::Borrowed(PROMPT), false)]));
        };
        if self.passcode_proven {
            return Ok(Auth::Accept);
        }
        tokio::time::sleep(self.shared.delay).await;
        let answer = answers.next();
        if answer.as_deref() != Some(passcode.as_bytes()) {
            return Ok(self.refuse());
        }
        self.passcode_proven = true;
        // PAM asks a second, empty list before it is content.
        Ok(ask(Vec::new()))
    }

    async fn channel_open_session(
        &mut self,
        channel: Channel<Msg>,
        reply: ChannelOpenHandle,
        _session: &mut Ssh,
    ) -> Result<(), Self::Error> {
        // Commands that ended by themselves leave an entry behind.
        self.channels.retain(|_, open| !open.closed.is_closed());
        let Some(slot) = Slot::take(&self.open, self.shared.max_sessions) else {
            count(&self.shared.tally.refused_channels);
            // What OpenSSH answers beyond MaxSessions: reason 2.
            reply.reject(ChannelOpenFailure::ConnectFailed).await;
            return Ok(());
        };
        let id = channel.id();
        // Data comes through the handler, which never waits; an unread read half would stop the whole session.
        let (_, writer) = channel.split();
        let (stdin, input) = mpsc::unbounded_channel();
        let (closed, gone) = oneshot::channel();
        let waiting = Some(Session {
            writer,
            stdin: input,
            closed: gone,
            slot: Arc::clone(&slot),
            backlog: Arc::clone(&self.backlog),
            outbox: Arc::clone(&self.outbox),
        });
        let open = Open { stdin, closed, slot: Arc::clone(&slot), waiting };
        self.channels.insert(id, open);
        tokio::spawn(admit(Arc::clone(&self.shared), slot, reply));
        Ok(())
    }

    async fn exec_request(
        &mut self,
        channel: ChannelId,
        command: &[u8],
        ssh: &mut Ssh,
    ) -> Result<(), Self::Error> {
        let waiting = self.channels.get_mut(&channel).and_then(|open| open.waiting.take());
        let Some(session) = waiting else {
            return ssh.channel_failure(channel);
        };
        count(&self.shared.tally.exec_requests);
        ssh.channel_success(channel)?;
        let (handle, command) = (ssh.handle(), command.to_vec());
        let (account, grace) = (Arc::clone(&self.shared.account), self.shared.grace);
        let alive = self.alive.clone();
        tokio::spawn(async move {
            session.run(handle, account, command, grace).await;
            drop(alive);
        });
        Ok(())
    }

    async fn data(&mut self, channel: ChannelId, data: &[u8], _session: &mut Ssh) -> Result<(), Self::Error> {
        self.send(channel, Input::Data(Bytes::copy_from_slice(data)));
        Ok(())
    }

    fn adjust_window(&mut self, _channel: ChannelId, _current: u32) -> u32 {
        self.backlog.next_window()
    }

    async fn channel_eof(&mut self, channel: ChannelId, _session: &mut Ssh) -> Result<(), Self::Error> {
        self.send(channel, Input::Eof);
        Ok(())
    }

    async fn channel_close(&mut self, channel: ChannelId, _session: &mut Ssh) -> Result<(), Self::Error> {
        // At once: the next session may follow while the command still notices that its pipes are closed.
        if let Some(open) = self.channels.remove(&channel) {
            open.slot.release();
        }
        Ok(())
    }

    async fn pty_request(
        &mut self,
        channel: ChannelId,
        _term: &str,
        _col_width: u32,
        _row_height: u32,
        _pix_width: u32,
        _pix_height: u32,
        _modes: &[(Pty, u32)],
        ssh: &mut Ssh,
    ) -> Result<(), Self::Error> {
        ssh.channel_failure(channel)
    }

    async fn env_request(
        &mut self,
        channel: ChannelId,
        _name: &str,
        _value: &str,
        ssh: &mut Ssh,
    ) -> Result<(), Self::Error> {
        ssh.channel_failure(channel)
    }

    async fn shell_request(&mut self, channel: ChannelId, ssh: &mut Ssh) -> Result<(), Self::Error> {
        ssh.channel_failure(channel)
    }

    async fn subsystem_request(
        &mut self,
        channel: ChannelId,
        _name: &str,
        ssh: &mut Ssh,
    ) -> Result<(), Self::Error> {
        ssh.channel_failure(channel)
    }
}

fn ask(prompts: Vec<(Cow<'static, str>, bool)>) -> Auth {
    Auth::Partial { name: Cow::Borrowed(""), instructions: Cow::Borrowed(""), prompts: Cow::Owned(prompts) }
}

/// Grants a session channel, after its push where the site sends one.
async fn admit(shared: Arc<Shared>, slot: Arc<Slot>, reply: ChannelOpenHandle) {
    if let Some(push) = shared.push.clone() {
        let number = count(&shared.tally.second_factor_prompts);
        tokio::time::sleep(shared.delay).await;
        let approved = tokio::task::spawn_blocking(move || push.approves(number)).await;
        if !approved.unwrap_or(false) {
            count(&shared.tally.refused_channels);
            slot.release();
            return reply.reject(ChannelOpenFailure::AdministrativelyProhibited).await;
        }
    }
    count(&shared.tally.session_channels);
    reply.accept().await;
}
