//! Scenario texts that name models of what lies below a gate: what they become, and what is said about those that are wrong.

use iogate_core::Span;
use iogate_sim::cache::{CacheConfig, Kernel};
use iogate_sim::elevator::{ElevatorConfig, Threads};
use iogate_sim::scenario::{ListSpec, Plan, ProcessorSpec, ScenarioError, Source};

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

fn read(text: &str) -> Result<Plan, ScenarioError> {
    let open = |_: &str| Err("no such file".into());
    Plan::read(&Source { name: "t.toml", text, settings: &[], quick: false, open: &open })
}

/// The whole message about a text that is refused.
#[track_caller]
fn refusal(text: &str) -> String {
    read(text).expect_err("it should be refused").to_string()
}

#[test]
fn caches_have_the_kernels_numbers_and_what_a_scenario_sets() {
    let cached = |cache: &str| BASE.replace("[[app]]", &format!("{cache}\n[[app]]"));
    let servers = |rest: &str| cached(&format!("cache = {{ kernel = '2.6.28', memory = '4GiB'{rest} }}"));
    let plain = read(&servers("")).unwrap().points.remove(0).scenario.cluster.servers.cache.unwrap();
    assert_eq!(plain.config, CacheConfig::new(Kernel::V2628, 4 << 30));
    assert!(plain.commits);
    let set = servers(", size = '1GiB', limit = 30, export = 'async', read_ahead = 0, ordered = false");
    let set = read(&set).unwrap().points.remove(0).scenario.cluster.servers.cache.unwrap();
    assert_eq!((set.config.size, set.config.limit_percent, set.config.read_ahead), (1 << 30, 30, 0));
    assert!(!set.commits && !set.config.ordered);
    let clients =
        BASE.replace("[servers]", "slots = 16\ncache = { kernel = 'rhel5', memory = '1GiB' }\n[servers]");
    let clients = read(&clients).unwrap().points.remove(0).scenario.cluster.clients;
    assert_eq!(clients.slots, Some(16));
    // Fifteen transfers of 1 MiB.
    assert_eq!(clients.cache.unwrap().read_ahead, 15 << 20);
    let bare = read(BASE).unwrap().points.remove(0).scenario.cluster;
    assert!(bare.servers.cache.is_none() && bare.clients.cache.is_none() && bare.clients.slots.is_none());
}

#[test]
fn caches_that_cannot_be_are_refused_with_their_line() {
    let servers = |rest: &str| refusal(&BASE.replace("[[app]]", &format!("cache = {{ {rest} }}\n[[app]]")));
    let line = 1 + BASE.lines().position(|line| line == "[[app]]").unwrap();
    let memory = "kernel = 'modern', memory = '4GiB'";
    for (text, said) in [
        (format!("{memory}, size = '8GiB'"), "servers.cache.size: 8GiB do not fit a memory of 4GiB"),
        ("memory = '4GiB'".into(), "servers.cache has no 'kernel'"),
        ("kernel = 'modern'".into(), "servers.cache has no 'memory'"),
        ("kernel = '2.4', memory = '4GiB'".into(), "expected one of: rhel5, 2.6.28, modern"),
        (format!("{memory}, limit = 0"), "expected a whole number from 1 to 100"),
        (format!("{memory}, background = 30"), "30 percent are not below the limit of 20 percent"),
        (format!("{memory}, sise = 1"), "did you mean 'size'?"),
    ] {
        let message = servers(&text);
        assert!(message.contains(said) && message.contains(&format!("t.toml:{line}: ")), "{text}: {message}");
    }
    let clients = |rest: &str| refusal(&BASE.replace("[servers]", &format!("{rest}\n[servers]")));
    assert!(
        clients("slots = 0").contains("t.toml:4: clients.slots = 0: expected a whole number from 1 to 65536")
    );
    let cache = format!("cache = {{ {memory}, export = 'async' }}");
    assert!(clients(&cache).contains("clients.cache.export: a client's cache does not use it"));
    let gated = format!("gate = {{ scheduler = 'fifo' }}\ncache = {{ {memory} }}");
    assert!(clients(&gated).contains("clients with a gate have none"));
}

#[test]
fn what_a_scenario_would_only_ignore_is_refused() {
    let servers = |rest: &str| {
        BASE.replace("[[app]]", &format!("cache = {{ memory = '4GiB', expire = '5s', {rest} }}\n[[app]]"))
    };
    let network = |rest: &str| format!("{BASE}[network]\nbuffer = '64KiB'\n{rest}");
    let app = |rest: &str| format!("{BASE}outstanding = 4\n{rest}");
    for (text, said) in [
        (servers("kernel = 'rhel5'"), "servers.cache.expire: an ordered cache"),
        (servers("kernel = '2.6.28'"), "servers.cache.expire: an ordered cache"),
        (servers("kernel = 'modern', ordered = true"), "servers.cache.expire: an ordered cache"),
        (network(""), "network.buffer: nothing waits for a port without a bandwidth"),
        (network("bandwidth = 'unlimited'\n"), "network.buffer: nothing waits for a port"),
        (app("barrier = 'call'\n"), "outstanding: with barrier = call each call waits"),
    ] {
        let message = refusal(&text);
        assert!(message.contains(said), "{text}: {message}");
        assert_eq!(message.lines().count(), 1, "{message}");
    }
    for text in [
        servers("kernel = 'modern'"),
        servers("kernel = 'rhel5', ordered = false"),
        network("bandwidth = '1Gbit/s'\n"),
        BASE.to_owned() + "[network]\nbuffer = 'unlimited'\n",
        app("barrier = 'phase'\n"),
        BASE.to_owned() + "barrier = 'call'\n",
    ] {
        read(&text).unwrap_or_else(|error| panic!("{text}: {error}"));
    }
}

