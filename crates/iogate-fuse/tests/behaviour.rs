//! What programs rely on beyond single operations: locks, mappings, appends, other users, big directories, the end.

mod common;

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use common::{Behind, Mount, can_mount, on_all_mounts};
use iogate_core::AppId;
use iogate_fuse::{CacheMode, ControlError, MountError, MountOptions, Transport};
use iogate_net::Endpoint;

/// Runs a shell command and returns its output, for what needs another process or user.
fn sh(script: &str) -> (bool, String) {
    let output = Command::new("bash").arg("-c").arg(script).output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&text).into_owned())
}

#[test]
fn a_large_directory_is_listed_once_and_whole() {
    on_all_mounts(|mount| {
        // More than are fetched at a time; the transports differ in nothing here.
        let files = if mount.mounted().transport() == Transport::Device { 3_000 } else { 500 };
        let dir = mount.source.join("large");
        std::fs::create_dir(&dir).unwrap();
        for number in 0..files {
            File::create(dir.join(format!("file-with-a-rather-long-name-{number:06}"))).unwrap();
        }
        let dir = mount.at("large");
        let mut names: Vec<_> = dir.read_dir().unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names.len(), files);
        names.dedup();
        assert_eq!(names.len(), files);
        let (ok, count) = sh(&format!("ls -l {} | grep -c rather-long", dir.display()));
        assert!(ok);
        assert_eq!(count.trim(), files.to_string());
        // Removing while listing: nothing is skipped.
        for entry in dir.read_dir().unwrap() {
            std::fs::remove_file(entry.unwrap().path()).unwrap();
        }
        assert_eq!(dir.read_dir().unwrap().count(), 0);
        assert_eq!(mount.source.join("large").read_dir().unwrap().count(), 0);
    });
}

#[test]
fn positions_in_a_directory_can_be_returned_to() {
    on_all_mounts(|mount| {
        for number in 0..3000 {
            File::create(mount.source.join(format!("f{number}"))).unwrap();
        }
        // SAFETY: plain use of the C library's directory streams, closed at the end; the entries returned are read
        // before the next call.
        unsafe {
            let path = std::ffi::CString::new(mount.path.to_str().unwrap()).unwrap();
            let stream = libc::opendir(path.as_ptr());
            assert!(!stream.is_null());
            let next = || {
                let entry = libc::readdir(stream);
                (!entry.is_null()).then(|| std::ffi::CStr::from_ptr((*entry).d_name.as_ptr()).to_owned())
            };
            let (mut names, mut positions) = (Vec::new(), Vec::new());
            loop {
                let position = libc::telldir(stream);
                let Some(name) = next() else { break };
                names.push(name);
                positions.push(position);
            }
            assert_eq!(names.len(), 3002);
            for index in [3001, 0, 1500, 1499, 2999, 7] {
                libc::seekdir(stream, positions[index]);
                assert_eq!(next().as_ref(), Some(&names[index]));
                assert_eq!(next().as_ref(), names.get(index + 1));
            }
            libc::rewinddir(stream);
            assert_eq!(next().as_ref(), Some(&names[0]));
            libc::closedir(stream);
        }
    });
}

#[test]
fn what_is_removed_past_the_mount_is_not_opened_by_its_name() {
    on_all_mounts(|mount| {
        if mount.behind != Behind::Directory {
            return;
        }
        // The kernel trusts the name for a second.
        let (path, at_source) = (mount.at("gone"), mount.source.join("gone"));
        std::fs::write(&path, b"before").unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 6);
        std::fs::remove_file(&at_source).unwrap();
        assert_eq!(File::open(&path).unwrap_err().kind(), std::io::ErrorKind::NotFound);
        std::fs::write(&path, b"another").unwrap();
        assert_eq!(
            std::fs::read(&at_source).unwrap(),
            b"another",
            "what is written is in no file that is gone"
        );
        // What is open is opened once more by its descriptor.
        let open = File::open(&path).unwrap();
        std::fs::remove_file(&at_source).unwrap();
        let again = format!("/proc/self/fd/{}", open.as_raw_fd());
        assert_eq!(std::fs::read(again).unwrap(), b"another");
    });
}

