//! `iogate cluster`: data servers and forwarders as processes of this machine.
//!
//! A cluster's folder holds, for each node, its configuration, its log, its socket or data, and the number of its process.

mod certificates;
pub(crate) mod config;
mod folder;
mod network;
mod process;

use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, anyhow};
use iogate_core::stats::summary::Summary;
use iogate_net::Endpoint;
use iogate_net::server::Status;
use iogate_report::{Table, units};
use serde::Serialize;

use self::config::{Config, Node, Proof, Role};
use self::process::Process;
use crate::attempt::Attempt;
use crate::cli::{
    ClusterArgs, ClusterChoice, ClusterCommand, ClusterDownArgs, ClusterSetArgs, ClusterStatusArgs,
    ClusterUpArgs,
};
use crate::commands::control;
use crate::commands::serve::ask::{configure_with, status_with};
use crate::commands::serve::config::Client;
use crate::failure::Failure;
use crate::output::{print, quoted};
use crate::state;

/// The copy of the cluster's file in its folder.
const FILE: &str = "cluster.toml";
/// Is there if the nodes ask nobody who they are.
const INSECURE: &str = "insecure";
/// What to do with data servers that no forwarder is in front of.
const STRIPED_BY: &str = "add forwarders = { count = 1 } to the cluster's file, or name them in the `servers` of a forwarder of your own";
/// How long a node may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);

pub(crate) fn run(args: &ClusterArgs) -> Result<(), Failure> {
    match &args.command {
        ClusterCommand::Up(args) => up(args),
        ClusterCommand::Status(args) => status(args),
        ClusterCommand::Set(args) => set(args),
        ClusterCommand::Down(args) => down(args),
    }
}

/// Starts what is not running. Nodes that are up stay as they are.
fn up(args: &ClusterUpArgs) -> Result<(), Failure> {
    let mut config = Config::read(&args.file)?;
    let beside = args.file.parent().unwrap_or(Path::new(""));
    let in_file = |failure: Failure| failure.within(format!("the cluster {}", args.file.display()));
    config.check_device(beside).map_err(in_file)?;
    let policies = config.check_gates(beside).map_err(in_file)?;
    config.anchor(beside).map_err(Failure::usage)?;
    let folder = folder::make(&folder_of(args.dir.as_deref(), &config.name)?)?;
    let _held = folder::hold(&folder)?;
    let text = &config.text;
    let copy = folder.join(FILE);
    let proof = config.proof(args.insecure);
    let nodes = config.nodes(&folder, proof)?;
    let running = Process::any(&folder).context("the cluster's folder")?;
    let differs = |path: &Path, text: &str| std::fs::read_to_string(path).is_ok_and(|before| before != text);
    let is_changed =
        differs(&copy, text) || policies.iter().any(|(name, text)| differs(&folder.join(name), text));
    if running && (is_changed || known_proof(&config, &folder) != proof) {
        let error = anyhow!("the cluster {} is up with another configuration", config.name);
        return Err(Failure::usage(error).hint(format!(
            "`iogate cluster down {0}` first, or give the new one another name; `iogate cluster set {0}` changes gates meanwhile",
            config.name
        )));
    }
    if !running && config.network.is_some() {
        // Before anything is written, so that this folder does not look like the running cluster's.
        network::check_unused(&config.name)?;
    }
    // Nodes' configurations name them.
    for (name, text) in &policies {
        write(&folder.join(name), text)?;
    }
    if !running {
        // As before: what cannot be made leaves no cluster that others would find, and nothing to purge.
        make_data_directories(&nodes).inspect_err(|_| folder::remove_if_unused(&folder))?;
    }
    if is_changed {
        // Certificates are of the hosts that there were.
        let _ = std::fs::remove_file(folder.join(certificates::AUTHORITY));
    }
    write(&copy, text)?;
    if !running {
        prepare(&config, &folder, proof, &nodes)?;
        if let Some(network) = &config.network {
            network::up(&config.name, &nodes, network)?;
        }
    }
    for node in &nodes {
        match Process::find(&folder, &node.name) {
            Some(process) if process.serves() => continue,
            // Whoever started it did not see it through.
            Some(process) => process.stop()?,
            None => {}
        }
        if node.role == Role::Server {
            // Somebody may have removed it while others are up.
            make_data_directories(std::slice::from_ref(node))?;
        }
        write(&folder.join(format!("{}.toml", node.name)), &node.config)?;
        let space = config.network.as_ref().map(|_| network::namespace(&config.name, &node.name));
        if let Err(failure) = process::start(&folder, &node.name, space.as_deref()) {
            return Err(failure.hint(format!(
                "the nodes before it are up: `iogate cluster down {}` stops them",
                config.name
            )));
        }
    }
    let shown = folder.display();
    let file = |name| quoted(folder.join(name).display());
    let flags = match proof {
        Proof::Peer => String::new(),
        Proof::None => " --auth none".into(),
        Proof::Certificates => format!(
            " --tls-authorities {} --tls-certificate {} --tls-key {}",
            file(certificates::AUTHORITY),
            file(certificates::CERTIFICATE),
            file(certificates::KEY)
        ),
    };
    let use_it = match entrances(&nodes) {
        Some(entrances) => {
            format!("use it by `iogate mount --remote {}{flags} DIRECTORY`", quoted(entrances.join(",")))
        }
        None => format!("no forwarder stripes files over its servers: {STRIPED_BY}"),
    };
    print(&format!("{} is up: {} in {shown}\n{use_it}\n", config.name, summary(&nodes)))
}

