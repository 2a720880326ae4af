//! What every store that keeps data must do, against an array of bytes as the model.

use std::fs::{self, OpenOptions, Permissions};
use std::io;
use std::num::NonZero;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::sync::{Arc, Mutex, mpsc};
use std::thread;

use iogate_core::device::{Device, Placement, Transfer};
use iogate_core::{Layout, Op, Span, TargetId, Time};
use iogate_engine::store::{
    Backend, BatchedStore, DirectoryOptions, DirectoryStore, Io, MemoryStore, ModelledStore, OpenMode,
    PlainCalls, Segment, StripedStore,
};
use iogate_engine::{FileHandle, Origin, Store};
use tempfile::TempDir;

const CREATE: OpenMode = OpenMode { write: true, create: true };

/// A device that takes 2 us and a byte per nanosecond.
struct TestDevice;

impl Device for TestDevice {
    fn serve(&mut self, _now: Time, transfer: Transfer) -> Span {
        Span::from_nanos(2_000 + transfer.bytes)
    }

    fn flush(&mut self, _now: Time) -> Span {
        Span::ZERO
    }

    fn capacity(&self) -> u64 {
        1 << 40
    }

    fn repositions(&self) -> u64 {
        0
    }
}

fn directory(root: &Path, backend: Backend, direct: bool) -> Arc<dyn Store> {
    Arc::new(DirectoryStore::with(root, DirectoryOptions { backend, direct }).unwrap())
}

fn striped(targets: Vec<Arc<dyn Store>>, stripe_bytes: u64, first_target: u32) -> Arc<dyn Store> {
    let layout = Layout { first_target, stripe_bytes, targets: targets.len() as u32 };
    Arc::new(StripedStore::new(targets, layout).unwrap())
}

/// Every store, with the directories that it lives in.
fn stores() -> Vec<(&'static str, Vec<TempDir>, Arc<dyn Store>)> {
    // On a disk: the temporary directory may be in memory, where direct I/O means little.
    let root = || tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let mut stores: Vec<(&str, Vec<TempDir>, Arc<dyn Store>)> = Vec::new();
    stores.push(("memory", vec![], Arc::new(MemoryStore::new())));
    for (name, backend, direct) in [
        ("directory, calls", Backend::Calls, false),
        ("directory, ring", Backend::Ring, false),
        ("directory, auto", Backend::Auto, false),
        ("directory, calls, direct", Backend::Calls, true),
        ("directory, ring, direct", Backend::Ring, true),
    ] {
        let root = root();
        let store = directory(root.path(), backend, direct);
        stores.push((name, vec![root], store));
    }
    let roots: Vec<TempDir> = (0..3).map(|_| root()).collect();
    let targets = roots.iter().map(|root| directory(root.path(), Backend::Ring, false)).collect();
    stores.push(("striped over rings", roots, striped(targets, 4096, 1)));
    let targets = (0..5).map(|_| Arc::new(MemoryStore::new()) as Arc<dyn Store>).collect();
    stores.push(("striped over memory, odd stripes", vec![], striped(targets, 999, 4)));
    let root1 = root();
    let inner = directory(root1.path(), Backend::Calls, false);
    let modelled = ModelledStore::new(inner, Box::new(TestDevice), Placement::default()).unwrap();
    stores.push(("modelled", vec![root1], Arc::new(modelled)));
    let root2 = root();
    let modelled = {
        let inner = directory(root2.path(), Backend::Ring, false);
        ModelledStore::new(inner, Box::new(TestDevice), Placement::default()).unwrap()
    };
    stores.push(("plain calls to modelled ring", vec![root2], Arc::new(PlainCalls::new(Arc::new(modelled)))));
    let disk = || iogate_core::device::parse("sas-10k-600g").unwrap();
    let ordering = ModelledStore::new(Arc::new(MemoryStore::new()), disk(), Placement::default()).unwrap();
    stores.push(("modelled device that orders by itself", vec![], Arc::new(ordering)));
    let root3 = root();
    let ordering = {
        let inner = directory(root3.path(), Backend::Ring, false);
        ModelledStore::new(inner, disk(), Placement::default()).unwrap()
    };
    stores.push(("plain calls to one", vec![root3], Arc::new(PlainCalls::new(Arc::new(ordering)))));
    let (two, sixteen) = (NonZero::new(2).unwrap(), NonZero::new(16).unwrap());
    let memory = Arc::new(MemoryStore::new());
    stores.push(("batches to memory", vec![], Arc::new(BatchedStore::new(memory, sixteen, two))));
    let memory = Arc::new(MemoryStore::new());
    stores.push(("plain calls to memory", vec![], Arc::new(PlainCalls::new(memory))));
    stores
}

