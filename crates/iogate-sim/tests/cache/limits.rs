//! Dirty memory: who writes is as fast as memory up to the limit, and as the device from there on.

use iogate_core::{Op, Span};
use iogate_sim::cache::{CacheConfig, Kernel, PAGE};

use super::driver::{Below, Driver};

const MIB: u64 = 256;

/// How long a writer takes, with 1 GiB of memory, and a device that writes 4 KiB in 40 us: 100 MB/s.
fn writer(config: &CacheConfig, mib: u64) -> (f64, Driver) {
    let mut driver = Driver::new(config, 40_000);
    for token in 0..mib {
        driver.write(token, 0, token * MIB, MIB);
        driver.run_until(token);
    }
    (driver.now.since(iogate_core::Time::ZERO).as_secs_f64(), driver)
}

fn seconds_of(pages: u64) -> f64 {
    pages as f64 * 40e-6
}

/// Whether a writer of 2000 MiB takes as long as the limit says.
fn keeps_to_the_limit(config: &CacheConfig, limit: u64) -> bool {
    let (below, _) = writer(config, limit / MIB - 1);
    let mib = 2_000;
    let (took, driver) = writer(config, mib);
    let expected = seconds_of(mib * MIB - limit);
    below == 0.0 && (took / expected - 1.0).abs() < 0.02 && driver.cache.stats().dirty_most <= limit + MIB
}

#[test]
fn a_writer_is_as_fast_as_memory_up_to_the_limit_and_then_as_the_device() {
    for kernel in [Kernel::Rhel5, Kernel::V2628] {
        let config = CacheConfig::new(kernel, 1 << 30);
        let (_, limit) = config.limits();
        assert!(keeps_to_the_limit(&config, limit), "{}", kernel.name());
        let never = CacheConfig { size: 4 << 30, limit_percent: 100, ..config };
        assert!(!keeps_to_the_limit(&never, limit), "a cache that never throttles");
    }
}

#[test]
fn a_modern_writer_is_slowed_before_the_limit_and_ends_up_as_fast_as_the_device() {
    let config = CacheConfig::new(Kernel::Modern, 1 << 30);
    let (background, limit) = config.limits();
    let free = (background + limit) / 2;
    let (below, _) = writer(&config, free / MIB - 1);
    assert_eq!(below, 0.0, "nobody pauses half way to the limit");
    let mib = 4_000;
    let (took, driver) = writer(&config, mib);
    let (fastest, slowest) = (seconds_of(mib * MIB - limit), seconds_of(mib * MIB - free));
    assert!(took > 0.98 * fastest && took < 1.05 * slowest, "{took} s, not {fastest} to {slowest} s");
    assert!(driver.cache.stats().dirty_most <= limit + MIB);
}

/// Ten writers have the rate of the device together, and none much more than its share.
#[test]
fn modern_writers_share_the_rate() {
    let mut driver = Driver::new(&CacheConfig::new(Kernel::Modern, 1 << 30), 40_000);
    let mut written = [0_u64; 10];
    for writer in 0..10 {
        driver.write(writer, writer, 0, MIB);
    }
    let mut at = 0;
    while driver.now.since(iogate_core::Time::ZERO) < Span::from_secs(60) {
        while at < driver.done.len() {
            let writer = driver.done[at].0;
            at += 1;
            written[writer as usize] += 1;
            driver.write(writer, writer, written[writer as usize] * MIB, MIB);
            driver.ask();
        }
        driver.step();
    }
    let total: u64 = written.iter().sum();
    let (_, limit) = CacheConfig::new(Kernel::Modern, 1 << 30).limits();
    let expected = 60.0 / seconds_of(MIB);
    let found = total as f64;
    assert!(
        found > 0.9 * expected && found < 1.1 * expected + (limit / MIB) as f64,
        "{total} MiB, not {expected}"
    );
    let (least, most) = (written.iter().min().unwrap_or(&0), written.iter().max().unwrap_or(&0));
    assert!(*most as f64 <= 1.2 * *least as f64, "{written:?}");
}

#[test]
fn below_the_background_limit_only_what_is_old_is_written_back() {
    let mut driver = Driver::new(&CacheConfig::new(Kernel::Modern, 1 << 30), 40_000);
    driver.write(1, 7, 0, MIB);
    driver.run();
    let first = driver.seen.first().expect("it is written back in the end");
    assert_eq!(first.1.as_nanos(), 30_000_000_000, "at the first look after 30 s");
    assert_eq!(driver.transfers(Op::Write).iter().map(|(_, _, pages)| pages).sum::<u64>(), MIB);
}

#[test]
fn above_the_background_limit_files_have_turns_of_four_mib() {
    let mut config = CacheConfig::new(Kernel::V2628, 1 << 30);
    config.in_flight = 4;
    let mut driver = Driver::new(&config, 40_000);
    let (background, _) = config.limits();
    for file in 0..2 {
        driver.write(file, file, 0, background / 2 + 20 * MIB);
    }
    for _ in 0..40 {
        driver.step();
    }
    let mut turns: Vec<(u64, u64)> = Vec::new();
    for (file, _, pages) in driver.transfers(Op::Write) {
        match turns.last_mut() {
            Some((last, sum)) if *last == file => *sum += pages,
            _ => turns.push((file, pages)),
        }
    }
    assert_eq!(turns[..4], [(0, 4 * MIB), (1, 4 * MIB), (0, 4 * MIB), (1, 4 * MIB)]);
    let in_order = driver.seen.iter().filter_map(|(below, _)| match below {
        Below::Transfer(transfer) if transfer.file.0 == 0 => Some(transfer.offset / PAGE),
        _ => None,
    });
    assert!(in_order.is_sorted(), "each in offset order");
}
