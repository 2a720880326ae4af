//! What accounts say of waiting for caps, against who is over which cap when.

use super::nested::groups;
use super::*;
use crate::blame::{Accounting, Cause};

/// For how long applications wait for caps, by what buckets and queues are between any two calls of the gate.
#[derive(Default)]
struct Counted {
    at: u64,
    /// Requests that each application has in the gate; its time at a cap, in parts of its requests.
    has: BTreeMap<AppId, u64>,
    capped: BTreeMap<AppId, f64>,
}

impl Counted {
    /// Nothing happens to the gate until then.
    fn go_on(&mut self, gate: &Gate, now: u64) {
        let arbiter = gate.arbiter().unwrap();
        for (app, has) in self.has.iter().filter(|(_, has)| **has > 0) {
            let Some(class) = arbiter.class_of(*app) else { continue };
            let chain = core::iter::successors(Some(class), |at| arbiter.branch_of(*at));
            let until = chain.map(|at| arbiter.limits[at.index()].conforms_at().as_nanos()).max().unwrap();
            let waiting = arbiter.classes[class.index()].waiting;
            // With those that wait for their own application's.
            let held = gate.blame.as_ref().map_or(0, |blame| blame.held_own(*app)) as u32;
            let waiting = f64::from(if waiting > 0 { waiting + held } else { 0 });
            let span = until.min(now).saturating_sub(self.at);
            *self.capped.entry(*app).or_default() += span as f64 * waiting / *has as f64;
        }
        self.at = now;
    }
}

/// What happens next.
#[derive(Clone, Copy, Debug)]
enum Act {
    /// A request of an application at one of a few places, of so many blocks, comes.
    Comes(u32, u64, u32, Op),
    /// The dispatch that began first is completed.
    Completes,
    /// An application is in this branch from now on.
    Moves(u32, u32),
    /// Of a policy that gates share: so many MiB/s for each, by its number.
    Allots(u64),
}

fn acts() -> impl Strategy<Value = Vec<(Act, u64)>> {
    let op = prop_oneof![2 => Just(Op::Read), 1 => Just(Op::Write)];
    let comes = (1u32..7, 0u64..24, prop_oneof![1u32..9, 1u32..129], op);
    let act = prop_oneof![
        8 => comes.prop_map(|(app, at, blocks, op)| Act::Comes(app, at, blocks, op)),
        6 => Just(Act::Completes),
        1 => (1u32..7, 0u32..3).prop_map(|(app, branch)| Act::Moves(app, branch)),
        1 => (0u64..40).prop_map(Act::Allots),
    ];
    prop::collection::vec((act, prop_oneof![Just(0u64), 1u64..3 * MS]), 1..120)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// Whatever comes, overlaps, moves and is allotted: the time at a cap is as long as somebody waits who is over one.
    #[test]
    fn accounts_say_for_how_long_who_waits_for_a_cap(
        policy in groups(),
        is_shared in any::<bool>(),
        depth in 1u32..4,
        from in 0usize..40,
        acts in acts(),
    ) {
        let policy = Policy { is_shared, ..policy };
        let scheduler = SchedulerConfig::new(SchedulerKind::Fifo);
        let mut gate = Gate::new(&GateConfig { scheduler, queue_max: 1_000, depth, layout: Layout::SINGLE }).unwrap();
        gate.set_policy(Time::ZERO, Some(&policy)).unwrap();
        let (mut now, mut counted, mut wake) = (0, Counted::default(), None);
        let (mut serving, mut of) = (VecDeque::new(), BTreeMap::new());
        for (number, &(act, after)) in acts.iter().enumerate() {
            let next = now + after;
            // It is asked when it wants to be.
            while let Some(at) = wake.filter(|at| *at <= next) {
                counted.go_on(&gate, at);
                now = at;
                wake = ask(&mut gate, now, &mut serving);
            }
            counted.go_on(&gate, next);
            now = next;
            let time = Time::from_nanos(now);
            match act {
                Act::Comes(app, at, blocks, op) => {
                    let (file, offset) = (FileId(at / 8), at % 8 * 4096);
                    let request = Request { file, offset, bytes: blocks * 4096, op, ..block(number as u64, app) };
                    gate.submit(time, &request).unwrap();
                    of.insert(number as u64, AppId(app));
                    *counted.has.entry(AppId(app)).or_default() += 1;
                }
                Act::Completes => {
                    if let Some(id) = serving.pop_front() {
                        for part in gate.parts(id).collect::<Vec<_>>() {
                            *counted.has.get_mut(&of[&part.request.0]).unwrap() -= 1;
                        }
                        gate.complete(time, id, Outcome::Done { bytes: 0 });
                    }
                }
                Act::Moves(app, branch) => {
                    let branch = AppId(1_000_000 + branch);
                    if policy.branches.contains_key(&branch) {
                        gate.place(time, AppId(app), branch);
                    }
                }
                Act::Allots(rate) if is_shared => {
                    let leaves: Vec<Leaf> = gate.usages(time).map(|usage| usage.leaf).collect();
                    let rates = leaves.iter().zip(0..).map(|(leaf, at)| (*leaf, (rate * at % 40) << 20));
                    gate.allot(time, rates.collect::<Vec<_>>());
                }
                Act::Allots(_) => {}
            }
            if number == from {
                // From here on.
                counted.capped.clear();
                gate.set_accounting(time, Some((Accounting::Exact, &Prices::default())));
            }
            wake = ask(&mut gate, now, &mut serving);
        }
        for account in gate.accounts(Time::from_nanos(now)).unwrap_or_default() {
            let expected = account.app.and_then(|app| counted.capped.get(&app)).copied().unwrap_or_default();
            let found = account.causes[Cause::Cap as usize].as_nanos() as f64;
            let slack = account.busy.as_nanos() as f64 / 1_000.0 + 1_000.0;
            prop_assert!((found - expected).abs() <= slack, "{found} ns of {:?}, expected {expected}", account);
        }
    }
}

