//! Calls that must not be carried out twice: each has its intent in the log before it is carried out, and its answer behind it. What was
//! underway when the process before was killed is found out before anybody is served. WRITEs are remembered without the log.
//!
//! A repetition of a call that is underway is answered when that is: its client may have connected again to ask, and get no other answer
//! until it does so again, a minute later.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use iogate_core::answers::{Found, Key, Name, NameIntent, Outcome, State, Verdict};
use iogate_core::wire::{Identity, Record, Request as Kind};
use iogate_vfs::Caller;
use iogate_vfs::answers::{Answers, Begun, Running, ToNote, unless_absent};
use iogate_vfs::held::{HeldTree, Known};

use super::attr::{is_set, status, time};
use super::names::verifier_change;
use super::{Answer, Asking, Named, Respond, Service, answered, plain};
use crate::answers;
use crate::rpc::{Accepted, Call};
use crate::wire::{CreateHow, FileHandle, Node, Place, Reply, Request, SetAttr, Status, Time, Wcc};
use crate::xdr::Reader;

const NOBODY: Identity = Identity { inode: 0, generation: 0 };

impl<T: HeldTree> Service<T> {
    /// Carries out a call of NFS that [`Front::ask`](super::Front::ask) has called [`Asked::Other`](super::Asked::Other).
    pub(crate) fn carry_out(
        self: &Arc<Self>,
        client: IpAddr,
        asking: &Asking,
        record: &[u8],
        respond: Respond,
    ) {
        let call = &asking.call;
        let request = match Request::take(call.procedure, &mut asking.arguments(record)) {
            Ok(Some(request)) => request,
            Ok(None) => return respond(plain(call.xid, Accepted::NoProcedure)),
            Err(_) => return respond(plain(call.xid, Accepted::GarbageArgs)),
        };
        // Where nothing can be changed, every answer is the same again.
        if !Request::is_kept(call.procedure) || self.export.read_only {
            return respond(answered(call.xid, &self.reply(self.caller(call), &request)));
        }
        let key = answers::key(client, call.xid, call.procedure, record);
        let names = names_of(&request);
        let first = match first(&self.export.answers, key, Kept::OverKills, &names, respond) {
            First::Now(running, respond) => Ok((running, respond)),
            First::Unknown(respond) => Err((Status::Io, respond)),
            First::Is => return,
            First::Taken(respond) => {
                let (service, asking, record) = (Arc::clone(self), asking.clone(), record.to_vec());
                let spawn = Arc::clone(&self.spawn);
                return self.export.answers.wait_for_names(&key, &names, move |turn| {
                    let job = move || {
                        service.carry_out(client, &asking, &record, respond);
                        drop(turn);
                    };
                    spawn(client, Box::new(job));
                });
            }
        };
        let intend = |(running, respond): (Running, Respond)| {
            match running.intend(&self.intent(&request, record)) {
                // A full disk must not keep anybody from making room. This process knows the call again, the next one will not.
                Err(error) if !(is_full(&error) && makes_room(&request)) => Err((status(&error), respond)),
                _ => Ok((running, respond)),
            }
        };
        let (running, respond) = match first.and_then(intend) {
            Ok(first) => first,
            Err((status, respond)) => return respond(answered(call.xid, &refused(&request, status))),
        };
        let answer = answered(call.xid, &self.reply(self.caller(call), &request));
        running.finish(&outcome(call.procedure, &answer));
        respond(answer);
    }

    /// What is to be noted before a call is carried out: the call itself, and what its names lead to.
    fn intent<'a>(&self, request: &Request<'_>, record: &'a [u8]) -> NameIntent<'a> {
        let Before { kind, file, other, had } = self.before(request).unwrap_or_default();
        NameIntent { kind, file, other, had, path: record, to: &[] }
    }

