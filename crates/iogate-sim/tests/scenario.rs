//! Scenario texts: what they become, and what is said about those that are wrong.

use std::fs;
use std::path::Path;

use iogate_core::Span;
use iogate_core::coord::CoordConfig;
use iogate_core::coord::backoff::BackoffConfig;
use iogate_sim::rng::Distribution;
use iogate_sim::scenario::schema::Schema;
use iogate_sim::scenario::{
    Barrier, Coordination, FaultKind, PROBLEMS_MAX, Pattern, Plan, ScenarioError, Sharing, Source, Spread,
};

const BASE: &str = r#"title = "base"
[clients]
nodes = 8
[servers]
nodes = 4
device = "unit:1ms"
[[app]]
name = "ior"
processes = 8
pattern = "contiguous"
op = "write"
bytes = "1MiB"
request = "32KiB"
"#;

const TRACE: &str = "time_us,app,client,file,op,offset,bytes\n\
                     1000,1,7,a,r,0,512\n1000,1,9,a,r,512,512\n1500,1,7,a,w,1024,512\n";

fn open(name: &str) -> Result<String, String> {
    match name {
        "trace.csv" => Ok(TRACE.into()),
        "far.csv" => Ok(TRACE.replace("1024", "9223372036854775807")),
        "bad.csv" => Ok("x,y\n".into()),
        _ => Err("no such file".into()),
    }
}

fn read_with(text: &str, settings: &[&str], quick: bool) -> Result<Plan, ScenarioError> {
    let settings: Vec<String> = settings.iter().map(|text| (*text).to_owned()).collect();
    Plan::read(&Source { name: "t.toml", text, settings: &settings, quick, open: &open })
}

fn read(text: &str) -> Result<Plan, ScenarioError> {
    read_with(text, &[], false)
}

/// The whole message about a text that is refused.
#[track_caller]
fn refusal(text: &str) -> String {
    read(text).expect_err("it should be refused").to_string()
}

/// The message about `BASE` with settings.
#[track_caller]
fn refused(settings: &[&str]) -> String {
    read_with(BASE, settings, false).expect_err("it should be refused").to_string()
}

#[test]
fn a_small_scenario_has_the_defaults() {
    let plan = read(BASE).unwrap();
    assert!(plan.axes.is_empty());
    let [point] = plan.points.as_slice() else { panic!("one point") };
    assert_eq!(point.label(), "");
    let scenario = &point.scenario;
    assert_eq!((scenario.seed, scenario.repetitions, scenario.confidence), (1, 8, 0.95));
    assert_eq!((scenario.time_max, scenario.alone), (Span::from_secs(24 * 3600), false));
    let servers = &scenario.cluster.servers;
    assert_eq!((servers.stripe, servers.transfer, servers.extent), (65_536, 1 << 20, 256 << 20));
    assert_eq!((servers.gate.scheduler.to_string(), servers.gate.depth), ("fifo".into(), 1));
    assert!(scenario.cluster.clients.gate.is_none() && scenario.cluster.forwarders.is_empty());
    assert_eq!((scenario.network.latency, scenario.network.bandwidth), (Span::ZERO, None));
    let app = &scenario.apps[0];
    assert_eq!((app.id, app.nodes, app.first_node, app.files), (1, 8, 0, 0));
    assert_eq!((app.workload.outstanding, app.workload.barrier), (Some(1), Barrier::Phase));
    let (bytes, request) = (1 << 20, 32 << 10);
    assert_eq!(app.workload.pattern, Pattern::Contiguous { sharing: Sharing::Shared, bytes, request });
}

