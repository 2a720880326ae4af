//! The lock table alone: a grant, a release and the next claim on one thread, with a steady number of claims waiting.
//!
//! `cargo bench -p iogate-core --bench coord -- [--quick] [--json] [--only ORDER] [--waiting N]
//! [--rounds N]`. Time is the thread's CPU time; the table shows medians of rounds, and how they compare with one that waits.

use iogate_core::coord::{
    Claim, CoordConfig, Decision, Order, Passing, PlaceId, SessionId, Table, Targets, Token,
};
use iogate_core::{Span, Time};

#[derive(Clone, Copy, PartialEq)]
enum Shape {
    /// All want the whole place.
    Whole,
    /// Each wants one of 64 targets.
    Single,
    /// Each wants 4 of 64 targets, of 16 kinds.
    Striped,
    /// Each wants 4 of 256 targets, any.
    Scattered,
}

impl Shape {
    const ALL: [(Shape, &'static str); 4] = [
        (Shape::Whole, "whole"),
        (Shape::Single, "single"),
        (Shape::Striped, "striped"),
        (Shape::Scattered, "scattered"),
    ];

    fn members(self, random: u64) -> Vec<u32> {
        let spread = |index: u64| (random.rotate_right(8 * index as u32) % 64 + 64 * index) as u32;
        match self {
            Shape::Whole => Vec::new(),
            Shape::Single => vec![(random % 64) as u32],
            Shape::Striped => (0..4).map(|index| (random % 16) as u32 * 4 + index).collect(),
            Shape::Scattered => (0..4).map(spread).collect(),
        }
    }
}

#[derive(Clone, Copy)]
struct Case {
    order: Order,
    passing: Passing,
    shape: (Shape, &'static str),
    waiting: usize,
}

struct Load {
    case: Case,
    table: Table,
    now: Time,
    claims: u64,
    random: u64,
    held: std::collections::VecDeque<(SessionId, Token)>,
}

impl Load {
    fn filled(case: Case) -> Load {
        let config = CoordConfig {
            order: case.order,
            passing: case.passing,
            block_max: Span::from_secs(1_000_000),
            lease: Span::from_secs(1_000_000),
            ..CoordConfig::default()
        };
        let mut load = Load {
            case,
            table: Table::new(config, Token(0)),
            now: Time::from_nanos(1 << 60),
            claims: 0,
            random: 1,
            held: std::collections::VecDeque::new(),
        };
        while load.table.len() - load.held.len() < case.waiting {
            load.claim();
            load.drain();
        }
        load
    }

    fn claim(&mut self) {
        self.random =
            self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.claims += 1;
        let random = self.random >> 24;
        let claim = Claim {
            session: SessionId(self.claims),
            request: 1,
            targets: Targets { place: PlaceId(0), members: self.case.shape.0.members(random) },
            party: self.claims,
            bytes: (random % 1000) << 30,
            weight: 1 + (random % 4) as u32,
            period: Span::from_secs(1 + random % 5000),
        };
        self.table.claim(self.now, claim).expect("there is room");
    }

    fn drain(&mut self) {
        while let Decision::Granted(grant) = self.table.next(self.now) {
            self.held.push_back((grant.session, grant.token));
        }
        self.table.changes().for_each(drop);
    }

    /// Nanoseconds a turn: granted, released, and the next claim. So many turns, or fewer if that takes long.
    fn measure(&mut self, turns_max: u64) -> f64 {
        let start = cpu_ns();
        let mut turns = 0;
        while turns < turns_max && (turns % 64 != 0 || cpu_ns() - start < 100_000_000) {
            turns += 1;
            self.now = self.now + Span::from_micros(10);
            let (session, token) = self.held.pop_front().expect("somebody holds");
            self.table.release(self.now, session, token, 0).expect("it is held");
            self.claim();
            self.drain();
        }
        (cpu_ns() - start) as f64 / turns as f64
    }
}

/// CPU time of this thread in nanoseconds: what other programs take of a shared core does not count.
fn cpu_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let has = |flag: &str| arguments.iter().any(|argument| argument == flag);
    let value = |flag: &str| arguments.iter().skip_while(|a| *a != flag).nth(1);
    let (quick, json) = (has("--quick"), has("--json"));
    let rounds = value("--rounds").and_then(|n| n.parse().ok()).unwrap_or(if quick { 1 } else { 7 });
    let all: &[usize] = if quick { &[1, 1_000] } else { &[1, 100, 10_000, 100_000] };
    let only = value("--waiting").and_then(|n| n.parse().ok());
    let lengths: Vec<usize> = only.map_or(all.to_vec(), |length| vec![length]);
    let orders = [Order::Fcfs, Order::Shortest { ageing: 100 << 20 }, Order::Weighted, Order::Sets];

    let mut rows = Vec::new();
    for order in orders.into_iter().filter(|order| value("--only").is_none_or(|only| only == order.name())) {
        for passing in [Passing::Preserve, Passing::Relaxed] {
            for shape in Shape::ALL {
                let mut one = None;
                for &waiting in &lengths {
                    let case = Case { order, passing, shape, waiting };
                    let mut load = Load::filled(case);
                    let turns = if quick { 2_000 } else { 20_000 };
                    load.measure(turns); // warm-up
                    let mut ns: Vec<f64> = (0..rounds).map(|_| load.measure(turns)).collect();
                    let ns = median(&mut ns);
                    rows.push((case, ns, ns / *one.get_or_insert(ns)));
                }
            }
        }
    }
    if json {
        let items: Vec<String> = rows
            .iter()
            .map(|(case, ns, ratio)| {
                format!(
                    "{{\"order\":\"{}\",\"passing\":\"{}\",\"targets\":\"{}\",\"waiting\":{},\"ns\":{ns:.1},\"per_second\":{:.0},\"ratio\":{ratio:.2}}}",
                    case.order.name(),
                    case.passing.name(),
                    case.shape.1,
                    case.waiting,
                    1e9 / ns
                )
            })
            .collect();
        println!("[{}]", items.join(",\n"));
        return;
    }
    println!("CPU ns a turn (claim + grant + release), turns a second, and the ratio to the shortest line");
    println!(
        "{:<9} {:<9} {:<10} {:>8} {:>8} {:>10} {:>6}",
        "order", "passing", "targets", "waiting", "ns", "turns/s", "ratio"
    );
    for (case, ns, ratio) in rows {
        println!(
            "{:<9} {:<9} {:<10} {:>8} {ns:>8.0} {:>10.0} {ratio:>6.2}",
            case.order.name(),
            case.passing.name(),
            case.shape.1,
            case.waiting,
            1e9 / ns
        );
    }
}
