//! Every way out of a directory tree, closed; and whose permissions hold.

mod common;

use iogate_core::wire::Identity;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use common::{ROOT, USER, directory, engine, errno, own};
use iogate_core::wire::{Change, open, set};
use iogate_vfs::{Caller, OpenHow, Tree, TreeFile};

/// An export, and beside it what must not be reached.
struct Place {
    dir: tempfile::TempDir,
    tree: Arc<dyn Tree>,
}

fn place() -> Place {
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777)).unwrap();
    fs::create_dir(dir.path().join("export")).unwrap();
    fs::set_permissions(dir.path().join("export"), fs::Permissions::from_mode(0o777)).unwrap();
    fs::create_dir(dir.path().join("outside")).unwrap();
    fs::write(dir.path().join("outside/secret"), "secret").unwrap();
    let tree = directory(&dir.path().join("export"));
    Place { dir, tree }
}

impl Place {
    fn export(&self, name: &str) -> std::path::PathBuf {
        self.dir.path().join("export").join(name)
    }

    fn outside(&self) -> std::path::PathBuf {
        self.dir.path().join("outside")
    }

    /// Tries every operation on the path; none may succeed.
    fn refuses_all(&self, path: &str) {
        let (tree, caller, at) = (&self.tree, own(), Path::new(path));
        let how = |flags| OpenHow { flags, mode: 0o666, ..OpenHow::default() };
        let change = Change { which: set::MODE, mode: 0o777, ..Change::default() };
        let truncation = Change { which: set::SIZE, ..Change::default() };
        let here = Path::new("here");
        fs::write(self.export("here"), "here").unwrap();
        let results = [
            errno(tree.open(caller, at, how(open::READ))),
            errno(tree.open(caller, at, how(open::READ | open::WRITE | open::CREATE))),
            errno(tree.open(caller, at, how(open::WRITE | open::CREATE | open::EXCLUSIVE))),
            errno(tree.open(caller, at, how(open::WRITE | open::TRUNCATE))),
            errno(tree.open(caller, at, how(open::READ | open::DIRECTORY))),
            errno(tree.open(caller, at, how(open::READ | open::WRITE | open::TEMPORARY))),
            errno(tree.attr(caller, at)),
            errno(tree.set_attr(caller, at, Identity::default(), &change)),
            errno(tree.set_attr(caller, at, Identity::default(), &truncation)),
            errno(tree.read_dir(caller, at, 0, &mut |_, _| panic!("{path} was listed"))),
            errno(tree.make_node(caller, at, libc::S_IFDIR | 0o777, 0)),
            errno(tree.make_node(caller, at, libc::S_IFREG | 0o777, 0)),
            errno(tree.symlink(caller, here, at)),
            errno(tree.link(caller, at, Path::new("linked"))),
            errno(tree.link(caller, here, at)),
            errno(tree.read_link(caller, at)),
            errno(tree.unlink(caller, at, false)),
            errno(tree.unlink(caller, at, true)),
            errno(tree.rename(caller, at, Path::new("renamed"), 0)),
            errno(tree.rename(caller, here, at, 0)),
            errno(tree.xattr(caller, at, b"user.x")),
            errno(tree.set_xattr(caller, at, Identity::default(), b"user.x", b"x", 0)),
            errno(tree.xattrs(caller, at)),
            errno(tree.remove_xattr(caller, at, Identity::default(), b"user.x")),
        ];
        assert!(results.iter().all(|&errno| errno != 0 && errno != libc::EXDEV), "{path}: {results:?}");
    }

    fn outside_is_untouched(&self) {
        let names: Vec<_> =
            fs::read_dir(self.outside()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, ["secret"]);
        let secret = self.outside().join("secret");
        assert_eq!(fs::read(&secret).unwrap(), b"secret");
        let metadata = secret.metadata().unwrap();
        assert_eq!((metadata.nlink(), metadata.mode() & 0o777), (1, 0o644));
    }
}

