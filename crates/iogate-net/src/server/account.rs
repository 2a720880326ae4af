//! What one user has at one export, over all sessions: of what is shared, no more than it leaves to others.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use iogate_core::fair_queue::may_take;

use super::buffer::Share;
use super::{Shared, lock};

/// What a user has at an export.
#[derive(Debug)]
pub(super) struct Account {
    /// Its number in [`Shared::starved`].
    pub(super) key: (usize, u32),
    pub(super) memory: Arc<Share>,
    open_files: AtomicUsize,
}

/// The accounts that are in use.
pub(super) type Accounts = HashMap<(usize, u32), Weak<Account>>;

/// Accounts of nobody are forgotten when there are so many.
const ACCOUNTS_KEPT: usize = 64;

impl Shared {
    /// The account of a user at an export.
    pub(super) fn account(&self, export: usize, uid: u32) -> Arc<Account> {
        let key = (export, uid);
        let mut accounts = lock(&self.accounts);
        if let Some(account) = accounts.get(&key).and_then(Weak::upgrade) {
            return account;
        }
        if accounts.len() >= ACCOUNTS_KEPT {
            accounts.retain(|_, account| account.strong_count() > 0);
        }
        let account = Arc::new(Account { key, memory: Arc::default(), open_files: AtomicUsize::new(0) });
        accounts.insert(key, Arc::downgrade(&account));
        account
    }

    /// Counts a file that is to be opened. Returns whether it may be.
    pub(super) fn may_open(&self, account: &Account) -> bool {
        let own = account.open_files.load(Ordering::SeqCst);
        let most = self.limits.open_files;
        let fits = |used| may_take(own, used, most, 1).then_some(used + 1);
        let counted = self.open_files.fetch_update(Ordering::SeqCst, Ordering::SeqCst, fits).is_ok();
        if counted {
            account.open_files.fetch_add(1, Ordering::SeqCst);
        }
        counted
    }

    /// Counts files that are closed.
    pub(super) fn count_closed(&self, account: &Account, files: usize) {
        account.open_files.fetch_sub(files, Ordering::SeqCst);
        self.open_files.fetch_sub(files, Ordering::SeqCst);
    }
}
