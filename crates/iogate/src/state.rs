//! Where the program keeps what outlives a process, if nobody says where.

use std::path::{Path, PathBuf};

/// Below `/var/lib/iogate` for root, else below the home directory; none if there is no home.
pub(crate) fn folder(name: &str) -> Option<PathBuf> {
    if rustix::process::geteuid().is_root() {
        return Some(Path::new("/var/lib/iogate").join(name));
    }
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let state = variable("XDG_STATE_HOME").or_else(|| Some(variable("HOME")?.join(".local/state")));
    state.map(|state| state.join("iogate").join(name))
}
