//! A client's session and a server's agree, whatever happens between them: the bytes say what does.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|script: &[u8]| {
    if let Err(error) = iogate_testkit::pair::play(script) {
        panic!("{error}");
    }
});
