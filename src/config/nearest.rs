//! The nearest right name, for people who mistyped one.

/// Returns the name that needs the fewest single edits to become `wrong`, if that is near enough to be meant.
pub(crate) fn nearest<'a>(wrong: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // A third of the letters may be wrong, and one always: beyond that a proposal is a guess that misleads.
    let edits_max = (wrong.chars().count() / 3).max(1);
    names
        .into_iter()
        .map(|name| (distance(wrong, name), name))
        .filter(|(edits, _)| *edits <= edits_max)
        .min()
        .map(|(_, name)| name)
}

/// Counts insertions, deletions, replacements and swaps of neighbours between two texts; case costs nothing.
fn distance(left: &str, right: &str) -> usize {
    let left: Vec<char> = left.to_lowercase().chars().collect();
    let right: Vec<char> = right.to_lowercase().chars().collect();
    let mut before_last: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=right.len()).collect();
    for (row, from) in left.iter().enumerate() {
        let mut current = vec![row + 1];
        for (column, to) in right.iter().enumerate() {
            let cell = |cells: &[usize], at: usize| cells.get(at).copied().unwrap_or(usize::MAX - 1);
            let replaced = cell(&last, column) + usize::from(from != to);
            let mut least = replaced.min(cell(&last, column + 1) + 1).min(cell(&current, column) + 1);
            let (previous_row, previous_column) = (row.checked_sub(1), column.checked_sub(1));
            if let (Some(up), Some(back)) = (previous_row, previous_column)
                && left.get(up) == Some(to)
                && right.get(back) == Some(from)
            {
                least = least.min(cell(&before_last, back) + 1);
            }
            current.push(least);
        }
        before_last = std::mem::replace(&mut last, current);
    }
    last.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_typing_mistake_finds_its_name() {
        let names = ["host", "transfer_host", "scheduler", "keepalive"];
        for (wrong, right) in [
            ("hots", "host"),
            ("hosts", "host"),
            ("Host", "host"),
            ("shceduler", "scheduler"),
            ("keep_alive", "keepalive"),
        ] {
            assert_eq!(nearest(wrong, names), Some(right), "{wrong}");
        }
    }

    #[test]
    fn a_name_that_is_nothing_like_ours_gets_no_proposal() {
        assert_eq!(nearest("colour", ["host", "approval"]), None);
        assert_eq!(nearest("", ["host"]), None);
        assert_eq!(nearest("x", []), None);
    }

    #[test]
    fn edits_are_counted() {
        for (left, right, edits) in [
            ("", "", 0),
            ("", "abc", 3),
            ("abc", "", 3),
            ("kitten", "sitting", 3),
            ("ab", "ba", 1),
            ("ca", "abc", 3),
        ] {
            assert_eq!(distance(left, right), edits, "{left} {right}");
        }
    }
}
