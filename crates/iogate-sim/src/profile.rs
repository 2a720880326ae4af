//! Profiles as text (TOML), and devices that are named by one: `profile:FILE`.
//!
//! A number is `[value, measurements, spread]`, the last in thousandths, so that a file says how far each is to be believed.

use std::fmt::Write;

use iogate_core::device::{self, Device};
use iogate_core::profile::{Number, Profile, Profiled, VERSION};
use toml::{Table, Value};

/// What stands before the name of a file, where a device is named by one.
pub const PREFIX: &str = "profile:";

/// Why a text is no profile, in one line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ProfileTextError(String);

/// A key: its table, its name, its numbers.
type Field<'a> = (&'static str, &'static str, Vec<&'a mut Number>);

/// All numbers of a profile, in the order of the text.
fn fields(profile: &mut Profile) -> Vec<Field<'_>> {
    let Profile { read, write, cache, gate, .. } = profile;
    let mut fields = Vec::new();
    for (table, op) in [("read", read), ("write", write)] {
        for (names, lines) in [
            (["sequential_small", "sequential_large"], &mut op.sequential),
            (["random_small", "random_large"], &mut op.random),
        ] {
            for (name, line) in names.into_iter().zip(lines) {
                fields.push((table, name, vec![&mut line.low, &mut line.high]));
            }
        }
        fields.push((table, "between", op.between.iter_mut().collect()));
        for (name, speedup) in ["speedup_small", "speedup_large"].into_iter().zip(&mut op.speedup) {
            fields.push((table, name, speedup.iter_mut().collect()));
        }
    }
    fields.push(("cache", "bytes", vec![&mut cache.bytes]));
    fields.push(("cache", "fill", vec![&mut cache.fill]));
    fields.push(("cache", "drain", vec![&mut cache.drain]));
    fields.push(("gate", "inline", vec![&mut gate.inline]));
    fields.push(("gate", "handed_over", vec![&mut gate.handed_over]));
    fields
}

/// The text of a profile.
pub fn write(profile: &Profile) -> String {
    let kind = Value::from(profile.kind.as_str());
    let mut out = format!(
        "# What storage charges. A number is [value, measurements, spread of the middle half in thousandths].\n\
         # Lines are nanoseconds of a dispatch at both ends: small ones at 4 KiB and 64 KiB, large ones at 64 KiB and 4 MiB.\n\
         # between: what it costs more to go on after 1 to 3, 4 to 15, or more others. speedup: X(n) / X(1) in thousandths,\n\
         # with 1, 2, 4, 8, 16 and 32 in flight. cache: bytes, and bytes a second. gate: nanoseconds of a dispatch.\n\
         version = {VERSION}\nkind = {kind}\nrotational = {}\n",
        profile.rotational
    );
    let mut last = "";
    for (table, key, numbers) in fields(&mut profile.clone()) {
        if table != last {
            writeln!(out, "\n[{table}]").expect("text grows");
            last = table;
        }
        let numbers = numbers.iter().map(|n| format!("[{}, {}, {}]", n.value, n.count, n.spread));
        let numbers = numbers.collect::<Vec<_>>().join(", ");
        writeln!(out, "{key} = [{numbers}]").expect("text grows");
    }
    out
}

/// The profile that a text is of.
///
/// # Errors
/// One line: what was expected, and what came.
pub fn read(text: &str) -> Result<Profile, ProfileTextError> {
    let mut root: Table = text.parse().map_err(|error: toml::de::Error| {
        ProfileTextError(format!("not TOML: {}", error.message().lines().next().unwrap_or_default()))
    })?;
    let version = root.remove("version").and_then(|version| version.as_integer());
    if version != Some(VERSION as i64) {
        let found = version.map_or("none".into(), |version| version.to_string());
        return refuse(format!(
            "version: expected {VERSION}, found {found}: measure it again with this iogate"
        ));
    }
    let Some(Value::String(kind)) = root.remove("kind") else {
        return refuse("kind: expected a text that says what was measured".into());
    };
    let Some(Value::Boolean(rotational)) = root.remove("rotational") else {
        return refuse("rotational: expected true or false".into());
    };
    let mut profile = Profile::assumed(&kind, rotational);
    for (table, key, numbers) in fields(&mut profile) {
        let value = root.get_mut(table).and_then(Value::as_table_mut).and_then(|table| table.remove(key));
        let Some(Value::Array(list)) = value else {
            return refuse(format!("{table}.{key}: expected {} numbers, found none", numbers.len()));
        };
        if list.len() != numbers.len() {
            return refuse(format!(
                "{table}.{key}: expected {} numbers, found {}",
                numbers.len(),
                list.len()
            ));
        }
        for (number, value) in numbers.into_iter().zip(&list) {
            *number = number_of(value).ok_or_else(|| {
                ProfileTextError(format!(
                    "{table}.{key}: expected [value, measurements, spread], found {value}"
                ))
            })?;
        }
    }
    let unknown = root.iter().find_map(|(name, value)| match value {
        Value::Table(table) if ["read", "write", "cache", "gate"].contains(&name.as_str()) => {
            table.keys().next().map(|key| format!("{name}.{key}"))
        }
        _ => Some(name.clone()),
    });
    if let Some(unknown) = unknown {
        return refuse(format!("unknown key '{unknown}'"));
    }
    profile.check().map_err(|error| ProfileTextError(error.to_string()))?;
    Ok(profile)
}

