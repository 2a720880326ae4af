//! Asking a mount how it is and telling it what to change, through extended attributes of its root.
//!
//! `user.iogate.status` is read, `user.iogate.set` written with `key=value`, and after a refusal
//! `user.iogate.error` says why. A process that writes a number to `user.iogate.app`, or reads `user.iogate.app.NUMBER`, says to
//! which application it belongs. `user.iogate.record.NAME.FROM` reads what a recording has from an event on, `user.iogate.accounts.FROM`
//! accounts of who slows whom down. None of them is listed.
//!
//! Before the kernel passes on a name that begins with `user.` it checks the root's permissions, for which it may ask the mount for the
//! root's attributes anew. Of a server that hangs or has gone these come late or never, and the status is wanted most then. So all but
//! `user.iogate.app` are also called `system.iogate...`, names that the kernel passes on unchecked. These are for root and the user of the
//! mount.

use std::ffi::CStr;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use iogate_core::recording::RecordingError;
use rustix::fs::XattrFlags;
use rustix::io::Errno;
use zerocopy::IntoBytes;

use crate::abi::{GetxattrOut, InHeader, ROOT_ID};
use crate::declared_apps::DeclaredApps;

/// What every name begins with.
const CHECKED: &str = "user.iogate.";
/// What the names begin with that the kernel passes on without a look at the root.
const UNCHECKED: &str = "system.iogate.";
const STATUS: &str = "status";
const SET: &str = "set";
const ERROR: &str = "error";
const APP: &str = "app";
const RECORD: &str = "record.";
const ACCOUNTS: &str = "accounts.";
/// The kernel's bound for the value of an extended attribute.
const VALUE_BYTES_MAX: usize = 1 << 16;

/// What answers for a mount. Called in a serving thread: be quick, and do not use the mount.
pub trait Control: Send + Sync {
    /// The state of the gate, at most 64 KiB (the kernel's bound).
    fn status(&self) -> Vec<u8>;

    /// Changes a setting, given as `key=value`; the error is for people.
    fn set(&self, text: &str) -> Result<(), String>;

    /// Accounts of the gate from number `from` on, at most 64 KiB. By default an empty text.
    fn accounts(&self, from: u32) -> Vec<u8> {
        let _ = from;
        Vec::new()
    }

    /// What a recording has from event `from` on, as at most `room` bytes ([`iogate_core::recording`]). There are none by default.
    fn record(&self, name: u64, from: u64, room: usize) -> Result<Vec<u8>, RecordingError> {
        let _ = (name, from, room);
        Err(RecordingError::Ended)
    }
}

/// Why a mount could not be asked or told.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "each variant's message says it")]
pub enum ControlError {
    #[error("{path} is not the root of an iogate mount: name the directory given to `iogate mount`")]
    NotAMount { path: PathBuf },
    #[error("{reason}")]
    Refused { reason: String },
    #[error(
        "the mount at {path} does this for root and for the user who mounted it only: run as one of them"
    )]
    NotAllowed { path: PathBuf },
    #[error("{0}")]
    Recording(RecordingError),
    #[error("the mount at {path} does not answer: {cause}")]
    Failed {
        path: PathBuf,
        #[source]
        cause: io::Error,
    },
}

/// Asks the mount at `mountpoint` for its status.
pub fn status(mountpoint: &Path) -> Result<Vec<u8>, ControlError> {
    read(mountpoint, STATUS)
}

/// Asks the mount at `mountpoint` for accounts of its gate, from number `from` on, as its [`Control`] gives them.
pub fn accounts(mountpoint: &Path, from: u32) -> Result<Vec<u8>, ControlError> {
    read(mountpoint, &format!("{ACCOUNTS}{from}"))
}

