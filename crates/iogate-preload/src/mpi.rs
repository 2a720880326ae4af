//! MPI programs get their turns from a library that is built with their own MPI, which is not known before they run: the functions
//! that it stands in for are here, and the first call finds the MPI that the program has, and the library for it.
//!
//! All arguments are integers and pointers, so one signature does for all functions.

use std::env;
use std::ffi::{CStr, CString, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::settings::say;
use crate::turns;

/// The implementations that a library is built for, by what their `mpi.h` makes of `MPI_COMM_WORLD` and `MPI_DUP_FN`: every program
/// that was compiled with them needs it.
const IMPLEMENTATIONS: [(&CStr, &str); 2] = [(c"ompi_mpi_comm_world", "openmpi"), (c"MPIR_Dup_fn", "mpich")];

/// A library that is loaded, as `dlsym` takes it.
#[derive(Clone, Copy)]
struct Loaded(*mut c_void);

// SAFETY: a handle that is never closed means the same to all threads.
unsafe impl Send for Loaded {}
// SAFETY: as above.
unsafe impl Sync for Loaded {}

impl Loaded {
    fn find(self, name: &CStr) -> *mut c_void {
        // SAFETY: a handle that stays open, and a C string.
        unsafe { libc::dlsym(self.0, name.as_ptr()) }
    }
}

/// Where the process's MPI can be: a program that loads it by `dlopen`, as Python does, does not have it among the libraries that
/// everybody sees.
fn places() -> Vec<Loaded> {
    let mut places = vec![Loaded(libc::RTLD_NEXT)];
    // SAFETY: the function takes what it is given.
    unsafe { libc::dl_iterate_phdr(Some(note_mpi), (&raw mut places).cast()) };
    places
}

/// MPI's own function of a name; null if there is none.
fn own(name: &CStr) -> *mut c_void {
    places()
        .into_iter()
        .map(|place| place.find(name))
        .find(|found| !found.is_null())
        .unwrap_or(ptr::null_mut())
}

/// Adds a library that is loaded to a list, if it is called like an MPI.
unsafe extern "C" fn note_mpi(info: *mut libc::dl_phdr_info, _: usize, list: *mut c_void) -> c_int {
    // SAFETY: what `dl_iterate_phdr` promises, and the list that it was given.
    let (path, list) = unsafe { (CStr::from_ptr((*info).dlpi_name), &mut *list.cast::<Vec<Loaded>>()) };
    let name = path.to_bytes().rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    if name.starts_with(b"libmpi") {
        // SAFETY: a path; nothing new is loaded.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
        if !handle.is_null() {
            list.push(Loaded(handle));
        }
    }
    0
}

/// The library with turns for an MPI, if turns are asked for and there is one.
fn library_for(name: &str) -> Option<Loaded> {
    if !turns::is_asked_for() {
        return None;
    }
    let file = format!("libiogate_mpi-{name}.so");
    let candidates = match env::var_os("IOGATE_MPI").filter(|path| !path.is_empty()) {
        Some(none) if none == "none" => return None,
        Some(path) if Path::new(&path).is_dir() => vec![Path::new(&path).join(&file)],
        Some(path) => vec![PathBuf::from(path)],
        None => {
            let own = own_directory()?;
            // As they are installed, and as they are built.
            vec![own.join(&file), own.join("../mpi").join(&file)]
        }
    };
    let Some(path) = candidates.iter().find(|path| path.exists()) else {
        if !is_first_rank() {
            return None;
        }
        let looked: Vec<String> = candidates.iter().map(|path| path.display().to_string()).collect();
        say(&format!(
            "there is no {}: MPI's own writes are recognised by file, not by communicator (`mpi/build` makes it)",
            looked.join(" nor ")
        ));
        return None;
    };
    let path = CString::new(path.as_os_str().as_bytes()).ok()?;
    // SAFETY: a library of ours, whose beginning does nothing.
    let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    if handle.is_null() {
        // SAFETY: there has just been an error, which is a string of the thread's.
        let error = unsafe { CStr::from_ptr(libc::dlerror()) };
        say(&format!("{}: going on without turns of communicators", error.to_string_lossy()));
        return None;
    }
    Some(Loaded(handle))
}

/// Whether this process is a job's first, which speaks for all; or no launcher says which one it is.
fn is_first_rank() -> bool {
    const RANKS: [&str; 4] = ["OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"];
    RANKS.into_iter().find_map(env::var_os).is_none_or(|rank| rank == "0")
}

/// The folder that this library was loaded from.
fn own_directory() -> Option<PathBuf> {
    // SAFETY: zeros are a value of it, and the address is one of ours.
    let name = unsafe {
        let mut info: libc::Dl_info = std::mem::zeroed();
        if libc::dladdr(own_directory as *const c_void, &raw mut info) == 0 || info.dli_fname.is_null() {
            return None;
        }
        CStr::from_ptr(info.dli_fname)
    };
    Path::new(std::ffi::OsStr::from_bytes(name.to_bytes())).parent().map(Path::to_owned)
}

/// A function of MPI, found when it is first called.
struct Function {
    name: &'static CStr,
    address: AtomicPtr<c_void>,
}

impl Function {
    #[inline]
    fn address(&self) -> *mut c_void {
        let known = self.address.load(Ordering::Relaxed);
        if known.is_null() { self.look_up() } else { known }
    }

    #[cold]
    fn look_up(&self) -> *mut c_void {
        static LIBRARY: OnceLock<Option<Loaded>> = OnceLock::new();
        let library = *LIBRARY.get_or_init(|| {
            let (_, name) = IMPLEMENTATIONS.iter().find(|(symbol, _)| !own(symbol).is_null())?;
            library_for(name)
        });
        let mut found = library.map_or(ptr::null_mut(), |library| library.find(self.name));
        if found.is_null() {
            found = own(self.name);
        }
        if found.is_null() {
            say(&format!("the program calls {}, but has no MPI", self.name.to_string_lossy()));
            std::process::abort();
        }
        self.address.store(found, Ordering::Relaxed);
        found
    }
}

type Arguments = [usize; 8];
type Any = unsafe extern "C" fn(usize, usize, usize, usize, usize, usize, usize, usize) -> usize;

/// Hands a call on. More arguments than the function has do no harm: they are whatever lies in their registers, or above the caller's
/// own.
unsafe fn call(function: &Function, arguments: Arguments) -> usize {
    let [a, b, c, d, e, f, g, h] = arguments;
    // SAFETY: the function takes some of these, and the caller has promised what it asks for.
    unsafe {
        let function: Any = std::mem::transmute(function.address());
        function(a, b, c, d, e, f, g, h)
    }
}

macro_rules! hand_on {
    ($($name:ident)*) => {$(
        #[doc = concat!("Stands in for `", stringify!($name), "`.")]
        ///
        /// # Safety
        /// As MPI's function.
        #[allow(non_snake_case, clippy::too_many_arguments)]
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(
            a: usize, b: usize, c: usize, d: usize, e: usize, f: usize, g: usize, h: usize,
        ) -> usize {
            const NAME: &CStr = match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => panic!(),
            };
            static FUNCTION: Function = Function { name: NAME, address: AtomicPtr::new(ptr::null_mut()) };
            // SAFETY: the caller's promise.
            unsafe { call(&FUNCTION, [a, b, c, d, e, f, g, h]) }
        }
    )*};
}

