//! Which scheduler would have suited a trace: all candidates, each over the whole trace, closed-loop.
//!
//! Where a trace says when requests were over, a client's request follows its completions by the time that the client thought; else it
//! comes when the trace says, however long storage takes. Requests are served by one device.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap};
use std::io::BufRead;

use iogate_core::auto::Candidates;
use iogate_core::device::Device;
use iogate_core::{Gate, GateConfig, Layout, Request, RequestId, SchedulerConfig, Span, Time};

use crate::choice::evaluate::Slowdowns;
use crate::serving::Serving;
use crate::trace::{Row, TraceError, TraceReader};

/// Rows of a trace that are looked at.
pub const ROWS_MAX: usize = 200_000;

/// Why there is no advice.
#[derive(Debug, thiserror::Error)]
pub enum AdviseError {
    /// The trace was refused.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// Nothing to go by.
    #[error("the trace has no rows: expected requests")]
    Empty,
    /// Storage of several targets.
    #[error(
        "row {row} is of target {target}: expected a trace of one target, as prices are those of one device"
    )]
    Targets {
        /// The row, from 1.
        row: u64,
        /// Its target.
        target: u32,
    },
    /// A gate does not take it.
    #[error("row {row}: {reason}")]
    Refused {
        /// The row, from 1.
        row: u64,
        /// Why.
        reason: String,
    },
}

/// What is known of a trace.
#[derive(Clone, Debug)]
pub struct Jobs {
    works: Vec<Work>,
    /// Whether it says when requests were over.
    pub closed_loop: bool,
    /// Rows that were not looked at.
    pub left_out: u64,
}

#[derive(Clone, Copy, Debug)]
struct Work {
    row: Row,
    client: usize,
    /// The client's completions that it follows, and by how much; `None`: it comes by the clock.
    after: Option<(u32, Span)>,
}

impl Jobs {
    /// Reads a trace, whatever the order of its rows.
    ///
    /// # Errors
    /// If it cannot be read, or has nothing to go by.
    pub fn read<R: BufRead>(mut trace: TraceReader<R>) -> Result<Jobs, AdviseError> {
        let (mut rows, mut left_out) = (Vec::new(), 0);
        while let Some(row) = trace.next_row_in_any_order()? {
            if let Some(target) = row.target.filter(|target| target.0 > 0) {
                return Err(AdviseError::Targets { row: row.number, target: target.0 });
            }
            if rows.len() < ROWS_MAX { rows.push(row) } else { left_out += 1 }
        }
        rows.sort_by_key(|row| (row.time, row.number));
        let Some(begin) = rows.first().map(|row| row.time) else { return Err(AdviseError::Empty) };
        let mut clients = HashMap::new();
        // Of each client: the ends of what it has in service, and how many have ended, the last when.
        let mut open: Vec<(BinaryHeap<Reverse<Time>>, u32, Time)> = Vec::new();
        let mut closed_loop = false;
        let mut work = |mut row: Row| {
            let next = clients.len();
            let client = *clients.entry((row.app, row.client)).or_insert(next);
            if client == open.len() {
                open.push(Default::default());
            }
            let (ends, done, last) = &mut open[client];
            while let Some(&Reverse(end)) = ends.peek()
                && end <= row.time
            {
                ends.pop();
                (*done, *last) = (*done + 1, end);
            }
            // A client of which nothing is known may be many.
            let after = (*done > 0 && row.client.0 > 0).then(|| (*done, row.time.since(*last)));
            if let Some(end) = row.done {
                ends.push(Reverse(end));
                closed_loop = true;
            }
            row.time = Time::ZERO + row.time.since(begin);
            Work { row, client, after }
        };
        let works = rows.into_iter().map(&mut work).collect();
        Ok(Jobs { works, closed_loop, left_out })
    }

    /// Requests that are looked at.
    pub fn requests(&self) -> usize {
        self.works.len()
    }
}

/// What a scheduler would have made of a trace.
#[derive(Clone, Debug)]
pub struct Advice {
    /// The scheduler.
    pub scheduler: SchedulerConfig,
    /// How long each application took against `fifo`, by number.
    pub apps: BTreeMap<u32, f64>,
    /// The same as logarithms.
    pub slowdowns: Slowdowns,
    /// From the first arrival to the last completion.
    pub makespan: Span,
}

impl Advice {
    /// Jain's index of how fast applications are against `fifo`: 1 if all gain, or lose, alike.
    pub fn fairness(&self) -> f64 {
        let speeds: Vec<f64> = self.apps.values().map(|ratio| 1.0 / ratio).collect();
        let (sum, squares) = speeds.iter().fold((0.0, 0.0), |(sum, squares), x| (sum + x, squares + x * x));
        sum * sum / (squares * speeds.len() as f64)
    }
}

