//! Names lead to the right paths, whatever is done to them.

use std::path::Path;

use iogate_core::wire::Attr;
use rustix::io::Errno;

use super::*;

fn file(inode: u64, links: u32) -> Attr {
    Attr { inode, links, mode: libc::S_IFREG | 0o644, ..Attr::default() }
}

fn directory(inode: u64) -> Attr {
    Attr { inode, links: 2, mode: libc::S_IFDIR | 0o755, ..Attr::default() }
}

fn nodes() -> Nodes {
    Nodes::new(&directory(1000))
}

fn enter(nodes: &Nodes, parent: u64, name: &str, attr: &Attr) -> u64 {
    nodes.enter((parent, name.as_bytes()), attr).unwrap().id
}

fn path(nodes: &Nodes, id: u64) -> Result<String, Errno> {
    nodes.locate([(id, b"")]).map(|located| located.paths[0].to_str().unwrap().to_owned())
}

fn rename(nodes: &Nodes, from: (u64, &str), to: (u64, &str), exchange: bool) {
    let (from, to) = ((from.0, from.1.as_bytes()), (to.0, to.1.as_bytes()));
    nodes.rename(from, to, exchange, || Ok::<(), Errno>(())).unwrap();
}

#[test]
fn renaming_a_directory_renames_what_is_below_it() {
    let nodes = nodes();
    let a = enter(&nodes, ROOT_ID, "a", &directory(1));
    let b = enter(&nodes, a, "b", &directory(2));
    let f = enter(&nodes, b, "f", &file(3, 1));
    assert_eq!(path(&nodes, ROOT_ID).unwrap(), "");
    assert_eq!(path(&nodes, f).unwrap(), "a/b/f");
    rename(&nodes, (a, "b"), (ROOT_ID, "c"), false);
    assert_eq!(path(&nodes, f).unwrap(), "c/f");
    assert_eq!(nodes.locate([(b, b"new")]).unwrap().paths[0], Path::new("c/new"));
    rename(&nodes, (ROOT_ID, "a"), (ROOT_ID, "c"), true);
    assert_eq!((path(&nodes, f).unwrap(), path(&nodes, a).unwrap()), ("a/f".into(), "c".into()));
}

#[test]
fn a_file_with_several_names_is_one_node() {
    let nodes = nodes();
    let f = enter(&nodes, ROOT_ID, "f", &file(1, 1));
    assert_eq!(enter(&nodes, ROOT_ID, "g", &file(1, 2)), f);
    nodes.unlinked((ROOT_ID, b"g"));
    assert_eq!(path(&nodes, f).unwrap(), "f");
    nodes.unlinked((ROOT_ID, b"f"));
    assert_eq!(path(&nodes, f), Err(Errno::STALE));
    // The number is used again.
    assert_ne!(enter(&nodes, ROOT_ID, "f", &file(1, 1)), f);
}

#[test]
fn what_others_have_renamed_is_the_same_node_at_its_new_name() {
    let nodes = nodes();
    let f = enter(&nodes, ROOT_ID, "f", &file(1, 1));
    assert_eq!(enter(&nodes, ROOT_ID, "g", &file(1, 1)), f);
    assert_eq!(path(&nodes, f).unwrap(), "g");
    // And another file has its old name.
    let other = enter(&nodes, ROOT_ID, "f", &file(2, 1));
    assert_eq!((path(&nodes, f).unwrap(), path(&nodes, other).unwrap()), ("g".into(), "f".into()));
    // A name that another file has taken over is lost.
    assert_eq!(enter(&nodes, ROOT_ID, "g", &file(2, 2)), other);
    assert_eq!(path(&nodes, f), Err(Errno::STALE));
    // A number that stands for another kind of file is another file.
    assert_ne!(enter(&nodes, ROOT_ID, "h", &directory(2)), other);
}

#[test]
fn a_rename_over_a_file_takes_its_name_away() {
    let nodes = nodes();
    let f = enter(&nodes, ROOT_ID, "f", &file(1, 1));
    let g = enter(&nodes, ROOT_ID, "g", &file(2, 1));
    rename(&nodes, (ROOT_ID, "f"), (ROOT_ID, "g"), false);
    assert_eq!((path(&nodes, f).unwrap(), path(&nodes, g)), ("g".into(), Err(Errno::STALE)));
    // Between two names of one file a rename does nothing.
    assert_eq!(enter(&nodes, ROOT_ID, "h", &file(1, 2)), f);
    rename(&nodes, (ROOT_ID, "h"), (ROOT_ID, "g"), false);
    nodes.unlinked((ROOT_ID, b"g"));
    assert_eq!(path(&nodes, f).unwrap(), "h");
}

