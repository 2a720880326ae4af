//! A gate with more classes than a report takes.

use iogate_core::Span;
use iogate_core::global_policy::{Allotter, GateId, Holder, Phase, Terms, TooManyClasses, Usage};
use iogate_core::wire::CLASSES_MAX;

use super::{at, capped, class};

const CAP: u64 = 1_000_000;

/// Gates whose every report is answered 2 ms later.
struct World {
    allotter: Allotter,
    holders: Vec<Holder>,
}

impl World {
    fn new(gates: usize) -> World {
        let terms = capped(&(0..=CLASSES_MAX as u32).map(|app| (app, CAP)).collect::<Vec<_>>());
        let terms = Terms { absent_max: Span::from_secs(10), ..terms };
        World {
            allotter: Allotter::new(terms.clone(), at(0)),
            holders: (0..gates).map(|_| Holder::new(terms.clone(), 1, at(0))).collect(),
        }
    }

    /// Each gate wants much of that many classes, from `from` to `until`. Returns the least and the most that all had of class 0 at once.
    fn run(&mut self, from: u64, until: u64, classes: &[u32]) -> [u64; 2] {
        let (mut least, mut most) = (u64::MAX, 0);
        for ms in (from..until).step_by(2) {
            let now = at(ms);
            for (id, (holder, classes)) in (0..).zip(self.holders.iter_mut().zip(classes)) {
                if holder.due() > now {
                    continue;
                }
                // Something of each always waits for its cap.
                let usage = |app| Usage {
                    leaf: class(app),
                    admitted: ms * CAP / 1_000,
                    capped: Span::from_millis(ms),
                    deferred: CAP,
                };
                let report = holder.report(now, (0..*classes).map(usage));
                assert!(report.classes.len() <= CLASSES_MAX || report.applied > 0);
                if report.classes.len() <= CLASSES_MAX {
                    let grant = self.allotter.report(now, GateId(id), &report).expect("it is new");
                    holder.granted(at(ms + 1), &grant);
                }
            }
            let sum: u64 = self.holders.iter().map(|holder| World::rate(holder, ms + 1)).sum();
            (least, most) = (least.min(sum), most.max(sum));
        }
        [least, most]
    }

    fn rate(holder: &Holder, ms: u64) -> u64 {
        holder.rate(at(ms), class(0)).unwrap_or_default()
    }
}

#[test]
fn a_gate_with_too_many_classes_has_its_part_for_as_long_as_it_lives() {
    let (many, few) = (CLASSES_MAX as u32 + 1, 10);
    let mut world = World::new(2);
    let [_, most] = world.run(0, 5_000, &[few, few]);
    assert!(most <= CAP);
    // The one has its part from when its lease is over, however long that lasts; the other one all that is left.
    let [_, most] = world.run(5_000, 10_000, &[many, few]);
    assert!(most <= CAP, "{most}");
    let [least, most] = world.run(10_000, 40_000, &[many, few]);
    assert!(most <= CAP && least >= CAP / 100 * 98, "from {least} to {most}");
    assert_eq!(world.holders[0].phase(at(40_000)), Phase::Alone);
    assert_eq!(world.holders[0].excess(), Some(TooManyClasses));
    assert!(World::rate(&world.holders[0], 40_000).abs_diff(CAP / 2) <= 1);
    // With fewer of them it has a lease again.
    let [_, most] = world.run(40_000, 45_000, &[few, few]);
    assert!(most <= CAP, "{most}");
    assert_eq!((world.holders[0].phase(at(45_000)), world.holders[0].excess()), (Phase::Lease, None));
}

#[test]
fn one_that_begins_with_too_many_has_what_others_have_given_up_and_no_more() {
    let (many, few) = (CLASSES_MAX as u32 + 1, 10);
    let mut world = World::new(3);
    let [least, most] = world.run(0, 20_000, &[many, few, few]);
    assert!(most <= CAP, "from {least} to {most}");
    assert_eq!(world.holders[0].phase(at(20_000)), Phase::Alone);
    assert!(World::rate(&world.holders[0], 20_000).abs_diff(CAP / 3) <= 1);
    // Somebody goes: what is now its part it uses when no lease is left that may have it.
    let leaves = world.holders[2].leave();
    assert_eq!(world.allotter.report(at(20_000), GateId(2), &leaves), None);
    world.holders.pop();
    let [_, most] = world.run(20_000, 40_000, &[many, few]);
    assert!(most <= CAP, "{most}");
    assert!(World::rate(&world.holders[0], 40_000).abs_diff(CAP / 2) <= 1);
}
