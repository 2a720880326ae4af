//! The tree against a sorted map.

use super::*;
use std::collections::BTreeMap;
use std::vec::Vec;

/// A small deterministic generator.
struct Rng(u64);
impl Rng {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }
}

/// Drives the tree and a sorted map with the same operations.
fn compare(seed: u64, operations: usize, offsets: u64, bytes_max: u64, grow: u64) {
    let mut rng = Rng(seed);
    let (mut arena, mut tree) = (Arena::default(), RangeIndex::default());
    let mut model: BTreeMap<(u64, u64), (u32, u32)> = BTreeMap::new();
    let mut seqs: Vec<u64> = Vec::new();
    for step in 0..operations as u64 {
        if rng.below(100) < grow || model.is_empty() {
            // Now and then an old arrival number, as of a request that was held back.
            let seq = if rng.below(8) == 0 && step > 0 { step - 1 } else { step + (1 << 40) };
            let (offset, bytes) = (rng.below(offsets), 1 + rng.below(bytes_max) as u32);
            if model.contains_key(&(offset, seq)) {
                continue;
            }
            let slot = seqs.len() as u32;
            seqs.push(seq);
            let found = arena.insert(&mut tree, Key { offset, seq }, bytes, slot, |s| seqs[s as usize]);
            let before = model.range(..(offset, seq)).next_back().map(|(_, v)| v.1);
            let after = model.range((offset, seq)..).next().map(|(_, v)| v.1);
            assert_eq!(found, Neighbours { before, after });
            model.insert((offset, seq), (bytes, slot));
        } else {
            let nth = rng.below(model.len() as u64) as usize;
            let (&(offset, seq), &(_, slot)) = model.iter().nth(nth).unwrap();
            arena.remove(&mut tree, Key { offset, seq }, slot, |s| seqs[s as usize]);
            model.remove(&(offset, seq));
        }
        let seq_of = |s: u32| seqs[s as usize];
        assert_eq!(tree.len as usize, model.len());
        assert_eq!(arena.first(&tree), model.values().next().map(|v| v.1));
        let (from, to) = (rng.below(offsets), rng.below(offsets));
        let (from, to) = (from.min(to), from.max(to) + 1);
        let limit = rng.below(2 << 40);
        let expected = model
            .iter()
            .rfind(|((o, s), (b, _))| *o < to && o + u64::from(*b) > from && *s < limit)
            .map(|(_, v)| v.1);
        assert_eq!(arena.overlap(&tree, from, to, limit, seq_of), expected);
        let key = Key { offset: from, seq: limit };
        let cursor = arena.seek(&tree, key, seq_of);
        let mut forward = model.range((from, limit)..).map(|(k, v)| (k.0, v.0, v.1));
        assert_eq!(arena.at(cursor), forward.next());
        if arena.at(cursor).is_some() {
            assert_eq!(arena.at(arena.forward(cursor)), forward.next());
            let back = model.range(..(from, limit)).next_back().map(|(k, v)| (k.0, v.0, v.1));
            assert_eq!(arena.at(arena.back(cursor)), back);
        }
    }
    arena.clear(&mut tree);
    assert_eq!(arena.free_leaves.len(), arena.leaves.len(), "all leaves come back");
    assert_eq!(arena.free_inners.len(), arena.inners.len(), "all inner nodes come back");
}

#[test]
fn empties_from_either_end_and_from_the_middle() {
    for (seed, rank) in [(1u64, 0.0), (2, 1.0), (3, 0.5), (4, 0.3)] {
        let mut rng = Rng(seed);
        let (mut arena, mut tree) = (Arena::default(), RangeIndex::default());
        let mut keys: Vec<Key> = (0..3_000).map(|seq| Key { offset: rng.below(2_000), seq }).collect();
        for key in &keys {
            arena.insert(&mut tree, *key, 7, key.seq as u32, u64::from);
        }
        keys.sort();
        while !keys.is_empty() {
            let key = keys.remove(((keys.len() - 1) as f64 * rank) as usize);
            arena.remove(&mut tree, key, key.seq as u32, u64::from);
            assert_eq!(arena.first(&tree), keys.first().map(|key| key.seq as u32));
            let end = keys.last().map_or(0, |key| key.offset + 7);
            let last = arena.overlap(&tree, 0, u64::MAX, u64::MAX, u64::from);
            assert_eq!(last, keys.last().map(|key| key.seq as u32));
            assert_eq!(arena.overlap(&tree, end, u64::MAX, u64::MAX, u64::from), None);
        }
        assert_eq!(arena.free_inners.len(), arena.inners.len());
    }
}

#[test]
fn agrees_with_a_sorted_map() {
    compare(1, 6_000, 100_000, 64, 60);
    compare(2, 6_000, 50, 10, 55);
    compare(3, 6_000, 1, 1, 55);
    compare(4, 6_000, 4_000, 4_000, 50);
    compare(5, 12_000, 1_000_000, 8, 52);
    compare(6, 3_000, 1_000_000, 8, 100);
}
