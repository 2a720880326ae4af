//! A network namespace for each node, joined by a bridge in this host's namespace. Made and removed by `ip` and `tc`.

use std::process::Command;

use anyhow::{Context, anyhow};
use iogate_core::units;

use super::config::{Network, Node, host_address};
use crate::attempt::Attempt;
use crate::failure::Failure;

/// What a node's namespace is called.
pub(super) fn namespace(cluster: &str, node: &str) -> String {
    format!("iogate-{cluster}-{node}")
}

/// Interface names have at most 15 characters: a hash of the cluster's name and the node's number.
fn link(cluster: &str, kind: char, number: usize) -> String {
    let hash = iogate_vfs::app::stable_hash(cluster.as_bytes());
    format!("io{kind}{:06x}{number}", hash & 0xff_ffff)
}

/// The namespaces of a cluster's nodes that exist, also of an attempt with more nodes than its file has now.
fn namespaces(cluster: &str) -> Vec<String> {
    let shown = call("ip", &["netns", "list"]).unwrap_or_default();
    // Behind a name there may be an `(id: 0)`.
    let names = shown.lines().filter_map(|line| line.split_ascii_whitespace().next());
    names.filter(|space| is_of(cluster, space)).map(str::to_owned).collect()
}

fn is_of(cluster: &str, space: &str) -> bool {
    let node = space.strip_prefix(&namespace(cluster, "")).unwrap_or_default();
    let number = node.strip_prefix("server-").or_else(|| node.strip_prefix("forwarder-"));
    number.is_some_and(is_number)
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// A process in a namespace of a cluster's nodes, and which namespace that is.
fn user(cluster: &str) -> Option<(String, String)> {
    namespaces(cluster).into_iter().find_map(|space| {
        let pids = call("ip", &["netns", "pids", &space]).ok()?;
        let pid = pids.split_ascii_whitespace().next()?.to_owned();
        Some((pid, space))
    })
}

/// Whether anybody uses the network of a cluster of this name.
pub(super) fn is_used(cluster: &str) -> bool {
    user(cluster).is_some()
}

/// Refuses where nodes run that are not the folder's own: they would lose their network. For a folder of which no node runs.
pub(super) fn check_unused(cluster: &str) -> Result<(), Failure> {
    let Some((pid, space)) = user(cluster) else { return Ok(()) };
    let error = anyhow!("a cluster {cluster} runs from another folder (process {pid} in {space})");
    Err(Failure::failed(error).hint("end it first with `iogate cluster down FILE --dir DIR`"))
}

fn bridge(cluster: &str) -> String {
    link(cluster, 'b', 0)
}

fn call(program: &str, args: &[&str]) -> Result<String, Failure> {
    let output = Command::new(program).args(args).output().with_context(|| Attempt::run(program))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(Failure::failed(anyhow!("`{program} {}` failed: {}", args.join(" "), said.trim())))
}

/// Makes it anew, whatever an attempt before has left of it: for a cluster of which no node runs. Needs root.
pub(super) fn up(cluster: &str, nodes: &[Node], network: &Network) -> Result<(), Failure> {
    if !rustix::process::geteuid().is_root() {
        return Err(Failure::failed(anyhow!("[network] needs root: it makes network namespaces"))
            .hint("leave [network] out to have the nodes on the loopback interface"));
    }
    let rate = network.bandwidth.as_deref().map(rate).transpose()?;
    check_unused(cluster)?;
    down(cluster);
    let address = host_address().to_string();
    let there = call("ip", &["-oneline", "-4", "addr", "show", "to", &address])?;
    if let Some(interface) = interface(&there) {
        let error = anyhow!("the interface {interface} has {address} already, which {cluster} takes");
        let hint = "one cluster of a machine can have [network]: `iogate cluster down` the other one first";
        return Err(Failure::failed(error).hint(hint));
    }
    let made = make(cluster, nodes, rate.as_deref());
    if made.is_err() {
        down(cluster);
    }
    made
}

fn make(cluster: &str, nodes: &[Node], rate: Option<&str>) -> Result<(), Failure> {
    let bridge = bridge(cluster);
    call("ip", &["link", "add", &bridge, "type", "bridge"])?;
    call("ip", &["addr", "add", &format!("{}/24", host_address()), "dev", &bridge])?;
    call("ip", &["link", "set", &bridge, "up"])?;
    for (number, node) in nodes.iter().enumerate() {
        let Some(address) = node.address else { continue };
        let (space, outside) = (namespace(cluster, &node.name), link(cluster, 'v', number));
        let (space, outside) = (space.as_str(), outside.as_str());
        call("ip", &["netns", "add", space])?;
        let peer = ["link", "add", outside, "type", "veth", "peer", "name", "eth0", "netns", space];
        call("ip", &peer)?;
        call("ip", &["link", "set", outside, "master", &bridge, "up"])?;
        call("ip", &["-n", space, "addr", "add", &format!("{address}/24"), "dev", "eth0"])?;
        call("ip", &["-n", space, "link", "set", "eth0", "up"])?;
        call("ip", &["-n", space, "link", "set", "lo", "up"])?;
        if let Some(rate) = rate {
            let limit = ["root", "tbf", "rate", rate, "burst", "256kb", "latency", "50ms"];
            call("tc", &[&["qdisc", "add", "dev", outside][..], &limit].concat())?;
            call("tc", &[&["-n", space, "qdisc", "add", "dev", "eth0"][..], &limit].concat())?;
        }
    }
    Ok(())
}

/// Whose address `ip` has shown, a line for each: `3: eth0    inet 10.0.0.1/24 ...`.
fn interface(shown: &str) -> Option<&str> {
    shown.split_ascii_whitespace().nth(1)
}

/// Removes what is there, also of an attempt with more nodes; what is not there does not matter.
pub(super) fn down(cluster: &str) {
    // First, as the kernel removes the links of a namespace some time after it.
    for name in links(cluster, &call("ip", &["-oneline", "link"]).unwrap_or_default()) {
        let _ = call("ip", &["link", "del", name]);
    }
    for space in namespaces(cluster) {
        let _ = call("ip", &["netns", "del", &space]);
    }
    let _ = call("ip", &["link", "del", &bridge(cluster)]);
}

/// The nodes' links among those that `ip` has shown, a line for each: `3: iov3fa2c10@if2: <BROADCAST> ...`.
fn links<'a>(cluster: &str, shown: &'a str) -> Vec<&'a str> {
    let first = link(cluster, 'v', 0);
    let stem = first.strip_suffix('0').unwrap_or(&first);
    let names =
        shown.lines().filter_map(|line| line.split_ascii_whitespace().nth(1)?.split(['@', ':']).next());
    names.filter(|name| name.strip_prefix(stem).is_some_and(is_number)).collect()
}

