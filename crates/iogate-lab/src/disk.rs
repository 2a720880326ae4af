//! A modelled disk: what a kill and a crash of the machine leave of files.

use std::collections::BTreeMap;

use iogate_core::coord::journal::Medium;
use iogate_sim::rng::Rng;

/// The files of one machine.
#[derive(Debug)]
pub struct Disk {
    rng: Rng,
    boots: u64,
    boot: String,
    files: BTreeMap<String, File>,
    /// What each file's name may still mean after a crash, as the change of the name is not durable.
    before: BTreeMap<String, Option<Vec<u8>>>,
    /// Of a thousand writes, so many fail.
    pub failing: u64,
    /// The process is killed in the midst of the next append.
    pub kills_next: bool,
    /// It was.
    pub is_killed: bool,
    /// The defect of [`Planted::OldFile`](crate::turns::Planted::OldFile).
    pub keeps_old_file: bool,
    /// Appends go to a file without a name.
    is_unlinked: bool,
}

#[derive(Debug, Default)]
struct File {
    bytes: Vec<u8>,
    /// So many of the first bytes are durable.
    durable: usize,
}

impl Disk {
    /// An empty disk. What it does is drawn from `rng`.
    pub fn new(rng: Rng) -> Disk {
        Disk {
            rng,
            boots: 0,
            boot: "boot 0".into(),
            files: BTreeMap::new(),
            before: BTreeMap::new(),
            failing: 0,
            kills_next: false,
            is_killed: false,
            keeps_old_file: false,
            is_unlinked: false,
        }
    }

    /// The process that used it is gone.
    pub fn killed(&mut self) {
        (self.kills_next, self.is_killed, self.is_unlinked) = (false, false, false);
    }

    /// The machine crashes and boots: of what was not durable any part may be lost, or zeros.
    pub fn reboot(&mut self) {
        self.killed();
        self.boots += 1;
        self.boot = format!("boot {}", self.boots);
        for (name, old) in std::mem::take(&mut self.before) {
            if self.rng.below(2) == 0 {
                match old {
                    Some(bytes) => {
                        let durable = bytes.len();
                        self.files.insert(name, File { bytes, durable });
                    }
                    None => drop(self.files.remove(&name)),
                }
            }
        }
        for file in self.files.values_mut() {
            let at_risk = (file.bytes.len() - file.durable) as u64;
            let end = file.durable + self.rng.below(at_risk + 1) as usize;
            if self.rng.below(2) == 0 {
                file.bytes.truncate(end);
            } else {
                file.bytes[end..].fill(0);
            }
            file.durable = file.bytes.len();
        }
    }

    fn fails(&mut self) -> bool {
        self.rng.below(1000) < self.failing
    }
}

impl Medium for Disk {
    type Error = String;

    fn boot(&self) -> &str {
        &self.boot
    }

    fn read(&mut self, name: &str) -> Result<Option<Vec<u8>>, String> {
        Ok(self.files.get(name).map(|file| file.bytes.clone()))
    }

    fn replace(&mut self, name: &str, bytes: &[u8]) -> Result<Result<(), String>, String> {
        if self.fails() {
            return Err("no space left on device".into());
        }
        let old = self.files.insert(name.into(), File { bytes: bytes.into(), durable: bytes.len() });
        self.is_unlinked &= name != "journal";
        if self.fails() {
            self.is_unlinked |= self.keeps_old_file && name == "journal";
            self.before.entry(name.into()).or_insert(old.map(|old| old.bytes));
            return Ok(Err("the folder cannot be synced".into()));
        }
        self.before.remove(name);
        Ok(Ok(()))
    }

    fn append(&mut self, name: &str, at: u64, bytes: &[u8]) -> Result<(), String> {
        let fails = self.fails();
        let is_whole = !fails && !self.kills_next;
        let count = if is_whole { bytes.len() } else { self.rng.below(bytes.len() as u64 + 1) as usize };
        self.is_killed |= std::mem::take(&mut self.kills_next);
        if !self.is_unlinked {
            let file = self.files.get_mut(name).ok_or("it was not put in its place")?;
            let at = usize::try_from(at).map_err(|error| error.to_string())?;
            file.bytes.truncate(at);
            file.bytes.extend_from_slice(&bytes[..count]);
        }
        if fails { Err("no space left on device".into()) } else { Ok(()) }
    }

    fn cut(&mut self, name: &str, bytes: u64) -> Result<(), String> {
        if self.fails() {
            return Err("input or output failed".into());
        }
        let file = self.files.get_mut(name).ok_or("it was not put in its place")?;
        file.bytes.truncate(usize::try_from(bytes).map_err(|error| error.to_string())?);
        Ok(())
    }
}
