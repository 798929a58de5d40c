//! One text without `Include` that means the same for every host.
//!
//! An included text starts in the scope of its `Include` line, its own `Host` lines only narrow that scope, and
//! the scope comes back behind it. So every `Host` line of an included file becomes one for the hosts that it
//! has in common with the blocks around the `Include`, and the surrounding block is opened anew behind the text.

use std::path::Path;
use std::sync::Arc;

use crate::effective::Effective;
use crate::expand::shown;
use crate::file::{Body, File, Line};
use crate::include::{self, depends_on_host, world_tokens};
use crate::intersect::{Inexpressible, Scope};
use crate::keywords::Keyword;
use crate::lines;
use crate::patterns::{ListMatch, list_matches};
use crate::rejection::{Reason, Rejection};
use crate::snapshot::{Flattened, Snapshot};
use crate::store::Loaded;
use crate::walk::{EMPTY_PATTERN, INCLUDE_MENTIONS_MAX, MATCH_REFUSED};

/// Largest flattened text; files that include each other many times grow without end.
const TEXT_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Gives one text without `Include` and `Match` that means the same for every host.
pub(crate) fn flatten(snapshot: &Snapshot) -> Result<Flattened, Rejection> {
    let mut flattener = Flattener {
        snapshot,
        text: Vec::new(),
        files: Vec::new(),
        chain: Vec::new(),
        ignored: Vec::new(),
        mentions: 0,
        open: Scope::everyone(),
    };
    if let Some(main) = snapshot.main() {
        flattener.file(main, &Scope::everyone())?;
    }
    Ok(Flattened {
        text: flattener.text,
        files: flattener.files.iter().map(|path| path.to_path_buf()).collect(),
    })
}

struct Flattener<'a> {
    snapshot: &'a Snapshot,
    text: Vec<u8>,
    files: Vec<Arc<Path>>,
    chain: Vec<Arc<Path>>,
    /// Every `IgnoreUnknown` list met so far: an unknown keyword that none names is an error for every host.
    ignored: Vec<Vec<u8>>,
    mentions: usize,
    /// The scope that the written text leaves open.
    open: Scope,
}

impl Flattener<'_> {
    fn file(&mut self, file: &File, outer: &Scope) -> Result<(), Rejection> {
        self.chain.push(Arc::clone(&file.path));
        if !self.files.contains(&file.path) {
            self.files.push(Arc::clone(&file.path));
        }
        let mut scope = outer.clone();
        let mut checked = file.lines.iter().peekable();
        for (number, text) in lines::numbered(&file.text) {
            let place = |rejection: Rejection| rejection.at(&file.path, Some(number));
            match checked.next_if(|line| line.number == number) {
                Some(Line { body: Body::Host(patterns), .. }) => {
                    scope = self.host(patterns, outer, text).map_err(place)?;
                }
                Some(Line { body: Body::Include(words), .. }) => {
                    self.comment(&[b"Include".to_vec(), words.join(&b' ')].join(&b' '));
                    for word in words {
                        self.include(word, &scope, (file, number))?;
                    }
                }
                Some(line) => {
                    self.usable(line).map_err(place)?;
                    self.reopen(&scope).map_err(place)?;
                    self.line(text);
                }
                // Comments and empty lines mean the same wherever they stand.
                None => self.line(text),
            }
            if self.text.len() > TEXT_BYTES_MAX {
                let message = format!("flattened text is longer than {TEXT_BYTES_MAX} bytes");
                return Err(place(Rejection::new(Reason::Include, message)));
            }
        }
        self.chain.pop();
        Ok(())
    }

    /// Opens a block for the hosts that `patterns` has in common with the blocks around the file.
    fn host(&mut self, patterns: &[Vec<u8>], outer: &Scope, text: &[u8]) -> Result<Scope, Rejection> {
        if patterns.iter().any(Vec::is_empty) {
            return Err(Rejection::new(Reason::Syntax, EMPTY_PATTERN));
        }
        let inner = Scope::of_patterns(patterns);
        let scope = outer.and(&inner).map_err(too_wide)?;
        if scope == inner {
            self.line(text);
            self.open = scope.clone();
        } else {
            self.reopen(&scope)?;
        }
        Ok(scope)
    }

    /// Makes sure that what is written next stands in `scope`.
    fn reopen(&mut self, scope: &Scope) -> Result<(), Rejection> {
        if self.open != *scope {
            let line = scope.host_line().map_err(too_wide)?;
            self.line(&line);
            self.open = scope.clone();
        }
        Ok(())
    }

    /// Rejects a line that is wrong for every host.
    fn usable(&mut self, line: &Line) -> Result<(), Rejection> {
        match &line.body {
            Body::Fault(fault) => Err(Rejection::new(fault.reason, fault.message.clone())),
            Body::Match => Err(Rejection::new(Reason::Match, MATCH_REFUSED)),
            Body::Unknown(keyword) => {
                let known = |list: &Vec<u8>| list_matches(keyword, list, true) == ListMatch::Yes;
                if self.ignored.iter().any(known) {
                    return Ok(());
                }
                let message = format!("unknown keyword {}", shown(keyword));
                Err(Rejection::new(Reason::Syntax, message))
            }
            Body::Set(entry, value) => {
                if entry.keyword == Keyword::IgnoreUnknown {
                    self.ignored.push(value.printed());
                }
                Ok(())
            }
            Body::Host(_) | Body::Include(_) => Ok(()),
        }
    }

    fn include(&mut self, word: &[u8], scope: &Scope, (file, number): (&File, u64)) -> Result<(), Rejection> {
        let place = |rejection: Rejection| rejection.at(&file.path, Some(number));
        if depends_on_host(word) {
            let message =
                format!("included name {} depends on the host and cannot be flattened", shown(word));
            return Err(place(Rejection::new(Reason::Include, message)));
        }
        let world = self.snapshot.world();
        let tokens = world_tokens(world, &Effective::default());
        let pattern = include::pattern(word, &tokens, self.snapshot).map_err(place)?;
        for path in self.snapshot.store().listing(&pattern).iter() {
            include::check_depth(&self.chain, path).map_err(place)?;
            self.mentions += 1;
            if self.mentions > INCLUDE_MENTIONS_MAX {
                return Err(place(include::too_many(INCLUDE_MENTIONS_MAX)));
            }
            match self.snapshot.store().file(path, &world.env).as_ref() {
                Loaded::Missing => {}
                Loaded::Unreadable(why) => return Err(place(include::unreadable(path, why))),
                Loaded::Read { unsafe_mode: Some(why), .. } => {
                    return Err(Rejection::new(Reason::Permissions, why.clone()).at(path, None));
                }
                Loaded::Read { file, .. } => self.file(file, scope)?,
            }
        }
        Ok(())
    }

    fn line(&mut self, text: &[u8]) {
        self.text.extend_from_slice(text);
        self.text.push(b'\n');
    }

    fn comment(&mut self, text: &[u8]) {
        // A NUL would only hide the rest of a comment, but the text is also for people.
        let text: Vec<u8> = text.iter().copied().filter(|byte| *byte != 0).collect();
        self.line(&[b"# ", text.as_slice()].concat());
    }
}

fn too_wide(Inexpressible: Inexpressible) -> Rejection {
    Rejection::new(
        Reason::Include,
        "the hosts that nested blocks have in common cannot be named by one Host line",
    )
}
