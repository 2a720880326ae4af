//! What a request says, kind by kind.

use alloc::vec::Vec;

use super::codec::{Reader, Record, Value, WireError, record};
use super::reply::{Identity, Timestamp};

/// The handle of a message that names its file by path.
pub const NO_HANDLE: u32 = 0;

/// The session of a [`Hello`] that begins a new one.
pub const NO_SESSION: [u8; 16] = [0; 16];

record! {
    /// The first message of a connection. Answered with [`Welcome`](super::Welcome).
    Hello<'a> {
        /// [`MAGIC`](super::MAGIC).
        magic: u64,
        /// [`VERSION`](super::VERSION).
        version: u16,
        /// How the client proves who it is, see [`auth`](super::auth).
        auth: u8,
        /// The session to go on with; zeros for a new one.
        session: [u8; 16],
        /// Of a forwarder: its index among `nodes`.
        node: u32,
        /// Of a forwarder: how many work together. 0: the client is none.
        nodes: u32,
        /// Of a forwarder: changes when its process does.
        instance: u64,
        /// The client process: 128 random bits, the same in all its sessions. See [`RequestOrigin`](super::RequestOrigin).
        client: [u8; 16],
        /// See [`hello`](super::hello).
        flags: u32,
        /// The export to use; empty for the first one.
        export: &'a [u8],
        /// What people call the client: `node:pid`, or a program's name.
        name: &'a [u8],
    }
}

record! {
    /// Opens the file at `path` under a `handle` that the client chose. Answered with [`Opened`](super::Opened).
    Open<'a> {
        /// Not in use in this session, and not [`NO_HANDLE`].
        handle: u32,
        /// See [`open`](super::open).
        flags: u32,
        /// Permissions of a file that is created; the client has applied its umask.
        mode: u32,
        /// With [`open::AGAIN`](super::open::AGAIN): what [`Opened`](super::Opened) said before. Else zero.
        identity: Identity,
        /// Path below the export's root.
        path: &'a [u8],
    }
}

record! {
    /// Gives up a handle. Answered with [`Gone`](super::Gone).
    Close {
        /// The handle.
        handle: u32,
    }
}

record! {
    /// The fields of a read and of a write. A read is answered with the data as payload, fewer bytes at the end of the file; a write,
    /// whose data is the payload, with [`Written`](super::Written).
    Transfer {
        /// The open file.
        handle: u32,
        /// See [`transfer`](super::transfer).
        flags: u32,
        /// First byte.
        offset: u64,
        /// Length in bytes.
        bytes: u32,
        /// The application; 0 is unknown.
        app: u32,
        /// The client process; 0 is unknown.
        client: u32,
        /// When it was issued, on the client's clock: nanoseconds since the Unix epoch; 0 is unknown.
        issued: u64,
    }
}

record! {
    /// Makes what was written to a file durable. Answered with [`Synced`](super::Synced).
    Sync {
        /// The open file.
        handle: u32,
        /// 1: the data only, as `fdatasync(2)`.
        data_only: u8,
    }
}

record! {
    /// Asks for attributes. Answered with [`Attr`](super::Attr).
    GetAttr<'a> {
        /// The open file, or [`NO_HANDLE`].
        handle: u32,
        /// Else its path; a symbolic link is not followed.
        path: &'a [u8],
    }
}

record! {
    /// Sets attributes. Answered with [`Attr`](super::Attr).
    SetAttr<'a> {
        /// The open file, or [`NO_HANDLE`].
        handle: u32,
        /// What to set.
        change: Change,
        /// With a path: the file that it must be, or `ESTALE`. Zero: any.
        identity: Identity,
        /// Else the path; a symbolic link is not followed.
        path: &'a [u8],
    }
}

record! {
    /// Attributes to set.
    #[derive(Default)]
    Change {
        /// Which, see [`set`](super::set).
        which: u32,
        /// Permissions.
        mode: u32,
        /// Owner.
        uid: u32,
        /// Group.
        gid: u32,
        /// Bytes.
        size: u64,
        /// Last access.
        atime: Timestamp,
        /// Last change of the data.
        mtime: Timestamp,
    }
}

