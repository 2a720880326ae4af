//! Reports that come when what they tell of is over.

use super::*;

/// Four gates, of which two want all that there is. The reports of the first are lost for a while; the last one that it sends by its lease
/// comes when that is over, and when the second one has been given what it had.
#[test]
fn an_answer_counts_only_while_the_lease_does_that_the_report_told_of() {
    let terms = capped(&[(1, 1_000)]);
    let mut allotter = Allotter::new(terms.clone(), at(0));
    let mut gates = [0; 4].map(|_| Holder::new(terms.clone(), 4, at(0)));
    let mut late = None;
    for ms in 0..6_000 {
        for (id, gate) in (0..).zip(&mut gates) {
            if gate.due() > at(ms) {
                continue;
            }
            let capped = Span::from_nanos(ms * MS);
            let usage = Usage { leaf: class(1), admitted: 0, capped, deferred: 100_000 };
            let report = gate.report(at(ms), (id < 2).then_some(usage));
            if id == 0 && (3_000..4_150).contains(&ms) {
                late = Some(report);
                continue;
            }
            let grant = allotter.report(at(ms), GateId(id), &report).expect("it is a new report");
            gate.granted(at(ms), &grant);
        }
        let rates = |gates: &[Holder]| -> Vec<u64> {
            gates.iter().filter_map(|gate| gate.rate(at(ms), class(1))).collect()
        };
        match ms {
            2_999 => assert_eq!(rates(&gates), [500, 500, 0, 0]),
            4_150 => {
                assert_eq!(
                    rates(&gates),
                    [250, 750, 0, 0],
                    "the first has less than its part, others the rest"
                );
                let report = late.take().expect("it has reported");
                assert!(report.applied > 0 && report.classes[0].held == 500, "{report:?}");
                let grant = allotter.report(at(ms), GateId(0), &report).expect("it is a new report");
                gates[0].granted(at(ms), &grant);
            }
            5_999 => assert_eq!(rates(&gates), [500, 500, 0, 0]),
            _ => {}
        }
        let sum: u64 = rates(&gates).iter().sum();
        assert!(sum <= 1_000, "{sum} at {ms} ms: {:?}", rates(&gates));
    }
}
