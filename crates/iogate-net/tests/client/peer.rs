//! A server of one file in memory, as simple as the protocol allows, that a test can make misbehave.

use std::collections::{BTreeMap, HashMap};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use iogate_core::wire::{
    Attr, Entry, Failure, Gone, Identity, MAGIC, Offset, Opened, REPLY_HEADER_BYTES, REQUEST_HEADER_BYTES,
    Record, ReplyHeader, Request, RequestHeader, Striping, Synced, VERSION, Welcome, Written, open, transfer,
};
use iogate_net::Endpoint;
use iogate_testkit::ports::bound;

/// What a test sets and sees.
pub(crate) struct Settings {
    pub(crate) credits: AtomicU32,
    pub(crate) credit_bytes: AtomicU64,
    /// How far its clock is ahead, in ns.
    pub(crate) clock_ahead: AtomicI64,
    /// Cut connections after so many requests; 0: never.
    pub(crate) cut_after: AtomicU64,
    /// Reads are answered with a byte more than was asked for.
    pub(crate) reads_more: AtomicBool,
    /// Answer no more.
    pub(crate) is_silent: AtomicBool,
    /// Requests seen at once, at most.
    pub(crate) underway_max: AtomicU64,
    pub(crate) opens: AtomicU64,
    pub(crate) syncs: AtomicU64,
    /// The next syncs fail.
    pub(crate) sync_fails: AtomicBool,
    pub(crate) messages: AtomicU64,
    /// It has gone, as a process that has ended: what it had in hand touches no file any more.
    is_over: AtomicBool,
}

/// The contents, which outlive a server.
#[derive(Default)]
pub(crate) struct Files {
    pub(crate) bytes: Mutex<Vec<u8>>,
    /// Changes when the file becomes another one.
    pub(crate) generation: AtomicU64,
    /// Changes when the machine of the server boots: what it answers as verifier.
    pub(crate) boot: AtomicU64,
}

pub(crate) struct Peer {
    pub(crate) endpoint: Endpoint,
    pub(crate) settings: Arc<Settings>,
    pub(crate) files: Arc<Files>,
    connections: Arc<Mutex<Vec<TcpStream>>>,
    accepting: Option<thread::JoinHandle<()>>,
}

/// A session's files, and the replies that its client may ask for again.
#[derive(Default)]
struct Session {
    replies: Mutex<BTreeMap<u64, Reply>>,
    /// Everything before this id has been answered, and may still be in the hands of an earlier connection.
    acked: AtomicU64,
    handles: Mutex<HashMap<u32, u32>>,
}

#[derive(Default)]
struct Sessions {
    all: Mutex<HashMap<[u8; 16], Arc<Session>>>,
    count: AtomicU64,
}

impl Peer {
    pub(crate) fn start() -> Peer {
        Peer::on(0, Arc::default())
    }

    /// Without its sessions, on this port (0: any).
    pub(crate) fn on(port: u16, files: Arc<Files>) -> Peer {
        let listener = bound(|| TcpListener::bind(("127.0.0.1", port)));
        let port = listener.local_addr().unwrap().port();
        let settings = Arc::new(Settings {
            credits: AtomicU32::new(64),
            credit_bytes: AtomicU64::new(16 << 20),
            clock_ahead: AtomicI64::new(0),
            cut_after: AtomicU64::new(0),
            reads_more: AtomicBool::new(false),
            is_silent: AtomicBool::new(false),
            underway_max: AtomicU64::new(0),
            opens: AtomicU64::new(0),
            syncs: AtomicU64::new(0),
            sync_fails: AtomicBool::new(false),
            messages: AtomicU64::new(0),
            is_over: AtomicBool::new(false),
        });
        let connections = Arc::new(Mutex::new(Vec::new()));
        let accepting = thread::spawn({
            let (settings, files) = (Arc::clone(&settings), Arc::clone(&files));
            let connections = Arc::clone(&connections);
            move || {
                let sessions = Arc::new(Sessions::default());
                sessions.count.store(u64::from(std::process::id()) << 32, Ordering::SeqCst);
                for stream in listener.incoming() {
                    let stream = stream.unwrap();
                    if settings.is_over.load(Ordering::SeqCst) {
                        return;
                    }
                    stream.set_nodelay(true).unwrap();
                    connections.lock().unwrap().push(stream.try_clone().unwrap());
                    let (settings, files) = (Arc::clone(&settings), Arc::clone(&files));
                    let sessions = Arc::clone(&sessions);
                    thread::spawn(move || serve(stream, &settings, &files, &sessions));
                }
            }
        });
        let endpoint = Endpoint::Tcp { host: "127.0.0.1".into(), port };
        Peer { endpoint, settings, files, connections, accepting: Some(accepting) }
    }

    pub(crate) fn port(&self) -> u16 {
        match self.endpoint {
            Endpoint::Tcp { port, .. } => port,
            Endpoint::Unix(_) => unreachable!("it listens on TCP"),
        }
    }