/// Tells the mount at `mountpoint` to change a setting, given as `key=value`.
pub fn set(mountpoint: &Path, text: &str) -> Result<(), ControlError> {
    // A directory that is not a mount would just keep the attribute.
    read(mountpoint, ERROR)?;
    let path = mountpoint.to_owned();
    let set = |name: &str| rustix::fs::setxattr(mountpoint, name, text.as_bytes(), XattrFlags::empty());
    match by_both_names(SET, set) {
        Ok(()) => Ok(()),
        Err(Errno::INVAL) => {
            let reason = String::from_utf8_lossy(&read(mountpoint, ERROR)?).into_owned();
            Err(ControlError::Refused { reason })
        }
        Err(Errno::PERM | Errno::ACCESS) => Err(ControlError::NotAllowed { path }),
        Err(cause) => Err(ControlError::Failed { path, cause: cause.into() }),
    }
}

/// Reads what a recording of the mount at `mountpoint` has from event `from` on. From 0 it begins; with `u64::MAX` it ends.
pub fn record(mountpoint: &Path, name: u64, from: u64) -> Result<Vec<u8>, ControlError> {
    let path = mountpoint.to_owned();
    match value_of(mountpoint, &format!("{RECORD}{name}.{from}")) {
        Ok(value) => Ok(value),
        Err(Errno::NODATA | Errno::NOTSUP) => Err(ControlError::NotAMount { path }),
        Err(Errno::STALE) => Err(ControlError::Recording(RecordingError::Ended)),
        Err(Errno::USERS) => Err(ControlError::Recording(RecordingError::TooMany)),
        Err(Errno::PERM | Errno::ACCESS) => Err(ControlError::NotAllowed { path }),
        Err(cause) => Err(ControlError::Failed { path, cause: cause.into() }),
    }
}

fn read(mountpoint: &Path, name: &str) -> Result<Vec<u8>, ControlError> {
    let path = mountpoint.to_owned();
    match value_of(mountpoint, name) {
        Ok(value) => Ok(value),
        Err(Errno::NODATA | Errno::NOTSUP) => Err(ControlError::NotAMount { path }),
        Err(cause) => Err(ControlError::Failed { path, cause: cause.into() }),
    }
}

/// The value of an attribute, given by the end of its name.
fn value_of(mountpoint: &Path, name: &str) -> Result<Vec<u8>, Errno> {
    let mut value = vec![0; VALUE_BYTES_MAX];
    let size = by_both_names(name, |name| rustix::fs::getxattr(mountpoint, name, &mut value[..]))?;
    value.truncate(size);
    Ok(value)
}

/// By the name that is not checked first; by the other one where there is no such attribute: for other users, and of mounts of releases
/// before.
fn by_both_names<R>(name: &str, mut call: impl FnMut(&str) -> Result<R, Errno>) -> Result<R, Errno> {
    match call(&format!("{UNCHECKED}{name}")) {
        Err(Errno::NODATA | Errno::NOTSUP) => call(&format!("{CHECKED}{name}")),
        result => result,
    }
}

/// The serving side.
pub(crate) struct ControlFiles {
    control: Arc<dyn Control>,
    last_error: Mutex<String>,
    owner: u32,
    told: Arc<DeclaredApps>,
}

impl ControlFiles {
    pub(crate) fn new(control: Arc<dyn Control>, told: Arc<DeclaredApps>) -> ControlFiles {
        let owner = rustix::process::getuid().as_raw();
        ControlFiles { control, last_error: Mutex::default(), owner, told }
    }

