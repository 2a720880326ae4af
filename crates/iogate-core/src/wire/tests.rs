//! Messages survive the way, and damage to them is noticed.

use alloc::vec;
use alloc::vec::Vec;

use proptest::prelude::*;

use super::*;
use crate::BurstSize;

fn round_trip(request: Request<'_>) {
    let mut fields = Vec::new();
    request.encode(&mut fields);
    assert_eq!(Request::decode(request.kind(), &fields), Ok(request));
    for cut in 0..fields.len() {
        let found = Request::decode(request.kind(), &fields[..cut]);
        assert!(matches!(found, Err(WireError::Truncated { .. })), "cut at {cut}: {found:?}");
    }
    fields.push(0);
    assert_eq!(Request::decode(request.kind(), &fields), Err(WireError::Trailing { bytes: 1 }));
}

#[test]
fn requests_survive_the_way_and_damage_is_noticed() {
    let identity = Identity { inode: 7, generation: u64::MAX };
    round_trip(Request::Hello(Hello {
        magic: MAGIC,
        version: VERSION,
        auth: auth::MUNGE,
        session: [9; 16],
        node: 1,
        nodes: 4,
        instance: u64::MAX,
        client: [3; 16],
        flags: hello::STRIPES,
        export: b"scratch",
        name: b"",
    }));
    round_trip(Request::Open(Open { handle: 1, flags: open::READ, mode: 0o644, identity, path: b"a/b" }));
    round_trip(Request::Read(Transfer {
        handle: 3,
        flags: 0,
        offset: 1 << 40,
        bytes: 4096,
        app: 5,
        client: 6,
        issued: 7,
    }));
    let moment = Timestamp { seconds: -1, nanoseconds: 999_999_999 };
    let change = Change { which: set::MTIME, uid: 1, gid: 2, size: 3, mtime: moment, ..Change::default() };
    round_trip(Request::SetAttr(SetAttr { handle: NO_HANDLE, change, identity, path: b"x" }));
    round_trip(Request::Rename(Rename { flags: 1, path: b"from", to: b"to" }));
    round_trip(Request::Goodbye(Goodbye {}));
}

#[test]
fn groups_stand_before_the_fields() {
    let header = |groups| RequestHeader { groups, ..RequestHeader::default() };
    let fields = [1, 0, 0, 0, 2, 1, 0, 0, 9];
    let (groups, rest) = header(2).split_groups(&fields).unwrap();
    assert_eq!((groups.unwrap().collect::<Vec<u32>>(), rest), (vec![1, 258], &fields[8..]));
    let (groups, rest) = header(0).split_groups(&fields).unwrap();
    assert_eq!((groups.unwrap().count(), rest), (0, &fields[..]));
    let (groups, rest) = header(GROUPS_UNKNOWN).split_groups(&fields).unwrap();
    assert!(groups.is_none() && rest == fields);
    assert!(matches!(header(3).split_groups(&fields), Err(WireError::Truncated { expected: 12, found: 9 })));
    assert!(matches!(header(257).split_groups(&fields), Err(WireError::TooManyGroups { count: 257 })));
}

#[test]
fn what_an_application_moves_is_said_beside_all_other_flags() {
    let others = transfer::APPEND | transfer::DATA_SYNC | transfer::SYNC | transfer::EXTEND | transfer::RANGE;
    for said in [BurstSize::UNKNOWN, BurstSize::of(1), BurstSize::of(10 << 30), BurstSize::of(u64::MAX)] {
        let flags = others | transfer::saying(said);
        assert_eq!((transfer::said(flags), flags & others), (said, others));
        assert_eq!(transfer::saying(said) & others, 0);
    }
    // A peer that does not know of it sends zeros.
    assert_eq!(transfer::said(others), BurstSize::UNKNOWN);
}

#[test]
fn kinds_are_told_apart() {
    let mut kinds: Vec<u16> = Request::KINDS.iter().map(|(kind, _)| *kind).collect();
    kinds.dedup();
    assert_eq!(kinds.len(), Request::KINDS.len());
    assert_eq!(Request::decode(999, &[]), Err(WireError::UnknownKind { kind: 999 }));
}

#[test]
fn entries_come_with_their_names() {
    let mut payload = Vec::new();
    for (next, name) in [(1, &b"one"[..]), (2, b""), (3, b"three")] {
        Entry { next, name_bytes: name.len() as u16, attr: Attr::default() }.encode(&mut payload);
        payload.extend_from_slice(name);
    }
    assert_eq!(payload.len(), 3 * ENTRY_BYTES + 8);
    let (first, name, rest) = Entry::split_from(&payload).unwrap();
    assert_eq!((first.next, name), (1, &b"one"[..]));
    let (_, _, rest) = Entry::split_from(rest).unwrap();
    assert!(matches!(Entry::split_from(&rest[..rest.len() - 1]), Err(WireError::Truncated { .. })));
    let (third, name, rest) = Entry::split_from(rest).unwrap();
    assert_eq!((third.next, name, rest), (3, &b"three"[..], &b""[..]));
}

proptest! {
    #[test]
    fn headers_survive_the_way(
        fields: u16, payload in 0..=PAYLOAD_BYTES_MAX, kind: u16, id: u64, acked: u64, uid: u32, gid: u32,
        client: [u8; 16],
    ) {
        let origin = RequestOrigin { client, number: id, step: kind, unanswered: uid };
        let request = RequestHeader { fields, payload, kind, id, acked, uid, gid, groups: fields, origin };
        prop_assert_eq!(RequestHeader::from_bytes(&request.to_bytes()), Ok(request));
        let reply = ReplyHeader { fields, payload, errno: kind, id };
        prop_assert_eq!(ReplyHeader::from_bytes(&reply.to_bytes()), Ok(reply));
    }

    #[test]
    fn what_is_read_from_any_bytes_is_what_is_written(kind in 0u16..50, fields in prop::collection::vec(any::<u8>(), 0..200)) {
        if let Ok(request) = Request::decode(kind, &fields) {
            let mut again = Vec::new();
            request.encode(&mut again);
            prop_assert_eq!(again, fields);
        }
    }
}

#[test]
fn too_much_payload_is_another_protocol() {
    let header = ReplyHeader { payload: PAYLOAD_BYTES_MAX + 1, ..ReplyHeader::default() };
    let too_long = WireError::TooLong { bytes: PAYLOAD_BYTES_MAX + 1, max: PAYLOAD_BYTES_MAX };
    assert_eq!(ReplyHeader::from_bytes(&header.to_bytes()), Err(too_long));
}
