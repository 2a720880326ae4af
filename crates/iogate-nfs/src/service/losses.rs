//! Write-backs that failed, kept over a kill. The kernel tells of each once: to whoever syncs first. The clients with writes to the same
//! file are told by its verifier, which therefore must not become again what it was when the server is started anew.
//!
//! Each is noted beside the answers as soon as a sync has failed, and before that is answered. A kill in between is not covered.

use std::sync::Arc;

use iogate_core::answers::{Key, State};
use iogate_core::wire::Identity;
use iogate_vfs::answers::{Answers, ToNote};
use iogate_vfs::held::HeldTree;

/// In place of a client: no address has it, as it is neither of version 4 nor one that is routed.
const NOBODY: [u8; 16] = [0xff; 16];

fn key(inode: u64) -> Key {
    Key { uid: 0, client: NOBODY, number: inode, step: 0 }
}

/// A sync of a file has failed.
pub(super) fn note<T: HeldTree>(tree: &T, answers: &Arc<Answers>, identity: Identity) {
    let Identity { inode, generation } = identity;
    let bytes = [generation.to_le_bytes(), tree.losses(identity).to_le_bytes()].concat();
    if let Err(error) = answers.remember(&[ToNote { key: key(inode), below: 0, state: State::Value, bytes }])
    {
        tracing::warn!(%error, inode, "after a kill of this server, clients are not told that their writes are lost");
    }
}

/// Tells a tree what the processes before have noted since the machine was booted.
pub(super) fn restore<T: HeldTree>(tree: &T, answers: &Answers) {
    for (key, bytes) in answers.values().iter().filter(|(key, _)| key.client == NOBODY) {
        let number = |at: usize| bytes.get(at..)?.first_chunk().map(|bytes| u64::from_le_bytes(*bytes));
        if let (Some(generation), Some(count)) = (number(0), number(8)) {
            tree.restore_losses(Identity { inode: key.number, generation }, count);
        }
    }
}
