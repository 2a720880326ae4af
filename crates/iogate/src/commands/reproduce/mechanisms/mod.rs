//! Beyond the papers: every mechanism on the same loads and storage.

mod measures;
mod open_loop;
mod storage;

use iogate_report::html::whiskers::{Bars, Groups, groups};
use iogate_report::units;
use iogate_sim::metrics::Unit;
use iogate_sim::scenario::{App, Plan};
use iogate_sim::workload::iteration_bytes;

use self::measures::{MEASURES, Measure, World};
use super::figure::{Figure, Reproduced};
use super::{Experiment, Lab};
use crate::commands::scenario;
use crate::failure::Failure;

pub(super) const STORAGE: &str = "storage";
pub(super) const LOAD: &str = "load";
pub(super) const MECHANISM: &str = "mechanism";
pub(super) const NONE: &str = "none";

pub(super) fn page(lab: &Lab<'_>) -> Result<Reproduced, Failure> {
    let results = lab.experiment("mechanisms")?;
    let clock = lab.experiment("mechanisms-open-loop")?;
    let world = World::new(&results)?;
    let mut figures = vec![overview(&results, &world)];
    for storage in results.values(STORAGE) {
        figures.push(storage::figure(&results, &world, storage)?);
    }
    figures.push(open_loop::figure(&clock)?);
    let title = "Every mechanism on the same loads";
    let mut notes = vec![worlds(&scenario::built_in_plan("mechanisms", lab.quick)?)];
    notes.extend(NOTES.map(String::from));
    Ok(Reproduced::new("iogate reproduce mechanisms", title, notes, figures))
}

/// What all are tried on.
fn worlds(plan: &Plan) -> String {
    let bytes = |apps: &[App]| -> u64 {
        apps.iter().map(|app| iteration_bytes(app) * u64::from(app.workload.iterations)).sum()
    };
    let amounts = || plan.points.iter().map(|point| bytes(&point.scenario.apps));
    let [least, most] =
        [amounts().min(), amounts().max()].map(|amount| units::bytes(amount.unwrap_or_default() as f64));
    format!(
        "Each paper measures its mechanism on loads of its own. Here all of them are on the same eight loads and three kinds of storage, in \
         worlds small enough to run in minutes: four servers, two forwarders, 16 client nodes, {least} to {most} in all. \
         `iogate scenario show mechanisms` has every number."
    )
}

const NOTES: [&str; 3] = [
    "Throughput is all bytes by the time from the first start to the last end. Slowdown is an application's time by its time alone *without* a \
     mechanism (not alone with it, which would hide what it costs). Jain's index is that of the applications' speeds against alone: \
     1 if all are slowed down equally. Calls: from call to completion, 99 % are shorter; what an application waits for before \
     its I/O (turns, backing off) is not in them. `none` has what was measured; the others by how \
     many percent they change it, seed by seed: in parentheses the 95 % confidence interval.",
    "`none` is the order of arrival. `slices` is what a kernel may do below a server (CFQ, BFQ), with a thread for each request or for each file. \
     Turns and backing off are in the applications, server-window and twins on the forwarders, everything else on the servers. Caps \
     are not among them: what they do is what they are set to.",
    "Defaults where no value stands beside a name, tuned to nothing: a mechanism can do better with parameters for a load and a device, and worse. Backing off sleeps \
     for a tenth of its times, as these loads compute for parts of seconds.",
];

/// All storage in one picture for each measure.
fn overview<'a>(results: &'a Experiment, world: &World) -> Figure<'a> {
    let pictures = MEASURES.iter().map(|measure| picture(results, world, measure));
    Figure {
        title: "Overview".into(),
        results: vec![results],
        setup: "The change by a mechanism: the geometric mean over the eight loads. A mean hides who loses; the tables below do not."
            .into(),
        tables: MEASURES.iter().map(|measure| (measure.called.into(), world.table_of_means(results, measure))).collect(),
        pictures: pictures.map(|picture| (picture.title.clone(), groups(&picture))).collect(),
        remarks: "Where storage takes at once all that is asked of it, nothing is queued in a gate and no order changes anything: there, \
                  only what waits on purpose makes a difference to throughput and slowdown, and it is a loss."
            .into(),
        ..Figure::default()
    }
}

fn picture(results: &Experiment, world: &World, measure: &Measure) -> Groups {
    let mechanisms: Vec<&String> = results.values(MECHANISM).iter().filter(|name| *name != NONE).collect();
    let series = results.values(STORAGE).iter().map(|storage| {
        let value = |mechanism: &&String| world.mean_factor(results, measure, storage, mechanism);
        Bars { name: storage.clone(), values: mechanisms.iter().map(value).collect() }
    });
    Groups {
        title: format!("{}, by that without a mechanism", measure.called),
        unit: Unit::Ratio,
        groups: mechanisms.iter().map(|name| (*name).clone()).collect(),
        series: series.collect(),
    }
}
