//! The ends of striped files, given to forwarders: whoever must wait is answered later, and keeps no thread.
//!
//! A request that waits keeps the first place in its session's window: the client can soon send nothing more, not even what others
//! wait for, the end of another's wait. So who has waited for [`PATIENCE`] is sent away, and asks again: its place among those who
//! wait stays its own.

use std::io;
use std::mem;
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use iogate_core::refusal::Refusal;
use iogate_core::wire::{self, APPEND_RECORD_BYTES, AppendRecord, Range, Record, Request, open};
use iogate_vfs::ends::{Given, Party, Work};
use iogate_vfs::{Tree, TreeFile};

use super::session::{Answer, OpenFile, Session};
use super::{Shared, lock};

/// How long a request waits for an end before its client is to ask again.
const PATIENCE: Duration = Duration::from_millis(500);

/// Somebody who waits for the end of a file.
pub(super) struct Wait {
    file: Weak<OpenFile>,
    /// What is asked for: the fields and the payload.
    asked: Vec<u8>,
    asker: Mutex<Asker>,
}

enum Asker {
    /// Waits since then.
    Here(Answer, Instant),
    /// Has been sent away, and will ask again.
    Away,
    /// Will ask again, and is given this then.
    Given(Option<io::Result<Given>>),
    /// Has been answered.
    Done,
}

impl Session {
    /// What a handle asks for the end of its file through, if it may; and the size that somebody has begun to set.
    pub(super) fn party(
        &self,
        tree: &dyn Tree,
        file: &dyn TreeFile,
        flags: u32,
    ) -> io::Result<(Option<Party>, Option<u64>)> {
        if !self.stripes || flags & open::WRITE == 0 || !tree.gives_ends() {
            return Ok((None, None));
        }
        let (party, begun) = self.export.ends.open(file, flags & open::APPEND == 0)?;
        Ok((Some(party), begun))
    }

    /// Takes in what a forwarder wants of the end of a file. What it has sent before on the connection counts before it.
    pub(super) fn ask_for_end(self: &Arc<Self>, answer: Answer, request: &Request<'_>, value: &[u8]) {
        match self.find_end(request, value) {
            Ok((file, records)) => self.take_end(&file, answer, request, value, records),
            Err(refusal) => answer.refuse(&refusal),
        }
    }

    fn find_end(
        &self,
        request: &Request<'_>,
        value: &[u8],
    ) -> Result<(Arc<OpenFile>, Vec<AppendRecord>), Refusal> {
        let handle = match request {
            Request::Reserve(reserve) => reserve.handle,
            Request::Resize(resize) => resize.handle,
            Request::Settle(settle) => settle.handle,
            _ => wire::NO_HANDLE,
        };
        let file = self.file(handle)?;
        if file.flags & open::WRITE == 0 {
            return Err(Refusal::new(libc::EBADF, format!("handle {handle} is not open for writing")));
        }
        if file.party.is_none() {
            return Err(Refusal::new(
                libc::EOPNOTSUPP,
                "this export does not give out the ends of striped files",
            ));
        }
        let chunks = value.chunks(APPEND_RECORD_BYTES);
        let records = chunks.map(AppendRecord::decode).collect::<Result<Vec<_>, _>>();
        Ok((file, records.map_err(|error| Refusal::new(libc::EINVAL, error.to_string()))?))
    }

    /// Has somebody wait, unless it has been sent away and comes again: then it waits on, or is answered.
    fn wait(&self, file: &Arc<OpenFile>, answer: Answer, asked: Vec<u8>) -> Option<Arc<Wait>> {
        let mut waits = lock(&self.waits);
        for (at, wait) in waits.iter().enumerate() {
            if wait.asked != asked || !std::ptr::eq(wait.file.as_ptr(), &raw const **file) {
                continue;
            }
            let mut asker = lock(&wait.asker);
            match mem::replace(&mut *asker, Asker::Done) {
                Asker::Away => {
                    *asker = Asker::Here(answer, Instant::now());
                    return None;
                }
                Asker::Given(given) => {
                    drop(asker);
                    waits.remove(at);
                    drop(waits);
                    give(answer, given);
                    return None;
                }
                other => *asker = other,
            }
        }
        let asker = Mutex::new(Asker::Here(answer, Instant::now()));
        let wait = Arc::new(Wait { file: Arc::downgrade(file), asked, asker });
        waits.push(Arc::clone(&wait));
        Some(wait)
    }

