//! Schedulers of a driver's own: what they see, what they may pick, and what becomes of one that does something else.

use std::sync::{Arc, Mutex};

use iogate_core::sched::{Choice, Own, Waiting};
use iogate_core::{
    AppId, ClientId, Decision, FileId, Gate, GateConfig, Layout, Op, Outcome, Part, Request, RequestId,
    SchedulerConfig, SchedulerKind, Span, TargetId, Time, WaitReason,
};

type Picks = dyn FnMut(Time, &mut Vec<Waiting>, &mut Vec<u64>) -> Result<Choice, String> + Send;

/// Keeps what waits in the order in which it came, and has a function pick.
struct List {
    waiting: Vec<Waiting>,
    pick: Box<Picks>,
    ends: Arc<Mutex<Vec<(FileId, Op, u64)>>>,
}

impl List {
    fn new(
        pick: impl FnMut(Time, &mut Vec<Waiting>, &mut Vec<u64>) -> Result<Choice, String> + Send + 'static,
    ) -> Box<List> {
        Box::new(List { waiting: Vec::new(), pick: Box::new(pick), ends: Arc::default() })
    }

    /// The oldest request.
    fn fifo() -> Box<List> {
        List::new(|_, waiting, picked| {
            // What was held back comes later than it arrived.
            let oldest = (0..waiting.len()).min_by_key(|&index| waiting[index].number);
            picked.extend(oldest.map(|oldest| waiting.swap_remove(oldest).number));
            Ok(Choice::Dispatch)
        })
    }

    /// The numbers that are said, once.
    fn says(numbers: &'static [u64]) -> Box<List> {
        List::new(move |_, _, picked| {
            picked.extend(numbers);
            Ok(Choice::Dispatch)
        })
    }
}

impl Own for List {
    fn insert(&mut self, _now: Time, request: &Waiting) -> Result<(), String> {
        self.waiting.push(*request);
        Ok(())
    }

    fn pick(&mut self, now: Time, _patience: bool, picked: &mut Vec<u64>) -> Result<Choice, String> {
        (self.pick)(now, &mut self.waiting, picked)
    }

    fn completed(&mut self, _now: Time, file: FileId, op: Op, end: u64) -> Result<(), String> {
        self.ends.lock().unwrap().push((file, op, end));
        Ok(())
    }
}

fn config(depth: u32) -> GateConfig {
    GateConfig {
        scheduler: SchedulerConfig::new(SchedulerKind::Fifo),
        queue_max: 1 << 16,
        depth,
        layout: Layout { first_target: 0, stripe_bytes: 4096, targets: 4 },
    }
}

fn request(id: u64, file: u64, op: Op, offset: u64, bytes: u32) -> Request {
    Request {
        id: RequestId(id),
        file: FileId(file),
        op,
        offset,
        bytes,
        app: AppId(7),
        client: ClientId(0),
        target: None,
        issued: Some(Time::from_nanos(id)),
    }
}

fn at(ns: u64) -> Time {
    Time::from_nanos(ns)
}

/// A gate with these requests of file 1, submitted at 10 ns.
fn holding(own: Box<List>, requests: &[(Op, u64, u32)]) -> Gate {
    let mut gate = Gate::with_own(&config(4), own).unwrap();
    for (id, &(op, offset, bytes)) in requests.iter().enumerate() {
        gate.submit(at(10), &request(100 + id as u64, 1, op, offset, bytes)).unwrap();
    }
    gate
}

