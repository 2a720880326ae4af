//! The device models against data sheets, and properties that hold for every one of them.

use std::sync::{Arc, Mutex};

use iogate_core::device::{
    Device, DeviceSpecError, Disk, DiskConfig, Preset, Raid0, SeekTimes, Transfer, parse,
    sequential_to_random_ratio,
};
use iogate_core::{Op, Span, Time};
use proptest::prelude::*;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// Serves transfers one after the other and flushes; the seconds that it takes.
fn run(device: &mut dyn Device, transfers: impl IntoIterator<Item = Transfer>) -> f64 {
    let mut now = Time::ZERO;
    for transfer in transfers {
        now = now + device.serve(now, transfer);
    }
    (now + device.flush(now)).since(Time::ZERO).as_secs_f64()
}

fn sequential(op: Op, start: u64, bytes: u64, requests: u64) -> impl Iterator<Item = Transfer> {
    (0..requests).map(move |index| Transfer { op, address: start + index * bytes, bytes })
}

fn random(op: Op, capacity: u64, bytes: u64, requests: u64) -> impl Iterator<Item = Transfer> {
    let mut state = 7u64;
    (0..requests).map(move |_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let address = ((u128::from(state) * u128::from(capacity / 512)) >> 64) as u64 * 512;
        Transfer { op, address, bytes }
    })
}

fn assert_close(what: &str, got: f64, expected: f64, tolerance: f64) {
    assert!((got / expected - 1.0).abs() <= tolerance, "{what}: {got:.4}, the sheet gives {expected:.4}");
}

#[test]
fn sequential_rates_are_those_of_the_sheets() {
    // MB/s read and written; bytes a request, more where it takes large requests to use all of an array.
    let sheets = [
        ("hdd", 255.0, 255.0, 128 * KIB),
        ("pastel", 67.8, 67.8, 128 * KIB),
        ("graphene", 125.0, 125.0, 128 * KIB),
        ("suno", 342.0, 342.0, 128 * KIB),
        ("edel", 300.0, 175.0, 128 * KIB),
        ("aioli-ide", 58.0, 58.0, 128 * KIB),
        ("sata-7200-250g", 67.8, 67.8, 128 * KIB),
        // Without a write cache a single writer waits for the platter after each request.
        ("sas-10k-600g", 202.0, 194.0, 64 * MIB),
        ("pcie-ssd-100g", 740.0, 690.0, MIB),
        // Six and eight data disks; of 2 GiB that are written, the caches keep 512 MiB and all.
        ("array-12t", 804.0, 1_072.0, 64 * MIB),
        ("raid6-hdd", 2_040.0, 3_000.0, 64 * MIB),
        ("nvme-p4500-2t", 3_200.0, 1_050.0, 16 * MIB),
        ("nvme-9200-7t", 3_500.0, 3_500.0, 64 * MIB),
        ("ssd-s4500-960g", 550.0, 490.0, 16 * MIB),
        // One core.
        ("memory", 10_000.0, 10_000.0, 8 * MIB),
    ];
    assert_eq!(sheets.len(), Preset::all().len());
    for (name, read, write, bytes) in sheets {
        for (op, rate) in [(Op::Read, read), (Op::Write, write)] {
            let total = 2_048 * MIB;
            let seconds = run(&mut *parse(name).unwrap(), sequential(op, 0, bytes, total / bytes));
            assert_close(name, total as f64 / seconds / 1e6, rate, 0.05);
        }
    }
}

#[test]
fn a_sequential_writer_is_no_slower_with_larger_commands() {
    for name in ["hdd", "pastel", "graphene", "suno", "aioli-ide", "sata-7200-250g"] {
        let seconds = |bytes: u64| {
            let total = 1_024 * MIB;
            run(&mut *parse(name).unwrap(), sequential(Op::Write, 0, bytes, total / bytes))
        };
        let small = seconds(128 * KIB);
        for bytes in [256 * KIB, 512 * KIB, 768 * KIB, MIB, 4 * MIB] {
            assert_close(&format!("{name}, {bytes} bytes a command"), seconds(bytes), small, 0.05);
        }
    }
}

