//! What the choice gains on mixes to improve on, and where what it does not gain is lost. `docs/explanation/choosing.md` has the
//! figures, which the long tests print:
//!
//! `LOSSES_MIXES=480 cargo test -p iogate-sim --test losses NAME -- --ignored --nocapture`

use iogate_core::{SchedulerConfig, SchedulerKind};
use iogate_sim::choice::again::{Again, ROUNDS, WAYS};
use iogate_sim::choice::evaluate::{Known, Slowdowns, auto, in_parallel};
use iogate_sim::choice::losses::{Losses, Verdict};
use iogate_sim::choice::mix::{Mix, Set};
use iogate_sim::choice::run::run;

#[test]
fn who_knows_more_harms_nobody() {
    // It takes a fifth of a second with `fifo`.
    let of = Losses::new(Set::Tuning, 2_040);
    let known = of.ways.iter().filter(|(name, _)| !name.contains("auto") && !name.contains("told"));
    assert!(known.clone().all(|(_, of)| of.harmed() == 0), "{of:?}");
    let best = of.ways[0].1.mean();
    assert!(of.ways.iter().filter(|(name, _)| name.ends_with("best")).count() == 3);
    assert!(of.ways.iter().filter(|(name, _)| name.starts_with("sustained best")).count() == 3);
    let sustained = of.ways.iter().find(|(name, _)| *name == "sustained best");
    assert!(sustained.is_some_and(|(_, of)| of.mean() >= best), "{of:?}");
    assert_eq!(of.verdict, Verdict::Little);
}

fn said(name: &str, or: u64) -> u64 {
    std::env::var(name).map_or(or, |text| text.parse().unwrap())
}

fn number(at: usize) -> u64 {
    said("LOSSES_FIRST", 2_000) + at as u64 * said("LOSSES_STEP", 1)
}

#[test]
#[ignore = "some five minutes for 480 mixes: prints figures"]
fn what_is_gained() {
    let ways = [("with a profile", Known::Profile), ("without", Known::Nothing)];
    let one = |at: usize| {
        let mix = Mix::random(Set::Tuning, number(at));
        let fifo = SchedulerConfig::new(SchedulerKind::Fifo);
        let base = run(&mix, &fifo, None, u64::MAX);
        let of = ways.map(|(_, known)| {
            let ran = run(&mix, &fifo, Some(&mut auto(&mix, known)), u64::MAX);
            (Slowdowns::of(&ran, &base), ran.switches.len())
        });
        let seconds = *base.ends.iter().max().unwrap() as f64 / 1e9;
        let said = |(of, changes): &(Slowdowns, usize)| {
            format!("{:.4}:{}:{:.3}:{changes}", -of.mean(), of.harmed(), of.worst())
        };
        println!(
            "T;{};{};{seconds:.2};p={}|n={}",
            number(at),
            mix.storage.kind(),
            said(&of[0]),
            said(&of[1])
        );
        of
    };
    let all = in_parallel(said("LOSSES_MIXES", 480) as usize, 2, one, |_| ());
    for (way, (name, _)) in ways.iter().enumerate() {
        let gain = -all.iter().map(|of| of[way].0.mean()).sum::<f64>() / all.len() as f64;
        let harmed = all.iter().filter(|of| of[way].0.harmed() > 0).count();
        let changes: usize = all.iter().map(|of| of[way].1).sum();
        println!("{name}: gain {gain:.4}, {harmed} harmed, {changes} changes");
    }
}

#[test]
#[ignore = "some five minutes for 240 mixes: prints figures"]
fn what_is_gained_by_who_comes_again() {
    let one = |at: usize| Again::new(Set::Tuning, number(at));
    let all = in_parallel(said("LOSSES_MIXES", 240) as usize, 2, one, |_| ());
    for (way, (known, expects)) in WAYS.iter().enumerate() {
        for round in 0..ROUNDS as usize {
            let gain = -all.iter().map(|of| of.ways[way][round].mean()).sum::<f64>() / all.len() as f64;
            let harmed = all.iter().filter(|of| of.ways[way][round].harmed() > 0).count();
            println!(
                "{known:?}, ends are expected: {expects}, time {}: gain {gain:.4}, {harmed} harmed",
                round + 1
            );
        }
    }
}

#[test]
#[ignore = "some ten minutes for 480 mixes: prints figures"]
fn where_it_is_lost() {
    let one = |at: usize| {
        let number = number(at);
        let of = Losses::new(Set::Tuning, number);
        let ways: Vec<String> =
            of.ways.iter().map(|(_, of)| format!("{:.4},{}", -of.mean(), of.harmed())).collect();
        println!("{number},{},{:.2},{:?},{}", of.storage, of.seconds, of.verdict, ways.join(","));
        of
    };
    let all = in_parallel(said("LOSSES_MIXES", 480) as usize, 2, one, |_| ());
    let count = all.len() as f64;
    for (way, (name, _)) in all[0].ways.iter().enumerate() {
        let gain = -all.iter().map(|of| of.ways[way].1.mean()).sum::<f64>() / count;
        let harmed = all.iter().filter(|of| of.ways[way].1.harmed() > 0).count();
        println!("{name}: gain {gain:.4}, {harmed} harmed");
    }
    for verdict in Verdict::ALL {
        println!("{verdict:?}: {}", all.iter().filter(|of| of.verdict == verdict).count());
    }
}
