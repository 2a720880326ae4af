//! A tree that says of a situation which candidate to begin with, grown from many.
//!
//! Each node takes the split that lets its two sides gain most by one candidate each (a tree of policies, as of Athey and Wager, 2021,
//! grown greedily). A candidate may only be taken where it harms at most one in so many of the situations of a leaf. All is counted in
//! integers, and equal gains are decided by the order of traits and of values, so that the same situations give the same tree.

use iogate_core::auto::objective::Ln;
use iogate_core::auto::prior::{Node, Trait};
use iogate_core::auto::{Candidates, Prior};

use super::Situation;

/// How deep a tree may be.
const DEPTH_MAX: u32 = 5;
/// The fewest situations of a leaf.
const LEAF_MIN: usize = 40;
/// Of so many situations of a leaf one may be harmed.
const HARM_PART: usize = 100;
/// The least mean gain, over the situations of a node, for which it is split.
const SPLIT_MIN: Ln = 1_000;
/// The least mean gain for which a leaf leaves `fifo`.
const GAIN_MIN: Ln = 10_000;
/// The most values of a trait that are tried.
const VALUES_MAX: usize = 32;

/// A tree, and what its leaves have gained.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grown {
    /// The tree.
    pub prior: Prior,
    /// Of each node that is a leaf, by its place: situations, and how many of them it harms.
    pub leaves: Vec<(usize, usize, usize)>,
}

/// Grows a tree from situations.
pub fn grow(situations: &[&Situation]) -> Grown {
    let mut growing = Growing { nodes: Vec::new(), leaves: Vec::new() };
    growing.node(situations.to_vec(), 0);
    Grown { prior: Prior::new(growing.nodes), leaves: growing.leaves }
}

struct Growing {
    nodes: Vec<Node>,
    leaves: Vec<(usize, usize, usize)>,
}

/// The candidate that gains most, the sum of that, and how many it harms.
fn best(situations: &[&Situation]) -> (usize, Ln, usize) {
    let mut best = (0, 0, 0);
    for candidate in 1..Candidates::every().len() {
        let outcomes = || situations.iter().map(|of| of.outcomes[candidate]);
        let gain = outcomes().map(|of| of.gain).sum::<Ln>();
        let harmed = outcomes().filter(|of| of.harms).count();
        let is_enough = gain > best.1.max(GAIN_MIN * situations.len() as Ln);
        if is_enough && harmed * HARM_PART <= situations.len() {
            best = (candidate, gain, harmed);
        }
    }
    best
}

impl Growing {
    fn node(&mut self, situations: Vec<&Situation>, depth: u32) -> u16 {
        let place = self.nodes.len();
        let (candidate, gain, harmed) = best(&situations);
        let mean = gain / (situations.len() as Ln).max(1);
        self.nodes.push(Node::Leaf { candidate: candidate as u16, gain: mean });
        let split = (depth < DEPTH_MAX).then(|| split(&situations, gain)).flatten();
        let Some((by, below)) = split else {
            self.leaves.push((place, situations.len(), harmed));
            return place as u16;
        };
        let (less, more) = situations.into_iter().partition(|of| of.traits.get(by) < below);
        let then = self.node(less, depth + 1);
        let or = self.node(more, depth + 1);
        self.nodes[place] = Node::Split { by, below, then, or };
        place as u16
    }
}

/// The split that gains most beyond `gain`, if it is enough.
fn split(situations: &[&Situation], gain: Ln) -> Option<(Trait, u64)> {
    let mut best_split = None;
    let mut most = gain + SPLIT_MIN * situations.len() as Ln;
    for by in Trait::ALL {
        let mut sorted = situations.to_vec();
        sorted.sort_by_key(|of| of.traits.get(by));
        let step = (sorted.len() / VALUES_MAX).max(1);
        for at in (LEAF_MIN..(sorted.len() + 1).saturating_sub(LEAF_MIN)).step_by(step) {
            let below = sorted[at].traits.get(by);
            // Equal values are not told apart.
            let at = sorted.partition_point(|of| of.traits.get(by) < below);
            if at < LEAF_MIN {
                continue;
            }
            let sum = best(&sorted[..at]).1 + best(&sorted[at..]).1;
            if sum > most {
                (most, best_split) = (sum, Some((by, below)));
            }
        }
    }
    best_split
}

#[cfg(test)]
mod tests {
    use iogate_core::auto::prior::Traits;

    use super::super::Outcome;
    use super::*;

    /// `count` situations with so many applications, in which one candidate gains, and one gains more but harms one in so many.
    fn situations(apps: u64, candidate: usize, harm_part: u64, count: u64) -> Vec<Situation> {
        let one = |number: u64| {
            let mut traits = Traits::default();
            traits.set(Trait::Apps, apps);
            traits.set(Trait::Reads, number * 7 % 1_000);
            let mut outcomes = vec![Outcome::default(); Candidates::every().len()];
            outcomes[candidate].gain = 200_000;
            outcomes[candidate + 1] = Outcome { gain: 300_000, harms: number.is_multiple_of(harm_part) };
            Situation { number, storage: "disk".into(), traits, outcomes }
        };
        (0..count).map(one).collect()
    }

    #[test]
    fn a_tree_tells_situations_apart_and_harms_few() {
        // With one application candidate 3 is best, as 4 harms one in ten; with three, 7 is, as it harms one in a hundred.
        let all = [situations(1, 3, 10, 200), situations(3, 6, 100, 200)].concat();
        let grown = grow(&all.iter().collect::<Vec<_>>());
        let with = |apps| {
            let mut traits = Traits::default();
            traits.set(Trait::Apps, apps);
            grown.prior.choose(&traits)
        };
        assert_eq!((with(1), with(3)), ((3, 200_000), (7, 300_000)), "{grown:?}");
        let harmed: usize = grown.leaves.iter().map(|of| of.2).sum();
        assert_eq!(harmed, 2);
    }

    #[test]
    fn where_nothing_can_be_told_apart_nothing_is() {
        assert_eq!(grow(&[]).prior, Prior::always(0));
        // Too few to be split.
        let all = [situations(1, 3, 1, 30), situations(3, 6, 1, 30)].concat();
        assert_eq!(grow(&all.iter().collect::<Vec<_>>()).prior.nodes().len(), 1);
    }
}
