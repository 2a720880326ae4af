//! The flags of the papers' experiments.

use std::num::NonZero;
use std::path::PathBuf;

use clap::{Args, ValueEnum, ValueHint};
use iogate_report::partial::Shard;

/// Carry out the papers' experiments in the simulator, and set their figures beside ours
///
/// Writes a page for each paper, as Markdown and as HTML with pictures.
#[derive(Debug, Args)]
pub(crate) struct ReproduceArgs {
    /// Which papers [default: all]
    #[arg(value_enum, value_name = "PAPER")]
    pub(crate) papers: Vec<Paper>,

    /// Smaller files and fewer seeds: shows that everything runs, not what the papers measured
    #[arg(long)]
    pub(crate) quick: bool,

    /// For real instead: processes, sockets and modelled devices on this machine, smaller, beside their simulation; of
    /// aioli, coordination, twins, checkpoint, and mechanisms (on this machine's own device)
    #[arg(long)]
    pub(crate) real: bool,

    /// The folder for the pages [default: docs/reproduction; with --quick target/reproduction-quick]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) out: Option<PathBuf>,

    /// Keep each run in this folder as soon as it is done, and the results of each scenario as JSON, and take what is there already
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) results: Option<PathBuf>,

    /// Do the I-th of N parts of all runs, and only keep it: `iogate merge DIR --results DIR` joins the parts, and pages are made then
    #[arg(long, value_name = "I/N", requires = "results", conflicts_with = "real")]
    pub(crate) shard: Option<Shard>,

    /// Most runs at once [default: as many as there are processors]
    #[arg(long, value_name = "N")]
    pub(crate) threads: Option<NonZero<usize>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Paper {
    /// aIOLi (2006): one server, one disk
    Aioli,
    /// AGIOS (2016): which scheduler for which pattern and device
    Agios,
    /// Server coordination (2011): servers that serve one application at a time
    Coordination,
    /// TWINS (2016): forwarders that serve one data server at a time
    Twins,
    /// Checkpoint coordination (2012): one job at a time does its I/O
    Checkpoint,
    /// No paper: every mechanism on the same loads and storage
    Mechanisms,
    /// The papers' headlines over the ranges of what they do not say
    Sensitivity,
    /// IO-Sets (2023) and FTIO (2024): jobs in sets by how often they write
    Sets,
    /// No paper: how good the automatic choice is, on random mixes and storage
    Auto,
    /// No experiments: the table of all figures and tables of the papers, from what the pages have kept
    Coverage,
}

impl Paper {
    /// What it is called here, and what the names of its scenarios begin with.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Paper::Aioli => "aioli",
            Paper::Agios => "agios",
            Paper::Coordination => "coordination",
            Paper::Twins => "twins",
            Paper::Checkpoint => "checkpoint",
            Paper::Mechanisms => "mechanisms",
            Paper::Sensitivity => "sensitivity",
            Paper::Sets => "sets",
            Paper::Auto => "auto",
            Paper::Coverage => "coverage",
        }
    }

    pub(crate) const ALL: [Paper; 10] = [
        Paper::Aioli,
        Paper::Agios,
        Paper::Coordination,
        Paper::Twins,
        Paper::Checkpoint,
        Paper::Mechanisms,
        Paper::Sensitivity,
        Paper::Sets,
        Paper::Auto,
        Paper::Coverage,
    ];
    /// Those with `--real`.
    pub(crate) const REAL: [Paper; 5] =
        [Paper::Aioli, Paper::Coordination, Paper::Twins, Paper::Checkpoint, Paper::Mechanisms];
}
