//! The mount against a plain directory, operation by operation: the same results, the same errors.

mod common;

use std::ffi::{CString, OsStr};
use std::fmt::Write as _;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use common::{Behind, on_all_mounts};
use rustix::fs::{
    AtFlags, CWD, FallocateFlags, FileType, Gid, Mode, OFlags, RenameFlags, SeekFrom, Timespec, Timestamps,
    UTIME_NOW, UTIME_OMIT, Uid, XattrFlags,
};
use rustix::io::Errno;

/// A line for each operation and its result; two directories are alike if their logs are.
struct Log<'a> {
    root: &'a Path,
    text: String,
}

impl Log<'_> {
    fn path(&self, name: &str) -> std::path::PathBuf {
        self.root.join(name)
    }

    fn note<T: std::fmt::Debug>(&mut self, what: &str, result: Result<T, Errno>) -> Option<T> {
        match result {
            Ok(value) => {
                writeln!(self.text, "{what}: {value:?}").unwrap();
                Some(value)
            }
            Err(errno) => {
                writeln!(self.text, "{what}: {errno:?}").unwrap();
                None
            }
        }
    }

    /// As `note`, for a value that need not be the same.
    fn get<T>(&mut self, what: &str, result: Result<T, Errno>) -> Option<T> {
        let mut kept = None;
        self.note(what, result.map(|value| kept = Some(value)));
        kept
    }

    fn stat(&mut self, name: &str) {
        let path = self.path(name);
        let stat = rustix::fs::lstat(&path).map(|stat| {
            let size =
                if FileType::from_raw_mode(stat.st_mode) == FileType::Directory { 0 } else { stat.st_size };
            let rdev = stat.st_rdev;
            (format!("{:o}", stat.st_mode), stat.st_nlink, stat.st_uid, stat.st_gid, size, rdev)
        });
        self.note(&format!("stat {name}"), stat);
    }

    fn mkdir(&mut self, name: &str) {
        let path = self.path(name);
        self.note(&format!("mkdir {name}"), rustix::fs::mkdir(path, Mode::from_raw_mode(0o755)));
    }

    fn write(&mut self, name: &str, bytes: &[u8]) {
        let path = self.path(name);
        let flags = OFlags::CREATE | OFlags::TRUNC | OFlags::WRONLY;
        let opened = rustix::fs::open(path, flags, Mode::from_raw_mode(0o644));
        if let Some(file) = self.get(&format!("create {name}"), opened) {
            self.note("write", rustix::io::write(&file, bytes));
        }
    }

    fn read(&mut self, name: &str) {
        let read = std::fs::read(self.path(name)).map_err(|error| Errno::from_io_error(&error).unwrap());
        let read = read.map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        self.note(&format!("read {name}"), read);
    }

    fn list(&mut self, name: &str) {
        let mut names: Vec<_> = std::fs::read_dir(self.path(name))
            .map(|dir| {
                dir.map(|entry| {
                    let entry = entry.unwrap();
                    (entry.file_name(), entry.file_type().unwrap())
                })
                .collect()
            })
            .unwrap_or_default();
        names.sort_by(|a: &(std::ffi::OsString, _), b| a.0.cmp(&b.0));
        writeln!(self.text, "list {name}: {names:?}").unwrap();
    }
}

/// Runs the operations in the mount and in a plain directory next to it.
fn same(operations: impl Fn(&mut Log<'_>)) {
    on_all_mounts(|mount| {
        let plain = tempfile::tempdir_in(mount.source.parent().unwrap()).unwrap();
        common::open_to_all(plain.path());
        let run = |root| {
            let mut log = Log { root, text: String::new() };
            operations(&mut log);
            log.text
        };
        let (expected, found) = (run(plain.path()), run(&mount.path));
        assert!(expected.lines().count() > 3, "the operations did something");
        assert_eq!(expected, found);
        // What was done is in the source, too.
        let (mut plain, mut source) = (names_below(plain.path()), names_below(&mount.source));
        plain.sort();
        source.sort();
        assert_eq!(plain, source);
    });
}

fn names_below(root: &Path) -> Vec<(String, u32, u64)> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(root).unwrap() {
        let path = entry.unwrap().path();
        let metadata = path.symlink_metadata().unwrap();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if name == ".iogate" {
            // What a server keeps for files that are open without a name.
            continue;
        }
        names.push((name, metadata.mode(), if metadata.is_dir() { 0 } else { metadata.size() }));
        if metadata.is_dir() {
            names.extend(names_below(&path));
        }
    }
    names
}

