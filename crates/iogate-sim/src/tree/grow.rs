//! Growing a tree: which question splits best.

use super::{Example, Feature, Kind, Node, Options, Question, counts, most_frequent};

/// What differs by less is the same: sums of logarithms are not exact.
const SMALL: f64 = 1e-6;

pub(super) fn grow(features: &[Feature], examples: &[&Example], options: &Options) -> Node {
    let classes = counts(examples).len();
    let of_all = Growth { features, all: examples, classes, leaf_min: options.leaf_min.max(1) };
    of_all.grow(examples, 0)
}

struct Growth<'a> {
    features: &'a [Feature],
    /// All that is learnt from: thresholds are values of these.
    all: &'a [&'a Example],
    classes: usize,
    leaf_min: usize,
}

/// A question, and what it tells.
struct Candidate {
    question: Question,
    /// Bits for each example.
    gain: f64,
    ratio: f64,
}

impl Growth<'_> {
    fn grow(&self, examples: &[&Example], of_parent: usize) -> Node {
        let counts = counts(examples);
        let class = if examples.is_empty() { of_parent } else { most_frequent(&counts) };
        let pure = counts[most_frequent(&counts)] == examples.len();
        if pure || examples.len() < 2 * self.leaf_min {
            return Node { class, ask: None };
        }
        let ask = self.best(examples).map(|question| {
            let shares = question.share(examples);
            (question, shares.iter().map(|share| self.grow(share, class)).collect())
        });
        Node { class, ask }
    }

    fn best(&self, examples: &[&Example]) -> Option<Question> {
        let candidates: Vec<Candidate> = (0..self.features.len())
            .filter_map(|feature| match self.features[feature].kind {
                Kind::Number => self.number(feature, examples),
                Kind::Category(kinds) => self.category(feature, kinds, examples),
            })
            .collect();
        let mean = candidates.iter().map(|candidate| candidate.gain).sum::<f64>() / candidates.len() as f64;
        let mut best: Option<&Candidate> = None;
        // Weka's tolerance, so that features that tell the same are all considered.
        for candidate in candidates.iter().filter(|candidate| candidate.gain >= mean - 1e-3) {
            if best.is_none_or(|best| candidate.ratio > best.ratio + SMALL) {
                best = Some(candidate);
            }
        }
        best.map(|candidate| candidate.question)
    }

    /// The best threshold of a number.
    fn number(&self, feature: usize, examples: &[&Example]) -> Option<Candidate> {
        let mut sorted = examples.to_vec();
        sorted.sort_by(|one, other| one.values[feature].total_cmp(&other.values[feature]));
        let total = sorted.len();
        // C4.5: a tenth of the mean of a class, but not above 25.
        let side_min = total.div_ceil(10 * self.classes).clamp(self.leaf_min, self.leaf_min.max(25));
        let before = entropy(&self.counts(&sorted));
        let (mut thresholds, mut best) = (0_u32, None::<(f64, usize, f64)>);
        let (mut low, mut high) = (vec![0; self.classes], self.counts(&sorted));
        for split in 1..total {
            let class = sorted[split - 1].class;
            low[class] += 1;
            high[class] -= 1;
            let (below, above) = (sorted[split - 1].values[feature], sorted[split].values[feature]);
            if below == above || split < side_min || total - split < side_min {
                continue;
            }
            thresholds += 1;
            let after =
                (split as f64 * entropy(&low) + (total - split) as f64 * entropy(&high)) / total as f64;
            let gain = before - after;
            if best.is_none_or(|(most, ..)| gain > most + SMALL) {
                best = Some((gain, split, below.midpoint(above)));
            }
        }
        let (gain, split, middle) = best?;
        let gain = gain - f64::from(thresholds).log2() / total as f64;
        // A value that was seen, as C4.5 has it, and not one between two of them.
        let seen = self.all.iter().map(|example| example.values[feature]).filter(|value| *value <= middle);
        let threshold = seen.fold(f64::NEG_INFINITY, f64::max);
        (gain > SMALL).then(|| Candidate {
            question: Question::AtMost(feature, threshold),
            gain,
            ratio: gain / entropy(&[split, total - split]),
        })
    }

    /// A branch for each kind.
    fn category(&self, feature: usize, kinds: usize, examples: &[&Example]) -> Option<Candidate> {
        let question = Question::Which(feature, kinds);
        let shares = question.share(examples);
        let sizes: Vec<usize> = shares.iter().map(Vec::len).collect();
        if sizes.iter().filter(|size| **size >= self.leaf_min).count() < 2 {
            return None;
        }
        let after = |share: &Vec<&Example>| share.len() as f64 * entropy(&self.counts(share));
        let total = examples.len() as f64;
        let gain = entropy(&self.counts(examples)) - shares.iter().map(after).sum::<f64>() / total;
        (gain > SMALL).then(|| Candidate { question, gain, ratio: gain / entropy(&sizes) })
    }

    fn counts(&self, examples: &[&Example]) -> Vec<usize> {
        let mut counts = counts(examples);
        counts.resize(self.classes, 0);
        counts
    }
}

/// How uncertain a class is, in bits.
fn entropy(counts: &[usize]) -> f64 {
    let total: usize = counts.iter().sum();
    let part = |count: &usize| *count as f64 / total as f64;
    -counts.iter().filter(|count| **count > 0).map(|count| part(count) * part(count).log2()).sum::<f64>()
}
