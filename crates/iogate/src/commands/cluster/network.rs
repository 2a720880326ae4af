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
    down(cluster, nodes);
    let address = host_address().to_string();
    let there = call("ip", &["-oneline", "-4", "addr", "show", "to", &address])?;
    if let Some(interface) = interface(&there) {
        let error = anyhow!("the interface {interface} has {address} already, which {cluster} takes");
        let hint = "one cluster of a machine can have [network]: `iogate cluster down` the other one first";
        return Err(Failure::failed(error).hint(hint));
    }
    let made = make(cluster, nodes, rate.as_deref());
    if made.is_err() {
        down(cluster, nodes);
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
    fn who_has_an_address_is_read() {
        let shown = "5: iob3fa2c10    inet 10.77.0.1/24 scope global iob3fa2c10\\       valid_lft forever\n";
        assert_eq!(interface(shown), Some("iob3fa2c10"));
        assert_eq!(interface(""), None);
    }

    #[test]
    fn interfaces_have_short_names() {
        assert!(link("a-cluster-with-a-long-name", 'v', 127).len() <= 15);
        assert_ne!(bridge("one"), bridge("other"));
    }
}
