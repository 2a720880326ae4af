//! The program of one process: an iterator over its steps, in constant memory.
//!
//! Each iteration is, in this order:
//!
//! | step | when |
//! |---|---|
//! | `Compute` | if the drawn time is not zero; the same time for all processes |
//! | `Barrier` | with [`Barrier::Phase`] and [`Barrier::Call`] |
//! | `Phase(true)` | always |
//! | the calls, see below | |
//! | `Finish` | always |
//! | `Phase(false)` | always |
//! | `Barrier` | with [`Barrier::Phase`] and [`Barrier::Call`] |
//!
//! Each call is `Until` (rows of a timed trace), `Compute` (the time to think, if not zero), `Call`; with [`Barrier::Call`] also
//! `Finish`, `Barrier`, and a process that has fewer calls than another makes up for the barriers. Collective I/O has instead
//! the rounds that [`super::collective`] describes, each ending in a `Barrier`, with a time to think before the aggregators'
//! calls. After the last iteration comes `End`.
//!
//! All processes so make the same number of barriers, whatever their calls.

use iogate_core::Span;

use super::accesses::Accesses;
use super::collective::Exchange;
use super::{Call, Step};
use crate::rng::{Distribution, Rng};
use crate::scenario::{App, Barrier};

/// Streams of random numbers of applications begin here: application `i` has stream `STREAMS + i` of the seed.
const STREAMS: u64 = 0x61_7070 << 32;

/// The program of one process. The same application, rank and seed give the same steps.
#[derive(Clone, Debug)]
pub struct Program {
    next: Next,
    iteration: u32,
    iterations: u32,
    barrier: Barrier,
    compute: Distribution,
    compute_seed: u64,
    think: Distribution,
    think_rng: Rng,
    io: Io,
    /// A call that waits for its process to have thought.
    held: Option<Call>,
}

#[derive(Clone, Debug)]
enum Io {
    Independent(Accesses),
    Collective(Exchange),
}

/// Where in its iteration a process is: what it does next, if there is anything to do.
#[derive(Clone, Copy, Debug)]
enum Next {
    Compute,
    BarrierBefore,
    Begin,
    Wait,
    Issue,
    FinishCall,
    BarrierCall,
    Finish,
    EndPhase,
    BarrierAfter,
}

impl Program {
    /// The program of process `rank` (below `app.processes`). Its files must not be too long:
    /// [`file_end`](super::file_end) must have an answer.
    pub fn new(app: &App, rank: u32, seed: u64) -> Program {
        let workload = &app.workload;
        let mut streams = Rng::new(seed, STREAMS + u64::from(app.id));
        // What is drawn for one purpose must not depend on whether something is drawn for another.
        let [compute_seed, think_seed, place_seed] = std::array::from_fn(|_| streams.bits());
        let io = match Exchange::new(app, rank) {
            Some(exchange) => Io::Collective(exchange),
            None => Io::Independent(Accesses::new(app, rank, Rng::new(place_seed, rank.into()))),
        };
        Program {
            next: Next::Compute,
            iteration: 0,
            iterations: workload.iterations,
            barrier: workload.barrier,
            compute: workload.compute,
            compute_seed,
            think: workload.think,
            think_rng: Rng::new(think_seed, rank.into()),
            io,
            held: None,
        }
    }

    /// The next step; [`Step::End`] for ever once it has ended.
    pub fn next_step(&mut self) -> Step {
        if let Some(call) = self.held.take() {
            return Step::Call(call);
        }
        loop {
            match self.next {
                Next::Compute => {
                    if self.iteration == self.iterations {
                        return Step::End;
                    }
                    self.next = Next::BarrierBefore;
                    // A stream for each iteration, not for each process: they all compute equally long.
                    let span = Rng::new(self.compute_seed, self.iteration.into()).span(self.compute);
                    if span != Span::ZERO {
                        return Step::Compute(span);
                    }
                }
                Next::BarrierBefore => {
                    self.next = Next::Begin;
                    if self.barrier != Barrier::None {
                        return Step::Barrier;
                    }
                }
                Next::Begin => {
                    match &mut self.io {
                        Io::Independent(accesses) => accesses.begin(self.iteration),
                        Io::Collective(exchange) => exchange.begin(self.iteration),
                    }
                    self.next = Next::Wait;
                    return Step::Phase(true);
                }
                Next::Wait => {
                    self.next = Next::Issue;
                    if let Io::Independent(accesses) = &self.io
                        && let Some(at) = accesses.not_before()
                    {
                        return Step::Until(at);
                    }
                }
                Next::Issue => {
                    if let Some(step) = self.next_of_io() {
                        return step;
                    }
                    self.next = Next::Finish;
                }
                Next::FinishCall => {
                    self.next = Next::BarrierCall;
                    return Step::Finish;
                }
                Next::BarrierCall => {
                    self.next = Next::Wait;
                    return Step::Barrier;
                }
                Next::Finish => {
                    self.next = Next::EndPhase;
                    return Step::Finish;
                }
                Next::EndPhase => {
                    self.next = Next::BarrierAfter;
                    return Step::Phase(false);
                }
                Next::BarrierAfter => {
                    self.next = Next::Compute;
                    self.iteration += 1;
                    if self.barrier != Barrier::None {
                        return Step::Barrier;
                    }
                }
            }
        }
    }

    /// The next step of an iteration's I/O; `None` when that is over.
    // Inlined, as is what it calls: handing steps from function to function costs more than making them.
    #[inline]
    fn next_of_io(&mut self) -> Option<Step> {
        let accesses = match &mut self.io {
            Io::Independent(accesses) => accesses,
            Io::Collective(exchange) => {
                return match exchange.next_step()? {
                    Step::Call(call) => Some(self.think_before(call)),
                    step => Some(step),
                };
            }
        };
        let Some(call) = accesses.next_call() else {
            return (self.barrier == Barrier::Call && accesses.pass()).then_some(Step::Barrier);
        };
        self.next = if self.barrier == Barrier::Call { Next::FinishCall } else { Next::Wait };
        Some(self.think_before(call))
    }

    /// The call, or first the time to think before it.
    #[inline]
    fn think_before(&mut self, call: Call) -> Step {
        let span = self.think_rng.span(self.think);
        if span == Span::ZERO {
            return Step::Call(call);
        }
        self.held = Some(call);
        Step::Compute(span)
    }
}
