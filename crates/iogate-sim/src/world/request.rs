//! The way of a call: cut into requests, through the gates of each layer, over the network, to the devices; and back.
//!
//! A request that crosses to the next layer is a [`Piece`]. It belongs to a call of a process or to a dispatch of the layer
//! before, which is complete when all its pieces have been answered.

use iogate_core::{
    AppId, ClientId, Decision, Dispatch, DispatchId, FileId, Gate, Op, Outcome, Rejected, Request, RequestId,
    Time,
};

use super::process::Waiting;
use super::{Arrived, Event, Message, NO_CALL, SimError, World};
use crate::rng::mix;
use crate::scenario::Spread;
use crate::workload::Call;

/// Requests that memory is taken for before they come, at most: a few MB.
const EXPECTED_MAX: usize = 1 << 15;

/// A call in progress.
#[derive(Clone, Copy, Debug)]
pub(super) struct CallRun {
    process: u32,
    /// Whether it probes.
    probe: bool,
    bytes: u64,
    issued: Time,
    /// Pieces that are not answered.
    open: u32,
}

/// What a piece belongs to.
#[derive(Clone, Copy, Debug)]
pub(super) enum Parent {
    Call(u32),
    Dispatch {
        node: u32,
        id: DispatchId,
    },
    /// A transfer of a client's cache, or a COMMIT of one.
    Cache {
        node: u32,
        io: u32,
    },
    /// A list: its call until it is sent, then its message.
    List(u32),
    /// The end of a process's I/O phase, which syncs a file.
    Close(u32),
}

/// A request from one layer to the next. There are many, each touched at every step of its way: one cache line.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub(super) struct Piece {
    pub(super) parent: Parent,
    pub(super) from: u32,
    pub(super) to: u32,
    pub(super) op: Op,
    bytes: u32,
    /// Bytes not yet served.
    left: u32,
    pub(super) file: FileId,
    offset: u64,
    sender: Sender,
}

const _: () = assert!(size_of::<Piece>() == 64);

impl Piece {
    /// Whether it carries nothing, and asks for what was written to be durable.
    fn is_commit(&self) -> bool {
        self.bytes == 0
    }

    /// The reply to it; it is this piece.
    pub(super) fn reply(&self, piece: u32) -> Message {
        let call = if let Parent::Call(call) = self.parent { call } else { NO_CALL };
        Message::Reply { piece, call }
    }

    /// Bytes of data that the request carries, and those that its answer does.
    pub(super) fn data(&self) -> (u64, u64) {
        match self.op {
            Op::Write => (self.bytes.into(), 0),
            Op::Read => (0, self.bytes.into()),
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Range {
    pub(super) file: FileId,
    pub(super) op: Op,
    pub(super) offset: u64,
    pub(super) bytes: u64,
}

/// On whose behalf.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sender {
    app: AppId,
    client: ClientId,
    /// By the clock of the client.
    issued: Time,
}

/// A message between processes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Note {
    pub(super) to: u32,
    pub(super) bytes: u64,
}

impl World<'_> {
    /// A process issues a call: of its program, or a `probe`.
    pub(super) fn issue(&mut self, process: u32, call: &Call, probe: bool) -> Result<(), SimError> {
        let now = self.queue.now();
        let this = &self.processes[process as usize];
        let node = this.node;
        let sender = self.sender(process);
        let run = self.calls.add(CallRun { process, probe, bytes: call.total_bytes(), issued: now, open: 0 });
        let gated = self.nodes[node as usize].gate.is_some();
        // A probe wants to know the servers.
        let cached = self.nodes[node as usize].cache.is_some() && !probe;
        if cached {
            self.open_file(process, call);
        }
        let mut open = 0;
        for index in 0..u64::from(call.count) {
            let offset = call.offset + index * call.stride;
            let range = Range { file: call.file, op: call.op, offset, bytes: call.bytes.into() };
            if gated {
                let piece = self.add_piece(Parent::Call(run), node, node, range, sender);
                self.take_in(piece)?;
                open += 1;
            } else if cached {
                let piece = self.add_piece(Parent::Call(run), node, node, range, sender);
                self.access(node, process, piece, &range);
                open += 1;
            } else {
                open += self.forward(Parent::Call(run), node, 0, &range, sender);
            }
        }
        self.calls[run].open = open;
        if !std::mem::replace(&mut self.has_called, true) {
            self.make_room(open);
        }
        if cached { self.ask_cache(node) } else { Ok(()) }
    }

