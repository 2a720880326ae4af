//! Runs all processes of an application in lock step, without time: for what they do, and whether they ever get stuck.

use std::collections::BTreeMap;

use iogate_core::{FileId, Op, Span};
use iogate_sim::rng::Distribution;
use iogate_sim::scenario::{App, Barrier, Pattern, Workload};
use iogate_sim::workload::{Call, Program, Step};

/// What the processes of an application did.
#[derive(Debug, Default)]
pub(crate) struct Done {
    /// The steps of each process, without `End`.
    pub(crate) steps: Vec<Vec<Step>>,
    /// Messages and bytes that each process was sent.
    pub(crate) received: Vec<(u64, u64)>,
    /// How often all processes passed a barrier.
    pub(crate) barriers: u64,
}

impl Done {
    /// The calls of a process.
    pub(crate) fn calls(&self, rank: usize) -> impl Iterator<Item = Call> + '_ {
        self.steps[rank].iter().filter_map(|step| match step {
            Step::Call(call) => Some(*call),
            _ => None,
        })
    }

    /// The calls of all processes.
    pub(crate) fn all_calls(&self) -> impl Iterator<Item = Call> + '_ {
        (0..self.steps.len()).flat_map(|rank| self.calls(rank))
    }

    /// How often each byte of each file is accessed.
    pub(crate) fn touched(&self) -> BTreeMap<FileId, Vec<u32>> {
        let mut files: BTreeMap<FileId, Vec<u32>> = BTreeMap::new();
        for call in self.all_calls() {
            let bytes = files.entry(call.file).or_default();
            for range in 0..u64::from(call.count) {
                let start = (call.offset + range * call.stride) as usize;
                let end = start + call.bytes as usize;
                bytes.resize(bytes.len().max(end), 0);
                bytes[start..end].iter_mut().for_each(|times| *times += 1);
            }
        }
        files
    }
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum State {
    Running,
    Receiving(u64),
    AtBarrier,
    Ended,
}

/// Runs `app`, and panics if its processes get stuck or break the rules of calls.
pub(crate) fn run(app: &App, seed: u64) -> Done {
    let n = app.processes as usize;
    let mut programs: Vec<Program> = (0..app.processes).map(|rank| Program::new(app, rank, seed)).collect();
    let mut states = vec![State::Running; n];
    let mut done = Done { steps: vec![Vec::new(); n], received: vec![(0, 0); n], barriers: 0 };
    loop {
        let mut moved = false;
        for rank in 0..n {
            if let State::Receiving(messages) = states[rank]
                && done.received[rank].0 >= messages
            {
                states[rank] = State::Running;
            }
            while states[rank] == State::Running {
                moved = true;
                let step = programs[rank].next_step();
                states[rank] = match step {
                    Step::Barrier => State::AtBarrier,
                    Step::Receive { messages } if messages > done.received[rank].0 => {
                        State::Receiving(messages)
                    }
                    Step::End => State::Ended,
                    _ => State::Running,
                };
                match step {
                    Step::Send { to, bytes } => {
                        assert!(to != rank as u32 && bytes > 0, "{step:?} from {rank}");
                        let (messages, total) = &mut done.received[to as usize];
                        *messages += 1;
                        *total += bytes;
                    }
                    Step::Call(call) => {
                        assert!(
                            call.bytes > 0 && call.count > 0 && call.stride >= call.bytes.into(),
                            "{call:?}"
                        );
                    }
                    Step::Compute(span) => assert_ne!(span, Span::ZERO),
                    _ => {}
                }
                if step != Step::End {
                    done.steps[rank].push(step);
                }
            }
        }
        if states.iter().all(|state| *state == State::AtBarrier) {
            done.barriers += 1;
            states.fill(State::Running);
        } else if states.iter().all(|state| *state == State::Ended) {
            assert!(programs.iter_mut().all(|program| program.next_step() == Step::End));
            return done;
        } else {
            assert!(moved, "stuck: {states:?}, received {:?}, in {app:?}", done.received);
        }
    }
}

/// An application that does nothing but I/O, once.
pub(crate) fn app(processes: u32, pattern: Pattern) -> App {
    App {
        name: "app".to_owned(),
        id: 1,
        processes,
        first_node: 0,
        nodes: 1,
        start: Span::ZERO,
        walltime: None,
        files: 1,
        entitlement: Default::default(),
        group: None,
        workload: Workload {
            pattern,
            op: Op::Write,
            iterations: 1,
            compute: Distribution::ZERO,
            think: Distribution::ZERO,
            outstanding: Some(1),
            barrier: Barrier::None,
            collective: None,
        },
    }
}