    /// # Errors
    /// If it cannot be told.
    fn before(&self, request: &Request<'_>) -> Result<Before, Status> {
        let before = |kind, file, other| Ok(Before { kind, file, other, had: 0 });
        match request {
            Request::Create { place, .. } => before(Kind::OPEN, self.identity(place)?, NOBODY),
            Request::MkDir { place, .. } | Request::MkNod { place, .. } => {
                before(Kind::MAKE_NODE, self.identity(place)?, NOBODY)
            }
            Request::SymLink { place, .. } => before(Kind::SYMLINK, self.identity(place)?, NOBODY),
            Request::Remove(place) | Request::RmDir(place) => {
                before(Kind::UNLINK, self.identity(place)?, NOBODY)
            }
            Request::Rename { from, to } => before(Kind::RENAME, self.identity(from)?, self.identity(to)?),
            Request::Link { file, place } => {
                before(Kind::LINK, self.identity_of(file)?, self.identity(place)?)
            }
            Request::SetAttr { file, guard, .. } => {
                // Its guard fits: if it does not any more, it may be by this call.
                let fits = match guard {
                    Some(guard) => fits(*guard, &self.named(file)?.known),
                    None => false,
                };
                Ok(Before { had: fits.into(), ..Before::default() })
            }
            _ => Ok(Before::default()),
        }
    }

    fn identity_of(&self, file: &FileHandle) -> Result<Identity, Status> {
        Ok(self.named(file)?.object.identity)
    }

