//! What is done with files and names, and what must be answered.
//!
//! Each name, and each block of a file, is one program's: it knows what must be there.

use std::collections::BTreeMap;
use std::sync::Arc;

use iogate_nfs::wire::{CreateHow, FileHandle, Place, Reply, Request, SetAttr, SetTime, Stable, Status};
use iogate_sim::rng::Rng;

use super::Planted;
use super::blocks::Block;
use super::client::{Answer, Caller};
use super::world::{MS, Shared, lock, wait};

/// Bytes of a block.
const BLOCK: usize = 512;
/// Blocks that a program has of a file, each in another page of the disk: what is written to a page again is not lost any more.
const BLOCKS: u64 = 12;
/// Blocks from one page to the next. Those of a page are the clients', if they share the file.
const APART: u64 = 8;
/// Names that a program has.
const NAMES: u64 = 4;

/// What runs on the clients.
pub(super) fn all(shared: &Shared, seed: u64, clients: usize) -> Vec<Box<dyn FnOnce() + Send>> {
    let mut programs: Vec<Box<dyn FnOnce() + Send>> = Vec::new();
    for client in 0..clients {
        let number = client as u64;
        let caller = |stream: u64| {
            let rng = Rng::new(seed, 100 + 10 * number + stream);
            Caller { shared: Arc::clone(shared), client, rng }
        };
        let names = caller(0);
        programs.push(Box::new(move || {
            let _ = Names::run(names, number);
        }));
        let own = caller(1);
        let blocks = (0..BLOCKS).map(|block| block * APART).collect();
        programs.push(Box::new(move || {
            let _ = Data::run(own, format!("f{number}"), blocks, true);
        }));
        let common = caller(2);
        let blocks = (0..BLOCKS).map(|block| block * APART + number).collect();
        programs.push(Box::new(move || {
            let _ = Data::run(common, "common".into(), blocks, false);
        }));
    }
    programs
}

impl Caller {
    fn found(&self, what: &str) {
        lock(&self.shared).found(&format!("client {}: {what}", self.client));
    }

    fn has_faults(&self) -> bool {
        lock(&self.shared).has_faults()
    }

    /// Lets time pass.
    fn rest(&mut self) {
        let until = lock(&self.shared).now + self.rng.between(MS, 40 * MS);
        wait(&self.shared, until, |_| None::<()>);
    }

    /// Everything is durable. Returns when the machine has crashed behind that.
    fn outlive_crash(&mut self) {
        lock(&self.shared).durable += 1;
        while wait(&self.shared, u64::MAX, |world| Some(world.has_ended())) == Some(false) {
            self.rest();
        }
    }

    /// Whether an I/O error may be answered: a sync has failed.
    fn may_fail(&self) -> bool {
        lock(&self.shared).disk().failed_syncs > 0
    }
}

/// The status of an answer.
fn status(reply: &Reply) -> Status {
    match reply {
        Reply::Removed(status, _) | Reply::Rename { status, .. } | Reply::SetAttr(status, _) => *status,
        Reply::Made { result, .. } => result.as_ref().err().copied().unwrap_or(Status::Ok),
        Reply::LookUp { result, .. } => result.as_ref().err().copied().unwrap_or(Status::Ok),
        Reply::Commit { result, .. } => result.as_ref().err().copied().unwrap_or(Status::Ok),
        Reply::GetAttr(result) => result.as_ref().err().copied().unwrap_or(Status::Ok),
        _ => Status::ServerFault,
    }
}

/// The number and the handle of what was made or found.
fn file_of(reply: &Reply) -> Option<(u64, FileHandle)> {
    match reply {
        Reply::Made { result: Ok((Some(file), Some(attr))), .. } => Some((attr.fileid, *file)),
        Reply::LookUp { result: Ok((file, Some(attr))), .. } => Some((attr.fileid, *file)),
        _ => None,
    }
}

fn named(number: u64) -> String {
    format!("n{number}")
}