record! {
    /// Allocates or frees space, as `fallocate(2)`. Answered with nothing.
    Allocate {
        /// The open file.
        handle: u32,
        /// `FALLOC_FL_...`
        mode: u32,
        /// First byte.
        offset: u64,
        /// Bytes.
        bytes: u64,
    }
}

record! {
    /// Finds data or a hole, as `lseek(2)`. Answered with [`Offset`](super::Offset).
    Seek {
        /// The open file.
        handle: u32,
        /// 1: a hole, 0: data.
        hole: u8,
        /// Where to begin.
        offset: u64,
    }
}

record! {
    /// A lock of a file.
    #[derive(Default, Hash)]
    Lock {
        /// What it is of: see [`lock`](super::lock).
        space: u8,
        /// Of which kind: see [`lock`](super::lock).
        kind: u8,
        /// For whom the client has it, as the client counts them.
        owner: u64,
        /// Its first byte.
        first: u64,
        /// Its last byte.
        last: u64,
        /// The process that has it, for people; 0 is unknown, or one of another client.
        process: u32,
    }
}

impl Lock {
    /// What gives back all that an owner has in a space.
    pub fn all_back(space: u8, owner: u64) -> Lock {
        Lock { space, kind: super::lock::NONE, owner, first: 0, last: u64::MAX, process: 0 }
    }
}

record! {
    /// Takes a lock of a file for an owner, in place of what that has of these bytes; one of no kind gives them back. Never waits: `EAGAIN`
    /// if somebody else has it, `EBUSY` while it is kept for who had it before the server was started anew, `ESTALE` if it may have been
    /// another's since, `ENOLCK` if the session has as many as it may, `EOPNOTSUPP` if locks hold among one client's programs only.
    SetLock {
        /// The open file.
        handle: u32,
        /// From which process of the server the client had it before: its `instance`. 0: it had none.
        again: u64,
        /// In which session: the first eight bytes of its name, as a number.
        session: u64,
        /// The lock.
        lock: Lock,
    }
}

record! {
    /// Asks who has a lock that is in the way of this one. Answered with a [`Lock`]; of no kind: nobody.
    GetLock {
        /// The open file.
        handle: u32,
        /// The lock.
        lock: Lock,
    }
}

record! {
    /// Lists a directory. Answered with [`Entry`](super::Entry) records as payload, each in front of its name; none at the end.
    ReadDir<'a> {
        /// Where to go on: the `next` of the last entry read, or 0.
        after: u64,
        /// Most bytes of payload.
        bytes: u32,
        /// The directory.
        path: &'a [u8],
    }
}

record! {
    /// Makes a directory, a FIFO, a socket, a device or an empty file, by the type in `mode`. Answered with [`Attr`](super::Attr).
    MakeNode<'a> {
        /// Type and permissions.
        mode: u32,
        /// Device number of a device.
        device: u32,
        /// Path.
        path: &'a [u8],
    }
}

record! {
    /// Makes a symbolic link. Answered with [`Attr`](super::Attr).
    Symlink<'a> {
        /// What it says.
        target: &'a [u8],
        /// Path.
        path: &'a [u8],
    }
}

record! {
    /// Gives a file another name. Answered with [`Attr`](super::Attr).
    Link<'a> {
        /// The file.
        path: &'a [u8],
        /// The other name.
        to: &'a [u8],
    }
}

record! {
    /// Reads a symbolic link. Answered with its text as payload.
    ReadLink<'a> {
        /// Path.
        path: &'a [u8],
    }
}

record! {
    /// Removes a name. Answered with [`Gone`](super::Gone).
    Unlink<'a> {
        /// 1: of an empty directory; 0: of anything else.
        directory: u8,
        /// Path.
        path: &'a [u8],
    }
}

record! {
    /// Renames, as `renameat2(2)`. Answered with [`Gone`](super::Gone), of the file that was replaced.
    Rename<'a> {
        /// `RENAME_...`
        flags: u32,
        /// Path.
        path: &'a [u8],
        /// The new one.
        to: &'a [u8],
    }
}

record! {
    /// Asks for the file system's space. Answered with [`Space`](super::Space).
    StatFs {}
}