/// xorshift64*: any sequence will do, as long as it is the same each time.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) % limit
    }

    fn bytes(&mut self, count: usize) -> Vec<u8> {
        let start = self.below(251) as usize;
        (start..start + count).map(|i| (i % 251) as u8).collect()
    }
}

/// Carries out a dispatch whose memory is `buffers`, and waits for it.
fn execute(
    store: &dyn Store,
    file: &FileHandle,
    op: Op,
    offset: u64,
    buffers: &mut [Vec<u8>],
) -> io::Result<u64> {
    let segments = buffers.iter_mut().map(|b| Segment { memory: b.as_mut_ptr(), bytes: b.len() }).collect();
    let io = Io {
        file: FileHandle::clone(file),
        op,
        offset,
        target: TargetId(0),
        origin: Origin::default(),
        extends: false,
        segments,
    };
    if let Some(result) = store.run(&io) {
        return result;
    }
    let (sender, receiver) = mpsc::channel();
    let done = Box::new(move |io: Io, result| sender.send((io.segments.len(), result)).unwrap());
    store.start(io, done);
    let (segments, result) = receiver.recv().unwrap();
    assert_eq!(segments, buffers.len(), "the dispatch comes back as it was given");
    result
}

fn write(store: &dyn Store, file: &FileHandle, offset: u64, bytes: &[u8]) {
    let written = execute(store, file, Op::Write, offset, &mut [bytes.to_vec()]).unwrap();
    assert_eq!(written, bytes.len() as u64);
}

fn read(store: &dyn Store, file: &FileHandle, offset: u64, count: usize) -> Vec<u8> {
    let mut buffers = [vec![0xEE; count]];
    let got = execute(store, file, Op::Read, offset, &mut buffers).unwrap();
    let [mut bytes] = buffers;
    bytes.truncate(got as usize);
    bytes
}

fn for_each_store(check: impl Fn(&Arc<dyn Store>)) {
    for (name, roots, store) in stores() {
        println!("{name}");
        check(&store);
        drop((store, roots));
    }
}

#[test]
fn random_vectored_operations_match_the_model() {
    for_each_store(|store| {
        let mut random = Random(0x1234_5678_9abc_def1);
        let file = store.open("random".as_ref(), CREATE).unwrap();
        let mut model: Vec<u8> = Vec::new();
        for step in 0..250 {
            let offset = match random.below(3) {
                0 => random.below(25) * 4096,
                1 => random.below(100_000),
                _ => model.len() as u64,
            };
            let aligned = random.below(2) == 0;
            let size = |random: &mut Random| match aligned {
                true => (1 + random.below(3)) as usize * 4096,
                false => 1 + random.below(9000) as usize,
            };
            let count = 1 + random.below(6);
            if random.below(2) == 0 {
                let mut buffers: Vec<Vec<u8>> = (0..count)
                    .map(|_| {
                        let size = size(&mut random);
                        random.bytes(size)
                    })
                    .collect();
                let all = buffers.concat();
                let written = execute(&**store, &file, Op::Write, offset, &mut buffers).unwrap();
                assert_eq!(written, all.len() as u64, "step {step}");
                let end = offset as usize + all.len();
                model.resize(model.len().max(end), 0);
                model[offset as usize..end].copy_from_slice(&all);
            } else {
                let mut buffers: Vec<Vec<u8>> = (0..count).map(|_| vec![0xEE; size(&mut random)]).collect();
                let got = execute(&**store, &file, Op::Read, offset, &mut buffers).unwrap() as usize;
                let all = buffers.concat();
                let expected = model.get(offset as usize..).unwrap_or_default();
                let expected = &expected[..expected.len().min(all.len())];
                assert_eq!(got, expected.len(), "step {step}: bytes read at {offset}");
                assert!(all[..got] == *expected, "step {step}: content at {offset}");
            }
            assert_eq!(store.size(&file).unwrap(), model.len() as u64, "step {step}");
        }
        assert!(read(&**store, &file, 0, model.len() + 10) == model);
    });
}

