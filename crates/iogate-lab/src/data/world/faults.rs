//! Which faults a world of data has, and what one of them does.

use iogate_sim::rng::Rng;

use super::{Event, FAULTS, MS, SECOND, Server, World};

/// Which faults there are, and how often.
pub(super) struct Faults {
    /// The mean time between two of them.
    pub(super) pause: u64,
    kills: bool,
    crashes: bool,
    pub(super) program_kills: bool,
    stops: bool,
    cuts: bool,
    half_open: bool,
    pub(super) slow_net: bool,
    pub(super) slow_disk: bool,
    full_disk: bool,
    failing_syncs: bool,
    crowded: bool,
}

impl Faults {
    /// Those of a world.
    pub(super) fn new(rng: &mut Rng) -> Faults {
        let mut is = |one_in: u64| rng.below(one_in) == 0;
        let half_open = is(4);
        let faults = Faults {
            pause: 0,
            kills: is(2),
            crashes: is(3),
            program_kills: is(2),
            // Nobody can tell what is stopped from what is gone, if nothing says that it is gone.
            stops: is(2) && !half_open,
            cuts: is(2),
            half_open,
            slow_net: is(4),
            slow_disk: is(3) && !half_open,
            full_disk: is(4),
            failing_syncs: is(4),
            crowded: is(5),
        };
        Faults { pause: rng.between(20 * MS, 2 * SECOND), ..faults }
    }
}

impl World {
    /// One of them happens; when the time for that is over, all of them end.
    pub(super) fn fault(&mut self) {
        if self.net.now >= FAULTS {
            self.servers.iter_mut().for_each(Server::heal);
            self.net.is_slow = false;
            return self.net.note(|| "the faults are over".into());
        }
        let World { net, servers, faults, books, .. } = self;
        let server = net.rng.below(servers.len() as u64) as usize;
        let server = &mut servers[server];
        match net.rng.below(10) {
            0 if faults.kills => server.kill(net, false),
            1 if faults.kills => server.kill_after_next(),
            2 if faults.crashes => server.kill(net, true),
            3 if faults.program_kills => {
                let program = net.rng.below(books.len() as u64) as usize;
                self.kill_program(program);
            }
            4 if faults.stops => {
                let until = net.now + net.rng.between(MS, 3 * SECOND);
                server.stop(net, until);
                // What a program has sent may still be unread when its successor is there.
                if faults.program_kills && net.rng.below(2) == 0 {
                    let program = net.rng.below(books.len() as u64) as usize;
                    let soon = net.now + net.rng.between(MS, 50 * MS);
                    net.at(soon, Event::Kill(program));
                }
            }
            5 | 6 if faults.cuts || faults.half_open => {
                let wires = net.last_wires();
                if let Some(&wire) = wires.get(net.rng.below(wires.len().max(1) as u64) as usize) {
                    let silently = faults.half_open && net.rng.below(2) == 0;
                    net.note(|| format!("connection {wire} is cut, silently: {silently}"));
                    net.cut(wire, silently);
                }
            }
            7 if faults.full_disk => {
                let room = [usize::MAX, 1 << 14, 1 << 12, 0][net.rng.below(4) as usize];
                server.leave_room(net, room);
            }
            8 if faults.failing_syncs => server.disk().failing = [0, 100, 500][net.rng.below(3) as usize],
            9 if faults.crowded => server.disk().crowded = [0, 100, 500][net.rng.below(3) as usize],
            _ => {}
        }
        let pause = self.net.rng.between(self.faults.pause / 2, 2 * self.faults.pause);
        let next = (self.net.now + pause).min(FAULTS);
        self.net.at(next, Event::Fault);
    }
}
