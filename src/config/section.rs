//! One table of `config.toml`, read key by key; each mistake knows its line.
//!
//! Pure: text in, values or the first mistake out.

use std::path::Path;
use std::time::Duration;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::duration::{self, DURATION_MAX};
use super::error::{Error, Place};
use super::nearest::nearest;

/// The text being read, to turn byte offsets into lines.
#[derive(Clone, Copy)]
pub(super) struct Source<'a> {
    pub(super) file: &'a Path,
    pub(super) text: &'a str,
}

impl Source<'_> {
    /// The place of a byte offset.
    pub(super) fn place(&self, offset: usize) -> Place {
        let before = self.text.as_bytes().iter().take(offset).filter(|byte| **byte == b'\n').count();
        Place { file: self.file.to_owned(), line: before as u64 + 1 }
    }

    /// A mistake at a byte offset.
    pub(super) fn mistake(&self, offset: usize, message: String) -> Error {
        Error::Entry { place: self.place(offset), message, nearest: None }
    }
}

/// A table with its name in the file, such as `site.hpc`.
pub(super) struct Section<'a> {
    source: Source<'a>,
    name: String,
    table: &'a DeTable<'a>,
    offset: usize,
}

/// One entry of a table.
pub(super) struct Entry<'a> {
    pub(super) key: &'a str,
    pub(super) offset: usize,
    pub(super) value: &'a Spanned<DeValue<'a>>,
}

impl<'a> Section<'a> {
    pub(super) fn root(source: Source<'a>, table: &'a DeTable<'a>) -> Section<'a> {
        Section { source, name: String::new(), table, offset: 0 }
    }

    /// Where the table begins.
    pub(super) fn place(&self) -> Place {
        self.source.place(self.offset)
    }

    /// All entries in the file's order.
    pub(super) fn entries(&self) -> Vec<Entry<'a>> {
        let mut entries: Vec<_> = self
            .table
            .iter()
            .map(|(key, value)| Entry { key: key.get_ref().as_ref(), offset: key.span().start, value })
            .collect();
        entries.sort_by_key(|entry| entry.offset);
        entries
    }

    /// Refuses any key but these.
    pub(super) fn only(&self, keys: &[&str]) -> Result<(), Error> {
        let Some(unknown) = self.entries().into_iter().find(|entry| !keys.contains(&entry.key)) else {
            return Ok(());
        };
        let place = self.source.place(unknown.offset);
        let message = match self.name.as_str() {
            "" => format!("`{}` is not a table of config.toml", unknown.key),
            name => format!("[{name}] has no key `{}`", unknown.key),
        };
        Err(Error::Entry {
            place,
            message,
            nearest: nearest(unknown.key, keys.iter().copied()).map(str::to_owned),
        })
    }

    /// A mistake in the value of a key, at that value; at the table's head when the key is missing.
    pub(super) fn mistake(&self, key: &str, reason: &str) -> Error {
        let offset = self.table.get(key).map_or(self.offset, |value| value.span().start);
        self.source.mistake(offset, format!("{} {reason}", self.full(key)))
    }

