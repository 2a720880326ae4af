//! Writes that extend a file, and are refused if somebody else has extended it.

use std::io;
use std::sync::{Arc, mpsc};

use iogate_core::{GateConfig, Layout, Op, SchedulerConfig, SchedulerKind};
use iogate_engine::store::{DirectoryStore, MemoryStore, OpenMode};
use iogate_engine::{Completion, Engine, Origin, Store, Transfer};

const CREATE: OpenMode = OpenMode { write: true, create: true };

fn engine(store: Arc<dyn Store>) -> Arc<Engine> {
    let scheduler = SchedulerConfig::new(SchedulerKind::ToAgg);
    let gate = GateConfig { scheduler, queue_max: 100, depth: 1, layout: Layout::SINGLE };
    Engine::new(&gate, store).unwrap()
}

/// Of writes that extend, each is refused or not by what the file is when its turn comes, although they could be one run.
#[test]
fn a_write_that_extends_is_refused_by_itself() {
    let store = Arc::new(MemoryStore::new());
    let engine = engine(store.clone());
    let file = store.open("f".as_ref(), CREATE).unwrap();
    engine.write_at(&file, Origin::default(), 0, &[1; 15]).unwrap();
    let mut memory = [7u8; 30];
    let (results, answers) = mpsc::channel();
    let batch = [(0, false), (10, true), (20, true)].map(|(offset, extends)| {
        let (file, origin) = (file.clone(), Origin::default());
        let memory = memory[offset as usize..].as_mut_ptr();
        let transfer = Transfer { file, op: Op::Write, offset, memory, bytes: 10, origin, extends };
        let results = results.clone();
        let done = move |result: io::Result<usize>| results.send((offset, result)).unwrap();
        (transfer, Box::new(done) as Completion)
    });
    // SAFETY: the memory outlives the answers, which are waited for.
    unsafe { engine.submit_all(batch) };
    for _ in 0..3 {
        let (offset, result) = answers.recv().unwrap();
        let errno = result.map_or_else(|error| error.raw_os_error(), |bytes| Some(-(bytes as i32)));
        assert_eq!(errno, Some(if offset == 10 { libc::EEXIST } else { -10 }), "at {offset}");
    }
}

/// A write that extends is sent again when its server was killed before it could answer, with all of it there or the first part.
#[test]
fn a_write_that_extends_is_not_refused_for_its_own_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let stores: [Arc<dyn Store>; 2] =
        [Arc::new(MemoryStore::new()), Arc::new(DirectoryStore::new(folder.path()).unwrap())];
    let mut record: Vec<u8> = (0..10_000u32).map(|at| at as u8 | 1).collect();
    let zeros = vec![0; record.len()];
    for store in stores {
        let engine = engine(store.clone());
        // What is there of the record, and behind that; whether it is refused.
        let cases = [
            (record[..].to_vec(), false),
            (record[..5000].to_vec(), false),
            ([&record[..], &[3]].concat(), false),
            (zeros.clone(), true),
            ([&record[..5000], &zeros[..1]].concat(), true),
        ];
        for (index, (there, is_refused)) in cases.into_iter().enumerate() {
            let file = store.open(format!("{index}").as_ref(), CREATE).unwrap();
            engine.write_at(&file, Origin::default(), 50, &there).unwrap();
            let (tell, told) = mpsc::channel();
            let (file, origin, bytes) = (file.clone(), Origin::default(), record.len() as u32);
            let (memory, extends) = (record.as_mut_ptr(), true);
            let transfer =
                Transfer { file: file.clone(), op: Op::Write, offset: 50, memory, bytes, origin, extends };
            let done: Completion = Box::new(move |result| tell.send(result).unwrap());
            // SAFETY: the memory outlives the answer, which is waited for.
            unsafe { engine.submit_all([(transfer, done)]) };
            let result = told.recv().unwrap();
            assert_eq!(result.is_err(), is_refused, "{index}: {result:?}");
            let mut found = vec![0; there.len()];
            engine.read_at(&file, Origin::default(), 50, &mut found).unwrap();
            assert!(found == there, "{index}");
            if !is_refused {
                let mut found = vec![0; record.len()];
                assert_eq!(engine.read_at(&file, Origin::default(), 50, &mut found).unwrap(), record.len());
                assert!(found == record, "{index}");
            }
        }
        engine.shutdown();
    }
}
