//! How good a tree is on examples that it was not learnt from.

use super::{Example, Feature, Options, Tree};
use crate::rng::Rng;

/// For each example the class that a tree gives it which was learnt without the examples of its group.
///
/// Groups by [`folds`] are cross-validation; groups of what belongs together show what is learnt of something new.
pub fn predict_held_out(
    features: &[Feature],
    examples: &[Example],
    groups: &[usize],
    options: &Options,
) -> Vec<usize> {
    let mut predicted = vec![0; examples.len()];
    let count = groups.iter().max().map_or(0, |last| last + 1);
    for group in 0..count {
        let of = |inside: bool| (0..examples.len()).filter(move |&index| (groups[index] == group) == inside);
        let training: Vec<&Example> = of(false).map(|index| &examples[index]).collect();
        let tree = Tree::learn(features, &training, options);
        for index in of(true) {
            predicted[index] = tree.classify(&examples[index].values);
        }
    }
    predicted
}

/// Deals examples out to `count` groups at random, so that each has its share of every class.
pub fn folds(examples: &[Example], count: usize, seed: u64) -> Vec<usize> {
    let mut order: Vec<usize> = (0..examples.len()).collect();
    let mut rng = Rng::new(seed, 0);
    for last in (1..order.len()).rev() {
        order.swap(last, rng.below(last as u64 + 1) as usize);
    }
    order.sort_by_key(|&index| examples[index].class);
    let mut folds = vec![0; examples.len()];
    for (place, index) in order.into_iter().enumerate() {
        folds[index] = place % count.max(1);
    }
    folds
}

/// How many examples have another class than the one that was predicted.
pub fn errors(examples: &[Example], predicted: &[usize]) -> usize {
    examples.iter().zip(predicted).filter(|(example, class)| example.class != **class).count()
}
