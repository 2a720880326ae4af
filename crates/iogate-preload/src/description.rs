//! An open file description of ours, as this process sees it: its page, and its handle at the server.

use std::ffi::c_int;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};

use iogate_core::wire::{Attr, Written, open};
use iogate_core::{Op, TargetId};
use iogate_engine::Store;
use iogate_engine::store::{Io, Segment};
use iogate_vfs::{OpenHow, TreeFile};
use rustix::io::Errno;

use crate::connect;
use crate::failed::{Result, errno_of};
use crate::locks::Locks;
use crate::page::{Page, Position};
use crate::paths::{self, TreePath};

/// Most bytes of one call, as in Linux.
const TRANSFER_BYTES_MAX: usize = 0x7fff_f000;

/// An open file.
pub(crate) struct Description {
    pub(crate) page: Page,
    /// Missing until it is needed where the file was opened by another process.
    handle: Mutex<Option<Handle>>,
    /// The process has had locks of the file, and they have ended with its session, while it goes on.
    is_lost: AtomicBool,
    pub(crate) locks: Locks,
}

/// A file open at the server.
#[derive(Clone)]
pub(crate) struct Handle {
    pub(crate) file: Arc<dyn TreeFile>,
    pub(crate) store: Arc<dyn Store>,
}

impl Description {
    /// Just opened.
    pub(crate) fn new(page: Page, handle: Option<Handle>) -> Description {
        Description {
            page,
            handle: Mutex::new(handle),
            locks: Locks::default(),
            is_lost: AtomicBool::default(),
        }
    }

    /// What the process was started with.
    pub(crate) fn adopt(page: Page) -> Description {
        Description {
            locks: Locks::adopt(&page),
            page,
            handle: Mutex::default(),
            is_lost: AtomicBool::default(),
        }
    }

    /// The same for a child of `fork`. The original must not be dropped.
    pub(crate) fn for_child(&self) -> Description {
        // SAFETY: the promise above.
        let page = unsafe { self.page.alias() };
        Description {
            page,
            handle: Mutex::default(),
            locks: self.locks.for_child(),
            is_lost: AtomicBool::default(),
        }
    }

    /// Flags of `open(2)`.
    pub(crate) fn has(&self, flags: c_int) -> bool {
        self.page.flags() & flags == flags
    }

    /// Fails with `EIO`, once, if writes to the file are known to be lost.
    pub(crate) fn tell_losses(&self) -> std::result::Result<(), Errno> {
        let handle = self.handle.lock().unwrap_or_else(PoisonError::into_inner);
        handle.as_ref().map_or(Ok(()), |handle| handle.file.tell_losses().map_err(|_| Errno::IO))
    }

    /// The file at the server. Fails with `EBADF` for one opened with `O_PATH`, and with `ESTALE` if another process opened it
    /// and it has lost its name since.
    pub(crate) fn handle(&self) -> Result<Handle> {
        let mut handle = self.handle.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(handle) = &*handle {
            return Ok(handle.clone());
        }
        if self.has(libc::O_PATH) {
            return Err(Errno::BADF.into());
        }
        if self.is_lost.load(Ordering::Relaxed) {
            return Err(Errno::STALE.into());
        }
        let link = connect::link()?;
        let path = self.path()?;
        let flags = open::AGAIN | access_of(self.page.flags());
        let how = OpenHow { flags, mode: 0, identity: self.page.identity(), ..OpenHow::default() };
        let file = link.tree.open(connect::caller(), &path.path, how)?;
        let opened = Handle { file, store: link.store };
        *handle = Some(opened.clone());
        Ok(opened)
    }

    /// Its locks are lost: it cannot be used any more.
    pub(crate) fn lose(&self) {
        self.is_lost.store(true, Ordering::Relaxed);
    }

    /// Gives up the handle; the next use opens the file again.
    pub(crate) fn forget_handle(&self) -> Option<Handle> {
        self.handle.try_lock().ok()?.take()
    }

    pub(crate) fn path(&self) -> Result<TreePath> {
        Ok(TreePath::new(&self.page.path()?))
    }

    /// Its attributes.
    pub(crate) fn attr(&self) -> Result<Attr> {
        if self.has(libc::O_PATH) {
            let path = self.path()?;
            return paths::on_tree(&path, |tree, caller, path| tree.attr(caller, path));
        }
        Ok(self.handle()?.file.attr()?)
    }

    fn may(&self, op: Op) -> Result<()> {
        let access = self.page.flags() & libc::O_ACCMODE;
        let refused = if op == Op::Read { libc::O_WRONLY } else { libc::O_RDONLY };
        if access == refused || self.has(libc::O_PATH) { Err(Errno::BADF.into()) } else { Ok(()) }
    }

