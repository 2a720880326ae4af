//! Names in an export that are iogate's own: how striped files are found and kept. Only forwarders that a server trusts may use them.

/// What the names of extended attributes of iogate begin with.
pub const ATTRIBUTE_PREFIX: &[u8] = b"user.iogate.";
/// The directory of iogate at an export's root.
pub const DIRECTORY: &[u8] = b".iogate";

/// Whether an extended attribute is iogate's own.
pub fn is_attribute(name: &[u8]) -> bool {
    name.starts_with(ATTRIBUTE_PREFIX)
}

/// Whether a path, relative to the export's root, leads to iogate's own directory or below it.
pub fn is_path(path: &[u8]) -> bool {
    path.split(|&byte| byte == b'/').find(|component| !component.is_empty()) == Some(DIRECTORY)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_names_are_known_however_they_are_written() {
        for path in [&b".iogate"[..], b".iogate/orphans/1", b".iogate/", b"//.iogate"] {
            assert!(is_path(path), "{path:?}");
        }
        for path in [&b""[..], b"a/.iogate", b".iogate2", b".iogat", b"x"] {
            assert!(!is_path(path), "{path:?}");
        }
        assert!(is_attribute(b"user.iogate.object") && is_attribute(b"user.iogate."));
        assert!(!is_attribute(b"user.iogate") && !is_attribute(b"user.mine") && !is_attribute(b""));
    }
}
