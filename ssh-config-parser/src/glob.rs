//! Shell-style file patterns, as `Include` uses them.

use std::ffi::OsStr;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

/// Most names that one pattern may give; a pattern that gives more is cut there.
const MATCHES_MAX: usize = 10_000;

/// One element of a compiled path component.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    /// This byte.
    Byte(u8),
    /// Any one byte.
    One,
    /// Any run of bytes.
    Run,
    /// A byte in, or not in, these ranges.
    Set(bool, Vec<(u8, u8)>),
}

/// Lists the existing paths that `pattern` names, in byte order; none is no error.
///
/// A folder that cannot be listed has no matches, as a missing one.
pub(crate) fn expand(pattern: &[u8]) -> Vec<PathBuf> {
    let mut paths: Vec<Vec<u8>> = vec![Vec::new()];
    let mut components = pattern.split_inclusive(|byte| *byte == b'/').peekable();
    while let Some(component) = components.next() {
        let (name, slash) = match component.strip_suffix(b"/") {
            Some(name) => (name, true),
            None => (component, false),
        };
        let parts = compile(name);
        let mut next = Vec::new();
        for folder in &paths {
            match literal(&parts) {
                Some(name) => next.push([folder.as_slice(), &name].concat()),
                None => next.extend(listed(folder, &parts)),
            }
        }
        if slash {
            next.iter_mut().for_each(|path| path.push(b'/'));
        }
        // Only what exists goes on; a dangling link counts here and is skipped when it is opened.
        next.retain(|path| path.is_empty() || exists(path, components.peek().is_some()));
        next.truncate(MATCHES_MAX);
        paths = next;
    }
    paths.retain(|path| !path.is_empty());
    paths.sort_unstable();
    paths.dedup();
    paths.into_iter().map(|path| PathBuf::from(std::ffi::OsString::from_vec(path))).collect()
}

fn exists(path: &[u8], folder: bool) -> bool {
    let path = OsStr::from_bytes(path);
    // Whatever keeps it from being looked at, it has no matches.
    if folder {
        std::fs::metadata(path).is_ok_and(|facts| facts.is_dir())
    } else {
        std::fs::symlink_metadata(path).is_ok()
    }
}

fn listed(folder: &[u8], parts: &[Part]) -> Vec<Vec<u8>> {
    let place: &[u8] = if folder.is_empty() { b"." } else { folder };
    // A folder that cannot be listed has no matches.
    let Ok(entries) = std::fs::read_dir(OsStr::from_bytes(place)) else {
        return Vec::new();
    };
    let hidden = parts.first() == Some(&Part::Byte(b'.'));
    entries
        .filter_map(Result::ok)
        .map(|entry| entry.file_name().into_vec())
        .filter(|name| (hidden || !name.starts_with(b".")) && matches(name, parts))
        .map(|name| [folder, &name].concat())
        .collect()
}

/// Gives the plain name, if the component holds no pattern.
fn literal(parts: &[Part]) -> Option<Vec<u8>> {
    parts
        .iter()
        .map(|part| match part {
            Part::Byte(byte) => Some(*byte),
            _ => None,
        })
        .collect()
}

fn compile(name: &[u8]) -> Vec<Part> {
    let mut parts = Vec::new();
    let mut rest = name;
    while let Some((byte, behind)) = rest.split_first() {
        rest = behind;
        parts.push(match byte {
            b'*' => Part::Run,
            b'?' => Part::One,
            b'\\' => match behind.split_first() {
                Some((escaped, behind)) => {
                    rest = behind;
                    Part::Byte(*escaped)
                }
                None => Part::Byte(b'\\'),
            },
            b'[' => match set(behind) {
                Some((part, behind)) => {
                    rest = behind;
                    part
                }
                None => Part::Byte(b'['),
            },
            byte => Part::Byte(*byte),
        });
    }
    parts
}

/// Reads a bracket expression behind its `[`; none when it never closes, which makes the bracket plain.
fn set(text: &[u8]) -> Option<(Part, &[u8])> {
    let (negated, mut rest) = match text.split_first()? {
        (b'!' | b'^', rest) => (true, rest),
        _ => (false, text),
    };
    let mut ranges = Vec::new();
    let mut first = true;
    loop {
        let (byte, behind) = rest.split_first()?;
        if *byte == b']' && !first {
            return Some((Part::Set(negated, ranges), behind));
        }
        first = false;
        if let Some((class, behind)) = class(rest) {
            ranges.extend(class);
            rest = behind;
            continue;
        }
        let (low, behind) = set_byte(rest)?;
        rest = behind;
        let mut high = low;
        if let Some(range) = rest.strip_prefix(b"-")
            && !range.starts_with(b"]")
        {
            let (end, behind) = set_byte(range)?;
            high = end;
            rest = behind;
        }
        ranges.push((low, high));
    }
}

