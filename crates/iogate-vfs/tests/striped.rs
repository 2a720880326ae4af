//! Striped trees: objects come and go with names, whoever else uses the same ones.

mod common;

use iogate_core::wire::Identity;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use common::{Far, ROOT, USER, directory, engine, errno, open, own, read, striped, write};
use iogate_core::Layout;
use iogate_core::wire::{Attr, Change, Timestamp, open, set};
use iogate_vfs::{OpenHow, StripedTree, Swept, Tree, TreeFile};

const LAYOUT: Layout = Layout { first_target: 0, stripe_bytes: 4096, targets: 4 };
const NEW: u32 = open::READ | open::WRITE | open::CREATE;

fn place() -> (tempfile::TempDir, Arc<StripedTree>) {
    let dir = tempfile::tempdir().unwrap();
    let tree = striped(dir.path(), LAYOUT, false);
    (dir, tree)
}

/// The objects on all targets.
fn objects(below: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for target in 0..LAYOUT.targets {
        let root = below.join(target.to_string()).join("OBJECTS");
        for directory in fs::read_dir(root).unwrap().map(|entry| entry.unwrap().path()) {
            if directory.is_dir() {
                found.extend(fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()));
            }
        }
    }
    found
}

/// Waits until no objects are left: they wait for a sync of the names, and a thread of an engine may let go of a file a little after its
/// last transfer was answered.
fn are_gone(below: &Path) {
    let patience = Instant::now() + Duration::from_secs(60);
    while Instant::now() < patience {
        if objects(below).is_empty() {
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("left over: {:?}", objects(below));
}

fn attr(tree: &dyn Tree, path: &str) -> Attr {
    tree.attr(own(), Path::new(path)).unwrap()
}

fn fill(tree: &dyn Tree, path: &str, bytes: usize) -> Arc<dyn TreeFile> {
    let file = open(tree, own(), path, NEW).unwrap();
    let data: Vec<u8> = (0..bytes).map(|at| (at / 100) as u8).collect();
    assert_eq!(write(&engine(tree), &*file, 0, &data).unwrap(), bytes);
    file
}

#[test]
fn data_lies_where_the_layout_says() {
    let (dir, tree) = place();
    let file = fill(&*tree, "f", 4096 * 5 + 10);
    let mut sizes: Vec<_> = objects(dir.path()).iter().map(|path| path.metadata().unwrap().len()).collect();
    sizes.sort();
    assert_eq!(sizes, [4096, 4096, 4096 + 10, 8192]);
    assert_eq!(file.layout(), Some(LAYOUT));
    assert_eq!(file.attr().unwrap().size, 4096 * 5 + 10);
    assert_eq!(fs::metadata(dir.path().join("names/f")).unwrap().len(), 0);
    // Objects are made when they are used.
    fill(&*tree, "small", 10);
    assert_eq!(objects(dir.path()).len(), 5);
    // A size is kept by the object that has the last byte.
    let change = Change { which: set::SIZE, size: 4096 * 2 + 1, ..Change::default() };
    assert_eq!(
        tree.set_attr(own(), Path::new("small"), Identity::default(), &change).unwrap().size,
        4096 * 2 + 1
    );
    let file = open(&*tree, own(), "small", open::READ).unwrap();
    let data = read(&engine(&*tree), &*file, 5, 20_000).unwrap();
    assert_eq!(data.len(), 4096 * 2 + 1 - 5);
    assert!(data.iter().all(|&byte| byte == 0));
}

#[test]
fn several_processes_share_names_and_targets() {
    let (dir, one) = place();
    let other = striped(dir.path(), LAYOUT, false);
    let (engine_one, engine_other) = (engine(&*one), engine(&*other));
    let writer = open(&*one, own(), "f", NEW).unwrap();
    let reader = open(&*other, own(), "f", open::READ).unwrap();
    assert_eq!(writer.identity(), reader.identity());
    assert_eq!(read(&engine_other, &*reader, 0, 10).unwrap(), b"");
    write(&engine_one, &*writer, 10_000, b"text").unwrap();
    assert_eq!(read(&engine_other, &*reader, 10_000, 10).unwrap(), b"text");
    assert_eq!(attr(&*other, "f").size, 10_004);
    let change = Change { which: set::SIZE, size: 20_000, ..Change::default() };
    one.set_attr(own(), Path::new("f"), Identity::default(), &change).unwrap();
    assert_eq!(reader.attr().unwrap().size, 20_000);
    open(&*other, own(), "f", open::WRITE | open::TRUNCATE).unwrap();
    assert_eq!(writer.attr().unwrap().size, 0);
    // Removed by one while the other uses it.
    write(&engine_one, &*writer, 0, b"still").unwrap();
    assert_eq!(read(&engine_other, &*reader, 0, 10).unwrap(), b"still");
    one.unlink(own(), Path::new("f"), false).unwrap();
    assert_eq!(read(&engine_other, &*reader, 0, 10).unwrap(), b"still");
    drop((writer, reader));
    are_gone(dir.path());
}

/// Who is told that a file could not be cut has it as it was, and nobody cuts it later.
#[test]
fn what_cannot_be_opened_everywhere_is_cut_nowhere() {
    let (dir, whole) = place();
    drop(fill(&*whole, "f", 4096 * 7));
    for crowded in 0..LAYOUT.targets {
        let far = Far::new(directory(&dir.path().join(crowded.to_string())));
        let machine = Arc::clone(&far.machine);
        let mut targets: Vec<_> =
            (0..LAYOUT.targets).map(|at| directory(&dir.path().join(at.to_string()))).collect();
        targets[crowded as usize] = Arc::new(far);
        let tree = StripedTree::new(directory(&dir.path().join("names")), targets, LAYOUT).unwrap();
        let file = open(&tree, own(), "f", open::READ | open::WRITE).unwrap();
        let set_size = |size| file.set_attr(own(), &Change { which: set::SIZE, size, ..Change::default() });
        machine.is_crowded.store(true, Ordering::SeqCst);
        for size in [0, 4096 * 5, 4096 * 20] {
            assert_eq!(errno(set_size(size)), libc::EMFILE, "{size}");
        }
        assert_eq!(errno(open(&tree, own(), "f", open::WRITE | open::TRUNCATE)), libc::EMFILE);
        // What is written now is not cut off by whoever comes next.
        assert_eq!(
            write(&engine(&*whole), &*open(&*whole, own(), "f", open::WRITE).unwrap(), 4096 * 7, b"x")
                .unwrap(),
            1
        );
        machine.is_crowded.store(false, Ordering::SeqCst);
        let appends = open(&*whole, own(), "f", open::WRITE | open::APPEND).unwrap();
        appends.append(own(), Default::default(), b"y").unwrap().unwrap();
        let found = read(&engine(&tree), &*file, 0, 4096 * 8).unwrap();
        let expected: Vec<u8> = (0..4096 * 7).map(|at| (at / 100) as u8).chain(*b"xy").collect();
        assert!(found == expected, "{} bytes", found.len());
        assert_eq!(set_size(4096 * 7).unwrap().size, 4096 * 7);
    }
}

#[test]
fn openers_at_the_same_time_agree() {
    let (dir, one) = place();
    let other = striped(dir.path(), LAYOUT, false);
    for round in 0..50 {
        let path = format!("f{round}");
        std::thread::scope(|scope| {
            for (tree, offset) in [(&one, 0), (&other, 4096), (&one, 8192), (&other, 12_288)] {
                let path = &path;
                scope.spawn(move || {
                    let file = open(&**tree, own(), path, NEW).unwrap();
                    write(&engine(&**tree), &*file, offset, &[7; 4096]).unwrap();
                });
            }
        });
        let file = open(&*one, own(), &path, open::READ).unwrap();
        assert_eq!(read(&engine(&*one), &*file, 0, 20_000).unwrap(), [7; 16_384]);
    }
    assert_eq!(objects(dir.path()).len(), 200);
}

#[test]
fn objects_go_with_the_last_name_and_the_last_handle() {
    let (dir, tree) = place();
    let at = Path::new;
    let count = || objects(dir.path()).len();
    drop(fill(&*tree, "a", 20_000));
    tree.link(own(), at("a"), at("b")).unwrap();
    tree.unlink(own(), at("a"), false).unwrap();
    assert_eq!((count(), attr(&*tree, "b").size), (4, 20_000));
    tree.unlink(own(), at("b"), false).unwrap();
    are_gone(dir.path());
    // A rename over a file removes it.
    drop(fill(&*tree, "a", 20_000));
    drop(fill(&*tree, "b", 10));
    tree.rename(own(), at("a"), at("b"), libc::RENAME_EXCHANGE).unwrap();
    assert_eq!(count(), 5);
    tree.rename(own(), at("a"), at("b"), 0).unwrap();
    tree.finish_removals();
    assert_eq!((count(), attr(&*tree, "b").size), (1, 10));
    // A rename between two names of a file removes neither.
    tree.link(own(), at("b"), at("c")).unwrap();
    tree.rename(own(), at("b"), at("c"), 0).unwrap();
    assert_eq!((count(), attr(&*tree, "c").size), (1, 10));
    // What is open outlives its name, and what it has not yet used can be used.
    let file = open(&*tree, own(), "c", open::READ | open::WRITE).unwrap();
    tree.unlink(own(), at("c"), false).unwrap();
    tree.unlink(own(), at("b"), false).unwrap();
    let engine = engine(&*tree);
    write(&engine, &*file, 10_000, b"more").unwrap();
    assert_eq!(file.attr().unwrap().size, 10_004);
    assert_eq!(file.attr().unwrap().links, 0);
    assert_eq!(read(&engine, &*file, 9_999, 10).unwrap(), b"\0more");
    drop(file);
    are_gone(dir.path());
    // A file that never had a name.
    let how =
        OpenHow { flags: open::READ | open::WRITE | open::TEMPORARY, mode: 0o600, ..OpenHow::default() };
    let file = tree.open(own(), at(""), how).unwrap();
    write(&engine, &*file, 0, &[1; 20_000]).unwrap();
    assert_eq!((count(), file.attr().unwrap().size), (4, 20_000));
    drop(file);
    are_gone(dir.path());
    // What fails removes nothing.
    drop(fill(&*tree, "a", 10));
    tree.make_node(own(), at("d"), libc::S_IFDIR | 0o755, 0).unwrap();
    assert_eq!(errno(tree.unlink(own(), at("a"), true)), libc::ENOTDIR);
    assert_eq!(errno(tree.rename(own(), at("d"), at("a"), 0)), libc::ENOTDIR);
    assert_eq!((count(), attr(&*tree, "a").size), (1, 10));
}

#[test]
fn no_data_is_lost_while_names_come_and_go() {
    let (dir, one) = place();
    let other = striped(dir.path(), LAYOUT, false);
    drop(fill(&*one, "kept", 10_000));
    let at = Path::new;
    std::thread::scope(|scope| {
        for tree in [&one, &other] {
            scope.spawn(move || {
                for _ in 0..200 {
                    let _ = tree.link(own(), at("kept"), at("second"));
                    let _ = tree.unlink(own(), at("second"), false);
                    let _ = tree.link(own(), at("kept"), at("third"));
                    let _ = tree.rename(own(), at("third"), at("second"), 0);
                }
            });
        }
    });
    let file = open(&*one, own(), "kept", open::READ).unwrap();
    let data = read(&engine(&*one), &*file, 0, 20_000).unwrap();
    assert!(data.iter().enumerate().all(|(at, &byte)| byte == (at / 100) as u8));
    assert_eq!(data.len(), 10_000);
}

#[test]
fn a_sweep_removes_what_has_no_name() {
    let (dir, tree) = place();
    let at = Path::new;
    tree.make_node(own(), at("d"), libc::S_IFDIR | 0o755, 0).unwrap();
    for path in ["a", "d/b", "c", "d/open"] {
        drop(fill(&*tree, path, 20_000));
    }
    let file = open(&*tree, own(), "d/open", open::READ).unwrap();
    assert_eq!(tree.sweep().unwrap(), Swept::default());
    // As after a crash between the removal of a name and that of the objects.
    for path in ["d/b", "c", "d/open"] {
        fs::remove_file(dir.path().join("names").join(path)).unwrap();
    }
    assert_eq!(tree.sweep().unwrap(), Swept { objects: 8, bytes: 40_000 });
    assert_eq!(attr(&*tree, "a").size, 20_000);
    let engine = engine(&*tree);
    assert_eq!(read(&engine, &*file, 0, 30_000).unwrap().len(), 20_000);
    drop((file, engine));
    assert_eq!(tree.sweep().unwrap(), Swept { objects: 4, bytes: 20_000 });
    assert_eq!(objects(dir.path()).len(), 4);
}

#[test]
fn names_and_targets_are_not_mixed_up() {
    let (dir, tree) = place();
    drop(tree);
    let part = |name: &str| directory(&dir.path().join(name));
    let new = |names: &str, targets: [&str; 4], layout| {
        StripedTree::new(part(names), targets.map(part).into(), layout)
            .map(drop)
            .map_err(|error| error.to_string())
    };
    let order = ["0", "1", "2", "3"];
    assert_eq!(new("names", order, LAYOUT), Ok(()));
    let error = new("names", ["1", "0", "2", "3"], LAYOUT).unwrap_err();
    assert!(error.contains("target 0") && error.contains("first order"), "{error}");
    let error = new("names", order, Layout { stripe_bytes: 8192, ..LAYOUT }).unwrap_err();
    assert!(error.contains("8192") && error.contains("4096"), "{error}");
    assert!(new("names", order, Layout { targets: 3, ..LAYOUT }).is_err());
    fs::create_dir(dir.path().join("others")).unwrap();
    let error = new("others", order, LAYOUT).unwrap_err();
    assert!(error.contains("other names"), "{error}");
}

#[test]
fn ids_of_objects_are_not_the_users_business() {
    let (_dir, tree) = place();
    let file = fill(&*tree, "f", 10);
    let (path, name) = (Path::new("f"), b"user.iogate.object");
    tree.set_xattr(own(), path, Identity::default(), b"user.mine", b"m", 0).unwrap();
    assert_eq!(tree.xattrs(own(), path).unwrap(), b"user.mine\0");
    assert_eq!(errno(tree.xattr(own(), path, name)), libc::ENODATA);
    assert_eq!(errno(tree.set_xattr(own(), path, Identity::default(), name, &[b'0'; 32], 0)), libc::EPERM);
    assert_eq!(errno(tree.remove_xattr(own(), path, Identity::default(), name)), libc::EPERM);
    assert_eq!(tree.xattrs(own(), Path::new("")).unwrap(), b"");
    assert_eq!(file.attr().unwrap().size, 10);
}

#[test]
fn a_handle_does_what_it_was_opened_for() {
    let (_dir, tree) = place();
    fill(&*tree, "f", 10);
    let engine = engine(&*tree);
    let reader = open(&*tree, own(), "f", open::READ).unwrap();
    let writer = open(&*tree, own(), "f", open::WRITE).unwrap();
    assert_eq!(errno(write(&engine, &*reader, 0, b"x")), libc::EBADF);
    assert_eq!(errno(read(&engine, &*writer, 0, 1)), libc::EBADF);
    assert_eq!(errno(reader.allocate(0, 0, 1)), libc::EBADF);
    let change = Change { which: set::SIZE, size: 1, ..Change::default() };
    assert_eq!(errno(reader.set_attr(own(), &change)), libc::EINVAL);
    assert_eq!(writer.set_attr(own(), &change).unwrap().size, 1);
}

#[test]
fn permissions_are_those_of_the_names() {
    if own() != ROOT {
        return;
    }
    let (dir, tree) = place();
    drop(fill(&*tree, "f", 10));
    let at = Path::new("f");
    let mode = |mode| Change { which: set::MODE, mode, ..Change::default() };
    tree.set_attr(ROOT, at, Identity::default(), &mode(0o644)).unwrap();
    let size = Change { which: set::SIZE, size: 0, ..Change::default() };
    assert_eq!(errno(open(&*tree, USER, "f", open::WRITE)), libc::EACCES);
    assert_eq!(errno(open(&*tree, USER, "f", open::READ | open::TRUNCATE)), libc::EACCES);
    assert_eq!(errno(tree.set_attr(USER, at, Identity::default(), &size)), libc::EACCES);
    assert_eq!(errno(tree.unlink(USER, at, false)), libc::EACCES);
    assert_eq!(attr(&*tree, "f").size, 10);
    let file = open(&*tree, USER, "f", open::READ).unwrap();
    assert_eq!(read(&engine(&*tree), &*file, 0, 20).unwrap().len(), 10);
    // A user's own file, which not even the user may write by now, keeps its handle.
    tree.set_attr(ROOT, Path::new(""), Identity::default(), &mode(0o777)).unwrap();
    let how = OpenHow { flags: NEW, mode: 0o444, ..OpenHow::default() };
    let file = tree.open(USER, Path::new("mine"), how).unwrap();
    write(&engine(&*tree), &*file, 0, b"mine").unwrap();
    assert_eq!(attr(&*tree, "mine").uid, USER.uid);
    assert_eq!(errno(open(&*tree, USER, "mine", open::WRITE)), libc::EACCES);
    // Objects are nobody's but the process's.
    use std::os::unix::fs::MetadataExt;
    for object in objects(dir.path()) {
        let metadata = object.metadata().unwrap();
        assert_eq!((metadata.uid(), metadata.mode() & 0o777), (0, 0o600));
    }
}

#[test]
fn attributes_of_entries_are_complete() {
    for far in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let tree = striped(dir.path(), LAYOUT, far);
        for index in 0..150 {
            drop(fill(&*tree, &format!("f{index}"), 1 + index * 100));
        }
        tree.make_node(own(), Path::new("never-opened"), libc::S_IFREG | 0o644, 0).unwrap();
        let mut found = 0;
        let listed = tree.read_dir(own(), Path::new(""), 0, &mut |entry, name| {
            let name = std::str::from_utf8(name).unwrap();
            assert_eq!(entry.attr, attr(&*tree, name), "{name}");
            if let Some(index) = name.strip_prefix('f') {
                assert_eq!(entry.attr.size, 1 + index.parse::<u64>().unwrap() * 100);
                found += 1;
            }
            true
        });
        listed.unwrap();
        assert_eq!(found, 150);
    }
}

#[test]
fn times_are_the_latest_or_what_they_were_set_to() {
    let (_dir, tree) = place();
    let file = fill(&*tree, "f", 20_000);
    let at = |seconds| Timestamp { seconds, nanoseconds: 5 };
    let times = Change { which: set::ATIME | set::MTIME, atime: at(10), mtime: at(20), ..Change::default() };
    let set = tree.set_attr(own(), Path::new("f"), Identity::default(), &times).unwrap();
    assert_eq!((set.atime, set.mtime), (at(10), at(20)));
    assert_eq!(file.attr().unwrap().mtime, at(20));
    write(&engine(&*tree), &*file, 100, b"later").unwrap();
    assert!(attr(&*tree, "f").mtime.seconds > 1_000_000_000);
    file.set_attr(own(), &times).unwrap();
    assert_eq!(attr(&*tree, "f").mtime, at(20));
}

#[test]
fn what_a_client_writes_by_another_process_counts_for_a_new_file_too() {
    let (dir, one) = place();
    let other = striped(dir.path(), LAYOUT, false);
    let new = open(&*one, own(), "f", NEW | open::SPREAD).unwrap();
    let writer = open(&*other, own(), "f", open::WRITE).unwrap();
    write(&engine(&*other), &*writer, 0, &[1; 20_000]).unwrap();
    let mode = Change { which: set::MODE, mode: 0o600, ..Change::default() };
    assert_eq!(new.set_attr(own(), &mode).unwrap().size, 20_000);
    let mtime = Timestamp { seconds: 20, nanoseconds: 5 };
    let times = Change { which: set::MTIME, mtime, ..Change::default() };
    assert_eq!(new.set_attr(own(), &times).unwrap().mtime, mtime);
    assert_eq!(attr(&*other, "f").mtime, mtime);
}

#[test]
fn data_and_holes_are_found_across_targets() {
    let (_dir, tree) = place();
    let file = open(&*tree, own(), "f", NEW).unwrap();
    let engine = engine(&*tree);
    let block = 4096;
    for stripe in [2, 3, 9] {
        write(&engine, &*file, stripe * block, &[1; 4096]).unwrap();
    }
    for (from, data, hole) in [(0, 2, 0), (2, 2, 4), (3, 3, 4), (4, 9, 4), (9, 9, 10)] {
        let (from, data, hole) = (from * block, data * block, hole * block);
        assert_eq!(file.seek(from, false).unwrap(), data, "data from {from}");
        assert_eq!(file.seek(from, true).unwrap(), hole, "hole from {from}");
        assert_eq!(file.seek(from + 1, true).unwrap(), hole.max(from + 1));
    }
    assert_eq!(errno(file.seek(10 * block, true)), libc::ENXIO);
    assert_eq!(errno(file.seek(10 * block, false)), libc::ENXIO);
    let change = Change { which: set::SIZE, size: 30 * block, ..Change::default() };
    file.set_attr(own(), &change).unwrap();
    assert_eq!(errno(file.seek(10 * block, false)), libc::ENXIO, "no data up to the end");
    assert_eq!(file.seek(10 * block, true).unwrap(), 10 * block);
    assert_eq!(errno(file.allocate(libc::FALLOC_FL_COLLAPSE_RANGE as u32, 0, block)), libc::EOPNOTSUPP);
    let punch = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    file.allocate(punch as u32, 3 * block, 6 * block).unwrap();
    assert_eq!(file.seek(2 * block, true).unwrap(), 3 * block);
    assert_eq!(file.seek(3 * block, false).unwrap(), 9 * block);
    file.sync(true).unwrap();
    file.sync(false).unwrap();
}

#[test]
fn space_is_that_of_all_targets() {
    let (dir, tree) = place();
    let one = directory(dir.path()).space().unwrap();
    let all = tree.space().unwrap();
    assert_eq!(all.blocks, 4 * one.blocks);
    assert_eq!((all.files, all.name_bytes_max), (one.files, one.name_bytes_max));
}

#[test]
fn names_without_extended_attributes_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let names = directory(dir.path());
    let names = common::Far { has_xattrs: false, ..common::Far::new(names) };
    let names = Arc::new(names);
    let layout = Layout { targets: 1, ..LAYOUT };
    let error = StripedTree::new(names, vec![directory(dir.path())], layout);
    let error = error.map(drop).unwrap_err().to_string();
    assert!(error.contains("extended attributes") && error.contains("ext4"), "{error}");
}

#[test]
fn names_of_objects_are_made_durable_whoever_has_made_them() {
    let (dir, one) = place();
    fill(&*one, "f", 100);
    let synced = Arc::default();
    let target = |index: u32| -> Arc<dyn Tree> {
        let tree = directory(&dir.path().join(index.to_string()));
        Arc::new(common::Far { synced: Arc::clone(&synced), ..common::Far::new(tree) })
    };
    let targets = (0..LAYOUT.targets).map(target).collect();
    let other = StripedTree::new(directory(&dir.path().join("names")), targets, LAYOUT).unwrap();
    let file = open(&other, own(), "f", open::READ | open::WRITE).unwrap();
    write(&engine(&other), &*file, 0, b"new").unwrap();
    let count = || synced.swap(0, Ordering::SeqCst);
    file.sync(true).unwrap();
    assert_eq!(count(), 3, "the object's directory, that of these, and the target's");
    file.sync(true).unwrap();
    assert_eq!(count(), 0, "they are durable");
    // One that it makes itself.
    write(&engine(&other), &*file, 4096, b"new").unwrap();
    file.sync(true).unwrap();
    assert_eq!(count(), 3);
}