/// Dispatches what may go now. Returns when to ask again.
fn ask(gate: &mut Gate, now: u64, serving: &mut VecDeque<crate::DispatchId>) -> Option<u64> {
    loop {
        match gate.next(Time::from_nanos(now)) {
            Decision::Dispatch(dispatch) => serving.push_back(dispatch.id),
            Decision::WaitUntil(at, _) => return Some(at.as_nanos()),
            Decision::Idle => return None,
        }
    }
}

/// What is let through, as another one waits for it, is paid for by those that wait already: from then on for their cap.
#[test]
fn who_is_over_a_cap_by_what_others_wait_for_waits_for_the_cap() {
    let mut gate = one_at_a_time();
    let capped = Entitlement { max: rate(1 << 20), ..Entitlement::default() };
    let policy = Policy { apps: [(AppId(1), capped)].into(), ..Policy::default() };
    gate.set_policy(Time::ZERO, Some(&policy)).unwrap();
    gate.set_accounting(Time::ZERO, Some((Accounting::Exact, &Prices::default())));
    let mut serving = VecDeque::new();
    // What is in service, a write that waits for that, and a read that waits for the write; beside them, one that waits for its turn.
    let of_file = |id, app, op| Request { op, file: FileId(1), ..block(id, app) };
    gate.submit(Time::ZERO, &of_file(1, 2, Op::Read)).unwrap();
    ask(&mut gate, 0, &mut serving);
    gate.submit(Time::ZERO, &Request { bytes: 1 << 20, ..of_file(2, 1, Op::Write) }).unwrap();
    gate.submit(Time::ZERO, &of_file(3, 2, Op::Read)).unwrap();
    gate.submit(Time::ZERO, &block(4, 1)).unwrap();
    ask(&mut gate, 0, &mut serving);
    gate.complete(Time::ZERO, serving.pop_front().unwrap(), Outcome::Done { bytes: 4096 });
    ask(&mut gate, 0, &mut serving);
    let accounts = gate.accounts(Time::from_nanos(500 * MS)).unwrap();
    let found = accounts.iter().find(|account| account.app == Some(AppId(1))).unwrap();
    // One of its two requests waits for the cap, and the other one is in service.
    let capped = found.causes[Cause::Cap as usize].as_nanos();
    assert!(capped.abs_diff(250 * MS) < MS, "{found:?}");
}
