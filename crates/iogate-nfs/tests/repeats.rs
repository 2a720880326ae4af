//! WRITEs that come twice: as a client does that has waited for too long, by the same connection or by another one.

mod common;
#[path = "../../iogate-vfs/tests/common/failing.rs"]
mod failing;

use std::net::TcpListener;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};

use common::*;
use failing::Failing;
use iogate_engine::store::DirectoryStore;
use iogate_nfs::rpc::take_reply;
use iogate_nfs::wire::*;
use iogate_nfs::xdr::Reader;

fn write(file: FileHandle, offset: u64, data: &[u8], stable: Stable) -> Request<'_> {
    Request::Write { file, offset, count: data.len() as u32, stable, data }
}

fn cut(file: FileHandle) -> Request<'static> {
    Request::SetAttr { file, attr: SetAttr { size: Some(0), ..SetAttr::default() }, guard: None }
}

/// What a call with this number is answered: attributes are not those of the file any more when it is answered again.
fn result(record: &[u8], xid: u32) -> WriteOk {
    let mut from = Reader::new(record);
    assert_eq!(take_reply(&mut from).unwrap().0, xid);
    match Reply::take(procedure::WRITE, &mut from) {
        Ok(Some(Reply::Write { result: Ok(done), .. })) => done,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_write_that_comes_again_undoes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let server = serve(folder.path(), How::default());
    let mut client = Client::connect(&server);
    let content = || std::fs::read(folder.path().join("file")).unwrap();
    let file = client.create(client.root, b"file", 0o600).unwrap();
    // All in one go: the first, the same again as it may still be underway, and the same behind another one.
    let (old, new) = (vec![1; 4096], vec![2; 4096]);
    let first = client.xid + 1;
    client.begin(&write(file, 0, &old, Stable::Unstable));
    client.xid = first - 1;
    client.begin(&write(file, 0, &old, Stable::Unstable));
    let done = result(&client.receive(), first);
    assert_eq!(result(&client.receive(), first), done);
    assert_eq!((done.count, done.stable), (4096, Stable::Unstable));
    client.call(&write(file, 0, &new, Stable::Unstable));
    let last = client.xid;
    client.xid = first - 1;
    client.begin(&write(file, 0, &old, Stable::Unstable));
    assert_eq!(result(&client.receive(), first), done, "the answer that the first one had");
    assert_eq!(content(), new);

    // By another connection, also behind a truncation.
    let mut other = Client::connect(&server);
    other.xid = first - 1;
    other.begin(&write(file, 0, &old, Stable::Unstable));
    assert_eq!(result(&other.receive(), first), done);
    assert_eq!(content(), new);
    client.xid = last;
    client.call(&cut(file));
    other.xid = last - 1;
    other.begin(&write(file, 0, &new, Stable::Unstable));
    assert_eq!(result(&other.receive(), last), done);
    assert!(content().is_empty(), "it was cut");

    // The number again, for something else: other data, another place, other data at the end.
    let mut late = old.clone();
    late[4095] = 3;
    for (offset, data) in [(0, &new), (4096, &new), (4096, &old), (4096, &late)] {
        client.xid = first - 1;
        client.call(&write(file, offset, data, Stable::Unstable));
        assert_eq!(content()[offset as usize..], data[..]);
    }
}

/// Its client connects again to ask: the answer that it gets there is that of the WRITE that was underway when its connection ended.
#[test]
fn a_write_that_comes_again_while_it_is_underway_is_answered_with_it() {
    let folder = tempfile::tempdir().unwrap();
    let (go, may_go) = channel::<()>();
    let (may_go, syncs) = (Mutex::new(may_go), Arc::new(AtomicUsize::new(0)));
    let count = Arc::clone(&syncs);
    // Of files: names are not synced here.
    let store = Failing {
        store: DirectoryStore::new(folder.path()).unwrap(),
        syncs: Arc::new(move || {
            count.fetch_add(1, Ordering::SeqCst);
            let _ = may_go.lock().unwrap().recv();
            Ok(())
        }),
    };
    let mut export = export_over(folder.path(), How::default(), Arc::new(store));
    export.sync_names = false;
    let server = serve_export(export, How::default(), TcpListener::bind("127.0.0.1:0").unwrap());
    let mut client = Client::connect(&server);
    let file = client.create(client.root, b"file", 0o600).unwrap();
    let request = write(file, 0, b"content", Stable::FileSync);
    client.begin(&request);
    eventually("it is being synced", || syncs.load(Ordering::SeqCst) == 1);

    let mut others = [(); 2].map(|()| Client::connect(&server));
    for other in &mut others {
        other.xid = client.xid - 1;
        other.begin(&request);
    }
    eventually("they wait", || server.counts().underway == 3);
    drop(client);
    go.send(()).unwrap();
    for other in &mut others {
        let Reply::Write { result: Ok(done), .. } = other.end(request.procedure()) else {
            panic!("it has failed")
        };
        assert_eq!((done.count, done.stable), (7, Stable::FileSync));
    }
    assert_eq!(syncs.load(Ordering::SeqCst), 1, "done once");
    // The server's end may sync, too.
    drop(go);
}
