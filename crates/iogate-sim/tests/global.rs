//! One policy over the gates of many servers: what is served, held against caps and shares, while the load moves, while the coordinator is
//! gone, and while gates are cut off and come.

use iogate_sim::scenario::{Plan, Source};
use iogate_sim::world::{Observer, Served, simulate};

const MS: u64 = 1_000_000;
const MB: u64 = 1_000_000;

/// What was served, by application, in steps of 100 ms.
#[derive(Default)]
struct Seen {
    steps: Vec<Vec<u64>>,
    /// The step in which something was last served to the first application at a server at which it had not been before.
    moved: Vec<usize>,
    servers: Vec<u32>,
    ended: Vec<usize>,
}

impl Observer for Seen {
    fn served(&mut self, served: &Served) {
        let (app, step) = (served.app.0 as usize, (served.start.as_nanos() / (100 * MS)) as usize);
        if self.steps.len() <= app {
            self.steps.resize(app + 1, Vec::new());
            self.ended.resize(app + 1, 0);
        }
        if self.steps[app].len() <= step {
            self.steps[app].resize(step + 1, 0);
        }
        self.steps[app][step] += served.bytes;
        if app == 1 && !self.servers.contains(&served.server) {
            self.servers.push(served.server);
            self.moved.push(step);
        }
    }
}

impl Seen {
    /// Bytes of an application in each second that begins with a step.
    fn seconds(&self, app: usize) -> Vec<u64> {
        self.steps[app].windows(10).map(|steps| steps.iter().sum()).collect()
    }
}

fn run(text: &str) -> Seen {
    let open = |_: &str| Err("there is none".into());
    let plan = Plan::read(&Source { name: "global", text, settings: &[], quick: false, open: &open });
    let plan = plan.unwrap_or_else(|error| panic!("{error}"));
    let mut seen = Seen::default();
    simulate(&plan.points[0].scenario, 7, &mut seen).unwrap();
    seen
}

