//! MUNGE credentials: a text that says which user made it, which hosts with the same key can verify.
//!
//! libmunge is loaded when it is first needed, so that the program runs where it is not installed. Calls talk to the
//! daemon (munged) and may block for a second.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::OnceLock;

/// The library, by the name that its versions with this interface share.
const LIBRARY: &str = "libmunge.so.2";
/// Most bytes of a credential. One with a payload of ours has some 300.
pub const CREDENTIAL_BYTES_MAX: usize = 8192;

/// `MUNGE_OPT_SOCKET` of munge.h.
const OPTION_SOCKET: c_int = 8;
/// `EMUNGE_SUCCESS` and its sisters.
const SUCCESS: c_int = 0;
const NO_DAEMON: c_int = 6;
const EXPIRED: c_int = 15;
const REWOUND: c_int = 16;
const REPLAYED: c_int = 17;

/// Why there is no credential, or why it proves nothing.
#[derive(Debug, thiserror::Error)]
pub enum MungeError {
    /// The library is missing.
    #[error("cannot load {LIBRARY} ({0}): install MUNGE (Debian's packages are `munge` and `libmunge2`)")]
    NoLibrary(#[source] libloading::Error),
    /// The daemon does not answer.
    #[error(
        "munged does not answer ({reason}): start it (`systemctl start munge`), or say where its socket is"
    )]
    NoDaemon {
        /// libmunge's words.
        reason: String,
    },
    /// Older than munged allows.
    #[error(
        "the credential has expired: connect again; if that fails too, the clocks of the two hosts differ"
    )]
    Expired,
    /// Made in the future.
    #[error("the credential was made in the future: the clocks of the two hosts differ")]
    Rewound,
    /// Used before.
    #[error("the credential has been used before: somebody repeats a connection that they have listened to")]
    Replayed,
    /// Not one, damaged, or made with another key.
    #[error("the credential is not valid ({reason}): both hosts need the same /etc/munge/munge.key")]
    Invalid {
        /// libmunge's words.
        reason: String,
    },
    /// Longer than any that is ours.
    #[error("the credential has {bytes} bytes, expected at most {CREDENTIAL_BYTES_MAX}")]
    TooLong {
        /// Bytes found.
        bytes: usize,
    },
    /// A path or a credential has a zero byte in it.
    #[error("expected text, found a zero byte in {what}")]
    ZeroByte {
        /// Where.
        what: &'static str,
    },
}

/// What a credential says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decoded {
    /// Who made it: user.
    pub uid: u32,
    /// Who made it: group.
    pub gid: u32,
    /// What they put into it.
    pub payload: Vec<u8>,
}

/// A MUNGE daemon on this host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Munge {
    socket: Option<PathBuf>,
}

impl Munge {
    /// The daemon behind a socket, or the host's usual one.
    pub fn new(socket: Option<PathBuf>) -> Munge {
        Munge { socket }
    }

    /// A new credential of this process's user, with `payload` inside.
    pub fn encode(&self, payload: &[u8]) -> Result<Vec<u8>, MungeError> {
        let library = Library::get()?;
        let context = Context::new(library, self.socket.as_deref())?;
        let bytes =
            c_int::try_from(payload.len()).map_err(|_| MungeError::TooLong { bytes: payload.len() })?;
        let mut text: *mut c_char = ptr::null_mut();
        // SAFETY: the context is alive, `payload` has `bytes` readable bytes, and `text` is a place for a pointer.
        let code = unsafe { (library.encode)(&mut text, context.raw, payload.as_ptr().cast(), bytes) };
        let text = Allocated(text.cast());
        if code != SUCCESS || text.0.is_null() {
            return Err(context.error(code));
        }
        // SAFETY: a successful call has set the pointer to a string that ends with a zero byte.
        Ok(unsafe { CStr::from_ptr(text.0.cast()) }.to_bytes().to_vec())
    }

    /// What a credential says. munged accepts each but once, and only for some minutes.
    pub fn decode(&self, credential: &[u8]) -> Result<Decoded, MungeError> {
        if credential.len() > CREDENTIAL_BYTES_MAX {
            return Err(MungeError::TooLong { bytes: credential.len() });
        }
        let text = CString::new(credential).map_err(|_| MungeError::ZeroByte { what: "a credential" })?;
        let library = Library::get()?;
        let context = Context::new(library, self.socket.as_deref())?;
        let (mut data, mut bytes, mut uid, mut gid) = (ptr::null_mut(), 0, u32::MAX, u32::MAX);
        // SAFETY: the context is alive, the text ends with a zero byte, and the rest are places for what they are.
        let code = unsafe {
            (library.decode)(text.as_ptr(), context.raw, &mut data, &mut bytes, &mut uid, &mut gid)
        };
        // Of an expired or repeated credential, too, the payload is allocated.
        let data = Allocated(data);
        if code != SUCCESS {
            return Err(context.error(code));
        }
        let payload = match usize::try_from(bytes) {
            // SAFETY: a successful call has set the pointer to this many bytes, unless there are none.
            Ok(bytes) if bytes > 0 && !data.0.is_null() => unsafe {
                std::slice::from_raw_parts(data.0.cast::<u8>(), bytes).to_vec()
            },
            _ => Vec::new(),
        };
        Ok(Decoded { uid, gid, payload })
    }
}

