//! Reads a snapshot for one host name, in order, keeping track of which blocks are active.

use std::path::Path;
use std::sync::Arc;

use crate::effective::{Effective, Origin};
use crate::expand::shown;
use crate::file::{Body, File};
use crate::include::{self, Names};
use crate::keywords::Keyword;
use crate::patterns::{self, ListMatch};
use crate::rejection::{Reason, Rejection};
use crate::snapshot::Snapshot;
use crate::store::Loaded;

/// Most files below each other; the main file is 0.
pub(crate) const INCLUDE_DEPTH_MAX: usize = 16;
/// Most files read for one answer, mentions counted; a fan-out over all depths would never end.
pub(crate) const INCLUDE_MENTIONS_MAX: usize = 10_000;

/// One reading of all files for one name.
pub(crate) struct Walk<'a> {
    snapshot: &'a Snapshot,
    names: Names<'a>,
    effective: &'a mut Effective,
    /// Files that are open, the main one first.
    chain: Vec<Arc<Path>>,
    mentions: usize,
    order: u64,
}

impl<'a> Walk<'a> {
    /// Prepares to read `snapshot` for `names`, adding to `effective`.
    pub(crate) fn new(snapshot: &'a Snapshot, names: Names<'a>, effective: &'a mut Effective) -> Walk<'a> {
        // Directives of a second pass come after all of the first.
        let order = if effective.settled.is_some() { 1 << 40 } else { 0 };
        Walk { snapshot, names, effective, chain: Vec::new(), mentions: 0, order }
    }

    /// Reads everything; stops at the first problem in reading order.
    pub(crate) fn run(mut self) -> Result<(), Rejection> {
        let snapshot = self.snapshot;
        match snapshot.main() {
            Some(main) => self.file(main, true),
            None => Ok(()),
        }
    }

    /// Reads one file. In one that is not `reachable` no block can become active, but all is checked.
    fn file(&mut self, file: &File, reachable: bool) -> Result<(), Rejection> {
        let mut active = reachable;
        self.chain.push(Arc::clone(&file.path));
        for line in &file.lines {
            self.order += 1;
            let reject = |reason, message: String| {
                Err(Rejection::new(reason, message).at(&file.path, Some(line.number)))
            };
            match &line.body {
                Body::Fault(fault) => return reject(fault.reason, fault.message.clone()),
                Body::Unknown(keyword) if self.ignored(keyword) => {}
                Body::Unknown(keyword) => {
                    return reject(Reason::Syntax, format!("unknown keyword {}", shown(keyword)));
                }
                Body::Match => return reject(Reason::Match, MATCH_REFUSED.to_owned()),
                Body::Host(patterns) => match self.host(patterns, reachable) {
                    Ok(matched) => active = matched,
                    Err(EmptyPattern) => return reject(Reason::Syntax, EMPTY_PATTERN.to_owned()),
                },
                Body::Include(words) => {
                    let origin = self.origin(file, line.number);
                    self.include(words, active, &origin)?;
                }
                Body::Set(entry, value) => {
                    let origin = self.origin(file, line.number);
                    if let Err(fault) = self.effective.apply(entry, value, active, &origin) {
                        return reject(fault.reason, fault.message);
                    }
                }
            }
        }
        self.chain.pop();
        Ok(())
    }

    fn origin(&self, file: &File, line: u64) -> Origin {
        Origin { file: Arc::clone(&file.path), line, order: self.order }
    }

    fn ignored(&self, keyword: &[u8]) -> bool {
        self.effective
            .text(Keyword::IgnoreUnknown)
            .is_some_and(|list| patterns::list_matches(keyword, list, true) == ListMatch::Yes)
    }

    /// Tells whether a `Host` line makes its block active.
    fn host(&self, patterns: &[Vec<u8>], reachable: bool) -> Result<bool, EmptyPattern> {
        if !reachable {
            // OpenSSH looks no further than the first pattern where nothing can match.
            return match patterns.first() {
                Some(first) if first.is_empty() => Err(EmptyPattern),
                _ => Ok(false),
            };
        }
        let mut active = false;
        for pattern in patterns {
            if pattern.is_empty() {
                return Err(EmptyPattern);
            }
            let (negated, pattern) = match pattern.strip_prefix(b"!") {
                Some(pattern) => (true, pattern),
                None => (false, pattern.as_slice()),
            };
            if patterns::matches(self.names.host, pattern) {
                if negated {
                    return Ok(false);
                }
                active = true;
            }
        }
        Ok(active)
    }

    fn include(&mut self, words: &[Vec<u8>], active: bool, origin: &Origin) -> Result<(), Rejection> {
        let world = self.snapshot.world();
        for word in words {
            let place = |rejection: Rejection| rejection.at(&origin.file, Some(origin.line));
            let tokens = self.names.tokens(world, self.effective);
            let pattern = include::pattern(word, &tokens, self.snapshot).map_err(place)?;
            let paths = self.snapshot.store().listing(&pattern);
            for path in paths.iter() {
                include::check_depth(&self.chain, path).map_err(place)?;
                self.mentions += 1;
                if self.mentions > INCLUDE_MENTIONS_MAX {
                    return Err(place(include::too_many(INCLUDE_MENTIONS_MAX)));
                }
                let loaded = self.snapshot.store().file(path, &world.env);
                match loaded.as_ref() {
                    Loaded::Missing => {}
                    Loaded::Unreadable(why) => {
                        return Err(place(include::unreadable(path, why)));
                    }
                    Loaded::Read { unsafe_mode: Some(why), .. } => {
                        return Err(Rejection::new(Reason::Permissions, why.clone()).at(path, None));
                    }
                    Loaded::Read { file, .. } => self.file(file, active)?,
                }
            }
        }
        Ok(())
    }
}

/// An empty pattern on a `Host` line.
struct EmptyPattern;

/// Why a `Match` line is refused.
pub(crate) const MATCH_REFUSED: &str =
    "Match is refused: its conditions may run commands, and none is run or guessed here";
/// What is wrong with an empty pattern.
pub(crate) const EMPTY_PATTERN: &str = "empty host pattern";
