//! Pieces that a program says are over while this thread is in its `start`.
//!
//! The next piece, handed to the program on the spot, would nest in that call, and a dispatch may come in as many pieces as it has
//! requests. So what is said in `start` is left here, for who has called that.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;

use crate::callbacks::{Common, Flight};

type Said = (Box<Flight>, io::Result<u64>);

struct Starts {
    /// Whose `start` this thread is in, from the outermost to the innermost.
    engines: Vec<*const Common>,
    over: VecDeque<(*const Common, Said)>,
}

thread_local! {
    static STARTS: RefCell<Starts> = const { RefCell::new(Starts { engines: Vec::new(), over: VecDeque::new() }) };
}

fn with<R>(run: impl FnOnce(&mut Starts) -> R) -> R {
    STARTS.with_borrow_mut(run)
}

/// This thread calls `start` of an engine.
pub(crate) fn open(engine: *const Common) {
    with(|starts| starts.engines.push(engine));
}

/// The call opened last has returned.
pub(crate) fn close() {
    with(|starts| starts.engines.pop());
}

/// Leaves a piece for who has called `start` of its engine in this thread, or gives it back if nobody has.
pub(crate) fn put(engine: *const Common, flight: Box<Flight>, result: io::Result<u64>) -> Option<Said> {
    with(|starts| {
        if !starts.engines.contains(&engine) {
            return Some((flight, result));
        }
        starts.over.push_back((engine, (flight, result)));
        None
    })
}

/// Takes the piece of an engine's that was left first.
pub(crate) fn take(engine: *const Common) -> Option<Said> {
    with(|starts| {
        let first = starts.over.iter().position(|(of, _)| *of == engine)?;
        starts.over.remove(first).map(|(_, said)| said)
    })
}