/// What has a name, if anything.
type There = Option<(u64, FileHandle)>;

/// A program that makes, renames and removes names in a directory of its own.
struct Names {
    caller: Caller,
    dir: FileHandle,
    there: BTreeMap<u64, There>,
    /// What was done last may not be durable, as a sync has failed: the boot since when that is so.
    unsure: Option<u64>,
    last_verifier: u64,
}

impl Names {
    fn run(mut caller: Caller, number: u64) -> Option<()> {
        let root = caller.mount()?;
        let mut tries = 0;
        let dir = loop {
            let name = format!("d{number}.{tries}");
            let place = Place { dir: root, name: name.as_bytes() };
            let answer = caller.call(&Request::MkDir { place, attr: SetAttr::default() })?;
            match status(&answer.reply) {
                Status::Ok => break file_of(&answer.reply)?.1,
                Status::Exist if answer.is_over_crash => {
                    break file_of(&caller.call(&Request::LookUp(place))?.reply)?.1;
                }
                // It may be there, and be gone after a crash.
                Status::Io if caller.may_fail() => tries += 1,
                other => caller.found(&format!("MKDIR {name} is answered {other:?}")),
            }
            caller.rest();
        };
        let there = (0..NAMES).map(|name| (name, None)).collect();
        let mut names = Names { caller, dir, there, unsure: None, last_verifier: number << 32 };
        while names.caller.has_faults() {
            names.act()?;
            names.caller.rest();
        }
        while names.unsure.is_some() {
            names.create(0, 0)?;
        }
        names.caller.outlive_crash();
        for name in 0..NAMES {
            names.check(name)?;
        }
        lock(&names.caller.shared).done += 1;
        Some(())
    }

    fn act(&mut self) -> Option<()> {
        let (one, other) = (self.caller.rng.below(NAMES), self.caller.rng.below(NAMES));
        match self.caller.rng.below(10) {
            how @ 0..=3 => self.create(one, how),
            4..=5 => {
                let text = named(one);
                let right = if self.there[&one].is_some() { Status::Ok } else { Status::NoEnt };
                let request = Request::Remove(Place { dir: self.dir, name: text.as_bytes() });
                self.change(&request, right, &[one], &[None])
            }
            6..=7 => {
                let (from, to) = (named(one), named(other));
                let right = if self.there[&one].is_some() { Status::Ok } else { Status::NoEnt };
                let request = Request::Rename {
                    from: Place { dir: self.dir, name: from.as_bytes() },
                    to: Place { dir: self.dir, name: to.as_bytes() },
                };
                let moved = self.there[&one];
                match one == other {
                    true => self.change(&request, right, &[one], &[moved]),
                    false => self.change(&request, right, &[one, other], &[None, moved]),
                }
            }
            8 => self.check(one),
            _ => self.check_handle(one),
        }
    }

    fn create(&mut self, name: u64, how: u64) -> Option<()> {
        let text = named(name);
        let place = Place { dir: self.dir, name: text.as_bytes() };
        let attr = SetAttr { mode: Some(0o644), ..SetAttr::default() };
        self.last_verifier += 1;
        let how = match how {
            0 => CreateHow::Unchecked(attr),
            1 => CreateHow::Guarded(attr),
            _ => CreateHow::Exclusive(self.last_verifier.to_be_bytes()),
        };
        let before = self.there[&name];
        let right = match (before, how) {
            (None, _) | (_, CreateHow::Unchecked(_)) => Status::Ok,
            (Some(_), _) => Status::Exist,
        };
        let after = before.or(Some((0, self.dir)));
        self.change(&Request::Create { place, how }, right, &[name], &[after])?;
        if let (CreateHow::Exclusive(_), None, Some((_, file))) = (how, before, self.there[&name]) {
            // As kernels do: the times are those of the verifier until then.
            let attr = SetAttr { atime: SetTime::Now, mtime: SetTime::Now, ..attr };
            self.change(&Request::SetAttr { file, attr, guard: None }, Status::Ok, &[], &[])?;
        }
        Some(())
    }

