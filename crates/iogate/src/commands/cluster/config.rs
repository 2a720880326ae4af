//! The file of `iogate cluster`: data servers and forwarders of one machine, and the configuration of each that follows from it.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use iogate_net::Endpoint;
use serde::Deserialize;
use toml::Spanned;

use super::{certificates, network};
use crate::attempt::Attempt;
use crate::commands::policy;
use crate::commands::serve::config::{Bytes, Gate};
use crate::devices;
use crate::failure::Failure;
use crate::settings::{toml_error, toml_line};

/// Most nodes of a layer: each is a process of this machine.
const NODES_MAX: u32 = 64;
/// The network of a cluster in namespaces: this host is `.1`, nodes follow.
const SUBNET: [u8; 3] = [10, 77, 0];
const PORT: u16 = 7000;
/// The tables of both layers.
const SERVERS: &str = "servers";
const FORWARDERS: &str = "forwarders";
/// What a device begins with that is a file.
const DEVICE_FILE: &str = iogate_sim::profile::PREFIX;
/// The key of a gate that names a file.
const POLICY: &str = "policy";

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Config {
    /// What the cluster is called, among those of this machine.
    pub(crate) name: String,
    /// Bytes of a stripe.
    #[serde(default = "default_stripe")]
    pub(crate) stripe: Bytes,
    /// How nodes talk to each other.
    #[serde(default)]
    pub(crate) transport: Transport,
    /// First port, for `tcp` without namespaces.
    #[serde(default = "default_port")]
    pub(crate) port: u16,
    pub(crate) servers: Servers,
    #[serde(default)]
    pub(crate) forwarders: Option<Forwarders>,
    /// A network namespace for each node.
    #[serde(default)]
    pub(crate) network: Option<Network>,
    /// All of the file.
    #[serde(skip)]
    pub(crate) text: String,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Transport {
    #[default]
    Unix,
    Tcp,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Servers {
    pub(crate) count: u32,
    /// Where data is kept [default: in the cluster's folder].
    #[serde(default)]
    pub(crate) directory: Option<PathBuf>,
    #[serde(default)]
    pub(crate) device: Option<Spanned<String>>,
    /// Bytes of a file that lie together on the device.
    #[serde(default)]
    pub(crate) extent: Option<Bytes>,
    #[serde(default)]
    pub(crate) gate: Option<Spanned<toml::Table>>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Forwarders {
    pub(crate) count: u32,
    #[serde(default)]
    pub(crate) gate: Option<Spanned<toml::Table>>,
    #[serde(default)]
    pub(crate) batch: Option<u32>,
    #[serde(default)]
    pub(crate) batches: Option<u32>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Network {
    /// Of each node's link, each way: `1Gbit/s`.
    #[serde(default)]
    pub(crate) bandwidth: Option<String>,
}

/// How nodes and clients prove who they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Proof {
    /// The kernel says whose processes connect.
    Peer,
    /// By a certificate of an authority that the cluster makes.
    Certificates,
    /// Not at all.
    None,
}

/// A node of a cluster.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    /// `server-0`, `forwarder-1`.
    pub(crate) name: String,
    pub(crate) role: Role,
    pub(crate) endpoint: Endpoint,
    /// Its configuration, for `iogate serve`.
    pub(crate) config: String,
    /// Its address, in a namespace.
    pub(crate) address: Option<Ipv4Addr>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Server,
    Forwarder,
}

fn default_stripe() -> Bytes {
    Bytes(64 << 10)
}

fn default_port() -> u16 {
    PORT
}

impl Config {
    pub(crate) fn read(path: &Path) -> Result<Config, Failure> {
        let text = std::fs::read_to_string(path)
            .with_context(|| Attempt::read(format_args!("the cluster {}", path.display())))
            .map_err(Failure::usage)?;
        Config::parse(&text).map_err(|error| {
            Failure::usage(error.context(format!("the cluster {}", path.display())))
                .hint("docs/forwarding.md shows how clusters are written")
        })
    }

    fn parse(text: &str) -> anyhow::Result<Config> {
        let mut config: Config = toml::from_str(text).map_err(|error| toml_error(text, &error))?;
        config.text = text.to_owned();
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        if config.name.is_empty() || config.name.len() > 32 || !config.name.bytes().all(plain) {
            return Err(anyhow!(
                "name = \"{}\": expected up to 32 letters, digits and dashes: folders are called so",
                config.name
            ));
        }
        let forwarders = config.forwarders.as_ref().map_or(0, |forwarders| forwarders.count);
        if !(1..=NODES_MAX).contains(&config.servers.count) || forwarders > NODES_MAX {
            return Err(anyhow!("expected 1 to {NODES_MAX} servers and at most {NODES_MAX} forwarders"));
        }
        if config.network.is_some() && config.transport == Transport::Unix {
            return Err(anyhow!("[network] is for transport = \"tcp\": Unix sockets know no network"));
        }
        if let Some(bandwidth) = config.network.as_ref().and_then(|network| network.bandwidth.as_deref()) {
            network::rate(bandwidth)?;
        }
        // In namespaces each node has an address of its own.
        let more = if config.network.is_some() { 0 } else { config.servers.count + forwarders - 1 };
        if config.transport == Transport::Tcp
            && (config.port == 0 || u32::from(config.port) + more > u16::MAX.into())
        {
            return Err(anyhow!(
                "port = {}: expected 1 to {}: each node has one",
                config.port,
                u32::from(u16::MAX) - more
            ));
        }
        Ok(config)
    }

    /// Checks the gates of both layers. Returns what their policies say, with what the copies in the cluster's folder are called: nodes
    /// that start later have the same ones, wherever they are started from. Policies are `beside` the cluster's file.
    pub(crate) fn check_gates(&self, beside: &Path) -> Result<Vec<(String, String)>, Failure> {
        let layers = [
            (SERVERS, self.servers.gate.as_ref()),
            (FORWARDERS, self.forwarders.as_ref().and_then(|layer| layer.gate.as_ref())),
        ];
        let mut policies = Vec::new();
        for (layer, gate) in layers.into_iter().filter_map(|(layer, gate)| Some((layer, gate?))) {
            let at = gate.span();
            let mut gate = gate.get_ref().clone();
            if let Some(toml::Value::String(path)) = gate.get_mut(POLICY) {
                let file = beside.join(&*path);
                policies.push((copy_of_policy(layer), policy::read(&file)?.1));
                *path = text_of(&file)?;
            }
            Gate::try_from(gate.into_iter().collect::<BTreeMap<_, _>>())
                .map_err(|error| self.refused(&at, &format!("the gate of {layer}: {error}")))?;
        }
        Ok(policies)
    }

    /// A model of a device that there is not is refused before anything is made. `beside`: the folder of the cluster's file.
    pub(crate) fn check_device(&self, beside: &Path) -> Result<(), Failure> {
        let Some(device) = &self.servers.device else { return Ok(()) };
        let spec = match device.get_ref().strip_prefix(DEVICE_FILE) {
            Some(file) => format!("{DEVICE_FILE}{}", text_of(&beside.join(file))?),
            None => device.get_ref().clone(),
        };
        let refused = |error| self.refused(&device.span(), &format!("the device of {SERVERS}: {error}"));
        devices::maker(&spec).map(drop).map_err(|error| {
            refused(error).hint("`iogate devices` lists the models, `iogate profile` measures storage")
        })
    }

    /// Says where in the file it is.
    fn refused(&self, at: &std::ops::Range<usize>, said: &str) -> Failure {
        Failure::usage(toml_line(&self.text, at.start, said))
    }

    /// Paths in the file are from where it lies, wherever the nodes are started from. `beside`: the folder of the cluster's file.
    pub(crate) fn anchor(&mut self, beside: &Path) -> anyhow::Result<()> {
        let from_there = |path: &Path| {
            let path = beside.join(path);
            std::path::absolute(&path).with_context(|| path.display().to_string())
        };
        if let Some(directory) = &mut self.servers.directory {
            *directory = from_there(directory)?;
        }
        if let Some(device) = self.servers.device.as_mut().map(Spanned::get_mut)
            && let Some(profile) = device.strip_prefix(DEVICE_FILE)
        {
            *device = format!("{DEVICE_FILE}{}", text_of(&from_there(Path::new(profile))?)?);
        }
        Ok(())
    }

    /// How nodes and clients of this cluster prove who they are. `insecure`: over TCP, not at all.
    pub(crate) fn proof(&self, insecure: bool) -> Proof {
        match (self.transport, insecure) {
            (Transport::Unix, _) => Proof::Peer,
            (Transport::Tcp, false) => Proof::Certificates,
            (Transport::Tcp, true) => Proof::None,
        }
    }

    /// How clients of the nodes, and nodes as clients, connect: as in the configuration of a server.
    pub(crate) fn client(&self, folder: &Path, proof: Proof) -> anyhow::Result<String> {
        Ok(match proof {
            Proof::Peer => "{ auth = \"peer\" }".into(),
            Proof::None => "{ auth = \"none\" }".into(),
            Proof::Certificates => {
                let [authority, certificate, key] = files(folder)?;
                format!(
                    "{{ auth = \"tls\", tls = {{ certificate = {certificate}, key = {key}, servers = {authority} }} }}"
                )
            }
        })
    }

    /// The nodes, servers first: each is to be up before those behind it.
    pub(crate) fn nodes(&self, folder: &Path, proof: Proof) -> anyhow::Result<Vec<Node>> {
        let rights = rights(proof);
        let servers: Vec<(String, Endpoint, Option<Ipv4Addr>)> = (0..self.servers.count)
            .map(|index| self.place(folder, format!("server-{index}"), index))
            .collect();
        let forwarders = self.forwarders.as_ref().map_or(0, |layer| layer.count);
        let mut nodes = Vec::new();
        for (index, (name, endpoint, address)) in servers.iter().enumerate() {
            let data = self.servers.directory.clone().unwrap_or_else(|| folder.to_owned()).join(name);
            let mut config = self.listen(folder, endpoint, proof)?;
            let gate = gate_of(self.servers.gate.as_ref(), SERVERS, folder)?;
            let device = self.servers.device.iter().map(Spanned::get_ref);
            let device = device.map(|device| format!("device = {}\n", quoted(device)));
            let extent = self.servers.extent.iter().map(|extent| format!("extent = \"{}\"\n", extent.0));
            let device: String = device.chain(extent).collect();
            let objects = quoted(&text_of(&data.join("objects"))?);
            write!(
                config,
                "\n[[export]]\nname = \"objects\"\ndirectory = {objects}\ngate = {gate}\n{device}"
            )?;
            config.push_str(&rights);
            if index == 0 {
                let names = quoted(&text_of(&data.join("names"))?);
                write!(config, "\n[[export]]\nname = \"names\"\ndirectory = {names}\n")?;
                config.push_str(&rights);
            }
            let (name, endpoint, address) = (name.clone(), endpoint.clone(), *address);
            nodes.push(Node { name, role: Role::Server, endpoint, config, address });
        }
        for index in 0..forwarders {
            let place = self.place(folder, format!("forwarder-{index}"), self.servers.count + index);
            let (name, endpoint, address) = place;
            let layer = self.forwarders.as_ref().expect("there are forwarders");
            let mut config =
                format!("node = {index}\nnodes = {forwarders}\n{}", self.listen(folder, &endpoint, proof)?);
            let list: Vec<String> =
                servers.iter().map(|(_, endpoint, _)| quoted(&endpoint.to_string())).collect();
            let gate = gate_of(layer.gate.as_ref(), FORWARDERS, folder)?;
            let (list, stripe) = (list.join(", "), self.stripe.0);
            write!(config, "\n[[export]]\nservers = [{list}]\nstripe = \"{stripe}\"\ngate = {gate}\n")?;
            writeln!(config, "client = {}", self.client(folder, proof)?)?;
            for (key, value) in [("batch", layer.batch), ("batches", layer.batches)] {
                if let Some(value) = value {
                    writeln!(config, "{key} = {value}")?;
                }
            }
            config.push_str(&rights);
            nodes.push(Node { name, role: Role::Forwarder, endpoint, config, address });
        }
        Ok(nodes)
    }

    fn place(&self, folder: &Path, name: String, number: u32) -> (String, Endpoint, Option<Ipv4Addr>) {
        let tcp = |host: String, port| Endpoint::Tcp { host, port };
        match (self.transport, &self.network) {
            (Transport::Unix, _) => {
                let endpoint = Endpoint::Unix(folder.join(format!("{name}.socket")));
                (name, endpoint, None)
            }
            (Transport::Tcp, None) => (name, tcp("127.0.0.1".into(), self.port + number as u16), None),
            (Transport::Tcp, Some(_)) => {
                let [a, b, c] = SUBNET;
                let address = Ipv4Addr::new(a, b, c, 2 + number as u8);
                (name, tcp(address.to_string(), self.port), Some(address))
            }
        }
    }

    fn listen(&self, folder: &Path, endpoint: &Endpoint, proof: Proof) -> anyhow::Result<String> {
        let (uid, gid) = own();
        let head = format!("[[listen]]\nat = {}\nusers_allowed = [{uid}]\n", quoted(&endpoint.to_string()));
        Ok(match proof {
            Proof::Peer => format!("{head}auth = \"peer\"\n"),
            Proof::Certificates => {
                let [authority, certificate, key] = files(folder)?;
                let name = quoted(&certificates::common_name(&self.name));
                format!(
                    "{head}auth = \"tls\"\ntls = {{ certificate = {certificate}, key = {key}, clients = {authority}, users = \
                     {{ {name} = \"{uid}:{gid}\" }} }}\n"
                )
            }
            Proof::None => {
                let network = self.network.as_ref().map_or("", |_| "allow_unauthenticated_network = true\n");
                format!(
                    "{head}auth = \"none\"\nanonymous = \"{uid}:{gid}\"\nallow_unauthenticated_forwarders = true\n{network}"
                )
            }
        })
    }
}

/// This process's user and group.
fn own() -> (u32, u32) {
    (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw())
}

/// Who may do what at the nodes: the cluster's owner, and whom its mounts act for. Where nobody proves who it is, nobody is acted for
/// but the owner.
fn rights(proof: Proof) -> String {
    let (uid, gid) = own();
    let users = match proof {
        Proof::None => format!("users = {{ squash = \"all\", nobody = \"{uid}:{gid}\" }}"),
        Proof::Peer | Proof::Certificates => "users = { squash = \"none\" }".into(),
    };
    format!("forwarders = [{uid}]\n{users}\n")
}

/// The authority, the certificate and its key, as in a configuration.
fn files(folder: &Path) -> anyhow::Result<[String; 3]> {
    let path = |name| Ok::<_, anyhow::Error>(quoted(&text_of(&folder.join(name))?));
    Ok([path(certificates::AUTHORITY)?, path(certificates::CERTIFICATE)?, path(certificates::KEY)?])
}

/// The address of this host in the network of a cluster in namespaces.
pub(crate) fn host_address() -> Ipv4Addr {
    let [a, b, c] = SUBNET;
    Ipv4Addr::new(a, b, c, 1)
}

fn text_of(path: &Path) -> anyhow::Result<String> {
    path.to_str().map(str::to_owned).ok_or_else(|| anyhow!("{}: expected a path in UTF-8", path.display()))
}

fn quoted(text: &str) -> String {
    toml::Value::String(text.into()).to_string()
}

/// The policy of a layer, as nodes find it.
fn copy_of_policy(layer: &str) -> String {
    format!("{layer}.policy.toml")
}

/// The keys of a layer's gates, as in the configuration of a server.
fn gate_of(keys: Option<&Spanned<toml::Table>>, layer: &str, folder: &Path) -> anyhow::Result<String> {
    let mut keys = keys.map(Spanned::get_ref).cloned().unwrap_or_default();
    if let Some(policy) = keys.get_mut(POLICY) {
        *policy = text_of(&folder.join(copy_of_policy(layer)))?.into();
    }
    let keys: Vec<String> = keys.iter().map(|(key, value)| format!("{key} = {value}")).collect();
    Ok(format!("{{ {} }}", keys.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::serve;

    const TWO_LAYERS: &str = include_str!("../../../../../examples/two-layer.toml");

    #[test]
    fn every_node_of_the_example_has_a_valid_configuration() {
        let config = Config::parse(TWO_LAYERS).unwrap();
        let nodes = config.nodes(Path::new("/run/x"), config.proof(false)).unwrap();
        let servers = nodes.iter().filter(|node| node.role == Role::Server).count();
        assert_eq!(servers, config.servers.count as usize);
        assert_eq!(nodes.len() - servers, config.forwarders.as_ref().unwrap().count as usize);
        for (index, node) in nodes.iter().enumerate() {
            let read = serve::config::Config::parse(&node.config).unwrap();
            assert_eq!(read.listen[0].at.0, node.endpoint);
            if node.role == Role::Forwarder {
                assert_eq!(read.node as usize, index - servers);
                assert_eq!(read.export[0].servers.len(), servers);
                assert_eq!(read.export[0].gate.scheduler.kind(), iogate_core::SchedulerKind::Twins);
            }
        }
    }

    #[test]
    fn there_is_a_port_for_each_node() {
        let text = |port: u32, more: &str| {
            format!("name = \"t\"\ntransport = \"tcp\"\nport = {port}\nservers = {{ count = 2 }}\n{more}")
        };
        assert!(Config::parse(&text(65534, "")).is_ok());
        assert!(Config::parse(&text(65535, "[network]\n")).is_ok(), "of an address of its own");
        for (port, more) in
            [(0, ""), (0, "[network]\n"), (65535, ""), (65534, "forwarders = { count = 1 }\n")]
        {
            let error = Config::parse(&text(port, more)).err().unwrap().to_string();
            assert!(error.starts_with(&format!("port = {port}: expected 1 to ")), "{error}");
        }
    }

    #[test]
    fn tcp_and_namespaces_have_addresses() {
        let tcp = "name = \"t\"\ntransport = \"tcp\"\nport = 7100\nservers = { count = 2 }\nforwarders = { count = 1 }\n";
        let ends = |text: &str| {
            let config = Config::parse(text).unwrap();
            for insecure in [false, true] {
                let nodes = config.nodes(Path::new("/run/x"), config.proof(insecure)).unwrap();
                nodes.iter().for_each(|node| drop(serve::config::Config::parse(&node.config).unwrap()));
            }
            let nodes = config.nodes(Path::new("/run/x"), config.proof(false)).unwrap();
            nodes.iter().map(|node| node.endpoint.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(ends(tcp), ["127.0.0.1:7100", "127.0.0.1:7101", "127.0.0.1:7102"]);
        let spaces = format!("{tcp}network = {{ bandwidth = \"1Gbit/s\" }}\n");
        assert_eq!(ends(&spaces), ["10.77.0.2:7100", "10.77.0.3:7100", "10.77.0.4:7100"]);
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, part) in [
            ("name = \"a/b\"\nservers = { count = 1 }", "letters, digits and dashes"),
            ("name = \"a\"\nservers = { count = 0 }", "1 to 64 servers"),
            ("name = \"a\"\nservers = { count = 1 }\nnetwork = {}", "transport = \"tcp\""),
            ("name = \"a\"\nservers = { cound = 1 }", "unknown field `cound`"),
        ] {
            let error = format!("{:#}", Config::parse(text).unwrap_err());
            assert!(error.contains(part), "{text}\n{error}");
        }
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("typed.toml"), "by = \"usr\"\n").unwrap();
        for (gate, part) in [
            (
                "{ scheduler = \"x\" }",
                "line 2, `servers = { count = 1, gate = { scheduler = \"x\" } }`: the gate of servers: ",
            ),
            ("{ policy = 1 }", "policy: expected a file, found 1"),
            ("{ policy = \"typed.toml\" }", "typed.toml, line 1"),
            ("{ policy = \"nowhere.toml\" }", "nowhere.toml cannot be read"),
        ] {
            let config =
                Config::parse(&format!("name = \"a\"\nservers = {{ count = 1, gate = {gate} }}")).unwrap();
            let failure = config.check_gates(folder.path()).unwrap_err().in_full();
            assert!(failure.contains(part), "{gate}\n{failure}");
        }
    }

    #[test]
    fn a_device_that_there_is_not_is_named_with_its_line() {
        let beside = tempfile::tempdir().unwrap();
        for (device, expected) in [
            ("hd", "line 4, `device = \"hd\"`: the device of servers: unknown device 'hd'"),
            ("profile:nowhere", "line 4, `device = \"profile:nowhere\"`: the device of servers: "),
        ] {
            let text = format!("name = \"a\"\n[servers]\ncount = 1\ndevice = \"{device}\"\n");
            let failure = Config::parse(&text).unwrap().check_device(beside.path()).unwrap_err().in_full();
            assert!(failure.starts_with(expected), "{failure}");
        }
    }

    /// Where the cluster's file lies now, and from where it is started, is nothing to nodes that start later.
    #[test]
    fn nodes_have_a_copy_of_their_policy() {
        let folder = tempfile::tempdir().unwrap();
        let run = folder.path().join("run");
        std::fs::create_dir(&run).unwrap();
        std::fs::write(folder.path().join("shared.toml"), "by = \"user\"\n").unwrap();
        let config = Config::parse(
            "name = \"a\"\nservers = { count = 2, gate = { policy = \"shared.toml\" } }\nforwarders = { count = 1 }\n",
        )
        .unwrap();
        let policies = config.check_gates(folder.path()).unwrap();
        assert_eq!(policies, [("servers.policy.toml".into(), "by = \"user\"\n".into())]);
        std::fs::write(run.join(&policies[0].0), &policies[0].1).unwrap();
        std::fs::remove_file(folder.path().join("shared.toml")).unwrap();
        for node in config.nodes(&run, config.proof(false)).unwrap() {
            let read = serve::config::Config::parse(&node.config).unwrap();
            assert_eq!(read.export[0].gate.shares.is_some(), node.role == Role::Server, "{}", node.name);
        }
    }
}
