//! Files and directories with names that nobody has.

use std::ffi::{c_char, c_int};

use rustix::io::Errno;

use crate::abi::Text;
use crate::failed::{Failed, Result, answer, guarded};
use crate::opening::open_file;
use crate::paths::{self, Place, TreePath};
use crate::turns;

const LETTERS: &[u8; 62] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
const MARK: &[u8] = b"XXXXXX";
/// How many names are tried.
const TRIES: usize = 100;

/// Fills in a template until `make` finds a name that is free.
fn fill_in<T>(template: Text, suffix: c_int, mut make: impl FnMut(&TreePath) -> Result<T>) -> Result<T> {
    let bytes = template.bytes()?;
    let suffix = usize::try_from(suffix).map_err(|_| Errno::INVAL)?;
    let end = bytes.len().checked_sub(suffix).ok_or(Errno::INVAL)?;
    let start = end.checked_sub(MARK.len()).ok_or(Errno::INVAL)?;
    if bytes[start..end] != *MARK {
        return Err(Errno::INVAL.into());
    }
    for _ in 0..TRIES {
        let mut random = [0; 6];
        rustix::rand::getrandom(&mut random[..], rustix::rand::GetRandomFlags::empty())?;
        template.overwrite(start, &random.map(|byte| LETTERS[usize::from(byte) % LETTERS.len()]));
        let Place::Ours(path) = paths::place(libc::AT_FDCWD, template)? else {
            return Err(Errno::INVAL.into());
        };
        match make(&path) {
            Err(Failed::With(Errno::EXIST)) => {}
            made => return made,
        }
    }
    Err(Errno::EXIST.into())
}

fn make_file(template: Text, suffix: c_int, flags: c_int) -> Result<c_int> {
    let flags = flags & !libc::O_ACCMODE | libc::O_RDWR | libc::O_CREAT | libc::O_EXCL;
    fill_in(template, suffix, |path| open_file(path, flags, 0o600))
}

/// Whether a template is ours.
fn is_ours(template: Text) -> bool {
    matches!(guarded(|| paths::place(libc::AT_FDCWD, template)), Ok(Place::Ours(_)))
}

/// After the C library has made a file.
fn made(fd: c_int, template: Text) -> c_int {
    turns::opened(fd, libc::O_RDWR, template)
}

interpose! {
    fn mkstemp | mkstemp64 [real](template: Text) -> c_int {
        if is_ours(template) { answer(|| make_file(template, 0, 0)) } else { made(real(template), template) }
    }

    fn mkostemp | mkostemp64 [real](template: Text, flags: c_int) -> c_int {
        if is_ours(template) { answer(|| make_file(template, 0, flags)) } else { made(real(template, flags), template) }
    }

    fn mkstemps | mkstemps64 [real](template: Text, suffix: c_int) -> c_int {
        if is_ours(template) { answer(|| make_file(template, suffix, 0)) } else { made(real(template, suffix), template) }
    }

    fn mkostemps | mkostemps64 [real](template: Text, suffix: c_int, flags: c_int) -> c_int {
        if is_ours(template) {
            answer(|| make_file(template, suffix, flags))
        } else {
            made(real(template, suffix, flags), template)
        }
    }

    fn mkdtemp[real](template: Text) -> *mut c_char {
        if !is_ours(template) {
            return real(template);
        }
        answer(|| {
            fill_in(template, 0, |path| crate::names::make_dir(path, 0o700))?;
            Ok(template.pointer().cast_mut())
        })
    }
}
