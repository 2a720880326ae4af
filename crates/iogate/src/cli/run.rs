//! The flags of a job that takes turns.

use std::ffi::OsString;
use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, ValueHint};

use super::Bytes;
use crate::settings;

/// Run a program that takes turns with other jobs for its bulk output, as it is
///
/// Before the first write to a file that counts as bulk output, the program waits for its turn on the file's file
/// system; the turn ends when the last such file is closed or synced. MPI programs: `iogate run ... -- mpirun ./app`,
/// or `mpirun iogate run ... -- ./app`. Without --coord, IOGATE_COORD says where the coordinator is; the other flags
/// stand for variables, too (docs/run.md).
#[derive(Debug, Args)]
#[command(
    after_long_help = "The exit status is the program's, or 128 and the number of the signal that killed it; 127: there is no such \
    program, 126: it cannot be started."
)]
pub(crate) struct RunArgs {
    /// The coordinators: HOST:PORT or unix:PATH, separated by commas
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) coord: Option<String>,

    /// How to wait: lock, backoff, lock+backoff or none [default: lock]
    #[arg(long, value_name = "POLICY")]
    pub(crate) policy: Option<String>,

    /// A directory on a file system where turns are taken, and what all jobs call that; may be given several times
    ///
    /// Without a name, one is made of the mount. Without --files, everything that is written below counts as bulk output.
    #[arg(long = "target", value_name = "DIR[=NAME]", value_hint = ValueHint::DirPath)]
    pub(crate) targets: Vec<String>,

    /// Files that count as bulk output, as a glob: of the name, or with a slash of the whole path; may be given several times
    ///
    /// `*` and `?` do not go across a slash; `**` is any directories, as in '/scratch/run7/**/*.ckpt'.
    #[arg(long, value_name = "PATTERN")]
    pub(crate) files: Vec<String>,

    /// How long to try to reach a coordinator before the program goes on without turns [default: 30s]
    #[arg(long, value_name = "TIME")]
    pub(crate) patience: Option<Time>,

    /// How long after its last write a turn ends even though files are open [default: 2s]
    #[arg(long, value_name = "TIME")]
    pub(crate) idle: Option<Time>,

    /// Without a coordinator, let writes fail instead of going on
    #[arg(long)]
    pub(crate) strict: bool,

    /// The job's share, where the coordinator goes by weights [default: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) weight: Option<u32>,

    /// The job's name: programs of one job share their turns [default: the batch system's or MPI's, else one of this run's own]
    #[arg(long, value_name = "NAME")]
    pub(crate) job: Option<String>,

    /// What the job reads and writes in one burst, all its programs together, as in 10GiB: gates that choose their scheduler then know
    /// when it ends (docs/auto.md)
    #[arg(long, value_name = "BYTES")]
    pub(crate) burst: Option<Bytes>,

    /// The library [default: libiogate_preload.so beside this program, or in ../lib]
    #[arg(long, value_name = "PATH", value_hint = ValueHint::FilePath)]
    pub(crate) library: Option<PathBuf>,

    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "COMMAND")]
    #[arg(value_hint = ValueHint::CommandWithArguments)]
    pub(crate) command: Vec<OsString>,
}

/// A time with its unit, as it was written.
#[derive(Clone, Debug)]
pub(crate) struct Time(pub(crate) String);

impl FromStr for Time {
    type Err = iogate_core::sched::ConfigError;

    fn from_str(text: &str) -> Result<Time, Self::Err> {
        settings::nanoseconds(text).map(|_| Time(text.to_owned()))
    }
}
