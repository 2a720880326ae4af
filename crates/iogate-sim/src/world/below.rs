//! What lies below a server's gate: hands on what the gate dispatches, asks what begins, and tells whom it concerns of an end.

use iogate_core::{Dispatch, DispatchId};

use super::block::{Begun, Block, Io, Owner};
use super::{Event, Served, SimError, World};

impl World<'_> {
    /// A server's gate hands over a dispatch: to the cache, or to the block layer.
    pub(super) fn store(&mut self, node: u32, dispatch: &Dispatch) -> Result<(), SimError> {
        let now = self.queue.now();
        let Dispatch { id, file, op, offset, bytes, parts, app, .. } = *dispatch;
        let this = &mut self.nodes[node as usize];
        if this.cache.is_some() {
            self.access_at_server(node, dispatch);
            return self.ask_cache(node);
        }
        let clock = this.clock_at(now);
        let Some(block) = &mut this.block else { return Ok(()) };
        let handed_over = match &this.gate {
            Some(gate) if block.hands_over() => gate.parts(id).any(|part| part.arrival < clock),
            _ => false,
        };
        let owner = Owner::Dispatch(id);
        let (request, waited_for) = (id.0.into(), true);
        let io =
            Io { owner, op, file, offset, bytes, app, requests: parts, handed_over, request, waited_for };
        block.submit(now, io);
        self.begin_transfers(node);
        Ok(())
    }

    /// Asks a server's block layer until nothing begins any more.
    pub(super) fn begin_transfers(&mut self, node: u32) {
        let now = self.queue.now();
        while let Some(block) = &mut self.nodes[node as usize].block
            && let Some(begun) = block.next(now)
        {
            self.observe(node, &begun);
            self.queue.add(begun.end, Event::Transferred { node, owner: begun.io.owner });
        }
        if let Some(at) = self.nodes[node as usize].block.as_mut().and_then(Block::wake) {
            self.queue.add(at, Event::Device(node));
        }
    }

    /// Tells who watches of a transfer.
    pub(super) fn observe(&mut self, node: u32, &Begun { io, start, end }: &Begun) {
        let server = node - self.first_server();
        let Io { owner, op, file, offset, bytes, app, requests, .. } = io;
        let served = Served { server, app, file, op, offset, bytes, requests, start, end };
        match owner {
            Owner::Cache(_) if self.have_ended => self.observer.served_late(&served),
            _ => self.observer.served(&served),
        }
    }

    /// A device that orders by itself may have ended something.
    pub(super) fn ask_device(&mut self, node: u32) -> Result<(), SimError> {
        let now = self.queue.now();
        while let Some(block) = &mut self.nodes[node as usize].block
            && let Some(begun) = block.finished(now)
        {
            self.observe(node, &begun);
            self.transferred(node, begun.io.owner)?;
        }
        self.begin_transfers(node);
        Ok(())
    }

    /// What is below a server's gate has done a dispatch: its processor ends the call.
    pub(super) fn done_below(&mut self, node: u32, id: DispatchId) -> Result<(), SimError> {
        match self.nodes[node as usize].processor.end_call(self.queue.now()) {
            None => self.served(node, id),
            Some(at) => {
                self.queue.add(at, Event::Called { node, id });
                Ok(())
            }
        }
    }

    /// A transfer of a server's device has ended.
    pub(super) fn transferred(&mut self, node: u32, owner: Owner) -> Result<(), SimError> {
        let now = self.queue.now();
        if let Some(block) = &mut self.nodes[node as usize].block {
            block.ended(now, owner);
            if let Owner::Dispatch(id) = owner {
                block.answered(id.0.into());
            }
        }
        match owner {
            Owner::Dispatch(id) => self.done_below(node, id)?,
            Owner::Cache(io) => self.cache_answered(node, io)?,
        }
        self.begin_transfers(node);
        Ok(())
    }
}
