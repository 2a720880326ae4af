//! What a directory's names lead to, as clients see it, and what becomes of a file whose name goes.

use std::io;
use std::os::fd::OwnedFd;

use iogate_core::wire::{Attr, Entry, Gone};
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;

use super::beneath::Place;
use super::removed::{Own, check_own};
use super::{DirectoryTree, stat};
use crate::Caller;

impl DirectoryTree {
    /// Completes attributes by what the extended ones say; `hold` holds the file, in the process's own name.
    pub(super) fn complete(
        &self,
        known: stat::Known,
        listed: stat::Listed,
        hold: impl FnOnce() -> Result<OwnedFd, Errno>,
    ) -> io::Result<Attr> {
        let mut attr = self.file_systems.attr(&known);
        listed.note(&mut attr);
        if attr.links > 1 && FileType::from_raw_mode(attr.mode) == FileType::RegularFile {
            let own = self.file_systems.own_identity(&known);
            attr.links -= own.map_or(0, |identity| self.files.extra(identity).0);
        }
        if listed.has_object {
            match hold() {
                Ok(held) if stat::of(&held)?.is(&known) => {
                    attr.object = stat::find_object(&held)?.unwrap_or_default();
                }
                // Replaced or removed meanwhile.
                Ok(_) | Err(Errno::NOENT) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(attr)
    }

    /// As [`DirectoryTree::complete`], of what a descriptor holds.
    pub(super) fn complete_held(&self, held: &OwnedFd) -> io::Result<Attr> {
        let hold = || rustix::io::fcntl_dupfd_cloexec(held, 0);
        self.complete(stat::of(held)?, stat::list_of(held), hold)
    }

    /// The attributes of a name, which was just made or looked for; in the caller's name so far.
    pub(super) fn attr_at(&self, place: &Place<'_>, found: (stat::Known, stat::Listed)) -> io::Result<Attr> {
        self.complete(found.0, found.1, || place.hold())
    }

    /// Carries out what may take a file's last name away, and keeps the file if somebody has it open. `look` says which file it
    /// would be, `remove` does it; both in the caller's name. `makes`: it also makes a name, for which there must be room.
    pub(super) fn remove<P>(
        &self,
        caller: Caller,
        makes: bool,
        look: impl FnOnce() -> Result<(P, Option<OwnedFd>), Errno>,
        remove: impl Fn(&P) -> Result<(), Errno>,
    ) -> io::Result<Gone> {
        let first = || {
            let (place, held) = look()?;
            let victim = held.map(|held| self.files.victim(held)).transpose()?.flatten();
            if victim.as_ref().is_some_and(|victim| self.files.may_be_kept(victim)) {
                return Ok((place, victim, false));
            }
            remove(&place)?;
            Ok((place, victim, true))
        };
        let (place, victim, is_done) =
            if makes { self.names.act(caller, first)? } else { self.names.look(caller, first)? };
        let Some(mut victim) = victim else { return Ok(Gone::NONE) };
        let removed = if is_done {
            Ok(())
        } else {
            let is_used = self.files.keep(&mut victim);
            let remove = || remove(&place);
            if makes || is_used { self.names.act(caller, remove) } else { self.names.look(caller, remove) }
        };
        let gone = self.files.removed(&victim);
        removed.map(|()| gone)
    }

    /// A list of files that have no name of the users', for a server's own users only.
    pub(super) fn read_own(
        &self,
        caller: Caller,
        own: &Own<'_>,
        each: &mut dyn FnMut(&Entry, &[u8]) -> bool,
    ) -> io::Result<()> {
        check_own(caller)?;
        let folder = match own {
            Own::Orphans => self.files.orphans()?,
            Own::Removed => self.files.removed_folder()?,
            Own::RemovedFile(_) => return Err(Errno::NOTDIR.into()),
        };
        let list = rustix::fs::openat(folder, c".", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        for (index, found) in rustix::fs::Dir::new(list)?.enumerate() {
            let found = found?;
            let name = found.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let held = match rustix::fs::openat(folder, name, flags, Mode::empty()) {
                Err(Errno::NOENT) => continue,
                held => held?,
            };
            let attr = match own {
                Own::Orphans => self.complete_held(&held)?,
                _ => Attr { object: stat::object_of(&held), ..stat::of(&held)?.attr },
            };
            let name_bytes = name.to_bytes().len() as u16;
            let entry = Entry { next: index as u64 + 1, name_bytes, attr };
            if !each(&entry, name.to_bytes()) {
                break;
            }
        }
        Ok(())
    }
}
