//! Who is entitled to what: the policies that flags name, and `iogate policy check`.

use std::num::NonZeroU64;
use std::path::Path;

use anyhow::{Context, anyhow};
use iogate_core::policy::{Entitlement, Rate};
use iogate_engine::{ClassBy, Engine};
use iogate_net::ThisSystem;
use iogate_report::Table;
use iogate_vfs::policy_file::{self, Global, Names, Shares, SharesError, System};
use serde_json::{Value, json};

use crate::attempt::Attempt;
use crate::cli::{PolicyArgs, PolicyCommand, SharesArgs};
use crate::failure::Failure;
use crate::output::print;

/// What the flags say; `None`: there is no policy.
pub(crate) fn of_flags(args: &SharesArgs) -> Result<Option<Shares>, Failure> {
    if let Some(path) = &args.policy {
        return Ok(Some(read(path)?.0));
    }
    Ok(args.fair.as_deref().and_then(Shares::equal))
}

/// A gate begins with what flags say, if they say anything.
pub(crate) fn begin(shares: Option<&Shares>, engine: &Engine) -> Result<(), Failure> {
    match shares {
        Some(shares) => shares.set(engine, &ThisSystem).map_err(|error| Failure::usage(anyhow!(error))),
        None => Ok(()),
    }
}

/// Reads and checks a policy; also returns its text.
pub(crate) fn read(path: &Path) -> Result<(Shares, String), Failure> {
    let text = std::fs::read_to_string(path)
        .with_context(|| Attempt::read(format_args!("the policy {}", path.display())))
        .map_err(Failure::usage)?;
    if text.len() > policy_file::BYTES_MAX {
        let (path, most) = (path.display(), policy_file::BYTES_MAX);
        return Err(Failure::usage(anyhow!("{path}: {} bytes, expected at most {most}", text.len())));
    }
    let shares = parse(&text).map_err(|error| {
        Failure::usage(anyhow!("{}, {error}", path.display()))
            .hint("docs/policy.md shows how policies are written")
    })?;
    Ok((shares, text))
}

fn parse(text: &str) -> Result<Shares, SharesError> {
    Shares::parse(text, &|name| ThisSystem.user(name), &|name| ThisSystem.group(name))
}

pub(crate) fn run(args: &PolicyArgs) -> Result<(), Failure> {
    let PolicyCommand::Check { json, file } = &args.command;
    let (shares, _) = read(file)?;
    if *json {
        return print(&format!("{}\n", as_json(&shares)));
    }
    print(&explained(&shares))
}

/// What a line of a policy is about.
enum Named<'a> {
    Group(&'a str),
    Class(&'a str),
    /// Those that are not named.
    Others(String),
}

impl Named<'_> {
    /// Its table in the file.
    fn key(&self) -> String {
        match self {
            Named::Group(name) => format!("group.{name}"),
            Named::Class(name) => format!("class.{name}"),
            Named::Others(what) => what.clone(),
        }
    }

    /// For people.
    fn shown(&self, around: &str) -> String {
        match self {
            Named::Group(name) => format!("{around} {name}"),
            Named::Class(name) => (*name).to_owned(),
            Named::Others(what) => what.clone(),
        }
    }
}

/// A line of a policy: how deep it is within others, what it is about, whether there is such a one here, what it is entitled to.
type Line<'a> = (usize, Named<'a>, bool, &'a Entitlement);

/// What classes are within, for people.
fn around(shares: &Shares) -> &'static str {
    if shares.by == ClassBy::Job { "account" } else { "group" }
}

/// All classes of a policy, each before those within it.
fn lines(shares: &Shares) -> Vec<Line<'_>> {
    fn named(depth: usize, names: &Names) -> impl Iterator<Item = Line<'_>> {
        names.iter().map(move |(name, class, one)| (depth, Named::Class(name), class.is_some(), one))
    }
    let others = |what: &str, of: &str| Named::Others(format!("{what} {of}"));
    let around = around(shares);
    let mut lines = Vec::new();
    for group in &shares.groups {
        lines.push((0, Named::Group(&group.name), group.class.is_some(), &group.entitlement));
        lines.extend(named(1, &group.names));
        lines.push((1, others("each other", shares.by.name()), true, &group.others));
    }
    lines.extend(named(0, &shares.names));
    if shares.policy.other_branches.is_some() {
        lines.push((0, others("each other", around), true, shares.others()));
        lines.push((1, others("each", shares.by.name()), true, &shares.policy.others));
    } else {
        let what = match shares.by {
            ClassBy::Path => Named::Others("all other paths".into()),
            by => others("each other", by.name()),
        };
        lines.push((0, what, true, shares.others()));
    }
    lines
}

