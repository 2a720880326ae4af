//! Which file system a directory is of, by what stays the same over restarts and over other names of devices.

use std::fs::read_to_string;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use iogate_engine::layouts::mounts::Mount;
use iogate_turn::place::network_name;
use rustix::fs::{Dev, major, minor, statvfs};

use crate::storage;

/// Types of file systems whose number, as `statvfs` has it, is of their own: made of the identifier that they were made with.
const NUMBERED: [&str; 4] = ["ext2", "ext3", "ext4", "btrfs"];

/// Where the kernel and the device manager tell of block devices.
struct System {
    devices: PathBuf,
    database: PathBuf,
}

impl System {
    fn this() -> System {
        System { devices: "/sys/dev/block".into(), database: "/run/udev/data".into() }
    }
}

/// A file system, and how it is accessed: what has prices of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// A name that stays the same.
    pub(crate) name: String,
    /// The type of the file system.
    pub(crate) kind: String,
    /// What it lies on; empty if that is not known.
    pub(crate) device: String,
    /// Whether that is one rotating disk.
    pub(crate) rotational: bool,
}

impl Place {
    /// The place of a directory; none if nothing says for certain which file system it is, as of those in memory or of several layers.
    pub(crate) fn of(directory: &Path, direct: bool) -> Option<Place> {
        let mounts = Mount::all().ok()?;
        let directory = directory.canonicalize().ok()?;
        let mount = Mount::around(&mounts, &directory)?;
        let (name, device) = match network_name(&mounts, &directory) {
            Some(name) => (name, String::new()),
            None => {
                let device = block_device(&directory, &mount.source);
                let number = statvfs(&directory).map_or(0, |found| found.f_fsid);
                System::this().name(&mount.fs_type, number, device)?
            }
        };
        let way = if direct { "direct" } else { "cached" };
        Some(Place {
            name: format!("{name} {way}"),
            kind: storage::kind(&directory),
            device,
            rotational: storage::is_lone_rotating_disk(&directory),
        })
    }
}

/// The device that a directory lies on; some file systems have several and a number of their own, and call it by the name that was mounted.
fn block_device(directory: &Path, source: &str) -> Option<Dev> {
    let own = directory.metadata().ok()?.dev();
    if major(own) != 0 {
        return Some(own);
    }
    let named = source.starts_with("/dev/").then(|| Path::new(source).metadata().ok()).flatten()?;
    (major(named.rdev()) != 0).then_some(named.rdev())
}

impl System {
    /// The name of a file system of this type, with the number that it gives itself, and what it lies on.
    fn name(&self, fs_type: &str, number: u64, device: Option<Dev>) -> Option<(String, String)> {
        let name = match NUMBERED.contains(&fs_type) && number != 0 {
            true => format!("{fs_type} {number:016x}"),
            false => device.and_then(|device| self.identifier(device).or_else(|| self.serial(device)))?,
        };
        Some((name, device.map_or_else(String::new, |device| self.model(device))))
    }

    /// The identifier of the file system on a device, as the device manager has read it there.
    fn identifier(&self, device: Dev) -> Option<String> {
        let known =
            read_to_string(self.database.join(format!("b{}:{}", major(device), minor(device)))).ok()?;
        let uuid = known.lines().find_map(|line| line.strip_prefix("E:ID_FS_UUID="))?;
        is_plain(uuid).then(|| format!("uuid {uuid}"))
    }

    /// The number of a device itself, with that of the partition.
    fn serial(&self, device: Dev) -> Option<String> {
        let partition =
            self.attribute(device, &["partition"]).map_or(String::new(), |part| format!(" part {part}"));
        let number =
            self.attribute(device, &["dm/uuid", "md/uuid", "wwid", "device/wwid", "device/serial", "serial"]);
        number.filter(|number| is_plain(number)).map(|number| format!("device {number}{partition}"))
    }

    /// What is known of a device by which its prices would be others'.
    fn model(&self, device: Dev) -> String {
        let model = self.attribute(device, &["device/model", "md/level"]);
        let sectors = read_to_string(self.place(device).join("size")).unwrap_or_default();
        let text = format!("{} of {} sectors", model.as_deref().unwrap_or("a device"), sectors.trim());
        text.chars().filter(|char| !char.is_control()).take(200).collect()
    }

    /// The first of these that the kernel tells of a device, or of the disk that a partition is of.
    fn attribute(&self, device: Dev, names: &[&str]) -> Option<String> {
        let place = self.place(device);
        let text = |name: &&str| {
            let own = read_to_string(place.join(name));
            let text = own.or_else(|_| read_to_string(place.join("..").join(name))).ok()?;
            let text = text.trim();
            (!text.is_empty()).then(|| text.to_owned())
        };
        names.iter().find_map(text)
    }

    fn place(&self, device: Dev) -> PathBuf {
        self.devices.join(format!("{}:{}", major(device), minor(device)))
    }
}

/// Whether it is what identifiers look like.
fn is_plain(text: &str) -> bool {
    (1..=200).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic() || byte == b' ')
}

#[cfg(test)]
mod tests {
    use std::fs::{create_dir_all, write};

    use rustix::fs::makedev;

    use super::*;

    #[test]
    fn a_file_system_has_its_own_number_or_its_devices() {
        let folder = tempfile::tempdir().unwrap();
        let (devices, database) = (folder.path().join("block"), folder.path().join("data"));
        create_dir_all(&database).unwrap();
        // A disk with a partition that udev knows, and one that it does not; a device of which nothing is known.
        create_dir_all(devices.join("8:0/device")).unwrap();
        write(devices.join("8:0/device/model"), "QUICK DISK \n").unwrap();
        write(devices.join("8:0/size"), "1000\n").unwrap();
        write(devices.join("8:0/wwid"), "naa.5000\n").unwrap();
        create_dir_all(devices.join("9:0")).unwrap();
        write(database.join("b8:1"), "I:1\nE:ID_FS_TYPE=xfs\nE:ID_FS_UUID=ab-12\n").unwrap();
        write(database.join("b8:2"), "E:ID_FS_UUID=a\u{7}b\n").unwrap();
        let system = System { devices: devices.clone(), database: database.clone() };
        let name = |fs_type: &str, number, device: Option<(u32, u32)>| {
            system.name(fs_type, number, device.map(|(major, minor)| makedev(major, minor)))
        };
        let is = |name: &str, device: &str| Some((name.to_owned(), device.to_owned()));
        assert_eq!(
            name("ext4", 0xab, Some((8, 0))),
            is("ext4 00000000000000ab", "QUICK DISK of 1000 sectors")
        );
        assert_eq!(name("ext4", 0, Some((8, 0))), is("device naa.5000", "QUICK DISK of 1000 sectors"));
        // The number of others is that of the device, which another one may have tomorrow.
        assert_eq!(name("xfs", 0xab, Some((8, 1))).unwrap().0, "uuid ab-12");
        assert_eq!(name("xfs", 0xab, Some((8, 2))), None, "no identifier looks like that");
        assert_eq!(name("xfs", 0xab, Some((9, 0))), None);
        assert_eq!(name("tmpfs", 0xab, None), None);
        assert_eq!(name("btrfs", 0xab, None), is("btrfs 00000000000000ab", ""));
    }

    #[test]
    fn nothing_is_kept_of_what_is_no_storage() {
        assert_eq!(Place::of(Path::new("/proc"), false), None);
        assert_eq!(Place::of(Path::new("/sys"), true), None);
        assert_eq!(Place::of(Path::new("/nowhere/at/all"), false), None);
    }
}
