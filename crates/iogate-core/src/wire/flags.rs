//! What the flags of requests mean.

/// Flags of an [`Open`](super::Open).
pub mod open {
    /// For reading.
    pub const READ: u32 = 1;
    /// For writing.
    pub const WRITE: u32 = 1 << 1;
    /// Create it if it is not there.
    pub const CREATE: u32 = 1 << 2;
    /// With `CREATE`: fail if it is there.
    pub const EXCLUSIVE: u32 = 1 << 3;
    /// Cut it to nothing.
    pub const TRUNCATE: u32 = 1 << 4;
    /// Do not follow a symbolic link in the last place.
    pub const NO_FOLLOW: u32 = 1 << 5;
    /// It must be a directory.
    pub const DIRECTORY: u32 = 1 << 6;
    /// A file without a name in the directory `path`.
    pub const TEMPORARY: u32 = 1 << 7;
    /// Opened before, in a session that the server has forgotten: the same file or `ESTALE`. Not with `TRUNCATE`
    /// or `EXCLUSIVE`.
    pub const AGAIN: u32 = 1 << 8;
    /// With `WRITE`: all writes go to the end of the file.
    pub const APPEND: u32 = 1 << 9;
    /// The client reads and writes by other servers, too: what this server has passed on is not all that the client has written.
    pub const SPREAD: u32 = 1 << 10;
}

/// Flags of a [`Transfer`](super::Transfer).
pub mod transfer {
    /// At the end of the file, wherever that is when the write's turn comes.
    pub const APPEND: u32 = 1;
    /// Answered when the data is durable.
    pub const DATA_SYNC: u32 = 1 << 1;
    /// Answered when the data and all attributes are durable.
    pub const SYNC: u32 = 1 << 2;
    /// Of a write: it extends the file. Refused with `EEXIST`, and nothing written, if the file already reaches behind its first byte, and
    /// that is not by the same bytes.
    pub const EXTEND: u32 = 1 << 3;
    /// Of a write: to ranges that records were given. Refused with `ECANCELED`, and nothing written, if the file was fenced since the
    /// handle was renewed.
    pub const RANGE: u32 = 1 << 4;
    /// From this bit on, for 16 bits: how much the application says that it moves in a burst; zeros: it says nothing. Who does not
    /// know of it leaves it out of account.
    pub const BURST_BIT: u32 = 16;

    /// The flags that say of an application how much it moves.
    pub const fn saying(burst: crate::BurstSize) -> u32 {
        (burst.bits() as u32) << BURST_BIT
    }

    /// How much the application moves that sends these flags.
    pub const fn said(flags: u32) -> crate::BurstSize {
        crate::BurstSize::from_bits((flags >> BURST_BIT) as u16)
    }
}

/// Which attributes a [`SetAttr`](super::SetAttr) sets.
pub mod set {
    /// The permissions.
    pub const MODE: u32 = 1;
    /// The owner.
    pub const UID: u32 = 1 << 1;
    /// The group.
    pub const GID: u32 = 1 << 2;
    /// The size.
    pub const SIZE: u32 = 1 << 3;
    /// The time of the last access.
    pub const ATIME: u32 = 1 << 4;
    /// The time of the last change of the data.
    pub const MTIME: u32 = 1 << 5;
    /// With `ATIME`: to the server's time.
    pub const ATIME_NOW: u32 = 1 << 6;
    /// With `MTIME`: to the server's time.
    pub const MTIME_NOW: u32 = 1 << 7;
    /// Of an open file, with `SIZE`: fences it first. Writes with `RANGE` are refused until their handles are renewed.
    pub const FENCE: u32 = 1 << 8;
    /// Of an open file: renews the handle, for ranges that are given from now on.
    pub const RENEW: u32 = 1 << 9;
}

/// What a [`Lock`](super::Lock) is of, and of which kind.
pub mod lock {
    /// Of bytes, as of `fcntl(2)`.
    pub const BYTES: u8 = 0;
    /// Of the open file, as of `flock(2)`. It knows nothing of the others.
    pub const FILE: u8 = 1;

    /// None.
    pub const NONE: u8 = 0;
    /// Others may share it.
    pub const SHARED: u8 = 1;
    /// Nobody else has one.
    pub const EXCLUSIVE: u8 = 2;
}

/// Among whom locks of an export's files hold, of a [`Welcome`](super::Welcome).
pub mod locks {
    /// Among the programs of one client, which keeps them.
    pub const NONE: u8 = 0;
    /// Among the clients of this server, which keeps them. Releases before had no other ones.
    pub const KEPT: u8 = 1;
    /// Among the clients of the server that has the names, to which this one passes them on.
    pub const PASSED_ON: u8 = 2;
    /// Among the clients of this server, which keeps them, and whoever else uses the files, as far as their file system carries locks.
    pub const TAKEN: u8 = 3;
}

/// How a client proves who it is; the payload of a [`Hello`](super::Hello) is the proof.
pub mod auth {
    /// Not at all.
    pub const NONE: u8 = 0;
    /// By the socket: the peer credentials of a Unix socket, or the certificate of a TLS connection.
    pub const SOCKET: u8 = 1;
    /// By a MUNGE credential.
    pub const MUNGE: u8 = 2;
}

/// Flags of a [`Hello`](super::Hello).
pub mod hello {
    /// The client stripes files over several servers: attributes carry the names of objects, and a file that it opens for writing is given
    /// one. Only for a forwarder that the server trusts.
    pub const STRIPES: u32 = 1;
    /// The client is one process, and has ended if its machine ends the connection (and does not reset it): the server keeps the session
    /// for a second more, unless requests of it are underway.
    pub const ENDS: u32 = 2;
}
