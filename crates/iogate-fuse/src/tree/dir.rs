//! Reading directories, whatever their size.
//!
//! Entries are fetched many at a time. The kernel's position is the number of an entry: the tree's own positions are
//! remembered for as long as the directory is open, so that they need not leave room for `.` and `..`.

use std::sync::Mutex;

use iogate_core::wire::{Attr, open};
use iogate_vfs::Caller;
use rustix::io::Errno;
use zerocopy::IntoBytes;

use super::FileSystem;
use super::node::Node;
use crate::abi::{Dirent, EntryOut, InHeader, OpenOut, ROOT_ID, ReadIn};
use crate::operations::Directories;

/// Most entries that are fetched at a time.
const FETCHED_MAX: usize = 8192;
/// `.` and `..` come first.
const DOTS: [&[u8]; 2] = [b".", b".."];

/// An open directory.
pub(super) struct OpenDir {
    /// Who has opened it: whoever reads it then, does so in that name.
    caller: Caller,
    stream: Mutex<Stream>,
}

/// Entries of a directory from a position on.
#[derive(Default)]
struct Stream {
    fetched: Vec<Fetched>,
    /// The number of the first of them.
    first: usize,
    /// Whether the directory ends with them.
    ends: bool,
    /// Where the tree goes on after each entry that was seen.
    positions: Vec<u64>,
    /// Of the nodes, before the entries were fetched.
    changes: u64,
}

/// An entry that was fetched.
struct Fetched {
    name: Box<[u8]>,
    attr: Attr,
}

/// Room for a reply.
struct Reply<'a> {
    out: &'a mut Vec<u8>,
    limit: usize,
    plus: bool,
}

impl Reply<'_> {
    /// Adds an entry; false if there is no room for it.
    fn add(&mut self, name: &[u8], attr: &Attr, next: u64, entry: impl FnOnce() -> EntryOut) -> bool {
        let fixed = size_of::<Dirent>() + if self.plus { size_of::<EntryOut>() } else { 0 };
        let end = self.out.len() + (fixed + name.len()).next_multiple_of(8);
        if end > self.limit {
            return false;
        }
        if self.plus {
            self.out.extend_from_slice(entry().as_bytes());
        }
        let kind = (attr.mode & libc::S_IFMT) >> 12;
        let dirent = Dirent { ino: attr.inode, off: next, namelen: name.len() as u32, kind };
        self.out.extend_from_slice(dirent.as_bytes());
        self.out.extend_from_slice(name);
        self.out.resize(end, 0);
        true
    }
}

impl Directories for FileSystem {
    fn opendir(&self, header: &InHeader) -> Result<OpenOut, Errno> {
        self.nodes.get(header.nodeid)?;
        let fh = self.dirs.insert(OpenDir { caller: self.caller(header), stream: Mutex::default() });
        Ok(OpenOut { fh, open_flags: 0, padding: 0 })
    }

    fn releasedir(&self, handle: u64) -> Result<(), Errno> {
        self.dirs.remove(handle).map(drop)
    }

    fn fsyncdir(&self, header: &InHeader, _: u64, data_only: bool) -> Result<(), Errno> {
        let flags = open::READ | open::DIRECTORY;
        self.at([(header.nodeid, b"")], |[path]| {
            let directory = self.open_at(self.caller(header), path, flags, 0)?;
            directory.sync(data_only).map(drop)
        })
    }