    /// The first call has become so many requests: if each process does as much at the same time, this many are under way. Their records
    /// have their memory at once, as growing would copy them again and again.
    fn make_room(&mut self, requests: u32) {
        let all = (requests as usize * self.processes.len()).min(EXPECTED_MAX);
        self.pieces.reserve(all);
        self.queue.reserve(all);
        let servers = self.first_server() as usize..self.layers[self.layers.len() - 1] as usize;
        let each = all.div_ceil(servers.len().max(1));
        self.nodes[servers]
            .iter_mut()
            .filter_map(|node| node.gate.as_mut())
            .for_each(|gate| gate.reserve(each));
    }

    /// A process, as of now.
    pub(super) fn sender(&self, process: u32) -> Sender {
        let this = &self.processes[process as usize];
        Sender {
            app: AppId(self.specs[this.app as usize].id),
            client: ClientId(process + 1),
            issued: self.nodes[this.node as usize].clock_at(self.queue.now()),
        }
    }

    /// Sends a range from a node of a layer to the next layer; in how many pieces.
    pub(super) fn forward(
        &mut self,
        parent: Parent,
        from: u32,
        layer: usize,
        range: &Range,
        sender: Sender,
    ) -> u32 {
        if layer + 3 == self.layers.len() {
            return self.forward_to_servers(parent, from, range, sender);
        }
        let next = &self.scenario.cluster.forwarders[layer];
        let (spread, transfer, nodes) = (next.spread, u64::from(next.transfer), u64::from(next.nodes));
        let (first, after) = (self.layers[layer], self.layers[layer + 1]);
        let mut count = 0;
        let mut offset = range.offset;
        let end = range.offset + range.bytes;
        while offset < end {
            let bytes = transfer.min(end - offset);
            let index = match spread {
                Spread::Client => u64::from(from - first) * nodes / u64::from(after - first),
                Spread::File => mix(range.file.0) % nodes,
                Spread::Target => offset / self.striping.stripe % self.striping.servers % nodes,
            };
            self.send_piece(parent, from, after + index as u32, Range { offset, bytes, ..*range }, sender);
            count += 1;
            offset += bytes;
        }
        count
    }

    /// Each server's part goes in requests of at most the servers' transfer size, and all servers get one after the other.
    fn forward_to_servers(&mut self, parent: Parent, from: u32, range: &Range, sender: Sender) -> u32 {
        let first = self.first_server();
        let transfer = u64::from(self.scenario.cluster.servers.transfer);
        let striping = self.striping;
        let mut count = 0;
        striping.for_each_request(range.offset, range.bytes, transfer, |server, offset, bytes| {
            self.send_piece(parent, from, first + server, Range { offset, bytes, ..*range }, sender);
            count += 1;
        });
        count
    }

    /// The node of server 0.
    pub(super) fn first_server(&self) -> u32 {
        self.layers[self.layers.len() - 2]
    }

    pub(super) fn add_piece(
        &mut self,
        parent: Parent,
        from: u32,
        to: u32,
        range: Range,
        sender: Sender,
    ) -> u32 {
        let Range { file, op, offset, bytes } = range;
        let bytes = bytes as u32;
        self.pieces.add(Piece { parent, from, to, op, bytes, left: bytes, file, offset, sender })
    }

    pub(super) fn send_piece(&mut self, parent: Parent, from: u32, to: u32, range: Range, sender: Sender) {
        let piece = self.add_piece(parent, from, to, range, sender);
        if let Parent::List(call) = parent {
            self.add_region(call, piece);
            return;
        }
        if self.nodes[from as usize].slots.as_mut().is_none_or(|slots| slots.take(piece)) {
            self.send_request(piece);
        }
    }

