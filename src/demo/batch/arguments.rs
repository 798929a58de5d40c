//! Command lines as getopt_long reads them.

use super::Failure;

/// Options found, in order, under their long names; flags have an empty value.
#[derive(Debug, Default)]
pub(super) struct Parsed {
    options: Vec<(String, String)>,
    pub(super) rest: Vec<String>,
}

impl Parsed {
    pub(super) fn has(&self, name: &str) -> bool {
        self.options.iter().any(|(found, _)| found == name)
    }

    /// The last value given wins.
    pub(super) fn value(&self, name: &str) -> Option<&str> {
        let mut found = self.options.iter().rev();
        found.find(|(found, _)| found == name).map(|(_, value)| value.as_str())
    }

    /// The last value given, at its commas; empty where none was given.
    pub(super) fn list(&self, name: &str) -> Vec<String> {
        let values = self.value(name).unwrap_or_default().split(',');
        values.filter(|value| !value.is_empty()).map(str::to_owned).collect()
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
        let mut arguments = arguments.iter();
        while let Some(argument) = arguments.next() {
            if argument == "--" {
                break;
            } else if let Some(long) = argument.strip_prefix("--") {
                self.long(long, &mut arguments, &mut parsed)?;
            } else if argument.len() > 1 && argument.starts_with('-') {
                self.short(argument, &mut arguments, &mut parsed)?;
            } else {
                parsed.rest.push(argument.clone());
                if self.in_order {
                    break;
                }
            }
        }
        parsed.rest.extend(arguments.cloned());
        Ok(parsed)
    }

    fn entries(&self) -> impl Iterator<Item = (&'static str, &'static str, bool)> {
        self.table.split_whitespace().filter_map(|entry| {
            let (short, long) = entry.split_once('/')?;
            Some((short, long.trim_end_matches('='), long.ends_with('=')))
        })
    }

    fn long<'a>(
        &self,
        text: &str,
        following: &mut impl Iterator<Item = &'a String>,
        parsed: &mut Parsed,
    ) -> Result<(), Failure> {
        let (name, inline) = match text.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (text, None),
        };
        let found = self.entries().find(|(_, long, _)| *long == name);
        let (_, name, takes) =
            found.ok_or_else(|| self.failure(format!("unrecognized option '--{text}'")))?;
        let value = match (takes, inline) {
            (true, None) => following.next().cloned(),
            (_, inline) => Some(inline.unwrap_or_default()),
        };
        let value = value.ok_or_else(|| self.failure(format!("option '--{name}' requires an argument")))?;
        parsed.options.push((name.to_owned(), value));
        Ok(())
    }

    fn short<'a>(
        &self,
        text: &str,
        following: &mut impl Iterator<Item = &'a String>,
        parsed: &mut Parsed,
    ) -> Result<(), Failure> {
        for (at, letter) in text.char_indices().skip(1) {
            let mut spelled = [0; 4];
            let letter: &str = letter.encode_utf8(&mut spelled);
            let found = self.entries().find(|(short, _, _)| *short == letter);
            let (_, name, takes) =
                found.ok_or_else(|| self.failure(format!("invalid option -- '{letter}'")))?;
            if !takes {
                parsed.options.push((name.to_owned(), String::new()));
                continue;
            }
            let inline = text.get(at + letter.len()..).unwrap_or_default();
            let value = match inline {
                "" => following.next().map(String::as_str),
                inline => Some(inline),
            };
            let value =
                value.ok_or_else(|| self.failure(format!("option requires an argument -- '{letter}'")))?;
            parsed.options.push((name.to_owned(), value.to_owned()));
            break;
        }
        Ok(())
    }

    fn failure(&self, what: String) -> Failure {
        let command = self.command;
        let text = format!("{command}: {what}\nTry \"{command} --help\" for more information");
        Failure::new(self.code, text)
    }
}
