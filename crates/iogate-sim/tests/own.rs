//! Schedulers of the caller's own in simulated worlds.

use std::num::NonZero;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU32, Ordering};

use iogate_core::Time;
use iogate_core::sched::{Choice, Own, Waiting};
use iogate_sim::experiment::{Done, run_lent};
use iogate_sim::result::RunResult;
use iogate_sim::scenario::{Plan, Source};
use iogate_sim::world::Lent;

const TEXT: &str = r#"
    title = "own"
    repetitions = 1
    clients.nodes = 8
    servers = { nodes = 2, device = "sata-7200-250g", gate = { scheduler = "fifo", depth = 2 } }
    app = [{ name = "a", processes = 8, pattern = "strided", op = "read", bytes = "1MiB", request = "64KiB" }]
"#;

fn plan(settings: &[&str]) -> Result<Plan, String> {
    let settings: Vec<String> = settings.iter().map(|&setting| setting.to_owned()).collect();
    let open = |_: &str| Err("none".into());
    Plan::read(&Source { name: "t", text: TEXT, settings: &settings, quick: false, open: &open })
        .map_err(|error| error.to_string())
}

/// By arrival; picks the request with this number, if it is to pick a certain one.
#[derive(Default)]
struct List {
    waiting: Vec<u64>,
    says: Option<u64>,
}

impl Own for List {
    fn insert(&mut self, _now: Time, request: &Waiting) -> Result<(), String> {
        self.waiting.push(request.number);
        Ok(())
    }

    fn pick(&mut self, _now: Time, _patience: bool, picked: &mut Vec<u64>) -> Result<Choice, String> {
        picked.push(self.says.unwrap_or_else(|| self.waiting.remove(0)));
        Ok(Choice::Dispatch)
    }
}

fn run(plan: &Plan, threads: usize, lent: Lent<'_>) -> Result<Vec<RunResult>, String> {
    let all: Vec<u64> = (0..plan.runs()).collect();
    let threads = NonZero::new(threads).unwrap();
    let done =
        run_lent(plan, &all, threads, &|_| None::<()>, &|_: &Done<()>| ControlFlow::Continue(()), lent);
    Ok(done.map_err(|error| error.to_string())?.into_iter().map(|done| done.result).collect())
}

#[test]
fn it_schedules_the_gates_that_are_its_own() {
    let plan = plan(&["servers.gate.scheduler=[\"fifo\", \"own:list\"]"]).unwrap();
    assert_eq!(plan.own().into_iter().collect::<Vec<_>>(), ["list"]);
    for threads in [1, 2] {
        let made = AtomicU32::new(0);
        let scheduler = |name: &str| {
            made.fetch_add(1, Ordering::Relaxed);
            (name == "list").then(|| Box::<List>::default() as Box<dyn Own>)
        };
        let results = run(&plan, threads, Lent { scheduler: &scheduler, ..Lent::NONE }).unwrap();
        let [fifo, own] = &results[..] else { panic!("two points") };
        assert_eq!(made.into_inner(), 2, "one for each server");
        assert_eq!((fifo.makespan, fifo.requests), (own.makespan, own.requests));
        assert_eq!([&fifo.layers[0].scheduler, &own.layers[0].scheduler], ["fifo", "own:list"]);
    }
}

#[test]
fn one_that_is_missing_or_wrong_ends_the_run() {
    let plan = plan(&["servers.gate.scheduler=own:list"]).unwrap();
    let missing = run(&plan, 1, Lent::NONE).unwrap_err();
    assert!(missing.contains("the gate of servers: no scheduler 'own:list'"), "{missing}");
    let wrong = |_: &str| Some(Box::new(List { says: Some(1 << 40), ..List::default() }) as Box<dyn Own>);
    let wrong = run(&plan, 2, Lent { scheduler: &wrong, ..Lent::NONE }).unwrap_err();
    assert!(wrong.contains("the scheduler of servers: it picked request 1099511627776"), "{wrong}");
}

#[test]
fn it_has_a_name_and_no_parameters() {
    let nameless = plan(&["servers.gate.scheduler=own:"]).unwrap_err();
    assert!(nameless.contains("expected a name behind it"), "{nameless}");
    let parameters = plan(&["servers.gate={scheduler = \"own:list\", quantum = 3}"]).unwrap_err();
    assert!(parameters.contains("a gate with own:list"), "{parameters}");
    assert!(plan(&["servers.gate={scheduler = \"own:list\", depth = 3}"]).is_ok());
}

#[test]
fn the_caller_ends_a_run_that_is_underway() {
    let plan = plan(&["app.a.bytes=1GiB"]).unwrap();
    let asked = AtomicU32::new(0);
    let is_stopped = || asked.fetch_add(1, Ordering::Relaxed) == 2;
    let stopped = run(&plan, 1, Lent { is_stopped: &is_stopped, ..Lent::NONE }).unwrap_err();
    assert!(stopped.ends_with("stopped"), "{stopped}");
    assert_eq!(asked.into_inner(), 3);
}
