//! Trees against a plain directory, operation by operation, in random sequences: the same results, the same errors.

#[path = "../common/mod.rs"]
mod common;
mod ops;
mod plain;

use iogate_core::wire::Identity;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::io;
use std::path::Path;
use std::sync::Arc;

use common::{ROOT, USER, directory, own, striped};
use iogate_core::Layout;
use iogate_core::wire::{Attr, Change, Timestamp, set};
use iogate_engine::Engine;
use iogate_vfs::{Caller, OpenHow, Tree, TreeFile};
use ops::{HANDLES, Op, Random, without_privileges};
use plain::PlainWorld;
use rustix::fs::Mode;

/// What can be compared of attributes.
fn seen(attr: &Attr) -> String {
    let is = |kind| attr.mode & libc::S_IFMT == kind;
    let links = if is(libc::S_IFDIR) { 0 } else { attr.links };
    let size = if is(libc::S_IFREG) || is(libc::S_IFLNK) { attr.size } else { 0 };
    format!("{:o} {links} {}:{} {size}", attr.mode, attr.uid, attr.gid)
}

/// And of times that were set.
fn seen_times(change: &Change, attr: &Attr) -> String {
    let time = |which, time: Timestamp| if change.which & which == 0 { Timestamp::default() } else { time };
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
            Op::Sync(handle, data_only) => self.with(handle, |file| file.sync(data_only).map(drop)),
            Op::Attr(path) => line(tree.attr(caller, at(path)).map(|attr| seen(&attr))),
            Op::Change(path, ref change) => line(
                tree.set_attr(caller, at(path), Identity::default(), change)
                    .map(|attr| seen_times(change, &attr)),
            ),
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
            Op::Unlink(path, directory) => line(tree.unlink(caller, at(path), directory).map(drop)),
            Op::Rename(path, to, flags) => line(tree.rename(caller, at(path), at(to), flags).map(drop)),
            Op::SetXattr(path, value, flags) => {
                line(tree.set_xattr(caller, at(path), Identity::default(), b"user.x", &[value; 10], flags))
            }
            Op::Xattr(path) => line(tree.xattr(caller, at(path), b"user.x")),
            Op::Xattrs(path) => line(tree.xattrs(caller, at(path))),
            Op::RemoveXattr(path) => {
                line(tree.remove_xattr(caller, at(path), Identity::default(), b"user.x"))
            }
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

/// What a comparison leaves in or out.
#[derive(Clone, Copy)]
struct With {
    links: bool,
    users: bool,
    /// The bytes lie elsewhere than the name, so that writing them does not touch its permissions.
    stripes: bool,
}

const ALL: With = With { links: true, users: false, stripes: false };
const STRIPES: With = With { stripes: true, ..ALL };
/// Half of the operations in the name of a user.
const USERS: With = With { links: true, users: true, stripes: false };

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
        found.tree.set_attr(ROOT, Path::new(""), Identity::default(), &change).unwrap();
        let mut expected = PlainWorld::new(dir.path().join("plain"), with.stripes);
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
    same(100..108, 1000, STRIPES, |dir| striped(dir, LAYOUT, false));
}

#[test]
fn stripes_need_not_be_whole_blocks() {
    let layout = Layout { first_target: 2, stripe_bytes: 1000, targets: 3 };
    same(200..203, 1000, STRIPES, |dir| striped(dir, layout, false));
}

#[test]
fn a_striped_tree_on_other_machines_is_a_directory() {
    // Which does not follow a link in the last place.
    same(300..303, 300, With { links: false, ..STRIPES }, |dir| striped(dir, LAYOUT, true));
}

#[test]
fn users_may_what_they_may_in_a_directory() {
    same(400..408, 1000, USERS, |dir| {
        std::fs::create_dir(dir.join("tree")).unwrap();
        directory(&dir.join("tree"))
    });
    same(500..504, 1000, With { stripes: true, ..USERS }, |dir| striped(dir, LAYOUT, false));
}
