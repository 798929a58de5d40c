//! The driver around the policy file: reads it, changes it, and audits what it does.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::error::{Error, GrantFault};
use super::id::{ClientId, GrantName, GrantSecret};
use super::shown::Shown;
use super::state::{
    Applied, Attempt, Authorize, Cas, Ending, Event, FileState, Grant, Method, Mode, Now, Operation, Policy,
    Scope, Timestamp, apply, decode, encode,
};
use super::text;
use crate::audit::{Audit, Clock, Durability, Entry, SystemClock, What, Who};
use crate::config::Home;
use crate::disk::{Fault, Files, Folder, Locked, System};

/// The policy file in the state directory.
pub const FILE: &str = "policy.json";
/// The file whose lock every change and every dispatch holds.
pub const MUTEX: &str = "policy.json.mutex";
/// What a `disable` leaves that could not get the mutex: while anything has this name, nothing is permitted.
pub const MARKER: &str = "policy.json.stop";

/// Largest policy file; 64 events and 256 receipts stay far below.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// Largest stop marker that is read for its reason.
const MARKER_BYTES_MAX: u64 = 4096;
/// How long a change or a dispatch waits for the mutex; each holder needs milliseconds.
pub(super) const MUTEX_WAIT: Duration = Duration::from_secs(5);
/// How long a `disable` waits for it before it leaves a stop marker.
const DISABLE_WAIT: Duration = Duration::from_secs(1);
/// How long it then waits for gates that looked just before: a gate that is older looks again by itself.
const DISABLE_GRACE: Duration = Duration::from_millis(600);
/// How long a policy event waits for other writers of the audit log.
const AUDIT_WAIT: Duration = Duration::from_millis(500);
/// The same after a `disable`, whose 2 s are nearly over then.
const DISABLE_AUDIT_WAIT: Duration = Duration::from_millis(100);

/// What a human or towline itself asks a grant for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrantRequest {
    /// What the caller saw of the policy.
    pub cas: Cas,
    /// Site, role, and whether a VPN must be proven.
    pub scope: Scope,
    /// How long the grant may wait, at most 300 s.
    pub ttl: Duration,
    /// Who allows it.
    pub method: Method,
    /// Why.
    pub reference: String,
}

/// A new grant.
#[derive(Clone, Debug)]
pub struct Granted {
    /// Its id: shown once, stored nowhere.
    pub secret: GrantSecret,
    /// What is stored of it.
    pub grant: Grant,
}

/// How a `disable` was done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Disabled {
    /// The policy file says so.
    Written(Box<Policy>),
    /// The stop marker says so; the next process that gets the mutex writes it into the file.
    Marked,
}

/// The policy of a state directory. Every call reads the file anew; nothing is kept between calls.
#[derive(Debug)]
pub struct Store {
    pub(super) files: Arc<dyn Files>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) dir: PathBuf,
    pub(super) audit: Audit,
    client: ClientId,
    who: Who,
}

impl Store {
    /// The policy of an installation, on behalf of this process; touches no file.
    pub fn new(home: &Home) -> Store {
        Store::on(Arc::new(System), Arc::new(SystemClock), home.state_dir(), ClientId::of_this_process())
    }

    /// As [`Store::new`], on other file operations, with another clock, or on behalf of another client.
    pub fn on(files: Arc<dyn Files>, clock: Arc<dyn Clock>, dir: &Path, client: ClientId) -> Store {
        let audit = Audit::on(Arc::clone(&files), dir, Arc::clone(&clock));
        let who = Who::here(client.as_str());
        Store { files, clock, dir: dir.to_owned(), audit, client, who }
    }

    /// Where the policy file is.
    pub fn path(&self) -> PathBuf {
        self.dir.join(FILE)
    }

    /// The audit log that the policy's events go to.
    pub fn audit(&self) -> &Audit {
        &self.audit
    }

    /// Who this process is in the audit log.
    pub fn who(&self) -> &Who {
        &self.who
    }