fn scenario(name: &str) -> String {
    let path = format!("{}/../../scenarios/{name}.toml", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(path).unwrap()
}

#[test]
fn a_cap_over_sixteen_gates_holds_and_is_used_while_the_load_moves() {
    let seen = run(&scenario("global-cap"));
    assert_eq!(seen.servers.len(), 16, "the load has been at all servers: {:?}", seen.servers);
    for (app, cap) in [(1, 800 * MB), (2, 160 * MB)] {
        let seconds = seen.seconds(app);
        let most = *seconds.iter().max().unwrap();
        assert!(most * 100 <= cap * 102, "application {app}: {most} bytes in a second");
    }
    // The first seconds are the allotter's own; from then on it is used, but for a second after each move.
    let last = seen.steps[1].len() - 15;
    let seconds = seen.seconds(1);
    let low: Vec<usize> = (20..last).filter(|&step| seconds[step] * 100 < 800 * MB * 98).collect();
    let near_a_move = |step: usize| seen.moved.iter().any(|&moved| moved <= step + 10 && step <= moved + 10);
    println!("{} moves, {} of {} seconds below 98 %", seen.moved.len(), low.len(), last - 20);
    assert!(low.iter().all(|&step| near_a_move(step)), "low at {low:?}, moved at {:?}", seen.moved);
}

#[test]
fn shares_are_of_all_gates_together() {
    let seen = run(&scenario("global-shares"));
    let of = |app: usize| seen.steps[app][50..150].iter().sum::<u64>() / 10;
    let rates = [of(1), of(2), of(3)];
    let sum: u64 = rates.iter().sum();
    println!("{rates:?}");
    assert!(sum * 100 <= 800 * MB * 102 && sum * 100 >= 800 * MB * 98, "{sum} bytes a second of {rates:?}");
    for (rate, weight) in rates.iter().zip([4, 2, 1]) {
        let due = 800 * MB * weight / 7;
        assert!(rate.abs_diff(due) * 100 <= due * 3, "{rate} of {due}: {rates:?}");
    }
}

#[test]
fn groups_have_their_cap_and_their_shares_over_all_gates() {
    let seen = run(&scenario("global-groups"));
    assert_eq!(seen.servers.len(), 16, "the load has been at all servers: {:?}", seen.servers);
    let steps = seen.steps.iter().skip(1).map(Vec::len).min().unwrap();
    let seconds: Vec<[u64; 5]> = (0..steps - 10)
        .map(|step| [1, 2, 3, 4, 5].map(|app: usize| seen.steps[app][step..step + 10].iter().sum()))
        .collect();
    // At any time no group has more than its cap, and all together no more than the total.
    let most = |of: fn(&[u64; 5]) -> u64| seconds.iter().map(of).max().unwrap();
    let (physics, all) = (most(|apps| apps[0] + apps[1]), most(|apps| apps.iter().sum()));
    println!("{physics} and {all} bytes in a second at most");
    assert!(physics * 100 <= 400 * MB * 102, "{physics} bytes of the group in a second");
    assert!(all * 100 <= 800 * MB * 102, "{all} bytes in a second");
    // Each second that begins a second after a move or a start, and ends before the next, has the group's cap and everybody's share.
    const LATE: usize = 300;
    let is_near =
        |step: usize| seen.moved.iter().chain([&LATE]).any(|&moved| moved <= step + 10 && step <= moved + 10);
    for (from, until, due) in
        [(20, LATE, [267, 133, 200, 0, 200]), (LATE, steps - 15, [267, 133, 100, 100, 200])]
    {
        let quiet: Vec<&[u64; 5]> =
            (from..until).filter(|step| !is_near(*step)).map(|step| &seconds[step]).collect();
        let least = quiet.iter().map(|apps| apps[0] + apps[1]).min().unwrap();
        assert!(least * 100 >= 400 * MB * 98, "{least} bytes of the group in a second");
        let mean = |app: usize| quiet.iter().map(|apps| apps[app]).sum::<u64>() / quiet.len() as u64 / MB;
        let rates = [0, 1, 2, 3, 4].map(mean);
        println!("{} seconds, {least} bytes of the group at least, {rates:?} MB/s of {due:?}", quiet.len());
        for (rate, due) in rates.into_iter().zip(due) {
            assert!(rate.abs_diff(due) * 100 <= due * 2, "{rates:?} MB/s, {due} expected");
        }
    }
}

/// Who has the cap: an application, or the group that it is in.
const CAPPED: [(&str, &str); 2] =
    [("", "max = \"160MB/s\""), ("[group.ours]\nmax = \"160MB/s\"", "group = \"ours\"")];

/// Sixteen servers, each with as much load as the others or one with all of it, and faults.
fn faulty((groups, cap): (&str, &str), load: &str, faults: &str) -> Seen {
    run(&format!(
        "title = \"faults\"\ntime_max = \"100s\"\n[clients]\nnodes = 16\n[network]\nlatency = \"50us\"\n[servers]\nnodes = 16\n\
         device = \"unit:100us\"\nstripe = \"1GiB\"\n[servers.gate]\nfair = true\ndepth = 4\n[global]\ngates = \"servers\"\n{groups}\n[[app]]\n\
         name = \"one\"\nprocesses = 16\nnodes = 16\nop = \"read\"\nrequest = \"32KiB\"\n{cap}\n{load}\n{faults}\n"
    ))
}

const EVEN: &str = "pattern = \"random\"\nsharing = \"shared\"\nfile_bytes = \"16GiB\"\nbytes = \"1GiB\"\noutstanding = 64\nbarrier = \"none\"";
const AT_ONE: &str = "pattern = \"random\"\nsharing = \"shared\"\nfile_bytes = \"1GiB\"\nbytes = \"1GiB\"\noutstanding = 64\nbarrier = \"none\"";

#[test]
fn without_a_coordinator_each_gate_has_its_part() {
    for (cap, (load, least)) in
        CAPPED.into_iter().flat_map(|cap| [(EVEN, 97), (AT_ONE, 6)].map(|load| (cap, load)))
    {
        let mut load = load.to_owned();
        if load == AT_ONE {
            // The other gates are there, too.
            load += "\n[[app]]\nname = \"others\"\nprocesses = 16\nop = \"read\"\npattern = \"random\"\nsharing = \"shared\"\n\
                     file_bytes = \"16GiB\"\nbytes = \"1GiB\"\nrequest = \"4KiB\"\nmax = \"1MB/s\"\nbarrier = \"none\"";
        }
        let gone = "[[fault]]\nkind = \"lost-coordinator\"\nfrom = \"20s\"\nuntil = \"80s\"";
        let seen = faulty(cap, &load, gone);
        let seconds = seen.seconds(1);
        let most = *seconds.iter().max().unwrap();
        assert!(most * 100 <= 160 * MB * 102, "{most} bytes in a second");
        let before = seconds[100..190].iter().min().unwrap();
        assert!(before * 100 >= 160 * MB * 97, "{before} bytes in a second before it is gone");
        let meanwhile = seconds[250..780].iter().min().unwrap();
        println!("{meanwhile} bytes a second at least meanwhile");
        assert!(meanwhile * 100 >= 160 * MB * least, "{meanwhile} bytes in a second meanwhile");
        let after = seconds[830..900].iter().min().unwrap();
        assert!(after * 100 >= 160 * MB * 97, "{after} bytes in a second after it is back");
    }
}

#[test]
fn gates_that_are_cut_off_and_gates_that_come_take_nothing_that_others_have() {
    let cut = "[[app]]\nname = \"late\"\nstart = \"30s\"\nprocesses = 1\nop = \"read\"\npattern = \"random\"\nsharing = \"shared\"\n\
               file_bytes = \"16GiB\"\nbytes = \"16MiB\"\nrequest = \"4KiB\"\n[[fault]]\nkind = \"cut-gate\"\nnode = 3\nfrom = \"10s\"\n\
               until = \"40s\"\n[[fault]]\nkind = \"cut-gate\"\nnode = 7\nfrom = \"15s\"";
    for (cap, load) in CAPPED.into_iter().flat_map(|cap| [EVEN, AT_ONE].map(|load| (cap, load))) {
        let seen = faulty(cap, load, cut);
        let seconds = seen.seconds(1);
        let most = *seconds[..740].iter().max().unwrap();
        assert!(most * 100 <= 160 * MB * 102, "{most} bytes in a second");
        // One that is cut off for more than a minute is taken for gone, and lives: it has its part too much.
        let most = *seconds.iter().max().unwrap();
        assert!(most * 100 <= 160 * MB * (102 + 100 / 16), "{most} bytes in a second");
        let least = *seconds[30..900].iter().min().unwrap();
        println!("{least} bytes a second at least");
        assert!(least * 100 >= 160 * MB * 80, "{least} bytes in a second");
    }
}
