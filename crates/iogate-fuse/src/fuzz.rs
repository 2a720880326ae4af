//! What any bytes ask of a file system, for the fuzz target `fuse`.
//!
//! They are decoded as the kernel's requests are, and carried out by a file system that takes down what it is asked for. Built for fuzzing
//! only (`cfg(fuzzing)`, which `scripts/fuzz` sets).

use std::ffi::CStr;
use std::fmt::Debug;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use rustix::io::Errno;
use zerocopy::FromBytes;

use crate::abi::{
    AttrOut, CopyFileRangeIn, CreateIn, EntryOut, FallocateIn, FileLock, GetattrIn, InHeader, Input, LkIn,
    LseekIn, MkdirIn, MknodIn, OpenIn, OpenOut, ReadIn, Rename2In, SETXATTR_IN_COMPAT_SIZE, SetattrIn,
    SetxattrIn, StatfsOut, op,
};
use crate::control::{Control, ControlFiles};
use crate::data::{asked_read, asked_write};
use crate::file_system::{Agreed, FileSystem, Opened, has_reply};
use crate::operations::{Attributes, Directories, Files, Locks, Names, Xattrs, carry_out};

const REQUEST_BYTES_MAX: u32 = 1 << 20;
/// Bytes that a ring has for an operation's own record.
const RING_RECORD_BYTES: usize = 128;

/// Takes `bytes` for a request, and panics if the device and a ring would have it carried out differently, if a name is a path, or if the
/// reply is not as long as the kernel expects. The first byte says whether long `SETXATTR`s were agreed on.
pub fn check(bytes: &[u8]) {
    let Some((&first, request)) = bytes.split_first() else { return };
    let Ok((mut header, body)) = InHeader::read_from_prefix(request) else { return };
    // Who is asking is looked up in /proc, which must not change meanwhile.
    header.pid = std::process::id();
    let is_long = first & 1 != 0;
    let setxattr_in_bytes = if is_long { size_of::<SetxattrIn>() } else { SETXATTR_IN_COMPAT_SIZE };
    let agreed = Agreed { request_bytes_max: REQUEST_BYTES_MAX, shares_locks: true, setxattr_in_bytes };

    let through_device = asked(&header, Input::contiguous(body), agreed);
    if !has_reply(header.opcode) {
        return; // Forgetting is neither answered nor sent through a ring.
    }
    let Some(record_bytes) = record_bytes(header.opcode, setxattr_in_bytes) else {
        assert!(through_device.calls.is_empty(), "{through_device:?}");
        return;
    };
    let Some((record, payload)) = body.split_at_checked(record_bytes) else {
        assert_eq!(through_device.result, Err(Errno::INVAL));
        assert!(through_device.calls.is_empty(), "{through_device:?}");
        return;
    };
    let mut padded = [0; RING_RECORD_BYTES];
    padded[..record.len()].copy_from_slice(record);
    let through_ring = asked(&header, Input::split(&padded, payload), agreed);
    assert_eq!(through_device, through_ring);
    if through_device.result.is_ok()
        && let Some(expected) = reply_bytes(header.opcode)
    {
        assert_eq!(through_device.out.len(), expected, "opcode {}", header.opcode);
    }
}

/// What a request came to.
#[derive(Debug, PartialEq, Eq)]
struct Asked {
    calls: Vec<String>,
    result: Result<(), Errno>,
    out: Vec<u8>,
}

fn asked(header: &InHeader, input: Input<'_>, agreed: Agreed) -> Asked {
    let taken = TakesDown::default();
    let mut out = Vec::new();
    let result = match header.opcode {
        _ if !has_reply(header.opcode) => {
            input.forgotten(header, |node, lookups| taken.forget(node, lookups));
            Ok(())
        }
        op::READ => asked_read(input, agreed).map(|arg| taken.note(arg)),
        op::WRITE => asked_write(input, agreed).map(|(arg, bytes)| taken.note((arg, bytes))),
        _ => {
            let control = ControlFiles::new(Arc::new(Refuses), Arc::default());
            carry_out(&taken, &control, agreed, header, input, &mut out)
        }
    };
    let calls = taken.0.into_inner().expect("noting does not panic");
    Asked { calls, result, out }
}

