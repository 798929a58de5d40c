//! Reads the value of a directive, by the kind that the keyword table gives.

use crate::algorithms::Class;
use crate::context::{Context, Fault};
use crate::expand::{expand, shown};
use crate::forward::{Direction, Forward};
use crate::jump::JumpSpec;
use crate::keywords::{Choices, Entry, FLAG, Kind};
use crate::lines::is_blank;
use crate::specs;
use crate::values::{self, Value};

/// The words of a directive, taken one by one, and its raw text.
pub(crate) struct Args<'a> {
    words: std::slice::Iter<'a, Vec<u8>>,
    raw: &'a [u8],
    context: Context<'a>,
}

impl<'a> Args<'a> {
    pub(crate) fn new(words: &'a [Vec<u8>], raw: &'a [u8], context: Context<'a>) -> Args<'a> {
        Args { words: words.iter(), raw, context }
    }

    /// Takes the next word, which may be empty.
    pub(crate) fn next(&mut self) -> Option<&'a [u8]> {
        self.words.next().map(Vec::as_slice)
    }

    /// Takes the next word; a missing and an empty one are the same error.
    pub(crate) fn needed(&mut self) -> Result<&'a [u8], Fault> {
        self.next().filter(|word| !word.is_empty()).ok_or_else(|| Fault::syntax("value is missing"))
    }

    /// Looks at the next word without taking it.
    pub(crate) fn peek(&self) -> Option<&'a [u8]> {
        self.words.clone().next().map(Vec::as_slice)
    }

    /// Takes all that is left.
    pub(crate) fn rest(&mut self) -> Vec<Vec<u8>> {
        self.words.by_ref().cloned().collect()
    }

    /// Takes the raw rest of the line, without the blanks and `=` that begin it; quotes stay.
    pub(crate) fn raw(&mut self) -> &'a [u8] {
        self.words = [].iter();
        let start =
            self.raw.iter().position(|byte| !is_blank(*byte) && *byte != b'=').unwrap_or(self.raw.len());
        self.raw.get(start..).unwrap_or_default()
    }

    pub(crate) fn context(&self) -> Context<'a> {
        self.context
    }
}

/// Reads the value of one directive.
pub(crate) fn parse_value(entry: &Entry, args: &mut Args<'_>) -> Result<Value, Fault> {
    let value = match entry.kind {
        Kind::Choice(choices) => Value::Choice(choice(args.needed()?, choices)?),
        Kind::Time => time(args)?,
        Kind::Count => {
            let word = args.needed()?;
            Value::Number(values::count(word).ok_or_else(|| bad("count", word))?)
        }
        Kind::Port => {
            let word = args.needed()?;
            let port = values::port(word, args.context().services.get());
            Value::Number(u64::from(port.ok_or_else(|| bad("port", word))?))
        }
        Kind::Word => Value::Text(args.needed()?.to_vec()),
        Kind::Files => files(args, false)?,
        Kind::FilesNeeded => files(args, true)?,
        Kind::Raw => Value::Text(args.raw().to_vec()),
        Kind::Algorithms(class) => algorithms(args, class)?,
        Kind::Forward(direction) => Value::Forward(forward(args, direction)?),
        Kind::Jump => {
            let raw = args.raw();
            let spec = JumpSpec::parse(raw, args.context().services.get());
            Value::Jump(spec.ok_or_else(|| bad("list of hops", raw))?)
        }
        Kind::Agent => {
            let word = args.needed()?;
            agent_path(word, args.context())?
        }
        Kind::ForwardAgent => {
            let word = args.needed()?;
            match choice(word, FLAG) {
                Ok(flag) => Value::Choice(flag),
                Err(_) => agent_path(word, args.context())?,
            }
        }
        Kind::Special(special) => specs::parse(special, args)?,
        // These never get here: the reader of the file keeps their words.
        Kind::Host | Kind::Match | Kind::Include | Kind::Withdrawn => Value::Unset,
    };
    match args.next() {
        None => Ok(value),
        Some(word) => Err(Fault::syntax(format!("extra argument {} at the end of the line", shown(word)))),
    }
}

/// Says that a word is not of its kind.
pub(crate) fn bad(kind: &str, word: &[u8]) -> Fault {
    Fault::syntax(format!("{} is not a {kind}", shown(word)))
}

/// Finds a word, in any case, in a list of choices.
pub(crate) fn choice(word: &[u8], choices: Choices) -> Result<&'static str, Fault> {
    choices
        .iter()
        .find(|(name, _)| name.as_bytes().eq_ignore_ascii_case(word))
        .map(|(_, printed)| *printed)
        .ok_or_else(|| {
            let names: Vec<&str> = choices.iter().map(|(name, _)| *name).collect();
            Fault::syntax(format!("{} is none of {}", shown(word), names.join(" ")))
        })
}

/// Reads a time; `none`, in this spelling only, leaves the keyword unset.
pub(crate) fn time(args: &mut Args<'_>) -> Result<Value, Fault> {
    let word = args.needed()?;
    if word == b"none" {
        return Ok(Value::Unset);
    }
    let seconds = values::time(word).ok_or_else(|| bad("time", word))?;
    Ok(Value::Number(seconds))
}

/// Takes all words, none of them empty; `none` only alone.
pub(crate) fn word_list(args: &mut Args<'_>) -> Result<Vec<Vec<u8>>, Fault> {
    let words = args.rest();
    if words.iter().any(Vec::is_empty) {
        return Err(Fault::syntax("empty word"));
    }
    if words.len() > 1 && words.iter().any(|word| word.eq_ignore_ascii_case(b"none")) {
        return Err(Fault::syntax("none must stand alone"));
    }
    Ok(words)
}

fn files(args: &mut Args<'_>, needed: bool) -> Result<Value, Fault> {
    let words = word_list(args)?;
    if words.is_empty() {
        return if needed { Err(Fault::syntax("value is missing")) } else { Ok(Value::Unset) };
    }
    Ok(Value::List(words))
}

fn algorithms(args: &mut Args<'_>, class: Class) -> Result<Value, Fault> {
    let list = args.needed()?;
    match class.check(list) {
        Ok(()) => Ok(Value::Text(list.to_vec())),
        Err(name) => {
            Err(Fault::syntax(format!("algorithm {} in {} is not known", shown(&name), shown(list))))
        }
    }
}

fn forward(args: &mut Args<'_>, direction: Direction) -> Result<Forward, Fault> {
    let context = args.context();
    let first = args.needed()?;
    let mut text = first.to_vec();
    let mut dynamic = direction == Direction::Dynamic;
    if !dynamic {
        match args.next().filter(|word| !word.is_empty()) {
            Some(target) => {
                text.push(b':');
                text.extend_from_slice(target);
            }
            None if direction == Direction::Remote => dynamic = true,
            None => return Err(Fault::syntax("target is missing")),
        }
    }
    let expanded = expand(&text, None, Some(context.env)).map_err(Fault::expansion)?;
    Forward::parse(&expanded, direction, dynamic, context.services.get())
        .ok_or_else(|| bad("forwarding", &text))
}

/// Keeps the path of an agent's socket as written, but checks its variables now, as OpenSSH does.
fn agent_path(word: &[u8], context: Context<'_>) -> Result<Value, Fault> {
    expand(word, None, Some(context.env)).map_err(Fault::expansion)?;
    if let Some(name) = word.strip_prefix(b"$")
        && !name.starts_with(b"{")
    {
        let legal = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
        if name.is_empty() || !name.iter().all(legal) {
            return Err(bad("variable name", name));
        }
    }
    Ok(Value::Text(word.to_vec()))
}
