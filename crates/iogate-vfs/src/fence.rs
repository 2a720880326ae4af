//! Fences: ranges of records that nobody may write to any more.
//!
//! A forwarder that is stopped, or cannot reach a data server, may write a record long after its range was given. Before the file is cut
//! over such a range, its objects are fenced: from then on a write to a range is refused, unless its handle was *renewed* after that.
//! A forwarder renews its handles when it has been refused, and asks for ranges again then. So no record that was given its range before
//! a cut is written after it, however late it comes.
//!
//! How often an object was fenced is an attribute of it, so that it outlives the server. Handles that are opened anew, also by
//! clients that come back, know of no fence.

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use iogate_core::wire::{Attr, Change, Identity, set};

use crate::{Caller, TreeFile};

/// In whose name it is noted: the process's own.
const OWN: Caller = Caller::new(0, 0);
/// The attribute of an object that says how often it was fenced.
const ATTRIBUTE: &[u8] = b"user.iogate.fences";
/// Files that are remembered at least while nobody writes to them.
const REMEMBERED: usize = 65_536;

/// The fences of a server's files.
#[derive(Debug, Default)]
pub struct Fences {
    files: Mutex<Files>,
    /// Fewer writes are underway.
    fewer: Condvar,
}

#[derive(Debug, Default)]
struct Files {
    known: HashMap<Identity, Fenced>,
    /// The most often that a file was fenced of which neither this nor an attribute knows any more: any other may be it.
    forgotten: u64,
}

#[derive(Debug, Default)]
struct Fenced {
    /// How often.
    count: u64,
    /// That is what its attribute says, too.
    is_noted: bool,
    /// How many write it down now.
    noting: u32,
    /// Some of them at the same time: nobody knows which of them was the last.
    have_met: bool,
    /// Writes to ranges.
    underway: usize,
}

impl Files {
    fn count(&mut self, file: &dyn TreeFile) -> io::Result<u64> {
        Ok(self.get(file)?.count)
    }

    /// What there is to know of a file.
    fn get(&mut self, file: &dyn TreeFile) -> io::Result<&mut Fenced> {
        let identity = file.identity();
        if !self.known.contains_key(&identity) {
            let noted = noted(file)?;
            if self.known.len() >= REMEMBERED {
                self.forget();
            }
            let count = noted.max(self.forgotten);
            self.known.insert(identity, Fenced { count, is_noted: count == noted, ..Fenced::default() });
        }
        Ok(self.known.get_mut(&identity).expect("it is there now"))
    }

    fn forget(&mut self) {
        for (_, fenced) in self.known.extract_if(|_, fenced| fenced.underway == 0) {
            if !fenced.is_noted {
                self.forgotten = self.forgotten.max(fenced.count);
            }
        }
    }
}

impl Fenced {
    /// Fences the file once more, which is to be noted. Returns how often it was.
    fn begin_noting(&mut self) -> u64 {
        self.have_met |= self.noting > 0;
        (self.count, self.is_noted, self.noting) = (self.count + 1, false, self.noting + 1);
        self.count
    }

    /// What was to be noted is, or could not be.
    fn end_noting(&mut self, is_noted: bool) {
        self.noting = self.noting.saturating_sub(1);
        if self.noting == 0 {
            self.is_noted = is_noted && !std::mem::take(&mut self.have_met);
        }
    }
}

