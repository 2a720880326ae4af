//! Which pages are there: against a list of pages.

use iogate_core::FileId;
use iogate_sim::cache::{Access, CacheConfig, Kernel, PAGE};
use iogate_sim::rng::Rng;

use super::driver::{Driver, access};

const FILES: u64 = 3;
const FILE_PAGES: u64 = 60;

fn config(pages: u64) -> CacheConfig {
    let mut config = CacheConfig::new(Kernel::V2628, pages * PAGE);
    config.read_ahead = 0;
    config.grain = 1;
    // Nothing is written back but at the limit.
    (config.background_percent, config.limit_percent) = (40, 50);
    config
}

/// Reads and writes one after the other: the same pages are there as in a list of single pages, of which the least recently used clean
/// one goes.
#[test]
fn pages_are_those_of_a_naive_list() {
    for seed in 0..20 {
        let mut rng = Rng::new(seed, 1);
        let capacity = 20 + rng.below(80);
        let mut driver = Driver::new(&config(capacity), 1_000);
        // Pages by use, the last first used.
        let mut list: Vec<(u64, u64)> = Vec::new();
        for token in 0..200 {
            let (file, first) = (rng.below(FILES), rng.below(FILE_PAGES));
            let pages = 1 + rng.below(8);
            if rng.below(3) == 0 {
                driver.write(token, file, first, pages);
            } else {
                driver.read(token, file, first, pages, FILE_PAGES + 8);
            }
            driver.run();
            for page in first..first + pages {
                list.retain(|other| *other != (file, page));
                list.push((file, page));
            }
            // All is clean again: `run` goes on until nothing is dirty.
            assert_eq!(driver.cache.dirty(), 0);
            let gone = list.len().saturating_sub(capacity as usize);
            list.drain(..gone);
            for file in 0..FILES {
                for page in 0..FILE_PAGES + 8 {
                    let expected = list.contains(&(file, page));
                    let found = driver.cache.state(FileId(file), page).is_some();
                    assert_eq!(found, expected, "seed {seed}, after {token}: page {page} of {file}");
                }
            }
        }
    }
}

/// With a coarser grain no page goes that was used in the last generations.
#[test]
fn a_grain_keeps_what_was_used_recently() {
    let mut coarse = config(1_000);
    coarse.grain = 10;
    let mut driver = Driver::new(&coarse, 1_000);
    let mut rng = Rng::new(9, 2);
    let mut used: Vec<u64> = Vec::new();
    for token in 0..3_000 {
        let page = rng.below(4_000);
        driver.read(token, 0, page, 1, 4_000);
        driver.run();
        used.retain(|other| *other != page);
        used.push(page);
        let (pages, extents) = driver.cache.size();
        assert!(pages <= 1_000 && extents <= 1_000);
        for page in used.iter().rev().take(900) {
            assert!(driver.cache.state(FileId(0), *page).is_some(), "page {page} after {token}");
        }
    }
}

/// What one stream fills needs an extent for each generation, however much it is: 64 such caches of 32 GiB are 64 times this.
#[test]
fn a_sequentially_filled_cache_of_32_gib_is_a_few_thousand_extents() {
    let mut driver = Driver::new(&CacheConfig::new(Kernel::Modern, 32 << 30), 10);
    let pages = (32 << 30) / PAGE;
    let each = 4_096;
    for token in 0..pages / each + 10 {
        driver.read(token, 0, token * each, each, 2 * pages);
        driver.run_until(token);
        driver.done.clear();
        driver.seen.clear();
    }
    let (held, extents) = driver.cache.size();
    assert!(held > pages * 99 / 100, "{held} pages");
    assert!(extents < 3_000, "{extents} extents");
}

/// A page at which read-ahead would have asked for more means nothing once it has been forgotten and another stream reads it.
#[test]
fn a_forgotten_page_is_no_mark_any_more() {
    for kernel in [Kernel::V2628, Kernel::Modern] {
        let mut driver = Driver::new(&CacheConfig::new(kernel, 1 << 30), 1_000);
        for page in 0..4 {
            driver.read(page, 1, page, 1, 1_000);
            driver.run();
        }
        let ahead = driver.cache.size().0;
        assert!(ahead > 4, "nothing was read ahead");
        driver.cache.forget(FileId(1));
        assert_eq!(driver.cache.size().0, 0);
        let fetched = driver.cache.stats().fetched;
        // From the last one on: no two follow each other.
        for page in (1..ahead).rev() {
            driver.cache.read(Access { stream: 1, ..access(10 + page, 1, page, 1) }, 1_000 * PAGE);
            driver.run();
        }
        assert_eq!(driver.cache.stats().fetched - fetched, ahead - 1, "{kernel:?}");
    }
}