#[test]
fn locks_hold_between_processes() {
    on_all_mounts(|mount| {
        let path = mount.at("locked");
        let file = File::create(&path).unwrap();
        file.lock().unwrap();
        let try_flock = format!("flock -n {} true", path.display());
        assert!(!sh(&try_flock).0, "another process must not get the lock");
        file.unlock().unwrap();
        assert!(sh(&try_flock).0);

        let lock = libc::flock {
            l_type: libc::F_WRLCK as _,
            l_whence: libc::SEEK_SET as _,
            l_start: 10,
            l_len: 10,
            l_pid: 0,
        };
        // SAFETY: the pointer is to a lock record that lives long enough.
        assert_eq!(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLK, &raw const lock) }, 0);
        let try_range = |from: u32| {
            let script = format!(
                "import fcntl; f = open({:?}, 'r+'); fcntl.lockf(f, fcntl.LOCK_EX | fcntl.LOCK_NB, 5, {from})",
                path.to_str().unwrap()
            );
            Command::new("python3").arg("-c").arg(script).stderr(Stdio::null()).status().unwrap().success()
        };
        assert!(!try_range(12));
        assert!(try_range(20));
    });
}

#[test]
fn mappings_share_and_keep_data() {
    on_all_mounts(|mount| {
        let path = mount.at("mapped");
        let bytes: Vec<u8> = (0..300_000_u32).map(|n| (n % 251) as u8).collect();
        std::fs::write(&path, &bytes).unwrap();
        let file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
        // SAFETY: the mapping is used below with its own length, while the file keeps its size, then unmapped.
        unsafe {
            use rustix::mm::{MapFlags, MsyncFlags, ProtFlags, mmap, msync, munmap};
            let both = ProtFlags::READ | ProtFlags::WRITE;
            for flags in [MapFlags::PRIVATE, MapFlags::SHARED] {
                let start = mmap(std::ptr::null_mut(), bytes.len(), both, flags, &file, 0).unwrap();
                let mapped = std::slice::from_raw_parts_mut(start.cast::<u8>(), bytes.len());
                assert!(mapped == bytes);
                mapped[123_456] = 255;
                msync(start, bytes.len(), MsyncFlags::SYNC).unwrap();
                munmap(start, bytes.len()).unwrap();
                let expected = if flags == MapFlags::SHARED { 255 } else { bytes[123_456] };
                assert_eq!(std::fs::read(&path).unwrap()[123_456], expected);
                assert_eq!(std::fs::read(mount.source.join("mapped")).unwrap()[123_456], expected);
            }
        }
        // Running a program maps it.
        let program = mount.at("program");
        std::fs::copy("/bin/echo", &program).unwrap();
        assert_eq!(sh(&format!("{} ran", program.display())), (true, "ran\n".to_owned()));
    });
}

#[test]
fn appends_of_several_processes_do_not_overwrite_each_other() {
    on_all_mounts(|mount| {
        let path = mount.at("log");
        let script = format!(
            "for p in 1 2 3 4; do (for i in $(seq 300); do echo process-$p-line-$i; done >> {}) & done; wait",
            path.display()
        );
        assert!(sh(&script).0);
        let text = std::fs::read_to_string(mount.source.join("log")).unwrap();
        let mut lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 1200);
        lines.sort_unstable();
        lines.dedup();
        assert_eq!(lines.len(), 1200);
        // What others append to the source is not overwritten, either.
        let mut appending = OpenOptions::new().append(true).open(&path).unwrap();
        OpenOptions::new()
            .append(true)
            .open(mount.source.join("log"))
            .unwrap()
            .write_all(b"beside\n")
            .unwrap();
        appending.write_all(b"through\n").unwrap();
        let text = std::fs::read_to_string(mount.source.join("log")).unwrap();
        assert!(text.ends_with("beside\nthrough\n"), "{:?}", &text[text.len() - 40..]);
    });
}

