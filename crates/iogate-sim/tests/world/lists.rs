//! Forwarders that join dispatches to lists.

use std::collections::BTreeMap;

use iogate_core::{Op, Span};
use iogate_sim::scenario::{Forwarders, GateSpec, ListSpec, ProcessorSpec, Scenario, Spread};

use super::common::{app, gate, scenario};
use super::observe::{run, watch};

const KIB: u64 = 1 << 10;

/// 64 processes behind a forwarder in front of servers with stripes of 64 KiB; each accesses 4 pieces of 32 KiB of a shared file by turns.
fn strided(servers: u32, scheduler: &str, lists: Option<ListSpec>) -> Scenario {
    let mut s = scenario(servers, "unit:100", "fifo");
    s.cluster.clients.nodes = 8;
    s.cluster.forwarders = vec![Forwarders {
        name: "ion".into(),
        nodes: 1,
        gate: GateSpec { depth: 64, ..gate(scheduler) },
        spread: Spread::Client,
        transfer: 1 << 20,
        processor: ProcessorSpec::default(),
        lists,
    }];
    s.network.latency = Span::from_micros(10);
    s.network.jitter = Span::from_micros(20);
    let mut reader = app(1, 64, 4 * 32 * KIB, 32 << 10);
    reader.nodes = 8;
    s.apps = vec![reader];
    s
}

fn lists(requests: u32, calls: u32) -> Option<ListSpec> {
    Some(ListSpec { requests, calls })
}

#[test]
fn each_byte_is_served_once_behind_any_scheduler() {
    for op in [Op::Read, Op::Write] {
        for scheduler in ["fifo", "to-agg", "sjf", "mlf", "aioli", "hbrr", "twins"] {
            let mut s = strided(4, scheduler, lists(16, 2));
            s.apps[0].workload.op = op;
            let (result, seen) = watch(&s);
            let mut at: BTreeMap<(u32, u64), u64> = BTreeMap::new();
            for served in &seen.served {
                assert!(
                    at.insert((served.server, served.offset), served.bytes).is_none(),
                    "{scheduler}: twice"
                );
            }
            for server in 0..4 {
                let mut end = 0;
                for ((_, offset), bytes) in at.range((server, 0)..=(server, u64::MAX)) {
                    assert_eq!(*offset, end, "{scheduler}");
                    end += bytes;
                }
                assert_eq!(end, 64 * 4 * 32 * KIB / 4, "{scheduler}");
            }
            let ion = &result.layers[0];
            assert_eq!((ion.list_bytes, ion.bytes), (64 * 4 * 32 * KIB, 64 * 4 * 32 * KIB), "{scheduler}");
            // aioli has one dispatch in service at a time, and nothing to join.
            let most = ion.requests / if scheduler == "aioli" { 1 } else { 2 };
            assert!(ion.lists <= most, "{scheduler}: {} lists", ion.lists);
        }
    }
}

/// One list call at a time, to one server: 16 requests of 100 us each, one message there and one back.
#[test]
fn a_list_is_one_message_and_complete_as_a_whole() {
    let mut s = strided(1, "fifo", lists(16, 1));
    (s.network.jitter, s.network.latency) = (Span::ZERO, Span::from_micros(10));
    (s.apps[0].processes, s.apps[0].nodes) = (16, 1);
    s.apps[0].workload.pattern = app(1, 16, 32 * KIB, 32 << 10).workload.pattern;
    s.cluster.servers.processor = ProcessorSpec::each(Span::from_micros(7));
    let result = run(&s);
    // To the forwarder and back, to the server and back; its processor takes in one message.
    assert_eq!(result.makespan, Span::from_micros(4 * 10 + 7 + 16 * 100));
    assert_eq!(result.network.messages, 16 + 1 + 1 + 16);
    s.cluster.forwarders[0].lists = None;
    let alone = run(&s);
    assert_eq!(alone.network.messages, 4 * 16);
    assert_eq!(alone.layers[0].lists, 0);
}

#[test]
fn what_waits_for_a_call_goes_together() {
    let bytes_of_lists = |calls| {
        let ion = run(&strided(4, "fifo", lists(16, calls))).layers.remove(0);
        ion.list_bytes as f64 / ion.lists as f64
    };
    let (few, many) = (bytes_of_lists(1), bytes_of_lists(64));
    assert!(few > 8.0 * 32.0 * 1024.0 && few > 2.0 * many, "{few} {many}");
}

#[test]
fn lists_of_one_request_are_as_none() {
    let (one, none) = (run(&strided(4, "fifo", lists(1, 64))), run(&strided(4, "fifo", None)));
    assert_eq!((one.makespan, one.network.messages), (none.makespan, none.network.messages));
}

/// No message has more than 64 regions.
#[test]
fn long_lists_are_several_messages() {
    let mut s = strided(1, "fifo", lists(64, 1));
    s.cluster.servers.transfer = 16 << 10;
    s.network.jitter = Span::ZERO;
    s.apps[0].workload.pattern = app(1, 64, 32 * KIB, 32 << 10).workload.pattern;
    let result = run(&s);
    // 64 requests of two regions each: one list, two messages.
    assert_eq!((result.layers[0].lists, result.network.messages), (1, 64 + 2 + 2 + 64));
}
