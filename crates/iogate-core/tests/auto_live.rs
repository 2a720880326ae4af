//! The choice as an engine drives it, in virtual time: what it predicts of the scheduler in use is what that does.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use iogate_core::auto::Pace;
use iogate_core::auto::driver::REQUESTS_PER_S;
use iogate_core::auto::live::{Next, Served};
use iogate_core::auto::ring::{Limits, PRESENT_MAX};
use iogate_core::auto::{Live, Log, Pricing, Storage};
use iogate_core::device::{self, Device, Placement, Station, Transfer};
use iogate_core::profile::measure;
use iogate_core::{
    AppId, ClientId, Decision, Dispatch, FileId, Gate, GateConfig, Layout, Op, Outcome, Request, RequestId,
    SchedulerConfig, Span, Time,
};

/// A mount's gate lets so many dispatches through.
const DEPTH: u32 = 16;
/// Files of a mount's modelled device lie so far from each other.
const APART: u64 = 5 << 30;
const PIECE: u32 = 64 << 10;
/// Each application's clients read their file together, each every so many pieces.
const CLIENTS: u64 = 4;

struct Model(&'static str);

impl Pricing for Model {
    fn device(&self) -> Box<dyn Device> {
        device::parse(self.0).unwrap()
    }

    fn extent_bytes(&self) -> u64 {
        APART
    }
}

/// A mount of a modelled device with strided readers.
struct World {
    gate: Gate,
    station: Station,
    placement: Placement,
    log: Log,
    live: Live,
    /// Until when it thinks about what it has taken; nothing is noted then.
    thinking: Option<Time>,
    taken: Log,
    coming: BinaryHeap<Reverse<(Time, u64)>>,
    service: BinaryHeap<Reverse<(Time, u64)>>,
    flying: Vec<(Dispatch, Time)>,
    /// Pieces that each client has had.
    rounds: Vec<u64>,
    sender: Vec<u64>,
    completed: u64,
    random: u64,
    /// What it said of itself after each window, in millionths.
    errors: Vec<i64>,
    /// How much longer than usual the kernel takes now and then.
    late_us: u64,
    /// Whether what is proposed is done.
    applies: bool,
}

fn modelled(device: &'static str) -> Storage {
    let profile = measure(device::parse(device).unwrap(), 1).finish(device, false, None);
    Storage::modelled(profile, Arc::new(Model(device)))
}

impl World {
    fn new(device: &'static str, apps: u64, late_us: u64) -> World {
        let scheduler = SchedulerConfig::by_name("fifo").unwrap();
        World::before(device, &modelled(device), scheduler, apps, late_us)
    }

    /// In front of a device of which `storage` is known, beginning with `scheduler`.
    fn before(device: &str, storage: &Storage, scheduler: SchedulerConfig, apps: u64, late_us: u64) -> World {
        let config = GateConfig { scheduler, queue_max: 1_000, depth: DEPTH, layout: Layout::SINGLE };
        let clients = apps * CLIENTS;
        let live = Live::new(&config, storage, Pace::new(REQUESTS_PER_S, Time::ZERO), Time::ZERO);
        World {
            gate: Gate::new(&config).unwrap(),
            station: Station::new(device::parse(device).unwrap()),
            placement: Placement::new(APART),
            log: Log::new(live.limits()),
            live,
            thinking: None,
            taken: Log::default(),
            coming: (0..clients).map(|client| Reverse((Time::from_nanos(client), client))).collect(),
            service: BinaryHeap::new(),
            flying: Vec::new(),
            rounds: vec![0; clients as usize],
            sender: Vec::new(),
            completed: 0,
            random: 1,
            errors: Vec::new(),
            late_us,
            applies: false,
        }
    }

    fn below(&mut self, n: u64) -> u64 {
        self.random =
            self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 33) % n
    }

    fn run(&mut self, span: Span) {
        let mut now = Time::ZERO;
        while now < Time::ZERO + span {
            while let Some(&Reverse((at, client))) = self.coming.peek()
                && at <= now
            {
                self.coming.pop();
                self.arrive(now, client);
            }
            self.think(now);
            let deadline = loop {
                match self.gate.next(now) {
                    Decision::Dispatch(dispatch) => self.begin(now, dispatch),
                    Decision::WaitUntil(until, _) => break Some(until),
                    Decision::Idle => break None,
                }
            };
            let end = self.service.peek().map(|Reverse((end, _))| *end);
            let arrival = self.coming.peek().map(|Reverse((at, _))| *at);
            let next = [end, arrival, deadline, self.thinking].into_iter().flatten().min();
            now = next.unwrap().max(now);
            while let Some(&Reverse((end, flight))) = self.service.peek()
                && end <= now
            {
                self.service.pop();
                self.end(now, flight);
            }
        }
    }

    fn arrive(&mut self, now: Time, client: u64) {
        let app = client / CLIENTS;
        let round = self.rounds[client as usize];
        let request = Request {
            id: RequestId(self.sender.len() as u64),
            file: FileId(app + 100),
            op: Op::Read,
            offset: (round * CLIENTS + client % CLIENTS) * u64::from(PIECE),
            bytes: PIECE,
            app: AppId(app as u32 + 1),
            client: ClientId(client as u32 + 1),
            target: None,
            issued: None,
        };
        self.rounds[client as usize] += 1;
        self.sender.push(client);
        self.gate.submit(now, &request).unwrap();
        self.log.arrived(now, &request);
        if self.log.is_due(now) {
            let sender = &self.sender;
            let client = |id: RequestId| ClientId(sender[id.0 as usize] as u32 + 1);
            let present = self.gate.present(PRESENT_MAX);
            self.log.begin(now, present.into_iter().map(|present| (present, client(present.id))));
        }
    }

    fn begin(&mut self, now: Time, dispatch: Dispatch) {
        let Dispatch { op, file, offset, bytes, .. } = dispatch;
        let mut visit = self.station.begin(now);
        self.placement.for_each_piece(op, file, offset, bytes, |address, bytes| {
            visit.serve(Transfer { op, address, bytes });
        });
        self.service.push(Reverse((visit.end(), self.flying.len() as u64)));
        self.flying.push((dispatch, now));
    }

    fn end(&mut self, now: Time, flight: u64) {
        let (Dispatch { id, file, op, offset, bytes, .. }, began) = self.flying[flight as usize];
        let parts: Vec<_> = self.gate.parts(id).collect();
        self.gate.complete(now, id, Outcome::Done { bytes });
        for part in parts {
            self.log.completed(now, part.request, part.bytes);
            self.completed += 1;
            // A process comes back through the kernel in some hundred microseconds, and now and then in milliseconds.
            let late = if self.below(8) == 0 { self.late_us } else { 0 };
            let think = Span::from_micros(100 + self.below(100 + late));
            self.coming.push(Reverse((now + think, self.sender[part.request.0 as usize])));
        }
        self.log.served(now, || Served { began, ended: now, file, offset, bytes, op });
    }

    /// The thread that thinks, which takes a while for it.
    fn think(&mut self, now: Time) {
        if self.thinking.is_none() && self.log.is_ripe(now) {
            self.log.take(&mut self.taken);
            if !self.live.consider(&mut self.taken, now) {
                self.log.give_back(&mut self.taken, self.live.limits());
                return;
            }
            self.log.pause();
            self.thinking = Some(now + Span::from_millis(300));
        }
        if self.thinking.is_some_and(|over| over <= now) {
            loop {
                match self.live.step(now) {
                    Next::More => {}
                    Next::Over => break,
                    Next::Pause(span) => {
                        self.thinking = Some(now + span);
                        return;
                    }
                }
            }
            // Unless it is applied, it stays with what there is, and so goes on to predict that.
            if let Some(scheduler) = self.live.proposal().filter(|_| self.applies) {
                self.gate.switch(now, scheduler);
            }
            self.live.settled(now, self.applies);
            self.errors.extend(self.live.status().error);
            self.log.rest(self.live.limits());
            self.thinking = None;
        }
    }
}