record! {
    /// Reads an extended attribute. Answered with its value as payload.
    GetXattr<'a> {
        /// The open file, or [`NO_HANDLE`].
        handle: u32,
        /// Else its path.
        path: &'a [u8],
        /// The attribute.
        name: &'a [u8],
    }
}

record! {
    /// Sets an extended attribute to the payload. Answered with nothing.
    SetXattr<'a> {
        /// The open file, or [`NO_HANDLE`].
        handle: u32,
        /// `XATTR_...`
        flags: u32,
        /// With a path: the file that it must be, or `ESTALE`. Zero: any.
        identity: Identity,
        /// Else its path.
        path: &'a [u8],
        /// The attribute.
        name: &'a [u8],
    }
}

record! {
    /// Lists extended attributes. Answered with their names as payload, each followed by a zero byte.
    ListXattr<'a> {
        /// The open file, or [`NO_HANDLE`].
        handle: u32,
        /// Else its path.
        path: &'a [u8],
    }
}

record! {
    /// Removes an extended attribute. Answered with nothing.
    RemoveXattr<'a> {
        /// The open file, or [`NO_HANDLE`].
        handle: u32,
        /// With a path: the file that it must be, or `ESTALE`. Zero: any.
        identity: Identity,
        /// Else its path.
        path: &'a [u8],
        /// The attribute.
        name: &'a [u8],
    }
}

record! {
    /// Asks which target holds a byte of an open file. Answered with [`Striping`](super::Striping).
    GetLayout {
        /// The open file.
        handle: u32,
    }
}

record! {
    /// Asks for ranges at the end of a striped file, from the server of its names, which gives the end to one client at
    /// a time, in the order in which they ask. Answered with [`Reserved`](super::Reserved), when the end is free, and a
    /// payload of one [`Range`](super::Range) for each record. The payload is one [`AppendRecord`] for each record, in
    /// their writers' order. A record that is known from before gets its old range. Fails with `EINPROGRESS` if
    /// somebody has begun to set the size and not settled: that is to be finished first; with `EALREADY` if it has
    /// waited for long: the same request keeps its place when it comes again.
    Reserve {
        /// The open file.
        handle: u32,
        /// 0, or the ticket of a reservation that waits for `at_least`.
        ticket: u64,
        /// Bytes that the file has at least, as the client has found since it got the ticket; 0: it has not looked.
        at_least: u64,
    }
}

record! {
    /// A record to be appended: in the payload of a [`Reserve`].
    AppendRecord {
        /// The client process that appends.
        client: [u8; 16],
        /// Its request.
        number: u64,
        /// The step of its request.
        step: u16,
        /// The user in whose session it was asked for.
        uid: u32,
        /// Bytes.
        bytes: u32,
    }
}

/// Bytes of an [`AppendRecord`].
pub const APPEND_RECORD_BYTES: usize = 16 + 8 + 2 + 4 + 4;

record! {
    /// Asks for the end of a striped file, to set its size. Answered with [`Reserved`](super::Reserved), when the end is free. The size is
    /// noted with the file until it is [settled](Settle): whoever opens the file when its client has failed sets it. Fails with
    /// `EALREADY` as a [`Reserve`] does.
    Resize {
        /// The open file.
        handle: u32,
        /// The size to set. The largest number: to finish what somebody has begun, which the payload of the answer then says as one
        /// [`Range`](super::Range) there, or just to have the end.
        size: u64,
    }
}

record! {
    /// Gives the end of a file back. Answered with nothing.
    Settle {
        /// The open file.
        handle: u32,
        /// Of what it settles.
        ticket: u64,
        /// Where the file ends now. The largest number: it is not known, and a size that was to be set stays begun.
        end: u64,
    }
}

record! {
    /// Asks for nothing. Answered with the server's time, in nanoseconds since the Unix epoch, as [`Offset`](super::Offset).
    Ping {}
}

record! {
    /// Asks whether the session's export leads back to where the trail has been, over servers that it is connected to. Answered with
    /// nothing; with `ELOOP`, and which servers make the ring; with `EAGAIN`, if a server on the way does not answer.
    Trail<'a> {
        /// The links between servers that it has come by: of each 8 bytes that were drawn at random, a `u16` and so many bytes, where the
        /// server at its end is. None: whether there is a ring anywhere behind the export.
        links: &'a [u8],
    }
}

