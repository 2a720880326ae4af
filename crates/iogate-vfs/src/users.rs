//! Whose ids a client's are on this machine: squashed to an anonymous user, mapped by ranges, or the same.

use iogate_core::wire::{Attr, Change, set};

use crate::{Caller, Groups};

/// The id that a client sees for one that it has none for, as in Linux.
const OVERFLOW_ID: u32 = 65534;

/// Which callers act as the anonymous user.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Squash {
    /// None.
    #[default]
    None,
    /// Those with root's user or group.
    Root,
    /// All.
    All,
}

/// Ids of clients, and as many of this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdRange {
    /// The client's first.
    pub client: u32,
    /// This machine's first.
    pub server: u32,
    /// How many; not zero.
    pub count: u32,
}

/// Why ranges are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RangeError {
    /// A range without ids, or beyond them.
    #[error(
        "expected a range of at least one id, all below 4294967295; found {} ids from {} (client) to {} (server)",
        .range.count, .range.client, .range.server
    )]
    NotIds {
        /// The range.
        range: IdRange,
    },
    /// Two ranges that share an id.
    #[error(
        "expected ranges that share no id, on either side; found {} ids from {} to {} and {} from {} to {}: narrow one",
        .one.count, .one.client, .one.server, .other.count, .other.client, .other.server
    )]
    Overlap {
        /// A range.
        one: IdRange,
        /// One that shares an id with it.
        other: IdRange,
    },
}

/// The users of an export: whom its callers are taken for.
///
/// Without ranges, ids are the same at both ends. With ranges, an id that is in none of them is the anonymous user's here, and the
/// overflow id (65534) there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Users {
    squash: Squash,
    anonymous: Caller,
    users: Vec<IdRange>,
    groups: Vec<IdRange>,
}

impl Default for Users {
    fn default() -> Users {
        let anonymous = Caller::new(OVERFLOW_ID, OVERFLOW_ID);
        Users { squash: Squash::None, anonymous, users: Vec::new(), groups: Vec::new() }
    }
}

impl Users {
    /// Squashes first, to `anonymous` (ids of this machine), then maps. Fails if ranges are empty, too long, or
    /// overlap.
    pub fn new(
        squash: Squash,
        anonymous: Caller,
        users: Vec<IdRange>,
        groups: Vec<IdRange>,
    ) -> Result<Users, RangeError> {
        check(&users)?;
        check(&groups)?;
        Ok(Users { squash, anonymous, users, groups })
    }

    /// Whom a client's caller is taken for here.
    pub fn server(&self, caller: Caller) -> Caller {
        let is_squashed = |id| match self.squash {
            Squash::None => false,
            Squash::Root => id == 0,
            Squash::All => true,
        };
        let uid = if is_squashed(caller.uid) { None } else { to_server(&self.users, caller.uid) };
        let gid = if is_squashed(caller.gid) || is_squashed(caller.uid) {
            None
        } else {
            to_server(&self.groups, caller.gid)
        };
        // A user who is not known here is not a member of groups that are.
        let Some(uid) = uid else { return self.anonymous };
        let groups = match caller.groups.list() {
            Some(list) => {
                let known =
                    |&group: &u32| if is_squashed(group) { None } else { to_server(&self.groups, group) };
                Groups::of(list.iter().filter_map(known))
            }
            None => Groups::UNKNOWN,
        };
        Caller { groups, ..Caller::new(uid, gid.unwrap_or(self.anonymous.gid)) }
    }

    /// Whether no caller may be root, nor of root's group.
    pub fn squashes_root(&self) -> bool {
        self.squash != Squash::None
    }

    /// A change with the ids of this machine. `None` if it sets an owner that is not known here (`EINVAL`).
    pub fn server_change(&self, change: &Change) -> Option<Change> {
        let mut change = *change;
        if change.which & set::UID != 0 {
            change.uid = to_server(&self.users, change.uid)?;
        }
        if change.which & set::GID != 0 {
            change.gid = to_server(&self.groups, change.gid)?;
        }
        Some(change)
    }

    /// Attributes with the ids of the client.
    pub fn client_attr(&self, attr: &mut Attr) {
        attr.uid = to_client(&self.users, attr.uid);
        attr.gid = to_client(&self.groups, attr.gid);
    }
}

fn check(ranges: &[IdRange]) -> Result<(), RangeError> {
    for (index, &range) in ranges.iter().enumerate() {
        // The last id means to leave an id as it is.
        let fits = |first: u32| first.checked_add(range.count).is_some();
        if range.count == 0 || !fits(range.client) || !fits(range.server) {
            return Err(RangeError::NotIds { range });
        }
        let overlap =
            |one: u32, ones: u32, other: u32, others: u32| one < other + others && other < one + ones;
        for &one in &ranges[..index] {
            if overlap(one.client, one.count, range.client, range.count)
                || overlap(one.server, one.count, range.server, range.count)
            {
                return Err(RangeError::Overlap { one, other: range });
            }
        }
    }
    Ok(())
}

