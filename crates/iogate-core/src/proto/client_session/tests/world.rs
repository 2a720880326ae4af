//! A session, a naive server of a few files, and a network between them that loses connections. The server is killed, comes back with
//! or without what it remembered, or stays away. A naive model says when attempts are due and when requests are refused.

use alloc::collections::{BTreeMap, VecDeque};

use proptest::prelude::*;

use super::*;
use crate::refusal::errno::ENOENT;

/// What a request asks the naive server for. Tokens count up in the order in which they are submitted.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Ask {
    Open {
        token: u32,
        handle: u32,
        path: Vec<u8>,
    },
    Reopen {
        handle: u32,
        path: Vec<u8>,
        inode: u64,
    },
    Close {
        token: u32,
        handle: u32,
    },
    /// Changes a file, and is not to do so twice.
    Append {
        token: u32,
        handle: u32,
        has_origin: bool,
    },
    /// Changes nothing.
    Look {
        token: u32,
        handle: u32,
    },
    Rename {
        token: u32,
        from: Vec<u8>,
        to: Vec<u8>,
        exchange: bool,
    },
}

impl Ask {
    fn token(&self) -> Option<u32> {
        match *self {
            Ask::Open { token, .. }
            | Ask::Close { token, .. }
            | Ask::Append { token, .. }
            | Ask::Look { token, .. }
            | Ask::Rename { token, .. } => Some(token),
            Ask::Reopen { .. } => None,
        }
    }

    fn demand(&self) -> Demand {
        match *self {
            Ask::Open { handle, .. } => Demand { handle, opens: true, ..REPEATABLE },
            Ask::Reopen { .. } => unreachable!("the session makes these"),
            Ask::Close { handle, .. } => Demand { handle, ..REPEATABLE },
            Ask::Append { handle, has_origin, .. } => Demand { bytes: 300, has_origin, handle, ..ONCE },
            Ask::Look { handle, .. } => Demand { bytes: 10, handle, ..REPEATABLE },
            Ask::Rename { .. } => KNOWN,
        }
    }
}

fn own(request: Request<'_>, uid: &u32) -> Ask {
    let Request::Open(open) = request else { panic!("a session asks for {request:?}") };
    assert_eq!((*uid, open.flags), (7, open::READ | open::AGAIN));
    Ask::Reopen { handle: open.handle, path: open.path.to_vec(), inode: open.identity.inode }
}

type Reply = Result<Vec<u8>, i32>;

/// Carries out what comes, in the order in which it comes.
#[derive(Default)]
struct Server {
    is_away: bool,
    /// Changes when it forgets what it has carried out; 0: it never remembers that over sessions.
    answers: u64,
    remembered: BTreeMap<u32, Reply>,
    names: BTreeMap<Vec<u8>, u64>,
    inodes: u64,
    sessions: BTreeMap<[u8; 16], Served>,
    sessions_begun: u8,
    /// How often each request that is not to be repeated took effect.
    effects: BTreeMap<u32, u32>,
}

#[derive(Default)]
struct Served {
    replies: BTreeMap<u64, Reply>,
    handles: BTreeMap<u32, u64>,
    /// The largest id seen.
    last: u64,
    /// The largest token seen of each file, and of what uses none.
    tokens: BTreeMap<u32, u32>,
}

impl Server {
    fn welcome(&mut self, shown: [u8; 16]) -> Welcome {
        if self.sessions.contains_key(&shown) {
            return Welcome { resumed: 1, session: shown, ..welcome(0, self.answers) };
        }
        self.sessions_begun += 1;
        let said = welcome(self.sessions_begun, self.answers);
        self.sessions.insert(said.session, Served::default());
        said
    }

