//! The rules about the sources themselves: who may import whom, how long a file is, what a room says first.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    missing_docs,
    reason = "tests fail by panicking"
)]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

const LINES_MAX: usize = 600;
const ROOM_HEAD_LINES_MAX: usize = 10;

/// A room of `src/` and what it may import: other rooms, and crates that not everybody may use.
///
/// A room stands above all that it names, and above all that those name.
const ROOMS: &[(&str, &[&str])] = &[
    ("kind", &[]),
    ("config", &["kind", "ssh_config_parser"]),
    ("disk", &[]),
    ("audit", &["kind", "config", "disk"]),
    ("store", &["config"]),
    ("route", &["config", "kind"]),
    ("policy", &["audit", "config", "route"]),
    ("ssh", &["kind", "ssh_config_parser", "towline_helper", "russh"]),
    ("broker", &["config", "policy", "ssh"]),
    ("line", &["broker", "ssh"]),
    ("opening", &["config", "line"]),
    ("jobs", &["line", "store"]),
    ("transfer", &["line", "store"]),
    ("runs", &["jobs", "transfer"]),
    ("plan", &["runs"]),
    ("workspace", &["runs"]),
    ("pods", &["runs"]),
    ("sandbox", &["runs"]),
    ("explain", &["runs"]),
    ("demo", &["config", "line", "jobs", "russh"]),
    ("failure", &["opening", "plan", "workspace", "pods", "sandbox", "explain", "audit", "demo"]),
    ("doctor", &["failure", "route"]),
    ("mcp", &["doctor"]),
    ("cli", &["doctor", "mcp"]),
];

/// Named as below everything, yet not for everybody: SSH itself and the embedded server speak it.
const ONLY_WHERE_NAMED: &[&str] = &["russh"];

/// Crates of the workspace, and the crates that each may never name.
const CRATES: &[(&str, &[&str])] = &[
    ("ssh-config-parser", &["towline", "towline_helper", "russh", "tokio", "clap"]),
    ("remote-helper", &["towline", "ssh_config_parser", "russh", "clap"]),
];

/// A `::` path that a source file names, cut to its first two words.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Mention {
    line: usize,
    first: String,
    second: String,
}

