//! Work that turns up in a thread while it is inside a store or a completion.
//!
//! A store may complete a dispatch before `start` returns, and a completion may submit the next transfer. Handled
//! on the spot, either would nest without bound. So a thread opens a frame before it leaves the engine's code;
//! what turns up goes into the frame, and is handled when the thread comes back.

use std::cell::RefCell;
use std::collections::VecDeque;

use super::Shared;
use super::flight::Flight;

/// What a thread has to do next. Flights move from list to list, so they stay where they are and their boxes move.
pub(super) enum Work {
    /// Hand this to the store.
    Begin(Box<Flight>),
    /// The store has answered and every share has its result.
    End(Box<Flight>),
}

/// Work in the order in which it turned up.
pub(super) type List = VecDeque<Work>;

struct Frame {
    engine: *const Shared,
    work: List,
}

#[cfg(not(feature = "shuttle"))]
thread_local! {
    static FRAMES: RefCell<Vec<Frame>> = const { RefCell::new(Vec::new()) };
    static SPARE: RefCell<Vec<List>> = const { RefCell::new(Vec::new()) };
}

#[cfg(feature = "shuttle")]
shuttle::thread_local! {
    static FRAMES: RefCell<Vec<Frame>> = RefCell::new(Vec::new());
    static SPARE: RefCell<Vec<List>> = RefCell::new(Vec::new());
}

/// Calls `run` with what this thread has open.
fn with_frames<R>(run: impl FnOnce(&mut Vec<Frame>) -> R) -> R {
    FRAMES.with(|frames| run(&mut frames.borrow_mut()))
}

fn with_spare<R>(run: impl FnOnce(&mut Vec<List>) -> R) -> R {
    SPARE.with(|spare| run(&mut spare.borrow_mut()))
}

/// An empty list, used before by this thread if possible.
pub(super) fn list() -> List {
    with_spare(Vec::pop).unwrap_or_default()
}

/// Gives a list back, empty.
pub(super) fn recycle(list: List) {
    debug_assert!(list.is_empty(), "a list is recycled when its work is done");
    with_spare(|spare| {
        if spare.len() < 4 {
            spare.push(list);
        }
    });
}

/// Opens a frame that holds `work` already.
pub(super) fn open(engine: *const Shared, work: List) {
    with_frames(|frames| frames.push(Frame { engine, work }));
}

/// Closes the frame opened last, and returns what is in it.
pub(super) fn close() -> List {
    with_frames(|frames| frames.pop().map(|frame| frame.work).unwrap_or_default())
}

/// Whether this thread has a frame of this engine open.
pub(super) fn is_open(engine: *const Shared) -> bool {
    with_frames(|frames| frames.iter().any(|frame| frame.engine == engine))
}

/// Whether there is work in this thread's frames of this engine.
pub(super) fn has_work(engine: *const Shared) -> bool {
    with_frames(|frames| frames.iter().any(|frame| frame.engine == engine && !frame.work.is_empty()))
}

/// Puts work into this thread's innermost frame of this engine, or gives it back if there is none.
pub(super) fn put(engine: *const Shared, work: Work) -> Option<Work> {
    with_frames(|frames| match frames.iter_mut().rev().find(|frame| frame.engine == engine) {
        Some(frame) => {
            frame.work.push_back(work);
            None
        }
        None => Some(work),
    })
}

/// Takes what is in this thread's frames of this engine.
pub(super) fn take(engine: *const Shared) -> List {
    with_frames(|frames| {
        let mut work = List::new();
        for frame in frames.iter_mut().filter(|frame| frame.engine == engine) {
            work.append(&mut frame.work);
        }
        work
    })
}
