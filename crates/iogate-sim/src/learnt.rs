//! What was learnt of a storage, as text (TOML): cells that were measured, of which file system, and since when.
//!
//! A file may be broken, or forged: whatever it says, it is refused in one line, or it has possible numbers.

use std::fmt::Write;

use iogate_core::Op;
use iogate_core::profile::{Class, Finding, Findings, Number};
use toml::{Table, Value};

/// The format that this version reads and writes.
pub const VERSION: u64 = 1;
/// The most bytes of a text: all cells take less than a third of that.
pub const BYTES_MAX: usize = 64 << 10;
/// The most bytes of a name in it.
const NAME_BYTES_MAX: usize = 1_024;

const OPS: [(&str, Op); 2] = [("read", Op::Read), ("write", Op::Write)];
const CLASSES: [(&str, Class); 5] = [
    ("next", Class::Next),
    ("after1", Class::After1),
    ("after4", Class::After4),
    ("after16", Class::After16),
    ("jump", Class::Jump),
];

/// What was learnt, and of what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Learnt {
    /// The file system, by a name that stays the same.
    pub place: String,
    /// What kind of file system it is.
    pub kind: String,
    /// What it lies on, as far as its prices follow from that.
    pub device: String,
    /// Whether that has an arm.
    pub rotational: bool,
    /// When something of it was learnt first, and last, in seconds since 1970.
    pub since: u64,
    /// See `since`.
    pub until: u64,
    /// What was measured.
    pub findings: Findings,
}

/// Why a text is not what was learnt, in one line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct LearntTextError(String);

/// The text of what was learnt.
pub fn write(learnt: &Learnt) -> String {
    let Learnt { place, kind, device, rotational, since, until, findings } = learnt;
    let [place, kind, device] = [place, kind, device].map(|text| Value::from(text.as_str()));
    let mut out = format!(
        "# What iogate has learnt of what this storage charges; what has never been measured is not in here.\n\
         # A cell is [operation, where, in flight, bytes, nanoseconds, dispatches, spread of the middle half in thousandths].\n\
         # With n in flight it is the n-th part of the time of one. beside: [operation, up to so many bytes, dispatches beside others].\n\
         version = {VERSION}\nplace = {place}\nkind = {kind}\ndevice = {device}\nrotational = {rotational}\n\
         since = {since}\nuntil = {until}\ncells = [\n"
    );
    let op_name = |op: Op| OPS[usize::from(op == Op::Write)].0;
    for Finding { op, class, in_flight, bytes, ns } in findings.iter() {
        let (op, class) = (op_name(*op), CLASSES[*class as usize].0);
        let Number { value, count, spread } = ns;
        writeln!(out, "  [\"{op}\", \"{class}\", {in_flight}, {bytes}, {value}, {count}, {spread}],")
            .expect("text grows");
    }
    out.push_str("]\nbeside = [\n");
    for (op, bytes, dispatches) in findings.beside() {
        writeln!(out, "  [\"{}\", {bytes}, {dispatches}],", op_name(op)).expect("text grows");
    }
    out.push_str("]\n");
    out
}

/// What a text says.
///
/// # Errors
/// One line: what was expected, and what came.
pub fn read(text: &str) -> Result<Learnt, LearntTextError> {
    if text.len() > BYTES_MAX {
        return refuse(format!("expected at most {BYTES_MAX} bytes, found {}", text.len()));
    }
    let mut root: Table = text.parse().map_err(|error: toml::de::Error| {
        LearntTextError(format!("not TOML: {}", error.message().lines().next().unwrap_or_default()))
    })?;
    let version = root.remove("version");
    if version.as_ref().and_then(Value::as_integer) != Some(VERSION as i64) {
        return refuse(format!("version: expected {VERSION}, found {}", shown(version.as_ref())));
    }
    let [place, kind, device] = ["place", "kind", "device"].map(|key| match root.remove(key) {
        Some(Value::String(text)) if text.len() <= NAME_BYTES_MAX && !text.contains(char::is_control) => {
            Ok(text)
        }
        other => refuse(format!("{key}: expected a text of one line, found {}", shown(other.as_ref()))),
    });
    let rotational = match root.remove("rotational") {
        Some(Value::Boolean(rotational)) => rotational,
        other => {
            return refuse(format!("rotational: expected true or false, found {}", shown(other.as_ref())));
        }
    };
    let [since, until] = ["since", "until"].map(|key| {
        let value = root.remove(key);
        let seconds =
            value.as_ref().and_then(Value::as_integer).and_then(|seconds| u64::try_from(seconds).ok());
        seconds.ok_or_else(|| {
            LearntTextError(format!("{key}: expected seconds since 1970, found {}", shown(value.as_ref())))
        })
    });
    let mut findings = Findings::default();
    for row in rows(&mut root, "cells")? {
        let is_one = finding(&row).is_some_and(|finding| findings.add(finding));
        if !is_one {
            return refuse(format!("cells: expected what a dispatch can take, found {}", shown(Some(&row))));
        }
    }
    for row in rows(&mut root, "beside")? {
        let Some((op, bytes, dispatches)) = beside(&row) else {
            let found = shown(Some(&row));
            return refuse(format!("beside: expected [operation, bytes, dispatches], found {found}"));
        };
        findings.set_beside(op, bytes, dispatches);
    }
    if let Some(key) = root.keys().next() {
        return refuse(format!("unknown key {}", shown(Some(&Value::from(key.as_str())))));
    }
    let (place, kind, device, since, until) = (place?, kind?, device?, since?, until?);
    Ok(Learnt { place, kind, device, rotational, since, until, findings })
}