#[test]
fn other_users_have_their_own_rights_and_files() {
    on_all_mounts(|mount| {
        let path = mount.path.display();
        std::fs::write(mount.at("secret"), b"root's").unwrap();
        std::fs::set_permissions(mount.at("secret"), PermissionsExt::from_mode(0o600)).unwrap();
        let group = mount.at("for-group");
        std::fs::create_dir(&group).unwrap();
        std::os::unix::fs::chown(&group, Some(0), Some(2000)).unwrap();
        std::fs::set_permissions(&group, PermissionsExt::from_mode(0o770)).unwrap();
        let run = |command: &str| {
            sh(&format!(
                "cd / && setpriv --reuid 1234 --regid 1235 --groups 2000 bash -c 'umask 027; {command}'"
            ))
        };
        let (ok, said) = run(&format!("cat {path}/secret"));
        assert!(!ok && said.contains("Permission denied"), "{said}");
        let (ok, said) = run(&format!(
            "echo x > {path}/own && mkdir {path}/dir && ln -s own {path}/link && mkfifo {path}/fifo"
        ));
        assert!(ok, "{said}");
        for (name, mode) in [("own", 0o100_640), ("dir", 0o40_750), ("fifo", 0o10_640), ("link", 0o120_777)] {
            let metadata = mount.source.join(name).symlink_metadata().unwrap();
            assert_eq!((metadata.uid(), metadata.gid(), metadata.mode()), (1234, 1235, mode), "{name}");
        }
        // By a supplementary group of the process, which no user database knows.
        let (ok, said) = run(&format!("echo x > {path}/for-group/file"));
        assert!(ok, "{said}");
        for command in ["chmod 777", "chown 1234", "touch -d 2001-01-01", "truncate -s 0"] {
            assert!(!run(&format!("{command} {path}/secret")).0, "{command}");
        }
        // Writing to somebody else's program takes its set-user-id away.
        std::fs::write(mount.at("program"), b"#!").unwrap();
        std::fs::set_permissions(mount.at("program"), PermissionsExt::from_mode(0o6777)).unwrap();
        assert!(run(&format!("echo x >> {path}/program")).0);
        assert_eq!(mount.source.join("program").metadata().unwrap().mode() & 0o7777, 0o777);
        // A sticky directory.
        std::fs::set_permissions(mount.source.join("."), PermissionsExt::from_mode(0o1777)).unwrap();
        std::thread::sleep(Duration::from_millis(1100));
        assert!(!run(&format!("rm -f {path}/secret")).0);
        assert!(run(&format!("rm {path}/own")).0);
        assert_eq!(std::fs::metadata(mount.at("secret")).unwrap().uid(), 0);
    });
}

#[test]
fn access_lists_count() {
    on_all_mounts(|mount| {
        let path = mount.path.display();
        if !sh(&format!("setfacl -m u:1:r {}", mount.source.display())).0 {
            eprintln!("SKIPPED: setfacl or the source's support for access lists is missing");
            return;
        }
        std::fs::write(mount.at("f"), b"x").unwrap();
        std::fs::set_permissions(mount.at("f"), PermissionsExt::from_mode(0o600)).unwrap();
        let read = format!("cd / && setpriv --reuid 1234 --regid 1234 --clear-groups cat {path}/f");
        assert!(!sh(&read).0);
        assert!(sh(&format!("setfacl -m u:1234:r {path}/f")).0);
        assert_eq!(sh(&read), (true, "x".to_owned()));
        // A default list takes the umask's place.
        assert!(sh(&format!("mkdir {path}/d && setfacl -d -m g:55:rwx {path}/d")).0);
        assert!(sh(&format!("umask 077; touch {path}/d/f; umask 022; touch {path}/g")).0);
        let (_, list) = sh(&format!("getfacl -cn {path}/d/f"));
        assert!(list.contains("group:55:rwx") && list.contains("mask::rw-"), "{list}");
    });
}

#[test]
fn concurrent_writers_read_back_what_they_wrote() {
    on_all_mounts(|mount| {
        std::thread::scope(|scope| {
            for thread in 0..8_u64 {
                let path = mount.at(&format!("file-{}", thread / 2));
                scope.spawn(move || {
                    let flags = if thread % 4 == 0 { libc::O_DSYNC } else { 0 };
                    let mut options = OpenOptions::new();
                    options.read(true).write(true).create(true).truncate(false).custom_flags(flags);
                    let file = options.open(path).unwrap();
                    let mut seed = thread + 1;
                    let mut random = || {
                        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                        (seed >> 33) as usize
                    };
                    // Two threads share a file, in regions of their own.
                    let region = (thread % 2) << 22;
                    let mut mirror = vec![0_u8; 1 << 21];
                    for round in 0..120 {
                        let bytes = 1 + random() % if round % 10 == 0 { 1 << 20 } else { 1 << 14 };
                        let start = random() % (mirror.len() - bytes);
                        let offset = region + start as u64;
                        if random() % 2 == 0 {
                            mirror[start..start + bytes].fill_with(|| random() as u8);
                            file.write_all_at(&mirror[start..start + bytes], offset).unwrap();
                        } else {
                            let mut read = vec![0; bytes];
                            let mut filled = 0;
                            while filled < bytes {
                                match file.read_at(&mut read[filled..], offset + filled as u64).unwrap() {
                                    0 => break,
                                    count => filled += count,
                                }
                            }
                            assert!(read == mirror[start..start + bytes], "at {offset}");
                        }
                    }
                });
            }
        });
    });
}

