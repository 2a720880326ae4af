//! The headlines of the five papers, each with the claims that carry it, and the controls of what may make ours differ.

mod agios;
mod aioli;
mod checkpoint;
mod coordination;
mod twins;

use super::Headline;

/// All of them, paper by paper.
pub(super) const ALL: [&[Headline]; 5] =
    [aioli::ALL, agios::ALL, coordination::ALL, twins::ALL, checkpoint::ALL];
