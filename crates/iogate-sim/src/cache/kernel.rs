//! The numbers of a cache, by age of kernel: each with the range in which it may be, and where it comes from.
//!
//! A cache takes its numbers from here and from a scenario, and from nowhere else. None was chosen for the sake of a result, and those
//! of two kernels are never mixed. *Estimate* means that no document was found that gives it.

use iogate_core::Span;

/// Bytes of a page.
pub const PAGE: u64 = 4_096;

/// Whose rules a cache has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kernel {
    /// Linux 2.6.18, as in Red Hat Enterprise Linux 5.
    Rhel5,
    /// Linux 2.6.28.
    V2628,
    /// Linux 5.4 and later.
    Modern,
}

impl Kernel {
    /// All, the oldest first.
    pub const ALL: [Kernel; 3] = [Kernel::Rhel5, Kernel::V2628, Kernel::Modern];

    /// Its name in scenarios.
    pub fn name(self) -> &'static str {
        match self {
            Kernel::Rhel5 => "rhel5",
            Kernel::V2628 => "2.6.28",
            Kernel::Modern => "modern",
        }
    }

    /// The kernel with this name.
    pub fn by_name(name: &str) -> Option<Kernel> {
        Kernel::ALL.into_iter().find(|kernel| kernel.name() == name)
    }

    /// Whether who writes too much writes back itself, instead of being slowed down.
    pub fn writers_write_back(self) -> bool {
        self != Kernel::Modern
    }

    /// The value of one of [`PARAMETERS`].
    pub fn value(self, name: &str) -> u64 {
        let row = PARAMETERS.iter().find(|row| row.name == name);
        row.map_or(0, |row| row.values[Kernel::ALL.iter().position(|kernel| *kernel == self).unwrap_or(0)])
    }
}

/// One number of the model.
#[derive(Clone, Copy, Debug)]
pub struct Parameter {
    /// Its name, which ends with the unit.
    pub name: &'static str,
    /// Its value in each of [`Kernel::ALL`].
    pub values: [u64; 3],
    /// The least and the most that it may be.
    pub range: (u64, u64),
    /// Where values and range come from.
    pub source: &'static str,
}

const fn row(name: &'static str, values: [u64; 3], range: (u64, u64), source: &'static str) -> Parameter {
    Parameter { name, values, range, source }
}

/// All of them.
pub const PARAMETERS: &[Parameter] = &[
    row(
        "background_percent",
        [10, 5, 10],
        (5, 10),
        "dirty_background_ratio in mm/page-writeback.c of 2.6.18, 2.6.28, 5.4",
    ),
    row(
        "limit_percent",
        [40, 10, 20],
        (10, 40),
        "vm_dirty_ratio in mm/page-writeback.c of 2.6.18, 2.6.28, 5.4",
    ),
    row(
        "wake_ms",
        [5_000, 5_000, 5_000],
        (1_000, 5_000),
        "dirty_writeback_interval in mm/page-writeback.c; range: Documentation/sysctl/vm",
    ),
    row(
        "expire_ms",
        [30_000, 30_000, 30_000],
        (5_000, 30_000),
        "dirty_expire_interval in mm/page-writeback.c; range: commit=5 of ext3 to the default",
    ),
    row(
        "turn_pages",
        [1_024, 1_024, 1_024],
        (1_024, 32_768),
        "MAX_WRITEBACK_PAGES in mm/page-writeback.c of 2.6.18, 2.6.28; MIN_WRITEBACK_PAGES in fs/fs-writeback.c of 5.4",
    ),
    row(
        "chunk_pages",
        [1_536, 1_536, 0],
        (24, 1_536),
        "sync_writeback_pages() in mm/page-writeback.c: 1.5 ratelimit_pages, which is 4 MiB from 512 MiB of memory a processor on",
    ),
    row(
        "pause_max_ms",
        [0, 0, 200],
        (10, 200),
        "MAX_PAUSE in mm/page-writeback.c of 5.4; range: wb_max_pause() for short queues",
    ),
    row(
        "read_ahead_kib",
        [128, 128, 128],
        (128, 1_024),
        "VM_MAX_READAHEAD in include/linux/mm.h; range: the values that vendors of arrays advise",
    ),
    row(
        "io_kib",
        [512, 512, 1_280],
        (128, 1_280),
        "BLK_DEF_MAX_SECTORS in include/linux/blkdev.h: 1024 sectors, 2560 in 5.4; range: controllers with less",
    ),
    row(
        "in_flight",
        [128, 128, 128],
        (32, 256),
        "BLKDEV_MAX_RQ in include/linux/blkdev.h; range: queues of controllers, two queues of processors",
    ),
    row(
        "ordered",
        [1, 1, 0],
        (0, 1),
        "ext3 with data=ordered, its default: Documentation/filesystems/ext3.txt; ext4 and XFS wait for one file",
    ),
    row(
        "journal_kib",
        [16, 16, 16],
        (12, 64),
        "fs/jbd/commit.c: a descriptor, the blocks of the metadata (an inode, a bitmap), a commit record; range: few to many blocks",
    ),
    row(
        "nfs_read_ahead_transfers",
        [15, 15, 0],
        (0, 15),
        "NFS_MAX_READAHEAD in fs/nfs: RPC_DEF_SLOT_TABLE - 1; from 5.4 on the default of all file systems",
    ),
];

