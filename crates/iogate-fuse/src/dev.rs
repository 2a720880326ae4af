//! The transport over `/dev/fuse`: several threads, each with a device descriptor of its own.
//!
//! When all of them are held up by what they carry out, a watchdog starts another, so that nothing else waits behind that.

use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

use rustix::io::{Errno, IoSlice};
use zerocopy::{FromBytes, IntoBytes};

use crate::abi::{DEV_IOC_CLONE, HEADER_ROOM, InHeader, Input, InterruptIn, OutHeader, WriteOut, op};
use crate::buffer::Buffer;
use crate::data::Unsynced;
use crate::file_system::has_reply;
use crate::interrupt::{Waiting, changes_nothing};
use crate::session::{Session, guarded};

/// Where in a thread's buffer a request begins, so that the data of a write begins at a page.
const REQUEST_START: usize = DATA_START - HEADER_ROOM;
const DATA_START: usize = 4096;
/// Writes up to this size are copied to a buffer of their own size; for larger ones the thread gives its own away.
const COPY_BYTES_MAX: usize = 32 << 10;

/// Starts the transport's threads; they end when the file system is unmounted.
pub(crate) fn start(session: &Arc<Session>) -> std::io::Result<()> {
    let cpus = std::thread::available_parallelism().map_or(2, usize::from);
    for _ in 0..cpus.clamp(2, session.threads_max) {
        start_thread(session)?;
    }
    let watched = session.clone();
    let watchdog =
        std::thread::Builder::new().name("iogate-watchdog".into()).spawn(move || watch(&watched))?;
    session.device_threads.set_thread(watchdog.thread());
    Ok(())
}

fn start_thread(session: &Arc<Session>) -> std::io::Result<()> {
    let channel = Arc::new(clone_device(session.device())?);
    let number = session.device_threads.add();
    let started =
        session.start_thread(format!("iogate-dev-{number}"), move |session| serve(session, &channel));
    if started.is_err() {
        session.device_threads.remove();
    }
    started
}

/// Starts further threads when those that there are do not get on; sleeps while one waits for requests.
fn watch(session: &Arc<Session>) {
    let has_ended = || session.has_ended();
    while !has_ended() {
        session.device_threads.watch(session.threads_max, None, has_ended, || {
            if let Err(error) = start_thread(session) {
                tracing::warn!(%error, "no further thread for /dev/fuse");
            }
        });
        session.device_threads.rest(None, has_ended);
    }
}

/// A descriptor with a queue of its own on the same connection.
fn clone_device(device: &OwnedFd) -> std::io::Result<OwnedFd> {
    let flags = rustix::fs::OFlags::RDWR | rustix::fs::OFlags::CLOEXEC;
    let Ok(clone) = rustix::fs::open("/dev/fuse", flags, rustix::fs::Mode::empty()) else {
        // A mount by fusermount3 may be all that may be opened: share its descriptor.
        return Ok(rustix::io::fcntl_dupfd_cloexec(device, 0)?);
    };
    let source = device.as_raw_fd() as u32;
    // SAFETY: the ioctl reads a 32-bit descriptor number from the pointer.
    match unsafe { libc::ioctl(clone.as_raw_fd(), DEV_IOC_CLONE, &raw const source) } {
        0 => Ok(clone),
        _ => Err(std::io::Error::last_os_error()),
    }
}

fn serve(session: &Arc<Session>, channel: &Arc<OwnedFd>) {
    let threads = &session.device_threads;
    let mut server = Server { session, channel, buffer: receive_buffer(session), out: Vec::new() };
    loop {
        let offered = &mut server.buffer.as_mut_slice()[REQUEST_START..];
        let length = match rustix::io::read(&**channel, offered) {
            Ok(length) => length,
            // ENOENT: the request was interrupted before it could be read.
            Err(Errno::INTR | Errno::NOENT | Errno::AGAIN) => continue,
            Err(errno) => {
                if errno != Errno::NODEV {
                    tracing::error!(%errno, "reading /dev/fuse");
                }
                threads.on_end();
                return;
            }
        };
        threads.on_busy();
        guarded(|| server.dispatch(length));
        threads.on_idle();
    }
}

fn receive_buffer(session: &Session) -> Buffer {
    session.pool.take(DATA_START + session.agreed.request_bytes_max as usize)
}

struct Server<'a> {
    session: &'a Arc<Session>,
    channel: &'a Arc<OwnedFd>,
    buffer: Buffer,
    out: Vec<u8>,
}