#[test]
fn holes_read_as_zeros_and_the_end_is_the_end() {
    for_each_store(|store| {
        let file = store.open("holes".as_ref(), CREATE).unwrap();
        assert!(read(&**store, &file, 0, 100).is_empty());
        write(&**store, &file, 70_001, b"x");
        assert_eq!(store.size(&file).unwrap(), 70_002);
        let all = read(&**store, &file, 0, 100_000);
        assert_eq!(all.len(), 70_002);
        assert!(all[..70_001].iter().all(|byte| *byte == 0));
        assert_eq!(all[70_001], b'x');
        assert!(read(&**store, &file, 70_002, 10).is_empty());
        assert!(read(&**store, &file, 1 << 40, 10).is_empty());
    });
}

#[test]
fn large_dispatches() {
    for_each_store(|store| {
        let file = store.open("large".as_ref(), CREATE).unwrap();
        let mut random = Random(7);
        // 16 MiB in 256 segments, and more segments than the system takes at once.
        for (count, size) in [(256, 64 << 10), (2500, 512), (1300, 77)] {
            let mut buffers: Vec<Vec<u8>> = (0..count).map(|_| random.bytes(size)).collect();
            let all = buffers.concat();
            let total = all.len() as u64;
            assert_eq!(execute(&**store, &file, Op::Write, 8192, &mut buffers).unwrap(), total);
            let mut back: Vec<Vec<u8>> = (0..count).map(|_| vec![0; size]).collect();
            assert_eq!(execute(&**store, &file, Op::Read, 8192, &mut back).unwrap(), total);
            assert!(back.concat() == all);
        }
    });
}

#[test]
fn handles_on_one_file_are_one_file() {
    for_each_store(|store| {
        let first = store.open("one".as_ref(), CREATE).unwrap();
        let second = store.open("one".as_ref(), OpenMode { write: true, create: false }).unwrap();
        let other = store.open("two".as_ref(), CREATE).unwrap();
        assert_eq!(first.id(), second.id());
        assert_ne!(first.id(), other.id());
        write(&**store, &first, 10, b"hello");
        assert_eq!(read(&**store, &second, 12, 100), b"llo");
        assert_eq!(read(&**store, &other, 0, 100), b"");
        drop((first, second));
        let again = store.open("one".as_ref(), OpenMode::default()).unwrap();
        assert_eq!(read(&**store, &again, 10, 100), b"hello");
        store.sync(&again, true).unwrap();
        store.sync(&again, false).unwrap();
        let missing = store.open("three".as_ref(), OpenMode::default()).unwrap_err();
        assert_eq!(missing.raw_os_error(), Some(libc::ENOENT));
    });
}

#[test]
fn a_file_of_another_store_is_refused() {
    #[derive(Debug)]
    struct Stranger;
    impl iogate_engine::store::StoreFile for Stranger {
        fn id(&self) -> iogate_core::FileId {
            iogate_core::FileId(1)
        }
    }
    let stranger: FileHandle = Arc::new(Stranger);
    for_each_store(|store| {
        assert!(execute(&**store, &stranger, Op::Read, 0, &mut [vec![0; 10]]).is_err());
        assert!(execute(&**store, &stranger, Op::Write, 0, &mut [vec![0; 10], vec![1; 10]]).is_err());
        assert!(store.sync(&stranger, false).is_err());
        assert!(store.size(&stranger).is_err());
    });
}

