//! Connections that wait cost little.

use super::Setup;
use super::raw::{RDWR, Raw};

const CONNECTIONS: usize = 2_000;
/// A thousand million bytes for ten thousand, and this process has both ends.
const BYTES_EACH_MAX: usize = 100_000;

fn resident_bytes() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

#[test]
fn idle_connections_are_small_and_need_no_threads() {
    let descriptors = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let enough = rustix::process::Rlimit { current: descriptors.maximum, ..descriptors };
    rustix::process::setrlimit(rustix::process::Resource::Nofile, enough).unwrap();
    let setup = Setup::new();
    let threads = || std::fs::read_dir("/proc/self/task").unwrap().count();
    // Each has written and read, so that what is not given back shows.
    let used = || {
        let mut client = Raw::greet(setup.unix());
        client.open(1, "f", RDWR);
        client.write_at(1, 0, &[1; 50_000]);
        assert_eq!(client.read_at(1, 0, 50_000).payload.len(), 50_000);
        client
    };
    let first = used();
    let (before, threads_before) = (resident_bytes(), threads());
    let clients: Vec<Raw> = (0..CONNECTIONS).map(|_| used()).collect();
    let each = resident_bytes().saturating_sub(before) / CONNECTIONS;

    assert!(each < BYTES_EACH_MAX, "{each} bytes for a connection");
    // Other tests in this process have some.
    assert!(threads() < threads_before + 300);
    assert_eq!(setup.server.status().connection_count, CONNECTIONS + 1);
    drop((first, clients));
}
