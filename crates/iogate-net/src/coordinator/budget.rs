//! Memory for requests and answers that are underway: bounded in all, and for each user.

use std::collections::HashMap;

/// Most bytes of all connections, and of those of one user.
const ALL_BYTES_MAX: usize = 256 << 20;
const USER_BYTES_MAX: usize = 32 << 20;

/// Who has how much of it.
#[derive(Debug, Default)]
pub(super) struct Budget {
    all: usize,
    users: HashMap<u32, usize>,
}

impl Budget {
    /// A connection of this user (`None`: not known yet) has `after` bytes now, and had `before`.
    pub(super) fn change(&mut self, user: Option<u32>, before: usize, after: usize) {
        if before == after {
            return;
        }
        self.all = self.all - before + after;
        let Some(user) = user else { return };
        let used = self.users.entry(user).or_default();
        *used = *used - before + after;
        if *used == 0 {
            self.users.remove(&user);
        }
    }

    /// Whether so many bytes more would be too many.
    pub(super) fn is_short_of(&self, user: Option<u32>, bytes: usize) -> bool {
        let used = user.and_then(|user| self.users.get(&user)).copied().unwrap_or(0);
        self.all + bytes > ALL_BYTES_MAX || used + bytes > USER_BYTES_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_user_cannot_take_what_others_need() {
        let mut budget = Budget::default();
        budget.change(Some(1), 0, USER_BYTES_MAX);
        assert!(budget.is_short_of(Some(1), 1) && !budget.is_short_of(Some(2), USER_BYTES_MAX));
        budget.change(Some(1), USER_BYTES_MAX, 10);
        assert!(!budget.is_short_of(Some(1), 100));
        budget.change(Some(1), 10, 0);
        assert!(budget.users.is_empty() && budget.all == 0);
        budget.change(None, 0, ALL_BYTES_MAX);
        assert!(budget.is_short_of(Some(2), 1));
    }
}
