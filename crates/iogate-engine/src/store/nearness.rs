//! How far away the device of a file system is: what of it a thread may do that must not get stuck.
//!
//! A file system that is not known is far. Of an overlay its layers count, as far as their paths are those of this process; in a
//! container they mostly are not, and it is far. What is mounted below a directory counts when it is asked, not what comes later.

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::path::{Path, PathBuf};

use crate::layouts::mounts::Mount;

/// What a file system does at once: without waiting for a device, a server or another program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Nearness {
    /// Nothing: NFS, FUSE, and what is not known.
    Far,
    /// On a disk of this machine: names, writes into the page cache, and reads of what is there.
    Disk,
    /// Everything: it has no device.
    Memory,
}

/// As `statfs(2)` and the list of mounts call the file systems that are near.
const NEAR: [(u64, &str, Nearness); 8] = [
    (0x0102_1994, "tmpfs", Nearness::Memory),
    (0x8584_58f6, "ramfs", Nearness::Memory),
    (0xef53, "ext2", Nearness::Disk),
    (0xef53, "ext3", Nearness::Disk),
    (0xef53, "ext4", Nearness::Disk),
    (0x5846_5342, "xfs", Nearness::Disk),
    (0x9123_683e, "btrfs", Nearness::Disk),
    (0xf2f5_2010, "f2fs", Nearness::Disk),
];

const OVERLAY: &str = "overlay";

impl Nearness {
    /// By the number that `statfs(2)` gives. An overlay is far: see [`Nearness::of_directory`].
    pub(super) fn of_type(number: u64) -> Nearness {
        NEAR.iter().find(|near| near.0 == number).map_or(Nearness::Far, |near| near.2)
    }

    fn of_name(name: &str) -> Nearness {
        NEAR.iter().find(|near| near.1 == name).map_or(Nearness::Far, |near| near.2)
    }

    /// That of the file system that a directory is on.
    pub fn of_directory(directory: impl AsFd) -> Nearness {
        match Mount::of(directory.as_fd()) {
            Ok(Some(mount)) if mount.fs_type == OVERLAY => {
                Mount::all().map_or(Nearness::Far, |mounts| of_layers(&mount.options, &mounts))
            }
            _ => type_of(directory).map_or(Nearness::Far, Nearness::of_type),
        }
    }

    /// The least of the file systems at and below a directory.
    pub fn of_tree(directory: impl AsFd) -> Nearness {
        let below = || {
            let path = path_of(&directory).ok()?;
            Some(least_below(&path, &Mount::all().ok()?))
        };
        Nearness::of_directory(&directory).min(below().unwrap_or(Nearness::Far))
    }
}

/// The number that `statfs(2)` gives for the file system of an open file.
pub(super) fn type_of(file: impl AsFd) -> io::Result<u64> {
    // Of 32 bits; where they are a signed number, they are extended.
    Ok(rustix::fs::fstatfs(file)?.f_type as u64 & u64::from(u32::MAX))
}

fn path_of(directory: impl AsFd) -> io::Result<PathBuf> {
    std::fs::read_link(format!("/proc/self/fd/{}", directory.as_fd().as_raw_fd()))
}

fn least_below(directory: &Path, mounts: &[Mount]) -> Nearness {
    let below = mounts.iter().filter(|mount| mount.point != directory && mount.point.starts_with(directory));
    below.map(|mount| Nearness::of_name(&mount.fs_type)).min().unwrap_or(Nearness::Memory)
}

/// An overlay is as a disk, if each of its layers is on a file system that is near.
fn of_layers(options: &[String], mounts: &[Mount]) -> Nearness {
    let mut layers = Vec::new();
    for (name, value) in options.iter().filter_map(|option| option.split_once('=')) {
        match name {
            "lowerdir" => layers.extend(value.split(':').filter(|layer| !layer.is_empty())),
            "lowerdir+" | "datadir+" | "upperdir" => layers.push(value),
            _ => {}
        }
    }
    let is_near = |layer: &&str| {
        // A colon in a name has a backslash before it: such a path is not looked for.
        let path = Path::new(layer);
        path.is_absolute()
            && !layer.contains('\\')
            && Mount::around(mounts, path)
                .is_some_and(|mount| Nearness::of_name(&mount.fs_type) > Nearness::Far)
    };
    if !layers.is_empty() && layers.iter().all(is_near) { Nearness::Disk } else { Nearness::Far }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mounts(list: &[(&str, &str)]) -> Vec<Mount> {
        let mount = |(id, (point, fs_type)): (usize, &(&str, &str))| Mount {
            id: id as u64,
            device: 0,
            root: "/".into(),
            point: point.into(),
            fs_type: (*fs_type).into(),
            source: String::new(),
            options: Vec::new(),
        };
        list.iter().enumerate().map(mount).collect()
    }

    #[test]
    fn what_is_not_known_is_far() {
        assert_eq!(Nearness::of_type(0x0102_1994), Nearness::Memory);
        assert_eq!(Nearness::of_type(0xef53), Nearness::Disk);
        let (nfs, fuse, overlay) = (0x6969, 0x6573_5546, 0x794c_7630);
        for number in [nfs, fuse, overlay, 1] {
            assert_eq!(Nearness::of_type(number), Nearness::Far);
        }
    }

    #[test]
    fn the_farthest_below_a_directory_counts() {
        let mounts = mounts(&[
            ("/", "ext4"),
            ("/data", "xfs"),
            ("/data/fast", "tmpfs"),
            ("/data/home/far", "nfs4"),
            ("/datas", "autofs"),
        ]);
        let least = |path: &str| least_below(path.as_ref(), &mounts);
        assert_eq!(least("/data"), Nearness::Far);
        assert_eq!(
            least("/data/fast"),
            Nearness::Memory,
            "what is at a directory itself is asked of the directory"
        );
        assert_eq!(least("/datas"), Nearness::Memory);
        assert_eq!(least("/"), Nearness::Far);
    }

    #[test]
    fn an_overlay_is_as_far_as_its_farthest_layer() {
        let mounts =
            mounts(&[("/", "ext4"), ("/fast", "tmpfs"), ("/far", "fuse.sshfs"), ("/over", "overlay")]);
        for (options, expected) in [
            ("lowerdir=/fast/a:/b,upperdir=/fast/u,workdir=/fast/w", Nearness::Disk),
            ("lowerdir+=/fast/a,lowerdir+=/b,datadir+=/c", Nearness::Disk),
            ("lowerdir=/a::/c", Nearness::Disk),
            ("lowerdir=/a:/far/b", Nearness::Far),
            ("lowerdir=/a,upperdir=/over/u", Nearness::Far),
            ("lowerdir=a:b", Nearness::Far),
            ("lowerdir=/a\\:b", Nearness::Far),
            ("rw", Nearness::Far),
        ] {
            let options: Vec<String> = options.split(',').map(Into::into).collect();
            assert_eq!(of_layers(&options, &mounts), expected, "{options:?}");
        }
    }

    #[test]
    fn files_in_memory_are_in_memory() {
        let shm = std::fs::File::open("/dev/shm").unwrap();
        if type_of(&shm).unwrap() == NEAR[0].0 {
            assert_eq!(Nearness::of_directory(&shm), Nearness::Memory);
        }
        let proc = std::fs::File::open("/proc").unwrap();
        assert_eq!(Nearness::of_directory(&proc), Nearness::Far);
    }
}
