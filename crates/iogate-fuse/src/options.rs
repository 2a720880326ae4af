//! Settings of a mount.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use iogate_engine::Layouts;
use iogate_engine::store::Nearness;
use iogate_vfs::app::AppFile;

/// Who caches file data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CacheMode {
    /// Nobody on this side of the gate: every read and write of every program is a request (direct I/O).
    #[default]
    Direct,
    /// The kernel's page cache: reads are cached and read ahead, writes go through at once.
    Page,
}

/// Among whom locks hold that programs take on a mounted directory's files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LockScope {
    /// `Source` where other machines may use the source, too, or it is not known to be this one's; else `Mount`.
    #[default]
    Auto,
    /// All who use the files, past this mount as well, as far as the source's file system carries locks: they are taken there.
    Source,
    /// The programs of this mount: the kernel keeps them, which is faster.
    Mount,
}

impl LockScope {
    /// What it stands for at a mount of this directory: [`Source`](LockScope::Source) or [`Mount`](LockScope::Mount).
    pub fn at(self, source: impl AsFd) -> LockScope {
        match self {
            LockScope::Auto if Nearness::of_tree(source) == Nearness::Far => LockScope::Source,
            LockScope::Auto => LockScope::Mount,
            chosen => chosen,
        }
    }
}

/// How requests come from the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Transport {
    /// `Uring` where the kernel offers it, else `Device`.
    #[default]
    Auto,
    /// Reads and writes of `/dev/fuse`, by several threads.
    Device,
    /// FUSE over io_uring (Linux 6.14, `/sys/module/fuse/parameters/enable_uring` is Y); falls back to `Device`.
    Uring,
}

/// Settings of a mount; the default is right for most.
#[derive(Clone, Debug)]
pub struct MountOptions {
    /// Who caches file data.
    pub cache: CacheMode,
    /// Among whom locks hold; of a mounted tree the tree says so.
    pub locks: LockScope,
    /// How requests come from the kernel.
    pub transport: Transport,
    /// Most threads that serve `/dev/fuse`; they are started as they are needed.
    pub threads_max: usize,
    /// Most requests of one CPU that are underway at once through io_uring (others wait in the kernel).
    pub queue_depth: u16,
    /// Largest read or write request in bytes; a power of two from 4 KiB to 1 MiB.
    pub request_bytes_max: u32,
    /// How long the kernel may trust a name or attributes. Changes through the mount itself are seen at once.
    pub metadata_timeout: Duration,
    /// Whether users other than the mount's owner may use it. Needs root (or `user_allow_other` in fuse.conf).
    pub allow_other: bool,
    /// Refuse all changes.
    pub read_only: bool,
    /// Let the source's file system carry out `copy_file_range` itself (shared extents, server-side copies), past
    /// the gate. Otherwise the kernel copies by reads and writes through the gate.
    pub copy_offload: bool,
    /// Programs with fixed applications.
    pub programs: AppFile,
    /// Whom to ask where files lie when they are opened; without, the gate's layout holds for all of them.
    pub layouts: Option<Arc<Layouts>>,
}

impl Default for MountOptions {
    fn default() -> MountOptions {
        MountOptions {
            cache: CacheMode::Direct,
            locks: LockScope::Auto,
            transport: Transport::Auto,
            threads_max: 64,
            queue_depth: 128,
            request_bytes_max: 1 << 20,
            metadata_timeout: Duration::from_secs(1),
            allow_other: rustix::process::geteuid().is_root(),
            read_only: false,
            copy_offload: false,
            programs: AppFile::default(),
            layouts: None,
        }
    }
}