fn refuse(message: String) -> Result<Profile, ProfileTextError> {
    Err(ProfileTextError(message))
}

fn number_of(value: &Value) -> Option<Number> {
    let [value, count, spread] = value.as_array()?.as_slice() else { return None };
    Some(Number {
        value: value.as_integer()?.try_into().ok()?,
        count: count.as_integer()?.try_into().ok()?,
        spread: spread.as_integer()?.try_into().ok()?,
    })
}

/// The profile that `spec` names, if it names one; `open` gives the content of its file.
pub fn named(
    spec: &str,
    open: &dyn Fn(&str) -> Result<String, String>,
) -> Option<Result<Profile, ProfileTextError>> {
    let file = spec.strip_prefix(PREFIX)?;
    let profile = open(file).map_err(ProfileTextError).and_then(|text| read(&text));
    Some(profile.map_err(|error| ProfileTextError(format!("the profile {file}: {error}"))))
}

/// The device that `spec` names: one of the core's, or `profile:FILE`.
///
/// # Errors
/// One line: why there is none.
pub fn device(
    spec: &str,
    open: &dyn Fn(&str) -> Result<String, String>,
) -> Result<Box<dyn Device>, ProfileTextError> {
    numbered(spec, 0, open)
}

/// The same, as device `number` of several.
///
/// # Errors
/// One line: why there is none.
pub fn numbered(
    spec: &str,
    number: u64,
    open: &dyn Fn(&str) -> Result<String, String>,
) -> Result<Box<dyn Device>, ProfileTextError> {
    match named(spec, open) {
        Some(profile) => Ok(Box::new(Profiled::new(&profile?))),
        None => device::parse_numbered(spec, number).map_err(|error| ProfileTextError(error.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use iogate_core::profile::measure;

    use super::*;

    #[test]
    fn a_text_is_read_as_it_was_written() {
        for spec in ["hdd", "edel", "memory", "unit:100us"] {
            let profile = measure(device::parse(spec).unwrap(), 1).finish("a \"model\"", spec == "hdd", None);
            assert_eq!(read(&write(&profile)), Ok(profile));
        }
    }

    #[test]
    fn what_is_wrong_is_said_in_a_line() {
        let text = write(&Profile::assumed("disk", true));
        let wrong = |from: &str, to: &str| {
            assert!(text.contains(from), "{from}");
            read(&text.replacen(from, to, 1)).unwrap_err().to_string()
        };
        assert!(wrong("version = 1", "version = 2").contains("expected 1, found 2: measure it again"));
        assert!(wrong("version = 1", "").contains("found none"));
        assert!(wrong("kind = \"disk\"", "kind = 3").contains("kind: expected a text"));
        assert!(wrong("rotational = true", "rotational = 1").contains("rotational: expected true or false"));
        assert!(wrong("[40000, 0, 0], ", "").contains("read.sequential_small: expected 2 numbers, found 1"));
        assert!(
            wrong("[40000, 0, 0]", "[40000]")
                .contains("expected [value, measurements, spread], found [40000]")
        );
        assert!(wrong("[40000, 0, 0]", "[-1, 0, 0]").contains("expected [value, measurements, spread]"));
        assert!(wrong("[40000, 0, 0]", "[0, 0, 0]").contains("read.sequential is 0: expected a time"));
        assert!(wrong("between =", "betwixt =").contains("read.between: expected 3 numbers, found none"));
        assert!(wrong("[cache]", "[cache]\nlevel = 1").contains("unknown key 'cache.level'"));
        assert!(wrong("[cache]", "[more]\n[cache]").contains("unknown key 'more'"));
        assert!(wrong("[read]", "[read").contains("not TOML"));
        for error in [wrong("[read]", "[read"), wrong("version = 1", "version = 2")] {
            assert_eq!(error.lines().count(), 1, "{error}");
        }
    }

    #[test]
    fn a_device_is_named_by_a_file() {
        let text = write(&Profile::assumed("flash", false));
        let open =
            |name: &str| if name == "a.toml" { Ok(text.clone()) } else { Err("no such file".to_owned()) };
        assert_eq!(device("profile:a.toml", &open).unwrap().slots(), 8);
        assert_eq!(device("hdd", &open).unwrap().slots(), 1);
        let refused = device("profile:b.toml", &open).err().unwrap().to_string();
        assert_eq!(refused, "the profile b.toml: no such file");
    }
}
