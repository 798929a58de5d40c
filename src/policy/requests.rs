//! What clients without a terminal have asked for, until a human answers.
//!
//! One file a request, `requests/<id>.json`; each lives for 10 minutes, and at most 16 wait. The same thing asked for
//! again by the same program is the same request.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rand::TryRngCore as _;
use serde::{Deserialize, Serialize};

use super::error::Error;
use super::id::SiteId;
use super::state::Timestamp;
use super::text;
use crate::audit::redact::bounded;
use crate::audit::{Clock, SystemClock, Who, rfc3339};
use crate::config::{Home, Role};
use crate::disk::{Fault, Files, Folder, Locked, System};

/// The directory below the state directory.
pub const DIRECTORY: &str = "requests";
/// How many requests may wait.
pub const REQUESTS_MAX: usize = 16;
/// How long a request waits.
pub const LIFE: Duration = Duration::from_secs(600);

/// The lock that whoever adds a request holds, so that the count is right.
const MUTEX: &str = "mutex";
const MUTEX_WAIT: Duration = Duration::from_secs(2);
const FILE_BYTES_MAX: u64 = 16 << 10;
/// Longest program or client name that is kept.
const NAME_BYTES_MAX: usize = 128;
const ID_DIGITS: usize = 12;

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Wanted {
    /// That a line be opened.
    Connect,
    /// That open lines may be used.
    EnableReuse,
}

/// A question for a human.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// What for.
    pub what: Wanted,
    /// On which site; none for what concerns the workstation.
    pub site: Option<SiteId>,
    /// On which role.
    pub role: Option<Role>,
    /// Why, in the asker's own words.
    pub reason: String,
    /// Who asks, as it says itself.
    pub who: Who,
}

/// A pending request, as its file and the contract have it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// Its id: 12 hexadecimal digits.
    #[serde(rename = "request")]
    pub id: String,
    /// What for.
    pub what: Wanted,
    /// On which site.
    pub site: Option<String>,
    /// On which role.
    pub role: Option<String>,
    /// Why.
    pub reason: String,
    /// Who asks.
    pub who: Who,
    /// Since when, RFC 3339.
    pub created_at: String,
    /// Until when, RFC 3339.
    pub expires_at: String,
}

/// The pending requests of a state directory.
#[derive(Debug)]
pub struct Requests {
    files: Arc<dyn Files>,
    clock: Arc<dyn Clock>,
    dir: PathBuf,
}

impl Requests {
    /// The requests of an installation; touches no file.
    pub fn new(home: &Home) -> Requests {
        Requests::on(Arc::new(System), Arc::new(SystemClock), home.state_dir())
    }

    /// As [`Requests::new`], on other file operations and with another clock.
    pub fn on(files: Arc<dyn Files>, clock: Arc<dyn Clock>, state_dir: &Path) -> Requests {
        Requests { files, clock, dir: state_dir.join(DIRECTORY) }
    }

    /// Leaves a request, or finds the one that asks the same already.
    ///
    /// # Errors
    /// [`Error::TooManyRequests`]; [`Error::Invalid`] and [`Error::Disk`] when the directory cannot be used.
    pub fn ask(&self, asked: &Asked) -> Result<Request, Error> {
        let folder = self.make()?;
        let _mutex: Locked = folder.lock(MUTEX, MUTEX_WAIT)?;
        let waiting = self.read_all(&folder, true)?;
        let site = asked.site.as_ref().map(ToString::to_string);
        let role = asked.role.map(|role| role.to_string());
        let program = bounded(&asked.who.program, NAME_BYTES_MAX);
        let same = |request: &&Request| {
            (request.what, &request.site, &request.role, &request.who.program)
                == (asked.what, &site, &role, &program)
        };
        if let Some(request) = waiting.iter().find(same) {
            return Ok(request.clone());
        }
        if waiting.len() >= REQUESTS_MAX {
            return Err(Error::TooManyRequests { limit: REQUESTS_MAX });
        }
        let now = Timestamp::from_ms(self.clock.unix_ms());
        let request = Request {
            id: random_id()?,
            what: asked.what,
            site,
            role,
            reason: text::lenient(&asked.reason),
            who: Who { pid: asked.who.pid, program, client: bounded(&asked.who.client, NAME_BYTES_MAX) },
            created_at: rfc3339(now.ms()),
            expires_at: rfc3339(now.plus(LIFE).ms()),
        };
        folder.replace(&file_name(&request.id), &serde_json::to_vec(&request)?)?;
        Ok(request)
    }