#[test]
fn no_path_leads_out() {
    let place = place();
    fs::create_dir(place.export("a")).unwrap();
    symlink("../../outside", place.export("a/relative")).unwrap();
    symlink(place.outside(), place.export("absolute")).unwrap();
    symlink("/proc/self/root", place.export("magic")).unwrap();
    symlink("absolute", place.export("chain")).unwrap();
    let outside = place.outside();
    let outside = outside.to_str().unwrap();
    for path in [
        "..",
        "../outside/secret",
        "a/../../outside/secret",
        "a/./../x",
        "./a",
        "a//b",
        "/",
        "a/",
        "a/relative/secret",
        "absolute/secret",
        "chain/secret",
        "magic/etc/passwd",
        "magic/tmp/x",
        &format!("{outside}/secret"),
        &format!("a/{outside}/secret"),
        "a\0b",
        &"x".repeat(256),
        &"x/".repeat(3000),
    ] {
        place.refuses_all(path);
    }
    place.outside_is_untouched();
}

#[test]
fn a_link_in_the_last_place_is_never_followed_out() {
    let place = place();
    let (tree, caller) = (&place.tree, own());
    symlink(place.outside().join("secret"), place.export("absolute")).unwrap();
    symlink("../outside/secret", place.export("relative")).unwrap();
    symlink("../outside/new", place.export("dangling")).unwrap();
    symlink("/proc/self/fd/0", place.export("magic")).unwrap();
    for name in ["absolute", "relative", "dangling", "magic"] {
        let path = Path::new(name);
        for flags in [
            open::READ,
            open::WRITE | open::TRUNCATE,
            open::WRITE | open::CREATE,
            open::WRITE | open::CREATE | open::EXCLUSIVE,
            open::READ | open::NO_FOLLOW,
            open::READ | open::DIRECTORY,
        ] {
            let opened = tree.open(caller, path, OpenHow { flags, mode: 0o666, ..OpenHow::default() });
            assert_ne!(errno(opened), 0, "{name} {flags:x}");
        }
        // What concerns the link itself is allowed.
        assert_eq!(tree.attr(caller, path).unwrap().mode & libc::S_IFMT, libc::S_IFLNK);
        let change = Change { which: set::SIZE, size: 0, ..Change::default() };
        assert_ne!(errno(tree.set_attr(caller, path, Identity::default(), &change)), 0);
        let change = Change { which: set::MODE, mode: 0o600, ..Change::default() };
        let _ = tree.set_attr(caller, path, Identity::default(), &change);
        let change = Change { which: set::MTIME | set::MTIME_NOW, ..Change::default() };
        tree.set_attr(caller, path, Identity::default(), &change).unwrap();
        assert_ne!(errno(tree.set_xattr(caller, path, Identity::default(), b"user.x", b"x", 0)), 0);
        assert_ne!(errno(tree.read_dir(caller, path, 0, &mut |_, _| true)), 0);
        tree.link(caller, path, Path::new("hard")).unwrap();
        assert_eq!(tree.attr(caller, Path::new("hard")).unwrap().mode & libc::S_IFMT, libc::S_IFLNK);
        tree.unlink(caller, Path::new("hard"), false).unwrap();
        tree.unlink(caller, path, false).unwrap();
    }
    place.outside_is_untouched();
}

#[test]
fn links_that_stay_are_followed() {
    let place = place();
    let (tree, caller) = (&place.tree, own());
    fs::create_dir_all(place.export("d/e")).unwrap();
    fs::write(place.export("d/f"), "inside").unwrap();
    symlink("../f", place.export("d/e/up")).unwrap();
    symlink("d/e", place.export("down")).unwrap();
    symlink("d/new", place.export("dangling")).unwrap();
    let engine = engine(&**tree);
    for path in ["down/up", "d/e/up", "down/up"] {
        let file = common::open(&**tree, caller, path, open::READ).unwrap();
        assert_eq!(common::read(&engine, &*file, 0, 10).unwrap(), b"inside", "{path}");
    }
    let flags = open::READ | open::NO_FOLLOW;
    assert_eq!(errno(common::open(&**tree, caller, "down/up", flags)), libc::ELOOP);
    common::open(&**tree, caller, "dangling", open::WRITE | open::CREATE).unwrap();
    assert!(place.export("d/new").is_file());
}