#[test]
fn concurrent_starts_keep_to_their_ranges() {
    for_each_store(|store| {
        let file = store.open("shared".as_ref(), CREATE).unwrap();
        thread::scope(|scope| {
            for thread in 0..6u8 {
                let file = &file;
                scope.spawn(move || {
                    for round in 0..12u64 {
                        // Neighbours share pages and stripes.
                        let offset = (round * 6 + u64::from(thread)) * 3000;
                        let mut halves = [vec![thread + 1; 1000], vec![thread + 101; 2000]];
                        let written = execute(&**store, file, Op::Write, offset, &mut halves).unwrap();
                        assert_eq!(written, 3000);
                        assert!(read(&**store, file, offset, 1000) == halves[0]);
                    }
                });
            }
        });
        for slot in 0..72u64 {
            let thread = (slot % 6) as u8;
            let bytes = read(&**store, &file, slot * 3000, 3000);
            assert!(bytes[..1000].iter().all(|byte| *byte == thread + 1), "slot {slot}");
            assert!(bytes[1000..].iter().all(|byte| *byte == thread + 101), "slot {slot}");
        }
    });
}

#[test]
fn a_file_that_its_maker_may_not_open_again_is_used_all_the_same() {
    let root = tempfile::tempdir().unwrap();
    fs::set_permissions(root.path(), Permissions::from_mode(0o777)).unwrap();
    let store = directory(root.path(), Backend::Calls, true);
    let path = root.path().join("object");
    let make = || {
        // SAFETY: takes and returns a number, and is about this thread only. Root is denied nothing.
        unsafe { libc::setfsuid(12345) };
        let made = OpenOptions::new().read(true).write(true).create_new(true).mode(0o444).open(&path);
        store.adopt(made.unwrap().into())
    };
    let file = thread::scope(|scope| scope.spawn(make).join().unwrap()).unwrap();
    write(&*store, &file, 0, &[7; 5000]);
    assert_eq!(read(&*store, &file, 0, 5001), [7; 5000]);
    assert_eq!(fs::read(&path).unwrap(), [7; 5000]);
}

#[test]
fn a_directory_does_not_let_paths_out() {
    let outer = tempfile::tempdir().unwrap();
    std::fs::write(outer.path().join("secret"), "x").unwrap();
    let root = outer.path().join("root");
    std::fs::create_dir(&root).unwrap();
    std::os::unix::fs::symlink("../secret", root.join("link")).unwrap();
    let store = DirectoryStore::new(&root).unwrap();
    for path in ["../secret", "link", "a/../../secret", outer.path().join("secret").to_str().unwrap()] {
        assert!(store.open(path.as_ref(), OpenMode::default()).is_err(), "{path}");
    }
}

#[test]
fn what_is_cached_of_a_file_is_read_at_once_to_its_end() {
    let root = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let store = directory(root.path(), Backend::Auto, false);
    let file = store.open("short".as_ref(), CREATE).unwrap();
    write(&*store, &file, 0, b"a line");
    for (offset, count) in [(0, 6), (2, 4), (6, 0), (4096, 0)] {
        let mut buffer = [0; 64];
        let io = Io {
            file: FileHandle::clone(&file),
            op: Op::Read,
            offset,
            target: TargetId(0),
            origin: Origin::default(),
            extends: false,
            segments: vec![Segment { memory: buffer.as_mut_ptr(), bytes: buffer.len() }],
        };
        // The system may need the memory for something else now and then.
        let at_once = (0..1000).find_map(|_| store.run(&io));
        assert_eq!(at_once.expect("no ring is needed").unwrap(), count, "from {offset}");
    }
}

#[test]
fn an_adopted_file_is_written_where_it_is_told() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("log");
    std::fs::write(&path, "0123456789").unwrap();
    let store = DirectoryStore::new(root.path()).unwrap();
    let appending = std::fs::OpenOptions::new().append(true).read(true).open(&path).unwrap();
    let adopted = store.adopt(appending.into()).unwrap();
    let opened = store.open("log".as_ref(), CREATE).unwrap();
    assert_eq!(adopted.id(), opened.id());
    write(&store, &adopted, 2, b"ab");
    assert_eq!(read(&store, &opened, 0, 100), b"01ab456789");
}

