//! What is chosen before anything can be simulated: by a small tree that was learnt from many random situations.
//!
//! A window must be long enough to be simulated; what is over before that gains nothing. So after the first completions
//! ([`Limits::EARLY`](super::ring::Limits::EARLY)), with `fifo` until then, [`Traits`] of the load and of the storage lead to a leaf of
//! the tree, which names a scheduler. From then on windows are simulated and judged as ever, and what was chosen here is left like
//! anything else.
//!
//! It is only for storage whose prices are known. `iogate train` makes `table` again, byte for byte;
//! `docs/explanation/choosing.md` tells how good it is.

mod table;
mod traits;

use alloc::vec::Vec;

use super::objective::Ln;

pub use traits::{Trait, Traits};

/// One node of a tree. Numbers of other nodes are places in the list of all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Node {
    /// Asks for a trait: goes on to `then` where it is less than `below`, else to `or`.
    Split {
        /// Which trait.
        by: Trait,
        /// The least value that goes on to `or`.
        below: u64,
        /// The node where it is less.
        then: u16,
        /// The node where it is not.
        or: u16,
    },
    /// Chooses.
    Leaf {
        /// The place of a candidate among [`Candidates::every`](super::Candidates::every).
        candidate: u16,
        /// How much faster than `fifo` it was in the situations of this leaf: the mean logarithm of the ratio of times.
        gain: Ln,
    },
}

/// A tree that says what to begin with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prior(Vec<Node>);

impl Prior {
    /// The one that is committed.
    pub fn committed() -> Prior {
        Prior(table::NODES.to_vec())
    }

    /// One with these nodes, the first of which is asked first. Each may only go on to nodes behind it.
    ///
    /// # Panics
    /// If a node goes on to one that is not there, or not behind it.
    pub fn new(nodes: Vec<Node>) -> Prior {
        for (place, node) in nodes.iter().enumerate() {
            if let Node::Split { then, or, .. } = node {
                let fits = |next: u16| usize::from(next) > place && usize::from(next) < nodes.len();
                assert!(fits(*then) && fits(*or), "node {place} of a prior goes on to {then} and {or}");
            }
        }
        Prior(nodes)
    }

    /// One that always chooses the candidate at this place, and expects nothing of it.
    pub fn always(candidate: u16) -> Prior {
        Prior(alloc::vec![Node::Leaf { candidate, gain: 0 }])
    }

    /// Its nodes.
    pub fn nodes(&self) -> &[Node] {
        &self.0
    }

    /// The place of the candidate to begin with, and the gain that is expected of it; `fifo` without nodes.
    pub fn choose(&self, traits: &Traits) -> (usize, Ln) {
        let mut place = 0;
        loop {
            match self.0.get(place) {
                Some(Node::Split { by, below, then, or }) => {
                    place = usize::from(if traits.get(*by) < *below { *then } else { *or });
                }
                Some(Node::Leaf { candidate, gain }) => return (usize::from(*candidate), *gain),
                None => return (0, 0),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Candidates;
    use super::*;

    #[test]
    fn a_tree_is_asked_from_its_root() {
        let split = |by, below, then, or| Node::Split { by, below, then, or };
        let leaf = |candidate| Node::Leaf { candidate, gain: Ln::from(candidate) };
        let tree = Prior::new(alloc::vec![
            split(Trait::Reads, 500, 1, 2),
            leaf(3),
            split(Trait::Jump, 2_000, 3, 4),
            leaf(4),
            leaf(5),
        ]);
        let with = |reads, jump| {
            let mut traits = Traits::default();
            traits.set(Trait::Reads, reads);
            traits.set(Trait::Jump, jump);
            tree.choose(&traits)
        };
        assert_eq!([with(499, 9_000), with(500, 1_999), with(1_000, 2_000)], [(3, 3), (4, 4), (5, 5)]);
        assert_eq!(Prior::new(Vec::new()).choose(&Traits::default()), (0, 0));
        assert_eq!(Prior::always(7).choose(&Traits::default()), (7, 0));
    }

    #[test]
    #[should_panic(expected = "goes on to 0 and 1")]
    fn a_tree_without_an_end_is_refused() {
        Prior::new(alloc::vec![Node::Split { by: Trait::Reads, below: 1, then: 0, or: 1 }]);
    }

    #[test]
    fn the_committed_tree_chooses_among_the_candidates() {
        let tree = Prior::new(Prior::committed().nodes().to_vec());
        let candidates = Candidates::every().len();
        for node in tree.nodes() {
            let Node::Leaf { candidate, gain } = node else { continue };
            assert!(usize::from(*candidate) < candidates && *gain >= 0, "{node:?}");
        }
    }
}
