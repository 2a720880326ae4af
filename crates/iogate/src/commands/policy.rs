//! Who is entitled to what: the policies that flags name, and `iogate policy check`.

use std::fmt::Write;
use std::path::Path;

use anyhow::{Context, anyhow};
use iogate_core::policy::{Entitlement, Rate};
use iogate_engine::ClassBy;
use iogate_net::ThisSystem;
use iogate_report::Table;
use iogate_vfs::shares::{self, Global, Shares, System};

use crate::cli::{PolicyArgs, PolicyCommand, SharesArgs};
use crate::failure::Failure;
use crate::output::print;

/// What the flags say; `None`: there is no policy.
pub(crate) fn of_flags(args: &SharesArgs) -> Result<Option<Shares>, Failure> {
    if let Some(path) = &args.policy {
        return Ok(Some(read(path)?.0));
    }
    Ok(args.fair.as_deref().and_then(ClassBy::by_name).map(Shares::equal))
}

/// Reads and checks a policy; also returns its text.
pub(crate) fn read(path: &Path) -> Result<(Shares, String), Failure> {
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("the policy {} cannot be read", path.display()))
        .map_err(Failure::usage)?;
    if text.len() > shares::BYTES_MAX {
        let (path, most) = (path.display(), shares::BYTES_MAX);
        return Err(Failure::usage(anyhow!("{path}: {} bytes, expected at most {most}", text.len())));
    }
    let shares = Shares::parse(&text, &|name| ThisSystem.user(name))
        .map_err(|error| Failure::usage(anyhow!("{}, {error}", path.display())))?;
    Ok((shares, text))
}

pub(crate) fn run(args: &PolicyArgs) -> Result<(), Failure> {
    let PolicyCommand::Check { file } = &args.command;
    let (shares, _) = read(file)?;
    print(&explained(&shares))
}

/// What all classes are entitled to.
fn entitled(shares: &Shares) -> impl Iterator<Item = &Entitlement> {
    shares.names.iter().map(|(_, _, entitlement)| entitlement).chain([&shares.policy.others])
}

/// A policy as a table, with what is to be noted.
fn explained(shares: &Shares) -> String {
    let shown = |rate: Rate| shares::rate_shown(rate).unwrap_or_else(|| "-".into());
    let by = shares.by.name();
    let mut table = Table::new([by, "weight", "at least", "at most"]);
    let mut row = |name: &str, entitlement: &Entitlement| {
        let Entitlement { weight, min, max } = *entitlement;
        table.row([name.to_owned(), weight.to_string(), shown(min), shown(max)]);
    };
    for (name, _, entitlement) in &shares.names {
        row(name, entitlement);
    }
    row(&format!("each other {by}"), &shares.policy.others);
    let mut out = table.to_string();
    for (name, ..) in shares.names.iter().filter(|(_, class, _)| class.is_none()) {
        writeln!(out, "warning: class.{name} matches nobody: there is no user of this name here")
            .expect("text grows");
    }
    if let Some(global) = &shares.global {
        let Global { coordinators, gates, terms } = global;
        let total = terms.policy.total.map(|total| Rate { bytes: Some(total), requests: None });
        let total =
            total.and_then(shares::rate_shown).map_or(String::new(), |total| format!(", {total} together"));
        let (at, every, lease) = (coordinators.join(", "), terms.every, terms.lease);
        writeln!(
            out,
            "shared over {gates} gates through {at}{total}; reports every {every}, leases of {lease}"
        )
        .expect("text grows");
        if entitled(shares).any(|one| one.max.requests.is_some()) {
            writeln!(out, "warning: max_requests is each gate's own: only bytes are shared")
                .expect("text grows");
        }
    }
    let each = || {
        shares.names.iter().filter(|(_, class, _)| class.is_some()).map(|(_, _, entitlement)| entitlement.min)
    };
    let bytes = each().filter_map(|min| min.bytes).fold(0u64, |sum, rate| sum.saturating_add(rate.get()));
    let requests =
        each().filter_map(|min| min.requests).fold(0u64, |sum, rate| sum.saturating_add(rate.get()));
    for sum in [
        shares::rate_shown(Rate { bytes: bytes.try_into().ok(), requests: None }),
        shares::rate_shown(Rate { bytes: None, requests: requests.try_into().ok() }),
    ]
    .into_iter()
    .flatten()
    {
        writeln!(out, "floors together: {sum}; they hold as far as the storage serves that, in the pattern in which it is asked for").expect("text grows");
    }
    let others = shares.policy.others.min;
    if others != Rate::default() {
        writeln!(out, "warning: others.min is a floor for each other {by}: how many there will be is not known, nor what that is together").expect("text grows");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_is_explained() {
        let text = "by = \"user\"\n[others]\nmin = \"1MB/s\"\n[class.root]\nweight = 3\nmin = \"5MiB/s\"\n[class.4711]\n\
                    min = \"3MiB/s\"\nmax_requests = 7\n[class.no-such-user-here]\n";
        let shown = explained(&Shares::parse(text, &|name| ThisSystem.user(name)).unwrap());
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
}