impl Fences {
    fn lock(&self) -> MutexGuard<'_, Files> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Fences a file, and waits for the writes that are underway: what comes after this comes after them.
    fn raise(&self, file: &dyn TreeFile) -> io::Result<()> {
        let count = self.lock().get(file)?.begin_noting();
        let is_noted = match file.set_xattr(OWN, ATTRIBUTE, count.to_string().as_bytes(), 0) {
            // Then the fence ends with the server: no reason to keep anybody from cutting the file.
            Err(error) if matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::EPERM)) => Ok(false),
            Err(error) if matches!(error.raw_os_error(), Some(libc::ENOSPC | libc::EDQUOT)) => Ok(false),
            noted => noted.map(|()| true),
        };
        let (mut files, identity) = (self.lock(), file.identity());
        if let Some(fenced) = files.known.get_mut(&identity) {
            fenced.end_noting(matches!(is_noted, Ok(true)));
        }
        is_noted?;
        while files.known.get(&identity).is_some_and(|fenced| fenced.underway > 0) {
            files = self.fewer.wait(files).unwrap_or_else(PoisonError::into_inner);
        }
        Ok(())
    }
}

fn noted(file: &dyn TreeFile) -> io::Result<u64> {
    match file.xattr(OWN, ATTRIBUTE) {
        Ok(text) => Ok(String::from_utf8_lossy(&text).parse().unwrap_or(0)),
        Err(error) if matches!(error.raw_os_error(), Some(libc::ENODATA | libc::EOPNOTSUPP)) => Ok(0),
        Err(error) => Err(error),
    }
}

/// What an open handle knows of its file's fences.
#[derive(Debug)]
pub struct Pass {
    fences: Arc<Fences>,
    /// How often the file was fenced when the handle was renewed.
    count: AtomicU64,
}

impl Pass {
    /// Of a handle that has just been opened.
    pub fn new(fences: &Arc<Fences>) -> Pass {
        Pass { fences: Arc::clone(fences), count: AtomicU64::new(0) }
    }

    /// Lets a write to a range begin; it is over when what is returned is dropped. Fails with `ECANCELED` if the file was fenced since
    /// the handle was renewed.
    pub fn enter(&self, file: &dyn TreeFile) -> io::Result<Underway> {
        let mut files = self.fences.lock();
        let fenced = files.get(file)?;
        if fenced.count != self.count.load(Ordering::Acquire) {
            return Err(io::Error::from_raw_os_error(libc::ECANCELED));
        }
        fenced.underway += 1;
        drop(files);
        Ok(Underway { fences: Arc::clone(&self.fences), identity: file.identity() })
    }

    /// Sets attributes, after fencing the file or renewing the handle as `change` says.
    pub fn set_attr(&self, file: &dyn TreeFile, caller: Caller, change: &Change) -> io::Result<Attr> {
        if change.which & set::FENCE != 0 {
            self.fences.raise(file)?;
        }
        if change.which & set::RENEW != 0 {
            self.count.store(self.fences.lock().count(file)?, Ordering::Release);
        }
        let which = change.which & !(set::FENCE | set::RENEW);
        match which {
            0 if change.which != 0 => file.attr(),
            which => file.set_attr(caller, &Change { which, ..*change }),
        }
    }
}

/// A write to a range.
#[derive(Debug)]
pub struct Underway {
    fences: Arc<Fences>,
    identity: Identity,
}

