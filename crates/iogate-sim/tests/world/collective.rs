//! Collective I/O: what it moves, what it sends, and what it is good for.

use iogate_core::{Op, Span};
use iogate_sim::scenario::{Barrier, Collective, Pattern, Scenario};

use super::common::{app, scenario};
use super::observe::{run, watch};

/// Pieces of 4 KiB of 32 processes by turns: 32 of each, one call each.
fn strided(op: Op, device: &str) -> Scenario {
    let mut s = scenario(1, device, "fifo");
    s.cluster.clients.nodes = 32;
    s.cluster.servers.transfer = 1 << 20;
    let mut this = app(1, 32, 0, 0);
    this.nodes = 32;
    this.workload.pattern = Pattern::Strided { bytes: 32 * 4_096, request: 4_096 };
    (this.workload.op, this.workload.barrier) = (op, Barrier::Phase);
    s.apps = vec![this];
    s
}

fn collectively(mut s: Scenario, aggregators: u32, buffer: u32) -> Scenario {
    s.apps[0].workload.collective = Some(Collective { aggregators, buffer });
    s
}

#[test]
fn collective_io_moves_the_same_bytes() {
    for op in [Op::Read, Op::Write] {
        let independent = strided(op, "unit:100");
        let collective = collectively(independent.clone(), 4, 256 << 10);
        let covered = |s: &Scenario| {
            let (result, seen) = watch(s);
            let mut ranges: Vec<_> =
                seen.served.iter().map(|served| (served.offset, served.offset + served.bytes)).collect();
            ranges.sort_unstable();
            assert!(ranges.windows(2).all(|pair| pair[0].1 == pair[1].0), "each byte once");
            (ranges[0].0, ranges[ranges.len() - 1].1, result.apps[0].bytes, result.servers[0].bytes)
        };
        assert_eq!(covered(&independent), covered(&collective));
        assert_eq!(covered(&collective).1, 32 * 32 * 4_096);
    }
}

#[test]
fn the_network_carries_the_exchange() {
    // 4 MiB: each of four aggregators has 1 MiB, in two rounds of 512 KiB, and a share of each from or for 31 others. Each round's
    // bytes go to the server in one request.
    for op in [Op::Read, Op::Write] {
        let result = run(&collectively(strided(op, "unit:100"), 4, 512 << 10));
        assert_eq!(result.requests, 8);
        assert_eq!(result.network.messages, 4 * 2 * 31 + 2 * 8);
        // All bytes go to or from the server, and all but each aggregator's own share to or from an aggregator.
        assert_eq!(result.network.bytes, (4 << 20) + (4 << 20) / 32 * 31);
    }
    let on_one_node = {
        let mut s = collectively(strided(Op::Write, "unit:100"), 4, 512 << 10);
        s.apps[0].nodes = 1;
        run(&s)
    };
    assert_eq!(on_one_node.network.messages, 2 * 8, "within a node nothing crosses the network");
}

#[test]
fn on_a_disk_it_beats_many_small_requests_in_order_of_arrival() {
    // The pieces come in order of arrival, which a late process makes random.
    let mut independent = strided(Op::Read, "hdd");
    independent.network.jitter = Span::from_millis(2);
    let collective = collectively(independent.clone(), 4, 1 << 20);
    let (independent, collective) = (run(&independent).makespan, run(&collective).makespan);
    assert!(
        collective.as_secs_f64() * 2.0 < independent.as_secs_f64(),
        "collective {collective}, independent {independent}"
    );
}
