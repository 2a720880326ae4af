//! The nodes: clients, layers of forwarders, servers, and the gates on them.

use std::sync::Arc;

use iogate_core::device::Rules;
use iogate_core::nearest::nearest;
use iogate_core::sched::{SchedulerConfig, SchedulerKind, param};
use iogate_core::units;
use iogate_core::{Span, device};

use super::Files;
use crate::cache::{CacheConfig, Kernel};
use crate::elevator::{ElevatorConfig, Threads};
use crate::profile;
use crate::scenario::problem::ProblemKind;
use crate::scenario::schema::{GATE, TIME_MAX};
use crate::scenario::table::Table;
use crate::scenario::{
    Clients, Cluster, Forwarders, GateSpec, ListSpec, OWN, ProcessorSpec, ServerCache, Servers, Spread,
};

/// Depth of gates on the way to the servers: a server has work from each, whatever it is doing.
const FORWARD_DEPTH: u32 = 16;
/// In the place of a scheduler: it is chosen.
const AUTO: &str = "auto";
/// The parameter of schedulers that is not to be set: [`GateSpec::config`] does.
const NODE: &str = param::NODE.name;

pub(super) fn read(root: &Table<'_>, files: &Files<'_>) -> Option<Cluster> {
    let (clients, servers) = (root.table("clients"), root.table("servers"));
    let layers = root.tables("forwarders");
    let (clients, servers) = (clients?, servers?);
    let forwarders = chain(&clients, &layers, servers.small("nodes"));
    let transfer = servers.small("transfer");
    let device = device_text(&servers);
    let next_transfer = forwarders.first().map_or(transfer, |layer| layer.transfer);
    let profile = match profile::named(&device, files.open) {
        Some(Ok(profile)) => Some(Arc::new(profile)),
        Some(Err(error)) => {
            servers.unfit("device", error.to_string());
            None
        }
        None => {
            let key = if servers.has("device_queue") { "device_queue" } else { "device" };
            check_device(&servers, key, &device);
            None
        }
    };
    Some(Cluster {
        clients: Clients {
            nodes: clients.small("nodes"),
            gate: clients.table("gate").map(|table| upper_gate(&table, servers.small("nodes"))),
            cache: client_cache(&clients, next_transfer),
            slots: clients.optional("slots").map(|slots| slots as u32),
        },
        forwarders,
        servers: Servers {
            nodes: servers.small("nodes"),
            gate: gate(&servers.table_or_default("gate"), 1),
            device,
            profile,
            stripe: servers.number("stripe"),
            transfer,
            extent: servers.number("extent"),
            allocation: Rules::by_name(&servers.text("allocation")),
            processor: processor(&servers),
            cache: servers.table("cache").map(|table| ServerCache {
                config: cache(&table, &|kernel, memory| CacheConfig::new(kernel, memory)),
                commits: table.choice("export") == "sync",
            }),
            elevator: elevator(&servers),
        },
    })
}

/// What orders the transfers to a server's device.
fn elevator(servers: &Table<'_>) -> Option<ElevatorConfig> {
    let name = servers.choice("elevator");
    if name != "slices" {
        servers.refuse(&["elevator_threads", "elevator_idle"], "any elevator but slices");
    }
    let threads = match servers.choice("elevator_threads") {
        "file" => Threads::File,
        _ => Threads::Request,
    };
    match name {
        "deadline" => Some(ElevatorConfig::Deadline),
        "slices" => Some(ElevatorConfig::Slices { threads, idle: servers.span("elevator_idle") }),
        _ => None,
    }
}

/// The cache of clients, which read and write so many bytes at a time.
fn client_cache(clients: &Table<'_>, transfer: u32) -> Option<CacheConfig> {
    let table = clients.table("cache")?;
    if clients.has("gate") {
        clients.unfit("cache", "clients.cache: clients with a gate have none; remove one of them".into());
    }
    table.refuse(&["export"], "a client's cache");
    Some(cache(&table, &|kernel, memory| CacheConfig::of_client(kernel, memory, transfer.into())))
}

