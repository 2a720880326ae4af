//! Who was served when: shares of the device's time over the whole run, and each dispatch of its beginning.

use serde::{Deserialize, Serialize};

use crate::slots::{self, SLOTS_MAX};

/// Lanes of a timeline; applications that come later share the last.
const LANES_MAX: usize = 8;
/// Dispatches kept one by one.
const OPENING_MAX: usize = 400;

/// Who was served when. Its memory is bounded: slots double in length when the run outgrows them.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Timeline {
    /// Length of a slot.
    pub slot_ns: u64,
    /// One lane an application, in order of appearance; the last may be `other`.
    pub lanes: Vec<Lane>,
    /// The first dispatches one by one.
    pub opening: Vec<Served>,
}

/// One application's lane.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Lane {
    /// The application; `None` for several together.
    pub app: Option<u32>,
    /// Its name.
    pub name: String,
    /// Time in each slot during which it was served.
    pub busy_ns: Vec<u64>,
}

/// One dispatch. Times count from the start of the run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Served {
    /// When its service began.
    pub start_ns: u64,
    /// When it ended.
    pub end_ns: u64,
    /// Index of its lane.
    pub lane: usize,
    /// The name of its file.
    pub file: String,
    /// `r` or `w`.
    pub op: char,
    /// First byte.
    pub offset: u64,
    /// Length in bytes.
    pub bytes: u64,
    /// Requests in it.
    pub requests: u64,
}

impl Default for Timeline {
    fn default() -> Timeline {
        Timeline { slot_ns: 1_000, lanes: Vec::new(), opening: Vec::new() }
    }
}

impl Timeline {
    /// The lane of an application, for [`Served::lane`].
    pub fn lane(&mut self, app: u32, name: impl FnOnce() -> String) -> usize {
        if let Some(index) = self.lanes.iter().position(|lane| lane.app == Some(app)) {
            return index;
        }
        if self.lanes.len() < LANES_MAX {
            self.lanes.push(Lane { app: Some(app), name: name(), busy_ns: Vec::new() });
        } else if let Some(last) = self.lanes.last_mut() {
            (last.app, last.name) = (None, "other".into());
        }
        self.lanes.len() - 1
    }

    /// Adds a dispatch of a lane that [`Timeline::lane`] gave.
    pub fn record(&mut self, served: Served) {
        let doublings = slots::doublings(self.slot_ns, SLOTS_MAX, served.end_ns);
        if doublings > 0 {
            self.slot_ns <<= doublings;
            self.lanes.iter_mut().for_each(|lane| slots::join(&mut lane.busy_ns, doublings));
        }
        slots::add(&mut self.lanes[served.lane].busy_ns, self.slot_ns, served.start_ns, served.end_ns);
        if self.opening.len() < OPENING_MAX {
            self.opening.push(served);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn served(start_ns: u64, end_ns: u64, lane: usize) -> Served {
        Served { start_ns, end_ns, lane, file: "f".into(), op: 'r', offset: 0, bytes: 1, requests: 1 }
    }

    #[test]
    fn no_time_is_lost_however_long_the_run() {
        let mut timeline = Timeline::default();
        let mut total = [0; 20];
        for i in 0..5_000u64 {
            let app = (i % 20) as u32;
            let lane = timeline.lane(app, || app.to_string());
            let (start, length) = (i * 1_000_000, 1 + i * 37 % 900_000);
            timeline.record(served(start, start + length, lane));
            total[app as usize] += length;
        }
        assert_eq!(timeline.lanes.len(), LANES_MAX);
        assert!(timeline.lanes.iter().all(|lane| lane.busy_ns.len() <= SLOTS_MAX as usize));
        assert!(timeline.lanes.iter().flat_map(|lane| &lane.busy_ns).all(|busy| *busy <= timeline.slot_ns));
        let of = |lane: &Lane| lane.busy_ns.iter().sum::<u64>();
        assert_eq!(of(&timeline.lanes[3]), total[3]);
        assert_eq!(of(timeline.lanes.last().unwrap()), total[LANES_MAX - 1..].iter().sum::<u64>());
        assert_eq!(timeline.lanes.last().unwrap().name, "other");
        assert_eq!(timeline.opening.len(), OPENING_MAX);
    }
}