/// The size of an operation's own record, by `linux/fuse.h`; `None`: iogate does not know the operation.
fn record_bytes(opcode: u32, setxattr_in_bytes: usize) -> Option<usize> {
    Some(match opcode {
        op::LOOKUP
        | op::READLINK
        | op::SYMLINK
        | op::UNLINK
        | op::RMDIR
        | op::STATFS
        | op::REMOVEXATTR
        | op::DESTROY => 0,
        op::MKDIR | op::RENAME | op::LINK | op::OPEN | op::OPENDIR | op::GETXATTR | op::LISTXATTR => 8,
        op::GETATTR | op::MKNOD | op::CREATE | op::TMPFILE | op::FSYNC | op::FSYNCDIR | op::RENAME2 => 16,
        op::RELEASE | op::RELEASEDIR | op::FLUSH | op::LSEEK => 24,
        op::FALLOCATE => 32,
        op::GETLK | op::SETLK | op::SETLKW => 48,
        op::READ | op::WRITE | op::READDIR | op::READDIRPLUS => 40,
        op::COPY_FILE_RANGE => 56,
        op::SETATTR => 88,
        op::SETXATTR => setxattr_in_bytes,
        // Their records do not matter.
        op::SYNCFS | op::IOCTL => 0,
        _ => return None,
    })
}

/// The size of an operation's reply, by `linux/fuse.h`; `None`: it varies.
fn reply_bytes(opcode: u32) -> Option<usize> {
    Some(match opcode {
        op::LOOKUP | op::MKNOD | op::MKDIR | op::SYMLINK | op::LINK => 128,
        op::GETATTR | op::SETATTR => 104,
        op::OPEN | op::OPENDIR => 16,
        op::CREATE | op::TMPFILE => 144,
        op::STATFS => 80,
        op::LSEEK | op::COPY_FILE_RANGE => 8,
        op::GETLK => 24,
        op::SETLK | op::SETLKW => 0,
        op::UNLINK
        | op::RMDIR
        | op::RENAME
        | op::RENAME2
        | op::RELEASE
        | op::RELEASEDIR
        | op::FLUSH
        | op::FSYNC
        | op::FSYNCDIR
        | op::FALLOCATE
        | op::SYNCFS
        | op::SETXATTR
        | op::REMOVEXATTR
        | op::DESTROY => 0,
        _ => return None,
    })
}

/// A mount that cannot be told anything.
struct Refuses;

impl Control for Refuses {
    fn status(&self) -> Vec<u8> {
        b"status".to_vec()
    }

    fn set(&self, text: &str) -> Result<(), String> {
        Err(format!("nothing can be set, so not {text}"))
    }
}

/// A file system that takes down what it is asked for. It grants every other request, by their numbers.
#[derive(Default)]
struct TakesDown(Mutex<Vec<String>>);

impl TakesDown {
    fn note(&self, what: impl Debug) {
        self.0.lock().expect("noting does not panic").push(format!("{what:?}"));
    }

    fn answer<T: Default>(&self, header: &InHeader, what: impl Debug) -> Result<T, Errno> {
        self.note((header, what));
        if header.unique % 2 == 0 { Ok(T::default()) } else { Err(Errno::NOENT) }
    }
}

/// What must hold of a name in a directory.
fn checked(name: &CStr) -> &CStr {
    let bytes = name.to_bytes();
    assert!(
        !bytes.is_empty() && bytes != b"." && bytes != b".." && !bytes.contains(&b'/'),
        "{name:?} is no name"
    );
    name
}

impl FileSystem for TakesDown {
    fn forget(&self, node: u64, lookups: u64) {
        self.note((node, lookups));
    }

    fn file(&self, handle: u64) -> Result<Arc<dyn Opened>, Errno> {
        self.note(handle);
        Err(Errno::BADF)
    }

    fn path_of(&self, handle: u64) -> Option<PathBuf> {
        self.note(handle);
        None
    }

    fn may_be_slow(&self, _opcode: u32) -> bool {
        false
    }
}

impl Names for TakesDown {
    fn lookup(&self, header: &InHeader, name: &CStr) -> Result<EntryOut, Errno> {
        self.answer(header, checked(name))
    }

    fn mknod(&self, header: &InHeader, arg: MknodIn, name: &CStr) -> Result<EntryOut, Errno> {
        self.answer(header, (arg, checked(name)))
    }

    fn mkdir(&self, header: &InHeader, arg: MkdirIn, name: &CStr) -> Result<EntryOut, Errno> {
        self.answer(header, (arg, checked(name)))
    }