#[test]
fn nothing_leads_out_while_names_change() {
    let place = place();
    fs::create_dir(place.export("d")).unwrap();
    fs::write(place.export("d/secret"), "public").unwrap();
    fs::create_dir(place.export("deep")).unwrap();
    symlink("../swap", place.export("deep/link")).unwrap();
    let stop = AtomicBool::new(false);
    let engine = engine(&*place.tree);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                // A directory, a link out, nothing, a link that moves: all under one name.
                let _ = fs::rename(place.export("d"), place.export("swap"));
                let _ = fs::rename(place.export("deep"), place.export("swap/deep"));
                let _ = fs::rename(place.export("swap/deep"), place.export("deep"));
                let _ = fs::rename(place.export("swap"), place.export("d"));
                symlink(place.outside(), place.export("swap")).unwrap();
                let _ = fs::remove_file(place.export("swap"));
            }
        });
        let (tree, caller) = (&place.tree, own());
        let (mut found, mut rounds) = (0, 0);
        // At least once while the directory is there, however the threads take turns.
        while rounds < 3000 || (found == 0 && rounds < 1_000_000) {
            rounds += 1;
            for path in ["swap/secret", "deep/link/secret", "swap/deep/link/secret"] {
                if let Ok(file) = common::open(&**tree, caller, path, open::READ | open::WRITE) {
                    assert_eq!(common::read(&engine, &*file, 0, 10).unwrap(), b"public");
                    found += 1;
                }
                let path = Path::new("swap/made");
                let _ = tree.make_node(caller, path, libc::S_IFREG | 0o600, 0);
                let _ = tree.unlink(caller, path, false);
                let change = Change { which: set::MODE, mode: 0o604, ..Change::default() };
                let _ = tree.set_attr(caller, Path::new("swap/secret"), Identity::default(), &change);
            }
        }
        stop.store(true, Ordering::Relaxed);
        assert!(found > 0, "the directory was never there");
    });
    place.outside_is_untouched();
}

#[test]
fn nothing_leads_into_the_servers_own_folder() {
    let place = place();
    let (tree, caller) = (&place.tree, own());
    fs::create_dir(place.export(".iogate")).unwrap();
    fs::write(place.export(".iogate/answers"), "keys").unwrap();
    for folder in ["a", "a/b"] {
        tree.make_node(caller, Path::new(folder), libc::S_IFDIR | 0o755, 0).unwrap();
    }
    for (link, target) in [
        ("in", ".iogate"),
        ("chain", "in"),
        ("self", "."),
        ("a/up", ".."),
        ("a/b/in", "../../.iogate"),
        ("log", ".iogate/answers"),
        ("a/log", "up/self/in/answers"),
        ("new", ".iogate/new"),
        ("a/new", "b/../up/.iogate/new"),
        ("a/newer", "../new"),
    ] {
        tree.symlink(caller, Path::new(target), Path::new(link)).unwrap();
    }
    for path in [
        ".iogate",
        ".iogate/answers",
        "in/answers",
        "in/new",
        "chain/answers",
        "self/.iogate",
        "self/.iogate/answers",
        "self/self/.iogate/new",
        "a/up/.iogate",
        "a/up/.iogate/answers",
        "a/up/self/in/answers",
        "a/b/in/answers",
    ] {
        place.refuses_all(path);
    }
    for link in ["in", "chain", "log", "a/log", "new", "a/new", "a/newer", "a/b/in"] {
        for flags in [
            open::READ,
            open::WRITE | open::TRUNCATE,
            open::READ | open::WRITE | open::CREATE,
            open::WRITE | open::CREATE | open::TRUNCATE,
            open::READ | open::WRITE | open::TEMPORARY,
            open::READ | open::DIRECTORY,
        ] {
            assert_ne!(errno(common::open(&**tree, caller, link, flags)), 0, "{link} {flags:x}");
        }
        let listed = tree.read_dir(caller, Path::new(link), 0, &mut |_, _| panic!("{link} was listed"));
        assert_ne!(errno(listed), 0, "{link}");
    }
    let names: Vec<_> =
        fs::read_dir(place.export(".iogate")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["answers"]);
    assert_eq!(fs::read(place.export(".iogate/answers")).unwrap(), b"keys");
    assert_eq!(fs::metadata(place.export(".iogate/answers")).unwrap().nlink(), 1);
}

