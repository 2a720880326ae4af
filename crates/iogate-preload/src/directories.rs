//! Listing directories.
//!
//! A stream of ours begins, as the C library's does, with its descriptor, which tells whose it is.

use std::ffi::{c_int, c_long, c_void};
use std::ptr::NonNull;

use iogate_core::wire::Entry;
use libc::{size_t, ssize_t};
use rustix::io::Errno;

use crate::abi::{Memory, Out, Text};
use crate::description::Description;
use crate::failed::{Result, answer, errno, set_errno};
use crate::opening::open_file;
use crate::paths::{self, TreePath};
use crate::table;

/// Positions that no tree has: behind `.`, and behind `..`, where the tree's own begin with 0.
const AFTER_SELF: u64 = i64::MAX as u64 - 18;
const AFTER_PARENT: u64 = i64::MAX as u64 - 17;
/// Bytes of an entry before its name.
const HEAD_BYTES: usize = 19;
/// Words of 8 bytes that a stream reads at once.
const BUFFER_WORDS: usize = 4096;

/// Appends entries, as the kernel lays them out, to memory of a size.
struct Filler<'a> {
    memory: &'a mut [u8],
    used: usize,
}

impl Filler<'_> {
    /// False if there is no room.
    fn add(&mut self, inode: u64, next: u64, mode: u32, name: &[u8]) -> bool {
        let bytes = (HEAD_BYTES + name.len() + 1).next_multiple_of(8);
        let Some(room) = self.memory.get_mut(self.used..self.used + bytes) else { return false };
        room[..8].copy_from_slice(&inode.to_ne_bytes());
        room[8..16].copy_from_slice(&next.to_ne_bytes());
        room[16..18].copy_from_slice(&(bytes as u16).to_ne_bytes());
        // DT_DIR and so on are the type's bits.
        room[18] = (mode >> 12 & 0xf) as u8;
        room[HEAD_BYTES..HEAD_BYTES + name.len()].copy_from_slice(name);
        room[HEAD_BYTES + name.len()..].fill(0);
        self.used += bytes;
        true
    }
}

/// As `getdents64`: fills memory with the next entries of a directory.
fn list(file: &Description, memory: &mut [u8]) -> Result<usize> {
    if file.has(libc::O_PATH) {
        return Err(Errno::BADF.into());
    }
    let position = file.page.position()?;
    let path = file.path()?;
    let inode = file.page.identity().inode;
    let mut filler = Filler { memory, used: 0 };
    let mut at = position.get();
    if at == 0 && filler.add(inode, AFTER_SELF, libc::S_IFDIR, b".") {
        at = AFTER_SELF;
    }
    if at == AFTER_SELF && filler.add(inode, AFTER_PARENT, libc::S_IFDIR, b"..") {
        at = AFTER_PARENT;
    }
    let mut is_full = !matches!(at, AFTER_PARENT) && matches!(at, 0 | AFTER_SELF);
    if !is_full {
        let after = if at == AFTER_PARENT { 0 } else { at };
        paths::on_tree(&path, |tree, caller, path| {
            tree.read_dir(caller, path, after, &mut |entry: &Entry, name: &[u8]| {
                let taken = filler.add(entry.attr.inode, entry.next, entry.attr.mode, name);
                if taken {
                    at = entry.next;
                }
                is_full = !taken;
                taken
            })
        })?;
    }
    if filler.used == 0 && is_full {
        return Err(Errno::INVAL.into());
    }
    position.set(at);
    Ok(filler.used)
}

/// No descriptor.
const MARK: c_int = -2;

/// A stream of a directory.
#[repr(C)]
pub(crate) struct Stream {
    /// [`MARK`], where a stream of the C library's has its descriptor.
    mark: c_int,
    fd: c_int,
    /// Entries that have been read, in the kernel's layout.
    buffer: Box<[u64]>,
    filled: usize,
    used: usize,
    /// Behind the last entry that was returned.
    position: u64,
}

impl Stream {
    fn open(fd: c_int) -> *mut Stream {
        let buffer = vec![0; BUFFER_WORDS].into_boxed_slice();
        Box::into_raw(Box::new(Stream { mark: MARK, fd, buffer, filled: 0, used: 0, position: 0 }))
    }