#[test]
fn innermost_rates_are_those_of_the_sheets() {
    for (name, rate) in [("pastel", 32.9), ("suno", 224.0)] {
        let mut device = parse(name).unwrap();
        let start = device.capacity() - 256 * MIB;
        let seconds = run(&mut *device, sequential(Op::Read, start, 128 * KIB, 2_048));
        assert_close(name, 256.0 * MIB as f64 / seconds / 1e6, rate, 0.05);
    }
}

#[test]
fn random_reads_take_a_seek_and_half_a_revolution() {
    // Milliseconds: average seek and latency of the sheets.
    for (name, seek, latency) in
        [("hdd", 7.4, 4.167), ("pastel", 8.5, 4.167), ("graphene", 14.0, 4.167), ("aioli-ide", 8.5, 4.167)]
    {
        let mut device = parse(name).unwrap();
        let capacity = device.capacity();
        let seconds = run(&mut *device, random(Op::Read, capacity, 4 * KIB, 4_096));
        assert_close(name, seconds / 4_096.0 * 1e3, seek + latency, 0.05);
    }
}

#[test]
fn the_t7k250_meets_its_specification_of_throughput() {
    // Specification 4.5.5: the typical times are 105 % of calculated ones.
    let mut device = parse("pastel").unwrap();
    let end = device.capacity();
    let seconds = run(&mut *device, random(Op::Read, end, 512, 4_096));
    assert_close("4096 random reads", seconds, 54.6 / 1.05, 0.05);
    // Time for 16 MiB in 128 commands, in the first and in the last zone, an access included.
    for (start, typical) in [(MIB, 0.28), (end - 32 * MIB, 0.55)] {
        let mut device = parse("pastel").unwrap();
        let mut now = Time::ZERO;
        let far = random(Op::Read, end, 512, 1);
        for transfer in far.chain(sequential(Op::Read, start, 128 * KIB, 128)) {
            now = now + device.serve(now, transfer);
        }
        let first = parse("pastel").unwrap().serve(Time::ZERO, random(Op::Read, end, 512, 1).next().unwrap());
        let seconds = (now.since(Time::ZERO) - first).as_secs_f64();
        assert_close("16 MiB", seconds, typical / 1.05, 0.05);
    }
}

#[test]
fn a_flash_read_has_the_latency_of_the_sheet() {
    // The second sheet says 0.1 ms, with one digit.
    for (name, latency_us, tolerance) in [("edel", 55.0, 0.02), ("pcie-ssd-100g", 100.0, 0.35)] {
        let mut device = parse(name).unwrap();
        let slots = device.capacity() / (4 * KIB);
        // On page boundaries, and never in sequence.
        let reads = (0..4_096).map(|i| i * 7_919 * 7_919 % slots * 4 * KIB);
        let reads = reads.map(|address| Transfer { op: Op::Read, address, bytes: 4 * KIB });
        let seconds = run(&mut *device, reads);
        assert_close(name, seconds / 4_096.0 * 1e6, latency_us, tolerance);
    }
}

#[test]
fn random_flash_writes_are_as_fast_as_sequential_ones_but_not_parts_of_units() {
    let time = |bytes, random_addresses: bool| {
        let mut device = parse("edel").unwrap();
        let capacity = device.capacity();
        if random_addresses {
            let aligned = random(Op::Write, capacity, bytes, 8_192)
                .map(|transfer| Transfer { address: transfer.address / (4 * KIB) * (4 * KIB), ..transfer });
            run(&mut *device, aligned)
        } else {
            run(&mut *device, sequential(Op::Write, 0, bytes, 8_192))
        }
    };
    assert_close("4 KiB", time(4 * KIB, true), time(4 * KIB, false), 0.01);
    assert!(time(512, true) > 3.0 * time(512, false));
}

