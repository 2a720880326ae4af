//! A client's session and a server's agree, whatever happens between them.

use iogate_testkit::pair::play;
use proptest::prelude::*;

/// Each of these has found a defect that was there.
#[test]
fn scripts_that_have_found_a_defect_find_none() {
    // Carried out, lost with its connection, to be sent again to a server that would have known it; that is killed before, and its
    // successor has forgotten: sent to that one, it was carried out twice.
    play(&[38, 41, 198, 79, 227, 250, 119]).expect("it fails instead");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn each_request_comes_to_one_end(script in prop::collection::vec(any::<u8>(), 0..200)) {
        play(&script).map_err(TestCaseError::fail)?;
    }

    /// Losses are rare: most of what is sent comes to its end.
    #[test]
    fn each_request_comes_to_one_end_with_few_faults(
        script in prop::collection::vec(prop_oneof![60 => 0u8..9, 60 => (0u8..20).prop_map(|n| n * 12 + 7), 1 => any::<u8>()], 0..400),
    ) {
        play(&script).map_err(TestCaseError::fail)?;
    }
}
