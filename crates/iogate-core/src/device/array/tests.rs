//! Accesses counted by hand and byte by byte, and what the controller's cache makes of them.

use std::sync::{Arc, Mutex};

use super::*;

const KIB: u64 = 1 << 10;

fn geometry(members: usize, parity: usize, chunk: u64) -> Geometry {
    Geometry { members, parity, chunk }
}

fn counts((reads, writes): &(Vec<Part>, Vec<Part>)) -> (usize, usize) {
    (reads.len(), writes.len())
}

/// Patterson 1988: a small write is two reads and two writes, with two parities three and three.
#[test]
fn small_writes_cost_what_the_papers_say() {
    let (raid5, raid6) = (geometry(5, 1, 64 * KIB), geometry(6, 2, 64 * KIB));
    for address in [0, 4 * KIB, 100 * KIB, 300 * KIB, 10_000 * KIB] {
        assert_eq!(counts(&raid5.write(address, address + 4 * KIB)), (2, 2));
        assert_eq!(counts(&raid6.write(address, address + 4 * KIB)), (3, 3));
    }
    // Without parity in the way, a read is one access.
    assert_eq!(raid6.read(4 * KIB, 8 * KIB).len(), 1);
    // Whole rows need no reads: one write a disk, however many rows.
    let row = 256 * KIB;
    for rows in [1, 2, 7] {
        assert_eq!(counts(&raid5.write(row, (1 + rows) * row)), (0, 5));
        assert_eq!(counts(&raid6.write(row, (1 + rows) * row)), (0, 6));
    }
    // Three of four chunks: the fourth is read, not the three and the parity.
    assert_eq!(counts(&raid5.write(row, row + 192 * KIB)), (1, 4));
    assert_eq!(counts(&raid6.write(row, row + 192 * KIB)), (1, 5));
    // Two of four: two others, where changing the parity needs three.
    assert_eq!(counts(&raid5.write(row, row + 128 * KIB)), (2, 3));
    // Ten disks, one small write: changing is far cheaper than computing anew.
    assert_eq!(counts(&geometry(10, 2, 64 * KIB).write(0, 4 * KIB)), (3, 3));
    // A row and a half: the half is changed, the whole is not read.
    let (reads, _) = raid5.write(0, row + 4 * KIB);
    assert_eq!(reads.len(), 2);
}

/// By the definition, one byte after the other.
#[test]
fn every_byte_is_on_its_disk_and_every_parity_is_written() {
    for (members, parity) in [(3, 1), (5, 1), (4, 2), (7, 2)] {
        let geometry = geometry(members, parity, 4);
        let data = (members - parity) as u64;
        for address in 0..60 {
            for end in address + 1..100 {
                let (_, writes) = geometry.write(address, end);
                let mut expected = alloc::collections::BTreeSet::new();
                for byte in address..end {
                    let (row, index) = (byte / (4 * data), byte / 4 % data);
                    let first = members - 1 - (row % members as u64) as usize;
                    let member = (first + parity + index as usize) % members;
                    expected.insert((member, row * 4 + byte % 4));
                    for other in 0..parity {
                        expected.insert(((first + other) % members, row * 4 + byte % 4));
                    }
                }
                let got: Vec<(usize, u64)> = bytes(&writes);
                let unique: alloc::collections::BTreeSet<(usize, u64)> = got.iter().copied().collect();
                assert_eq!(got.len(), unique.len(), "written twice: {address}..{end}");
                assert!(unique.is_superset(&expected));
                // No more than the parity's own range beside it.
                let extra = unique.difference(&expected).count() as u64;
                assert!(extra <= 2 * parity as u64 * 4, "{address}..{end}: {extra}");
                let read: alloc::collections::BTreeSet<(usize, u64)> =
                    bytes(&geometry.read(address, end)).into_iter().collect();
                let wanted = |byte: u64| {
                    let (row, index) = (byte / (4 * data), byte / 4 % data);
                    let first = members - 1 - (row % members as u64) as usize;
                    ((first + parity + index as usize) % members, row * 4 + byte % 4)
                };
                assert!((address..end).all(|byte| read.contains(&wanted(byte))), "{address}..{end}");
                assert!(read.len() as u64 >= end - address);
            }
        }
    }
}

fn bytes(parts: &[Part]) -> Vec<(usize, u64)> {
    let all = parts.iter().flat_map(|part| {
        let Transfer { address, bytes, .. } = part.transfer;
        (address..address + bytes).map(move |byte| (part.member, byte))
    });
    all.collect()
}

/// Writes down what it is asked for; each access takes a millisecond.
struct Recorder(Arc<Mutex<Vec<Op>>>);

