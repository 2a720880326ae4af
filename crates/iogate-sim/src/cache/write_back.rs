//! Write-back: which file is next, how much of it, and what a sync waits for.

use std::collections::{BTreeMap, VecDeque};

use iogate_core::{Op, Span, Time};

use super::kernel::PAGE;
use super::pages::{File, State};
use super::{Cache, Io, Step, Sync, Transfer, What};

/// A file with dirty pages.
#[derive(Clone, Copy, Debug)]
struct DirtyFile {
    since: Time,
    /// Where write-back goes on.
    cursor: u64,
    /// What is left of its turn.
    turn: u64,
    /// Whether it is old enough to be written back below the background limit, too.
    due: bool,
    queued: bool,
    in_flight: u32,
    /// Who has written to it last.
    whom: u32,
}

/// The files with dirty pages, in the order of their turns.
#[derive(Debug, Default)]
pub(super) struct DirtyFiles {
    files: BTreeMap<File, DirtyFile>,
    turns: VecDeque<File>,
    due: usize,
    /// When it was looked last for files that are due.
    looked: Time,
    in_flight: u64,
}

impl DirtyFiles {
    /// `whom` has written to a file.
    pub(super) fn dirtied(&mut self, now: Time, file: File, whom: u32) {
        let this = self.files.entry(file).or_insert(DirtyFile {
            since: now,
            cursor: 0,
            turn: 0,
            due: false,
            queued: false,
            in_flight: 0,
            whom,
        });
        this.whom = whom;
        if !this.queued {
            (this.since, this.queued) = (now, true);
            self.turns.push_back(file);
        }
    }

    /// A transfer of a file has begun: whose data it has.
    fn begun(&mut self, file: File) -> u32 {
        self.in_flight += 1;
        let Some(this) = self.files.get_mut(&file) else { return 0 };
        this.in_flight += 1;
        this.whom
    }

    /// A transfer of a file has ended; `dirty`: it has dirty pages.
    pub(super) fn written(&mut self, now: Time, file: File, dirty: bool) {
        self.in_flight -= 1;
        let Some(this) = self.files.get_mut(&file) else { return };
        this.in_flight -= 1;
        if this.in_flight == 0 && !this.queued && !dirty {
            self.files.remove(&file);
        } else if dirty {
            let whom = this.whom;
            self.dirtied(now, file, whom);
        }
    }

    /// When to look for files that are old enough.
    pub(super) fn wake(&self, every: Span) -> Option<Time> {
        (!self.turns.is_empty()).then(|| self.looked + every)
    }

    /// Looks for files that are old enough, if it is time.
    fn look(&mut self, now: Time, every: Span, expire: Span) {
        let (since, every_ns) = (now.since(self.looked).as_nanos(), every.as_nanos().max(1));
        // It is asked often, and divisions are slow.
        if since < every_ns {
            return;
        }
        let passed = since / every_ns;
        self.looked = self.looked + Span::from_nanos(passed * every.as_nanos());
        for file in &self.turns {
            if let Some(this) = self.files.get_mut(file)
                && !this.due
                && this.since + expire <= now
            {
                this.due = true;
                self.due += 1;
            }
        }
    }

    /// Whose turn it is: `any` file's, or only that of one that is due.
    fn first(&self, any: bool) -> Option<usize> {
        if any {
            return (!self.turns.is_empty()).then_some(0);
        }
        if self.due == 0 {
            return None;
        }
        self.turns.iter().position(|file| self.files.get(file).is_some_and(|this| this.due))
    }

    /// A file has no dirty pages any more.
    fn clean(&mut self, index: usize) {
        let Some(file) = self.turns.remove(index) else { return };
        let Some(this) = self.files.get_mut(&file) else { return };
        self.due -= usize::from(this.due);
        (this.due, this.queued, this.turn) = (false, false, 0);
        if this.in_flight == 0 {
            self.files.remove(&file);
        }
    }
}