record! {
    /// Asks for the server's state. Answered with JSON as payload.
    Status {}
}

record! {
    /// Changes the scheduler of the session's export, live; only in the name of the server's own user or of root.
    /// Answered with nothing.
    Configure<'a> {
        /// A scheduler and its parameters, as on a command line.
        scheduler: &'a [u8],
    }
}

record! {
    /// Reads what arrives and completes at the gate of the session's export; only in the name of the server's own user or of root.
    /// Answered with a piece of the recording as payload (see [`recording`](crate::recording)).
    ReadRecording {
        /// The recording, by a number of the reader's choosing.
        name: u64,
        /// The first event that the reader does not have. 0: the recording begins if there is none. The largest number: it ends.
        from: u64,
        /// Most bytes of the answer.
        bytes: u32,
    }
}

record! {
    /// Reads who slows whom down at the gate of the session's export. Answered with JSON as payload: a [`Page`](crate::blame::Page), or
    /// `null` if the gate keeps no accounts. Where it says what is `sampled`, amounts are those of samples, to be multiplied by
    /// `occupied / sampled`.
    ReadAccounts {
        /// The first account that is asked for; 0 first, then as the answer before says.
        from: u32,
    }
}

record! {
    /// Ends the session: its handles are closed, its replies forgotten. Answered with nothing.
    Goodbye {}
}

record! {
    /// Wants a turn, from a coordinator. Answered with [`Granted`](super::Granted) when it begins, however long that takes. Sent again
    /// with the same id after a lost connection, it is the same claim.
    Claim<'a> {
        /// Bytes that it means to move; 0 is unknown.
        bytes: u64,
        /// Its share, where the coordinator goes by weights; 0 counts as 1.
        weight: u32,
        /// How far its turns lie apart, in nanoseconds; 0 is unknown.
        period: u64,
        /// The file system, by the name that all its clients call it.
        place: &'a [u8],
        /// Targets of the file system: ascending numbers of 4 bytes each; none: all of them.
        members: &'a [u8],
        /// Claims with the same name (of the processes of a job) may hold the same targets together; empty: with nobody.
        party: &'a [u8],
        /// What people call the job.
        label: &'a [u8],
    }
}

record! {
    /// Ends a turn. Answered with nothing.
    Release {
        /// Of its grant.
        token: u64,
        /// Bytes that were moved in it; 0 is unknown.
        bytes: u64,
    }
}

record! {
    /// Keeps a turn for another lease. Answered with [`Renewed`](super::Renewed).
    Renew {
        /// Of its grant.
        token: u64,
    }
}

record! {
    /// Gives up waiting for a turn. Answered with nothing; the claim then with `ECANCELED`.
    Cancel {
        /// The id of the claim.
        claim: u64,
    }
}

record! {
    /// Takes a turn away from whoever holds it; only in the name of its user, the coordinator's, or root. Answered with nothing.
    Evict {
        /// Of its grant.
        token: u64,
    }
}

record! {
    /// Tells what a gate asks for of a [global policy](crate::global_policy), and what it holds of it; only in the name of the
    /// coordinator's own user or of root. Answered with [`Allotments`](super::Allotments).
    ReportUse<'a> {
        /// The gate: a number that it has drawn at random.
        gate: u64,
        /// By which policy it goes: [`Terms::digest`](crate::global_policy::Terms::digest).
        terms: u64,
        /// Counts the gate's reports, from 1.
        number: u64,
        /// The report whose answer it goes by; 0: by none.
        applied: u64,
        /// Its part of every cap, in 2^-32.
        part: u32,
        /// 1: the gate goes, and holds nothing any more.
        leaves: u8,
        /// For each class of the gate [`CLASS_USE_BYTES`]: the application, the branch that it is within (0: none), then bytes a second
        /// that it asks for, has used, and may use.
        classes: &'a [u8],
    }
}

/// Bytes of a class in a [`ReportUse`].
pub const CLASS_USE_BYTES: usize = 2 * 4 + 3 * 8;
/// Most classes of a [`ReportUse`]: its fields are less than 64 KiB.
pub const CLASSES_MAX: usize = 2_000;