const SEEK: SeekTimes = SeekTimes {
    track_to_track: Span::from_millis(1),
    average: Span::from_millis(8),
    full_stroke: Span::from_millis(15),
};
const PLAIN: DiskConfig = DiskConfig {
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
    segments: 8,
    segment_bytes: MIB,
    write_cache_bytes: 0,
};

#[test]
fn a_small_write_without_a_cache_waits_for_the_platter_to_come_round() {
    let mut disk = Disk::new(PLAIN);
    let seconds = run(&mut disk, sequential(Op::Write, 0, 4 * KIB, 1_000));
    assert_close("revolutions", seconds / 1_000.0, 8e-3, 0.01);
    let mut cached = Disk::new(DiskConfig { write_cache_bytes: MIB, ..PLAIN });
    let seconds = run(&mut cached, sequential(Op::Write, 0, 4 * KIB, 100_000));
    assert!(seconds < 100_000.0 * 150e-6, "{seconds} s with the cache on");
}

#[test]
fn a_write_cache_takes_a_burst_at_once_and_sorts_it() {
    let writes = || random(Op::Write, PLAIN.capacity, 4 * KIB, 30);
    let mut cached = Disk::new(DiskConfig { write_cache_bytes: MIB, ..PLAIN });
    let mut now = Time::ZERO;
    for transfer in writes() {
        now = now + cached.serve(now, transfer);
    }
    assert!(now.as_nanos() < 10_000_000, "30 writes took {} ns", now.as_nanos());
    let flush = cached.flush(now);
    assert!(flush > Span::from_millis(100), "{flush}");
    assert_eq!(cached.flush(now + flush), PLAIN.command_overhead);
    let sorted = (now + flush).since(Time::ZERO).as_secs_f64();
    assert!(sorted < 0.75 * run(&mut Disk::new(PLAIN), writes()), "{sorted} s");
    // Left alone, it empties the cache by itself.
    let mut idle = Disk::new(DiskConfig { write_cache_bytes: MIB, ..PLAIN });
    for transfer in writes() {
        idle.serve(Time::ZERO, transfer);
    }
    assert_eq!(idle.flush(Time::from_nanos(1_000_000_000)), PLAIN.command_overhead);
}

#[test]
fn what_is_cached_is_served_at_the_speed_of_the_interface() {
    let fast = Span::from_micros(100 + 219);
    let read = Transfer { op: Op::Read, address: 1 << 30, bytes: 64 * KIB };
    let mut disk = Disk::new(DiskConfig { write_cache_bytes: MIB, ..PLAIN });
    let mut now = Time::ZERO + disk.serve(Time::ZERO, read);
    let seeks = disk.repositions();
    // The same again, then what was read ahead while the reader thought.
    now = now + Span::from_millis(7);
    for address in [read.address, read.address + 64 * KIB, read.address + 128 * KIB] {
        let span = disk.serve(now, Transfer { address, ..read });
        assert!(span <= fast, "{span}");
        now = now + span + Span::from_millis(1);
    }
    assert_eq!(disk.repositions(), seeks);
    // What was just written, until it is on the medium.
    let write = Transfer { op: Op::Write, address: 1 << 35, bytes: 64 * KIB };
    now = now + disk.serve(now, write);
    assert!(disk.serve(now, Transfer { op: Op::Read, ..write }) <= fast);
    // A write makes the read cache forget what it covers.
    now = now + Span::from_millis(50);
    now = now + disk.serve(now, Transfer { op: Op::Write, ..read });
    now = now + disk.flush(now);
    assert!(disk.serve(now, read) > fast);
}

#[test]
fn a_sequential_reader_that_thinks_loses_no_revolution() {
    let mut disk = Disk::new(PLAIN);
    let mut now = Time::ZERO;
    let think = Span::from_micros(300);
    for transfer in sequential(Op::Read, 0, 64 * KIB, 4_000) {
        now = now + disk.serve(now, transfer) + think;
    }
    let rate = 4_000.0 * 64.0 * KIB as f64 / now.since(Time::ZERO).as_secs_f64() / 1e6;
    assert_close("rate", rate, 100.0, 0.01);
    assert_eq!(disk.repositions(), 0);
}

