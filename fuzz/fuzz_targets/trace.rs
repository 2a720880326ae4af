//! Any bytes are a trace, whose rows keep what the parser promises, or are refused.
#![no_main]

use iogate_sim::TraceReader;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(mut trace) = TraceReader::new(bytes) else { return };
    let (mut number, mut last) = (0, iogate_core::Time::ZERO);
    loop {
        match trace.next_row() {
            Ok(Some(row)) => {
                number += 1;
                assert_eq!(row.number, number);
                assert!(row.time >= last);
                last = row.time;
                assert!(row.bytes > 0 && row.offset.checked_add(row.bytes.into()).is_some());
                assert!(!trace.files().name(row.file).is_empty());
            }
            Ok(None) => break,
            Err(error) => {
                assert!(error.to_string().starts_with("line "));
                break;
            }
        }
    }
});
