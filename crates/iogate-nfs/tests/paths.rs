//! In which class reads and writes are where a policy divides by path.

mod common;

#[path = "../../iogate-vfs/tests/common/by_path.rs"]
mod by_path;

use std::net::TcpListener;

use by_path::{bytes, bytes_by_class, divide_by_path};
use common::*;
use iogate_nfs::wire::Stable;

#[test]
fn a_handle_is_in_the_class_of_its_files_path() {
    for kernel_handles in [true, false] {
        let folder = tempfile::tempdir().unwrap();
        let how = How { kernel_handles, ..How::default() };
        let export = export(folder.path(), how);
        let gate = export.engine.clone();
        divide_by_path(&gate, &["a/**"]);
        let server = serve_export(export, how, TcpListener::bind("127.0.0.1:0").unwrap());
        let mut client = Client::connect(&server);
        let root = client.root;
        let dir = client.mkdir(root, b"a").unwrap();
        let (one, other) =
            (client.create(dir, b"file", 0o644).unwrap(), client.create(root, b"file", 0o644).unwrap());
        client.write(one, 0, &[1; 4096], Stable::Unstable).unwrap();
        client.write(other, 0, &[1; 8192], Stable::Unstable).unwrap();
        client.read(one, 0, 4096).unwrap();
        assert_eq!(bytes_by_class(&gate), bytes([("path a/**", 8192), ("other paths", 8192)]));
    }
}