/// A cache; `new` has the defaults of a kernel with so much memory.
fn cache(table: &Table<'_>, new: &dyn Fn(Kernel, u64) -> CacheConfig) -> CacheConfig {
    let kernel = Kernel::by_name(table.choice("kernel")).unwrap_or(Kernel::Modern);
    let mut config = new(kernel, table.number("memory"));
    let given = |name| table.has(name).then(|| table.optional(name)).flatten();
    if let Some(size) = given("size") {
        if size > config.memory {
            let (size, memory) = (units::format_size(size), units::format_size(config.memory));
            table.unfit("size", format!("{}: {size} do not fit a memory of {memory}", table.path_of("size")));
        }
        config.size = size;
    }
    config.background_percent = given("background").unwrap_or(config.background_percent);
    config.limit_percent = given("limit").unwrap_or(config.limit_percent);
    if given("background").is_some() && config.background_percent >= config.limit_percent {
        let text = format!(
            "{}: {} percent are not below the limit of {} percent",
            table.path_of("background"),
            config.background_percent,
            config.limit_percent
        );
        table.unfit("background", text);
    }
    config.expire = given("expire").map_or(config.expire, Span::from_nanos);
    config.read_ahead = given("read_ahead").unwrap_or(config.read_ahead);
    config.in_flight = given("in_flight").unwrap_or(config.in_flight);
    config.ordered = given("ordered").map_or(config.ordered, |ordered| ordered == 1);
    if config.ordered && given("expire").is_some() {
        let text = format!(
            "{}: an ordered cache (rhel5, 2.6.28 or ordered = true) writes back whatever is dirty each time it wakes: remove it, or give \
             ordered = false",
            table.path_of("expire")
        );
        table.unfit("expire", text);
    }
    config
}

/// What the processor of a forwarder takes.
fn forwarder_processor(layer: &Table<'_>) -> ProcessorSpec {
    if let Some(table) = layer.table("processor") {
        table.refuse(&["dispatch"], "a layer of forwarders");
    }
    processor(layer)
}

/// What the processor of a forwarder or a server takes.
fn processor(node: &Table<'_>) -> ProcessorSpec {
    let Some(table) = node.table("processor") else { return ProcessorSpec::each(node.span("overhead")) };
    node.refuse(&["overhead"], "a node with a processor");
    ProcessorSpec {
        read: table.span("read"),
        write: table.span("write"),
        connection: table.span("connection"),
        dispatch: table.span("dispatch"),
    }
}

/// Whether forwarders join dispatches to lists.
fn lists(table: &Table<'_>) -> Option<ListSpec> {
    if !table.has("batch") {
        table.refuse(&["batch_calls"], "a layer without batch");
        return None;
    }
    Some(ListSpec { requests: table.small("batch"), calls: table.small("batch_calls") })
}

/// A layer of forwarders and where its requests go.
struct Layer {
    to: String,
    forwarders: Forwarders,
}

fn layer(name: &str, table: &Table<'_>, servers: u32) -> Layer {
    if !is_name(name) || ["clients", "servers"].contains(&name) {
        table.unfit(
            "nodes",
            format!(
                "a layer of forwarders called '{name}': expected letters, digits, - and _, with a letter, and neither \
                 clients nor servers"
            ),
        );
    }
    let spread = match table.choice("spread") {
        "file" => Spread::File,
        "target" => Spread::Target,
        _ => Spread::Client,
    };
    let forwarders = Forwarders {
        name: name.into(),
        nodes: table.small("nodes"),
        gate: upper_gate(&table.table_or_default("gate"), servers),
        spread,
        transfer: table.small("transfer"),
        processor: forwarder_processor(table),
        lists: lists(table),
    };
    Layer { to: table.text("to"), forwarders }
}

