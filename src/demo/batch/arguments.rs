//! Command lines as getopt_long reads them.

use super::Failure;

/// Options found, in order, under their long names; flags have an empty value.
#[derive(Debug, Default)]
pub(super) struct Parsed {
    options: Vec<(&'static str, String)>,
    pub(super) rest: Vec<String>,
}

impl Parsed {
    pub(super) fn has(&self, name: &str) -> bool {
        self.value(name).is_some()
    }

    /// The last value given wins.
    pub(super) fn value(&self, name: &str) -> Option<&str> {
        let mut options = self.options.iter().rev();
        options.find(|(found, _)| *found == name).map(|(_, value)| value.as_str())
    }

    /// Says whether one of the option's comma-separated values is among `values`, or it was not given.
    pub(super) fn admits(&self, name: &str, values: &[&str]) -> bool {
        self.value(name).is_none_or(|list| {
            list.split(',').any(|wanted| values.iter().any(|value| value.eq_ignore_ascii_case(wanted)))
        })
    }

    /// The ids among an option's values and arguments; others get Slurm's complaint.
    pub(super) fn ids(&self, name: &str, complaint: &str) -> Result<Vec<u64>, Failure> {
        let words = self.value(name).into_iter().chain(self.rest.iter().map(String::as_str));
        let words = words.flat_map(|list| list.split(','));
        let ids = words.map(|id| id.parse().map_err(|_| Failure::new(1, format!("{complaint}{id}\n"))));
        ids.collect()
    }

    /// Takes options from elsewhere, weaker than those already here.
    pub(super) fn add_weaker(&mut self, weaker: Self) {
        self.options.splice(0..0, weaker.options);
    }
}

/// One command's options: `table` holds words like `o/output=`, `-/parsable` or `H/hold`, `=` meaning a value follows.
pub(super) struct Grammar {
    pub(super) command: &'static str,
    pub(super) table: &'static str,
    /// Whether the first argument that is no option ends the options.
    pub(super) in_order: bool,
    /// The exit code for a wrong command line.
    pub(super) code: u8,
}

impl Grammar {
    pub(super) fn parse(&self, arguments: &[String]) -> Result<Parsed, Failure> {
        let mut parsed = Parsed::default();
        let mut arguments = arguments.iter().cloned();
        while let Some(argument) = arguments.next() {
            if argument == "--" {
                break;
            } else if let Some(long) = argument.strip_prefix("--") {
                let (name, inline) =
                    long.split_once('=').map_or((long, None), |(name, value)| (name, Some(value.to_owned())));
                let known = self.entry(|_, known| known == name);
                let unknown = || self.failure(format!("unrecognized option '{argument}'"));
                let (name, takes) = known.ok_or_else(unknown)?;
                let value = if takes { inline.or_else(|| arguments.next()) } else { Some(String::new()) };
                let missing = || self.failure(format!("option '--{name}' requires an argument"));
                parsed.options.push((name, value.ok_or_else(missing)?));
            } else if argument.len() > 1 && argument.starts_with('-') {
                let mut letters = argument.chars().skip(1);
                while let Some(letter) = letters.next() {
                    let known = self.entry(|short, _| short.starts_with(letter));
                    let unknown = || self.failure(format!("invalid option -- '{letter}'"));
                    let (name, takes) = known.ok_or_else(unknown)?;
                    let inline: String = if takes { letters.by_ref().collect() } else { String::new() };
                    let value = if takes && inline.is_empty() { arguments.next() } else { Some(inline) };
                    let missing = || self.failure(format!("option requires an argument -- '{letter}'"));
                    parsed.options.push((name, value.ok_or_else(missing)?));
                }
            } else {
                parsed.rest.push(argument);
                if self.in_order {
                    break;
                }
            }
        }
        parsed.rest.extend(arguments);
        Ok(parsed)
    }

    /// The first entry whose short and long name suit: its long name, and whether it takes a value.
    fn entry(&self, suits: impl Fn(&str, &str) -> bool) -> Option<(&'static str, bool)> {
        self.table.split_whitespace().find_map(|entry| {
            let (short, long) = entry.split_once('/')?;
            let name = long.trim_end_matches('=');
            suits(short, name).then_some((name, long.ends_with('=')))
        })
    }

    fn failure(&self, what: String) -> Failure {
        let command = self.command;
        Failure::new(self.code, format!("{command}: {what}\nTry \"{command} --help\" for more information\n"))
    }
}
