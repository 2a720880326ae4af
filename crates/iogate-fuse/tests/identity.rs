//! What is changed through a mount is the file that is meant: the one that is open, whatever somebody else has put in its place
//! meanwhile, and none of another file system that has the same number.

mod common;

use std::fs::{self, File, OpenOptions, Permissions};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::PathBuf;
use std::time::Duration;

use common::{Behind, Mount, can_mount};
use iogate_fuse::MountOptions;
use rustix::fs::{AtFlags, Mode, OFlags, XattrFlags};
use rustix::mount::{MountFlags, UnmountFlags};

#[test]
fn attributes_are_set_on_the_open_file_and_on_no_other() {
    if !can_mount() {
        return;
    }
    // The kernel goes on with the name that it knows.
    let options = MountOptions { metadata_timeout: Duration::from_secs(600), ..MountOptions::default() };
    for behind in [Behind::Tree, Behind::Server] {
        let mount = Mount::new(behind, &options);
        let at = |name: &str| mount.source.join(name);
        let mode = |name: &str| fs::metadata(at(name)).unwrap().permissions().mode() & 0o777;
        fs::write(mount.at("mine"), "mine").unwrap();
        let open = File::open(mount.at("mine")).unwrap();
        let held = OpenOptions::new().read(true).custom_flags(libc::O_PATH).open(mount.at("mine")).unwrap();
        // Somebody else replaces it.
        fs::rename(at("mine"), at("mine.old")).unwrap();
        fs::write(at("other"), "another file").unwrap();
        fs::set_permissions(at("other"), Permissions::from_mode(0o600)).unwrap();
        fs::rename(at("other"), at("mine")).unwrap();
        let before = fs::metadata(at("mine")).unwrap();

        open.set_permissions(Permissions::from_mode(0o640)).unwrap();
        rustix::fs::fsetxattr(&open, "user.tag", b"mine", XattrFlags::empty()).unwrap();
        let mut value = [0u8; 8];
        assert_eq!(rustix::fs::fgetxattr(&open, "user.tag", &mut value[..]).unwrap(), 4);
        rustix::fs::fsetxattr(&open, "user.more", b"1", XattrFlags::empty()).unwrap();
        rustix::fs::fremovexattr(&open, "user.more").unwrap();
        open.set_modified(std::time::UNIX_EPOCH + Duration::from_secs(1_000_000)).unwrap();
        rustix::fs::fchown(&open, Some(rustix::fs::Uid::from_raw(1234)), None).unwrap();
        assert_eq!(mode("mine.old"), 0o640);
        assert_eq!(rustix::fs::getxattr(at("mine.old"), "user.tag", &mut value[..]).unwrap(), 4);
        assert_eq!(fs::metadata(at("mine")).unwrap().modified().unwrap(), before.modified().unwrap());
        drop(open);
        // Perhaps not open any more: then it cannot be found, and nothing else is taken for it.
        let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&held));
        let _ = fs::set_permissions(&path, Permissions::from_mode(0o666));
        let _ = rustix::fs::setxattr(&*path, "user.tag", b"x", XattrFlags::empty());
        assert_eq!(mode("mine"), 0o600);
        let none = rustix::fs::getxattr(at("mine"), "user.tag", &mut value[..]);
        assert_eq!(none.unwrap_err(), rustix::io::Errno::NODATA);
    }
}

#[test]
fn what_has_no_attributes_is_not_asked_for_them_until_it_gets_some() {
    if !can_mount() {
        return;
    }
    let mount = Mount::new(Behind::Server, &MountOptions::default());
    fs::write(mount.at("f"), "text").unwrap();
    let get = || {
        let mut value = [0u8; 8];
        rustix::fs::getxattr(mount.at("f"), "user.tag", &mut value[..]).map(|count| value[..count].to_vec())
    };
    assert_eq!(get(), Err(rustix::io::Errno::NODATA));
    rustix::fs::setxattr(mount.at("f"), "user.tag", b"one", XattrFlags::empty()).unwrap();
    assert_eq!(get().unwrap(), b"one");
    rustix::fs::removexattr(mount.at("f"), "user.tag").unwrap();
    assert_eq!(get(), Err(rustix::io::Errno::NODATA));
    // Set by somebody else: seen when the attributes are not believed any more.
    rustix::fs::setxattr(mount.source.join("f"), "user.tag", b"two", XattrFlags::empty()).unwrap();
    let patience = std::time::Instant::now() + Duration::from_secs(30);
    while get() != Ok(b"two".to_vec()) {
        assert!(std::time::Instant::now() < patience);
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// An empty file system that is mounted in a directory until this is dropped.
struct Disk(PathBuf);

impl Disk {
    fn new(at: PathBuf) -> Disk {
        fs::create_dir(&at).unwrap();
        rustix::mount::mount("none", &at, "tmpfs", MountFlags::empty(), None).unwrap();
        Disk(at)
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(&self.0, UnmountFlags::DETACH);
    }
}

#[test]
fn files_of_several_file_systems_below_a_mount_are_not_mixed_up() {
    if !can_mount() {
        return;
    }
    let options = MountOptions { metadata_timeout: Duration::from_secs(600), ..MountOptions::default() };
    for behind in [Behind::Directory, Behind::Tree, Behind::Server] {
        let mount = Mount::new(behind, &options);
        let [one, two] = ["one", "two"].map(|name| mount.source.join(name));
        let _disks = [one.clone(), two.clone()].map(Disk::new);
        fs::create_dir(one.join("d")).unwrap();
        fs::write(one.join("d/f"), "one").unwrap();
        fs::write(two.join("f"), "two").unwrap();
        fs::write(two.join("g"), "two").unwrap();
        let number = |path: PathBuf| fs::metadata(path).unwrap().ino();
        let same =
            [(number(one.clone()), number(two.clone())), (number(one.join("d/f")), number(two.join("g")))];
        assert!(same.iter().all(|(first, second)| first == second), "as on any two disks: {same:?}");

        let open = |name: &str| {
            let flags = OFlags::DIRECTORY | OFlags::RDONLY;
            rustix::fs::open(mount.at(name), flags, Mode::empty()).unwrap()
        };
        let (first, below) = (open("one"), open("one/d"));
        let see_two = || {
            assert_eq!(fs::read(mount.at("one/d/f")).unwrap(), b"one", "{behind:?}");
            assert_eq!(fs::read(mount.at("two/g")).unwrap(), b"two", "{behind:?}");
        };
        // A directory that a program works in, while others look at what has the same number.
        see_two();
        drop(rustix::fs::openat(&first, "made", OFlags::CREATE | OFlags::WRONLY, Mode::RUSR).unwrap());
        assert_eq!((one.join("made").exists(), two.join("made").exists()), (true, false), "{behind:?}");
        see_two();
        rustix::fs::chmodat(&below, "f", Mode::RUSR, AtFlags::empty()).unwrap();
        let modes = [one.join("d/f"), two.join("g")].map(|path| fs::metadata(path).unwrap().mode() & 0o777);
        assert!(modes[0] == 0o400 && modes[1] != 0o400, "{behind:?}: {modes:?}");
        see_two();
        let cut = rustix::fs::openat(&below, "f", OFlags::TRUNC | OFlags::WRONLY, Mode::empty()).unwrap();
        rustix::io::write(&cut, b"new").unwrap();
        let texts = [one.join("d/f"), two.join("g")].map(|path| fs::read_to_string(path).unwrap());
        assert_eq!(texts, ["new", "two"], "{behind:?}");
    }
}
