//! A shard of papers' runs: kept, for `iogate merge` to join, and no pages.

use anyhow::anyhow;
use iogate_report::partial::Shard;

use super::Lab;
use crate::cli::{Paper, ReproduceArgs};
use crate::commands::progress::Progress;
use crate::commands::scenario;
use crate::failure::Failure;
use crate::output::print;

pub(super) fn run(args: &ReproduceArgs, shard: Shard) -> Result<(), Failure> {
    // Those whose runs are those of scenarios.
    let has_runs = |paper: &Paper| scenario::of_paper(paper.name()).next().is_some();
    let papers = match args.papers.is_empty() {
        true => Paper::ALL.into_iter().filter(has_runs).collect(),
        false => args.papers.clone(),
    };
    for paper in &papers {
        if !has_runs(paper) {
            return Err(Failure::usage(anyhow!(
                "--shard: {} has no scenarios whose runs could be parted",
                paper.name()
            )));
        }
    }
    for paper in &papers {
        let mut lab = Lab::new(args, paper)?;
        let mut work = Vec::new();
        for name in scenario::of_paper(paper.name()) {
            work.push((name, scenario::built_in_plan(name, args.quick)?));
        }
        lab.progress =
            Progress::new(work.iter().map(|(_, plan)| shard.runs(plan.runs()).count() as u64).sum());
        for (name, plan) in work {
            let Some(folder) = lab.results else { continue };
            lab.progress.begin(name);
            lab.work(name, &plan, |work| work.keep(shard, folder, &lab.progress))?;
            print(&format!("{}\n", folder.join(shard.file_name(&lab.called(name))).display()))?;
        }
    }
    Ok(())
}
