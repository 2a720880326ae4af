//! Reading, writing, and what else concerns a file's content.

use iogate_core::wire::Identity;
use std::ffi::{c_int, c_uint};

use iogate_core::Op;
use iogate_core::wire::{Change, set};
use iogate_engine::store::Segment;
use libc::{off_t, size_t, ssize_t};
use rustix::io::Errno;

use crate::abi::{In, Memory, Text};
use crate::connect;
use crate::description::Description;
use crate::failed::{Result, answer, errno_of, guarded};
use crate::paths::{self, TreePath};
use crate::table;
use crate::turns;

/// Most parts of one call, as in Linux.
const PARTS_MAX: c_int = 1024;

fn segments(list: In<libc::iovec>, count: c_int) -> Result<Vec<Segment>> {
    if !(0..=PARTS_MAX).contains(&count) {
        return Err(Errno::INVAL.into());
    }
    let list = list.list(count as usize)?;
    Ok(list.iter().map(|part| Segment { memory: part.iov_base.cast(), bytes: part.iov_len }).collect())
}

/// `preadv2` and `pwritev2`: an offset of -1 is the position.
fn transfer_with(
    file: &Description,
    op: Op,
    list: In<libc::iovec>,
    count: c_int,
    offset: off_t,
    flags: c_int,
) -> Result<isize> {
    let known = libc::RWF_HIPRI | libc::RWF_DSYNC | libc::RWF_SYNC | libc::RWF_APPEND;
    if flags & !known != 0 || flags & libc::RWF_APPEND != 0 && !file.has(libc::O_APPEND) {
        return Err(Errno::OPNOTSUPP.into());
    }
    let segments = segments(list, count)?;
    let done = match offset {
        -1 => file.transfer(op, &segments)?,
        offset => file.transfer_at(op, offset, &segments)?,
    };
    if op == Op::Write && flags & (libc::RWF_DSYNC | libc::RWF_SYNC) != 0 {
        file.handle()?.file.sync(flags & libc::RWF_SYNC == 0)?;
    }
    Ok(done)
}

fn seek(file: &Description, offset: off_t, whence: c_int) -> Result<off_t> {
    if file.has(libc::O_PATH) {
        return Err(Errno::BADF.into());
    }
    let position = file.page.position()?;
    let from = |base: u64| {
        let end =
            i64::try_from(base).ok().and_then(|base| base.checked_add(offset)).ok_or(Errno::OVERFLOW)?;
        u64::try_from(end).map_err(|_| Errno::INVAL)
    };
    let new = match whence {
        libc::SEEK_SET => from(0)?,
        libc::SEEK_CUR => from(position.get())?,
        libc::SEEK_END => from(file.attr()?.size)?,
        libc::SEEK_DATA | libc::SEEK_HOLE => {
            let offset = u64::try_from(offset).map_err(|_| Errno::NXIO)?;
            file.handle()?.file.seek(offset, whence == libc::SEEK_HOLE)?
        }
        _ => return Err(Errno::INVAL.into()),
    };
    position.set(new);
    Ok(new as off_t)
}

fn resize(bytes: off_t) -> Result<Change> {
    let size = u64::try_from(bytes).map_err(|_| Errno::INVAL)?;
    Ok(Change { which: set::SIZE, size, ..Change::default() })
}

fn truncate_open(file: &Description, bytes: off_t) -> Result<c_int> {
    let change = resize(bytes)?;
    if file.has(libc::O_PATH) {
        return Err(Errno::BADF.into());
    }
    if file.page.flags() & libc::O_ACCMODE == libc::O_RDONLY {
        return Err(Errno::INVAL.into());
    }
    file.handle()?.file.set_attr(connect::caller(), &change)?;
    Ok(0)
}

fn truncate_path(path: &TreePath, bytes: off_t) -> Result<c_int> {
    let change = resize(bytes)?;
    let (path, attr) = paths::follow(path)?;
    if attr.mode & libc::S_IFMT == libc::S_IFDIR {
        return Err(Errno::ISDIR.into());
    }
    paths::on_tree(&path, |tree, caller, path| tree.set_attr(caller, path, Identity::default(), &change))?;
    Ok(0)
}

fn sync(file: &Description, data_only: bool) -> Result<c_int> {
    file.handle()?.file.sync(data_only)?;
    Ok(0)
}