    fn send_request(&mut self, piece: u32) {
        let Piece { from, to, .. } = self.pieces[piece];
        let (data, _) = self.pieces[piece].data();
        self.net.send(&mut self.queue, from, to, data, Message::Request(piece));
    }

    /// How many bytes of data a message carries.
    pub(super) fn bytes_of(&self, message: Message) -> u64 {
        match message {
            Message::Request(piece) => self.pieces[piece].data().0,
            Message::Reply { piece, .. } => self.pieces[piece].data().1,
            Message::List(list) => self.list_messages[list].data.0,
            Message::ListReply(list) => self.list_messages[list].data.1,
            Message::Note(note) => self.notes[note].bytes,
            Message::Word(_) => 0,
            Message::Letter(letter) => self.global.as_ref().map_or(0, |global| global.letters[letter].bytes),
        }
    }

    /// A request has come in at a node.
    pub(super) fn take_in(&mut self, piece: u32) -> Result<(), SimError> {
        let now = self.queue.now();
        if self.pieces[piece].is_commit() {
            return self.commit(piece);
        }
        let Piece { from, to, op, .. } = self.pieces[piece];
        match self.nodes[to as usize].processor.take_in(now, op, from) {
            None => self.enter(piece),
            Some(at) => {
                self.queue.add(at, Event::Taken(piece));
                Ok(())
            }
        }
    }

    /// A request enters the gate of its node, or waits outside.
    pub(super) fn enter(&mut self, piece: u32) -> Result<(), SimError> {
        let Piece { to, file, op, offset, bytes, sender, .. } = self.pieces[piece];
        let first_server = self.first_server();
        let node = &mut self.nodes[to as usize];
        if node.block.is_some() {
            self.requests += 1;
            let server = to - first_server;
            let (app, time) = (sender.app, self.queue.now());
            self.observer.arrived(&Arrived { server, app, file, op, offset, bytes, time });
        }
        self.join_policy(to);
        let node = &mut self.nodes[to as usize];
        if !node.outside.is_empty() || !self.admit(to, piece)? {
            let node = &mut self.nodes[to as usize];
            node.outside.push_back((piece, self.queue.now()));
            node.held_back.0 += 1;
        }
        self.touch(to);
        Ok(())
    }

    /// Whether the gate of a node has room for a request: then it is in.
    fn admit(&mut self, node: u32, piece: u32) -> Result<bool, SimError> {
        let now = self.nodes[node as usize].clock_at(self.queue.now());
        let Piece { file, op, offset, bytes, sender, .. } = self.pieces[piece];
        let request = Request {
            id: RequestId(piece.into()),
            file,
            op,
            offset,
            bytes,
            app: sender.app,
            client: sender.client,
            target: None,
            issued: Some(sender.issued),
        };
        let Some(gate) = &mut self.nodes[node as usize].gate else { return Ok(true) };
        match gate.submit(now, &request) {
            Ok(()) => {
                if let Some(choosing) = &mut self.nodes[node as usize].choosing {
                    choosing.arrived(now, &request);
                }
                Ok(true)
            }
            Err(Rejected::Full { .. }) if !gate.is_empty() => Ok(false),
            Err(source) => Err(SimError::Rejected { layer: self.layer_name(node), source }),
        }
    }

    pub(super) fn touch(&mut self, node: u32) {
        let this = &mut self.nodes[node as usize];
        if !this.touched {
            this.touched = true;
            self.touched.push(node);
        }
    }

    /// Asks all gates that something has happened to.
    pub(super) fn ask_gates(&mut self) -> Result<(), SimError> {
        let mut touched = std::mem::take(&mut self.touched);
        for node in touched.drain(..) {
            self.nodes[node as usize].touched = false;
            self.ask_gate(node)?;
        }
        if self.touched.is_empty() {
            self.touched = touched;
        }
        Ok(())
    }

