//! Names: one request's at a time, in the order in which they were asked for.

use super::*;
use crate::answers::Name;

fn names(of: &[&'static str]) -> Vec<Name<'static>> {
    of.iter().map(|name| Name::alone(name.as_bytes())).collect()
}

/// As of a rename.
fn trees(of: &[&'static str]) -> Vec<Name<'static>> {
    of.iter().map(|name| Name::with_below(name.as_bytes())).collect()
}

#[test]
fn a_name_is_one_requests_at_a_time() {
    let mut once: Once<u64> = Once::new(Limits::default());
    assert_eq!(once.begin(key(1), &names(&["a", "b"])), Begun::New);
    assert_eq!(once.begin(key(2), &names(&["c", "b"])), Begun::Taken);
    assert_eq!(once.begin(key(3), &names(&["c"])), Begun::New, "the second has taken none of them");
    assert_eq!(once.wait(&key(2), &names(&["c", "b"]), 7), None);
    assert_eq!(once.wait(&key(1), &names(&["a", "b"]), 8), None, "itself");
    assert!(once.end(&key(3)).is_empty(), "one of the two is not free");
    assert_eq!(once.end(&key(1)), [8, 7]);
    assert_eq!(once.begin(key(2), &names(&["c", "b"])), Begun::New);
    assert!(once.end(&key(2)).is_empty());
    assert_eq!(once.wait(&key(4), &names(&["b"]), 9), Some(9), "it is free");
    assert_eq!(once.begin(key(4), &names(&["a", "a"])), Begun::New, "twice the same");
    assert!(once.end(&key(4)).is_empty());
    assert_eq!(once.begin(key(5), &names(&["a"])), Begun::New);
}

#[test]
fn what_is_below_a_name_that_is_renamed_is_its_requests_too() {
    let mut once: Once<u64> = Once::new(Limits::default());
    assert_eq!(once.begin(key(1), &names(&["d/f"])), Begun::New);
    for other in [trees(&["x", "d"]), trees(&["d/f"]), names(&["x", "d/f"])] {
        assert_eq!(once.begin(key(2), &other), Begun::Taken, "{other:?}");
    }
    for (number, other) in (3..).zip(["d/e", "d-f", "d/f-g", "f", "d/ff", "e/d/f"]) {
        assert_eq!(once.begin(key(number), &trees(&[other])), Begun::New, "{other}");
    }
    for other in ["f/g", "f/g/h", "f"] {
        assert_eq!(once.begin(key(2), &names(&[other])), Begun::Taken, "{other}");
        assert_eq!(once.begin(key(2), &trees(&[other])), Begun::Taken, "{other}");
    }
}

/// As a `mkdir` of a directory that is there, which fails, or a removal of one that is not empty.
#[test]
fn a_request_for_a_directory_keeps_nobody_from_what_is_in_it() {
    let mut once: Once<u64> = Once::new(Limits::default());
    assert_eq!(once.begin(key(1), &names(&["d/a"])), Begun::New);
    assert_eq!(once.begin(key(2), &names(&["d"])), Begun::New);
    assert_eq!(once.begin(key(3), &names(&["d/b/c"])), Begun::New);
    // A rename of it waits for all of them, and others for the rename.
    let rename = trees(&["d", "e"]);
    assert_eq!(once.wait(&key(4), &rename, 4), None);
    assert_eq!(once.wait(&key(5), &names(&["d/b"]), 5), None);
    assert_eq!(once.wait(&key(6), &names(&["d"]), 6), None);
    assert!(once.end(&key(2)).is_empty() && once.end(&key(1)).is_empty());
    assert_eq!(once.end(&key(3)), [4]);
    assert_eq!(once.begin(key(4), &rename), Begun::New);
    assert_eq!(once.end(&key(4)), [5, 6], "both at once");
}

/// Each end lets one go on, in the order in which they came, also past one that gives up.
#[test]
fn who_waits_for_a_name_goes_on_alone() {
    let mut once: Once<u64> = Once::new(Limits::default());
    let name = names(&["out"]);
    assert_eq!(once.begin(key(0), &name), Begun::New);
    for number in 1..100 {
        assert_eq!(once.begin(key(number), &name), Begun::Taken);
        assert_eq!(once.wait(&key(number), &name, number), None);
    }
    let mut next = once.end(&key(0));
    for number in 1..100 {
        assert_eq!(next, [number]);
        assert_eq!(once.begin(key(1000), &name), Begun::Taken, "it is promised");
        if number % 3 == 0 {
            // Its client is gone.
            next = once.give_up(&key(number));
        } else {
            assert_eq!(once.begin(key(number), &name), Begun::New);
            assert_eq!(once.begin(key(number), &name), Begun::Running);
            assert!(once.give_up(&key(number)).is_empty(), "it has begun");
            next = once.end(&key(number));
        }
    }
    assert!(next.is_empty());
    assert_eq!(once.begin(key(100), &name), Begun::New);
}

/// As a rename of a directory in which files are made all the time.
#[test]
fn names_are_given_in_the_order_in_which_they_were_asked_for() {
    let mut once: Once<u64> = Once::new(Limits::default());
    assert_eq!(once.begin(key(1), &names(&["d/a"])), Begun::New);
    assert_eq!(once.begin(key(2), &names(&["d/b"])), Begun::New);
    let (rename, late) = (trees(&["d", "e"]), names(&["d/c"]));
    assert_eq!(once.begin(key(3), &rename), Begun::Taken);
    assert_eq!(once.wait(&key(3), &rename, 3), None);
    assert_eq!(once.begin(key(4), &late), Begun::Taken, "the rename came first");
    assert_eq!(once.wait(&key(4), &late, 4), None);
    assert_eq!(once.wait(&key(5), &names(&["e/x"]), 5), None, "and it wants this, too");
    assert_eq!(once.begin(key(6), &names(&["f"])), Begun::New);
    assert!(once.end(&key(1)).is_empty());
    assert_eq!(once.end(&key(2)), [3]);
    assert_eq!(once.begin(key(3), &rename), Begun::New);
    assert_eq!(once.end(&key(3)), [4, 5], "both at once");
}

/// As one for an attribute of an open file, which was renamed in between.
#[test]
fn who_waits_twice_under_two_names_leaves_neither_behind() {
    let mut once: Once<u64> = Once::new(Limits::default());
    assert_eq!(once.begin(key(1), &names(&["a", "b"])), Begun::New);
    assert_eq!(once.wait(&key(2), &names(&["a"]), 2), None);
    assert_eq!(once.wait(&key(2), &names(&["b"]), 3), None);
    assert_eq!(once.wait(&key(4), &names(&["b"]), 4), None);
    assert_eq!(once.end(&key(1)), [2, 3, 4]);
    assert_eq!(once.begin(key(2), &names(&["b"])), Begun::Taken, "it is the other name that it has");
    assert_eq!(once.wait(&key(2), &names(&["b"]), 5), None);
    assert_eq!(once.give_up(&key(2)), [5]);
    assert_eq!(once.begin(key(4), &names(&["b"])), Begun::New);
    assert_eq!(once.begin(key(2), &names(&["b"])), Begun::Taken);
    assert_eq!(once.wait(&key(2), &names(&["b"]), 6), None);
    assert_eq!(once.end(&key(4)), [6]);
    assert_eq!(once.begin(key(2), &names(&["b"])), Begun::New);
    assert!(once.end(&key(2)).is_empty());
    assert_eq!(once.begin(key(5), &names(&["a", "b"])), Begun::New);
}

/// The same request came twice while it waited.
#[test]
fn who_waits_twice_is_carried_out_once() {
    let mut process = Process::start(Paper::default());
    let name = names(&["a"]);
    assert_eq!(process.once.begin(key(1), &name), Begun::New);
    assert_eq!([7, 8].map(|then| process.once.wait(&key(2), &name, then)), [None, None]);
    assert_eq!(process.once.end(&key(1)), [7]);
    assert_eq!(process.once.begin(key(2), &name), Begun::New);
    process.note(to_note(2, State::Outcome, b"so")).unwrap();
    assert_eq!(process.once.end(&key(2)), [8]);
    assert_eq!(process.once.begin(key(2), &name), Begun::Known(b"so"));
    assert!(process.once.give_up(&key(2)).is_empty());
    assert_eq!(process.once.begin(key(3), &name), Begun::New, "nobody has the name");
}
