//! Runs that are kept line by line, and shards that are joined: the bytes of one run of everything, or a word on what lacks.

use std::num::NonZero;
use std::ops::ControlFlow;
use std::sync::OnceLock;

use iogate_core::Time;
use iogate_report::experiment::Origin;
use iogate_report::partial::{Broken, Head, Kept, MergeError, Outline, Shard, failed_line, merge, run_line};
use iogate_report::{ExperimentReport, Recording};
use iogate_sim::experiment::{self, Done, Repeats};
use iogate_sim::rng::Rng;
use iogate_sim::scenario::{Plan, Source};

const TEXT: &str = r#"
title = "small"
repetitions = 5
alone = true
clients.nodes = 2
clients.cache = { memory = "64MiB", kernel = "modern" }
servers = { nodes = 2, device = "hdd", gate.scheduler = "aioli" }
network = { latency = "50us", jitter = "100us" }
app = [{ name = "a", count = 2, processes = 2, pattern = "strided", op = "read", bytes = "256KiB", request = "64KiB" }]
sweep = { "servers.gate.scheduler" = ["fifo", "aioli"] }
"#;

const PROGRAM: &str = "iogate test";
/// Points whose first run is recorded.
const RECORDED: usize = 1;

fn plan(settings: &[&str]) -> Plan {
    let settings: Vec<String> = settings.iter().map(|&setting| setting.into()).collect();
    let open = |_: &str| Err("none".into());
    Plan::read(&Source { name: "t", text: TEXT, settings: &settings, quick: false, open: &open }).unwrap()
}

fn observe(point: usize) -> Option<Recording> {
    (point < RECORDED).then(|| Recording::new(Time::ZERO))
}

/// All ten runs, made once.
fn all() -> &'static [Done<Recording>] {
    static ALL: OnceLock<Vec<Done<Recording>>> = OnceLock::new();
    ALL.get_or_init(|| {
        let (plan, finished) = (plan(&[]), |_: &Done<Recording>| ControlFlow::Continue(()));
        let numbers: Vec<u64> = (0..plan.runs()).collect();
        experiment::run_some(&plan, &numbers, NonZero::<usize>::MIN, &observe, &finished, &Repeats::default())
            .unwrap()
    })
}

/// The report as it is made without any of this.
fn at_once() -> String {
    let plan = plan(&[]);
    let results = experiment::run(&plan, NonZero::<usize>::MIN, &observe, &|| ()).unwrap();
    let mut report = ExperimentReport::new("small", PROGRAM, 0.95);
    report.scenario = TEXT.into();
    for (point, result) in plan.points.iter().zip(results) {
        report.add(point.settings.clone(), &result.runs, result.observer);
    }
    report.json()
}

fn shard(index: u64, of: u64) -> Shard {
    format!("{index}/{of}").parse().unwrap()
}

fn head(shard: Shard) -> Head {
    let mut head = Head::new("small", Outline::new(&plan(&[]), TEXT), shard, RECORDED);
    (head.program, head.origin) = (PROGRAM.into(), Origin { build: "b1".into(), plan: "p1".into() });
    head
}

/// The file of a shard, its runs in any order.
fn file(shard: Shard, rng: &mut Rng) -> String {
    let mut numbers: Vec<u64> = shard.runs(10).collect();
    shuffle(&mut numbers, rng);
    let lines = numbers.iter().map(|&run| run_line(&all()[run as usize]));
    std::iter::once(head(shard).line()).chain(lines).collect()
}

fn shuffle<T>(items: &mut [T], rng: &mut Rng) {
    for index in (1..items.len()).rev() {
        items.swap(index, rng.below(index as u64 + 1) as usize);
    }
}

fn kept(text: &str) -> (String, Kept) {
    let kept = Kept::read(text.as_bytes()).unwrap().unwrap();
    (kept.head.shard.file_name("small"), kept)
}

