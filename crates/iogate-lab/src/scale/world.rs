//! Time, messages and restarts.

use iogate_core::Time;
use iogate_core::proto::server_session::{CachedReply, Owed};
use iogate_sim::rng::Rng;

use super::nodes::{Call, Client, Forwarded, Forwarder, Message, Server};
use super::{Report, Scale};
use crate::agenda::{Agenda, MS, US};

/// What a server takes for a request.
const SERVICE: u64 = 5 * US;
/// Clients start within this time.
const START: u64 = 1_000 * MS;
/// How long a node that was killed is gone.
const GONE: u64 = 200 * MS;

const CLIENTS: usize = 0;
const FORWARDERS: usize = 1;
const SERVERS: usize = 2;

/// Which connection: a client's to its forwarder, or a forwarder's to a server; each end counts its connections.
#[derive(Clone, Copy, Debug)]
enum Wire {
    Client { client: u32, connection: u32 },
    Server { forwarder: u32, server: u32, connection: u32 },
}

#[derive(Debug)]
enum Event {
    Start(u32),
    /// Up: from who asks to who answers. The life is that of the node to which it was sent.
    Up(Wire, u32, Message),
    Down(Wire, Message),
    /// A client's end is to look whether to connect.
    Connect(Wire),
    /// A server has done a request.
    Served {
        forwarder: u32,
        server: u32,
        life: u32,
        owed: Owed,
    },
    KillForwarder(u32),
    KillServer(u32),
}

pub(super) struct World {
    scale: Scale,
    now: u64,
    rng: Rng,
    agenda: Agenda<Event>,
    clients: Vec<Client>,
    forwarders: Vec<Forwarder>,
    servers: Vec<Server>,
    /// Until when a forwarder or a server is gone.
    gone: [Vec<u64>; 2],
    received: [Vec<u64>; 3],
    report: Report,
}

impl World {
    pub(super) fn new(scale: &Scale) -> World {
        let mut report = Report::default();
        let clients = (0..scale.clients).map(|_| Client::new()).collect();
        let guests = scale.clients.div_ceil(scale.forwarders);
        let forwarders = (0..scale.forwarders).map(|_| Forwarder::new(guests, scale.servers)).collect();
        let servers = (0..scale.servers).map(|_| Server::new(scale.forwarders)).collect();
        let counts = [scale.clients, scale.forwarders, scale.servers];
        for (kind, count) in report.kinds.iter_mut().zip(counts) {
            kind.nodes = count.into();
        }
        World {
            scale: *scale,
            now: 0,
            rng: Rng::new(scale.seed, 0),
            agenda: Agenda::default(),
            clients,
            forwarders,
            servers,
            gone: [vec![0; scale.forwarders as usize], vec![0; scale.servers as usize]],
            received: counts.map(|count| vec![0; count as usize]),
            report,
        }
    }

    fn at(&mut self, time: u64, event: Event) {
        self.agenda.plan(time, event);
    }

    fn time(&self) -> Time {
        Time::from_nanos(self.now)
    }

    pub(super) fn run(mut self) -> Report {
        self.begin();
        while self.step() {}
        self.report.time = self.now;
        for (kind, received) in self.report.kinds.iter_mut().zip(&self.received) {
            kind.received = received.iter().sum();
            kind.received_max = received.iter().copied().max().unwrap_or(0);
        }
        self.report
    }

    /// Runs until half of the clients have come to their end. Returns the memory of all clients, forwarders and servers then.
    pub(super) fn weigh(mut self, memory: fn() -> u64) -> [u64; 3] {
        self.begin();
        while self.report.done < u64::from(self.scale.clients) / 2 && self.step() {}
        let mut weights = [0; 3];
        let mut before = memory();
        let mut weigh = |kind: usize| {
            let after = memory();
            weights[kind] = before.saturating_sub(after);
            before = after;
        };
        drop(std::mem::take(&mut self.clients));
        weigh(CLIENTS);
        drop(std::mem::take(&mut self.forwarders));
        weigh(FORWARDERS);
        drop(std::mem::take(&mut self.servers));
        weigh(SERVERS);
        weights
    }

    fn begin(&mut self) {
        for client in 0..self.scale.clients {
            let at = self.rng.below(START);
            self.at(at, Event::Start(client));
        }
        if self.scale.restarts {
            for forwarder in 0..self.scale.forwarders {
                let at = self.rng.between(START / 4, START);
                self.at(at, Event::KillForwarder(forwarder));
            }
            for server in 0..self.scale.servers {
                let at = self.rng.between(START / 4, START);
                self.at(at, Event::KillServer(server));
            }
        }
    }

