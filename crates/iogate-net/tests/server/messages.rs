//! Every message is answered as the protocol says.

use iogate_core::wire::*;

use super::Setup;
use super::raw::{RDWR, Raw, hello, transfer};

#[test]
fn data_goes_in_and_out_over_both_kinds_of_socket() {
    let setup = Setup::new();
    for (endpoint, path) in [(setup.tcp(), "tcp"), (setup.unix(), "unix")] {
        let mut client = Raw::greet(endpoint);
        let opened: Opened = client.open(5, path, RDWR).ok();
        assert_eq!(opened.attr.size, 0);
        // From less than one read of the server to many.
        let mut offset = 0;
        for bytes in [1, 4096, 100_000, 3 << 20] {
            let data: Vec<u8> = (0..bytes).map(|at| (at * 7 + bytes) as u8).collect();
            let written: Written = client.write_at(5, offset, &data).ok();
            assert_eq!(written, Written { offset, bytes: bytes as u32 });
            let reply = client.read_at(5, offset, bytes);
            assert!(reply.payload == data, "{bytes} bytes");
            offset += bytes as u64;
        }
        assert_eq!(client.read_at(5, offset - 3, 100).payload.len(), 3, "the file ends there");
        let attr: Attr = client.ask(&Request::GetAttr(GetAttr { handle: 5, path: b"" }), &[]).ok();
        assert_eq!(attr.size, offset);
        client.ask(&Request::Close(Close { handle: 5 }), &[]).done();
        assert_eq!(client.read_at(5, 0, 1).errno, libc::EBADF);
    }
}

#[test]
fn many_requests_at_once_are_all_answered() {
    let setup = Setup::new();
    let mut client = Raw::greet(setup.tcp());
    client.open(1, "f", RDWR);
    let mut bytes = Vec::new();
    for id in 0..200u64 {
        let write = transfer(1, id * 100, 100);
        bytes.extend(Raw::bytes(client.next + id, client.acked, &Request::Write(write), &[id as u8; 100]));
    }
    client.write(&bytes);
    let mut ids: Vec<u64> =
        (0..200).map(|_| client.reply()).inspect(|r| assert_eq!(r.errno, 0)).map(|r| r.id).collect();
    ids.sort_unstable();
    assert!(ids.into_iter().eq(client.next..client.next + 200));
    let content = setup.tree.content("f");
    assert!((0..200).all(|id| content[id * 100..][..100] == [id as u8; 100]));
}

#[test]
fn a_welcome_says_what_was_agreed() {
    let setup = Setup::new();
    let client = Raw::greet(setup.tcp());
    let welcome = client.welcome.unwrap();
    assert_eq!((welcome.uid, welcome.gid, welcome.trusted, welcome.resumed), (7, 8, 0, 0));
    assert_eq!((welcome.credits, welcome.transfer_bytes_max), (256, 4 << 20));
    let other = Raw::greet_with(setup.unix(), Hello { export: b"files", ..hello() }).welcome.unwrap();
    assert_eq!(other.uid, rustix::process::getuid().as_raw());
    assert_eq!(other.instance, welcome.instance);
    assert_ne!(other.session, welcome.session);
}
