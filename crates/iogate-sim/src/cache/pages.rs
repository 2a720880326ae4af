//! The pages of a cache, as extents: which file's pages are there, in which state, and which were used least recently.
//!
//! The order of use is that of pages, in generations of `grain` pages: pages of one generation count as used at the same time. With a
//! grain of one page this is the list that it stands for. An extent is a range of pages of a file that are in one state and of one
//! generation, so a stream of any length needs an extent for each generation, and not a page for each 4 KiB.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};

use iogate_core::FileId;

/// What a page is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// As it is below.
    Clean,
    /// Being read.
    Reading,
    /// Written to since.
    Dirty,
    /// Being written back.
    Writing,
    /// Being written back, and written to since that began.
    Rewritten,
}

const STATES: usize = 5;

/// Pages of a file that are all alike; it begins where its key says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Extent {
    pub(super) end: u64,
    pub(super) state: State,
    /// The transfer that it is part of, while it is read or written back.
    pub(super) io: u32,
    generation: u64,
}

impl Extent {
    fn is_like(&self, other: &Extent) -> bool {
        (self.state, self.io, self.generation) == (other.state, other.io, other.generation)
    }
}

/// The extent that has a page of a file, or that none has it.
#[derive(Clone, Copy, Debug)]
struct Found {
    file: FileId,
    page: u64,
    extent: Option<(u64, Extent)>,
}

impl Found {
    /// What it says of a page, if it says anything.
    fn of(&self, file: FileId, page: u64) -> Option<Option<(u64, Extent)>> {
        let is_in = self.extent.is_some_and(|(start, extent)| (start..extent.end).contains(&page));
        (self.file == file && (self.page == page || is_in)).then_some(self.extent)
    }
}

/// The extents of all files.
#[derive(Debug)]
pub(super) struct Pages {
    extents: BTreeMap<(FileId, u64), Extent>,
    /// What was found or changed last: a read asks for one page several times.
    found: Cell<Option<Found>>,
    /// Those that can go, the least recently used first.
    clean: BTreeSet<(u64, FileId, u64)>,
    dirty: BTreeSet<(FileId, u64)>,
    count: [u64; STATES],
    grain: u64,
    used: u64,
}

impl Pages {
    /// None, with a grain of so many pages (not zero).
    pub(super) fn new(grain: u64) -> Pages {
        Pages {
            extents: BTreeMap::new(),
            found: Cell::new(None),
            clean: BTreeSet::new(),
            dirty: BTreeSet::new(),
            count: [0; STATES],
            grain,
            used: 0,
        }
    }

    /// Pages that are there.
    pub(super) fn len(&self) -> u64 {
        self.count.iter().sum()
    }

    /// Pages that are to be written back.
    pub(super) fn dirty(&self) -> u64 {
        self.count[State::Dirty as usize] + self.count[State::Rewritten as usize]
    }

    /// Pages that are being written back.
    pub(super) fn writing(&self) -> u64 {
        self.count[State::Writing as usize] + self.count[State::Rewritten as usize]
    }

    pub(super) fn extents(&self) -> usize {
        self.extents.len()
    }

    /// The extent that has a page, and where it begins.
    pub(super) fn find(&self, file: FileId, page: u64) -> Option<(u64, Extent)> {
        if let Some(known) = self.found.get().and_then(|found| found.of(file, page)) {
            return known;
        }
        let before = self.extents.range(..=(file, page)).next_back();
        let has_it = before.filter(|((other, _), extent)| *other == file && extent.end > page);
        let extent = has_it.map(|(&(_, start), extent)| (start, *extent));
        self.found.set(Some(Found { file, page, extent }));
        extent
    }

    /// The first page from `page` on that is there, if it is before `end`, else `end`.
    pub(super) fn next_present(&self, file: FileId, page: u64, end: u64) -> u64 {
        if self.find(file, page).is_some() {
            return page;
        }
        self.extents.range((file, page)..(file, end)).next().map_or(end, |((_, start), _)| *start)
    }

    /// The first page from `page` on that is not there.
    pub(super) fn next_absent(&self, file: FileId, page: u64, end: u64) -> u64 {
        let mut at = page;
        while at < end
            && let Some((_, extent)) = self.find(file, at)
        {
            at = extent.end;
        }
        at.min(end)
    }

    /// The next range of dirty pages of a file from `page` on, of at most `most` pages.
    pub(super) fn dirty_run(&self, file: FileId, page: u64, most: u64) -> Option<(u64, u64)> {
        let start = match self.find(file, page) {
            Some((_, extent)) if extent.state == State::Dirty => page,
            _ => self.dirty.range((file, page)..=(file, u64::MAX)).next()?.1,
        };
        let mut end = start;
        while end < start + most
            && let Some((_, extent)) = self.find(file, end)
            && extent.state == State::Dirty
        {
            end = extent.end;
        }
        Some((start, end.min(start + most)))
    }

    /// Changes the pages of a range, one stretch of equal ones after the other: `change` says what becomes of pages in this state
    /// (`None`: that are not there), and of which transfer they are part. `use_them`: they are used now.
    pub(super) fn change(
        &mut self,
        file: FileId,
        (start, end): (u64, u64),
        use_them: bool,
        mut change: impl FnMut(Option<(State, u32)>) -> Option<(State, u32)>,
    ) {
        let mut at = start;
        while at < end {
            let found = self.find(file, at);
            let stretch = match found {
                Some((_, extent)) => extent.end.min(end),
                None => self.next_present(file, at, end),
            };
            let old = found.map(|(_, extent)| (extent.state, extent.io));
            let new = change(old);
            let now = self.used / self.grain;
            let known = found.is_some_and(|(_, extent)| !use_them || extent.generation == now);
            if new != old || (!known && new.is_some()) {
                let generation = found.filter(|_| known).map(|(_, extent)| extent.generation);
                let is_whole = found.is_some_and(|(from, extent)| (from, extent.end) == (at, stretch));
                let in_place = new
                    .filter(|_| is_whole)
                    .is_some_and(|new| self.put_in_place(file, (at, stretch), new, generation));
                if !in_place {
                    if let Some((from, extent)) = found {
                        self.cut_out(file, from, extent, (at, stretch));
                    }
                    if let Some((state, io)) = new {
                        self.put(file, (at, stretch), state, io, generation);
                    }
                }
            }
            at = stretch;
        }
    }