/// Syncs all of them, whatever becomes of one; the first failure is told.
fn sync_each<F>(files: impl Iterator<Item = F>, sync: impl Fn(F) -> Result<c_int>) -> Result<c_int> {
    files.map(sync).fold(Ok(0), Result::and)
}

fn allocate(file: &Description, mode: c_int, offset: off_t, bytes: off_t) -> Result<c_int> {
    if file.page.flags() & libc::O_ACCMODE == libc::O_RDONLY {
        return Err(Errno::BADF.into());
    }
    let offset = u64::try_from(offset).map_err(|_| Errno::INVAL)?;
    let bytes = u64::try_from(bytes).ok().filter(|bytes| *bytes > 0).ok_or(Errno::INVAL)?;
    file.handle()?.file.allocate(mode as u32, offset, bytes)?;
    Ok(0)
}

/// For functions that return the error.
fn error_of(call: impl FnOnce() -> Result<c_int>) -> c_int {
    guarded(call).unwrap_or_else(|failed| errno_of(&failed).raw_os_error())
}

/// What a checking variant does when told of less room than is to be filled: as the C library, it ends the program.
fn checked(bytes: size_t, room: size_t) -> Result<size_t> {
    if bytes > room {
        std::process::abort();
    }
    Ok(bytes)
}

