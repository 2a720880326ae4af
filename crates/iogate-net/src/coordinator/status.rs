//! Telling how the coordinator is, without much of its time going into that.

use std::time::{Duration, Instant};

use iogate_core::coord::leader::{Rules, Status};
use iogate_core::refusal::Refusal;
use rustix::time::{ClockId, clock_gettime};

use super::reactor::Reactor;

/// A status is told again for so many times as long as it took to make: so no more than a part of the time goes into them.
const TOLD_TIMES: u32 = 4;

/// A status, as it was told last.
pub(super) struct Told {
    json: Vec<u8>,
    made: Instant,
    /// What making it took of the thread's time.
    took: Duration,
}

/// The time that this thread has run.
fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

impl Reactor {
    /// Answers a client that asks how the coordinator is.
    pub(super) fn tell_status(&mut self, token: u64, user: Option<u32>, request: u64) {
        let is_fresh = |told: &Told| told.made.elapsed() < told.took * TOLD_TIMES;
        let told = match self.told.take().filter(is_fresh) {
            Some(told) => told,
            None => {
                let began = thread_time();
                let mut status = self.status();
                // The one that asks is not among them while it is read from.
                status.connections += 1;
                let json = status.to_json();
                Told { json, made: Instant::now(), took: thread_time().saturating_sub(began) }
            }
        };
        if let Some(leading) = &mut self.leading {
            if self.budget.is_short_of(user, leading.ready_bytes() + told.json.len()) {
                let text = "too many answers are underway to this user: ask again when some have been read";
                leading.at_once().failure(token, request, &Refusal::new(libc::EAGAIN, text));
            } else {
                leading.at_once().answer(token, 0, request, &told.json, |_| {});
            }
        }
        self.told = Some(told);
    }

    /// How the coordinator is.
    pub(super) fn status(&self) -> Status {
        let mut status = Status {
            leads: self.leading.is_some(),
            leader: self.leader.as_ref().map(ToString::to_string),
            up_ms: self.started.elapsed().as_millis() as u64,
            journal: self.journal.place(),
            rules: Rules::of(&self.config.table),
            connections: self.connections.len(),
            ..Status::default()
        };
        if let Some(leading) = &self.leading {
            leading.describe(self.clock.now(), &mut status);
            if let Some(gates) = &mut status.gates {
                for class in gates.named.iter_mut().chain(&mut gates.groups) {
                    class.name = self.config.class_names.get(&class.class).cloned();
                }
            }
            status.counters.cut = self.cut;
        }
        status
    }
}
