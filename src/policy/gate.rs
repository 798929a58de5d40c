//! What is done while the mutex is held: a dispatch, or the start of a connection.

use std::time::Duration;

use super::error::Error;
use super::id::{GrantSecret, SiteId};
use super::state::{
    Attempt, Ending, FileState, Launch, Operation, Outcome, Policy, Scope, permits_dispatch, permits_launch,
};
use super::store::{MARKER, MUTEX_WAIT, Store};
use crate::config::Role;
use crate::disk::Folder;

/// How old a look at the policy may be when something is dispatched on its word; a process that was stopped for longer
/// looks again.
pub const FRESH: Duration = Duration::from_millis(500);
/// How often a gate looks again before it gives up: a process that is stopped at each try has other troubles.
const LOOKS_MAX: u32 = 5;

/// A grant that is to be spent.
#[derive(Clone, Debug)]
pub struct Spend {
    /// Its id, as presented.
    pub secret: GrantSecret,
    /// On which site.
    pub site: SiteId,
    /// On which role of it.
    pub role: Role,
    /// The process that will start the connection: mostly this one.
    pub launcher_pid: u32,
}

impl Spend {
    pub(super) fn operation(&self) -> Operation {
        Operation::Consume {
            id: self.secret.hash(),
            site: self.site.clone(),
            role: self.role,
            launcher_pid: self.launcher_pid,
        }
    }
}

impl Store {
    /// Dispatches something on an open line, if the policy permits it: a later `disable` returns after it has begun, an
    /// earlier one forbids it.
    ///
    /// `prepare` runs once, after a first look, and is where the audit line is written; `dispatch` runs right after the
    /// last look. Both hold up every other gate of this user, so neither may wait for the network.
    ///
    /// # Errors
    /// [`Error::Invalid`], [`Error::Denied`], [`Error::Busy`], [`Error::Disk`], and what `prepare` fails with. Nothing
    /// was dispatched then.
    pub fn gate<T, E: From<Error>>(
        &self,
        prepare: impl FnOnce() -> Result<(), E>,
        dispatch: impl FnOnce() -> T,
    ) -> Result<T, E> {
        self.pass(&|state| permits_dispatch(state).map(drop), prepare, dispatch)
    }

    /// Starts the one connection of an active attempt.
    ///
    /// # Errors
    /// As [`Store::gate`], and [`Error::Grant`] unless the attempt has all the values of the launch.
    pub fn authorize_launch<T>(&self, launch: &Launch, start: impl FnOnce() -> T) -> Result<T, Error> {
        self.pass(&|state| permits_launch(state, launch), || Ok(()), start)
    }

    /// Spends a grant and, still under the mutex, starts what it was given for. It is on the disk that the grant is
    /// spent before `start` runs.
    ///
    /// # Errors
    /// As the contract's table for `consume`; the grant is then unused, or spent without `start` having run.
    pub fn consume<T>(&self, spend: &Spend, start: impl FnOnce(&Attempt) -> T) -> Result<T, Error> {
        self.spend(&spend.operation(), &spend.site, start)
    }

    /// Begins an attempt on a site that permits itself, and starts its connection as [`Store::consume`] does.
    ///
    /// # Errors
    /// [`Error::Cooldown`]; else as [`Store::consume`].
    pub fn open_site<T>(
        &self,
        scope: &Scope,
        launcher_pid: u32,
        reference: &str,
        start: impl FnOnce(&Attempt) -> T,
    ) -> Result<T, Error> {
        let operation = Operation::OpenSite {
            scope: scope.clone(),
            // Nobody ever presents this id: the attempt begins in the same write.
            id: GrantSecret::random()?.hash(),
            launcher_pid,
            reference: reference.to_owned(),
        };
        self.spend(&operation, &scope.site, start)
    }

    fn pass<T, E: From<Error>>(
        &self,
        permits: &dyn Fn(&FileState) -> Result<(), Error>,
        prepare: impl FnOnce() -> Result<(), E>,
        dispatch: impl FnOnce() -> T,
    ) -> Result<T, E> {
        let mut prepare = Some(prepare);
        for _ in 0..LOOKS_MAX {
            let locked = self.lock_if_there(MUTEX_WAIT)?;
            let Some((folder, _mutex)) = locked else {
                let missing = permits(&FileState::Missing).err();
                return Err(missing.unwrap_or_else(looked_too_often).at(&self.path()).into());
            };
            let looked_at = self.clock.monotonic();
            let state = self.settled(&folder)?;
            permits(&state).map_err(|error| error.at(&self.path()))?;
            if let Some(prepare) = prepare.take() {
                prepare()?;
            }
            // A `disable` that could not get the mutex has left a marker, perhaps while we prepared or stood still.
            if self.stopped(&folder)? || self.clock.monotonic().saturating_sub(looked_at) > FRESH {
                continue;
            }
            return Ok(dispatch());
        }
        Err(looked_too_often().into())
    }

    fn spend<T>(
        &self,
        operation: &Operation,
        site: &SiteId,
        start: impl FnOnce(&Attempt) -> T,
    ) -> Result<T, Error> {
        let (folder, _mutex) = self.lock(MUTEX_WAIT, operation)?;
        let applied = self.change_locked(&folder, operation)?;
        let attempt = begun(&applied.policy, site)?;
        for _ in 0..LOOKS_MAX {
            // Nobody else changes the file while we hold the mutex; only a marker may have come.
            let looked_at = self.clock.monotonic();
            let stopped = self.stopped(&folder);
            if !matches!(stopped, Ok(false)) {
                let finish = Operation::Finish { grant: attempt.grant.clone(), ending: Ending::Error };
                // The attempt stays active where this fails, which blocks the site as long.
                drop(self.change_locked(&folder, &finish));
                stopped?;
                return Err(Error::Denied {
                    reason: "the policy was disabled in this very moment".to_owned(),
                });
            }
            if self.clock.monotonic().saturating_sub(looked_at) <= FRESH {
                return Ok(start(&attempt));
            }
        }
        Err(looked_too_often())
    }

    fn stopped(&self, folder: &Folder) -> Result<bool, Error> {
        Ok(folder.look(MARKER)?.is_some())
    }
}

fn begun(policy: &Policy, site: &SiteId) -> Result<Attempt, Error> {
    let attempt = policy.attempts.get(site).filter(|attempt| attempt.outcome == Outcome::Active);
    attempt.cloned().ok_or_else(|| Error::Conflict { reason: format!("no attempt on {site} has begun") })
}

fn looked_too_often() -> Error {
    Error::Denied {
        reason: format!(
            "this process was held up {LOOKS_MAX} times between its look at the policy and its act"
        ),
    }
}
