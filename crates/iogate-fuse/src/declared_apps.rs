//! What processes say themselves of the application that they belong to: it goes before what their environments say.

use std::collections::HashMap;
use std::sync::{PoisonError, RwLock};

use iogate_core::AppId;
use rustix::io::Errno;

use crate::app::{process_of, stat};

/// Processes remembered.
const PROCESSES_MAX: usize = 65_536;

/// Applications by process.
#[derive(Debug, Default)]
pub(crate) struct DeclaredApps {
    /// Each request looks here: nothing is read of `/proc` while this is locked.
    by_process: RwLock<HashMap<u32, Declared>>,
}

/// What a process has said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Declared {
    app: AppId,
    /// When the process started, which tells it from a later one with the same id.
    started: u64,
}

impl Declared {
    fn is_of(self, process: u32) -> bool {
        stat(process).is_some_and(|(_, started)| started == self.started)
    }
}

impl DeclaredApps {
    /// Takes down what a thread says for its process: a number other than 0.
    pub(crate) fn tell(&self, thread: u32, value: &[u8]) -> Result<(), Errno> {
        let number = std::str::from_utf8(value).ok().and_then(|text| text.trim().parse().ok());
        let app = AppId(number.filter(|number| *number != 0).ok_or(Errno::INVAL)?);
        let process = process_of(thread).ok_or(Errno::SRCH)?;
        let (_, started) = stat(process).ok_or(Errno::SRCH)?;
        if self.by_process.read().unwrap_or_else(PoisonError::into_inner).len() >= PROCESSES_MAX {
            self.forget_the_gone();
        }
        let mut all = self.by_process.write().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= PROCESSES_MAX {
            return Err(Errno::NOSPC);
        }
        all.insert(process, Declared { app, started });
        Ok(())
    }

    fn forget_the_gone(&self) {
        let all = self.by_process.read().unwrap_or_else(PoisonError::into_inner).clone();
        let gone = all.into_iter().filter(|(process, declared)| !declared.is_of(*process));
        let gone: Vec<_> = gone.collect();
        let mut all = self.by_process.write().unwrap_or_else(PoisonError::into_inner);
        for (process, declared) in gone {
            // A later one of that number may have said something meanwhile.
            if all.get(&process) == Some(&declared) {
                all.remove(&process);
            }
        }
    }

    /// What was said last by a process of that number, which may be gone: quick.
    pub(crate) fn said(&self, process: u32) -> Option<Declared> {
        self.by_process.read().unwrap_or_else(PoisonError::into_inner).get(&process).copied()
    }

    /// What a process has said.
    pub(crate) fn by(&self, process: u32) -> Option<AppId> {
        self.said(process).filter(|declared| declared.is_of(process)).map(|declared| declared.app)
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn what_a_process_says_is_no_news_of_another_one() {
        let told = DeclaredApps::default();
        let own = std::process::id();
        let mut child = Command::new("sleep").arg("60").spawn().expect("sleep is there");
        told.tell(own, b"7").expect("it is there");
        let said = told.said(own);
        for value in [&b"8"[..], b"8", b"9"] {
            told.tell(child.id(), value).expect("it is there");
            assert_eq!(told.said(own), said);
        }
        told.tell(own, b" 7 ").expect("it is there");
        assert_eq!(told.said(own), said, "the same again is nothing new");
        told.tell(own, b"8").expect("it is there");
        assert_ne!(told.said(own), said);
        assert_eq!((told.by(own), told.by(child.id())), (Some(AppId(8)), Some(AppId(9))));
        child.kill().expect("it runs");
        child.wait().expect("it was started here");
        assert!(told.said(child.id()).is_some() && told.by(child.id()).is_none());
        told.forget_the_gone();
        assert_eq!((told.said(child.id()), told.by(own)), (None, Some(AppId(8))));
    }
}