    /// What the policy says now; never fails, changes nothing, takes no lock.
    pub fn show(&self) -> Shown {
        let now = self.now();
        let (state, stopped) = self.look(now.at);
        Shown::of(state, stopped, self.path(), now.at)
    }

    /// Tells whether an operation would be done if it were asked for now.
    ///
    /// # Errors
    /// What the operation itself would fail with.
    pub fn would(&self, operation: &Operation) -> Result<(), Error> {
        let now = self.now();
        let (mut state, stopped) = self.look(now.at);
        if let (FileState::Valid(policy), true) = (&mut state, stopped) {
            policy.mode = Mode::Disabled;
        }
        apply(&state, operation, &now).map(drop).map_err(|error| error.at(&self.path()))
    }

    /// Forbids everything, at once: within 2 s, whatever other processes do.
    ///
    /// # Errors
    /// [`Error::Invalid`] when the directory or the file cannot be trusted, which permits nothing either; [`Error::Disk`]
    /// when neither the file nor a stop marker can be written. What the audit log does not take is no error here.
    pub fn disable(&self, reason: &str) -> Result<Disabled, Error> {
        let folder = Folder::make(Arc::clone(&self.files), &self.dir)?;
        let done = match folder.lock(MUTEX, DISABLE_WAIT) {
            Ok(_locked) => match self.disable_locked(&folder, reason) {
                // A disk without room for the file may have room for a name.
                Err(error @ Error::Disk(_)) => {
                    self.mark(&folder, reason).then_some(Disabled::Marked).ok_or(error)
                }
                done => done,
            },
            Err(Fault::Unsafe { path, reason }) => Err(Fault::Unsafe { path, reason }.into()),
            Err(fault) => self.disable_without_mutex(&folder, reason, fault),
        }?;
        if done == Disabled::Marked {
            let what = What::new("policy_stop_marked", &text::lenient(reason));
            self.record(what, None, "ok", DISABLE_AUDIT_WAIT).unwrap_or_else(|error| {
                tracing::warn!("the stop marker is there; {error}");
            });
        }
        Ok(done)
    }

    /// Permits the use of open lines; a human's decision.
    ///
    /// # Errors
    /// [`Error::Text`], [`Error::Invalid`], [`Error::Conflict`]; [`Error::Audit`], [`Error::Busy`] and [`Error::Disk`]:
    /// the mode is then what it was.
    pub fn enable_reuse(&self, cas: Cas, reference: &str) -> Result<Policy, Error> {
        let operation = Operation::EnableReuse { cas, reference: reference.to_owned() };
        self.change(&operation).map(|applied| applied.policy)
    }

    /// Gives a grant.
    ///
    /// # Errors
    /// As the contract's table; whatever fails, no grant exists whose id anybody knows.
    pub fn authorize(&self, request: &GrantRequest) -> Result<Granted, Error> {
        let secret = GrantSecret::random()?;
        let applied = self.change(&request.operation(&secret))?;
        let grant = applied.policy.grant.ok_or(GrantFault::None)?;
        Ok(Granted { secret, grant })
    }

    /// Takes an unconsumed grant back; a human's decision, or that of whoever gave it.
    ///
    /// # Errors
    /// [`Error::Grant`] when no such grant waits; else as [`Store::enable_reuse`].
    pub fn revoke(&self, grant: &GrantName, reason: &str) -> Result<Policy, Error> {
        let operation = Operation::Revoke { grant: grant.clone(), reason: reason.to_owned() };
        self.change(&operation).map(|applied| applied.policy)
    }