#[test]
fn a_room_imports_only_what_stands_below_it() {
    let mut wrong = Vec::new();
    for file in rust_files("src") {
        let inside = file.strip_prefix(root().join("src")).unwrap();
        wrong.extend(violations(inside, &fs::read_to_string(&file).unwrap()));
    }
    for (name, forbidden) in CRATES {
        for file in rust_files(&format!("{name}/src")) {
            let text = fs::read_to_string(&file).unwrap();
            wrong.extend(
                forbidden_mentions(forbidden, &text)
                    .into_iter()
                    .map(|what| format!("{}: {what}", file.display())),
            );
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn made_up_violations_are_found() {
    let found = |file: &str, text: &str| violations(Path::new(file), text);
    for (file, text) in [
        ("ssh/mod.rs", "use crate::line::Line;"),
        ("ssh/auth.rs", "use crate::{kind::Kind, line::Line};"),
        ("ssh/auth.rs", "use super::super::line::Line;"),
        ("ssh/mod.rs", "fn f() { let _ = crate::cli::run(); }"),
        ("ssh/keys/file.rs", "use super::super::super::{kind, jobs as work};"),
        ("line/mod.rs", "use crate :: jobs;"),
        ("line/mod.rs", "use russh::client;"),
        ("jobs/slurm.rs", "use russh::client;"),
        ("kind.rs", "use crate::config::Config;"),
        ("kind.rs", "use ssh_config_parser::World;"),
        ("config/mod.rs", "use crate::ssh;"),
        ("demo/mod.rs", "use crate::cli::Output;"),
        ("mcp/mod.rs", "use crate::cli::Output;"),
        ("line/mod.rs", "use crate::*;"),
        ("attic/mod.rs", "use crate::kind::Kind;"),
        ("ssh/mod.rs", "use crate::attic::Old;"),
    ] {
        assert_eq!(found(file, text).len(), 1, "{file}: {text}: {:?}", found(file, text));
    }
    for (file, text) in [
        ("ssh/mod.rs", "use crate::kind::Kind; use super::ssh::Error; use self::line; mod line;"),
        (
            "ssh/mod.rs",
            "// use crate::line::Line;\n/* crate::cli /* nested */ crate::cli */ const A: &str = \"crate::cli\";",
        ),
        (
            "ssh/mod.rs",
            "const A: &str = r#\"crate::cli \" \"#; const B: char = '\"'; fn f<'a>(x: &'a str) {}",
        ),
        ("ssh/auth/agent.rs", "use super::keys; use super::super::Error;"),
        ("cli/mod.rs", "use crate::{line::{Line, jobs}, demo}; use crate::kind::Kind;"),
        ("ssh/mod.rs", "use towline_helper::wire::Frame; use russh::client;"),
        ("lib.rs", "pub mod cli; pub use cli::run;"),
    ] {
        assert_eq!(found(file, text), Vec::<String>::new(), "{file}: {text}");
    }
    assert_eq!(forbidden_mentions(&["russh"], "use russh::keys;").len(), 1);
    assert_eq!(forbidden_mentions(&["russh"], "use crate::russh::keys; // russh::x").len(), 0);
}

#[test]
fn the_table_of_rooms_has_no_circle() {
    for (room, _) in ROOMS {
        assert!(!below(room).contains(room), "{room} stands below itself");
    }
}

#[test]
fn no_source_file_is_too_long() {
    let long: Vec<_> = source_directories()
        .iter()
        .flat_map(|directory| rust_files(directory))
        .filter_map(|file| {
            let lines = fs::read_to_string(&file).unwrap().lines().count();
            (lines > LINES_MAX)
                .then(|| format!("{}: {lines} lines, the limit is {LINES_MAX}", file.display()))
        })
        .collect();
    assert!(long.is_empty(), "{}", long.join("\n"));
}

#[test]
fn every_room_says_first_what_it_promises() {
    let wrong: Vec<_> = ["src", "ssh-config-parser/src", "remote-helper/src"]
        .iter()
        .flat_map(|directory| rust_files(directory))
        .filter(|file| file.file_name().is_some_and(|name| name == "mod.rs" || name == "lib.rs"))
        .filter_map(|file| {
            head_fault(&fs::read_to_string(&file).unwrap())
                .map(|fault| format!("{}: {fault}", file.display()))
        })
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(head_fault("mod a;").is_some() && head_fault("//! A room.\nmod a;").is_none());
}

/// What is wrong with the first lines of a room; a library's front page may be longer.
fn head_fault(text: &str) -> Option<String> {
    if !text.trim_start().starts_with("//!") {
        return Some("has no //! head".to_owned());
    }
    let head = text.lines().take_while(|line| line.starts_with("//!")).count();
    (head > 4 * ROOM_HEAD_LINES_MAX).then(|| format!("its head has {head} lines"))
}

/// The imports of one file of `src/` that the table does not allow.
fn violations(file: &Path, text: &str) -> Vec<String> {
    let mut modules: Vec<String> =
        file.with_extension("").iter().map(|part| part.to_string_lossy().into_owned()).collect();
    if modules.last().is_some_and(|last| last == "mod") {
        modules.pop();
    }
    let room = modules[0].clone();
    // The roots only declare and re-export; `bin/` holds programs, which stand on top.
    if ["lib", "main", "bin"].contains(&room.as_str()) {
        return Vec::new();
    }
    let Some((name, _)) = ROOMS.iter().find(|(name, _)| *name == room) else {
        return vec![format!(
            "{}: the room {room} is not in the table of tests/architecture.rs",
            file.display()
        )];
    };
    let below = below(name);
    let named = ROOMS.iter().find(|(known, _)| known == name).map_or(&[][..], |(_, direct)| direct);
    let mut wrong = Vec::new();
    for mention in mentions(text, modules.len()) {
        let target = match mention.first.as_str() {
            "crate" => mention.second.as_str(),
            krate @ ("russh" | "ssh_config_parser" | "towline_helper") => krate,
            _ => continue,
        };
        let allowed = target == room
            || (below.contains(target) && !ONLY_WHERE_NAMED.contains(&target))
            || named.contains(&target)
            // Items of the crate's root, such as a macro or its version, belong to no room.
            || (mention.first == "crate" && target != "*" && !is_room_name(target));
        if !allowed {
            wrong.push(format!("{}:{}: {room} may not import {target}", file.display(), mention.line));
        }
    }
    wrong
}

/// A lower-case name at the crate's root is a module, so it must be in the table.
fn is_room_name(name: &str) -> bool {
    name.starts_with(|first: char| first.is_ascii_lowercase())
}

/// All that stands below a room.
fn below(room: &str) -> BTreeSet<&'static str> {
    let mut found = BTreeSet::new();
    let mut open: Vec<&str> = ROOMS
        .iter()
        .filter(|(name, _)| *name == room)
        .flat_map(|(_, direct)| direct.iter().copied())
        .collect();
    while let Some(name) = open.pop() {
        if found.insert(name) {
            open.extend(
                ROOMS
                    .iter()
                    .filter(|(known, _)| *known == name)
                    .flat_map(|(_, direct)| direct.iter().copied()),
            );
        }
    }
    found
}

fn forbidden_mentions(forbidden: &[&str], text: &str) -> Vec<String> {
    mentions(text, usize::MAX)
        .into_iter()
        .filter(|mention| forbidden.contains(&mention.first.as_str()))
        .map(|mention| format!("line {} names {}", mention.line, mention.first))
        .collect()
}

/// All paths of a text, `use` groups unfolded, with `super` counted up to `crate` from a module
/// that lies `depth` below the crate's root. Modules written inside the file count as deeper.
fn mentions(text: &str, depth: usize) -> BTreeSet<Mention> {
    let tokens = tokens(text);
    let mut found = BTreeSet::new();
    let mut at = 0;
    // Braces of inline modules: how deep the text is in braces where each began.
    let (mut braces, mut inline) = (0_usize, Vec::new());
    while at < tokens.len() {
        let (line, word) = &tokens[at];
        match word.as_str() {
            "{" => {
                braces += 1;
                if at >= 2 && tokens[at - 2].1 == "mod" {
                    inline.push(braces);
                }
            }
            "}" => {
                if inline.last() == Some(&braces) {
                    inline.pop();
                }
                braces = braces.saturating_sub(1);
            }
            "::" => {}
            _ if at > 0 && tokens[at - 1].1 == "::" => {}
            _ if is_word(word) && tokens.get(at + 1).is_some_and(|(_, next)| next == "::") => {
                let (mut end, mut ups) = (at, 0);
                while tokens[end].1 == "super" && tokens.get(end + 1).is_some_and(|(_, next)| next == "::") {
                    ups += 1;
                    end += 2;
                }
                let here = depth.saturating_add(inline.len());
                let first = if ups == 0 {
                    end = at + 2;
                    word.clone()
                } else if ups == here {
                    "crate".to_owned()
                } else {
                    "super".to_owned()
                };
                for second in heads(&tokens, end) {
                    found.insert(Mention { line: *line, first: first.clone(), second });
                }
                if ups > 0 {
                    at = end.max(at + 1) - 1;
                }
            }
            _ => {}
        }
        at += 1;
    }
    found
}

/// The words that can follow `::` at `at`: one, or those of a group at its outer level.
fn heads(tokens: &[(usize, String)], at: usize) -> Vec<String> {
    let Some((_, word)) = tokens.get(at) else { return Vec::new() };
    if word != "{" {
        return vec![word.clone()];
    }
    let (mut level, mut begins, mut found) = (0, true, Vec::new());
    for (_, word) in &tokens[at..] {
        match word.as_str() {
            "{" => level += 1,
            "}" => level -= 1,
            "," if level == 1 => begins = true,
            _ if begins && level == 1 => {
                found.push(word.clone());
                begins = false;
            }
            _ => {}
        }
        if level == 0 {
            break;
        }
    }
    found
}

fn is_word(token: &str) -> bool {
    token.starts_with(|first: char| first.is_alphabetic() || first == '_')
}

/// Words and signs of Rust with their lines; comments, texts and characters are left out.
fn tokens(text: &str) -> Vec<(usize, String)> {
    let chars: Vec<char> = text.chars().collect();
    let (mut at, mut line, mut found) = (0, 1, Vec::new());
    let begins = |at: usize, what: &str| chars[at..].iter().take(what.len()).copied().eq(what.chars());
    while at < chars.len() {
        let from = at;
        if begins(at, "//") {
            while at < chars.len() && chars[at] != '\n' {
                at += 1;
            }
        } else if begins(at, "/*") {
            at = after_comment(&chars, at);
        } else if let Some(end) = after_text(&chars, at) {
            at = end;
        } else if begins(at, "::") {
            at += 2;
            found.push((line, "::".to_owned()));
        } else if chars[at].is_alphanumeric() || chars[at] == '_' {
            while at < chars.len() && (chars[at].is_alphanumeric() || chars[at] == '_') {
                at += 1;
            }
            found.push((line, chars[from..at].iter().collect()));
        } else {
            at += 1;
            if !chars[from].is_whitespace() {
                found.push((line, chars[from].to_string()));
            }
        }
        line += chars[from..at].iter().filter(|char| **char == '\n').count();
    }
    found
}

fn after_comment(chars: &[char], from: usize) -> usize {
    let (mut at, mut level) = (from, 0_usize);
    while at < chars.len() {
        match (chars[at], chars.get(at + 1)) {
            ('/', Some('*')) => (level, at) = (level + 1, at + 2),
            ('*', Some('/')) => (level, at) = (level - 1, at + 2),
            _ => at += 1,
        }
        if level == 0 {
            break;
        }
    }
    at
}

/// Where a text, raw text or character that begins here ends; none where none begins.
fn after_text(chars: &[char], from: usize) -> Option<usize> {
    // A prefix belongs to a text only where it does not end a longer word.
    let in_word = from > 0 && (chars[from - 1].is_alphanumeric() || chars[from - 1] == '_');
    let mut at = from;
    while !in_word && at < from + 2 && matches!(chars.get(at), Some('b' | 'r' | 'c')) {
        at += 1;
    }
    let raw = chars[from..at].contains(&'r');
    let hashes = if raw { chars[at..].iter().take_while(|char| **char == '#').count() } else { 0 };
    match chars.get(at + hashes)? {
        '"' if raw => {
            let close: String = std::iter::once('"').chain(std::iter::repeat_n('#', hashes)).collect();
            let rest: String = chars[at + hashes + 1..].iter().collect();
            let length = rest
                .find(&close)
                .map_or(rest.chars().count(), |byte| rest[..byte].chars().count() + close.len());
            Some(at + hashes + 1 + length)
        }
        '"' => Some(after_quote(chars, at + 1, '"')),
        // 'a' and '\n' are characters, 'a without a second quote is a lifetime.
        '\'' if chars.get(at + 1) == Some(&'\\') || chars.get(at + 2) == Some(&'\'') => {
            Some(after_quote(chars, at + 1, '\''))
        }
        _ => None,
    }
}

fn after_quote(chars: &[char], from: usize, quote: char) -> usize {
    let mut at = from;
    while at < chars.len() && chars[at] != quote {
        at += if chars[at] == '\\' { 2 } else { 1 };
    }
    (at + 1).min(chars.len())
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Every folder that can hold sources of ours.
fn source_directories() -> Vec<&'static str> {
    let all = [
        "src",
        "tests",
        "benches",
        "examples",
        "fuzz/fuzz_targets",
        "fuzz/src",
        "ssh-config-parser",
        "remote-helper",
    ];
    all.into_iter().filter(|directory| root().join(directory).is_dir()).collect()
}

fn rust_files(directory: &str) -> Vec<PathBuf> {
    let (mut open, mut found) = (vec![root().join(directory)], Vec::new());
    while let Some(path) = open.pop() {
        if path.is_dir() {
            if path.file_name().is_some_and(|name| name != "target") {
                open.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
            }
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    assert!(!found.is_empty(), "no sources in {directory}: the check would check nothing");
    found.sort();
    found
}