/// Makes what nodes prove themselves by, before the first one starts. Clients of a cluster that has not changed go on with what they have.
fn prepare(config: &Config, folder: &Path, proof: Proof, nodes: &[Node]) -> Result<(), Failure> {
    let insecure = folder.join(INSECURE);
    match proof {
        Proof::None => write(&insecure, "")?,
        Proof::Peer | Proof::Certificates => drop(std::fs::remove_file(&insecure)),
    }
    if proof == Proof::Certificates && !certificates::are_there(folder) {
        let hosts = nodes.iter().filter_map(|node| match &node.endpoint {
            Endpoint::Tcp { host, .. } => Some(host.clone()),
            Endpoint::Unix(_) => None,
        });
        let hosts: std::collections::BTreeSet<String> = hosts.collect();
        certificates::make(folder, &config.name, hosts.into_iter().collect())
            .context("the cluster's certificates")?;
    }
    Ok(())
}

/// How the nodes of a cluster that was started prove themselves.
fn known_proof(config: &Config, folder: &Path) -> Proof {
    config.proof(folder.join(INSECURE).exists())
}

fn summary(nodes: &[Node]) -> String {
    let count = |role| nodes.iter().filter(|node| node.role == role).count() as u64;
    let servers = units::counted(count(Role::Server), "data server", "data servers");
    format!("{servers}, {}", units::counted(count(Role::Forwarder), "forwarder", "forwarders"))
}

/// Where clients connect: the forwarders, or the only server. None of several servers has the files of all: each has its stripes.
fn entrances(nodes: &[Node]) -> Option<Vec<String>> {
    let of = |role| {
        nodes.iter().filter(move |node| node.role == role).map(|node| node.endpoint.to_string()).collect()
    };
    let (forwarders, servers): (Vec<String>, Vec<String>) = (of(Role::Forwarder), of(Role::Server));
    match (&forwarders[..], &servers[..]) {
        ([], [_]) => Some(servers),
        ([], _) => None,
        _ => Some(forwarders),
    }
}

/// Of data servers; forwarders have none.
fn make_data_directories(nodes: &[Node]) -> Result<(), Failure> {
    for node in nodes {
        let config = crate::commands::serve::config::Config::parse(&node.config)?;
        for directory in config.export.iter().filter_map(|export| export.directory.as_ref()) {
            std::fs::DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(directory)
                .with_context(|| Attempt::make(format_args!("the data directory {}", directory.display())))?;
        }
    }
    Ok(())
}

fn write(path: &Path, text: &str) -> Result<(), Failure> {
    Ok(std::fs::write(path, text).with_context(|| Attempt::write(path.display()))?)
}

/// Where a cluster of this name keeps its things.
fn folder_of(dir: Option<&Path>, name: &str) -> Result<PathBuf, Failure> {
    if let Some(dir) = dir {
        return Ok(dir.to_owned());
    }
    let state = state::folder("clusters");
    let state = state.ok_or_else(|| {
        Failure::usage(anyhow!("there is no HOME to keep the cluster's folder in"))
            .hint("give --dir DIRECTORY")
    })?;
    Ok(state.join(name))
}

