//! Command lines as getopt reads them, without its bundles of letters and abbreviated names.

use super::Failure;

/// The options given, under their long names, flags with an empty value; and the arguments behind them.
#[derive(Debug, Default)]
pub(super) struct Arguments {
    options: Vec<(&'static str, String)>,
    pub(super) rest: Vec<String>,
}

impl Arguments {
    /// Reads a command line. `known` holds words like `o/output=` or `parsable`, where `=` asks for a value.
    ///
    /// An unknown option is refused, never ignored. The first argument that is no option ends the options, as
    /// what follows a script's name is the script's.
    pub(super) fn read(command: &str, known: &'static str, line: &[String]) -> Result<Self, Failure> {
        let code = if command == "sbatch" { 255 } else { 1 };
        let refuse = |what: &str, word: &str| {
            let hint = format!("Try \"{command} --help\" for more information");
            Failure(code, format!("{command}: {what} '{word}'\n{hint}\n"))
        };
        let mut read = Self::default();
        let mut words = line.iter();
        while let Some(word) = words.next() {
            if !word.starts_with('-') {
                read.rest.push(word.clone());
                break;
            }
            let (name, inline) = match word.strip_prefix("--") {
                Some(long) => long.split_once('=').map_or((long, None), |(name, value)| (name, Some(value))),
                None => (word.get(1..2).unwrap_or(word), word.get(2..).filter(|value| !value.is_empty())),
            };
            let mut entries = known.split_whitespace();
            let entry =
                entries.find(|entry| entry.trim_end_matches('=').split('/').any(|known| known == name));
            let entry = entry.ok_or_else(|| refuse("unrecognized option", word))?;
            let option = entry.rsplit('/').next().unwrap_or(entry).trim_end_matches('=');
            let value = match (entry.ends_with('='), inline) {
                (true, None) => words.next().map(String::as_str),
                (true, Some(value)) => Some(value),
                (false, None) => Some(""),
                (false, Some(_)) => None,
            };
            let value = value.ok_or_else(|| refuse("missing or needless value of option", word))?;
            read.options.push((option, value.to_owned()));
        }
        read.rest.extend(words.cloned());
        Ok(read)
    }

    /// Takes options from elsewhere, weaker than those already here.
    pub(super) fn add_weaker(&mut self, weaker: Self) {
        self.options.splice(0..0, weaker.options);
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.value(name).is_some()
    }

    /// The last value given wins.
    pub(super) fn value(&self, name: &str) -> Option<&str> {
        let mut options = self.options.iter().rev();
        options.find(|(found, _)| *found == name).map(|(_, value)| value.as_str())
    }
}

/// The job ids between a list's commas; of anything else `complaint` is said.
pub(super) fn ids(list: &str, complaint: &str) -> Result<Vec<u64>, Failure> {
    let words = list.split(',').filter(|word| !word.is_empty());
    words.map(|id| id.parse().map_err(|_| Failure(1, format!("{complaint}{id}\n")))).collect()
}
