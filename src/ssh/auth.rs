//! Proving who the user is: keys first, then keyboard-interactive, then a password, in a fixed order.
//!
//! The order is known before anything is sent. At most one round of a second factor is answered, since each
//! may cost a push on somebody's phone: a second one ends the login and says why.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use russh::client::{AuthResult, Handle};
use russh::keys::agent::AgentIdentity;
use russh::keys::signature::Signer as _;
use russh::keys::ssh_encoding::Encode;
use russh::keys::ssh_key::Signature;
use russh::keys::ssh_key::private::KeypairData;
use russh::keys::{HashAlg, PrivateKey, decode_secret_key};
use russh::{MethodKind, MethodSet};

use super::agent::{Agent, AgentProblem, put};
use super::error::{AuthFailure, Error};
use super::handler::{Events, Noted, describe};
use super::identity::{Holder, Identity, Proof, gather, rsa_hash};
use super::interactive::{Exchange, ask, exchange};
use super::prompt::{Human, Prompt, Unanswered};
use super::target::Hop;

/// How long a server that has just refused everything may take to say so before it hangs up.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// A login of more steps than this is a loop.
const STEPS_MAX: usize = 8;

/// The order of methods; a config's PreferredAuthentications replaces it.
const ORDER: [MethodKind; 3] = [MethodKind::PublicKey, MethodKind::KeyboardInteractive, MethodKind::Password];

/// Logs in on one hop.
///
/// # Errors
/// [`Error::AuthFailed`] with the methods left.
pub(super) async fn authenticate(
    handle: &mut Handle<Events>,
    hop: &Arc<Hop>,
    human: &Human,
    noted: &Noted,
) -> Result<(), Error> {
    let mut login = LoginRun {
        handle,
        hop,
        human,
        noted,
        agent: None,
        identities: VecDeque::new(),
        offered: None,
        accepted: Vec::new(),
        notes: Vec::new(),
        closed: Vec::new(),
        second_factor: false,
        rsa: None,
    };
    login.gather().await?;
    login.run().await
}

struct LoginRun<'a> {
    handle: &'a mut Handle<Events>,
    hop: &'a Arc<Hop>,
    human: &'a Human,
    noted: &'a Noted,
    agent: Option<Agent>,
    identities: VecDeque<Identity>,
    /// What the server would take next; none until it has said so.
    offered: Option<MethodSet>,
    accepted: Vec<String>,
    notes: Vec<String>,
    /// Methods that are not tried again.
    closed: Vec<MethodKind>,
    /// Whether keyboard-interactive questions were answered already.
    second_factor: bool,
    /// What the server's `server-sig-algs` allows best, once it was asked for.
    rsa: Option<Option<Option<HashAlg>>>,
}

