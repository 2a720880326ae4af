//! What the kernel asks for apart from reads and writes: each request is decoded here, once, and carried out by the file
//! system that is mounted. The two that there are implement the traits below, each where its code for them is.
//!
//! `header` says who asks, and of which node.

use std::ffi::CStr;

use rustix::io::Errno;
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::abi::{
    AttrOut, CopyFileRangeIn, CreateIn, EntryOut, FSYNC_FDATASYNC, FallocateIn, FileLock, FlushIn, FsyncIn,
    GetattrIn, GetxattrIn, InHeader, Input, LinkIn, LkIn, LseekIn, LseekOut, MkdirIn, MknodIn, OpenIn,
    OpenOut, RELEASE_FLOCK_UNLOCK, ReadIn, ReleaseIn, Rename2In, RenameIn, SetattrIn, SetxattrIn, StatfsOut,
    WriteOut, op,
};
use crate::control::{ControlFiles, value_reply};
use crate::file_system::{Agreed, FileSystem};

/// Names: looking them up, making, removing and renaming them. Each [`EntryOut`] counts as a lookup.
pub(crate) trait Names {
    fn lookup(&self, header: &InHeader, name: &CStr) -> Result<EntryOut, Errno>;
    fn mknod(&self, header: &InHeader, arg: MknodIn, name: &CStr) -> Result<EntryOut, Errno>;
    fn mkdir(&self, header: &InHeader, arg: MkdirIn, name: &CStr) -> Result<EntryOut, Errno>;
    fn symlink(&self, header: &InHeader, name: &CStr, target: &CStr) -> Result<EntryOut, Errno>;
    /// Where a symbolic link leads.
    fn readlink(&self, header: &InHeader) -> Result<Vec<u8>, Errno>;
    /// Gives `node` another name.
    fn link(&self, header: &InHeader, node: u64, name: &CStr) -> Result<EntryOut, Errno>;
    /// Removes the name of a file, or of an empty directory.
    fn unlink(&self, header: &InHeader, name: &CStr, directory: bool) -> Result<(), Errno>;
    fn rename(&self, header: &InHeader, arg: Rename2In, from: &CStr, to: &CStr) -> Result<(), Errno>;
}

/// Attributes of files and of the file system.
pub(crate) trait Attributes {
    fn getattr(&self, header: &InHeader, arg: GetattrIn) -> Result<AttrOut, Errno>;
    fn setattr(&self, header: &InHeader, arg: SetattrIn) -> Result<AttrOut, Errno>;
    fn statfs(&self, header: &InHeader) -> Result<StatfsOut, Errno>;
}

/// Open files; `handle` is what opening has given.
pub(crate) trait Files {
    fn open(&self, header: &InHeader, arg: OpenIn) -> Result<OpenOut, Errno>;
    fn create(&self, header: &InHeader, arg: CreateIn, name: &CStr) -> Result<(EntryOut, OpenOut), Errno>;

    /// Opens a new file without a name in a directory. Refused where the file could not be given a name later, which programs that
    /// make one count on.
    fn tmpfile(&self, header: &InHeader, arg: CreateIn) -> Result<(EntryOut, OpenOut), Errno> {
        let _ = (header, arg);
        Err(Errno::OPNOTSUPP)
    }

    fn release(&self, handle: u64) -> Result<(), Errno>;
    /// A close of one of the descriptors that share the handle.
    fn flush(&self, handle: u64) -> Result<(), Errno>;
    fn fsync(&self, handle: u64, data_only: bool) -> Result<(), Errno>;
    fn fallocate(&self, header: &InHeader, arg: FallocateIn) -> Result<(), Errno>;
    /// The offset of the next data or the next hole.
    fn lseek(&self, arg: LseekIn) -> Result<u64, Errno>;

    /// How many bytes were copied. With `ENOSYS` the kernel copies by reads and writes, which go through the gate.
    fn copy_file_range(&self, arg: CopyFileRangeIn) -> Result<u32, Errno> {
        let _ = arg;
        Err(Errno::NOSYS)
    }

    /// Makes the whole file system durable.
    fn syncfs(&self, header: &InHeader) -> Result<(), Errno> {
        let _ = header;
        Err(Errno::NOSYS)
    }
}

