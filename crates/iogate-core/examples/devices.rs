//! Prints what the presets give: rates, access times, sequential-to-random ratios, and the cost of `serve`.
//!
//! `cargo run --release -p iogate-core --example devices`

use std::hint::black_box;
use std::time::Instant;

use iogate_core::device::{Device, Preset, Transfer, parse, sequential_to_random_ratio};
use iogate_core::{Op, Time};

const SEED: u64 = 1;
/// AGIOS, table I: sequential-to-random ratios for 8 KB requests (its text has 8 MB, see docs/devices.md), write and read.
const AGIOS: [(&str, f64, f64); 4] =
    [("pastel", 21.29, 38.91), ("graphene", 15.12, 40.68), ("suno", 8.17, 25.46), ("edel", 0.66, 2.37)];

fn main() {
    println!("rates in MB/s (128 KiB requests, outermost), random 4 KiB accesses per second over the device");
    println!("{:16} {:>9} {:>9} {:>9} {:>9}", "preset", "seq read", "seq write", "rnd read", "rnd write");
    for preset in Preset::all() {
        let per_s = |op, bytes, random| {
            let mut device = preset.build();
            let requests = 4_096;
            f64::from(requests) / run(&mut *device, op, bytes, requests, random)
        };
        let rate = |op| per_s(op, 128 << 10, false) * f64::from(128 << 10) / 1e6;
        println!(
            "{:16} {:9.1} {:9.1} {:9.1} {:9.1}",
            preset.name,
            rate(Op::Read),
            rate(Op::Write),
            per_s(Op::Read, 4096, true),
            per_s(Op::Write, 4096, true)
        );
    }

    println!("\nsequential-to-random ratios, write/read (AGIOS: table I, 8 KB)");
    println!("{:16} {:>13} {:>13} {:>13} {:>13}", "preset", "8 MB", "32 KiB", "8 KiB", "AGIOS");
    for preset in Preset::all() {
        let ratio = |op, bytes| sequential_to_random_ratio(preset.name, op, bytes, SEED).unwrap();
        let pair = |bytes| format!("{:.2}/{:.2}", ratio(Op::Write, bytes), ratio(Op::Read, bytes));
        let paper = AGIOS.iter().find(|row| row.0 == preset.name);
        println!(
            "{:16} {:>13} {:>13} {:>13} {:>13}",
            preset.name,
            pair(8_000_000),
            pair(32 << 10),
            pair(8 << 10),
            paper.map(|row| format!("{:.2}/{:.2}", row.1, row.2)).unwrap_or_default()
        );
    }

    println!("\nnanoseconds for one call of serve: median (least, most) of 9 runs of 200,000");
    println!("{:16} {:>18} {:>18} {:>18} {:>18}", "device", "seq read", "rnd read", "seq write", "rnd write");
    for spec in ["unit:100", "hdd", "pastel", "suno", "edel", "pcie-ssd-100g"] {
        let cost = |op, random| {
            let mut samples: Vec<f64> = (0..9)
                .map(|_| {
                    let mut device = parse(spec).unwrap();
                    let requests = 200_000;
                    let begin = Instant::now();
                    black_box(run(&mut *device, op, 8192, requests, random));
                    begin.elapsed().as_nanos() as f64 / f64::from(requests)
                })
                .collect();
            samples.sort_by(f64::total_cmp);
            format!("{:.0} ({:.0}, {:.0})", samples[4], samples[0], samples[8])
        };
        println!(
            "{spec:16} {:>18} {:>18} {:>18} {:>18}",
            cost(Op::Read, false),
            cost(Op::Read, true),
            cost(Op::Write, false),
            cost(Op::Write, true)
        );
    }
}

/// Issues requests one after the other; the seconds that they take.
fn run(device: &mut dyn Device, op: Op, bytes: u64, requests: u32, random: bool) -> f64 {
    let mut now = Time::ZERO;
    let mut state = SEED;
    let capacity = device.capacity();
    for index in 0..u64::from(requests) {
        // Knuth's linear congruential generator; its upper bits are good enough for addresses.
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let address = if random {
            ((u128::from(state) * u128::from(capacity)) >> 64) as u64 & !4095
        } else {
            index * bytes
        };
        now = now + device.serve(now, Transfer { op, address, bytes });
    }
    (now + device.flush(now)).since(Time::ZERO).as_secs_f64()
}
