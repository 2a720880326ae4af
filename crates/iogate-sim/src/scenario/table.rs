//! Typed access to a table: defaults and ranges come from the schema, and what is wrong is collected.

use std::borrow::Cow;
use std::cell::RefCell;

use iogate_core::nearest::nearest;
use iogate_core::{Span, units};

use super::document::{Data, Value, parse_value};
use super::problem::{PROBLEMS_MAX, Place, Problem, ProblemKind};
use super::schema::{Absent, Key, Schema, TIME_MAX, Takes};
use crate::rng::Distribution;

/// What was wrong so far.
#[derive(Debug, Default)]
pub(super) struct Problems(RefCell<Vec<Problem>>);

impl Problems {
    pub(super) fn push(&self, place: &Place, kind: ProblemKind) {
        let (mut problems, problem) = (self.0.borrow_mut(), Problem { place: place.clone(), kind });
        // What is read twice is wrong only once.
        if problems.len() < PROBLEMS_MAX && !problems.contains(&problem) {
            problems.push(problem);
        }
    }

    pub(super) fn unfit(&self, place: &Place, text: String) {
        self.push(place, ProblemKind::Unfit(text));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.borrow().is_empty()
    }

    pub(super) fn into_inner(self) -> Vec<Problem> {
        self.0.into_inner()
    }
}

/// A table being read. A value that is wrong is noted, and stands as 1, the empty text or the like until the reading ends.
pub(super) struct Table<'a> {
    value: Option<&'a Value>,
    path: String,
    place: Place,
    schema: &'static Schema,
    problems: &'a Problems,
}