    /// The requests that wait, oldest first; changes nothing.
    ///
    /// # Errors
    /// [`Error::Invalid`] and [`Error::Disk`] when the directory cannot be used.
    pub fn list(&self) -> Result<Vec<Request>, Error> {
        match self.open()? {
            Some(folder) => self.read_all(&folder, false),
            None => Ok(Vec::new()),
        }
    }

    /// The request of an id, while it waits; changes nothing.
    ///
    /// # Errors
    /// [`Error::NoRequest`]; else as [`Requests::list`].
    pub fn find(&self, id: &str) -> Result<Request, Error> {
        let found = self.list()?.into_iter().find(|request| request.id == id);
        found.ok_or_else(|| Error::NoRequest { id: id.to_owned() })
    }

    /// Takes a request away to answer it: of several callers exactly one gets it.
    ///
    /// # Errors
    /// [`Error::NoRequest`] when it does not wait (any more); else as [`Requests::list`].
    pub fn take(&self, id: &str) -> Result<Request, Error> {
        let gone = || Error::NoRequest { id: id.to_owned() };
        // An id becomes a file's name only when it has an id's form.
        if !is_id(id) {
            return Err(gone());
        }
        let folder = self.open()?.ok_or_else(gone)?;
        let request = self.read_one(&folder, id)?.ok_or_else(gone)?;
        if folder.remove(&file_name(id))? { Ok(request) } else { Err(gone()) }
    }

    fn make(&self) -> Result<Folder, Error> {
        // The state directory first, so that one that others may enter is refused rather than filled.
        if let Some(state) = self.dir.parent() {
            Folder::make(Arc::clone(&self.files), state)?;
        }
        Ok(Folder::make(Arc::clone(&self.files), &self.dir)?)
    }

    fn open(&self) -> Result<Option<Folder>, Error> {
        match Folder::open(Arc::clone(&self.files), &self.dir) {
            Ok(folder) => Ok(Some(folder)),
            Err(Fault::Missing { .. }) => Ok(None),
            Err(fault) => Err(fault.into()),
        }
    }

    /// All that wait; files of ours that hold no waiting request are removed where that is wanted.
    fn read_all(&self, folder: &Folder, tidy: bool) -> Result<Vec<Request>, Error> {
        let mut waiting = Vec::new();
        for name in folder.names()? {
            let Some(id) = name.to_str().and_then(|name| name.strip_suffix(".json")).filter(|id| is_id(id))
            else {
                continue;
            };
            match self.read_one(folder, id)? {
                Some(request) => waiting.push(request),
                None if tidy => {
                    folder.remove(&file_name(id))?;
                }
                None => {}
            }
        }
        waiting.sort_by(|a, b| (&a.created_at, &a.id).cmp(&(&b.created_at, &b.id)));
        Ok(waiting)
    }

    /// None for what has expired, is gone, or is no request.
    fn read_one(&self, folder: &Folder, id: &str) -> Result<Option<Request>, Error> {
        let bytes = match folder.read(&file_name(id), FILE_BYTES_MAX) {
            Ok((bytes, _)) => bytes,
            Err(Fault::Missing { .. } | Fault::Unsafe { .. } | Fault::TooLarge { .. }) => return Ok(None),
            Err(fault) => return Err(fault.into()),
        };
        // A file that somebody damaged asks for nothing.
        let request: Option<Request> = serde_json::from_slice(&bytes).ok();
        Ok(request.filter(|request| request.id == id && request.waits(self.clock.unix_ms())))
    }
}

impl Request {
    /// Whether its time is not over; one from a clock far ahead does not wait for longer than one of now.
    fn waits(&self, now_ms: i64) -> bool {
        let left = self.left_ms(now_ms);
        left > 0 && u128::try_from(left).is_ok_and(|left| left <= LIFE.as_millis())
    }

    /// Milliseconds that it still waits; 0 where its times are no times.
    pub fn left_ms(&self, now_ms: i64) -> i64 {
        let expires: Option<jiff::Timestamp> = self.expires_at.parse().ok();
        expires.map_or(0, |at| at.as_millisecond().saturating_sub(now_ms))
    }
}

fn file_name(id: &str) -> String {
    format!("{id}.json")
}

fn is_id(text: &str) -> bool {
    text.len() == ID_DIGITS && text.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
}

fn random_id() -> Result<String, Error> {
    let mut bytes = [0; ID_DIGITS / 2];
    rand::rngs::OsRng.try_fill_bytes(&mut bytes).map_err(|error| Error::Denied {
        reason: format!("the system gives no random bytes for a request: {error}"),
    })?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
#[path = "requests_tests.rs"]
mod tests;