#[test]
fn names() {
    same(|log| {
        log.mkdir("d");
        log.mkdir("d");
        log.mkdir("missing/d");
        log.write("d/f", b"hello");
        log.read("d/f");
        log.stat("d/f");
        log.read("missing");
        log.mkdir("d/f/x");
        log.stat("d/f/x");
        let long = "n".repeat(256);
        log.mkdir(&long);
        log.mkdir(&long[..255]);
        for (from, to, flags) in [
            ("d/f", "d/g", RenameFlags::empty()),
            ("d/f", "d/h", RenameFlags::empty()),
            ("d/g", "d", RenameFlags::empty()),
            ("d", "d/e", RenameFlags::empty()),
            ("d/g", &long[..255], RenameFlags::NOREPLACE),
            ("d/g", &long[..255], RenameFlags::EXCHANGE),
            ("d/g", "nothing", RenameFlags::EXCHANGE),
            ("d/g", "g", RenameFlags::NOREPLACE),
        ] {
            let (from_path, to_path) = (log.path(from), log.path(to));
            let renamed = rustix::fs::renameat_with(CWD, from_path, CWD, to_path, flags);
            log.note(&format!("rename {from} {to} {flags:?}"), renamed);
        }
        log.list(".");
        log.list("d");
        for (from, to) in [("g", "h"), ("g", "h"), ("d", "e"), ("missing", "e")] {
            let linked = rustix::fs::link(log.path(from), log.path(to));
            log.note(&format!("link {from} {to}"), linked);
        }
        for (target, name) in [("h", "s"), ("nowhere", "broken"), ("s", "s")] {
            let linked = rustix::fs::symlink(target, log.path(name));
            log.note(&format!("symlink {target} {name}"), linked);
            let target = rustix::fs::readlink(log.path(name), Vec::new());
            log.note("readlink", target);
            log.stat(name);
        }
        log.note("hard link to a symlink", rustix::fs::link(log.path("s"), log.path("s2")));
        log.stat("s2");
        log.note("readlink of a file", rustix::fs::readlink(log.path("g"), Vec::new()));
        log.read("broken");
        for name in ["g", "h", "s", "d", "missing"] {
            log.stat(name);
            log.note(&format!("unlink {name}"), rustix::fs::unlink(log.path(name)));
            log.stat(name);
        }
        log.write("d/x", b"");
        for name in ["d", "missing", "broken", &long[..255]] {
            log.note("rmdir", rustix::fs::rmdir(log.path(name)));
        }
        log.list(".");
    });
}

#[test]
fn nodes_and_modes() {
    same(|log| {
        for (name, kind, mode, device) in [
            ("fifo", FileType::Fifo, 0o640, 0),
            ("socket", FileType::Socket, 0o600, 0),
            ("null", FileType::CharacterDevice, 0o666, rustix::fs::makedev(1, 3)),
            ("big", FileType::BlockDevice, 0o660, rustix::fs::makedev(259, 70_000)),
            ("file", FileType::RegularFile, 0o4755, 0),
            ("fifo", FileType::Fifo, 0o640, 0),
        ] {
            let made = rustix::fs::mknodat(CWD, log.path(name), kind, Mode::from_raw_mode(mode), device);
            log.note(&format!("mknod {name}"), made);
            log.stat(name);
        }
        for mode in [0o000, 0o1777, 0o2755, 0o4711, 0o777] {
            log.note("chmod", rustix::fs::chmod(log.path("file"), Mode::from_raw_mode(mode)));
            log.stat("file");
        }
        for (uid, gid) in [(Some(1000), None), (None, Some(1001)), (Some(7), Some(8))] {
            rustix::fs::chmod(log.path("file"), Mode::from_raw_mode(0o6755)).unwrap();
            let path = log.path("file");
            let (uid, gid) = (uid.map(Uid::from_raw), gid.map(Gid::from_raw));
            log.note("chown", rustix::fs::chownat(CWD, path, uid, gid, AtFlags::empty()));
            log.stat("file");
        }
        rustix::fs::symlink("file", log.path("link")).unwrap();
        let path = log.path("link");
        let owner = Some(Uid::from_raw(5));
        log.note("lchown", rustix::fs::chownat(CWD, path, owner, None, AtFlags::SYMLINK_NOFOLLOW));
        log.stat("link");
        log.stat("file");
        // A directory that hands its group down.
        log.mkdir("shared");
        rustix::fs::chownat(CWD, log.path("shared"), None, Some(Gid::from_raw(77)), AtFlags::empty())
            .unwrap();
        rustix::fs::chmod(log.path("shared"), Mode::from_raw_mode(0o2775)).unwrap();
        log.write("shared/file", b"x");
        log.mkdir("shared/dir");
        log.stat("shared/file");
        log.stat("shared/dir");
    });
}

