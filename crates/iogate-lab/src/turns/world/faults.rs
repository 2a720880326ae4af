//! Which faults a world of turns has, and what one of them does.

use iogate_sim::rng::Rng;

use super::{Event, FAULTS, MS, SECOND, Sent, World};

/// Which faults there are, and how often.
pub(super) struct Faults {
    /// The mean time between two of them.
    pub(super) pause: u64,
    kills: bool,
    crashes: bool,
    full_disk: bool,
    client_kills: bool,
    stops: bool,
    cuts: bool,
    pub(super) slow: bool,
    evictions: bool,
}

impl Faults {
    /// Those of a world.
    pub(super) fn new(rng: &mut Rng) -> Faults {
        let mut is = |one_in: u64| rng.below(one_in) == 0;
        let faults = Faults {
            kills: is(2),
            crashes: is(3),
            full_disk: is(3),
            client_kills: is(2),
            stops: is(2),
            cuts: is(2),
            slow: is(4),
            evictions: is(3),
            pause: 0,
        };
        Faults { pause: rng.between(50 * MS, 3 * SECOND), ..faults }
    }
}

impl World {
    /// One of them happens; when the time for that is over, all of them end.
    pub(super) fn fault(&mut self) {
        let World { net, server, clients, faults } = self;
        if net.now >= FAULTS {
            server.heal();
            net.is_slow = false;
            return;
        }
        let client = net.rng.below(clients.len() as u64) as usize;
        match net.rng.below(9) {
            0 if faults.kills => server.kill(net, false),
            1 if faults.crashes => server.kill(net, true),
            2 if faults.kills => server.kill_in_next_write(),
            3 if faults.full_disk => server.fail_writes([0, 30, 300, 1000][net.rng.below(4) as usize]),
            4 if faults.client_kills => clients[client].kill(net),
            5 if faults.stops => {
                let until = net.now + net.rng.between(MS, 6 * SECOND);
                net.note(|| format!("client {client} is stopped"));
                clients[client].stop(net, until);
            }
            6 | 7 if faults.cuts => {
                let wires: Vec<u64> = net.wires.keys().rev().take(8).copied().collect();
                if let Some(&wire) = wires.get(net.rng.below(wires.len() as u64) as usize) {
                    let is_silent = net.rng.below(2) == 0;
                    net.note(|| format!("connection {wire} is cut, silently: {is_silent}"));
                    if !is_silent {
                        net.send_client(wire, Sent::End);
                        net.send_server(wire, Sent::End);
                    } else if let Some(wire) = net.wires.get_mut(&wire) {
                        wire.is_cut = true;
                    }
                }
            }
            8 if faults.evictions => {
                // By itself, or by another of the same user; others may not.
                let tokens: Vec<_> =
                    clients.iter().filter_map(|one| Some((one.token()?, one.user))).collect();
                if !tokens.is_empty() {
                    let (token, user) = tokens[net.rng.below(tokens.len() as u64) as usize];
                    clients[client].evict(net, token, user);
                }
            }
            _ => {}
        }
        let pause = net.rng.between(faults.pause / 2, 2 * faults.pause);
        net.at(net.now + pause, Event::Fault);
    }
}
