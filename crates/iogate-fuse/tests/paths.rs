//! In which class reads and writes are where a policy divides by path, on mounts of each kind.

mod common;

#[path = "../../iogate-vfs/tests/common/by_path.rs"]
mod by_path;

use std::fs::{self, File};
use std::io::Write;

use by_path::{bytes, bytes_by_class, divide_by_path};
use common::on_all_mounts;

#[test]
fn a_file_is_in_the_class_of_its_path_when_it_was_opened() {
    on_all_mounts(|mount| {
        let at = |path: &str| mount.at(path);
        let shown = || bytes_by_class(&mount.engine);
        ["a", "a/deep", "b"].iter().for_each(|dir| fs::create_dir(at(dir)).unwrap());
        divide_by_path(&mount.engine, &["a/**", "**/*.h5"]);
        fs::write(at("a/deep/file"), [1; 4096]).unwrap();
        fs::write(at("a/x.h5"), [1; 4096]).unwrap();
        fs::write(at("b/x.h5"), [1; 4096]).unwrap();
        fs::write(at("b/file"), [1; 12288]).unwrap();
        let expected = [("path a/**", 8192), ("path **/*.h5", 4096), ("other paths", 12288)];
        assert_eq!(shown(), bytes(expected));

        // Whatever becomes of its name.
        let mut renamed = File::create(at("a/file")).unwrap();
        let mut removed = File::create(at("a/removed")).unwrap();
        fs::rename(at("a/file"), at("b/renamed")).unwrap();
        fs::remove_file(at("a/removed")).unwrap();
        renamed.write_all(&[1; 4096]).unwrap();
        removed.write_all(&[1; 4096]).unwrap();
        let expected = [("path a/**", 16384), ("path **/*.h5", 4096), ("other paths", 12288)];
        assert_eq!(shown(), bytes(expected));

        // Another policy asks where it is then, of what is open, too.
        divide_by_path(&mount.engine, &["b/**"]);
        renamed.write_all(&[1; 4096]).unwrap();
        let expected =
            [("path a/**", 16384), ("path **/*.h5", 4096), ("other paths", 12288), ("path b/**", 4096)];
        assert_eq!(shown(), bytes(expected));
    });
}