interpose! {
    fn read[real](fd: c_int, memory: Memory, bytes: size_t) -> ssize_t {
        match table::find(fd) {
            None => real(fd, memory, bytes),
            Some(file) => answer(|| file.transfer(Op::Read, &[memory.segment(bytes)?])),
        }
    }

    fn __read_chk[real](fd: c_int, memory: Memory, bytes: size_t, room: size_t) -> ssize_t {
        match table::find(fd) {
            None => real(fd, memory, bytes, room),
            Some(file) => answer(|| file.transfer(Op::Read, &[memory.segment(checked(bytes, room)?)?])),
        }
    }

    fn write[real](fd: c_int, memory: Memory, bytes: size_t) -> ssize_t {
        match table::find(fd) {
            None => turns::write(fd, || real(fd, memory, bytes)),
            Some(file) => answer(|| file.transfer(Op::Write, &[memory.segment(bytes)?])),
        }
    }

    fn pread | pread64 [real](fd: c_int, memory: Memory, bytes: size_t, offset: off_t) -> ssize_t {
        match table::find(fd) {
            None => real(fd, memory, bytes, offset),
            Some(file) => answer(|| file.transfer_at(Op::Read, offset, &[memory.segment(bytes)?])),
        }
    }

    fn __pread_chk | __pread64_chk [real](
        fd: c_int,
        memory: Memory,
        bytes: size_t,
        offset: off_t,
        room: size_t,
    ) -> ssize_t {
        match table::find(fd) {
            None => real(fd, memory, bytes, offset, room),
            Some(file) => {
                answer(|| file.transfer_at(Op::Read, offset, &[memory.segment(checked(bytes, room)?)?]))
            }
        }
    }

    fn pwrite | pwrite64 [real](fd: c_int, memory: Memory, bytes: size_t, offset: off_t) -> ssize_t {
        match table::find(fd) {
            None => turns::write(fd, || real(fd, memory, bytes, offset)),
            Some(file) => answer(|| file.transfer_at(Op::Write, offset, &[memory.segment(bytes)?])),
        }
    }

    fn readv[real](fd: c_int, list: In<libc::iovec>, count: c_int) -> ssize_t {
        match table::find(fd) {
            None => real(fd, list, count),
            Some(file) => answer(|| file.transfer(Op::Read, &segments(list, count)?)),
        }
    }

    fn writev[real](fd: c_int, list: In<libc::iovec>, count: c_int) -> ssize_t {
        match table::find(fd) {
            None => turns::write(fd, || real(fd, list, count)),
            Some(file) => answer(|| file.transfer(Op::Write, &segments(list, count)?)),
        }
    }

    fn preadv | preadv64 [real](fd: c_int, list: In<libc::iovec>, count: c_int, offset: off_t) -> ssize_t {
        match table::find(fd) {
            None => real(fd, list, count, offset),
            Some(file) => answer(|| file.transfer_at(Op::Read, offset, &segments(list, count)?)),
        }
    }

    fn pwritev | pwritev64 [real](fd: c_int, list: In<libc::iovec>, count: c_int, offset: off_t) -> ssize_t {
        match table::find(fd) {
            None => turns::write(fd, || real(fd, list, count, offset)),
            Some(file) => answer(|| file.transfer_at(Op::Write, offset, &segments(list, count)?)),
        }
    }

    fn preadv2 | preadv64v2 [real](
        fd: c_int,
        list: In<libc::iovec>,
        count: c_int,
        offset: off_t,
        flags: c_int,
    ) -> ssize_t {
        match table::find(fd) {
            None => real(fd, list, count, offset, flags),
            Some(file) => answer(|| transfer_with(&file, Op::Read, list, count, offset, flags)),
        }
    }

    fn pwritev2 | pwritev64v2 [real](
        fd: c_int,
        list: In<libc::iovec>,
        count: c_int,
        offset: off_t,
        flags: c_int,
    ) -> ssize_t {
        match table::find(fd) {
            None => turns::write(fd, || real(fd, list, count, offset, flags)),
            Some(file) => answer(|| transfer_with(&file, Op::Write, list, count, offset, flags)),
        }
    }

    fn lseek | lseek64 [real](fd: c_int, offset: off_t, whence: c_int) -> off_t {
        match table::find(fd) {
            None => real(fd, offset, whence),
            Some(file) => answer(|| seek(&file, offset, whence)),
        }
    }

    fn fsync[real](fd: c_int) -> c_int {
        match table::find(fd) {
            None => turns::sync(fd, || real(fd)),
            Some(file) => answer(|| sync(&file, false)),
        }
    }

    fn fdatasync[real](fd: c_int) -> c_int {
        match table::find(fd) {
            None => turns::sync(fd, || real(fd)),
            Some(file) => answer(|| sync(&file, true)),
        }
    }

    fn sync_file_range[real](fd: c_int, offset: off_t, bytes: off_t, flags: c_uint) -> c_int {
        match table::find(fd) {
            None => real(fd, offset, bytes, flags),
            Some(file) => answer(|| sync(&file, true)),
        }
    }

    fn syncfs[real](fd: c_int) -> c_int {
        match table::find(fd) {
            None => turns::sync(fd, || real(fd)),
            // What this process has open is what it can have written.
            Some(_) => answer(|| sync_each(table::all().into_iter().filter(|file| !file.has(libc::O_PATH)), |file| {
                sync(&file, false)
            })),
        }
    }

    fn ftruncate | ftruncate64 [real](fd: c_int, bytes: off_t) -> c_int {
        match table::find(fd) {
            None => real(fd, bytes),
            Some(file) => answer(|| truncate_open(&file, bytes)),
        }
    }

    fn truncate | truncate64 [real](path: Text, bytes: off_t) -> c_int {
        on_path!(libc::AT_FDCWD, path, |path| real(path, bytes), |path: TreePath| truncate_path(&path, bytes))
    }

    fn fallocate | fallocate64 [real](fd: c_int, mode: c_int, offset: off_t, bytes: off_t) -> c_int {
        match table::find(fd) {
            None => real(fd, mode, offset, bytes),
            Some(file) => answer(|| allocate(&file, mode, offset, bytes)),
        }
    }

    fn posix_fallocate | posix_fallocate64 [real](fd: c_int, offset: off_t, bytes: off_t) -> c_int {
        match table::find(fd) {
            None => real(fd, offset, bytes),
            Some(file) => error_of(|| allocate(&file, 0, offset, bytes)),
        }
    }

    fn posix_fadvise | posix_fadvise64 [real](fd: c_int, offset: off_t, bytes: off_t, advice: c_int) -> c_int {
        match table::find(fd) {
            None => real(fd, offset, bytes, advice),
            Some(_) => 0,
        }
    }

    fn readahead[real](fd: c_int, offset: off_t, bytes: size_t) -> ssize_t {
        match table::find(fd) {
            None => real(fd, offset, bytes),
            Some(_) => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[test]
    fn a_file_that_fails_does_not_keep_the_others_from_being_synced() {
        let tried = RefCell::new(Vec::new());
        let sync = |file: i32| {
            tried.borrow_mut().push(file);
            match file {
                2 => Err(Errno::IO.into()),
                3 => Err(Errno::NOSPC.into()),
                _ => Ok(0),
            }
        };
        let failed = sync_each([1, 2, 3, 4].into_iter(), sync).unwrap_err();
        assert_eq!((errno_of(&failed), tried.into_inner()), (Errno::IO, vec![1, 2, 3, 4]));
    }
}
