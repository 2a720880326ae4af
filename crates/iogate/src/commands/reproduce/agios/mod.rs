//! AGIOS (Boito, Kassick, Navaux and Denneulin: Automatic I/O scheduling algorithm selection for parallel file systems, 2016):
//! figures 3 to 5, tables III to VII.

mod below;
mod best;
mod calls;
mod figures;
mod samples;
mod selection;
mod situations;
#[cfg(test)]
mod tests;
mod trees;

use iogate_report::claims::Interval;

use self::samples::Samples;
use self::situations::Situations;
use super::claims::Cell;
use super::figure::Reproduced;
use super::{Experiment, Lab, Settings};
use crate::commands::scenario;
use crate::failure::Failure;

pub(super) const DEVICE: &str = "servers.device";
const PROCESSES: &str = "app.mpi-io-test.processes";
const OP: &str = "app.mpi-io-test.op";
pub(super) const SCHEDULER: &str = "servers.gate.scheduler";
const PATTERN: &str = "case";
/// What all others are compared with: no scheduler, which is also TO.
pub(super) const BASE: &str = "fifo";
/// From where on the paper calls a difference significant.
const SIGNIFICANT: f64 = 0.10;

pub(super) fn page(lab: &Lab<'_>) -> Result<Reproduced, Failure> {
    let all = [lab.experiment("agios")?];
    let pastel = lab.experiment("agios-pastel")?;
    let (graphene_below, pastel_below) =
        (lab.experiment("agios-graphene-below")?, lab.experiment("agios-pastel-below")?);
    let calls = lab.experiment("agios-edel-calls")?;
    let below = below::Below::run(lab)?;
    let plan = scenario::built_in_plan("agios", lab.quick)?;
    let samples = Samples::new(Situations::new(&plan, &|settings, base| ratios(&all[0], settings, base)));
    let mut figures = vec![
        figures::graphene(&all[0])?,
        figures::files(&pastel)?,
        figures::below(&graphene_below, &pastel_below)?,
        best::figure(&all[0], &samples)?,
        calls::figure(lab, &calls)?,
    ];
    figures.extend(trees::figures(&all, &samples));
    figures.push(selection::figure(&all, &samples));
    figures.push(below.figure(&plan));
    let notes = NOTES.map(String::from).into();
    Ok(Reproduced::new(
        "iogate reproduce agios",
        "AGIOS: no scheduler is the best everywhere",
        notes,
        figures,
    ))
}

const NOTES: [&str; 3] = [
    "The paper's clusters: four dNFSp data servers with one disk (Pastel, Graphene), a RAID-0 (Suno) or a flash drive (Edel), stripes of 32 \
     KiB, messages of 8 KiB. Ours are models of these devices behind a simulated gigabit Ethernet; see docs/devices.md for what is known \
     of the drives.",
    "`fifo` stands for the file system without AGIOS, and for TO. Our simulator does not charge processor time for scheduling, nor for calls where nothing else is said: where a scheduler \
     costs time here, it is by its deliberate waits or by a worse order. The paper's data servers had page caches of 8 to 32 GB, ours have none \
     but the drives' own where nothing else is said.",
    "The shared file of one application has the paper's size, those of four have a quarter of it; with a file per process each has a sixteenth. \
     What is in parentheses, or after \u{b1}, is the \
     90 % confidence interval, as in the paper, of ratios over pairs of runs with the same seed; its rule for a significant difference, more \
     than 10 %, is ours too.",
];

/// Time with some settings over time with others, seed by seed.
fn ratios(results: &Experiment, settings: &Settings<'_>, base: &Settings<'_>) -> Option<Cell> {
    let time = |settings| results.cell(settings, "makespan").ok();
    let ratios = time(settings)?.with(&time(base)?, |of, by| of / by);
    (ratios.seeds() > 0).then_some(ratios)
}

/// A time: of an operation and a pattern with a scheduler.
type Time<'a> = dyn Fn(&str, &str, &str) -> Result<Cell, Failure> + 'a;

/// The makespans on a device with so many processes.
fn times<'a>(
    results: &'a Experiment,
    device: &'a str,
    processes: &'a str,
) -> impl Fn(&str, &str, &str) -> Result<Cell, Failure> + 'a {
    move |op, pattern, scheduler| {
        let at =
            [(DEVICE, device), (PROCESSES, processes), (OP, op), (PATTERN, pattern), (SCHEDULER, scheduler)];
        results.cell(&at, "makespan")
    }
}

/// Time with a scheduler, over time without one.
fn relative(
    time: &Time<'_>,
    (op, pattern): (&str, &str),
    scheduler: &str,
) -> Result<Option<Interval>, Failure> {
    Ok(time(op, pattern, scheduler)?.by(&time(op, pattern, BASE)?))
}

fn algorithms(results: &Experiment) -> impl Iterator<Item = &str> + Clone {
    results.values(SCHEDULER).iter().map(String::as_str).filter(|name| *name != BASE)
}

/// By how many percent a scheduler is faster than none.
fn faster(ratio: Interval) -> Interval {
    ratio.map(|ratio| 100.0 * (1.0 - ratio))
}

/// By how many percent a scheduler is slower than none.
fn slower(ratio: Interval) -> Interval {
    ratio.map(|ratio| 100.0 * (ratio - 1.0))
}

fn largest(all: impl IntoIterator<Item = Interval>) -> Option<Interval> {
    all.into_iter().max_by(|one, other| one.mean.total_cmp(&other.mean))
}

const SLOWER: f64 = 1.0 + SIGNIFICANT;
const FASTER: f64 = 1.0 - SIGNIFICANT;