#[test]
fn interleaved_streams_cost_seeks_and_small_pieces_more_of_them() {
    let streams = |bytes: u64| {
        let mut disk = Disk::new(DiskConfig { segments: 0, ..PLAIN });
        let pieces = (0..64 * MIB / bytes).map(|index| Transfer {
            op: Op::Read,
            address: (index % 2) * 40_000_000_000 + index / 2 * bytes,
            bytes,
        });
        (run(&mut disk, pieces), disk.repositions())
    };
    let ((small_s, small), (large_s, large)) = (streams(64 * KIB), streams(4 * MIB));
    assert_eq!((small, large), (1_023, 15));
    assert!(small_s > 10.0 * large_s, "{small_s} and {large_s}");
}

/// A device that writes down what it is asked, and takes a nanosecond a byte.
struct Recorder(Arc<Mutex<Vec<Transfer>>>, u64);

impl Device for Recorder {
    fn serve(&mut self, _now: Time, transfer: Transfer) -> Span {
        self.0.lock().unwrap().push(transfer);
        Span::from_nanos(transfer.bytes)
    }
    fn flush(&mut self, _now: Time) -> Span {
        Span::ZERO
    }
    fn capacity(&self) -> u64 {
        self.1
    }
    fn repositions(&self) -> u64 {
        1
    }
}

#[test]
fn an_array_needs_members_and_a_chunk() {
    let member = || -> Vec<Box<dyn Device>> { vec![Box::new(Recorder(Arc::default(), 10))] };
    assert!(Raid0::new(Vec::new(), 1).is_none());
    assert!(Raid0::new(member(), 0).is_none());
    assert_eq!(Raid0::new(member(), 3).unwrap().capacity(), 9);
    assert_eq!(Raid0::new(member(), 100).unwrap().capacity(), 10);
    assert_eq!(
        Raid0::new(vec![parse("unit:1").unwrap(), parse("hdd").unwrap()], 512).unwrap().repositions(),
        0
    );
}

