//! What clients of a coordinator saw, and whether that can have been right.

use std::collections::BTreeSet;

/// A turn as the client that held it saw it. Times are in nanoseconds, of all clients on one clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// Which client.
    pub client: u64,
    /// Of which job; `None`: of none, so that nobody shares it.
    pub job: Option<u64>,
    /// On what: turns on different ones are in nobody's way.
    pub target: u64,
    /// Its token.
    pub token: u64,
    /// When it knew that it held.
    pub begin: u64,
    /// Until when it took the turn for its own: it began to release it, its lease was over by its own clock, or it was killed.
    pub end: u64,
}

impl Held {
    /// Who shares it.
    fn party(&self) -> (Option<u64>, u64) {
        (self.job, if self.job.is_some() { 0 } else { self.token })
    }
}

/// Checks that no more than `slots` parties held a target at a time, and, where that is one, that tokens grew from party to party.
///
/// # Errors
/// The turns that cannot be, for people.
pub fn check(turns: &[Held], slots: usize) -> Result<(), String> {
    let mut turns = turns.to_vec();
    turns.sort_unstable_by_key(|turn| (turn.target, turn.begin, turn.token));
    for on_target in turns.chunk_by(|one, next| one.target == next.target) {
        let mut holding: Vec<Held> = Vec::new();
        let mut largest: Option<Held> = None;
        for &turn in on_target {
            if turn.end < turn.begin {
                return Err(format!("a turn ends before it begins: {turn:?}"));
            }
            holding.retain(|other| other.end > turn.begin);
            holding.push(turn);
            let parties: BTreeSet<_> = holding.iter().map(Held::party).collect();
            if parties.len() > slots {
                let many = if slots == 1 { "two".into() } else { format!("more than {slots}") };
                return Err(format!("{many} hold at once: {holding:?}"));
            }
            if let Some(before) = largest
                && slots == 1
                && before.party() != turn.party()
                && turn.token <= before.token
            {
                return Err(format!("a token does not grow: {before:?}, then {turn:?}"));
            }
            largest = largest.filter(|before| before.token > turn.token).or(Some(turn));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turn(job: u64, target: u64, token: u64, begin: u64, end: u64) -> Held {
        Held { client: token, job: (job > 0).then_some(job), target, token, begin, end }
    }

    #[test]
    fn what_can_be_is_right_and_what_cannot_is_told() {
        let right =
            [turn(0, 1, 1, 0, 10), turn(0, 1, 3, 10, 20), turn(0, 2, 2, 5, 15), turn(0, 1, 4, 25, 25)];
        assert_eq!(check(&right, 1), Ok(()));
        let error = |more, slots| check(&[&right[..], &[more]].concat(), slots).unwrap_err();
        assert!(error(turn(0, 1, 5, 19, 30), 1).contains("two hold at once"));
        assert!(error(turn(0, 1, 1, 30, 31), 1).contains("does not grow"));
        assert!(error(turn(0, 3, 9, 5, 4), 1).contains("ends before"));
        assert!(check(&[&right[..], &[turn(0, 1, 5, 19, 30)]].concat(), 2).is_ok());
        assert!(error(turn(0, 1, 5, 19, 30), 0).contains("more than 0"));
    }

    #[test]
    fn turns_of_a_job_are_one() {
        let job = [turn(7, 1, 2, 0, 10), turn(7, 1, 3, 5, 20), turn(7, 1, 1, 6, 7)];
        assert_eq!(check(&job, 1), Ok(()));
        assert!(check(&[&job[..], &[turn(8, 1, 9, 19, 30)]].concat(), 1).is_err());
        assert_eq!(check(&[&job[..], &[turn(8, 1, 9, 20, 30)]].concat(), 1), Ok(()));
    }
}