/// A policy for programs: its classes, each with those within it.
fn as_json(shares: &Shares) -> Value {
    let number = |rate: Option<NonZeroU64>| rate.map(NonZeroU64::get);
    let mut classes: Vec<Value> = Vec::new();
    for (depth, name, is_known, Entitlement { weight, min, max }) in lines(shares) {
        let class = json!({
            "name": name.key(), "known": is_known, "weight": weight, "min": number(min.bytes), "min_requests": number(min.requests),
            "max": number(max.bytes), "max_requests": number(max.requests), "classes": [],
        });
        let within = match classes.last_mut() {
            Some(around) if depth > 0 => around["classes"].as_array_mut(),
            _ => None,
        };
        match within {
            Some(within) => within.push(class),
            None => classes.push(class),
        }
    }
    let lot = shares.policy.lot.map(|lot| lot.as_nanos());
    let global = shares.global.as_ref().map(|Global { coordinators, gates, terms, .. }| {
        json!({
            "coordinators": coordinators, "gates": gates, "total": number(terms.policy.total),
            "report_ns": terms.every.as_nanos(), "lease_ns": terms.lease.as_nanos(),
        })
    });
    json!({
        "by": shares.by(), "lot_ns": lot, "classes": classes, "global": global, "warnings": warnings(shares),
    })
}

/// What of a policy may not be what was meant.
fn warnings(shares: &Shares) -> Vec<String> {
    let by = shares.by.name();
    let lines = lines(shares);
    let unknown = lines.iter().filter(|(_, _, is_known, _)| !is_known).map(|(_, name, ..)| {
        let (key, what) = (name.key(), if matches!(name, Named::Group(_)) { around(shares) } else { by });
        format!("{key} matches nobody: there is no {what} of this name here")
    });
    let mut warnings: Vec<String> = unknown.collect();
    warnings.extend(policy_file::overlaps(&shares.policy.paths));
    if shares.global.is_some() && lines.iter().any(|(.., one)| one.max.requests.is_some()) {
        warnings.push("max_requests is each gate's own: only bytes are shared".into());
    }
    // Of paths, all others are one class.
    if shares.others().min != Rate::default() && shares.by != ClassBy::Path {
        let by = if shares.policy.other_branches.is_some() { around(shares) } else { by };
        warnings.push(format!(
            "others.min is a floor for each other {by}: how many there will be is not known, nor what that is together"
        ));
    }
    warnings
}

/// A policy as a table, with what is to be noted.
fn explained(shares: &Shares) -> String {
    let shown = |rate: Rate| policy_file::rate_shown(rate).unwrap_or_else(|| "-".into());
    let mut table = Table::new([shares.by(), "weight", "at least", "at most"]);
    for (depth, name, _, Entitlement { weight, min, max }) in &lines(shares) {
        let name = format!("{:indent$}{}", "", name.shown(around(shares)), indent = 2 * depth);
        table.row([name, weight.to_string(), shown(*min), shown(*max)]);
    }
    let mut notes: Vec<String> =
        warnings(shares).into_iter().map(|warning| format!("warning: {warning}")).collect();
    if let Some(Global { coordinators, gates, terms, .. }) = &shares.global {
        let total = terms.policy.total.map(|total| Rate { bytes: Some(total), requests: None });
        let total = total
            .and_then(policy_file::rate_shown)
            .map_or(String::new(), |total| format!(", {total} together"));
        let (at, every, lease) = (coordinators.join(", "), terms.every, terms.lease);
        notes.push(format!(
            "shared over {gates} gates through {at}{total}; reports every {every}, leases of {lease}"
        ));
    }
    notes.extend(floors(shares).map(|sum| {
        format!("floors together: {sum}; they hold as far as the storage serves that, in the pattern in which it is asked for")
    }));
    notes.into_iter().fold(table.to_string(), |shown, note| shown + &note + "\n")
}

/// What all that is promised comes to, in bytes and in requests.
fn floors(shares: &Shares) -> impl Iterator<Item = String> {
    // Of paths, all others are one class.
    let all_others = (shares.by == ClassBy::Path).then_some(shares.others().min);
    let each =
        || shares.policy.apps.values().map(|one| one.min).chain(groups_above(shares)).chain(all_others);
    let bytes = together(each().map(|min| min.bytes)).try_into().ok();
    let requests = together(each().map(|min| min.requests)).try_into().ok();
    let sums = [Rate { bytes, requests: None }, Rate { bytes: None, requests }];
    sums.into_iter().filter_map(policy_file::rate_shown)
}

/// What floors come to, or as much as can be said.
fn together(floors: impl Iterator<Item = Option<NonZeroU64>>) -> u64 {
    floors.flatten().fold(0, |sum, floor| sum.saturating_add(floor.get()))
}