    /// The next entry, or null at the end. It stays until the next call.
    fn next(&mut self) -> Result<*mut libc::dirent64> {
        if self.used == self.filled {
            let file = table::find(self.fd).ok_or(Errno::BADF)?;
            // SAFETY: the same memory, as bytes.
            let memory = unsafe {
                std::slice::from_raw_parts_mut(self.buffer.as_mut_ptr().cast::<u8>(), self.buffer.len() * 8)
            };
            self.filled = list(&file, memory)? / 8;
            self.used = 0;
            if self.filled == 0 {
                return Ok(std::ptr::null_mut());
            }
        }
        let entry = &mut self.buffer[self.used..];
        self.position = entry[1];
        let words = usize::from((entry[2] & 0xffff) as u16) / 8;
        let entry = entry.as_mut_ptr().cast();
        self.used += words.max(1);
        Ok(entry)
    }

    fn seek(&mut self, position: u64) -> Result<()> {
        table::find(self.fd).ok_or(Errno::BADF)?.page.position()?.set(position);
        (self.filled, self.used, self.position) = (0, 0, position);
        Ok(())
    }
}

/// A stream that a program has passed: ours, or the C library's.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct Dir(Option<NonNull<Stream>>);

impl Dir {
    /// The stream, if it is ours.
    fn ours<'a>(self) -> Option<&'a mut Stream> {
        let mut stream = self.0?;
        // SAFETY: whosever it is, it begins with a number, which says so. The caller uses it in one thread at a time.
        unsafe { if stream.cast::<c_int>().read() == MARK { Some(stream.as_mut()) } else { None } }
    }
}

fn open_stream(path: &TreePath) -> Result<*mut Stream> {
    let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC | libc::O_NONBLOCK;
    Ok(Stream::open(open_file(path, flags, 0)?))
}

fn stream_of(fd: c_int, file: &Description) -> Result<*mut Stream> {
    if file.has(libc::O_PATH) {
        return Err(Errno::BADF.into());
    }
    if file.attr()?.mode & libc::S_IFMT != libc::S_IFDIR {
        return Err(Errno::NOTDIR.into());
    }
    Ok(Stream::open(fd))
}

fn close_stream(stream: *mut Stream) -> c_int {
    // SAFETY: made by `Stream::open`, and the program gives it up.
    let stream = unsafe { Box::from_raw(stream) };
    // SAFETY: the descriptor is the stream's.
    unsafe { libc::close(stream.fd) }
}

type Filter = Option<unsafe extern "C" fn(*const libc::dirent64) -> c_int>;
type Order = Option<unsafe extern "C" fn(*const c_void, *const c_void) -> c_int>;

/// As `scandir`: entries in memory of C's, for the caller to free.
fn scan(path: &TreePath, out: Out<*mut *mut libc::dirent64>, filter: Filter, order: Order) -> Result<c_int> {
    let stream = open_stream(path)?;
    // SAFETY: just made.
    let reading = unsafe { &mut *stream };
    let entries = scan_all(|| reading.next(), filter);
    close_stream(stream);
    let mut entries = entries?;
    let bytes = size_of_val(&entries.0[..]);
    // SAFETY: any length can be asked for.
    let list = unsafe { libc::malloc(bytes.max(1)) }.cast::<*mut libc::dirent64>();
    if list.is_null() {
        return Err(Errno::NOMEM.into());
    }
    // SAFETY: room for as many was just allocated; and the program's function orders what it has been made for.
    unsafe {
        std::ptr::copy_nonoverlapping(entries.0.as_ptr(), list, entries.0.len());
        if let Some(order) = order {
            libc::qsort(list.cast(), entries.0.len(), size_of::<*mut libc::dirent64>(), Some(order));
        }
    }
    if let Err(failed) = out.put(list) {
        // SAFETY: just allocated, and nobody has been told of it.
        unsafe { libc::free(list.cast()) };
        return Err(failed);
    }
    Ok(std::mem::take(&mut entries.0).len() as c_int)
}

/// Entries in memory of C's, which is given back unless the program has been told of them.
struct Entries(Vec<*mut libc::dirent64>);

impl Drop for Entries {
    fn drop(&mut self) {
        for entry in &self.0 {
            // SAFETY: from `malloc`, and nobody else has it.
            unsafe { libc::free(entry.cast()) };
        }
    }
}

/// All that `next` gives and the program's function wants; null is the end.
fn scan_all(mut next: impl FnMut() -> Result<*mut libc::dirent64>, filter: Filter) -> Result<Entries> {
    let mut all = Entries(Vec::new());
    let entries = &mut all.0;
    loop {
        let entry = next()?;
        if entry.is_null() {
            return Ok(all);
        }
        // SAFETY: an entry of the stream, which says how long it is; the program's function is made for it.
        unsafe {
            if filter.is_some_and(|filter| filter(entry) == 0) {
                continue;
            }
            let bytes = usize::from((*entry).d_reclen);
            let copy = libc::malloc(bytes);
            if copy.is_null() {
                return Err(Errno::NOMEM.into());
            }
            std::ptr::copy_nonoverlapping(entry.cast::<u8>(), copy.cast(), bytes);
            entries.push(copy.cast());
        }
    }
}