hand_on! {
    MPI_File_close MPI_File_open MPI_File_sync MPI_File_write_all MPI_File_write_all_begin
    MPI_File_write_all_begin_c MPI_File_write_all_c MPI_File_write_all_end MPI_File_write_at_all
    MPI_File_write_at_all_begin MPI_File_write_at_all_begin_c MPI_File_write_at_all_c
    MPI_File_write_at_all_end MPI_File_write_ordered MPI_File_write_ordered_begin
    MPI_File_write_ordered_begin_c MPI_File_write_ordered_c MPI_File_write_ordered_end MPI_Finalize MPI_Init
    MPI_Init_thread
}

// The same for Fortran: `use mpi` and `mpif.h`, and `use mpi_f08`.
hand_on! {
    mpi_file_close_ mpi_file_close_f08_ mpi_file_open_ mpi_file_open_f08_ mpi_file_sync_ mpi_file_sync_f08_
    mpi_file_write_all_ mpi_file_write_all_begin_ mpi_file_write_all_begin_f08_
    mpi_file_write_all_begin_f08ts_ mpi_file_write_all_end_ mpi_file_write_all_end_f08_
    mpi_file_write_all_end_f08ts_ mpi_file_write_all_f08_ mpi_file_write_all_f08ts_ mpi_file_write_at_all_
    mpi_file_write_at_all_begin_ mpi_file_write_at_all_begin_f08_ mpi_file_write_at_all_begin_f08ts_
    mpi_file_write_at_all_end_ mpi_file_write_at_all_end_f08_ mpi_file_write_at_all_end_f08ts_
    mpi_file_write_at_all_f08_ mpi_file_write_at_all_f08ts_ mpi_file_write_ordered_
    mpi_file_write_ordered_begin_ mpi_file_write_ordered_begin_f08_ mpi_file_write_ordered_begin_f08ts_
    mpi_file_write_ordered_end_ mpi_file_write_ordered_end_f08_ mpi_file_write_ordered_end_f08ts_
    mpi_file_write_ordered_f08_ mpi_file_write_ordered_f08ts_ mpi_finalize_ mpi_finalize_f08_ mpi_init_
    mpi_init_f08_ mpi_init_thread_ mpi_init_thread_f08_
}
