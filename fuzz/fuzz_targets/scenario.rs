//! Any text is a scenario, whose points can be simulated if they are small, or is refused with the line.
#![no_main]

use iogate_core::Span;
use iogate_sim::scenario::{Plan, Source};
use iogate_sim::world::simulate;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let open = |_: &str| Err("there are no other files".to_owned());
    let source = Source { name: "fuzz", text, settings: &[], quick: false, open: &open };
    let plan = match Plan::read(&source) {
        Ok(plan) => plan,
        Err(error) => {
            assert!(error.to_string().starts_with("fuzz:"));
            return;
        }
    };
    for point in plan.points.iter().take(2) {
        let mut scenario = point.scenario.clone();
        let cluster = &scenario.cluster;
        let nodes = u64::from(cluster.clients.nodes) + u64::from(cluster.servers.nodes);
        let processes: u64 = scenario.apps.iter().map(|app| u64::from(app.processes)).sum();
        if nodes > 64 || processes > 64 || scenario.jobs.is_some() {
            return;
        }
        // Long work is cut off, not carried out.
        scenario.time_max = scenario.time_max.min(Span::from_millis(200));
        let _ = simulate(&scenario, 1, &mut ());
    }
});
