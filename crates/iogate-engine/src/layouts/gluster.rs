//! GlusterFS: virtual attributes of its FUSE mounts (version 3.6 and later).
//!
//! `glusterfs.pathinfo` names the bricks that have a file: `(<DISTRIBUTE:v-dht> <POSIX(/b0):host:/b0/file>)`; of a
//! directory, all of them. Where bricks are grouped (replicas, dispersed volumes), a file lies on a group:
//! `(<DISTRIBUTE:v-dht> (<REPLICATE:v-replicate-0> <POSIX(/b0):h0:/b0/file> <POSIX(/b1):h1:/b1/file>))`.
//!
//! A target is a brick, or a group of bricks, in the order of their names (`host:/path`), so that all nodes number
//! them alike. The numbers change when bricks are added or removed.
//!
//! With `features.shard`, a file of more than the block size (an attribute that it has kept since its creation) is in
//! shards: the first is the file itself, shard k the file `.shard/GFID.k`, each on a brick of its own. Ordinary mounts
//! hide `.shard` (`EPERM`). It is seen through a mount whose client has the process number -1, which is looked for
//! among all mounts of the same source. Shards that do not exist yet are not known. What is known of a shard is kept:
//! one that a rebalance moves is found again when its file has left the cache.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use iogate_core::{Extent, TargetId};
use rustix::io::Errno;

use super::LayoutError;
use super::ask::{attribute, attribute_at};
use super::bytes::Record;
use super::mounts::Mount;
use super::pieces::pieces;
use crate::lock;

const BRICKS: &str = "glusterfs.pathinfo";
const GFID: &str = "glusterfs.gfid.string";
const BLOCK: &str = "trusted.glusterfs.shard.block-size";

/// Most shards of a file that are asked for at once; the next time, asking goes on.
const ASKED_MAX: usize = 1024;
/// Shards whose targets are kept, of all files together.
const KEPT_MAX: usize = 1 << 20;

/// Bricks that have the same files: one, or a group. Each is `host:/path`; they are in order.
pub type Group = Vec<String>;

/// The groups of bricks that an answer names, in its order.
///
/// # Errors
/// If it names none, or is cut off in a name.
pub fn decode(text: &[u8]) -> Result<Vec<Group>, LayoutError> {
    let record = Record { what: "the attribute glusterfs.pathinfo", bytes: text };
    let shown = String::from_utf8_lossy(text);
    let mut groups: Vec<Group> = Vec::new();
    let mut open: Vec<Level> = Vec::new();
    let mut rest = &*shown;
    while let Some(at) = rest.find(['(', ')', '<']) {
        let (sign, after) = (rest.as_bytes()[at], &rest[at + 1..]);
        rest = after;
        match sign {
            b'(' => open.push(Level::default()),
            b')' => drop(open.pop()),
            _ => {
                let Some((name, after)) = after.split_once('>') else {
                    return Err(record.unexpected("'>' after each '<'", &format!("'{shown}'")));
                };
                rest = after;
                match (brick(name), open.last_mut()) {
                    (None, None) => {}
                    (None, Some(level)) => level.joins = !name.starts_with("DISTRIBUTE"),
                    (Some(brick), Some(Level { joins: true, group: Some(group) })) => {
                        groups[*group].push(brick);
                    }
                    (Some(brick), level) => {
                        if let Some(level) = level {
                            level.group = Some(groups.len());
                        }
                        groups.push(vec![brick]);
                    }
                }
            }
        }
    }
    if groups.is_empty() {
        return Err(record.unexpected("a brick, <POSIX(PATH):HOST:PATH>", &format!("'{shown}'")));
    }
    groups.iter_mut().for_each(|group| group.sort_unstable());
    Ok(groups)
}

/// An open parenthesis.
#[derive(Default)]
struct Level {
    /// Its bricks are one group: they are not those that files are distributed among.
    joins: bool,
    /// The group of the last brick in it.
    group: Option<usize>,
}

