//! Paths to values, as in `servers.gate.depth`, `app.0.bytes`, `app.ior.bytes` and `app.*.bytes`: what sweeps, quick forms and
//! settings from outside change.

use super::document::{Data, Entry, Value};
use super::problem::Place;
use super::schema::{Schema, Takes};

/// A path with names of a list's tables as their indices, and `*` written out.
pub(super) type Concrete = Vec<String>;

/// What a path names in `root`. The last steps may name what is not there yet.
pub(super) fn resolve(root: &Value, path: &str) -> Result<Vec<Concrete>, String> {
    if ["sweep", "quick"].iter().any(|table| path.split('.').next() == Some(table)) {
        return Err(format!("{path}: neither a sweep nor a quick form can be set; set the keys in it"));
    }
    let mut found: Vec<(Concrete, Option<&Value>)> = vec![(Vec::new(), Some(root))];
    for step in path.split('.') {
        if step.is_empty() {
            return Err(format!("'{path}' is not a path to a key: expected one such as servers.gate.depth"));
        }
        let mut next = Vec::new();
        for (steps, value) in found {
            for (step, value) in follow(value, step).map_err(|message| format!("{path}: {message}"))? {
                let mut steps = steps.clone();
                steps.push(step);
                next.push((steps, value));
            }
        }
        found = next;
    }
    Ok(found.into_iter().map(|(steps, _)| steps).collect())
}

/// One step further: the values that `step` names, each with its key or index.
fn follow<'a>(value: Option<&'a Value>, step: &str) -> Result<Vec<(String, Option<&'a Value>)>, String> {
    let Some(value) = value else {
        return if step == "*" {
            Err("there is none of these".into())
        } else {
            Ok(vec![(step.into(), None)])
        };
    };
    match &value.data {
        Data::Table(entries) if step == "*" => {
            Ok(entries.iter().map(|entry| (entry.key.clone(), Some(&entry.value))).collect())
        }
        Data::Table(_) => Ok(vec![(step.into(), value.get(step))]),
        Data::List(items) if step == "*" => {
            Ok(items.iter().enumerate().map(|(index, item)| (index.to_string(), Some(item))).collect())
        }
        Data::List(items) => {
            let name = |item: &Value| item.get("name").map(Value::to_string);
            let index = match step.parse::<usize>() {
                Ok(index) => (index < items.len()).then_some(index),
                Err(_) => items.iter().position(|item| name(item).as_deref() == Some(step)),
            };
            let Some(index) = index else {
                let names: Vec<_> = items.iter().filter_map(name).collect();
                let names = if names.is_empty() { String::new() } else { format!(", {}", names.join(", ")) };
                let indices = match items.len() {
                    0 | 1 => "0".to_owned(),
                    count => format!("0 to {}", count - 1),
                };
                return Err(format!("there is no '{step}': expected {indices}{names} or *"));
            };
            Ok(vec![(index.to_string(), Some(&items[index]))])
        }
        // What is set at `compute.uniform` replaces a plain time.
        _ => Ok(vec![(step.into(), None)]),
    }
}

/// Puts `value` at a concrete path; tables on the way are made where they are not there. An empty table only says that there is one.
pub(super) fn put(root: &mut Value, path: &[String], value: &Value) {
    let [step, rest @ ..] = path else {
        if !(is_empty_table(value) && matches!(root.data, Data::Table(_))) {
            *root = value.clone();
        }
        return;
    };
    if let Data::List(items) = &mut root.data {
        if let Some(item) = step.parse::<usize>().ok().and_then(|index| items.get_mut(index)) {
            put(item, rest, value);
        }
        return;
    }
    if !matches!(root.data, Data::Table(_)) {
        *root = table(&value.place);
    }
    let Data::Table(entries) = &mut root.data else { return };
    let index = entries.iter().position(|entry| entry.key == *step).unwrap_or_else(|| {
        let place = value.place.clone();
        entries.push(Entry { key: step.clone(), value: table(&place), place });
        entries.len() - 1
    });
    put(&mut entries[index].value, rest, value);
}

fn is_empty_table(value: &Value) -> bool {
    matches!(&value.data, Data::Table(entries) if entries.is_empty())
}

fn table(place: &Place) -> Value {
    Value { place: place.clone(), data: Data::Table(Vec::new()) }
}

/// The values in a table of settings, with the path of each: a table stands for the keys in it, unless it is itself a value.
pub(super) fn leaves(settings: &Value) -> Vec<(String, Value)> {
    leaves_at("", settings)
}

/// As [`leaves`], of a table at `path`.
pub(super) fn leaves_at(path: &str, settings: &Value) -> Vec<(String, Value)> {
    let mut found = Vec::new();
    collect(path.into(), settings, &mut found);
    found
}

fn collect(path: String, value: &Value, found: &mut Vec<(String, Value)>) {
    match &value.data {
        Data::Table(entries) if path.is_empty() || !(entries.is_empty() || is_value(&path)) => {
            for entry in entries {
                let gap = if path.is_empty() { "" } else { "." };
                collect(format!("{path}{gap}{}", entry.key), &entry.value, found);
            }
        }
        _ => found.push((path, value.clone())),
    }
}

fn is_value(path: &str) -> bool {
    Schema::find(path.split('.')).is_some_and(|key| matches!(key.takes, Takes::Distribution))
}

/// Whether one of the paths leads through the other.
pub(super) fn overlap(one: &[Concrete], other: &[Concrete]) -> bool {
    one.iter().any(|a| other.iter().any(|b| a.starts_with(b) || b.starts_with(a)))
}