/// A disk without a request in between goes on reading, and hardly ever seeks then; one that always has another request seeks each time.
/// Which of both it is depends on all that it has served lately, and is a factor of up to fourteen.
#[test]
fn what_fifo_takes_on_a_disk_is_predicted() {
    for device in ["hdd", "aioli-ide", "suno"] {
        for apps in 1..=3 {
            for late_us in [0, 2_000] {
                let mut world = World::new(device, apps, late_us);
                world.run(Span::from_secs(20));
                let World { errors, completed, .. } = world;
                assert!(
                    errors.len() > 5,
                    "{device}, {apps}, {late_us}: {completed} in {} windows",
                    errors.len()
                );
                let worst = errors.iter().max();
                assert!(worst < Some(&200_000), "{device}, {apps}, {late_us}: {errors:?}");
            }
        }
    }
}

#[test]
fn it_begins_with_what_spares_seeks_where_they_are_known_to_cost() {
    let kinds = |depth| {
        let known = ["hdd", "aioli-ide", "unit:100us", "pcie-ssd-100g"].map(modelled);
        let assumed = [true, false].map(|rotational| Storage::unknown("disk", rotational));
        known.iter().chain(&assumed).map(|storage| storage.first(depth).to_string()).collect::<Vec<_>>()
    };
    for depth in [1, DEPTH] {
        assert_eq!(kinds(depth), ["aioli", "aioli", "fifo", "fifo", "aioli", "fifo"], "depth {depth}");
    }
}