#[test]
fn everything_is_read() {
    let text = r#"
        title = "all"
        notes = ["one", "two"]
        [clients]
        nodes = 8
        to = "near"
        gate = { scheduler = "to-agg" }
        [forwarders.far]
        nodes = 1
        spread = "target"
        [forwarders.near]
        nodes = 2
        to = "far"
        gate = { scheduler = "twins", window = "8ms", split = true, depth = 4 }
        [servers]
        nodes = 2
        device = "exponential:2ms"
        [network]
        latency = "50us"
        bandwidth = "1Gbit/s"
        buffer = "64KiB"
        [[app]]
        name = "tiles"
        count = 2
        processes = 4
        nodes = 2
        node_step = 2
        start_step = "1s"
        files = "both"
        pattern = "tile"
        op = "read"
        columns = 2
        width = 10
        height = 20
        element = 8
        compute = { uniform = ["1s", "2s"] }
        think = { exponential = "5ms" }
        outstanding = "unlimited"
        barrier = "none"
        collective = { aggregators = 2 }
        [[app]]
        name = "traced"
        pattern = "trace"
        file = "trace.csv"
        timed = false
        [[fault]]
        kind = "skew"
        layer = "far"
        node = 0
        ahead = "-5ms"
        [[fault]]
        kind = "slow-server"
        server = 1
        factor = 2
        from = "1s"
        until = "2s"
    "#;
    let scenario = read(text).unwrap().points.remove(0).scenario;
    let layers = &scenario.cluster.forwarders;
    assert_eq!(layers.iter().map(|layer| layer.name.as_str()).collect::<Vec<_>>(), ["near", "far"]);
    assert_eq!(layers[0].gate.scheduler.to_string(), "twins(window=8ms,split=true)");
    assert_eq!((layers[0].gate.depth, layers[1].gate.depth, layers[1].spread), (4, 16, Spread::Target));
    assert_eq!((scenario.network.bandwidth, scenario.network.buffer), (Some(125_000_000), Some(65_536)));
    let [first, second, traced] = scenario.apps.as_slice() else { panic!("three applications") };
    assert_eq!((first.name.as_str(), second.name.as_str()), ("tiles-1", "tiles-2"));
    assert_eq!((first.id, second.id, traced.id), (1, 2, 3));
    assert_eq!((first.first_node, second.first_node), (0, 2));
    assert_eq!((first.start, second.start), (Span::ZERO, Span::from_secs(1)));
    assert_eq!((first.files, second.files, traced.files), (0, 0, 1));
    let workload = &first.workload;
    assert_eq!(workload.compute, Distribution::Uniform(Span::from_secs(1), Span::from_secs(2)));
    assert_eq!(workload.think, Distribution::Exponential(Span::from_millis(5)));
    assert_eq!((workload.outstanding, workload.collective.unwrap().buffer), (None, 16 << 20));
    assert_eq!((traced.processes, traced.nodes), (2, 2));
    let Pattern::Trace { rows, timed: false } = &traced.workload.pattern else { panic!("a trace") };
    assert_eq!(rows.iter().map(Vec::len).collect::<Vec<_>>(), [2, 1]);
    assert_eq!(rows[0][1].time.as_nanos(), 500_000, "times count from the first row");
    assert_eq!(scenario.faults[0].kind, FaultKind::Skew { layer: 2, node: 0, ahead_ns: -5_000_000 });
    assert_eq!(scenario.faults[1].kind, FaultKind::SlowServer { server: 1, factor: 2.0 });
}

#[test]
fn jobs_are_ranges() {
    let text = "title = 'j'\nclients.nodes = 8\nservers = { nodes = 1, device = 'hdd' }\n[batch]\n[jobs]\n\
                count = 3\nnodes = [1, 4]\nsubmit = ['0s', '5min']\ncompute_total = '1min'\nbytes_total = '1GB'\n";
    let jobs = read(text).unwrap().points.remove(0).scenario.jobs.unwrap();
    assert_eq!((jobs.count, jobs.nodes, jobs.bytes_total), (3, (1, 4), (1_000_000_000, 1_000_000_000)));
    assert_eq!(jobs.submit, (Span::ZERO, Span::from_secs(300)));
    assert!(refusal(&text.replace("[batch]\n", "")).contains("add [batch]"));
    assert!(
        refusal(&text.replace("[1, 4]", "[4, 1]")).contains("t.toml:7: jobs.nodes = [4, 1]: expected two of")
    );
    assert!(refusal(&text.replace("[1, 4]", "[1, 9]")).contains("there are 8 client nodes"));
    let large = text.replace("count = 3", "count = 1000\nprocesses_per_node = 4096");
    assert!(refusal(&large).contains("jobs may have 16384000 processes in all"));
    let long = text
        .replace("count = 3", "count = 3\niterations = 1000000\nrequest = '1GiB'\nprocesses_per_node = 4096");
    assert!(refusal(&long).contains("a job may write more than 2^62 bytes"));
    // A list is one value here, and a list of lists is a sweep.
    assert_eq!(read_with(text, &["jobs.nodes=[2,3]"], false).unwrap().points.len(), 1);
    assert_eq!(read_with(text, &["jobs.nodes=[[2,3],[1,8]]"], false).unwrap().points.len(), 2);
}