#[test]
fn a_modelled_device_takes_its_time_and_counts() {
    let inner = Arc::new(MemoryStore::new());
    let store = ModelledStore::new(inner, Box::new(TestDevice), Placement::default()).unwrap();
    let file = store.open("a".as_ref(), CREATE).unwrap();
    let before = std::time::Instant::now();
    for round in 0..3 {
        write(&store, &file, round << 20, &vec![1; 1 << 20]);
    }
    assert!(before.elapsed().as_nanos() >= 3 * (2_000 + (1 << 20)));
    let stats = store.device_stats();
    assert_eq!((stats.transfers, stats.bytes), (3, 3 << 20));
    assert_eq!(stats.busy, Span::from_nanos(3 * (2_000 + (1 << 20))));
}

/// Calls that are in a modelled disk at the same time come back in its order, each at its time and once.
#[test]
fn a_modelled_disk_that_orders_by_itself_serves_everything_at_its_time() {
    let disk = iogate_core::device::parse("hdd:queue=31").unwrap();
    let store = ModelledStore::new(Arc::new(MemoryStore::new()), disk, Placement::default()).unwrap();
    let file = store.open("a".as_ref(), CREATE).unwrap();
    write(&store, &file, 0, &[1; 4096]);
    let mut memory = vec![[0u8; 512]; 24];
    let (sender, receiver) = mpsc::channel();
    let before = std::time::Instant::now();
    for (index, bytes) in memory.iter_mut().enumerate() {
        let sender = sender.clone();
        let segments = vec![Segment { memory: bytes.as_mut_ptr(), bytes: 512 }];
        let io = Io {
            file: file.clone(),
            op: Op::Read,
            offset: (index as u64 * 7 % 24) << 28,
            target: TargetId(0),
            origin: Origin::default(),
            extends: false,
            segments,
        };
        store.start(io, Box::new(move |_, result| sender.send((index, result.is_ok())).unwrap()));
    }
    let ended: Vec<(usize, bool)> = receiver.iter().take(24).collect();
    // 24 times the shortest seek, in whatever order.
    assert!(before.elapsed().as_micros() >= 24 * 230);
    let mut order: Vec<usize> = ended.iter().map(|(index, _)| *index).collect();
    assert!(!order.is_sorted(), "{order:?}");
    order.sort_unstable();
    assert!(order.into_iter().eq(0..24) && ended.iter().all(|(_, done)| *done));
    assert_eq!(store.device_stats().transfers, 25);
}

/// Notes when it begins each transfer; each takes 1 ms.
struct NotingDevice(Arc<Mutex<Vec<Time>>>);

impl Device for NotingDevice {
    fn serve(&mut self, now: Time, _transfer: Transfer) -> Span {
        self.0.lock().unwrap().push(now);
        Span::from_millis(1)
    }

    fn flush(&mut self, _now: Time) -> Span {
        Span::ZERO
    }

    fn capacity(&self) -> u64 {
        1 << 40
    }

    fn repositions(&self) -> u64 {
        0
    }
}

/// Starts the same dispatch again in its completion, so many times.
fn again(store: &Arc<dyn Store>, io: Io, times: u32, over: mpsc::Sender<Io>) {
    let next = store.clone();
    let done = Box::new(move |io: Io, result: io::Result<u64>| {
        result.unwrap();
        if times > 1 { again(&next, io, times - 1, over) } else { over.send(io).unwrap() }
    });
    store.start(io, done);
}

#[test]
fn a_modelled_device_goes_on_at_once_however_late_its_completions_are_reported() {
    let begun = Arc::new(Mutex::new(Vec::new()));
    let device = Box::new(NotingDevice(begun.clone()));
    let store = ModelledStore::new(Arc::new(MemoryStore::new()), device, Placement::default()).unwrap();
    let file = store.open("a".as_ref(), CREATE).unwrap();
    let mut byte = [0];
    let segments = vec![Segment { memory: byte.as_mut_ptr(), bytes: 1 }];
    let (sender, receiver) = mpsc::channel();
    let store: Arc<dyn Store> = Arc::new(store);
    again(
        &store,
        Io {
            file,
            op: Op::Write,
            offset: 0,
            target: TargetId(0),
            origin: Origin::default(),
            extends: false,
            segments,
        },
        20,
        sender,
    );
    receiver.recv().unwrap();
    let begun = begun.lock().unwrap();
    assert_eq!(begun.len(), 20);
    assert!(begun.windows(2).all(|two| two[1].since(two[0]) == Span::from_millis(1)), "{begun:?}");
}
