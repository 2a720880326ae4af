//! Allotters that begin anew while a gate is cut off.

use super::*;

/// What happens when, in ms.
struct Course {
    /// The first gate is cut off: but one report more arrives, so late, and is answered, and the next one arrives, and is not.
    cut_off: u64,
    late: u64,
    /// The allotter dies, and another one begins: the same again and again.
    restarts: Vec<[u64; 2]>,
    /// The other gate is cut off, too.
    both_cut_off: u64,
}

/// Two gates; the second wants all that there is. The first is cut off when it has nothing, and wants all once nobody hears of that. At no
/// time do both have more than all. Returns what the second one had at each time.
fn run(course: &Course) -> Vec<u64> {
    let terms = capped(&[(1, 1_000)]);
    let mut allotter = Some(Allotter::new(terms.clone(), at(0)));
    let mut gates = [0; 2].map(|_| Holder::new(terms.clone(), 2, at(0)));
    let wants = course.cut_off + if course.late > 0 { 200 + course.late } else { 0 };
    let (mut had, mut late, mut is_next) = (Vec::new(), None, false);
    for ms in 0..20_000 {
        if course.restarts.iter().any(|[dies, _]| *dies == ms) {
            allotter = None;
        }
        if course.restarts.iter().any(|[_, begins]| *begins == ms) {
            allotter = Some(Allotter::new(terms.clone(), at(ms)));
        }
        for (id, gate) in (0..).zip(&mut gates) {
            if let Some((_, report)) = late.take_if(|(due, _)| id == 0 && *due == ms)
                && let Some(allotter) = &mut allotter
            {
                let grant = allotter.report(at(ms), GateId(id), &report).expect("it is a new report");
                gate.granted(at(ms), &grant);
                is_next = true;
            }
            if gate.due() > at(ms) {
                continue;
            }
            let (capped, deferred) = (Span::from_nanos(ms * MS), 100_000);
            let usage = Usage { leaf: class(1), admitted: 0, capped, deferred };
            let report = gate.report(at(ms), (id == 1 || ms >= wants).then_some(usage));
            if id == 0 && ms >= course.cut_off {
                if course.late > 0 && ms < course.cut_off + 100 {
                    late = Some((ms + course.late, report));
                } else if core::mem::take(&mut is_next)
                    && let Some(allotter) = &mut allotter
                {
                    allotter.report(at(ms), GateId(id), &report);
                }
                continue;
            }
            if let Some(allotter) = allotter.as_mut().filter(|_| ms < course.both_cut_off) {
                let grant = allotter.report(at(ms), GateId(id), &report).expect("it is a new report");
                gate.granted(at(ms), &grant);
            }
        }
        let rates = [0, 1].map(|id: usize| gates[id].rate(at(ms), class(1)).unwrap());
        assert!(rates.iter().sum::<u64>() <= 1_000, "{rates:?} at {ms} ms");
        had.push(rates[1]);
    }
    had
}

/// Before the allotter can know that the first gate is cut off, it dies, and the next one begins just before the second one's lease is
/// over: that goes on with all that it has, for as long as the next one learns. Then it is cut off, too.
#[test]
fn what_a_new_allotter_leaves_others_is_over_when_a_gate_has_its_part() {
    let restarts = [[4_850, 5_600]].into();
    let had = run(&Course { cut_off: 4_000, late: 0, restarts, both_cut_off: 6_600 });
    for ms in [3_999, 5_800, 6_590] {
        assert_eq!(had[ms], 1_000, "at {ms} ms");
    }
    assert_eq!(had[19_999], 500);
}

/// The next allotter dies while it learns, and so do those after it: together they go on with the lease for no longer than one could.
#[test]
fn what_new_allotters_leave_others_one_after_the_other_is_over_when_a_gate_has_its_part() {
    let restarts = [[4_850, 5_600], [6_550, 7_300], [8_250, 9_000]].into();
    let had = run(&Course { cut_off: 4_000, late: 0, restarts, both_cut_off: 10_000 });
    for ms in [3_999, 5_800, 7_800] {
        assert_eq!(had[ms], 1_000, "at {ms} ms");
    }
}

/// A report of the first gate comes late, and its answer before the lease is over: the allotter takes the gate for present for longer than
/// that goes by its lease.
#[test]
fn a_gate_whose_last_report_was_late_has_its_part_when_others_have_given_it_up() {
    // A report is given up after 400 ms.
    for late in [100, 200, 300, 390] {
        for gone in (500..1_000).step_by(20) {
            let dies = 4_000 + late + gone;
            let begins = dies + 850;
            let restarts = [[dies, begins]].into();
            run(&Course { cut_off: 4_000, late, restarts, both_cut_off: begins + 1_000 });
        }
    }
}
