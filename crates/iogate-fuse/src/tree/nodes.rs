//! The files that the kernel knows: node id <-> names.
//!
//! A tree knows files by path, the kernel by node id. A node is a file by its inode number in its file system; its
//! names are kept right over what is renamed and removed through the mount, and corrected by what lookups say. A directory's own name
//! stands in one place, so that renaming it renames everything below it.

use std::collections::HashMap;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use iogate_core::wire::{Attr, Identity, PATH_BYTES_MAX};
use rustix::io::Errno;

use super::node::{Node, Number};
use crate::abi::ROOT_ID;

/// A name in a directory; an empty one is the directory itself.
pub(super) type Place<'a> = (u64, &'a [u8]);

/// All nodes of a mount.
pub(super) struct Nodes {
    table: Mutex<Table>,
    /// A rename has ended.
    moved: Condvar,
}

struct Table {
    by_id: HashMap<u64, Slot>,
    /// The node of each file that has a name.
    by_number: HashMap<Number, u64>,
    next_id: u64,
    /// Counts what has taken names away.
    changes: u64,
    moves: Moves,
    /// How many wait for the end of a rename.
    waiting: usize,
}

/// A node and what the table knows of it.
struct Slot {
    node: Arc<Node>,
    /// As last seen.
    links: u32,
    /// How often the kernel was told of it and has not forgotten.
    lookups: u64,
    /// Directory and name; several for hard links, the one seen last at the end.
    names: Vec<(u64, Arc<[u8]>)>,
    children: HashMap<Arc<[u8]>, u64>,
}

/// Renames so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Moves {
    begun: u64,
    ended: u64,
}

/// Paths as they were at a moment.
#[derive(Debug)]
pub(super) struct Located<const N: usize> {
    pub(super) paths: [PathBuf; N],
    moves: Moves,
}

