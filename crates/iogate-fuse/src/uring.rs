//! The transport over io_uring: one queue for each CPU, whose entries are the memory of requests and replies.
//!
//! A queue's ring is used by the queue's thread only. A request that is completed elsewhere is put on the queue's
//! list and its thread is woken; one that is completed in the thread itself is committed with the next submission.
//! Interrupts and forgets still come through `/dev/fuse`.
//!
//! Whatever comes from programs on a CPU waits behind what its queue's thread does. So that makes no call that may get stuck: of data it
//! carries out what the store does at once, of the other operations those on a source that is near. The rest goes to other threads.

use std::cell::Cell;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use io_uring::{IoUring, cqueue, opcode, squeue, types};
use rustix::event::EventfdFlags;
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};
use zerocopy::{FromBytes, IntoBytes};

use crate::abi::{
    InHeader, Input, OutHeader, URING_COMMIT_AND_FETCH, URING_REGISTER, UringCmdReq, UringHeader, WriteOut,
    op,
};
use crate::data::{Data, Submission, Unsynced};
use crate::session::{Session, guarded};

type Ring = IoUring<squeue::Entry128, cqueue::Entry>;

/// `user_data` of the read of a queue's event.
const EVENT: u64 = u64::MAX;
/// What keeps its thread longer than this makes the next ones of its kind go to other threads: so many.
const SLOW: Duration = Duration::from_millis(2);
const ELSEWHERE: u32 = 256;
/// Reads and writes that have come together are given to the gate together: at most so many, and so many bytes, as the first waits for
/// the last.
const BATCH_MAX: usize = 16;
const BATCH_BYTES_MAX: u64 = 256 << 10;

thread_local! {
    /// The address of the queue that the thread serves.
    static SERVED: Cell<usize> = const { Cell::new(0) };
}

/// Whether the kernel offers FUSE over io_uring to this process.
pub(crate) fn is_enabled() -> bool {
    let enabled =
        std::fs::read("/sys/module/fuse/parameters/enable_uring").is_ok_and(|text| text.starts_with(b"Y"));
    enabled && new_ring(1).is_ok()
}

fn new_ring(entries: u32) -> io::Result<Ring> {
    IoUring::builder().setup_single_issuer().setup_coop_taskrun().build(entries)
}

/// Starts a thread for each queue, and returns when all are registered with the kernel, which then sends requests
/// through them. On failure it goes on with `/dev/fuse`.
pub(crate) fn start(session: &Arc<Session>, depth: u16) -> io::Result<()> {
    let (registered, results) = channel();
    let queues = possible_cpus()?;
    for id in 0..queues {
        let queue = Arc::new(Queue::new(id, depth, session.agreed.request_bytes_max as usize)?);
        let registered = registered.clone();
        session.start_thread(format!("iogate-ring-{id}"), move |session| {
            SERVED.set(queue.address());
            stay_on_cpu(id);
            match Server::new(session, queue) {
                Ok(server) => server.serve(&registered),
                Err(error) => drop(registered.send(Err(error))),
            }
        })?;
    }
    drop(registered);
    for _ in 0..queues {
        results.recv().unwrap_or(Err(io::ErrorKind::BrokenPipe.into()))?;
    }
    Ok(())
}

/// Keeps the thread on the CPU whose requests it serves, where it is allowed there: the caller, which waits, makes room
/// for it.
fn stay_on_cpu(cpu: u16) {
    let mut cpus = rustix::thread::CpuSet::new();
    if usize::from(cpu) < rustix::thread::CpuSet::MAX_CPU {
        cpus.set(cpu.into());
        if let Err(errno) = rustix::thread::sched_setaffinity(None, &cpus) {
            tracing::debug!(%errno, cpu, "a ring's thread is not kept on its CPU");
        }
    }
}

/// The number of CPUs that there can be, which is the number of queues that the kernel wants.
fn possible_cpus() -> io::Result<u16> {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/possible")?;
    let count = |range: &str| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        Some(last.parse::<u16>().ok()? - first.parse::<u16>().ok()? + 1)
    };
    text.trim().split(',').map(count).sum::<Option<u16>>().ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// What the threads that complete requests know of a queue.
