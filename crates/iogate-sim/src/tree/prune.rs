//! Pruning a tree: what becomes a leaf, and what takes its parent's place.

use super::{Example, Node, counts, errors_of_leaf, most_frequent};

/// Weka's tolerances: of two that are this close the smaller tree wins.
const SAME_ERRORS: f64 = 1e-3;
const SAME_ESTIMATE: f64 = 0.1;

/// Makes leaves of what errs no less than a leaf on the examples themselves.
pub(super) fn collapse(node: &mut Node, examples: &[&Example]) {
    let errors = errors_of(node, examples);
    if errors as f64 >= errors_of_leaf(examples) as f64 - SAME_ERRORS {
        node.ask = None;
    }
    if let Some((question, children)) = &mut node.ask {
        for (child, share) in children.iter_mut().zip(question.share(examples)) {
            collapse(child, &share);
        }
    }
}

fn errors_of(node: &Node, examples: &[&Example]) -> usize {
    match &node.ask {
        None => errors_of_leaf(examples),
        Some((question, children)) => {
            let shares = question.share(examples);
            children.iter().zip(shares).map(|(child, share)| errors_of(child, &share)).sum()
        }
    }
}

/// Makes leaves of what would err no less than a leaf on examples to come, or puts its largest branch there. From below.
pub(super) fn prune(node: &mut Node, examples: &[&Example], confidence: f64) {
    let Some((question, children)) = &mut node.ask else { return };
    let shares = question.share(examples);
    for (child, share) in children.iter_mut().zip(&shares) {
        prune(child, share, confidence);
    }
    let mut largest = 0;
    for (index, share) in shares.iter().enumerate() {
        if share.len() > shares[largest].len() {
            largest = index;
        }
    }
    let raised = estimate(&children[largest], examples, confidence);
    let whole: f64 =
        children.iter().zip(&shares).map(|(child, share)| estimate(child, share, confidence)).sum();
    let leaf = estimate_of_leaf(examples, confidence);
    if leaf <= whole + SAME_ESTIMATE && leaf <= raised + SAME_ESTIMATE {
        node.ask = None;
    } else if raised <= whole + SAME_ESTIMATE {
        *node = children.swap_remove(largest);
        again(node, examples, node.class);
        prune(node, examples, confidence);
    }
}

/// Says anew which classes are the most frequent, after a branch has got the examples of others.
fn again(node: &mut Node, examples: &[&Example], of_parent: usize) {
    node.class = if examples.is_empty() { of_parent } else { most_frequent(&counts(examples)) };
    if let Some((question, children)) = &mut node.ask {
        for (child, share) in children.iter_mut().zip(question.share(examples)) {
            again(child, &share, node.class);
        }
    }
}

/// How many of as many examples to come a subtree would get wrong, at worst with this confidence.
fn estimate(node: &Node, examples: &[&Example], confidence: f64) -> f64 {
    match &node.ask {
        None => estimate_of_leaf(examples, confidence),
        Some((question, children)) => {
            let shares = question.share(examples);
            children.iter().zip(shares).map(|(child, share)| estimate(child, &share, confidence)).sum()
        }
    }
}

fn estimate_of_leaf(examples: &[&Example], confidence: f64) -> f64 {
    let errors = errors_of_leaf(examples);
    errors as f64 + errors_to_add(examples.len() as f64, errors as f64, confidence)
}

/// C4.5's pessimism: the upper limit of a binomial distribution, less what was seen.
fn errors_to_add(examples: f64, errors: f64, confidence: f64) -> f64 {
    if examples == 0.0 || confidence >= 0.5 {
        return 0.0;
    }
    if errors == 0.0 {
        return examples * (1.0 - confidence.powf(1.0 / examples));
    }
    if errors + 0.5 >= examples {
        return (examples - errors).max(0.0);
    }
    let z = normal_quantile(1.0 - confidence);
    let rate = (errors + 0.5) / examples;
    let spread = (rate / examples - rate * rate / examples + z * z / (4.0 * examples * examples)).sqrt();
    let limit = (rate + z * z / (2.0 * examples) + z * spread) / (1.0 + z * z / examples);
    limit * examples - errors
}

/// Where a standard normal distribution has this probability below, for 0.5 and more (Abramowitz and Stegun 26.2.23, to 4.5e-4).
fn normal_quantile(probability: f64) -> f64 {
    let t = (-2.0 * (1.0 - probability).ln()).sqrt();
    t - (2.515_517 + t * (0.802_853 + t * 0.010_328))
        / (1.0 + t * (1.432_788 + t * (0.189_269 + t * 0.001_308)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pessimism_is_that_of_the_book() {
        // Quinlan, chapter 4: no errors in 6, 9 and 1 examples are 0.206, 0.143 and 0.750 of them.
        for (examples, rate) in [(6.0, 0.206), (9.0, 0.143), (1.0, 0.750)] {
            let found = errors_to_add(examples, 0.0, 0.25) / examples;
            assert!((found - rate).abs() < 1e-3, "{examples}: {found}");
        }
        // One error in 16 is 0.157 of them by the book's exact limit, which the approximation is near to.
        let found = (1.0 + errors_to_add(16.0, 1.0, 0.25)) / 16.0;
        assert!((found - 0.157).abs() < 0.01, "{found}");
        assert_eq!(errors_to_add(4.0, 4.0, 0.25), 0.0);
        assert!((normal_quantile(0.75) - 0.674_49).abs() < 5e-4);
    }
}
