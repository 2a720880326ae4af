//! What a client may compare a file's attributes with: those before a change, taken in the order of the changes.
//!
//! A client that finds in `before` what it has goes on believing its cache. So `before` of a change is what `after` of the change
//! before it was, as long as changes overlap, and what the file system says when one comes alone: who has seen another change than its
//! own finds out. What a program of the server's machine changes while a call is underway counts as the call's.

use std::collections::HashMap;
use std::sync::Mutex;

use iogate_core::wire::Identity;
use iogate_engine::lock;

use crate::wire::{Fattr, Wcc, WccAttr};

const SHARDS: usize = 16;

#[derive(Debug)]
struct Changing {
    underway: u32,
    last: Option<WccAttr>,
}

/// The files that are being changed.
#[derive(Debug, Default)]
pub(super) struct Order {
    shards: [Mutex<HashMap<Identity, Changing>>; SHARDS],
}

impl Order {
    fn shard(&self, identity: Identity) -> &Mutex<HashMap<Identity, Changing>> {
        &self.shards[(identity.inode as usize).wrapping_mul(0x9e37_79b9) >> 7 & (SHARDS - 1)]
    }

    /// A change begins. `look` is asked for the attributes if no other one is underway; quickly, as others wait for it.
    pub(super) fn begin(&self, identity: Identity, look: impl FnOnce() -> Option<Fattr>) {
        let mut files = lock(self.shard(identity));
        match files.get_mut(&identity) {
            Some(changing) => changing.underway += 1,
            None => {
                let last = look().as_ref().map(WccAttr::from);
                files.insert(identity, Changing { underway: 1, last });
            }
        }
    }

    /// A change that had begun has been made, or has failed. `look` as before.
    pub(super) fn end(&self, identity: Identity, look: impl FnOnce() -> Option<Fattr>) -> Wcc {
        let mut files = lock(self.shard(identity));
        let after = look();
        let Some(changing) = files.get_mut(&identity) else { return Wcc { before: None, after } };
        let before = std::mem::replace(&mut changing.last, after.as_ref().map(WccAttr::from));
        changing.underway -= 1;
        if changing.underway == 0 {
            files.remove(&identity);
        }
        Wcc { before, after }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{Kind, Time};

    fn attr(size: u64) -> Option<Fattr> {
        let time = Time::default();
        Some(Fattr {
            kind: Kind::Regular,
            mode: 0,
            links: 1,
            uid: 0,
            gid: 0,
            size,
            used: 0,
            major: 0,
            minor: 0,
            fsid: 0,
            fileid: 1,
            atime: time,
            mtime: time,
            ctime: time,
        })
    }

    #[test]
    fn each_change_begins_where_the_one_before_it_ended() {
        let (order, file) = (Order::default(), Identity { inode: 1, generation: 2 });
        let sizes = |wcc: Wcc| (wcc.before.map(|before| before.size), wcc.after.map(|after| after.size));
        order.begin(file, || attr(10));
        order.begin(file, || panic!("it is known"));
        assert_eq!(sizes(order.end(file, || attr(20))), (Some(10), Some(20)));
        order.begin(file, || panic!("it is known"));
        assert_eq!(sizes(order.end(file, || None)), (Some(20), None));
        assert_eq!(sizes(order.end(file, || attr(40))), (None, Some(40)), "nothing is made up");
        order.begin(file, || attr(50));
        assert_eq!(sizes(order.end(file, || attr(60))), (Some(50), Some(60)));
        assert!(order.shards.iter().all(|shard| lock(shard).is_empty()));
    }
}