/// `host:/b0` from `POSIX(/b0):host:/b0/file`.
fn brick(name: &str) -> Option<String> {
    let (path, rest) = name.strip_prefix("POSIX(")?.split_once("):")?;
    let (host, _) = rest.split_once(':')?;
    Some(format!("{host}:{path}"))
}

/// A volume, as it is seen through its mounts.
#[derive(Debug, Default)]
pub(super) struct Gluster {
    /// All groups, in the order of their targets' numbers.
    groups: Mutex<Vec<Group>>,
    /// By GFID, the targets of a file's shards from the second on, as far as they are known.
    shards: Mutex<HashMap<Vec<u8>, Vec<Option<u32>>>>,
}

impl Gluster {
    /// Asks for the layout of a file of `size` bytes.
    pub(super) fn extents(
        &self,
        fd: BorrowedFd<'_>,
        mount: &Mount,
        size: u64,
    ) -> Result<Vec<Extent>, LayoutError> {
        let Some(answer) = attribute(fd, BRICKS)? else { return Ok(Vec::new()) };
        let first = self.target(&answer, mount)?;
        let single = || {
            vec![Extent { start: 0, end: u64::MAX, stripe_bytes: u64::MAX, targets: vec![TargetId(first)] }]
        };
        let Some(window) = window(mount)? else { return Ok(single()) };
        let Some(block) = block_bytes(fd, mount, &window)? else { return Ok(single()) };
        let count = usize::try_from(size.div_ceil(block)).unwrap_or(usize::MAX).max(1);
        let gfid = attribute(fd, GFID)?.unwrap_or_default();
        let mut targets = vec![Some(first)];
        targets.extend(self.shards(&gfid, count - 1, mount, &window)?);
        Ok(pieces(block, &targets))
    }

    /// The bricks of a target, with commas between them.
    pub(super) fn name(&self, target: TargetId) -> Option<String> {
        lock(&self.groups).get(target.0 as usize).map(|group| group.join(","))
    }

    /// How many targets the volume has.
    pub(super) fn targets(&self, mount: &Mount) -> Result<u32, LayoutError> {
        self.learn_groups(mount)?;
        Ok(lock(&self.groups).len() as u32)
    }

    fn learn_groups(&self, mount: &Mount) -> Result<(), LayoutError> {
        let answer = attribute_at(&mount.point, BRICKS)?.unwrap_or_default();
        let mut groups = decode(&answer)?;
        groups.sort_unstable();
        *lock(&self.groups) = groups;
        Ok(())
    }

    /// The number of the target that an answer names.
    fn target(&self, answer: &[u8], mount: &Mount) -> Result<u32, LayoutError> {
        let groups = decode(answer)?;
        let brick = &groups[0][0];
        let known = || lock(&self.groups).iter().position(|group| group.contains(brick));
        if known().is_none() {
            self.learn_groups(mount)?;
        }
        known().map(|target| target as u32).ok_or_else(|| LayoutError::Malformed {
            what: BRICKS,
            expected: "a brick of the volume".into(),
            got: brick.clone(),
        })
    }

    /// The targets of the first `count` shards after the file itself.
    fn shards(
        &self,
        gfid: &[u8],
        count: usize,
        mount: &Mount,
        window: &Path,
    ) -> Result<Vec<Option<u32>>, LayoutError> {
        let mut targets = lock(&self.shards).get(gfid).cloned().unwrap_or_default();
        targets.resize(count.min(KEPT_MAX), None);
        let unknown = targets.iter_mut().enumerate().filter(|(_, target)| target.is_none());
        for (index, target) in unknown.take(ASKED_MAX) {
            let name = format!("{}.{}", String::from_utf8_lossy(gfid).trim_end_matches('\0'), index + 1);
            if let Some(answer) = attribute_at(&window.join(".shard").join(name), BRICKS)? {
                *target = Some(self.target(&answer, mount)?);
            }
        }
        let mut kept = lock(&self.shards);
        if kept.values().map(Vec::len).sum::<usize>() + targets.len() > KEPT_MAX {
            kept.clear();
        }
        kept.insert(gfid.into(), targets.clone());
        Ok(targets)
    }
}

