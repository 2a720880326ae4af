//! Trees against a plain directory, operation by operation, in random sequences: the same results, the same errors.

mod common;

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use common::{ROOT, USER, directory, own, striped};
use iogate_core::Layout;
use iogate_core::wire::{Attr, Change, Moment, open, set};
use iogate_engine::Engine;
use iogate_net::tree::OpenHow;
use iogate_net::{Caller, Tree, TreeFile};
use rustix::fs::{
    AtFlags, CWD, FallocateFlags, FileType, Gid, Mode, OFlags, RenameFlags, Timespec, Timestamps, UTIME_OMIT,
    Uid, XattrFlags,
};

/// Names that operations take, so few that they meet.
const PATHS: &[&str] = &["a", "b", "c", "d", "e", "d/a", "d/b", "d/e", "d/e/a", "e/a", "e/d", "missing/a"];
/// What symbolic links say: all of it stays below.
const TARGETS: &[&str] = &["a", "b", "d", "e", "e/a", "nowhere", "d/e"];
const HANDLES: usize = 4;

#[derive(Clone, Debug)]
enum Op {
    Open(usize, &'static str, u32, u32),
    Close(usize),
    Write(usize, u64, usize, u8),
    Read(usize, u64, usize),
    HandleAttr(usize),
    HandleSize(usize, u64),
    Allocate(usize, u32, u64, u64),
    Sync(usize, bool),
    Attr(&'static str),
    Change(&'static str, Change),
    List(&'static str),
    Node(&'static str, u32),
    Symlink(&'static str, &'static str),
    Link(&'static str, &'static str),
    ReadLink(&'static str),
    Unlink(&'static str, bool),
    Rename(&'static str, &'static str, u32),
    SetXattr(&'static str, u8, u32),
    Xattr(&'static str),
    Xattrs(&'static str),
    RemoveXattr(&'static str),
}

/// Set-user-id and set-group-id go when a user opens a file for writing, not with the first write.
fn without_privileges(op: Op) -> Op {
    match op {
        Op::Node(path, mode) if mode & libc::S_IFMT != libc::S_IFDIR => Op::Node(path, mode & !0o6000),
        Op::Change(path, change) => Op::Change(path, Change { mode: change.mode & !0o6000, ..change }),
        op => op,
    }
}

/// Numbers that look random, the same for the same seed (splitmix64).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }

    fn of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize]
    }

    fn op(&mut self) -> Op {
        let (path, other) = (self.of(PATHS), self.of(PATHS));
        let handle = self.below(HANDLES as u64) as usize;
        match self.below(34) {
            0..=4 => {
                let mut flags = self.of(&[open::READ, open::WRITE, open::READ | open::WRITE]);
                for (flag, odds) in [
                    (open::CREATE, 2),
                    (open::EXCLUSIVE, 6),
                    (open::TRUNCATE, 5),
                    (open::NO_FOLLOW, 8),
                    (open::DIRECTORY, 12),
                ] {
                    if self.below(odds) == 0 {
                        flags |= flag;
                    }
                }
                if flags & open::CREATE == 0 {
                    flags &= !open::EXCLUSIVE;
                }
                Op::Open(handle, path, flags, self.of(&[0o644, 0o600, 0o444, 0o755]))
            }
            5 => Op::Close(handle),
            6..=9 => {
                Op::Write(handle, self.below(40_000), 1 + self.below(20_000) as usize, self.below(256) as u8)
            }
            10..=12 => Op::Read(handle, self.below(50_000), 1 + self.below(30_000) as usize),
            13 => Op::HandleAttr(handle),
            14 => Op::HandleSize(handle, self.below(60_000)),
            15 => {
                let keep = libc::FALLOC_FL_KEEP_SIZE;
                let mode = self.of(&[0, keep, keep | libc::FALLOC_FL_PUNCH_HOLE, libc::FALLOC_FL_ZERO_RANGE]);
                Op::Allocate(handle, mode as u32, self.below(50_000), self.below(20_000))
            }
            16 => Op::Sync(handle, self.below(2) == 0),
            17 | 18 => Op::Attr(path),
            19..=21 => {
                let which = self.of(&[
                    set::MODE,
                    set::SIZE,
                    set::UID | set::GID,
                    set::ATIME | set::MTIME,
                    set::MTIME,
                ]);
                let time = |seconds| Moment { seconds, nanoseconds: 123_456_000 };
                let change = Change {
                    which,
                    mode: self.of(&[0o600, 0o644, 0o4755, 0o2755, 0o1777]),
                    uid: self.of(&[0, 7, 12345]),
                    gid: self.of(&[0, 8, 12345]),
                    size: self.below(60_000),
                    atime: time(self.below(1 << 33) as i64),
                    mtime: time(self.below(1 << 33) as i64),
                };
                Op::Change(path, change)
            }
            22 => Op::List(self.of(&["", "d", "d/e", "e", "a"])),
            23 | 24 => {
                let kind = self.of(&[libc::S_IFDIR, libc::S_IFDIR, libc::S_IFREG, libc::S_IFIFO]);
                Op::Node(path, kind | self.of(&[0o644, 0o755, 0o2770]))
            }
            25 => Op::Symlink(self.of(TARGETS), path),
            26 => Op::Link(path, other),
            27 => Op::ReadLink(path),
            28 => Op::Unlink(path, self.below(3) == 0),
            29 | 30 => Op::Rename(path, other, self.of(&[0, 0, 0, 1, 2])),
            31 => Op::SetXattr(path, self.below(256) as u8, self.of(&[0, 1, 2])),
            32 => self.of(&[Op::Xattr, Op::Xattrs])(path),
            _ => Op::RemoveXattr(path),
        }
    }
}

/// What can be compared of attributes.
fn seen(attr: &Attr) -> String {
    let is = |kind| attr.mode & libc::S_IFMT == kind;
    let links = if is(libc::S_IFDIR) { 0 } else { attr.links };
    let size = if is(libc::S_IFREG) || is(libc::S_IFLNK) { attr.size } else { 0 };
    format!("{:o} {links} {}:{} {size}", attr.mode, attr.uid, attr.gid)
}

/// And of times that were set.
fn seen_times(change: &Change, attr: &Attr) -> String {
    let time = |which, time: Moment| if change.which & which == 0 { Moment::default() } else { time };
    format!("{} {:?} {:?}", seen(attr), time(set::ATIME, attr.atime), time(set::MTIME, attr.mtime))
}

fn line<T: Debug>(result: io::Result<T>) -> String {
    match result {
        Ok(value) => format!("{value:?}"),
        Err(error) => match error.raw_os_error() {
            Some(errno) => format!("errno {errno}"),
            None => format!("{error}"),
        },
    }
}

trait World {
    /// Carries out an operation in a caller's name; what it says is to be the same.
    fn does(&mut self, caller: Caller, op: &Op) -> String;
}

struct TreeWorld {
    tree: Arc<dyn Tree>,
    engine: Arc<Engine>,
    handles: Vec<Option<Arc<dyn TreeFile>>>,
}

impl TreeWorld {
    fn new(tree: Arc<dyn Tree>) -> TreeWorld {
        let engine = common::engine(&*tree);
        TreeWorld { tree, engine, handles: vec![None; HANDLES] }
    }

    fn with<T: Debug>(&self, handle: usize, f: impl FnOnce(&dyn TreeFile) -> io::Result<T>) -> String {
        self.handles[handle].as_ref().map_or_else(String::new, |file| line(f(&**file)))
    }
}

impl World for TreeWorld {
    fn does(&mut self, caller: Caller, op: &Op) -> String {
        let tree = Arc::clone(&self.tree);
        let at = |path: &'static str| Path::new(path);
        match *op {
            Op::Open(handle, path, flags, mode) => {
                let how = OpenHow { flags, mode, ..OpenHow::default() };
                let opened = tree.open(caller, at(path), how);
                line(opened.map(|file| {
                    let text = seen(&file.attr().unwrap());
                    self.handles[handle] = Some(file);
                    text
                }))
            }
            Op::Close(handle) => {
                self.handles[handle] = None;
                String::new()
            }
            Op::Write(handle, offset, bytes, value) => {
                self.with(handle, |file| common::write(&self.engine, file, offset, &pattern(value, bytes)))
            }
            Op::Read(handle, offset, bytes) => self.with(handle, |file| {
                common::read(&self.engine, file, offset, bytes).map(|data| digest(&data))
            }),
            Op::HandleAttr(handle) => self.with(handle, |file| Ok(seen(&file.attr()?))),
            Op::HandleSize(handle, size) => self.with(handle, |file| {
                let change = Change { which: set::SIZE, size, ..Change::default() };
                Ok(seen(&file.set_attr(caller, &change)?))
            }),
            Op::Allocate(handle, mode, offset, bytes) => {
                self.with(handle, |file| file.allocate(mode, offset, bytes))
            }
            Op::Sync(handle, data_only) => self.with(handle, |file| file.sync(data_only)),
            Op::Attr(path) => line(tree.attr(caller, at(path)).map(|attr| seen(&attr))),
            Op::Change(path, ref change) => {
                line(tree.set_attr(caller, at(path), change).map(|attr| seen_times(change, &attr)))
            }
            Op::List(path) => {
                let mut found = BTreeMap::new();
                let mut after = 0;
                // In small bites, so that going on is tried, too.
                loop {
                    let mut taken = 0;
                    let mut more = false;
                    let read = tree.read_dir(caller, at(path), after, &mut |entry, name| {
                        if taken == 3 {
                            more = true;
                            return false;
                        }
                        taken += 1;
                        after = entry.next;
                        assert_eq!(name.len(), usize::from(entry.name_bytes));
                        let name = String::from_utf8(name.to_vec()).unwrap();
                        assert!(found.insert(name, seen(&entry.attr)).is_none());
                        true
                    });
                    match read {
                        Err(error) => return line::<()>(Err(error)),
                        Ok(()) if more => {}
                        Ok(()) => return line(Ok(found)),
                    }
                }
            }
            Op::Node(path, mode) => line(tree.make_node(caller, at(path), mode, 0).map(|attr| seen(&attr))),
            Op::Symlink(target, path) => {
                line(tree.symlink(caller, at(target), at(path)).map(|attr| seen(&attr)))
            }
            Op::Link(path, to) => line(tree.link(caller, at(path), at(to)).map(|attr| seen(&attr))),
            Op::ReadLink(path) => line(tree.read_link(caller, at(path))),
            Op::Unlink(path, directory) => line(tree.unlink(caller, at(path), directory)),
            Op::Rename(path, to, flags) => line(tree.rename(caller, at(path), at(to), flags)),
            Op::SetXattr(path, value, flags) => {
                line(tree.set_xattr(caller, at(path), b"user.x", &[value; 10], flags))
            }
            Op::Xattr(path) => line(tree.xattr(caller, at(path), b"user.x")),
            Op::Xattrs(path) => line(tree.xattrs(caller, at(path))),
            Op::RemoveXattr(path) => line(tree.remove_xattr(caller, at(path), b"user.x")),
        }
    }
}

fn pattern(value: u8, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| value.wrapping_add((at % 251) as u8)).collect()
}

/// Enough to tell data apart in a message.
fn digest(bytes: &[u8]) -> (usize, u64) {
    let fold = |sum: u64, &byte: &u8| sum.wrapping_mul(0x100_0000_01b3) ^ u64::from(byte);
    (bytes.len(), bytes.iter().fold(7, fold))
}

struct PlainWorld {
    root: PathBuf,
    handles: Vec<Option<OwnedFd>>,
}

impl PlainWorld {
    fn with<T: Debug>(&self, handle: usize, f: impl FnOnce(&OwnedFd) -> io::Result<T>) -> String {
        self.handles[handle].as_ref().map_or_else(String::new, |file| line(f(file)))
    }

    fn stat(&self, path: &str) -> io::Result<Attr> {
        Ok(attr_of(&self.root.join(path).symlink_metadata()?))
    }
}

fn attr_of(stat: &std::fs::Metadata) -> Attr {
    let time = |seconds, nanoseconds: i64| Moment { seconds, nanoseconds: nanoseconds as u32 };
    Attr {
        size: stat.size(),
        mode: stat.mode(),
        links: stat.nlink() as u32,
        uid: stat.uid(),
        gid: stat.gid(),
        atime: time(stat.atime(), stat.atime_nsec()),
        mtime: time(stat.mtime(), stat.mtime_nsec()),
        ..Attr::default()
    }
}

fn attr_of_open(file: &OwnedFd) -> io::Result<Attr> {
    Ok(attr_of(&std::fs::File::from(file.try_clone()?).metadata()?))
}

fn plain_change(path: &Path, change: &Change) -> io::Result<()> {
    let sets = |which| change.which & which != 0;
    if sets(set::UID) {
        let (uid, gid) = (Uid::from_raw(change.uid), Gid::from_raw(change.gid));
        rustix::fs::chownat(CWD, path, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)?;
    }
    let is_link = path.symlink_metadata()?.is_symlink();
    if sets(set::MODE) {
        if is_link {
            return Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP));
        }
        rustix::fs::chmod(path, Mode::from_raw_mode(change.mode))?;
    }
    if sets(set::SIZE) {
        if is_link || path.metadata()?.file_type().is_fifo() {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        rustix::fs::ftruncate(rustix::fs::open(path, OFlags::WRONLY, Mode::empty())?, change.size)?;
    }
    if sets(set::ATIME | set::MTIME) {
        let time = |which, time: Moment| Timespec {
            tv_sec: time.seconds,
            tv_nsec: if sets(which) { time.nanoseconds.into() } else { UTIME_OMIT },
        };
        let times = Timestamps {
            last_access: time(set::ATIME, change.atime),
            last_modification: time(set::MTIME, change.mtime),
        };
        rustix::fs::utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW)?;
    }
    Ok(())
}

impl World for PlainWorld {
    /// In a thread that is another user for good.
    fn does(&mut self, caller: Caller, op: &Op) -> String {
        if caller == ROOT {
            return self.does_itself(op);
        }
        let user = move || {
            let (uid, gid) = (Uid::from_raw(caller.uid), Gid::from_raw(caller.gid));
            rustix::thread::set_thread_groups(&[gid]).unwrap();
            rustix::thread::set_thread_res_gid(gid, gid, gid).unwrap();
            rustix::thread::set_thread_res_uid(uid, uid, uid).unwrap();
            self.does_itself(op)
        };
        std::thread::scope(|scope| scope.spawn(user).join().unwrap())
    }
}

impl PlainWorld {
    fn does_itself(&mut self, op: &Op) -> String {
        let at = |path: &str| self.root.join(path);
        match *op {
            Op::Open(handle, path, flags, mode) => {
                let opened = plain_open(&at(path), flags, mode);
                line(opened.map(|file| {
                    let text = seen(&attr_of_open(&file).unwrap());
                    self.handles[handle] = Some(file);
                    text
                }))
            }
            Op::Close(handle) => {
                self.handles[handle] = None;
                String::new()
            }
            Op::Write(handle, offset, bytes, value) => {
                self.with(handle, |file| Ok(rustix::io::pwrite(file, &pattern(value, bytes), offset)?))
            }
            Op::Read(handle, offset, bytes) => self.with(handle, |file| {
                let mut buffer = vec![0; bytes];
                let read = rustix::io::pread(file, &mut buffer[..], offset)?;
                buffer.truncate(read);
                Ok(digest(&buffer))
            }),
            Op::HandleAttr(handle) => self.with(handle, |file| Ok(seen(&attr_of_open(file)?))),
            Op::HandleSize(handle, size) => self.with(handle, |file| {
                rustix::fs::ftruncate(file, size)?;
                Ok(seen(&attr_of_open(file)?))
            }),
            Op::Allocate(handle, mode, offset, bytes) => self.with(handle, |file| {
                Ok(rustix::fs::fallocate(file, FallocateFlags::from_bits_retain(mode), offset, bytes)?)
            }),
            Op::Sync(handle, _) => self.with(handle, |file| Ok(rustix::fs::fsync(file)?)),
            Op::Attr(path) => line(self.stat(path).map(|attr| seen(&attr))),
            Op::Change(path, ref change) => {
                let changed = plain_change(&at(path), change).and_then(|()| self.stat(path));
                line(changed.map(|attr| seen_times(change, &attr)))
            }
            Op::List(path) => line(at(path).read_dir().map(|dir| {
                let entry = |entry: io::Result<std::fs::DirEntry>| {
                    let entry = entry.unwrap();
                    // To list needs no permission to look.
                    let unseen = |kind: std::fs::FileType| {
                        let mode = match () {
                            () if kind.is_dir() => libc::S_IFDIR,
                            () if kind.is_symlink() => libc::S_IFLNK,
                            () if kind.is_fifo() => libc::S_IFIFO,
                            () => libc::S_IFREG,
                        };
                        Attr { mode, ..Attr::default() }
                    };
                    let attr = entry.path().symlink_metadata().map(|stat| attr_of(&stat));
                    let attr = attr.unwrap_or_else(|_| unseen(entry.file_type().unwrap()));
                    (entry.file_name().into_string().unwrap(), seen(&attr))
                };
                dir.map(entry).collect::<BTreeMap<_, _>>()
            })),
            Op::Node(path, mode) => {
                let permissions = Mode::from_raw_mode(mode & 0o7777);
                let made = match FileType::from_raw_mode(mode) {
                    FileType::Directory => rustix::fs::mkdir(at(path), permissions),
                    kind => rustix::fs::mknodat(CWD, at(path), kind, permissions, 0),
                };
                line(made.map_err(io::Error::from).and_then(|()| Ok(seen(&self.stat(path)?))))
            }
            Op::Symlink(target, path) => {
                line(std::os::unix::fs::symlink(target, at(path)).and_then(|()| Ok(seen(&self.stat(path)?))))
            }
            Op::Link(path, to) => {
                line(std::fs::hard_link(at(path), at(to)).and_then(|()| Ok(seen(&self.stat(to)?))))
            }
            Op::ReadLink(path) => line(
                rustix::fs::readlink(at(path), Vec::new()).map(|text| text.into_bytes()).map_err(Into::into),
            ),
            Op::Unlink(path, directory) => {
                let flags = if directory { AtFlags::REMOVEDIR } else { AtFlags::empty() };
                line(rustix::fs::unlinkat(CWD, at(path), flags).map_err(Into::into))
            }
            Op::Rename(path, to, flags) => {
                let flags = RenameFlags::from_bits_retain(flags);
                line(rustix::fs::renameat_with(CWD, at(path), CWD, at(to), flags).map_err(Into::into))
            }
            Op::SetXattr(path, value, flags) => {
                let flags = XattrFlags::from_bits_retain(flags);
                line(rustix::fs::lsetxattr(at(path), "user.x", &[value; 10], flags).map_err(Into::into))
            }
            Op::Xattr(path) => {
                let mut value = [0; 100];
                let read = rustix::fs::lgetxattr(at(path), "user.x", &mut value[..]);
                line(read.map(|bytes| value[..bytes].to_vec()).map_err(Into::into))
            }
            Op::Xattrs(path) => {
                let mut names = [0; 1000];
                let read = rustix::fs::llistxattr(at(path), &mut names[..]);
                line(read.map(|bytes| names[..bytes].to_vec()).map_err(Into::into))
            }
            Op::RemoveXattr(path) => line(rustix::fs::lremovexattr(at(path), "user.x").map_err(Into::into)),
        }
    }
}

/// As `open(2)`, but that a FIFO is not opened.
fn plain_open(path: &Path, how: u32, mode: u32) -> io::Result<OwnedFd> {
    let has = |flag| how & flag != 0;
    let mut flags = match (has(open::READ), has(open::WRITE)) {
        (true, true) => OFlags::RDWR,
        (true, false) => OFlags::RDONLY,
        _ => OFlags::WRONLY,
    };
    for (flag, adds) in [
        (open::CREATE, OFlags::CREATE),
        (open::EXCLUSIVE, OFlags::EXCL),
        (open::TRUNCATE, OFlags::TRUNC),
        (open::NO_FOLLOW, OFlags::NOFOLLOW),
        (open::DIRECTORY, OFlags::DIRECTORY),
    ] {
        if has(flag) {
            flags |= adds;
        }
    }
    let is_fifo = path.metadata().is_ok_and(|stat| stat.file_type().is_fifo());
    let fails_otherwise =
        has(open::EXCLUSIVE) || has(open::DIRECTORY) || (has(open::NO_FOLLOW) && path.is_symlink());
    if is_fifo && !fails_otherwise {
        return Err(io::Error::from_raw_os_error(libc::ENXIO));
    }
    Ok(rustix::fs::open(path, flags, Mode::from_raw_mode(mode))?)
}

/// What a comparison leaves in or out.
#[derive(Clone, Copy)]
struct With {
    links: bool,
    users: bool,
}

const ALL: With = With { links: true, users: false };
/// Half of the operations in the name of a user.
const USERS: With = With { links: true, users: true };

fn same(seeds: std::ops::Range<u64>, steps: usize, with: With, tree: impl Fn(&Path) -> Arc<dyn Tree>) {
    if own() != ROOT {
        return;
    }
    for seed in seeds {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("plain")).unwrap();
        let mut found = TreeWorld::new(tree(dir.path()));
        // The umask of a thread that uses a tree is empty; so is it for the plain directory then.
        found.does(ROOT, &Op::Attr("a"));
        let change = Change { which: set::MODE, mode: 0o777, ..Change::default() };
        found.tree.set_attr(ROOT, Path::new(""), &change).unwrap();
        let mut expected =
            PlainWorld { root: dir.path().join("plain"), handles: (0..HANDLES).map(|_| None).collect() };
        for path in [dir.path(), &expected.root] {
            rustix::fs::chmod(path, Mode::from_raw_mode(0o777)).unwrap();
        }
        let mut random = Random(seed);
        let mut log = Vec::new();
        for _ in 0..steps {
            let mut op = random.op();
            if !with.links && matches!(op, Op::Symlink(..)) {
                continue;
            }
            let caller = if with.users { random.of(&[ROOT, USER]) } else { ROOT };
            if with.users {
                op = without_privileges(op);
            }
            let (expected, found) = (expected.does(caller, &op), found.does(caller, &op));
            log.push(format!("{} {op:?}: {expected}", caller.uid));
            // Of the errors of two paths, another one may be found first.
            let both_fail = [&expected, &found].iter().all(|result| result.starts_with("errno"));
            if expected != found && !(matches!(op, Op::Link(..) | Op::Rename(..)) && both_fail) {
                let before = log[log.len().saturating_sub(40)..].join("\n");
                panic!("seed {seed}, step {}: found {found} after\n{before}", log.len());
            }
        }
        assert!(log.iter().filter(|line| !line.contains("errno")).count() > steps / 4);
    }
}

#[test]
fn a_directory_tree_is_a_directory() {
    same(0..12, 1000, ALL, |dir| {
        std::fs::create_dir(dir.join("tree")).unwrap();
        directory(&dir.join("tree"))
    });
}

const LAYOUT: Layout = Layout { first_target: 1, stripe_bytes: 4096, targets: 4 };

#[test]
fn a_striped_tree_is_a_directory() {
    same(100..108, 1000, ALL, |dir| striped(dir, LAYOUT, false));
}

#[test]
fn stripes_need_not_be_whole_blocks() {
    let layout = Layout { first_target: 2, stripe_bytes: 1000, targets: 3 };
    same(200..203, 1000, ALL, |dir| striped(dir, layout, false));
}

#[test]
fn a_striped_tree_on_other_machines_is_a_directory() {
    // Which does not follow a link in the last place.
    same(300..303, 300, With { links: false, ..ALL }, |dir| striped(dir, LAYOUT, true));
}

#[test]
fn users_may_what_they_may_in_a_directory() {
    same(400..408, 1000, USERS, |dir| {
        std::fs::create_dir(dir.join("tree")).unwrap();
        directory(&dir.join("tree"))
    });
    same(500..504, 1000, USERS, |dir| striped(dir, LAYOUT, false));
}