/// Memory behind a virtual disk that calls itself rotating: the first window shows that seeks cost nothing, and one at a time hides
/// what several would gain, so it must not stay with that for lack of a better prediction.
#[test]
fn a_fast_device_that_calls_itself_rotating_is_left_to_fifo_at_once() {
    for (device, leaves) in
        [("unit:20us", true), ("unit:300us", true), ("pcie-ssd-100g", true), ("hdd", false)]
    {
        let storage = Storage::unknown("disk", true);
        let mut world = World::before(device, &storage, storage.first(DEPTH), 2, 0);
        world.applies = true;
        world.run(Span::from_millis(1_500));
        let choice = world.live.choice(Time::ZERO + Span::from_millis(1_500));
        let why = "-> fifo: seeks cost too little to be spared by waits";
        let left = choice.changes.iter().any(|change| change.why.ends_with(why));
        assert_eq!(left, leaves, "{device}: {choice:?}");
        assert_eq!(world.gate.scheduler().to_string() == "fifo", leaves, "{device}: {choice:?}");
    }
}

/// Whether it learns prices or was told of them: a prior is asked after the first completions if they were told, and only then.
#[test]
fn what_was_measured_before_is_known_from_the_first_completions_on() {
    let profile = measure(device::parse("hdd").unwrap(), 1).finish("disk", true, None);
    let kept = || Storage::kept(profile.clone());
    for (storage, first, limits, expected) in [
        (kept(), "fifo", Limits::EARLY, 1),
        // What one begins with because seeks cost stays.
        (kept(), "aioli", Limits::EARLY, 0),
        (Storage::unknown("disk", true), "fifo", Limits::USUAL, 0),
    ] {
        let first = SchedulerConfig::by_name(first).unwrap();
        let mut world = World::before("hdd", &storage, first, 2, 0);
        world.applies = true;
        assert_eq!(world.live.limits(), limits);
        assert_eq!(world.live.prices().is_some(), limits == Limits::EARLY, "priced waits");
        world.run(Span::from_millis(2_000));
        let choice = world.live.choice(Time::ZERO + Span::from_millis(2_000));
        let of_prior =
            choice.changes.iter().filter(|change| change.why.contains("in situations like this one"));
        assert_eq!(of_prior.count(), expected, "{choice:?}");
        assert_eq!(world.live.limits(), Limits::USUAL, "once");
        assert!(world.completed > 100, "{}", world.completed);
    }
}

/// What one has learnt on such a virtual disk, the next one begins with; on a disk it begins with what spares seeks still.
#[test]
fn what_was_learnt_before_says_what_to_begin_with() {
    for (device, first) in [("unit:20us", "fifo"), ("unit:300us", "fifo"), ("hdd", "aioli")] {
        let unknown = || Storage::unknown("disk", true);
        assert_eq!(unknown().first(DEPTH).to_string(), "aioli");
        let mut world = World::before(device, &unknown(), unknown().first(DEPTH), 2, 0);
        world.applies = true;
        world.run(Span::from_secs(2));
        assert_eq!(world.live.choice(Time::ZERO).prices.as_deref(), Some("learnt here"));
        let findings = world.live.findings().unwrap();
        assert!(!findings.is_empty());
        let known = unknown().with_findings(&findings).told("kept since then");
        assert_eq!(known.first(DEPTH).to_string(), first, "{device}");
        // It is known from the first request on, and goes on learning.
        let world = World::before(device, &known, known.first(DEPTH), 2, 0);
        assert!(world.live.prices().is_some() && known.prices().is_some());
        let choice = world.live.choice(Time::ZERO);
        assert_eq!((choice.prices.as_deref(), choice.held), (Some("kept since then"), None));
        assert!(world.live.findings().is_some());
        assert!(
            Live::new(&world.gate.config().clone(), &modelled("hdd"), world.live.pace(), Time::ZERO)
                .findings()
                .is_none()
        );
    }
}