#[test]
fn what_is_forgotten_is_dropped_with_what_led_to_it_only() {
    let nodes = nodes();
    let a = enter(&nodes, ROOT_ID, "a", &directory(1));
    let b = enter(&nodes, a, "b", &directory(2));
    let f = enter(&nodes, b, "f", &file(3, 1));
    assert_eq!(enter(&nodes, b, "f", &file(3, 1)), f);
    // In the wrong order, too.
    nodes.forget(a, 1);
    nodes.forget(b, 1);
    nodes.forget(f, 1);
    assert_eq!(path(&nodes, f).unwrap(), "a/b/f");
    nodes.forget(f, 1);
    for id in [a, b, f] {
        assert_eq!(path(&nodes, id), Err(Errno::STALE));
    }
    let table = nodes.lock();
    assert_eq!((table.by_id.len(), table.by_number.len()), (1, 1));
    assert!(table.by_id[&ROOT_ID].children.is_empty());
    drop(table);
    nodes.forget(ROOT_ID, 1);
    assert_eq!(path(&nodes, ROOT_ID).unwrap(), "");
}

#[test]
fn a_directory_does_not_come_to_lie_below_itself() {
    let nodes = nodes();
    let a = enter(&nodes, ROOT_ID, "a", &directory(1));
    let b = enter(&nodes, a, "b", &directory(2));
    let again = enter(&nodes, b, "a", &directory(1));
    assert_ne!(again, a);
    assert_eq!((path(&nodes, again).unwrap(), path(&nodes, a).unwrap()), ("a/b/a".into(), "a".into()));
    assert_ne!(enter(&nodes, b, "root", &directory(1000)), ROOT_ID);
}

#[test]
fn paths_are_as_long_as_a_message_can_hold() {
    let nodes = nodes();
    let mut deepest = ROOT_ID;
    for depth in 0..17 {
        deepest = enter(&nodes, deepest, &"d".repeat(240), &directory(depth));
    }
    assert_eq!(path(&nodes, deepest), Err(Errno::NAMETOOLONG));
}

#[test]
fn who_lost_a_file_learns_of_renames() {
    let nodes = nodes();
    let f = enter(&nodes, ROOT_ID, "f", &file(1, 1));
    let located = nodes.locate([(f, b"")]).unwrap();
    assert!(!nodes.may_have_moved(&located));
    let (begun, beginning) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            nodes.rename((ROOT_ID, b"f"), (ROOT_ID, b"g"), false, || {
                begun.send(()).unwrap();
                std::thread::sleep(std::time::Duration::from_millis(50));
                Ok::<(), Errno>(())
            })
        });
        beginning.recv().unwrap();
        // Waits for its end.
        assert!(nodes.may_have_moved(&located));
        assert_eq!(path(&nodes, f).unwrap(), "g");
    });
    let failed = nodes.rename((ROOT_ID, b"g"), (ROOT_ID, b"h"), false, || Err(Errno::ACCESS));
    assert_eq!(failed, Err(Errno::ACCESS));
    assert_eq!(path(&nodes, f).unwrap(), "g");
}

#[test]
fn a_name_of_another_file_leads_to_no_node_of_an_earlier_file_with_its_number() {
    let nodes = nodes();
    let (of_removed, of_new) = (Identity { inode: 1, generation: 1 }, Identity { inode: 1, generation: 2 });
    let removed = nodes.enter((ROOT_ID, b"removed"), &file(1, 1)).unwrap();
    assert!(removed.is(of_removed));
    let replaced = nodes.enter((ROOT_ID, b"replaced"), &file(2, 1)).unwrap();
    assert!(replaced.is(Identity { inode: 2, generation: 1 }));
    // Elsewhere one is removed, a new file gets its number, and the other's name.
    nodes.is_another(&replaced, of_new, &file(1, 1));
    let new = nodes.enter((ROOT_ID, b"replaced"), &file(1, 1)).unwrap();
    assert!(new.id != removed.id && new.id != replaced.id && new.is(of_new));
    // A second name of the file that was found is still the same node's.
    nodes.is_another(&removed, of_new, &file(1, 2));
    assert_eq!(enter(&nodes, ROOT_ID, "link", &file(1, 2)), new.id);
}

#[test]
fn files_of_several_file_systems_are_several_nodes() {
    let nodes = nodes();
    let on = |file_system, attr: Attr| {
        let mut attr = attr;
        attr.set_file_system(file_system);
        attr
    };
    let [own, one, two] = [0, 1, 2].map(|file_system| {
        let name = format!("d{file_system}");
        enter(&nodes, ROOT_ID, &name, &on(file_system, directory(2)))
    });
    let files = [(own, 0), (one, 1), (two, 2)]
        .map(|(directory, file_system)| enter(&nodes, directory, "f", &on(file_system, file(3, 1))));
    let paths = files.map(|id| path(&nodes, id).unwrap());
    assert_eq!(paths, ["d0/f", "d1/f", "d2/f"]);
    assert_eq!(enter(&nodes, one, "g", &on(1, file(3, 2))), files[1], "a second name in its own file system");
    // To find that one was replaced changes nothing for the others.
    let gone = nodes.get(files[2]).unwrap();
    let new = Identity { inode: 3, generation: 9 };
    assert!(gone.is(Identity { inode: 3, generation: 8 }));
    nodes.is_another(&gone, new, &on(2, file(3, 1)));
    assert!(!nodes.knows(&on(2, file(3, 1))) && nodes.knows(&on(1, file(3, 1))) && nodes.knows(&file(3, 1)));
}
