//! The flags of training.

use std::num::NonZero;
use std::path::PathBuf;

use clap::{Args, ValueHint};

/// Make the tree again that says what an automatic choice begins with (docs/explanation/choosing.md)
///
/// It is grown from what became of random situations: mixes of applications on random storage, each carried out with each scheduler that is
/// considered, in virtual time. The same situations give the same tree, byte for byte. Prints how good a tree is for
/// situations that it was not grown from.
#[derive(Debug, Args)]
pub(crate) struct TrainArgs {
    /// How many mixes, one after the other from the first; about two seconds of a processor each
    #[arg(long, value_name = "N", default_value_t = 650, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) mixes: u32,

    /// Take situations from this file, as --out has written it, and carry out nothing
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "mixes")]
    pub(crate) from: Option<PathBuf>,

    /// Write `situations.csv` and `table.rs` into this directory
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) out: Option<PathBuf>,

    /// How many mixes at a time [default: as many as there are processors]
    #[arg(long, value_name = "N")]
    pub(crate) threads: Option<NonZero<usize>>,
}
