//! Scheduling alone: submit, next and complete of 8 KiB reads on one thread, with a steady number of requests queued.
//!
//! `cargo bench -p iogate-core --bench gate -- [--quick] [--json] [--only SCHEDULER]
//! [--queued N] [--pattern P] [--files N] [--rounds N]`. Time is the thread's CPU time; the table shows medians of rounds.
//!
//! With `--accounts`: what accounts of who slows whom down cost, of samples and exact ones, of three gates side by side, round by round,
//! with 1 to 16 applications, at depths of 1 and 16; time goes on between a dispatch and its completion. `--only SIDE` (`off`, `sampled` or
//! `exact`) has one of them alone, with `fifo`, 4 applications and a depth of 16, for a count of instructions.
//!
//! With `--policy`: what a policy costs in the same way: none, one of applications, one of groups with these applications in them.
//! `--only SIDE` (`none`, `flat` or `groups`) has one of them alone, and `--apps N` one number of applications, for a count of
//! instructions. Lengths of queues are `--queued N`, and twenty times that in the last row.

use std::collections::VecDeque;

use iogate_core::blame::Accounting;
use iogate_core::policy::{Branch, Policy};
use iogate_core::{
    AppId, ClientId, Decision, DispatchId, FileId, Gate, GateConfig, Layout, Op, Outcome, Request, RequestId,
    SchedulerConfig, SchedulerKind, Span, Time,
};

const BYTES: u32 = 8192;

