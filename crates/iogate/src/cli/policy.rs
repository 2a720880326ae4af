//! The flags that say who is entitled to what.

use std::path::PathBuf;

use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand, ValueHint};
use iogate_vfs::policy_file::FAIR;

/// Who is entitled to what; without, the scheduler alone decides.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct SharesArgs {
    /// Give each user, job, application or account of jobs an equal share of the storage's time: user, job, app or account; with
    /// group/user each group, and of that each of its users; with account/job each account, and of that each of its jobs
    #[arg(long, value_name = "WHO", value_parser = PossibleValuesParser::new(FAIR))]
    pub(crate) fair: Option<String>,

    /// Say by a file who is entitled to what: weights, floors and caps (docs/policy.md)
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "fair")]
    pub(crate) policy: Option<PathBuf>,
}

/// What `iogate set` and `iogate cluster set` can be given.
pub(crate) fn settings_help() -> String {
    format!(
        "What to change: `scheduler=NAME`, parameters as in `age_max=1s`, `policy=FILE`, `fair={}`, `accounts=sampled|on|off`",
        FAIR.join("|")
    )
}

/// Check policies: who is entitled to what of a mount or a server
#[derive(Debug, Args)]
pub(crate) struct PolicyArgs {
    #[command(subcommand)]
    pub(crate) command: PolicyCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum PolicyCommand {
    /// Check a policy, and print what it means
    Check {
        /// Print JSON
        #[arg(long)]
        json: bool,

        /// The policy (TOML)
        #[arg(value_hint = ValueHint::FilePath)]
        file: PathBuf,
    },
}
