//! Trees over temporary directories, and engines over trees.
#![allow(dead_code, reason = "each test file uses some of it")]

use std::io;
use std::path::Path;
use std::sync::Arc;

use iogate_core::sched::SchedulerKind;
use iogate_core::{GateConfig, Layout, SchedulerConfig};
use iogate_engine::store::DirectoryStore;
use iogate_engine::{Engine, EngineConfig, Origin};
use iogate_net::tree::{DirectoryTree, OpenHow};
use iogate_net::{Caller, Tree, TreeFile};

pub(crate) const ROOT: Caller = Caller { uid: 0, gid: 0 };
pub(crate) const USER: Caller = Caller { uid: 12345, gid: 12345 };

/// The tree below a directory.
pub(crate) fn directory(root: &Path) -> Arc<dyn Tree> {
    let store = Arc::new(DirectoryStore::new(root).unwrap());
    Arc::new(DirectoryTree::new(root, store).unwrap())
}

/// An engine over a tree's store.
pub(crate) fn engine(tree: &dyn Tree) -> Arc<Engine> {
    let scheduler = SchedulerConfig::new(SchedulerKind::Fifo);
    let gate = GateConfig { scheduler, queue_max: 1000, depth: 4, layout: Layout::SINGLE };
    Engine::new(&EngineConfig { gate }, tree.store()).unwrap()
}

/// Opens by name, with flags only.
pub(crate) fn open(tree: &dyn Tree, caller: Caller, path: &str, flags: u32) -> io::Result<Arc<dyn TreeFile>> {
    tree.open(caller, Path::new(path), OpenHow { flags, mode: 0o644, ..OpenHow::default() })
}

/// Who the tests are, if not root.
pub(crate) fn own() -> Caller {
    Caller { uid: rustix::process::geteuid().as_raw(), gid: rustix::process::getegid().as_raw() }
}

/// The number of an error.
pub(crate) fn errno<T>(result: io::Result<T>) -> i32 {
    match result {
        Ok(_) => 0,
        Err(error) => error.raw_os_error().unwrap_or_else(|| panic!("{error} has no number")),
    }
}

/// Writes through an engine.
pub(crate) fn write(
    engine: &Arc<Engine>,
    file: &dyn TreeFile,
    offset: u64,
    bytes: &[u8],
) -> io::Result<usize> {
    engine.write_at(file.data(), Origin::default(), offset, bytes)
}

/// Reads through an engine.
pub(crate) fn read(
    engine: &Arc<Engine>,
    file: &dyn TreeFile,
    offset: u64,
    bytes: usize,
) -> io::Result<Vec<u8>> {
    let mut buffer = vec![0xAA; bytes];
    let read = engine.read_at(file.data(), Origin::default(), offset, &mut buffer)?;
    buffer.truncate(read);
    Ok(buffer)
}
