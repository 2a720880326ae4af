//! The situations again on page caches: what becomes of trees and selections.

use iogate_sim::scenario::Plan;

use super::samples::Samples;
use super::situations::Situations;
use super::{DEVICE, OP, PATTERN, PROCESSES, SCHEDULER, selection, trees};
use crate::commands::reproduce::claims::{Cell, Sheet};
use crate::commands::reproduce::figure::Figure;
use crate::commands::reproduce::{Experiment, Lab, Settings};
use crate::failure::Failure;

const BELOW: &str = "below";

/// The experiments: one application or four, with shared files or a file per process.
pub(super) struct Below([Experiment; 4]);

impl Below {
    pub(super) fn run(lab: &Lab<'_>) -> Result<Below, Failure> {
        let of = |name: &str| lab.experiment(&format!("agios-below-{name}"));
        Ok(Below([of("shared")?, of("files")?, of("shared-four")?, of("files-four")?]))
    }

    /// How long the writers or the readers of a situation take, until the last of them is done; none of what was not run.
    fn time(&self, situation: &Settings<'_>, below: &str) -> Option<Cell> {
        let set = |key: &str| Some(situation.iter().find(|(name, _)| *name == key)?.1);
        let pattern = set(PATTERN)?;
        let results = self.0.iter().find(|of| of.values(PATTERN).iter().any(|known| known == pattern))?;
        let at = [
            ("device", set(DEVICE)?),
            ("app.*.processes", set(PROCESSES)?),
            (PATTERN, pattern),
            (SCHEDULER, set(SCHEDULER)?),
            (BELOW, below),
        ];
        let who = if set(OP)? == "write" { "writer" } else { "reader" };
        let apps = results.point(&at)?.apps.iter().filter(|app| app.name.starts_with(who));
        let times = apps.map(|app| results.app_cell(&at, &app.name, "completion").ok());
        times.reduce(|one, other| Some(one?.with(&other?, f64::max)))?
    }

    fn samples(&self, plan: &Plan, below: &str) -> Samples {
        Samples::new(Situations::new(plan, &|settings, base| {
            let ratios = self.time(settings, below)?.with(&self.time(base, below)?, |of, by| of / by);
            (ratios.seeds() > 0).then_some(ratios)
        }))
    }

    /// `plan` has the situations.
    pub(super) fn figure(&self, plan: &Plan) -> Figure<'_> {
        let mut sheet = Sheet::of("table IV, page caches below");
        let all: Vec<(&String, Samples)> =
            self.0[0].values(BELOW).iter().map(|below| (below, self.samples(plan, below))).collect();
        for (below, samples) in &all {
            trees::correct_of(&mut sheet, &format!("{below}: "), samples);
        }
        sheet.next("figure 5 and table VII, page caches below");
        let mut tables = Vec::new();
        for (below, samples) in &all {
            selection::relative(&mut sheet, &format!("{below}: "), samples);
            tables.push((format!("What table III says, {below}"), trees::answers(samples)));
            let count = samples.whole.situations.all.len();
            let caption = format!("Of {count} situations, {below}: what a selection gains and loses");
            tables.push((caption, selection::table(&samples.whole.selections)));
        }
        Figure {
            title: "Control: selections where page caches are below".into(),
            results: self.0.iter().collect(),
            setup: "Not in the paper, which does not ask what its servers' memory does. All its situations again, on servers with the page cache of a \
                    Linux of the time, and in the second place with a processor that takes some time for each call of the kernel, which joining \
                    saves; trees are learnt and judged on these as above. Memory is as much smaller as the files are. Fewer seeds than above: what \
                    is answered from memory differs little from one to the next."
                .into(),
            sheet,
            tables,
            remarks: "What fits a server's memory is written and read at its speed: no order gains anything there, and waiting only costs, so that \
                      the best choice is none. Where calls of the kernel cost, whoever joins gains, whichever algorithm it is."
                .into(),
            ..Figure::default()
        }
    }
}