#[test]
fn sweeps_are_all_combinations_in_the_order_of_the_text() {
    let text = format!(
        "{BASE}[sweep]\nservers.nodes = [2, 1]\n'app.*.request' = ['1KiB', '2KiB']\n\
         [[sweep.case]]\nlabel = 'plain'\nservers.gate.scheduler = 'fifo'\n\
         [[sweep.case]]\nservers.gate = {{ scheduler = 'sjf', age_max = '1s' }}\n"
    );
    let plan = read(&text).unwrap();
    let keys: Vec<_> = plan.axes.iter().map(|axis| axis.key.as_str()).collect();
    assert_eq!(keys, ["servers.nodes", "app.*.request", "case"]);
    let labels: Vec<_> = plan.points.iter().map(|point| point.label()).collect();
    assert_eq!(labels.len(), 8);
    assert_eq!(labels[0], "servers.nodes = 2, app.*.request = 1KiB, case = plain");
    assert_eq!(
        labels[7],
        "servers.nodes = 1, app.*.request = 2KiB, \
         case = servers.gate.scheduler = sjf, servers.gate.age_max = 1s"
    );
    let last = &plan.points[7].scenario;
    assert_eq!((last.cluster.servers.nodes, plan.runs()), (1, 64));
    assert_eq!(last.cluster.servers.gate.scheduler.to_string(), "sjf(age_max=1s)");
    assert!(matches!(last.apps[0].workload.pattern, Pattern::Contiguous { request: 2048, .. }));
}

#[test]
fn cases_are_several_axes_by_name_and_labels_choose_among_them() {
    let text = format!(
        "{BASE}[[sweep.cases.gate]]\nlabel = 'none'\nservers.gate.scheduler = 'fifo'\n\
         [[sweep.cases.gate]]\nlabel = 'short first'\nservers.gate.scheduler = 'sjf'\n\
         [[sweep.cases.load]]\nlabel = 'one'\napp.ior.processes = 1\n\
         [[sweep.cases.load]]\nlabel = 'two'\napp.ior.processes = 2\n"
    );
    let labels = |settings: &[&str]| {
        let plan = read_with(&text, settings, false).unwrap();
        plan.points.iter().map(|point| point.label()).collect::<Vec<_>>()
    };
    let all = [
        "gate = none, load = one",
        "gate = none, load = two",
        "gate = short first, load = one",
        "gate = short first, load = two",
    ];
    assert_eq!(labels(&[]), all);
    assert_eq!(labels(&["cases.gate=short first"]), all[2..]);
    assert_eq!(labels(&["cases.load=[\"two\"]", "cases.gate=none"]), all[1..2]);
    // A single case can be changed further, several cannot.
    let plan = read_with(&text, &["cases.gate=short first", "servers.gate.scheduler=mlf"], false).unwrap();
    assert_eq!((plan.points.len(), plan.points[0].label()), (2, "gate = short first, load = one".into()));
    assert_eq!(plan.points[0].scenario.cluster.servers.gate.scheduler.to_string(), "mlf");
    let refused = |setting: &str| read_with(&text, &[setting], false).unwrap_err().to_string();
    assert!(refused("cases.gate=fast").contains("cases.gate = fast: expected one of: none, short first"));
    assert!(refused("servers.gate.scheduler=mlf").contains("the sweep over gate sets it again"));
    assert!(refused("cases.gat=none").contains("cases.gat: the scenario has no such cases"));
    assert!(refused("case=none").contains("case: the scenario has no such cases"));
    assert!(refused("cases.gate=[]").contains("a list of values"));
    // The later cases have the last word.
    let both = format!("{text}[[sweep.case]]\nlabel = 'all'\nservers.gate.scheduler = 'aioli'\n");
    let plan = read(&both).unwrap();
    assert!(
        plan.points.iter().all(|point| point.scenario.cluster.servers.gate.scheduler.to_string() == "aioli")
    );
    // Also where one of them is chosen, and then what is set by hand.
    for (settings, gate) in [
        (&["case=all"][..], "aioli"),
        (&["case=all", "servers.gate.scheduler=mlf"], "mlf"),
        (&["case=all", "cases.gate=short first"], "aioli"),
    ] {
        let plan = read_with(&both, settings, false).unwrap();
        let gates = plan.points.iter().map(|point| point.scenario.cluster.servers.gate.scheduler.to_string());
        assert!(gates.collect::<Vec<_>>().iter().all(|is| is == gate), "{settings:?}: not {gate}");
    }
    let axis =
        format!("{BASE}[sweep]\nservers.gate.depth = [1, 2]\n[[sweep.cases.x]]\nservers.gate.depth = 3\n");
    assert!(refusal(&axis).contains("sets what that over servers.gate.depth sets"), "{}", refusal(&axis));
}