impl Nodes {
    /// A table that contains the root, which is never forgotten.
    pub(super) fn new(root: &Attr) -> Nodes {
        let node = Arc::new(Node::new(ROOT_ID, root));
        let table = Table {
            by_id: HashMap::from([(ROOT_ID, Slot::new(node, root))]),
            by_number: HashMap::from([(Number::of(root), ROOT_ID)]),
            next_id: ROOT_ID + 1,
            changes: 0,
            moves: Moves::default(),
            waiting: 0,
        };
        Nodes { table: Mutex::new(table), moved: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().expect("no table operation panics")
    }

    /// The node with this id; `ESTALE` if the kernel should not know it.
    pub(super) fn get(&self, id: u64) -> Result<Arc<Node>, Errno> {
        self.lock().by_id.get(&id).map(|slot| slot.node.clone()).ok_or(Errno::STALE)
    }

    /// The paths of some places; `ESTALE` for what has no name any more.
    pub(super) fn locate<const N: usize>(&self, places: [Place<'_>; N]) -> Result<Located<N>, Errno> {
        let table = self.lock();
        let mut paths: [PathBuf; N] = std::array::from_fn(|_| PathBuf::new());
        for (path, place) in paths.iter_mut().zip(places) {
            *path = table.path(place)?;
        }
        Ok(Located { paths, moves: table.moves })
    }

    /// Whether renames may have changed paths since they were looked up. Waits for those that are underway.
    pub(super) fn may_have_moved<const N: usize>(&self, since: &Located<N>) -> bool {
        let mut table = self.lock();
        let now = table.moves;
        table.waiting += 1;
        table = self
            .moved
            .wait_while(table, |table| table.moves.ended < now.begun && table.moves.begun > table.moves.ended)
            .expect("no table operation panics");
        table.waiting -= 1;
        table.moves != since.moves
    }

    /// Counts a lookup of a name, and says which node it is; `ESTALE` if the directory is not known.
    pub(super) fn enter(&self, (parent, name): Place<'_>, attr: &Attr) -> Result<Arc<Node>, Errno> {
        let mut table = self.lock();
        let id = table.enter(parent, name, attr)?;
        let slot = table.by_id.get_mut(&id).ok_or(Errno::STALE)?;
        slot.lookups += 1;
        Ok(slot.node.clone())
    }

    /// Takes back `count` lookups.
    pub(super) fn forget(&self, id: u64, count: u64) {
        let mut table = self.lock();
        if let Some(slot) = table.by_id.get_mut(&id) {
            slot.lookups = slot.lookups.saturating_sub(count);
            table.drop_unused(id);
        }
    }

    /// A name of a node has turned out to be of the file `found`, with these attributes: the next lookup of it finds another node. Not
    /// one of an earlier file with the same number either, as inode numbers are used again: the kernel looks up once more, and no more
    /// than once.
    pub(super) fn is_another(&self, node: &Node, found: Identity, attr: &Attr) {
        let mut table = self.lock();
        table.number_is_free(node);
        let known = table.by_number.get(&Number::of(attr)).and_then(|id| table.by_id.get(id));
        if known.is_some_and(|slot| !slot.node.is(found)) {
            table.by_number.remove(&Number::of(attr));
        }
    }

    /// Notes that a name was removed.
    pub(super) fn unlinked(&self, place: Place<'_>) {
        let mut table = self.lock();
        table.changes += 1;
        table.unlinked(place);
    }

    /// Carries out a rename and notes it: with `exchange`, both names stay.
    pub(super) fn rename<E>(
        &self,
        from: Place<'_>,
        to: Place<'_>,
        exchange: bool,
        rename: impl FnOnce() -> Result<(), E>,
    ) -> Result<(), E> {
        self.lock().moves.begun += 1;
        let ended = MoveGuard(self);
        rename()?;
        let mut table = self.lock();
        table.changes += 1;
        table.renamed(from, to, exchange);
        drop(table);
        drop(ended);
        Ok(())
    }

    /// Counts what has taken names away: while it stays the same, a name that was seen is still there, as far as this
    /// mount goes.
    pub(super) fn changes(&self) -> u64 {
        self.lock().changes
    }

    /// Whether the kernel knows the file with these attributes.
    pub(super) fn knows(&self, attr: &Attr) -> bool {
        self.lock().by_number.contains_key(&Number::of(attr))
    }

    /// The inode number of a directory's parent.
    pub(super) fn parent_inode(&self, id: u64) -> Option<u64> {
        let table = self.lock();
        let (parent, _) = table.by_id.get(&id)?.names.last()?;
        Some(table.by_id.get(parent)?.node.number.inode)
    }
}

/// Notes the end of a rename, also of a failed one.
struct MoveGuard<'a>(&'a Nodes);

impl Drop for MoveGuard<'_> {
    fn drop(&mut self) {
        let mut table = self.0.lock();
        table.moves.ended += 1;
        let is_awaited = table.waiting > 0;
        drop(table);
        if is_awaited {
            self.0.moved.notify_all();
        }
    }
}

impl Slot {
    fn new(node: Arc<Node>, attr: &Attr) -> Slot {
        Slot { node, links: attr.links, lookups: 0, names: Vec::new(), children: HashMap::new() }
    }
}

impl Table {
    fn path(&self, (id, name): Place<'_>) -> Result<PathBuf, Errno> {
        let mut parts = Vec::with_capacity(16);
        parts.extend(Some(name).filter(|name| !name.is_empty()));
        let mut bytes = name.len();
        let mut at = id;
        while at != ROOT_ID {
            let (parent, name) =
                self.by_id.get(&at).and_then(|slot| slot.names.last()).ok_or(Errno::STALE)?;
            parts.push(name);
            bytes += name.len() + 1;
            if bytes > PATH_BYTES_MAX {
                return Err(Errno::NAMETOOLONG);
            }
            at = *parent;
        }
        parts.reverse();
        Ok(OsString::from_vec(parts.join(&b'/')).into())
    }

