//! A gate's settings and a sequence of operations on it.

use std::fmt;

use iogate_core::sched::Prices;
use iogate_core::{
    AppId, FileId, FileLayout, GateConfig, Layout, Op, Outcome, Request, Span, TargetId, Time,
};
use iogate_core::{ClientId, RequestId, SchedulerConfig};

/// A request before it has an id and a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// The file.
    pub file: FileId,
    /// Read or write.
    pub op: Op,
    /// First byte.
    pub offset: u64,
    /// Length in bytes.
    pub bytes: u32,
    /// Its application.
    pub app: AppId,
    /// Its target, if the client names one.
    pub target: Option<TargetId>,
    /// Issue time minus arrival time, if the client tells (ns).
    pub issued_ns: Option<i64>,
}

impl Arrival {
    /// The request that arrives `now`. An issue time before the epoch is the epoch.
    pub fn request(&self, id: RequestId, now: Time) -> Request {
        let issued = |ns: i64| Time::from_nanos(now.as_nanos().saturating_add_signed(ns));
        Request {
            id,
            file: self.file,
            op: self.op,
            offset: self.offset,
            bytes: self.bytes,
            app: self.app,
            client: ClientId(0),
            target: self.target,
            issued: self.issued_ns.map(issued),
        }
    }
}

/// One operation on a gate.
#[derive(Clone, Debug)]
pub enum Action {
    /// Submit a request; its id is the index of the action.
    Submit(Arrival),
    /// Complete the dispatch at this place (modulo their number) of those in service, oldest first.
    Complete(usize, Ending),
    /// Ask for the next decision, which happens after every other action too.
    Ask,
    /// Ask at the time that the last decision named, if it was a wait.
    Wake,
    /// Change the algorithm.
    Switch(SchedulerConfig),
    /// Give a file a layout of its own.
    SetLayout(FileId, FileLayout),
    /// Say what the device charges.
    SetPrices(Prices),
    /// Close the gate.
    Drain,
}

/// How a dispatch ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// All its bytes are transferred.
    Whole,
    /// Half of its bytes are.
    Short,
    /// The store failed.
    Failed,
}

impl Ending {
    /// The outcome of a dispatch of `bytes`.
    pub fn outcome(self, bytes: u64) -> Outcome {
        match self {
            Ending::Whole => Outcome::Done { bytes },
            Ending::Short => Outcome::Done { bytes: bytes / 2 },
            Ending::Failed => Outcome::Failed,
        }
    }
}

/// What to do with a gate. [`play`](crate::harness::play) performs it and then completes what is left.
#[derive(Clone)]
pub struct Script {
    /// The gate's settings.
    pub config: GateConfig,
    /// The time of the first action, before its own delay.
    pub start: Time,
    /// Actions, each with the time that passes before it.
    pub actions: Vec<(Span, Action)>,
}

impl fmt::Debug for Script {
    /// A line for the gate and a line for each action.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let GateConfig { scheduler, queue_max, depth, layout } = &self.config;
        write!(f, "gate {scheduler} queue_max={queue_max} depth={depth} layout=")?;
        write_layout(f, layout)?;
        writeln!(f, " start={}", self.start.as_nanos())?;
        for (index, (delay, action)) in self.actions.iter().enumerate() {
            writeln!(f, "{index:4} +{delay} {action}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Action::Submit(arrival) => arrival.fmt(f),
            Action::Complete(place, Ending::Whole) => write!(f, "complete {place}"),
            Action::Complete(place, ending) => write!(f, "complete {place} {ending:?}"),
            Action::Ask => f.write_str("ask"),
            Action::Wake => f.write_str("wake"),
            Action::Switch(scheduler) => write!(f, "switch {scheduler}"),
            Action::SetLayout(file, layout) => {
                write!(f, "layout of file {file}:")?;
                for extent in layout.extents() {
                    let targets: Vec<u32> = extent.targets.iter().map(|target| target.0).collect();
                    write!(f, " {}..{} {} on {targets:?}", extent.start, extent.end, extent.stripe_bytes)?;
                }
                Ok(())
            }
            Action::SetPrices(prices) => write!(f, "{prices:?}"),
            Action::Drain => f.write_str("drain"),
        }
    }
}

impl fmt::Display for Arrival {
    /// `r file 1 4096+8192 app 2`, with what is unusual after it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} file {} {}+{}", self.op.letter(), self.file, self.offset, self.bytes)?;
        write!(f, " app {}", self.app)?;
        if let Some(target) = self.target {
            write!(f, " target {target}")?;
        }
        if let Some(ns) = self.issued_ns {
            write!(f, " issued {ns:+}ns")?;
        }
        Ok(())
    }
}

fn write_layout(f: &mut fmt::Formatter<'_>, layout: &Layout) -> fmt::Result {
    if *layout == Layout::SINGLE {
        return f.write_str("single");
    }
    write!(f, "{}x{} from {}", layout.targets, layout.stripe_bytes, layout.first_target)
}