#[test]
fn too_few_dispatches_are_not_called_a_doubt() {
    let scheduler = SchedulerConfig::by_name("fifo").unwrap();
    let config = GateConfig { scheduler, queue_max: 1_000, depth: DEPTH, layout: Layout::SINGLE };
    let mut live = Live::new(
        &config,
        &Storage::unknown("disk", true),
        Pace::new(REQUESTS_PER_S, Time::ZERO),
        Time::ZERO,
    );
    assert_eq!(live.choice(Time::ZERO).held, None, "nothing was looked at");
    // 300 requests, in long runs.
    let mut log = Log::default();
    log.begin(Time::ZERO, []);
    let (file, op, now) = (FileId(1), Op::Read, Time::from_nanos(300_000_000));
    for id in 0..300 {
        let request = Request {
            id: RequestId(id),
            file,
            op,
            offset: id * 4_096,
            bytes: 4_096,
            app: AppId(1),
            client: ClientId(1),
            target: None,
            issued: None,
        };
        log.arrived(Time::from_nanos(id), &request);
        log.completed(now, RequestId(id), 4_096);
    }
    for run in 0..10 {
        let bytes = 30 * 4_096;
        log.served(now, || Served { began: Time::ZERO, ended: now, file, offset: run * bytes, bytes, op });
    }
    assert!(log.is_ripe(now));
    live.consider(&mut log, now);
    assert_eq!(live.choice(now).held.as_deref(), Some("too few dispatches yet: 10 of 64"));
}

/// 300 requests of one client that are served alone, in 20 us each, each so far from the one before.
fn served_alone(from: Time, apart: u64) -> Log {
    let mut log = Log::default();
    log.begin(from, []);
    for index in 0..300 {
        let began = from + Span::from_millis(index);
        let ended = began + Span::from_micros(20);
        let (file, op, offset, bytes) = (FileId(1), Op::Read, index * apart, 4_096);
        let request = Request {
            id: RequestId(from.as_nanos() + index),
            file,
            op,
            offset,
            bytes,
            app: AppId(1),
            client: ClientId(1),
            target: None,
            issued: None,
        };
        log.arrived(began, &request);
        log.completed(ended, request.id, bytes);
        log.served(ended, || Served { began, ended, file, offset, bytes: bytes.into(), op });
    }
    log
}

/// One that has begun with `aioli`, as seeks are thought to cost.
fn sparing_seeks() -> Live {
    let storage = Storage::unknown("disk", true);
    let scheduler = storage.first(DEPTH);
    let config = GateConfig { scheduler, queue_max: 1_000, depth: DEPTH, layout: Layout::SINGLE };
    Live::new(&config, &storage, Pace::new(REQUESTS_PER_S, Time::ZERO), Time::ZERO)
}

fn proposed(live: &Live) -> Option<String> {
    live.proposal().map(|scheduler| scheduler.to_string())
}

#[test]
fn what_spares_seeks_for_nothing_is_left_as_soon_as_it_can_be() {
    let mut live = sparing_seeks();
    // What it takes to be explained again.
    for from in 0..20 {
        let from = Time::ZERO + Span::from_secs(from);
        assert!(live.consider(&mut served_alone(from, 1 << 20), from + Span::from_secs(1)));
        assert_eq!(proposed(&live).as_deref(), Some("fifo"), "{from:?}");
        live.settled(from, false);
    }
    let now = Time::ZERO + Span::from_secs(20);
    live.settled(now, true);
    assert_eq!(proposed(&live), None);
    let why = "aioli -> fifo: seeks cost too little to be spared by waits";
    assert_eq!(live.choice(now).why, why);
}

#[test]
fn what_it_has_looked_at_is_not_forgotten_with_what_it_has_begun_with() {
    let mut live = sparing_seeks();
    let now = Time::ZERO + Span::from_secs(1);
    assert!(live.consider(&mut served_alone(Time::ZERO, 4_096), now));
    while live.step(now) == Next::More {}
    live.settled(now, false);
    let before = live.choice(now);
    assert!(before.windows == 1 && before.simulated > 0, "{before:?}");
    // Jumps are cheap.
    assert!(live.consider(&mut served_alone(now, 1 << 20), now));
    assert_eq!(proposed(&live).as_deref(), Some("fifo"));
    live.settled(now, true);
    let after = live.choice(now);
    assert_eq!((after.windows, after.simulated), (before.windows, before.simulated));
    assert_eq!(after.switches, before.switches + 1);
}