#[derive(Debug)]
struct Queue {
    id: u16,
    memory: EntryMemory,
    /// Entries with a reply, to be committed by the queue's thread.
    replied: Mutex<Vec<Commit>>,
    event: OwnedFd,
    woken: AtomicBool,
}

#[derive(Clone, Copy, Debug)]
struct Commit {
    entry: u16,
    commit_id: u64,
}

impl Queue {
    fn new(id: u16, depth: u16, payload_bytes: usize) -> io::Result<Queue> {
        Ok(Queue {
            id,
            memory: EntryMemory::new(depth, payload_bytes)?,
            replied: Mutex::new(Vec::with_capacity(depth.into())),
            event: rustix::event::eventfd(0, EventfdFlags::CLOEXEC)?,
            woken: AtomicBool::new(false),
        })
    }

    fn address(&self) -> usize {
        ptr::from_ref(self).addr()
    }

    fn commit(&self, commit: Commit) {
        self.replied.lock().expect("pushing does not panic").push(commit);
        if SERVED.get() != self.address() && !self.woken.swap(true, Ordering::AcqRel) {
            // Writing to an event only fails if it was written 2^64 times.
            let _ = rustix::io::write(&self.event, &1_u64.to_ne_bytes());
        }
    }
}

/// The memory of a queue's entries: headers, then payloads from a page on.
#[derive(Debug)]
struct EntryMemory {
    start: *mut u8,
    mapped_bytes: usize,
    headers_bytes: usize,
    payload_bytes: usize,
    depth: u16,
}

// SAFETY: an entry's memory is used by the kernel or by the holder of the entry's `Reply`, never by both.
unsafe impl Send for EntryMemory {}
// SAFETY: as above.
unsafe impl Sync for EntryMemory {}

impl EntryMemory {
    fn new(depth: u16, payload_bytes: usize) -> io::Result<EntryMemory> {
        let headers_bytes = (size_of::<UringHeader>() * usize::from(depth)).next_multiple_of(4096);
        let mapped_bytes = headers_bytes + payload_bytes * usize::from(depth);
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new mapping, at an address that the kernel chooses.
        let start = unsafe {
            rustix::mm::mmap_anonymous(
                ptr::null_mut(),
                mapped_bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                flags,
            )?
        };
        Ok(EntryMemory { start: start.cast(), mapped_bytes, headers_bytes, payload_bytes, depth })
    }

    fn header(&self, entry: u16) -> *mut UringHeader {
        assert!(entry < self.depth);
        self.start.wrapping_add(usize::from(entry) * size_of::<UringHeader>()).cast()
    }

    fn payload(&self, entry: u16) -> *mut u8 {
        assert!(entry < self.depth);
        self.start.wrapping_add(self.headers_bytes + usize::from(entry) * self.payload_bytes)
    }
}

impl Drop for EntryMemory {
    fn drop(&mut self) {
        // SAFETY: mapped with this size, and nobody is left to use it: requests hold their queue.
        let unmapped = unsafe { rustix::mm::munmap(self.start.cast(), self.mapped_bytes) };
        debug_assert!(unmapped.is_ok());
    }
}

/// A request in an entry, and the answer that it waits for. Dropped without one, it answers `EIO`.
#[derive(Debug)]
struct Reply {
    queue: Arc<Queue>,
    entry: u16,
    unique: u64,
    commit_id: u64,
    payload_bytes: u32,
    sent: bool,
}

impl Reply {
    /// Takes over an entry that the kernel has put a request into.
    fn new(queue: &Arc<Queue>, entry: u16) -> (InHeader, Reply) {
        // SAFETY: the kernel has written the header and gave the entry to us.
        let header = unsafe { &*queue.memory.header(entry) };
        let (in_header, _) = InHeader::read_from_prefix(&header.in_out).expect("128 bytes contain it");
        let reply = Reply {
            queue: queue.clone(),
            entry,
            unique: in_header.unique,
            commit_id: header.entry.commit_id,
            payload_bytes: header.entry.payload_sz,
            sent: false,
        };
        (in_header, reply)
    }