    /// Removes the least recently used clean extent: what it was.
    pub(super) fn evict(&mut self) -> Option<(FileId, u64, u64)> {
        let &(_, file, start) = self.clean.first()?;
        let extent = self.remove(file, start)?;
        Some((file, start, extent.end))
    }

    /// All extents of a file.
    pub(super) fn of_file(&self, file: FileId) -> impl Iterator<Item = (u64, Extent)> {
        self.extents.range((file, 0)..=(file, u64::MAX)).map(|((_, start), extent)| (*start, *extent))
    }

    /// Whether a file has pages that are not as they are below.
    pub(super) fn is_changed(&self, file: FileId) -> bool {
        self.of_file(file).any(|(_, extent)| !matches!(extent.state, State::Clean | State::Reading))
    }

    /// Puts pages where none are, of a generation, or used now.
    fn put(
        &mut self,
        file: FileId,
        (start, end): (u64, u64),
        state: State,
        io: u32,
        generation: Option<u64>,
    ) {
        if let Some(generation) = generation {
            self.insert(file, start, Extent { end, state, io, generation });
            return;
        }
        let mut at = start;
        while at < end {
            let upto = end.min(at + self.grain - self.used % self.grain);
            let generation = self.used / self.grain;
            self.used += upto - at;
            self.insert(file, at, Extent { end: upto, state, io, generation });
            at = upto;
        }
    }

    /// Puts pages where an extent of just these is, of a generation, or used now. Not if they would be parts of several extents then,
    /// or are joined with a neighbour: then nothing has changed.
    fn put_in_place(
        &mut self,
        file: FileId,
        (start, end): (u64, u64),
        (state, io): (State, u32),
        generation: Option<u64>,
    ) -> bool {
        if generation.is_none() && end - start > self.grain - self.used % self.grain {
            return false;
        }
        let new = Extent { end, state, io, generation: generation.unwrap_or(self.used / self.grain) };
        // One search finds it and both neighbours.
        let mut around = self.extents.range_mut(..=(file, end));
        let mut this = around.next_back();
        if let Some((key, next)) = &this
            && **key == (file, end)
        {
            if next.is_like(&new) {
                return false;
            }
            this = around.next_back();
        }
        let Some((_, this)) = this else { return false };
        if let Some((&(other, _), before)) = around.next_back()
            && other == file
            && before.end == start
            && before.is_like(&new)
        {
            return false;
        }
        let old = std::mem::replace(this, new);
        if generation.is_none() {
            self.used += end - start;
        }
        self.unindex(file, start, &old);
        self.index(file, start, &new);
        true
    }

    /// Removes a part of an extent.
    fn cut_out(&mut self, file: FileId, from: u64, extent: Extent, (start, end): (u64, u64)) {
        self.remove(file, from);
        if from < start {
            self.add(file, from, Extent { end: start, ..extent });
        }
        if end < extent.end {
            self.add(file, end, extent);
        }
    }

    /// Adds an extent, joined with its neighbours where they are alike.
    fn insert(&mut self, file: FileId, start: u64, mut extent: Extent) {
        // One search finds both.
        let mut around = self.extents.range_mut(..=(file, extent.end));
        let mut before = around.next_back();
        if let Some((key, next)) = &before
            && **key == (file, extent.end)
        {
            if next.is_like(&extent) {
                let end = next.end;
                self.remove(file, extent.end);
                extent.end = end;
                return self.insert(file, start, extent);
            }
            before = around.next_back();
        }
        if let Some((&(other, from), before)) = before
            && other == file
            && before.end == start
            && before.is_like(&extent)
        {
            before.end = extent.end;
            self.found.set(Some(Found { file, page: from, extent: Some((from, *before)) }));
            self.count[extent.state as usize] += extent.end - start;
            return;
        }
        self.add(file, start, extent);
    }

    fn add(&mut self, file: FileId, start: u64, extent: Extent) {
        self.index(file, start, &extent);
        self.extents.insert((file, start), extent);
    }

    fn remove(&mut self, file: FileId, start: u64) -> Option<Extent> {
        let extent = self.extents.remove(&(file, start))?;
        self.unindex(file, start, &extent);
        Some(extent)
    }

    /// An extent is there from now on.
    fn index(&mut self, file: FileId, start: u64, extent: &Extent) {
        self.count[extent.state as usize] += extent.end - start;
        match extent.state {
            State::Clean => {
                self.clean.insert((extent.generation, file, start));
            }
            State::Dirty => {
                self.dirty.insert((file, start));
            }
            _ => {}
        }
        // What has just changed is what is most often asked for next.
        self.found.set(Some(Found { file, page: start, extent: Some((start, *extent)) }));
    }

    /// An extent is not there any more.
    fn unindex(&mut self, file: FileId, start: u64, extent: &Extent) {
        self.count[extent.state as usize] -= extent.end - start;
        match extent.state {
            State::Clean => {
                self.clean.remove(&(extent.generation, file, start));
            }
            State::Dirty => {
                self.dirty.remove(&(file, start));
            }
            _ => {}
        }
        self.found.set(None);
    }
}
