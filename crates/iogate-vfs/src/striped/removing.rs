//! Carries out what [`Removals`] decides: removes the objects of removed files, some at a time, when that is durable for their names.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use iogate_core::removals::{Removal, Removals, Synced};
use iogate_core::wire::{Gone, open};

use super::objects::{ROOT, Stripes, absent};
use crate::object_id::ObjectId;
use crate::private;
use crate::tree::OpenHow;

/// How long who needs room waits for what is underway.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long the thread waits for the next removal before it ends.
const IDLE: Duration = Duration::from_secs(10);

/// What waits, and the thread that carries it out.
#[derive(Default)]
pub(super) struct Removing {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    removals: Removals,
    has_thread: bool,
}

impl Removing {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Where the server of names lists removed files until their objects are gone.
fn folder() -> PathBuf {
    Path::new(private::NAME).join(private::REMOVED)
}

fn note_of(object: [u8; 16]) -> PathBuf {
    folder().join(ObjectId(object).to_string())
}

impl Stripes {
    /// Has the objects of a file wait that nobody can reach any more. `verifier` is that of the names from before the removal, if it is
    /// known. Returns whether too many wait.
    fn add(self: &Arc<Self>, gone: Gone, verifier: Option<u64>) -> bool {
        if gone == Gone::NONE {
            return false;
        }
        let now = self.clock.now();
        let mut state = self.removing.lock();
        let due = state.removals.due();
        let is_full = state.removals.add(Removal { object: gone.object, verifier }, now);
        if state.removals.due() != due || !state.has_thread {
            self.see_to_it(state);
        }
        is_full
    }

    /// As [`Stripes::add`], where others may wait: too many are carried out first.
    pub(super) fn discard(self: &Arc<Self>, gone: Gone, verifier: u64) {
        if self.add(gone, Some(verifier)) {
            self.remove_now();
        }
    }

    /// As [`Stripes::add`], where nobody should wait.
    pub(super) fn discard_later(self: &Arc<Self>, gone: Gone) {
        let _ = self.add(gone, None);
    }

    /// Has a thread carry out what waits, when it is due.
    fn see_to_it(self: &Arc<Self>, mut state: MutexGuard<'_, State>) {
        if self.clock.is_simulated() {
            return;
        }
        if state.has_thread {
            return self.removing.changed.notify_all();
        }
        let (removing, stripes) = (Arc::clone(&self.removing), Arc::downgrade(self));
        let work = move || work(&removing, &stripes);
        match std::thread::Builder::new().name("iogate-removals".into()).spawn(work) {
            Ok(_) => state.has_thread = true,
            Err(error) => {
                tracing::warn!(%error, "the objects of removed files stay until the stripes are used anew");
            }
        }
    }

    /// With a simulated clock: carries out what is due, as nothing is done in threads.
    pub(super) fn remove_due(&self) {
        let now = self.clock.now();
        if self.clock.is_simulated() && self.removing.lock().removals.due().is_some_and(|due| due <= now) {
            self.remove_now();
        }
    }

    /// Removes the objects that wait, once the removal of their names is durable. Returns whether some have gone.
    pub(super) fn remove_now(&self) -> bool {
        let Some(batch) = self.removing.lock().removals.begin() else { return false };
        let has_gone = match self.sync_removals() {
            Ok(verifier) => {
                let Synced { gone, doubted } = self.removing.lock().removals.synced(batch, verifier);
                self.in_parallel(gone.len(), |index| self.remove_objects(gone[index]));
                doubted.into_iter().for_each(|removal| self.ask_for(removal, verifier));
                !gone.is_empty()
            }
            Err(error) => {
                tracing::warn!(%error, "names cannot be made durable: the objects of removed files stay until they can");
                self.removing.lock().removals.failed(batch, self.clock.now());
                false
            }
        };
        self.removing.lock().removals.ended();
        self.removing.changed.notify_all();
        has_gone
    }

    /// For who finds a target full: removes what waits, and waits for what is being removed. Returns whether there may be room now.
    pub(super) fn make_room(&self) -> bool {
        let has_gone = self.remove_now();
        if self.clock.is_simulated() {
            return has_gone;
        }
        let state = self.removing.lock();
        let is_underway = state.removals.is_underway();
        let underway = |state: &mut State| state.removals.is_underway();
        drop(self.removing.changed.wait_timeout_while(state, PATIENCE, underway));
        has_gone || is_underway
    }

    /// Makes all removals of names durable that were answered. Returns the verifier of the names.
    fn sync_removals(&self) -> io::Result<u64> {
        let how = OpenHow { flags: open::READ | open::DIRECTORY, ..OpenHow::default() };
        let folder = match absent(self.names.open(ROOT, &folder(), how))? {
            Some(folder) => folder,
            // A server of an earlier release.
            None => self.names.open(ROOT, Path::new(""), how)?,
        };
        folder.sync(false)
    }

    /// Removes the objects of a file that no crash brings back, and then what names it among the removed ones.
    fn remove_objects(&self, object: [u8; 16]) {
        let id = ObjectId(object);
        let removed = self
            .targets
            .iter()
            .try_for_each(|target| absent(target.unlink(ROOT, &id.path(), false)).map(drop));
        let removed =
            removed.and_then(|()| absent(self.names.unlink(ROOT, &note_of(object), false)).map(drop));
        if let Err(error) = removed {
            tracing::warn!(%id, %error, "the objects of a removed file are left over, until the stripes are used anew");
        }
    }

    /// A crash may have taken a removal back: has it wait for another sync if not.
    fn ask_for(&self, removal: Removal, verifier: u64) {
        let note = note_of(removal.object);
        match absent(self.names.attr(ROOT, &note)) {
            Ok(Some(attr)) if attr.links <= 1 => {
                let now = self.clock.now();
                self.removing.lock().removals.is_removed(removal, verifier, now);
            }
            Ok(Some(_)) => {
                let id = ObjectId(removal.object);
                tracing::info!(%id, "a crash has brought a removed file back");
                let _ = self.names.unlink(ROOT, &note, false);
            }
            Ok(None) => {}
            Err(_) => self.removing.lock().removals.failed(vec![removal], self.clock.now()),
        }
    }

    /// Takes over what others have left, which may not be there any more: it is asked for before it counts.
    pub(super) fn take_over(self: &Arc<Self>) {
        let mut left = Vec::new();
        let listed = self.names.read_dir(ROOT, &folder(), 0, &mut |_, name| {
            left.extend(ObjectId::parse(name));
            true
        });
        if let Err(error) = listed {
            tracing::debug!(%error, "no list of removed files");
        }
        left.into_iter().for_each(|id| self.discard_later(Gone { object: id.0 }));
    }
}

/// Carries out what is due, as long as there are stripes and something comes within a while.
fn work(removing: &Removing, stripes: &Weak<Stripes>) {
    loop {
        let Some(there) = stripes.upgrade() else { return };
        let mut state = removing.lock();
        let now = there.clock.now();
        let wait = match state.removals.due() {
            Some(due) if due <= now => {
                drop(state);
                there.remove_now();
                continue;
            }
            Some(due) => due.since(now).into(),
            None => IDLE,
        };
        // What is dropped here may be the last.
        drop(there);
        let is_idle = state.removals.due().is_none();
        let (left, timeout) =
            removing.changed.wait_timeout(state, wait).unwrap_or_else(PoisonError::into_inner);
        state = left;
        if is_idle && timeout.timed_out() && state.removals.is_empty() {
            state.has_thread = false;
            return;
        }
    }
}