    /// What somebody has waited for is given.
    fn end_wait(&self, wait: &Arc<Wait>, given: Option<io::Result<Given>>) {
        let mut asker = lock(&wait.asker);
        match mem::replace(&mut *asker, Asker::Done) {
            Asker::Here(answer, _) => {
                drop(asker);
                lock(&self.waits).retain(|other| !Arc::ptr_eq(other, wait));
                give(answer, given);
            }
            _ => *asker = Asker::Given(given),
        }
    }

    /// Sends away who has waited for long.
    fn send_away(&self) {
        let mut waits = lock(&self.waits);
        waits.retain(|wait| wait.file.strong_count() > 0 || matches!(*lock(&wait.asker), Asker::Here(..)));
        // Who does not come again takes memory.
        let most = self.server.limits.credits as usize;
        let count = waits.len();
        let mut sent = Vec::new();
        for wait in waits.iter() {
            let mut asker = lock(&wait.asker);
            match mem::replace(&mut *asker, Asker::Away) {
                Asker::Here(answer, since) if count <= most && since.elapsed() >= PATIENCE => {
                    sent.push(answer);
                }
                other => *asker = other,
            }
        }
        drop(waits);
        sent.into_iter().for_each(|answer| answer.refuse(&Refusal::new(libc::EALREADY, "")));
    }

    fn take_end(
        self: &Arc<Self>,
        file: &Arc<OpenFile>,
        answer: Answer,
        request: &Request<'_>,
        value: &[u8],
        records: Vec<AppendRecord>,
    ) {
        let Some(party) = &file.party else { return };
        if let Request::Settle(settle) = *request {
            let work = party.settle(&file.file, settle.ticket, settle.end, |settled| match settled {
                Ok(()) => answer.done(),
                Err(error) => answer.failed(&error),
            });
            return self.perform(work);
        }
        let mut asked = Vec::new();
        request.encode(&mut asked);
        asked.extend_from_slice(value);
        let Some(wait) = self.wait(file, answer, asked) else { return };
        let session = Arc::clone(self);
        let then = Box::new(move |given| session.end_wait(&wait, given));
        let work = match *request {
            Request::Reserve(reserve) => {
                party.reserve(&file.file, (reserve.ticket, reserve.at_least), records, then)
            }
            Request::Resize(resize) => party.resize(&file.file, resize.size, then),
            _ => return,
        };
        self.perform(work);
    }

    /// Has a worker do what is left to do.
    fn perform(self: &Arc<Self>, work: Work) {
        if !work.is_empty() {
            let session = Arc::clone(self);
            self.run(move || session.export.ends.perform(work));
        }
    }
}

fn give(answer: Answer, given: Option<io::Result<Given>>) {
    let Some(given) = given else { return answer.forget() };
    match given {
        Ok(Given { reserved, mut ranges, begun }) => {
            let (mut fields, mut payload) = (Vec::new(), Vec::new());
            reserved.encode(&mut fields);
            ranges.extend(begun.map(|offset| Range { offset, is_there: 0 }));
            ranges.iter().for_each(|range| range.encode(&mut payload));
            answer.whole(&fields, &payload);
        }
        Err(error) => answer.failed(&error),
    }
}

impl Shared {
    /// Lets those go on who have waited for long enough for the end of a file.
    pub(super) fn look_at_ends(&self) {
        let sessions: Vec<_> = lock(&self.sessions).values().cloned().collect();
        sessions.iter().for_each(|session| session.send_away());
        for export in &self.exports {
            let work = export.ends.reap();
            if !work.is_empty() {
                let ends = Arc::clone(&export.ends);
                self.workers.run(export.index, 0, move || ends.perform(work));
            }
        }
    }
}