/// The layers in the order in which requests pass them.
fn chain(clients: &Table<'_>, tables: &[(String, Table<'_>)], servers: u32) -> Vec<Forwarders> {
    let mut layers: Vec<Layer> = tables.iter().map(|(name, table)| layer(name, table, servers)).collect();
    let names: Vec<String> = layers.iter().map(|layer| layer.forwarders.name.clone()).collect();
    let mut chain: Vec<Forwarders> = Vec::new();
    let mut to = clients.text("to");
    let mut from = "clients".to_owned();
    while to != "servers" {
        let asking = tables.iter().find(|(name, _)| *name == from).map_or(clients, |(_, table)| table);
        let Some(index) = layers.iter().position(|layer| layer.forwarders.name == to) else {
            if chain.iter().any(|passed| passed.name == to) {
                asking
                    .unfit("to", format!("{from}.to = {to}: a circle; expected a way that leads to servers"));
            } else {
                let all = names.iter().map(String::as_str).chain(["servers"]);
                let near = nearest(&to, all.clone())
                    .map_or(String::new(), |near| format!("did you mean '{near}'? "));
                let known = all.collect::<Vec<_>>().join(", ");
                asking
                    .unfit("to", format!("{from}.to = {to}: no such layer; {near}expected one of: {known}"));
            }
            return chain;
        };
        let layer = layers.remove(index);
        from = std::mem::replace(&mut to, layer.to);
        chain.push(layer.forwarders);
    }
    for layer in &layers {
        let name = &layer.forwarders.name;
        if let Some((_, table)) = tables.iter().find(|(label, _)| label == name) {
            table.unfit(
                "nodes",
                format!("no request comes to forwarders.{name}: name it in a `to`, or remove it"),
            );
        }
    }
    chain
}

/// A gate; `depth` is that of its layer where none is given.
fn gate(table: &Table<'_>, depth: u32) -> GateSpec {
    let name = table.text("scheduler");
    if name == AUTO {
        return chosen_gate(table, depth);
    }
    if let Some(own) = name.strip_prefix(OWN) {
        return own_gate(table, depth, own);
    }
    let mut scheduler = match SchedulerConfig::by_name(&name) {
        Ok(scheduler) => scheduler,
        Err(error) => {
            table.unfit("scheduler", error.to_string());
            return GateSpec {
                scheduler: SchedulerConfig::new(SchedulerKind::Fifo),
                auto: false,
                own: None,
                depth,
                queue: 1,
                fair: false,
                lot: None,
            };
        }
    };
    let params = scheduler.kind().params();
    for (key, value) in table.further() {
        if params.iter().any(|param| param.name == key) {
            if key == NODE {
                let path = table.path_of(key);
                table.unfit(key, format!("{path}: each gate has the index of its own node; remove it"));
            } else if let Err(error) = scheduler.set(key, &value.to_string()) {
                // The scheduler knows its parameter, and not in which table it stands.
                let (path, error) = (table.path_of(key), error.to_string());
                let text = match error.strip_prefix(key) {
                    Some(rest) => format!("{path}{rest}"),
                    None => format!("{path}: {error}"),
                };
                table.unfit(key, text);
            }
            continue;
        }
        let params = params.iter().map(|param| param.name).filter(|name| *name != NODE);
        let names = || GATE.keys.iter().map(|key| key.name).chain(params.clone());
        let kind = ProblemKind::UnknownKey {
            key: key.into(),
            table: format!("a gate with {name}"),
            near: nearest(key, names()),
            known: names().collect::<Vec<_>>().join(", "),
        };
        table.problems().push(table.place_of(key), kind);
    }
    let depth = if table.has("depth") { table.small("depth") } else { depth };
    spec(table, scheduler, depth)
}

