//! Files that grow while they are read: every answer says either that there is more and brings some of it, or that the file ends.

mod common;

use std::fs::File;
use std::io;
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use common::*;
use iogate_core::Op;
use iogate_engine::store::{DirectoryStore, Io, IoDone, OpenMode};
use iogate_engine::{FileHandle as StoreFile, Store};

/// A store in which somebody sets a file to so many bytes behind each read, before the reader is told.
struct Growing {
    store: DirectoryStore,
    path: PathBuf,
    bytes: u64,
}

impl Store for Growing {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<StoreFile> {
        self.store.open(path, mode)
    }

    fn adopt(&self, fd: OwnedFd) -> io::Result<StoreFile> {
        self.store.adopt(fd)
    }

    fn start(&self, io: Io, done: IoDone) {
        let (reads, path, bytes) = (io.op == Op::Read, self.path.clone(), self.bytes);
        self.store.start(
            io,
            Box::new(move |io, result| {
                if reads {
                    File::options().write(true).open(path).and_then(|file| file.set_len(bytes)).unwrap();
                }
                done(io, result);
            }),
        );
    }

    fn size(&self, file: &StoreFile) -> io::Result<u64> {
        self.store.size(file)
    }

    fn sync(&self, file: &StoreFile, data_only: bool) -> io::Result<()> {
        self.store.sync(file, data_only)
    }
}

/// Reads of a file of 100 bytes that has 1000 as soon as the read is over.
fn read_while_it_grows(offset: u64, count: u32) -> (usize, bool) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    std::fs::write(&path, [7; 100]).unwrap();
    let store = Growing { store: DirectoryStore::new(folder.path()).unwrap(), path, bytes: 1000 };
    let how = How::default();
    let export = export_over(folder.path(), how, Arc::new(store));
    let server = serve_export(export, how, TcpListener::bind("127.0.0.1:0").unwrap());
    let mut client = Client::connect(&server);
    let file = client.look_up(client.root, b"file").unwrap();
    let (data, is_end) = client.read(file, offset, count).unwrap();
    (data.len(), is_end)
}

/// Linux's client takes an answer without data for an error of the disk, unless it says that the file ends.
#[test]
fn what_brings_nothing_says_that_the_file_ends() {
    assert_eq!(read_while_it_grows(100, 50), (0, true));
    assert_eq!(read_while_it_grows(500, 50), (0, true));
}

#[test]
fn what_brings_less_than_asked_for_does_not_end_a_file_that_has_more() {
    assert_eq!(read_while_it_grows(60, 50), (40, false));
    assert_eq!(read_while_it_grows(60, 40), (40, false));
}
