//! A choice that begins with what was learnt of the storage before, against one that begins anew and one with a measured profile.
//! `docs/explanation/choosing.md` has the figures, which the long test prints:
//!
//! `KEPT_SET=tuning KEPT_MIXES=160 cargo test -p iogate-sim --test kept -- --ignored --nocapture`

use iogate_core::profile::Findings;
use iogate_core::{SchedulerConfig, SchedulerKind};
use iogate_sim::choice::evaluate::{Known, auto, in_parallel};
use iogate_sim::choice::kept::{Begins, Paired, auto_kept, learnt};
use iogate_sim::choice::mix::{Mix, Set};
use iogate_sim::choice::run::run;

#[test]
fn who_has_learnt_nothing_begins_anew_and_the_same_gives_the_same() {
    let fifo = SchedulerConfig::new(SchedulerKind::Fifo);
    let mix = Mix::random(Set::Tuning, 4);
    let with = |mut auto| run(&mix, &fifo, Some(&mut auto), u64::MAX);
    let anew = with(auto(&mix, Known::Nothing));
    assert_eq!(with(auto_kept(&mix, &Findings::default(), false)), anew);
    let before = Mix::random_before(Set::Tuning, 4);
    assert_eq!((&before.storage, before.depth), (&mix.storage, mix.depth));
    assert_ne!(before.processes, mix.processes);
    let findings = learnt(&before);
    assert!(!findings.is_empty());
    assert_eq!(findings, learnt(&before));
    assert_eq!(with(auto_kept(&mix, &findings, false)), with(auto_kept(&mix, &findings, false)));
}

#[test]
#[ignore = "a quarter of an hour for 160 mixes: prints figures"]
fn what_it_is_worth() {
    let said = |name: &str, default: &str| std::env::var(name).unwrap_or_else(|_| default.into());
    let set = if said("KEPT_SET", "tuning") == "testing" { Set::Testing } else { Set::Tuning };
    let mixes: usize = said("KEPT_MIXES", "160").parse().unwrap();
    println!("mix,storage,cells,{}", Begins::ALL.map(|of| format!("{of:?},harmed,worst")).join(","));
    let one = |number: usize| {
        let of = Paired::new(set, number as u64);
        let ways = of.ways.each_ref().map(|of| format!("{:.4},{},{:.3}", of.mean(), of.harmed(), of.worst()));
        println!("{number},{},{},{}", of.storage, of.cells, ways.join(","));
        of
    };
    let all = in_parallel(mixes, 2, one, |_| ());
    for (way, begins) in Begins::ALL.into_iter().enumerate() {
        let means = || all.iter().map(|of| of.ways[way].mean());
        let gain = -means().sum::<f64>() / all.len() as f64;
        let harmed = all.iter().filter(|of| of.ways[way].harmed() > 0).count();
        // Paired with the same mixes begun anew: the mean difference, and its standard error.
        let apart: Vec<f64> = all.iter().map(|of| of.ways[0].mean() - of.ways[way].mean()).collect();
        let mean = apart.iter().sum::<f64>() / apart.len() as f64;
        let square = apart.iter().map(|of| (of - mean).powi(2)).sum::<f64>();
        let error = (square / (apart.len() as f64 - 1.0) / apart.len() as f64).sqrt();
        println!("{begins:?}: gain {gain:.4}, {harmed} harmed, {mean:+.4} +- {error:.4} against anew");
    }
}
