//! Small scenarios with extreme values: whatever the reader lets pass, the simulator gets through, or says why not.

use iogate_sim::scenario::{Plan, Source};
use iogate_sim::world::simulate;
use proptest::prelude::*;
use proptest::sample::select;

/// One of these values for a key.
fn key(name: &'static str, values: &'static [&'static str]) -> impl Strategy<Value = String> {
    select(values).prop_map(move |value| format!("{name} = {value}\n"))
}

const GATES: &[&str] = &[
    "'fifo'",
    "'sjf'",
    "'to-agg'",
    "'mlf'",
    "'aioli'",
    "'hbrr'",
    "'app-window'",
    "'server-window'",
    "'twins'",
];
/// Times up to the longest.
const TIMES: &[&str] = &["'0s'", "'1ns'", "'1ms'", "'1h'", "'8760h'"];
const SOME_TIMES: &[&str] = &["'1ns'", "'1ms'", "'1s'", "'8760h'"];

prop_compose! {
    fn gate()(scheduler in key("scheduler", GATES), depth in key("depth", &["1", "3", "65536"]),
        queue in key("queue", &["1", "2", "70", "16777216"])) -> String {
        format!("{scheduler}{depth}{queue}")
    }
}

prop_compose! {
    fn servers()(nodes in key("nodes", &["1", "2", "7", "1000"]),
        device in key("device", &["'unit:0'", "'unit:1ns'", "'unit:360000s'", "'hdd'", "'edel'", "'suno'", "'exponential:1ms'"]),
        stripe in key("stripe", &["1", "3", "64", "'64KiB'", "'1TiB'"]),
        transfer in key("transfer", &["1", "7", "512", "'1GiB'"]),
        extent in key("extent", &["1", "100", "'1TiB'"]),
        overhead in key("overhead", TIMES), gate in gate()) -> String {
        format!("[servers]\n{nodes}{device}{stripe}{transfer}{extent}{overhead}[servers.gate]\n{gate}")
    }
}

prop_compose! {
    fn forwarders()(there: bool, nodes in key("nodes", &["1", "3", "40"]), spread in key("spread", &["'client'", "'file'", "'target'"]),
        transfer in key("transfer", &["1", "100", "'1GiB'"]), overhead in key("overhead", TIMES), gate in gate()) -> (bool, String) {
        (there, format!("[forwarders.ion]\n{nodes}{spread}{transfer}{overhead}[forwarders.ion.gate]\n{gate}"))
    }
}

/// Nothing waits in a buffer where bandwidth is unlimited.
fn bandwidth() -> impl Strategy<Value = String> {
    let buffered = (
        key("bandwidth", &["'1B/s'", "'1MB/s'", "'1000000GB/s'"]),
        key("buffer", &["'unlimited'", "1", "'10KiB'", "'1TiB'"]),
        key("retransmit", SOME_TIMES),
    );
    prop_oneof![
        1 => key("bandwidth", &["'unlimited'"]),
        3 => buffered.prop_map(|(bandwidth, buffer, retransmit)| format!("{bandwidth}{buffer}{retransmit}")),
    ]
}

/// With a barrier after each call no second one is underway.
fn order() -> impl Strategy<Value = String> {
    let several = (key("outstanding", &["1", "3", "'unlimited'"]), key("barrier", &["'none'", "'phase'"]));
    prop_oneof![
        1 => key("barrier", &["'call'"]),
        2 => several.prop_map(|(outstanding, barrier)| format!("{outstanding}{barrier}")),
    ]
}

prop_compose! {
    fn network()(latency in key("latency", TIMES), jitter in key("jitter", TIMES),
        bandwidth in bandwidth(),
        header in key("header", &["0", "5000"])) -> String {
        format!("[network]\n{latency}{jitter}{bandwidth}{header}")
    }
}

fn pattern() -> impl Strategy<Value = String> {
    let amounts = || {
        (key("bytes", &["1", "60", "300"]), key("request", &["1", "7", "500", "'1GiB'"]))
            .prop_map(|(bytes, request)| format!("{bytes}{request}"))
    };
    let tile = (key("height", &["1", "20"]), key("element", &["1", "9"]));
    let noncontiguous = (key("piece", &["1", "10"]), key("pieces", &["1", "1000"]));
    let without_holes = prop_oneof![
        amounts().prop_map(|amounts| format!("pattern = 'contiguous'\n{amounts}")),
        amounts().prop_map(|amounts| format!("pattern = 'strided'\n{amounts}")),
        tile.prop_map(|(height, element)| format!(
            "pattern = 'tile'\ncolumns = 1\nwidth = 3\n{height}{element}"
        )),
        noncontiguous
            .prop_map(|(piece, pieces)| format!("pattern = 'noncontiguous'\nbytes = 100\n{piece}{pieces}")),
    ];
    let collective =
        ["", "collective = { aggregators = 1, buffer = 7 }\n", "collective = { aggregators = 1 }\n"];
    prop_oneof![
        1 => amounts().prop_map(|amounts| format!("pattern = 'contiguous'\nsharing = 'per-process'\n{amounts}")),
        1 => amounts()
            .prop_map(|amounts| format!("pattern = 'random'\nfile_bytes = 4611686018427387904\n{amounts}")),
        3 => (without_holes, select(collective.to_vec()))
            .prop_map(|(pattern, collective)| format!("{pattern}{collective}")),
    ]
}

prop_compose! {
    fn app(name: &'static str)(processes in key("processes", &["1", "2", "9"]), pattern in pattern(),
        op in key("op", &["'read'", "'write'"]), iterations in key("iterations", &["1", "3"]), start in key("start", TIMES),
        compute in key("compute", &["'0s'", "'8760h'", "{ uniform = ['0s', '8760h'] }", "{ exponential = '1h' }"]),
        think in key("think", &["'0s'", "'1ms'", "{ exponential = '8760h' }"]),
        order in order(),
        files in select(&["", "files = 'x'\n"][..])) -> String {
        format!("[[app]]\nname = '{name}'\n{processes}{pattern}{op}{iterations}{start}{compute}{think}{order}{files}")
    }
}

fn fault() -> impl Strategy<Value = String> {
    let from = || key("from", &["'0s'", "'1ns'", "'1ms'"]);
    let until = || {
        select(&["", "until = '2ms'\n", "until = '2h'\n", "until = '8760h'\n"][..]).prop_map(str::to_owned)
    };
    prop_oneof![
        Just(String::new()),
        (from(), until(), key("factor", &["1.0", "1e6"])).prop_map(|(from, until, factor)| format!(
            "kind = 'slow-server'\nserver = 0\n{from}{until}{factor}"
        )),
        (from(), until())
            .prop_map(|(from, until)| format!("kind = 'stopped-server'\nserver = 0\n{from}{until}")),
        from().prop_map(|from| format!("kind = 'lost-client'\nnode = 0\n{from}")),
        (from(), until(), key("extra", SOME_TIMES))
            .prop_map(|(from, until, extra)| format!("kind = 'delay'\n{from}{until}{extra}")),
        (key("layer", &["'clients'", "'servers'"]), key("ahead", &["'8760h'", "'-8760h'", "'-1ns'"]))
            .prop_map(|(layer, ahead)| format!("kind = 'skew'\nnode = 0\n{layer}{ahead}")),
    ]
    .prop_map(|fault| if fault.is_empty() { fault } else { format!("[[fault]]\n{fault}") })
}

prop_compose! {
    fn scenario()(servers in servers(), (forwarded, forwarders) in forwarders(), network in network(),
        client_gate in prop::option::of(gate()), clients in key("nodes", &["1", "9"]),
        batch in select(&["", "", "[batch]\n", "[batch]\nbackfill = false\n"][..]),
        apps in (app("a"), app("b")), faults in (fault(), fault()),
        time_max in key("time_max", &["'1ns'", "'1h'", "'8760h'"])) -> String {
        let to = if forwarded { "to = 'ion'\n" } else { "" };
        let forwarders = if forwarded { forwarders } else { String::new() };
        let client_gate = client_gate.map_or(String::new(), |gate| format!("[clients.gate]\n{gate}"));
        format!("title = 'x'\n{time_max}[clients]\n{clients}{to}{client_gate}{forwarders}{servers}{network}{batch}\
            {}{}{}{}", apps.0, apps.1, faults.0, faults.1)
    }
}

fn read(text: &str) -> Result<Plan, String> {
    let open = |_: &str| Err("there are no files".to_owned());
    Plan::read(&Source { name: "x", text, settings: &[], quick: false, open: &open })
        .map_err(|error| error.to_string())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 250, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn nothing_panics(text in scenario(), seed: u64) {
        let plan = match read(&text) {
            Ok(plan) => plan,
            // What no device has room for is refused, and nothing else is.
            Err(error) => {
                prop_assert!(error.contains("take a shorter file"), "{}", error);
                return Ok(());
            }
        };
        let scenario = &plan.points[0].scenario;
        match simulate(scenario, seed, &mut ()) {
            Ok(result) => {
                let limit = scenario.time_max;
                for app in &result.apps {
                    prop_assert!(app.submitted <= app.start && app.start <= app.end);
                    prop_assert!(app.end.as_nanos() <= limit.as_nanos().max(app.submitted.as_nanos()));
                }
                if !result.cut_off {
                    let bytes: u64 = result.servers.iter().map(|server| server.bytes).sum();
                    prop_assert!(bytes >= result.apps.iter().map(|app| app.bytes).sum());
                }
            }
            Err(error) => prop_assert!(error.to_string().len() < 400, "{}", error),
        }
    }
}
