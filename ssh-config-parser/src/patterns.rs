//! Host patterns and pattern lists.

/// A sub-pattern of this many characters or more makes its whole list fail.
const SUBPATTERN_BYTES_MAX: usize = 1023;

/// The answer of a pattern list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ListMatch {
    /// At least one pattern matches and no negated one does.
    Yes,
    /// Nothing matches.
    No,
    /// A negated pattern matches.
    Negated,
}

/// Tells whether `pattern` matches the whole of `name`: `*` is any run, `?` any one byte.
pub(crate) fn matches(name: &[u8], pattern: &[u8]) -> bool {
    let (mut at, mut want) = (0, 0);
    // Where to resume when the run of the last `*` has to grow by one.
    let mut retry = None;
    while let Some(byte) = name.get(at) {
        match pattern.get(want) {
            Some(b'*') => {
                want += 1;
                retry = Some((at, want));
            }
            Some(expected) if *expected == b'?' || expected == byte => {
                at += 1;
                want += 1;
            }
            _ => {
                let Some((start, after)) = retry else {
                    return false;
                };
                at = start + 1;
                want = after;
                retry = Some((at, after));
            }
        }
    }
    pattern.get(want..).unwrap_or_default().iter().all(|byte| *byte == b'*')
}

/// Compares `name` with a comma-separated list in which `!` negates; `lower` folds the list to lower case.
pub(crate) fn list_matches(name: &[u8], list: &[u8], lower: bool) -> ListMatch {
    let mut answer = ListMatch::No;
    // A list that ends in a comma has no empty last element.
    let body = list.strip_suffix(b",").unwrap_or(list);
    if list.is_empty() {
        return answer;
    }
    for element in body.split(|byte| *byte == b',') {
        let (negated, pattern) = match element.strip_prefix(b"!") {
            Some(pattern) => (true, pattern),
            None => (false, element),
        };
        if pattern.len() >= SUBPATTERN_BYTES_MAX {
            return ListMatch::No;
        }
        let hit = if lower { matches(name, &pattern.to_ascii_lowercase()) } else { matches(name, pattern) };
        match (hit, negated) {
            (true, true) => return ListMatch::Negated,
            (true, false) => answer = ListMatch::Yes,
            (false, _) => {}
        }
    }
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_matches_the_whole_name_and_knows_only_star_and_question_mark() {
        for (name, pattern, expected) in [
            ("web", "web", true),
            ("web", "we", false),
            ("a.b.c", "a*c", true),
            ("web1", "web?", true),
            ("web", "web?", false),
            ("web", "*", true),
            ("", "*", true),
            ("", "", true),
            ("x", "", false),
            ("aXbXc", "a*X*c", true),
            ("abcbd", "a*b?", true),
            ("[a]", "[a]", true),
            ("a", "[a]", false),
            ("WEB", "web", false),
            ("a,b", "a,b", true),
        ] {
            let got = matches(name.as_bytes(), pattern.as_bytes());
            assert_eq!(got, expected, "{name} {pattern}");
        }
    }

    #[test]
    fn many_stars_take_no_exponential_time() {
        let name = [b'a'; 2000];
        let pattern = b"*a".repeat(500);
        assert!(!matches(&name, &[pattern, b"b".to_vec()].concat()));
    }

    #[test]
    fn any_negative_match_wins_and_a_long_element_fails_the_list() {
        let list = |list: &str| list_matches(b"web", list.as_bytes(), false);
        assert_eq!(list("web,!w*"), ListMatch::Negated);
        assert_eq!(list("!w*,web"), ListMatch::Negated);
        assert_eq!(list("!db,*"), ListMatch::Yes);
        assert_eq!(list("!db"), ListMatch::No);
        assert_eq!(list("WEB"), ListMatch::No);
        assert_eq!(list(""), ListMatch::No);
        assert_eq!(list_matches(b"web", b"WEB", true), ListMatch::Yes);
        assert_eq!(list(&format!("web,{}", "*".repeat(1022))), ListMatch::Yes);
        assert_eq!(list(&format!("web,{}", "*".repeat(1023))), ListMatch::No);
    }
}
