//! A small closed-loop world: processes, a gate, a device.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use iogate_core::auto::{Auto, Candidates, Chooser, Meter, Pace, Pricing};
use iogate_core::device::{self, Device, Placement, Station, Transfer};
use iogate_core::profile::{Profile, Profiled, Refit};
use iogate_core::{
    AppId, ClientId, Decision, Dispatch, DispatchId, FileId, Gate, GateConfig, Layout, Op, Outcome, Request,
    RequestId, SchedulerConfig, Span, Time,
};

/// Random numbers: SplitMix64.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % n
    }
}

/// A process: so many requests, `outstanding` of them at a time, each after thinking.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Process {
    pub(crate) app: u32,
    pub(crate) file: u64,
    pub(crate) op: Op,
    pub(crate) bytes: u32,
    /// Bytes from one request to the next; 0: anywhere in 1 GiB.
    pub(crate) stride: u64,
    pub(crate) start: u64,
    pub(crate) outstanding: u32,
    pub(crate) think: Span,
    pub(crate) requests: u32,
}

#[derive(Clone, Debug)]
pub(crate) struct Mix {
    pub(crate) device: &'static str,
    /// What goes on where the last transfer ended takes as many thousandths of what it takes elsewhere.
    pub(crate) going_on: u64,
    pub(crate) depth: u32,
    pub(crate) processes: Vec<Process>,
}

impl Mix {
    /// A mix of one to three applications, of one to four processes each.
    pub(crate) fn random(seed: u64) -> Mix {
        let mut random = Random(seed);
        let device = ["hdd", "edel", "suno", "unit:100us"][random.below(4) as usize];
        let depth = [1, 4, 16][random.below(3) as usize];
        let mut processes = Vec::new();
        for app in 1..=1 + random.below(3) as u32 {
            let count = 1 + random.below(4);
            let shared = random.below(2) == 0;
            let op = if random.below(2) == 0 { Op::Read } else { Op::Write };
            let bytes = [4_096, 65_536, 262_144][random.below(3) as usize];
            let pattern = random.below(3);
            let outstanding = [1, 1, 4][random.below(3) as usize];
            let think = Span::from_micros([0, 100, 2_000][random.below(3) as usize]);
            for rank in 0..count {
                let file = u64::from(app) * 100 + if shared { 0 } else { rank };
                let b = u64::from(bytes);
                let (start, stride) = match pattern {
                    0 => (rank * (64 << 20), b),
                    1 => (rank * b, count * b),
                    _ => (0, 0),
                };
                let requests = 1_500;
                processes.push(Process { app, file, op, bytes, stride, start, outstanding, think, requests });
            }
        }
        Mix { device, going_on: ALIKE, depth, processes }
    }

    fn storage(&self) -> Box<dyn Device> {
        let device = device::parse(self.device).expect("a preset");
        if self.going_on == ALIKE { device } else { Near::boxed(device, self.going_on) }
    }

    pub(crate) fn config(&self, scheduler: &SchedulerConfig) -> GateConfig {
        GateConfig {
            scheduler: scheduler.clone(),
            queue_max: 65_536,
            depth: self.depth,
            layout: Layout::SINGLE,
        }
    }

    pub(crate) fn pricing(&self) -> Arc<dyn Pricing> {
        let mix = self.clone();
        Arc::new(move || mix.storage())
    }

    pub(crate) fn candidates(&self) -> Candidates {
        Candidates::every()
    }

    /// A chooser for it that begins with `scheduler`.
    pub(crate) fn auto(&self, scheduler: &SchedulerConfig, per_s: u64) -> Auto {
        self.believing(self.pricing(), scheduler, per_s)
    }

    /// The same, of which the storage is said to charge as `pricing` says.
    pub(crate) fn believing(
        &self,
        pricing: Arc<dyn Pricing>,
        scheduler: &SchedulerConfig,
        per_s: u64,
    ) -> Auto {
        let chooser = Chooser::new(&self.config(scheduler), pricing, Time::ZERO);
        Auto::new(chooser, Pace::new(per_s, Time::ZERO))
    }
}

