//! Host patterns that match just what several blocks have in common.

use std::collections::BTreeSet;

use crate::words;

/// Most patterns of one combined line, and most steps to find them; above, the blocks cannot be combined.
const PATTERNS_MAX: usize = 1_000;
const STEPS_MAX: usize = 200_000;

/// The hosts for which a line of a file is active, as a set that a single `Host` line can name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Scope {
    /// A host is in the set when one of these matches …
    any: BTreeSet<Vec<u8>>,
    /// … and none of these does.
    none: BTreeSet<Vec<u8>>,
}

/// Says that a set of hosts has no `Host` line that names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Inexpressible;

impl Scope {
    /// Gives the scope of a line before any block.
    pub(crate) fn everyone() -> Scope {
        Scope { any: BTreeSet::from([b"*".to_vec()]), none: BTreeSet::new() }
    }

    /// Gives the scope of a block's patterns alone.
    pub(crate) fn of_patterns(patterns: &[Vec<u8>]) -> Scope {
        let mut scope = Scope { any: BTreeSet::new(), none: BTreeSet::new() };
        for pattern in patterns {
            match pattern.strip_prefix(b"!") {
                Some(negated) => scope.none.insert(negated.to_vec()),
                None => scope.any.insert(pattern.clone()),
            };
        }
        scope
    }

    /// Tells whether every host is in it.
    pub(crate) fn is_everyone(&self) -> bool {
        self.none.is_empty() && self.any.contains(b"*".as_slice())
    }

    /// Gives the hosts that are in both.
    ///
    /// Every pair of patterns has finitely many common patterns, so this is exact; the bound is on their number.
    pub(crate) fn and(&self, other: &Scope) -> Result<Scope, Inexpressible> {
        if self.is_everyone() {
            return Ok(other.clone());
        }
        if other.is_everyone() {
            return Ok(self.clone());
        }
        let mut any = BTreeSet::new();
        let mut steps = 0;
        for left in &self.any {
            for right in &other.any {
                if right == left {
                    any.insert(left.clone());
                } else {
                    common(left, right, &mut Vec::new(), &mut any, &mut steps)?;
                }
            }
        }
        let none = self.none.union(&other.none).cloned().collect();
        Ok(Scope { any, none })
    }

    /// Writes the `Host` line that opens a block for just these hosts.
    pub(crate) fn host_line(&self) -> Result<Vec<u8>, Inexpressible> {
        let mut line = b"Host".to_vec();
        if self.any.is_empty() {
            // A line of only negated patterns never matches.
            return Ok([line.as_slice(), b" !*"].concat());
        }
        for pattern in &self.none {
            line.push(b' ');
            line.extend(words::quote(&[b"!", pattern.as_slice()].concat()));
        }
        for pattern in &self.any {
            if pattern.starts_with(b"!") {
                return Err(Inexpressible);
            }
            line.push(b' ');
            line.extend(words::quote(pattern));
        }
        Ok(line)
    }
}

/// Adds the patterns that together match just what `left` and `right` both match; `head` is common to all of them.
fn common(
    left: &[u8],
    right: &[u8],
    head: &mut Vec<u8>,
    found: &mut BTreeSet<Vec<u8>>,
    steps: &mut usize,
) -> Result<(), Inexpressible> {
    *steps += 1;
    if *steps > STEPS_MAX || found.len() > PATTERNS_MAX {
        return Err(Inexpressible);
    }
    let length = head.len();
    match (left.split_first(), right.split_first()) {
        (None, None) => {
            found.insert(head.clone());
        }
        (Some((b'*', left_rest)), Some((b'*', right_rest))) => {
            // One of the two runs ends first; what it leaves belongs to the other.
            push_run(head);
            common(left_rest, right, head, found, steps)?;
            common(left, right_rest, head, found, steps)?;
        }
        (Some((b'*', rest)), _) => run_against(rest, left, right, (head, found, steps))?,
        (_, Some((b'*', rest))) => run_against(rest, right, left, (head, found, steps))?,
        (Some((a, left_rest)), Some((b, right_rest))) => {
            let both = match (a, b) {
                (b'?', other) | (other, b'?') => Some(*other),
                (a, b) => (a == b).then_some(*a),
            };
            if let Some(byte) = both {
                head.push(byte);
                common(left_rest, right_rest, head, found, steps)?;
            }
        }
        _ => {}
    }
    head.truncate(length);
    Ok(())
}

/// What [`common`] carries along: the head, the patterns found and the steps taken.
type Carried<'a> = (&'a mut Vec<u8>, &'a mut BTreeSet<Vec<u8>>, &'a mut usize);

/// Lets the run at the start of `run` end here, or take the next character of `other`.
fn run_against(
    behind_run: &[u8],
    run: &[u8],
    other: &[u8],
    (head, found, steps): Carried<'_>,
) -> Result<(), Inexpressible> {
    common(behind_run, other, head, found, steps)?;
    if let Some((byte, rest)) = other.split_first() {
        head.push(*byte);
        common(run, rest, head, found, steps)?;
    }
    Ok(())
}

fn push_run(head: &mut Vec<u8>) {
    if head.last() != Some(&b'*') {
        head.push(b'*');
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::patterns::matches;

    fn scope(patterns: &str) -> Scope {
        let patterns: Vec<Vec<u8>> = patterns.split(' ').map(|word| word.into()).collect();
        Scope::of_patterns(&patterns)
    }

    fn line(left: &str, right: &str) -> String {
        let both = scope(left).and(&scope(right)).unwrap();
        String::from_utf8(both.host_line().unwrap()).unwrap()
    }

    #[test]
    fn nested_blocks_become_one_line() {
        assert_eq!(line("*.example.com", "web*"), "Host web*.example.com");
        assert_eq!(line("web", "db"), "Host !*");
        assert_eq!(line("ab*", "*bc"), "Host ab*bc abc");
        assert_eq!(line("*", "web !db"), "Host !db web");
        assert_eq!(line("web? !web1", "*"), "Host !web1 web?");
    }

    #[test]
    fn what_cannot_be_written_or_grows_too_large_is_told() {
        let odd = scope("*!x").and(&scope("??")).unwrap();
        assert_eq!(odd.host_line(), Err(Inexpressible));
        let left = scope(&"*a".repeat(30));
        assert_eq!(left.and(&scope(&"*b".repeat(30))), Err(Inexpressible));
    }

    fn member(scope: &Scope, name: &[u8]) -> bool {
        scope.any.iter().any(|pattern| matches(name, pattern))
            && !scope.none.iter().any(|pattern| matches(name, pattern))
    }

    proptest! {
        #[test]
        fn a_host_is_in_both_blocks_or_not_in_the_combined_one(
            left in prop::collection::vec("!?[ab*?]{1,5}", 1..4),
            right in prop::collection::vec("!?[ab*?]{1,5}", 1..4),
            names in prop::collection::vec("[abc]{0,6}", 1..30),
        ) {
            let scope = |patterns: &[String]| {
                let patterns: Vec<Vec<u8>> = patterns.iter().map(|word| word.clone().into()).collect();
                Scope::of_patterns(&patterns)
            };
            let (left, right) = (scope(&left), scope(&right));
            let both = left.and(&right).unwrap();
            for name in names {
                let name = name.as_bytes();
                prop_assert_eq!(member(&both, name), member(&left, name) && member(&right, name));
            }
        }
    }
}