    /// The value of a control attribute; `None` if the name is not one, or asked of another node than the root.
    pub(crate) fn get(&self, name: &CStr, asking: &InHeader) -> Option<Result<Vec<u8>, Errno>> {
        let (name, is_checked) = Self::own_name(name, asking)?;
        if !is_checked && !self.may_change(asking) {
            Some(Err(Errno::NODATA))
        } else if name == STATUS.as_bytes() {
            Some(Ok(self.control.status()))
        } else if name == ERROR.as_bytes() {
            Some(Ok(self.last_error.lock().expect("assigning does not panic").clone().into_bytes()))
        } else if let Some(which) = name.strip_prefix(RECORD.as_bytes()) {
            Some(self.recorded(which, asking))
        } else if let Some(from) = name.strip_prefix(ACCOUNTS.as_bytes()) {
            let from = std::str::from_utf8(from).ok().and_then(|from| from.parse().ok());
            Some(from.map(|from| self.control.accounts(from)).ok_or(Errno::INVAL))
        } else if !is_checked {
            Some(Err(Errno::NODATA))
        } else {
            // The kernel lets only those set an attribute who may write the root, and nobody on a read-only mount.
            let app = name.strip_prefix(APP.as_bytes())?.strip_prefix(b".")?;
            Some(self.told.tell(asking.pid, app).map(|()| app.to_vec()))
        }
    }

    /// The end of a name that is one of these, asked of the root, and whether the kernel has looked at the root's permissions.
    fn own_name<'a>(name: &'a CStr, asking: &InHeader) -> Option<(&'a [u8], bool)> {
        let name = name.to_bytes();
        let unchecked = || Some((name.strip_prefix(UNCHECKED.as_bytes())?, false));
        let own = name.strip_prefix(CHECKED.as_bytes()).map(|name| (name, true)).or_else(unchecked);
        own.filter(|_| asking.nodeid == ROOT_ID)
    }

    /// Whether who asks is root or the user of the mount.
    fn may_change(&self, asking: &InHeader) -> bool {
        asking.uid == 0 || asking.uid == self.owner
    }

    /// A piece of a recording, for those who may change the mount: it tells what others do.
    fn recorded(&self, which: &[u8], asking: &InHeader) -> Result<Vec<u8>, Errno> {
        if !self.may_change(asking) {
            return Err(Errno::PERM);
        }
        let numbers = std::str::from_utf8(which).ok().and_then(|text| text.split_once('.'));
        let numbers = numbers.and_then(|(name, from)| Some((name.parse().ok()?, from.parse().ok()?)));
        let (name, from) = numbers.ok_or(Errno::INVAL)?;
        self.control.record(name, from, VALUE_BYTES_MAX).map_err(|error| match error {
            RecordingError::TooMany => Errno::USERS,
            RecordingError::Ended => Errno::STALE,
        })
    }

    /// Sets through a control attribute; `None` if the name is not one, or set on another node than the root.
    pub(crate) fn set(&self, name: &CStr, value: &[u8], asking: &InHeader) -> Option<Result<(), Errno>> {
        let (name, is_checked) = Self::own_name(name, asking)?;
        if name == APP.as_bytes() && is_checked {
            return Some(self.told.tell(asking.pid, value));
        }
        if name == STATUS.as_bytes() || name == ERROR.as_bytes() {
            return Some(Err(Errno::PERM));
        }
        if name != SET.as_bytes() {
            return (!is_checked).then_some(Err(Errno::NOTSUP));
        }
        if !self.may_change(asking) {
            return Some(Err(Errno::PERM));
        }
        let result = match std::str::from_utf8(value) {
            Ok(text) => self.control.set(text),
            Err(_) => Err("expected key=value as UTF-8 text, got other bytes".to_owned()),
        };
        Some(result.map_err(|reason| {
            *self.last_error.lock().expect("assigning does not panic") = reason;
            Errno::INVAL
        }))
    }
}

/// Replies with the value of an attribute, or with its size where the caller offers no room.
pub(crate) fn value_reply(out: &mut Vec<u8>, room: u32, value: &[u8]) -> Result<(), Errno> {
    if room == 0 {
        out.extend_from_slice(GetxattrOut { size: value.len() as u32, padding: 0 }.as_bytes());
    } else if value.len() > room as usize {
        return Err(Errno::RANGE);
    } else {
        out.extend_from_slice(value);
    }
    Ok(())
}
