//! A server in a folder of its own, and a client that says exactly what it is told to.
#![allow(dead_code, unreachable_pub, reason = "each test uses a part")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use iogate_core::{GateConfig, Layout, SchedulerConfig, SchedulerKind};
use iogate_engine::store::DirectoryStore;
use iogate_engine::{Engine, Store};
use iogate_nfs::rpc::{Accepted, Call, Credential, GROUPS_MAX, records, take_reply};
use iogate_nfs::wire::*;
use iogate_nfs::xdr::Reader;
use iogate_nfs::{Access, Export as Served, Limits, Server, ServerConfig};
use iogate_vfs::answers::{Answers, Keeping};
use iogate_vfs::app::AppFile;
use iogate_vfs::users::Squash;
use iogate_vfs::{Caller, DirectoryTree, Users};

pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// How to serve.
#[derive(Clone, Copy)]
pub struct How {
    pub read_only: bool,
    pub squash: Squash,
    pub kernel_handles: bool,
    pub keeps_places: bool,
    pub keeps_answers: bool,
    pub limits: Limits,
}

impl Default for How {
    fn default() -> How {
        How {
            read_only: false,
            squash: Squash::None,
            kernel_handles: true,
            keeps_places: false,
            keeps_answers: false,
            limits: Limits::default(),
        }
    }
}

/// The answers that a server keeps in its folder.
pub fn kept_answers(path: &Path) -> Answers {
    let at = path.join(".iogate/nfs-answers");
    Answers::open_within(&at, Keeping::Boot, iogate_nfs::answers::limits()).unwrap()
}

pub fn export(path: &Path, how: How) -> Served {
    export_over(path, how, Arc::new(DirectoryStore::new(path).unwrap()))
}

/// An export whose files a store of the test's own takes over.
pub fn export_over(path: &Path, how: How, store: Arc<dyn Store>) -> Served {
    let layout = Layout { first_target: 0, stripe_bytes: 1 << 20, targets: 1 };
    let scheduler = SchedulerConfig::new(SchedulerKind::Fifo);
    let gate = GateConfig { scheduler, queue_max: 65_536, depth: 8, layout };
    let engine = Engine::new(&gate, store.clone()).unwrap();
    let tree = Arc::new(DirectoryTree::new(path, store).unwrap());
    let secret = tree.kept_secret("nfs-handles").unwrap();
    let places = how.keeps_places.then(|| tree.kept_folder().unwrap());
    let answers = Arc::new(match how.keeps_answers {
        true => kept_answers(path),
        false => Answers::in_memory(iogate_nfs::answers::limits()),
    });
    Served {
        path: b"/export".into(),
        tree,
        engine,
        read_only: how.read_only,
        users: Users::new(how.squash, Caller::NOBODY, vec![], vec![]).unwrap(),
        own_groups: false,
        applications: AppFile::default(),
        sync_names: true,
        secret,
        kernel_handles: how.kernel_handles,
        places,
        answers,
    }
}

pub fn serve_at(path: &Path, how: How, listener: TcpListener) -> Server {
    serve_export(export(path, how), how, listener)
}

pub fn serve_export(export: Served, how: How, listener: TcpListener) -> Server {
    let access = Access { networks: vec![], any_port: true };
    Server::start(ServerConfig { exports: vec![export], access, limits: how.limits }, listener).unwrap()
}

pub fn serve(path: &Path, how: How) -> Server {
    serve_at(path, how, TcpListener::bind("127.0.0.1:0").unwrap())
}

pub struct Client {
    pub stream: TcpStream,
    pub xid: u32,
    pub credential: Credential,
    pub root: FileHandle,
}

pub fn user(uid: u32, gid: u32, more: &[u32]) -> Credential {
    let mut groups = [0; GROUPS_MAX];
    groups[..more.len()].copy_from_slice(more);
    Credential::Sys { uid, gid, groups, group_count: more.len() }
}

impl Client {
    pub fn connect(server: &Server) -> Client {
        Client::connect_to(server.address().unwrap())
    }

    pub fn connect_to(address: SocketAddr) -> Client {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let root = FileHandle::new(&[]).unwrap();
        let mut client = Client { stream, xid: 100, credential: user(0, 0, &[]), root };
        match client.mount(b"/export") {
            MountReply::Mount(Ok((root, flavours))) => {
                assert_eq!(flavours, [1]);
                client.root = root;
            }
            other => panic!("{other:?}"),
        }
        client
    }

    pub fn mount(&mut self, path: &[u8]) -> MountReply {
        let request = MountRequest::Mount(path);
        let mut arguments = Vec::new();
        request.put(&mut arguments);
        let record = self.call_raw(MOUNT_PROGRAM, 3, request.procedure(), &arguments);
        let mut from = Reader::new(&record);
        assert_eq!(take_reply(&mut from).unwrap().1, Some(Accepted::Success));
        MountReply::take(request.procedure(), &mut from).unwrap().unwrap()
    }

    /// The record of a call of NFS, without its mark.
    pub fn record(&self, request: &Request<'_>) -> Vec<u8> {
        let (program, version, procedure) = (NFS_PROGRAM, VERSION, request.procedure());
        let call = Call { xid: self.xid, program, version, procedure, credential: self.credential };
        let mut record = Vec::new();
        call.put(&mut record);
        request.put(&mut record);
        record
    }

