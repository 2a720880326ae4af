//! An allotter that begins anew while a gate is cut off.

use super::*;

/// Two gates; the second wants all that there is. The first is cut off when it has nothing, and wants all from then on. Before the allotter
/// can know that it is, it dies, and the next one begins just before the second one's lease is over: that goes on with all that it has, for
/// as long as the next one learns. Then it is cut off, too.
#[test]
fn what_a_new_allotter_leaves_others_is_over_when_a_gate_has_its_part() {
    let terms = capped(&[(1, 1_000)]);
    let mut allotter = Some(Allotter::new(terms.clone(), at(0)));
    let mut gates = [0; 2].map(|_| Holder::new(terms.clone(), 2, at(0)));
    let (cut_off, dies) = (4_000, 4_850);
    let begins = dies + 750;
    let both_cut_off = begins + 1_000;
    for ms in 0..20_000 {
        if ms == dies {
            allotter = None;
        } else if ms == begins {
            allotter = Some(Allotter::new(terms.clone(), at(ms)));
        }
        for (id, gate) in (0..).zip(&mut gates) {
            if gate.due() > at(ms) {
                continue;
            }
            let (capped, deferred) = (Span::from_nanos(ms * MS), 100_000);
            let usage = Usage { leaf: class(1), admitted: 0, capped, deferred };
            let report = gate.report(at(ms), (id == 1 || ms >= cut_off).then_some(usage));
            let is_heard = ms < if id == 0 { cut_off } else { both_cut_off };
            if let Some(allotter) = allotter.as_mut().filter(|_| is_heard) {
                let grant = allotter.report(at(ms), GateId(id), &report).expect("it is a new report");
                gate.granted(at(ms), &grant);
            }
        }
        let rates = [0, 1].map(|id: usize| gates[id].rate(at(ms), class(1)).unwrap());
        let has_all = rates[1] == 1_000;
        match ms {
            3_999 | 5_800 | 6_590 => assert!(has_all, "{rates:?} at {ms} ms"),
            19_999 => assert_eq!(rates, [500, 500]),
            _ => {}
        }
        assert!(rates.iter().sum::<u64>() <= 1_000, "{rates:?} at {ms} ms");
    }
}