/// All candidates behind a gate that lets `depth` dispatches through, the best first: those that slow no application down by more than
/// 10 %, then by the mean over applications. `done` is told how many have been carried out.
///
/// # Errors
/// If a gate does not take a request.
pub fn advise(
    jobs: &Jobs,
    depth: u32,
    device: &dyn Fn() -> Box<dyn Device>,
) -> Result<Vec<Advice>, AdviseError> {
    let mut advice: Vec<Advice> = Vec::new();
    let mut base: Option<BTreeMap<u32, Span>> = None;
    for scheduler in Candidates::every().fixed() {
        let (took, makespan) = carry_out(jobs, scheduler, depth, device())?;
        let base = base.get_or_insert_with(|| took.clone());
        let ns = |span: &Span| span.as_nanos().max(1) as f64;
        let apps: BTreeMap<u32, f64> =
            took.iter().map(|(app, took)| (*app, ns(took) / ns(&base[app]))).collect();
        let slowdowns = Slowdowns(apps.values().map(|ratio| ratio.ln()).collect());
        advice.push(Advice { scheduler: scheduler.clone(), apps, slowdowns, makespan });
    }
    let key = |of: &Advice| (of.slowdowns.harmed() > 0, of.slowdowns.mean());
    advice.sort_by(|one, other| {
        let (one, other) = (key(one), key(other));
        one.0.cmp(&other.0).then(one.1.total_cmp(&other.1))
    });
    Ok(advice)
}

/// How long each application takes, from its first arrival to its last completion, and all of them.
fn carry_out(
    jobs: &Jobs,
    scheduler: &SchedulerConfig,
    depth: u32,
    device: Box<dyn Device>,
) -> Result<(BTreeMap<u32, Span>, Span), AdviseError> {
    let config =
        GateConfig { scheduler: scheduler.clone(), queue_max: u32::MAX - 1, depth, layout: Layout::SINGLE };
    let refused = |row: u64, reason: String| AdviseError::Refused { row, reason };
    let gate = Gate::new(&config).map_err(|error| refused(1, error.to_string()))?;
    let mut serving = Serving::new(gate, device);
    let mut clients = Clients::new(jobs);
    let mut now = Time::ZERO;
    let mut left: Vec<u32> = jobs.works.iter().map(|work| work.row.bytes).collect();
    let mut times: BTreeMap<u32, (Time, Time)> = BTreeMap::new();
    loop {
        while let Some(&Reverse((at, index))) = clients.coming.peek()
            && at <= now
        {
            clients.coming.pop();
            let Row { app, client, file, op, offset, bytes, number, .. } = jobs.works[index].row;
            let id = RequestId(index as u64);
            let request = Request { id, file, op, offset, bytes, app, client, target: None, issued: None };
            serving.gate.submit(now, &request).map_err(|error| refused(number, error.to_string()))?;
            times.entry(app.0).or_insert((now, now));
            clients.came(jobs, index, now);
        }
        let deadline = serving.dispatch(now, |_| ());
        let end = serving.next_end();
        let arrival = clients.coming.peek().map(|Reverse((at, _))| *at);
        let Some(next) = [end, arrival, deadline].into_iter().flatten().min() else { break };
        now = next.max(now);
        while let Some((_, parts)) = serving.complete(now) {
            for part in parts {
                let index = part.request.0 as usize;
                left[index] -= part.bytes;
                if left[index] == 0 {
                    times.entry(jobs.works[index].row.app.0).or_insert((now, now)).1 = now;
                    clients.done(jobs, index, now);
                }
            }
        }
    }
    let took = times.iter().map(|(app, (first, last))| (*app, last.since(*first))).collect();
    Ok((took, now.since(Time::ZERO)))
}

/// The requests of each client, in the order in which they come.
struct Clients {
    coming: BinaryHeap<Reverse<(Time, usize)>>,
    /// The next request of the same client.
    following: Vec<Option<usize>>,
    /// Of each client: when its requests completed, and the request that waits for that.
    done: Vec<(Vec<Time>, Option<usize>)>,
}