#[test]
fn changes_in_the_source_are_seen() {
    on_all_mounts(|mount| {
        std::fs::write(mount.at("f"), b"one").unwrap();
        assert_eq!(std::fs::read(mount.at("f")).unwrap(), b"one");
        std::fs::write(mount.source.join("f"), b"another").unwrap();
        std::fs::remove_file(mount.source.join("gone")).unwrap_err();
        std::thread::sleep(Duration::from_millis(1100));
        assert_eq!(std::fs::read(mount.at("f")).unwrap(), b"another");
        std::fs::remove_file(mount.source.join("f")).unwrap();
        std::thread::sleep(Duration::from_millis(1100));
        assert_eq!(std::fs::read(mount.at("f")).unwrap_err().raw_os_error(), Some(libc::ENOENT));
        // The whole source goes away: errors, not waiting.
        std::fs::remove_dir_all(&mount.source).unwrap();
        let begin = Instant::now();
        assert!(File::create(mount.at("new")).is_err());
        assert!(
            mount.path.read_dir().is_ok_and(|mut dir| dir.next().is_none()) || mount.path.read_dir().is_err()
        );
        assert!(begin.elapsed() < Duration::from_secs(60));
    });
}

#[test]
fn the_root_takes_commands() {
    on_all_mounts(|mount| {
        assert_eq!(iogate_fuse::status(&mount.path).unwrap(), b"told 0");
        iogate_fuse::set(&mount.path, "scheduler=sjf").unwrap();
        assert_eq!(*mount.control.told.lock().unwrap(), ["scheduler=sjf"]);
        assert_eq!(iogate_fuse::status(&mount.path).unwrap(), b"told 1");
        let refused = iogate_fuse::set(&mount.path, "nonsense").unwrap_err();
        assert_eq!(refused.to_string(), "expected key=value, got nonsense");
        let elsewhere = iogate_fuse::set(Path::new("/tmp"), "a=b").unwrap_err();
        assert!(matches!(elsewhere, ControlError::NotAMount { .. }), "{elsewhere}");
        let path = mount.path.display();
        let set = format!("setpriv --reuid 1234 setfattr -n user.iogate.set -v a=b {path}");
        assert!(!sh(&set).0);
        // By the names for which the kernel does not look at the root: for root and the user of the mount.
        assert!(!sh(&set.replace("user.iogate", "system.iogate")).0);
        assert!(!sh(&format!("setpriv --reuid 1234 getfattr -n system.iogate.status {path}")).0);
        assert!(sh(&format!("getfattr -n system.iogate.status {path} | grep -q 'told 1'")).0);
        assert!(!sh(&format!("setfattr -n system.iogate.app -v 5 {path}")).0);
        assert!(!sh(&format!("getfattr -n system.iogate.app.5 {path}")).0);
        assert_eq!(mount.control.told.lock().unwrap().len(), 1);
        let (_, listed) = sh(&format!("getfattr -d {path}"));
        assert!(!listed.contains("iogate"), "{listed}");
    });
}

#[test]
fn streams_on_files_of_a_server_have_large_buffers() {
    if !can_mount() {
        return;
    }
    for (cache, least) in [(CacheMode::Direct, 64 << 10), (CacheMode::Page, 0)] {
        let mount = Mount::through(&MountOptions { cache, ..MountOptions::default() }, Endpoint::clone);
        std::fs::write(mount.at("f"), [b'x'; 100_000]).unwrap();
        let source = std::fs::metadata(mount.source.join("f")).unwrap().blksize();
        assert_eq!(std::fs::metadata(mount.at("f")).unwrap().blksize(), source.max(least));
        std::fs::create_dir(mount.at("d")).unwrap();
        let folder = std::fs::metadata(mount.source.join("d")).unwrap().blksize();
        assert_eq!(std::fs::metadata(mount.at("d")).unwrap().blksize(), folder);
    }
}

