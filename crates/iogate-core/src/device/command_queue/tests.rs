//! The choice of the queue, against trying out every command.

use alloc::vec::Vec;

use super::*;
use crate::device::{DiskConfig, SeekTimes};

const SEEK: SeekTimes = SeekTimes {
    track_to_track: Span::from_millis(1),
    average: Span::from_millis(8),
    full_stroke: Span::from_millis(15),
};
const CONFIG: DiskConfig = DiskConfig {
    capacity: 100_000_000_000,
    revolution: Span::from_millis(8),
    heads: 4,
    outer_bytes_per_s: 100_000_000,
    inner_bytes_per_s: 50_000_000,
    track_switch: Span::from_millis(1),
    read_seek: SEEK,
    write_seek: SEEK,
    command_overhead: Span::from_micros(100),
    interface_bytes_per_s: 300_000_000,
    segments: 0,
    segment_bytes: 1 << 20,
    write_cache_bytes: 0,
};
const FAR: Span = Span::from_millis(1_000_000);

struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 20) % end
    }
}

fn read(address: u64) -> Transfer {
    Transfer { op: Op::Read, address, bytes: 512 }
}

/// All that ends, in the order of the ends.
fn drain(queue: &mut CommandQueue) -> Vec<(u64, Time)> {
    core::iter::from_fn(|| {
        loop {
            let next = queue.next_event()?;
            if let Some(ended) = queue.ended(next) {
                return Some(ended);
            }
        }
    })
    .collect()
}

/// How long the arm takes over `order`, one after the other from time 0 on.
fn time_of(disk: &Disk, order: &[u64]) -> u64 {
    let mut disk = disk.clone();
    order.iter().fold(0, |ns, &address| disk.carry_out(ns, Op::Read, address, address + 512))
}

fn permutations(of: &[u64]) -> Vec<Vec<u64>> {
    if of.is_empty() {
        return alloc::vec![Vec::new()];
    }
    let mut all = Vec::new();
    for index in 0..of.len() {
        let mut rest = of.to_vec();
        let first = rest.remove(index);
        all.extend(permutations(&rest).into_iter().map(|mut tail| {
            tail.insert(0, first);
            tail
        }));
    }
    all
}

#[test]
fn each_choice_is_what_trying_out_every_command_gives_and_the_whole_lies_between_the_best_order_and_arrival()
{
    let (mut arrival, mut queued, mut best) = (0, 0, 0);
    let mut numbers = Numbers(3);
    for round in 0..200 {
        let disk = Disk::new(CONFIG).with_phase(Span::from_micros(numbers.below(8_000)));
        let count = 1 + round % 6;
        let addresses: Vec<u64> = (0..count).map(|_| numbers.below(100_000_000_000 / 512) * 512).collect();
        // The first keeps the arm until all others are there.
        let mut queue = CommandQueue::new(disk.clone(), 31, FAR);
        queue.submit(Time::ZERO, 99, read(50_000_000_000));
        let first = queue.next_event().unwrap();
        (0..).zip(&addresses).for_each(|(tag, address)| queue.submit(Time::ZERO, tag, read(*address)));
        let order = drain(&mut queue);
        assert_eq!(order.len() as u64, count + 1);
        let mut tried = disk.clone();
        let mut at = tried.carry_out(100_000, Op::Read, 50_000_000_000, 50_000_000_512);
        assert_eq!((order[0].0, at), (99, first.as_nanos()));
        let start = tried.clone();
        let mut left: Vec<u64> = (0..count).collect();
        for &(tag, end) in &order[1..] {
            let done = |tag: u64| {
                let address = addresses[tag as usize];
                tried.clone().carry_out(at, Op::Read, address, address + 512)
            };
            let least = left.iter().map(|tag| done(*tag)).min().unwrap();
            assert_eq!(done(tag), end.as_nanos());
            // A sector takes 5 to 10 us, by its zone.
            assert!(
                end.as_nanos() <= least + 6_000,
                "another is reached {} ns before",
                end.as_nanos() - least
            );
            let address = addresses[tag as usize];
            at = tried.carry_out(at, Op::Read, address, address + 512);
            left.retain(|other| *other != tag);
        }
        let after = |order: &[u64]| {
            let mut disk = start.clone();
            let from = first.as_nanos();
            order.iter().fold(from, |ns, &address| disk.carry_out(ns, Op::Read, address, address + 512))
                - from
        };
        arrival += after(&addresses);
        queued += order.last().unwrap().1.as_nanos() - first.as_nanos();
        best += permutations(&addresses).iter().map(|order| after(order)).min().unwrap();
    }
    assert!(best <= queued && queued < arrival, "{best} {queued} {arrival}");
    // Looking one command ahead is near what looking at all orders gives, and far from the order of arrival.
    assert!(queued * 100 < best * 115 && queued * 100 < arrival * 90, "{best} {queued} {arrival}");
}