/// libmunge's `munge_ctx_t`.
type RawContext = *mut c_void;

/// The functions of munge.h that are used. They may be called from several threads, each with its own context.
struct Library {
    encode: unsafe extern "C" fn(*mut *mut c_char, RawContext, *const c_void, c_int) -> c_int,
    decode: unsafe extern "C" fn(
        *const c_char,
        RawContext,
        *mut *mut c_void,
        *mut c_int,
        *mut libc::uid_t,
        *mut libc::gid_t,
    ) -> c_int,
    error_text: unsafe extern "C" fn(c_int) -> *const c_char,
    create: unsafe extern "C" fn() -> RawContext,
    destroy: unsafe extern "C" fn(RawContext),
    context_error_text: unsafe extern "C" fn(RawContext) -> *const c_char,
    set: unsafe extern "C" fn(RawContext, c_int, ...) -> c_int,
    /// Keeps the functions in memory.
    _library: libloading::Library,
}

impl Library {
    /// The library, loaded once. A failure is not kept: it may be installed later.
    fn get() -> Result<&'static Library, MungeError> {
        static LOADED: OnceLock<Library> = OnceLock::new();
        match LOADED.get() {
            Some(library) => Ok(library),
            None => {
                let library = Library::load().map_err(MungeError::NoLibrary)?;
                Ok(LOADED.get_or_init(|| library))
            }
        }
    }

    fn load() -> Result<Library, libloading::Error> {
        // SAFETY: loading libmunge runs no code of its own; the functions have the types of munge.h, which belong to the
        // library's name, and the library stays loaded as long as they are kept.
        unsafe {
            let library = libloading::Library::new(LIBRARY)?;
            Ok(Library {
                encode: *library.get("munge_encode")?,
                decode: *library.get("munge_decode")?,
                error_text: *library.get("munge_strerror")?,
                create: *library.get("munge_ctx_create")?,
                destroy: *library.get("munge_ctx_destroy")?,
                context_error_text: *library.get("munge_ctx_strerror")?,
                set: *library.get("munge_ctx_set")?,
                _library: library,
            })
        }
    }
}

/// Settings of one call, and its error.
struct Context {
    library: &'static Library,
    raw: RawContext,
}

impl Context {
    fn new(library: &'static Library, socket: Option<&Path>) -> Result<Context, MungeError> {
        // SAFETY: takes nothing; a null pointer (no memory) stands for the defaults in all other functions.
        let context = Context { library, raw: unsafe { (library.create)() } };
        if let Some(path) = socket {
            let path = CString::new(path.as_os_str().as_bytes())
                .map_err(|_| MungeError::ZeroByte { what: "the path of munged's socket" })?;
            // SAFETY: the context is alive, and this option takes a string, which the library copies.
            let code = unsafe { (library.set)(context.raw, OPTION_SOCKET, path.as_ptr()) };
            if code != SUCCESS {
                return Err(context.error(code));
            }
        }
        Ok(context)
    }

    fn error(&self, code: c_int) -> MungeError {
        let text = |text: *const c_char| match text.is_null() {
            true => String::new(),
            // SAFETY: the library's texts end with a zero byte, and live as long as the context.
            false => unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned(),
        };
        // SAFETY: the context is alive, and any number is a code.
        let (detail, general) =
            unsafe { ((self.library.context_error_text)(self.raw), (self.library.error_text)(code)) };
        let reason = match text(detail) {
            detail if detail.is_empty() => text(general),
            detail => detail,
        };
        match code {
            NO_DAEMON => MungeError::NoDaemon { reason },
            EXPIRED => MungeError::Expired,
            REWOUND => MungeError::Rewound,
            REPLAYED => MungeError::Replayed,
            _ => MungeError::Invalid { reason },
        }
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: created by this library, destroyed once; null is allowed.
        unsafe { (self.library.destroy)(self.raw) }
    }
}

/// What libmunge has allocated, or null.
struct Allocated(*mut c_void);

impl Drop for Allocated {
    fn drop(&mut self) {
        // SAFETY: munge.h says to `free` it, which takes null too.
        unsafe { libc::free(self.0) }
    }
}