#[test]
fn links_that_stay_below_are_followed() {
    let place = place();
    let (tree, caller) = (&place.tree, own());
    fs::create_dir_all(place.export("a/b")).unwrap();
    for (link, target) in [
        ("a/up", ".."),
        ("new", "a/b/../made"),
        ("newer", "a/up/new"),
        ("round", "a/circle"),
        ("a/circle", "../round"),
        ("folder", "a/"),
        ("absolute", "/a/made"),
    ] {
        symlink(target, place.export(link)).unwrap();
    }
    let create = open::READ | open::WRITE | open::CREATE;
    for (path, error) in [("round", libc::ELOOP), ("folder", libc::EISDIR), ("absolute", libc::EACCES)] {
        assert_eq!(errno(common::open(&**tree, caller, path, create)), error, "{path}");
    }
    let made = common::open(&**tree, caller, "a/up/newer", create).unwrap();
    assert_eq!(made.identity().inode, fs::metadata(place.export("a/made")).unwrap().ino());
    let found = common::open(&**tree, caller, "newer", create).unwrap();
    assert_eq!(found.identity(), made.identity());
    assert_eq!(errno(common::open(&**tree, caller, "new", create | open::EXCLUSIVE)), libc::EEXIST);
    // In a folder where everybody makes names, only one's own links are followed.
    let protects =
        fs::read_to_string("/proc/sys/fs/protected_symlinks").is_ok_and(|value| value.trim() == "1");
    if caller == ROOT && protects {
        fs::create_dir(place.export("tmp")).unwrap();
        fs::set_permissions(place.export("tmp"), fs::Permissions::from_mode(0o1777)).unwrap();
        symlink("../trap", place.export("tmp/trap")).unwrap();
        std::os::unix::fs::lchown(place.export("tmp/trap"), Some(USER.uid), Some(USER.gid)).unwrap();
        assert_eq!(errno(common::open(&**tree, caller, "tmp/trap", create)), libc::EACCES);
        assert!(!place.export("trap").exists());
    }
}

#[test]
fn opening_neither_blocks_nor_touches_a_device() {
    let place = place();
    let (tree, caller) = (&place.tree, own());
    tree.make_node(caller, Path::new("fifo"), libc::S_IFIFO | 0o666, 0).unwrap();
    tree.make_node(caller, Path::new("socket"), libc::S_IFSOCK | 0o666, 0).unwrap();
    let mut names = vec!["fifo", "socket"];
    if own() == ROOT {
        let null = rustix::fs::makedev(1, 3) as u32;
        let made = tree.make_node(caller, Path::new("null"), libc::S_IFCHR | 0o666, null).unwrap();
        assert_eq!((made.device, made.mode), (null, libc::S_IFCHR | 0o666));
        names.push("null");
    }
    for name in names {
        for flags in [open::READ, open::WRITE, open::READ | open::WRITE | open::CREATE | open::TRUNCATE] {
            assert_eq!(errno(common::open(&**tree, caller, name, flags)), libc::ENXIO, "{name}");
        }
        let flags = open::READ | open::DIRECTORY;
        assert_eq!(errno(common::open(&**tree, caller, name, flags)), libc::ENOTDIR, "{name}");
    }
}

