//! An observer that keeps everything; and that looking on changes nothing.

use iogate_core::{Op, Span};
use iogate_sim::result::RunResult;
use iogate_sim::rng::Distribution;
use iogate_sim::scenario::{Barrier, Fault, FaultKind, Scenario};
use iogate_sim::world::{Arrived, Observer, Phase, Served, SimError, simulate};

use super::common::{app, scenario};

/// All that was seen.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Seen {
    pub(crate) arrived: Vec<Arrived>,
    pub(crate) served: Vec<Served>,
    pub(crate) phases: Vec<Phase>,
}

impl Observer for Seen {
    fn arrived(&mut self, arrived: &Arrived) {
        self.arrived.push(*arrived);
    }
    fn served(&mut self, served: &Served) {
        self.served.push(*served);
    }
    fn phase(&mut self, phase: &Phase) {
        self.phases.push(*phase);
    }
}

/// Runs a scenario that must end, and looks on.
#[track_caller]
pub(crate) fn watch(scenario: &Scenario) -> (RunResult, Seen) {
    let mut seen = Seen::default();
    let result = simulate(scenario, 1, &mut seen).expect("it ends");
    (result, seen)
}

/// Runs a scenario that must end.
#[track_caller]
pub(crate) fn run(scenario: &Scenario) -> RunResult {
    simulate(scenario, 1, &mut ()).expect("it ends")
}

/// Runs a scenario that must stall; what is said.
#[track_caller]
pub(crate) fn stall(scenario: &Scenario) -> String {
    match simulate(scenario, 1, &mut ()) {
        Err(error @ SimError::Stalled { .. }) => error.to_string(),
        other => panic!("expected a stall, found {other:?}"),
    }
}

#[test]
fn the_result_does_not_depend_on_the_observer() {
    let mut s = scenario(3, "exponential:300", "sjf");
    s.cluster.clients.nodes = 4;
    s.network.jitter = Span::from_micros(200);
    s.network.bandwidth = Some(50_000_000);
    s.network.buffer = Some(40_000);
    s.apps = (1..=4)
        .map(|id| {
            let mut app = app(id, 3, 1 << 20, 100_000);
            (app.first_node, app.workload.iterations) = (id - 1, 2);
            app.workload.op = if id % 2 == 0 { Op::Read } else { Op::Write };
            app.workload.compute = Distribution::Exponential(Span::from_millis(5));
            app.workload.barrier = Barrier::Phase;
            app
        })
        .collect();
    s.faults =
        vec![Fault { from: Span::from_millis(40), until: None, kind: FaultKind::LostClient { node: 3 } }];
    let (watched, seen) = watch(&s);
    assert_eq!(format!("{watched:?}"), format!("{:?}", run(&s)));
    assert_eq!(seen, watch(&s).1);
    let times = seen.phases.iter().map(|phase| phase.end);
    assert!(times.is_sorted(), "it is told in the order of time");
    assert_eq!(seen.arrived.len() as u64, watched.requests);
    assert!(watched.apps[3].lost && watched.network.lost > 0);
    let other = simulate(&s, 2, &mut ()).expect("it ends");
    assert_ne!(other.makespan, watched.makespan, "another seed is another run");
}
