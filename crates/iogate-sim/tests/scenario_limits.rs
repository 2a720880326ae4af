//! Values that are out of range, or of another kind than they look, and keys that nothing would use: what is said of them.

use iogate_core::Span;
use iogate_sim::scenario::{Plan, Source};
use iogate_sim::world::simulate;

const BASE: &str = "title = 'base'\n[clients]\nnodes = 8\n[servers]\nnodes = 1\ndevice = 'unit:1ms'\n[[app]]\nname = 'ior'\n\
                    processes = 8\npattern = 'contiguous'\nop = 'write'\nbytes = '1MiB'\nrequest = '32KiB'\n";

fn read(settings: &[&str]) -> Result<Plan, String> {
    let settings: Vec<String> = settings.iter().map(|text| (*text).to_owned()).collect();
    let open = |_: &str| Err("there are no files".to_owned());
    Plan::read(&Source { name: "x", text: BASE, settings: &settings, quick: false, open: &open })
        .map_err(|error| error.to_string())
}

#[track_caller]
fn says(settings: &[&str], said: &str) {
    let message = read(settings).expect_err(&settings.join(", "));
    assert!(message.contains(said), "{settings:?}: {message}\nshould contain\n{said}");
}

/// What is refused is of the right kind: only the limits say why it is refused.
#[test]
fn a_value_out_of_range_is_refused_with_the_range() {
    for (setting, said) in [
        ("time_max=9000h", "expected a time with its unit, as in 250ms, not 0; at most 8760h"),
        ("network.latency=9000h", "at most 8760h"),
        ("app.ior.compute=9000h", "each at most 8760h"),
        ("app.ior.compute={ uniform = ['2s', '1s'] }", "of two the lower first"),
        ("network.bandwidth=1048577TiB/s", "or unlimited; from 1B/s to 1048576TiB/s"),
        ("network.header=2MiB", "expected bytes, as in 4096 or 32KiB, from 0 to 1MiB"),
        ("servers.stripe=2TiB", "from 1 to 1TiB"),
        ("servers.cache={ kernel = 'modern', memory = '2KiB' }", "from 4KiB to 1024TiB"),
        ("app.ior.bytes=8388608TiB", "from 1 to 4194304TiB"),
        (
            "global={ gates = 'servers', report = '500us' }",
            "expected a time with its unit, as in 250ms, at least 1ms",
        ),
        ("fault=[{ kind = 'skew', layer = 'clients', node = 0, ahead = '-9000h' }]", "at most 8760h"),
        ("servers.device=exponential:9000h", "at most 8760h"),
    ] {
        says(&[setting], said);
    }
    let jobs = "jobs={ count = 1, nodes = [2, 1], compute_total = '1s', bytes_total = 1 }";
    says(
        &["batch={}", jobs],
        "jobs.nodes = [2, 1]: expected two of, the lower first (or one): a whole number",
    );
}

#[test]
fn a_value_of_another_kind_is_shown_as_that() {
    says(&["servers.nodes='2'"], "servers.nodes = \"2\": expected a whole number from 1 to 4096");
    says(&["repetitions=2.0"], "repetitions = 2.0: expected a whole number from 1 to 100000");
    says(&["alone='true'"], "alone = \"true\": expected true or false");
    says(&["app.ior.bytes=much"], "app.ior.bytes = much: expected bytes");
}

#[test]
fn what_nothing_would_use_is_refused() {
    says(
        &["app.ior.walltime=1h"],
        "app.ior.walltime: an application without a batch scheduler ([batch]) does not use it",
    );
    says(&["app.ior.start_step=1s"], "app.ior.start_step: an application without count does not use it");
    says(&["app.ior.node_step=1"], "app.ior.node_step: an application without count does not use it");
    // One of a sweep over how many there are is not in the way.
    read(&["app.ior.count=1", "app.ior.start_step=1s"]).unwrap();
    read(&["batch={}", "app.ior.walltime=1h"]).unwrap();
}