impl Server<'_> {
    fn dispatch(&mut self, length: usize) {
        let request = &self.buffer.as_slice()[REQUEST_START..][..length];
        let Ok((header, _)) = InHeader::read_from_prefix(request) else {
            tracing::error!(length, "a request is shorter than its header");
            return;
        };
        if !has_reply(header.opcode) {
            let input = Input::contiguous(&request[size_of::<InHeader>()..]);
            input.forgotten(&header, |node, lookups| self.session.fs.forget(node, lookups));
            return;
        }
        let waiting = self.session.waiting.as_ref();
        if header.opcode == op::INTERRUPT
            && let Some(waiting) = waiting
        {
            // There is no answer to that.
            if let Some(InterruptIn { unique }) = self.input(length).record() {
                self.session.locks.interrupt(unique);
                waiting.signalled(unique);
            }
            return;
        }
        let waiting = waiting.filter(|_| changes_nothing(header.opcode, self.input(length)));
        if let Some(waiting) = waiting {
            waiting.add(&header, self.channel);
        }
        let reply = Reply {
            channel: Some(self.channel.clone()),
            unique: header.unique,
            waiting: waiting.map(Arc::clone),
        };
        match header.opcode {
            op::READ => self.read(&header, length, reply),
            op::WRITE => self.write(&header, length, reply),
            op::SETLK | op::SETLKW => {
                let Some(arg) = self.input(length).record() else { return reply.error(Errno::INVAL) };
                self.session.set_lock(&header, arg, move |result| match result {
                    Ok(()) => drop(reply.data(&[])),
                    Err(errno) => reply.error(errno),
                });
            }
            _ => self.other(&header, length, reply),
        }
    }

    fn read(&mut self, header: &InHeader, length: usize, reply: Reply) {
        let data = match self.session.read(header, self.input(length)) {
            Ok(data) if data.bytes == 0 => {
                reply.data(&[]);
                return;
            }
            Ok(data) => data,
            Err(errno) => return reply.error(errno),
        };
        let mut buffer = self.session.pool.take(data.bytes as usize);
        let memory = buffer.as_mut_ptr();
        // SAFETY: the buffer has at least `data.bytes` bytes, and lives in the completion.
        unsafe {
            self.session.submit(data, memory, move |_, result| match result {
                Ok(bytes) => {
                    reply.data(&buffer.as_slice()[..bytes]);
                }
                Err(errno) => reply.error(errno),
            });
        }
    }

    fn write(&mut self, header: &InHeader, length: usize, reply: Reply) {
        let (data, bytes) = match self.session.write(header, self.input(length)) {
            Ok((data, _)) if data.bytes == 0 => return reply.written(0),
            Ok(write) => write,
            Err(errno) => return reply.error(errno),
        };
        let (mut buffer, start) = if bytes.len() <= COPY_BYTES_MAX {
            let mut copy = self.session.pool.take(bytes.len());
            copy.as_mut_slice()[..bytes.len()].copy_from_slice(bytes);
            (copy, 0)
        } else {
            (std::mem::replace(&mut self.buffer, receive_buffer(self.session)), DATA_START)
        };
        let memory = buffer.as_mut_slice()[start..].as_mut_ptr();
        let session = self.session.clone();
        // SAFETY: the data is at `start` in the buffer, which lives in the completion.
        unsafe {
            self.session.submit(data, memory, move |unsynced, result| {
                drop(buffer);
                match (unsynced, result) {
                    (Some(unsynced), Ok(bytes)) => sync_then_reply(&session, unsynced, bytes, reply),
                    (_, Ok(bytes)) => reply.written(bytes),
                    (_, Err(errno)) => reply.error(errno),
                }
            });
        }
    }

    fn other(&mut self, header: &InHeader, length: usize, reply: Reply) {
        let mut out = std::mem::take(&mut self.out);
        out.clear();
        match self.session.handle(header, self.input(length), &mut out) {
            Ok(()) => {
                if !reply.data(&out) {
                    self.session.take_back(header, &out);
                }
            }
            Err(errno) => reply.error(errno),
        }
        self.out = out;
    }

    fn input(&self, length: usize) -> Input<'_> {
        Input::contiguous(&self.buffer.as_slice()[REQUEST_START..][size_of::<InHeader>()..length])
    }
}

/// Makes a write durable in another thread (a completion must not block), then answers it.
fn sync_then_reply(session: &Arc<Session>, unsynced: Unsynced, bytes: usize, reply: Reply) {
    session.workers.run(move || match unsynced.sync() {
        Ok(()) => reply.written(bytes),
        Err(errno) => reply.error(errno),
    });
}

/// The answer that a request waits for. Dropped without one, it answers `EIO`.
#[derive(Debug)]
struct Reply {
    channel: Option<Arc<OwnedFd>>,
    unique: u64,
    /// Where it is to be taken off, if it might be given up.
    waiting: Option<Arc<Waiting>>,
}

impl Reply {
    /// `false`: who waited for it was killed.
    fn data(mut self, body: &[u8]) -> bool {
        self.send(0, body)
    }

    fn written(self, bytes: usize) {
        self.data(WriteOut { size: bytes as u32, padding: 0 }.as_bytes());
    }

    fn error(mut self, errno: Errno) {
        self.send(-errno.raw_os_error(), &[]);
    }

    /// `false`: nobody waits for it any more.
    fn send(&mut self, error: i32, body: &[u8]) -> bool {
        let Some(channel) = self.channel.take() else { return true };
        if let Some(waiting) = self.waiting.take() {
            waiting.remove(self.unique);
        }
        let header =
            OutHeader { len: (size_of::<OutHeader>() + body.len()) as u32, error, unique: self.unique };
        let parts = [IoSlice::new(header.as_bytes()), IoSlice::new(body)];
        match rustix::io::writev(&*channel, &parts[..if body.is_empty() { 1 } else { 2 }]) {
            // ENODEV, EPERM: the file system is unmounted.
            Ok(_) | Err(Errno::NODEV | Errno::PERM) => {}
            // Answered before, as the process was killed.
            Err(Errno::NOENT) => return false,
            Err(errno) if error == 0 => {
                tracing::error!(%errno, unique = self.unique, "the kernel refused a reply; answering EIO");
                self.channel = Some(channel);
                self.send(-Errno::IO.raw_os_error(), &[]);
            }
            Err(errno) => tracing::error!(%errno, unique = self.unique, "a request stays without a reply"),
        }
        true
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        if self.channel.is_some() {
            tracing::error!(unique = self.unique, "a request was dropped; answering EIO");
            self.send(-Errno::IO.raw_os_error(), &[]);
        }
    }
}
