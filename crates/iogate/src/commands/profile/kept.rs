//! `iogate profile --kept`: what was learnt of file systems, and is kept.

use std::fmt::Write;
use std::path::Path;

use anyhow::{Context, anyhow};
use iogate_core::profile::Refit;
use iogate_report::{Table, units};
use iogate_sim::learnt::Learnt;
use serde_json::json;

use super::as_text;
use crate::attempt::Attempt;
use crate::failure::Failure;
use crate::kept::{self, Place, Shelf};
use crate::output::print;

/// Lists what is kept of all file systems, or shows that of a directory's; or removes it.
pub(crate) fn run(directory: Option<&Path>, forget: bool, json: bool) -> Result<(), Failure> {
    let places = directory.map(places).transpose()?;
    let Some(folder) = kept::folder() else {
        let error = anyhow!("nothing is kept: {} says so, or there is no HOME to keep it in", kept::VARIABLE);
        return Err(Failure::usage(error).hint(format!("set {} to a folder", kept::VARIABLE)));
    };
    let shelf = Shelf::open(&folder).with_context(|| Attempt::enter(folder.display()))?;
    if forget {
        let count = shelf.forget(places.as_deref()).with_context(|| Attempt::write(folder.display()))?;
        let said = units::counted(count, "file system is", "file systems are");
        return print(&if json {
            json!({ "forgotten": count }).to_string() + "\n"
        } else {
            format!("{said} forgotten\n")
        });
    }
    let all = shelf.all(places.as_deref()).with_context(|| Attempt::enter(folder.display()))?;
    print(&match (json, places.is_some()) {
        (true, _) => as_json(&all),
        (false, false) => as_list(&all, &folder),
        (false, true) => all.iter().map(in_full).collect(),
    })
}

/// The file system of a directory, in each way that it may be accessed.
fn places(directory: &Path) -> Result<Vec<Place>, Failure> {
    directory.read_dir().with_context(|| Attempt::enter(directory.display()))?;
    let places: Vec<Place> =
        [false, true].into_iter().filter_map(|direct| Place::of(directory, direct)).collect();
    if places.is_empty() {
        let shown = directory.display();
        let error = anyhow!("nothing is kept of {shown}: nothing says for certain which file system it is");
        return Err(
            Failure::failed(error).hint("`iogate profile DIR --out FILE` measures it, for --profile FILE")
        );
    }
    Ok(places)
}

type Kept = Result<Learnt, String>;

fn as_list(all: &[Kept], folder: &Path) -> String {
    let mut table = Table::new(["file system", "on", "dispatches", "since", "last"]);
    let mut out = String::new();
    for of in all {
        match of {
            Ok(of) => table.row([
                of.place.clone(),
                of.device.clone(),
                of.findings.dispatches().to_string(),
                units::date(of.since),
                units::date(of.until),
            ]),
            Err(why) => writeln!(out, "note: {why}").expect("text grows"),
        }
    }
    if table.is_empty() {
        format!("nothing is kept in {}\n{out}", folder.display())
    } else {
        format!("{table}{out}")
    }
}

fn in_full(of: &Kept) -> String {
    match of {
        Ok(of) => {
            let profile = Refit::from_findings(&of.kind, of.rotational, &of.findings).profile();
            let (since, until) = (units::date(of.since), units::date(of.until));
            format!("{}: learnt from {since} to {until}\n{}\n", of.place, as_text(&profile, &[]))
        }
        Err(why) => format!("note: {why}\n"),
    }
}

fn as_json(all: &[Kept]) -> String {
    let one = |of: &Kept| match of {
        Ok(Learnt { place, kind, device, rotational, since, until, findings }) => json!({
            "place": place, "kind": kind, "device": device, "rotational": rotational, "since": since, "until": until,
            "dispatches": findings.dispatches(), "cells": findings.iter().count(),
        }),
        Err(why) => json!({ "error": why }),
    };
    format!("{:#}\n", json!(all.iter().map(one).collect::<Vec<_>>()))
}
