//! What a forwarder asks the server of names of the end of a striped file.

use std::io;

use iogate_core::wire::{
    AppendRecord, RANGE_BYTES, Range, Record, Request, Reserve, Reserved, Resize, Settle,
};
use iogate_engine::store::Segment;
use iogate_vfs::ends::Given;

use super::call::{Answer, Call, Done, Memory, not_understood};
use super::file::Opened;

impl Opened {
    pub(super) fn reserve(&self, ticket: u64, at_least: u64, records: &[AppendRecord]) -> io::Result<Given> {
        let handle = self.handle_on(self.first)?;
        let mut value = Vec::new();
        records.iter().for_each(|record| record.encode(&mut value));
        let (memory, bytes) = (value.as_mut_ptr(), value.len());
        let call = |done| {
            let request = Request::Reserve(Reserve { handle, ticket, at_least });
            let mut call = Call::new(&request, self.caller, done);
            call.memory = Memory::One([Segment { memory, bytes }]);
            call.demand.bytes = bytes as u64;
            Some(call)
        };
        let answer = until_given(|| self.servers.clients[self.first].wait_for(call));
        let (reserved, ranges) = given(answer?)?;
        let expected = if reserved.look == 0 { records.len() } else { 0 };
        if ranges.len() != expected {
            let text = format!("expected {expected} ranges, found {}", ranges.len());
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        }
        Ok(Given { reserved, ranges, begun: None })
    }

    pub(super) fn resize(&self, size: u64) -> io::Result<Given> {
        let handle = self.handle_on(self.first)?;
        let request = Request::Resize(Resize { handle, size });
        let answer = until_given(|| self.servers.clients[self.first].call(&request, self.caller));
        let (reserved, ranges) = given(answer?)?;
        let begun = ranges.first().map(|range| range.offset);
        Ok(Given { reserved, ranges: Vec::new(), begun })
    }

    pub(super) fn settle(&self, ticket: u64, end: u64, waits: bool) -> io::Result<()> {
        let handle = self.handle_on(self.first)?;
        let client = &self.servers.clients[self.first];
        let request = Request::Settle(Settle { handle, ticket, end });
        if waits {
            return client.call(&request, self.caller).map(drop);
        }
        client.start(Call::new(&request, self.caller, Done::Nothing));
        Ok(())
    }
}

/// Asks, and again when it is sent away: so that what else is asked of the server meanwhile is not held up.
fn until_given(ask: impl Fn() -> io::Result<Answer>) -> io::Result<Answer> {
    loop {
        match ask() {
            Err(error) if error.raw_os_error() == Some(libc::EALREADY) => {}
            answer => return answer,
        }
    }
}

fn given(answer: Answer) -> io::Result<(Reserved, Vec<Range>)> {
    let Answer::Other { fields, payload } = answer else {
        let text = format!("expected what is given of an end, found {answer:?}");
        return Err(io::Error::new(io::ErrorKind::InvalidData, text));
    };
    let reserved = Reserved::decode(&fields).map_err(not_understood)?;
    let ranges = payload.chunks(RANGE_BYTES).map(Range::decode).collect::<Result<_, _>>();
    Ok((reserved, ranges.map_err(not_understood)?))
}
