//! The thread that answers: requests one by one, and those who look at the page, once a second. It waits for nobody: who does not take
//! what there is to say is told less, and then nothing more.

use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use iogate_net::transport::{Bound, PlainSocket, Socket};
use iogate_report::live::{self, GateNow};
use iogate_report::metrics::{Exposed, text};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::Serialize;

use super::http::{self, Answer};

/// Requests at once; where one more comes, the oldest one goes.
pub(super) const REQUESTS_MAX: usize = 8;
/// Who looks at the page at once; one more is refused.
pub(super) const LOOKERS_MAX: usize = 8;
/// How long a request may take altogether, and how long who looks may not take an event.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long nothing is accepted after the system has refused to.
const PAUSE: Duration = Duration::from_millis(100);
/// Between two events.
const TICK: Duration = Duration::from_secs(1);

/// What those who look at the page are told.
#[derive(Serialize)]
struct Told {
    gates: Vec<GateNow>,
}

fn event_of(exposed: &Exposed) -> Vec<u8> {
    let told = Told { gates: live::gates(exposed) };
    http::event(&serde_json::to_string(&told).unwrap_or_default())
}

/// One request and its answer, or one who looks.
struct Connection {
    stream: PlainSocket,
    /// When it came, or was last sent an event.
    since: Instant,
    request: Vec<u8>,
    /// What is to be sent, and how much of it is.
    unsent: Vec<u8>,
    sent: usize,
    stage: Stage,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Its request has not come whole.
    Asks,
    /// It is answered, and ends then.
    Ends,
    /// It is told what goes on until it goes.
    Looks,
}

impl Connection {
    fn has_unsent(&self) -> bool {
        self.sent < self.unsent.len()
    }

    /// Goes on as far as it can without waiting; `of` has the answer to a request, and whether there are more to come. Whether there is
    /// more to do.
    fn step(
        &mut self,
        of: &mut dyn FnMut(Answer) -> (Vec<u8>, Stage),
        host: Option<&str>,
    ) -> io::Result<bool> {
        let mut some = [0; 1024];
        while self.stage == Stage::Asks {
            let n = self.stream.read(&mut [IoSliceMut::new(&mut some)])?;
            if n == 0 {
                return Ok(false);
            }
            self.request.extend_from_slice(&some[..n]);
            if let Some(answer) = http::answer(&self.request, host) {
                (self.unsent, self.stage) = of(answer);
            }
        }
        while self.has_unsent() {
            self.sent += self.stream.write(&[IoSlice::new(&self.unsent[self.sent..])])?;
        }
        if self.stage == Stage::Looks {
            // Who looks has nothing more to say: this is its end, or an error.
            self.stream.read(&mut [IoSliceMut::new(&mut some)])?;
        }
        Ok(false)
    }

    /// Tells who looks what goes on, unless it has not taken what it was told before.
    fn tell(&mut self, event: &[u8], now: Instant) {
        if self.stage == Stage::Looks && !self.has_unsent() {
            self.unsent.clear();
            self.unsent.extend_from_slice(event);
            (self.sent, self.since) = (0, now);
        }
    }

    /// When it will have had the time that there is.
    fn ends_at(&self) -> Option<Instant> {
        (self.stage != Stage::Looks || self.has_unsent()).then(|| self.since + PATIENCE)
    }
}

/// What is said to a request.
fn said(answer: Answer, told: &dyn Fn() -> Exposed, lookers: usize) -> (Vec<u8>, Stage) {
    let refused = |status: &str| {
        let text = format!("{status}: GET / is a page of what goes on, GET /metrics is for monitoring\n");
        http::reply(status, "text/plain; charset=utf-8", &text, true)
    };
    let reply = match answer {
        Answer::Events if lookers < LOOKERS_MAX => {
            return ([http::events_begin(), event_of(&told())].concat(), Stage::Looks);
        }
        Answer::Events => refused("503 Service Unavailable"),
        Answer::Metrics { form, with_body } => {
            http::reply("200 OK", form.content_type(), &text(&told(), form), with_body)
        }
        Answer::File { content_type, content, with_body } => {
            http::reply("200 OK", content_type, content, with_body)
        }
        Answer::Refused(status) => refused(status),
    };
    (reply, Stage::Ends)
}

/// Answers until it is stopped. `host` is as for [`http::answer`].
pub(super) fn serve(socket: &Bound, host: Option<&str>, stopped: &UnixStream, told: &dyn Fn() -> Exposed) {
    let mut connections: Vec<Connection> = Vec::new();
    let (mut paused, mut tick) = (None, Instant::now());
    while !wait(socket, stopped, &connections, paused, tick) {
        let now = Instant::now();
        let mut lookers = count(&connections, Stage::Looks);
        if lookers > 0 && now >= tick {
            let event = event_of(&told());
            connections.iter_mut().for_each(|connection| connection.tell(&event, now));
            tick = now + TICK;
        }
        connections.retain_mut(|connection| {
            let step = connection.step(
                &mut |answer| {
                    let (reply, stage) = said(answer, told, lookers);
                    lookers += usize::from(stage == Stage::Looks);
                    (reply, stage)
                },
                host,
            );
            let more = step.unwrap_or_else(|error| {
                matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
            });
            more && connection.ends_at().is_none_or(|end| now < end)
        });
        if paused.is_some_and(|until| now < until) {
            continue;
        }
        paused = None;
        match socket.accept().and_then(|(stream, _)| PlainSocket::new(stream)) {
            Ok(stream) => {
                if connections.len() - count(&connections, Stage::Looks) >= REQUESTS_MAX
                    && let Some(oldest) = connections.iter().position(|one| one.stage != Stage::Looks)
                {
                    connections.remove(oldest);
                }
                let (request, unsent) = (Vec::new(), Vec::new());
                connections.push(Connection {
                    stream,
                    since: now,
                    request,
                    unsent,
                    sent: 0,
                    stage: Stage::Asks,
                });
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            // Without descriptors, say. It would be asked again at once.
            Err(_) => paused = Some(now + PAUSE),
        }
    }
}

fn count(connections: &[Connection], stage: Stage) -> usize {
    connections.iter().filter(|connection| connection.stage == stage).count()
}

/// Until somebody comes or can go on, is to be told something, or has had the time that there is. Whether this is the end.
fn wait(
    socket: &Bound,
    stopped: &UnixStream,
    connections: &[Connection],
    paused: Option<Instant>,
    tick: Instant,
) -> bool {
    let mut fds = vec![PollFd::from_borrowed_fd(stopped.as_fd(), PollFlags::IN)];
    fds.extend(connections.iter().map(|connection| {
        let what = if connection.has_unsent() { PollFlags::OUT } else { PollFlags::IN };
        PollFd::from_borrowed_fd(connection.stream.fd(), what)
    }));
    if paused.is_none() {
        fds.push(PollFd::from_borrowed_fd(socket.fd(), PollFlags::IN));
    }
    let tick = (count(connections, Stage::Looks) > 0).then_some(tick);
    let ends = connections.iter().filter_map(Connection::ends_at).chain(paused).chain(tick);
    let left = ends.min().map(|end| end.saturating_duration_since(Instant::now()));
    let left = left.and_then(|left| Timespec::try_from(left + Duration::from_millis(1)).ok());
    let _ = poll(&mut fds, left.as_ref());
    !fds[0].revents().is_empty()
}
