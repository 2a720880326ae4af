//! A cluster with restarts: everybody comes to an end, and the same seed is the same run.

use iogate_lab::scale::{Scale, run};

#[test]
fn everybody_comes_to_an_end_although_all_servers_restart() {
    let scale = Scale { clients: 3000, forwarders: 4, servers: 16, ..Scale::default() };
    let report = run(&scale, None);
    assert_eq!((report.done, report.failed), (3000, 0), "{report}");
    assert!(report.renewed > 3000, "sessions were lost: {report}");
    let sent: u64 = report.kinds.iter().map(|kind| kind.sent).sum();
    let received: u64 = report.kinds.iter().map(|kind| kind.received).sum();
    assert!(received < sent, "some is lost on the way: {report}");
    assert_eq!(report.to_string(), run(&scale, None).to_string());
}

#[test]
fn without_restarts_each_message_is_sent_once() {
    let scale = Scale { clients: 1000, forwarders: 4, servers: 16, restarts: false, ..Scale::default() };
    let report = run(&scale, None);
    let [clients, forwarders, servers] = report.kinds;
    let requests = 1 + 1 + u64::from(scale.writes) + 1 + 1;
    assert_eq!(clients.sent, 1000 * requests, "a greeting, an open, writes, a sync, a close: {report}");
    assert_eq!(clients.received, clients.sent);
    // An open asks one server, a write one, a sync four; each forwarder greets each server.
    let asked = 1000 * (1 + u64::from(scale.writes) + 4) + 4 * 16;
    assert_eq!((servers.received, servers.sent), (asked, asked), "{report}");
    assert_eq!(forwarders.sent, clients.received + asked);
}
