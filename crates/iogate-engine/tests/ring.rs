//! A ring that the kernel takes no more from.

use std::path::Path;
use std::sync::mpsc::channel;
use std::time::Duration;

use iogate_core::{Op, TargetId};
use iogate_engine::store::{Backend, DirectoryOptions, DirectoryStore, Io, OpenMode, Segment, Store};
use iogate_engine::{FileHandle, Origin};

/// Makes `io_uring_enter` fail for the calling thread, for good.
fn forbid_submissions() {
    let statement = |code: u32, jump_if_not: u8, value: u32| libc::sock_filter {
        code: code as u16,
        jt: 0,
        jf: jump_if_not,
        k: value,
    };
    let program = [
        // The number of the system call.
        statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0),
        statement(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 1, libc::SYS_io_uring_enter as u32),
        statement(libc::BPF_RET | libc::BPF_K, 0, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32),
        statement(libc::BPF_RET | libc::BPF_K, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_ptr().cast_mut() };
    // SAFETY: the filter is valid for the time of the call, and holds for this thread only.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        assert_eq!(libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const filter), 0);
    }
}

/// Starts a read and returns what it gives, however it completes.
fn read(store: &DirectoryStore, file: &FileHandle, offset: u64) -> std::io::Result<Vec<u8>> {
    let mut buffer = vec![0; 4096];
    let segments = vec![Segment { memory: buffer.as_mut_ptr(), bytes: buffer.len() }];
    let (file, target, origin) = (file.clone(), TargetId(0), Origin::default());
    let io = Io { file, op: Op::Read, offset, target, origin, extends: false, segments };
    let (said, result) = channel();
    store.start(io, Box::new(move |_, result| said.send(result).unwrap()));
    let count = result.recv_timeout(Duration::from_secs(60)).expect("it completes")?;
    buffer.truncate(count as usize);
    Ok(buffer)
}

#[test]
fn dispatches_are_calls_when_the_kernel_takes_nothing_more() {
    let folder = tempfile::tempdir().unwrap();
    let bytes: Vec<u8> = (0..8192_u32).map(|n| (n % 251) as u8).collect();
    std::fs::write(folder.path().join("file"), &bytes).unwrap();
    let how = DirectoryOptions { backend: Backend::Ring, direct: false };
    let Ok(store) = DirectoryStore::with(folder.path(), how) else {
        return eprintln!("skipped: no io_uring here");
    };
    let store = std::sync::Arc::new(store);
    let file = store.open(Path::new("file"), OpenMode::default()).unwrap();
    assert_eq!(read(&store, &file, 0).unwrap(), bytes[..4096]);
    let (said, result) = channel();
    let (of_thread, its_file) = (store.clone(), file.clone());
    std::thread::spawn(move || {
        forbid_submissions();
        let _ = said.send(read(&of_thread, &its_file, 4096));
    });
    let result = result.recv_timeout(Duration::from_secs(60)).expect("a submission ends");
    assert_eq!(result.unwrap(), bytes[4096..]);
    assert!(store.blocks(), "there is no ring any more");
    assert_eq!(read(&store, &file, 0).unwrap(), bytes[..4096], "in other threads too");
}
