//! x
use iogate_sim::choice::evaluate::in_parallel;
use iogate_sim::choice::kept::{Paired, WAYS};
use iogate_sim::choice::mix::Set;

#[test]
#[ignore = "long"]
fn explore() {
    let from: u64 = std::env::var("FROM").map_or(0, |n| n.parse().unwrap());
    let count: usize = std::env::var("MIXES").map_or(24, |n| n.parse().unwrap());
    let all = in_parallel(count, 2, |n| Paired::new(Set::Tuning, from + n as u64), |_| {});
    println!("mix,storage,seconds,cells,{}", WAYS.join(";"));
    for (n, of) in all.iter().enumerate() {
        let ways: Vec<String> =
            of.ways.iter().map(|w| format!("{:.4}:{}:{:.3}", w.mean(), w.harmed(), w.worst())).collect();
        println!("ROW,{},{},{:.2},{},{}", from + n as u64, of.storage, of.seconds, of.cells, ways.join(","));
    }
}