#[test]
fn requests_carry_the_application_of_their_process() {
    on_all_mounts(|mount| {
        let path = mount.at("f").display().to_string();
        assert!(sh(&format!("IOGATE_APP=41 dd if=/dev/zero of={path} bs=4k count=3 status=none")).0);
        assert!(sh(&format!("IOGATE_APP=weather dd if=/dev/zero of={path} bs=4k count=2 status=none")).0);
        assert!(sh(&format!("SLURM_JOB_ID=77 dd if=/dev/zero of={path} bs=4k count=1 status=none")).0);
        let names = mount.mounted().app_names();
        assert_eq!(names.get(AppId(41)).as_deref(), Some("41"));
        assert_eq!(names.get(iogate_fuse::application_of_word("weather")).as_deref(), Some("weather"));
        assert_eq!(names.get(AppId(77)).as_deref(), Some("job 77"));
    });
}

#[test]
fn a_process_says_itself_which_application_it_is() {
    on_all_mounts(|mount| {
        let write = |app: u32| {
            std::fs::write(mount.at("f"), vec![0; 8192]).unwrap();
            let names = mount.mounted().app_names();
            assert_eq!(names.get(AppId(app)).as_deref(), Some(app.to_string().as_str()));
        };
        let flags = rustix::fs::XattrFlags::empty();
        rustix::fs::setxattr(&mount.path, "user.iogate.app", b"4711", flags).unwrap();
        write(4711);
        // As those do who may not write the root.
        rustix::fs::getxattr(&mount.path, "user.iogate.app.4712", &mut [0; 16]).unwrap();
        write(4712);
        let refused = rustix::fs::setxattr(&mount.path, "user.iogate.app", b"weather", flags);
        assert_eq!(refused, Err(rustix::io::Errno::INVAL));
        let (_, listed) = sh(&format!("getfattr -d {}", mount.path.display()));
        assert!(!listed.contains("iogate"), "{listed}");
    });
}

#[test]
fn a_mount_in_use_is_not_unmounted_but_can_be_detached() {
    on_all_mounts(|mount| {
        let mut file = File::create(mount.at("f")).unwrap();
        let busy = mount.mounted().unmount().unwrap_err();
        assert!(matches!(busy, MountError::InUse { .. }), "{busy}");
        mount.mounted().detach().unwrap();
        assert_eq!(mount.path.read_dir().unwrap().count(), 0, "the mount is gone from the tree");
        file.write_all(b"still open").unwrap();
        drop(file);
        mount.mounted().wait();
        assert_eq!(std::fs::read(mount.source.join("f")).unwrap(), b"still open");
        mount.mounted().unmount().unwrap();
    });
}

#[test]
fn an_unmounted_file_system_ends() {
    on_all_mounts(|mount| {
        std::fs::write(mount.at("f"), b"x").unwrap();
        // The kernel releases the file a moment after it is closed.
        let begin = Instant::now();
        while let Err(error) = iogate_fuse::unmount(&mount.path, false) {
            assert!(matches!(error, MountError::InUse { .. }) && begin.elapsed() < Duration::from_secs(60));
            std::thread::sleep(Duration::from_millis(10));
        }
        mount.mounted().wait();
        let again = iogate_fuse::unmount(&mount.path, false).unwrap_err();
        assert!(matches!(again, MountError::NotMounted { .. }), "{again}");
    });
}