    /// Carries out a change: `right` is what it must be answered, `after` what its names lead to then (zero: to a new file).
    fn change(&mut self, request: &Request<'_>, right: Status, names: &[u64], after: &[There]) -> Option<()> {
        let answer = self.caller.call(request)?;
        let status = status(&answer.reply);
        if self.has_lost(&answer) {
            return self.look_at_all(status == Status::Io);
        }
        match status {
            Status::Ok if right == Status::Ok => {
                self.unsure = None;
                for (name, after) in names.iter().zip(after) {
                    let made = file_of(&answer.reply);
                    self.there.insert(*name, made.or(*after));
                }
                Some(())
            }
            status if status == right => Some(()),
            Status::Io if self.caller.may_fail() => self.look_again(names, after, true),
            _ if answer.is_over_crash => self.look_again(names, after, false),
            status => {
                self.caller.found(&format!("{request:?} is answered {status:?}, and {right:?} is right"));
                None
            }
        }
    }

    /// Whether the machine has crashed while not all was durable.
    fn has_lost(&self, answer: &Answer) -> bool {
        self.unsure.is_some_and(|boot| boot != answer.boot)
    }

    /// Finds out what all names lead to, when a crash may have taken something. It is durable, unless the last change has failed.
    fn look_at_all(&mut self, is_failed: bool) -> Option<()> {
        self.unsure = None;
        for name in 0..NAMES {
            let answer = self.look_up(name)?;
            self.there.insert(name, file_of(&answer.reply));
            if is_failed {
                self.unsure.get_or_insert(answer.boot);
            }
        }
        Some(())
    }

    /// Finds out what names lead to: to what they led to before a change, or to what they lead to after it.
    fn look_again(&mut self, names: &[u64], after: &[There], is_failed: bool) -> Option<()> {
        let number = |there: &There| there.map(|(number, _)| number);
        let mut found = Vec::new();
        for name in names {
            let answer = self.look_up(*name)?;
            found.push(file_of(&answer.reply));
            if is_failed {
                self.unsure.get_or_insert(answer.boot);
            }
        }
        if names.is_empty() && is_failed {
            self.unsure.get_or_insert_with(|| lock(&self.caller.shared).disk().boots);
        }
        let is = |expected: &[There]| {
            let mut pairs = found.iter().zip(expected);
            pairs.all(|(found, expected)| {
                number(expected) == Some(0) && found.is_some() || number(found) == number(expected)
            })
        };
        let before: Vec<There> = names.iter().map(|name| self.there[name]).collect();
        if self.unsure.is_none() && !is(&before) && !is(after) {
            self.caller
                .found(&format!("{names:?} lead to {found:?} after a crash, not to {before:?} or {after:?}"));
            return None;
        }
        self.there.extend(names.iter().copied().zip(found));
        Some(())
    }

    fn look_up(&mut self, name: u64) -> Option<Answer> {
        let text = named(name);
        self.caller.call(&Request::LookUp(Place { dir: self.dir, name: text.as_bytes() }))
    }

    /// A name leads to what it must.
    fn check(&mut self, name: u64) -> Option<()> {
        let answer = self.look_up(name)?;
        let (found, expected) = (file_of(&answer.reply), self.there[&name]);
        let is_right = match expected {
            Some((number, _)) => found.is_some_and(|(found, _)| found == number),
            None => status(&answer.reply) == Status::NoEnt,
        };
        if is_right {
            return Some(());
        }
        if self.has_lost(&answer) {
            return self.look_at_all(false);
        }
        self.caller.found(&format!("n{name} leads to {:?}, and {expected:?} is right", answer.reply));
        None
    }

