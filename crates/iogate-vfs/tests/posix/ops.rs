//! Operations that look random.

use iogate_core::wire::{Change, Timestamp, open, set};

/// Names that operations take, so few that they meet.
const PATHS: &[&str] = &["a", "b", "c", "d", "e", "d/a", "d/b", "d/e", "d/e/a", "e/a", "e/d", "missing/a"];
/// What symbolic links say: all of it stays below.
const TARGETS: &[&str] = &["a", "b", "d", "e", "e/a", "nowhere", "d/e"];
pub(crate) const HANDLES: usize = 4;

#[derive(Clone, Debug)]
pub(crate) enum Op {
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
pub(crate) fn without_privileges(op: Op) -> Op {
    match op {
        Op::Node(path, mode) if mode & libc::S_IFMT != libc::S_IFDIR => Op::Node(path, mode & !0o6000),
        Op::Change(path, change) => Op::Change(path, Change { mode: change.mode & !0o6000, ..change }),
        op => op,
    }
}

/// Numbers that look random, the same for the same seed (splitmix64).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }

    pub(crate) fn of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize]
    }

    pub(crate) fn op(&mut self) -> Op {
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
                let time = |seconds| Timestamp { seconds, nanoseconds: 123_456_000 };
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
