//! The evaluation of the automatic choice: repeatable, and nothing is lost in it.

use iogate_core::{SchedulerConfig, SchedulerKind};
use iogate_sim::choice::again::{Again, ROUNDS};
use iogate_sim::choice::evaluate::{Judged, Known, MOMENT, Slowdowns, auto, disturbed, in_parallel};
use iogate_sim::choice::mix::{Mix, Set};
use iogate_sim::choice::run::{Ran, SLICE, run, run_with};

fn with(mix: &Mix, known: Known) -> Ran {
    let fifo = SchedulerConfig::new(SchedulerKind::Fifo);
    run(mix, &fifo, Some(&mut auto(mix, known)), u64::MAX)
}

#[test]
fn the_same_mix_gives_the_same_choices_and_nothing_is_lost() {
    let mut switches = 0;
    for number in [4, 28] {
        let mix = Mix::random(Set::Tuning, number);
        assert_eq!(mix, Mix::random(Set::Tuning, number));
        for known in [Known::Profile, Known::Nothing] {
            let ran = with(&mix, known);
            assert_eq!(ran, with(&mix, known), "mix {number}");
            switches += ran.switches.len();
            for (process, done) in mix.processes.iter().zip(&ran.requests) {
                assert_eq!(process.requests, *done, "mix {number}: {process:?}");
            }
            let asked =
                mix.processes.iter().map(|of| u64::from(of.requests) * u64::from(of.stints[0].1.bytes));
            assert_eq!(ran.bytes, asked.sum::<u64>(), "mix {number}: served once");
            assert!(ran.memory_max <= 4 << 20, "mix {number}: {} bytes", ran.memory_max);
        }
    }
    assert!(switches > 0, "nothing was chosen, so this shows nothing");
}

#[test]
fn results_do_not_depend_on_how_many_threads_there_are() {
    let means = |threads| {
        let work = |number: usize| Judged::new(&Mix::random(Set::Tuning, number as u64));
        in_parallel(3, threads, work, |_| ())
            .iter()
            .map(|of| (of.best(true).1.mean(), of.chosen[0].0.clone(), of.chosen[1].0.clone()))
            .collect::<Vec<_>>()
    };
    assert_eq!(means(1), means(3));
}

#[test]
fn the_best_of_the_fixed_ones_is_not_worse_than_any() {
    let of = Judged::new(&Mix::random(Set::Tuning, 1));
    for (name, slowdowns) in &of.fixed {
        assert!(of.best(false).1.mean() <= slowdowns.mean(), "{name}");
        assert!(slowdowns.harmed() > 0 || of.best(true).1.mean() <= slowdowns.mean(), "{name}");
    }
    assert_eq!(of.best(true).1.harmed(), 0);
    assert_eq!(of.fixed[0].1.mean(), 0.0, "fifo against itself");
}

/// Who comes back for more comes in the order in which it was served, and `fifo` keeps that order: what another scheduler leaves behind
/// outlasts it, so that it can harm for a moment who gains by it for good.
#[test]
fn a_moment_of_another_scheduler_harms_who_gains_by_it_for_good() {
    let [fifo, sjf] = [SchedulerKind::Fifo, SchedulerKind::Sjf].map(SchedulerConfig::new);
    let mix = Mix::random(Set::Tuning, 1126);
    let base = run(&mix, &fifo, None, u64::MAX);
    assert_eq!(disturbed(&mix, &fifo).ends, base.ends, "the same one is no other one");
    let moment = disturbed(&mix, &sjf);
    // What came before is the same, and all is carried out.
    let before = (MOMENT.0.as_nanos() / SLICE.as_nanos()) as usize;
    assert_eq!(moment.progress[..before], base.progress[..before]);
    assert_eq!(moment.requests, base.requests);
    // It is over after the moment.
    let mut is_due = true;
    let stays = run_with(&mix, &fifo, None, u64::MAX, |now, gate, _| {
        if now >= MOMENT.0 && std::mem::take(&mut is_due) {
            gate.switch(now, &sjf);
        }
    });
    assert_eq!(moment.progress[..=before], stays.progress[..=before]);
    assert_ne!(moment.ends, stays.ends);
    let lost = |ran: &Ran| {
        (Slowdowns::of(ran, &base).worst() - 1.0) * base.ends.iter().max().copied().unwrap_or(0) as f64
    };
    let always = lost(&run(&mix, &sjf, None, u64::MAX));
    let (lost, span) = (lost(&moment), MOMENT.1.as_nanos() as f64);
    // More than all of the moment: what follows is slower, too, and it is with `fifo`.
    assert!(lost > 2.0 * span && always < 0.0, "{lost} {always} of {:?}", base.ends);
}

/// A few mixes that were improved on, four times each: whose ends are expected gain more, and the same calls give the same.
#[test]
fn who_comes_again_gains_by_what_it_was_before() {
    const MIXES: usize = 6;
    let again = |number: usize| Again::new(Set::Tuning, 2_000 + number as u64);
    let all = in_parallel(MIXES, 2, again, |_| ());
    assert_eq!(again(0).ways, all[0].ways);
    for of in &all {
        assert!(of.memory_max <= 4 << 20, "{} bytes", of.memory_max);
        // Nothing is expected yet: both do the same.
        assert_eq!(of.ways[0][..2], of.ways[1][..2]);
        assert_eq!(of.ways[2][..2], of.ways[3][..2]);
    }
    let gain = |way: usize| -all.iter().map(|of| of.ways[way][ROUNDS as usize - 1].mean()).sum::<f64>();
    // With a profile and without.
    for (with, blind) in [(0, 1), (2, 3)] {
        let (with, blind) = (gain(with), gain(blind));
        assert!(with > blind + 0.03 * MIXES as f64, "{with} {blind}");
    }
}