#[test]
fn a_file_opened_for_one_thing_does_no_other() {
    let place = place();
    let (tree, caller) = (&place.tree, own());
    fs::write(place.export("f"), "text").unwrap();
    let engine = engine(&**tree);
    let reader = common::open(&**tree, caller, "f", open::READ).unwrap();
    assert_eq!(errno(common::write(&engine, &*reader, 0, b"x")), libc::EBADF);
    assert_eq!(errno(reader.allocate(0, 0, 10)), libc::EBADF);
    let change = Change { which: set::SIZE, size: 1, ..Change::default() };
    assert_eq!(errno(reader.set_attr(caller, &change)), libc::EINVAL, "as ftruncate(2)");
    let writer = common::open(&**tree, caller, "f", open::WRITE).unwrap();
    assert_eq!(errno(common::read(&engine, &*writer, 0, 1)), libc::EBADF);
    assert_eq!(common::write(&engine, &*writer, 1, b"-").unwrap(), 1);
    assert_eq!(fs::read(place.export("f")).unwrap(), b"t-xt");
    assert_eq!(errno(common::open(&**tree, caller, "f", 0)), libc::EINVAL);
}

#[test]
fn a_file_is_opened_again_only_if_it_is_the_same() {
    let place = place();
    let (tree, caller) = (&place.tree, own());
    let file = common::open(&**tree, caller, "f", open::WRITE | open::CREATE).unwrap();
    let again = |path: &str, flags| {
        let how = OpenHow {
            flags: flags | open::AGAIN,
            identity: file.identity(),
            mode: 0o644,
            ..OpenHow::default()
        };
        tree.open(caller, Path::new(path), how)
    };
    assert_eq!(again("f", open::READ).unwrap().identity(), file.identity());
    assert_eq!(errno(again("f", open::READ | open::TRUNCATE)), libc::EINVAL);
    fs::rename(place.export("f"), place.export("g")).unwrap();
    assert_eq!(errno(again("f", open::WRITE | open::CREATE)), libc::ESTALE);
    assert!(!place.export("f").exists(), "and it is not created");
    fs::write(place.export("f"), "another").unwrap();
    assert_eq!(errno(again("f", open::READ)), libc::ESTALE);
    assert_eq!(again("g", open::WRITE).unwrap().identity(), file.identity());
}

