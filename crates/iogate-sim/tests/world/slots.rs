//! Devices with several slots behind gates: what depth is worth, and what it costs to hand dispatches over.

use iogate_core::Span;
use iogate_sim::rng::Distribution;
use iogate_sim::scenario::{Pattern, Scenario, Sharing};

use super::common::{app, scenario};
use super::observe::run;

/// Processes that read 4 KiB at random places of one file, and think for a moment in between.
fn readers(device: &str, scheduler: &str, depth: u32, think: Span) -> Scenario {
    let mut s = scenario(1, device, scheduler);
    s.cluster.servers.gate.depth = depth;
    let mut readers = app(1, 8, 1 << 20, 4 << 10);
    readers.workload.pattern = Pattern::Random {
        sharing: Sharing::PerProcess,
        bytes: 1 << 20,
        request: 4 << 10,
        file_bytes: 64 << 20,
    };
    readers.workload.think = Distribution::Constant(think);
    s.apps = vec![readers];
    s
}

fn makespan(s: &Scenario) -> f64 {
    run(s).makespan.as_secs_f64()
}

#[test]
fn depth_is_worth_what_the_device_can_do_at_the_same_time() {
    let gain = |device| {
        makespan(&readers(device, "fifo", 1, Span::ZERO)) / makespan(&readers(device, "fifo", 16, Span::ZERO))
    };
    for (device, least, most) in
        [("hdd", 1.0, 1.0), ("unit:50us", 1.0, 1.0), ("edel:slots=1", 1.0, 1.0), ("edel", 2.0, 8.0)]
    {
        let gain = gain(device);
        assert!((least..=most).contains(&gain), "{device}: {gain}");
    }
}

/// What programs see that read from memory through a mount, whose own part is 40 us a read: several times as much where each
/// dispatch is handed over and waits for the one before it.
#[test]
fn one_dispatch_at_a_time_makes_memory_slow() {
    let think = Span::from_micros(40);
    let [all, one, ordered] = [("fifo", 16), ("fifo", 1), ("aioli", 16)]
        .map(|(scheduler, depth)| makespan(&readers("memory", scheduler, depth, think)));
    assert!((4.0..12.0).contains(&(one / all)), "one dispatch at a time takes {} times as long", one / all);
    assert!(ordered / all > 4.0, "aioli takes {} times as long", ordered / all);
    // All at once never wait, so that nothing is handed over: 44.4 us for each of 256 reads.
    assert!((all / (256.0 * 44.41e-6) - 1.0).abs() < 0.01, "{all} s");
}
