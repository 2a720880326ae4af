//! `iogate train`: the tree that says what an automatic choice begins with.

use std::path::Path;

use anyhow::{Context, anyhow};
use iogate_report::Table;
use iogate_sim::choice::train::{Fold, Situation, folds, grow, read, table, write};

use crate::attempt::Attempt;
use crate::cli::TrainArgs;
use crate::commands::progress::each;
use crate::failure::Failure;
use crate::output::{OutputFile, print};

pub(crate) fn run(args: &TrainArgs) -> Result<(), Failure> {
    // What cannot be written is said before anything is carried out.
    if let Some(directory) = args.out.as_deref().filter(|directory| !directory.is_dir()) {
        let error = anyhow!("--out {}: expected a directory that is there", directory.display());
        return Err(Failure::usage(error).hint("create it, or name another one"));
    }
    let files = args.out.as_deref().map(|directory| -> Result<_, Failure> {
        let file = |name: &str| OutputFile::create(&directory.join(name));
        Ok([file("situations.csv")?, file("table.rs")?])
    });
    let files = files.transpose()?;
    let situations = match &args.from {
        Some(file) => of_file(file)?,
        None => {
            let mixes = each("mixes", args.mixes as usize, args.threads, |number| {
                Situation::carry_out(number as u64)
            });
            mixes.into_iter().flatten().collect()
        }
    };
    let grown = grow(&situations.iter().collect::<Vec<_>>());
    if let Some([rows, source]) = files {
        rows.finish_with(&write(&situations))?;
        source.finish_with(&table(&grown, situations.len()))?;
    }
    print(&report(&situations))
}

fn of_file(file: &Path) -> Result<Vec<Situation>, Failure> {
    let name = || file.display().to_string();
    let text =
        std::fs::read_to_string(file).with_context(|| Attempt::read(name())).map_err(Failure::usage)?;
    let situations = read(&text).map_err(|error| Failure::usage(anyhow!("{}: {error}", name())));
    situations
        .map_err(|failure| failure.hint("`iogate train --out DIR` writes such a file, for the same iogate"))
}

/// How good trees are for what they were not grown from.
fn report(situations: &[Situation]) -> String {
    let header = ["grown from", "tried on", "situations", "faster than fifo", "best without harm", "harmed"];
    let mut out = Table::new(header);
    for Fold { from, on, situations, gain, best, harmed } in folds(situations) {
        let times = |sum: i64| format!("{:.3}x", (sum as f64 / 1e6 / situations.max(1) as f64).exp());
        out.row([from, on, situations.to_string(), times(gain), times(best), harmed.to_string()]);
    }
    format!(
        "{out}\nfaster: the geometric mean over situations and applications, from the first requests on; harmed: situations in which\n\
         an application is slower by more than a tenth, or would be if no application came to an end\n"
    )
}
