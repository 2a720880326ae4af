//! The ends of striped files, as the server of names gives them: the real [`Ends`], and what it remembers.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex};

use iogate_core::Time;
use iogate_core::answers::{GivenRange, Key};
use iogate_core::ends::{EarlierRange, Rules};
use iogate_core::proto::server_session::{Asked as Parking, Owed, ParkedId};
use iogate_core::wire::{APPEND_RECORD_BYTES, AppendRecord, Identity, Range, Record, Request, open};
use iogate_engine::lock;
use iogate_vfs::ends::{self, EndHandle, Ends, RangeLog};
use iogate_vfs::{Clock, TreeFile};

use super::operations::{Asked, Outcome, Reply, errno};
use super::server::Machine;

/// What who has waited for an end is given; `None`: nothing, and it may ask again.
pub(super) type Given = Option<io::Result<ends::Given>>;

/// Who is told.
pub(super) enum Waiter {
    Parked(ParkedId),
    /// Who has given it back.
    Settled(Owed),
}

impl Waiter {
    /// The answer that is owed now.
    pub(super) fn settled(self, machine: &mut Machine, given: Given) -> Option<(Owed, Given)> {
        match self {
            Waiter::Parked(parked) => machine.give(parked, given),
            Waiter::Settled(owed) => Some((owed, given)),
        }
    }
}

type Told = Arc<Mutex<Vec<([u8; 16], Waiter, Given)>>>;

/// Who may use the ends of a server's files.
pub(super) struct EndsHere {
    ends: Arc<Ends>,
    clock: Clock,
    kept: Arc<Kept>,
    /// Those who have been given something.
    told: Told,
}

impl EndsHere {
    pub(super) fn new(clock: Clock) -> EndsHere {
        let kept = Arc::new(Kept::default());
        let log = Arc::clone(&kept) as Arc<dyn RangeLog>;
        let ends = Ends::new(Rules::SERVER, Some(log), clock.clone());
        EndsHere { ends, clock, kept, told: Told::default() }
    }

    /// The server starts.
    pub(super) fn start(&mut self) {
        self.kept = Arc::new(self.kept.again());
        let log = Arc::clone(&self.kept) as Arc<dyn RangeLog>;
        self.ends = Ends::new(Rules::SERVER, Some(log), self.clock.clone());
    }

    /// The server is gone; with `crashes`, so is what it remembers.
    pub(super) fn kill(&mut self, crashes: bool) {
        self.told = Told::default();
        if crashes {
            lock(&self.kept.now).clear();
        }
    }

    /// A names-file has been opened.
    pub(super) fn open(
        &self,
        file: &dyn TreeFile,
        flags: u32,
    ) -> Result<(Option<EndHandle>, Option<u64>), i32> {
        if flags & open::WRITE == 0 {
            return Ok((None, None));
        }
        let opened = self.ends.open(file, flags & open::APPEND == 0);
        let (end_handle, begun) = opened.map_err(|error| errno(&error))?;
        Ok((Some(end_handle), begun))
    }