/// `1Gbit/s` as `tc` writes it: in bytes a second.
pub(super) fn rate(text: &str) -> anyhow::Result<String> {
    let bytes = units::parse_rate(&text.replace("Kbit/s", "kbit/s")).filter(|bytes| *bytes > 0);
    let bytes = bytes.ok_or_else(|| {
        anyhow!("bandwidth = \"{text}\": expected a rate, as in 1Gbit/s, 400Mbit/s or 125MB/s")
    })?;
    Ok(format!("{bytes}bps"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_read() {
        assert_eq!(rate("10Gbit/s").unwrap(), "1250000000bps");
        assert_eq!(rate("1.5Mbit/s").unwrap(), "187500bps");
        assert_eq!(rate("8Kbit/s").unwrap(), rate("8kbit/s").unwrap());
        for wrong in ["", "1", "Gbit/s", "0Gbit/s", "1Gbit", "-1Gbit/s"] {
            assert!(rate(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn who_has_an_address_is_read() {
        let shown = "5: iob3fa2c10    inet 10.77.0.1/24 scope global iob3fa2c10\\       valid_lft forever\n";
        assert_eq!(interface(shown), Some("iob3fa2c10"));
        assert_eq!(interface(""), None);
    }

    #[test]
    fn what_is_of_a_cluster_is_known_by_its_name() {
        assert!(is_of("a", "iogate-a-server-0") && is_of("a", "iogate-a-forwarder-63"));
        for other in ["iogate-a-server-server-0", "iogate-b-server-0", "iogate-a-", "iogate-a-server-", "a"] {
            assert!(!is_of("a", other), "{other}");
        }
        let (one, other) = (link("a", 'v', 17), link("b", 'v', 0));
        let bridge = bridge("a");
        let shown = format!("1: lo: <UP>\n7: {one}@if2: <UP>\n8: {other}@if2: <UP>\n9: {bridge}: <UP>");
        assert_eq!(links("a", &shown), [one.as_str()]);
    }

    #[test]
    fn interfaces_have_short_names() {
        assert!(link("a-cluster-with-a-long-name", 'v', 127).len() <= 15);
        assert_ne!(bridge("one"), bridge("other"));
    }
}