    /// Reads or writes at the position, and moves it.
    pub(crate) fn transfer(&self, op: Op, segments: &[Segment]) -> Result<isize> {
        self.may(op)?;
        let mut position = self.page.position()?;
        if op == Op::Write && self.has(libc::O_APPEND) {
            return self.append(segments, Some(&mut position));
        }
        let offset = position.get();
        let bytes = self.run(op, offset, segments)?;
        position.set(offset + bytes as u64);
        Ok(bytes)
    }

    /// Reads or writes at an offset.
    pub(crate) fn transfer_at(&self, op: Op, offset: i64, segments: &[Segment]) -> Result<isize> {
        self.may(op)?;
        let offset = u64::try_from(offset).map_err(|_| Errno::INVAL)?;
        if op == Op::Write && self.has(libc::O_APPEND) {
            // As Linux does it, which is not what POSIX says.
            return self.append(segments, None);
        }
        self.run(op, offset, segments)
    }

    fn run(&self, op: Op, offset: u64, segments: &[Segment]) -> Result<isize> {
        let mut left = TRANSFER_BYTES_MAX;
        let segments: Vec<Segment> = segments
            .iter()
            .map(|segment| {
                let bytes = segment.bytes.min(left);
                left -= bytes;
                Segment { memory: segment.memory, bytes }
            })
            .filter(|segment| segment.bytes > 0)
            .collect();
        if segments.is_empty() {
            return Ok(0);
        }
        if offset.checked_add((TRANSFER_BYTES_MAX - left) as u64).is_none_or(|end| end > i64::MAX as u64) {
            return Err(if op == Op::Read { Errno::INVAL } else { Errno::FBIG }.into());
        }
        let handle = self.handle()?;
        let file = Arc::clone(handle.file.data());
        let io =
            Io { file, op, offset, target: TargetId(0), origin: connect::origin(), extends: false, segments };
        let done = match handle.store.run(&io) {
            Some(result) => result?,
            None => {
                let (tell, told) = mpsc::channel();
                handle.store.start(
                    io,
                    Box::new(move |_, result| {
                        let _ = tell.send(result);
                    }),
                );
                told.recv().map_err(|_| Errno::IO)??
            }
        };
        if op == Op::Write {
            self.sync_as_opened(&handle)?;
        }
        Ok(done as isize)
    }

    fn append(&self, segments: &[Segment], position: Option<&mut Position<'_>>) -> Result<isize> {
        let handle = self.handle()?;
        let bytes: usize = segments.iter().map(|segment| segment.bytes).sum();
        if bytes == 0 {
            return Ok(0);
        }
        let mut joined = Vec::new();
        let list = match segments {
            // SAFETY: the caller's memory, for the duration of the call.
            [one] => unsafe { std::slice::from_raw_parts(one.memory, one.bytes.min(TRANSFER_BYTES_MAX)) },
            several => {
                for segment in several.iter().filter(|segment| segment.bytes > 0) {
                    // SAFETY: as above.
                    joined.extend_from_slice(unsafe {
                        std::slice::from_raw_parts(segment.memory, segment.bytes)
                    });
                }
                &joined[..]
            }
        };
        let mut written = 0;
        let mut end = 0;
        while written < list.len() {
            let rest = &list[written..];
            match handle
                .file
                .append(connect::caller(), connect::origin(), rest)
                .unwrap_or_else(|| self.append_here(&handle, rest))
            {
                Ok(part) => {
                    written += part.bytes as usize;
                    end = part.offset + u64::from(part.bytes);
                    if part.bytes == 0 {
                        break;
                    }
                }
                Err(_) if written > 0 => break,
                Err(error) => return Err(error.into()),
            }
        }
        if let Some(position) = position {
            position.set(end);
        }
        self.sync_as_opened(&handle)?;
        Ok(written as isize)
    }

    /// Appends to a file of a tree behind which nobody decides where its end is. The position is held, so that appends through this open
    /// file follow each other.
    fn append_here(&self, handle: &Handle, bytes: &[u8]) -> io::Result<Written> {
        let offset = handle.file.attr()?.size;
        let segment = Segment { memory: bytes.as_ptr().cast_mut(), bytes: bytes.len() };
        match self.run(Op::Write, offset, &[segment]) {
            Ok(bytes) => Ok(Written { offset, bytes: bytes as u32, verifier: handle.file.verifier() }),
            Err(failed) => Err(errno_of(&failed).into()),
        }
    }

    /// What `O_SYNC` and `O_DSYNC` promise.
    fn sync_as_opened(&self, handle: &Handle) -> Result<()> {
        if self.has(libc::O_SYNC) {
            handle.file.sync(false)?;
        } else if self.has(libc::O_DSYNC) {
            handle.file.sync(true)?;
        }
        Ok(())
    }
}

/// The access of `open(2)`'s flags in those of a message.
pub(crate) fn access_of(flags: c_int) -> u32 {
    match flags & libc::O_ACCMODE {
        libc::O_RDONLY => open::READ,
        libc::O_WRONLY => open::WRITE,
        _ => open::READ | open::WRITE,
    }
}
