//! What answers a request, and the values that both have.

use alloc::vec::Vec;

use super::VERSION;
use super::codec::{Reader, Record, Value, WireError, record};

record! {
    /// Answers [`Hello`](super::Hello).
    Welcome {
        /// The server's version.
        version: u16,
        /// 1 if the session of the `Hello` goes on: handles and replies are still there. 0 if this is a new one.
        resumed: u8,
        /// The session, a secret between its two ends.
        session: [u8; 16],
        /// Changes when the server's process does.
        instance: u64,
        /// Requests that the client may have underway.
        credits: u32,
        /// Bytes of data (to write, or asked for) that the client may have underway.
        credit_bytes: u64,
        /// Most bytes of one read or write.
        transfer_bytes_max: u32,
        /// Most bytes of a record that is appended as one.
        append_bytes_max: u32,
        /// What the export remembers of requests with an origin: as long as this number is the same, it knows all that it has carried
        /// out, in earlier sessions too. 0: it knows only those of the session.
        answers: u64,
        /// The export's verifier now: see [`Synced`].
        verifier: u64,
        /// The user that the server takes the client for.
        uid: u32,
        /// Its group.
        gid: u32,
        /// 1 if the client may act in other users' names.
        trusted: u8,
        /// Among whom locks of files hold: see [`locks`](super::locks).
        locks: u8,
        /// The forwarder's index among `nodes`.
        node: u32,
        /// Forwarders that work together.
        nodes: u32,
        /// The export's stripes.
        striping: Striping,
        /// The server's time, in nanoseconds since the Unix epoch.
        time: u64,
    }
}

impl Welcome {
    /// To a session with a server that stands alone: what else it is, remembers and allows is for who welcomes to add.
    pub const fn to(session: [u8; 16], resumed: bool) -> Welcome {
        Welcome {
            version: VERSION,
            resumed: resumed as u8,
            session,
            instance: 0,
            credits: 0,
            credit_bytes: 0,
            transfer_bytes_max: 0,
            append_bytes_max: 0,
            answers: 0,
            verifier: 0,
            uid: 0,
            gid: 0,
            trusted: 0,
            locks: 0,
            node: 0,
            nodes: 0,
            striping: Striping { first_target: 0, stripe_bytes: 0, targets: 1 },
            time: 0,
        }
    }
}

record! {
    /// Why a request failed; with id 0, why the connection ends.
    Failure<'a> {
        /// For people; may be empty.
        text: &'a [u8],
    }
}

record! {
    /// Answers [`Open`](super::Open).
    Opened {
        /// Which file it is, to know it again.
        identity: Identity,
        /// A size that is to be set before anything is written through the handle; the largest number: none.
        pending_size: u64,
        /// 1: its objects were given their name by this, so it has none yet.
        is_new: u8,
        /// Its attributes.
        attr: Attr,
    }
}

record! {
    /// Tells a file from every other one that was, is or will be in an export.
    #[derive(Default, Hash)]
    Identity {
        /// Its number.
        inode: u64,
        /// What tells it from an earlier file with that number (its time of birth, in nanoseconds), and from one of another file
        /// system in the export.
        generation: u64,
    }
}

record! {
    /// Answers a write.
    Written {
        /// Where it went.
        offset: u64,
        /// Bytes; fewer than sent if the store is full behind them.
        bytes: u32,
        /// See [`Synced`].
        verifier: u64,
    }
}

record! {
    /// Answers a [`Sync`](super::Sync).
    Synced {
        /// Changes when data that was written and not synced may be lost: writes that were answered with another one must be made again.
        verifier: u64,
    }
}

record! {
    /// Answers what may have taken away the last that held a file: its name, or its handle.
    Gone {
        /// What its objects are named by, which nobody can reach any more: whoever is told discards them. Zeros: none.
        object: [u8; 16],
    }
}

