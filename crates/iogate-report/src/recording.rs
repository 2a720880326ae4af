//! Who was served when on each server, and what each application did meanwhile: an onlooker of a run with bounded memory.

use iogate_core::Time;
use iogate_sim::world::{Observer, Phase, Served};
use serde::{Deserialize, Serialize};

use crate::slots;

/// Slots of a recording: it has many lanes, each in a smaller picture than a [`crate::Timeline`]'s.
const SLOTS_MAX: u64 = 256;
/// Servers that are recorded: the first ones.
const SERVERS_MAX: usize = 16;
/// Applications that are told apart on a server and that have a lane of their own.
const APPS_MAX: usize = 16;

/// A run's timeline. Its memory is bounded: slots double in length when the run outgrows them, and servers and
/// applications beyond the first 16 are not recorded one by one.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Recording {
    /// What its slots count from.
    pub origin_ns: u64,
    /// Length of a slot.
    pub slot_ns: u64,
    /// One lane a server, in order of their numbers.
    pub servers: Vec<ServerLane>,
    /// One lane an application, in order of appearance.
    pub apps: Vec<AppLane>,
}

/// Whom one server served.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ServerLane {
    /// Which server.
    pub server: u32,
    /// A share for each application, in order of appearance.
    pub shares: Vec<Share>,
}

/// How long one application was served.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Share {
    /// The application; `None` for all that are not told apart.
    pub app: Option<u32>,
    /// Time in each slot during which it was served.
    pub busy_ns: Vec<u64>,
}

/// What the processes of one application did.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AppLane {
    /// The application.
    pub app: u32,
    /// Its processes.
    pub processes: u32,
    /// Time in each slot that they computed, all together.
    pub compute_ns: Vec<u64>,
    /// Time in each slot that they did I/O, all together.
    pub io_ns: Vec<u64>,
}

impl Recording {
    /// An empty one, of a run that starts at `origin`.
    pub fn new(origin: Time) -> Recording {
        Recording { origin_ns: origin.as_nanos(), slot_ns: 1_000, servers: Vec::new(), apps: Vec::new() }
    }

    /// The times from the origin on, with slots that have room for them.
    fn place(&mut self, start: Time, end: Time) -> (u64, u64) {
        let from = |time: Time| time.as_nanos().saturating_sub(self.origin_ns);
        let (start_ns, end_ns) = (from(start), from(end));
        let doublings = slots::doublings(self.slot_ns, SLOTS_MAX, end_ns);
        if doublings > 0 {
            self.slot_ns <<= doublings;
            let shares =
                self.servers.iter_mut().flat_map(|lane| &mut lane.shares).map(|share| &mut share.busy_ns);
            let apps = self.apps.iter_mut().flat_map(|lane| [&mut lane.compute_ns, &mut lane.io_ns]);
            shares.chain(apps).for_each(|slots| slots::join(slots, doublings));
        }
        (start_ns, end_ns)
    }
}

impl Observer for Recording {
    fn served(&mut self, served: &Served) {
        let (start_ns, end_ns) = self.place(served.start, served.end);
        let lane = match self.servers.binary_search_by_key(&served.server, |lane| lane.server) {
            Ok(lane) => lane,
            // The first ones by number: a later one makes room for an earlier one.
            Err(lane) if lane < SERVERS_MAX => {
                self.servers.truncate(SERVERS_MAX - 1);
                self.servers.insert(lane, ServerLane { server: served.server, shares: Vec::new() });
                lane
            }
            Err(_) => return,
        };
        let shares = &mut self.servers[lane].shares;
        let share = shares.iter().position(|share| share.app.is_none_or(|app| app == served.app.0));
        let share = share.unwrap_or_else(|| {
            let app = (shares.len() < APPS_MAX).then_some(served.app.0);
            shares.push(Share { app, busy_ns: Vec::new() });
            shares.len() - 1
        });
        slots::add(&mut shares[share].busy_ns, self.slot_ns, start_ns, end_ns);
    }

    fn phase(&mut self, phase: &Phase) {
        let (start_ns, end_ns) = self.place(phase.start, phase.end);
        let lane = match self.apps.iter().position(|lane| lane.app == phase.app.0) {
            Some(lane) => lane,
            None if self.apps.len() < APPS_MAX => {
                let (compute_ns, io_ns) = (Vec::new(), Vec::new());
                self.apps.push(AppLane { app: phase.app.0, processes: 0, compute_ns, io_ns });
                self.apps.len() - 1
            }
            None => return,
        };
        let lane = &mut self.apps[lane];
        lane.processes = lane.processes.max(phase.rank.saturating_add(1));
        let slots = if phase.io { &mut lane.io_ns } else { &mut lane.compute_ns };
        slots::add(slots, self.slot_ns, start_ns, end_ns);
    }
}

#[cfg(test)]
mod tests {
    use iogate_core::{AppId, FileId, Op, Span};

    use super::*;

    fn served(server: u32, app: u32, start_us: u64, us: u64) -> Served {
        let start = Time::ZERO + Span::from_micros(start_us);
        Served {
            server,
            app: AppId(app),
            file: FileId(1),
            op: Op::Read,
            offset: 0,
            bytes: 1,
            requests: 1,
            start,
            end: start + Span::from_micros(us),
        }
    }

    #[test]
    fn no_time_is_lost_and_memory_is_bounded() {
        let mut recording = Recording::new(Time::ZERO + Span::from_micros(5));
        let mut total = [0; 16];
        for i in 0..20_000u64 {
            let server = (i % 20) as u32;
            recording.served(&served(server, (i % 37) as u32, 5 + i * 900, 1 + i % 700));
            if let Some(total) = total.get_mut(server as usize) {
                *total += 1_000 * (1 + i % 700);
            }
        }
        assert_eq!(recording.servers.len(), 16);
        for (index, lane) in recording.servers.iter().enumerate() {
            assert_eq!(lane.server, index as u32);
            assert_eq!(lane.shares.len(), 17);
            assert_eq!(lane.shares[16].app, None);
            assert!(lane.shares.iter().all(|share| share.busy_ns.len() <= 256));
            let sum: u64 = lane.shares.iter().flat_map(|share| &share.busy_ns).sum();
            assert_eq!(sum, total[index], "server {index}");
        }
    }

    #[test]
    fn the_first_servers_by_number_are_kept() {
        let mut recording = Recording::new(Time::ZERO);
        (0..20).rev().for_each(|server| recording.served(&served(server, 1, 0, 1)));
        let kept: Vec<u32> = recording.servers.iter().map(|lane| lane.server).collect();
        assert_eq!(kept, (0..16).collect::<Vec<_>>());
    }

    #[test]
    fn processes_compute_or_do_io() {
        let mut recording = Recording::new(Time::ZERO);
        let at = |ms| Time::ZERO + Span::from_millis(ms);
        for rank in 0..4 {
            let app = AppId(7);
            recording.phase(&Phase { app, rank, io: false, start: at(0), end: at(10) });
            recording.phase(&Phase { app, rank, io: true, start: at(10), end: at(15) });
        }
        let [lane] = &recording.apps[..] else { panic!("one application") };
        assert_eq!((lane.app, lane.processes), (7, 4));
        let sum = |slots: &[u64]| slots.iter().sum::<u64>() / 1_000_000;
        assert_eq!((sum(&lane.compute_ns), sum(&lane.io_ns)), (40, 20));
    }
}
