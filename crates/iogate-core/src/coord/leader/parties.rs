//! The numbers that a table has for parties: one for each name of each user.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;

/// Parties without a claim that keep their numbers, by which a table remembers them; those that had one last.
const IDLE_MAX: usize = 4096;

type Name = (u32, Arc<str>);

/// Parties by name and by number. A number is given once.
#[derive(Debug, Default)]
pub(super) struct Parties {
    by_name: BTreeMap<Name, u64>,
    by_number: BTreeMap<u64, Party>,
    /// Those without a claim, by when they have lost the last one.
    idle: BTreeSet<(u64, u64)>,
    last: u64,
    clock: u64,
}

#[derive(Debug)]
struct Party {
    name: Name,
    claims: usize,
    /// When it has lost its last claim.
    idle: u64,
}

impl Parties {
    /// The number of a user's party, which gets one more claim; 0 without a name.
    pub(super) fn enter(&mut self, uid: u32, name: &str) -> u64 {
        if name.is_empty() {
            return 0;
        }
        let name = (uid, Arc::from(name));
        if let Some(&number) = self.by_name.get(&name) {
            if let Some(party) = self.by_number.get_mut(&number) {
                self.idle.remove(&(party.idle, number));
                party.claims += 1;
            }
            return number;
        }
        self.last += 1;
        self.by_name.insert(name.clone(), self.last);
        self.by_number.insert(self.last, Party { name, claims: 1, idle: 0 });
        self.last
    }

    /// A party has one claim less.
    pub(super) fn leave(&mut self, number: u64) {
        let Some(party) = self.by_number.get_mut(&number) else { return };
        party.claims -= 1;
        if party.claims > 0 {
            return;
        }
        self.clock += 1;
        party.idle = self.clock;
        self.idle.insert((self.clock, number));
        if self.idle.len() > IDLE_MAX
            && let Some((_, oldest)) = self.idle.pop_first()
            && let Some(party) = self.by_number.remove(&oldest)
        {
            self.by_name.remove(&party.name);
        }
    }

    /// What a party is called.
    pub(super) fn name(&self, number: u64) -> &str {
        self.by_number.get(&number).map_or("", |party| &*party.name.1)
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;

    #[test]
    fn a_name_is_one_party_of_each_user_for_as_long_as_it_is_remembered() {
        let mut parties = Parties::default();
        assert_eq!(parties.enter(1, ""), 0);
        let (one, two) = (parties.enter(1, "job"), parties.enter(2, "job"));
        assert!(one != two && one != 0 && two != 0);
        assert_eq!(parties.enter(1, "job"), one);
        parties.leave(one);
        parties.leave(one);
        assert_eq!((parties.enter(1, "job"), parties.name(one)), (one, "job"), "it is remembered");
        parties.leave(one);
        for number in 0..IDLE_MAX {
            let other = parties.enter(3, &number.to_string());
            parties.leave(other);
        }
        assert_eq!(parties.by_number.len(), IDLE_MAX + 1);
        assert!(parties.enter(1, "job") > one, "a number is not given twice");
        assert_eq!(parties.enter(2, "job"), two, "it has had a claim all the time");
    }
}