impl Gone {
    /// Nothing is gone.
    pub const NONE: Gone = Gone { object: [0; 16] };
}

record! {
    /// Answers a [`Reserve`](super::Reserve), and a [`Resize`](super::Resize).
    Reserved {
        /// To settle it by.
        ticket: u64,
        /// Nanoseconds after which somebody else may get the file's end, if it is not settled.
        lease: u64,
        /// Of a Reserve, 1: the server does not know where the file ends: find out, and ask again with the ticket; no ranges are given yet.
        /// Of a Resize, 1: ranges have been given that nobody has settled: the size is to be set with [`FENCE`](super::set::FENCE).
        look: u8,
        /// How many handles write to the file elsewhere than at its end: if any, records are to be written with
        /// [`EXTEND`](super::transfer::EXTEND).
        writers: u32,
    }
}

record! {
    /// Where a record goes: in the payload of [`Reserved`].
    Range {
        /// Its first byte.
        offset: u64,
        /// 0: the range is new. 1: the record is there already, all of it. 2: it had the range before, and it is not
        /// known whether it is there.
        is_there: u8,
    }
}

/// Values of [`Range::is_there`].
pub mod range {
    /// The range is new.
    pub const NEW: u8 = 0;
    /// The record is there already, all of it.
    pub const THERE: u8 = 1;
    /// The record had the range before, and nobody knows whether it is there.
    pub const EARLIER: u8 = 2;
}

/// Bytes of a [`Range`].
pub const RANGE_BYTES: usize = 8 + 1;

record! {
    /// A time: seconds since the Unix epoch, and nanoseconds.
    #[derive(Default)]
    Timestamp {
        /// Seconds.
        seconds: i64,
        /// Nanoseconds below one second.
        nanoseconds: u32,
    }
}

record! {
    /// A file's attributes, as `stat(2)`.
    #[derive(Default)]
    Attr {
        /// Its number.
        inode: u64,
        /// Bytes.
        size: u64,
        /// Blocks of 512 bytes in use.
        blocks: u64,
        /// Last access.
        atime: Timestamp,
        /// Last change of the data.
        mtime: Timestamp,
        /// Last change of anything.
        ctime: Timestamp,
        /// Type and permissions.
        mode: u32,
        /// Names.
        links: u32,
        /// Owner.
        uid: u32,
        /// Group.
        gid: u32,
        /// Device number of a device.
        device: u32,
        /// Size of I/O that suits the file.
        block_bytes: u32,
        /// See [`attr`].
        flags: u32,
        /// For a client that stripes files: what the file's objects are named by. Zeros: none.
        object: [u8; 16],
    }
}

/// Flags of an [`Attr`].
pub mod attr {
    /// It has no extended attributes, so no access control list and no security label.
    pub const NO_XATTRS: u32 = 1;
    /// Of an open file without a name: it and its objects are kept until nobody has it open.
    pub const KEPT: u32 = 1 << 1;
    /// From here on, see [`Attr::file_system`](super::Attr::file_system).
    pub const FILE_SYSTEM: u32 = 8;
}

/// The least size of I/O that a client names for a regular file each read and write of which is a request: the C library's streams, and
/// Python's, take it for their buffers, and with a disk's 4 KiB most of the time goes by on the way to the server and back.
pub const BUFFER_BYTES_MIN: u32 = 64 << 10;

impl Attr {
    /// Size of I/O that suits the file where nothing is cached on the way.
    pub fn buffer_bytes(&self) -> u32 {
        const TYPE: u32 = 0o170_000;
        const REGULAR: u32 = 0o100_000;
        if self.mode & TYPE == REGULAR { self.block_bytes.max(BUFFER_BYTES_MIN) } else { self.block_bytes }
    }

    /// Tells inodes with one number apart that are of different file systems in an export: 0 is the one of its root.
    pub fn file_system(&self) -> u32 {
        self.flags >> attr::FILE_SYSTEM
    }

