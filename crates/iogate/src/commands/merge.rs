//! `iogate merge`: joins the shards of runs that are kept in a folder.

use std::collections::BTreeMap;
use std::fs::{self, File, TryLockError};
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use iogate_report::ExperimentReport;
use iogate_report::partial::{ENDING, Kept, MergeError, merge};

use crate::attempt::Attempt;
use crate::cli::MergeArgs;
use crate::failure::Failure;
use crate::output::{OutputFile, print};

/// Where partial results come from.
const WHO_WRITES: &str = "`iogate sim` and `iogate reproduce` write them with --results";

/// `iogate merge`.
pub(crate) fn run(args: &MergeArgs) -> Result<(), Failure> {
    let paths = files(&args.paths)?;
    args.outputs.check(None, paths.iter().map(|path| ("what is joined", path.as_path())))?;
    let mut all: BTreeMap<String, Vec<(String, Kept)>> = BTreeMap::new();
    for path in paths {
        let shown = path.display().to_string();
        let kept = read(&path)?;
        all.entry(kept.head.name.clone()).or_default().push((shown, kept));
    }
    if let Some(folder) = &args.results {
        let mut reports = Vec::new();
        for (name, files) in all {
            // All of them have the same, or they are not joined.
            let origin = files.first().map(|(_, kept)| kept.head.origin.clone());
            let report = ExperimentReport { origin, ..joined(files)? };
            reports.push((folder.join(format!("{name}.json")), report));
        }
        super::sim::make_folder(folder)?;
        for (path, report) in reports {
            OutputFile::create(&path)?.finish_with(&report.json())?;
            print(&format!("{}\n", path.display()))?;
        }
        return Ok(());
    }
    let begun = args.outputs.begin()?;
    begun.finish(&joined(all.into_values().flatten().collect())?)
}

fn joined(files: Vec<(String, Kept)>) -> Result<ExperimentReport, Failure> {
    match merge(files) {
        Ok(Some(report)) => Ok(report),
        Ok(None) => Err(Failure::usage(anyhow!("there are no partial results here"))),
        Err(error @ MergeError::Unlike(..)) => {
            Err(Failure::usage(anyhow!("{error}")).hint("only shards of the same runs can be joined"))
        }
        Err(error @ MergeError::Lacking(..)) => Err(Failure::failed(anyhow!("{error}"))
            .hint("run each of them again alone, with its --shard and the same --results")),
    }
}

/// The files that are named, and those in folders that are.
fn files(paths: &[PathBuf]) -> Result<Vec<PathBuf>, Failure> {
    let mut all = Vec::new();
    for path in paths {
        if !path.is_dir() {
            all.push(path.clone());
            continue;
        }
        let context = || Attempt::read(path.display());
        let mut found = Vec::new();
        for entry in fs::read_dir(path).with_context(context)? {
            let file = entry.with_context(context)?.path();
            if file.extension().is_some_and(|ending| ending == ENDING) {
                found.push(file);
            }
        }
        found.sort();
        if found.is_empty() {
            return Err(Failure::usage(anyhow!("{} has no partial results", path.display())).hint(WHO_WRITES));
        }
        all.extend(found);
    }
    Ok(all)
}

fn read(path: &Path) -> Result<Kept, Failure> {
    let shown = path.display();
    let file = File::open(path).with_context(|| Attempt::read(&shown)).map_err(Failure::usage)?;
    if let Err(TryLockError::WouldBlock) = file.try_lock_shared() {
        return Err(Failure::failed(anyhow!("{shown} is still being written")));
    }
    let mut bytes = Vec::new();
    (&file).read_to_end(&mut bytes).with_context(|| Attempt::read(&shown))?;
    match Kept::read(&bytes) {
        Ok(Some(kept)) => Ok(kept),
        Ok(None) => Err(Failure::failed(anyhow!("{shown} was interrupted before its first line was whole"))
            .hint("run its shard again")),
        Err(what) => Err(Failure::usage(anyhow!("{shown} has no partial results: {what}")).hint(WHO_WRITES)),
    }
}
