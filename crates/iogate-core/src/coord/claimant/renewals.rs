//! When each of many turns is to be looked after.

use alloc::vec::Vec;

use super::SECOND;

/// When something is due for a turn that is being looked after: whoever does so says.
const IN_HAND: u64 = u64::MAX;
/// How long who looks after turns waits for another one before it ends: a program that takes many short ones starts it once.
const LINGER: u64 = 2 * SECOND;

/// The turns of a process, and when something is due for each. They are looked after by one thread, which is there as long as it is needed.
#[derive(Clone, Debug)]
pub struct Renewals<T> {
    turns: Vec<(u64, T)>,
    /// When the thread looks again; `None`: there is none.
    wakes: Option<u64>,
    /// Since when there is no turn.
    idle_since: u64,
}

/// What a new turn needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// Nothing: the thread comes in time.
    Nothing,
    /// The thread is to be woken.
    Wake,
    /// The thread is to be started.
    Start,
}

/// What the thread does next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Task<T> {
    /// It looks after this turn, and says when something is [due again](Renewals::due_again), or that the turn [is over](Renewals::remove).
    Due(T),
    /// It waits until then, or until it is woken.
    Wait(u64),
    /// It ends.
    End,
}

impl<T> Default for Renewals<T> {
    fn default() -> Renewals<T> {
        Renewals { turns: Vec::new(), wakes: None, idle_since: 0 }
    }
}

impl<T: Clone + PartialEq> Renewals<T> {
    /// There is one more turn, for which something is due then.
    pub fn add(&mut self, due: u64, turn: T) -> Need {
        self.turns.push((due, turn));
        match self.wakes {
            None => {
                self.wakes = Some(0);
                Need::Start
            }
            Some(wakes) if due < wakes => Need::Wake,
            Some(_) => Need::Nothing,
        }
    }

    /// The thread could not be started.
    pub fn not_started(&mut self) {
        self.wakes = None;
    }

    /// A turn is over.
    pub fn remove(&mut self, now: u64, turn: &T) {
        self.turns.retain(|(_, other)| other != turn);
        if self.turns.is_empty() {
            self.idle_since = now;
        }
    }

    /// Something is due for a turn that was looked after, if it is not over: then, or sooner where it was [added](Renewals::add) anew
    /// meanwhile.
    pub fn due_again(&mut self, due: u64, turn: &T) {
        if let Some((at, _)) = self.turns.iter_mut().find(|(_, other)| other == turn) {
            *at = due.min(*at);
        }
    }

    /// What the thread does next.
    pub fn next(&mut self, now: u64) -> Task<T> {
        let first = self.turns.iter_mut().min_by_key(|(due, _)| *due);
        let wakes = match first {
            Some((due, turn)) if *due <= now => {
                *due = IN_HAND;
                return Task::Due(turn.clone());
            }
            Some((due, _)) => *due,
            None => self.idle_since.saturating_add(LINGER),
        };
        if wakes <= now {
            self.wakes = None;
            return Task::End;
        }
        self.wakes = Some(wakes);
        Task::Wait(wakes)
    }

    /// All turns.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.turns.iter().map(|(_, turn)| turn)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_turn_that_is_due_first_is_looked_after_first() {
        let mut renewals = Renewals::default();
        assert_eq!(renewals.add(9, 'a'), Need::Start);
        assert_eq!(renewals.add(7, 'b'), Need::Nothing, "the thread has not looked yet");
        assert_eq!(renewals.next(1), Task::Wait(7));
        assert_eq!(renewals.add(8, 'c'), Need::Nothing);
        assert_eq!(renewals.add(5, 'd'), Need::Wake);
        assert_eq!(renewals.next(10), Task::Due('d'));
        renewals.due_again(20, &'d');
        assert_eq!(renewals.next(10), Task::Due('b'));
        renewals.remove(10, &'b');
        renewals.due_again(11, &'b');
        assert_eq!(renewals.next(10), Task::Due('c'));
        renewals.remove(10, &'c');
        renewals.remove(10, &'a');
        assert_eq!(renewals.next(10), Task::Wait(20));
        assert_eq!(renewals.iter().collect::<Vec<_>>(), [&'d']);
    }

    #[test]
    fn what_becomes_due_while_a_turn_is_looked_after_is_not_put_off() {
        let mut renewals = Renewals::default();
        renewals.add(5, 'a');
        assert_eq!(renewals.next(5), Task::Due('a'));
        renewals.remove(6, &'a');
        assert_eq!(renewals.add(6, 'a'), Need::Nothing, "the thread looks again when it is done");
        renewals.due_again(20, &'a');
        assert_eq!(renewals.next(7), Task::Due('a'));
        renewals.due_again(20, &'a');
        assert_eq!(renewals.next(7), Task::Wait(20));
    }

    #[test]
    fn the_thread_stays_for_turns_that_come_soon_after_each_other_and_ends_after_them() {
        let mut renewals = Renewals::default();
        let mut now = 5 * SECOND;
        assert_eq!(renewals.add(now + 3 * SECOND, 'a'), Need::Start);
        assert_eq!(renewals.next(now), Task::Wait(8 * SECOND));
        for _ in 0..10 {
            renewals.remove(now, &'a');
            now += SECOND;
            let need = renewals.add(now + 3 * SECOND, 'a');
            assert_eq!(need, Need::Nothing, "a short turn wakes nobody");
            // It wakes only when it would have had to for one of before.
            while let Some(wakes) = renewals.wakes.filter(|wakes| *wakes <= now) {
                assert_eq!(renewals.next(wakes), Task::Wait(now + 3 * SECOND));
            }
        }
        renewals.remove(now, &'a');
        assert_eq!(renewals.next(now + SECOND), Task::Wait(now + LINGER));
        assert_eq!(renewals.next(now + LINGER), Task::End);
        assert_eq!(renewals.add(now + 9 * SECOND, 'b'), Need::Start);
        renewals.not_started();
        assert_eq!(renewals.add(now + 9 * SECOND, 'c'), Need::Start);
    }
}
