//! What C callers pass: pointers, of which only a caller can make one, and has then promised what they point to.

use std::ffi::{CStr, c_char, c_void};
use std::ptr;

use iogate_engine::store::Segment;
use rustix::io::Errno;

use crate::failed::Result;

/// A string that ends with a zero byte, or null.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct Text(*const c_char);

impl Text {
    /// Lives as long as the call that it came with.
    pub(crate) fn get<'a>(self) -> Option<&'a CStr> {
        // SAFETY: the caller's promise: null, or a string that stays until the call is over.
        (!self.0.is_null()).then(|| unsafe { CStr::from_ptr(self.0) })
    }

    pub(crate) fn bytes<'a>(self) -> Result<&'a [u8]> {
        Ok(self.get().ok_or(Errno::FAULT)?.to_bytes())
    }

    /// For the C library's function, while the string lives.
    pub(crate) fn of(text: &CStr) -> Text {
        Text(text.as_ptr())
    }

    pub(crate) fn pointer(self) -> *const c_char {
        self.0
    }

    /// Changes a template: bytes of it, from `at` on.
    pub(crate) fn overwrite(self, at: usize, bytes: &[u8]) {
        debug_assert!(self.get().is_some_and(|text| at + bytes.len() <= text.count_bytes()));
        // SAFETY: within the string, which the caller passed to be changed.
        unsafe {
            ptr::copy_nonoverlapping(bytes.as_ptr(), self.0.cast_mut().cast::<u8>().add(at), bytes.len());
        };
    }
}

/// A value to fill in, or null.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct Out<T>(*mut T);

impl<T> Out<T> {
    /// The last argument of a call whose earlier ones say what it is.
    pub(crate) fn from_argument(argument: usize) -> Out<T> {
        Out(ptr::with_exposed_provenance_mut(argument))
    }

    /// Fails with `EFAULT` if it is null.
    pub(crate) fn put(self, value: T) -> Result<()> {
        if self.0.is_null() {
            return Err(Errno::FAULT.into());
        }
        // SAFETY: the caller's promise: null, or room for a value.
        unsafe { self.0.write(value) };
        Ok(())
    }

    pub(crate) fn pointer(self) -> *mut T {
        self.0
    }
}

impl<T: Copy> Out<T> {
    /// What is there, where the call reads it too.
    pub(crate) fn get(self) -> Option<T> {
        // SAFETY: as for `put`; and the caller has filled it in.
        (!self.0.is_null()).then(|| unsafe { self.0.read() })
    }
}

/// Values that the call only reads, or null.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct In<T>(*const T);

impl<T: Copy> In<T> {
    pub(crate) const NULL: In<T> = In(ptr::null());

    pub(crate) fn get(self) -> Option<T> {
        // SAFETY: the caller's promise: null, or a value.
        (!self.0.is_null()).then(|| unsafe { self.0.read() })
    }

    /// The first values of an array. Fails with `EFAULT` if it is null.
    pub(crate) fn list<'a>(self, count: usize) -> Result<&'a [T]> {
        match (count, self.0.is_null()) {
            (0, _) => Ok(&[]),
            (_, true) => Err(Errno::FAULT.into()),
            // SAFETY: the caller's promise: so many values, until the call is over.
            (_, false) => Ok(unsafe { std::slice::from_raw_parts(self.0, count) }),
        }
    }
}

/// Memory of the caller's, whose length is another argument.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct Memory(*mut c_void);

impl Memory {
    pub(crate) const NULL: Memory = Memory(ptr::null_mut());

    pub(crate) fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// Fails with `EFAULT` for what no program means.
    pub(crate) fn segment(self, bytes: usize) -> Result<Segment> {
        if self.0.is_null() && bytes > 0 {
            return Err(Errno::FAULT.into());
        }
        Ok(Segment { memory: self.0.cast(), bytes })
    }

    /// To read from. Fails with `EFAULT` if it is null.
    pub(crate) fn bytes<'a>(self, bytes: usize) -> Result<&'a [u8]> {
        In(self.0.cast_const().cast::<u8>()).list(bytes)
    }

    /// Copies as much as there is room for, and says how much that was.
    pub(crate) fn fill(self, room: usize, bytes: &[u8]) -> Result<usize> {
        let count = bytes.len().min(room);
        if self.0.is_null() && count > 0 {
            return Err(Errno::FAULT.into());
        }
        // SAFETY: the caller's promise: room for so many bytes; and ours do not overlap them.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), self.0.cast(), count) };
        Ok(count)
    }

    pub(crate) fn pointer(self) -> *mut c_void {
        self.0
    }
}