    /// A sub-table.
    pub(super) fn section(&self, key: &str) -> Result<Option<Section<'a>>, Error> {
        let Some((head, value)) = self.table.get_key_value(key) else { return Ok(None) };
        self.subsection(&Entry { key: head.get_ref().as_ref(), offset: head.span().start, value }).map(Some)
    }

    /// The sub-table that an entry is.
    pub(super) fn subsection(&self, entry: &Entry<'a>) -> Result<Section<'a>, Error> {
        let table = entry
            .value
            .get_ref()
            .as_table()
            .ok_or_else(|| self.wrong_type(entry.key, entry.value, "a table"))?;
        let name =
            if self.name.is_empty() { entry.key.to_owned() } else { format!("{}.{}", self.name, entry.key) };
        Ok(Section { source: self.source, name, table, offset: entry.offset })
    }

    /// A text without control characters.
    pub(super) fn text(&self, key: &str) -> Result<Option<&'a str>, Error> {
        let Some(value) = self.table.get(key) else { return Ok(None) };
        self.text_of(key, value).map(Some)
    }

    /// Yes or no.
    pub(super) fn boolean(&self, key: &str) -> Result<Option<bool>, Error> {
        let Some(value) = self.table.get(key) else { return Ok(None) };
        value.get_ref().as_bool().map(Some).ok_or_else(|| self.wrong_type(key, value, "true or false"))
    }

    /// A whole number within bounds.
    pub(super) fn count(
        &self,
        key: &str,
        bounds: std::ops::RangeInclusive<u32>,
    ) -> Result<Option<u32>, Error> {
        let Some(value) = self.table.get(key) else { return Ok(None) };
        let number =
            value.get_ref().as_integer().ok_or_else(|| self.wrong_type(key, value, "a whole number"))?;
        // A number that does not fit in 32 bits is out of bounds like any other.
        match u32::from_str_radix(number.as_str(), number.radix()) {
            Ok(count) if bounds.contains(&count) => Ok(Some(count)),
            Ok(_) | Err(_) => {
                let reason =
                    format!("is {}; it must be from {} to {}", number.as_str(), bounds.start(), bounds.end());
                Err(self.mistake(key, &reason))
            }
        }
    }

    /// A duration: text with a unit, or a number of seconds; more than zero and at most seven days.
    pub(super) fn duration(&self, key: &str) -> Result<Option<Duration>, Error> {
        let Some(value) = self.table.get(key) else { return Ok(None) };
        let number = |text: &str| text.parse::<f64>().ok();
        let read = match value.get_ref() {
            DeValue::String(text) => duration::parse(text, DURATION_MAX),
            DeValue::Integer(integer) if integer.radix() == 10 => {
                duration::from_seconds(number(integer.as_str()).unwrap_or(f64::NAN), DURATION_MAX)
            }
            DeValue::Float(float) => {
                duration::from_seconds(number(float.as_str()).unwrap_or(f64::NAN), DURATION_MAX)
            }
            _ => {
                return Err(self.wrong_type(
                    key,
                    value,
                    "a duration (a text such as \"30s\", or a number of seconds)",
                ));
            }
        };
        read.map(Some).map_err(|error| self.mistake(key, &format!("is wrong: {error}")))
    }

    /// A list of texts.
    pub(super) fn texts(&self, key: &str) -> Result<Option<Vec<String>>, Error> {
        let Some(value) = self.table.get(key) else { return Ok(None) };
        let array =
            value.get_ref().as_array().ok_or_else(|| self.wrong_type(key, value, "a list of texts"))?;
        array
            .iter()
            .map(|item| self.text_of(key, item).map(str::to_owned))
            .collect::<Result<_, _>>()
            .map(Some)
    }

    /// One of a few words.
    pub(super) fn choice<T: Copy>(&self, key: &str, words: &[(&str, T)]) -> Result<Option<T>, Error> {
        let Some(text) = self.text(key)? else { return Ok(None) };
        if let Some((_, choice)) = words.iter().find(|(word, _)| *word == text) {
            return Ok(Some(*choice));
        }
        let known: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
        let error = self.mistake(key, &format!("is `{text}`; it must be one of {}", known.join(", ")));
        Err(match error {
            Error::Entry { place, message, .. } => {
                Error::Entry { place, message, nearest: nearest(text, known).map(str::to_owned) }
            }
            other => other,
        })
    }

    fn text_of(&self, key: &str, value: &'a Spanned<DeValue<'a>>) -> Result<&'a str, Error> {
        let text = value.get_ref().as_str().ok_or_else(|| self.wrong_type(key, value, "a text"))?;
        if text.is_empty() || text.chars().any(char::is_control) {
            return Err(self.source.mistake(
                value.span().start,
                format!("{} must be a text that is not empty and has no control characters", self.full(key)),
            ));
        }
        Ok(text)
    }

    fn wrong_type(&self, key: &str, value: &Spanned<DeValue<'_>>, wanted: &str) -> Error {
        let got = value.get_ref().type_str();
        self.source
            .mistake(value.span().start, format!("{} must be {wanted}, not of type {got}", self.full(key)))
    }

    fn full(&self, key: &str) -> String {
        if self.name.is_empty() { format!("`{key}`") } else { format!("`{}.{key}`", self.name) }
    }
}
