//! The keys of groups, of a policy over many gates, and of what goes wrong.

use super::Absent::{Required, Value as Is, Words};
use super::keys::{NODES_MAX, key};
use super::{Schema, Takes};

/// The words of `kind` of a fault.
const FAULTS: &[&str] =
    &["slow-server", "stopped-server", "lost-client", "delay", "skew", "lost-coordinator", "cut-gate"];

/// `[[fault]]`
pub(super) static FAULT: Schema = Schema {
    name: "fault",
    keys: &[
        key("kind", Takes::Choice(FAULTS), Required, "what goes wrong (see Faults)"),
        key("from", Takes::Time(0), Is("0s"), "from when (not for skew)"),
        key("until", Takes::Time(1), Words("for good"), "until when (not for skew and lost-client)"),
        key("server", Takes::Count(0, NODES_MAX - 1), Words("required (servers)"), "which server, from 0"),
        key(
            "factor",
            Takes::Number(1.0, 1e6),
            Words("required (slow-server)"),
            "how many times as long its device takes",
        ),
        key("layer", Takes::Text, Words("required (skew)"), "`clients`, `servers` or a layer of forwarders"),
        key(
            "node",
            Takes::Count(0, 65_535),
            Words("required (lost-client, skew, cut-gate)"),
            "which node of the layer, from 0",
        ),
        key("extra", Takes::Time(1), Words("required (delay)"), "longest time that is added to each message"),
        key(
            "ahead",
            Takes::SignedTime,
            Words("required (skew)"),
            "how far the node's clock is ahead, or, negative, behind",
        ),
    ],
};

/// `[group.NAME]`
pub(super) static GROUP: Schema = Schema {
    name: "group",
    keys: &[
        key(
            "weight",
            Takes::Count(1, 10_000),
            Is("1"),
            "its share beside other groups, and applications that are in none",
        ),
        key(
            "min",
            Takes::Rate,
            Words("none"),
            "the rate that those in it get together at least at each gate, or of a total (see One policy over many gates)",
        ),
        key(
            "max",
            Takes::Rate,
            Words("none"),
            "the rate that those in it get together at most at each gate, or at all that share a policy",
        ),
    ],
};

/// `[global]`
pub(super) static GLOBAL: Schema = Schema {
    name: "global",
    keys: &[
        key(
            "gates",
            Takes::Text,
            Required,
            "whose gates: those of `clients`, `servers` or a layer of forwarders; they are fair",
        ),
        key(
            "total",
            Takes::Rate,
            Words("none: only caps are divided"),
            "what all applications may have at all gates together, by their weights and floors",
        ),
        key("lease", Takes::Time(1_000_000), Is("1s"), "how long a grant counts"),
        key("report", Takes::Time(1_000_000), Is("100ms"), "from a gate's report to its next"),
        key("skew", Takes::Time(0), Is("10ms"), "by how much clocks may differ in how long five leases take"),
        key(
            "absent",
            Takes::Time(0),
            Is("60s"),
            "for how long the part is kept of a gate that is not heard of",
        ),
    ],
};
