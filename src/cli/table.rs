//! Aligned tables without borders, for people.

use comfy_table::{ContentArrangement, Table, presets};

/// Lays rows out under their titles; what is unknown is an empty cell.
///
/// Cells come from hosts and schedulers, so nothing in them may steer the terminal: see [`clean`].
pub fn render(titles: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let mut table = Table::new();
    table
        .load_preset(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Disabled)
        .set_header(titles);
    for row in rows {
        table.add_row(row.iter().map(|cell| clean(cell)));
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    let mut text = String::new();
    for line in table.lines() {
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// Shows control characters escaped, so that a name is one cell of one line and cannot steer the terminal.
pub fn clean(text: &str) -> String {
    let steers = |c: char| {
        c.is_control()
            || matches!(c, '\u{202A}'..='\u{202E}' | '\u{2066}'..='\u{2069}' | '\u{2028}' | '\u{2029}')
    };
    text.chars().map(|c| if steers(c) { c.escape_default().to_string() } else { c.to_string() }).collect()
}

/// A number of seconds as schedulers show it: `3-04:05:06`, `04:05:06`.
pub fn seconds(seconds: u64) -> String {
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    let clock = format!("{:02}:{:02}:{:02}", rest / 3600, rest / 60 % 60, rest % 60);
    if days == 0 { clock } else { format!("{days}-{clock}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_in_a_cell_breaks_the_line_or_steers_the_terminal() {
        let row = vec!["a\x1b[31m\nb".to_owned(), "\u{202E}c".to_owned(), String::new()];
        let text = render(&["NAME", "NODES", "REASON"], [row]);
        assert_eq!(text, "NAME            NODES      REASON\na\\u{1b}[31m\\nb  \\u{202e}c\n");
    }

    #[test]
    fn seconds_are_shown_as_a_clock() {
        for (count, text) in [
            (0, "00:00:00"),
            (59, "00:00:59"),
            (3_661, "01:01:01"),
            (86_400, "1-00:00:00"),
            (273_906, "3-04:05:06"),
        ] {
            assert_eq!(seconds(count), text);
        }
    }
}
