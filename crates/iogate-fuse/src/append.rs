//! Where appends go: each after the file's end and after the appends that are underway.

use std::sync::{Arc, Mutex};

use rustix::io::Errno;

/// The appends of one file.
#[derive(Debug, Default)]
pub(crate) struct Appends {
    state: Mutex<State>,
}

/// Where the next append goes while appends are underway, when the file's size does not show them yet.
#[derive(Debug, Default)]
struct State {
    underway: u32,
    end: u64,
}

impl Appends {
    /// The offset of an append of `bytes`; asks for the file's size where no append is underway.
    pub(crate) fn begin(
        self: &Arc<Self>,
        bytes: u32,
        size: impl FnOnce() -> Result<u64, Errno>,
    ) -> Result<AppendGuard, Errno> {
        let mut state = self.state.lock().expect("no append panics");
        if state.underway == 0 {
            state.end = size()?;
        }
        let offset = state.end;
        state.end = offset.checked_add(u64::from(bytes)).ok_or(Errno::FBIG)?;
        state.underway += 1;
        Ok(AppendGuard { appends: self.clone(), offset })
    }
}

/// An append that is underway; dropped when it has been carried out.
#[derive(Debug)]
pub(crate) struct AppendGuard {
    appends: Arc<Appends>,
    pub(crate) offset: u64,
}

impl Drop for AppendGuard {
    fn drop(&mut self) {
        self.appends.state.lock().expect("no append panics").underway -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn appends_follow_each_other() {
        let appends = Arc::new(Appends::default());
        let begin = |bytes| appends.begin(bytes, || Ok(5)).unwrap();
        let first = begin(10);
        let second = begin(7);
        assert_eq!((first.offset, second.offset), (5, 15));
        drop(first);
        assert_eq!(begin(1).offset, 22);
        drop(second);
        assert_eq!(begin(1).offset, 5, "by the size, when none is underway");
        assert_eq!(appends.begin(1, || Ok(u64::MAX)).unwrap_err(), Errno::FBIG);
        assert_eq!(appends.begin(1, || Err(Errno::IO)).unwrap_err(), Errno::IO);
        assert_eq!(begin(1).offset, 5, "what was refused is not underway");
    }
}
