//! Every kind of request, and its number.

use alloc::vec::Vec;

use super::codec::{Record, WireError};
use super::flags::{open, transfer};
use super::request::*;

macro_rules! requests {
    ($($(#[$doc:meta])* $kind:literal $name:ident($record:ty),)*) => {
        /// The kinds of requests, by their numbers.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u16)]
        pub enum Kind {
            $($(#[$doc])* $name = $kind,)*
        }

        impl Kind {
            /// The kind of this number.
            pub const fn of(number: u16) -> Option<Kind> {
                match number {
                    $($kind => Some(Kind::$name),)*
                    _ => None,
                }
            }
        }

        /// What a client asks.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Request<'a> {
            $($(#[$doc])* $name($record),)*
        }

        impl<'a> Request<'a> {
            /// The kinds that there are, with their names, for tables and statistics.
            pub const KINDS: &'static [(u16, &'static str)] = &[$(($kind, stringify!($name)),)*];

            /// The number in the header.
            pub const fn kind(&self) -> u16 {
                match self {
                    $(Request::$name(_) => $kind,)*
                }
            }

            /// Reads the fields of a request of this kind.
            pub fn decode(kind: u16, fields: &'a [u8]) -> Result<Request<'a>, WireError> {
                match kind {
                    $($kind => Ok(Request::$name(Record::decode(fields)?)),)*
                    kind => Err(WireError::UnknownKind { kind }),
                }
            }

            /// Appends the fields.
            pub fn encode(&self, out: &mut Vec<u8>) {
                match self {
                    $(Request::$name(record) => record.encode(out),)*
                }
            }
        }
    };
}

requests! {
    /// Begins a connection.
    1 Hello(Hello<'a>),
    /// Ends the session.
    2 Goodbye(Goodbye),
    /// Asks for nothing.
    3 Ping(Ping),
    /// Looks for a ring of servers.
    4 Trail(Trail<'a>),
    /// Opens a file.
    10 Open(Open<'a>),
    /// Gives up a handle.
    11 Close(Close),
    /// Reads.
    12 Read(Transfer),
    /// Writes the payload.
    13 Write(Transfer),
    /// Makes a file durable.
    14 Sync(Sync),
    /// Allocates or frees space.
    15 Allocate(Allocate),
    /// Finds data or a hole.
    16 Seek(Seek),
    /// Asks for a file's stripes.
    17 GetLayout(GetLayout),
    /// Asks for ranges at a file's end.
    18 Reserve(Reserve),
    /// Gives a file's end back.
    19 Settle(Settle),
    /// Reads attributes.
    20 GetAttr(GetAttr<'a>),
    /// Sets attributes.
    21 SetAttr(SetAttr<'a>),
    /// Lists a directory.
    22 ReadDir(ReadDir<'a>),
    /// Makes a directory or a special file.
    23 MakeNode(MakeNode<'a>),
    /// Makes a symbolic link.
    24 Symlink(Symlink<'a>),
    /// Gives a file another name.
    25 Link(Link<'a>),
    /// Reads a symbolic link.
    26 ReadLink(ReadLink<'a>),
    /// Removes a name.
    27 Unlink(Unlink<'a>),
    /// Renames.
    28 Rename(Rename<'a>),
    /// Asks for space.
    29 StatFs(StatFs),
    /// Reads an extended attribute.
    30 GetXattr(GetXattr<'a>),
    /// Sets one to the payload.
    31 SetXattr(SetXattr<'a>),
    /// Lists them.
    32 ListXattr(ListXattr<'a>),
    /// Removes one.
    33 RemoveXattr(RemoveXattr<'a>),
    /// Asks for a file's end to set its size.
    34 Resize(Resize),
    /// Takes a lock of a file, or gives it back.
    35 SetLock(SetLock),
    /// Asks who has a lock of a file.
    36 GetLock(GetLock),
    /// Asks for the server's state.
    40 Status(Status),
    /// Changes the scheduler.
    41 Configure(Configure<'a>),
    /// Reads a recording of the gate.
    42 ReadRecording(ReadRecording),
    /// Reads accounts of the gate.
    43 ReadAccounts(ReadAccounts),
    /// Wants a turn.
    50 Claim(Claim<'a>),
    /// Ends a turn.
    51 Release(Release),
    /// Keeps a turn.
    52 Renew(Renew),
    /// Gives up waiting for a turn.
    53 Cancel(Cancel),
    /// Takes a turn away.
    54 Evict(Evict),
    /// Tells what a gate asks for of a policy over many gates.
    56 ReportUse(ReportUse<'a>),
}

impl Request<'_> {
    /// [`Request::kind`] of an [`Open`].
    pub const OPEN: u16 = Kind::Open as u16;
    /// [`Request::kind`] of a write.
    pub const WRITE: u16 = Kind::Write as u16;
    /// [`Request::kind`] of a [`MakeNode`].
    pub const MAKE_NODE: u16 = Kind::MakeNode as u16;
    /// [`Request::kind`] of a [`Symlink`].
    pub const SYMLINK: u16 = Kind::Symlink as u16;
    /// [`Request::kind`] of a [`Link`].
    pub const LINK: u16 = Kind::Link as u16;
    /// [`Request::kind`] of an [`Unlink`].
    pub const UNLINK: u16 = Kind::Unlink as u16;
    /// [`Request::kind`] of a [`Rename`].
    pub const RENAME: u16 = Kind::Rename as u16;
    /// [`Request::kind`] of a [`SetXattr`].
    pub const SET_XATTR: u16 = Kind::SetXattr as u16;
    /// [`Request::kind`] of a [`RemoveXattr`].
    pub const REMOVE_XATTR: u16 = Kind::RemoveXattr as u16;

    /// Whether a request can be carried out twice in a row without harm: it changes nothing, or sets what it sets whatever was
    /// there. The others are sent with an [origin](super::RequestOrigin), and repeated only to a server that knows them by it.
    pub fn is_idempotent(&self) -> bool {
        match self {
            Request::Write(write) => write.flags & transfer::APPEND == 0,
            Request::Open(open) => open.flags & (open::EXCLUSIVE | open::TEMPORARY) == 0,
            Request::SetXattr(set) => set.flags == 0,
            Request::MakeNode(_)
            | Request::Symlink(_)
            | Request::Link(_)
            | Request::Unlink(_)
            | Request::Rename(_)
            | Request::RemoveXattr(_) => false,
            _ => true,
        }
    }
}
