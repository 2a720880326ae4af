//! Any bytes are messages that are written as they were read, or are refused; and no client, whatever it sends, gets a session to
//! carry out a request twice or to keep more than it has credits.
#![no_main]

use std::collections::HashSet;

use iogate_core::proto::repeats::{Admitted, Window};
use iogate_core::wire::{
    Entry, REPLY_HEADER_BYTES, REQUEST_HEADER_BYTES, Record, ReplyHeader, Request, RequestHeader, Welcome,
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Some(header) = bytes.first_chunk::<REPLY_HEADER_BYTES>()
        && let Ok(header) = ReplyHeader::from_bytes(header)
    {
        assert_eq!(&header.to_bytes()[..], &bytes[..REPLY_HEADER_BYTES]);
    }
    let _ = (Welcome::decode(bytes), Entry::split_from(bytes));

    let mut window = Window::new(8);
    let mut in_flight = Vec::new();
    let mut taken = HashSet::new();
    let mut rest = bytes;
    while let Some((header, behind)) = rest.split_first_chunk::<REQUEST_HEADER_BYTES>() {
        let Ok(header) = RequestHeader::from_bytes(header) else { return };
        let Some((fields, behind)) = behind.split_at_checked(header.fields.into()) else { return };
        if let Ok(request) = Request::decode(header.kind, fields) {
            let mut again = Vec::new();
            request.encode(&mut again);
            assert_eq!(again, fields);
        }
        // The user decides what happens next, so that the fuzzer can.
        match header.uid % 4 {
            0 => window.reconnect(),
            1 => {
                if let Some(id) = in_flight.pop() {
                    window.finish(id, Some(id));
                }
            }
            _ => {}
        }
        match window.admit(header.id, header.acked) {
            Ok(Admitted::New) => {
                assert!(taken.insert(header.id), "carried out twice");
                in_flight.push(header.id);
            }
            Ok(Admitted::InFlight) => assert!(in_flight.contains(&header.id)),
            Ok(Admitted::Done(reply)) => assert_eq!(*reply, header.id),
            Err(_) => return,
        }
        assert_eq!(window.in_flight() as usize, in_flight.len());
        assert!(in_flight.len() <= 8);
        rest = behind.get(header.payload as usize..).unwrap_or_default();
    }
});