impl Cache {
    /// Begins a transfer of write-back, if one is to begin.
    pub(super) fn write_back(&mut self, now: Time) -> bool {
        // Where all is read this is asked often. When it looks for what is due is no other if it does not look now.
        if self.files.turns.is_empty() {
            return false;
        }
        // A journal that forces data out commits each time that the others only look.
        let expire = if self.config.ordered { self.config.wake } else { self.config.expire };
        self.files.look(now, self.config.wake, expire);
        while self.files.in_flight < self.config.in_flight {
            let any = self.pages.dirty() > self.background;
            let Some(index) = self.files.first(any) else { return false };
            let file = self.files.turns[index];
            let Some(this) = self.files.files.get_mut(&file) else { return false };
            if this.turn == 0 {
                let least = self.config.kernel.value("turn_pages");
                this.turn = (self.throttle.half_second().min(self.limit / 8) / least + 1) * least;
            }
            let most = (self.config.io / PAGE).clamp(1, this.turn);
            let run = self.pages.dirty_run(file, this.cursor, most);
            let Some((start, end)) = run.or_else(|| self.pages.dirty_run(file, 0, most)) else {
                self.files.clean(index);
                continue;
            };
            this.cursor = end;
            this.turn -= end - start;
            if this.turn == 0 {
                self.files.turns.remove(index);
                self.files.turns.push_back(file);
            }
            self.begin_write(file, (start, end), Vec::new(), false);
            return true;
        }
        false
    }

    /// A sync writes back what is dirty, and waits for it and for what is being written back.
    pub(super) fn write_for(&mut self, sync: u32) {
        let this = self.syncs[sync];
        let files: Vec<File> = match this.all {
            true => self.files.files.keys().copied().collect(),
            false => vec![this.file],
        };
        let (mut open, mut again) = (0, false);
        for file in files {
            let mut last = None;
            for (_, extent) in self.pages.of_file(file) {
                again |= extent.state == State::Rewritten;
                if matches!(extent.state, State::Writing | State::Rewritten) && last != Some(extent.io) {
                    last = Some(extent.io);
                    if let What::WriteBack(syncs) = &mut self.ios[extent.io].what
                        && !syncs.contains(&sync)
                    {
                        syncs.push(sync);
                        open += 1;
                    }
                }
            }
            let most = (self.config.io / PAGE).max(1);
            let mut at = 0;
            while let Some((start, end)) = self.pages.dirty_run(file, at, most) {
                self.begin_write(file, (start, end), vec![sync], true);
                open += 1;
                at = end;
            }
        }
        // Once more, and no oftener: who writes on and on keeps no sync waiting.
        (self.syncs[sync].open, self.syncs[sync].again) = (open, again && !this.again);
        if open == 0 {
            self.flush(sync);
        }
    }

    /// A transfer that a sync waits for has ended.
    pub(super) fn transfer_of_sync_ended(&mut self, sync: u32) {
        let this = &mut self.syncs[sync];
        this.open -= 1;
        if this.open > 0 {
            return;
        }
        if this.again {
            self.write_for(sync);
        } else {
            self.flush(sync);
        }
    }

    /// The journal of a sync.
    fn flush(&mut self, sync: u32) {
        let Sync { token, whom, file, all, .. } = self.syncs[sync];
        self.syncs.free(sync);
        // What has been written to since is not durable.
        let pages = &self.pages;
        self.unsynced.retain(|other| !(all || *other == file) || pages.is_changed(*other));
        let io = self.ios.add(Io { file, start: 0, end: 0, what: What::Flush(vec![token]) });
        self.flushes.push_back((io, (!all).then_some(file)));
        self.steps.push_back(Step::Flush { io, file: file.id, whom });
    }

    /// A sync of a file without changes: it is complete with the last flush in progress that is for the file, if there is one.
    pub(super) fn wait_for_flush(&mut self, token: u64, file: File) {
        let covers = |(_, of): &&(u32, Option<File>)| of.is_none_or(|of| of == file);
        let last = self.flushes.iter().rev().find(covers);
        match last.map(|(flush, _)| &mut self.ios[*flush].what) {
            Some(What::Flush(syncs)) => syncs.push(token),
            _ => self.steps.push_back(Step::Done(token)),
        }
    }

    fn begin_write(&mut self, file: File, (start, end): (u64, u64), syncs: Vec<u32>, waited_for: bool) {
        let by = syncs.first().map_or(0, |sync| self.syncs[*sync].token);
        let io = self.ios.add(Io { file, start, end, what: What::WriteBack(syncs) });
        self.pages.change(file, (start, end), false, |_| Some((State::Writing, io)));
        let whom = self.files.begun(file);
        let (offset, bytes) = (start * PAGE, (end - start) * PAGE);
        self.steps.push_back(Step::Transfer(Transfer {
            io,
            whom,
            op: Op::Write,
            file: file.id,
            offset,
            bytes,
            waited_for,
            by,
        }));
    }
}
