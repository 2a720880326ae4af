//! What is said of recordings without one of their applications, against mixes that are carried out without it: random closed-loop mixes on
//! one server, `fifo`. `docs/why.md` has the figures, which `--nocapture` prints with `WITHOUT_MIXES=40`.

use std::collections::BTreeMap;

use iogate_sim::choice::evaluate::in_parallel;
use iogate_sim::choice::mix::{Mix, Set};
use iogate_sim::choice::without::{Beside, Look, Said, said};

/// How often something was said, and was right: of large gains, and of all others.
#[derive(Clone, Copy, Debug, Default)]
struct Right {
    large: u32,
    said: u32,
    right: u32,
    others: u32,
    others_said: u32,
    others_right: u32,
    /// Large gains with which the accounts agree.
    charged: u32,
}

impl Right {
    fn add(&mut self, said: &Said) {
        let (is_said, is_right) = (u32::from(said.gain.is_ok()), u32::from(said.is_right()));
        match said.pair.is_large() {
            true => {
                (self.large, self.said, self.right) =
                    (self.large + 1, self.said + is_said, self.right + is_right);
                self.charged += u32::from(said.pair.agrees());
            }
            false => {
                (self.others, self.others_said, self.others_right) =
                    (self.others + 1, self.others_said + is_said, self.others_right + is_right);
            }
        }
    }
}

const BESIDES: [Beside; 3] = [Beside::Nothing, Beside::Profile, Beside::Device];

/// For each of what may be known of the storage.
fn right(look: Look, mixes: usize) -> [Right; 3] {
    let each = |number: usize| {
        let mix = Mix::random(Set::Testing, number as u64);
        (mix.storage.kind(), said(&mix, look, &BESIDES))
    };
    let mut kinds: BTreeMap<&str, [Right; 3]> = BTreeMap::new();
    for (kind, said) in in_parallel(mixes, 2, each, |_| {}) {
        for (index, pairs) in said.iter().enumerate() {
            for pair in pairs {
                kinds.entry(kind).or_default()[index].add(pair);
                kinds.entry("all").or_default()[index].add(pair);
            }
        }
    }
    for (kind, right) in &kinds {
        for (beside, right) in BESIDES.iter().zip(right) {
            println!("{look:?} {kind} {beside:?}: {right:?}");
        }
    }
    kinds["all"]
}

/// Of each of what may be known of the storage: how many in a hundred large gains are said at least, and how many of those that are
/// said are right.
fn promised(look: Look, mixes: usize, promises: [(u32, u32); 3]) {
    let mixes = std::env::var("WITHOUT_MIXES").map_or(mixes, |mixes| mixes.parse().unwrap());
    let all = right(look, mixes);
    for ((beside, right), (least_said, least_right)) in BESIDES.iter().zip(all).zip(promises) {
        let Right { large, said, right, others_said, others_right, .. } = right;
        assert!(large as usize >= 2 * mixes, "{look:?} {beside:?}: {large}");
        assert!(100 * said >= least_said * large, "{look:?} {beside:?}: {said} of {large} are said");
        assert!(100 * right >= least_right * said, "{look:?} {beside:?}: {right} of {said} are right");
        assert!(
            100 * others_right >= 85 * others_said,
            "{look:?} {beside:?}: {others_right} of {others_said}"
        );
    }
}

/// Of some of the mixes of docs/why.md, as all take minutes. Fewer gains are said of these than of all where less than all is known.
#[test]
fn what_is_said_is_mostly_right() {
    promised(Look::Whole, 8, [(30, 92), (35, 92), (95, 92)]);
    promised(Look::Window, 16, [(35, 90), (45, 90), (85, 90)]);
}
