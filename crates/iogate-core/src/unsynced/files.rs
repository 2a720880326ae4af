//! What is remembered of the files that a client has written: by file and not by handle, for a close does not make a write durable.

use alloc::boxed::Box;
use alloc::vec;

use super::{SyncBegun, Unsynced};
use crate::hash::HashMap;
use crate::refusal::errno::{EDQUOT, EFBIG, EIO, ENOSPC};
use crate::wire::Identity;
use crate::{Span, Time};

/// Most files that are remembered although nobody has them open.
const FILES_MAX: usize = 65_536;
/// How long the last write to such a file is remembered: servers have written it back by then.
const REMEMBERED: Span = Span::from_secs(60);
/// Between looks for files to forget, which are at all of them.
const LOOK: Span = Span::from_secs(1);

/// One file, for all its handles: its writes at all its servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    servers: Box<[Unsynced]>,
    losses: u64,
    last_write: Option<Time>,
}

impl File {
    /// A file without writes, on so many servers.
    pub fn new(servers: usize) -> File {
        File { servers: vec![Unsynced::default(); servers].into(), losses: 0, last_write: None }
    }

    /// A server has answered a write with this verifier.
    pub fn wrote(&mut self, server: usize, verifier: u64, now: Time) {
        self.last_write = Some(now);
        self.losses += u64::from(self.servers[server].wrote(verifier));
    }

    /// A server has answered a change of the size; `export` is the verifier of its export from before it was asked for.
    pub fn resized(&mut self, server: usize, export: u64, now: Time) {
        self.last_write = Some(now);
        self.losses += u64::from(self.servers[server].resized(export));
    }

    /// A sync is about to be sent to a server.
    pub fn begin(&self, server: usize) -> SyncBegun {
        self.servers[server].begin()
    }

    /// A server, whose export has this verifier by now, has answered a sync with the file's, or with this errno: the system forgets what it
    /// could not write back.
    pub fn synced(&mut self, server: usize, begun: SyncBegun, answer: Result<u64, i32>, export: u64) {
        let server = &mut self.servers[server];
        let is_lost = match answer {
            Ok(verifier) => server.synced(begun, verifier, export),
            Err(EIO | ENOSPC | EDQUOT | EFBIG) => {
                server.failed(begun);
                true
            }
            Err(_) => false,
        };
        self.losses += u64::from(is_lost);
    }

    /// Whether a server has all that it was sent on its disk.
    pub fn is_clean_on(&self, server: usize) -> bool {
        self.servers[server].is_clean()
    }

    /// Whether every server has.
    pub fn is_clean(&self) -> bool {
        self.servers.iter().all(Unsynced::is_clean)
    }

    /// Whether nothing of it needs to be remembered while nobody has it open.
    pub fn is_forgotten(&self, now: Time) -> bool {
        self.is_clean() || self.last_write.is_none_or(|last| now.since(last) > REMEMBERED)
    }

    /// How often writes were lost.
    pub fn losses(&self) -> u64 {
        self.losses
    }
}

/// What one handle has told of its file's losses: each once, and none of before it was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Told {
    losses: u64,
}

impl Told {
    /// Of a handle that is being opened.
    pub fn new(file: &File) -> Told {
        Told { losses: file.losses }
    }

    /// Whether there is a loss to be told of. It is told of then.
    pub fn tell(&mut self, file: &File) -> bool {
        core::mem::replace(&mut self.losses, file.losses) != file.losses
    }
}

/// The files that are open, and those that were written to lately. `F` is how the driver holds a [`File`].
#[derive(Debug)]
pub struct Files<F> {
    by_identity: HashMap<Identity, Known<F>>,
    next_look: Time,
}

#[derive(Debug)]
struct Known<F> {
    file: F,
    handles: usize,
}

impl<F> Default for Files<F> {
    fn default() -> Files<F> {
        Files { by_identity: HashMap::default(), next_look: Time::ZERO }
    }
}

impl<F> Files<F> {
    /// What is known of a file that is being opened; if nothing, it is a `new` one. If there are many, those that nobody has open and that
    /// [are forgotten](File::is_forgotten) go.
    pub fn open(
        &mut self,
        identity: Identity,
        now: Time,
        is_forgotten: impl Fn(&F) -> bool,
        new: impl FnOnce() -> F,
    ) -> &F {
        if self.by_identity.len() >= FILES_MAX && now >= self.next_look {
            self.next_look = now + LOOK;
            self.by_identity.retain(|_, known| known.handles > 0 || !is_forgotten(&known.file));
        }
        let known = self.by_identity.entry(identity).or_insert_with(|| Known { file: new(), handles: 0 });
        known.handles += 1;
        &known.file
    }

