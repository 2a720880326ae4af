//! Random scripts: small files, few of them, so that requests touch, overlap and follow each other often.

use std::collections::BTreeMap;

use iogate_core::sched::{Param, ParamUnit, Prices};
use iogate_core::{
    AppId, Extent, FileId, FileLayout, GateConfig, Layout, Op, SchedulerConfig, SchedulerKind, Span,
    TargetId, Time,
};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::Config;

use crate::script::{Action, Arrival, Ending, Script};

const BLOCK: u64 = 4096;

/// The settings of a property test: `cases` of them, or as many as the environment variable `PROPTEST_CASES`
/// says. Failures are printed and not kept in files.
pub fn cases(cases: u32) -> Config {
    let asked = std::env::var("PROPTEST_CASES").ok().and_then(|text| text.parse().ok());
    Config { cases: asked.unwrap_or(cases), failure_persistence: None, ..Config::default() }
}

/// A scheduler with parameters that short scripts notice, or its defaults.
pub fn scheduler(kind: SchedulerKind) -> BoxedStrategy<SchedulerConfig> {
    let mut configs = Just(SchedulerConfig::new(kind)).boxed();
    for param in kind.params() {
        let values = values(param);
        configs = (configs, option::weighted(0.7, select(values)))
            .prop_map(move |(mut config, value)| {
                if let Some(value) = value {
                    config.set(param.name, &value).expect("the values below are valid");
                }
                config
            })
            .boxed();
    }
    configs
}

fn values(param: &Param) -> Vec<String> {
    let texts: &[&str] = match param.name {
        "run_bytes_max" => &["1", "8KiB", "20KiB", "64KiB"],
        "run_requests_max" => &["1", "2", "3", "5"],
        "age_max" => &["0ms", "200us", "2ms", "30ms"],
        "quantum_base" => &["1001", "4KiB", "16KiB"],
        "contiguous_wait" => &["0ms", "100us", "1ms"],
        "wait_max" => &["0ms", "50us", "400us"],
        "window" => &["1us", "300us", "1ms", "25ms"],
        "skew_max" => &["0ms", "400us", "5ms"],
        "quantum" => &["1", "2", "3", "6"],
        "node" => &["0", "1", "3", "4294967295"],
        _ => match param.unit {
            ParamUnit::Choice(words) => words,
            ParamUnit::Flag => &["true", "false"],
            _ => &[],
        },
    };
    assert!(!texts.is_empty(), "give the parameter {} some values to be tested with", param.name);
    texts.iter().map(|text| text.to_string()).collect()
}

/// Any scheduler.
pub fn any_scheduler() -> BoxedStrategy<SchedulerConfig> {
    select(SchedulerKind::ALL.to_vec()).prop_flat_map(scheduler).boxed()
}

/// What an action is made from, before offsets are known.
#[derive(Clone, Debug)]
enum Intent {
    Submit { shape: Shape, at: At },
    Act(Action),
}

#[derive(Clone, Copy, Debug)]
enum At {
    /// Here.
    Offset(u64),
    /// Where the last request of the same file and operation ended, plus this.
    Follow(u64),
    /// So far before where the last request of the same file and operation began.
    Before(u64),
}

#[derive(Clone, Copy, Debug)]
struct Shape {
    file: u64,
    /// Compared with the script's share of writes, in percent.
    op_percent: u32,
    bytes: u32,
    app: u32,
    target: Option<u32>,
    issued_ns: Option<i64>,
}

fn at() -> impl Strategy<Value = At> {
    prop_oneof![
        4 => (0u64..24).prop_map(|block| At::Offset(block * BLOCK)),
        1 => (0u64..100_000).prop_map(At::Offset),
        5 => Just(At::Follow(0)),
        2 => (1u64..8).prop_map(|blocks| At::Follow(blocks * BLOCK)),
        2 => (1u64..8).prop_map(|blocks| At::Before(blocks * BLOCK)),
    ]
}

fn shape() -> impl Strategy<Value = Shape> {
    let bytes = prop_oneof![
        12 => (1u32..=4).prop_map(|blocks| blocks * BLOCK as u32),
        2 => 1u32..10_000,
        1 => Just(131_072),
    ];
    let issued_ns = prop_oneof![
        2 => Just(0),
        6 => -3_000_000i64..0,
        1 => 1i64..1_000_000,
        1 => Just(-2_000_000_000),
    ];
    (0u64..3, 0u32..100, bytes, 0u32..4, option::weighted(0.25, 0u32..6), option::weighted(0.5, issued_ns))
        .prop_map(|(file, op_percent, bytes, app, target, issued_ns)| Shape {
            file,
            op_percent,
            bytes,
            app,
            target,
            issued_ns,
        })
}

fn malformed() -> impl Strategy<Value = Action> {
    let refused = |offset, bytes| {
        let (file, op, app) = (FileId(0), Op::Write, AppId(0));
        Action::Submit(Arrival { file, op, offset, bytes, app, target: None, issued_ns: None })
    };
    prop_oneof![Just(refused(0, 0)), Just(refused(u64::MAX - 100, 4096))]
}

