//! Any bytes are requests of the kernel's, which ask the same of a file system whether they come through the device or a ring, and never
//! for a name that is a path; or they are refused.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| iogate_fuse::fuzz::check(bytes));