    /// A handle is closed. Its file is remembered, unless it [is clean](File::is_clean), or there are too many.
    pub fn close(&mut self, identity: Identity, is_clean: impl FnOnce(&F) -> bool) {
        let is_full = self.by_identity.len() > FILES_MAX;
        let Some(known) = self.by_identity.get_mut(&identity) else { return };
        known.handles = known.handles.saturating_sub(1);
        if known.handles == 0 && (is_full || is_clean(&known.file)) {
            self.by_identity.remove(&identity);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Time {
        Time::ZERO + Span::from_secs(seconds)
    }

    fn identity(inode: u64) -> Identity {
        Identity { inode, generation: 0 }
    }

    /// A file that was opened, written, and closed at this time.
    fn written(files: &mut Files<File>, inode: u64, now: Time) {
        let is_forgotten = |file: &File| file.is_forgotten(now);
        let mut file = files.open(identity(inode), now, is_forgotten, || File::new(2)).clone();
        file.wrote(0, 1, now);
        files.by_identity.get_mut(&identity(inode)).unwrap().file = file;
        files.close(identity(inode), File::is_clean);
    }

    #[test]
    fn each_handle_tells_of_a_loss_once() {
        let mut file = File::new(2);
        let mut early = [Told::new(&file), Told::new(&file)];
        file.wrote(1, 5, at(0));
        file.wrote(1, 6, at(0));
        let mut late = Told::new(&file);
        for told in &mut early {
            assert!(told.tell(&file) && !told.tell(&file));
        }
        assert!(!late.tell(&file), "it was lost before");
        let begun = file.begin(1);
        file.synced(1, begun, Ok(7), 7);
        assert!(late.tell(&file) && early[0].tell(&file));
        assert_eq!(file.losses(), 2);
    }

    #[test]
    fn a_sync_that_fails_has_lost_what_was_written() {
        for (errno, is_lost) in [(EIO, true), (ENOSPC, true), (EDQUOT, true), (EFBIG, true), (4, false)] {
            let mut file = File::new(1);
            file.wrote(0, 1, at(0));
            let begun = file.begin(0);
            file.synced(0, begun, Err(errno), 1);
            assert_eq!((file.losses(), file.is_clean()), (u64::from(is_lost), is_lost), "{errno}");
        }
    }

    #[test]
    fn a_server_is_clean_by_itself() {
        let mut file = File::new(2);
        file.wrote(0, 1, at(0));
        file.wrote(1, 8, at(0));
        let begun = file.begin(0);
        file.synced(0, begun, Ok(1), 1);
        assert!(file.is_clean_on(0) && !file.is_clean_on(1) && !file.is_clean());
    }

    #[test]
    fn a_close_does_not_make_a_write_forgotten() {
        let mut files = Files::default();
        written(&mut files, 1, at(0));
        let known = files.open(identity(1), at(0), |_| true, || File::new(2)).clone();
        assert!(!known.is_clean());
        // Nor does the close of one of several handles, though it is clean by now.
        files.open(identity(1), at(0), |_| true, || File::new(2));
        files.close(identity(1), |_| true);
        assert_eq!(files.open(identity(1), at(0), |_| true, || File::new(2)), &known);
        files.close(identity(1), |_| true);
        files.close(identity(1), |_| true);
        assert!(files.by_identity.is_empty());
        files.close(identity(1), |_| true);
    }

    #[test]
    fn of_many_files_those_go_that_were_written_long_ago() {
        let mut files = Files::default();
        let half = FILES_MAX as u64 / 2;
        (0..half).for_each(|inode| written(&mut files, inode, at(0)));
        (half..2 * half).for_each(|inode| written(&mut files, inode, at(30)));
        files.open(identity(0), at(30), |_| false, || File::new(2));
        written(&mut files, 2 * half, at(61));
        assert_eq!(files.by_identity.len() as u64, half + 2, "one that is open, one that is new");
        assert!(files.by_identity.contains_key(&identity(0)));
        // None of these can go: those that are new are forgotten when they are closed.
        (2 * half..4 * half).for_each(|inode| written(&mut files, inode, at(62)));
        assert_eq!(files.by_identity.len(), FILES_MAX);
    }
}