    /// Somebody asks for an end. Returns what is to be answered now.
    pub(super) fn ask(
        &self,
        secret: [u8; 16],
        machine: &mut Machine,
        owed: Owed,
        asked: &Asked,
        now: u64,
    ) -> Option<(Owed, Outcome)> {
        let request = match Request::decode(asked.kind, &asked.fields) {
            Ok(request) => request,
            Err(_) => return Some((owed, Err(libc::EPROTO))),
        };
        let handle = match request {
            Request::Reserve(reserve) => reserve.handle,
            Request::Resize(resize) => resize.handle,
            Request::Settle(settle) => settle.handle,
            _ => return Some((owed, Err(libc::EPROTO))),
        };
        let open = match machine.file(handle) {
            Ok(open) => open,
            Err(refusal) => return Some((owed, Err(refusal.errno))),
        };
        let Some(end_handle) = &open.end_handle else { return Some((owed, Err(libc::EBADF))) };
        let told = Arc::clone(&self.told);
        if let Request::Settle(settle) = request {
            let then = move |settled: io::Result<()>| {
                let given =
                    settled.map(|()| ends::Given { reserved: NOTHING, ranges: Vec::new(), begun: None });
                lock(&told).push((secret, Waiter::Settled(owed), Some(given)));
            };
            self.ends.perform(end_handle.settle(&open.file, settle.ticket, settle.end, then));
            return None;
        }
        let bytes = [&asked.fields[..], &asked.payload].concat();
        let parked = match machine.park(owed, handle, &bytes, Time::from_nanos(now)) {
            Parking::New(parked) => parked,
            Parking::Waits => return None,
            Parking::Given(owed, given) => {
                return Some((owed, EndsHere::outcome(given).unwrap_or(Err(libc::EALREADY))));
            }
        };
        let then = Box::new(move |given: Given| lock(&told).push((secret, Waiter::Parked(parked), given)));
        let work = match request {
            Request::Reserve(reserve) => {
                let records = asked
                    .payload
                    .chunks(APPEND_RECORD_BYTES)
                    .filter_map(|bytes| AppendRecord::decode(bytes).ok());
                end_handle.reserve(&open.file, (reserve.ticket, reserve.at_least), records.collect(), then)
            }
            Request::Resize(resize) => end_handle.resize(&open.file, resize.size, then),
            _ => return None,
        };
        self.ends.perform(work);
        None
    }

    /// Lets those go on who have waited for long enough.
    pub(super) fn reap(&self) {
        self.ends.perform(self.ends.reap());
    }

    /// Somebody who has been given something.
    pub(super) fn next(&self) -> Option<([u8; 16], Waiter, Given)> {
        let mut told = lock(&self.told);
        if told.is_empty() { None } else { Some(told.remove(0)) }
    }

    /// What it is answered.
    pub(super) fn outcome(given: Given) -> Option<Outcome> {
        let outcome = given?.map(|ends::Given { reserved, mut ranges, begun }| {
            let mut reply = Reply::default();
            if reserved.lease != NOTHING.lease {
                reserved.encode(&mut reply.fields);
            }
            ranges.extend(begun.map(|offset| Range { offset, is_there: 0 }));
            ranges.iter().for_each(|range| range.encode(&mut reply.payload));
            reply
        });
        Some(outcome.map_err(|error| errno(&error)))
    }
}

/// What is given to who gives something back.
const NOTHING: iogate_core::wire::Reserved =
    iogate_core::wire::Reserved { ticket: 0, lease: 0, look: 0, writers: 0 };

/// Ranges, over kills of the process.
#[derive(Default)]
struct Kept {
    now: Mutex<BTreeMap<Key, GivenRange>>,
    /// What it had when the process started, and has not forgotten since.
    earlier: Mutex<BTreeMap<Key, GivenRange>>,
}

impl Kept {
    /// For the next process.
    fn again(&self) -> Kept {
        let now = lock(&self.now).clone();
        Kept { earlier: Mutex::new(now.clone()), now: Mutex::new(now) }
    }
}

impl RangeLog for Kept {
    fn earlier(&self, file: Identity) -> Vec<EarlierRange> {
        let earlier = lock(&self.earlier);
        let of_file = earlier.iter().filter(|(_, given)| given.file == file);
        of_file.map(|(key, given)| EarlierRange { record: given.record(key), offset: given.offset }).collect()
    }

    fn keep(&self, file: Identity, records: &[AppendRecord], ranges: &[Range]) -> io::Result<()> {
        lock(&self.now).extend(GivenRange::of(file, records, ranges));
        Ok(())
    }

    fn forget(&self, _: Identity, records: &[AppendRecord]) -> io::Result<()> {
        let (mut now, mut earlier) = (lock(&self.now), lock(&self.earlier));
        for key in records.iter().filter_map(Key::of_record) {
            now.remove(&key);
            earlier.remove(&key);
        }
        Ok(())
    }
}