    fn input(&self) -> Input<'_> {
        let memory = &self.queue.memory;
        let bytes = (self.payload_bytes as usize).min(memory.payload_bytes);
        // SAFETY: the entry is ours, and nothing writes to it while `self` is borrowed.
        let (header, payload) = unsafe {
            (&*memory.header(self.entry), std::slice::from_raw_parts(memory.payload(self.entry), bytes))
        };
        Input::split(&header.op_in, payload)
    }

    fn payload(&self) -> *mut u8 {
        self.queue.memory.payload(self.entry)
    }

    /// Answers with what is in the payload already.
    fn payload_filled(mut self, bytes: usize) {
        self.send(0, bytes);
    }

    fn data(mut self, body: &[u8]) {
        if body.len() > self.queue.memory.payload_bytes {
            return self.send(-Errno::IO.raw_os_error(), 0);
        }
        // SAFETY: the payload is ours, has room, and `body` is memory of the caller.
        unsafe { ptr::copy_nonoverlapping(body.as_ptr(), self.payload(), body.len()) };
        self.send(0, body.len());
    }

    fn written(self, bytes: usize) {
        self.data(WriteOut { size: bytes as u32, padding: 0 }.as_bytes());
    }

    fn error(mut self, errno: Errno) {
        self.send(-errno.raw_os_error(), 0);
    }

    fn send(&mut self, error: i32, bytes: usize) {
        self.sent = true;
        let len = (size_of::<OutHeader>() + bytes) as u32;
        let out = OutHeader { len, error, unique: self.unique };
        // SAFETY: the entry is ours until it is committed.
        let header = unsafe { &mut *self.queue.memory.header(self.entry) };
        header.in_out[..size_of::<OutHeader>()].copy_from_slice(out.as_bytes());
        header.entry.payload_sz = bytes as u32;
        self.queue.commit(Commit { entry: self.entry, commit_id: self.commit_id });
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        if !self.sent {
            tracing::error!(unique = self.unique, "a request was dropped; answering EIO");
            self.send(-Errno::IO.raw_os_error(), 0);
        }
    }
}

/// Whether operations of one kind are carried out in the queue's thread: not where they lately took long. Those that may get stuck are
/// not its concern; this is for a disk that is busy, and holds up who writes into its page cache or looks up names.
#[derive(Debug, Default)]
struct Pace {
    /// Operations to come that go to other threads.
    elsewhere: u32,
}

impl Pace {
    /// Whether the next one goes to another thread.
    fn is_slow(&mut self) -> bool {
        let is_slow = self.elsewhere > 0;
        self.elsewhere = self.elsewhere.saturating_sub(1);
        is_slow
    }

    fn measure(&mut self, operation: impl FnOnce()) {
        let begin = Instant::now();
        guarded(operation);
        if begin.elapsed() > SLOW {
            self.elsewhere = ELSEWHERE;
        }
    }
}

/// A queue's thread.
struct Server<'a> {
    session: &'a Arc<Session>,
    queue: Arc<Queue>,
    ring: Ring,
    event_value: Box<u64>,
    /// Entries that the kernel knows.
    live: u16,
    data_pace: Pace,
    metadata_pace: Pace,
    /// Reads and writes that the gate has not been given yet.
    batch: Vec<Submission>,
    out: Vec<u8>,
    commits: Vec<Commit>,
    completions: Vec<(u64, i32)>,
}

