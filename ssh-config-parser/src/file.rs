//! One file, read into lines that are checked as far as they can be without knowing the host.

use std::path::Path;
use std::sync::Arc;

use crate::context::{Context, Fault};
use crate::expand::shown;
use crate::keywords::{self, Entry, Kind};
use crate::lines::{self, Head};
use crate::parse::{Args, parse_value};
use crate::values::Value;
use crate::words;

/// What one line says.
#[derive(Debug)]
pub(crate) enum Body {
    /// Wrong, whatever the host.
    Fault(Fault),
    /// A keyword that is an error unless `IgnoreUnknown` names it.
    Unknown(Vec<u8>),
    /// A `Match` line, refused unread.
    Match,
    /// A block for these patterns; an empty one is an error when the scan reaches it.
    Host(Vec<Vec<u8>>),
    /// Files to read here; an empty name is an error.
    Include(Vec<Vec<u8>>),
    /// A value for a keyword.
    Set(&'static Entry, Value),
}

/// A line that says something; comments, empty lines and withdrawn keywords do not.
#[derive(Debug)]
pub(crate) struct Line {
    /// Counted from 1.
    pub(crate) number: u64,
    pub(crate) body: Body,
}

/// A file, its text and its checked lines.
#[derive(Debug)]
pub(crate) struct File {
    pub(crate) path: Arc<Path>,
    pub(crate) text: Vec<u8>,
    pub(crate) lines: Vec<Line>,
}

impl File {
    /// Reads `text` without touching the file system.
    pub(crate) fn parse(path: &Path, text: Vec<u8>, context: Context<'_>) -> File {
        let lines = lines::numbered(&text)
            .filter_map(|(number, line)| {
                let body = body(line, context)?;
                Some(Line { number, body })
            })
            .collect();
        File { path: Arc::from(path), text, lines }
    }
}

fn body(line: &[u8], context: Context<'_>) -> Option<Body> {
    let (keyword, raw) = match lines::head(lines::visible(line)) {
        Head::Ignored => return None,
        Head::Bare(keyword) if keyword == b"match" => return Some(Body::Match),
        Head::Bare(keyword) => {
            return Some(Body::Fault(Fault::syntax(format!(
                "no argument after keyword {}",
                shown(&keyword)
            ))));
        }
        Head::Keyword(keyword, raw) => (keyword, raw),
    };
    let entry = keywords::find(&keyword);
    if entry.is_some_and(|entry| entry.kind == Kind::Match) {
        return Some(Body::Match);
    }
    let Ok(words) = words::split(raw) else {
        return Some(Body::Fault(Fault::syntax("quote is not closed")));
    };
    let Some(entry) = entry else {
        return Some(Body::Unknown(keyword));
    };
    match entry.kind {
        Kind::Withdrawn => None,
        Kind::Host => Some(Body::Host(words)),
        Kind::Include => Some(Body::Include(words)),
        _ => {
            let mut args = Args::new(&words, raw, context);
            Some(match parse_value(entry, &mut args) {
                Ok(value) => Body::Set(entry, value),
                Err(fault) => {
                    Body::Fault(Fault { message: format!("{}: {}", entry.name(), fault.message), ..fault })
                }
            })
        }
    }
}
