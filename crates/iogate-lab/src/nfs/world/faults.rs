//! Which faults a world of NFS has, and what one of them does.

use iogate_sim::rng::Rng;

use super::{Event, FAULTS, MS, World};

/// Which faults there are, and how often.
pub(super) struct Faults {
    /// The mean time between two of them.
    pub(super) pause: u64,
    kills: bool,
    crashes: bool,
    cuts: bool,
    slow_disk: bool,
    failing_syncs: bool,
    /// Of a thousand messages, so many are lost.
    pub(super) lost: u64,
}

impl Faults {
    /// Those of a world.
    pub(super) fn new(rng: &mut Rng) -> Faults {
        let mut is = |one_in: u64| rng.below(one_in) == 0;
        let (kills, crashes, cuts, slow_disk, failing_syncs) = (!is(4), !is(3), is(2), is(3), is(3));
        Faults {
            pause: rng.between(20 * MS, 500 * MS),
            kills,
            crashes,
            cuts,
            slow_disk,
            failing_syncs,
            lost: [0, 10, 100][rng.below(3) as usize],
        }
    }
}

impl World {
    /// One of them happens; when the time for that is over, all of them end.
    pub(super) fn fault(&mut self) {
        if !self.has_faults() {
            (self.is_slow, self.faults.lost, self.server.kill_in) = (false, 0, None);
            self.disk().failing = 0;
            return self.note(|| "the faults are over".into());
        }
        let is_up = self.server.is_up;
        match self.rng.below(10) {
            0 if self.faults.kills && is_up => self.kill(false),
            1 if self.faults.crashes && is_up => self.kill(true),
            // Also while it begins.
            2..=4 if self.faults.kills => self.server.kill_in = Some((self.rng.below(60), false)),
            5 if self.faults.crashes => self.server.kill_in = Some((self.rng.below(60), true)),
            6 | 7 if self.faults.cuts => {
                let client = self.rng.below(self.clients.len() as u64) as usize;
                self.note(|| format!("the connection of client {client} is cut"));
                self.cut(client);
            }
            8 if self.faults.slow_disk => self.is_slow = !self.is_slow,
            9 if self.faults.failing_syncs => {
                let failing = [0, 50, 500][self.rng.below(3) as usize];
                self.disk().failing = failing;
            }
            _ => {}
        }
        let pause = self.rng.between(self.faults.pause / 2, 2 * self.faults.pause);
        self.agenda.plan((self.now + pause).min(FAULTS), Event::Fault);
    }
}