impl Drop for Underway {
    fn drop(&mut self) {
        let mut files = self.fences.lock();
        if let Some(fenced) = files.known.get_mut(&self.identity) {
            fenced.underway -= 1;
            if fenced.underway == 0 {
                self.fences.fewer.notify_all();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use iogate_core::wire::open;
    use iogate_engine::store::DirectoryStore;

    use super::*;
    use crate::{DirectoryTree, OpenHow, Tree};

    fn tree(root: &Path) -> DirectoryTree {
        DirectoryTree::new(root, Arc::new(DirectoryStore::new(root).unwrap())).unwrap()
    }

    fn file(tree: &DirectoryTree) -> Arc<dyn TreeFile> {
        let flags = open::READ | open::WRITE | open::CREATE;
        let how = OpenHow { flags, mode: 0o600, ..OpenHow::default() };
        tree.open(own(), "object".as_ref(), how).unwrap()
    }

    fn own() -> Caller {
        Caller::new(rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw())
    }

    fn set(pass: &Pass, file: &dyn TreeFile, which: u32) {
        pass.set_attr(file, own(), &Change { which, ..Change::default() }).unwrap();
    }

    fn is_refused(pass: &Pass, file: &dyn TreeFile) -> bool {
        match pass.enter(file) {
            Ok(_) => false,
            Err(error) => {
                assert_eq!(error.raw_os_error(), Some(libc::ECANCELED));
                true
            }
        }
    }

    #[test]
    fn what_is_late_is_refused_until_its_handle_is_renewed() {
        let dir = tempfile::tempdir().unwrap();
        let tree = tree(dir.path());
        let file = file(&tree);
        let fences = Arc::default();
        let [late, cuts] = [(); 2].map(|()| Pass::new(&fences));
        assert!(!is_refused(&late, &*file));
        set(&cuts, &*file, set::SIZE | set::FENCE);
        assert!(is_refused(&late, &*file));
        assert!(is_refused(&cuts, &*file), "its own ranges are from before, too");
        set(&late, &*file, set::RENEW);
        assert!(!is_refused(&late, &*file));
        // A new handle may be for a range that was given before; the next server knows that.
        for fences in [fences, Arc::default()] {
            let new = Pass::new(&fences);
            assert!(is_refused(&new, &*file));
            set(&new, &*file, set::RENEW);
            assert!(!is_refused(&new, &*file));
        }
    }

    /// However many others there were since, and although its attribute does not say so.
    #[test]
    fn what_could_not_be_noted_is_not_forgotten() {
        let dir = tempfile::tempdir().unwrap();
        let tree = tree(dir.path());
        let file = file(&tree);
        let fences = Arc::default();
        let [late, cuts] = [(); 2].map(|()| Pass::new(&fences));
        assert!(!is_refused(&late, &*file));
        set(&cuts, &*file, set::FENCE);
        fences.lock().known.get_mut(&file.identity()).unwrap().is_noted = false;
        file.remove_xattr(OWN, ATTRIBUTE).unwrap();
        fences.lock().forget();
        assert!(fences.lock().known.is_empty() && is_refused(&late, &*file));
        set(&late, &*file, set::RENEW);
        assert!(!is_refused(&late, &*file));
    }

    /// The attribute may say less: whoever wrote it last may have begun first.
    #[test]
    fn of_two_that_note_it_at_once_neither_has_noted_it() {
        let mut fenced = Fenced::default();
        assert_eq!([fenced.begin_noting(), fenced.begin_noting()], [1, 2]);
        fenced.end_noting(true);
        fenced.end_noting(true);
        assert!(!fenced.is_noted);
        fenced.begin_noting();
        fenced.end_noting(true);
        assert!(fenced.is_noted);
        fenced.begin_noting();
        fenced.end_noting(false);
        assert!(!fenced.is_noted);
    }

    #[test]
    fn two_fences_at_once_are_two() {
        let dir = tempfile::tempdir().unwrap();
        let tree = tree(dir.path());
        let file = file(&tree);
        let fences: Arc<Fences> = Arc::default();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..100).for_each(|_| fences.raise(&*file).unwrap()));
            }
        });
        assert_eq!(fences.lock().count(&*file).unwrap(), 400);
    }

    #[test]
    fn a_fence_waits_for_what_is_underway() {
        let dir = tempfile::tempdir().unwrap();
        let tree = tree(dir.path());
        let file = file(&tree);
        let fences = Arc::default();
        let [writes, cuts] = [(); 2].map(|()| Pass::new(&fences));
        let underway = writes.enter(&*file).unwrap();
        std::thread::scope(|scope| {
            let cutting = scope.spawn(|| set(&cuts, &*file, set::SIZE | set::FENCE));
            while !is_refused(&writes, &*file) {
                assert!(!cutting.is_finished());
                std::thread::yield_now();
            }
            assert!(!cutting.is_finished());
            drop(underway);
        });
    }
}