#[test]
fn shards_joined_are_the_bytes_of_one_run_for_any_number_and_order_of_them() {
    let expected = at_once();
    let mut rng = Rng::new(1, 1);
    for of in (1..=13).chain([100]) {
        let mut files: Vec<_> = (1..=of).map(|index| kept(&file(shard(index, of), &mut rng))).collect();
        shuffle(&mut files, &mut rng);
        let report = merge(files).unwrap().unwrap();
        assert!(report.json() == expected, "{of} shards");
    }
    let twice = [1, 2, 1].map(|index| kept(&file(shard(index, 2), &mut rng)));
    assert!(merge(twice.into()).unwrap().unwrap().json() == expected, "a shard that is given twice");
    assert!(merge(Vec::new()).unwrap().is_none());
}

#[test]
fn every_run_is_in_one_shard() {
    for of in 1..=20 {
        let mut runs: Vec<u64> = (1..=of).flat_map(|index| shard(index, of).runs(10)).collect();
        runs.sort_unstable();
        assert_eq!(runs, (0..10).collect::<Vec<_>>(), "{of} shards");
    }
    for wrong in ["", "1", "0/2", "3/2", "1/0", "-1/2", "1/2/3", "a/b", "1/1000000"] {
        assert!(wrong.parse::<Shard>().is_err(), "{wrong}");
    }
    assert_eq!(shard(2, 8).file_name("twins"), "twins.2-of-8.runs");
    assert_eq!((Shard::WHOLE.file_name("twins"), Shard::WHOLE), ("twins.runs".into(), shard(1, 1)));
}

#[test]
fn wherever_a_file_is_broken_off_what_lacks_is_known_and_done_again() {
    let expected = at_once();
    let text = file(Shard::WHOLE, &mut Rng::new(2, 1));
    let head_ends = text.find('\n').unwrap();
    // Every place near the end of a line, and some of the others.
    let cuts = (0..text.len()).filter(|cut| {
        let around = &text.as_bytes()[cut.saturating_sub(2)..(cut + 2).min(text.len())];
        around.contains(&b'\n') || cut % 997 == 0
    });
    for cut in cuts {
        let read = Kept::read(&text.as_bytes()[..cut]).unwrap();
        let Some(mut kept) = read else {
            assert!(cut <= head_ends, "{cut}");
            continue;
        };
        let lines = text[..cut].matches('\n').count();
        let ends_whole = text[..cut].ends_with('\n');
        assert_eq!((kept.runs.len(), kept.whole), (lines - 1, text[..cut].rfind('\n').unwrap() + 1));
        let broken = Broken { line: lines + 1, is_damaged: false };
        assert_eq!(kept.broken, (!ends_whole).then_some(broken), "{cut}");
        // What goes on behind the whole lines gives the same.
        for run in kept.missing() {
            kept.runs.insert(run, all()[run as usize].clone());
        }
        let report = merge(vec![("small.runs".into(), kept)]).unwrap().unwrap();
        assert!(report.json() == expected, "{cut}");
    }
}

#[test]
fn what_is_no_whole_line_of_the_shard_ends_what_is_taken() {
    let mut rng = Rng::new(3, 1);
    let text = file(shard(1, 2), &mut rng);
    let foreign = run_line(&all()[1]);
    for bad in ["\0\0\0\0\n", "{\"run\":{}}\n", "{}\n", "\n", foreign.as_str()] {
        let (head, runs) = text.split_at(text.find('\n').unwrap() + 1);
        let (_, kept) = kept(&format!("{head}{bad}{runs}"));
        let broken = Broken { line: 2, is_damaged: true };
        assert_eq!((kept.broken, kept.runs.len(), kept.whole), (Some(broken), 0, head.len()), "{bad}");
    }
    let other_form = text.replacen("\"version\":2", "\"version\":9", 1);
    assert_eq!(Kept::read(other_form.as_bytes()).unwrap_err(), "its form is version 9, this program's 2");
    assert!(Kept::read(b"time_us,app\n1,2\n").unwrap_err().contains("first line"));
    assert!(Kept::read(b"").unwrap().is_none());
}