#[derive(Clone, Copy)]
struct Case {
    kind: SchedulerKind,
    files: u64,
    pattern: Pattern,
    queued: usize,
    apps: u32,
    depth: u32,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Pattern {
    /// Each file from its beginning, piece after piece.
    Sequential,
    /// Each file from its beginning, every fourth piece.
    Strided,
    /// Anywhere in a file of 128 GiB.
    Random,
}

struct Source {
    case: Case,
    count: u64,
    random: u64,
}

impl Source {
    fn request(&mut self) -> Request {
        let (id, files) = (self.count, self.case.files);
        self.count += 1;
        let piece = id / files;
        let piece = match self.case.pattern {
            Pattern::Sequential => piece,
            Pattern::Strided => piece * 4,
            Pattern::Random => {
                self.random = self
                    .random
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                self.random >> 40
            }
        };
        Request {
            id: RequestId(id),
            file: FileId(id % files),
            op: Op::Read,
            offset: piece * u64::from(BYTES),
            bytes: BYTES,
            app: AppId(1 + id as u32 % self.case.apps),
            client: ClientId(0),
            target: None,
            issued: None,
        }
    }
}

/// A gate with its queue filled.
fn filled(case: Case) -> (Gate, Source, Time) {
    let config = GateConfig {
        scheduler: SchedulerConfig::new(case.kind),
        queue_max: u32::MAX / 2,
        depth: case.depth,
        layout: Layout { first_target: 0, stripe_bytes: 65_536, targets: 4 },
    };
    let mut gate = Gate::new(&config).expect("valid settings");
    let (mut source, mut now) = (Source { case, count: 0, random: 1 }, Time::from_nanos(1 << 40));
    for _ in 0..case.queued {
        now = now + Span::from_nanos(100);
        gate.submit(now, &source.request()).expect("there is room");
    }
    (gate, source, now)
}

/// CPU time of this thread in nanoseconds: what other programs take of a shared core does not count.
fn cpu_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Serves `requests` requests, keeping the queue at its length; nanoseconds a request.
// With a name of its own, to count what is in it: `valgrind --tool=callgrind --toggle-collect='*gate::measure'`.
#[inline(never)]
fn measure(gate: &mut Gate, source: &mut Source, now: &mut Time, requests: u64) -> f64 {
    let queued = source.case.queued;
    let (start, first) = (cpu_ns(), source.count);
    while source.count - first < requests {
        *now = *now + Span::from_nanos(100);
        match gate.next(*now) {
            Decision::Dispatch(dispatch) => {
                gate.complete(*now, dispatch.id, Outcome::Done { bytes: dispatch.bytes });
            }
            Decision::WaitUntil(until, _) => *now = until,
            Decision::Idle => {}
        }
        while gate.len() < queued {
            gate.submit(*now, &source.request()).expect("there is room");
        }
    }
    (cpu_ns() - start) as f64 / (source.count - first) as f64
}

/// The same where dispatches take time, and as many as may are in service.
fn measure_in_time(
    gate: &mut Gate,
    source: &mut Source,
    now: &mut Time,
    requests: u64,
    going: &mut VecDeque<DispatchId>,
) -> f64 {
    let (queued, depth) = (source.case.queued, source.case.depth as usize);
    let (start, first) = (cpu_ns(), source.count);
    while source.count - first < requests {
        *now = *now + Span::from_nanos(100);
        let mut is_full = false;
        match gate.next(*now) {
            Decision::Dispatch(dispatch) => going.push_back(dispatch.id),
            Decision::WaitUntil(until, _) => *now = until,
            // A scheduler may want fewer at once.
            Decision::Idle => is_full = true,
        }
        *now = *now + Span::from_nanos(100);
        if (is_full || going.len() >= depth)
            && let Some(id) = going.pop_front()
        {
            gate.complete(*now, id, Outcome::Done { bytes: u64::from(BYTES) });
        }
        *now = *now + Span::from_nanos(100);
        while gate.len() < queued {
            gate.submit(*now, &source.request()).expect("there is room");
        }
    }
    (cpu_ns() - start) as f64 / (source.count - first) as f64
}

/// What accounts cost.
fn compare_accounts(rounds: usize, requests: u64, queued: usize, only: Option<&str>) {
    println!("CPU ns a request, medians of {rounds} rounds and their extremes; {queued} queued");
    println!(
        "{:<10} {:>5} {:>6} {:<8} {:>8} {:>16} {:>6}",
        "scheduler", "apps", "depth", "accounts", "ns", "", "more"
    );
    let all = [SchedulerKind::Fifo, SchedulerKind::Sjf, SchedulerKind::Aioli].into_iter();
    let all =
        all.flat_map(|kind| [(1, 1), (4, 1), (4, 16), (16, 16)].map(|(apps, depth)| (kind, apps, depth)));
    for (kind, apps, depth) in all.filter(|case| only.is_none() || *case == (SchedulerKind::Fifo, 4, 16)) {
        let case = Case { kind, files: 32, pattern: Pattern::Random, queued, apps, depth };
        let hows =
            [("off", None), ("sampled", Some(Accounting::Sampled)), ("exact", Some(Accounting::Exact))];
        let mut sides: Vec<_> = hows
            .into_iter()
            .filter(|(name, _)| only.is_none_or(|only| only == *name))
            .map(|(name, how)| {
                let (mut gate, source, now) = filled(case);
                let prices = *gate.prices();
                gate.set_accounting(now, how.map(|how| (how, &prices)));
                (name, gate, source, now, VecDeque::new(), Vec::new())
            })
            .collect();
        for round in 0..=rounds {
            for (_, gate, source, now, going, ns) in &mut sides {
                let took = measure_in_time(gate, source, now, requests, going);
                // The first one warms up.
                if round > 0 {
                    ns.push(took);
                }
            }
        }
        let off = sides.first_mut().map_or(0.0, |side| median(&mut side.5));
        for (name, .., ns) in &mut sides {
            let ns_median = median(ns);
            let extremes = format!("{:.0} to {:.0}", ns[0], ns[ns.len() - 1]);
            let more = ns_median - off;
            println!(
                "{:<10} {apps:>5} {depth:>6} {name:<8} {ns_median:>8.0} {extremes:>16} {more:>6.0}",
                kind.name()
            );
        }
    }
}

/// Applications in four groups, each in the one that is the remainder of its number.
fn groups(apps: u32) -> Policy {
    let number = |group: u32| AppId(1_000_000 + group);
    Policy {
        branches: (0..apps.min(4)).map(|group| (number(group), Branch::default())).collect(),
        within: (1..=apps).map(|app| (AppId(app), number(app % 4 % apps))).collect(),
        ..Policy::default()
    }
}

/// What a policy costs.
fn compare_policies(rounds: usize, requests: u64, queued: usize, only: Option<&str>, only_apps: Option<u32>) {
    println!("CPU ns a request, medians of {rounds} rounds and their extremes; fifo");
    println!(
        "{:>6} {:>6} {:>6} {:<8} {:>8} {:>16} {:>8} {:>7}",
        "apps", "depth", "queued", "policy", "ns", "", "to none", "to flat"
    );
    // Of the most applications, a tenth has something in the gate at a time, or all of them have.
    let cases =
        [(4, 1, queued), (4, 16, queued), (16, 16, queued), (1_000, 16, queued), (10_000, 16, queued)];
    let all_here = (10_000, 16, 20 * queued);
    let cases = cases.into_iter().chain([all_here]);
    for (apps, depth, queued) in cases.filter(|(apps, ..)| only_apps.is_none_or(|only| only == *apps)) {
        let case =
            Case { kind: SchedulerKind::Fifo, files: 32, pattern: Pattern::Random, queued, apps, depth };
        let policies = [("none", None), ("flat", Some(Policy::default())), ("groups", Some(groups(apps)))];
        let mut sides: Vec<_> = policies
            .into_iter()
            .filter(|(name, _)| only.is_none_or(|only| only == *name))
            .map(|(name, policy)| {
                let (mut gate, source, now) = filled(case);
                gate.set_policy(now, policy.as_ref()).expect("a valid policy");
                (name, gate, source, now, VecDeque::new(), Vec::new())
            })
            .collect();
        for round in 0..=rounds {
            for (_, gate, source, now, going, ns) in &mut sides {
                let took = measure_in_time(gate, source, now, requests, going);
                // The first one warms up.
                if round > 0 {
                    ns.push(took);
                }
            }
        }
        let mut of = |name| sides.iter_mut().find(|side| side.0 == name).map(|side| median(&mut side.5));
        let (none, flat) = (of("none"), of("flat"));
        for (name, .., ns) in &mut sides {
            let ns_median = median(ns);
            let extremes = format!("{:.0} to {:.0}", ns[0], ns[ns.len() - 1]);
            let more = none.map_or_else(String::new, |none| format!("{:+.0}", ns_median - none));
            let ratio = flat.map_or_else(String::new, |flat| format!("{:.2}", ns_median / flat));
            println!(
                "{apps:>6} {depth:>6} {queued:>6} {name:<8} {ns_median:>8.0} {extremes:>16} {more:>8} {ratio:>7}"
            );
        }
    }
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
    let all_lengths: &[usize] = if quick { &[1_000, 10_000] } else { &[1_000, 10_000, 100_000, 1_000_000] };
    let only_length = value("--queued").and_then(|n| n.parse().ok());
    if has("--accounts") {
        let requests = if quick { 20_000 } else { 200_000 };
        let only = value("--only").map(String::as_str);
        return compare_accounts(rounds, requests, only_length.unwrap_or(1_000), only);
    }
    if has("--policy") {
        let requests = value("--requests").and_then(|n| n.parse().ok()).unwrap_or(100_000);
        let only = value("--only").map(String::as_str);
        let apps = value("--apps").and_then(|n| n.parse().ok());
        return compare_policies(rounds, requests, only_length.unwrap_or(1_000), only, apps);
    }
    let only_files: Option<u64> = value("--files").and_then(|n| n.parse().ok());
    let lengths: Vec<usize> = only_length.map_or(all_lengths.to_vec(), |length| vec![length]);

    let mut rows = Vec::new();
    for kind in SchedulerKind::ALL {
        if value("--only").is_some_and(|only| only != kind.name()) {
            continue;
        }
        for &queued in &lengths {
            for files in
                [1, 32, 1024].into_iter().filter(|files| only_files.is_none_or(|only| only == *files))
            {
                for pattern in [Pattern::Sequential, Pattern::Strided, Pattern::Random] {
                    if value("--pattern").is_some_and(|only| *only != format!("{pattern:?}").to_lowercase()) {
                        continue;
                    }
                    let case = Case { kind, files, pattern, queued, apps: 4, depth: 1 };
                    let (mut gate, mut source, mut now) = filled(case);
                    let bytes_each = gate.allocated_bytes() as f64 / queued as f64;
                    let requests = if quick { 20_000 } else { 200_000 };
                    measure(&mut gate, &mut source, &mut now, requests.min(queued as u64 * 2)); // warm-up
                    let mut ns: Vec<f64> =
                        (0..rounds).map(|_| measure(&mut gate, &mut source, &mut now, requests)).collect();
                    let (low, high) =
                        (ns.iter().copied().fold(f64::MAX, f64::min), ns.iter().copied().fold(0.0, f64::max));
                    rows.push((case, median(&mut ns), low, high, bytes_each));
                }
            }
        }
    }
    if json {
        let items: Vec<String> = rows
            .iter()
            .map(|(case, ns, low, high, bytes)| {
                format!(
                    "{{\"scheduler\":\"{}\",\"files\":{},\"pattern\":\"{:?}\",\"queued\":{},\"ns\":{ns:.1},\"ns_min\":{low:.1},\"ns_max\":{high:.1},\"bytes_each\":{bytes:.1}}}",
                    case.kind.name(), case.files, case.pattern, case.queued
                )
            })
            .collect();
        println!("[{}]", items.join(",\n"));
        return;
    }
    println!(
        "CPU ns a request (submit + next + complete): worst and median of 9 workloads; bytes a queued request"
    );
    println!(
        "{:<14} {:>9} {:>8} {:>8}  {:<20} {:>7}",
        "scheduler", "queued", "median", "worst", "worst workload", "bytes"
    );
    for kind in SchedulerKind::ALL {
        for &queued in &lengths {
            let of: Vec<_> = rows.iter().filter(|(c, ..)| c.kind == kind && c.queued == queued).collect();
            let Some(worst) = of.iter().max_by(|a, b| a.1.total_cmp(&b.1)) else { continue };
            let mid = median(&mut of.iter().map(|row| row.1).collect::<Vec<_>>());
            let bytes = of.iter().map(|row| row.4).fold(0.0, f64::max);
            let name = format!("{:?}, {} files", worst.0.pattern, worst.0.files);
            println!("{:<14} {queued:>9} {mid:>8.0} {:>8.0}  {name:<20} {bytes:>7.1}", kind.name(), worst.1);
        }
    }
}