#[test]
fn elevators_are_off_where_they_are_not_named() {
    let elevator = |more: &str| {
        let text = BASE.replace("[[app]]", &format!("{more}\n[[app]]"));
        read(&text).unwrap().points.remove(0).scenario.cluster.servers.elevator
    };
    assert_eq!((elevator(""), elevator("elevator = 'none'")), (None, None));
    assert_eq!(elevator("elevator = 'deadline'"), Some(ElevatorConfig::Deadline));
    assert_eq!(elevator("elevator = 'slices'"), Some(ElevatorConfig::slices(Threads::Request)));
    let (threads, idle) = (Threads::File, Span::ZERO);
    assert_eq!(
        elevator("elevator = 'slices'\nelevator_threads = 'file'\nelevator_idle = '0s'"),
        Some(ElevatorConfig::Slices { threads, idle })
    );
}

#[test]
fn elevators_that_cannot_be_are_one_refusal_with_its_line() {
    let line = 1 + BASE.lines().position(|line| line == "[[app]]").unwrap();
    let servers = |more: &str| refusal(&BASE.replace("[[app]]", &format!("{more}\n[[app]]")));
    let one = |message: String, line: usize, said: &str| {
        assert!(message.starts_with(&format!("t.toml:{line}: ")) && message.contains(said), "{message}");
        assert_eq!(message.lines().count(), 1, "{message}");
    };
    one(servers("elevator = 'cfq'"), line, "expected one of: none, deadline, slices");
    one(servers("elevator = 3"), line, "expected one of: none, deadline, slices");
    one(servers("elevater = 'slices'"), line, "did you mean 'elevator'?");
    for key in ["elevator_threads = 'file'", "elevator_idle = '8ms'"] {
        one(servers(key), line, "any elevator but slices does not use it; remove it");
        one(
            servers(&format!("{key}\nelevator = 'deadline'")),
            line,
            "any elevator but slices does not use it",
        );
    }
    one(servers("elevator = 'slices'\nelevator_idle = '8'"), line + 1, "a time with its unit");
    one(servers("elevator = 'slices'\nelevator_threads = 'app'"), line + 1, "expected one of: request, file");
    // Without a device.
    let text = BASE.replace("device = \"unit:1ms\"", "elevator = 'slices'");
    one(refusal(&text), 4, "servers has no 'device'");
    let clients = BASE.replace("[servers]", "elevator = 'slices'\n[servers]");
    one(refusal(&clients), 4, "clients");
    for name in ["none", "unit", "hdd:slots"] {
        let text = BASE.replace("unit:1ms", name).replace("[[app]]", "elevator = 'slices'\n[[app]]");
        one(refusal(&text), 6, "");
    }
}

#[test]
fn processors_and_lists_are_read_and_refused() {
    let plain = read(BASE).unwrap().points.remove(0).scenario.cluster.servers.processor;
    assert_eq!(plain, ProcessorSpec::default());
    let servers = |more: &str| BASE.replace("[[app]]", &format!("{more}\n[[app]]"));
    let of = |text: &str| read(text).unwrap().points.remove(0).scenario.cluster;
    let each = of(&servers("overhead = '5us'")).servers.processor;
    assert_eq!(each, ProcessorSpec::each(Span::from_micros(5)));
    let table = of(&servers(
        "processor = { read = '26.09us', write = '50.92us', connection = '100ns', dispatch = '10us' }",
    ));
    let (read_ns, write_ns) = (Span::from_nanos(26_090), Span::from_nanos(50_920));
    let (connection, dispatch) = (Span::from_nanos(100), Span::from_micros(10));
    let expected = ProcessorSpec { read: read_ns, write: write_ns, connection, dispatch };
    assert_eq!(table.servers.processor, expected);
    let ion = |more: &str| {
        BASE.replace("[servers]", &format!("to = 'ion'\n[forwarders.ion]\nnodes = 1\n{more}\n[servers]"))
    };
    assert_eq!(of(&ion("")).forwarders[0].lists, None);
    let lists = of(&ion("batch = 16\nbatch_calls = 4")).forwarders[0].lists;
    assert_eq!(lists, Some(ListSpec { requests: 16, calls: 4 }));
    for (text, line, said) in [
        (servers("processor = { read = '1us' }"), 7, "servers.processor has no 'write'"),
        (
            servers("overhead = '1us'\nprocessor = { read = '1us', write = '1us' }"),
            7,
            "does not use it; remove it",
        ),
        (servers("processor = { read = '1', write = '1us' }"), 7, "a time with its unit"),
        (servers("batch = 16"), 7, "unknown key 'batch'"),
        (ion("batch = 0"), 7, "expected a whole number from 1 to 64"),
        (ion("batch_calls = 4"), 7, "a layer without batch does not use it"),
        (
            ion("processor = { read = '1us', write = '1us', dispatch = '1us' }"),
            7,
            "a layer of forwarders does not use it",
        ),
        (ion("batch = 16\nbatch_calls = 0"), 8, "expected a whole number from 1 to 65536"),
    ] {
        let message = refusal(&text);
        assert!(message.starts_with(&format!("t.toml:{line}: ")) && message.contains(said), "{message}");
        assert_eq!(message.lines().count(), 1, "{message}");
    }
}