#[test]
fn no_changed_bit_is_taken_for_a_result() {
    let mut rng = Rng::new(5, 1);
    let text = file(Shard::WHOLE, &mut rng).into_bytes();
    let head_ends = text.iter().position(|byte| *byte == b'\n').unwrap();
    let places = [0, head_ends, head_ends + 1, text.len() - 1].into_iter();
    let places: Vec<usize> = places.chain((0..300).map(|_| rng.below(text.len() as u64) as usize)).collect();
    for at in places {
        let mut damaged = text.clone();
        damaged[at] ^= 1 << rng.below(8);
        let Ok(Some(read)) = Kept::read(&damaged) else {
            assert!(at <= head_ends, "{at}");
            continue;
        };
        assert!(at > head_ends && read.whole <= at && read.runs.len() < 10, "{at}: {:?}", read.broken);
        let expected =
            !damaged.ends_with(b"\n") && text[..at].iter().filter(|byte| **byte == b'\n').count() == 10;
        assert_eq!(read.broken.map(|broken| broken.is_damaged), Some(!expected), "{at}");
        let error = merge(vec![("small.runs".into(), read)]).unwrap_err().to_string();
        assert!(error.contains(if expected { "was interrupted" } else { "is damaged" }), "{error}");
    }
}

#[test]
fn shards_without_all_their_runs_are_named() {
    let mut rng = Rng::new(4, 1);
    let whole = file(shard(1, 4), &mut rng);
    let interrupted = file(shard(2, 4), &mut rng);
    let interrupted = &interrupted[..interrupted.len() - 10];
    let failed = head(shard(3, 4)).line() + &failed_line("seed 12: the device of the servers: broken");
    let error = merge([&whole, interrupted, &failed].map(kept).into()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "small: shards without all their runs: 2/4 was interrupted (2 of 3 runs), 3/4 failed (seed 12: the device of the servers: \
         broken), 4/4 is missing"
    );
    // A failed run that was done later has not failed.
    let later = file(shard(3, 4), &mut rng);
    let (first, rest) = later.split_at(later.find('\n').unwrap() + 1);
    let later = format!("{first}{}{rest}", failed_line("once"));
    let others = [2, 4].map(|index| file(shard(index, 4), &mut rng));
    let files = [whole, later].into_iter().chain(others).map(|text| kept(&text));
    assert!(merge(files.collect()).unwrap().is_some());
}

#[test]
fn what_is_of_something_else_is_not_joined() {
    let first = head(shard(1, 2));
    let other = |change: &dyn Fn(&mut Head)| {
        let mut other = head(shard(2, 2));
        change(&mut other);
        let files = [first.line(), other.line()].map(|line| kept(&line));
        match merge(files.into()).unwrap_err() {
            MergeError::Unlike(path, what) => format!("{path} is {what}"),
            MergeError::Lacking(..) => "alike".into(),
        }
    };
    let path = "small.2-of-2.runs is";
    assert_eq!(other(&|_| ()), "alike");
    assert_eq!(other(&|head| head.name = "big".into()), format!("{path} of the scenario big, not small"));
    let form = format!("{path} of another form of small: other settings, sizes or seeds");
    assert_eq!(other(&|head| head.origin.plan = "p2".into()), form);
    assert_eq!(other(&|head| head.recorded = 0), form);
    assert_eq!(other(&|head| head.outline = Outline::new(&plan(&["seed=7", "repetitions=6"]), TEXT)), form);
    let program = format!("{path} of another program: iogate test (b2), not iogate test (b1)");
    assert_eq!(other(&|head| head.origin.build = "b2".into()), program);
    let files = [shard(1, 2), shard(2, 3)].map(|shard| kept(&head(shard).line()));
    let error = merge(files.into()).unwrap_err().to_string();
    assert_eq!(error, "small.2-of-3.runs is one of 3 shards, not of 2");
}
