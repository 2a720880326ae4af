//! Where what the choice does not gain is lost. `docs/auto.md` has the figures, which the long test prints:
//!
//! `LOSSES_MIXES=480 cargo test -p iogate-sim --test losses -- --ignored --nocapture`

use iogate_sim::choice::evaluate::in_parallel;
use iogate_sim::choice::losses::{Losses, Verdict};
use iogate_sim::choice::mix::Set;

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

#[test]
#[ignore = "some ten minutes for 480 mixes: prints figures"]
fn where_it_is_lost() {
    let said = |name: &str, or: u64| std::env::var(name).map_or(or, |text| text.parse().unwrap());
    let (first, step) = (said("LOSSES_FIRST", 2_000), said("LOSSES_STEP", 1));
    let one = |at: usize| {
        let number = first + at as u64 * step;
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