    /// A handle leads to its file, whatever that is called by now.
    fn check_handle(&mut self, name: u64) -> Option<()> {
        let Some((number, file)) = self.there[&name] else { return Some(()) };
        let answer = self.caller.call(&Request::GetAttr(file))?;
        match &answer.reply {
            Reply::GetAttr(Ok(attr)) if attr.fileid == number => Some(()),
            _ if self.has_lost(&answer) => self.look_at_all(false),
            other => {
                self.caller.found(&format!("the handle of {number} is answered {other:?}"));
                None
            }
        }
    }
}

/// A program that writes blocks of a file, which others may write, too.
struct Data {
    caller: Caller,
    root: FileHandle,
    name: String,
    file: FileHandle,
    number: u64,
    blocks: BTreeMap<u64, Block>,
    /// What is kept until a COMMIT says that it is durable, with the verifier of its WRITE.
    unstable: BTreeMap<u64, (u64, u64)>,
    last_value: u64,
}

impl Data {
    fn run(mut caller: Caller, name: String, blocks: Vec<u64>, is_own: bool) -> Option<()> {
        let root = caller.mount()?;
        let place = Place { dir: root, name: name.as_bytes() };
        let (number, file) = loop {
            let how = CreateHow::Unchecked(SetAttr { mode: Some(0o644), ..SetAttr::default() });
            let answer = caller.call(&Request::Create { place, how })?;
            match status(&answer.reply) {
                Status::Ok => break file_of(&answer.reply)?,
                Status::Io if caller.may_fail() => caller.rest(),
                other => {
                    caller.found(&format!("CREATE {name} is answered {other:?}"));
                    return None;
                }
            }
        };
        let blocks = blocks.into_iter().map(|block| (block, Block::default())).collect();
        let (unstable, last_value) = (BTreeMap::new(), (caller.client as u64 + 1) << 32);
        let mut data = Data { caller, root, name, file, number, blocks, unstable, last_value };
        while data.caller.has_faults() {
            data.act(is_own)?;
            data.caller.rest();
        }
        while !data.unstable.is_empty() {
            data.commit()?;
        }
        data.caller.outlive_crash();
        let blocks: Vec<u64> = data.blocks.keys().copied().collect();
        for block in blocks {
            data.read(block)?;
        }
        lock(&data.caller.shared).done += 1;
        Some(())
    }

    fn act(&mut self, is_own: bool) -> Option<()> {
        let nth = self.caller.rng.below(self.blocks.len() as u64) as usize;
        let block = self.blocks.keys().nth(nth).copied()?;
        match self.caller.rng.below(20) {
            0..=10 => {
                self.last_value += 1;
                let stable = match self.caller.rng.below(6) {
                    0 => Stable::FileSync,
                    1 => Stable::DataSync,
                    _ => Stable::Unstable,
                };
                self.write(block, self.last_value, stable)
            }
            11..=13 => self.commit(),
            19 if is_own => self.empty(),
            _ => self.read(block),
        }
    }

    /// A verifier was seen.
    fn saw(&self, verifier: u64, boot: u64) -> Option<()> {
        let mut world = lock(&self.caller.shared);
        let failures = {
            let disk = world.disk();
            let failures = disk.inodes.get(&self.number).map_or(0, |inode| inode.failures);
            // Of a boot before, nobody knows any more how many there were.
            if disk.boots == boot { failures } else { u64::from(u32::MAX) }
        };
        if let Err(why) = world.verifiers.saw(self.number, verifier, boot, failures) {
            world.found(&why);
            return None;
        }
        Some(())
    }

