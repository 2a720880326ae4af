//! The pages of a cache, as extents: which file's pages are there, in which state, and which were used least recently.
//!
//! The order of use is that of pages, in generations of `grain` pages: pages of one generation count as used at the same time. With a
//! grain of one page this is the list that it stands for. An extent is a range of pages of a file that are in one state and of one
//! generation, so a stream of any length needs an extent for each generation, and not a page for each 4 KiB.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};

use iogate_core::FileId;
use iogate_core::hash::HashMap;

use super::extents::{Extents, Place};

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

/// So many entries of extents that have changed are kept in any case.
const CHANGED_KEPT: usize = 256;

/// A file, and the place of what is known of it here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct File {
    pub(super) id: FileId,
    place: u32,
}

impl File {
    /// The place of what is known of it: small, and no other file's.
    pub(super) fn place(self) -> usize {
        self.place as usize
    }
}

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
    /// One of no transfer and the first generation.
    #[cfg(test)]
    pub(super) fn new(end: u64, state: State) -> Extent {
        Extent { end, state, io: 0, generation: 0 }
    }

    fn is_like(&self, other: &Extent) -> bool {
        (self.state, self.io, self.generation) == (other.state, other.io, other.generation)
    }
}

/// The extents of one file, by where they begin.
#[derive(Debug, Default)]
struct OfFile {
    extents: Extents,
    /// Which of them are dirty.
    dirty: BTreeSet<u64>,
    /// Pages with a mark of read-ahead. Each is there: else its mark would be met when it is there again, for another reason.
    marks: BTreeSet<u64>,
}

impl OfFile {
    /// The extent that has a page, and where it begins.
    #[inline]
    fn find(&self, page: u64) -> Option<(u64, Extent)> {
        let found = self.extents.at(self.extents.last_from(page)?);
        (page < found.1.end).then_some(found)
    }
}

/// The extents of all files.
#[derive(Debug)]
pub(super) struct Pages {
    /// Where each file is.
    places: HashMap<FileId, u32>,
    files: Vec<OfFile>,
    extents: usize,
    /// Generation, file and start of each clean extent, the least recently used first. Entries of extents that have changed since stay
    /// until they are met, or are three quarters of all: to remove each at once would cost a search.
    clean: BinaryHeap<Reverse<(u64, File, u64)>>,
    count: [u64; STATES],
    /// Pages of a generation; the present generation, and how many pages it still takes.
    grain: u64,
    generation: u64,
    left: u64,
}

impl Pages {
    /// None, with a grain of so many pages (not zero).
    pub(super) fn new(grain: u64) -> Pages {
        Pages {
            places: HashMap::default(),
            files: Vec::new(),
            extents: 0,
            clean: BinaryHeap::new(),
            count: [0; STATES],
            grain,
            generation: 0,
            left: grain,
        }
    }

    /// What is known of a file from now on, if nothing was.
    pub(super) fn open(&mut self, id: FileId) -> File {
        let place = *self.places.entry(id).or_insert_with(|| {
            self.files.push(OfFile::default());
            self.files.len() as u32 - 1
        });
        File { id, place }
    }

    /// A file that something is known of.
    pub(super) fn known(&self, id: FileId) -> Option<File> {
        self.places.get(&id).map(|place| File { id, place: *place })
    }

    fn of(&self, file: File) -> &OfFile {
        &self.files[file.place as usize]
    }

