//! The engine over the null, memory and directory stores.

use std::sync::Arc;

use iogate_core::{GateConfig, Layout, SchedulerConfig, SchedulerKind};
use iogate_engine::store::{DirectoryStore, OpenMode};
use iogate_engine::{Engine, EngineConfig, Origin, Store};

fn config(queue_max: u32, depth: u32) -> EngineConfig {
    let scheduler = SchedulerConfig::new(SchedulerKind::Fifo);
    EngineConfig { gate: GateConfig { scheduler, queue_max, depth, layout: Layout::SINGLE } }
}

#[test]
fn a_directory_keeps_what_is_written() {
    let root = tempfile::tempdir().unwrap();
    let store = Arc::new(DirectoryStore::new(root.path()).unwrap());
    let file = store.open("a".as_ref(), OpenMode { write: true, create: true }).unwrap();
    let engine = Engine::new(&config(1, 1), store).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let (engine, file) = (&engine, &file);
            scope.spawn(move || {
                for round in 0..200u64 {
                    let offset = (round * 4 + thread) * 100;
                    let bytes = [(round * 4 + thread) as u8; 100];
                    assert_eq!(engine.write_at(file, Origin::default(), offset, &bytes).unwrap(), 100);
                    let mut back = [0; 100];
                    assert_eq!(engine.read_at(file, Origin::default(), offset, &mut back).unwrap(), 100);
                    assert_eq!(back, bytes);
                }
            });
        }
    });
    let mut past = [0; 200];
    assert_eq!(engine.read_at(&file, Origin::default(), 79_950, &mut past).unwrap(), 50);
    engine.shutdown();
    let error = engine.write_at(&file, Origin::default(), 0, &[1]).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::BrokenPipe);
}