interpose! {
    fn opendir[real](path: Text) -> *mut Stream {
        on_path!(libc::AT_FDCWD, path, real, |path: TreePath| open_stream(&path))
    }

    fn fdopendir[real](fd: c_int) -> *mut Stream {
        match table::find(fd) {
            None => real(fd),
            Some(file) => answer(|| stream_of(fd, &file)),
        }
    }

    fn closedir[real](dir: Dir) -> c_int {
        match dir.ours() {
            None => real(dir),
            Some(stream) => close_stream(stream),
        }
    }

    fn dirfd[real](dir: Dir) -> c_int {
        match dir.ours() {
            None => real(dir),
            Some(stream) => stream.fd,
        }
    }

    fn readdir | readdir64 [real](dir: Dir) -> *mut libc::dirent64 {
        match dir.ours() {
            None => real(dir),
            Some(stream) => answer(|| {
                let before = errno();
                let entry = stream.next()?;
                // Null is the end, or an error if errno says so: attempts to reach a forwarder have changed it.
                set_errno(before);
                Ok(entry)
            }),
        }
    }

    fn readdir_r | readdir64_r [real](dir: Dir, entry: Memory, result: Out<*mut c_void>) -> c_int {
        let Some(stream) = dir.ours() else { return real(dir, entry, result) };
        let copied = crate::failed::guarded(|| {
            let next = stream.next()?;
            if next.is_null() {
                return result.put(std::ptr::null_mut());
            }
            // SAFETY: an entry says how long it is.
            let bytes = unsafe { std::slice::from_raw_parts(next.cast::<u8>(), usize::from((*next).d_reclen)) };
            entry.fill(size_of::<libc::dirent64>(), bytes)?;
            result.put(entry.pointer())
        });
        copied.map_or_else(|failed| crate::failed::errno_of(&failed).raw_os_error(), |()| 0)
    }

    fn rewinddir[real](dir: Dir) -> () {
        match dir.ours() {
            None => real(dir),
            Some(stream) => {
                let _ = stream.seek(0);
            }
        }
    }

    fn seekdir[real](dir: Dir, position: c_long) -> () {
        match dir.ours() {
            None => real(dir, position),
            Some(stream) => {
                let _ = stream.seek(position as u64);
            }
        }
    }

    fn telldir[real](dir: Dir) -> c_long {
        match dir.ours() {
            None => real(dir),
            Some(stream) => stream.position as c_long,
        }
    }

    fn scandir | scandir64 [real](
        path: Text,
        out: Out<*mut *mut libc::dirent64>,
        filter: Filter,
        order: Order,
    ) -> c_int {
        on_path!(libc::AT_FDCWD, path, |path| real(path, out, filter, order), |path: TreePath| {
            scan(&path, out, filter, order)
        })
    }

    fn scandirat | scandirat64 [real](
        dir: c_int,
        path: Text,
        out: Out<*mut *mut libc::dirent64>,
        filter: Filter,
        order: Order,
    ) -> c_int {
        on_path!(dir, path, |path| real(dir, path, out, filter, order), |path: TreePath| {
            scan(&path, out, filter, order)
        })
    }

    fn getdents64[real](fd: c_int, memory: *mut u8, room: size_t) -> ssize_t {
        let Some(file) = table::find(fd) else { return real(fd, memory, room) };
        if memory.is_null() {
            set_errno(libc::EFAULT);
            return -1;
        }
        // SAFETY: the caller's promise.
        let memory = unsafe { std::slice::from_raw_parts_mut(memory, room) };
        answer(|| Ok(list(&file, memory)? as ssize_t))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_scan_has_read_before_it_fails_is_given_back() {
        // SAFETY: zeros are a value of it.
        let mut entry: libc::dirent64 = unsafe { std::mem::zeroed() };
        entry.d_reclen = size_of::<libc::dirent64>() as u16;
        // SAFETY: it only tells.
        let used = || unsafe { libc::mallinfo2() }.uordblks;
        let before = used();
        for _ in 0..100 {
            let mut left = 1_000;
            let next = || {
                left -= 1;
                if left == 0 { Err(Errno::IO.into()) } else { Ok(&raw mut entry) }
            };
            assert!(scan_all(next, None).is_err());
        }
        let lost = used().saturating_sub(before);
        assert!(lost < 4 << 20, "{lost} bytes, of 28 MB that were read");
    }
}
