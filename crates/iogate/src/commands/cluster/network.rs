//! A network namespace for each node, joined by a bridge in this host's namespace. Made and removed by `ip` and `tc`.

use std::process::Command;

use anyhow::{Context, anyhow};

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

fn bridge(cluster: &str) -> String {
    link(cluster, 'b', 0)
}

fn call(program: &str, args: &[&str]) -> Result<(), Failure> {
    let output = Command::new(program).args(args).output().with_context(|| Attempt::run(program))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(Failure::failed(anyhow!("`{program} {}` failed: {}", args.join(" "), said.trim())))
}

fn exists(link: &str) -> bool {
    std::path::Path::new("/sys/class/net").join(link).exists()
}

/// Makes what is not there. Needs root.
pub(super) fn up(cluster: &str, nodes: &[Node], network: &Network) -> Result<(), Failure> {
    if !rustix::process::geteuid().is_root() {
        return Err(Failure::failed(anyhow!("[network] needs root: it makes network namespaces"))
            .hint("leave [network] out to have the nodes on the loopback interface"));
    }
    let rate = network.bandwidth.as_deref().map(rate).transpose()?;
    let bridge = bridge(cluster);
    if !exists(&bridge) {
        call("ip", &["link", "add", &bridge, "type", "bridge"])?;
        call("ip", &["addr", "add", &format!("{}/24", host_address()), "dev", &bridge])?;
        call("ip", &["link", "set", &bridge, "up"])?;
    }
    for (number, node) in nodes.iter().enumerate() {
        let (space, outside) = (namespace(cluster, &node.name), link(cluster, 'v', number));
        if exists(&outside) {
            continue;
        }
        let Some(address) = node.address else { continue };
        let (space, outside) = (space.as_str(), outside.as_str());
        call("ip", &["netns", "add", space])?;
        let peer = ["link", "add", outside, "type", "veth", "peer", "name", "eth0", "netns", space];
        call("ip", &peer)?;
        call("ip", &["link", "set", outside, "master", &bridge, "up"])?;
        call("ip", &["-n", space, "addr", "add", &format!("{address}/24"), "dev", "eth0"])?;
        call("ip", &["-n", space, "link", "set", "eth0", "up"])?;
        call("ip", &["-n", space, "link", "set", "lo", "up"])?;
        if let Some(rate) = &rate {
            let limit = ["root", "tbf", "rate", rate, "burst", "256kb", "latency", "50ms"];
            call("tc", &[&["qdisc", "add", "dev", outside][..], &limit].concat())?;
            call("tc", &[&["-n", space, "qdisc", "add", "dev", "eth0"][..], &limit].concat())?;
        }
    }
    Ok(())
}

/// Removes what is there; what is not there does not matter.
pub(super) fn down(cluster: &str, nodes: &[Node]) {
    for (number, node) in nodes.iter().enumerate() {
        let _ = call("ip", &["link", "del", &link(cluster, 'v', number)]);
        let _ = call("ip", &["netns", "del", &namespace(cluster, &node.name)]);
    }
    let _ = call("ip", &["link", "del", &bridge(cluster)]);
}

/// `1Gbit/s` as `tc` writes it.
fn rate(text: &str) -> Result<String, Failure> {
    let wrong = || {
        Failure::usage(anyhow!(
            "bandwidth = \"{text}\": expected a number and Kbit/s, Mbit/s or Gbit/s, as in 1Gbit/s"
        ))
    };
    let digits = text.find(|c: char| !c.is_ascii_digit()).ok_or_else(wrong)?;
    let unit = match &text[digits..] {
        "Kbit/s" => "kbit",
        "Mbit/s" => "mbit",
        "Gbit/s" => "gbit",
        _ => return Err(wrong()),
    };
    match text[..digits].parse::<u32>() {
        Ok(number) if number > 0 => Ok(format!("{number}{unit}")),
        _ => Err(wrong()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_read() {
        assert_eq!(rate("10Gbit/s").unwrap(), "10gbit");
        for wrong in ["", "1", "Gbit/s", "0Gbit/s", "1GB/s", "-1Gbit/s"] {
            assert!(rate(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn interfaces_have_short_names() {
        assert!(link("a-cluster-with-a-long-name", 'v', 127).len() <= 15);
        assert_ne!(bridge("one"), bridge("other"));
    }
}