/// Open directories.
pub(crate) trait Directories {
    fn opendir(&self, header: &InHeader) -> Result<OpenOut, Errno>;
    /// Appends entries from a position on, with their attributes if `plus`.
    fn readdir(&self, header: &InHeader, arg: ReadIn, plus: bool, out: &mut Vec<u8>) -> Result<(), Errno>;
    fn releasedir(&self, handle: u64) -> Result<(), Errno>;
    fn fsyncdir(&self, header: &InHeader, handle: u64, data_only: bool) -> Result<(), Errno>;
}

/// Extended attributes. `room` is how many bytes the caller has for the reply; 0 asks for the size.
pub(crate) trait Xattrs {
    fn getxattr(&self, header: &InHeader, name: &CStr, room: u32, out: &mut Vec<u8>) -> Result<(), Errno>;
    fn listxattr(&self, header: &InHeader, room: u32, out: &mut Vec<u8>) -> Result<(), Errno>;
    fn setxattr(&self, header: &InHeader, arg: SetxattrIn, name: &CStr, value: &[u8]) -> Result<(), Errno>;
    fn removexattr(&self, header: &InHeader, name: &CStr) -> Result<(), Errno>;
}

/// Locks of open files, where they are not the kernel's own.
pub(crate) trait Locks {
    /// Takes a lock, or gives it back. `EAGAIN`: somebody has it. `EBUSY`: nobody is given one just now.
    fn set_lock(&self, arg: LkIn) -> Result<(), Errno> {
        let _ = arg;
        Err(Errno::NOSYS)
    }

    /// A lock that is in the way; of kind `F_UNLCK`: there is none.
    fn get_lock(&self, arg: LkIn) -> Result<FileLock, Errno> {
        let _ = arg;
        Err(Errno::NOSYS)
    }

    /// A descriptor is closed: as POSIX has it, all that its owner has locked of the file by bytes is given back.
    fn unlock_bytes(&self, handle: u64, owner: u64) {
        let _ = (handle, owner);
    }

    /// The last descriptor of an open file that was locked as a whole is closed.
    fn unlock_file(&self, handle: u64, owner: u64) {
        let _ = (handle, owner);
    }
}