#[test]
fn callers_have_their_own_permissions_only() {
    if own() != ROOT {
        return;
    }
    let place = place();
    let tree = &place.tree;
    fs::write(place.export("private"), "p").unwrap();
    fs::set_permissions(place.export("private"), fs::Permissions::from_mode(0o600)).unwrap();
    fs::create_dir(place.export("closed")).unwrap();
    fs::set_permissions(place.export("closed"), fs::Permissions::from_mode(0o700)).unwrap();
    fs::write(place.export("closed/f"), "f").unwrap();
    fs::write(place.export("readable"), "r").unwrap();
    fs::set_permissions(place.export("readable"), fs::Permissions::from_mode(0o644)).unwrap();
    for path in ["private", "closed/f"] {
        assert_eq!(errno(common::open(&**tree, USER, path, open::READ)), libc::EACCES);
        assert!(common::open(&**tree, ROOT, path, open::READ).is_ok(), "and the thread is root again");
    }
    common::open(&**tree, USER, "readable", open::READ).unwrap();
    assert_eq!(errno(common::open(&**tree, USER, "readable", open::WRITE)), libc::EACCES);
    assert_eq!(errno(common::open(&**tree, USER, "readable", open::READ | open::TRUNCATE)), libc::EACCES);
    let at = Path::new;
    assert_eq!(errno(tree.attr(USER, at("closed/f"))), libc::EACCES);
    assert!(tree.attr(USER, at("private")).is_ok());
    assert_eq!(errno(tree.read_dir(USER, at("closed"), 0, &mut |_, _| true)), libc::EACCES);
    for change in [
        Change { which: set::MODE, mode: 0o777, ..Change::default() },
        Change { which: set::UID, uid: USER.uid, ..Change::default() },
        Change { which: set::SIZE, size: 0, ..Change::default() },
        Change { which: set::MTIME, ..Change::default() },
    ] {
        let refused = errno(tree.set_attr(USER, at("readable"), Identity::default(), &change));
        assert!([libc::EPERM, libc::EACCES].contains(&refused), "{change:?}: {refused}");
    }
    // Nor what other capabilities than those for files would allow.
    assert_ne!(errno(tree.set_xattr(USER, at("readable"), Identity::default(), b"trusted.x", b"x", 0)), 0);
    let mine = Path::new("mine");
    let made = tree.make_node(USER, mine, libc::S_IFREG | 0o666, 0).unwrap();
    assert_eq!((made.uid, made.gid, made.mode), (USER.uid, USER.gid, libc::S_IFREG | 0o666));
    assert_eq!(errno(tree.set_xattr(USER, mine, Identity::default(), b"trusted.x", b"x", 0)), libc::EPERM);
    let capability = [1, 0, 0, 2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    assert_eq!(
        errno(tree.set_xattr(USER, mine, Identity::default(), b"security.capability", &capability, 0)),
        libc::EPERM
    );
    tree.set_xattr(USER, mine, Identity::default(), b"user.x", b"mine", 0).unwrap();
    assert_eq!(tree.xattr(USER, mine, b"user.x").unwrap(), b"mine");
    let device = tree.make_node(USER, at("device"), libc::S_IFCHR | 0o666, 0x103);
    assert_eq!(errno(device), libc::EPERM);
    let give_away = Change { which: set::UID, uid: 1, ..Change::default() };
    assert_eq!(errno(tree.set_attr(USER, mine, Identity::default(), &give_away)), libc::EPERM);
    // Root's callers may, with the group that they say.
    let group = Caller::new(0, 77);
    assert_eq!(tree.make_node(group, at("grouped"), libc::S_IFREG, 0).unwrap().gid, 77);
    assert_eq!(tree.make_node(ROOT, at("plain"), libc::S_IFREG, 0).unwrap().gid, 0);
    let no_change = Change { which: set::UID | set::GID, uid: u32::MAX, gid: u32::MAX, ..Change::default() };
    assert_eq!(errno(tree.set_attr(ROOT, at("plain"), Identity::default(), &no_change)), libc::EINVAL);
    // No number is a way to stay who the process is.
    let nobody = Caller::new(u32::MAX, 0);
    assert_eq!(errno(tree.attr(nobody, at("plain"))), libc::EPERM);
    let no_group = Caller::new(USER.uid, u32::MAX);
    assert_eq!(errno(tree.attr(no_group, at("plain"))), libc::EPERM);
    assert!(tree.attr(ROOT, at("closed/f")).is_ok());
}

#[test]
fn a_callers_groups_count() {
    if own() != ROOT {
        return;
    }
    let place = place();
    let tree = &place.tree;
    let daemon = Caller::new(1, 1);
    for (name, gid) in [("of-the-group", USER.gid), ("of-another", USER.gid + 1), ("of-root", 0)] {
        fs::write(place.export(name), "g").unwrap();
        chown(place.export(name), Some(0), Some(gid)).unwrap();
        fs::set_permissions(place.export(name), fs::Permissions::from_mode(0o060)).unwrap();
    }
    assert!(common::open(&**tree, USER, "of-the-group", open::READ | open::WRITE).is_ok());
    assert_eq!(errno(common::open(&**tree, USER, "of-another", open::READ)), libc::EACCES);
    // The groups of the process are not the caller's.
    assert_eq!(errno(common::open(&**tree, USER, "of-root", open::READ)), libc::EACCES);
    assert_eq!(errno(common::open(&**tree, daemon, "of-root", open::READ)), libc::EACCES);
    // A user with supplementary groups in this machine's database, if there is one.
    let database = fs::read_to_string("/etc/group").unwrap();
    let passwd = fs::read_to_string("/etc/passwd").unwrap();
    let member = database.lines().find_map(|line| {
        let fields: Vec<_> = line.split(':').collect();
        let member = fields.get(3)?.split(',').find(|name| !name.is_empty() && *name != "root")?;
        let user = passwd.lines().find_map(|line| line.strip_prefix(member)?.strip_prefix(':'))?;
        let uid = user.split(':').nth(1)?.parse().ok()?;
        Some((uid, fields[2].parse().ok()?))
    });
    if let Some((uid, gid)) = member {
        chown(place.export("of-another"), Some(0), Some(gid)).unwrap();
        let member = Caller::new(uid, USER.gid);
        assert!(common::open(&**tree, member, "of-another", open::READ).is_ok());
    }
}

#[test]
fn files_that_may_be_listed_but_not_looked_at_have_no_links() {
    if own() != ROOT {
        return;
    }
    let place = place();
    fs::create_dir(place.export("d")).unwrap();
    fs::write(place.export("d/f"), "f").unwrap();
    fs::set_permissions(place.export("d"), fs::Permissions::from_mode(0o704)).unwrap();
    let mut found = Vec::new();
    let list = place.tree.read_dir(USER, Path::new("d"), 0, &mut |entry, name| {
        found.push((name.to_vec(), entry.attr.links, entry.attr.mode));
        true
    });
    list.unwrap();
    assert_eq!(found, [(b"f".to_vec(), 0, libc::S_IFREG)]);
}

#[test]
fn a_panic_leaves_the_thread_as_it_was() {
    let place = place();
    fs::write(place.export("f"), "f").unwrap();
    let tree = Arc::clone(&place.tree);
    let listed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        tree.read_dir(USER, Path::new(""), 0, &mut |_, _| panic!("in the caller's function"))
    }));
    assert!(listed.is_err());
    assert!(fs::write(place.outside().join("secret"), "secret").is_ok());
    assert_eq!(place.tree.attr(own(), Path::new("missing")).unwrap_err().kind(), ErrorKind::NotFound);
}