    fn readdir(&self, header: &InHeader, arg: ReadIn, plus: bool, out: &mut Vec<u8>) -> Result<(), Errno> {
        let dir = self.dirs.get(arg.fh)?;
        let node = self.nodes.get(header.nodeid)?;
        let mut stream = dir.stream.lock().expect("no directory operation panics");
        let begin = out.len();
        let limit = begin + arg.size.min(self.agreed.request_bytes_max) as usize;
        let mut reply = Reply { out, limit, plus };
        let mut number = usize::try_from(arg.offset).map_err(|_| Errno::INVAL)?;
        let mut fresh = false;
        if number == 0 {
            // From the beginning again: see what has changed.
            (stream.fetched, stream.first, stream.ends) = (Vec::new(), 0, false);
        }
        loop {
            let added = if let Some(name) = DOTS.get(number) {
                let attr =
                    Attr { inode: self.inode_of_dot(&node, number), mode: libc::S_IFDIR, ..Attr::default() };
                reply.add(name, &attr, number as u64 + 1, EntryOut::default)
            } else {
                match stream.seek(number - DOTS.len()) {
                    Ok(true) => {}
                    Ok(false) => match self.fetch(header.nodeid, dir.caller, &mut stream) {
                        Ok(()) => fresh = true,
                        // What was read so far counts; the error comes again with the next call.
                        Err(_) if reply.out.len() > begin => break,
                        Err(errno) => return Err(errno),
                    },
                    Err(errno) => return Err(errno),
                }
                let Some(entry) = stream.fetched.get(number - DOTS.len() - stream.first) else { break };
                reply.add(&entry.name, &entry.attr, number as u64 + 1, || {
                    self.entry_plus(header.nodeid, entry, fresh, stream.changes)
                })
            };
            if !added {
                if reply.out.len() == begin {
                    return Err(Errno::INVAL);
                }
                break;
            }
            number += 1;
        }
        Ok(())
    }
}

impl FileSystem {
    fn inode_of_dot(&self, node: &Node, number: usize) -> u64 {
        let parent = (number == 1 && node.id != ROOT_ID).then(|| self.nodes.parent_inode(node.id)).flatten();
        parent.unwrap_or(node.number.inode)
    }

    /// Fetches the entries that follow those that were fetched before.
    fn fetch(&self, node: u64, caller: Caller, stream: &mut Stream) -> Result<(), Errno> {
        let next = stream.first + stream.fetched.len();
        let after = if next == 0 { 0 } else { stream.positions[next - 1] };
        stream.changes = self.nodes.changes();
        let fetched = self.at([(node, b"")], |[path]| {
            (stream.fetched, stream.first, stream.ends) = (Vec::with_capacity(64), next, true);
            self.tree.read_dir(caller, path, after, &mut |entry, name| {
                if DOTS.contains(&name) {
                    return true;
                }
                if stream.fetched.len() == FETCHED_MAX {
                    stream.ends = false;
                    return false;
                }
                let number = next + stream.fetched.len();
                match stream.positions.get_mut(number) {
                    Some(position) => *position = entry.next,
                    None => stream.positions.push(entry.next),
                }
                stream.fetched.push(Fetched { name: name.into(), attr: entry.attr });
                true
            })
        });
        if fetched.is_err() {
            (stream.fetched, stream.ends) = (Vec::new(), false);
        }
        fetched
    }

    /// The attributes that go with an entry; none (node id 0) where they could not be had (no links), so that whoever wants them is told
    /// why, and where the kernel may know better: it has changed the file, or taken the name away, since they were fetched for an earlier
    /// request.
    fn entry_plus(&self, parent: u64, entry: &Fetched, fresh: bool, changes: u64) -> EntryOut {
        let attr = &entry.attr;
        let known = attr.links > 0 && (fresh || (self.nodes.changes() == changes && !self.nodes.knows(attr)));
        let node = known.then(|| self.nodes.enter((parent, &entry.name), attr).ok()).flatten();
        node.map_or_else(EntryOut::default, |node| self.entry_out(&node, attr))
    }
}

impl Stream {
    /// Goes to an entry. False if the next ones have to be fetched; `EINVAL` for a number that was never seen.
    fn seek(&mut self, number: usize) -> Result<bool, Errno> {
        let end = self.first + self.fetched.len();
        if (self.first..end).contains(&number) || (number == end && self.ends) {
            return Ok(true);
        }
        if number > self.positions.len() {
            return Err(Errno::INVAL);
        }
        if number != end {
            (self.fetched, self.first, self.ends) = (Vec::new(), number, false);
        }
        Ok(false)
    }
}