    fn symlink(&self, header: &InHeader, name: &CStr, target: &CStr) -> Result<EntryOut, Errno> {
        self.answer(header, (checked(name), target))
    }

    fn readlink(&self, header: &InHeader) -> Result<Vec<u8>, Errno> {
        self.answer(header, "readlink")
    }

    fn link(&self, header: &InHeader, node: u64, name: &CStr) -> Result<EntryOut, Errno> {
        self.answer(header, (node, checked(name)))
    }

    fn unlink(&self, header: &InHeader, name: &CStr, directory: bool) -> Result<(), Errno> {
        self.answer(header, (checked(name), directory))
    }

    fn rename(&self, header: &InHeader, arg: Rename2In, from: &CStr, to: &CStr) -> Result<(), Errno> {
        self.answer(header, (arg, checked(from), checked(to)))
    }
}

impl Attributes for TakesDown {
    fn getattr(&self, header: &InHeader, arg: GetattrIn) -> Result<AttrOut, Errno> {
        self.answer(header, arg)
    }

    fn setattr(&self, header: &InHeader, arg: SetattrIn) -> Result<AttrOut, Errno> {
        self.answer(header, arg)
    }

    fn statfs(&self, header: &InHeader) -> Result<StatfsOut, Errno> {
        self.answer(header, "statfs")
    }
}

impl Files for TakesDown {
    fn open(&self, header: &InHeader, arg: OpenIn) -> Result<OpenOut, Errno> {
        self.answer(header, arg)
    }

    fn create(&self, header: &InHeader, arg: CreateIn, name: &CStr) -> Result<(EntryOut, OpenOut), Errno> {
        self.answer(header, (arg, checked(name)))
    }

    fn release(&self, handle: u64) -> Result<(), Errno> {
        self.note(handle);
        Ok(())
    }

    fn flush(&self, handle: u64) -> Result<(), Errno> {
        self.note(handle);
        Ok(())
    }

    fn fsync(&self, handle: u64, data_only: bool) -> Result<(), Errno> {
        self.note((handle, data_only));
        Ok(())
    }

    fn fallocate(&self, header: &InHeader, arg: FallocateIn) -> Result<(), Errno> {
        self.answer(header, arg)
    }

    fn lseek(&self, arg: LseekIn) -> Result<u64, Errno> {
        self.note(arg);
        Ok(arg.offset)
    }

    fn copy_file_range(&self, arg: CopyFileRangeIn) -> Result<u32, Errno> {
        self.note(arg);
        Ok(arg.len as u32)
    }
}

impl Directories for TakesDown {
    fn opendir(&self, header: &InHeader) -> Result<OpenOut, Errno> {
        self.answer(header, "opendir")
    }

    fn readdir(&self, header: &InHeader, arg: ReadIn, plus: bool, _out: &mut Vec<u8>) -> Result<(), Errno> {
        self.answer(header, (arg, plus))
    }

    fn releasedir(&self, handle: u64) -> Result<(), Errno> {
        self.note(handle);
        Ok(())
    }

    fn fsyncdir(&self, header: &InHeader, handle: u64, data_only: bool) -> Result<(), Errno> {
        self.answer(header, (handle, data_only))
    }
}

impl Locks for TakesDown {
    fn set_lock(&self, arg: LkIn) -> Result<(), Errno> {
        self.note(arg);
        Ok(())
    }

    fn get_lock(&self, arg: LkIn) -> Result<FileLock, Errno> {
        self.note(arg);
        Ok(arg.lk)
    }

    fn unlock_bytes(&self, handle: u64, owner: u64) {
        self.note((handle, owner));
    }

    fn unlock_file(&self, handle: u64, owner: u64) {
        self.note((handle, owner));
    }
}

impl Xattrs for TakesDown {
    fn getxattr(&self, header: &InHeader, name: &CStr, room: u32, _out: &mut Vec<u8>) -> Result<(), Errno> {
        self.answer(header, (name, room))
    }

    fn listxattr(&self, header: &InHeader, room: u32, _out: &mut Vec<u8>) -> Result<(), Errno> {
        self.answer(header, room)
    }

    fn setxattr(&self, header: &InHeader, arg: SetxattrIn, name: &CStr, value: &[u8]) -> Result<(), Errno> {
        assert_eq!(value.len(), arg.size as usize);
        self.answer(header, (arg, name, value))
    }

    fn removexattr(&self, header: &InHeader, name: &CStr) -> Result<(), Errno> {
        self.answer(header, name)
    }
}