proptest! {
    #[test]
    fn an_array_deals_out_every_byte_once(
        members in 1usize..5, chunk in 1u64..20, rows in 1u64..10, address in 0u64..2_000, bytes in 0u64..2_000,
    ) {
        let logs: Vec<Arc<Mutex<Vec<Transfer>>>> = (0..members).map(|_| Arc::default()).collect();
        let devices = logs.iter().map(|log| Box::new(Recorder(log.clone(), chunk * rows)) as Box<dyn Device>);
        let mut raid = Raid0::new(devices.collect(), chunk).unwrap();
        let capacity = raid.capacity();
        prop_assert_eq!(capacity, chunk * rows * members as u64);
        let span = raid.serve(Time::ZERO, Transfer { op: Op::Write, address, bytes });
        // One byte at a time, by the definition of RAID-0.
        let bytes = bytes.clamp(1, capacity);
        let mut expected = vec![Vec::new(); members];
        for byte in (address % capacity..address % capacity + bytes).map(|byte| byte % capacity) {
            let stripe = byte / chunk;
            let member = (stripe % members as u64) as usize;
            expected[member].push(stripe / members as u64 * chunk + byte % chunk);
        }
        let longest = expected.iter().map(|bytes| bytes.len() as u64).max().unwrap();
        for (log, expected) in logs.iter().zip(expected) {
            let log = log.lock().unwrap();
            let got: Vec<u64> = log.iter().flat_map(|t| t.address..t.address + t.bytes).collect();
            prop_assert!(log.len() <= 2, "one piece, or two around the end");
            prop_assert_eq!(got, expected);
        }
        prop_assert!(span.as_nanos() >= longest && span.as_nanos() <= 2 * longest);
    }

    #[test]
    fn every_device_serves_anything_the_same_way_each_time(
        preset in 0..Preset::all().len(),
        calls in prop::collection::vec((any::<bool>(), any_address(), any_bytes(), any_pause()), 1..60),
    ) {
        let preset = Preset::all()[preset];
        let (mut one, mut other) = (preset.build(), preset.build());
        let mut now = Time::ZERO;
        for (write, address, bytes, pause) in calls {
            let transfer = Transfer { op: if write { Op::Write } else { Op::Read }, address, bytes };
            now = now + Span::from_nanos(pause);
            let span = one.serve(now, transfer);
            prop_assert_eq!(span, other.serve(now, transfer));
            prop_assert!(span > Span::ZERO || now.as_nanos() > u64::MAX / 2, "{} took no time", preset.name);
            now = now + span;
        }
        prop_assert_eq!(one.repositions(), other.repositions());
        let flush = one.flush(now);
        prop_assert_eq!(flush, other.flush(now));
        // A second flush has nothing left to do.
        prop_assert!(one.flush(now + flush) <= Span::from_micros(30));
    }

    #[test]
    fn a_longer_transfer_never_takes_less_time(
        preset in 0..Preset::all().len(), write: bool, warm in any_address(), address: u64,
        bytes in 1u64..64 * MIB, more in 0u64..64 * MIB,
    ) {
        let preset = Preset::all()[preset];
        let op = if write { Op::Write } else { Op::Read };
        let span = |bytes| {
            let mut device = preset.build();
            let now = Time::ZERO + device.serve(Time::ZERO, Transfer { op: Op::Read, address: warm, bytes: 4096 });
            device.serve(now, Transfer { op, address: address % (device.capacity() / 2), bytes })
        };
        prop_assert!(span(bytes) <= span(bytes + more));
    }

    #[test]
    fn no_disk_is_faster_than_its_interface_or_its_medium(
        calls in prop::collection::vec((any::<bool>(), 0u64..PLAIN.capacity / MIB, 1u64..4 * MIB), 1..40), cache: bool,
    ) {
        let config = DiskConfig { write_cache_bytes: if cache { 2 * MIB } else { 0 }, ..PLAIN };
        let mut disk = Disk::new(config);
        let (mut now, mut written) = (Time::ZERO, 0);
        for (write, address, bytes) in calls {
            // Ranges of their own, so that every write must reach the medium.
            let transfer = Transfer {
                op: if write { Op::Write } else { Op::Read }, address: address * 4 * MIB % PLAIN.capacity, bytes,
            };
            let span = disk.serve(now, transfer);
            prop_assert!(span.as_nanos() >= 100_000 + bytes * 10 / 3);
            now = now + span;
            written = if write { bytes } else { written };
        }
        now = now + disk.flush(now);
        // At least the last write is on the medium, at no more than a track's bytes in a revolution.
        prop_assert!(now.as_nanos() >= written * 80 / 9);
    }

    #[test]
    fn odd_disks_are_disks_too(
        capacity: u64, revolution: u64, heads: u32, outer: u64, inner: u64, switch: u64, seeks: [u64; 3],
        overhead in 0u64..1 << 40, interface: u64, segments in 0u32..9, segment_bytes: u64, write_cache_bytes: u64,
        calls in prop::collection::vec((any::<bool>(), any_address(), any_bytes()), 1..20),
    ) {
        let [track_to_track, average, full_stroke] = seeks.map(Span::from_nanos);
        let seek = SeekTimes { track_to_track, average, full_stroke };
        let mut disk = Disk::new(DiskConfig {
            capacity, revolution: Span::from_nanos(revolution), heads, outer_bytes_per_s: outer,
            inner_bytes_per_s: inner, track_switch: Span::from_nanos(switch), read_seek: seek, write_seek: seek,
            command_overhead: Span::from_nanos(overhead), interface_bytes_per_s: interface, segments, segment_bytes,
            write_cache_bytes,
        });
        let mut now = Time::ZERO;
        for (write, address, bytes) in calls {
            now = now + disk.serve(now, Transfer { op: if write { Op::Write } else { Op::Read }, address, bytes });
        }
        disk.flush(now);
    }
}