impl LoginRun<'_> {
    /// Collects the keys to try. An absent agent is a note; a silent one is an error, since it would
    /// otherwise be mistaken for one without keys.
    async fn gather(&mut self) -> Result<(), Error> {
        let login = &self.hop.login;
        if !login.publickey || !self.in_order(MethodKind::PublicKey) {
            return Ok(());
        }
        let mut held = Vec::new();
        if let Some(path) = &login.agent {
            match self.ask_agent(path).await {
                Ok(keys) => held = keys,
                Err(problem @ AgentProblem::Silent { .. }) => {
                    return Err(self.failure(problem.to_string(), false));
                }
                Err(problem) => self.notes.push(problem.to_string()),
            }
        }
        let files = login.clone();
        let gathered = tokio::task::spawn_blocking(move || gather(&files, &held)).await;
        let (identities, notes) = gathered.unwrap_or_default();
        for note in &notes {
            tracing::info!("{note}");
        }
        self.notes.extend(notes);
        self.identities = identities.into();
        Ok(())
    }

    async fn ask_agent(
        &mut self,
        path: &std::path::Path,
    ) -> Result<Vec<super::agent::AgentKey>, AgentProblem> {
        let mut agent = Agent::connect(path).await?;
        if let Some(binding) = self.handle.agent_session_binding() {
            match agent.bind(binding).await {
                Ok(()) => {}
                // Some agents hang up on what they do not know.
                Err(AgentProblem::Broken { .. }) => agent = Agent::connect(path).await?,
                Err(problem) => return Err(problem),
            }
        }
        let (keys, notes) = agent.list().await?;
        for note in &notes {
            tracing::info!("{note}");
        }
        self.notes.extend(notes);
        self.agent = Some(agent);
        Ok(keys)
    }

    async fn run(mut self) -> Result<(), Error> {
        loop {
            let done = match self.next_method() {
                Some(MethodKind::PublicKey) => self.try_key().await?,
                Some(MethodKind::KeyboardInteractive) => self.try_interactive().await?,
                Some(MethodKind::Password) => self.try_password().await?,
                _ if self.offered.is_none() => {
                    // Nothing to try yet: this costs no attempt and tells what the server offers.
                    let result = self.handle.authenticate_none(self.hop.user.as_str()).await;
                    self.take("none", result).await?
                }
                _ => return Err(self.exhausted()),
            };
            if done {
                return Ok(());
            }
        }
    }

    fn in_order(&self, method: MethodKind) -> bool {
        match &self.hop.login.preferred {
            Some(preferred) => preferred.iter().any(|name| name == <&str>::from(&method)),
            None => true,
        }
    }

    fn order(&self) -> Vec<MethodKind> {
        match &self.hop.login.preferred {
            Some(preferred) => preferred.iter().filter_map(|name| name.parse().ok()).collect(),
            None => ORDER.to_vec(),
        }
    }

    fn next_method(&self) -> Option<MethodKind> {
        self.order().into_iter().find(|method| self.may_try(*method))
    }

    fn may_try(&self, method: MethodKind) -> bool {
        let login = &self.hop.login;
        let offered = |method| self.offered.as_ref().is_some_and(|set| set.contains(&method));
        if self.closed.contains(&method) {
            return false;
        }
        match method {
            // The first key is sent without asking what is offered: it saves a round trip.
            MethodKind::PublicKey => {
                login.publickey && !self.identities.is_empty() && (self.offered.is_none() || offered(method))
            }
            MethodKind::KeyboardInteractive => {
                login.keyboard_interactive && self.may_ask() && offered(method)
            }
            MethodKind::Password => {
                login.password && self.may_ask() && offered(method) && self.password_is_due(offered)
            }
            _ => false,
        }
    }

    fn may_ask(&self) -> bool {
        !self.hop.batch && self.hop.login.prompts_max > 0
    }

    /// Both methods may push to the same phone, so a password is sent only where keyboard-interactive is
    /// not offered or the config puts the password before it.
    fn password_is_due(&self, offered: impl Fn(MethodKind) -> bool) -> bool {
        let order = self.order();
        let place = |method| order.iter().position(|other| *other == method);
        let chosen = match (place(MethodKind::Password), place(MethodKind::KeyboardInteractive)) {
            (Some(password), Some(interactive)) => password < interactive,
            (Some(_), None) => true,
            (None, _) => false,
        };
        chosen || !self.hop.login.keyboard_interactive || !offered(MethodKind::KeyboardInteractive)
    }

    /// Takes over the server's answer; true when the user is in.
    async fn take(&mut self, method: &str, result: Result<AuthResult, russh::Error>) -> Result<bool, Error> {
        match result {
            Ok(AuthResult::Success) => Ok(true),
            Ok(AuthResult::Failure { remaining_methods, partial_success }) => {
                self.refused(method, remaining_methods, partial_success).await?;
                Ok(false)
            }
            Err(error) => Err(self.lost(&error).await),
        }
    }

    async fn refused(
        &mut self,
        method: &str,
        methods_left: MethodSet,
        partial_success: bool,
    ) -> Result<(), Error> {
        if partial_success {
            self.accepted.push(method.to_owned());
            if self.accepted.len() > STEPS_MAX {
                return Err(self.failure(format!("the server wants more than {STEPS_MAX} steps"), false));
            }
        }
        if methods_left.is_empty() {
            // russh says the same for a server that hung up and for one without further methods; either
            // way the connection is over.
            return Err(self.lost(&russh::Error::NoAuthMethod).await);
        }
        self.offered = Some(methods_left);
        Ok(())
    }

    async fn lost(&mut self, error: &russh::Error) -> Error {
        let last_words = tokio::time::timeout(LAST_WORDS, self.noted.until_ended()).await;
        let reason = last_words.unwrap_or_else(|_| describe(error));
        self.failure(reason, false)
    }

    async fn try_key(&mut self) -> Result<bool, Error> {
        let Some(mut identity) = self.identities.pop_front() else {
            return Ok(false);
        };
        let attempts = if self.hop.batch { 0 } else { self.hop.login.prompts_max };
        if matches!(identity.proof, Proof::Hidden) {
            match unlock(&identity.holder, attempts, self.human).await {
                Ok(private) => {
                    identity.proof = Proof::Plain(private.public_key().clone());
                    identity.holder = Holder::Ready(private);
                }
                Err(problem) => {
                    self.skip(&identity, &problem);
                    return Ok(false);
                }
            }
        }
        let hash = match self.hash_for(&identity.proof).await {
            Ok(hash) => hash,
            Err(problem) => {
                self.skip(&identity, &problem);
                return Ok(false);
            }
        };
        let user = self.hop.user.as_str();
        let mut signer =
            OneKey { holder: &identity.holder, agent: &mut self.agent, human: self.human, attempts };
        // An unsigned probe goes first: nothing is signed, and no passphrase asked for, in vain.
        let result = match &identity.proof {
            Proof::Plain(key) => {
                self.handle.authenticate_publickey_with(user, key.clone(), hash, &mut signer).await
            }
            Proof::Certificate(certificate) => {
                let certificate = certificate.as_ref().clone();
                self.handle.authenticate_certificate_with(user, certificate, hash, &mut signer).await
            }
            Proof::Hidden => return Ok(false),
        };
        match result {
            Ok(result) => self.take("publickey", Ok(result)).await,
            Err(Unsigned::Session) => Err(self.lost(&russh::Error::Disconnect).await),
            Err(Unsigned::Key(problem)) => {
                if let Some(reason) = self.noted.ended() {
                    return Err(self.failure(reason, false));
                }
                self.skip(&identity, &problem);
                Ok(false)
            }
        }
    }

    fn skip(&mut self, identity: &Identity, problem: &str) {
        self.notes.push(format!("key {}: {problem}", identity.label));
    }

    async fn hash_for(&mut self, proof: &Proof) -> Result<Option<HashAlg>, String> {
        let (algorithm, certificate) = match proof {
            Proof::Plain(key) => (key.algorithm(), false),
            Proof::Certificate(certificate) => (certificate.algorithm(), true),
            Proof::Hidden => return Ok(None),
        };
        if !algorithm.is_rsa() {
            return Ok(None);
        }
        let server = match self.rsa {
            Some(server) => server,
            None => {
                let asked = self.handle.best_supported_rsa_hash().await;
                *self.rsa.insert(asked.map_err(|error| describe(&error))?)
            }
        };
        rsa_hash(&self.hop.login.accepted_algorithms, server, certificate)
    }

    async fn try_interactive(&mut self) -> Result<bool, Error> {
        if self.second_factor {
            return Err(self.second_round());
        }
        match exchange(self.handle, self.hop, self.human, self.noted).await {
            Exchange::Success => Ok(true),
            Exchange::Stopped { reason, unanswered } => Err(self.failure(reason, unanswered)),
            Exchange::Lost(error) => Err(self.lost(&error).await),
            Exchange::Over { methods_left, partial_success, answered } => {
                self.second_factor |= answered;
                self.refused("keyboard-interactive", methods_left, partial_success).await?;
                if partial_success {
                    return Ok(false);
                }
                if answered {
                    let reason =
                        "the answer was refused; another round could cost a second push, so it was not tried";
                    return Err(self.failure(reason.to_owned(), false));
                }
                self.closed.push(MethodKind::KeyboardInteractive);
                self.notes.push(
                    "keyboard-interactive was refused without a question; a password is not sent after it, \
                     as it could cost a second push (PreferredAuthentications password chooses it)"
                        .to_owned(),
                );
                Ok(false)
            }
        }
    }

    fn second_round(&mut self) -> Error {
        let reason = "the server wants a second round of questions after the first was answered; \
                      it could cost a second push, so it was not tried";
        self.failure(reason.to_owned(), false)
    }

    async fn try_password(&mut self) -> Result<bool, Error> {
        if self.second_factor {
            return Err(self.second_round());
        }
        let prompt = Prompt::Password { user: self.hop.user.clone(), host: self.hop.host.clone() };
        let password = match ask(self.human, self.noted, prompt).await {
            Ok(password) => password,
            Err(Exchange::Stopped { reason, unanswered }) => {
                return Err(self.failure(reason, unanswered));
            }
            Err(_) => return Err(self.failure("the password was not given".to_owned(), true)),
        };
        let user = self.hop.user.as_str();
        let result = self.handle.authenticate_password(user, password.reveal()).await;
        self.closed.push(MethodKind::Password);
        let accepted = self.accepted.len();
        let done = self.take("password", result).await?;
        if !done && self.accepted.len() == accepted {
            let reason =
                "the password was refused; it is asked for once a login, as each try may cost a push";
            return Err(self.failure(reason.to_owned(), false));
        }
        Ok(done)
    }

    fn exhausted(&mut self) -> Error {
        let reason = if self.hop.batch {
            "no key was accepted, and BatchMode forbids questions"
        } else {
            "nothing that may be tried was accepted"
        };
        self.failure(reason.to_owned(), false)
    }

    fn failure(&mut self, reason: String, unanswered: bool) -> Error {
        let left = self.offered.iter().flat_map(|set| set.iter());
        Error::AuthFailed(Box::new(AuthFailure {
            user: self.hop.user.clone(),
            host: self.hop.host.clone(),
            reason,
            methods_left: left.map(String::from).collect(),
            accepted: std::mem::take(&mut self.accepted),
            notes: std::mem::take(&mut self.notes),
            prompts: self.human.prompts(),
            unanswered,
        }))
    }
}