/// An existing cluster, by its name or by its file.
fn find(choice: &ClusterChoice) -> Result<(Config, PathBuf), Failure> {
    let by_file = choice.cluster.extension().is_some_and(|extension| extension == "toml");
    let name = if by_file {
        Config::read(&choice.cluster)?.name
    } else {
        choice.cluster.to_string_lossy().into_owned()
    };
    let folder = folder_of(choice.dir.as_deref(), &name)?;
    if !folder.join(FILE).is_file() {
        let error = anyhow!("there is no cluster {name}: {} has no {FILE}", folder.display());
        return Err(Failure::usage(error).hint("`iogate cluster up FILE` starts one; --dir says where it is"));
    }
    // As nodes and clients find it, from wherever they are.
    let folder = folder.canonicalize().context("the cluster's folder")?;
    let config = Config::read(&folder.join(FILE))?;
    if config.name != name {
        let error = anyhow!("{} has the cluster {}, not {name}", folder.display(), config.name);
        return Err(Failure::usage(error).hint("`iogate cluster up FILE` has said where each one is"));
    }
    Ok((config, folder))
}

/// A node as people and programs want to see it.
#[derive(Serialize)]
struct Report {
    name: String,
    role: &'static str,
    endpoint: String,
    pid: Option<u32>,
    /// Why its status is not there, if it runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<Status>,
}

fn report(folder: &Path, node: &Node, client: &Client) -> Report {
    let process = Process::find(folder, &node.name);
    let ask = || status_with(&node.endpoint, client.options(&node.endpoint)?, PATIENCE);
    let status = process.as_ref().map(|_| ask());
    let (status, error) = match status {
        Some(Ok(status)) => (Some(status), None),
        Some(Err(error)) => (None, Some(format!("{error:#}"))),
        None => (None, None),
    };
    Report {
        name: node.name.clone(),
        role: match node.role {
            Role::Server => "data server",
            Role::Forwarder => "forwarder",
        },
        endpoint: node.endpoint.to_string(),
        pid: process.map(|process| process.pid()),
        error,
        status,
    }
}

fn status(args: &ClusterStatusArgs) -> Result<(), Failure> {
    let (config, folder) = find(&args.choice)?;
    let proof = known_proof(&config, &folder);
    let nodes = config.nodes(&folder, proof)?;
    if args.entrances {
        let entrances = entrances(&nodes).ok_or_else(|| {
            let error = anyhow!("the cluster {} has several data servers and no forwarder", config.name);
            Failure::usage(error).hint(STRIPED_BY)
        })?;
        return print(&format!("{}\n", entrances.join(",")));
    }
    let client = Client::parse(&config.client(&folder, proof)?)?;
    // At once: one that hangs does not answer for seconds.
    let reports: Vec<Report> = std::thread::scope(|scope| {
        let (folder, client) = (&folder, &client);
        let ask = |node| scope.spawn(move || report(folder, node, client));
        let asked: Vec<_> = nodes.iter().map(ask).collect();
        asked.into_iter().map(|report| report.join().expect("a report does not panic")).collect()
    });
    if args.json {
        let json = serde_json::to_string_pretty(&reports).context("the status as JSON")?;
        return print(&format!("{json}\n"));
    }
    let header = ["node", "process", "clients", "gate", "requests", "read", "written", "where"];
    let mut table = Table::new(header);
    for report in &reports {
        let mut row = vec![report.name.clone(), report.pid.map_or("down".into(), |pid| pid.to_string())];
        match (&report.status, &report.error) {
            (Some(status), _) => {
                let gates: Vec<&str> =
                    status.exports.iter().map(|export| export.scheduler.as_str()).collect();
                let did = || status.exports.iter().map(|export| &export.gate.summary);
                let sum = |of: fn(&Summary) -> u64| did().map(of).sum::<u64>();
                row.push(status.connection_count.to_string());
                row.push(gates.first().copied().unwrap_or("-").to_owned());
                row.push(units::count(sum(|gate| gate.read.requests + gate.write.requests)));
                row.push(units::bytes(sum(|gate| gate.read.bytes) as f64));
                row.push(units::bytes(sum(|gate| gate.write.bytes) as f64));
            }
            (None, Some(error)) => row.extend(["-", error, "-", "-", "-"].map(str::to_owned)),
            (None, None) => row.extend(std::iter::repeat_n("-".to_owned(), 5)),
        }
        row.push(report.endpoint.clone());
        table.row(row);
    }
    print(&table.to_string())
}

