//! The messages: bytes as the specifications have them, and what is written is read again.

use iogate_nfs::rpc::{
    Accepted, AuthStatus, Call, CallError, Credential, GROUPS_MAX, put_accepted, put_auth_error,
    put_rpc_mismatch, take_reply,
};
use iogate_nfs::wire::*;
use iogate_nfs::xdr::Reader;
use proptest::prelude::*;

/// Bytes as hexadecimal digits, with spaces anywhere.
fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    let digit = |byte: u8| (byte as char).to_digit(16).unwrap() as u8;
    digits.chunks(2).map(|pair| digit(pair[0]) << 4 | digit(pair[1])).collect()
}

fn handle(bytes: &[u8]) -> FileHandle {
    FileHandle::new(bytes).unwrap()
}

fn written(request: &Request<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    request.put(&mut out);
    out
}

#[test]
fn a_call_is_as_rfc_5531_has_it() {
    let mut groups = [0; GROUPS_MAX];
    groups[..2].copy_from_slice(&[20, 30]);
    let credential = Credential::Sys { uid: 1000, gid: 100, groups, group_count: 2 };
    let call = Call { xid: 0x1234_5678, program: NFS_PROGRAM, version: 3, procedure: 1, credential };
    let mut out = Vec::new();
    call.put(&mut out);
    let expected = hex("12345678 00000000 00000002 000186a3 00000003 00000001
         00000001 0000001c 00000000 00000000 000003e8 00000064 00000002 00000014 0000001e
         00000000 00000000");
    assert_eq!(out, expected);
    assert_eq!(Call::take(&mut Reader::new(&out)), Ok(call));

    // As the Linux kernel's client writes it: with a machine's name, and padding.
    let named = hex("12345678 00000000 00000002 000186a3 00000003 00000001
         00000001 00000024 00112233 00000005 686f7374 31000000 000003e8 00000064 00000002 00000014 0000001e
         00000000 00000000");
    assert_eq!(Call::take(&mut Reader::new(&named)), Ok(call));
    let old = hex("00000007 00000000 00000003");
    assert_eq!(Call::take(&mut Reader::new(&old)), Err(CallError::RpcMismatch { xid: 7 }));
    let kerberos = hex(
        "00000007 00000000 00000002 000186a3 00000003 00000001 00000006 00000004 01020304 00000000 00000000",
    );
    let weak = CallError::Auth { xid: 7, status: AuthStatus::TooWeak };
    assert_eq!(Call::take(&mut Reader::new(&kerberos)), Err(weak));
    let crowd = hex("00000007 00000000 00000002 000186a3 00000003 00000001 00000001 00000014
         00000000 00000000 00000000 00000000 00000011 00000000 00000000");
    let bad = CallError::Auth { xid: 7, status: AuthStatus::BadCredential };
    assert_eq!(Call::take(&mut Reader::new(&crowd)), Err(bad));
    let reply = hex("00000007 00000001 00000000 00000000 00000000 00000000");
    assert!(matches!(Call::take(&mut Reader::new(&reply)), Err(CallError::NotACall(_))));
}

#[test]
fn answers_of_rpc_are_as_rfc_5531_has_them() {
    for (accepted, expected) in [
        (Accepted::Success, "00000000"),
        (Accepted::NoProgram, "00000001"),
        (Accepted::Versions { low: 3, high: 3 }, "00000002 00000003 00000003"),
        (Accepted::NoProcedure, "00000003"),
        (Accepted::GarbageArgs, "00000004"),
        (Accepted::SystemError, "00000005"),
    ] {
        let mut out = Vec::new();
        put_accepted(&mut out, 9, accepted);
        assert_eq!(out, hex(&format!("00000009 00000001 00000000 00000000 00000000 {expected}")));
        assert_eq!(take_reply(&mut Reader::new(&out)), Ok((9, Some(accepted))));
    }
    let mut out = Vec::new();
    put_rpc_mismatch(&mut out, 9);
    assert_eq!(out, hex("00000009 00000001 00000001 00000000 00000002 00000002"));
    assert_eq!(take_reply(&mut Reader::new(&out)), Ok((9, None)));
    out.clear();
    put_auth_error(&mut out, 9, AuthStatus::TooWeak);
    assert_eq!(out, hex("00000009 00000001 00000001 00000001 00000005"));
}

#[test]
fn calls_of_nfs_are_as_rfc_1813_has_them() {
    let file = handle(&[1, 2, 3, 4, 5]);
    let as_bytes = "00000005 01020304 05000000";
    for (request, expected) in [
        (Request::GetAttr(file), String::new()),
        (
            Request::SetAttr {
                file,
                attr: SetAttr {
                    mode: Some(0o644),
                    size: Some(5),
                    atime: SetTime::Now,
                    mtime: SetTime::To(Time { seconds: 7, nanoseconds: 8 }),
                    ..SetAttr::default()
                },
                guard: Some(Time { seconds: 1, nanoseconds: 2 }),
            },
            "00000001 000001a4 00000000 00000000 00000001 0000000000000005 00000001 00000002 00000007 00000008
             00000001 00000001 00000002"
                .into(),
        ),
        (Request::LookUp(Place { dir: file, name: b"ab" }), "00000002 61620000".into()),
        (Request::Access { file, access: 0x3f }, "0000003f".into()),
        (Request::Read { file, offset: 9, count: 10 }, "0000000000000009 0000000a".into()),
        (
            Request::Write { file, offset: 1, count: 3, stable: Stable::FileSync, data: b"xyz" },
            "0000000000000001 00000003 00000002 00000003 78797a00".into(),
        ),
        (
            Request::Create {
                place: Place { dir: file, name: b"n" },
                how: CreateHow::Exclusive([9, 8, 7, 6, 5, 4, 3, 2]),
            },
            "00000001 6e000000 00000002 0908070605040302".into(),
        ),
        (
            Request::MkNod {
                place: Place { dir: file, name: b"n" },
                node: Node::Device { is_block: true, attr: SetAttr::default(), major: 8, minor: 1 },
            },
            "00000001 6e000000 00000003 00000000 00000000 00000000 00000000 00000000 00000000 00000008 00000001"
                .into(),
        ),
        (
            Request::Rename { from: Place { dir: file, name: b"a" }, to: Place { dir: file, name: b"b" } },
            format!("00000001 61000000 {as_bytes} 00000001 62000000"),
        ),
        (
            Request::ReadDirPlus { dir: file, cookie: 4, verifier: [0; 8], dir_count: 512, count: 4096 },
            "0000000000000004 0000000000000000 00000200 00001000".into(),
        ),
        (Request::Commit { file, offset: 0, count: 0 }, "0000000000000000 00000000".into()),
    ] {
        let expected = hex(&format!("{as_bytes} {expected}"));
        assert_eq!(written(&request), expected, "{request:?}");
        let again = Request::take(request.procedure(), &mut Reader::new(&expected));
        assert_eq!(again, Ok(Some(request)));
    }
    assert_eq!(Request::take(22, &mut Reader::new(&[])), Ok(None));
    assert!(Request::take(1, &mut Reader::new(&hex(as_bytes)[..8])).is_err(), "cut");
    assert!(
        Request::take(1, &mut Reader::new(&hex(&format!("{as_bytes} 00")))).is_err(),
        "more than there is"
    );
}

const ATTR: Fattr = Fattr {
    kind: Kind::Directory,
    mode: 0o755,
    links: 2,
    uid: 1000,
    gid: 100,
    size: 4096,
    used: 8192,
    major: 0,
    minor: 0,
    fsid: 1,
    fileid: 2,
    atime: Time { seconds: 3, nanoseconds: 4 },
    mtime: Time { seconds: 5, nanoseconds: 6 },
    ctime: Time { seconds: 7, nanoseconds: 8 },
};
const ATTR_BYTES: &str =
    "00000002 000001ed 00000002 000003e8 00000064 0000000000001000 0000000000002000 00000000 00000000
    0000000000000001 0000000000000002 00000003 00000004 00000005 00000006 00000007 00000008";

#[test]
fn answers_of_nfs_are_as_rfc_1813_has_them() {
    let attr = format!("00000001 {ATTR_BYTES}");
    let before = "00000001 0000000000001000 00000005 00000006 00000007 00000008";
    let wcc = Wcc { before: Some(WccAttr::from(&ATTR)), after: Some(ATTR) };
    let entry = PlainEntry { fileid: 9, name: b"abc".into(), cookie: 10 };
    let entry_bytes = "00000001 0000000000000009 00000003 61626300 000000000000000a";
    for (procedure, reply, expected) in [
        (procedure::GETATTR, Reply::GetAttr(Ok(ATTR)), format!("00000000 {ATTR_BYTES}")),
        (procedure::GETATTR, Reply::GetAttr(Err(Status::Stale)), "00000046".into()),
        (
            procedure::LOOKUP,
            Reply::LookUp { result: Ok((handle(&[1, 2, 3, 4]), None)), dir: Some(ATTR) },
            format!("00000000 00000004 01020304 00000000 {attr}"),
        ),
        (
            procedure::LOOKUP,
            Reply::LookUp { result: Err(Status::NoEnt), dir: Some(ATTR) },
            format!("00000002 {attr}"),
        ),
        (
            procedure::READ,
            Reply::Read { result: Ok((b"xyz".into(), true)), attr: Some(ATTR) },
            format!("00000000 {attr} 00000003 00000001 00000003 78797a00"),
        ),
        (
            procedure::WRITE,
            Reply::Write {
                result: Ok(WriteOk { count: 5, stable: Stable::Unstable, verifier: 0x0102_0304_0506_0708 }),
                wcc,
            },
            format!("00000000 {before} {attr} 00000005 00000000 0102030405060708"),
        ),
        (
            procedure::CREATE,
            Reply::Made { result: Ok((Some(handle(&[1, 2, 3, 4])), Some(ATTR))), dir: wcc },
            format!("00000000 00000001 00000004 01020304 {attr} {before} {attr}"),
        ),
        (
            procedure::RENAME,
            Reply::Rename { status: Status::Ok, from: wcc, to: Wcc::default() },
            format!("00000000 {before} {attr} 00000000 00000000"),
        ),
        (
            procedure::READDIR,
            Reply::ReadDir {
                result: Ok(Listing { verifier: [0; 8], entries: vec![entry.clone()], is_end: true }),
                dir: None,
            },
            format!("00000000 00000000 0000000000000000 {entry_bytes} 00000000 00000001"),
        ),
        (
            procedure::READDIRPLUS,
            Reply::ReadDirPlus {
                result: Ok(Listing {
                    verifier: [0; 8],
                    entries: vec![PlusEntry { entry, attr: Some(ATTR), file: Some(handle(&[1, 2, 3, 4])) }],
                    is_end: false,
                }),
                dir: None,
            },
            format!(
                "00000000 00000000 0000000000000000 {entry_bytes} {attr} 00000001 00000004 01020304 00000000 00000000"
            ),
        ),
        (
            procedure::COMMIT,
            Reply::Commit { result: Ok(CommitOk { verifier: 3 }), wcc },
            format!("00000000 {before} {attr} 0000000000000003"),
        ),
    ] {
        let mut out = Vec::new();
        reply.put(&mut out);
        assert_eq!(out, hex(&expected), "{reply:?}");
        assert_eq!(out[..4], (reply.status() as u32).to_be_bytes());
        assert_eq!(Reply::take(procedure, &mut Reader::new(&out)), Ok(Some(reply)));
    }
    assert_eq!(entry_bytes.split(' ').collect::<String>().len() / 2, iogate_nfs::wire::entry_bytes(b"abc"));
    let plus = hex(&format!("{entry_bytes} {attr} 00000001 00000004 01020304")).len();
    assert_eq!(plus, plus_entry_bytes(b"abc", Some(&handle(&[1, 2, 3, 4]))));
}

#[test]
fn mount_is_as_rfc_1813_has_it() {
    let mut out = Vec::new();
    MountReply::Mount(Ok((handle(&[1, 2, 3, 4]), vec![1]))).put(&mut out);
    assert_eq!(out, hex("00000000 00000004 01020304 00000001 00000001"));
    for (procedure, reply) in [
        (1, MountReply::Mount(Ok((handle(&[7; 64]), vec![1, 0])))),
        (1, MountReply::Mount(Err(13))),
        (2, MountReply::Mounts(vec![Mounted { host: "10.0.0.1".into(), path: b"/srv".into() }])),
        (3, MountReply::Nothing),
        (
            5,
            MountReply::Exports(vec![Export { path: b"/srv".into(), clients: vec!["a".into(), "b".into()] }]),
        ),
    ] {
        let mut out = Vec::new();
        reply.put(&mut out);
        assert_eq!(MountReply::take(procedure, &mut Reader::new(&out)), Ok(Some(reply)));
    }
    for request in [MountRequest::Mount(b"/srv"), MountRequest::Dump, MountRequest::Unmount(b"x")] {
        let mut out = Vec::new();
        request.put(&mut out);
        let again = MountRequest::take(request.procedure(), &mut Reader::new(&out));
        assert_eq!(again, Ok(Some(request)));
    }
}

fn written_lock(request: &LockRequest<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    request.put(&mut out);
    out
}

#[test]
fn locks_are_as_rfc_1813_has_them() {
    let lock = FileLock {
        host: Opaque(b"node1"),
        file: handle(b"abcd"),
        owner: Opaque(b"7@node1"),
        process: 7,
        offset: 0x1_0000_0002,
        length: 3,
    };
    let bytes = "00000005 6e6f6465 31000000 00000004 61626364 00000007 37406e6f 64653100 00000007
         00000001 00000002 00000000 00000003";
    let (cookie, exclusive) = (Opaque(b"\x01\x02"), true);
    let head = "00000002 01020000";
    let (block, reclaim, state, monitored) = (true, false, 9, true);
    let take = LockRequest::Lock { cookie, block, exclusive, lock, reclaim, state, monitored };
    for (request, procedure, text) in [
        (LockRequest::Test { cookie, exclusive, lock }, 1, format!("{head} 00000001 {bytes}")),
        (take, 2, format!("{head} 00000001 00000001 {bytes} 00000000 00000009")),
        (
            LockRequest::Cancel { cookie, block, exclusive, lock },
            3,
            format!("{head} 00000001 00000001 {bytes}"),
        ),
        (LockRequest::Unlock { cookie, lock }, 4, format!("{head} {bytes}")),
        (LockRequest::Granted { cookie, exclusive, lock }, 5, format!("{head} 00000001 {bytes}")),
        (
            LockRequest::FreeAll { host: Opaque(b"node1"), state: 9 },
            23,
            "00000005 6e6f6465 31000000 00000009".into(),
        ),
    ] {
        assert_eq!(request.procedure(), procedure);
        assert_eq!(written_lock(&request), hex(&text), "{request:?}");
        let bytes = hex(&text);
        assert_eq!(LockRequest::take(procedure, &mut Reader::new(&bytes)), Ok(Some(request)));
    }
    let holder = Holder { exclusive: true, process: 7, owner: Opaque(b"o"), offset: 1, length: 0 };
    for (reply, procedure, text) in [
        (LockReply::Tested { cookie, result: Ok(()) }, 1, "00000000"),
        (
            LockReply::Tested { cookie, result: Err(holder) },
            1,
            "00000001 00000001 00000007 00000001 6f000000 00000000 00000001 00000000 00000000",
        ),
        (LockReply::Done { cookie, status: LockStatus::Blocked }, 2, "00000003"),
        (LockReply::Shared { cookie, status: LockStatus::Granted }, 20, "00000000 00000000"),
    ] {
        let mut out = Vec::new();
        reply.put(&mut out);
        assert_eq!(out, hex(&format!("{head} {text}")), "{reply:?}");
        assert_eq!(LockReply::take(procedure, &mut Reader::new(&out)), Ok(Some(reply)));
    }
    let notify = StatusRequest::Notify { host: Opaque(b"node1"), state: 9 };
    let mut out = Vec::new();
    notify.put(&mut out);
    assert_eq!(out, hex("00000005 6e6f6465 31000000 00000009"));
    assert_eq!(StatusRequest::take(6, &mut Reader::new(&out)), Ok(Some(notify)));
}

fn handles() -> impl Strategy<Value = FileHandle> {
    prop::collection::vec(any::<u8>(), 0..=64).prop_map(|bytes| handle(&bytes))
}

fn times() -> impl Strategy<Value = SetTime> {
    prop_oneof![
        Just(SetTime::Keep),
        Just(SetTime::Now),
        (any::<u32>(), any::<u32>())
            .prop_map(|(seconds, nanoseconds)| SetTime::To(Time { seconds, nanoseconds })),
    ]
}

fn attrs() -> impl Strategy<Value = SetAttr> {
    (any::<[Option<u32>; 3]>(), any::<Option<u64>>(), times(), times())
        .prop_map(|([mode, uid, gid], size, atime, mtime)| SetAttr { mode, uid, gid, size, atime, mtime })
}

proptest! {
    #[test]
    fn what_is_written_is_read_again(
        file in handles(), dir in handles(), attr in attrs(), numbers: [u64; 2], small: [u32; 2],
        name in prop::collection::vec(any::<u8>(), 0..40), data in prop::collection::vec(any::<u8>(), 0..200),
        kind in 0..22u32, verifier: [u8; 8],
    ) {
        let (place, [offset, cookie], [count, dir_count]) = (Place { dir, name: &name }, numbers, small);
        let stable = Stable::ALL[count as usize % 3];
        let how = [CreateHow::Unchecked(attr), CreateHow::Guarded(attr), CreateHow::Exclusive(verifier)];
        let node = [Node::Socket(attr), Node::Fifo(attr), Node::Other(Kind::Link),
            Node::Device { is_block: count % 2 == 0, attr, major: count, minor: dir_count }];
        let request = match kind {
            0 => Request::Null,
            1 => Request::GetAttr(file),
            2 => Request::SetAttr { file, attr, guard: (count % 2 == 0).then_some(Time { seconds: count, nanoseconds: 1 }) },
            3 => Request::LookUp(place),
            4 => Request::Access { file, access: count },
            5 => Request::ReadLink(file),
            6 => Request::Read { file, offset, count },
            7 => Request::Write { file, offset, count, stable, data: &data },
            8 => Request::Create { place, how: how[count as usize % 3] },
            9 => Request::MkDir { place, attr },
            10 => Request::SymLink { place, attr, target: &data },
            11 => Request::MkNod { place, node: node[count as usize % 4] },
            12 => Request::Remove(place),
            13 => Request::RmDir(place),
            14 => Request::Rename { from: place, to: Place { dir: file, name: &data } },
            15 => Request::Link { file, place },
            16 => Request::ReadDir { dir, cookie, verifier, count },
            17 => Request::ReadDirPlus { dir, cookie, verifier, dir_count, count },
            18 => Request::FsStat(file),
            19 => Request::FsInfo(file),
            20 => Request::PathConf(file),
            _ => Request::Commit { file, offset, count },
        };
        prop_assert_eq!(request.procedure(), kind);
        let bytes = written(&request);
        prop_assert_eq!(Request::take(kind, &mut Reader::new(&bytes)), Ok(Some(request)));
        // Nothing that is cut is taken for a call.
        if !bytes.is_empty() {
            prop_assert!(Request::take(kind, &mut Reader::new(&bytes[..bytes.len() - 1])).is_err());
        }
    }

    #[test]
    fn any_bytes_are_refused_or_read_as_they_were_written(
        procedure in 0..24u32, bytes in prop::collection::vec(any::<u8>(), 0..300),
    ) {
        if let Ok(Some(request)) = Request::take(procedure, &mut Reader::new(&bytes)) {
            prop_assert_eq!(written(&request).len(), bytes.len());
        }
        if let Ok(Some(request)) = LockRequest::take(procedure, &mut Reader::new(&bytes)) {
            prop_assert_eq!(written_lock(&request).len(), bytes.len());
        }
        let _ = StatusRequest::take(procedure, &mut Reader::new(&bytes));
        let _ = LockReply::take(procedure, &mut Reader::new(&bytes));
        let _ = Reply::take(procedure, &mut Reader::new(&bytes));
        let _ = MountRequest::take(procedure, &mut Reader::new(&bytes));
        let _ = MountReply::take(procedure, &mut Reader::new(&bytes));
        let _ = Call::take(&mut Reader::new(&bytes));
    }
}