#[test]
fn one_that_goes_by_arrival_decides_as_fifo_does() {
    let mut gates = [Gate::new(&config(3)).unwrap(), Gate::with_own(&config(3), List::fifo()).unwrap()];
    let mut seed = 1u64;
    let mut below = |n: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % n
    };
    let mut flying = Vec::new();
    let mut decisions = 0;
    for step in 0..20_000 {
        let now = at(step * 1000);
        if below(2) == 0 {
            let op = if below(3) == 0 { Op::Write } else { Op::Read };
            let request = request(step, below(3), op, 512 * below(100), 512 * (1 + below(8) as u32));
            gates.iter_mut().for_each(|gate| gate.submit(now, &request).unwrap());
        } else if !flying.is_empty() {
            let id = flying.swap_remove(below(flying.len() as u64) as usize);
            gates.iter_mut().for_each(|gate| gate.complete(now, id, Outcome::Done { bytes: 1 }));
        }
        let [one, other] = &mut gates;
        while let Decision::Dispatch(dispatch) = one.next(now) {
            assert_eq!(other.next(now), Decision::Dispatch(dispatch));
            let parts = |gate: &Gate| gate.parts(dispatch.id).collect::<Vec<Part>>();
            assert_eq!(parts(one), parts(other));
            flying.push(dispatch.id);
            decisions += 1;
        }
        assert_eq!(other.next(now), Decision::Idle);
        assert_eq!((one.len(), other.fault()), (other.len(), None));
    }
    assert!(decisions > 5_000, "{decisions}");
}

#[test]
fn it_sees_what_was_submitted_and_hears_of_ends() {
    let own = List::fifo();
    let ends = Arc::clone(&own.ends);
    let seen = Arc::new(Mutex::new(Vec::new()));
    let copy = Arc::clone(&seen);
    let own = Box::new(List {
        pick: Box::new(move |_, waiting, picked| {
            copy.lock().unwrap().extend_from_slice(waiting);
            picked.extend(waiting.drain(..).map(|request| request.number));
            Ok(Choice::Dispatch)
        }),
        ..*own
    });
    let mut gate = holding(own, &[(Op::Read, 8192, 4096), (Op::Read, 12288, 100)]);
    let Decision::Dispatch(dispatch) = gate.next(at(20)) else { panic!("it picks both") };
    assert_eq!((dispatch.offset, dispatch.bytes, dispatch.parts), (8192, 4196, 2));
    let first = Waiting {
        number: 0,
        request: RequestId(100),
        file: FileId(1),
        op: Op::Read,
        offset: 8192,
        bytes: 4096,
        app: AppId(7),
        target: TargetId(2),
        arrival: at(10),
        issued: Some(at(100)),
    };
    assert_eq!(seen.lock().unwrap()[0], first);
    gate.complete(at(30), dispatch.id, Outcome::Failed);
    assert_eq!(*ends.lock().unwrap(), [(FileId(1), Op::Read, 12388)]);
}

#[test]
fn what_conflicts_is_held_back_from_it() {
    let mut gate = holding(List::fifo(), &[(Op::Write, 0, 4096), (Op::Read, 0, 1), (Op::Read, 5000, 1)]);
    let Decision::Dispatch(write) = gate.next(at(20)) else { panic!("the write goes") };
    let Decision::Dispatch(other) = gate.next(at(20)) else { panic!("the one beside it goes") };
    assert_eq!((write.offset, other.offset), (0, 5000));
    assert_eq!(gate.next(at(20)), Decision::Idle);
    gate.complete(at(30), write.id, Outcome::Done { bytes: 4096 });
    assert!(matches!(gate.next(at(30)), Decision::Dispatch(read) if read.offset == 0));
}

#[test]
fn it_may_wait_for_a_time_to_come() {
    let until = at(50);
    let own = List::new(move |now, waiting, picked| {
        if now < until {
            return Ok(Choice::WaitUntil(until, WaitReason::BetterRun));
        }
        picked.push(waiting.remove(0).number);
        Ok(Choice::Dispatch)
    });
    let mut gate = holding(own, &[(Op::Read, 0, 1)]);
    assert_eq!(gate.next(at(20)), Decision::WaitUntil(until, WaitReason::BetterRun));
    assert!(matches!(gate.next(until), Decision::Dispatch(_)));
    assert_eq!(gate.stats().waits[WaitReason::BetterRun as usize].total, Span::from_nanos(30));
}