/// Tables and pictures know points by their values: of two with the same, nobody could say which is which.
#[test]
fn points_have_names_of_their_own() {
    let swept = |sweep: &str| {
        let open = |_: &str| Err("there are no files".to_owned());
        let text = format!("{BASE}{sweep}");
        let plan = Plan::read(&Source { name: "x", text: &text, settings: &[], quick: false, open: &open });
        plan.map(|plan| plan.points.len()).map_err(|error| error.to_string())
    };
    let two = |labels: [&str; 2], axis: &str| {
        let case = |(nodes, label)| format!("[[sweep.{axis}]]\n{label}\nservers.nodes = {nodes}\n");
        swept(&(1..).zip(labels).map(case).collect::<String>())
    };
    assert_eq!(two(["label = 'one'", "label = 'two'"], "case"), Ok(2));
    assert_eq!(two(["", ""], "case"), Ok(2));
    let same = two(["label = 'one'", "label = 'one'"], "case").unwrap_err();
    assert!(same.contains("two cases of case are called 'one': give each a label of its own"), "{same}");
    let twice = swept("[sweep]\nservers.nodes = [1, 2, 1]\n").unwrap_err();
    assert!(twice.contains("the sweep over servers.nodes has 1 twice: leave one out"), "{twice}");
    says(&["servers.nodes=[2, 2]"], "has 2 twice");
    let axes =
        swept("[[sweep.case]]\nservers.nodes = 1\n[[sweep.cases.case]]\nservers.nodes = 2\n").unwrap_err();
    assert!(axes.contains("two axes are called case"), "{axes}");
    let lines = two(["label = \"a\\nb\"", "label = 'c'"], "case").unwrap_err();
    assert!(lines.contains("case = \"a\\nb\": expected one line, without control characters"), "{lines}");
    says(&["title=\"\\u001b[31m\""], "expected one line, without control characters");
}

/// As it does in a file: from outside and in cases it did nothing.
#[test]
fn an_empty_table_is_a_table() {
    let first = |settings: &[&str]| read(settings).unwrap().points.remove(0).scenario;
    assert!(first(&[]).batch.is_none());
    assert!(first(&["batch={}"]).batch.is_some_and(|batch| batch.backfill));
    assert!(first(&["clients.gate={}"]).cluster.clients.gate.is_some());
    // What is there stays as it is.
    let both =
        first(&["servers.gate={ scheduler = 'sjf', depth = 3 }", "servers.gate={}"]).cluster.servers.gate;
    assert_eq!((both.name().as_str(), both.depth), ("sjf", 3));
}

/// Processes are the clients of a trace: one that cannot be read says nothing of them.
#[test]
fn a_trace_that_cannot_be_read_is_all_that_is_said() {
    let head = BASE.split("processes").next().unwrap();
    let text = format!("{head}pattern = 'trace'\nfile = 'none.csv'\n");
    let open = |_: &str| Err("there are no files".to_owned());
    let plan = Plan::read(&Source { name: "x", text: &text, settings: &[], quick: false, open: &open });
    let said = plan.unwrap_err().to_string();
    assert!(said.contains("none.csv: there are no files") && said.lines().count() == 1, "{said}");
}

/// As traces of several jobs have them that were put together: each job has a client 1.
#[test]
fn clients_of_two_applications_in_a_trace_are_two_processes() {
    let head = BASE.split("processes").next().unwrap();
    let text = format!("{head}pattern = 'trace'\nfile = 't.csv'\n");
    let rows = "time_us,app,client,file,op,offset,bytes\n0,1,1,a,r,0,8\n0,2,1,a,r,8,8\n1,1,1,a,r,16,8\n1,1,2,a,r,24,8\n";
    let open = |_: &str| Ok(rows.to_owned());
    let plan = Plan::read(&Source { name: "x", text: &text, settings: &[], quick: false, open: &open });
    assert_eq!(plan.unwrap().points[0].scenario.apps[0].processes, 3);
}

/// A mean time takes all units that times have: minutes and hours were accepted, and refused by the run.
#[test]
fn a_random_device_may_take_hours() {
    let plan = read(&["servers.device=exponential:2h", "app.ior.bytes=32KiB", "time_max=8760h"]).unwrap();
    let result = simulate(&plan.points[0].scenario, 1, &mut ()).unwrap();
    assert!(!result.cut_off && result.makespan > Span::from_secs(3_600));
}