    /// Sets [`Attr::file_system`], of which there is room for the lowest 24 bits.
    pub fn set_file_system(&mut self, number: u32) {
        let others = self.flags & ((1 << attr::FILE_SYSTEM) - 1);
        self.flags = number << attr::FILE_SYSTEM | others;
    }
}

record! {
    /// An entry of a directory, in front of its name.
    Entry {
        /// Where the next read goes on.
        next: u64,
        /// Bytes of the name.
        name_bytes: u16,
        /// The attributes.
        attr: Attr,
    }
}

record! {
    /// A position in a file, or a time.
    Offset {
        /// The number.
        offset: u64,
    }
}

record! {
    /// A file system's space, as `statvfs(3)`.
    #[derive(Default)]
    Space {
        /// Bytes of a block.
        block_bytes: u64,
        /// Blocks.
        blocks: u64,
        /// Free blocks.
        blocks_free: u64,
        /// Free blocks for users.
        blocks_available: u64,
        /// Files.
        files: u64,
        /// Free files.
        files_free: u64,
        /// Most bytes of a name.
        name_bytes_max: u32,
    }
}

record! {
    /// Round-robin stripes; `targets` 1: all on one target.
    Striping {
        /// Target of the first byte.
        first_target: u32,
        /// Bytes of a stripe.
        stripe_bytes: u64,
        /// Targets.
        targets: u32,
    }
}

record! {
    /// Answers a [`Claim`](super::Claim): the turn has begun.
    Granted {
        /// Larger than that of every turn before.
        token: u64,
        /// How long it counts without a [`Renew`](super::Renew), in nanoseconds.
        lease: u64,
        /// How long the claim has waited, in nanoseconds.
        waited: u64,
        /// Thousandths of the throughput that it may use.
        share: u32,
        /// 0: its targets were free; 1: it had waited too long, and others hold them too; 2: its party holds them.
        admission: u8,
    }
}

record! {
    /// Answers a [`Renew`](super::Renew).
    Renewed {
        /// How long the turn now counts, in nanoseconds.
        lease: u64,
    }
}

record! {
    /// Answers a [`ReportUse`](super::ReportUse): what the gate may use from now on.
    Allotments<'a> {
        /// The report that it answers.
        number: u64,
        /// How long it counts, from when that report was sent, in nanoseconds.
        lease: u64,
        /// How long from that report to the next, in nanoseconds.
        every: u64,
        /// The gate's part of every cap, in 2^-32, for when nobody answers.
        part: u32,
        /// 1: the coordinator has begun anew, and goes on with what gates say that they hold.
        learns: u8,
        /// For each class that was reported [`CLASS_ALLOTMENT_BYTES`]: the application, the branch that it is within (0: none), and bytes a
        /// second.
        classes: &'a [u8],
    }
}

/// Bytes of a class in [`Allotments`].
pub const CLASS_ALLOTMENT_BYTES: usize = 2 * 4 + 8;

/// Bytes of an [`Entry`] before its name.
pub const ENTRY_BYTES: usize = 8 + 2 + ATTR_BYTES;
const ATTR_BYTES: usize = 3 * 8 + 3 * 12 + 7 * 4 + 16;

impl Entry {
    /// Takes the first entry and its name off a payload of [`ReadDir`](super::ReadDir).
    pub fn split_from(payload: &[u8]) -> Result<(Entry, &[u8], &[u8]), WireError> {
        let truncated = |expected| WireError::Truncated { expected, found: payload.len() };
        let (fields, rest) = payload.split_at_checked(ENTRY_BYTES).ok_or(truncated(ENTRY_BYTES))?;
        let entry = Entry::decode(fields)?;
        let name_bytes = usize::from(entry.name_bytes);
        let (name, rest) = rest.split_at_checked(name_bytes).ok_or(truncated(ENTRY_BYTES + name_bytes))?;
        Ok((entry, name, rest))
    }
}