    fn ask_gate(&mut self, node: u32) -> Result<(), SimError> {
        while let Some(&(piece, since)) = self.nodes[node as usize].outside.front() {
            if !self.admit(node, piece)? {
                break;
            }
            let this = &mut self.nodes[node as usize];
            this.outside.pop_front();
            this.held_back.1 += self.queue.now().since(since);
        }
        self.choose(node);
        loop {
            let this = &mut self.nodes[node as usize];
            let now = this.clock_at(self.queue.now());
            let Some(gate) = &mut this.gate else { return Ok(()) };
            match gate.next(now) {
                Decision::Dispatch(dispatch) => {
                    if let Some(choosing) = &mut this.choosing {
                        choosing.dispatched(now, &dispatch);
                    }
                    self.carry_out(node, &dispatch)?;
                }
                Decision::WaitUntil(until, _) => {
                    let until = this.when_clock_shows(until);
                    if until < this.wake {
                        this.wake = until;
                        self.queue.add(until, Event::Gate(node));
                    }
                    break;
                }
                Decision::Idle => break,
            }
        }
        self.begin_lists(node);
        self.look_for_lack(node);
        if self.has_own { self.check_own(node) } else { Ok(()) }
    }

    /// Whether a scheduler of the caller's own does what it may.
    fn check_own(&self, node: u32) -> Result<(), SimError> {
        match self.nodes[node as usize].gate.as_ref().and_then(Gate::fault) {
            Some(fault) => Err(SimError::Own { layer: self.layer_name(node), fault: fault.into() }),
            None => Ok(()),
        }
    }

    /// Which layer a node is of: 0 are the clients.
    pub(super) fn layer_of(&self, node: u32) -> usize {
        self.layers.partition_point(|first| *first <= node) - 1
    }

    /// On whose behalf a forwarder sends a dispatch on: its first request's.
    pub(super) fn sender_of(&self, node: u32, id: DispatchId) -> Option<Sender> {
        let first = self.nodes[node as usize].gate.as_ref()?.parts(id).next()?;
        Some(self.pieces[first.request.0 as u32].sender)
    }

    /// Lets a gate's scheduler be chosen, if it is to be.
    fn choose(&mut self, node: u32) {
        let pieces = &self.pieces;
        let this = &mut self.nodes[node as usize];
        let now = this.clock_at(self.queue.now());
        if let (Some(choosing), Some(gate)) = (&mut this.choosing, &mut this.gate) {
            choosing.look(now, gate, |id| pieces[id.0 as u32].sender.client);
        }
    }

    /// Hands a dispatch to what lies below the gate, or sends it on.
    fn carry_out(&mut self, node: u32, dispatch: &Dispatch) -> Result<(), SimError> {
        let Dispatch { id, file, op, offset, bytes, .. } = *dispatch;
        let this = &mut self.nodes[node as usize];
        this.note_first(id);
        if this.block.is_some() {
            return self.store(node, dispatch);
        }
        if let Some(lists) = &mut this.lists {
            lists.add(*dispatch);
            return Ok(());
        }
        let Some(sender) = self.sender_of(node, id) else { return Ok(()) };
        let layer = self.layer_of(node);
        let range = Range { file, op, offset, bytes };
        let open = self.forward(Parent::Dispatch { node, id }, node, layer, &range, sender);
        let all = &mut self.nodes[node as usize].open;
        let index = id.0 as usize;
        if all.len() <= index {
            all.resize(index + 1, 0);
        }
        all[index] = open;
        Ok(())
    }

