//! Decision trees that are learnt from examples: C4.5 (Quinlan: C4.5: Programs for Machine Learning, 1993), as Weka's J48 has it.
//!
//! A node asks for the feature with the best gain ratio among those whose information gain is at least the mean of all that
//! split. A number is compared with a threshold, which costs log2(thresholds)/examples of the gain; a category has a branch for
//! each value. Then what errs as little as a leaf becomes one, and so does, by a pessimistic estimate, what would err as little on
//! examples to come; where its largest branch would do as well, that takes its place (subtree raising).
//!
//! The same examples in the same order give the same tree. Missing values and weights are not there.

mod grow;
mod prune;
mod validate;

pub use validate::{errors, folds, predict_held_out};

/// What is known of an example, by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Feature {
    /// What it is called.
    pub name: String,
    /// What its values are.
    pub kind: Kind,
}

/// What the values of a feature are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Numbers, which have an order.
    Number,
    /// One of so many kinds, as 0, 1, 2 and so on.
    Category(usize),
}

/// An example: its values, one for each feature, and the class that is right for it.
#[derive(Clone, Debug, PartialEq)]
pub struct Example {
    /// A finite number for each feature.
    pub values: Vec<f64>,
    /// Its class, as 0, 1, 2 and so on.
    pub class: usize,
}

/// How a tree is learnt; the default is J48's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// The fewest examples of a branch.
    pub leaf_min: usize,
    /// The confidence of the pessimistic estimate; lower prunes more.
    pub confidence: f64,
    /// Whether it is pruned at all.
    pub prune: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options { leaf_min: 2, confidence: 0.25, prune: true }
    }
}

/// A decision tree.
#[derive(Clone, Debug, PartialEq)]
pub struct Tree {
    root: Node,
}

#[derive(Clone, Debug, PartialEq)]
struct Node {
    /// The most frequent class of its examples; its parent's where it has none.
    class: usize,
    /// What it asks, and a node for each answer; a leaf asks nothing.
    ask: Option<(Question, Vec<Node>)>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Question {
    /// Whether a number is at most so much: yes, no.
    AtMost(usize, f64),
    /// Which of so many kinds it is.
    Which(usize, usize),
}

impl Question {
    fn feature(&self) -> usize {
        match *self {
            Question::AtMost(feature, _) | Question::Which(feature, _) => feature,
        }
    }

    fn answers(&self) -> usize {
        match *self {
            Question::AtMost(..) => 2,
            Question::Which(_, kinds) => kinds,
        }
    }

    /// Which branch; none for a kind that the feature does not have.
    fn answer(&self, values: &[f64]) -> Option<usize> {
        match *self {
            Question::AtMost(feature, threshold) => Some(usize::from(values[feature] > threshold)),
            Question::Which(feature, kinds) => Some(values[feature] as usize).filter(|kind| *kind < kinds),
        }
    }

    /// The examples of each branch.
    fn split(&self, examples: &[&Example]) -> Vec<Vec<usize>> {
        let mut branches = vec![Vec::new(); self.answers()];
        for (index, example) in examples.iter().enumerate() {
            if let Some(branch) = self.answer(&example.values) {
                branches[branch].push(index);
            }
        }
        branches
    }

    /// The examples of each branch, themselves.
    fn share<'a>(&self, examples: &[&'a Example]) -> Vec<Vec<&'a Example>> {
        let pick = |branch: Vec<usize>| branch.into_iter().map(|index| examples[index]).collect();
        self.split(examples).into_iter().map(pick).collect()
    }
}

impl Tree {
    /// Learns from examples. Each has as many values as there are features; without any example all are of class 0.
    pub fn learn(features: &[Feature], examples: &[&Example], options: &Options) -> Tree {
        let mut root = grow::grow(features, examples, options);
        if options.prune {
            prune::collapse(&mut root, examples);
            prune::prune(&mut root, examples, options.confidence);
        }
        Tree { root }
    }

    /// The class of what has these values.
    pub fn classify(&self, values: &[f64]) -> usize {
        let mut node = &self.root;
        while let Some((question, children)) = &node.ask {
            match question.answer(values) {
                Some(branch) => node = &children[branch],
                None => break,
            }
        }
        node.class
    }

    /// How many leaves it has.
    pub fn leaves(&self) -> usize {
        self.root.count(&|node| node.ask.is_none())
    }

    /// How many nodes it has, leaves included.
    pub fn nodes(&self) -> usize {
        self.root.count(&|_| true)
    }

    /// Whether it asks for a feature anywhere.
    pub fn asks_for(&self, feature: usize) -> bool {
        self.root.count(&|node| node.ask.as_ref().is_some_and(|(ask, _)| ask.feature() == feature)) > 0
    }
}

impl Node {
    fn count(&self, which: &impl Fn(&Node) -> bool) -> usize {
        let below: usize = self.ask.iter().flat_map(|(_, nodes)| nodes).map(|node| node.count(which)).sum();
        usize::from(which(self)) + below
    }
}

/// How many examples there are of each class.
fn counts(examples: &[&Example]) -> Vec<usize> {
    let classes = examples.iter().map(|example| example.class + 1).max().unwrap_or(1);
    let mut counts = vec![0; classes];
    for example in examples {
        counts[example.class] += 1;
    }
    counts
}

/// The most frequent class, of several the first.
fn most_frequent(counts: &[usize]) -> usize {
    let most = counts.iter().max().copied().unwrap_or(0);
    counts.iter().position(|count| *count == most).unwrap_or(0)
}

/// How many examples are not of the most frequent class.
fn errors_of_leaf(examples: &[&Example]) -> usize {
    let counts = counts(examples);
    examples.len() - counts[most_frequent(&counts)]
}