#[test]
fn an_open_loop_calls_by_the_clock_and_waits_for_nothing() {
    let set = |rest: &[&str]| {
        let settings: Vec<&str> =
            ["app.ior.arrivals={ exponential = '5ms' }"].iter().chain(rest).copied().collect();
        read_with(BASE, &settings, false)
    };
    let open = set(&[]).unwrap().points.remove(0).scenario.apps.remove(0).workload;
    assert_eq!((open.think, open.outstanding), (Distribution::Exponential(Span::from_millis(5)), None));
    let refused = |rest: &str| set(&[rest]).unwrap_err().to_string();
    for (rest, said) in [
        ("app.ior.think=1ms", "app.ior.think: an open loop (arrivals) does not use it"),
        ("app.ior.outstanding=4", "app.ior.outstanding: an open loop (arrivals) does not use it"),
        ("app.ior.collective.aggregators=1", "app.ior.collective: an open loop (arrivals) does not use it"),
        ("app.ior.barrier=call", "in an open loop (arrivals) no call waits for another"),
        ("app.ior.arrivals=0s", "expected a time between calls that is not 0"),
        ("app.ior.arrivals=5", "app.ior.arrivals = 5: expected a time"),
    ] {
        assert!(refused(rest).contains(said), "{rest}: {}", refused(rest));
    }
    let line = refusal(&format!("{BASE}arrivals = '1ms'\nthink = '1ms'\n"));
    assert!(line.contains("t.toml:15: app.ior.think"), "{line}");
    let head = BASE.split("processes").next().unwrap();
    let trace = refusal(&format!("{head}pattern = 'trace'\nfile = 'trace.csv'\narrivals = '1ms'\n"));
    assert!(trace.contains("t.toml:11: arrivals: a trace has times of its own"), "{trace}");
}

#[test]
fn a_table_in_a_sweep_sets_its_keys() {
    let text = format!(
        "{BASE}[sweep]\n'servers.gate' = [{{ scheduler = 'fifo' }}, {{ scheduler = 'aioli', quantum_base = '64KiB' }}]\n\
         'app.ior.compute' = ['1s', {{ exponential = '1s' }}]\n"
    );
    let plan = read_with(&text.replace("[[app]]", "gate.depth = 3\n[[app]]"), &[], false).unwrap();
    assert_eq!(plan.points.len(), 4);
    let gates: Vec<_> = plan.points.iter().map(|point| &point.scenario.cluster.servers.gate).collect();
    assert!(gates.iter().all(|gate| gate.depth == 3));
    assert_eq!(gates[3].scheduler.to_string(), "aioli(quantum_base=64KiB)");
    let compute: Vec<_> = plan.points.iter().map(|point| point.scenario.apps[0].workload.compute).collect();
    let (constant, drawn) =
        (Distribution::Constant(Span::from_secs(1)), Distribution::Exponential(Span::from_secs(1)));
    assert_eq!(compute, [constant, drawn, constant, drawn]);
}

