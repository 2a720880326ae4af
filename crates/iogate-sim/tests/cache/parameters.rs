//! The numbers of the model.

use std::collections::BTreeSet;

use iogate_sim::cache::{CacheConfig, Kernel, PAGE, PARAMETERS};

#[test]
fn each_number_has_a_source_and_lies_in_its_range() {
    let mut names = BTreeSet::new();
    for row in PARAMETERS {
        assert!(row.source.len() > 10, "{} has no source", row.name);
        assert!(names.insert(row.name), "{} is there twice", row.name);
        let (low, high) = row.range;
        assert!(low <= high, "{}", row.name);
        for value in row.values {
            // 0 stands for what a kernel does not have.
            assert!(value == 0 || (low..=high).contains(&value), "{}: {value}", row.name);
        }
    }
}

#[test]
fn limits_are_those_of_the_kernels() {
    let gib = |kernel| CacheConfig::new(kernel, 100 << 30).limits();
    let percent = |percent: u64| (100 << 30) / 100 * percent / PAGE;
    assert_eq!(gib(Kernel::Rhel5), (percent(10), percent(40)));
    assert_eq!(gib(Kernel::V2628), (percent(5), percent(10)));
    assert_eq!(gib(Kernel::Modern), (percent(10), percent(20)));
    // 2.6.18 counts all memory, but no more than half of what is free for the cache.
    let mut config = CacheConfig::new(Kernel::Rhel5, 100 << 30);
    config.size = 10 << 30;
    assert_eq!(config.limits(), ((5 << 30) / PAGE / 2, (5 << 30) / PAGE));
}