    /// Handles the next event; false if there is none.
    fn step(&mut self) -> bool {
        let Some((time, event)) = self.agenda.take_next() else { return false };
        self.now = time;
        self.report.events += 1;
        self.handle(event);
        true
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Start(client) => {
                let (writes, now) = (self.scale.writes, self.time());
                self.clients[client as usize].go_on(client, writes, now);
                self.connect(Wire::Client { client, connection: 0 });
            }
            Event::Up(wire, life, message) => self.up(wire, life, message),
            Event::Down(wire, message) => self.down(wire, message),
            Event::Connect(wire) => self.connect(wire),
            Event::Served { forwarder, server, life, owed } => {
                let node = &mut self.servers[server as usize];
                if node.life == life {
                    let id = owed.id();
                    if let Some(connection) = node.finish(forwarder, owed) {
                        let reply = CachedReply::Fields(0, Box::default());
                        let wire = Wire::Server { forwarder, server, connection };
                        self.send_down(wire, Message::Reply { id, reply });
                    }
                }
            }
            Event::KillForwarder(forwarder) => self.kill_forwarder(forwarder),
            Event::KillServer(server) => self.kill_server(server),
        }
    }

    fn delay(&mut self) -> u64 {
        self.rng.between(5 * US, 50 * US)
    }

    /// The client's end of a connection, the kind and number of its node, and those of the node that it asks.
    fn ends(&self, wire: Wire) -> ((usize, u32), (usize, u32)) {
        match wire {
            Wire::Client { client, .. } => ((CLIENTS, client), (FORWARDERS, client % self.scale.forwarders)),
            Wire::Server { forwarder, server, .. } => ((FORWARDERS, forwarder), (SERVERS, server)),
        }
    }

    fn end(&mut self, wire: Wire) -> &mut super::nodes::ClientEnd {
        match wire {
            Wire::Client { client, .. } => &mut self.clients[client as usize].end,
            Wire::Server { forwarder, server, .. } => {
                &mut self.forwarders[forwarder as usize].servers[server as usize]
            }
        }
    }

    fn life(&self, (kind, number): (usize, u32)) -> u32 {
        match kind {
            FORWARDERS => self.forwarders[number as usize].life,
            _ => self.servers[number as usize].life,
        }
    }

    fn send_up(&mut self, wire: Wire, message: Message) {
        let ((kind, _), to) = self.ends(wire);
        self.report.kinds[kind].sent += 1;
        let at = self.now + self.delay();
        let life = self.life(to);
        self.at(at, Event::Up(wire, life, message));
    }

    fn send_down(&mut self, wire: Wire, message: Message) {
        let (_, (kind, _)) = self.ends(wire);
        self.report.kinds[kind].sent += 1;
        let at = self.now + self.delay();
        self.at(at, Event::Down(wire, message));
    }

    /// Sends what a client's end has to send.
    fn flush(&mut self, wire: Wire) {
        let end = self.end(wire);
        if !end.is_connected {
            return self.connect(wire);
        }
        let connection = end.connection;
        let mut sent = Vec::new();
        end.take_unsent(&mut sent);
        let wire = with(wire, connection);
        for message in sent {
            self.send_up(wire, message);
        }
    }

    /// Connects if it is time.
    fn connect(&mut self, wire: Wire) {
        let (now, (_, (kind, number))) = (self.time(), self.ends(wire));
        let gone_until = self.gone[kind - 1][number as usize];
        let is_gone = gone_until > self.now;
        let end = self.end(wire);
        match end.attempt(now) {
            Some(Err(time)) => self.at(time.as_nanos(), Event::Connect(wire)),
            Some(Ok(_)) if is_gone => {
                end.session.could_not_connect(now);
                self.at(self.now, Event::Connect(wire));
            }
            Some(Ok(session)) if end.connection.is_multiple_of(2) => {
                // Odd while it waits for the welcome.
                end.connection += 1;
                let connection = end.connection;
                self.send_up(with(wire, connection), Message::Hello(session));
            }
            _ => {}
        }
    }

    fn up(&mut self, wire: Wire, life: u32, message: Message) {
        let (_, (kind, number)) = self.ends(wire);
        if self.life((kind, number)) != life {
            return;
        }
        self.received[kind][number as usize] += 1;
        let now = self.time();
        match (wire, message) {
            (Wire::Client { client, connection }, Message::Hello(session)) => {
                let guest = client / self.scale.forwarders;
                let welcome = self.forwarders[number as usize].greet(guest, session, connection + 1, now);
                self.send_down(wire, Message::Welcome(Box::new(welcome)));
            }
            (Wire::Server { forwarder, connection, .. }, Message::Hello(session)) => {
                let welcome = self.servers[number as usize].greet(forwarder, session, connection + 1, now);
                self.send_down(wire, Message::Welcome(Box::new(welcome)));
            }
            (Wire::Client { client, connection }, Message::Request { id, acked, call }) => {
                let guest = client / self.scale.forwarders;
                let node = &mut self.forwarders[number as usize];
                match node.take((guest, client), connection, (id, acked, call), now) {
                    Forwarded::Nothing => {}
                    Forwarded::Reply(id, reply) => self.send_down(wire, Message::Reply { id, reply }),
                    Forwarded::Asked(servers) => {
                        for server in servers {
                            self.flush(Wire::Server { forwarder: number, server, connection: 0 });
                        }
                    }
                }
            }
            (Wire::Server { forwarder, server, connection }, Message::Request { id, acked, .. }) => {
                let node = &mut self.servers[number as usize];
                match node.take(forwarder, connection, (id, acked)) {
                    Some(Ok(owed)) => {
                        node.busy_until = node.busy_until.max(self.now) + SERVICE;
                        let (at, life) = (node.busy_until, node.life);
                        self.at(at, Event::Served { forwarder, server, life, owed });
                    }
                    Some(Err(reply)) => self.send_down(wire, Message::Reply { id, reply }),
                    None => {}
                }
            }
            _ => {}
        }
    }

    fn down(&mut self, wire: Wire, message: Message) {
        let ((kind, number), _) = self.ends(wire);
        let now = self.time();
        let sent_on = match wire {
            Wire::Client { connection, .. } | Wire::Server { connection, .. } => connection,
        };
        let end = self.end(wire);
        if end.connection != sent_on {
            return;
        }
        match message {
            Message::Welcome(welcome) => {
                end.connection += 1;
                end.is_connected = true;
                let connected = end.session.connected(*welcome, now);
                let failed = connected.failed.len() as u64;
                self.report.failed += failed;
                self.report.renewed += u64::from(!connected.is_resumed);
                self.received[kind][number as usize] += 1;
                self.flush(wire);
            }
            Message::Reply { id, reply } => {
                let fields = match &reply {
                    CachedReply::Fields(_, fields) => &fields[..],
                    _ => &[],
                };
                let answered = end.session.answered(id, Ok(fields)).expect("it was asked");
                self.received[kind][number as usize] += 1;
                self.report.failed += u64::from(answered.errno.is_some());
                match answered.call {
                    Call::Names { of } | Call::Store { of } | Call::Flush { of } => {
                        if let Some((guest, connection, id, reply)) =
                            self.forwarders[number as usize].answered(of)
                        {
                            let client = guest * self.scale.forwarders + number;
                            self.send_down(Wire::Client { client, connection }, Message::Reply { id, reply });
                        }
                    }
                    _ => self.goes_on(number, wire),
                }
            }
            _ => {}
        }
        if kind == FORWARDERS {
            // There may be credits for more.
            self.flush(wire);
        }
    }

    /// A client has an answer.
    fn goes_on(&mut self, client: u32, wire: Wire) {
        let (writes, now) = (self.scale.writes, self.time());
        let node = &mut self.clients[client as usize];
        if !node.end.session.is_idle() {
            // What opened its file again.
            return self.flush(wire);
        }
        if node.go_on(client, writes, now) {
            return self.flush(wire);
        }
        self.report.done += 1;
    }

    fn kill_forwarder(&mut self, forwarder: u32) {
        self.forwarders[forwarder as usize].restart();
        self.gone[0][forwarder as usize] = self.now + GONE;
        let step = self.scale.forwarders as usize;
        for client in (forwarder..self.scale.clients).step_by(step) {
            self.lose(Wire::Client { client, connection: 0 });
        }
    }

    fn kill_server(&mut self, server: u32) {
        self.servers[server as usize].restart();
        self.gone[1][server as usize] = self.now + GONE;
        for forwarder in 0..self.scale.forwarders {
            self.lose(Wire::Server { forwarder, server, connection: 0 });
        }
    }

    /// A client's end notices that its connection is over, and tries again.
    fn lose(&mut self, wire: Wire) {
        let now = self.time();
        let end = self.end(wire);
        if end.connection == 0 {
            return;
        }
        // Whatever comes on it is of an old one.
        end.connection += 1 + end.connection % 2;
        end.connection += end.connection % 2;
        end.is_connected = false;
        end.session.lost(now);
        self.connect(wire);
    }
}

fn with(wire: Wire, connection: u32) -> Wire {
    match wire {
        Wire::Client { client, .. } => Wire::Client { client, connection },
        Wire::Server { forwarder, server, .. } => Wire::Server { forwarder, server, connection },
    }
}