#[test]
fn settings_and_the_quick_form_come_before_the_sweep() {
    let text = format!(
        "{BASE}[sweep]\n'servers.nodes' = [1, 2, 4]\n[quick]\nrepetitions = 2\nservers.nodes = [1, 2]\n'app.ior.bytes' = '64KiB'\n"
    );
    assert_eq!(read(&text).unwrap().runs(), 24);
    let quick = read_with(&text, &[], true).unwrap();
    assert_eq!(quick.runs(), 4);
    assert!(matches!(
        quick.points[0].scenario.apps[0].workload.pattern,
        Pattern::Contiguous { bytes: 65_536, .. }
    ));
    // What is set from outside replaces an axis, and a list makes one.
    let one = read_with(&text, &["servers.nodes=3", "network.latency=1ms"], false).unwrap();
    assert_eq!((one.points.len(), one.points[0].scenario.cluster.servers.nodes), (1, 3));
    assert_eq!(one.points[0].scenario.network.latency, Span::from_millis(1));
    let listed = read_with(&text, &["servers.nodes=1", "app.0.request=[1KiB, 2KiB]"], false).unwrap();
    assert_eq!(listed.axes[0].values, ["1KiB", "2KiB"]);
    assert_eq!(listed.points.len(), 2);
}

#[test]
fn refusals_of_settings_name_them() {
    for (setting, said) in [
        (
            "servers.nodes=0",
            "--set servers.nodes=0: servers.nodes = 0: expected a whole number from 1 to 4096",
        ),
        ("servers.nods=1", "unknown key 'nods' in servers; did you mean 'nodes'?"),
        ("server.nodes=1", "unknown key 'server' in the scenario; did you mean 'servers'?"),
        ("servers.nodes", "expected key=value"),
        ("=1", "is not a path to a key"),
        ("app.1.bytes=1", "there is no '1': expected 0, ior or *"),
        ("app.hpl.bytes=1", "there is no 'hpl': expected 0, ior or *"),
        ("fault.*.from=1s", "fault.*.from: there is none of these"),
        ("servers.nodes=[]", "a list of values"),
        ("servers=[1,2]", "servers = 1: expected a table"),
        ("servers.device=hdx", "unknown device 'hdx'; did you mean 'hdd'?"),
        ("servers.device_queue=31", "'unit:1ms' is no disk whose queue can be set"),
        ("servers.device=exponential:0s", "expected a time with its unit after 'exponential:'"),
        ("servers.gate.scheduler=aoili", "did you mean 'aioli'?"),
        ("servers.gate.dept=1", "unknown key 'dept' in a gate with fifo; did you mean 'depth'?"),
        ("servers.gate.window=1s", "unknown key 'window' in a gate with fifo"),
        (
            "servers.gate={ scheduler = 'twins', node = 1 }",
            "servers.gate.node: each gate has the index of its own node; remove it",
        ),
        ("network.retransmit=1s", "network.retransmit: a network without buffer does not use it; remove it"),
        (
            "servers.gate={ scheduler = 'auto', quantum_base = '32KiB' }",
            "quantum_base with scheduler = \"auto\": what chooses a scheduler chooses its parameters, too",
        ),
        (
            "servers.gate={ scheduler = 'auto', dept = 2 }",
            "unknown key 'dept' in a gate with auto; did you mean 'depth'?",
        ),
        (
            "clients.gate.scheduler=auto",
            "scheduler = \"auto\" in front of 4 servers: what is chosen is for one target",
        ),
        ("app.ior.request=0", "expected bytes, as in 4096 or 32KiB, from 1 to 1GiB"),
        ("app.ior.request=2GiB", "from 1 to 1GiB"),
        ("app.ior.bytes=-1", "app.ior.bytes = -1: expected bytes"),
        ("app.ior.bytes=2EiB", "app.ior.bytes = 2EiB: expected bytes"),
        ("app.ior.bytes=4194304TiB", "expected at most 2^62 bytes in all"),
        ("app.ior.processes=0", "expected a whole number from 1 to"),
        ("app.ior.op=append", "expected one of: read, write"),
        ("app.ior.pattern=trace", "the pattern trace does not use it; remove it"),
        ("app.ior.columns=2", "the pattern contiguous does not use it"),
        ("app.ior.compute=90", "a time, as in 5ms"),
        ("app.ior.nodes=9", "client nodes up to 8, but there are 8 (0 to 7)"),
        ("app.ior.first_node=8", "client nodes up to 8"),
        ("app.ior.name=a.b", "expected letters, digits"),
        ("app.ior.collective.aggregators=9", "9 aggregators of 8 processes"),
        ("servers.stripe=0", "from 1 to 1TiB"),
        (
            "app.0={ collective = { aggregators = 1 }, sharing = 'per-process' }",
            "collective I/O needs a shared file",
        ),
        ("clients.to=ion", "no such layer"),
        ("time_max=0s", "not 0"),
        ("repetitions=0", "from 1 to 100000"),
        ("confidence=1.5", "a number from 0.5 to 0.9999"),
        ("sweep.x=1", "set the keys in it"),
    ] {
        let message = refused(&[setting]);
        assert!(message.contains(said), "{setting}: {message}\nshould contain\n{said}");
    }
}

