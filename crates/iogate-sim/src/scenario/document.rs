//! A TOML text as a tree of values, each with the line that it stands in.

use std::collections::BTreeMap;
use std::fmt;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::problem::{Place, Problem, ProblemKind};
use super::schema::{Schema, Takes};

/// Characters of a value in a message.
const SHOWN_MAX: usize = 60;

/// A value and where it comes from.
#[derive(Clone, Debug)]
pub(super) struct Value {
    pub(super) place: Place,
    pub(super) data: Data,
}

/// What a value is.
#[derive(Clone, Debug)]
pub(super) enum Data {
    Text(String),
    Integer(i128),
    Float(f64),
    Flag(bool),
    /// A date: no key takes one.
    Date(String),
    List(Vec<Value>),
    Table(Vec<Entry>),
}

/// A key of a table with its value.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) key: String,
    pub(super) place: Place,
    pub(super) value: Value,
}

/// Reads a document: a table, its entries in the order of the text.
pub(super) fn parse(text: &str) -> Result<Value, Vec<Problem>> {
    let lines = Lines::new(text);
    let (table, errors) = DeTable::parse_recoverable(text);
    if errors.is_empty() {
        let entries = entries(table.into_inner(), &|at| Place::Line(lines.number(at)));
        return Ok(Value { place: Place::Line(1), data: Data::Table(entries) });
    }
    let is_twice = |error: &toml::de::Error| error.message().contains("duplicate");
    let twice = if errors.iter().any(is_twice) { twice(text) } else { Vec::new() };
    if !twice.is_empty() {
        return Err(twice);
    }
    let problem = |error: toml::de::Error| Problem {
        place: Place::Line(lines.number(error.span().map_or(0, |span| span.start))),
        kind: ProblemKind::Syntax(error.message().trim().replace('\n', ", ")),
    };
    Err(errors.into_iter().map(problem).collect())
}

/// Reads one value as on a command line: TOML, or else a plain word; `[a, b]` is a list of such.
pub(super) fn parse_value(text: &str, place: &Place) -> Value {
    let (value, errors) = DeValue::parse_recoverable(text);
    if errors.is_empty() {
        return convert(value.into_inner(), place.clone(), &|_| place.clone());
    }
    let inner = text.trim().strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    let data = match inner {
        Some(inner) if !inner.contains(['[', ']', '{', '}', '"', '\'']) => {
            Data::List(inner.split(',').map(|item| parse_value(item.trim(), place)).collect())
        }
        _ => Data::Text(text.into()),
    };
    Value { place: place.clone(), data }
}

/// The bracket that a list on a command line lacks, where it has only one of its two.
pub(super) fn missing_bracket(text: &str) -> Option<char> {
    match (text.starts_with('['), text.ends_with(']')) {
        (true, false) => Some(']'),
        (false, true) if !text.contains('[') => Some('['),
        _ => None,
    }
}

/// Tables that a text which is no TOML has twice: the parser complains of each key in the second one, and says nothing of `[[app]]`.
fn twice(text: &str) -> Vec<Problem> {
    let mut first: BTreeMap<&str, usize> = BTreeMap::new();
    let mut problems = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or(line).trim();
        let inner = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        let is_bare = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        let is_name = |name: &&str| name.starts_with(char::is_alphabetic) && name.chars().all(is_bare);
        let Some(name) = inner.map(str::trim).filter(is_name) else { continue };
        let Some(before) = first.get(name) else {
            first.insert(name, index + 1);
            continue;
        };
        let is_list = |key: &super::schema::Key| matches!(key.takes, Takes::List(_));
        let kind = match Schema::find(name.split('.')) {
            Some(key) if is_list(key) && !name.contains('.') => {
                format!("[{name}] is there twice, first in line {before}: write [[{name}]] for each")
            }
            _ => format!("[{name}] is there twice, first in line {before}: put its keys into one"),
        };
        problems.push(Problem { place: Place::Line(index as u32 + 1), kind: ProblemKind::Unfit(kind) });
    }
    problems
}

/// Where lines begin, to number an offset.
struct Lines(Vec<usize>);

