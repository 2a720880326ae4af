//! What clients of a coordinator saw, and whether that can have been right.

/// A turn as the client that held it saw it. Times are in nanoseconds, of all clients on one clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// Which client.
    pub client: u64,
    /// On what: turns on different ones are in nobody's way.
    pub target: u64,
    /// Its token.
    pub token: u64,
    /// When it knew that it held.
    pub begin: u64,
    /// Until when it took the turn for its own: it began to release it, its lease was over by its own clock, or it was killed.
    pub end: u64,
}

/// Checks that nobody held a target while another did, and that tokens grew with time. The error names the two turns.
pub fn check(turns: &[Held]) -> Result<(), String> {
    let mut turns = turns.to_vec();
    turns.sort_unstable_by_key(|turn| (turn.target, turn.begin));
    for turn in &turns {
        if turn.end < turn.begin {
            return Err(format!("a turn ends before it begins: {turn:?}"));
        }
    }
    // Whose turn ends last, of those on one target that began before.
    let mut last: Option<Held> = None;
    for turn in turns {
        if let Some(before) = last.filter(|before| before.target == turn.target) {
            if turn.begin < before.end {
                return Err(format!("two hold at once: {before:?} and {turn:?}"));
            }
            if turn.token <= before.token {
                return Err(format!("a token does not grow: {before:?}, then {turn:?}"));
            }
        }
        last = Some(turn);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turn(target: u64, token: u64, begin: u64, end: u64) -> Held {
        Held { client: token, target, token, begin, end }
    }

    #[test]
    fn what_can_be_is_right_and_what_cannot_is_told() {
        let right = [turn(1, 1, 0, 10), turn(1, 3, 10, 20), turn(2, 2, 5, 15), turn(1, 4, 25, 25)];
        assert_eq!(check(&right), Ok(()));
        let error = |more| check(&[&right[..], &[more]].concat()).unwrap_err();
        assert!(error(turn(1, 5, 19, 30)).contains("two hold at once"));
        assert!(error(turn(1, 1, 30, 31)).contains("does not grow"));
        assert!(error(turn(3, 9, 5, 4)).contains("ends before"));
    }
}