fn refuse<T>(why: String) -> Result<T, LearntTextError> {
    Err(LearntTextError(why))
}

/// A value for a message of one line.
fn shown(value: Option<&Value>) -> String {
    const CHARS_MAX: usize = 80;
    let Some(value) = value else { return "none".into() };
    let text = value.to_string();
    let line = text.chars().map(|char| if char.is_control() { ' ' } else { char });
    let short: String = line.take(CHARS_MAX).collect();
    if short.len() < text.len() { short + "..." } else { short }
}

fn rows(root: &mut Table, key: &str) -> Result<Vec<Value>, LearntTextError> {
    match root.remove(key) {
        Some(Value::Array(rows)) => Ok(rows),
        other => refuse(format!("{key}: expected a list, found {}", shown(other.as_ref()))),
    }
}

fn by_name<T: Copy>(of: &[(&str, T)], value: &Value) -> Option<T> {
    of.iter().find(|(name, _)| value.as_str() == Some(name)).map(|(_, of)| *of)
}

fn number<T: TryFrom<i64>>(value: &Value) -> Option<T> {
    value.as_integer().and_then(|number| T::try_from(number).ok())
}

fn finding(row: &Value) -> Option<Finding> {
    let [op, class, in_flight, bytes, value, count, spread] = row.as_array()?.as_slice() else { return None };
    Some(Finding {
        op: by_name(&OPS, op)?,
        class: by_name(&CLASSES, class)?,
        in_flight: number(in_flight)?,
        bytes: number(bytes)?,
        ns: Number { value: number(value)?, count: number(count)?, spread: number(spread)? },
    })
}

fn beside(row: &Value) -> Option<(Op, u64, u32)> {
    let [op, bytes, dispatches] = row.as_array()?.as_slice() else { return None };
    Some((by_name(&OPS, op)?, number(bytes)?, number(dispatches)?))
}

#[cfg(test)]
mod tests {
    use iogate_core::profile::{Refit, Sample};
    use proptest::prelude::*;

    use super::*;

    fn learnt(samples: &[(bool, usize, u64, u32, u64)]) -> Learnt {
        let mut refit = Refit::from_nothing("", false);
        for &(write, class, bytes, in_flight, ns) in samples {
            let op = if write { Op::Write } else { Op::Read };
            refit.add(Sample {
                op,
                class: Class::ALL[class],
                bytes: bytes >> (bytes % 64),
                in_flight,
                ns: ns >> (ns % 64),
            });
        }
        Learnt {
            place: "uuid-\"1\"".into(),
            kind: "file system of type 0xef53".into(),
            device: "a \\ disk, 100 sectors".into(),
            rotational: false,
            since: 1_700_000_000,
            until: 1_700_086_400,
            findings: refit.findings(),
        }
    }

    /// One read of 4 KiB that jumps, a few times.
    fn small() -> Learnt {
        learnt(&[(false, 4, 4_096 << 1, 1, 80_000 << 6); 20])
    }

