//! The functions of the C library that are stood in for.

use std::ffi::{CStr, c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// One function, looked up when it is first needed.
pub(crate) struct Real {
    name: &'static CStr,
    address: AtomicPtr<c_void>,
}

impl Real {
    pub(crate) const fn new(name: &'static CStr) -> Real {
        Real { name, address: AtomicPtr::new(ptr::null_mut()) }
    }

    /// The next library's function of this name; one that fails with `ENOSYS` if there is none.
    #[inline]
    pub(crate) fn address(&self) -> *mut c_void {
        let known = self.address.load(Ordering::Relaxed);
        if known.is_null() { self.look_up() } else { known }
    }

    #[cold]
    fn look_up(&self) -> *mut c_void {
        // SAFETY: the name is a C string.
        let mut found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
        if found.is_null() {
            found = missing as *mut c_void;
        }
        self.address.store(found, Ordering::Relaxed);
        found
    }
}

extern "C" fn missing() -> c_int {
    crate::failed::set_errno(libc::ENOSYS);
    -1
}

/// Defines functions that stand in for those of the C library of the same names. In the body, the name in brackets calls
/// the C library's.
macro_rules! interpose {
    () => {};
    (fn $name:ident | $($more:ident)|+ [$real:ident] $args:tt -> $ret:ty $body:block $($rest:tt)*) => {
        interpose!(fn $name [$real] $args -> $ret $body);
        interpose!(fn $($more)|+ [$real] $args -> $ret $body $($rest)*);
    };
    (fn $name:ident [$real:ident] ($($arg:ident: $ty:ty),* $(,)?) -> $ret:ty $body:block $($rest:tt)*) => {
        #[doc = concat!("Stands in for `", stringify!($name), "`.")]
        ///
        /// # Safety
        /// As the C library's function.
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C" fn $name($($arg: $ty),*) -> $ret {
            const NAME: &std::ffi::CStr =
                match std::ffi::CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                    Ok(name) => name,
                    Err(_) => panic!(),
                };
            static REAL: crate::real::Real = crate::real::Real::new(NAME);
            #[allow(unused_variables)]
            let $real = |$($arg: $ty),*| -> $ret {
                // SAFETY: the function has this signature, and the caller has promised what it asks for.
                unsafe {
                    let function: unsafe extern "C" fn($($ty),*) -> $ret = std::mem::transmute(REAL.address());
                    function($($arg),*)
                }
            };
            $body
        }
        interpose!($($rest)*);
    };
}