impl<'a> Server<'a> {
    fn new(session: &'a Arc<Session>, queue: Arc<Queue>) -> io::Result<Server<'a>> {
        let ring = new_ring(u32::from(queue.memory.depth) + 1)?;
        ring.submitter().register_files(&[session.device().as_raw_fd(), queue.event.as_raw_fd()])?;
        let mut server = Server {
            session,
            queue,
            ring,
            event_value: Box::new(0),
            live: 0,
            data_pace: Pace::default(),
            metadata_pace: Pace::default(),
            batch: Vec::with_capacity(BATCH_MAX),
            out: Vec::new(),
            commits: Vec::new(),
            completions: Vec::new(),
        };
        server.register()?;
        Ok(server)
    }

    /// Gives all entries to the kernel.
    fn register(&mut self) -> io::Result<()> {
        let memory = &self.queue.memory;
        let vectors: Vec<[libc::iovec; 2]> = (0..memory.depth)
            .map(|entry| {
                let header = memory.header(entry).cast();
                let payload = memory.payload(entry).cast();
                [
                    libc::iovec { iov_base: header, iov_len: size_of::<UringHeader>() },
                    libc::iovec { iov_base: payload, iov_len: memory.payload_bytes },
                ]
            })
            .collect();
        for (entry, vectors) in (0..memory.depth).zip(&vectors) {
            let submission = command(URING_REGISTER, self.queue.id, 0, Some(vectors)).user_data(entry.into());
            // SAFETY: the vectors live until the submission below; the memory they name, as long as the ring.
            unsafe { self.ring.submission().push(&submission) }.map_err(io::Error::other)?;
            self.live += 1;
        }
        self.ring.submit()?;
        self.arm_event();
        // A registration that is refused completes at once; one that is taken completes with a request, which may
        // have come already.
        self.completions.extend(self.ring.completion().map(|done| (done.user_data(), done.result())));
        match self.completions.iter().find(|(_, result)| *result < 0) {
            Some((_, refused)) => Err(io::Error::from_raw_os_error(-refused)),
            None => Ok(()),
        }
    }

    fn arm_event(&mut self) {
        let read = opcode::Read::new(types::Fixed(1), ptr::from_mut(&mut *self.event_value).cast(), 8);
        let read = squeue::Entry128::from(read.build().user_data(EVENT));
        // SAFETY: the value lives as long as the ring.
        let pushed = unsafe { self.ring.submission().push(&read) };
        debug_assert!(pushed.is_ok(), "there is room for every entry and the event");
    }

    fn serve(mut self, registered: &Sender<io::Result<()>>) {
        let _ = registered.send(Ok(()));
        loop {
            let mut completions = std::mem::take(&mut self.completions);
            for (user_data, result) in completions.drain(..) {
                self.completed(user_data, result);
            }
            self.completions = completions;
            self.submit_batch();
            if self.live == 0 {
                return;
            }
            self.commit_replied();
            match self.ring.submit_and_wait(1) {
                Ok(_) => {}
                Err(error)
                    if matches!(error.raw_os_error(), Some(libc::EINTR | libc::EAGAIN | libc::EBUSY)) => {}
                Err(error) => {
                    tracing::error!(%error, queue = self.queue.id, "waiting for requests");
                    return;
                }
            }
            self.completions.extend(self.ring.completion().map(|done| (done.user_data(), done.result())));
        }
    }

    fn completed(&mut self, user_data: u64, result: i32) {
        if user_data == EVENT {
            self.queue.woken.store(false, Ordering::Release);
            self.arm_event();
        } else if result < 0 {
            // ENOTCONN: the file system is unmounted.
            if result != -libc::ENOTCONN {
                let error = io::Error::from_raw_os_error(-result);
                tracing::error!(%error, queue = self.queue.id, entry = user_data, "a ring entry is lost");
            }
            self.live -= 1;
        } else {
            self.dispatch(user_data as u16);
        }
    }

    /// Hands the kernel the entries with replies, for their next requests.
    fn commit_replied(&mut self) {
        std::mem::swap(&mut *self.queue.replied.lock().expect("pushing does not panic"), &mut self.commits);
        for commit in self.commits.drain(..) {
            let submission = command(URING_COMMIT_AND_FETCH, self.queue.id, commit.commit_id, None)
                .user_data(commit.entry.into());
            // SAFETY: the entry's memory lives as long as the ring.
            let pushed = unsafe { self.ring.submission().push(&submission) };
            debug_assert!(pushed.is_ok(), "there is room for every entry and the event");
        }
    }

    fn dispatch(&mut self, entry: u16) {
        let (header, reply) = Reply::new(&self.queue, entry);
        let session = self.session;
        match header.opcode {
            op::READ | op::WRITE => {
                guarded(|| self.batch.extend(transfer(session, &header, reply)));
                let bytes = self.batch.iter().map(|(transfer, _)| u64::from(transfer.bytes)).sum::<u64>();
                if self.batch.len() >= BATCH_MAX || bytes >= BATCH_BYTES_MAX {
                    self.submit_batch();
                    self.commit_replied();
                    // What is not taken now is with the next call.
                    let _ = self.ring.submit();
                }
            }
            op::SETLK | op::SETLKW => {
                let Some(arg) = reply.input().record() else { return reply.error(Errno::INVAL) };
                session.set_lock(&header, arg, move |result| match result {
                    Ok(()) => reply.data(&[]),
                    Err(errno) => reply.error(errno),
                });
            }
            opcode if session.fs.may_be_slow(opcode) || self.metadata_pace.is_slow() => {
                let session = session.clone();
                self.session.workers.run(move || other(&session, &header, reply, &mut Vec::new()));
            }
            _ => {
                let out = &mut self.out;
                self.metadata_pace.measure(|| other(session, &header, reply, out));
            }
        }
    }

    fn submit_batch(&mut self) {
        if self.batch.is_empty() {
            return;
        }
        if !self.data_pace.is_slow() {
            let (engine, batch) = (&self.session.engine, &mut self.batch);
            // SAFETY: an entry's payload has room for the largest request, and is the completion's until its reply is sent.
            self.data_pace.measure(|| unsafe { engine.submit_at_once(batch) });
        }
        if !self.batch.is_empty() {
            let batch = self.batch.drain(..).collect();
            // SAFETY: as above.
            unsafe { self.session.submit_elsewhere(batch) };
        }
    }
}

/// A command to the kernel's side of a queue.
fn command(code: u32, qid: u16, commit_id: u64, vectors: Option<&[libc::iovec; 2]>) -> squeue::Entry128 {
    let request = UringCmdReq { flags: 0, commit_id, qid, padding: [0; 6] };
    let mut bytes = [0; 80];
    bytes[..size_of::<UringCmdReq>()].copy_from_slice(request.as_bytes());
    let address = vectors.map(|vectors| vectors.as_ptr().addr() as u64);
    let command = opcode::UringCmd80::new(types::Fixed(0), code).cmd(bytes).addr(address);
    let mut entry = command.build();
    if let Some(vectors) = vectors {
        // SAFETY: `struct io_uring_sqe` has its 32-bit length at byte 24; the entry is such a record.
        unsafe { ptr::from_mut(&mut entry).cast::<u8>().add(24).cast::<u32>().write(vectors.len() as u32) };
    }
    entry
}

/// What is to be submitted of a read or a write, in the memory of its entry; `None` if that is answered, or left to others.
fn transfer(session: &Arc<Session>, header: &InHeader, reply: Reply) -> Option<Submission> {
    let data = if header.opcode == op::READ {
        session.read(header, reply.input())
    } else {
        session.write(header, reply.input()).map(|(data, _)| data)
    };
    match (data, header.opcode) {
        (Err(errno), _) => reply.error(errno),
        (Ok(data), op::READ) if data.bytes == 0 => reply.payload_filled(0),
        (Ok(data), _) if data.bytes == 0 => reply.written(0),
        (Ok(data), op::READ) => {
            return submission(session, data, reply, |_, reply, _, bytes| reply.payload_filled(bytes));
        }
        (Ok(data), _) => {
            return submission(session, data, reply, |session, reply, unsynced, bytes| match unsynced {
                Some(unsynced) => sync_then_reply(session, unsynced, bytes, reply),
                None => reply.written(bytes),
            });
        }
    }
    None
}

fn submission(
    session: &Arc<Session>,
    data: Data,
    reply: Reply,
    answer: fn(&Arc<Session>, Reply, Option<Unsynced>, usize),
) -> Option<Submission> {
    let memory = reply.payload();
    let in_completion = session.clone();
    // SAFETY: the entry's payload has room for the largest request, and is ours until the reply is sent.
    unsafe {
        session.submission(data, memory, move |unsynced, result| match result {
            Ok(bytes) => answer(&in_completion, reply, unsynced, bytes),
            Err(errno) => reply.error(errno),
        })
    }
}

/// Makes a write durable in another thread (a completion must not block), then answers it.
fn sync_then_reply(session: &Arc<Session>, unsynced: Unsynced, bytes: usize, reply: Reply) {
    session.workers.run(move || match unsynced.sync() {
        Ok(()) => reply.written(bytes),
        Err(errno) => reply.error(errno),
    });
}

fn other(session: &Session, header: &InHeader, reply: Reply, out: &mut Vec<u8>) {
    out.clear();
    match session.handle(header, reply.input(), out) {
        Ok(()) => reply.data(out),
        Err(errno) => reply.error(errno),
    }
}
