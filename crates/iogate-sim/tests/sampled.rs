//! What accounts of samples say, against exact ones of the same time: the mixes of `blame.rs`, of which nobody comes to an end here.

use iogate_core::Time;
use iogate_core::blame::is_as_much;
use iogate_sim::choice::evaluate::in_parallel;
use iogate_sim::choice::gains::Known;
use iogate_sim::choice::mix::{Mix, Set};
use iogate_sim::choice::sampling::{Charged, charged};

/// Some of them; docs/why.md states all 40 (`SAMPLED_MIXES=40`), which take minutes.
const MIXES: usize = 12;
const LOOKS: [u64; 2] = [5, 20];

/// How often samples say what exact accounts do.
#[derive(Default)]
struct Right {
    mixes: u32,
    /// Amounts of at least 5 % of the time, those that are within 15 %, and those that are within what is said to be sure.
    amounts: u32,
    near: u32,
    sure: u32,
    /// What is said to be sure, of the amounts, summed up.
    plus_minus: f64,
    /// Applications that somebody slows down, and those of whom samples name the one whom exact accounts charge most.
    slowed: u32,
    named: u32,
}

impl Right {
    fn add(&mut self, pairs: &[Charged]) {
        self.mixes += 1;
        for pair in pairs.iter().filter(|pair| pair.exact >= 0.05 * pair.busy && pair.busy > 0.0) {
            let off = (pair.sampled - pair.exact).abs();
            self.amounts += 1;
            self.near += u32::from(off <= 0.15 * pair.exact);
            self.sure += u32::from(off <= pair.plus_minus);
            self.plus_minus += pair.plus_minus / pair.exact;
        }
        for app in 1..=4 {
            let of_app = || pairs.iter().filter(|pair| pair.app == app);
            let most = |by: fn(&Charged) -> f64| of_app().max_by(|a, b| by(a).total_cmp(&by(b)));
            let (Some(exact), Some(sampled)) = (most(|pair| pair.exact), most(|pair| pair.sampled)) else {
                continue;
            };
            if exact.exact >= 0.05 * exact.busy && exact.busy > 0.0 {
                self.slowed += 1;
                self.named += u32::from(is_as_much(exact.sampled, sampled.sampled));
            }
        }
    }
}

/// What is stated in docs/why.md.
#[test]
fn samples_name_whom_exact_accounts_name_and_charge_about_as_much() {
    let mixes = std::env::var("SAMPLED_MIXES").map_or(MIXES, |mixes| mixes.parse().unwrap());
    let looks = LOOKS.map(|seconds| Time::from_nanos(seconds * 1_000_000_000));
    let mut all = LOOKS.map(|_| Right::default());
    let each = |number: usize| charged(&Mix::random(Set::Testing, number as u64), Known::Profile, &looks);
    for seen in in_parallel(mixes, 2, each, |_| {}) {
        all.iter_mut().zip(&seen).for_each(|(right, pairs)| right.add(pairs));
    }
    for (seconds, Right { mixes, amounts, near, sure, plus_minus, slowed, named }) in
        LOOKS.into_iter().zip(all)
    {
        let percent = 100.0 * plus_minus / f64::from(amounts);
        println!(
            "{seconds} s of {mixes} mixes: {named} of {slowed} names, {near} of {amounts} amounts, {sure} as surely as said (+- {percent:.0} %)"
        );
        assert!(amounts >= 2 * mixes && slowed >= mixes, "{amounts} {slowed}");
        assert!(100 * named >= 98 * slowed, "{named} of {slowed} names");
        assert!(100 * near >= 90 * amounts, "{near} of {amounts} amounts");
        assert!(100 * sure >= 95 * amounts, "{sure} of {amounts} amounts");
    }
}