impl Clients {
    fn new(jobs: &Jobs) -> Clients {
        let count = jobs.works.iter().map(|work| work.client + 1).max().unwrap_or(0);
        let (mut last, mut following) = (vec![None; count], vec![None; jobs.works.len()]);
        let mut clients = Clients {
            coming: BinaryHeap::new(),
            following: Vec::new(),
            done: vec![Default::default(); count],
        };
        for (index, work) in jobs.works.iter().enumerate() {
            match last[work.client].replace(index) {
                Some(before) => following[before] = Some(index),
                None => clients.coming.push(Reverse((work.row.time, index))),
            }
        }
        clients.following = following;
        clients
    }

    /// A request has come: finds out when the next one of its client does, or lets it wait.
    fn came(&mut self, jobs: &Jobs, index: usize, now: Time) {
        let Some(next) = self.following[index] else { return };
        let (done, waiting) = &mut self.done[jobs.works[index].client];
        match jobs.works[next].after {
            None => self.coming.push(Reverse((jobs.works[next].row.time.max(now), next))),
            Some((count, think)) => match done.get(count as usize - 1) {
                Some(end) => self.coming.push(Reverse(((*end + think).max(now), next))),
                None => *waiting = Some(next),
            },
        }
    }

    fn done(&mut self, jobs: &Jobs, index: usize, now: Time) {
        let (done, waiting) = &mut self.done[jobs.works[index].client];
        done.push(now);
        if let Some(next) = *waiting
            && let Some((count, think)) = jobs.works[next].after
            && done.len() >= count as usize
        {
            *waiting = None;
            self.coming.push(Reverse((now + think, next)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn jobs(text: &str) -> Result<Jobs, AdviseError> {
        Jobs::read(TraceReader::new(text.as_bytes())?)
    }

    fn took(jobs: &Jobs, scheduler: &str, device: &str) -> Vec<u64> {
        let device = iogate_core::device::parse(device).unwrap();
        let scheduler = SchedulerConfig::by_name(scheduler).unwrap();
        let (took, _) = carry_out(jobs, &scheduler, 1, device).unwrap();
        took.values().map(|span| span.as_nanos() / 1_000).collect()
    }

    #[test]
    fn clients_follow_their_completions_where_a_trace_has_them() {
        // Service of 10 us and 5 us to think, twice.
        let closed = "time_us,app,client,file,op,offset,bytes,done_us\n\
                      100,1,1,a,r,0,4096,110\n115,1,1,a,r,4096,4096,125\n130,1,1,a,r,8192,4096,140\n";
        let of = jobs(closed).unwrap();
        assert!(of.closed_loop);
        assert_eq!(took(&of, "fifo", "unit:10"), [40]);
        assert_eq!(took(&of, "fifo", "unit:100"), [310]);
        // By the clock the requests queue up.
        let open = "time_us,app,client,file,op,offset,bytes\n100,1,1,a,r,0,4096\n115,1,1,a,r,4096,4096\n";
        let of = jobs(open).unwrap();
        assert!(!of.closed_loop);
        assert_eq!(took(&of, "fifo", "unit:100"), [200]);
    }

    #[test]
    fn the_best_comes_first_and_who_harms_last() {
        let mut text = "time_us,app,client,file,op,offset,bytes\n".to_owned();
        for index in 0..200 {
            for app in 1..=2 {
                text += &format!("{},{app},{app},{app},r,{},65536\n", index * 100, index * 65_536);
            }
        }
        let device = || iogate_core::device::parse("hdd").unwrap();
        let advice = advise(&jobs(&text).unwrap(), 1, &device).unwrap();
        let keys: Vec<_> = advice.iter().map(|of| (of.slowdowns.harmed() > 0, of.slowdowns.mean())).collect();
        assert!(keys.windows(2).all(|pair| pair[0] <= pair[1]), "{keys:?}");
        assert!(keys[0].1 < -0.1, "two streams on a disk gain: {keys:?}");
        let fifo = advice.iter().find(|of| of.scheduler.to_string() == "fifo").unwrap();
        assert_eq!((fifo.slowdowns.mean(), fifo.fairness()), (0.0, 1.0));
        assert_eq!(advice.len(), Candidates::every().fixed().count());
    }

    #[test]
    fn what_cannot_be_advised_on_is_refused() {
        let header = "time_us,app,client,file,op,offset,bytes,target\n";
        let error = jobs(header).unwrap_err().to_string();
        assert_eq!(error, "the trace has no rows: expected requests");
        let error = jobs(&format!("{header}1,1,1,a,r,0,1,3\n")).unwrap_err().to_string();
        assert!(error.starts_with("row 1 is of target 3: expected"), "{error}");
        let error = jobs("time_us,file\n").unwrap_err().to_string();
        assert!(error.contains("expected the column app"), "{error}");
    }
}