/// Nothing is known of the storage but that it has no arm.
pub(crate) fn learning(mix: &Mix, scheduler: &SchedulerConfig, per_s: u64) -> Auto {
    let assumed = Profile::assumed("", false);
    let pricing = move || -> Box<dyn Device> { Box::new(Profiled::new(&assumed)) };
    let meter = Meter::new(Refit::from_nothing("", false));
    mix.believing(Arc::new(pricing), scheduler, per_s).learning(meter)
}

/// What goes on where the last transfer ended takes as long as anything.
pub(crate) const ALIKE: u64 = 1_000;

/// Storage that serves one transfer at a time, of which what goes on where the last one ended takes only a part of the time.
pub(crate) struct Near {
    far: Box<dyn Device>,
    thousandths: u64,
    end: Option<u64>,
}

impl Near {
    pub(crate) fn boxed(far: Box<dyn Device>, thousandths: u64) -> Box<dyn Device> {
        Box::new(Near { far, thousandths, end: None })
    }
}

impl Device for Near {
    fn serve(&mut self, now: Time, transfer: Transfer) -> Span {
        let goes_on = self.end.replace(transfer.address + transfer.bytes) == Some(transfer.address);
        let span = self.far.serve(now, transfer).as_nanos();
        Span::from_nanos(if goes_on { span * self.thousandths / 1_000 } else { span })
    }

    fn flush(&mut self, now: Time) -> Span {
        self.far.flush(now)
    }

    fn capacity(&self) -> u64 {
        self.far.capacity()
    }

    fn repositions(&self) -> u64 {
        self.far.repositions()
    }
}

/// What became of a run.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Ran {
    /// Of each application, by number: when its last request was complete, in ns.
    pub(crate) apps: Vec<(u32, u64)>,
    /// Each dispatch: time, file, offset, bytes.
    pub(crate) dispatches: Vec<(u64, u64, u64, u64)>,
    /// The schedulers in use, with the times of the changes.
    pub(crate) switches: Vec<(u64, String)>,
    /// What was tried in turns, and how many slices were over, as its status said.
    pub(crate) turns: Vec<(String, usize)>,
    pub(crate) memory_max: usize,
}

struct State {
    sent: u32,
    done: u32,
}