#[test]
fn a_file_that_is_larger_than_its_device_is_refused() {
    let random = ["app.ior.pattern=random", "app.ior.op=read", "app.ior.bytes=4MiB", "app.ior.request=4KiB"];
    let of = |more: &[&'static str]| [&random[..], more].concat();
    says(
        &of(&["servers.device=aioli-ide", "app.ior.file_bytes=1TiB"]),
        "ior has a file of 1TiB, of which a server gets 1TiB: its device ('aioli-ide') has ",
    );
    read(&of(&["servers.device=aioli-ide", "app.ior.file_bytes=1TiB", "servers.nodes=16"])).unwrap();
    read(&of(&["app.ior.file_bytes=4194303TiB"])).unwrap();
}

/// Extents are given out by first use: that is said where it would make a disk look faster than it is.
#[test]
fn random_accesses_that_first_use_draws_together_are_named() {
    let random = ["app.ior.pattern=random", "app.ior.op=read", "app.ior.bytes=4MiB", "app.ior.request=4KiB"];
    let sparse = |more: &[&'static str]| {
        read(&[&random[..], more].concat()).unwrap().points[0].scenario.sparse().join("\n")
    };
    let said = sparse(&["servers.device=hdd", "app.ior.file_bytes=900GiB"]);
    assert!(said.contains("ior: random accesses are faster here than on a disk"), "{said}");
    assert!(said.contains("900GiB of a file in 3600 extents and gets 8192 requests"), "{said}");
    assert!(said.contains("servers.extent = \"1TiB\""), "{said}");
    for fits in [
        &["servers.device=hdd", "app.ior.file_bytes=900GiB", "servers.extent=1TiB"][..],
        &["servers.device=hdd", "app.ior.file_bytes=4GiB"],
        &["servers.device=ssd-s4500-960g", "app.ior.file_bytes=200GiB"],
        &["app.ior.file_bytes=900GiB"],
    ] {
        assert_eq!(sparse(fits), "", "{fits:?}");
    }
}

fn read_text(text: &str, settings: &[&str]) -> Result<Plan, String> {
    let settings: Vec<String> = settings.iter().map(|text| (*text).to_owned()).collect();
    let open = |_: &str| Err("there are no files".to_owned());
    Plan::read(&Source { name: "x", text, settings: &settings, quick: false, open: &open })
        .map_err(|error| error.to_string())
}

#[test]
fn a_quick_form_that_is_not_asked_for_is_checked_all_the_same() {
    let wrong = format!("{BASE}[quick]\nservers.nodez = 3\n");
    let message = read_text(&wrong, &[]).unwrap_err();
    assert!(message.starts_with("x:15: unknown key 'nodez' in servers"), "{message}");
    let right = format!("{BASE}[quick]\nservers.nodes = 3\napp.ior.request = '4KiB'\n");
    read_text(&right, &[]).unwrap();
    read_text(&right, &["app.ior.bytes=2MiB"]).unwrap();
}

#[test]
fn a_table_that_is_there_twice_is_named_once() {
    let text =
        BASE.replace("[[app]]", "[app]") + "[app]\nname = 'two'\nprocesses = 1\npattern = 'contiguous'\n";
    assert_eq!(
        read_text(&text, &[]).unwrap_err(),
        "x:14: [app] is there twice, first in line 7: write [[app]] for each"
    );
    let text = BASE.to_owned() + "[servers]\nstripe = 4096\n";
    assert_eq!(
        read_text(&text, &[]).unwrap_err(),
        "x:14: [servers] is there twice, first in line 4: put its keys into one"
    );
}

#[test]
fn a_setting_s_list_without_a_bracket_is_no_word() {
    says(&["app.ior.bytes=[1MiB"], "a list without its ']': expected one as in [1, 2]");
    says(&["servers.gate.scheduler=[fifo"], "a list without its ']'");
    says(&["servers.gate.scheduler=fifo]"], "a list without its '['");
    read(&["servers.gate.scheduler=[fifo, aioli]"]).unwrap();
}

#[test]
fn a_scheduler_s_parameter_has_its_path_and_one_of_a_thing_is_no_plural() {
    says(&["servers.gate={ scheduler = 'app-window', window = 1 }"], "servers.gate.window = '1': expected ");
    says(
        &["fault=[{ kind = 'slow-server', server = 3, factor = 2.0 }]"],
        "fault.0.server = 3: there is 1 server; expected 0",
    );
    says(&["app.io.bytes=1"], "there is no 'io': expected 0, ior or *");
}
