//! Forwarders that contradict each other.

use iogate_core::wire::*;

use super::raw::{Raw, hello};
use super::{Setup, wait_until};

fn forwarder(node: u32, nodes: u32, instance: u64) -> Hello<'static> {
    Hello { node, nodes, instance, name: b"a forwarder", ..hello() }
}

#[track_caller]
fn refused(setup: &Setup, hello: Hello<'_>, said: &str) {
    let mut raw = Raw::connect(setup.unix());
    raw.write(&Raw::bytes(0, 0, &Request::Hello(hello), &[]));
    raw.is_cut(libc::EADDRINUSE, said);
}

#[test]
fn each_index_is_one_forwarders() {
    let setup = Setup::new();
    let first = Raw::greet_with(setup.unix(), forwarder(0, 2, 10));
    let _others = [
        Raw::greet_with(setup.unix(), forwarder(0, 2, 10)),
        Raw::greet_with(setup.unix(), forwarder(1, 2, 11)),
        Raw::greet(setup.unix()),
    ];
    refused(
        &setup,
        forwarder(1, 2, 12),
        "forwarder 1 of 2 is connected already, the server's log says from where",
    );
    refused(&setup, forwarder(2, 4, 12), "is one of 4, and another that is connected is one of 2");
    // Whoever takes the place of one that is away keeps it.
    let session = first.welcome.unwrap().session;
    drop((first, _others));
    let second = Raw::greet_with(setup.unix(), forwarder(0, 2, 20));
    refused(&setup, Hello { session, ..forwarder(0, 2, 10) }, "forwarder 0 of 2 is connected already");
    drop(second);
    let back = Raw::greet_with(setup.unix(), Hello { session, ..forwarder(0, 2, 10) });
    assert_eq!(back.welcome.unwrap().resumed, 0, "its session has ended when its successor came");
}

#[test]
fn a_successor_ends_what_its_predecessor_had() {
    let setup = Setup::new();
    let mut before = Raw::greet_with(setup.unix(), forwarder(0, 2, 10));
    before.open(1, "f", super::raw::RDWR).ok::<Opened>();
    let mut lone = Raw::greet_with(setup.unix(), forwarder(0, 2, 10));
    lone.open(1, "g", super::raw::RDWR).ok::<Opened>();
    drop(before);
    let _other = Raw::greet_with(setup.unix(), forwarder(1, 2, 20));
    assert_eq!(setup.server.status().sessions, 3, "another one's is kept");
    drop(lone);
    let _successor = Raw::greet_with(setup.unix(), forwarder(0, 2, 30));
    assert_eq!(setup.server.status().sessions, 2);
}

#[test]
fn a_restarted_forwarder_is_let_in_at_once() {
    let setup = Setup::with(|config| config.exports[0].forwarders.push(7));
    for instance in 1..50 {
        // Its connection is closed, but the server may not have looked yet.
        Raw::greet_with(setup.unix(), forwarder(0, 2, instance));
        Raw::greet_with(setup.tcp(), forwarder(1, 2, instance));
    }
    wait_until("all are gone", || setup.server.status().connection_count == 0);
}

#[test]
fn forwarders_of_several_exports_and_lone_ones_do_not_meet() {
    let setup = Setup::with(|config| {
        let other = super::export("other", config.exports[0].tree.clone());
        config.exports.push(other);
    });
    let _group = Raw::greet_with(setup.unix(), forwarder(0, 2, 1));
    let _other_group = Raw::greet_with(setup.unix(), Hello { export: b"other", ..forwarder(0, 1, 2) });
    let _alone = Raw::greet_with(setup.unix(), Hello { export: b"other", ..forwarder(0, 1, 3) });
}
