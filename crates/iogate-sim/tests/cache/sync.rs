//! What a sync waits for, worked by hand.

use iogate_core::{Op, Time};
use iogate_sim::cache::{CacheConfig, Kernel};

use super::driver::{Below, Driver};

/// 10 us for a page, 1 ms for a flush.
fn driver(kernel: Kernel) -> Driver {
    Driver::new(&CacheConfig::new(kernel, 1 << 30), 10_000)
}

#[test]
fn a_sync_writes_its_file_and_then_the_journal() {
    let mut driver = driver(Kernel::Modern);
    driver.write(1, 1, 0, 100);
    driver.write(2, 2, 0, 50);
    driver.cache.sync(3, 1, iogate_core::FileId(1));
    assert_eq!(driver.run_until(3), Time::from_nanos(100 * 10_000 + 1_000_000));
    assert_eq!(driver.transfers(Op::Write), [(1, 0, 100)]);
    assert!(matches!(driver.seen.last(), Some((Below::Flush(_), at)) if at.as_nanos() == 1_000_000));
}

#[test]
fn on_ext3_it_writes_all_files() {
    let mut driver = driver(Kernel::V2628);
    driver.write(1, 1, 0, 100);
    driver.write(2, 2, 0, 50);
    driver.cache.sync(3, 1, iogate_core::FileId(1));
    assert_eq!(driver.run_until(3), Time::from_nanos(150 * 10_000 + 1_000_000));
    // The other one's sync has nothing to do then.
    driver.cache.sync(4, 1, iogate_core::FileId(2));
    assert_eq!(driver.run_until(4), Time::from_nanos(150 * 10_000 + 1_000_000));
}

#[test]
fn a_sync_of_what_is_clean_takes_no_time_and_one_of_what_is_written_back_a_flush() {
    let mut driver = driver(Kernel::Modern);
    driver.cache.sync(1, 1, iogate_core::FileId(1));
    assert_eq!(driver.run_until(1), Time::ZERO);
    driver.write(2, 1, 0, 100);
    driver.run();
    assert_eq!(driver.cache.dirty(), 0);
    let now = driver.now;
    driver.cache.sync(3, 1, iogate_core::FileId(1));
    assert_eq!(driver.run_until(3).since(now).as_nanos(), 1_000_000);
}

#[test]
fn a_sync_during_another_one_s_flush_is_complete_with_it() {
    // A file that the flush is not for is as durable as it was.
    for (kernel, file, ends) in
        [(Kernel::Modern, 1, 2_000_000), (Kernel::Modern, 2, 1_000_000), (Kernel::V2628, 2, 2_000_000)]
    {
        let mut driver = driver(kernel);
        driver.write(1, 1, 0, 100);
        driver.cache.sync(2, 1, iogate_core::FileId(1));
        while !matches!(driver.seen.last(), Some((Below::Flush(_), _))) {
            assert!(driver.step(), "the flush never begins");
        }
        assert_eq!(driver.now.as_nanos(), 1_000_000);
        driver.cache.sync(3, 2, iogate_core::FileId(file));
        assert_eq!(driver.run_until(3).as_nanos(), ends, "{kernel:?}, file {file}");
        assert_eq!(driver.run_until(2).as_nanos(), 2_000_000);
    }
}

#[test]
fn a_sync_waits_for_what_was_written_to_meanwhile_but_not_for_ever() {
    let mut driver = driver(Kernel::Modern);
    driver.write(1, 1, 0, 100);
    driver.cache.sync(2, 1, iogate_core::FileId(1));
    driver.ask();
    // While these pages are written back.
    driver.write(3, 1, 50, 10);
    driver.cache.sync(4, 1, iogate_core::FileId(1));
    driver.run_until(4);
    assert_eq!(driver.transfers(Op::Write), [(1, 0, 100), (1, 50, 10)]);
    assert_eq!(driver.run_until(2), Time::from_nanos(100 * 10_000 + 1_000_000));
    assert_eq!(driver.run_until(4).as_nanos(), 100 * 10_000 + 1_000_000 + 10 * 10_000 + 1_000_000);
}