    pub fn send(&mut self, program: u32, version: u32, procedure: u32, arguments: &[u8]) {
        let call = Call { xid: self.xid, program, version, procedure, credential: self.credential };
        let mut record = vec![0; 4];
        call.put(&mut record);
        record.extend_from_slice(arguments);
        let mark = records::mark(record.len() - 4);
        record[..4].copy_from_slice(&mark);
        self.stream.write_all(&record).unwrap();
    }

    pub fn receive(&mut self) -> Vec<u8> {
        let mut mark = [0; 4];
        self.stream.read_exact(&mut mark).unwrap();
        let bytes = u32::from_be_bytes(mark);
        assert_eq!(bytes >> 31, 1);
        let mut record = vec![0; (bytes & 0x7fff_ffff) as usize];
        self.stream.read_exact(&mut record).unwrap();
        record
    }

    pub fn call_raw(&mut self, program: u32, version: u32, procedure: u32, arguments: &[u8]) -> Vec<u8> {
        self.xid += 1;
        self.send(program, version, procedure, arguments);
        self.receive()
    }

    pub fn begin(&mut self, request: &Request<'_>) {
        let mut arguments = Vec::new();
        request.put(&mut arguments);
        self.xid += 1;
        self.send(NFS_PROGRAM, VERSION, request.procedure(), &arguments);
    }

    pub fn end(&mut self, procedure: u32) -> Reply {
        let record = self.receive();
        let mut from = Reader::new(&record);
        let (xid, accepted) = take_reply(&mut from).unwrap();
        assert_eq!((xid, accepted), (self.xid, Some(Accepted::Success)));
        Reply::take(procedure, &mut from).unwrap().unwrap()
    }

    pub fn call(&mut self, request: &Request<'_>) -> Reply {
        self.begin(request);
        self.end(request.procedure())
    }

    pub fn attr(&mut self, file: FileHandle) -> Result<Fattr, Status> {
        match self.call(&Request::GetAttr(file)) {
            Reply::GetAttr(result) => result,
            other => panic!("{other:?}"),
        }
    }

    pub fn look_up(&mut self, dir: FileHandle, name: &[u8]) -> Result<FileHandle, Status> {
        match self.call(&Request::LookUp(Place { dir, name })) {
            Reply::LookUp { result, .. } => result.map(|(file, _)| file),
            other => panic!("{other:?}"),
        }
    }

    pub fn made(&mut self, request: &Request<'_>) -> Result<FileHandle, Status> {
        match self.call(request) {
            Reply::Made { result, .. } => result.map(|(file, _)| file.unwrap()),
            other => panic!("{other:?}"),
        }
    }

    pub fn create(&mut self, dir: FileHandle, name: &[u8], mode: u32) -> Result<FileHandle, Status> {
        let attr = SetAttr { mode: Some(mode), ..SetAttr::default() };
        self.made(&Request::Create { place: Place { dir, name }, how: CreateHow::Guarded(attr) })
    }

    pub fn mkdir(&mut self, dir: FileHandle, name: &[u8]) -> Result<FileHandle, Status> {
        let attr = SetAttr { mode: Some(0o755), ..SetAttr::default() };
        self.made(&Request::MkDir { place: Place { dir, name }, attr })
    }

    pub fn write(
        &mut self,
        file: FileHandle,
        offset: u64,
        data: &[u8],
        stable: Stable,
    ) -> Result<(WriteOk, Wcc), Status> {
        let count = data.len() as u32;
        match self.call(&Request::Write { file, offset, count, stable, data }) {
            Reply::Write { result, wcc } => result.map(|ok| (ok, wcc)),
            other => panic!("{other:?}"),
        }
    }

    pub fn read(&mut self, file: FileHandle, offset: u64, count: u32) -> Result<(Vec<u8>, bool), Status> {
        match self.call(&Request::Read { file, offset, count }) {
            Reply::Read { result, .. } => result,
            other => panic!("{other:?}"),
        }
    }

    pub fn commit(&mut self, file: FileHandle) -> Result<u64, Status> {
        match self.call(&Request::Commit { file, offset: 0, count: 0 }) {
            Reply::Commit { result, .. } => result.map(|ok| ok.verifier),
            other => panic!("{other:?}"),
        }
    }

    pub fn remove(&mut self, dir: FileHandle, name: &[u8]) -> Status {
        match self.call(&Request::Remove(Place { dir, name })) {
            Reply::Removed(status, _) => status,
            other => panic!("{other:?}"),
        }
    }

    pub fn rename(&mut self, from: (FileHandle, &[u8]), to: (FileHandle, &[u8])) -> Status {
        let place = |(dir, name)| Place { dir, name };
        match self.call(&Request::Rename { from: place(from), to: place(to) }) {
            Reply::Rename { status, .. } => status,
            other => panic!("{other:?}"),
        }
    }

    /// All names of a directory, in pieces of so many bytes, in order.
    pub fn list(&mut self, dir: FileHandle, count: u32) -> Vec<String> {
        let (mut names, mut cookie) = (Vec::new(), 0);
        loop {
            let request = Request::ReadDir { dir, cookie, verifier: [0; 8], count };
            let Reply::ReadDir { result, .. } = self.call(&request) else { panic!("another answer") };
            let listing = result.unwrap();
            for entry in &listing.entries {
                names.push(String::from_utf8(entry.name.clone()).unwrap());
                cookie = entry.cookie;
            }
            if listing.is_end {
                names.sort();
                return names;
            }
            assert!(!listing.entries.is_empty());
        }
    }
}

/// Waits until something is so.
pub fn eventually(what: &str, is_so: impl Fn() -> bool) {
    let until = Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(Instant::now() < until, "never: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
