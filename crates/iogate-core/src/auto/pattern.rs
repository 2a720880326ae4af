//! An application's pattern of access, in words and in numbers.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use super::features::{AppSeen, think};
use crate::units::{KIB, MIB, MS, SECOND};

/// Fewer arrivals say nothing.
pub const ARRIVALS_MIN: u32 = 16;

/// Clients that are not taken for a stream of processes that come and go.
const FEW: u32 = 4;
/// Files, and clients that come and go, of which the number says nothing any more.
const MANY: u32 = 256;
/// Requests of a process that is soon over.
const REQUESTS_FEW: u32 = 4;

/// Where a client's next request begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "kebab-case"))]
pub enum Access {
    /// Where its last one ended; or, where clients cannot be told apart, where one of the file's last ones ended.
    Contiguous,
    /// So many bytes from where its last one began (back, if negative).
    Strided(i64),
    /// Somewhere behind its last one.
    Sequential,
    /// Anywhere.
    Random,
    /// In another file: few come to a file again.
    Files,
}

/// An application's pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Pattern {
    /// The application.
    pub app: u32,
    /// Its pattern, in words.
    pub words: String,
    /// Where requests begin.
    pub access: Access,
    /// Arrivals that this is drawn from; earlier ones count less.
    pub arrivals: u32,
    /// Reads, of 100 arrivals.
    pub reads_percent: u32,
    /// Arrivals that begin where one of the last eight to the file ended, of 100.
    pub contiguous_percent: u32,
    /// Sizes that 10, 50 and 90 % do not exceed, within an eighth; the usual size in the middle, if there is one.
    pub bytes: [u64; 3],
    /// Clients seen.
    pub clients: u32,
    /// Clients that have something in the gate at an arrival, in tenths: the mean.
    pub width_tenths: u32,
    /// Requests that a client has in the gate when it has sent one, in tenths: the mean.
    pub outstanding_tenths: u32,
    /// Files seen.
    pub files: u32,
    /// Time from a client's completion to its next request, in the middle; `None`: too few were seen.
    pub think_ns: Option<u64>,
}

/// The patterns of all applications that have shown one.
pub fn patterns(apps: &[AppSeen]) -> Vec<Pattern> {
    apps.iter().filter_map(Pattern::of).collect()
}

impl Access {
    /// What an application's arrivals look like: what holds for 60 % of them.
    fn of(seen: &AppSeen) -> Access {
        let most = |count: u32, of: u32| of > 0 && u64::from(count) * 5 >= u64::from(of) * 3;
        if most(seen.follows, seen.steps) {
            Access::Contiguous
        } else if most(seen.stride.seen, seen.steps) && seen.steps * 4 >= seen.arrivals {
            Access::Strided(seen.stride.value)
        } else if most(seen.contiguous, seen.arrivals) {
            Access::Contiguous
        } else if seen.steps * 4 < seen.arrivals {
            Access::Files
        } else if u64::from(seen.ascending) * 10 >= u64::from(seen.steps) * 9 {
            Access::Sequential
        } else {
            Access::Random
        }
    }
}

impl Pattern {
    /// The pattern of one application, if it has shown one.
    pub fn of(seen: &AppSeen) -> Option<Pattern> {
        if seen.arrivals < ARRIVALS_MIN {
            return None;
        }
        let share =
            |count: u32, of: u32| (u64::from(count) * u64::from(of) / u64::from(seen.arrivals)) as u32;
        let usual = (seen.size.seen >= seen.arrivals / 2).then_some(seen.size.value as u64);
        let middle = usual.unwrap_or_else(|| seen.sizes.quantile(50));
        let mut pattern = Pattern {
            app: seen.app.0,
            words: String::new(),
            access: Access::of(seen),
            arrivals: seen.arrivals,
            reads_percent: share(seen.reads, 100),
            contiguous_percent: share(seen.contiguous, 100),
            bytes: [seen.sizes.quantile(10).min(middle), middle, seen.sizes.quantile(90).max(middle)],
            clients: seen.clients(),
            width_tenths: share(seen.width, 10),
            outstanding_tenths: share(seen.outstanding, 10),
            files: seen.files(),
            think_ns: think(seen).map(|think| think.as_nanos()),
        };
        pattern.words = pattern.say(usual);
        Some(pattern)
    }

