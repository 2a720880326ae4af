//! In which class clients' reads and writes are where a server's policy divides by path.

mod common;

#[path = "../../iogate-vfs/tests/common/by_path.rs"]
mod by_path;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;

use by_path::{bytes, bytes_by_class, divide_by_path};
use common::{GRACE, any_port, directory, engine, serve, serve_over};
use iogate_net::Server;
use iogate_net::client::{ClientOptions, Remote, RemoteOptions};
use iogate_net::transport::auth::Credential;

fn connect(server: &Server) -> Remote {
    let client = ClientOptions { auth: Credential::None, ..ClientOptions::default() };
    Remote::connect(server.endpoints(), &RemoteOptions { client, ..RemoteOptions::default() }).unwrap()
}

#[test]
fn a_server_divides_by_where_its_files_are() {
    let dir = tempfile::tempdir().unwrap();
    let at = |path: &str| dir.path().join(path);
    ["a", "b"].iter().for_each(|name| fs::create_dir(at(name)).unwrap());
    let tree = directory(dir.path());
    let gate = engine(&*tree);
    divide_by_path(&gate, &["a/**", "**/*.h5"]);
    let server = serve_over(tree, gate.clone(), &any_port(), None, GRACE);
    let remote = connect(&server);
    let create = |path: &str| remote.create(Path::new(path), 0o644).unwrap();
    let (one, two, other) = (create("a/file"), create("b/x.h5"), create("b/file"));
    // A link leads to where it leads.
    symlink("../a/file", at("b/link")).unwrap();
    let linked = create("b/link");
    fs::rename(at("a/file"), at("b/renamed")).unwrap();
    for (file, pieces) in [(&one, 1), (&two, 2), (&other, 3), (&linked, 4)] {
        (0..pieces).for_each(|piece| assert_eq!(file.write_at(piece * 4096, &[1; 4096]).unwrap(), 4096));
    }
    one.append(&[1; 4096]).unwrap();
    assert_eq!(other.read_at(0, &mut [0; 4096]).unwrap(), 4096);
    let expected = [("path a/**", 6 * 4096), ("path **/*.h5", 2 * 4096), ("other paths", 4 * 4096)];
    assert_eq!(bytes_by_class(&gate), bytes(expected));

    // What is open by then is asked for where it is now.
    divide_by_path(&gate, &["b/renamed"]);
    one.write_at(0, &[1; 4096]).unwrap();
    assert_eq!(bytes_by_class(&gate)["path b/renamed"], 4096);
}

/// Who hands on requests knows by what path they were asked for.
#[test]
fn a_forwarder_divides_by_the_paths_of_its_clients() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("a")).unwrap();
    let data = serve(directory(dir.path()), &any_port(), None, GRACE);
    let tree = Arc::new(connect(&data));
    let gate = engine(&*tree);
    divide_by_path(&gate, &["a/**"]);
    let forwarder = serve_over(tree, gate.clone(), &any_port(), None, GRACE);
    let remote = connect(&forwarder);
    for (path, pieces) in [("a/file", 1), ("file", 2)] {
        let file = remote.create(Path::new(path), 0o644).unwrap();
        (0..pieces).for_each(|piece| assert_eq!(file.write_at(piece * 4096, &[1; 4096]).unwrap(), 4096));
    }
    assert_eq!(bytes_by_class(&gate), bytes([("path a/**", 4096), ("other paths", 2 * 4096)]));
}
