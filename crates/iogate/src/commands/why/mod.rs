//! `iogate why`: who slows whom down, in a simulated scenario, or at the gate of a mount or a server that is up.

mod counterfactual;
mod place;
mod scenario;

use std::path::Path;

use anyhow::{Context, anyhow};
use iogate_core::nearest::{did_you_mean, nearest};
use iogate_report::html::why::{Looked, page};
use iogate_report::why::Why;
use serde::Serialize;

use crate::cli::WhyArgs;
use crate::commands::asker::Place;
use crate::commands::scenario as scenarios;
use crate::devices;
use crate::failure::Failure;
use crate::output::{OutputFile, check_inputs_stay, print};

/// Who made a page.
const PROGRAM: &str = concat!("iogate ", env!("CARGO_PKG_VERSION"));

pub(crate) fn run(args: &WhyArgs) -> Result<(), Failure> {
    let place = asked(&args.scenario.scenario)?;
    refuse_others(args, place.is_some())?;
    let device = args.device.as_deref().and_then(devices::file);
    let profile = args.profile.as_deref().or(device).map(|file| ("the profile", file));
    let scenario = place.is_none().then_some(("the scenario", args.scenario.scenario.as_path()));
    check_inputs_stay(&[("--html", args.html.as_deref())], scenario.into_iter().chain(profile))?;
    let html = args.html.as_deref().map(OutputFile::create).transpose()?;
    match place {
        Some(place) => shown(args, html, &[place::look(args, place)?]),
        None => shown(args, html, &scenario::look(args)?),
    }
}

/// What was looked at together, in any of its forms.
trait Answer: Serialize {
    /// What it is of.
    fn title(&self) -> String;
    /// Its applications.
    fn apps(&self) -> &[Why];
    /// For a terminal.
    fn text(&self) -> String;
}

fn shown(args: &WhyArgs, html: Option<OutputFile>, all: &[impl Answer]) -> Result<(), Failure> {
    let drawn = html.map_or(Ok(()), |file| {
        let titles: Vec<String> = all.iter().map(Answer::title).collect();
        let looked: Vec<Looked<'_>> =
            (all.iter().zip(&titles)).map(|(of, title)| Looked { title, apps: of.apps() }).collect();
        file.finish_with(&page("Who slows whom down", PROGRAM, &looked))
    });
    let said = match args.json {
        true => serde_json::to_string(all).context("the accounts as JSON")? + "\n",
        false => all.iter().map(Answer::text).collect::<Vec<_>>().join("\n"),
    };
    Failure::of_all([drawn, print(&said)])
}

/// What is asked about: a place, or (`None`) a scenario.
fn asked(path: &Path) -> Result<Option<Place>, Failure> {
    let place = match Place::of(path)? {
        Place::Server(endpoint) => return Ok(Some(Place::Server(endpoint))),
        place @ Place::Mount(_) => place,
    };
    // Before anything is looked at: of a mount whose server hangs that would not end.
    if iogate_fuse::status(path).is_ok() {
        return Ok(Some(place));
    }
    let is_scenario = path.to_str().is_some_and(scenarios::is_built_in);
    // A mount that has failed cannot be looked at, and is a mount all the same.
    let is_folder = path
        .metadata()
        .map_or_else(|error| error.kind() != std::io::ErrorKind::NotFound, |found| found.is_dir());
    if is_folder {
        return Ok((!is_scenario).then_some(place));
    }
    if is_scenario || path.exists() {
        return Ok(None);
    }
    let what = path.to_string_lossy();
    let near = nearest(&what, scenarios::names());
    Err(Failure::usage(anyhow!(
        "{what} is not there; {}expected a mount point, a server's address (HOST:PORT or unix:PATH), or a scenario",
        did_you_mean(&near)
    ))
    .hint("`iogate scenario list` has the scenarios that are built in"))
}

/// Refuses flags that are for the other kind.
fn refuse_others(args: &WhyArgs, is_place: bool) -> Result<(), Failure> {
    let choice = &args.scenario;
    let of_scenarios = [
        ("--set", !choice.settings.is_empty()),
        ("--seeds", choice.seeds.is_some()),
        ("--seed", choice.seed.is_some()),
        ("--quick", choice.quick),
    ];
    let of_places = [
        ("--user", !args.users.is_empty()),
        ("--job", !args.jobs.is_empty()),
        ("--for", args.duration.is_some()),
        ("--export", args.export.is_some()),
        ("--profile", args.profile.is_some()),
        ("--device", args.device.is_some()),
    ];
    let (flags, what, is) = match is_place {
        true => (&of_scenarios[..], "scenarios", "a mount or a server"),
        false => (&of_places[..], "mounts and servers", "a scenario"),
    };
    match flags.iter().find(|(_, is_given)| *is_given) {
        Some((flag, _)) => {
            Err(Failure::usage(anyhow!("{flag} is for {what}: {} is {is}", choice.scenario.display())))
        }
        None => Ok(()),
    }
}

/// Nobody has this name.
fn unknown<'a>(app: &str, names: impl Iterator<Item = &'a str> + Clone) -> Failure {
    let (near, all) = (nearest(app, names.clone()), names.collect::<Vec<_>>().join(", "));
    let near = did_you_mean(&near);
    Failure::usage(anyhow!("unknown application '{app}'; {near}expected one of: {all}"))
}
