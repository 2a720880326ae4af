//! The thread that renews turns: there is one while a process has turns, and for a short while after.

use std::sync::Arc;
use std::time::Duration;

use super::held::{Kept, clock};
use super::{Local, lock};

/// How long the thread waits for another turn before it ends: a program that takes many short ones starts it once.
const LINGER: Duration = Duration::from_secs(2);

/// What is to be looked after.
#[derive(Debug, Default)]
pub(super) struct Keeper {
    kept: Vec<Arc<Kept>>,
    is_running: bool,
    /// When the thread looks again, on [`clock`].
    wakes: u64,
    /// Turns so far.
    begun: u64,
}

impl Local {
    /// Looks after a turn from now on.
    pub(super) fn keep(self: &Arc<Local>, kept: &Arc<Kept>) {
        let mut keeper = lock(&self.keeper);
        keeper.kept.push(Arc::clone(kept));
        keeper.begun += 1;
        if !keeper.is_running {
            let local = Arc::clone(self);
            keeper.is_running = start(move || run(&local));
        } else if kept.due() < keeper.wakes {
            self.wake.notify_one();
        }
    }

    /// Ends all turns. Waits for nobody: other threads go on meanwhile, and one of them may never do so again.
    pub(super) fn end(&self) {
        if let Ok(keeper) = self.keeper.try_lock() {
            keeper.kept.iter().for_each(|kept| kept.part());
        }
        self.part_idle();
    }

    /// No longer.
    pub(super) fn let_go(&self, kept: &Arc<Kept>) {
        lock(&self.keeper).kept.retain(|other| !Arc::ptr_eq(other, kept));
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
    let mut keeper = lock(&local.keeper);
    // Turns that had begun when there was none left.
    let mut seen = None;
    loop {
        let now = clock();
        let due = keeper.kept.iter().find(|kept| kept.due() <= now).cloned();
        if let Some(kept) = due {
            drop(keeper);
            if !kept.look_after(local) {
                local.let_go(&kept);
            }
            keeper = lock(&local.keeper);
            continue;
        }
        let linger = now + LINGER.as_nanos() as u64;
        if !keeper.kept.is_empty() {
            seen = None;
        } else if seen == Some(keeper.begun) {
            keeper.is_running = false;
            return;
        } else {
            seen = Some(keeper.begun);
        }
        keeper.wakes = keeper.kept.iter().map(|kept| kept.due()).min().unwrap_or(linger).min(linger);
        let time = Duration::from_nanos(keeper.wakes.saturating_sub(now));
        keeper = match local.wake.wait_timeout(keeper, time) {
            Ok((keeper, _)) => keeper,
            Err(error) => error.into_inner().0,
        };
    }
}
