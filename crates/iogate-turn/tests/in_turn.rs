//! Whether a process is in a turn. Alone in its process: others' turns would count.

use iogate_turn::{Place, Settings, Turns, Wish, enter, is_inside, leave};

#[test]
fn turns_and_enters_count() {
    let turns = Turns::new(Settings::read(&|_| None).unwrap()).unwrap();
    assert!(!is_inside());
    let one = turns.take(&Place::named("scratch"), &Wish::default()).unwrap();
    let other = turns.take(&Place::named("scratch"), &Wish::default()).unwrap();
    drop(one);
    assert!(is_inside());
    enter();
    enter();
    other.release().unwrap();
    leave();
    assert!(is_inside());
    leave();
    assert!(!is_inside());
    leave();
    enter();
    assert!(is_inside(), "a leave too many does not count");
}
