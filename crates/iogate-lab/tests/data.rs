//! Seeds that have found a defect once, a number of others, and defects that are put in on purpose.

use iogate_lab::data::{Planted, run};

/// Each of these finds a defect that was there.
const KEPT: [(u64, &str); 0] = [];

#[test]
fn seeds_that_have_found_a_defect_find_none() {
    for (seed, what) in KEPT {
        let report = run(seed, None);
        assert!(report.findings.is_empty(), "{what}: {report}");
    }
}

#[test]
fn nothing_is_found_in_many_worlds() {
    for seed in 1000..1100 {
        let report = run(seed, None);
        assert!(report.findings.is_empty(), "{report}");
    }
}

#[test]
fn the_same_seed_is_the_same_run() {
    let [one, again] = [(); 2].map(|()| run(39, Some(Planted::NoVerifier)).to_string());
    assert_eq!(one, again);
}

#[test]
fn every_defect_that_is_put_in_is_found() {
    for planted in Planted::ALL {
        let found = (1..1000).find(|&seed| {
            let r = run(seed, Some(planted));
            if !r.findings.is_empty() {
                println!("{}", r.findings[0]);
            }
            !r.findings.is_empty()
        });
        println!("{planted:?}: found by seed {found:?}");
        assert!(found.is_some(), "{planted:?} is not found");
    }
}