/// What the choice leaves out because it is too far away is never what is reached first, and of equals the first that came is chosen.
#[test]
fn looking_closely_at_what_is_near_gives_what_looking_at_all_gives() {
    let mut numbers = Numbers(7);
    for round in 0..200 {
        let disk = Disk::new(CONFIG).with_phase(Span::from_micros(numbers.below(8_000)));
        let mut queue = CommandQueue::new(disk, 31, FAR);
        queue.submit(Time::ZERO, 99, read(50_000_000_000));
        // All over the disk, on a few tracks, at a few places.
        let (places, apart) = [(100_000_000, 1_000), (4_096, 512), (8, 1_000_000_000)][round % 3];
        for tag in 0..30 {
            let op = if numbers.below(3) == 0 { Op::Write } else { Op::Read };
            let address = 40_000_000_000 + numbers.below(places) * apart / 2;
            queue.submit(Time::from_nanos(tag * 5_000), tag, Transfer { op, address, bytes: 512 });
        }
        let now = Time::from_nanos(120_000);
        let head = queue.disk.aim(queue.disk.head_at(now.as_nanos()));
        let reached = |&Command { ready, start, op, .. }: &Command| {
            queue.disk.turned_at(ready.max(now).as_nanos() + queue.disk.arm_ns(head, start, op), start)
        };
        let first = queue.candidates().iter().min_by_key(|slot| reached(queue.command(**slot)));
        assert_eq!(queue.choose(now), first.map(|slot| Choice::Command(*slot)), "round {round}");
    }
}

/// Not the nearest track: the head would miss the near sector by a little and wait for a revolution.
#[test]
fn rotation_counts_as_much_as_the_distance() {
    let disk = Disk::new(CONFIG);
    let (mut nearer, mut choices) = (0, 0);
    let mut numbers = Numbers(5);
    for _ in 0..500 {
        let near = 30_000_000_000 + numbers.below(1 << 17) * 512;
        let far = 30_200_000_000 + numbers.below(1 << 17) * 512;
        let mut queue = CommandQueue::new(disk.clone(), 31, FAR);
        queue.submit(Time::ZERO, 0, read(30_000_000_000));
        queue.submit(Time::ZERO, 1, read(near));
        queue.submit(Time::ZERO, 2, read(far));
        let order: Vec<u64> = drain(&mut queue).iter().map(|(tag, _)| *tag).collect();
        nearer += u32::from(order[1] == 1);
        choices += 1;
        let mut other = order[1..].to_vec();
        other.reverse();
        let address = |tag: &u64| [30_000_000_000, near, far][*tag as usize];
        let first = |second: &u64| time_of(&disk, &[30_000_000_000, address(second)]);
        assert!(first(&order[1]) <= first(&other[0]) + 6_000);
    }
    assert!(
        (choices / 10..choices * 9 / 10).contains(&nearer),
        "the nearer one first in {nearer} of {choices}"
    );
}

#[test]
fn what_has_waited_too_long_goes_first() {
    let wait = |age_limit| {
        let mut queue = CommandQueue::new(Disk::new(CONFIG), 8, age_limit);
        let mut numbers = Numbers(9);
        // One at the far end, among many that are near each other and come again and again.
        for tag in 0..7 {
            queue.submit(Time::ZERO, tag, read(numbers.below(100_000) * 512));
        }
        queue.submit(Time::ZERO, 99, read(99_000_000_000));
        for _ in 0..2_000 {
            let at = queue.next_event().unwrap();
            match queue.ended(at) {
                Some((99, end)) => return Some(end.since(Time::ZERO)),
                Some((tag, end)) => queue.submit(end, tag, read(numbers.below(100_000) * 512)),
                None => {}
            }
        }
        None
    };
    assert_eq!(wait(FAR), None);
    let bound = Span::from_millis(500);
    let waited = wait(bound).expect("it is served");
    assert!(waited > bound && waited < bound + Span::from_millis(50), "{waited}");
}

