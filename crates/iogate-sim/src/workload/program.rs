//! The program of one process: an iterator over its steps, in constant memory.

use iogate_core::FileId;

use super::{Call, Step};
use crate::scenario::{App, Barrier, Pattern, Sharing};

/// The program of one process. The same application, rank and seed give the same steps.
#[derive(Clone, Debug)]
pub struct Program {
    app: App,
    rank: u32,
    state: u32,
    iteration: u32,
    call: u64,
}

impl Program {
    /// The program of process `rank` (below `app.processes`).
    pub fn new(app: &App, rank: u32, _seed: u64) -> Program {
        Program { app: app.clone(), rank, state: 0, iteration: 0, call: 0 }
    }

    /// The next step; [`Step::End`] for ever once it has ended.
    pub fn next_step(&mut self) -> Step {
        let barrier = self.app.workload.barrier;
        loop {
            self.state += 1;
            match self.state {
                1 => {
                    if self.iteration == self.app.workload.iterations {
                        self.state = 0;
                        return Step::End;
                    }
                    self.call = 0;
                    return Step::Compute(self.app.workload.compute.mean());
                }
                2 if barrier != Barrier::None => return Step::Barrier,
                3 => return Step::Phase(true),
                4 => match self.next_call() {
                    Some(call) => {
                        if barrier != Barrier::Call {
                            self.state = 3;
                        }
                        return Step::Call(call);
                    }
                    None => self.state = 9,
                },
                5 => return Step::Finish,
                6 => {
                    self.state = 3;
                    return Step::Barrier;
                }
                10 => return Step::Finish,
                11 => return Step::Phase(false),
                12 => {
                    self.state = 0;
                    self.iteration += 1;
                    if barrier != Barrier::None {
                        return Step::Barrier;
                    }
                }
                _ => {}
            }
        }
    }

    fn next_call(&mut self) -> Option<Call> {
        let (rank, processes) = (u64::from(self.rank), u64::from(self.app.processes));
        let (index, iteration) = (self.call, u64::from(self.iteration));
        self.call += 1;
        let base = u64::from(self.app.files) << 32;
        let call = |file, offset, bytes| Call {
            file: FileId(base | file),
            op: self.app.workload.op,
            offset,
            bytes,
            stride: u64::from(bytes),
            count: 1,
        };
        match self.app.workload.pattern {
            Pattern::Contiguous { sharing, bytes, request } => {
                let at = index * u64::from(request);
                let len = bytes.checked_sub(at).filter(|left| *left > 0)?.min(request.into()) as u32;
                Some(match sharing {
                    Sharing::Shared => call(0, (iteration * processes + rank) * bytes + at, len),
                    Sharing::PerProcess => call(rank, iteration * bytes + at, len),
                })
            }
            Pattern::Strided { bytes, request } => {
                let left = bytes.checked_sub(index * u64::from(request)).filter(|left| *left > 0)?;
                let at = iteration * processes * bytes + (index * processes + rank) * u64::from(request);
                Some(call(0, at, left.min(request.into()) as u32))
            }
            _ => None,
        }
    }
}