    fn enter(&mut self, parent: u64, name: &[u8], attr: &Attr) -> Result<u64, Errno> {
        if !self.by_id.contains_key(&parent) {
            return Err(Errno::STALE);
        }
        let known = self.by_number.get(&Number::of(attr)).copied();
        let known = known.filter(|id| self.by_id.get(id).is_some_and(|slot| slot.node.is_of_kind(attr.mode)));
        // A directory is not below itself; what says so has been moved, or is of another file system that is not told apart.
        let id = match known.filter(|id| !self.is_at_or_below(parent, *id)) {
            Some(id) => id,
            None => self.insert(attr),
        };
        let before = self.child((parent, name));
        if before != Some(id) {
            if before.is_some() {
                self.unlinked((parent, name));
            }
            self.attach(id, (parent, name));
        }
        if let Some(slot) = self.by_id.get_mut(&id) {
            slot.links = attr.links;
            slot.node.saw(attr);
            let (last, gone) = match slot.names.iter().position(|at| at.0 == parent && *at.1 == *name) {
                // Other names were renamed away by somebody else.
                Some(at) if attr.links <= 1 || slot.node.is_directory() => {
                    let last = slot.names.swap_remove(at);
                    (last, std::mem::take(&mut slot.names))
                }
                Some(at) => (slot.names.remove(at), Vec::new()),
                None => return Err(Errno::STALE),
            };
            slot.names.push(last);
            for (parent, name) in gone {
                self.leave(parent, &name);
            }
        }
        Ok(id)
    }

    fn insert(&mut self, attr: &Attr) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        self.by_id.insert(id, Slot::new(Arc::new(Node::new(id, attr)), attr));
        // What had the same number is gone: the kernel forgets it by its id.
        self.by_number.insert(Number::of(attr), id);
        id
    }

    fn is_at_or_below(&self, mut at: u64, ancestor: u64) -> bool {
        while at != ancestor {
            match self.by_id.get(&at).and_then(|slot| slot.names.last()) {
                Some((parent, _)) => at = *parent,
                None => return false,
            }
        }
        true
    }

    fn child(&self, (parent, name): Place<'_>) -> Option<u64> {
        self.by_id.get(&parent)?.children.get(name).copied()
    }

    /// Gives a node a name that nothing has.
    fn attach(&mut self, id: u64, (parent, name): Place<'_>) {
        let name: Arc<[u8]> = name.into();
        if let Some(slot) = self.by_id.get_mut(&parent) {
            slot.children.insert(name.clone(), id);
            if let Some(slot) = self.by_id.get_mut(&id) {
                slot.names.push((parent, name));
            }
        }
    }

    /// Takes a name away from its node, and says whose it was.
    fn detach(&mut self, (parent, name): Place<'_>) -> Option<u64> {
        let id = self.child((parent, name))?;
        if let Some(slot) = self.by_id.get_mut(&id) {
            slot.names.retain(|at| at.0 != parent || *at.1 != *name);
        }
        self.leave(parent, name);
        Some(id)
    }

    fn leave(&mut self, parent: u64, name: &[u8]) {
        if let Some(slot) = self.by_id.get_mut(&parent) {
            slot.children.remove(name);
            self.drop_unused(parent);
        }
    }

    fn unlinked(&mut self, place: Place<'_>) {
        let Some(id) = self.detach(place) else { return };
        let Some(slot) = self.by_id.get_mut(&id) else { return };
        slot.links = if slot.node.is_directory() { 0 } else { slot.links.saturating_sub(1) };
        // From now on the number may be another file's.
        if slot.links == 0 {
            let node = Arc::clone(&slot.node);
            self.number_is_free(&node);
        }
    }

    /// A node is no longer the one of its number.
    fn number_is_free(&mut self, node: &Node) {
        if self.by_number.get(&node.number) == Some(&node.id) {
            self.by_number.remove(&node.number);
        }
    }

    fn renamed(&mut self, from: Place<'_>, to: Place<'_>, exchange: bool) {
        let (moved, replaced) = (self.child(from), self.child(to));
        if moved.is_some() && moved == replaced {
            return;
        }
        self.detach(from);
        if exchange {
            self.detach(to);
            replaced.inspect(|&id| self.attach(id, from));
        } else {
            self.unlinked(to);
        }
        moved.inspect(|&id| self.attach(id, to));
    }

    /// Drops a node that the kernel has forgotten and that no name leads through, and so its parents.
    fn drop_unused(&mut self, id: u64) {
        let mut unused = vec![id];
        while let Some(id) = unused.pop() {
            let used = |slot: &Slot| slot.lookups > 0 || !slot.children.is_empty();
            if id == ROOT_ID || self.by_id.get(&id).is_none_or(used) {
                continue;
            }
            let Some(slot) = self.by_id.remove(&id) else { continue };
            self.number_is_free(&slot.node);
            for (parent, name) in slot.names {
                if let Some(slot) = self.by_id.get_mut(&parent) {
                    slot.children.remove(&name);
                    unused.push(parent);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
