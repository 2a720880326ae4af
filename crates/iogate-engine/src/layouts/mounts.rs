//! The list of mounts, as the kernel tells it.

use std::ffi::OsString;
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, StatxFlags};

/// A line of `/proc/self/mountinfo`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// The kernel's number for it.
    pub id: u64,
    /// The number of the file system, as `stat` gives it for its files (but for subvolumes).
    pub device: u64,
    /// Which directory of the file system is mounted.
    pub root: PathBuf,
    /// Where.
    pub point: PathBuf,
    /// The type of the file system, with its subtype: `ext4`, `fuse.glusterfs`.
    pub fs_type: String,
    /// What is mounted, in the file system's own words: `/dev/sda1`, `server:/volume`.
    pub source: String,
    /// The file system's own options: `rw`, `lowerdir=/a:/b`.
    pub options: Vec<String>,
}

impl Mount {
    /// All mounts that this process sees, in the kernel's order: of several at one place, the last is in sight.
    pub fn all() -> io::Result<Vec<Mount>> {
        Ok(Mount::parse_all(&std::fs::read("/proc/self/mountinfo")?))
    }

    /// The mount that an open file was reached by; `None` if it is not in the list of this process. Takes Linux 5.8.
    pub fn of(fd: BorrowedFd<'_>) -> io::Result<Option<Mount>> {
        let statx = rustix::fs::statx(fd, c"", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID)?;
        Ok(Mount::all()?.into_iter().find(|mount| mount.id == statx.stx_mnt_id))
    }

    /// The one that a directory is seen through, by its name without links.
    pub fn around<'a>(mounts: &'a [Mount], directory: &Path) -> Option<&'a Mount> {
        let around = mounts.iter().filter(|mount| directory.starts_with(&mount.point));
        // Of several at one place the last is in sight.
        around.max_by_key(|mount| mount.point.components().count())
    }

    /// The mounts in what `/proc/self/mountinfo` says; a line that is none is left out.
    pub fn parse_all(text: &[u8]) -> Vec<Mount> {
        text.split(|byte| *byte == b'\n').filter_map(Mount::parse).collect()
    }

    /// `36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue`.
    fn parse(line: &[u8]) -> Option<Mount> {
        let mut fields = line.split(|byte| *byte == b' ');
        let id = std::str::from_utf8(fields.next()?).ok()?.parse().ok()?;
        let path = |field: &[u8]| PathBuf::from(OsString::from_vec(unescape(field)));
        let (major, minor) = std::str::from_utf8(fields.nth(1)?).ok()?.split_once(':')?;
        let device = rustix::fs::makedev(major.parse().ok()?, minor.parse().ok()?);
        let root = path(fields.next()?);
        let point = path(fields.next()?);
        let mut rest = fields.skip_while(|field| *field != b"-").skip(1);
        let text = |field: &[u8]| String::from_utf8_lossy(&unescape(field)).into_owned();
        let (fs_type, source) = (text(rest.next()?), text(rest.next()?));
        // What is a comma of an option is written as a number.
        let options = rest.next()?.split(|byte| *byte == b',').map(text).collect();
        Some(Mount { id, device, root, point, fs_type, source, options })
    }
}

/// Takes back mountinfo's `\040` for a blank, and the like.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(field.len());
    let mut rest = field;
    while let [byte, tail @ ..] = rest {
        match tail {
            [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', tail @ ..] if *byte == b'\\' => {
                out.push((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'));
                rest = tail;
            }
            _ => {
                out.push(*byte);
                rest = tail;
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn lines_are_taken_apart() {
        let text = b"36 35 98:0 /a /mnt\\040two rw,noatime master:1 - ext3 /dev/root rw,x=a\\054b\n\
            42 27 0:39 / /data rw,relatime - fuse.glusterfs server:/v\\134x rw,user_id=0\n\
            not a line\n\n7 1 0:1 / /short rw\n";
        let mounts = Mount::parse_all(text);
        let expected = Mount {
            id: 36,
            device: rustix::fs::makedev(98, 0),
            root: "/a".into(),
            point: "/mnt two".into(),
            fs_type: "ext3".into(),
            source: "/dev/root".into(),
            options: vec!["rw".into(), "x=a,b".into()],
        };
        assert_eq!(mounts[0], expected);
        assert_eq!(
            (mounts[1].fs_type.as_str(), mounts[1].source.as_str()),
            ("fuse.glusterfs", "server:/v\\x")
        );
        assert_eq!(mounts.len(), 2);
    }

    #[test]
    fn an_open_file_has_a_mount() {
        let file = std::fs::File::open("/proc/self/status").unwrap();
        assert_eq!(Mount::of(file.as_fd()).unwrap().unwrap().fs_type, "proc");
    }
}