/// How a cache is set up.
#[derive(Clone, Debug, PartialEq)]
pub struct CacheConfig {
    /// Whose rules.
    pub kernel: Kernel,
    /// Bytes of memory of the machine.
    pub memory: u64,
    /// Bytes of it that the cache can have.
    pub size: u64,
    /// Dirty memory from which on it is written back, in percent.
    pub background_percent: u64,
    /// Dirty memory from which on writers wait, in percent.
    pub limit_percent: u64,
    /// How often it is looked whether something is old enough to be written back.
    pub wake: Span,
    /// How old that is.
    pub expire: Span,
    /// Bytes that a stream of reads is ahead at most; 0: none.
    pub read_ahead: u64,
    /// Bytes of a transfer at most.
    pub io: u64,
    /// Transfers that are written back at a time at most.
    pub in_flight: u64,
    /// Whether a sync writes back all files.
    pub ordered: bool,
    /// Pages that count as used at the same time; 0: so many that there are 1024 generations.
    pub grain: u64,
    /// Most extents: of what is used at random, less than the cache could have.
    pub extents: u64,
}

/// About 14 MB.
const EXTENTS: u64 = 1 << 17;

impl CacheConfig {
    /// What `kernel` does on a machine with so many bytes of memory, all of which the cache can have.
    pub fn new(kernel: Kernel, memory: u64) -> CacheConfig {
        let value = |name| kernel.value(name);
        CacheConfig {
            kernel,
            memory,
            size: memory,
            background_percent: value("background_percent"),
            limit_percent: value("limit_percent"),
            wake: Span::from_millis(value("wake_ms")),
            expire: Span::from_millis(value("expire_ms")),
            read_ahead: value("read_ahead_kib") << 10,
            io: value("io_kib") << 10,
            in_flight: value("in_flight"),
            ordered: value("ordered") == 1,
            grain: 0,
            extents: EXTENTS,
        }
    }

    /// The same for a client of NFS, in transfers of so many bytes.
    pub fn of_client(kernel: Kernel, memory: u64, transfer: u64) -> CacheConfig {
        let mut config = CacheConfig::new(kernel, memory);
        let ahead = kernel.value("nfs_read_ahead_transfers") * transfer;
        if ahead > 0 {
            config.read_ahead = ahead;
        }
        config.io = transfer.max(PAGE);
        // The slots bound them.
        config.in_flight = u64::MAX;
        config.ordered = false;
        config
    }

    /// Dirty pages from which on they are written back, and from which on writers wait.
    pub fn limits(&self) -> (u64, u64) {
        // Before 2.6.22 percent of all memory, but no more than half of what is not in use otherwise; later of what can be dirty.
        let (of, most) = match self.kernel {
            Kernel::Rhel5 => (self.memory, self.size / 2),
            _ => (self.size, self.size),
        };
        let limit = (of / 100 * self.limit_percent).min(most) / PAGE;
        let background = of / 100 * self.background_percent / PAGE;
        (if background >= limit { limit / 2 } else { background }, limit)
    }
}