#[test]
fn refusals_name_the_line_and_what_to_do() {
    let with = |more: &str| refusal(&format!("{BASE}{more}"));
    assert_eq!(
        refusal("title = 'x'\nclients = 3\n"),
        "t.toml:1: the scenario has no 'servers': expected a table (servers)\nt.toml:2: clients = 3: expected a table"
    );
    assert!(refusal("title = \n").starts_with("t.toml:1: not valid TOML: "));
    assert!(
        refusal(&BASE.replace("nodes = 8", "nodes = 1979-05-27"))
            .contains("t.toml:3: clients.nodes = 1979-05-27")
    );
    assert!(with("request = 1\n").contains("t.toml:14: not valid TOML: duplicate key"));
    assert!(
        with("requst = 1\n").contains("t.toml:14: unknown key 'requst' in app.ior; did you mean 'request'?")
    );
    assert!(
        refusal(&BASE.replace("device = \"unit:1ms\"\n", "")).contains("t.toml:4: servers has no 'device'")
    );
    assert!(
        with(
            "[[app]]\nname = 'ior'\nprocesses = 1\npattern = 'strided'\nop = 'read'\nbytes = 1\nrequest = 1\n"
        )
        .contains("t.toml:15: a second application called ior")
    );
    assert!(
        with("[[fault]]\nkind = 'lost-client'\nnode = 8\n")
            .contains("t.toml:16: fault.0.node = 8: there are 8")
    );
    assert!(
        with("[[fault]]\nkind = 'skew'\nlayer = 'serers'\nnode = 0\n").contains("did you mean 'servers'?")
    );
    assert!(with("[[fault]]\nkind = 'delay'\n").contains("t.toml:14: fault.0 has no 'extra'"));
    assert!(
        with("[[fault]]\nkind = 'delay'\nextra = '1s'\nfrom = '2s'\nuntil = '1s'\n")
            .contains("t.toml:18: fault.0.until")
    );
    let circle = "[forwarders.a]\nnodes = 1\nto = 'b'\n[forwarders.b]\nnodes = 1\nto = 'a'\n";
    let circle =
        refusal(&format!("{BASE}{circle}").replace("nodes = 8\n[servers]", "nodes = 8\nto = 'a'\n[servers]"));
    assert!(circle.contains("t.toml:20: b.to = a: a circle"), "{circle}");
    assert!(with("[forwarders.a]\nnodes = 1\n").contains("no request comes to forwarders.a"));
    assert!(
        refusal("title = 'x'\nclients.nodes = 1\nservers = { nodes = 1, device = 'hdd' }\n")
            .contains("nothing runs")
    );
    let trace = |file| {
        let head = BASE.split("processes").next().unwrap();
        refusal(&format!("{head}pattern = 'trace'\nfile = '{file}'\n"))
    };
    assert!(trace("none.csv").contains("t.toml:10: the trace none.csv: no such file"));
    assert!(trace("far.csv").contains("row 3 ends beyond 2^62 bytes"));
    assert!(trace("bad.csv").contains("line 1"));
}

