//! Servers that forward to each other in a ring: whoever closes it finds it, and says so; nothing goes round.

mod common;

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use common::{GRACE, any_port, directory, errno, own, serve};
use iogate_net::client::{ClientError, ClientOptions, Remote, RemoteOptions};
use iogate_net::transport::auth::Credential;
use iogate_net::{Endpoint, Server};
use iogate_vfs::Tree;

/// A test that takes longer hangs.
const HANGS: Duration = Duration::from_secs(60);

fn try_remote(endpoint: &Endpoint, forwards: bool) -> Result<Remote, ClientError> {
    let client = ClientOptions { auth: Credential::None, forwards, ..ClientOptions::default() };
    let options = RemoteOptions { client, ..RemoteOptions::default() };
    Remote::connect(std::slice::from_ref(endpoint), &options)
}

fn remote(endpoint: &Endpoint) -> Remote {
    try_remote(endpoint, false).unwrap()
}

fn at(server: &Server) -> Endpoint {
    server.endpoints()[0].clone()
}

/// A server that forwards, and its own end of that.
fn forwarder(to: &Endpoint, listen: &Endpoint) -> (Server, Arc<Remote>) {
    let tree = Arc::new(try_remote(to, true).unwrap());
    (serve(tree.clone(), listen, None, GRACE), tree)
}

/// What `ask` says, and not only after a while: what goes round never ends.
fn in_time<T: Send + 'static>(ask: impl FnOnce() -> T + Send + 'static) -> T {
    let (tell, told) = mpsc::channel();
    thread::spawn(move || tell.send(ask()));
    told.recv_timeout(HANGS).expect("it goes round")
}

fn until(what: &str, is_so: impl Fn() -> bool) {
    let since = Instant::now();
    while !is_so() {
        assert!(since.elapsed() < HANGS, "not within a minute: {what}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// So many servers in a row before a directory, of which the last one is then replaced by one that forwards to the first.
fn a_ring_of(count: usize) {
    let dir = tempfile::tempdir().unwrap();
    let last = serve(directory(dir.path()), &any_port(), None, GRACE);
    let closing = at(&last);
    let mut row: Vec<(Server, Arc<Remote>)> = Vec::new();
    for _ in 1..count {
        let behind = row.last().map_or(closing.clone(), |(server, _)| at(server));
        row.push(forwarder(&behind, &any_port()));
    }
    let entrance = remote(&at(&row[count - 2].0));
    assert_eq!(errno(entrance.attr(own(), Path::new("missing"))), libc::ENOENT);

    drop(last);
    let (first, first_tree) = (at(&row[count - 2].0), Arc::clone(&row[0].1));
    let (closer, closer_tree) = forwarder(&first, &closing);
    // It may have closed the ring itself, or the one that comes back to it has.
    let finder = || {
        [&first_tree, &closer_tree].into_iter().find(|tree| tree.state().unwrap().text.contains("in a ring"))
    };
    until("somebody finds the ring", || finder().is_some());
    for server in row.iter().map(|(server, _)| server).chain([&closer]) {
        let endpoint = at(server);
        let failed = in_time(move || errno(remote(&endpoint).attr(own(), Path::new("missing"))));
        assert_eq!(failed, libc::ELOOP);
    }
    let state = finder().expect("it stays known").state().unwrap();
    assert!(!state.is_well);
    for server in row.iter().map(|(server, _)| server).chain([&closer]) {
        assert!(state.text.contains(&at(server).to_string()), "{}: {}", at(server), state.text);
    }
    // When the ring is open again, the server is used again.
    drop((closer, closer_tree));
    let _last = serve(directory(dir.path()), &closing, None, GRACE);
    until("the ring is open", || first_tree.state().unwrap().is_well);
    let endpoint = first;
    assert_eq!(in_time(move || errno(remote(&endpoint).attr(own(), Path::new("missing")))), libc::ENOENT);
}

#[test]
fn two_servers_that_forward_to_each_other_say_so_and_fail_requests() {
    a_ring_of(2);
}

#[test]
fn so_do_three_in_a_ring() {
    a_ring_of(3);
}

#[test]
fn a_row_of_servers_is_used() {
    let dir = tempfile::tempdir().unwrap();
    let last = serve(directory(dir.path()), &any_port(), None, GRACE);
    let (middle, _) = forwarder(&at(&last), &any_port());
    let (first, tree) = forwarder(&at(&middle), &any_port());
    assert_eq!(errno(remote(&at(&first)).attr(own(), Path::new("missing"))), libc::ENOENT);
    assert!(tree.state().unwrap().is_well);
}
