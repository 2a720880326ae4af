//! The ends of striped files, given to forwarders: whoever must wait is answered later, and keeps no thread.

use std::io;
use std::sync::Arc;

use iogate_core::wire::{self, APPEND_RECORD_BYTES, AppendRecord, Range, Record, Request, open};

use super::Shared;
use super::session::{Answer, Cut, OpenFile, Session};
use crate::ends::{Given, Party, Work};
use crate::{Tree, TreeFile};

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
            Ok((file, records)) => self.take_end(&file, answer, request, records),
            Err((errno, text)) => answer.error(errno, &text),
        }
    }

    fn find_end(
        &self,
        request: &Request<'_>,
        value: &[u8],
    ) -> Result<(Arc<OpenFile>, Vec<AppendRecord>), Cut> {
        let handle = match request {
            Request::Reserve(reserve) => reserve.handle,
            Request::Resize(resize) => resize.handle,
            Request::Settle(settle) => settle.handle,
            _ => wire::NO_HANDLE,
        };
        let file = self.file(handle)?;
        if file.flags & open::WRITE == 0 {
            return Err((libc::EBADF, format!("handle {handle} is not open for writing")));
        }
        if file.party.is_none() {
            return Err((libc::EOPNOTSUPP, "this export does not give out the ends of striped files".into()));
        }
        let chunks = value.chunks(APPEND_RECORD_BYTES);
        let records = chunks.map(AppendRecord::decode).collect::<Result<Vec<_>, _>>();
        Ok((file, records.map_err(|error| (libc::EINVAL, error.to_string()))?))
    }

    fn take_end(
        self: &Arc<Self>,
        file: &Arc<OpenFile>,
        answer: Answer,
        request: &Request<'_>,
        records: Vec<AppendRecord>,
    ) {
        let Some(party) = &file.party else { return };
        let work = match *request {
            Request::Reserve(reserve) => {
                let looked = (reserve.ticket, reserve.at_least);
                party.reserve(&file.file, looked, records, Box::new(move |given| give(answer, given)))
            }
            Request::Resize(resize) => {
                party.resize(&file.file, resize.size, Box::new(move |given| give(answer, given)))
            }
            Request::Settle(settle) => {
                party.settle(&file.file, settle.ticket, settle.end, |settled| match settled {
                    Ok(()) => answer.done(),
                    Err(error) => answer.failed(&error),
                })
            }
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
        for export in &self.exports {
            let work = export.ends.look_round();
            if !work.is_empty() {
                let ends = Arc::clone(&export.ends);
                self.workers.run(export.index, 0, move || ends.perform(work));
            }
        }
    }
}