/// Changes the gates of all nodes, or those of one layer, while they serve.
fn set(args: &ClusterSetArgs) -> Result<(), Failure> {
    let settings = control::asked(&args.settings)?;
    let (config, folder) = find(&args.choice)?;
    let proof = known_proof(&config, &folder);
    let is_meant = |node: &Node| match node.role {
        Role::Server => !args.forwarders,
        Role::Forwarder => !args.servers,
    };
    let nodes: Vec<Node> = config.nodes(&folder, proof)?.into_iter().filter(is_meant).collect();
    if let Some(node) = nodes.iter().find(|node| Process::find(&folder, &node.name).is_none()) {
        let error = anyhow!("{} is down", node.name);
        return Err(Failure::failed(error).hint("`iogate cluster up FILE` starts it; nothing was changed"));
    }
    if nodes.is_empty() {
        let error = anyhow!("--forwarders: the cluster {} has none", config.name);
        return Err(Failure::usage(error).hint("leave it out: its data servers are changed"));
    }
    let client = Client::parse(&config.client(&folder, proof)?)?;
    for (before, node) in nodes.iter().enumerate() {
        let options = client.options(&node.endpoint);
        let set = options.and_then(|options| configure_with(&node.endpoint, options, &settings, PATIENCE));
        set.map_err(|error| {
            let failure = control::refused(error.context(node.name.clone()), &settings);
            let changed: Vec<&str> = nodes[..before].iter().map(|node| node.name.as_str()).collect();
            if changed.is_empty() {
                return failure;
            }
            failure.hint(format!(
                "changed before that: {}; `--servers` or `--forwarders` changes one layer",
                changed.join(", ")
            ))
        })?;
    }
    print(&format!("{}: {} changed\n", config.name, summary(&nodes)))
}

fn down(args: &ClusterDownArgs) -> Result<(), Failure> {
    let (config, folder) = find(&args.choice)?;
    let _held = folder::hold(&folder)?;
    let nodes = config.nodes(&folder, known_proof(&config, &folder))?;
    // Before the folder is gone.
    let elsewhere = data_elsewhere(&config, &folder);
    // Those in front first: they still need the ones behind them for what they have accepted.
    let mut stopped = 0;
    for node in nodes.iter().rev() {
        if let Some(process) = Process::find(&folder, &node.name) {
            process.stop()?;
            stopped += 1;
        }
        if let Endpoint::Unix(path) = &node.endpoint {
            let _ = std::fs::remove_file(path);
        }
        let _ = std::fs::remove_file(process::pid_file(&folder, &node.name));
    }
    // Where none of this folder's ran, it may be that of a cluster of the same name in another folder.
    if config.network.is_some() && (stopped > 0 || !network::is_used(&config.name)) {
        network::down(&config.name);
    }
    let (name, stopped) = (&config.name, units::counted(stopped, "node", "nodes"));
    if args.purge {
        std::fs::remove_dir_all(&folder)
            .with_context(|| format!("the cluster's folder {} cannot be removed", folder.display()))?;
        let stays = elsewhere.map(|data| format!("; its data stays in {}", data.display()));
        let stays = stays.unwrap_or_default();
        return print(&format!("{name}: {stopped} stopped, its folder removed{stays}\n"));
    }
    let removed = if elsewhere.is_some() { "removes its folder only" } else { "removes it" };
    let data = elsewhere.unwrap_or(folder);
    print(&format!("{name}: {stopped} stopped; its data stays in {} (--purge {removed})\n", data.display()))
}

/// Where the data of a cluster is that has been up, if its file says so and that is not below its folder: as its first server knows it,
/// which has the whole path.
fn data_elsewhere(config: &Config, folder: &Path) -> Option<PathBuf> {
    let said = config.servers.directory.as_ref()?;
    let server = std::fs::read_to_string(folder.join("server-0.toml")).ok();
    let server = server.and_then(|text| crate::commands::serve::config::Config::parse(&text).ok());
    let objects = server.and_then(|server| server.export.into_iter().find_map(|export| export.directory));
    let data = objects.and_then(|objects| Some(objects.parent()?.parent()?.to_owned()));
    let data = data.unwrap_or_else(|| said.clone());
    // What is below the folder goes with it.
    let is_below = match (data.canonicalize(), folder.canonicalize()) {
        (Ok(data), Ok(folder)) => data.starts_with(folder),
        _ => data.starts_with(folder),
    };
    (!is_below).then_some(data)
}
