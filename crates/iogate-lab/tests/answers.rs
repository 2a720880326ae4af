//! What a server remembers of requests, on a modelled disk that fails, tears and crashes: nothing is carried out twice, and what was
//! answered is known, for as long as the log says that it is the same.

use std::collections::{BTreeMap, BTreeSet};

use iogate_core::answers::{BatchId, Begun, Key, Limits, Log, Once, State, ToNote};
use iogate_core::medium::Medium;
use iogate_lab::Disk;
use iogate_sim::rng::Rng;

const REQUESTS: u64 = 30;
const LIVES: u64 = 30;
const STEPS: u64 = 60;

/// What clients know, over all lives of the server.
#[derive(Default)]
struct Clients {
    /// Which log it is: of another one nobody asks for what an earlier one may have had.
    log: u64,
    carried_out: BTreeSet<u64>,
    answered: BTreeSet<u64>,
    /// Whose intents may be in the log although nobody has heard so.
    perhaps: BTreeSet<u64>,
    known_again: u64,
}

/// How far a request is in this life.
#[derive(Clone, Copy)]
enum Stage {
    Intending(BatchId),
    CarriedOut,
    Finishing(BatchId),
}

fn key(number: u64) -> Key {
    Key { uid: 1, client: [2; 16], number, step: 0 }
}

fn note(number: u64, state: State) -> [ToNote; 1] {
    [ToNote { key: key(number), below: 1, state, bytes: number.to_le_bytes().to_vec() }]
}

/// A life of the server, until it is killed.
struct Life<'a> {
    once: Once<()>,
    log: Log<&'a mut Disk>,
    at_work: BTreeMap<u64, Stage>,
}

impl Life<'_> {
    fn ask(&mut self, number: u64, clients: &mut Clients) {
        let (is_answered, is_done) =
            (clients.answered.contains(&number), clients.carried_out.contains(&number));
        match self.once.begin(key(number), &[]) {
            Begun::Taken => unreachable!("nothing has a name"),
            Begun::Running => assert!(self.at_work.contains_key(&number)),
            Begun::Known(bytes) => {
                assert!(is_done && bytes == number.to_le_bytes());
                clients.known_again += 1;
            }
            Begun::Unknown => assert!(!is_answered && (is_done || clients.perhaps.contains(&number))),
            Begun::New => {
                assert!(!is_done, "request {number} would be carried out twice");
                let batch = self.once.note(&note(number, State::Intent), 100);
                self.at_work.insert(number, Stage::Intending(batch));
            }
        }
    }

    fn finish(&mut self, number: u64) {
        if let Some(stage @ Stage::CarriedOut) = self.at_work.get_mut(&number) {
            *stage = Stage::Finishing(self.once.note(&note(number, State::Outcome), 100));
        }
    }

    /// Returns whether it is still alive.
    fn write(&mut self, begins_anew: bool, clients: &mut Clients) -> bool {
        let writing = self.once.begin_writing(begins_anew, 100);
        let written = self.log.write(&writing.notes, writing.all.as_deref());
        if self.log.medium_mut().is_killed {
            return false;
        }
        self.once.written(written.map_err(|_| 5));
        for (number, stage) in self.at_work.clone() {
            let (Stage::Intending(batch) | Stage::Finishing(batch)) = stage else { continue };
            let Some(settled) = self.once.settled(batch) else { continue };
            if matches!(stage, Stage::Intending(_)) && settled.is_ok() {
                assert!(clients.carried_out.insert(number), "request {number} is carried out twice");
                self.at_work.insert(number, Stage::CarriedOut);
                continue;
            }
            match stage {
                Stage::Finishing(_) if settled.is_ok() => drop(clients.answered.insert(number)),
                Stage::Finishing(_) => {}
                _ => drop(clients.perhaps.insert(number)),
            }
            assert!(self.once.end(&key(number)).is_empty());
            self.at_work.remove(&number);
        }
        true
    }
}

/// Opens the log, as a server that is started again and again.
fn start<'a>(disk: &'a mut Disk, rng: &mut Rng, clients: &mut Clients) -> Life<'a> {
    let mut boot = [0; 16];
    boot[..disk.boot().len()].copy_from_slice(disk.boot().as_bytes());
    let failing = std::mem::take(&mut disk.failing);
    let mut once = Once::new(Limits::default());
    let id = [rng.bits().to_le_bytes(), rng.bits().to_le_bytes()].concat();
    let id = *id.first_chunk().expect("16 bytes");
    let mut log = Log::open(disk, boot, id, |note| once.restore(note)).expect("nothing fails now");
    log.medium_mut().failing = failing;
    once.restored(100);
    if log.number() != clients.log {
        // Requests of before are not asked for again.
        *clients = Clients { log: log.number(), known_again: clients.known_again, ..Clients::default() };
    }
    Life { once, log, at_work: BTreeMap::new() }
}

/// Returns how often something was known again.
fn run(seed: u64) -> u64 {
    let mut rng = Rng::new(seed, 0);
    let mut disk = Disk::new(Rng::new(seed, 1));
    disk.failing = [0, 0, 30, 200][rng.below(4) as usize];
    let crashes = rng.below(3);
    let mut clients = Clients::default();
    for _ in 0..LIVES {
        let mut life = start(&mut disk, &mut rng, &mut clients);
        let last = rng.below(STEPS);
        for step in 0..STEPS {
            life.log.medium_mut().kills_next = step >= last && rng.below(4) == 0;
            match rng.below(4) {
                0 | 1 => life.ask(rng.below(REQUESTS) + 1, &mut clients),
                2 => life.finish(rng.below(REQUESTS) + 1),
                _ if !life.write(rng.below(5) == 0, &mut clients) => break,
                _ => {}
            }
        }
        let intending = life.at_work.iter().filter(|(_, stage)| matches!(stage, Stage::Intending(_)));
        clients.perhaps.extend(intending.map(|(&number, _)| number));
        drop(life);
        disk.killed();
        if rng.below(10) < crashes {
            disk.reboot();
        }
    }
    clients.known_again
}

#[test]
fn nothing_is_carried_out_twice_over_kills_crashes_and_disks_that_fail() {
    let known: u64 = (0..300).map(run).sum();
    assert!(known > 1000, "little has come again: {known}");
}
