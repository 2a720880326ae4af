//! The extents of one file, by where they begin: in chunks, so that adding one moves few others.
//!
//! A search compares where chunks begin, and then where the extents of one do. As accesses ask for what is near each other, it first looks
//! where it found something last, and right behind that.

use std::cell::Cell;

use super::pages::Extent;

/// Most extents of a chunk.
const CHUNK: usize = 64;

/// Where an extent is, until one is added or removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Place {
    chunk: u32,
    index: u32,
}

/// Extents in order; none begins where another one does.
#[derive(Debug, Default)]
pub(super) struct Extents {
    /// Where each chunk begins; none is empty.
    firsts: Vec<u64>,
    chunks: Vec<Chunk>,
    /// What was found last.
    lately: Cell<Place>,
}

#[derive(Debug, Default)]
struct Chunk {
    starts: Vec<u64>,
    extents: Vec<Extent>,
}

impl Extents {
    /// Where the extent at a place begins, and what it is.
    pub(super) fn at(&self, Place { chunk, index }: Place) -> (u64, Extent) {
        let chunk = &self.chunks[chunk as usize];
        (chunk.starts[index as usize], chunk.extents[index as usize])
    }

    pub(super) fn at_mut(&mut self, Place { chunk, index }: Place) -> &mut Extent {
        &mut self.chunks[chunk as usize].extents[index as usize]
    }

    fn start_at(&self, Place { chunk, index }: Place) -> u64 {
        self.chunks[chunk as usize].starts[index as usize]
    }

    /// The first place of all.
    fn first(&self) -> Option<Place> {
        (!self.chunks.is_empty()).then_some(Place { chunk: 0, index: 0 })
    }

    /// The place behind another one; the first, if there is none before.
    pub(super) fn after(&self, before: Option<Place>) -> Option<Place> {
        let Some(Place { chunk, index }) = before else { return self.first() };
        if index as usize + 1 < self.chunks[chunk as usize].starts.len() {
            Some(Place { chunk, index: index + 1 })
        } else {
            (chunk as usize + 1 < self.chunks.len()).then_some(Place { chunk: chunk + 1, index: 0 })
        }
    }

    /// The place before another one.
    pub(super) fn before(&self, Place { chunk, index }: Place) -> Option<Place> {
        if index > 0 {
            return Some(Place { chunk, index: index - 1 });
        }
        let chunk = chunk.checked_sub(1)?;
        Some(Place { chunk, index: self.chunks[chunk as usize].starts.len() as u32 - 1 })
    }

    /// The last extent that begins at `page` or before it.
    pub(super) fn last_from(&self, page: u64) -> Option<Place> {
        let Place { chunk, index } = self.lately.get();
        if let Some(starts) = self.chunks.get(chunk as usize).map(|chunk| &chunk.starts[..])
            && let Some(here) = starts.get(index as usize..)
            && here.first().is_some_and(|start| *start <= page)
        {
            // Behind the last one of a chunk the next chunk would have to be asked, if there is one.
            let is_last = here.len() <= 2 && chunk as usize + 1 == self.chunks.len();
            let further = here[1..].iter().take(2).position(|start| *start > page);
            if let Some(further) = further.or(is_last.then_some(here.len() - 1)) {
                let place = Place { chunk, index: index + further as u32 };
                self.lately.set(place);
                return Some(place);
            }
        }
        let chunk = self.firsts.partition_point(|first| *first <= page).checked_sub(1)?;
        let index = self.chunks[chunk].starts.partition_point(|start| *start <= page) - 1;
        let place = Place { chunk: chunk as u32, index: index as u32 };
        self.lately.set(place);
        Some(place)
    }

    /// The extent that begins at `start`.
    pub(super) fn starting_at(&self, start: u64) -> Option<Place> {
        self.last_from(start).filter(|place| self.start_at(*place) == start)
    }