#[test]
fn times() {
    same(|log| {
        log.write("f", b"x");
        rustix::fs::symlink("f", log.path("link")).unwrap();
        let at = |secs, nsec| Timespec { tv_sec: secs, tv_nsec: nsec };
        for (what, access, modification) in [
            ("both", at(1_000_000_000, 123_456_789), at(2_000_000_000, 987_654_321)),
            ("access only", at(5, 1), at(0, UTIME_OMIT)),
            ("modification only", at(0, UTIME_OMIT), at(6, 999_999_999)),
            ("before the epoch", at(-5, 5), at(-1, 0)),
        ] {
            for (name, flags) in [("f", AtFlags::empty()), ("link", AtFlags::SYMLINK_NOFOLLOW)] {
                let times = Timestamps { last_access: access, last_modification: modification };
                log.note(what, rustix::fs::utimensat(CWD, log.path(name), &times, flags));
                let stat = rustix::fs::lstat(log.path(name)).unwrap();
                let times = (stat.st_atime, stat.st_atime_nsec, stat.st_mtime, stat.st_mtime_nsec);
                log.note("times", Ok(times));
            }
        }
        let now = Timestamps { last_access: at(0, UTIME_NOW), last_modification: at(0, UTIME_NOW) };
        log.note("now", rustix::fs::utimensat(CWD, log.path("f"), &now, AtFlags::empty()));
        let age = log.path("f").metadata().unwrap().modified().unwrap().elapsed().unwrap_or_default();
        log.note("is now", Ok(age.as_secs() < 10));
    });
}

#[test]
fn data() {
    same(|log| {
        let path = log.path("f");
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR;
        let mode = Mode::from_raw_mode(0o600);
        let file = log.get("create", rustix::fs::open(&path, flags, mode)).unwrap();
        log.get("create again", rustix::fs::open(&path, flags, mode));
        log.note("write", rustix::io::pwrite(&file, b"0123456789", 5));
        log.note("write nothing", rustix::io::pwrite(&file, b"", 100));
        log.note("write far", rustix::io::pwrite(&file, b"end", 3 << 20));
        log.stat("f");
        let mut buffer = [1; 32];
        for offset in [0, 8, (3 << 20) - 3, 3 << 20, (3 << 20) + 3, 1 << 40] {
            let read =
                rustix::io::pread(&file, &mut buffer[..], offset).map(|bytes| buffer[..bytes].to_vec());
            log.note(&format!("read {offset}"), read);
        }
        for from in [SeekFrom::Data(0), SeekFrom::Hole(0), SeekFrom::Data(100_000), SeekFrom::Data(4 << 20)] {
            log.note(&format!("{from:?}"), rustix::fs::seek(&file, from));
        }
        for size in [2 << 20, 7, 0, 12] {
            log.note("ftruncate", rustix::fs::ftruncate(&file, size));
            log.stat("f");
        }
        log.note("fallocate", rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, 1 << 20));
        log.stat("f");
        rustix::io::pwrite(&file, &[7; 100_000], 0).unwrap();
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        log.note("punch", rustix::fs::fallocate(&file, punch, 4096, 8192));
        log.note("hole", rustix::fs::seek(&file, SeekFrom::Hole(0)));
        log.note("zero", rustix::fs::fallocate(&file, FallocateFlags::ZERO_RANGE, 50_000, 1000));
        // The kernel's FUSE knows no further modes (COLLAPSE_RANGE, INSERT_RANGE).
        log.note("invalid", rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, 0));
        log.note("fsync", rustix::fs::fsync(&file));
        log.note("fdatasync", rustix::fs::fdatasync(&file));
        log.read("f");

        let copy = rustix::fs::open(log.path("copy"), flags, mode).unwrap();
        let copied = rustix::fs::copy_file_range(&file, Some(&mut 10), &copy, Some(&mut 3), 90_000);
        log.note("copy", copied);
        log.read("copy");

        let read_only = rustix::fs::open(&path, OFlags::RDONLY, Mode::empty()).unwrap();
        log.note("write to read-only", rustix::io::write(&read_only, b"x"));
        let write_only = rustix::fs::open(&path, OFlags::WRONLY, Mode::empty()).unwrap();
        log.note("read from write-only", rustix::io::read(&write_only, &mut buffer[..]));
        log.note("write to write-only", rustix::io::pwrite(&write_only, b"unaligned", 4093));
        log.get("truncating open", rustix::fs::open(&path, OFlags::RDWR | OFlags::TRUNC, Mode::empty()));
        log.stat("f");
        for flags in [OFlags::RDONLY, OFlags::WRONLY, OFlags::DIRECTORY] {
            log.get("open a directory", rustix::fs::open(log.root, flags, Mode::empty()));
            log.get("open a file", rustix::fs::open(&path, flags, Mode::empty()));
        }
    });
}