/// A gate whose scheduler is chosen: it has no parameters to set.
fn chosen_gate(table: &Table<'_>, depth: u32) -> GateSpec {
    for (key, _) in table.further() {
        let params = || SchedulerKind::ALL.iter().flat_map(|kind| kind.params());
        if params().any(|param| param.name == key) {
            let why = format!(
                "{key} with scheduler = \"{AUTO}\": what chooses a scheduler chooses its parameters, too; leave one of them out"
            );
            table.unfit(key, why);
            continue;
        }
        unknown(table, key, AUTO);
    }
    let depth = if table.has("depth") { table.small("depth") } else { depth };
    let scheduler = SchedulerConfig::new(SchedulerKind::Fifo);
    GateSpec { auto: true, ..spec(table, scheduler, depth) }
}

/// A gate whose scheduler is the caller's own, which has its parameters from there.
fn own_gate(table: &Table<'_>, depth: u32, own: &str) -> GateSpec {
    if own.is_empty() {
        table.unfit("scheduler", format!("{OWN}: expected a name behind it, as in {OWN}elevator"));
    }
    for (key, _) in table.further() {
        unknown(table, key, &format!("{OWN}{own}"));
    }
    let depth = if table.has("depth") { table.small("depth") } else { depth };
    let scheduler = SchedulerConfig::new(SchedulerKind::Fifo);
    GateSpec { own: Some(own.into()), ..spec(table, scheduler, depth) }
}

/// A key that is none of a gate's with such a scheduler.
fn unknown(table: &Table<'_>, key: &str, scheduler: &str) {
    let names = || GATE.keys.iter().map(|key| key.name);
    let kind = ProblemKind::UnknownKey {
        key: key.into(),
        table: format!("a gate with {scheduler}"),
        near: nearest(key, names()),
        known: names().collect::<Vec<_>>().join(", "),
    };
    table.problems().push(table.place_of(key), kind);
}

/// What gates have whatever their scheduler.
fn spec(table: &Table<'_>, scheduler: SchedulerConfig, depth: u32) -> GateSpec {
    let fair = table.flag("fair");
    if !fair {
        table.refuse(&["lot"], "a gate that is not fair");
    }
    let lot = table.optional("lot").map(Span::from_nanos);
    GateSpec { scheduler, auto: false, own: None, depth, queue: table.small("queue"), fair, lot }
}

/// A gate in front of servers. Only what one target charges is known: in front of several a scheduler must be named.
fn upper_gate(table: &Table<'_>, servers: u32) -> GateSpec {
    let spec = gate(table, FORWARD_DEPTH);
    if spec.auto && servers > 1 {
        let why = format!(
            "scheduler = \"{AUTO}\" in front of {servers} servers: what is chosen is for one target; name a scheduler here, or \
             choose in servers.gate"
        );
        table.unfit("scheduler", why);
    }
    spec
}

/// The device, with the depth of its queue.
fn device_text(servers: &Table<'_>) -> String {
    let device = servers.text("device");
    if !servers.has("device_queue") {
        return device;
    }
    if device.contains(':') {
        let text = format!("device_queue: '{device}' is no disk whose queue can be set, or says it already");
        servers.unfit("device_queue", text);
        return device;
    }
    format!("{device}:queue={}", servers.number("device_queue"))
}

fn check_device(servers: &Table<'_>, key: &str, device: &str) {
    if !servers.has("device") {
        return;
    }
    if let Some(mean) = device.strip_prefix("exponential:") {
        if units::parse_time(mean).is_none_or(|ns| ns == 0 || ns > TIME_MAX) {
            let text = "expected a time with its unit after 'exponential:', as in 5ms; at most 8760h";
            servers.unfit("device", format!("device '{device}': {text}"));
        }
    } else if let Err(error) = device::parse(device) {
        servers.unfit(key, error.to_string());
    }
}

/// Whether it can be a step of a path to a key, and no index.
pub(super) fn is_name(name: &str) -> bool {
    name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
        && name.bytes().any(|byte| byte.is_ascii_alphabetic())
        && name.len() <= 64
}