    /// Adds an extent behind `before`, the last that begins before it.
    pub(super) fn insert(&mut self, before: Option<Place>, start: u64, extent: Extent) {
        let Some(before) = before else {
            // It is the first of all.
            let Some(first) = self.chunks.first_mut().filter(|chunk| chunk.starts.len() < CHUNK) else {
                return self.insert_chunk(0, Chunk { starts: vec![start], extents: vec![extent] });
            };
            first.starts.insert(0, start);
            first.extents.insert(0, extent);
            self.firsts[0] = start;
            return self.lately.set(Place::default());
        };
        let (mut at, mut index) = (before.chunk as usize, before.index as usize + 1);
        if self.chunks[at].starts.len() == CHUNK {
            // Who goes through a file leaves full chunks behind; elsewhere both halves get room.
            let from = if index == CHUNK { CHUNK } else { CHUNK / 2 };
            let full = &mut self.chunks[at];
            if from == CHUNK {
                return self.insert_chunk(at + 1, Chunk { starts: vec![start], extents: vec![extent] });
            }
            let moved = Chunk { starts: full.starts.split_off(from), extents: full.extents.split_off(from) };
            self.insert_chunk(at + 1, moved);
            if index > from {
                (at, index) = (at + 1, index - from);
            }
        }
        let chunk = &mut self.chunks[at];
        chunk.starts.insert(index, start);
        chunk.extents.insert(index, extent);
        self.lately.set(Place { chunk: at as u32, index: index as u32 });
    }

    fn insert_chunk(&mut self, at: usize, chunk: Chunk) {
        self.firsts.insert(at, chunk.starts[0]);
        self.chunks.insert(at, chunk);
        self.lately.set(Place { chunk: at as u32, index: 0 });
    }

    /// Takes an extent out.
    pub(super) fn remove(&mut self, Place { chunk: at, index }: Place) -> Extent {
        let (at, index) = (at as usize, index as usize);
        let chunk = &mut self.chunks[at];
        chunk.starts.remove(index);
        let extent = chunk.extents.remove(index);
        match chunk.starts.first() {
            Some(first) => self.firsts[at] = *first,
            None => {
                self.firsts.remove(at);
                self.chunks.remove(at);
            }
        }
        self.join(at);
        if let Some(before) = at.checked_sub(1) {
            self.join(before);
        }
        extent
    }

    /// Joins a chunk with the next one, if both are small: else many chunks of few would be left.
    fn join(&mut self, at: usize) {
        let len = |at: usize| self.chunks.get(at).map_or(CHUNK, |chunk| chunk.starts.len());
        if len(at) + len(at + 1) <= CHUNK / 2 {
            let next = self.chunks.remove(at + 1);
            self.firsts.remove(at + 1);
            self.chunks[at].starts.extend(next.starts);
            self.chunks[at].extents.extend(next.extents);
        }
    }

    /// All of them in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, Extent)> {
        let of = |chunk: &Chunk| chunk.starts.len();
        self.chunks
            .iter()
            .flat_map(move |chunk| (0..of(chunk)).map(move |at| (chunk.starts[at], chunk.extents[at])))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::State;
    use super::*;
    use crate::rng::Rng;

    /// Extents come and go at random and in order, and each search finds what a map finds.
    #[test]
    fn finds_what_a_map_finds() {
        for reach in [50, 3_000] {
            let (mut extents, mut map, mut rng) = (Extents::default(), BTreeMap::new(), Rng::new(5, reach));
            let mut next = 0;
            for _ in 0..30_000 {
                let page = if rng.below(4) == 0 { next } else { rng.below(reach) };
                next = (page + 1) % reach;
                let found = extents.last_from(page).map(|place| extents.at(place));
                assert_eq!(found, map.range(..=page).next_back().map(|(start, extent)| (*start, *extent)));
                let place = extents.last_from(page);
                let after = extents.after(place).map(|place| extents.at(place).0);
                assert_eq!(after, map.range(page + 1..).next().map(|(start, _)| *start));
                let before = place.and_then(|place| extents.before(place)).map(|place| extents.at(place).0);
                assert_eq!(before, map.range(..=page).rev().nth(1).map(|(start, _)| *start));
                match extents.starting_at(page) {
                    Some(place) if rng.below(2) == 0 || map.len() > 1_500 => {
                        assert_eq!(map.remove(&page), Some(extents.remove(place)));
                    }
                    Some(_) => {}
                    None => {
                        let extent = Extent::new(page + rng.below(9), State::Clean);
                        extents.insert(place, page, extent);
                        map.insert(page, extent);
                    }
                }
            }
            assert!(extents.iter().eq(map.iter().map(|(start, extent)| (*start, *extent))));
            assert!(extents.chunks.len() <= 1 + map.len() / (CHUNK / 8));
        }
    }
}