#[test]
fn files_without_a_name() {
    on_all_mounts(|mount| {
        let mode = Mode::from_raw_mode(0o600);
        let unnamed = rustix::fs::open(&mount.path, OFlags::TMPFILE | OFlags::RDWR, mode);
        if mount.behind != Behind::Directory {
            // Better none at all than one that cannot be given a name: programs then make one with a name.
            assert_eq!(unnamed.unwrap_err(), Errno::OPNOTSUPP);
            return;
        }
        let unnamed = unnamed.unwrap();
        rustix::io::write(&unnamed, b"unnamed").unwrap();
        let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&unnamed.as_fd()));
        rustix::fs::linkat(CWD, path, CWD, mount.at("named"), AtFlags::SYMLINK_FOLLOW).unwrap();
        assert_eq!(std::fs::read(mount.source.join("named")).unwrap(), b"unnamed");
    });
}

#[test]
fn open_files_outlive_their_names() {
    same(|log| {
        log.write("f", b"before");
        let flags = OFlags::RDWR;
        let file = rustix::fs::open(log.path("f"), flags, Mode::empty()).unwrap();
        log.note("unlink", rustix::fs::unlink(log.path("f")));
        log.write("f", b"another");
        let mut buffer = [0; 16];
        let read = rustix::io::pread(&file, &mut buffer[..], 0).map(|bytes| buffer[..bytes].to_vec());
        log.note("read", read);
        log.note("write", rustix::io::pwrite(&file, b"after", 6));
        log.note("chmod", rustix::fs::fchmod(&file, Mode::from_raw_mode(0o600)));
        log.note("truncate", rustix::fs::ftruncate(&file, 3));
        log.note("stat", rustix::fs::fstat(&file).map(|stat| (stat.st_size, stat.st_nlink, stat.st_mode)));
        log.read("f");
        // A name that another file takes over while it is open.
        log.write("g", b"over");
        let g = rustix::fs::open(log.path("g"), flags, Mode::empty()).unwrap();
        log.note("rename over", rustix::fs::rename(log.path("f"), log.path("g")));
        let read = rustix::io::pread(&g, &mut buffer[..], 0).map(|bytes| buffer[..bytes].to_vec());
        log.note("read", read);
        log.read("g");
    });
}

#[test]
fn extended_attributes() {
    same(|log| {
        log.write("f", b"x");
        log.mkdir("d");
        rustix::fs::symlink("f", log.path("link")).unwrap();
        let mut buffer = vec![0; 70_000];
        for name in ["f", "d", "link", "."] {
            let path = log.path(name);
            for (attribute, value, flags) in [
                ("user.a", &b"one"[..], XattrFlags::empty()),
                ("user.a", b"two", XattrFlags::CREATE),
                ("user.b", b"", XattrFlags::REPLACE),
                ("user.b", b"\0\xff", XattrFlags::CREATE),
                ("trusted.t", b"root's", XattrFlags::empty()),
                ("nonsense", b"", XattrFlags::empty()),
            ] {
                let set = rustix::fs::lsetxattr(&path, attribute, value, flags);
                log.note(&format!("set {name} {attribute}"), set);
            }
            for attribute in ["user.a", "user.b", "trusted.t", "user.missing"] {
                let get = rustix::fs::lgetxattr(&path, attribute, &mut buffer[..]);
                log.note("get", get.map(|size| buffer[..size].to_vec()));
                log.note("size", rustix::fs::lgetxattr(&path, attribute, &mut [0_u8; 0]));
                log.note("too small", rustix::fs::lgetxattr(&path, attribute, &mut [0_u8; 1]));
            }
            let list = rustix::fs::llistxattr(&path, &mut buffer[..]).map(|size| buffer[..size].to_vec());
            log.note("list", list);
            log.note("list size", rustix::fs::llistxattr(&path, &mut [0_u8; 0]));
            log.note("remove", rustix::fs::lremovexattr(&path, "user.a"));
            log.note("remove", rustix::fs::lremovexattr(&path, "user.a"));
        }
    });
}

#[test]
fn the_source_file_system_shows_through() {
    on_all_mounts(|mount| {
        let (source, found) =
            (rustix::fs::statvfs(&mount.source).unwrap(), rustix::fs::statvfs(&mount.path).unwrap());
        assert_eq!(source.f_blocks, found.f_blocks);
        assert_eq!(source.f_files, found.f_files);
        assert_eq!(source.f_bsize, found.f_bsize);
        assert_eq!(source.f_namemax, found.f_namemax);
    });
}

#[test]
fn any_bytes_are_a_name() {
    on_all_mounts(|mount| {
        let name = OsStr::from_bytes(b"\xff\x01 \n'\\");
        std::fs::write(mount.path.join(name), b"odd").unwrap();
        assert_eq!(std::fs::read(mount.source.join(name)).unwrap(), b"odd");
        let listed = std::fs::read_dir(&mount.path).unwrap().next().unwrap().unwrap();
        assert_eq!(listed.file_name(), name);
        assert!(CString::new(name.as_bytes()).is_ok());
    });
}