#[test]
fn a_queue_needs_a_disk_that_has_one() {
    let with = |device: &str, depth: u32| {
        let text =
            BASE.replace("device = \"unit:1ms\"", &format!("device = \"{device}\"\ndevice_queue = {depth}"));
        read(&text)
    };
    let refused = |device, depth| with(device, depth).unwrap_err().to_string();
    assert!(refused("hdd", 0).contains("t.toml:7: servers.device_queue = 0"), "{}", refused("hdd", 0));
    let deep = refused("hdd", 64);
    assert!(deep.contains("t.toml:7: device 'hdd:queue=64': expected a number from 1 to 31"), "{deep}");
    let flash = refused("edel", 4);
    assert!(flash.contains("t.toml:7:") && flash.contains("edel has no command queue"), "{flash}");
    assert!(refused("hdd:queue=4", 4).contains("says it already"));
    let plan = with("hdd", 31).unwrap();
    assert_eq!(plan.points[0].scenario.cluster.servers.device, "hdd:queue=31");
}

#[test]
fn sweeps_that_cannot_be_are_refused() {
    let with = |more: &str| refusal(&format!("{BASE}{more}"));
    assert!(
        with("[sweep]\nservers.nodes = 3\n").contains("t.toml:15: sweep.servers.nodes = 3: expected a list")
    );
    let message = with("[sweep]\n'servers.nodes' = [1, 2, 0]\n'app.0.request' = [1, 2]\n");
    assert!(message.contains("t.toml:15: servers.nodes = 0"), "{message}");
    assert!(message.contains("this is in the point servers.nodes = 0, app.0.request = 1"), "{message}");
    assert!(
        with("[sweep]\n'app.0.bytes' = [1]\n'app.*.bytes' = [2]\n").contains("put both into [[sweep.case]]")
    );
    let numbers: Vec<_> = (1..=400).map(|n| n.to_string()).collect();
    let numbers = numbers.join(",");
    let many = format!("[sweep]\n'servers.nodes' = [{numbers}]\n'servers.stripe' = [{numbers}]\n");
    assert!(with(&many).contains("more than 100000 points"));
    let case = format!("{BASE}[[sweep.case]]\nservers.nodes = 1\n");
    let message = read_with(&case, &["servers.nodes=2"], false).unwrap_err().to_string();
    assert!(message.contains("the sweep over case sets it again"), "{message}");
    let message = read_with(&case, &["servers.nodes=[2, 3]"], false).unwrap_err().to_string();
    assert!(message.contains("the scenario's cases (case) set what servers.nodes sets"), "{message}");
}

#[test]
fn how_often_is_said_for_all_points_also_for_cases_that_have_more_seeds() {
    let cases = "[[sweep.case]]\nservers.nodes = 1\n[[sweep.case]]\nrepetitions = 50\n";
    let text = format!("{BASE}{cases}[quick]\nrepetitions = 3\n");
    let of = |settings: &[&str], quick| read_with(&text, settings, quick).unwrap().points;
    let second = |settings: &[&str], quick| of(settings, quick)[1].scenario.repetitions;
    assert_eq!((second(&[], false), second(&[], true), second(&["repetitions=2"], false)), (50, 3, 2));
}