    /// Cuts all connections; sessions stay.
    pub(crate) fn cut(&self) {
        for stream in self.connections.lock().unwrap().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        {
            // The file is between two requests: the next server finds it as it stays.
            let _bytes = self.files.bytes.lock().unwrap();
            self.settings.is_over.store(true, Ordering::SeqCst);
        }
        let _ = TcpStream::connect(("127.0.0.1", self.port()));
        self.accepting.take().unwrap().join().unwrap();
        self.cut();
    }
}

fn serve(stream: TcpStream, settings: &Arc<Settings>, files: &Arc<Files>, sessions: &Sessions) {
    let mut stream = stream;
    let Some((header, fields, _)) = receive(&mut stream) else { return };
    let Ok(Request::Hello(hello)) = Request::decode(header.kind, &fields) else { return };
    let mut fields = Vec::new();
    if hello.magic != MAGIC || hello.version != VERSION || hello.name == b"old" {
        Failure { text: b"expected version 7" }.encode(&mut fields);
        let errno = libc::EPROTONOSUPPORT as u16;
        return send(&mut stream, ReplyHeader { errno, ..ReplyHeader::default() }, &fields, &[]);
    }
    let known = sessions.all.lock().unwrap().get(&hello.session).cloned();
    let resumed = u8::from(known.is_some());
    let mut id = hello.session;
    let session = known.unwrap_or_else(|| {
        id[..8].copy_from_slice(&(sessions.count.fetch_add(1, Ordering::SeqCst) + 1).to_le_bytes());
        let session = Arc::new(Session::default());
        sessions.all.lock().unwrap().insert(id, Arc::clone(&session));
        session
    });
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64;
    let welcome = Welcome {
        version: VERSION,
        resumed,
        session: id,
        instance: 1,
        credits: settings.credits.load(Ordering::SeqCst),
        credit_bytes: settings.credit_bytes.load(Ordering::SeqCst),
        transfer_bytes_max: 4 << 20,
        append_bytes_max: 1 << 20,
        answers: 0,
        verifier: files.boot.load(Ordering::SeqCst),
        uid: 0,
        gid: 0,
        trusted: 1,
        locks: 0,
        node: 0,
        nodes: 1,
        striping: Striping { first_target: 0, stripe_bytes: 1 << 20, targets: 2 },
        time: now.saturating_add_signed(settings.clock_ahead.load(Ordering::SeqCst)),
    };
    welcome.encode(&mut fields);
    send(&mut stream, ReplyHeader::default(), &fields, &[]);
    let (to_answer, requests) = std::sync::mpsc::channel::<(RequestHeader, Vec<u8>, Vec<u8>)>();
    let underway = Arc::new(AtomicU64::new(0));
    let mut answers = stream.try_clone().unwrap();
    thread::spawn({
        let (settings, files) = (Arc::clone(settings), Arc::clone(files));
        let underway = Arc::clone(&underway);
        move || {
            for (header, fields, payload) in requests {
                while settings.is_silent.load(Ordering::SeqCst) {
                    thread::sleep(Duration::from_millis(1));
                }
                let reply = once(&session, &settings, &files, header, &fields, &payload);
                underway.fetch_sub(1, Ordering::SeqCst);
                if let Some((header, fields, payload)) = reply {
                    send(&mut answers, header, &fields, &payload);
                }
            }
        }
    });
    while let Some((header, fields, payload)) = receive(&mut stream) {
        let seen = underway.fetch_add(1, Ordering::SeqCst) + 1;
        settings.underway_max.fetch_max(seen, Ordering::SeqCst);
        let messages = settings.messages.fetch_add(1, Ordering::SeqCst) + 1;
        let cut_after = settings.cut_after.load(Ordering::SeqCst);
        if to_answer.send((header, fields, payload)).is_err() {
            return;
        }
        if cut_after > 0 && messages.is_multiple_of(cut_after) {
            let _ = stream.shutdown(Shutdown::Both);
            return;
        }
    }
}

type Reply = (ReplyHeader, Vec<u8>, Vec<u8>);

/// Carries out a request, or answers again what was carried out.
fn once(
    session: &Session,
    settings: &Settings,
    files: &Files,
    header: RequestHeader,
    fields: &[u8],
    payload: &[u8],
) -> Option<Reply> {
    let mut replies = session.replies.lock().unwrap();
    let acked = session.acked.fetch_max(header.acked, Ordering::SeqCst);
    if header.id < acked {
        return None;
    }
    if let Some(reply) = replies.get(&header.id) {
        return Some(reply.clone());
    }
    replies.retain(|id, _| *id >= header.acked);
    let (_, fields) = header.split_groups(fields).unwrap();
    let request = Request::decode(header.kind, fields).unwrap();
    let (mut fields, mut data) = (Vec::new(), Vec::new());
    let mut bytes = files.bytes.lock().unwrap();
    if settings.is_over.load(Ordering::SeqCst) {
        return None;
    }
    let errno =
        match carry_out((session, settings, files), &mut bytes, request, payload, &mut fields, &mut data) {
            Ok(()) => 0,
            Err(errno) => {
                fields.clear();
                Failure { text: b"it fails" }.encode(&mut fields);
                errno as u16
            }
        };
    let reply = ReplyHeader { fields: fields.len() as u16, payload: data.len() as u32, errno, id: header.id };
    replies.insert(header.id, (reply, fields.clone(), data.clone()));
    Some((reply, fields, data))
}

