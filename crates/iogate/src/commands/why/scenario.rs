//! Who slows whom down in a simulated scenario.

use std::collections::BTreeMap;

use anyhow::anyhow;
use iogate_report::why::{Gain, Why};
use iogate_sim::result::RunResult;
use iogate_sim::scenario::{Point, Scenario};
use iogate_sim::world::{simulate, simulate_with_accounts};
use serde::Serialize;

use super::{Answer, unknown};
use crate::cli::WhyArgs;
use crate::commands::scenario;
use crate::failure::Failure;
use crate::output::check_inputs_stay;

/// What is said of one point.
#[derive(Serialize)]
pub(super) struct OfPoint {
    /// What is set at this point; empty where nothing varies.
    point: BTreeMap<String, String>,
    apps: Vec<Why>,
}

pub(super) fn look(args: &WhyArgs) -> Result<Vec<OfPoint>, Failure> {
    let chosen = scenario::plan(&args.scenario)?;
    check_inputs_stay(&[("--html", args.html.as_deref())], chosen.inputs())?;
    chosen.plan.points.iter().map(|point| of_point(args, point)).collect()
}

impl Answer for OfPoint {
    fn title(&self) -> String {
        let set: Vec<String> = self.point.iter().map(|(key, value)| format!("{key} = {value}")).collect();
        set.join(", ")
    }

    fn apps(&self) -> &[Why] {
        &self.apps
    }

    fn text(&self) -> String {
        let set = self.point.iter().map(|(key, value)| format!("{key} = {value}\n"));
        set.chain(self.apps.iter().map(Why::text)).collect::<Vec<_>>().join("\n")
    }
}

fn of_point(args: &WhyArgs, point: &Point) -> Result<OfPoint, Failure> {
    let failed = |error| Failure::failed(anyhow::Error::new(error));
    let scenario = &point.scenario;
    let (ran, accounts) = simulate_with_accounts(scenario, scenario.seed).map_err(failed)?;
    for app in args.apps.iter().chain(&args.without) {
        known(&ran, app)?;
    }
    let name =
        |id: u32| ran.apps.iter().find(|app| app.id == id).map_or(id.to_string(), |app| app.name.clone());
    let mut apps: Vec<Why> = accounts.iter().map(|account| Why::new(account, None, None, name)).collect();
    apps.retain(|why| args.apps.is_empty() || args.apps.contains(&why.app));
    for without in &args.without {
        let other = simulate(&leave_out(scenario, without)?, scenario.seed, &mut ()).map_err(failed)?;
        for why in apps.iter_mut().filter(|why| why.app != *without) {
            if let (Some(with), Some(less)) = (took(&ran, &why.app), took(&other, &why.app)) {
                let without = without.clone();
                why.gains.push(Gain { without, with_s: with, without_s: less, charged_s: None });
            }
        }
    }
    Ok(OfPoint { point: point.settings.iter().cloned().collect(), apps })
}

/// How long an application took, in seconds.
fn took(ran: &RunResult, app: &str) -> Option<f64> {
    let app = ran.apps.iter().find(|of| of.name == app)?;
    Some(app.end.since(app.start).as_secs_f64())
}

fn known(ran: &RunResult, app: &str) -> Result<(), Failure> {
    if ran.apps.iter().any(|of| of.name == app) {
        return Ok(());
    }
    Err(unknown(app, ran.apps.iter().map(|of| of.name.as_str())))
}

/// The scenario without an application; all others draw the same numbers.
fn leave_out(scenario: &Scenario, app: &str) -> Result<Scenario, Failure> {
    let mut scenario = scenario.clone();
    let before = scenario.apps.len();
    scenario.apps.retain(|of| of.name != app);
    if scenario.apps.len() == before {
        let error = anyhow!(
            "--counterfactual {app}: expected an application that the scenario names, got one that is drawn"
        );
        return Err(Failure::usage(error));
    }
    Ok(scenario)
}
