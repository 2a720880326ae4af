//! What arrives at a gate.

use crate::time::Time;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($int:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
        pub struct $name(pub $int);

        impl core::fmt::Display for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

id! {
    /// Names a request for its driver. The gate hands it back and never reads anything into it.
    RequestId(u64)
}
id! {
    /// A file, or anything else with a byte range of its own.
    FileId(u64)
}
id! {
    /// The application that a request belongs to; 0 is unknown.
    AppId(u32)
}
id! {
    /// The client (process, connection) that sent a request; 0 is unknown.
    ClientId(u32)
}
id! {
    /// One data server, or one stripe member of a store.
    TargetId(u32)
}

/// What a request does to its byte range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Op {
    /// Reads the range.
    Read,
    /// Writes the range.
    Write,
}

impl Op {
    /// `r` or `w`, as in a trace.
    pub const fn letter(self) -> char {
        match self {
            Op::Read => 'r',
            Op::Write => 'w',
        }
    }

    /// Whether two overlapping requests with these operations must complete in arrival order.
    pub fn conflicts(self, other: Op) -> bool {
        self == Op::Write || other == Op::Write
    }
}

/// One read or write of a contiguous byte range of one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The driver's name for it.
    pub id: RequestId,
    /// The file.
    pub file: FileId,
    /// Read or write.
    pub op: Op,
    /// First byte.
    pub offset: u64,
    /// Length in bytes, not zero; `offset + bytes` fits 64 bits.
    pub bytes: u32,
    /// The application that it belongs to.
    pub app: AppId,
    /// The client that sent it.
    pub client: ClientId,
    /// The target that holds it, where the driver knows better than the gate's layout.
    pub target: Option<TargetId>,
    /// When the client issued it, on the client's clock.
    pub issued: Option<Time>,
}

impl Request {
    /// One past the last byte.
    pub const fn end(&self) -> u64 {
        self.offset + self.bytes as u64
    }
}