#[test]
fn many_problems_are_reported_at_once_but_not_all() {
    let text = BASE.replace("nodes = 4", "nodes = 0").replace("\"write\"", "\"wipe\"").replace("32KiB", "0");
    assert_eq!(read(&text).unwrap_err().problems.len(), 3);
    // Each once.
    let one = |text: &str| assert_eq!(read(text).unwrap_err().problems.len(), 1, "{text}");
    one(&BASE.replace("\"write\"", "1"));
    one(&format!("{BASE}sharing = 'all'\ncollective = {{ aggregators = 1 }}\n"));
    let layer = "[forwarders.ion]\nnodes = 1\nnods = 2\n";
    one(&format!("{BASE}{layer}").replace("nodes = 8", "nodes = 8\nto = 'ion'"));
    let keys: String = (0..50).map(|n| format!("k{n} = 1\n")).collect();
    assert_eq!(read(&format!("{keys}{BASE}")).unwrap_err().problems.len(), PROBLEMS_MAX);
}

/// The scenarios that come with the program.
fn shipped() -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios");
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    files
        .filter(|path| path.extension().is_some_and(|extension| extension == "toml"))
        .map(|path| (path.display().to_string(), fs::read_to_string(&path).unwrap()))
        .collect()
}

#[test]
fn all_shipped_scenarios_are_right_in_both_forms() {
    let all = shipped();
    assert!(all.len() >= 3);
    for (name, text) in all {
        for quick in [false, true] {
            if let Err(error) = read_with(&text, &[], quick) {
                panic!("{name}: {error}");
            }
        }
    }
}

#[test]
fn the_documentation_has_every_key() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/scenarios.md");
    let text = fs::read_to_string(path).unwrap();
    for schema in Schema::all() {
        let table = schema.markdown();
        assert!(
            text.contains(&format!("\n{table}\n")),
            "docs/scenarios.md should have, for {}:\n{table}",
            schema.name
        );
    }
}

#[test]
fn the_documented_example_is_right() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/scenarios.md");
    let text = fs::read_to_string(path).unwrap();
    let example = text.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let plan = read(example).unwrap();
    assert_eq!((plan.points.len(), plan.runs()), (6, 48));
}

#[test]
fn shares_are_refused_where_nobody_divides() {
    assert!(refused(&["app.ior.weight=2"]).contains("no gate divides anything"));
    assert!(refused(&["servers.gate.lot=5ms"]).contains("a gate that is not fair"));
    let range = ["servers.gate.fair=true", "app.ior.min=2MiB/s", "app.ior.max=1MiB/s"];
    assert!(refused(&range).contains("above max"));
    assert!(refused(&["servers.gate.fair=true", "app.ior.weight=0"]).contains("weight"));
    let plan = read_with(BASE, &["servers.gate.fair=true", "app.ior.weight=3"], false).unwrap();
    assert_eq!(plan.points[0].scenario.apps[0].entitlement.weight, 3);
}

#[test]
fn turns_have_the_defaults_of_the_core() {
    let coordination = |mechanism: &str| {
        let plan = read_with(BASE, &[&format!("coordination.mechanism={mechanism}")], false).unwrap();
        plan.points[0].scenario.coordination.clone()
    };
    let (lock, backoff) = (Some(CoordConfig::default()), Some(BackoffConfig::default()));
    assert_eq!(coordination("none"), Coordination::default());
    assert_eq!(coordination("lock"), Coordination { lock: lock.clone(), backoff: None });
    assert_eq!(coordination("backoff"), Coordination { lock: None, backoff: backoff.clone() });
    assert_eq!(coordination("lock+backoff"), Coordination { lock, backoff });
}

#[test]
fn turns_are_swept_and_refused_where_they_make_no_sense() {
    let settings =
        ["coordination.mechanism=lock", "coordination.rules=[\"order=fcfs\", \"order=shortest,slots=2\"]"];
    let plan = read_with(BASE, &settings, false).unwrap();
    let slots = plan.points.iter().map(|point| point.scenario.coordination.lock.as_ref().map(|it| it.slots));
    assert_eq!(slots.collect::<Vec<_>>(), [Some(1), Some(2)]);
    let rules = refused(&["coordination.mechanism=lock", "coordination.rules=oder=fcfs"]);
    assert!(rules.contains("did you mean 'order'?"), "{rules}");
    let barrier = refused(&["coordination.mechanism=lock", "app.ior.barrier=none"]);
    assert!(barrier.contains("ior take a turn together: give it barrier"), "{barrier}");
}
