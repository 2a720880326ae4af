//! The tree of [`super::Prior`], as `iogate train` has grown it from 650 situations: not to be changed by hand.

use super::{Node, Trait};

/// Its nodes; of each leaf, how many situations it had, and how many of them it harms.
#[rustfmt::skip]
pub(super) static NODES: [Node; 9] = [
    Node::Split { by: Trait::Queued, below: 3778, then: 1, or: 4 },
    Node::Split { by: Trait::Rounds, below: 181, then: 2, or: 3 },
    // 300 situations, 3 harmed: aioli(contiguous_wait=0ns,wait_max=0ns) with age_max of 500 thousandths of a wait
    Node::Leaf { candidate: 29, gain: 59716 },
    // 120 situations, 1 harmed: aioli(contiguous_wait=0ns,wait_max=0ns) with age_max of 1150 thousandths of a wait
    Node::Leaf { candidate: 26, gain: 13838 },
    Node::Split { by: Trait::Spread, below: 1611, then: 5, or: 6 },
    // 103 situations, 1 harmed: to-agg
    Node::Leaf { candidate: 1, gain: 214424 },
    Node::Split { by: Trait::Jump, below: 2017, then: 7, or: 8 },
    // 76 situations, 0 harmed: mlf(contiguous_wait=0ns,wait_max=0ns) with age_max of 950 thousandths of a wait
    Node::Leaf { candidate: 20, gain: 60671 },
    // 51 situations, 0 harmed: fifo
    Node::Leaf { candidate: 0, gain: 0 },
];