/// Why a signature did not come about.
enum Unsigned {
    /// The connection is gone.
    Session,
    /// The key or its agent; a fragment.
    Key(String),
}

impl From<russh::SendError> for Unsigned {
    fn from(_: russh::SendError) -> Self {
        Unsigned::Session
    }
}

/// Signs with one identity, once the server has said that it would take the key.
struct OneKey<'a> {
    holder: &'a Holder,
    agent: &'a mut Option<Agent>,
    human: &'a Human,
    attempts: u32,
}

impl russh::Signer for OneKey<'_> {
    type Error = Unsigned;

    async fn auth_sign(
        &mut self,
        _key: &AgentIdentity,
        hash: Option<HashAlg>,
        mut data: Vec<u8>,
    ) -> Result<Vec<u8>, Unsigned> {
        let signature = match self.holder {
            Holder::Agent(blob) => {
                // A touch or a confirmation may be due: that is human time.
                let _asking = self.human.time.asking();
                let Some(mut agent) = self.agent.take() else {
                    return Err(Unsigned::Key("the agent is gone".to_owned()));
                };
                match agent.sign(blob, &data, hash).await {
                    Ok(signature) => {
                        *self.agent = Some(agent);
                        signature
                    }
                    Err(problem) => {
                        if matches!(problem, AgentProblem::Refused { .. }) {
                            *self.agent = Some(agent);
                        }
                        return Err(Unsigned::Key(problem.to_string()));
                    }
                }
            }
            holder => {
                let private = unlock(holder, self.attempts, self.human).await.map_err(Unsigned::Key)?;
                sign(&private, hash, &data).map_err(Unsigned::Key)?
            }
        };
        put(&mut data, &signature);
        Ok(data)
    }
}

