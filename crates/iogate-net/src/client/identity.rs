//! Who this process is to all servers, and the numbers of its requests: a server knows by them again what it has carried out.

use std::collections::BTreeSet;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

use iogate_core::wire::RequestOrigin;

static PROCESS: Mutex<Process> =
    Mutex::new(Process { pid: 0, client: [0; 16], next: 1, open: BTreeSet::new() });

/// This process, as servers know it.
struct Process {
    /// The process that drew the bits: a forked one draws its own, or its requests would pass for repeated ones.
    pid: u32,
    client: [u8; 16],
    next: u64,
    /// Numbers without an answer.
    open: BTreeSet<u64>,
}

impl Process {
    fn draw(&mut self) -> io::Result<()> {
        let pid = std::process::id();
        if self.pid != pid {
            crate::server::random(&mut self.client)?;
            (self.pid, self.next) = (pid, 1);
            self.open.clear();
        }
        Ok(())
    }
}

fn process() -> MutexGuard<'static, Process> {
    PROCESS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The 128 bits that this process has drawn. Fails if the system has no random numbers.
pub(crate) fn client() -> io::Result<[u8; 16]> {
    let mut process = process();
    process.draw()?;
    Ok(process.client)
}

/// The origin of a new request of this process. To be [`answered`] once.
pub(crate) fn new_origin() -> io::Result<RequestOrigin> {
    let mut process = process();
    process.draw()?;
    let number = process.next;
    process.next += 1;
    process.open.insert(number);
    let oldest = process.open.first().copied().unwrap_or(number);
    let unanswered = u32::try_from(number - oldest).unwrap_or(u32::MAX);
    Ok(RequestOrigin { client: process.client, number, step: 0, unanswered })
}

/// Nobody asks again for a request of this process.
pub(crate) fn answered(origin: &RequestOrigin) {
    let mut process = process();
    if process.client == origin.client {
        process.open.remove(&origin.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_count_up_and_tell_what_is_unanswered() {
        let (first, second) = (new_origin().unwrap(), new_origin().unwrap());
        assert!(first.is_some() && second.number > first.number);
        assert!(second.answered_below() <= first.number);
        answered(&first);
        answered(&second);
        let third = new_origin().unwrap();
        assert!(third.answered_below() <= third.number);
        answered(&third);
        assert_eq!(third.client, client().unwrap());
    }
}
