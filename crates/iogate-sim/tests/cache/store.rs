//! No read sees what is old, and no sync is complete before all is durable: against a store that knows each page's content, with
//! everything underway at the same time.

use std::collections::HashMap;

use iogate_core::{FileId, Op, Time};
use iogate_sim::cache::{Cache, CacheConfig, Kernel, PAGE, State, Step, Transfer};
use iogate_sim::rng::Rng;

use super::driver::access;

type Page = (u64, u64);

/// What pages contain, as the number of the write that they have last: in the cache, on the device, and in truth.
#[derive(Default)]
struct Contents {
    cached: HashMap<Page, u64>,
    stored: HashMap<Page, u64>,
    truth: HashMap<Page, u64>,
    /// On the device when a flush that is over began: what a loss of power leaves.
    durable: HashMap<Page, u64>,
    /// What each transfer that is underway carries, by its number.
    carried: HashMap<u32, HashMap<Page, u64>>,
}

fn pages(transfer: &Transfer) -> impl Iterator<Item = Page> + use<> {
    let first = transfer.offset / PAGE;
    let file = transfer.file.0;
    (first..first + transfer.bytes / PAGE).map(move |page| (file, page))
}

impl Contents {
    fn begins(&mut self, transfer: &Transfer) {
        let carried = match transfer.op {
            // What a read brings is decided at its beginning, the worst case.
            Op::Read => &self.stored,
            Op::Write => &self.cached,
        };
        let carried = pages(transfer).map(|page| (page, carried.get(&page).copied().unwrap_or(0))).collect();
        self.carried.insert(transfer.io, carried);
    }

    /// Before the cache hears of it.
    fn ends(&mut self, cache: &Cache, transfer: &Transfer) {
        let carried = self.carried.remove(&transfer.io).expect("it has begun");
        for (page, content) in carried {
            match transfer.op {
                Op::Write => drop(self.stored.insert(page, content)),
                Op::Read if cache.state(FileId(page.0), page.1) == Some(State::Reading) => {
                    self.cached.insert(page, content);
                }
                Op::Read => {}
            }
        }
    }

    /// What a flush makes durable: of a file, or `None`: of all.
    fn flush_begins(&self, file: Option<u64>) -> HashMap<Page, u64> {
        let covered = self.stored.iter().filter(|(page, _)| file.is_none_or(|file| page.0 == file));
        covered.map(|(page, content)| (*page, *content)).collect()
    }

    /// Pages that are not there have no content.
    fn forget(&mut self, cache: &Cache) {
        self.cached
            .retain(|page, _| !matches!(cache.state(FileId(page.0), page.1), None | Some(State::Reading)));
    }
}

struct Call {
    op: Op,
    is_sync: bool,
    file: u64,
    first: u64,
    pages: u64,
    /// What its pages had when it was issued: it must not see anything older. Of a sync: all of the file.
    had: Vec<u64>,
}

const FILE_PAGES: u64 = 132;

fn one_run(seed: u64, kernel: Kernel) {
    let mut rng = Rng::new(seed, 7);
    let mut config = CacheConfig::new(kernel, (40 + rng.below(200)) * PAGE);
    (config.io, config.in_flight, config.grain) = (PAGE << rng.below(5), 1 + rng.below(6), 1 + rng.below(9));
    config.read_ahead = PAGE * rng.below(32);
    let mut cache = Cache::new(&config);
    let mut contents = Contents::default();
    let (mut now, mut token, mut version) = (Time::ZERO, 0, 0);
    let mut calls: HashMap<u64, Call> = HashMap::new();
    let mut underway: Vec<Transfer> = Vec::new();
    let mut flushes: Vec<(u32, HashMap<Page, u64>)> = Vec::new();
    let issue = 400;
    loop {
        let wake = loop {
            contents.forget(&cache);
            match cache.next(now) {
                Step::Transfer(transfer) => {
                    contents.begins(&transfer);
                    underway.push(transfer);
                }
                Step::Flush { io, file, .. } => {
                    flushes.push((io, contents.flush_begins((!config.ordered).then_some(file.0))));
                }
                Step::Done(done) => {
                    let Some(call) = calls.remove(&done) else { continue };
                    if call.is_sync {
                        for (page, had) in (call.first..).zip(&call.had) {
                            let durable = contents.durable.get(&(call.file, page)).copied().unwrap_or(0);
                            assert!(
                                durable >= *had,
                                "seed {seed}: page {page} is not durable: {durable} < {had}"
                            );
                        }
                        continue;
                    }
                    if call.op == Op::Read {
                        // Reads of pages that are not in the cache any more have been copied before.
                        for (page, had) in (call.first..call.first + call.pages).zip(&call.had) {
                            if let Some(content) = contents.cached.get(&(call.file, page)) {
                                assert!(content >= had, "seed {seed}: page {page} is old: {content} < {had}");
                                assert_eq!(
                                    Some(content),
                                    contents.truth.get(&(call.file, page)).or(Some(&0))
                                );
                            }
                        }
                    }
                }
                Step::WaitUntil(at) => break Some(at),
                Step::Idle => break None,
            }
        };
        let what = rng.below(3);
        if token < issue && (what == 0 || underway.is_empty()) {
            let (file, first, pages) = (rng.below(2), rng.below(120), 1 + rng.below(12));
            let range = access(token, file, first, pages);
            let mut call = Call { op: Op::Read, is_sync: false, file, first, pages, had: Vec::new() };
            let truth = |page| contents.truth.get(&(file, page)).copied().unwrap_or(0);
            match rng.below(7) {
                0..3 => {
                    call.had = (first..first + pages).map(truth).collect();
                    cache.read(range, FILE_PAGES * PAGE);
                }
                6 => {
                    call =
                        Call { is_sync: true, first: 0, had: (0..FILE_PAGES).map(truth).collect(), ..call };
                    cache.sync(token, 1, FileId(file));
                }
                _ => {
                    call.op = Op::Write;
                    version += 1;
                    for page in first..first + pages {
                        contents.truth.insert((file, page), version);
                        contents.cached.insert((file, page), version);
                    }
                    cache.write(now, range);
                    contents.forget(&cache);
                }
            }
            calls.insert(token, call);
            token += 1;
        } else if !flushes.is_empty() && (what == 1 || underway.is_empty()) {
            let (flush, covered) = flushes.swap_remove(rng.below(flushes.len() as u64) as usize);
            for (page, content) in covered {
                let durable = contents.durable.entry(page).or_default();
                *durable = content.max(*durable);
            }
            cache.completed(now, flush);
        } else if !underway.is_empty() {
            // In any order.
            let transfer = underway.swap_remove(rng.below(underway.len() as u64) as usize);
            contents.ends(&cache, &transfer);
            cache.completed(now, transfer.io);
        } else if let Some(at) = wake {
            now = at;
        } else {
            break;
        }
    }
    assert!(calls.is_empty(), "seed {seed}: {} calls are never complete", calls.len());
    assert_eq!(cache.dirty(), 0, "seed {seed}");
    for (page, version) in &contents.truth {
        assert_eq!(contents.stored.get(page), Some(version), "seed {seed}: {page:?} is lost");
    }
}

#[test]
fn no_read_sees_what_is_old_no_write_is_lost_and_syncs_are_durable() {
    for kernel in Kernel::ALL {
        for seed in 0..50 {
            one_run(seed, kernel);
        }
    }
}