#[test]
fn places_that_do_not_fit_are_refused() {
    if !can_mount() {
        return;
    }
    let mount = Mount::new(Behind::Directory, &MountOptions::default());
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    for name in ["source", "source/inner", "mount", "full", "outer"] {
        std::fs::create_dir_all(at(name)).unwrap();
    }
    std::fs::write(at("file"), b"").unwrap();
    std::fs::write(at("full/file"), b"").unwrap();
    std::fs::create_dir(at("outer/source")).unwrap();
    let refused = |source: &Path, mountpoint: &Path| {
        let (engine, store) = common::engine(dir.path());
        let control = Arc::new(common::Recorder::default());
        iogate_fuse::mount(source, mountpoint, engine, store, &MountOptions::default(), control).unwrap_err()
    };
    use MountError as E;
    assert!(matches!(refused(&at("file"), &at("mount")), E::SourceNotDirectory { .. }));
    assert!(matches!(refused(&at("missing"), &at("mount")), E::SourceUnreadable { .. }));
    assert!(matches!(refused(&at("source"), &at("file")), E::MountpointNotDirectory { .. }));
    assert!(matches!(refused(&at("source"), &at("missing")), E::MountpointUnusable { .. }));
    assert!(matches!(refused(&at("source"), &at("full")), E::MountpointNotEmpty { .. }));
    assert!(matches!(refused(&at("source"), &mount.path), E::MountpointBusy { .. }));
    assert!(matches!(refused(&at("source"), &at("source/inner")), E::MountpointInSource { .. }));
    assert!(matches!(refused(&at("source"), &at("source")), E::MountpointInSource { .. }));
    assert!(matches!(refused(&at("outer/source"), &at("outer")), E::SourceInMountpoint { .. }));
    let message = refused(&at("source"), &at("full")).to_string();
    assert!(message.contains("must be empty") && message.contains("file"), "{message}");
}

/// Ends the process that it holds, and its mount.
struct ChildMount {
    child: Child,
    path: std::path::PathBuf,
}

impl Drop for ChildMount {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = iogate_fuse::unmount(&self.path, true);
    }
}

/// Not a test: the process that the next test kills.
#[test]
#[ignore = "run by what_was_synced_survives_the_death_of_the_mount"]
fn serve_until_killed() {
    let (Some(source), Some(path)) = (std::env::var_os("TEST_SOURCE"), std::env::var_os("TEST_MOUNT")) else {
        return;
    };
    let (engine, store) = common::engine(Path::new(&source));
    let control = Arc::new(common::Recorder::default());
    let options = MountOptions::default();
    let mounted =
        iogate_fuse::mount(Path::new(&source), Path::new(&path), engine, store, &options, control).unwrap();
    mounted.wait();
}

#[test]
fn what_was_synced_survives_the_death_of_the_mount() {
    if !can_mount() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (source, path) = (dir.path().join("source"), dir.path().join("mount"));
    std::fs::create_dir(&source).unwrap();
    std::fs::create_dir(&path).unwrap();
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "serve_until_killed", "--ignored", "--nocapture"])
        .env("TEST_SOURCE", &source)
        .env("TEST_MOUNT", &path)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let mut mount = ChildMount { child, path: path.clone() };
    let begin = Instant::now();
    while iogate_fuse::status(&path).is_err() {
        assert!(begin.elapsed() < Duration::from_secs(60), "the mount comes up");
        std::thread::sleep(Duration::from_millis(20));
    }
    // Writers go on until the mount dies under them, and say what was synced.
    let begun = AtomicUsize::new(0);
    let synced: Vec<u64> = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..4)
            .map(|writer| {
                let (path, begun) = (path.join(format!("f{writer}")), &begun);
                scope.spawn(move || {
                    let mut file = File::create(path).unwrap();
                    for block in 0_u64.. {
                        begun.fetch_add(usize::from(block == 1), Ordering::SeqCst);
                        let bytes = block.to_ne_bytes().repeat(512);
                        if file.write_all(&bytes).and_then(|()| file.sync_data()).is_err() {
                            return block;
                        }
                    }
                    unreachable!()
                })
            })
            .collect();
        let begin = Instant::now();
        while begun.load(Ordering::SeqCst) < writers.len() && begin.elapsed() < Duration::from_secs(60) {
            std::thread::sleep(Duration::from_millis(20));
        }
        std::thread::sleep(Duration::from_millis(200));
        mount.child.kill().unwrap();
        writers.into_iter().map(|writer| writer.join().unwrap()).collect()
    });
    for (writer, blocks) in synced.into_iter().enumerate() {
        assert!(blocks > 0, "something was synced before the end");
        let mut file = File::open(source.join(format!("f{writer}"))).unwrap();
        for block in 0..blocks {
            let mut bytes = [0; 4096];
            file.seek(SeekFrom::Start(block * 4096)).unwrap();
            file.read_exact(&mut bytes).unwrap();
            assert!(bytes.chunks(8).all(|chunk| chunk == block.to_ne_bytes()), "block {block} of {writer}");
        }
    }
}