fn to_server(ranges: &[IdRange], id: u32) -> Option<u32> {
    if ranges.is_empty() {
        return Some(id);
    }
    let inside = |range: &IdRange| id.checked_sub(range.client).filter(|&at| at < range.count);
    ranges.iter().find_map(|range| Some(range.server + inside(range)?))
}

fn to_client(ranges: &[IdRange], id: u32) -> u32 {
    if ranges.is_empty() {
        return id;
    }
    let inside = |range: &IdRange| id.checked_sub(range.server).filter(|&at| at < range.count);
    ranges.iter().find_map(|range| Some(range.client + inside(range)?)).unwrap_or(OVERFLOW_ID)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANONYMOUS: Caller = Caller::new(99, 98);

    fn caller(uid: u32, gid: u32) -> Caller {
        Caller::new(uid, gid)
    }

    fn range(client: u32, server: u32, count: u32) -> IdRange {
        IdRange { client, server, count }
    }

    #[test]
    fn who_is_squashed() {
        let users = |squash| Users::new(squash, ANONYMOUS, vec![], vec![]).unwrap();
        for (squash, from, to) in [
            (Squash::None, caller(0, 0), caller(0, 0)),
            (Squash::None, caller(5, 6), caller(5, 6)),
            (Squash::Root, caller(0, 0), ANONYMOUS),
            (Squash::Root, caller(0, 6), ANONYMOUS),
            (Squash::Root, caller(5, 0), caller(5, 98)),
            (Squash::Root, caller(5, 6), caller(5, 6)),
            (Squash::All, caller(5, 6), ANONYMOUS),
            (Squash::All, caller(0, 0), ANONYMOUS),
        ] {
            assert_eq!(users(squash).server(from), to, "{squash:?} {from:?}");
        }
        assert_eq!(Users::default().server(caller(0, 7)), caller(0, 7));
    }

    #[test]
    fn ranges_map_forth_and_back_and_nothing_else_does() {
        let users = Users::new(
            Squash::None,
            ANONYMOUS,
            vec![range(1000, 5000, 10), range(0, 100, 1)],
            vec![range(1000, 7000, 10)],
        )
        .unwrap();
        assert_eq!(users.server(caller(1009, 1000)), caller(5009, 7000));
        assert_eq!(users.server(caller(0, 1001)), caller(100, 7001));
        // An id that somebody else is mapped to is not a way to become that user.
        assert_eq!(users.server(caller(5000, 1000)), ANONYMOUS);
        assert_eq!(users.server(caller(1010, 1000)), ANONYMOUS);
        assert_eq!(users.server(caller(1000, 0)), caller(5000, 98));
        let seen = |uid, gid| {
            let mut attr = Attr { uid, gid, ..Attr::default() };
            users.client_attr(&mut attr);
            (attr.uid, attr.gid)
        };
        assert_eq!(seen(5009, 7001), (1009, 1001));
        assert_eq!(seen(1000, 0), (65534, 65534));
        assert_eq!(seen(100, 7009), (0, 1009));
        let change = Change { which: set::UID, uid: 1001, gid: 55, ..Change::default() };
        assert_eq!(users.server_change(&change), Some(Change { uid: 5001, ..change }));
        assert_eq!(users.server_change(&Change { uid: 5001, ..change }), None);
        assert_eq!(users.server_change(&Change { which: set::GID, ..change }), None);
        assert_eq!(users.server_change(&Change { which: set::MODE, ..change }).unwrap().gid, 55);
    }

    #[test]
    fn ranges_that_say_two_things_are_refused() {
        let new = |ranges| Users::new(Squash::None, ANONYMOUS, ranges, vec![]);
        for ranges in [
            vec![range(0, 0, 0)],
            vec![range(u32::MAX, 0, 1)],
            vec![range(0, u32::MAX - 1, 2)],
            vec![range(0, 0, 10), range(9, 100, 1)],
            vec![range(100, 9, 1), range(0, 0, 10)],
        ] {
            assert!(new(ranges.clone()).is_err(), "{ranges:?}");
        }
        let error = new(vec![range(1, 2, 3), range(4, 4, 1)]).unwrap_err().to_string();
        assert!(error.contains("3 ids from 1 to 2 and 1 from 4 to 4"), "{error}");
        assert!(new(vec![range(0, 10, 10), range(10, 0, 10)]).is_ok());
    }
}