impl<'a> Table<'a> {
    /// The table `value`, called `path`. Keys that the schema does not have are refused, unless `open`.
    pub(super) fn new(
        value: &'a Value,
        path: String,
        schema: &'static Schema,
        problems: &'a Problems,
        open: bool,
    ) -> Table<'a> {
        let table = Table { value: Some(value), path, place: value.place.clone(), schema, problems };
        if !matches!(value.data, Data::Table(_)) {
            table.wrong(&table.path, value, "a table".into());
        }
        let names = || schema.keys.iter().map(|key| key.name);
        for entry in value.entries() {
            if !open && schema.key(&entry.key).is_none() {
                let kind = ProblemKind::UnknownKey {
                    key: entry.key.clone(),
                    table: table.called(),
                    near: nearest(&entry.key, names()),
                    known: names().collect::<Vec<_>>().join(", "),
                };
                problems.push(&entry.place, kind);
            }
        }
        table
    }

    /// A table that is not there: all its keys have their defaults.
    fn absent(&self, path: String, schema: &'static Schema) -> Table<'a> {
        Table { value: None, path, place: self.place.clone(), schema, problems: self.problems }
    }

    /// What messages call it.
    fn called(&self) -> String {
        if self.path.is_empty() { self.schema.name.into() } else { self.path.clone() }
    }

    /// A key with the table's name before it.
    pub(super) fn path_of(&self, key: &str) -> String {
        if self.path.is_empty() { key.into() } else { format!("{}.{key}", self.path) }
    }

    /// Where the value of a key stands, or else the table.
    pub(super) fn place_of(&self, key: &str) -> &Place {
        self.value.and_then(|table| table.get(key)).map_or(&self.place, |value| &value.place)
    }

    /// Notes that something does not fit, at a key's value.
    pub(super) fn unfit(&self, key: &str, text: String) {
        self.problems.unfit(self.place_of(key), text);
    }

    /// Notes that a value is not what was expected.
    pub(super) fn wrong(&self, path: &str, value: &Value, expected: String) {
        let kind = ProblemKind::Wrong { key: path.into(), found: value.found(), expected };
        self.problems.push(&value.place, kind);
    }

    /// Notes that a key must be there.
    fn missing(&self, key: &Key) {
        let (table, name) = (self.called(), key.name.into());
        let kind = ProblemKind::Missing { table, key: name, expected: key.takes.to_string() };
        self.problems.push(&self.place, kind);
    }

    pub(super) fn has(&self, key: &str) -> bool {
        self.value.is_some_and(|table| table.get(key).is_some())
    }

    fn key(&self, name: &str) -> &'static Key {
        self.schema.key(name).expect("the reader asks for keys that the schema has")
    }

    /// The value of a key, or its default; `None` where that is not a value.
    fn value(&self, key: &Key) -> Option<Cow<'a, Value>> {
        match (self.value.and_then(|table| table.get(key.name)), key.default) {
            (Some(value), _) => Some(Cow::Borrowed(value)),
            (None, Absent::Value(text)) => Some(Cow::Owned(parse_value(text, &self.place))),
            (None, Absent::Required) => {
                self.missing(key);
                None
            }
            (None, Absent::Words(_)) => None,
        }
    }

    /// Reads a key with `read`, and notes it if that gives nothing.
    fn read<T>(&self, name: &str, read: impl FnOnce(&Takes, &Value) -> Option<T>) -> Option<T> {
        let key = self.key(name);
        let value = self.value(key)?;
        let found = read(&key.takes, &value);
        if found.is_none() {
            self.wrong(&self.path_of(name), &value, key.takes.expected());
        }
        found
    }

    /// A number, bytes or a rate; `None` if it is not there (where it need not be) or unlimited.
    pub(super) fn optional(&self, name: &str) -> Option<u64> {
        self.read(name, Takes::number).filter(|number| *number != u64::MAX)
    }

    /// A number or bytes.
    pub(super) fn number(&self, name: &str) -> u64 {
        self.optional(name).unwrap_or(1)
    }

    /// A number or bytes that fits 32 bits.
    pub(super) fn small(&self, name: &str) -> u32 {
        u32::try_from(self.number(name)).unwrap_or(u32::MAX)
    }

    /// A number or bytes that must be there in this case.
    pub(super) fn needed(&self, name: &str) -> u64 {
        if !self.has(name) {
            self.missing(self.key(name));
            return 1;
        }
        self.number(name)
    }

    /// As [`Table::needed`], in 32 bits.
    pub(super) fn needed_small(&self, name: &str) -> u32 {
        u32::try_from(self.needed(name)).unwrap_or(u32::MAX)
    }

    pub(super) fn span(&self, name: &str) -> Span {
        Span::from_nanos(self.number(name))
    }

    pub(super) fn flag(&self, name: &str) -> bool {
        self.number(name) == 1
    }

    /// One of the words of a key.
    pub(super) fn choice(&self, name: &str) -> &'static str {
        let Takes::Choice(words) = self.key(name).takes else { return "" };
        self.optional(name).and_then(|index| words.get(index as usize)).copied().unwrap_or(words[0])
    }

    /// One of the words of a key that must be there in this case.
    pub(super) fn needed_choice(&self, name: &str) -> &'static str {
        if !self.has(name) {
            self.missing(self.key(name));
        }
        self.choice(name)
    }

    pub(super) fn optional_text(&self, name: &str) -> Option<String> {
        self.read(name, |_, value| match &value.data {
            Data::Text(text) => Some(text.clone()),
            _ => None,
        })
    }

    pub(super) fn text(&self, name: &str) -> String {
        self.optional_text(name).unwrap_or_default()
    }

    /// A text that must be there in this case.
    pub(super) fn needed_text(&self, name: &str) -> String {
        if !self.has(name) {
            self.missing(self.key(name));
        }
        self.text(name)
    }

    pub(super) fn texts(&self, name: &str) -> Vec<String> {
        let text = |value: &Value| match &value.data {
            Data::Text(text) => Some(text.clone()),
            _ => None,
        };
        let texts = self.read(name, |_, value| match &value.data {
            Data::List(items) => items.iter().map(text).collect(),
            _ => None,
        });
        texts.unwrap_or_default()
    }

    pub(super) fn float(&self, name: &str) -> f64 {
        let number = self.read(name, |takes, value| {
            let Takes::Number(min, max) = *takes else { return None };
            let number = match value.data {
                Data::Float(number) => number,
                Data::Integer(number) => number as f64,
                _ => return None,
            };
            (min..=max).contains(&number).then_some(number)
        });
        number.unwrap_or(1.0)
    }

    /// A float that must be there in this case.
    pub(super) fn needed_float(&self, name: &str) -> f64 {
        if !self.has(name) {
            self.missing(self.key(name));
            return 1.0;
        }
        self.float(name)
    }

    /// A time that may be negative and must be there, in nanoseconds.
    pub(super) fn needed_signed(&self, name: &str) -> i64 {
        if !self.has(name) {
            self.missing(self.key(name));
        }
        let time = self.read(name, |_, value| {
            let Data::Text(text) = &value.data else { return None };
            let (sign, text) = text.strip_prefix('-').map_or((1, text.as_str()), |rest| (-1, rest));
            let ns = units::parse_time(text).filter(|ns| *ns <= TIME_MAX)?;
            Some(sign * i64::try_from(ns).ok()?)
        });
        time.unwrap_or(0)
    }

    pub(super) fn distribution(&self, name: &str) -> Distribution {
        let time = |value: &Value| Takes::Time(0).number(value).map(Span::from_nanos);
        let distribution = self.read(name, |_, value| match value.entries() {
            [] => time(value).map(Distribution::Constant),
            [one] if one.key == "exponential" => time(&one.value).map(Distribution::Exponential),
            [one] if one.key == "uniform" => match &one.value.data {
                Data::List(items) if items.len() == 2 => {
                    let (low, high) = (time(&items[0])?, time(&items[1])?);
                    (low <= high).then_some(Distribution::Uniform(low, high))
                }
                _ => None,
            },
            _ => None,
        });
        distribution.unwrap_or(Distribution::ZERO)
    }

    /// A range: two values, the first not above the second, or one for both.
    pub(super) fn range(&self, name: &str) -> (u64, u64) {
        let range = self.read(name, |takes, value| {
            let Takes::Range(takes) = takes else { return None };
            let (low, high) = match &value.data {
                Data::List(items) if items.len() == 2 => (takes.number(&items[0])?, takes.number(&items[1])?),
                _ => (takes.number(value)?, takes.number(value)?),
            };
            (low <= high).then_some((low, high))
        });
        range.unwrap_or((1, 1))
    }

    /// A table in it, if it is there.
    pub(super) fn table(&self, name: &str) -> Option<Table<'a>> {
        let key = self.key(name);
        let (schema, open) = match key.takes {
            Takes::Table(schema) => (schema, false),
            Takes::Gate(schema) => (schema, true),
            _ => return None,
        };
        let value = match self.value.and_then(|table| table.get(name)) {
            Some(value) => value,
            None => {
                if key.default == Absent::Required {
                    self.missing(key);
                }
                return None;
            }
        };
        Some(Table::new(value, self.path_of(name), schema, self.problems, open))
    }

    /// A table in it; all defaults if it is not there.
    pub(super) fn table_or_default(&self, name: &str) -> Table<'a> {
        self.table(name).unwrap_or_else(|| match self.key(name).takes {
            Takes::Table(schema) | Takes::Gate(schema) => self.absent(self.path_of(name), schema),
            _ => unreachable!("the reader asks for tables"),
        })
    }

    /// The tables of a list (called by their names, or else by number) or of a table of tables.
    pub(super) fn tables(&self, name: &str) -> Vec<(String, Table<'a>)> {
        let key = self.key(name);
        let Some(value) = self.value.and_then(|table| table.get(name)) else { return Vec::new() };
        let open = |label: String, value: &'a Value, schema| {
            let path = format!("{}.{label}", self.path_of(name));
            (label, Table::new(value, path, schema, self.problems, false))
        };
        match (key.takes, &value.data) {
            (Takes::List(schema), Data::List(items)) => {
                let label = |index: usize, item: &Value| match item.get("name").map(|name| &name.data) {
                    Some(Data::Text(name)) => name.clone(),
                    _ => index.to_string(),
                };
                items.iter().enumerate().map(|(index, item)| open(label(index, item), item, schema)).collect()
            }
            (Takes::Named(schema), Data::Table(entries)) => {
                entries.iter().map(|entry| open(entry.key.clone(), &entry.value, schema)).collect()
            }
            _ => {
                self.wrong(&self.path_of(name), value, key.takes.to_string());
                Vec::new()
            }
        }
    }

    /// The keys that the schema does not have, with their values.
    pub(super) fn further(&self) -> impl Iterator<Item = (&'a str, &'a Value)> {
        let entries = self.value.map_or(&[][..], Value::entries);
        let schema = self.schema;
        entries
            .iter()
            .filter(|entry| schema.key(&entry.key).is_none())
            .map(|entry| (entry.key.as_str(), &entry.value))
    }

    /// Refuses those of `keys` that are there: `what` has no use for them.
    pub(super) fn refuse(&self, keys: &[&str], what: &str) {
        for key in keys.iter().filter(|key| self.has(key)) {
            self.unfit(key, format!("{}: {what} does not use it; remove it", self.path_of(key)));
        }
    }

    pub(super) fn problems(&self) -> &'a Problems {
        self.problems
    }
}