    /// A dispatch of a node is complete: its requests are answered as far as they are complete, too.
    pub(super) fn served(&mut self, node: u32, id: DispatchId) -> Result<(), SimError> {
        let now = self.queue.now();
        let first_server = self.first_server();
        let this = &mut self.nodes[node as usize];
        let clock = this.clock_at(now);
        let Some(gate) = &mut this.gate else { return Ok(()) };
        if let Some(choosing) = &mut this.choosing {
            choosing.ended(clock, id, gate.parts(id));
        }
        let server = this.block.as_ref().map(|_| node - first_server);
        let mut bytes = 0;
        let (mut done_here, mut regions) = (Vec::new(), Vec::new());
        // Known beside the gate: so the processor fetches the request while it still fetches the gate's record of it.
        let mut first = Some(this.firsts[id.0 as usize]);
        for part in gate.parts(id) {
            bytes += u64::from(part.bytes);
            let index = first.take().unwrap_or(part.request.0 as u32);
            debug_assert_eq!(u64::from(index), part.request.0, "the first was noted");
            let piece = &mut self.pieces[index];
            piece.left -= part.bytes;
            if piece.left > 0 {
                continue;
            }
            if let (Some(server), Some(block)) = (server, &mut this.block) {
                block.requests += 1;
                let app = self.app_of[piece.sender.client.0 as usize - 1];
                self.apps[app as usize].server_finish[server as usize] = Some(now);
            }
            if piece.from == node {
                done_here.push(index);
                continue;
            }
            if let Parent::List(message) = piece.parent {
                regions.push(message);
                continue;
            }
            let (_, data) = piece.data();
            self.net.send(&mut self.queue, node, piece.from, data, piece.reply(index));
        }
        gate.complete(clock, id, Outcome::Done { bytes });
        self.touch(node);
        regions.into_iter().for_each(|message| self.served_region(message));
        done_here.into_iter().try_for_each(|piece| self.replied(piece))
    }

    /// Counts a reply of a call (or none) that has reached the port of `to`, unless more than that happens when it has come in. It does not
    /// while others are to come for the same call or dispatch: they come through the same port, and so after it. Saves an event for each.
    pub(super) fn counted_early(&mut self, piece: u32, call: u32, to: u32) -> bool {
        if self.nodes[to as usize].slots.is_some() {
            return false;
        }
        let open = if call != NO_CALL {
            &mut self.calls[call].open
        } else if let Parent::Dispatch { node, id } = self.pieces[piece].parent {
            &mut self.nodes[node as usize].open[id.0 as usize]
        } else {
            return false;
        };
        if *open == 1 {
            return false;
        }
        *open -= 1;
        self.pieces.free(piece);
        true
    }

    /// A request's answer is back where it was sent from.
    pub(super) fn replied(&mut self, piece: u32) -> Result<(), SimError> {
        let Piece { parent, from, to, .. } = self.pieces[piece];
        self.pieces.free(piece);
        if from != to
            && let Some(slots) = &mut self.nodes[from as usize].slots
            && let Some(next) = slots.give_back()
        {
            self.send_request(next);
        }
        match parent {
            Parent::Call(call) => {
                self.calls[call].open -= 1;
                if self.calls[call].open == 0 { self.call_done(call) } else { Ok(()) }
            }
            Parent::Dispatch { node, id } => {
                let open = &mut self.nodes[node as usize].open[id.0 as usize];
                *open -= 1;
                if *open == 0 { self.served(node, id) } else { Ok(()) }
            }
            Parent::Cache { node, io } => self.cache_answered(node, io),
            Parent::Close(process) => self.closed(process),
            // Its message is answered, and not each region.
            Parent::List(_) => Ok(()),
        }
    }

    fn call_done(&mut self, call: u32) -> Result<(), SimError> {
        let now = self.queue.now();
        let CallRun { process: id, probe, bytes, issued, .. } = self.calls[call];
        self.calls.free(call);
        let process = &mut self.processes[id as usize];
        if process.waiting == Waiting::Ended {
            return Ok(());
        }
        if probe {
            return self.probe_written(id);
        }
        let run = &mut self.apps[process.app as usize];
        let took = now.since(issued);
        run.calls += 1;
        run.bytes += bytes;
        run.call_time += took;
        run.call_time_max = run.call_time_max.max(took);
        run.call_times.record(took.as_nanos());
        if process.in_phase {
            run.phase(process.phases - 1, now).bytes += bytes;
        }
        process.calls -= 1;
        match process.waiting {
            Waiting::Room => self.go_on(id),
            Waiting::Calls if process.calls == 0 => self.go_on(id),
            _ => Ok(()),
        }
    }
}
