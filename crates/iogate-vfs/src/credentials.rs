//! In whose name, and for which request, an operation is carried out.

use std::collections::HashSet;
use std::str::FromStr;
use std::sync::{Mutex, PoisonError};

use iogate_core::wire::{GROUPS_MAX, RequestOrigin};

/// Most different lists of groups that a process keeps; further ones are looked up in the user database instead.
const LISTS_MAX: usize = 65_536;

/// The lists of groups that there are. They live as long as the process: there are hardly more of them than users.
static LISTS: Mutex<Option<HashSet<&'static [u32]>>> = Mutex::new(None);

/// In whose name, and for which request, an operation is carried out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Caller {
    /// The user.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// The supplementary groups.
    pub groups: Groups,
    /// The request; [`RequestOrigin::NONE`] if nobody would ask again.
    pub origin: RequestOrigin,
}

impl Caller {
    /// Who has no rights but those of others.
    pub const NOBODY: Caller = Caller::new(65534, 65534);

    /// A user with a group, whose supplementary groups are looked up, and no request.
    pub const fn new(uid: u32, gid: u32) -> Caller {
        Caller { uid, gid, groups: Groups::UNKNOWN, origin: RequestOrigin::NONE }
    }

    /// The same user, for no request.
    pub const fn user(self) -> Caller {
        Caller { origin: RequestOrigin::NONE, ..self }
    }

    /// The same user, for a request.
    pub const fn with_origin(self, origin: RequestOrigin) -> Caller {
        Caller { origin, ..self }
    }
}

/// What is not a user and a group.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected UID:GID, two numbers as in 1000:1000, found `{0}`")]
pub struct CallerError(String);

/// `UID:GID`.
impl FromStr for Caller {
    type Err = CallerError;

    fn from_str(text: &str) -> Result<Caller, CallerError> {
        // All ones is `-1`, which system calls take as "leave it".
        let number = |text: &str| text.parse().ok().filter(|&id| id != u32::MAX);
        let (uid, gid) = text.split_once(':').ok_or_else(|| CallerError(text.into()))?;
        match (number(uid), number(gid)) {
            (Some(uid), Some(gid)) => Ok(Caller::new(uid, gid)),
            _ => Err(CallerError(text.into())),
        }
    }
}

/// Supplementary groups, as the process has them that asks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Groups(Option<&'static [u32]>);

impl Groups {
    /// Not known: they are looked up in the user database of the machine that acts.
    pub const UNKNOWN: Groups = Groups(None);

    /// These groups, in any order. [`Groups::UNKNOWN`] if they are more than [`GROUPS_MAX`].
    pub fn of(groups: impl IntoIterator<Item = u32>) -> Groups {
        let mut list: Vec<u32> = groups.into_iter().take(GROUPS_MAX + 1).collect();
        if list.len() > GROUPS_MAX {
            return Groups::UNKNOWN;
        }
        list.sort_unstable();
        list.dedup();
        let mut lists = LISTS.lock().unwrap_or_else(PoisonError::into_inner);
        let lists = lists.get_or_insert_default();
        if let Some(known) = lists.get(&*list) {
            return Groups(Some(known));
        }
        if lists.len() >= LISTS_MAX {
            return Groups::UNKNOWN;
        }
        let kept: &'static [u32] = Vec::leak(list);
        lists.insert(kept);
        Groups(Some(kept))
    }

    /// The groups in ascending order; `None` if they are not known.
    pub fn list(&self) -> Option<&'static [u32]> {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_lists_are_one() {
        let (one, other) = (Groups::of([3, 1, 2, 3]), Groups::of([1, 2, 3]));
        assert_eq!(one, other);
        assert_eq!(one.list(), Some(&[1, 2, 3][..]));
        assert!(std::ptr::eq(one.list().unwrap(), other.list().unwrap()));
        assert_eq!(Groups::of([]).list(), Some(&[][..]));
        assert_eq!(Groups::of(0..=GROUPS_MAX as u32), Groups::UNKNOWN);
    }
}
