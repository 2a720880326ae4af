//! The thread that renews turns: there is one while a process has turns, and for a short while after. When it does what is
//! [`Renewals`](iogate_core::coord::claimant::Renewals)'s to say.

use std::sync::Arc;
use std::time::Duration;

use iogate_core::coord::claimant::{Need, Task};

use super::held::Kept;
use super::{Local, clock, lock};

impl Local {
    /// Looks after a turn from now on, for which something is due then.
    pub(super) fn keep(self: &Arc<Local>, due: u64, kept: &Arc<Kept>) {
        let mut renewals = lock(&self.renewals);
        match renewals.add(due, Arc::clone(kept)) {
            Need::Nothing => {}
            Need::Wake => self.wake.notify_one(),
            Need::Start => {
                let local = Arc::clone(self);
                if !start(move || run(&local)) {
                    renewals.not_started();
                }
            }
        }
    }

    /// Ends all turns. Waits for nobody: other threads go on meanwhile, and one of them may never do so again.
    pub(super) fn end(&self) {
        if let Ok(renewals) = self.renewals.try_lock() {
            renewals.iter().for_each(|kept| kept.part());
        }
        self.part_idle();
    }

    /// No longer.
    pub(super) fn let_go(&self, kept: &Arc<Kept>) {
        lock(&self.renewals).remove(clock(), kept);
    }
}

/// Starts the thread, with all signals blocked: they are the program's, in its own threads.
fn start(run: impl FnOnce() + Send + 'static) -> bool {
    let mut all = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    let mut before = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: both sets are written before they are read, and the thread's mask is put back below.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
    }
    let started = std::thread::Builder::new().name("iogate-turns".into()).spawn(run);
    // SAFETY: as above.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), std::ptr::null_mut()) };
    if let Err(error) = &started {
        tracing::warn!("no thread can be started ({error}): turns are not renewed, and end with their lease");
    }
    started.is_ok()
}

fn run(local: &Arc<Local>) {
    let mut renewals = lock(&local.renewals);
    loop {
        let now = clock();
        match renewals.next(now) {
            Task::Due(kept) => {
                drop(renewals);
                let due = kept.look_after(local);
                renewals = lock(&local.renewals);
                match due {
                    Some(due) => renewals.due_again(due, &kept),
                    None => renewals.remove(clock(), &kept),
                }
            }
            Task::Wait(until) => {
                let time = Duration::from_nanos(until.saturating_sub(now));
                renewals = match local.wake.wait_timeout(renewals, time) {
                    Ok((renewals, _)) => renewals,
                    Err(error) => error.into_inner().0,
                };
            }
            Task::End => return,
        }
    }
}