    /// What a name leads to, in the server's own name; zeros: nothing.
    fn identity(&self, place: &Place<'_>) -> Result<Identity, Status> {
        let dir = self.named_dir(&place.dir).map_err(|(status, _)| status)?;
        let own = Caller::new(rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        let found = self.export.tree.hold_entry(own, &dir.object.held, place.name);
        let found = unless_absent(found.and_then(|held| self.export.tree.known(&held)));
        Ok(found.map_err(|error| status(&error))?.map_or(NOBODY, |known| known.identity))
    }

    /// Finds out about the calls that were being carried out when the process before ended. Called before anybody is served, so that
    /// nobody else has changed anything since.
    pub(super) fn settle(&self) -> io::Result<()> {
        let mut notes = Vec::new();
        for (key, bytes) in self.export.answers.unsettled() {
            let Ok(intent) = NameIntent::decode(&bytes) else { continue };
            let (state, bytes) = match self.settled(&intent) {
                Some((procedure, answer)) => {
                    let mut bytes = Vec::new();
                    outcome(procedure, &answer).encode(&mut bytes);
                    (State::Outcome, bytes)
                }
                None => (State::Void, Vec::new()),
            };
            notes.push(ToNote { key, below: 0, state, bytes });
        }
        self.export.answers.remember(&notes)
    }

    /// What a call is answered that was underway; `None`: it has done nothing, and may be carried out.
    fn settled(&self, intent: &NameIntent<'_>) -> Option<(u32, Answer)> {
        let mut from = Reader::new(intent.path);
        let call = Call::take(&mut from).ok()?;
        let request = Request::take(call.procedure, &mut from).ok()??;
        let verdict = match &request {
            Request::SetAttr { file, attr, guard: Some(guard) } if intent.had != 0 => {
                match self.named(file) {
                    Ok(named) if fits(*guard, &named.known) => Verdict::NotDone,
                    // By this call, or by another one that has changed the file: it is not to be changed once more.
                    Ok(named) if is_set(attr, &named.attr) => Verdict::Done,
                    _ => Verdict::Unknown,
                }
            }
            Request::SetAttr { .. } => Verdict::NotDone,
            _ => match self.before(&request) {
                Ok(Before { file, other, .. }) => intent.judge(&Found { file, other, has: false }),
                Err(_) => Verdict::Unknown,
            },
        };
        tracing::info!(?verdict, procedure = call.procedure, "a call was underway at the end");
        let reply = match verdict {
            Verdict::NotDone => return None,
            Verdict::Unknown => refused(&request, Status::Io),
            Verdict::Done => self.finished(self.caller(&call), &request),
        };
        Some((call.procedure, answered(call.xid, &reply)))
    }

    /// Does what may be left of a call that has taken effect, and answers it.
    fn finished(&self, caller: Caller, request: &Request<'_>) -> Reply {
        match request {
            Request::SetAttr { file, .. } => {
                let (status, wcc) = match self.named(file) {
                    Ok(named) => self.made_durable(&named),
                    Err(status) => (status, Wcc::default()),
                };
                Reply::SetAttr(status, wcc)
            }
            Request::Create { place, how: CreateHow::Exclusive(verifier) } => self.making(place, |dir| {
                let fd = self.export.tree.hold_entry(caller, &dir.object.held, place.name)?;
                self.export.tree.change_held(caller, &fd, &verifier_change(verifier))?;
                Ok(fd)
            }),
            Request::Create { place, how: CreateHow::Guarded(attr) | CreateHow::Unchecked(attr) } => {
                let attr = SetAttr { size: attr.size.filter(|size| *size > 0), ..*attr };
                self.finish_making(caller, place, &attr)
            }
            Request::MkDir { place, attr } | Request::SymLink { place, attr, .. } => {
                self.finish_making(caller, place, &SetAttr { size: None, ..*attr })
            }
            Request::MkNod { place, node } => {
                let attr = match node {
                    Node::Device { attr, .. } | Node::Socket(attr) | Node::Fifo(attr) => *attr,
                    Node::Other(_) => SetAttr::default(),
                };
                self.finish_making(caller, place, &SetAttr { size: None, ..attr })
            }
            Request::Remove(place) | Request::RmDir(place) => {
                let (status, wcc) = self.dir_made_durable(&place.dir);
                Reply::Removed(status, wcc)
            }
            Request::Rename { from, to } => {
                let ((first, from), (second, to)) =
                    (self.dir_made_durable(&from.dir), self.dir_made_durable(&to.dir));
                Reply::Rename { status: if first == Status::Ok { second } else { first }, from, to }
            }
            Request::Link { file, place } => {
                let (status, dir) = self.dir_made_durable(&place.dir);
                Reply::Link { status, attr: self.named(file).ok().map(|named| named.attr), dir }
            }
            other => refused(other, Status::Io),
        }
    }

    fn finish_making(&self, caller: Caller, place: &Place<'_>, attr: &SetAttr) -> Reply {
        self.making(place, |dir| {
            let fd = self.export.tree.hold_entry(caller, &dir.object.held, place.name)?;
            self.set_new(caller, &fd, attr)?;
            Ok(fd)
        })
    }

    /// A directory that was changed before, as durable as after a change.
    fn dir_made_durable(&self, dir: &FileHandle) -> (Status, Wcc) {
        self.named_dir(dir).map_or((Status::Ok, Wcc::default()), |dir| self.made_durable(&dir))
    }

    /// As [`Service::dir_made_durable`], of any file.
    fn made_durable(&self, file: &Named<T::Held>) -> (Status, Wcc) {
        let (result, wcc) = self.changing(file, || Ok(()));
        (result.err().unwrap_or(Status::Ok), Wcc { before: None, ..wcc })
    }
}

/// How long the answer of a call is remembered.
#[derive(Clone, Copy)]
enum Kept {
    /// As long as the process runs.
    Here,
    /// Also by the next process.
    OverKills,
}

/// What is to be done with a call that must not be carried out twice.
enum First {
    /// It is to be carried out now.
    Now(Running, Respond),
    /// It is, or was: it is answered by what comes of that.
    Is,
    /// Nobody knows any more whether it was.
    Unknown(Respond),
    /// Another call has one of its names.
    Taken(Respond),
}

/// Whether a file is as a SETATTR's guard says.
fn fits(guard: Time, file: &Known) -> bool {
    guard == time(file.attr.ctime)
}

/// The names that a call changes, which no other changes meanwhile. Nobody finds what is below a directory by its name, so that a RENAME
/// is of its two names alone. Of a SETATTR with a guard its file, as that is noted, with all names in it: they change when it was changed.
fn names_of(request: &Request<'_>) -> Vec<Name<'static>> {
    let at = |place: &Place<'_>| Name::alone([place.dir.as_bytes(), b"/", place.name].concat());
    match request {
        Request::Create { place, .. }
        | Request::MkDir { place, .. }
        | Request::MkNod { place, .. }
        | Request::SymLink { place, .. }
        | Request::Remove(place)
        | Request::RmDir(place)
        | Request::Link { place, .. } => vec![at(place)],
        Request::Rename { from, to } => vec![at(from), at(to)],
        Request::SetAttr { file, guard: Some(_), .. } => vec![Name::with_below(file.as_bytes().to_vec())],
        _ => Vec::new(),
    }
}

fn begin(answers: &Arc<Answers>, key: Key, kept: Kept, names: &[Name<'_>]) -> Begun {
    match kept {
        Kept::Here => answers.begin_recent(key),
        Kept::OverKills => answers.begin(key, 0, names),
    }
}

/// The answer of a call, from what is remembered of it.
fn remembered(key: &Key, bytes: &[u8], kept: Kept) -> Option<Answer> {
    match kept {
        Kept::Here => Some(answered((key.number >> 32) as u32, &answers::written(bytes)?)),
        Kept::OverKills => {
            let head = Outcome::decode(bytes).ok()?.fields.to_vec();
            Some(Answer { head, data: Vec::new() })
        }
    }
}

fn first(answers: &Arc<Answers>, key: Key, kept: Kept, names: &[Name<'_>], respond: Respond) -> First {
    let begun = begin(answers, key, kept, names);
    if matches!(begun, Begun::Known(_) | Begun::Running) {
        let (xid, is_underway) = ((key.number >> 32) as u32, matches!(begun, Begun::Running));
        tracing::debug!(
            xid = format_args!("{xid:08x}"),
            procedure = key.step,
            is_underway,
            "a call comes again"
        );
    }
    match begun {
        Begun::New(running) => return First::Now(running, respond),
        Begun::Unknown => return First::Unknown(respond),
        Begun::Taken => return First::Taken(respond),
        Begun::Known(bytes) => {
            if let Some(answer) = remembered(&key, &bytes, kept) {
                respond(answer);
            }
        }
        Begun::Running => {
            let then = Arc::clone(answers);
            answers.wait(&key, move || {
                // Of one that has come to nothing there is no answer: the client asks again.
                if let Begun::Known(bytes) = begin(&then, key, kept, &[])
                    && let Some(answer) = remembered(&key, &bytes, kept)
                {
                    respond(answer);
                }
            });
        }
    }
    First::Is
}

/// How a WRITE is answered, if it is to be carried out now: what it is answered is remembered, and given to its repetitions.
pub(super) fn first_write(answers: &Arc<Answers>, key: Key, respond: Respond) -> Option<Respond> {
    match first(answers, key, Kept::Here, &[], respond) {
        First::Now(running, respond) => Some(Box::new(move |answer: Answer| {
            running.answer(answers::kept_of_write(&answer.head).as_ref());
            respond(answer);
        })),
        First::Is | First::Unknown(_) | First::Taken(_) => None,
    }
}

/// What a call's names lead to before it. Nobody can tell: [`NameIntent::UNTOLD`], and nothing.
#[derive(Default)]
struct Before {
    kind: u16,
    file: Identity,
    other: Identity,
    had: u8,
}

fn outcome(procedure: u32, answer: &Answer) -> Outcome<'_> {
    Outcome { kind: procedure as u16, errno: 0, fields: &answer.head }
}

fn is_full(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOSPC | libc::EDQUOT))
}

fn makes_room(request: &Request<'_>) -> bool {
    matches!(request, Request::Remove(_) | Request::RmDir(_) | Request::SetAttr { .. })
}

/// The answer to a call that changes names or attributes and is not carried out.
fn refused(request: &Request<'_>, status: Status) -> Reply {
    let wcc = Wcc::default();
    match request {
        Request::SetAttr { .. } => Reply::SetAttr(status, wcc),
        Request::Remove(_) | Request::RmDir(_) => Reply::Removed(status, wcc),
        Request::Rename { .. } => Reply::Rename { status, from: wcc, to: wcc },
        Request::Link { .. } => Reply::Link { status, attr: None, dir: wcc },
        _ => Reply::Made { result: Err(status), dir: wcc },
    }
}
