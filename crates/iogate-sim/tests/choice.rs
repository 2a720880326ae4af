//! The evaluation of the automatic choice: repeatable, and nothing is lost in it.

use iogate_core::{SchedulerConfig, SchedulerKind};
use iogate_sim::choice::evaluate::{Judged, Known, auto, in_parallel};
use iogate_sim::choice::mix::{Mix, Set};
use iogate_sim::choice::run::{Ran, run};

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