    fn serve(&mut self, session: [u8; 16], (id, acked, ask): (u64, u64, Ask), files: &Files) -> Reply {
        let served = self.sessions.get_mut(&session).expect("a connection is of a session");
        served.replies = served.replies.split_off(&acked);
        if let Some(reply) = served.replies.get(&id) {
            return reply.clone();
        }
        assert!(id == served.last + 1 && id < acked + 8, "{ask:?} has id {id} after {}", served.last);
        served.last = id;
        if let Some(token) = ask.token() {
            let before = served.tokens.insert(ask.demand().handle, token);
            assert!(Some(token) > before, "{ask:?} comes late");
        }
        let known = ask.token().and_then(|token| self.remembered.get(&token));
        let reply = known.cloned().unwrap_or_else(|| self.carry_out(session, &ask, files));
        if let Some(token) = ask.token().filter(|_| self.answers > 0 && ask.demand().has_origin) {
            self.remembered.insert(token, reply.clone());
        }
        let served = self.sessions.get_mut(&session).expect("it was there");
        served.replies.insert(id, reply.clone());
        reply
    }

    fn carry_out(&mut self, session: [u8; 16], ask: &Ask, files: &Files) -> Reply {
        let handles = &mut self.sessions.get_mut(&session).expect("it was there").handles;
        match ask {
            Ask::Open { handle, path, .. } => {
                let inode = *self.names.entry(path.clone()).or_insert_with(|| {
                    self.inodes += 1;
                    self.inodes
                });
                handles.insert(*handle, inode);
                return Ok(opened(inode));
            }
            Ask::Reopen { handle, path, inode } => {
                if self.names.get(path) != Some(inode) {
                    return Err(ESTALE);
                }
                handles.insert(*handle, *inode);
                return Ok(opened(*inode));
            }
            Ask::Close { handle, .. } => drop(handles.remove(handle)),
            Ask::Append { handle, .. } | Ask::Look { handle, .. } => {
                let inode = handles.get(handle).ok_or(EBADF)?;
                assert_eq!(files[handle].inode, *inode, "{ask:?} is of another file");
            }
            Ask::Rename { from, to, exchange, .. } => self.rename(from, to, *exchange)?,
        }
        if let Ask::Append { token, .. } | Ask::Rename { token, .. } = ask {
            *self.effects.entry(*token).or_insert(0) += 1;
        }
        Ok(Vec::new())
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Open(&'static [u8]),
    Rename(&'static [u8], &'static [u8], bool),
    Use(usize, Use),
    /// So many rounds without a fault.
    Flow(u8),
    Write,
    Serve,
    Answer(usize),
    /// After so many more messages have arrived.
    Cut(usize),
    /// The server remembers what it has carried out, or not.
    Restart(usize, bool),
    Away(bool),
    /// Milliseconds.
    Wait(u64),
    /// Now, or when it is due.
    Attempt(bool),
}

#[derive(Clone, Copy, Debug)]
enum Use {
    Look,
    Append { has_origin: bool },
    Close,
}

fn step() -> impl Strategy<Value = Step> {
    let name = || prop::sample::select(vec![&b"a"[..], b"b", b"a/c", b"b/c", b"ab", b"d"]);
    let using = prop_oneof![
        3 => Just(Use::Look),
        3 => any::<bool>().prop_map(|has_origin| Use::Append { has_origin }),
        1 => Just(Use::Close),
    ];
    prop_oneof![
        3 => name().prop_map(Step::Open),
        2 => (name(), name(), any::<bool>()).prop_map(|(from, to, exchange)| Step::Rename(from, to, exchange)),
        6 => (0..9usize, using).prop_map(|(which, how)| Step::Use(which, how)),
        4 => (1..9u8).prop_map(Step::Flow),
        5 => Just(Step::Write),
        4 => Just(Step::Serve),
        3 => (0..4usize).prop_map(Step::Answer),
        2 => (0..4usize).prop_map(Step::Cut),
        2 => (0..4usize, any::<bool>()).prop_map(|(served, remembers)| Step::Restart(served, remembers)),
        2 => any::<bool>().prop_map(Step::Away),
        4 => prop_oneof![0..30u64, 0..1500u64, Just(RETRY_FOR)].prop_map(Step::Wait),
        6 => any::<bool>().prop_map(Step::Attempt),
    ]
}

impl Server {
    /// Everything at and below a path goes along.
    fn rename(&mut self, from: &[u8], to: &[u8], exchange: bool) -> Result<(), i32> {
        let is_at = |path: &[u8], place: &[u8]| {
            path.strip_prefix(place).is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
        };
        if !self.names.keys().any(|path| is_at(path, from)) {
            return Err(ENOENT);
        }
        for (path, inode) in mem::take(&mut self.names) {
            if is_at(&path, from) {
                self.names.insert([to, &path[from.len()..]].concat(), inode);
            } else if !is_at(&path, to) {
                self.names.insert(path, inode);
            } else if exchange {
                self.names.insert([from, &path[to.len()..]].concat(), inode);
            }
        }
        Ok(())
    }
}

/// When a client tries to connect, refuses and gives up, written down event by event.
#[derive(Default)]
struct Model {
    lost: Option<u64>,
    /// Ends of attempts since then, in ms.
    attempts: Vec<u64>,
    answered: bool,
    gave_up: bool,
}

impl Model {
    fn due(&self) -> u64 {
        let pauses = [20, 40, 80, 160, 320, 640, 1000];
        let pause = |last: &u64| last + pauses[(self.attempts.len() - 1).min(6)];
        self.attempts.last().map_or(self.lost.unwrap_or(0), pause)
    }

    fn lose(&mut self, now: u64) {
        let goes_on = self.lost.is_some() && !self.answered && now < self.due() + 1000;
        if !goes_on {
            *self = Model { lost: Some(now), ..Model::default() };
        }
        (self.answered, self.gave_up) = (false, false);
    }

    fn is_over(&self, now: u64) -> bool {
        now - self.lost.unwrap_or(now) >= RETRY_FOR
    }
}

const RETRY_FOR: u64 = 5_000;

/// An open file, as its user knows it.
#[derive(Clone, Copy)]
struct File {
    inode: u64,
    /// Its name went, or may have gone, without the session being told.
    may_be_stale: bool,
    is_closed: bool,
}

type Files = BTreeMap<u32, File>;

struct World {
    now: u64,
    session: ClientSession<Ask, u32>,
    tries_unasked: bool,
    /// Requests are written as soon as they are submitted, if they may be.
    is_prompt: bool,
    is_connected: bool,
    model: Model,
    server: Server,
    to_server: VecDeque<(u64, u64, Ask)>,
    to_client: Vec<(u64, Reply)>,
    files: Files,
    tokens: u32,
    fates: BTreeMap<u32, Option<i32>>,
    /// Unanswered requests for names: one at a time, as nobody could say which of two came first.
    names_in_use: u32,
}

impl World {
    fn new((tries_unasked, remembers, is_prompt): (bool, bool, bool)) -> World {
        let mut server = Server { answers: u64::from(remembers), ..Server::default() };
        let config = SessionConfig { tries_unasked, ..SessionConfig::new(Span::from_millis(RETRY_FOR)) };
        let session = ClientSession::new(config, own, server.welcome(NO_SESSION));
        World {
            now: 0,
            session,
            tries_unasked,
            is_prompt,
            is_connected: true,
            model: Model::default(),
            server,
            to_server: VecDeque::new(),
            to_client: Vec::new(),
            files: Files::new(),
            tokens: 0,
            fates: BTreeMap::new(),
            names_in_use: 0,
        }
    }

    fn submit(&mut self, ask: impl FnOnce(u32) -> Ask) {
        self.tokens += 1;
        let ask = ask(self.tokens);
        self.names_in_use += u32::from(matches!(ask, Ask::Open { .. } | Ask::Rename { .. }));
        let is_refused =
            !self.is_connected && self.model.gave_up && (self.tries_unasked || self.now < self.model.due());
        let demand = ask.demand();
        let refused = self.session.submit(ask, demand, at(self.now)).err();
        assert_eq!(refused.is_some(), is_refused);
        refused.into_iter().for_each(|ask| self.fate(ask, Err(EIO)));
        if self.is_prompt {
            (0..8).for_each(|_| self.write());
        }
    }

    /// A request is over.
    fn fate(&mut self, ask: Ask, reply: Reply) {
        let failed = reply.as_ref().err().copied();
        if let Some(token) = ask.token() {
            assert!(self.fates.insert(token, failed).is_none(), "{ask:?} is over twice");
        }
        match ask {
            Ask::Open { handle, .. } => {
                self.names_in_use -= 1;
                if let Ok(fields) = reply {
                    let inode = Opened::decode(&fields).unwrap().identity.inode;
                    self.files.insert(handle, File { inode, may_be_stale: false, is_closed: false });
                }
                assert_eq!(self.session.path_of(handle).is_none(), failed.is_some());
            }
            Ask::Append { handle, .. } | Ask::Look { handle, .. } => {
                let file = self.files[&handle];
                assert!(failed != Some(EBADF) || file.is_closed, "{handle} is open");
                assert!(failed != Some(ESTALE) || file.may_be_stale, "{handle} was not to be lost");
            }
            Ask::Rename { from, to, exchange, .. } => {
                self.names_in_use -= 1;
                match failed {
                    None => self.session.renamed(&from, &to, exchange),
                    // It may have taken effect.
                    Some(EIO) => self.files.values_mut().for_each(|file| file.may_be_stale = true),
                    Some(_) => {}
                }
                self.session.rename_ended(&from, &to);
            }
            Ask::Close { .. } | Ask::Reopen { .. } => {}
        }
        // Whose name another file has taken, or has not got back.
        let names = &self.server.names;
        for file in self.files.values_mut() {
            file.may_be_stale |= !names.values().any(|inode| *inode == file.inode);
        }
    }

    fn write(&mut self) {
        if let Some(ToWrite { id, acked, item }) = self.session.next_to_write() {
            assert!(self.is_connected);
            self.to_server.push_back((id, acked, item.clone()));
        }
    }

    fn serve(&mut self) {
        let Some(message) = self.to_server.pop_front() else { return };
        let id = message.0;
        let reply = self.server.serve(self.session.welcome().session, message, &self.files);
        self.to_client.push((id, reply));
    }

    fn answer(&mut self, which: usize) {
        if self.to_client.is_empty() {
            return;
        }
        let (id, reply) = self.to_client.swap_remove(which % self.to_client.len());
        let outcome = reply.as_ref().map(|fields| &fields[..]).map_err(|errno| *errno);
        assert!(self.session.get(id).is_some());
        let Answered { call, errno } = self.session.answered(id, outcome).expect("it was asked");
        self.model.answered = true;
        let reply = errno.map_or(reply, Err);
        self.fate(call, reply);
    }

    /// Some of what is on its way still reaches the server.
    fn cut(&mut self, served: usize) {
        if !self.is_connected {
            return;
        }
        (0..served).for_each(|_| self.serve());
        (self.to_server, self.to_client) = (VecDeque::new(), Vec::new());
        self.is_connected = false;
        self.model.lose(self.now);
        self.session.lost(at(self.now));
    }

    fn restart(&mut self, served: usize, remembers: bool) {
        self.cut(served);
        self.server.sessions.clear();
        if !remembers || self.server.answers == 0 {
            self.server.remembered.clear();
            self.server.answers += u64::from(self.server.answers > 0);
        }
    }

    fn attempt(&mut self) {
        let is_over = !self.model.attempts.is_empty() && !self.model.gave_up && self.model.is_over(self.now);
        match self.session.attempt(at(self.now)) {
            Attempt::Nothing => assert!(self.is_connected),
            Attempt::WaitUntil(time) => {
                assert!(self.now < self.model.due() && !is_over);
                assert_eq!(time, at(self.model.due()));
            }
            Attempt::GiveUp(given_up) => {
                assert!(is_over);
                self.give_up(given_up.failed);
            }
            Attempt::Connect(shown) => {
                assert!(self.now >= self.model.due() && !is_over && !self.is_connected);
                assert_eq!(shown == NO_SESSION, self.model.gave_up);
                self.model.attempts.push(self.now);
                if self.server.is_away {
                    let failed = self.session.could_not_connect(at(self.now));
                    assert_eq!(failed.is_some(), self.model.gave_up || self.model.is_over(self.now));
                    failed.into_iter().for_each(|given_up| self.give_up(given_up.failed));
                } else {
                    self.connect(shown);
                }
            }
        }
    }

    fn connect(&mut self, shown: [u8; 16]) {
        let said = self.server.welcome(shown);
        let back = self.session.connected(said, at(self.now));
        assert_eq!(back.is_resumed, said.resumed != 0);
        self.is_connected = true;
        for ask in back.failed {
            assert!(!ask.demand().repeatable, "{ask:?} can be repeated");
            self.fate(ask, Err(EIO));
        }
    }

    fn give_up(&mut self, failed: Vec<Ask>) {
        self.model.gave_up = true;
        assert!(self.session.is_idle());
        failed.into_iter().for_each(|ask| self.fate(ask, Err(EIO)));
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Open(name) if self.names_in_use == 0 => {
                let handle = self.session.open_file(name, open::READ | open::CREATE, 7);
                self.submit(|token| Ask::Open { token, handle, path: name.to_vec() });
            }
            Step::Rename(from, to, exchange)
                if self.names_in_use == 0 && !from.starts_with(to) && !to.starts_with(from) =>
            {
                let (from, to) = (from.to_vec(), to.to_vec());
                self.session.rename_begins(&from, &to);
                self.submit(|token| Ask::Rename { token, from, to, exchange });
            }
            Step::Open(_) | Step::Rename(..) => {}
            Step::Use(which, how) => {
                let open = self.files.iter().filter(|(_, file)| !file.is_closed).map(|(handle, _)| *handle);
                let open: Vec<u32> = open.collect();
                let Some(&handle) = open.get(which % open.len().max(1)) else { return };
                match how {
                    Use::Look => self.submit(|token| Ask::Look { token, handle }),
                    Use::Append { has_origin } => {
                        self.submit(|token| Ask::Append { token, handle, has_origin });
                    }
                    Use::Close => {
                        self.session.close_file(handle);
                        self.files.get_mut(&handle).expect("it is open").is_closed = true;
                        self.submit(|token| Ask::Close { token, handle });
                    }
                }
            }
            Step::Flow(rounds) => (0..rounds).for_each(|_| self.flow()),
            Step::Write => self.write(),
            Step::Serve => self.serve(),
            Step::Answer(which) => self.answer(which),
            Step::Cut(served) => self.cut(served),
            Step::Restart(served, remembers) => self.restart(served, remembers),
            Step::Away(is_away) => {
                self.server.is_away = is_away;
                if is_away {
                    self.cut(0);
                }
            }
            Step::Wait(ms) => self.now += ms,
            Step::Attempt(is_due) => {
                if is_due && !self.is_connected {
                    self.now = self.now.max(self.model.due());
                }
                self.attempt();
            }
        }
    }

    /// No more faults: everything comes to an end, and every file that is not lost can be used.
    fn settle(&mut self) {
        self.server.is_away = false;
        self.run();
        for which in 0..self.files.len() {
            self.step(Step::Use(which, Use::Look));
        }
        self.run();
        assert_eq!(self.fates.len(), self.tokens as usize, "everything is over");
        assert!(self.server.effects.values().all(|count| *count == 1), "once: {:?}", self.server.effects);
    }

    fn flow(&mut self) {
        self.write();
        self.serve();
        self.answer(0);
    }

    fn run(&mut self) {
        for _ in 0..10_000 {
            if self.session.is_idle() && self.is_connected {
                return;
            }
            self.now += 10;
            self.attempt();
            self.flow();
        }
        panic!("it does not come to an end");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn what_is_asked_is_answered_once_and_open_files_stay_open(
        kind in any::<(bool, bool, bool)>(),
        steps in prop::collection::vec(step(), 0..300),
    ) {
        let mut world = World::new(kind);
        steps.into_iter().for_each(|step| world.step(step));
        world.settle();
    }
}
