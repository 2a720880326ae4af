//! The keys of what goes wrong.

use super::Absent::{Required, Value as Is, Words};
use super::keys::{NODES_MAX, key};
use super::{Schema, Takes};

/// The words of `kind` of a fault.
const FAULTS: &[&str] = &["slow-server", "stopped-server", "lost-client", "delay", "skew"];

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
            Words("required (lost-client, skew)"),
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