fn sign(private: &PrivateKey, hash: Option<HashAlg>, data: &[u8]) -> Result<Vec<u8>, String> {
    let signature: Signature = match private.key_data() {
        KeypairData::Rsa(pair) => (pair, hash).try_sign(data),
        pair => pair.try_sign(data),
    }
    .map_err(|error| format!("cannot sign: {error}"))?;
    let mut encoded = Vec::new();
    signature.encode(&mut encoded).map_err(|error| format!("cannot sign: {error}"))?;
    Ok(encoded)
}

/// Gives the private key, asking for its passphrase up to `attempts` times; the error is a fragment.
async fn unlock(holder: &Holder, attempts: u32, human: &Human) -> Result<Arc<PrivateKey>, String> {
    let (path, text) = match holder {
        Holder::Ready(private) => return Ok(Arc::clone(private)),
        Holder::Agent(_) => return Err("the agent keeps it".to_owned()),
        Holder::Locked { path, text } => (path, text),
    };
    for _ in 0..attempts {
        let passphrase = match human.ask(Prompt::Passphrase { path: path.clone() }).await {
            Ok(passphrase) => passphrase,
            Err(Unanswered::Nobody) => {
                return Err("it is encrypted and there is nobody to ask".to_owned());
            }
            Err(unanswered) => return Err(format!("no passphrase: {unanswered}")),
        };
        if passphrase.reveal().is_empty() {
            return Err("no passphrase was given".to_owned());
        }
        let text = Arc::clone(text);
        // The key derivation is slow on purpose.
        let decoded =
            tokio::task::spawn_blocking(move || decode_secret_key(&text, Some(passphrase.reveal())));
        if let Ok(Ok(private)) = decoded.await {
            return Ok(Arc::new(private));
        }
        human.tell(format!("wrong passphrase for key {}", path.display())).await;
    }
    match attempts {
        0 => Err("it is encrypted, and asking is switched off".to_owned()),
        _ => Err(format!("wrong passphrase ({attempts} tries)")),
    }
}
