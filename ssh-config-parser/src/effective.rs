//! The values that won so far, each with the place that it came from.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use crate::context::Fault;
use crate::expand::shown;
use crate::forward::Forward;
use crate::keywords::{Entry, Keyword};
use crate::patterns;
use crate::values::Value;

/// Most identity files, and most certificate files.
const KEY_FILES_MAX: usize = 100;
/// Most known_hosts files of one line.
const KNOWN_HOSTS_FILES_MAX: usize = 32;

/// Where a directive stands; `order` counts directives as they were met.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Origin {
    pub(crate) file: Arc<Path>,
    pub(crate) line: u64,
    pub(crate) order: u64,
}

/// A value with its origin.
#[derive(Debug, Clone)]
pub(crate) struct Placed<T> {
    pub(crate) value: T,
    pub(crate) origin: Origin,
}

/// All values that won so far.
#[derive(Debug, Default)]
pub(crate) struct Effective {
    slots: BTreeMap<Keyword, Placed<Value>>,
    pub(crate) identity_files: Vec<Placed<Vec<u8>>>,
    pub(crate) certificate_files: Vec<Placed<Vec<u8>>>,
    pub(crate) send_env: Vec<Placed<Vec<u8>>>,
    /// Local and dynamic ones, which share a list.
    pub(crate) local_forwards: Vec<Placed<Forward>>,
    pub(crate) remote_forwards: Vec<Placed<Forward>>,
    /// User and port of the caller's choice, which win over every file.
    pub(crate) given_user: Option<Vec<u8>>,
    pub(crate) given_port: Option<u16>,
    /// The final host name, once canonicalisation has settled it: no line changes it any more.
    pub(crate) settled: Option<Vec<u8>>,
}

impl Effective {
    /// Starts with what the caller gave.
    pub(crate) fn given(user: Option<Vec<u8>>, port: Option<u16>) -> Effective {
        Effective { given_user: user, given_port: port, ..Effective::default() }
    }

    /// Gives the value of a keyword with its origin.
    pub(crate) fn placed(&self, keyword: Keyword) -> Option<&Placed<Value>> {
        self.slots.get(&keyword)
    }

    /// Gives the value of a keyword.
    pub(crate) fn value(&self, keyword: Keyword) -> Option<&Value> {
        self.placed(keyword).map(|placed| &placed.value)
    }

    /// Gives the value of a keyword that holds one text.
    pub(crate) fn text(&self, keyword: Keyword) -> Option<&[u8]> {
        match self.value(keyword) {
            Some(Value::Text(text)) => Some(text),
            _ => None,
        }
    }

    /// Gives the value of a keyword that holds a number.
    pub(crate) fn number(&self, keyword: Keyword) -> Option<u64> {
        match self.value(keyword) {
            Some(Value::Number(number)) => Some(*number),
            _ => None,
        }
    }

    /// Gives the word that a choice prints.
    pub(crate) fn choice(&self, keyword: Keyword) -> Option<&'static str> {
        match self.value(keyword) {
            Some(Value::Choice(word)) => Some(word),
            _ => None,
        }
    }

    /// Takes a directive; the first value of a keyword that is met while active wins.
    pub(crate) fn apply(
        &mut self,
        entry: &Entry,
        value: &Value,
        active: bool,
        origin: &Origin,
    ) -> Result<(), Fault> {
        match entry.keyword {
            // OpenSSH sets these two whatever block they stand in: the mask each time, the facility once.
            Keyword::StreamLocalBindMask => {
                self.slots.remove(&entry.keyword);
                self.first(entry.keyword, value, origin);
            }
            Keyword::SyslogFacility => self.first(entry.keyword, value, origin),
            _ if active => return self.apply_active(entry.keyword, value, origin),
            _ => {}
        }
        Ok(())
    }

    fn apply_active(&mut self, keyword: Keyword, value: &Value, origin: &Origin) -> Result<(), Fault> {
        match (keyword, value) {
            (_, Value::Unset) => {}
            (Keyword::RefuseConnection, Value::Text(text)) => {
                return Err(Fault {
                    reason: crate::rejection::Reason::Refused,
                    message: format!("connection refused by the configuration: {}", shown(text)),
                });
            }
            (Keyword::IdentityFile, Value::Text(path)) => {
                return add_file(&mut self.identity_files, path, origin);
            }
            (Keyword::CertificateFile, Value::Text(path)) => {
                return add_file(&mut self.certificate_files, path, origin);
            }
            (Keyword::UserKnownHostsFile | Keyword::GlobalKnownHostsFile, Value::List(files)) => {
                if files.len() > KNOWN_HOSTS_FILES_MAX && self.value(keyword).is_none() {
                    return Err(Fault::syntax(format!(
                        "{} known hosts files, the limit is {KNOWN_HOSTS_FILES_MAX}",
                        files.len()
                    )));
                }
                self.first(keyword, value, origin);
            }
            (Keyword::SendEnv, Value::List(names)) => self.send(names, origin),
            (Keyword::LocalForward | Keyword::DynamicForward, Value::Forward(forward)) => {
                add_new(&mut self.local_forwards, forward, origin);
            }
            (Keyword::RemoteForward, Value::Forward(forward)) => {
                add_new(&mut self.remote_forwards, forward, origin);
            }
            (Keyword::RekeyLimit, Value::Rekey(bytes, seconds)) => {
                self.first(Keyword::RekeyLimit, &Value::Number(*bytes), origin);
                if let Some(seconds) = seconds {
                    self.first(Keyword::RekeyInterval, &Value::Number(*seconds), origin);
                }
            }
            (Keyword::ForwardAgent, Value::Text(_)) => {
                self.first(Keyword::ForwardAgent, &Value::Choice("yes"), origin);
                self.first(Keyword::ForwardAgentPath, value, origin);
            }
            // The two share a slot: whichever is met first switches the other off, even as `none`.
            (Keyword::ProxyJump | Keyword::ProxyCommand, _) => {
                let taken = [Keyword::ProxyJump, Keyword::ProxyCommand]
                    .iter()
                    .any(|keyword| self.slots.contains_key(keyword));
                if !taken {
                    self.first(keyword, value, origin);
                }
            }
            _ => self.first(keyword, value, origin),
        }
        Ok(())
    }

    fn first(&mut self, keyword: Keyword, value: &Value, origin: &Origin) {
        self.slots.entry(keyword).or_insert_with(|| Placed { value: value.clone(), origin: origin.clone() });
    }

    /// Adds names, repeats too; `-pattern` removes what was collected before it.
    fn send(&mut self, names: &[Vec<u8>], origin: &Origin) {
        for name in names {
            match name.strip_prefix(b"-") {
                Some(pattern) => self.send_env.retain(|known| !patterns::matches(&known.value, pattern)),
                None => self.send_env.push(Placed { value: name.clone(), origin: origin.clone() }),
            }
        }
    }
}

fn add_file(files: &mut Vec<Placed<Vec<u8>>>, path: &Vec<u8>, origin: &Origin) -> Result<(), Fault> {
    if files.len() >= KEY_FILES_MAX {
        return Err(Fault::syntax(format!("too many key files, the limit is {KEY_FILES_MAX}")));
    }
    add_new(files, path, origin);
    Ok(())
}

fn add_new<T: Clone + PartialEq>(list: &mut Vec<Placed<T>>, value: &T, origin: &Origin) {
    if list.iter().all(|known| known.value != *value) {
        list.push(Placed { value: value.clone(), origin: origin.clone() });
    }
}