    /// Whether its clients are processes that end after a few requests, as those of a script do: many were seen, and few are there.
    fn comes_and_goes(&self) -> bool {
        self.clients >= FEW
            && self.arrivals < REQUESTS_FEW * self.clients
            && self.width_tenths * FEW < 10 * self.clients
    }

    /// As in "8 clients read 4 KiB pieces at a stride of 64 KiB, 3 ms between them".
    fn say(&self, usual: Option<u64>) -> String {
        let many = self.clients != 1;
        let s = if many { "" } else { "s" };
        let who = match self.clients {
            1 => "1 client".to_string(),
            clients if self.comes_and_goes() => {
                // As many as there is room to tell apart, or as there were requests: no number of anything that is there.
                let clients = if clients >= MANY { "many".to_string() } else { clients.to_string() };
                match (self.width_tenths + 5) / 10 {
                    0 | 1 => format!("{clients} clients, one after another,"),
                    width => format!("{clients} clients, {width} of them at once,"),
                }
            }
            clients => format!("{clients} clients"),
        };
        let does = match self.reads_percent {
            95.. => format!("read{s}"),
            ..=5 => format!("write{s}"),
            reads => format!("read{s} and write{s} ({reads} % reads)"),
        };
        let pieces = match usual {
            Some(size) => format!("{} pieces", bytes(size)),
            None => format!("pieces of {} to {}", bytes(round(self.bytes[0])), bytes(round(self.bytes[2]))),
        };
        let place = match self.access {
            Access::Contiguous => " contiguously".to_string(),
            Access::Strided(stride) if stride < 0 => {
                format!(" at a stride of {} backwards", bytes(stride.unsigned_abs()))
            }
            Access::Strided(0) => " at the same place".to_string(),
            Access::Strided(stride) => format!(" at a stride of {}", bytes(stride.unsigned_abs())),
            Access::Sequential => " in ascending order, with gaps".to_string(),
            Access::Random => " at random".to_string(),
            Access::Files => String::new(),
        };
        let files = match self.files {
            ..2 => String::new(),
            files if files >= MANY => " of many files".to_string(),
            files => format!(" of {files} files"),
        };
        let at_once = match self.outstanding_tenths {
            ..15 => String::new(),
            tenths => format!(", {} at a time", (tenths + 5) / 10),
        };
        let think = match self.think_ns {
            Some(ns) if ns >= 1_000 => format!(", {} between them", time(ns)),
            _ => String::new(),
        };
        format!("{who} {does} {pieces}{files}{place}{at_once}{think}")
    }
}

/// The nearest power of two.
fn round(bytes: u64) -> u64 {
    let below = 1 << bytes.max(1).ilog2();
    if bytes - below >= below / 2 { below * 2 } else { below }
}

fn bytes(bytes: u64) -> String {
    let unit = [(MIB << 10, "GiB"), (MIB, "MiB"), (KIB, "KiB")];
    match unit.into_iter().find(|(unit, _)| bytes >= *unit && bytes.is_multiple_of(*unit)) {
        Some((unit, name)) => format!("{} {name}", bytes / unit),
        None => format!("{bytes} B"),
    }
}

/// A time with one digit: more is not known.
fn time(ns: u64) -> String {
    let digit = 10u64.pow(ns.max(1).ilog10());
    let ns = (ns + digit / 2) / digit * digit;
    let unit = [(SECOND, "s"), (MS, "ms"), (1_000, "us")].into_iter().find(|(unit, _)| ns >= *unit);
    let (unit, name) = unit.unwrap_or((1, "ns"));
    format!("{} {name}", ns / unit)
}
