//! What the turns library is asked: the one place that knows it.

use std::ffi::{OsStr, c_int};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Once;

use iogate_net::transport::keep_descriptors_by;
use iogate_turn::{Place, Turn, Turns, Wish};
use rustix::io::Errno;

use crate::failed::Result;
use crate::own_descriptors::keep;
use crate::page::link_of;
use crate::settings::say;

/// What the kernel adds to the path of a file that has been removed.
const REMOVED: &[u8] = b" (deleted)";

/// A turn that this process holds; `None` if it goes on without, as its claim was refused.
pub(super) struct Claim(Option<Turn>);

/// Whether the process is in a turn, this module's or one that somebody else has taken.
pub(super) fn is_inside() -> bool {
    iogate_turn::is_inside()
}

fn turns() -> Result<&'static Turns> {
    static KEEP: Once = Once::new();
    // A program that closes all descriptors that it does not know would otherwise give the connection's number to a file.
    KEEP.call_once(|| keep_descriptors_by(keep));
    // The settings have been read before, or there would be no marks.
    Turns::of_process().map_err(|_| Errno::INVAL.into())
}

/// The place of an open file.
pub(super) fn place_of(fd: c_int) -> Result<Place> {
    let path = rustix::fs::readlinkat(rustix::fs::CWD, link_of(fd), Vec::new())?.into_bytes();
    let path = path.strip_suffix(REMOVED).unwrap_or(&path);
    Ok(Place::of(Path::new(OsStr::from_bytes(path)), turns()?.settings())?)
}

impl Claim {
    /// Waits for a turn. Fails only where there must be one.
    pub(super) fn make(place: &Place) -> Result<Claim> {
        let turns = turns()?;
        match turns.take(place, &Wish::default()) {
            Ok(turn) => {
                tracing::info!("a turn on {} begins, with token {}", place.name(), turn.token());
                Ok(Claim(Some(turn)))
            }
            Err(error) if turns.settings().is_strict => {
                say(&format!("no turn on {}: {error}", place.name()));
                Err(Errno::from_raw_os_error(error.errno()).into())
            }
            Err(error) => {
                say(&format!("no turn on {}: {error}: going on without", place.name()));
                Ok(Claim(None))
            }
        }
    }

    /// Ends it, after so many bytes.
    pub(super) fn give_back(self, bytes: u64) {
        let Some(turn) = self.0 else { return };
        let token = turn.token();
        match turn.release_after(bytes) {
            Ok(()) => tracing::info!("the turn with token {token} ends after {bytes} B"),
            Err(error) => say(&error.to_string()),
        }
    }
}