    /// Takes our own standing grant back; false when it is not there any more.
    ///
    /// # Errors
    /// As [`Store::enable_reuse`].
    pub fn revoke_standing(&self, secret: &GrantSecret, reason: &str) -> Result<bool, Error> {
        let operation = Operation::RevokeStanding { id: secret.hash(), reason: reason.to_owned() };
        match self.change(&operation) {
            Ok(_) => Ok(true),
            Err(Error::Grant { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Writes down how an attempt ended; success clears its cooldown.
    ///
    /// # Errors
    /// [`Error::Conflict`] when the attempt is not active; else as [`Store::enable_reuse`], but never for the audit log.
    pub fn finish(&self, grant: &GrantName, ending: Ending) -> Result<Attempt, Error> {
        let operation = Operation::Finish { grant: grant.clone(), ending };
        let applied = self.change(&operation)?;
        let found = applied.policy.attempts.into_values().find(|attempt| attempt.grant == *grant);
        found.ok_or_else(|| Error::Conflict { reason: format!("there is no attempt of the grant {grant}") })
    }

    /// Checks without spending it that a presented grant may be used for a role of a site.
    ///
    /// # Errors
    /// What spending it would fail with.
    pub fn check_grant(&self, spend: &super::Spend) -> Result<Grant, Error> {
        self.would(&spend.operation())?;
        let (state, _) = self.look(self.now().at);
        match state {
            FileState::Valid(policy) => policy.grant.ok_or_else(|| GrantFault::None.into()),
            FileState::Missing | FileState::Unsafe { .. } | FileState::Malformed { .. } => {
                Err(GrantFault::None.into())
            }
        }
    }

    /// One change under the mutex.
    fn change(&self, operation: &Operation) -> Result<Applied, Error> {
        let (folder, _locked) = self.lock(MUTEX_WAIT, operation)?;
        self.change_locked(&folder, operation)
    }

    /// Takes the mutex for an operation that makes no file: where there is none, nothing is made, not even a mutex.
    pub(super) fn lock(&self, wait: Duration, operation: &Operation) -> Result<(Folder, Locked), Error> {
        let missing = || {
            // Arguments are told before the file, as everywhere.
            let error = apply(&FileState::Missing, operation, &self.now()).err();
            error.unwrap_or(GrantFault::None.into()).at(&self.path())
        };
        self.lock_if_there(wait)?.ok_or_else(missing)
    }

    /// Takes the mutex; none where there is no policy file.
    pub(super) fn lock_if_there(&self, wait: Duration) -> Result<Option<(Folder, Locked)>, Error> {
        let folder = match Folder::open(Arc::clone(&self.files), &self.dir) {
            Ok(folder) => folder,
            Err(Fault::Missing { .. }) => return Ok(None),
            Err(fault) => return Err(fault.into()),
        };
        if folder.look(FILE)?.is_none() && folder.look(MARKER)?.is_none() {
            return Ok(None);
        }
        let locked = folder.lock(MUTEX, wait)?;
        Ok(Some((folder, locked)))
    }

    /// One change by whoever holds the mutex.
    pub(super) fn change_locked(&self, folder: &Folder, operation: &Operation) -> Result<Applied, Error> {
        let state = self.settled(folder)?;
        let applied = apply(&state, operation, &self.now()).map_err(|error| error.at(&self.path()))?;
        if refusable(operation) {
            self.record_events(&applied.events, "ok", AUDIT_WAIT)?;
        }
        let written = self.write(folder, &applied.policy);
        if !refusable(operation) {
            self.record_lossy(&applied.events, "ok", AUDIT_WAIT);
        } else if written.is_err() {
            self.record_lossy(&applied.events, "failed", AUDIT_WAIT);
        }
        written.map(|()| applied)
    }

    /// What the file says, with a stop marker folded in; only for whoever holds the mutex.
    pub(super) fn settled(&self, folder: &Folder) -> Result<FileState, Error> {
        let state = self.read(folder, self.now().at);
        if folder.look(MARKER)?.is_none() {
            return Ok(state);
        }
        let disable = Operation::Disable { reason: marker_reason(folder) };
        let applied = match apply(&state, &disable, &self.now()) {
            Ok(applied) => applied,
            // What cannot be trusted permits nothing either; the marker stays beside it.
            Err(_unsafe) => return Ok(state),
        };
        // The marker goes last: a crash in between only disables once more.
        self.write(folder, &applied.policy)?;
        self.record_lossy(&applied.events, "ok", AUDIT_WAIT);
        folder.remove(MARKER)?;
        folder.sync()?;
        Ok(FileState::Valid(Box::new(applied.policy)))
    }

    fn disable_locked(&self, folder: &Folder, reason: &str) -> Result<Disabled, Error> {
        let state = self.read(folder, self.now().at);
        let operation = Operation::Disable { reason: reason.to_owned() };
        let applied = apply(&state, &operation, &self.now()).map_err(|error| error.at(&self.path()))?;
        self.write(folder, &applied.policy)?;
        // An older marker says nothing more now; where it cannot go, it only stops what is stopped.
        let cleared = folder.remove(MARKER).and_then(|removed| if removed { folder.sync() } else { Ok(()) });
        if let Err(fault) = cleared {
            tracing::warn!("the policy is disabled, and so it stays: {fault}");
        }
        self.record_lossy(&applied.events, "ok", DISABLE_AUDIT_WAIT);
        Ok(Disabled::Written(Box::new(applied.policy)))
    }

    /// Somebody holds the mutex, perhaps for ever: leaves a marker, and outwaits whoever looked just before it.
    fn disable_without_mutex(&self, folder: &Folder, reason: &str, fault: Fault) -> Result<Disabled, Error> {
        if let FileState::Unsafe { reason } = self.read(folder, self.now().at) {
            return Err(Error::Invalid { reason, file: Some(self.path()) });
        }
        if !self.mark(folder, reason) {
            return Err(fault.into());
        }
        match folder.lock(MUTEX, DISABLE_GRACE) {
            Ok(_locked) => match self.settled(folder) {
                Ok(FileState::Valid(policy)) => Ok(Disabled::Written(policy)),
                Ok(_) | Err(_) => Ok(Disabled::Marked),
            },
            // Whoever holds it still looked before the marker came, if at all, and more than half a second ago.
            Err(_held) => Ok(Disabled::Marked),
        }
    }

    /// Leaves a stop marker; true when something of that name is there afterwards.
    fn mark(&self, folder: &Folder, reason: &str) -> bool {
        let now = self.now();
        let marker = json!({
            "at": now.at, "client_id": now.client.as_str(), "pid": now.pid, "reason": text::lenient(reason),
        });
        match folder.create(MARKER, format!("{marker}\n").as_bytes()) {
            Ok(_made_or_there) => true,
            // The name alone stops every gate, so a marker without its text does too.
            Err(_incomplete) => folder.look(MARKER).is_ok_and(|there| there.is_some()),
        }
    }

    /// Replaces the file, and reads it back.
    fn write(&self, folder: &Folder, policy: &Policy) -> Result<(), Error> {
        folder.replace(FILE, &encode(policy)?)?;
        match self.read(folder, self.now().at) {
            FileState::Valid(there) if *there == *policy => Ok(()),
            _ => Err(Error::Invalid {
                reason: "does not read back as it was written".to_owned(),
                file: Some(self.path()),
            }),
        }
    }

    /// What is found in the file's place, and whether there is a stop marker; without any lock.
    fn look(&self, now: Timestamp) -> (FileState, bool) {
        match Folder::open(Arc::clone(&self.files), &self.dir) {
            Ok(folder) => {
                // What cannot be looked at must not read as permission.
                let stopped = !matches!(folder.look(MARKER), Ok(None));
                (self.read(&folder, now), stopped)
            }
            Err(Fault::Missing { .. }) => (FileState::Missing, false),
            Err(fault) => (FileState::Unsafe { reason: format!("cannot be trusted: {fault}") }, false),
        }
    }

    pub(super) fn read(&self, folder: &Folder, now: Timestamp) -> FileState {
        match folder.read(FILE, FILE_BYTES_MAX) {
            Ok((bytes, facts)) => match decode(&bytes, now) {
                Ok(policy) => FileState::Valid(Box::new(policy)),
                Err(reason) => {
                    FileState::Malformed { reason, modified_at: Timestamp::from_ms(facts.modified_ms) }
                }
            },
            Err(Fault::Missing { .. }) => FileState::Missing,
            Err(Fault::TooLarge { limit, .. }) => FileState::Malformed {
                reason: format!("is malformed: it is longer than {limit} bytes, the limit"),
                modified_at: now,
            },
            // Content that cannot be read may be whole, so it is not to be replaced.
            Err(fault) => FileState::Unsafe { reason: format!("cannot be trusted: {fault}") },
        }
    }

    pub(super) fn now(&self) -> Now {
        Now {
            at: Timestamp::from_ms(self.clock.unix_ms()),
            client: self.client.clone(),
            pid: std::process::id(),
            fresh: uuid::Uuid::new_v4(),
        }
    }

    fn record_events(&self, events: &[Event], outcome: &str, wait: Duration) -> Result<(), Error> {
        for event in events {
            let what = What::new(event.kind.word(), &details(event));
            self.record(what, event.kind.about(), outcome, wait)?;
        }
        Ok(())
    }

    /// For what must not fail because of the audit log.
    fn record_lossy(&self, events: &[Event], outcome: &str, wait: Duration) {
        if let Err(error) = self.record_events(events, outcome, wait) {
            tracing::warn!("done, but not written to the audit log: {error}");
        }
    }

    fn record(
        &self,
        what: What,
        about: Option<(&str, &str)>,
        outcome: &str,
        wait: Duration,
    ) -> Result<(), Error> {
        let entry = Entry {
            who: self.who.clone(),
            site: about.map(|(site, _)| site.to_owned()),
            role: about.map(|(_, role)| role.to_owned()),
            what,
            outcome: outcome.to_owned(),
        };
        self.audit.append_within(&entry, Durability::Now, wait)?;
        Ok(())
    }
}

impl GrantRequest {
    /// The operation that gives this grant under an id.
    pub fn operation(&self, secret: &GrantSecret) -> Operation {
        Operation::Authorize(Box::new(Authorize {
            cas: self.cas.clone(),
            scope: self.scope.clone(),
            ttl: self.ttl,
            method: self.method,
            reference: self.reference.clone(),
            id: secret.hash(),
        }))
    }
}

/// Whether an operation is refused when the audit log cannot take it: what only takes permissions away, or tells how
/// an attempt ended, is not.
fn refusable(operation: &Operation) -> bool {
    match operation {
        Operation::EnableReuse { .. }
        | Operation::Authorize(_)
        | Operation::OpenSite { .. }
        | Operation::Consume { .. } => true,
        Operation::Disable { .. }
        | Operation::Revoke { .. }
        | Operation::RevokeStanding { .. }
        | Operation::Finish { .. } => false,
    }
}

/// The details of an event as words, the free text last, where a cut hurts least.
fn details(event: &Event) -> String {
    let mut map = event.kind.to_map();
    let texts =
        ["approval_reference", "reason"].map(|key| map.remove(key).map(|value| (key.to_owned(), value)));
    let shown = |value: Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    map.into_iter()
        .filter(|(key, _)| !["event", "site", "role"].contains(&key.as_str()))
        .chain(texts.into_iter().flatten())
        .map(|(key, value)| format!("{key}={}", shown(value)))
        .collect::<Vec<_>>()
        .join(" ")
}

fn marker_reason(folder: &Folder) -> String {
    let text = folder.read(MARKER, MARKER_BYTES_MAX).ok().and_then(|(bytes, _)| {
        let value: Value = serde_json::from_slice(&bytes).ok()?;
        Some(value.get("reason")?.as_str()?.to_owned())
    });
    // Whatever stands there, its name alone says stop.
    text.unwrap_or_else(|| "a stop marker without a reason".to_owned())
}
