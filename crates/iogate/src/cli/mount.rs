//! The flags of `iogate mount`.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum, ValueHint};

use super::{DATA, GateArgs, ORDER, RemoteArgs, SEEN, SeenArgs};
use crate::commands::layout::LayoutChoice;

/// Mount a directory, or the files of servers, behind a gate: reads and writes of all programs are scheduled
///
/// The application of a request is taken from the calling process: IOGATE_APP in its environment, else the line for its
/// program (`NAME_OR_GLOB ID`) in the file that IOGATE_APP_FILE names here, else its job (SLURM_JOB_ID and those of other
/// batch systems and MPI launchers), else its session. The command returns when the mount is ready; the mount ends with
/// `iogate umount`, umount(8), or SIGINT, SIGTERM or SIGHUP to its process.
#[derive(Debug, Args)]
#[command(override_usage = "iogate mount [OPTIONS] SOURCE MOUNTPOINT
       iogate mount [OPTIONS] --remote ENDPOINT MOUNTPOINT")]
pub(crate) struct MountArgs {
    /// The directory whose content is shown; left out with --remote
    #[arg(value_name = "SOURCE", value_hint = ValueHint::DirPath)]
    first: PathBuf,

    /// An empty directory outside the source
    #[arg(value_name = "MOUNTPOINT", value_hint = ValueHint::DirPath)]
    second: Option<PathBuf>,

    #[command(flatten, next_help_heading = "Files of servers")]
    pub(crate) remote: RemoteArgs,

    #[command(flatten, next_help_heading = ORDER)]
    pub(crate) gate: GateArgs,

    /// Which target holds which bytes of a file: auto, or stripe=64KiB,targets=4[,first=0]
    ///
    /// auto asks the source's file system for each file's own layout where that is Lustre, BeeGFS, CephFS or GlusterFS;
    /// elsewhere all is on a single target. auto,targets=8 says how many targets there are in all.
    #[arg(long, value_name = "LAYOUT", default_value = "auto", conflicts_with = "remote", help_heading = DATA)]
    pub(crate) layout: LayoutChoice,

    /// Who caches file data on this side of the gate
    #[arg(long, value_enum, default_value_t = Cache::Direct, help_heading = DATA)]
    pub(crate) cache: Cache,

    /// Among whom locks hold that programs take: all who use the source's files, or the programs of this mount
    #[arg(long, value_enum, default_value_t = Locks::Auto, conflicts_with = "remote", help_heading = DATA)]
    pub(crate) locks: Locks,

    /// What carries requests out
    #[arg(long, value_enum, default_value_t = StoreKind::Directory, conflicts_with = "remote", help_heading = DATA)]
    pub(crate) store: StoreKind,

    /// How the source's files are read and written
    #[arg(long, value_enum, default_value_t = Backend::Auto, conflicts_with = "remote", help_heading = DATA)]
    pub(crate) backend: Backend,

    /// Read and write the source past its page cache
    #[arg(long, conflicts_with = "remote", help_heading = DATA)]
    pub(crate) direct: bool,

    /// The device that a modelled store takes the time of (`iogate devices` lists them) [default: hdd]
    #[arg(long, value_name = "DEVICE", conflicts_with = "remote", help_heading = DATA)]
    pub(crate) device: Option<String>,

    #[command(flatten)]
    pub(crate) seen: SeenArgs,

    /// Stay in the foreground until the mount ends
    #[arg(long, short, help_heading = None)]
    pub(crate) foreground: bool,

    /// Append warnings and errors of a mount in the background to this file; without it they are dropped
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = SEEN)]
    pub(crate) log: Option<PathBuf>,

    /// Most threads that serve /dev/fuse; they are started as they are needed
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..=1024), help_heading = None)]
    pub(crate) threads: u16,

    /// Take requests from /dev/fuse even where the kernel offers FUSE over io_uring
    #[arg(long, help_heading = None)]
    pub(crate) no_uring: bool,

    /// Refuse all changes
    #[arg(long, help_heading = None)]
    pub(crate) read_only: bool,

    /// Tells the starting process when the mount is ready
    #[arg(long, hide = true)]
    pub(crate) announce: bool,
}

impl MountArgs {
    pub(crate) fn source(&self) -> Option<&Path> {
        self.second.as_ref().map(|_| self.first.as_path())
    }

    /// The last of the paths, of which there is one alone with servers.
    pub(crate) fn mountpoint(&self) -> &Path {
        self.second.as_deref().unwrap_or(&self.first)
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Cache {
    /// Nobody: every read and write of every program is a request
    Direct,
    /// The kernel's page cache: cached data is not read again, and small reads become larger ones
    Page,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Backend {
    /// What is in memory by calls at once, what needs the device through io_uring where that is permitted
    Auto,
    /// By vectored calls
    Calls,
    /// Through io_uring
    Ring,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum StoreKind {
    /// The source directory, as fast as it is
    Directory,
    /// The source directory, in the time that a modelled device would take
    Modelled,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Locks {
    /// As source where other machines may use the source, too, or that is not known; else as mount
    Auto,
    /// All who use the files, past this mount as well, as far as their file system carries locks
    Source,
    /// The programs of this mount: it takes less time
    Mount,
}
