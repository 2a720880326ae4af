//! Memory for claims: bounded in all, and for each user.

use alloc::format;
use alloc::string::String;

use crate::hash::HashMap;

/// Most bytes of all claims, and half of them of one user.
const BYTES_MAX: usize = 1 << 30;
/// About what a claim takes, and each of its targets.
const CLAIM_BYTES: usize = 1024;
const TARGET_BYTES: usize = 100;

/// Who has how much of it.
#[derive(Debug, Default)]
pub(super) struct Quota {
    bytes: usize,
    users: HashMap<u32, Used>,
}

#[derive(Debug, Default)]
struct Used {
    claims: usize,
    bytes: usize,
}

/// About how many bytes a claim takes with these names and targets.
pub(super) fn cost(names: &[&str], targets: usize) -> u32 {
    let names: usize = names.iter().map(|name| name.len()).sum();
    u32::try_from(CLAIM_BYTES + 2 * names + TARGET_BYTES * targets).unwrap_or(u32::MAX)
}

impl Quota {
    /// Charges a claim to its user.
    pub(super) fn take(&mut self, uid: u32, cost: u32) {
        let used = self.users.entry(uid).or_default();
        used.claims += 1;
        used.bytes += cost as usize;
        self.bytes += cost as usize;
    }

    /// A claim is over.
    pub(super) fn give_back(&mut self, uid: u32, cost: u32) {
        let Some(used) = self.users.get_mut(&uid) else { return };
        used.claims -= 1;
        used.bytes -= cost as usize;
        self.bytes -= cost as usize;
        if used.claims == 0 {
            self.users.remove(&uid);
        }
    }

    /// Why a user can have no such claim just now, if that is so; `claims_max` is for all users.
    pub(super) fn refuses(&self, uid: u32, cost: u32, claims_max: usize) -> Option<String> {
        let none = Used::default();
        let used = self.users.get(&uid).unwrap_or(&none);
        let most = claims_max.div_ceil(2);
        if used.claims >= most {
            return Some(format!(
                "user {uid} has {most} claims, which is its limit, half of `claims_max`: try again later"
            ));
        }
        let cost = cost as usize;
        if used.bytes + cost > BYTES_MAX / 2 || self.bytes + cost > BYTES_MAX {
            return Some("the claims that there are take all the memory for claims: try again later".into());
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_user_leaves_room_for_others() {
        let mut quota = Quota::default();
        for _ in 0..5 {
            assert_eq!(quota.refuses(1, 10, 10), None);
            quota.take(1, 10);
        }
        assert!(quota.refuses(1, 10, 10).unwrap().contains("user 1 has 5 claims"));
        assert_eq!(quota.refuses(2, 10, 10), None);
        quota.give_back(1, 10);
        assert_eq!(quota.refuses(1, 10, 10), None);
        let huge = (BYTES_MAX / 2) as u32;
        assert!(quota.refuses(1, huge, 10).unwrap().contains("memory"));
        quota.take(3, huge);
        assert!(quota.refuses(3, 1, 10).is_some() && quota.refuses(2, 1, 10).is_none());
        assert!(cost(&["scratch", "job"], 4096) > 400_000);
    }
}