#[test]
fn the_path_of_an_open_file_is_known() {
    let place = place();
    fs::create_dir(place.export("a")).unwrap();
    fs::create_dir(place.export("b")).unwrap();
    symlink("../a/file", place.export("b/link")).unwrap();
    let flags = open::READ | open::WRITE | open::CREATE;
    let open = |path: &str| common::open(&*place.tree, own(), path, flags).unwrap();
    let path_of = |file: &Arc<dyn TreeFile>| file.path().unwrap().into_os_string().into_string().unwrap();
    let (file, called) = (open("a/file"), open("a/file (deleted)"));
    assert_eq!([path_of(&file), path_of(&open("b/link"))], ["a/file", "a/file"]);
    fs::rename(place.export("a/file"), place.export("b/renamed")).unwrap();
    assert_eq!(path_of(&file), "b/renamed");
    fs::remove_file(place.export("b/renamed")).unwrap();
    assert_eq!(path_of(&file), "b/renamed", "as it was");
    assert_eq!(path_of(&called), "a/file (deleted)", "which it is called, and is there");
    fs::rename(place.dir.path().join("export"), place.dir.path().join("moved")).unwrap();
    assert_eq!(path_of(&called), "a/file (deleted)", "the root may be moved");
    fs::rename(place.dir.path().join("moved/a/file (deleted)"), place.outside().join("file")).unwrap();
    assert_eq!(called.path(), None, "it has left");
}
