//! Any bytes are records of calls that are written as they were read, or are refused; however the stream is cut, and without more memory
//! than has come.
#![no_main]

use iogate_nfs::rpc::records::Records;
use iogate_nfs::rpc::{Call, CallError};
use iogate_nfs::wire::{
    FileHandle, LOCK_PROGRAM, LockReply, LockRequest, MOUNT_PROGRAM, MountReply, MountRequest, RECORD_BYTES_MAX,
    Reply, Request, STATUS_PROGRAM, StatusRequest,
};
use iogate_nfs::xdr::Reader;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some((&piece, stream)) = bytes.split_first() else { return };
    let mut records = Records::new(RECORD_BYTES_MAX);
    let mut found = Vec::new();
    for piece in stream.chunks(usize::from(piece) + 1) {
        if records.feed(piece, |record| found.push(record)).is_err() {
            break;
        }
        assert!(records.held() <= 2 * stream.len() + 64);
    }
    // What is not framed is a record, too, so that most of what is tried is one.
    found.push(stream.to_vec());
    for record in &found {
        let mut from = Reader::new(record);
        let call = match Call::take(&mut from) {
            Ok(call) => call,
            Err(CallError::NotACall(_) | CallError::RpcMismatch { .. } | CallError::Auth { .. }) => continue,
        };
        let arguments = from.rest();
        if call.program == MOUNT_PROGRAM {
            if let Ok(Some(request)) = MountRequest::take(call.procedure, &mut from) {
                let mut again = Vec::new();
                request.put(&mut again);
                // Padding need not be zero.
                assert_eq!(again.len(), arguments.len());
            }
        } else if call.program == LOCK_PROGRAM {
            if let Ok(Some(request)) = LockRequest::take(call.procedure, &mut from) {
                let mut again = Vec::new();
                request.put(&mut again);
                assert_eq!(again.len(), arguments.len());
                assert_eq!(LockRequest::take(call.procedure, &mut Reader::new(&again)), Ok(Some(request)));
            }
        } else if call.program == STATUS_PROGRAM {
            if let Ok(Some(request)) = StatusRequest::take(call.procedure, &mut from) {
                let mut again = Vec::new();
                request.put(&mut again);
                assert_eq!(again.len(), arguments.len());
            }
        } else if let Ok(Some(request)) = Request::take(call.procedure, &mut from) {
            let mut again = Vec::new();
            request.put(&mut again);
            assert_eq!(again.len(), arguments.len());
            assert_eq!(Request::take(call.procedure, &mut Reader::new(&again)), Ok(Some(request)));
        }
        let _ = Reply::take(call.procedure, &mut Reader::new(arguments));
        let _ = LockReply::take(call.procedure, &mut Reader::new(arguments));
        let _ = MountReply::take(call.procedure, &mut Reader::new(arguments));
    }
    let sealer = iogate_nfs::handle::Sealer::new([7; 16], 0);
    let handle = FileHandle::new(&stream[..stream.len().min(64)]);
    if let Some(key) = handle.and_then(|handle| sealer.open(&handle)) {
        assert_eq!(Some(sealer.seal(&key)), handle);
    }
});
