//! Processes that keep a number of requests outstanding, a gate, and a store that takes a known time: worked
//! examples whose outcome is written as a table.

use std::fmt::Write;

use iogate_core::{
    AppId, ClientId, Decision, Dispatch, FileId, GateConfig, Op, Outcome, Request, RequestId, Span, Time,
};

use crate::harness::Subject;

/// A process that reads one file.
#[derive(Clone, Debug)]
pub struct Process {
    /// Its name in the table.
    pub name: &'static str,
    /// Its application.
    pub app: AppId,
    /// The file.
    pub file: FileId,
    /// What it reads, in this order: offset and length in bytes.
    pub reads: Vec<(u64, u32)>,
    /// How many requests it has outstanding; the next ones leave together when all of these have completed.
    pub outstanding: usize,
    /// When it begins.
    pub start: Time,
}

/// A dispatch that was served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Served {
    /// When its service began.
    pub begin: Time,
    /// When it was completed.
    pub end: Time,
    /// What it was.
    pub dispatch: Dispatch,
    /// Names of the processes whose requests it served, in offset order.
    pub names: Vec<&'static str>,
}

/// Runs the processes until they have read everything or nothing happens any more. `service` is the time that
/// the store takes for a dispatch.
pub fn run<S: Subject>(
    config: &GateConfig,
    processes: &[Process],
    service: impl Fn(&Dispatch) -> Span,
) -> Vec<Served> {
    let mut gate = S::with(config);
    let mut now = Time::ZERO;
    let mut sent = vec![0; processes.len()];
    let mut done = vec![0; processes.len()];
    // The process of each request; a request's id is its place.
    let mut senders: Vec<usize> = Vec::new();
    let mut in_service: Vec<(Served, Vec<usize>)> = Vec::new();
    let mut served = Vec::new();
    loop {
        for (index, process) in processes.iter().enumerate() {
            if process.start > now || sent[index] != done[index] {
                continue;
            }
            for &(offset, bytes) in process.reads.iter().skip(sent[index]).take(process.outstanding) {
                let request = Request {
                    id: RequestId(senders.len() as u64),
                    file: process.file,
                    op: Op::Read,
                    offset,
                    bytes,
                    app: process.app,
                    client: ClientId(0),
                    target: None,
                    issued: None,
                };
                gate.submit(now, &request).expect("the gate is large enough for the example");
                senders.push(index);
                sent[index] += 1;
            }
        }
        let wake = loop {
            match gate.next(now) {
                (Decision::Dispatch(dispatch), parts) => {
                    let by: Vec<usize> = parts.iter().map(|part| senders[part.request.0 as usize]).collect();
                    let names = by.iter().map(|&process| processes[process].name).collect();
                    in_service
                        .push((Served { begin: now, end: now + service(&dispatch), dispatch, names }, by));
                }
                (Decision::WaitUntil(until, _), _) => break Some(until),
                (Decision::Idle, _) => break None,
            }
        };
        let starts = processes.iter().map(|process| process.start).filter(|start| *start > now);
        let ends = in_service.iter().map(|(dispatch, _)| dispatch.end);
        let Some(next) = starts.chain(ends).chain(wake).min() else { return served };
        now = next;
        let (ended, others) = in_service.into_iter().partition(|(dispatch, _)| dispatch.end == now);
        in_service = others;
        for (dispatch, by) in ended {
            gate.complete(now, dispatch.dispatch.id, Outcome::Done { bytes: dispatch.dispatch.bytes });
            by.iter().for_each(|&process| done[process] += 1);
            served.push(dispatch);
        }
    }
}

/// A line a dispatch: begin and end in units of `unit`, file, range in KiB, processes.
pub fn table(served: &[Served], unit: Span) -> String {
    const KIB: u64 = 1024;
    let mut text = String::new();
    for Served { begin, end, dispatch, names } in served {
        let units = |time: &Time| time.as_nanos() / unit.as_nanos();
        let (start, stop) = (dispatch.offset / KIB, (dispatch.offset + dispatch.bytes) / KIB);
        let _ = writeln!(
            text,
            "{:>2}-{:<2} file {} {start:>3}-{stop:<3} {}",
            units(begin),
            units(end),
            dispatch.file,
            names.join(" ")
        );
    }
    text
}