    fn of_mut(&mut self, file: File) -> &mut OfFile {
        &mut self.files[file.place as usize]
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

    /// Whether an extent counts as used now.
    pub(super) fn is_used_now(&self, extent: &Extent) -> bool {
        extent.generation == self.generation
    }

    pub(super) fn extents(&self) -> usize {
        self.extents
    }

    /// The extent that has a page, and where it begins.
    pub(super) fn find(&self, file: File, page: u64) -> Option<(u64, Extent)> {
        self.of(file).find(page)
    }

    /// The first page from `page` on that is there, if it is before `end`, else `end`.
    pub(super) fn next_present(&self, file: File, page: u64, end: u64) -> u64 {
        let extents = &self.of(file).extents;
        let before = extents.last_from(page);
        if before.is_some_and(|place| page < extents.at(place).1.end) {
            return page;
        }
        extents.after(before).map_or(end, |next| extents.at(next).0.min(end))
    }

    /// The first page from `page` on that is not there.
    pub(super) fn next_absent(&self, file: File, page: u64, end: u64) -> u64 {
        let mut at = page;
        while at < end
            && let Some((_, extent)) = self.find(file, at)
        {
            at = extent.end;
        }
        at.min(end)
    }

    /// The next range of dirty pages of a file from `page` on, of at most `most` pages.
    pub(super) fn dirty_run(&self, file: File, page: u64, most: u64) -> Option<(u64, u64)> {
        let start = match self.find(file, page) {
            Some((_, extent)) if extent.state == State::Dirty => page,
            _ => *self.of(file).dirty.range(page..).next()?,
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
        file: File,
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
            let known = found.is_some_and(|(_, extent)| !use_them || extent.generation == self.generation);
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

    /// Gives a page of a file a mark.
    pub(super) fn mark(&mut self, file: File, page: u64) {
        self.of_mut(file).marks.insert(page);
    }

    /// Takes a page's mark; whether it had one.
    pub(super) fn take_mark(&mut self, file: File, page: u64) -> bool {
        let marks = &mut self.of_mut(file).marks;
        !marks.is_empty() && marks.remove(&page)
    }

    /// The first page with a mark from `from` on, if it is before `end`, else `end`.
    pub(super) fn next_mark(&self, file: File, from: u64, end: u64) -> u64 {
        let marks = &self.of(file).marks;
        if marks.is_empty() || from >= end {
            return end;
        }
        marks.range(from..end).next().copied().unwrap_or(end)
    }

    /// Takes the marks of a range.
    fn unmark(&mut self, file: File, (start, end): (u64, u64)) {
        let marks = &mut self.of_mut(file).marks;
        while let Some(&mark) = marks.range(start..end).next() {
            marks.remove(&mark);
        }
    }

    /// Forgets the clean pages of a file.
    pub(super) fn forget(&mut self, file: File) {
        let clean = self.of_file(file).filter(|(_, extent)| extent.state == State::Clean);
        let clean: Vec<_> = clean.map(|(start, extent)| (start, extent.end)).collect();
        for range in clean {
            self.change(file, range, false, |_| None);
            self.unmark(file, range);
        }
    }

    /// Removes the least recently used clean extent: what it was.
    pub(super) fn evict(&mut self) -> Option<(File, u64, u64)> {
        while let Some(Reverse(key)) = self.clean.pop() {
            let (_, file, start) = key;
            if self.is_clean(key)
                && let Some(place) = self.of(file).extents.starting_at(start)
            {
                let (_, Extent { end, .. }) = self.of(file).extents.at(place);
                self.remove(file, place);
                self.unmark(file, (start, end));
                return Some((file, start, end));
            }
        }
        None
    }

    /// Whether there is a clean extent of this generation that begins here.
    fn is_clean(&self, (generation, file, start): (u64, File, u64)) -> bool {
        let extents = &self.of(file).extents;
        let extent = extents.starting_at(start).map(|place| extents.at(place).1);
        extent.is_some_and(|extent| (extent.state, extent.generation) == (State::Clean, generation))
    }

    /// All extents of a file.
    pub(super) fn of_file(&self, file: File) -> impl Iterator<Item = (u64, Extent)> {
        self.of(file).extents.iter()
    }

    /// Whether a file has pages that are not as they are below.
    pub(super) fn is_changed(&self, file: File) -> bool {
        self.of_file(file).any(|(_, extent)| !matches!(extent.state, State::Clean | State::Reading))
    }

    /// Puts pages where none are, of a generation, or used now.
    pub(super) fn put(
        &mut self,
        file: File,
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
            let upto = end.min(at + self.left);
            let generation = self.generation;
            self.note_used(upto - at);
            self.insert(file, at, Extent { end: upto, state, io, generation });
            at = upto;
        }
    }

    /// So many pages are used now, no more than the present generation takes.
    fn note_used(&mut self, pages: u64) {
        self.left -= pages;
        if self.left == 0 {
            (self.generation, self.left) = (self.generation + 1, self.grain);
        }
    }

    /// Puts pages where an extent of just these is, of a generation, or used now. Not if they would be parts of several extents then,
    /// or are joined with a neighbour: then nothing has changed.
    fn put_in_place(
        &mut self,
        file: File,
        (start, end): (u64, u64),
        (state, io): (State, u32),
        generation: Option<u64>,
    ) -> bool {
        if generation.is_none() && end - start > self.left {
            return false;
        }
        let new = Extent { end, state, io, generation: generation.unwrap_or(self.generation) };
        let extents = &mut self.of_mut(file).extents;
        let Some(place) = extents.starting_at(start) else { return false };
        let joins_before = extents.before(place).is_some_and(|before| joins(extents.at(before), start, &new));
        let next = extents.after(Some(place)).map(|next| extents.at(next));
        if joins_before || next.is_some_and(|(next, extent)| next == end && extent.is_like(&new)) {
            return false;
        }
        let old = std::mem::replace(extents.at_mut(place), new);
        if generation.is_none() {
            self.note_used(end - start);
        }
        self.unindex(file, start, &old);
        self.index(file, start, &new);
        true
    }

    /// Removes a part of an extent.
    fn cut_out(&mut self, file: File, from: u64, extent: Extent, (start, end): (u64, u64)) {
        if let Some(place) = self.of(file).extents.starting_at(from) {
            self.remove(file, place);
        }
        if from < start {
            self.add(file, from, Extent { end: start, ..extent });
        }
        if end < extent.end {
            self.add(file, end, extent);
        }
    }

    /// Adds an extent, joined with its neighbours where they are alike.
    fn insert(&mut self, file: File, start: u64, mut extent: Extent) {
        let extents = &mut self.of_mut(file).extents;
        let before = extents.last_from(start);
        if let Some(place) = extents.after(before)
            && let (at, next) = extents.at(place)
            && at == extent.end
            && next.is_like(&extent)
        {
            self.remove(file, place);
            extent.end = next.end;
            return self.insert(file, start, extent);
        }
        if let Some(place) = before.filter(|before| joins(extents.at(*before), start, &extent)) {
            extents.at_mut(place).end = extent.end;
            self.count[extent.state as usize] += extent.end - start;
            return;
        }
        self.add_behind(before, file, start, extent);
    }

    fn add(&mut self, file: File, start: u64, extent: Extent) {
        let before = self.of(file).extents.last_from(start);
        self.add_behind(before, file, start, extent);
    }

    /// Adds an extent behind the one that is before it.
    fn add_behind(&mut self, before: Option<Place>, file: File, start: u64, extent: Extent) {
        self.of_mut(file).extents.insert(before, start, extent);
        self.extents += 1;
        self.index(file, start, &extent);
    }

    fn remove(&mut self, file: File, place: Place) {
        let extents = &mut self.of_mut(file).extents;
        let (start, extent) = extents.at(place);
        extents.remove(place);
        self.extents -= 1;
        self.unindex(file, start, &extent);
    }

    /// An extent is there from now on.
    fn index(&mut self, file: File, start: u64, extent: &Extent) {
        self.count[extent.state as usize] += extent.end - start;
        match extent.state {
            State::Clean => {
                self.clean.push(Reverse((extent.generation, file, start)));
                self.forget_changed();
            }
            State::Dirty => {
                self.of_mut(file).dirty.insert(start);
            }
            _ => {}
        }
    }

    /// An extent is not there any more.
    fn unindex(&mut self, file: File, start: u64, extent: &Extent) {
        self.count[extent.state as usize] -= extent.end - start;
        if extent.state == State::Dirty {
            self.of_mut(file).dirty.remove(&start);
        }
    }

    /// Removes entries of extents that have changed since, if they are three quarters of all.
    fn forget_changed(&mut self) {
        if self.clean.len() <= 4 * self.extents + CHANGED_KEPT {
            return;
        }
        let mut keys = std::mem::take(&mut self.clean).into_vec();
        keys.retain(|Reverse(key)| self.is_clean(*key));
        keys.sort_unstable();
        keys.dedup();
        self.clean = keys.into();
    }
}

/// Whether an extent ends where one like it begins.
fn joins((_, before): (u64, Extent), start: u64, new: &Extent) -> bool {
    before.end == start && before.is_like(new)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A page that is written and written back again and again is one page that can go, and what is remembered of it is bounded.
    #[test]
    fn what_changes_again_and_again_can_go_once() {
        let mut pages = Pages::new(16);
        let file = pages.open(FileId(3));
        pages.change(file, (8, 9), true, |_| Some((State::Clean, 0)));
        for _ in 0..10_000 {
            pages.change(file, (0, 1), true, |_| Some((State::Dirty, 0)));
            pages.change(file, (0, 1), false, |_| Some((State::Clean, 0)));
            assert!(pages.clean.len() <= 4 * pages.extents() + CHANGED_KEPT);
        }
        let mut gone = [pages.evict(), pages.evict()];
        gone.sort_unstable();
        assert_eq!(gone, [Some((file, 0, 1)), Some((file, 8, 9))]);
        assert_eq!((pages.evict(), pages.len(), pages.extents()), (None, 0, 0));
    }
}
