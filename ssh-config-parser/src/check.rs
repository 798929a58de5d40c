//! Everything that can be said about a configuration without knowing the host.

use std::path::Path;
use std::sync::Arc;

use crate::effective::Effective;
use crate::expand::shown;
use crate::file::{Body, File};
use crate::include::{self, depends_on_host, world_tokens};
use crate::keywords::Keyword;
use crate::patterns::{ListMatch, list_matches};
use crate::policy;
use crate::rejection::{Finding, Note, Reason, Rejection};
use crate::snapshot::Snapshot;
use crate::store::Loaded;
use crate::values::Value;
use crate::walk::{EMPTY_PATTERN, INCLUDE_MENTIONS_MAX, MATCH_REFUSED};
use crate::world::World;

/// Lists all that is wrong with `file` (or `~/.ssh/config`) or without effect, in reading order.
///
/// A keyword that is refused where it is effective is an error here, although hosts of other blocks can be used.
/// An unknown keyword is one unless some `IgnoreUnknown` line before it names it. A file that is included twice
/// is told about once.
pub fn check(file: Option<&Path>, world: &World) -> Vec<Finding> {
    match Snapshot::read(file, world.clone()) {
        Ok(snapshot) => findings(&snapshot),
        Err(rejection) => vec![rejection.into()],
    }
}

fn findings(snapshot: &Snapshot) -> Vec<Finding> {
    let mut checker = Checker {
        snapshot,
        findings: Vec::new(),
        chain: Vec::new(),
        seen: Vec::new(),
        ignored: Vec::new(),
        canonicalizes: false,
        local_commands: snapshot.main().is_some_and(permits_local),
    };
    if let Some(main) = snapshot.main() {
        checker.file(main);
    }
    checker.findings
}

fn permits_local(file: &File) -> bool {
    file.lines.iter().any(|line| {
        matches!(&line.body, Body::Set(entry, Value::Choice("yes")) if entry.keyword == Keyword::PermitLocalCommand)
    })
}

struct Checker<'a> {
    snapshot: &'a Snapshot,
    findings: Vec<Finding>,
    chain: Vec<Arc<Path>>,
    seen: Vec<Arc<Path>>,
    /// Every `IgnoreUnknown` list met so far, whatever block it stands in.
    ignored: Vec<Vec<u8>>,
    canonicalizes: bool,
    local_commands: bool,
}

impl Checker<'_> {
    fn file(&mut self, file: &File) {
        self.chain.push(Arc::clone(&file.path));
        self.seen.push(Arc::clone(&file.path));
        for line in &file.lines {
            let place = (file, line.number);
            match &line.body {
                Body::Fault(fault) => self.error(fault.reason, &fault.message, place),
                Body::Unknown(keyword) => self.unknown(keyword, place),
                Body::Match => self.error(Reason::Match, MATCH_REFUSED, place),
                Body::Host(patterns) if patterns.iter().any(Vec::is_empty) => {
                    self.error(Reason::Syntax, EMPTY_PATTERN, place);
                }
                Body::Host(_) => {}
                Body::Include(words) => self.include(words, place),
                Body::Set(entry, value) => {
                    if entry.keyword == Keyword::IgnoreUnknown {
                        self.ignored.push(value.printed());
                    }
                    if let Some(why) = policy::refusal(entry, value) {
                        self.error(Reason::Refused, &why, place);
                    } else if let Some(why) = self.refused_together(entry.keyword, value) {
                        self.error(Reason::Refused, why, place);
                    } else if let Some(why) = policy::remark(entry, value) {
                        self.note(why, place);
                    }
                }
            }
        }
        self.chain.pop();
    }

    /// Says why a value is refused that only another keyword makes dangerous.
    fn refused_together(&mut self, keyword: Keyword, value: &Value) -> Option<&'static str> {
        match (keyword, value) {
            (Keyword::CanonicalizeHostname, Value::Choice("true" | "always")) => {
                self.canonicalizes = true;
                None
            }
            (Keyword::CanonicalizePermittedCnames, rules)
                if self.canonicalizes && policy::has_cname_rules(rules) =>
            {
                Some("canonicalizepermittedcnames is refused: names behind names are not followed")
            }
            (Keyword::PermitLocalCommand, Value::Choice("yes")) => {
                self.local_commands = true;
                None
            }
            (Keyword::LocalCommand, command) if self.local_commands && !command.is_none_word() => {
                Some("localcommand with permitlocalcommand is refused: it would start a program")
            }
            _ => None,
        }
    }

    fn unknown(&mut self, keyword: &[u8], place: (&File, u64)) {
        let ignored = self.ignored.iter().any(|list| list_matches(keyword, list, true) == ListMatch::Yes);
        if !ignored {
            self.error(Reason::Syntax, &format!("unknown keyword {}", shown(keyword)), place);
        }
    }

    fn include(&mut self, words: &[Vec<u8>], place: (&File, u64)) {
        let tokens = world_tokens(self.snapshot.world(), &Effective::default());
        for word in words {
            if depends_on_host(word) {
                let message = format!("included name {} depends on the host and is not checked", shown(word));
                self.note(message, place);
                continue;
            }
            let pattern = match include::pattern(word, &tokens, self.snapshot) {
                Ok(pattern) => pattern,
                Err(rejection) => {
                    self.error(rejection.reason, &rejection.message, place);
                    continue;
                }
            };
            for path in self.snapshot.store().listing(&pattern).iter() {
                self.included(path, place);
            }
        }
    }

    fn included(&mut self, path: &Path, place: (&File, u64)) {
        // A file below itself always ends as an error of depth, which is told where the cycle closes.
        if self.chain.iter().any(|open| open.as_ref() == path) {
            let names: Vec<String> = self
                .chain
                .iter()
                .skip_while(|open| open.as_ref() != path)
                .map(|open| open.display().to_string())
                .chain([path.display().to_string()])
                .collect();
            self.error(Reason::Include, &format!("include cycle: {}", names.join(" -> ")), place);
            return;
        }
        if let Err(rejection) = include::check_depth(&self.chain, path) {
            self.error(rejection.reason, &rejection.message, place);
            return;
        }
        if self.seen.iter().any(|seen| seen.as_ref() == path) {
            return;
        }
        if self.seen.len() > INCLUDE_MENTIONS_MAX {
            let rejection = include::too_many(INCLUDE_MENTIONS_MAX);
            self.error(rejection.reason, &rejection.message, place);
            return;
        }
        let world = self.snapshot.world();
        match self.snapshot.store().file(path, &world.env).as_ref() {
            Loaded::Missing => {}
            Loaded::Unreadable(why) => {
                let rejection = include::unreadable(path, why);
                self.error(rejection.reason, &rejection.message, place);
            }
            Loaded::Read { file, unsafe_mode, .. } => {
                if let Some(why) = unsafe_mode {
                    let rejection = Rejection::new(Reason::Permissions, why.clone()).at(path, None);
                    self.findings.push(rejection.into());
                }
                self.file(file);
            }
        }
    }

    fn error(&mut self, reason: Reason, message: &str, (file, line): (&File, u64)) {
        let rejection = Rejection::new(reason, message).at(&file.path, Some(line));
        self.findings.push(rejection.into());
    }

    fn note(&mut self, message: String, (file, line): (&File, u64)) {
        let note = Note { file: file.path.to_path_buf(), line, message };
        self.findings.push(note.into());
    }
}
