//! Where logs lie: a few files that are read whole, replaced whole, and appended to.

use alloc::vec::Vec;
use core::ops::DerefMut;

/// Where the files of a log are.
///
/// What [`append`](Medium::append) has taken is there after the process is killed; after a crash of the machine any part of it may
/// be lost or zeros, unless the medium says otherwise. What [`replace`](Medium::replace) has put is there after that, too, once
/// it is durable.
pub trait Medium {
    /// Why it fails.
    type Error: core::fmt::Display;

    /// What identifies the boot of the machine: what was appended under it is there.
    fn boot(&self) -> &str;

    /// The bytes of a file; `None` if it is not there.
    fn read(&mut self, name: &str) -> Result<Option<Vec<u8>>, Self::Error>;

    /// Puts a file in its place, whole and durable. Fails only if the one before it is still there; the inner result tells whether its
    /// name is durable: if not, the file before it may be there after a crash of the machine.
    fn replace(&mut self, name: &str, bytes: &[u8]) -> Result<Result<(), Self::Error>, Self::Error>;

    /// Writes behind the first `at` bytes of a file that was put in its place.
    fn append(&mut self, name: &str, at: u64, bytes: &[u8]) -> Result<(), Self::Error>;

    /// Cuts a file that was put in its place to this length.
    fn cut(&mut self, name: &str, bytes: u64) -> Result<(), Self::Error>;
}

/// By reference, or in a box.
impl<P> Medium for P
where
    P: DerefMut,
    P::Target: Medium,
{
    type Error = <P::Target as Medium>::Error;

    fn boot(&self) -> &str {
        (**self).boot()
    }

    fn read(&mut self, name: &str) -> Result<Option<Vec<u8>>, Self::Error> {
        (**self).read(name)
    }

    fn replace(&mut self, name: &str, bytes: &[u8]) -> Result<Result<(), Self::Error>, Self::Error> {
        (**self).replace(name, bytes)
    }

    fn append(&mut self, name: &str, at: u64, bytes: &[u8]) -> Result<(), Self::Error> {
        (**self).append(name, at, bytes)
    }

    fn cut(&mut self, name: &str, bytes: u64) -> Result<(), Self::Error> {
        (**self).cut(name, bytes)
    }
}