/// Runs `mix` behind a gate that begins with `scheduler`; with `auto`, that looks at it; `meddle` may do something to the gate
/// before it is asked.
pub(crate) fn run(
    mix: &Mix,
    scheduler: &SchedulerConfig,
    mut auto: Option<&mut Auto>,
    mut meddle: impl FnMut(Time, &mut Gate),
) -> Ran {
    let mut gate = Gate::new(&mix.config(scheduler)).unwrap();
    let mut station = Station::new(mix.storage());
    let mut placement = Placement::default();
    let mut random = Random(7);
    let mut states: Vec<State> = mix.processes.iter().map(|_| State { sent: 0, done: 0 }).collect();
    let mut coming: BinaryHeap<Reverse<(Time, usize)>> = BinaryHeap::new();
    for (index, process) in mix.processes.iter().enumerate() {
        (0..process.outstanding.min(process.requests))
            .for_each(|_| coming.push(Reverse((Time::ZERO, index))));
    }
    let mut service: BinaryHeap<Reverse<(Time, u32, DispatchId)>> = BinaryHeap::new();
    let (mut now, mut served, mut in_turns) = (Time::ZERO, 0, None);
    // By request id.
    let mut sender: Vec<usize> = Vec::new();
    let mut ran = Ran::default();
    let mut last: std::collections::BTreeMap<u32, u64> = Default::default();
    loop {
        while let Some(&Reverse((at, index))) = coming.peek()
            && at <= now
        {
            coming.pop();
            let (process, state) = (&mix.processes[index], &mut states[index]);
            let offset = match process.stride {
                0 => random.below((1 << 30) / u64::from(process.bytes)) * u64::from(process.bytes),
                stride => process.start + u64::from(state.sent) * stride,
            };
            state.sent += 1;
            let request = Request {
                id: RequestId(sender.len() as u64),
                file: FileId(process.file),
                op: process.op,
                offset,
                bytes: process.bytes,
                app: AppId(process.app),
                client: ClientId(index as u32 + 1),
                target: None,
                issued: None,
            };
            sender.push(index);
            gate.submit(now, &request).unwrap();
            if let Some(auto) = &mut auto {
                auto.arrived(now, &request);
            }
        }
        if let Some(auto) = &mut auto {
            let before = auto.status().switches;
            auto.look(now, &mut gate, |id| ClientId(sender[id.0 as usize] as u32 + 1));
            if auto.status().switches > before {
                ran.switches.push((now.as_nanos(), gate.scheduler().to_string()));
            }
            let turns = auto.status().turns.as_ref();
            if turns.map(|(_, slices)| *slices) != in_turns {
                in_turns = turns.map(|(_, slices)| *slices);
                ran.turns.extend(turns.map(|(of, slices)| (of.to_string(), *slices)));
            }
            ran.memory_max = auto.status().memory_max + auto.allocated_bytes();
        }
        meddle(now, &mut gate);
        let deadline = loop {
            match gate.next(now) {
                Decision::Dispatch(dispatch) => {
                    if let Some(auto) = &mut auto {
                        auto.dispatched(now, &dispatch);
                    }
                    let Dispatch { op, file, offset, bytes, .. } = dispatch;
                    let mut visit = station.begin(now);
                    placement.for_each_piece(op, file, offset, bytes, |address, bytes| {
                        visit.serve(Transfer { op, address, bytes });
                    });
                    if gate.parts(dispatch.id).any(|part| part.arrival < now) {
                        visit.hand_over();
                    }
                    served += 1;
                    service.push(Reverse((visit.end(), served, dispatch.id)));
                    ran.dispatches.push((now.as_nanos(), file.0, offset, bytes));
                }
                Decision::WaitUntil(until, _) => break Some(until),
                Decision::Idle => break None,
            }
        };
        let end = service.peek().map(|Reverse((end, ..))| *end);
        let arrival = coming.peek().map(|Reverse((at, _))| *at);
        let Some(next) = [end, arrival, deadline].into_iter().flatten().min() else { break };
        now = next.max(now);
        while let Some(&Reverse((end, _, id))) = service.peek()
            && end <= now
        {
            service.pop();
            if let Some(auto) = &mut auto {
                auto.ended(now, id);
            }
            let parts: Vec<_> = gate.parts(id).collect();
            let bytes = parts.iter().map(|part| u64::from(part.bytes)).sum();
            gate.complete(now, id, Outcome::Done { bytes });
            for part in parts {
                if let Some(auto) = &mut auto {
                    auto.completed(now, part.request, part.app, part.bytes);
                }
                let index = sender[part.request.0 as usize];
                let (process, state) = (&mix.processes[index], &mut states[index]);
                state.done += 1;
                last.insert(process.app, now.as_nanos());
                if state.done + process.outstanding <= process.requests {
                    coming.push(Reverse((now + process.think, index)));
                }
            }
        }
    }
    for (process, state) in mix.processes.iter().zip(&states) {
        assert_eq!((state.sent, state.done), (process.requests, process.requests), "of {process:?}");
    }
    ran.apps = last.into_iter().collect();
    ran
}

/// The mean over applications of the logarithm of what they took against `base`, and the largest factor.
pub(crate) fn slowdown(ran: &Ran, base: &Ran) -> (f64, f64) {
    let logs: Vec<f64> =
        (ran.apps.iter().zip(&base.apps)).map(|((_, a), (_, b))| (*a as f64 / *b as f64).ln()).collect();
    let worst = logs.iter().copied().fold(f64::MIN, f64::max);
    (logs.iter().sum::<f64>() / logs.len() as f64, worst.exp())
}

impl Mix {
    /// The same mix with so many requests that it takes about `seconds` with `fifo`.
    pub(crate) fn lasting(mut self, seconds: u64) -> Mix {
        let fifo = SchedulerConfig::by_name("fifo").unwrap();
        self.processes.iter_mut().for_each(|process| process.requests = 200);
        let took = run(&self, &fifo, None, |_, _| {}).apps.iter().map(|(_, end)| *end).max().unwrap();
        let requests = (200 * seconds * 1_000_000_000 / took.max(1)).clamp(200, 20_000);
        self.processes.iter_mut().for_each(|process| process.requests = requests as u32);
        self
    }
}