/// Decodes a request and has it carried out; appends the reply's body to `out`. What the request carries and what is unknown
/// is `EINVAL` and `ENOSYS`.
pub(crate) fn carry_out(
    fs: &dyn FileSystem,
    control: &ControlFiles,
    agreed: Agreed,
    header: &InHeader,
    mut input: Input<'_>,
    out: &mut Vec<u8>,
) -> Result<(), Errno> {
    match header.opcode {
        op::LOOKUP => reply(out, &fs.lookup(header, input.file_name()?)?),
        op::MKNOD => reply(out, &fs.mknod(header, record(&mut input)?, input.file_name()?)?),
        op::MKDIR => reply(out, &fs.mkdir(header, record(&mut input)?, input.file_name()?)?),
        op::SYMLINK => reply(out, &fs.symlink(header, input.file_name()?, any_name(&mut input)?)?),
        op::READLINK => out.extend(fs.readlink(header)?),
        op::LINK => {
            let LinkIn { oldnodeid } = record(&mut input)?;
            reply(out, &fs.link(header, oldnodeid, input.file_name()?)?);
        }
        op::UNLINK => fs.unlink(header, input.file_name()?, false)?,
        op::RMDIR => fs.unlink(header, input.file_name()?, true)?,
        op::RENAME => {
            let RenameIn { newdir } = record(&mut input)?;
            let arg = Rename2In { newdir, flags: 0, padding: 0 };
            fs.rename(header, arg, input.file_name()?, input.file_name()?)?;
        }
        op::RENAME2 => fs.rename(header, record(&mut input)?, input.file_name()?, input.file_name()?)?,

        op::GETATTR => reply(out, &fs.getattr(header, record(&mut input)?)?),
        op::SETATTR => reply(out, &fs.setattr(header, record(&mut input)?)?),
        op::STATFS => reply(out, &fs.statfs(header)?),

        op::OPEN => reply(out, &fs.open(header, record(&mut input)?)?),
        op::CREATE => reply_created(out, fs.create(header, record(&mut input)?, input.file_name()?)?),
        op::TMPFILE => reply_created(out, fs.tmpfile(header, record(&mut input)?)?),
        op::RELEASE => {
            let ReleaseIn { fh, release_flags, lock_owner, .. } = record(&mut input)?;
            if release_flags & RELEASE_FLOCK_UNLOCK != 0 {
                fs.unlock_file(fh, lock_owner);
            }
            fs.release(fh)?;
        }
        op::FLUSH => {
            let FlushIn { fh, lock_owner, .. } = record(&mut input)?;
            fs.unlock_bytes(fh, lock_owner);
            fs.flush(fh)?;
        }
        op::GETLK => reply(out, &fs.get_lock(record(&mut input)?)?),
        op::SETLK | op::SETLKW => fs.set_lock(record(&mut input)?)?,
        op::FSYNC => {
            let (handle, data_only) = synced(&mut input)?;
            fs.fsync(handle, data_only)?;
        }
        op::FALLOCATE => fs.fallocate(header, record(&mut input)?)?,
        op::LSEEK => reply(out, &LseekOut { offset: fs.lseek(record(&mut input)?)? }),
        op::COPY_FILE_RANGE => {
            let size = fs.copy_file_range(record(&mut input)?)?;
            reply(out, &WriteOut { size, padding: 0 });
        }
        op::SYNCFS => fs.syncfs(header)?,

        op::OPENDIR => {
            let _: OpenIn = record(&mut input)?;
            reply(out, &fs.opendir(header)?);
        }
        op::READDIR => fs.readdir(header, record(&mut input)?, false, out)?,
        op::READDIRPLUS => fs.readdir(header, record(&mut input)?, true, out)?,
        op::RELEASEDIR => fs.releasedir(record::<ReleaseIn>(&mut input)?.fh)?,
        op::FSYNCDIR => {
            let (handle, data_only) = synced(&mut input)?;
            fs.fsyncdir(header, handle, data_only)?;
        }

        op::GETXATTR => {
            let GetxattrIn { size, .. } = record(&mut input)?;
            let name = any_name(&mut input)?;
            match control.get(name, header) {
                Some(value) => value_reply(out, size, &value?)?,
                None => fs.getxattr(header, name, size, out)?,
            }
        }
        op::SETXATTR => {
            let arg: SetxattrIn = input.record_of(agreed.setxattr_in_bytes).ok_or(Errno::INVAL)?;
            let name = any_name(&mut input)?;
            let value = input.rest().get(..arg.size as usize).ok_or(Errno::INVAL)?;
            match control.set(name, value, header) {
                Some(result) => result?,
                None => fs.setxattr(header, arg, name, value)?,
            }
        }
        op::LISTXATTR => fs.listxattr(header, record::<GetxattrIn>(&mut input)?.size, out)?,
        op::REMOVEXATTR => fs.removexattr(header, any_name(&mut input)?)?,

        op::IOCTL => return Err(Errno::NOTTY),
        op::DESTROY => {}
        // What is new is not supported, and the kernel stops asking.
        _ => return Err(Errno::NOSYS),
    }
    Ok(())
}

/// The operation's own record.
fn record<T: FromBytes>(input: &mut Input<'_>) -> Result<T, Errno> {
    input.record().ok_or(Errno::INVAL)
}

/// A name that need not be one in a directory: a link's target, an extended attribute's.
fn any_name<'a>(input: &mut Input<'a>) -> Result<&'a CStr, Errno> {
    input.name().ok_or(Errno::INVAL)
}

/// What is to be made durable, and whether its data is enough.
fn synced(input: &mut Input<'_>) -> Result<(u64, bool), Errno> {
    let arg: FsyncIn = record(input)?;
    Ok((arg.fh, arg.fsync_flags & FSYNC_FDATASYNC != 0))
}

fn reply(out: &mut Vec<u8>, record: &(impl IntoBytes + Immutable)) {
    out.extend_from_slice(record.as_bytes());
}

fn reply_created(out: &mut Vec<u8>, (entry, opened): (EntryOut, OpenOut)) {
    reply(out, &entry);
    reply(out, &opened);
}
