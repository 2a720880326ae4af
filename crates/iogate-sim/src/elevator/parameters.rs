//! The numbers of the elevators, each with the range in which it may be, and where it comes from.

use iogate_core::device::Parameter;

const fn row(name: &'static str, value: u64, range: (u64, u64), source: &'static str) -> Parameter {
    Parameter { name, value, range, source }
}

/// All of them.
pub const PARAMETERS: &[Parameter] = &[
    row(
        "deadline.read_ms",
        500,
        (100, 1_000),
        "read_expire in block/deadline-iosched.c: HZ / 2; Documentation/block/deadline-iosched.txt",
    ),
    row(
        "deadline.write_ms",
        5_000,
        (1_000, 10_000),
        "write_expire in block/deadline-iosched.c: 5 * HZ; the same documentation",
    ),
    row("deadline.batch", 16, (1, 64), "fifo_batch in block/deadline-iosched.c; the same documentation"),
    row("deadline.starved", 2, (1, 4), "writes_starved in block/deadline-iosched.c; the same documentation"),
    row(
        "slices.sync_ms",
        100,
        (40, 180),
        "cfq_slice_sync in block/cfq-iosched.c: HZ / 10; range: priorities 7 to 0",
    ),
    row(
        "slices.async_ms",
        40,
        (16, 72),
        "cfq_slice_async in block/cfq-iosched.c: HZ / 25; range: priorities 7 to 0",
    ),
    row(
        "slices.idle_ms",
        8,
        (0, 10),
        "cfq_slice_idle in block/cfq-iosched.c of 2.6.28: HZ / 125; HZ / 100 before, 0 switches it off",
    ),
    row("slices.quantum", 4, (1, 8), "cfq_quantum in block/cfq-iosched.c of 2.6.28; 8 from 2.6.33 on"),
    row("slices.sync_expire_ms", 125, (50, 250), "cfq_fifo_expire[1] in block/cfq-iosched.c: HZ / 8"),
    row("slices.async_expire_ms", 250, (125, 500), "cfq_fifo_expire[0] in block/cfq-iosched.c: HZ / 4"),
    row(
        "slices.async_requests",
        16,
        (2, 32),
        "cfq_prio_to_maxrq() in block/cfq-iosched.c: 2 * (2 + 2 * 3) at the priority in the middle; range: the others",
    ),
    row(
        "slices.seeking_kib",
        4_096,
        (64, 4_096),
        "CIC_SEEKY in block/cfq-iosched.c of 2.6.28: a mean above 8 * 1024 sectors; 128 sectors in the least of later ones",
    ),
    row(
        "slices.highest_ms",
        180,
        (72, 180),
        "cfq_slice_offset() in block/cfq-iosched.c: cfq_prio_slice(cfqd, 1, 0), 100 ms and four fifths; least: as for async queues",
    ),
    row(
        "slices.samples",
        80,
        (0, 256),
        "sample_valid() in block/cfq-iosched.c: more than 80, where one that counts in full is 256",
    ),
    row(
        "slices.first_samples",
        60,
        (0, 256),
        "cfq_update_io_seektime() in block/cfq-iosched.c: up to 60, the second and third request",
    ),
    row(
        "slices.odd_first_kib",
        1 << 20,
        (64 << 10, 1 << 20),
        "cfq_update_io_seektime(): 4 means and 2 * 1024 * 1024 sectors, for the first requests",
    ),
    row(
        "slices.odd_kib",
        64 << 10,
        (64 << 10, 1 << 20),
        "cfq_update_io_seektime(): 4 means and 2 * 1024 * 64 sectors, later",
    ),
];

/// The value of the parameter `name`; 0 if there is none, which a test excludes.
pub(super) fn value(name: &str) -> u64 {
    PARAMETERS.iter().find(|row| row.name == name).map_or(0, |row| row.value)
}