    fn write(&mut self, block: u64, value: u64, stable: Stable) -> Option<()> {
        let data = value.to_le_bytes().repeat(BLOCK / 8);
        let (file, offset, count) = (self.file, block * BLOCK as u64, BLOCK as u32);
        let of = self.blocks.get_mut(&block)?;
        of.begin(value);
        self.unstable.remove(&block);
        let answer = self.caller.call(&Request::Write { file, offset, count, stable, data: &data })?;
        match answer.reply {
            Reply::Write { result: Ok(done), .. }
                if done.count == count && done.stable as u32 >= stable as u32 =>
            {
                self.saw(done.verifier, answer.boot)?;
                if done.stable == Stable::Unstable {
                    self.blocks.get_mut(&block)?.written(value, answer.boot);
                    self.unstable.insert(block, (value, done.verifier));
                } else {
                    self.blocks.get_mut(&block)?.durable(value, answer.boot);
                }
                Some(())
            }
            Reply::Write { result: Err(Status::Io), .. }
                if stable != Stable::Unstable && self.caller.may_fail() =>
            {
                Some(())
            }
            other => {
                self.caller.found(&format!("WRITE of block {block} of {} is answered {other:?}", self.name));
                None
            }
        }
    }

    fn commit(&mut self) -> Option<()> {
        let answer = self.caller.call(&Request::Commit { file: self.file, offset: 0, count: 0 })?;
        match answer.reply {
            Reply::Commit { result: Ok(done), .. } => {
                self.saw(done.verifier, answer.boot)?;
                let believes = lock(&self.caller.shared).planted == Some(Planted::CommitBelieved);
                for (block, (value, verifier)) in std::mem::take(&mut self.unstable) {
                    if verifier == done.verifier || believes {
                        self.blocks.get_mut(&block)?.durable(value, answer.boot);
                    } else {
                        lock(&self.caller.shared).report.sent_again += 1;
                        self.write(block, value, Stable::Unstable)?;
                    }
                }
                Some(())
            }
            // The program is told so, and nobody keeps what was not committed.
            Reply::Commit { result: Err(Status::Io), .. } if self.caller.may_fail() => {
                self.unstable.clear();
                Some(())
            }
            other => {
                self.caller.found(&format!("COMMIT of {} is answered {other:?}", self.name));
                None
            }
        }
    }

    fn read(&mut self, block: u64) -> Option<()> {
        let (file, offset, count) = (self.file, block * BLOCK as u64, BLOCK as u32);
        let answer = self.caller.call(&Request::Read { file, offset, count })?;
        let Reply::Read { result: Ok((mut bytes, is_end)), .. } = answer.reply else {
            self.caller.found(&format!("READ of {} is answered {:?}", self.name, answer.reply));
            return None;
        };
        if bytes.is_empty() && !is_end {
            // Kernels take that for an I/O error.
            self.caller.found(&format!("READ of {} brings nothing, and does not end it", self.name));
            return None;
        }
        bytes.resize(BLOCK, 0);
        let value = bytes.first_chunk().map_or(0, |value| u64::from_le_bytes(*value));
        let read = match bytes.chunks(8).all(|word| word == value.to_le_bytes()) {
            true => self.blocks.get_mut(&block)?.read(value, answer.boot),
            false => Err("it is torn".into()),
        };
        if let Err(why) = read {
            self.caller.found(&format!("block {block} of {}: {why}", self.name));
            return None;
        }
        Some(())
    }

    /// Cuts the file to nothing, by one of two calls.
    fn empty(&mut self) -> Option<()> {
        self.blocks.values_mut().for_each(|block| block.begin(0));
        self.unstable.clear();
        let attr = SetAttr { size: Some(0), ..SetAttr::default() };
        let answer = if self.caller.rng.below(2) == 0 {
            self.caller.call(&Request::SetAttr { file: self.file, attr, guard: None })?
        } else {
            let place = Place { dir: self.root, name: self.name.as_bytes() };
            self.caller.call(&Request::Create { place, how: CreateHow::Unchecked(attr) })?
        };
        match status(&answer.reply) {
            Status::Ok => self.blocks.values_mut().for_each(|block| block.durable(0, answer.boot)),
            Status::Io if self.caller.may_fail() => {}
            other => {
                self.caller.found(&format!("{} is to be emptied, and that is answered {other:?}", self.name));
                return None;
            }
        }
        Some(())
    }
}