    #[test]
    fn a_text_says_what_is_wrong_with_it() {
        let text = write(&small());
        assert!(text.contains("[\"read\", \"jump\", 1, "), "{text}");
        let wrong = |from: &str, to: &str| {
            assert!(text.contains(from), "{from} is not in\n{text}");
            read(&text.replace(from, to)).unwrap_err().to_string()
        };
        assert_eq!(wrong("version = 1", "version = 0"), "version: expected 1, found 0");
        assert_eq!(wrong("version = 1\n", ""), "version: expected 1, found none");
        assert!(wrong("place = ", "place = 1 #").contains("place: expected a text of one line, found 1"));
        assert!(wrong("kind = ", "kind = \"a\\nb\" #").contains("kind: expected a text of one line"));
        assert!(wrong("rotational = false", "rotational = 0").contains("expected true or false, found 0"));
        assert!(wrong("since = 1", "since = -1").contains("since: expected seconds since 1970, found -1"));
        assert!(wrong("\"jump\"", "\"hop\"").contains("cells: expected what a dispatch can take"));
        assert!(wrong("\"jump\", 1,", "\"jump\", 3,").contains("cells: expected what a dispatch can take"));
        assert!(wrong("\"jump\", 1,", "\"jump\", 1, 7,").contains("cells: "));
        assert!(wrong("beside = [", "beside = [[1],").contains("beside: expected [operation"));
        assert!(wrong("beside = [", "more = 1\nbeside = [").contains("unknown key \"more\""));
        assert!(wrong("cells = [", "cells = [[").contains("not TOML"));
        let long = format!("{text}#{}", "x".repeat(BYTES_MAX));
        assert!(read(&long).unwrap_err().to_string().contains("expected at most 65536 bytes"));
        let deep = format!("x = {}", "[".repeat(20_000));
        assert!(read(&deep).is_err());
    }

    proptest! {
        #[test]
        fn what_was_learnt_is_read_as_it_was_written(
            samples in prop::collection::vec((any::<bool>(), 0usize..5, any::<u64>(), 0u32..64, any::<u64>()), 0..400),
        ) {
            let learnt = learnt(&samples);
            let text = write(&learnt);
            prop_assert!(text.len() < BYTES_MAX / 3);
            prop_assert_eq!(read(&text), Ok(learnt));
        }

        #[test]
        fn a_forged_text_is_refused_in_one_line_or_has_possible_numbers(
            cuts in prop::collection::vec((any::<prop::sample::Index>(), "[-0-9a-z\"\\[\\],=\\\\\n#.é]{0,4}", 0usize..6), 1..6),
            samples in prop::collection::vec((any::<bool>(), 0usize..5, any::<u64>(), 0u32..64, any::<u64>()), 0..40),
        ) {
            let mut text: Vec<char> = write(&learnt(&samples)).chars().collect();
            for (at, with, less) in cuts {
                let from = at.index(text.len());
                let to = (from + less).min(text.len());
                text.splice(from..to, with.chars());
            }
            check(&text.into_iter().collect::<String>());
        }

        #[test]
        fn any_numbers_are_refused_or_possible(
            rows in prop::collection::vec((0usize..2, 0usize..5, any::<i64>(), any::<i64>(), any::<i64>(), any::<i64>(), any::<i64>()), 0..8),
            shift in 0u32..64, in_flight in prop::sample::select(vec![1i64, 2, 4, 8, 16, 32, 33]), is_any: bool,
        ) {
            let rows = rows.into_iter().map(|(op, class, n, bytes, ns, count, spread)| {
                let n = if is_any { n } else { in_flight };
                let [bytes, ns, count, spread] = [bytes, ns, count, spread].map(|of| (of as u64 >> shift) as i64);
                format!("[\"{}\", \"{}\", {n}, {bytes}, {ns}, {count}, {spread}],\n", OPS[op].0, CLASSES[class].0)
            });
            let text = write(&small()).replace("cells = [", &format!("cells = [\n{}", rows.collect::<String>()));
            check(&text);
        }
    }

    /// Whatever is read can be gone on from.
    fn check(text: &str) {
        match read(text) {
            Err(error) => assert_eq!(error.to_string().lines().count(), 1, "{error}"),
            Ok(learnt) => {
                let mut refit = Refit::from_findings(&learnt.kind, learnt.rotational, &learnt.findings);
                assert_eq!(refit.profile().check(), Ok(()));
                for in_flight in [1, 1, 2, 16] {
                    for class in Class::ALL {
                        for _ in 0..20 {
                            refit.add(Sample { op: Op::Read, class, bytes: 65_536, in_flight, ns: u64::MAX });
                        }
                    }
                }
                assert_eq!(refit.profile().check(), Ok(()));
                let again = refit.findings().onto(&learnt.findings, &Findings::default());
                assert!(again.iter().count() <= 200);
            }
        }
    }
}
