//! Worlds of NFS in which nothing may be found, and defects that are put in on purpose.

use iogate_lab::nfs::{Planted, run};

#[test]
fn nothing_is_found_in_many_worlds() {
    let (mut repeats, mut sent_again, mut kills, mut crashes) = (0, 0, 0, 0);
    for seed in 1..60 {
        let report = run(seed, None);
        assert!(report.findings.is_empty(), "{report}");
        repeats += report.repeats;
        sent_again += report.sent_again;
        kills += report.kills;
        crashes += report.crashes;
    }
    println!("{kills} kills, {crashes} crashes, {repeats} calls and {sent_again} blocks sent again");
    assert!(crashes > 60 && kills > crashes + 60 && repeats > 1000 && sent_again > 10, "little has happened");
}

/// In these a file grows between a read behind its end and the look at how long it is: "nothing, and it goes on" was the answer once.
#[test]
fn a_read_of_what_is_not_there_yet_ends_the_file() {
    for seed in [452, 523, 583] {
        let report = run(seed, None);
        assert!(report.findings.is_empty(), "{report}");
    }
}

#[test]
fn the_same_seed_is_the_same_run() {
    for seed in [1, 2] {
        let [one, again] = [(); 2].map(|()| run(seed, Some(Planted::SameVerifier)).to_string());
        assert_eq!(one, again);
    }
}

#[test]
fn every_defect_that_is_put_in_is_found() {
    for planted in Planted::ALL {
        let first = 1;
        let found = (first..300).find(|&seed| !run(seed, Some(planted)).findings.is_empty());
        println!("{planted:?}: found by seed {found:?}");
        assert!(found.is_some_and(|seed| run(seed, None).findings.is_empty()), "{planted:?} is not found");
    }
}
