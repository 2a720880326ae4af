//! Values that are out of range, or of another kind than they look, and keys that nothing would use: what is said of them.

use iogate_sim::scenario::{Plan, Source};

const BASE: &str = "title = 'base'\n[clients]\nnodes = 8\n[servers]\nnodes = 1\ndevice = 'unit:1ms'\n[[app]]\nname = 'ior'\n\
                    processes = 8\npattern = 'contiguous'\nop = 'write'\nbytes = '1MiB'\nrequest = '32KiB'\n";

fn read(settings: &[&str]) -> Result<Plan, String> {
    let settings: Vec<String> = settings.iter().map(|text| (*text).to_owned()).collect();
    let open = |_: &str| Err("there are no files".to_owned());
    Plan::read(&Source { name: "x", text: BASE, settings: &settings, quick: false, open: &open })
        .map_err(|error| error.to_string())
}

#[track_caller]
fn says(settings: &[&str], said: &str) {
    let message = read(settings).expect_err(&settings.join(", "));
    assert!(message.contains(said), "{settings:?}: {message}\nshould contain\n{said}");
}

/// As it does in a file: from outside and in cases it did nothing.
#[test]
fn an_empty_table_is_a_table() {
    let first = |settings: &[&str]| read(settings).unwrap().points.remove(0).scenario;
    assert!(first(&[]).batch.is_none());
    assert!(first(&["batch={}"]).batch.is_some_and(|batch| batch.backfill));
    assert!(first(&["clients.gate={}"]).cluster.clients.gate.is_some());
    // What is there stays as it is.
    let both =
        first(&["servers.gate={ scheduler = 'sjf', depth = 3 }", "servers.gate={}"]).cluster.servers.gate;
    assert_eq!((both.name().as_str(), both.depth), ("sjf", 3));
}