fn layout() -> impl Strategy<Value = Layout> {
    let striped = (0u32..4, select(vec![BLOCK, 2 * BLOCK, 5000, 16 * BLOCK]), 1u32..=5)
        .prop_map(|(first_target, stripe_bytes, targets)| Layout { first_target, stripe_bytes, targets });
    prop_oneof![1 => Just(Layout::SINGLE), 4 => striped]
}

/// Round robin, or extents with gaps between them.
fn file_layout() -> impl Strategy<Value = FileLayout> {
    let extent =
        (0u64..3, 1u64..40, select(vec![BLOCK, 3000, 4 * BLOCK]), vec((0u32..9).prop_map(TargetId), 1..5));
    let extents = vec(extent, 0..4).prop_map(|list| {
        let mut end = 0;
        let place = |(gap, blocks, stripe_bytes, targets)| {
            let start = end + gap * BLOCK;
            end = start + blocks * BLOCK;
            Extent { start, end, stripe_bytes, targets }
        };
        FileLayout::new(list.into_iter().map(place).collect()).expect("extents in order")
    });
    let striped = layout().prop_map(|layout| FileLayout::try_from(layout).expect("few targets"));
    prop_oneof![2 => extents, 1 => striped]
}

fn ending() -> impl Strategy<Value = Ending> {
    prop_oneof![10 => Just(Ending::Whole), 1 => Just(Ending::Short), 1 => Just(Ending::Failed)]
}

fn intent(switches: bool) -> impl Strategy<Value = Intent> {
    prop_oneof![
        240 => (shape(), at()).prop_map(|(shape, at)| Intent::Submit { shape, at }),
        160 => (0usize..4, ending()).prop_map(|(place, ending)| Intent::Act(Action::Complete(place, ending))),
        40 => Just(Intent::Act(Action::Wake)),
        20 => Just(Intent::Act(Action::Ask)),
        4 => malformed().prop_map(Intent::Act),
        4 => prices().prop_map(|prices| Intent::Act(Action::SetPrices(prices))),
        4 => (0u64..3, file_layout()).prop_map(|(file, layout)| Intent::Act(Action::SetLayout(FileId(file), layout))),
        1 => Just(Intent::Act(Action::Drain)),
        (if switches { 30 } else { 0 }) => any_scheduler().prop_map(|to| Intent::Act(Action::Switch(to))),
    ]
}

/// Some of nothing, some of everything that scripts take time for.
pub fn prices() -> impl Strategy<Value = Prices> {
    let saving = || select(vec![0u64, 1, 30, 300, 2_000, 20_000, 10_000_000]).prop_map(Span::from_micros);
    let savings = || [saving(), saving(), saving()];
    let rate = || select(vec![0u32, 1, 100, 150, 200, 400, u32::MAX]);
    ([savings(), savings()], [rate(), rate(), rate(), rate(), rate(), rate()])
        .prop_map(|(saving, rate)| Prices { saving, rate })
}

fn delay() -> impl Strategy<Value = Span> {
    prop_oneof![
        10 => Just(Span::ZERO),
        3 => (1u64..10).prop_map(Span::from_micros),
        3 => (10u64..500).prop_map(Span::from_micros),
        2 => (1u64..4).prop_map(Span::from_millis),
        1 => (1u64..100).prop_map(Span::from_millis),
    ]
}

/// Scripts of up to `actions_max` actions that begin with the given scheduler.
pub fn script(
    scheduler: BoxedStrategy<SchedulerConfig>,
    switches: bool,
    actions_max: usize,
) -> impl Strategy<Value = Script> {
    let queue_max = prop_oneof![1 => 1u32..8, 6 => Just(1000)];
    let start_ns = prop_oneof![Just(0u64), Just(1_234_567), Just(1_700_000_000_123_456_789)];
    let writes_percent = select(vec![0u32, 0, 10, 50, 100]);
    let intents = vec((delay(), intent(switches)), 1..actions_max);
    (scheduler, queue_max, 1u32..=4, layout(), start_ns, writes_percent, intents).prop_map(
        |(scheduler, queue_max, depth, layout, start_ns, writes_percent, intents)| {
            let mut last = BTreeMap::new();
            let place = |(delay, intent)| (delay, resolve(intent, writes_percent, &mut last));
            Script {
                config: GateConfig { scheduler, queue_max, depth, layout },
                start: Time::from_nanos(start_ns),
                actions: intents.into_iter().map(place).collect(),
            }
        },
    )
}

/// Turns an intent into an action, given where the last request of each (file, operation) was.
fn resolve(intent: Intent, writes_percent: u32, last: &mut BTreeMap<(u64, Op), (u64, u64)>) -> Action {
    let (shape, at) = match intent {
        Intent::Submit { shape, at } => (shape, at),
        Intent::Act(action) => return action,
    };
    let op = if shape.op_percent < writes_percent { Op::Write } else { Op::Read };
    let (start, end) = last.get(&(shape.file, op)).copied().unwrap_or_default();
    let offset = match at {
        At::Offset(offset) => offset,
        At::Follow(gap) => end + gap,
        At::Before(bytes) => start.saturating_sub(bytes),
    };
    last.insert((shape.file, op), (offset, offset + u64::from(shape.bytes)));
    Action::Submit(Arrival {
        file: FileId(shape.file),
        op,
        offset,
        bytes: shape.bytes,
        app: AppId(shape.app),
        target: shape.target.map(TargetId),
        issued_ns: shape.issued_ns,
    })
}