#[test]
fn what_it_must_not_pick_ends_its_part_and_loses_nothing() {
    let three = &[(Op::Read, 0, 4096), (Op::Read, 8192, 4096), (Op::Write, 4096, 4096)];
    for (numbers, said) in [
        (&[][..], "picked no requests"),
        (&[3], "request 3, which does not wait here"),
        (&[0, 0], "request 0, which does not wait here: expected one that was inserted, and each once"),
        (
            &[0, 1],
            "request 1 (r of file 1, 4096 bytes at offset 8192) behind request 0: expected the same file and operation, and offset 4096",
        ),
        (&[0, 2], "request 2 (w of file 1, 4096 bytes at offset 4096) behind request 0"),
    ] {
        let mut gate = holding(List::says(numbers), three);
        assert_eq!(gate.fault(), None);
        assert_eq!(gate.next(at(20)), Decision::Idle);
        let fault = gate.fault().unwrap_or_default().to_owned();
        assert!(fault.contains(said), "{numbers:?}: {fault}");
        // It is not asked again, and another one finds everything.
        gate.submit(at(30), &request(200, 2, Op::Read, 0, 1)).unwrap();
        assert_eq!(gate.next(at(30)), Decision::Idle);
        gate.switch(at(40), &SchedulerConfig::new(SchedulerKind::Fifo));
        assert_eq!((gate.fault(), gate.len()), (None, 4));
        let mut served = Vec::new();
        while let Decision::Dispatch(dispatch) = gate.next(at(40)) {
            served.extend(gate.parts(dispatch.id).map(|part| part.request.0));
            gate.complete(at(40), dispatch.id, Outcome::Done { bytes: dispatch.bytes });
        }
        assert_eq!(served, [100, 101, 102, 200]);
    }
}

#[test]
fn what_it_picked_before_is_not_there_again() {
    let mut gate = holding(List::says(&[0]), &[(Op::Read, 0, 1), (Op::Read, 5, 1)]);
    assert!(matches!(gate.next(at(20)), Decision::Dispatch(_)));
    assert_eq!(gate.next(at(20)), Decision::Idle);
    assert!(gate.fault().unwrap_or_default().contains("request 0, which does not wait here"));
}

#[test]
fn a_wait_that_is_over_and_an_error_end_its_part() {
    let past = List::new(|now, _, _| Ok(Choice::WaitUntil(now, WaitReason::BetterRun)));
    let both = List::new(|_, waiting, picked| {
        picked.push(waiting[0].number);
        Ok(Choice::Idle)
    });
    let fails = List::new(|_, _, _| Err("the disk is green".into()));
    for (own, said) in
        [(past, "expected a time after now"), (both, "did not want them"), (fails, "the disk is green")]
    {
        let mut gate = holding(own, &[(Op::Read, 0, 1)]);
        assert_eq!(gate.next(at(20)), Decision::Idle);
        assert!(gate.fault().unwrap_or_default().contains(said), "{:?}", gate.fault());
    }
}

#[test]
fn a_switch_to_it_hands_over_what_is_queued() {
    let mut gate = Gate::new(&config(1)).unwrap();
    for id in 0..3 {
        gate.submit(at(1), &request(id, 1, Op::Read, id * 4096, 4096)).unwrap();
    }
    let last_first = List::new(|_, waiting, picked| {
        picked.extend(waiting.pop().map(|request| request.number));
        Ok(Choice::Dispatch)
    });
    gate.switch_to_own(at(2), last_first);
    for offset in [8192, 4096, 0] {
        let Decision::Dispatch(dispatch) = gate.next(at(3)) else { panic!("there is more") };
        assert_eq!(dispatch.offset, offset);
        gate.complete(at(3), dispatch.id, Outcome::Done { bytes: 4096 });
    }
    assert!(gate.is_empty());
    assert_eq!(gate.stats().switches, 1);
}
