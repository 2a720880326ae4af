//! What processes say themselves of the application that they belong to: it goes before what their environments say.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use iogate_core::AppId;
use rustix::io::Errno;

use crate::app::{process_of, stat};

/// Processes remembered.
const PROCESSES_MAX: usize = 65_536;

/// Applications by process.
#[derive(Debug, Default)]
pub(crate) struct DeclaredApps {
    /// With when the process started, which tells it from a later one with the same id.
    by_process: Mutex<HashMap<u32, (AppId, u64)>>,
    version: AtomicU64,
}

impl DeclaredApps {
    /// Takes down what a thread says for its process: a number other than 0.
    pub(crate) fn tell(&self, thread: u32, value: &[u8]) -> Result<(), Errno> {
        let number = std::str::from_utf8(value).ok().and_then(|text| text.trim().parse().ok());
        let app = AppId(number.filter(|number| *number != 0).ok_or(Errno::INVAL)?);
        let process = process_of(thread).ok_or(Errno::SRCH)?;
        let (_, started) = stat(process).ok_or(Errno::SRCH)?;
        let mut all = self.by_process.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= PROCESSES_MAX {
            all.retain(|process, (_, started)| stat(*process).is_some_and(|now| now.1 == *started));
        }
        if all.len() >= PROCESSES_MAX {
            return Err(Errno::NOSPC);
        }
        all.insert(process, (app, started));
        self.version.fetch_add(1, Ordering::Release);
        Ok(())
    }

    /// Changes with everything that is told.
    pub(crate) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// What a process has said.
    pub(crate) fn by(&self, process: u32) -> Option<AppId> {
        let (app, started) = {
            let all = self.by_process.lock().unwrap_or_else(PoisonError::into_inner);
            *all.get(&process)?
        };
        (stat(process)?.1 == started).then_some(app)
    }
}