/// Addresses of all magnitudes, and near ones, so that caches are hit.
fn any_address() -> impl Strategy<Value = u64> {
    prop_oneof![
        any::<u64>(),
        (0u64..64).prop_map(|index| index * 64 * KIB),
        (0u32..64).prop_map(|bit| 1 << bit)
    ]
}

fn any_bytes() -> impl Strategy<Value = u64> {
    prop_oneof![Just(64 * KIB), 0u64..MIB, any::<u64>()]
}

/// Pauses between transfers, in nanoseconds; now and then to the end of time.
fn any_pause() -> impl Strategy<Value = u64> {
    prop_oneof![20 => Just(0), 20 => 0u64..100_000_000, 1 => any::<u64>()]
}

#[test]
fn ratios_tell_disks_from_flash() {
    let ratio = |spec, op, bytes| sequential_to_random_ratio(spec, op, bytes, 1).unwrap();
    for op in [Op::Read, Op::Write] {
        for disk in ["hdd", "pastel", "graphene", "suno"] {
            assert!(ratio(disk, op, 8 * KIB) > 20.0, "{disk}");
            assert!((0.95..1.25).contains(&ratio(disk, op, 8_000_000)), "{disk}");
        }
        for flash in ["edel", "pcie-ssd-100g"] {
            assert!((0.95..4.0).contains(&ratio(flash, op, 8 * KIB)), "{flash}");
        }
    }
    assert_eq!(ratio("unit:5", Op::Read, 4_096), 1.0);
    assert_eq!(ratio("unit:0", Op::Read, 0), 1.0);
    assert_eq!(ratio("pastel", Op::Write, u64::MAX), 1.0);
    assert!(sequential_to_random_ratio("floppy", Op::Read, 512, 1).is_err());
}

#[test]
fn specs_name_devices() {
    let span = |spec: &str| {
        parse(spec)
            .map(|mut device| device.serve(Time::ZERO, Transfer { op: Op::Read, address: 0, bytes: 1 }))
    };
    for (spec, ns) in [
        ("unit:100", 100_000),
        ("unit:100us", 100_000),
        ("unit:1.5", 1_500),
        ("unit:50ns", 50),
        ("unit:0", 0),
        ("unit:2ms", 2_000_000),
        ("unit:1s", 1_000_000_000),
    ] {
        assert_eq!(span(spec), Ok(Span::from_nanos(ns)), "{spec}");
    }
    for preset in Preset::all() {
        assert_eq!(parse(preset.name).unwrap().capacity(), preset.build().capacity());
    }
    for spec in ["unit:", "unit:fast", "unit:-1", "unit:1h", "unit:99999999999999999999s", "unit:1e3"] {
        let error = span(spec).unwrap_err();
        assert!(matches!(error, DeviceSpecError::BadTime { .. }), "{spec}");
        assert!(error.to_string().contains("such as 100, 50us or 1.5ms"), "{error}");
    }
    // One byte after a jump.
    for (spec, ms) in [("linear:15ms:1kB/s", 16), ("linear:0:500B/s", 2), ("linear:1s:8kbit/s", 1_001)] {
        assert_eq!(span(spec).map(|span| span.as_nanos() / 1_000_000), Ok(ms), "{spec}");
    }
    for spec in [
        "linear:",
        "linear:15ms",
        "linear:15ms:fast",
        "linear:soon:90MB/s",
        "linear:15ms:0MB/s",
        "linear:1ms:0",
    ] {
        let error = span(spec).unwrap_err();
        assert!(matches!(error, DeviceSpecError::BadLinear { .. }), "{spec}");
        assert!(error.to_string().contains("as in linear:15ms:90MB/s"), "{error}");
    }
    let message = |spec| span(spec).unwrap_err().to_string();
    assert!(
        message("grafene").contains("did you mean 'graphene'? expected unit:TIME"),
        "{}",
        message("grafene")
    );
    assert!(message("grafene").contains("hdd, pastel, graphene, suno, edel, aioli-ide"));
    assert!(!message("").contains("did you mean") && !message("quantum-disk-3000").contains("did you mean"));
    assert!(message("unit").contains("unit:100us"));
}
