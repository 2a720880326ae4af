//! The ends of striped files, given to forwarders: whoever must wait is answered later, and keeps no thread. The session decides how
//! long a request waits before its client is to ask again, see `iogate_core::proto::server_session`.

use std::io;
use std::sync::Arc;

use iogate_core::proto::server_session::{Asked, ParkedId};
use iogate_core::refusal::Refusal;
use iogate_core::wire::{self, APPEND_RECORD_BYTES, AppendRecord, Range, Record, Request, open};
use iogate_vfs::ends::{EndHandle, Given, Work};
use iogate_vfs::{Tree, TreeFile};

use super::session::{Answer, OpenFile, Session};
use super::{Shared, lock};

impl Session {
    /// What a handle asks for the end of its file through, if it may; and the size that somebody has begun to set.
    pub(super) fn end_handle(
        &self,
        tree: &dyn Tree,
        file: &dyn TreeFile,
        flags: u32,
    ) -> io::Result<(Option<EndHandle>, Option<u64>)> {
        if !self.stripes || flags & open::WRITE == 0 || !tree.gives_ends() {
            return Ok((None, None));
        }
        let (end_handle, begun) = self.export.ends.open(file, flags & open::APPEND == 0)?;
        Ok((Some(end_handle), begun))
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
        let handle = handle_of(request);
        let file = self.file_for(handle, open::WRITE)?;
        if file.end_handle.is_none() {
            return Err(Refusal::new(
                libc::EOPNOTSUPP,
                "this export does not give out the ends of striped files",
            ));
        }
        let chunks = value.chunks(APPEND_RECORD_BYTES);
        let records = chunks.map(AppendRecord::decode).collect::<Result<Vec<_>, _>>();
        Ok((file, records.map_err(|error| Refusal::new(libc::EINVAL, error.to_string()))?))
    }

    /// Parks a request; `None` if it was, and has come again: then it waits on, or is answered.
    fn park(self: &Arc<Self>, answer: Answer, handle: u32, asked: &[u8]) -> Option<ParkedId> {
        let owed = answer.park()?;
        let parked = lock(&self.state).park(owed, handle, asked, self.server.now());
        match parked {
            Asked::New(parked) => return Some(parked),
            Asked::Waits => {}
            Asked::Given(owed, given) => give(Answer::new(self, owed), given),
        }
        None
    }

    /// What somebody has waited for is given.
    fn end_wait(self: &Arc<Self>, parked: ParkedId, given: Option<io::Result<Given>>) {
        let now = lock(&self.state).give(parked, given);
        if let Some((owed, given)) = now {
            give(Answer::new(self, owed), given);
        }
    }

    /// Sends away who has waited for long.
    fn send_away(self: &Arc<Self>) {
        let sent = lock(&self.state).send_away(self.server.now());
        let again = Refusal::new(libc::EALREADY, "");
        sent.into_iter().for_each(|owed| Answer::new(self, owed).refuse(&again));
    }

    fn take_end(
        self: &Arc<Self>,
        file: &Arc<OpenFile>,
        answer: Answer,
        request: &Request<'_>,
        value: &[u8],
        records: Vec<AppendRecord>,
    ) {
        let Some(end_handle) = &file.end_handle else { return };
        if let Request::Settle(settle) = *request {
            let work = end_handle.settle(&file.file, settle.ticket, settle.end, |settled| match settled {
                Ok(()) => answer.done(),
                Err(error) => answer.failed(&error),
            });
            return self.perform(work);
        }
        let mut asked = Vec::new();
        request.encode(&mut asked);
        asked.extend_from_slice(value);
        let Some(parked) = self.park(answer, handle_of(request), &asked) else { return };
        let session = Arc::clone(self);
        let then = Box::new(move |given| session.end_wait(parked, given));
        let work = match *request {
            Request::Reserve(reserve) => {
                end_handle.reserve(&file.file, (reserve.ticket, reserve.at_least), records, then)
            }
            Request::Resize(resize) => end_handle.resize(&file.file, resize.size, then),
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

fn handle_of(request: &Request<'_>) -> u32 {
    match request {
        Request::Reserve(reserve) => reserve.handle,
        Request::Resize(resize) => resize.handle,
        Request::Settle(settle) => settle.handle,
        _ => wire::NO_HANDLE,
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
                self.workers.run_for(export.index, 0, move || ends.perform(work));
            }
        }
    }
}