/// A mount point of the same volume through which `.shard` is seen; `None` where the mount itself hides none: then it
/// shows files as they are on the bricks.
fn window(mount: &Mount) -> Result<Option<PathBuf>, LayoutError> {
    let top = Path::new("/");
    let shards = |point: &Path| rustix::fs::lstat(point.join(".shard")).map(drop);
    if mount.root == top && shards(&mount.point) != Err(Errno::PERM) {
        return Ok(None);
    }
    let asking = |cause| LayoutError::Asking { what: "the list of mounts".into(), cause };
    let others = Mount::all().map_err(asking)?.into_iter();
    let others = others.filter(|other| other.fs_type == mount.fs_type && other.source == mount.source);
    let mut tops = others.filter(|other| other.root == top).map(|other| other.point);
    // There is no such folder before the first file needs it; other errors come from mounts that are dead or not ours.
    let window = tops.find(|point| matches!(shards(point), Ok(()) | Err(Errno::NOENT)));
    window.map(Some).ok_or_else(|| LayoutError::ShardsHidden { source_name: mount.source.clone() })
}

/// The size of a file's shards; `None` if it is not in shards.
fn block_bytes(fd: BorrowedFd<'_>, mount: &Mount, window: &Path) -> Result<Option<u64>, LayoutError> {
    let asking = |what: &str, cause| LayoutError::Asking { what: what.into(), cause };
    if !rustix::process::geteuid().is_root() {
        let cause = io::Error::new(io::ErrorKind::PermissionDenied, "this takes root");
        return Err(asking(BLOCK, cause));
    }
    let path = std::fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd()));
    let path = path.map_err(|cause| asking("the path of an open file", cause))?;
    let below = path.strip_prefix(&mount.point).unwrap_or(&path);
    let in_volume = mount.root.strip_prefix("/").unwrap_or(&mount.root).join(below);
    let Some(value) = attribute_at(&window.join(in_volume), BLOCK)? else { return Ok(None) };
    let record = Record { what: BLOCK, bytes: &value };
    match value.first_chunk().map(|value| u64::from_be_bytes(*value)) {
        Some(block) if block > 0 => Ok(Some(block)),
        _ => Err(record.unexpected("8 bytes, a number that is not 0", &format!("{value:?}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bricks_of_files_and_directories() {
        let decoded = |text: &str| decode(text.as_bytes()).unwrap();
        let file = "(<DISTRIBUTE:v-dht> <POSIX(/b2):node1:/b2/dir/f (1)>) \0";
        assert_eq!(decoded(file), [["node1:/b2"]]);
        let directory = "((<DISTRIBUTE:v-dht> <POSIX(/b3):node2:/b3/> <POSIX(/b2):node1:/b2/>) \
            (v-dht-layout (v-client-0 0 2147483646) (v-client-1 2147483647 4294967295)))";
        assert_eq!(decoded(directory), [["node2:/b3"], ["node1:/b2"]]);
    }

    #[test]
    fn bricks_that_have_the_same_files_are_one_target() {
        let replicated = "((<DISTRIBUTE:v-dht> (<REPLICATE:v-replicate-0> <POSIX(/b1):n1:/b1/> <POSIX(/b0):n0:/b0/>) \
            (<REPLICATE:v-replicate-1> <POSIX(/b2):n2:/b2/> <POSIX(/b3):n3:/b3/>)) (v-dht-layout (v-replicate-0 0 9)))";
        assert_eq!(decode(replicated.as_bytes()).unwrap(), [["n0:/b0", "n1:/b1"], ["n2:/b2", "n3:/b3"]]);
    }

    #[test]
    fn what_names_no_brick_is_refused() {
        for text in
            ["", "(<DISTRIBUTE:v-dht>)", "(((", ")))", "(<POSIX(/b0:node:/b0>)", "(<POSIX(/b0):node:/b0/f"]
        {
            let error = decode(text.as_bytes()).unwrap_err().to_string();
            assert!(error.contains("glusterfs.pathinfo: expected"), "{error}");
        }
    }
}