/// A stream of reads goes on where the head is, and no range of the cache is reached as early: only the age limit lets the arm make room.
#[test]
fn a_write_that_waits_for_room_behind_a_stream_of_reads_is_taken_in_when_it_has_waited_too_long() {
    let waits = |age_limit| {
        let config = DiskConfig { write_cache_bytes: 1 << 20, segments: 8, ..CONFIG };
        let mut queue = CommandQueue::new(Disk::new(config), 31, age_limit);
        let mut numbers = Numbers(2);
        let bytes = 1 << 16;
        let mut stream = (0..).step_by(1 << 16).map(|address| Transfer { op: Op::Read, address, bytes });
        (0..4).for_each(|tag| queue.submit(Time::ZERO, tag, stream.next().unwrap()));
        // More than the cache holds, far away.
        let far = (50..76).map(|tag| (tag, (800_000 + numbers.below(200_000)) << 16));
        far.for_each(|(tag, address)| {
            queue.submit(Time::ZERO, tag, Transfer { op: Op::Write, address, bytes });
        });
        let (mut waits, mut reads) = (Vec::new(), 0);
        while reads < 2_000 {
            let at = queue.next_event().unwrap();
            match queue.ended(at) {
                Some((tag, end)) if tag < 4 => {
                    reads += 1;
                    queue.submit(end, tag, stream.next().unwrap());
                }
                Some((_, end)) => waits.push(end.since(Time::ZERO)),
                None => {}
            }
        }
        waits
    };
    assert_eq!(waits(FAR).len(), 16, "what the cache holds");
    let bound = Span::from_millis(500);
    let waits = waits(bound);
    assert_eq!(waits.len(), 26);
    let last = *waits.last().unwrap();
    assert!(last > bound && last < bound + Span::from_millis(200), "{last}");
}

#[test]
fn a_write_cache_takes_writes_at_once_and_is_emptied_beside_the_reads() {
    let config = DiskConfig { write_cache_bytes: 1 << 20, ..CONFIG };
    let mut queue = CommandQueue::new(Disk::new(config), 31, FAR);
    let write = |address| Transfer { op: Op::Write, address, bytes: 4_096 };
    let mut numbers = Numbers(1);
    for tag in 0..20 {
        queue.submit(Time::ZERO, tag, write(numbers.below(20_000_000) * 4_096));
    }
    queue.submit(Time::ZERO, 99, read(7 << 30));
    let ended = drain_commands(&mut queue, 21);
    let writes: Vec<_> = ended.iter().filter(|(tag, _)| *tag != 99).collect();
    assert!(writes.iter().all(|(_, end)| *end < Time::from_nanos(1_000_000)), "{writes:?}");
    assert_eq!(writes.len(), 20);
    let last = ended.last().unwrap().1;
    let flush = queue.flush(last);
    assert!(flush > Span::from_millis(10), "{flush}");
    let over = last + flush;
    assert_eq!(queue.flush(over), CONFIG.command_overhead);
    // More than it holds: the rest waits for room.
    for tag in 0..31 {
        queue.submit(over + Span::from_millis(1), tag, Transfer { bytes: 1 << 17, ..write(tag << 30) });
    }
    let ended = drain_commands(&mut queue, 31);
    assert_eq!(ended.len(), 31);
    assert!(ended.last().unwrap().1.since(over) > Span::from_millis(20));
}

fn drain_commands(queue: &mut CommandQueue, count: usize) -> Vec<(u64, Time)> {
    let mut all = Vec::new();
    while all.len() < count {
        let at = queue.next_event().expect("something is to come");
        all.extend(queue.ended(at));
    }
    all
}

#[test]
fn no_two_disks_turn_in_step() {
    let first = |number| {
        let mut disk = crate::device::parse_numbered("hdd:queue=31", number).unwrap();
        disk.serve(Time::ZERO, read(1 << 40))
    };
    let mut all: Vec<Span> = (0..64).map(first).collect();
    all.sort_unstable();
    assert!(all.windows(2).all(|pair| pair[0] < pair[1]), "{all:?}");
    // Spread over the whole revolution.
    assert!(all[63] - all[0] > Span::from_micros(7_500));
}