fn carry_out(
    (session, settings, files): (&Session, &Settings, &Files),
    bytes: &mut Vec<u8>,
    request: Request<'_>,
    payload: &[u8],
    fields: &mut Vec<u8>,
    data: &mut Vec<u8>,
) -> Result<(), i32> {
    let identity = Identity { inode: 7, generation: files.generation.load(Ordering::SeqCst) };
    let attr = Attr { inode: 7, size: bytes.len() as u64, mode: libc::S_IFREG | 0o644, ..Attr::default() };
    let verifier = files.boot.load(Ordering::SeqCst);
    let is_open = |handle| session.handles.lock().unwrap().contains_key(&handle);
    match request {
        Request::Open(wanted) => {
            settings.opens.fetch_add(1, Ordering::SeqCst);
            if wanted.path != b"file" {
                return Err(libc::ENOENT);
            }
            if wanted.flags & open::AGAIN != 0 && wanted.identity != identity {
                return Err(libc::ESTALE);
            }
            session.handles.lock().unwrap().insert(wanted.handle, wanted.flags);
            Opened { identity, pending_size: u64::MAX, is_new: 0, attr }.encode(fields);
        }
        Request::Close(close) => drop(session.handles.lock().unwrap().remove(&close.handle)),
        Request::Read(read) => {
            if !is_open(read.handle) {
                return Err(libc::EBADF);
            }
            let start = (read.offset as usize).min(bytes.len());
            let end = (start + read.bytes as usize).min(bytes.len());
            data.extend_from_slice(&bytes[start..end]);
            data.extend(settings.reads_more.load(Ordering::SeqCst).then_some(0));
        }
        Request::Write(write) => {
            if !is_open(write.handle) {
                return Err(libc::EBADF);
            }
            let offset =
                if write.flags & transfer::APPEND != 0 { bytes.len() } else { write.offset as usize };
            let end = offset + payload.len();
            if bytes.len() < end {
                bytes.resize(end, 0);
            }
            bytes[offset..end].copy_from_slice(payload);
            Written { offset: offset as u64, bytes: payload.len() as u32, verifier }.encode(fields);
        }
        Request::GetAttr(_) => attr.encode(fields),
        Request::SetAttr(wanted) => {
            bytes.resize(wanted.change.size as usize, 0);
            Attr { size: wanted.change.size, ..attr }.encode(fields);
        }
        Request::ReadDir(list) if list.after < 3 => {
            for next in list.after + 1..=3 {
                let name = format!("entry {next}");
                Entry { next, name_bytes: name.len() as u16, attr }.encode(data);
                data.extend_from_slice(name.as_bytes());
                if next == 2 {
                    break;
                }
            }
        }
        Request::Sync(_) if settings.sync_fails.load(Ordering::SeqCst) => return Err(libc::EIO),
        Request::Sync(_) => {
            settings.syncs.fetch_add(1, Ordering::SeqCst);
            Synced { verifier }.encode(fields);
        }
        Request::Rename(_) => Gone::NONE.encode(fields),
        Request::ReadDir(_) | Request::Goodbye(_) | Request::Allocate(_) => {}
        Request::SetXattr(_) => *bytes = payload.to_vec(),
        Request::GetXattr(_) => data.clone_from(bytes),
        Request::Ping(_) => Offset { offset: 1 }.encode(fields),
        _ => return Err(libc::ENOSYS),
    }
    Ok(())
}

fn receive(stream: &mut TcpStream) -> Option<(RequestHeader, Vec<u8>, Vec<u8>)> {
    let mut header = [0; REQUEST_HEADER_BYTES];
    stream.read_exact(&mut header).ok()?;
    let header = RequestHeader::from_bytes(&header).unwrap();
    let mut fields = vec![0; usize::from(header.fields)];
    stream.read_exact(&mut fields).ok()?;
    let mut payload = vec![0; header.payload as usize];
    stream.read_exact(&mut payload).ok()?;
    Some((header, fields, payload))
}

fn send(stream: &mut TcpStream, header: ReplyHeader, fields: &[u8], payload: &[u8]) {
    let header = ReplyHeader { fields: fields.len() as u16, payload: payload.len() as u32, ..header };
    let mut message = Vec::with_capacity(REPLY_HEADER_BYTES + fields.len() + payload.len());
    message.extend_from_slice(&header.to_bytes());
    message.extend_from_slice(fields);
    message.extend_from_slice(payload);
    // The client may have gone.
    let _ = stream.write_all(&message);
}