impl Lines {
    fn new(text: &str) -> Lines {
        Lines(text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n').map(|(at, _)| at).collect())
    }

    fn number(&self, at: usize) -> u32 {
        1 + self.0.partition_point(|end| *end < at) as u32
    }
}

fn entries(table: DeTable<'_>, place: &dyn Fn(usize) -> Place) -> Vec<Entry> {
    let mut sorted: Vec<_> = table.into_iter().collect();
    sorted.sort_by_key(|(key, _)| key.span().start);
    let entry = |(key, value): (Spanned<_>, Spanned<DeValue<'_>>)| {
        let at = place(key.span().start);
        let key: std::borrow::Cow<'_, str> = key.into_inner();
        // A table in the middle of a dotted header has no place of its own: its key has.
        let value_at = if value.span().is_empty() { at.clone() } else { place(value.span().start) };
        Entry { key: key.into_owned(), place: at, value: convert(value.into_inner(), value_at, place) }
    };
    sorted.into_iter().map(entry).collect()
}

fn convert(value: DeValue<'_>, at: Place, place: &dyn Fn(usize) -> Place) -> Value {
    let data = match value {
        DeValue::String(text) => Data::Text(text.into_owned()),
        DeValue::Integer(number) => match i128::from_str_radix(number.as_str(), number.radix()) {
            Ok(number) => Data::Integer(number),
            Err(_) => Data::Text(number.as_str().into()),
        },
        DeValue::Float(number) => match number.as_str().parse() {
            Ok(number) => Data::Float(number),
            Err(_) => Data::Text(number.as_str().into()),
        },
        DeValue::Boolean(flag) => Data::Flag(flag),
        DeValue::Datetime(date) => Data::Date(date.to_string()),
        DeValue::Array(list) => Data::List(
            list.into_iter()
                .map(|item| {
                    let at = place(item.span().start);
                    convert(item.into_inner(), at, place)
                })
                .collect(),
        ),
        DeValue::Table(table) => Data::Table(entries(table, place)),
    };
    Value { place: at, data }
}

impl Value {
    /// The entries of a table, else none.
    pub(super) fn entries(&self) -> &[Entry] {
        match &self.data {
            Data::Table(entries) => entries,
            _ => &[],
        }
    }

    /// The value of a key of a table.
    pub(super) fn get(&self, key: &str) -> Option<&Value> {
        self.entries().iter().find(|entry| entry.key == key).map(|entry| &entry.value)
    }

    /// As a message shows it that wants a value of another kind: one that looks like that is told apart.
    pub(super) fn found(&self) -> String {
        match &self.data {
            Data::Text(text) if text.parse::<f64>().is_ok() || text.parse::<bool>().is_ok() => {
                format!("\"{}\"", self.shown())
            }
            Data::Float(number) => format!("{number:?}"),
            _ => self.shown(),
        }
    }

    /// As a message shows it: its beginning, if it is long.
    pub(super) fn shown(&self) -> String {
        let text = self.to_string();
        match text.char_indices().nth(SHOWN_MAX) {
            Some((end, _)) => format!("{}...", &text[..end]),
            None => text,
        }
    }

    /// Takes a key out of a table.
    pub(super) fn take(&mut self, key: &str) -> Option<Value> {
        let Data::Table(entries) = &mut self.data else { return None };
        let index = entries.iter().position(|entry| entry.key == key)?;
        Some(entries.remove(index).value)
    }
}

impl fmt::Display for Value {
    /// As it may stand in a file, but texts without quotes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.data {
            Data::Text(text) | Data::Date(text) => f.write_str(text),
            Data::Integer(number) => write!(f, "{number}"),
            Data::Float(number) => write!(f, "{number}"),
            Data::Flag(flag) => write!(f, "{flag}"),
            Data::List(items) => {
                f.write_str("[")?;
                for (index, item) in items.iter().enumerate() {
                    write!(f, "{}{item}", if index == 0 { "" } else { ", " })?;
                }
                f.write_str("]")
            }
            Data::Table(entries) => {
                f.write_str("{")?;
                for (index, entry) in entries.iter().enumerate() {
                    let gap = if index == 0 { " " } else { ", " };
                    write!(f, "{gap}{} = {}", entry.key, entry.value)?;
                }
                f.write_str(" }")
            }
        }
    }
}