impl Device for Recorder {
    fn serve(&mut self, _now: Time, transfer: Transfer) -> Span {
        self.0.lock().unwrap().push(transfer.op);
        Span::from_millis(1)
    }
    fn flush(&mut self, _now: Time) -> Span {
        Span::ZERO
    }
    fn capacity(&self) -> u64 {
        1 << 30
    }
    fn repositions(&self) -> u64 {
        0
    }
}

fn array(cache_bytes: u64) -> (Station, Arc<Mutex<Vec<Op>>>) {
    let log: Arc<Mutex<Vec<Op>>> = Arc::default();
    let members = (0..6).map(|_| Box::new(Recorder(log.clone())) as Box<dyn Device>).collect();
    let config = ArrayConfig {
        parity: 2,
        chunk: 64 * KIB,
        cache_bytes,
        bus_bytes_per_s: 1_000_000_000,
        command: Span::from_micros(10),
    };
    (Station::new(Box::new(Array::new(members, config).unwrap())), log)
}

/// Hands over one after the other, and says when the last has ended.
fn serve(station: &mut Station, transfers: impl Iterator<Item = Transfer>) -> Time {
    let mut now = Time::ZERO;
    for (id, transfer) in (0..).zip(transfers) {
        station.submit(now, id, false, [transfer]);
        loop {
            let at = station.next_event().expect("it ends");
            if let Some(ended) = station.ended(at) {
                assert_eq!(ended.id, id);
                now = ended.end;
                break;
            }
        }
    }
    now
}

#[test]
fn a_small_write_reads_before_it_writes() {
    let (mut station, log) = array(0);
    let write = |address| Transfer { op: Op::Write, address, bytes: 4 * KIB };
    let end = serve(&mut station, [write(0)].into_iter());
    // Three reads at once, then three writes.
    assert_eq!(end.as_nanos() / 1_000_000, 2);
    let ops = log.lock().unwrap().clone();
    assert_eq!(ops, [[Op::Read; 3], [Op::Write; 3]].concat());
}

#[test]
fn a_cache_makes_whole_rows_of_small_writes() {
    let (mut station, log) = array(64 << 20);
    let writes =
        (0..1_024).map(|index| Transfer { op: Op::Write, address: index * 16 * KIB, bytes: 16 * KIB });
    let end = serve(&mut station, writes);
    assert!(end < Time::from_nanos(64_000_000), "{end:?}");
    let ops = log.lock().unwrap().clone();
    assert!(!ops.contains(&Op::Read), "no row is read");
    assert!(ops.len() <= 64 * 6 && !ops.is_empty());
    // At random places there are no whole rows: past half of the cache, each costs what it costs without one.
    let (mut station, log) = array(1 << 20);
    let random = (0..1_000u64).map(|index| Transfer {
        op: Op::Write,
        address: index * 7_919 * 7_919 % 10_000 * 256 * KIB,
        bytes: 4 * KIB,
    });
    serve(&mut station, random);
    let ops = log.lock().unwrap().clone();
    let count = |op| ops.iter().filter(|other| **other == op).count();
    let (read, written) = (count(Op::Read), count(Op::Write));
    assert!(read >= 3 * 700 && read.abs_diff(written) <= 100, "{read} {written}");
}

#[test]
fn what_is_cached_is_read_without_the_disks_and_long_writes_go_past_it() {
    let (mut station, log) = array(64 << 20);
    let both = [Op::Write, Op::Read].map(|op| Transfer { op, address: 0, bytes: 4 * KIB });
    let end = serve(&mut station, both.into_iter());
    assert!(end < Time::from_nanos(100_000) && log.lock().unwrap().is_empty());
    let (mut station, log) = array(1 << 20);
    serve(&mut station, [Transfer { op: Op::Write, address: 0, bytes: 8 << 20 }].into_iter());
    assert_eq!(*log.lock().unwrap(), [Op::Write; 6]);
}

#[test]
fn an_array_of_too_few_disks_is_none() {
    let members = |count| -> Vec<Box<dyn Device>> {
        (0..count).map(|_| Box::new(Recorder(Arc::default())) as Box<dyn Device>).collect()
    };
    let config = |parity, chunk| ArrayConfig {
        parity,
        chunk,
        cache_bytes: 0,
        bus_bytes_per_s: 1,
        command: Span::ZERO,
    };
    assert!(Array::new(members(0), config(1, 4)).is_none());
    assert!(Array::new(members(2), config(1, 4)).is_none());
    assert!(Array::new(members(3), config(2, 4)).is_none());
    assert!(Array::new(members(4), config(2, 0)).is_none());
    let array = Array::new(members(4), config(2, 64 * KIB)).unwrap();
    assert_eq!(array.capacity(), 2 << 30);
}
