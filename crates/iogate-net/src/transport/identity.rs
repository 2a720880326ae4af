//! Who this process is to all servers, and the origins of its requests.

use std::io;
use std::sync::{Mutex, MutexGuard};

use iogate_core::proto::origins::Origins;
use iogate_core::wire::RequestOrigin;
use iogate_engine::lock;

static PROCESS: Mutex<Process> = Mutex::new(Process { pid: 0, origins: Origins::new([0; 16]) });

/// This process, as servers know it.
struct Process {
    /// The process that drew the bits.
    pid: u32,
    origins: Origins,
}

fn process() -> MutexGuard<'static, Process> {
    lock(&PROCESS)
}

/// What this process has drawn, by now.
fn origins(process: &mut Process) -> io::Result<&mut Origins> {
    let pid = std::process::id();
    if process.pid != pid {
        let mut client = [0; 16];
        crate::system::random(&mut client)?;
        *process = Process { pid, origins: Origins::new(client) };
    }
    Ok(&mut process.origins)
}

/// The 128 bits that this process has drawn. Fails if the system has no random numbers.
pub(crate) fn client() -> io::Result<[u8; 16]> {
    Ok(origins(&mut process())?.client())
}

/// The origin of a new request of this process. To be [`answered`] once.
pub(crate) fn new_origin() -> io::Result<RequestOrigin> {
    Ok(origins(&mut process())?.begin())
}

/// Nobody asks again for a request of this process.
pub(crate) fn answered(origin: &RequestOrigin) {
    process().origins.answered(origin);
}