fn set_byte(text: &[u8]) -> Option<(u8, &[u8])> {
    match text.split_first()? {
        (b'\\', behind) => behind.split_first().map(|(byte, rest)| (*byte, rest)),
        (byte, behind) => Some((*byte, behind)),
    }
}

/// First and last bytes of the ranges of a class.
type Ranges = &'static [(u8, u8)];

/// Reads a class such as `[:digit:]`.
fn class(text: &[u8]) -> Option<(Ranges, &[u8])> {
    const CLASSES: &[(&[u8], Ranges)] = &[
        (b"[:alpha:]", &[(b'a', b'z'), (b'A', b'Z')]),
        (b"[:digit:]", &[(b'0', b'9')]),
        (b"[:alnum:]", &[(b'a', b'z'), (b'A', b'Z'), (b'0', b'9')]),
        (b"[:lower:]", &[(b'a', b'z')]),
        (b"[:upper:]", &[(b'A', b'Z')]),
        (b"[:xdigit:]", &[(b'a', b'f'), (b'A', b'F'), (b'0', b'9')]),
        (b"[:space:]", &[(b' ', b' '), (b'\t', b'\r')]),
        (b"[:blank:]", &[(b' ', b' '), (b'\t', b'\t')]),
        (b"[:punct:]", &[(b'!', b'/'), (b':', b'@'), (b'[', b'`'), (b'{', b'~')]),
        (b"[:print:]", &[(b' ', b'~')]),
        (b"[:graph:]", &[(b'!', b'~')]),
        (b"[:cntrl:]", &[(0, 0x1f), (0x7f, 0x7f)]),
    ];
    CLASSES.iter().find_map(|(name, ranges)| text.strip_prefix(*name).map(|rest| (*ranges, rest)))
}

fn matches(name: &[u8], parts: &[Part]) -> bool {
    let (mut at, mut want) = (0, 0);
    let mut retry = None;
    while let Some(byte) = name.get(at) {
        let hit = match parts.get(want) {
            Some(Part::Run) => {
                want += 1;
                retry = Some((at, want));
                continue;
            }
            Some(Part::One) => true,
            Some(Part::Byte(expected)) => expected == byte,
            Some(Part::Set(negated, ranges)) => {
                ranges.iter().any(|(low, high)| (low..=high).contains(&byte)) != *negated
            }
            None => false,
        };
        if hit {
            at += 1;
            want += 1;
        } else if let Some((start, after)) = retry {
            at = start + 1;
            want = after;
            retry = Some((at, after));
        } else {
            return false;
        }
    }
    parts.get(want..).unwrap_or_default().iter().all(|part| *part == Part::Run)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_know_runs_sets_classes_and_escapes() {
        for (name, pattern, expected) in [
            ("a.conf", "*.conf", true),
            ("a.conf", "?.conf", true),
            ("ab.conf", "?.conf", false),
            ("b1", "[a-c][0-9]", true),
            ("b1", "[!a-c]1", false),
            ("]", "[]]", true),
            ("a-", "a[b-]", true),
            ("7", "[[:digit:]]", true),
            ("[x", "[x", true),
            ("*", "\\*", true),
            ("x", "\\*", false),
        ] {
            let got = matches(name.as_bytes(), &compile(pattern.as_bytes()));
            assert_eq!(got, expected, "{name} {pattern}");
        }
    }

    #[test]
    fn matches_come_in_byte_order_without_hidden_names() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["20", "100", "B", "a", ".x", "[b]"] {
            std::fs::write(folder.path().join(name), "").unwrap();
        }
        std::fs::create_dir(folder.path().join("d")).unwrap();
        std::fs::write(folder.path().join("d/y"), "").unwrap();
        let list = |pattern: &str| -> Vec<String> {
            let pattern = folder.path().join(pattern).into_os_string().into_vec();
            expand(&pattern)
                .into_iter()
                .map(|path| {
                    let name = path.strip_prefix(folder.path()).unwrap();
                    name.to_string_lossy().into_owned()
                })
                .collect()
        };
        assert_eq!(list("*"), ["100", "20", "B", "[b]", "a", "d"]);
        assert_eq!(list(".*").iter().filter(|name| *name == ".x").count(), 1);
        assert_eq!(list("*/y"), ["d/y"]);
        assert_eq!(list("a"), ["a"]);
        assert_eq!(list("gone"), Vec::<String>::new());
        assert_eq!(list("a/x"), Vec::<String>::new());
        assert_eq!(list("\\[b\\]"), ["[b]"]);
    }
}