/// What groups are promised above what those in them are by name.
fn groups_above(shares: &Shares) -> impl Iterator<Item = Rate> {
    let above = |own: Option<NonZeroU64>, sum: u64| {
        own.and_then(|own| NonZeroU64::new(own.get().saturating_sub(sum)))
    };
    shares.groups.iter().filter(|group| group.class.is_some()).map(move |group| {
        let named = || group.names.iter().filter(|(_, class, _)| class.is_some()).map(|(_, _, one)| one.min);
        let own = group.entitlement.min;
        Rate {
            bytes: above(own.bytes, together(named().map(|min| min.bytes))),
            requests: above(own.requests, together(named().map(|min| min.requests))),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_is_explained() {
        let text = "by = \"user\"\n[others]\nmin = \"1MB/s\"\n[class.root]\nweight = 3\nmin = \"5MiB/s\"\n[class.4711]\n\
                    min = \"3MiB/s\"\nmax_requests = 7\n[class.no-such-user-here]\n";
        let shown = explained(&parse(text).unwrap());
        for expected in [
            "floors together: 8MiB/s;",
            "7 requests/s",
            "class.no-such-user-here matches nobody",
            "others.min",
            "each other user",
        ] {
            assert!(shown.contains(expected), "{expected}: {shown}");
        }
    }

    #[test]
    fn programs_are_told_what_people_are() {
        let text = "by = \"user\"\n[class.no-such-user-here]\nmax_requests = 7\n[global]\ncoordinator = [\"io1:7100\", \"io2:7100\"]\n\
                    gates = 40\ntotal = \"4GiB/s\"\nlease = \"2s\"\n";
        let shares = parse(text).unwrap();
        let json = as_json(&shares);
        let expected = json!({
            "coordinators": ["io1:7100", "io2:7100"], "gates": 40, "total": 4_u64 << 30,
            "report_ns": 100_000_000, "lease_ns": 2_000_000_000_u64,
        });
        assert_eq!(json["global"], expected);
        let shown = explained(&shares);
        let warnings = json["warnings"].as_array().unwrap();
        assert_eq!(warnings.len(), 2, "{warnings:?}");
        for warning in warnings {
            assert!(shown.contains(&format!("\nwarning: {}\n", warning.as_str().unwrap())), "{shown}");
        }
        let json = as_json(&parse("by = \"user\"\n").unwrap());
        assert_eq!((&json["global"], &json["warnings"]), (&Value::Null, &json!([])));
    }

    #[test]
    fn floors_of_any_size_are_added() {
        let floor = "min = \"10000000TiB/s\"\nmin_requests = 18446744073709551615\n";
        let text = format!("by = \"group/user\"\n[group.0.class.1]\n{floor}[group.0.class.2]\n{floor}");
        let shown = explained(&parse(&text).unwrap());
        assert!(shown.contains("floors together: "), "{shown}");
    }

    #[test]
    fn globs_are_explained() {
        let text = "by = \"path\"\n[class.\"checkpoints/**\"]\nmin = \"5MiB/s\"\n[class.\"**/*.h5\"]\n[class.checkpoints]\n\
                    [others]\nmin = \"3MiB/s\"\n";
        let shown = explained(&parse(text).unwrap());
        for expected in [
            "\ncheckpoints/** ",
            "\nall other paths ",
            "\nwarning: class.\"**/*.h5\" overlaps class.\"checkpoints/**\": ",
            "\nwarning: class.\"checkpoints\" has no files: class.\"checkpoints/**\" stands before it",
            "\nfloors together: 8MiB/s;",
        ] {
            assert!(shown.contains(expected), "{expected}: {shown}");
        }
        assert!(!shown.contains("others.min"), "all others are one class: {shown}");
    }

    #[test]
    fn names_are_shown_as_the_file_has_them() {
        let shares = parse("by = \"app\"\n[class.\"class.x\"]\n[class.\"my.group.x\"]\n").unwrap();
        let shown = explained(&shares);
        assert!(shown.contains("\nclass.x ") && shown.contains("\nmy.group.x "), "{shown}");
        let json = as_json(&shares);
        assert_eq!(json["classes"][0]["name"], "class.class.x");
    }

    #[test]
    fn a_tree_is_explained() {
        let text = "by = \"group/user\"\n[group.root]\nmin = \"9MiB/s\"\n[group.root.class.root]\nweight = 3\nmin = \"5MiB/s\"\n\
                    [group.no-such-group]\n[others]\nweight = 2\n";
        let shares = parse(text).unwrap();
        let shown = explained(&shares);
        for expected in [
            "\ngroup root ",
            "\n  root ",
            "\n  each other user ",
            "\neach other group ",
            "warning: group.no-such-group matches nobody: there is no group of this name here",
            "floors together: 9MiB/s;",
        ] {
            assert!(shown.contains(expected), "{expected}: {shown}");
        }
        let json = as_json(&shares);
        assert_eq!((&json["by"], &json["classes"][0]["name"]), (&json!("group/user"), &json!("group.root")));
        assert_eq!(json["classes"][0]["classes"][0]["weight"], 3);
        assert_eq!(json["classes"][1]["known"], false);
    }
}
