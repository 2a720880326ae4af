//! Write-backs that failed, kept over a kill. The kernel tells of each once: to whoever syncs first. The clients with writes to the same
//! file are told by its verifier, which therefore must not become again what it was when the server is started anew.
//!
//! Each is noted beside the answers as soon as a sync has failed, and before that is answered. A kill in between is not covered.

use std::io;

use iogate_core::answers::{Key, NOBODY, State};
use iogate_core::wire::Identity;

use super::{Answers, ToNote};
use crate::TreeFile;

/// Makes a file durable; returns its verifier. If that fails it is noted first.
pub fn sync(answers: &Answers, file: &dyn TreeFile, data_only: bool) -> io::Result<u64> {
    file.sync(data_only).inspect_err(|_| note(answers, file.identity(), file.losses()))
}

/// A sync of a file has failed, of which so many losses are known by now. 0: its tree does not count them, and there is nothing to note.
pub fn note(answers: &Answers, file: Identity, count: u64) {
    if count == 0 {
        return;
    }
    let Identity { inode, generation } = file;
    let key = Key { uid: 0, client: NOBODY, number: inode, step: 0 };
    let bytes = [generation.to_le_bytes(), count.to_le_bytes()].concat();
    if let Err(error) = answers.remember(&[ToNote { key, below: 0, state: State::Value, bytes }]) {
        tracing::warn!(%error, inode, "after a kill of this server, clients are not told that their writes are lost");
    }
}

/// What the processes before have noted since the machine was booted: of which files how many losses are known.
pub fn known(answers: &Answers) -> Vec<(Identity, u64)> {
    let known = |(key, bytes): (Key, Vec<u8>)| {
        let number = |at: usize| bytes.get(at..)?.first_chunk().map(|bytes| u64::from_le_bytes(*bytes));
        Some((Identity { inode: key.number, generation: number(0)? }, number(8)?))
    };
    answers.values().into_iter().filter(|(key, _)| key.client == NOBODY).filter_map(known).collect()
}
