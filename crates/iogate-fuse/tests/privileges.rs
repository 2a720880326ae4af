//! What users who are not root may do through a mount whose process is root.

mod common;

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Command;

use common::{Behind, on_all_mounts};

/// Runs a shell command as a user without any privilege.
fn as_somebody(script: &str) -> (bool, String) {
    let output = Command::new("setpriv")
        .args(["--reuid", "1234", "--regid", "1235", "--clear-groups", "bash", "-c", script])
        .current_dir("/")
        .output()
        .unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&text).into_owned())
}

#[test]
fn access_lists_that_the_kernel_does_not_check_are_roots() {
    on_all_mounts(|mount| {
        if mount.behind != Behind::Directory {
            // The server's part.
            return;
        }
        let file = mount.at("file");
        std::fs::write(&file, b"x").unwrap();
        std::fs::set_permissions(&file, PermissionsExt::from_mode(0o666)).unwrap();
        let path = file.display();
        for change in ["-n system.nfs4_acl -v 0x00", "-n system.cifs_acl -v 0x00", "-x system.nfs4_acl"] {
            let (ok, said) = as_somebody(&format!("setfattr {change} {path}"));
            assert!(!ok && said.contains("Operation not permitted"), "{change}: {said}");
        }
        let (ok, said) = as_somebody(&format!("setfattr -n user.own -v 1 {path}"));
        assert!(ok || said.contains("not supported"), "{said}");
        let root = Command::new("setfattr")
            .args(["-n", "system.nfs4_acl", "-v", "0x00"])
            .arg(&file)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&root.stderr);
        assert!(
            root.status.success() || said.contains("not supported"),
            "the source decides on root's: {said}"
        );
    });
}

#[test]
fn to_list_what_one_may_not_look_at_changes_nothing_for_others() {
    on_all_mounts(|mount| {
        let directory = mount.source.join("listed");
        std::fs::create_dir(&directory).unwrap();
        std::fs::write(directory.join("f"), "content").unwrap();
        std::fs::set_permissions(directory.join("f"), PermissionsExt::from_mode(0o644)).unwrap();
        std::fs::set_permissions(&directory, PermissionsExt::from_mode(0o744)).unwrap();
        let file = mount.at("listed/f");
        let mut open = File::open(&file).unwrap();
        let (ok, said) = as_somebody(&format!("ls -f {}", mount.at("listed").display()));
        assert!(ok && said.lines().any(|name| name == "f"), "{said}");
        let found = file.metadata().unwrap();
        assert_eq!((found.len(), found.nlink(), found.mode() & 0o777), (7, 1, 0o644));
        let mut text = String::new();
        open.read_to_string(&mut text).unwrap();
        assert_eq!(text, "content");
    });
}

#[test]
fn a_directory_is_read_in_the_name_of_who_has_opened_it() {
    on_all_mounts(|mount| {
        let directory = mount.at("private");
        std::fs::create_dir(&directory).unwrap();
        std::fs::write(directory.join("f"), "content").unwrap();
        std::fs::set_permissions(&directory, PermissionsExt::from_mode(0o700)).unwrap();
        let opened = File::open(&directory).unwrap();
        // For the rest of its life, this thread is somebody else.
        let read = std::thread::spawn(move || {
            let user = rustix::process::Uid::from_raw(1234);
            rustix::thread::set_thread_res_uid(Some(user), Some(user), Some(user)).unwrap();
            let names = rustix::fs::Dir::new(opened).unwrap();
            names.map(|entry| entry.map(|entry| entry.file_name().to_owned())).collect::<Result<Vec<_>, _>>()
        });
        let names = read.join().unwrap().unwrap();
        assert!(names.iter().any(|name| name.as_bytes() == b"f"), "{names:?}");
    });
}

fn mode(path: &Path) -> u32 {
    path.metadata().unwrap().mode() & 0o7777
}

fn mode_alone(path: &Path) -> u32 {
    let (flags, wanted) = (rustix::fs::AtFlags::empty(), rustix::fs::StatxFlags::MODE);
    u32::from(rustix::fs::statx(rustix::fs::CWD, path, flags, wanted).unwrap().stx_mode) & 0o7777
}

#[test]
fn who_changes_a_file_takes_its_set_user_id_away_at_once() {
    on_all_mounts(|mount| {
        let program = mount.at("program");
        let path = program.display();
        let changes = [
            format!("echo x >> {path}"),
            format!(": > {path}"),
            format!("truncate -s 5 {path}"),
            format!("fallocate -l 1MiB {path}"),
            format!("fallocate -p -o 4096 -l 4096 {path}"),
        ];
        for change in changes {
            if mount.behind != Behind::Directory && change.starts_with("fallocate") {
                // The server's part.
                continue;
            }
            std::fs::write(&program, [1; 65536]).unwrap();
            std::fs::set_permissions(&program, PermissionsExt::from_mode(0o6777)).unwrap();
            assert_eq!(mode(&program), 0o6777);
            let (ok, said) = as_somebody(&change);
            assert!(ok, "{change}: {said}");
            // The kernel asks for a whole `stat` after any change, and not for the mode alone.
            let (mode_alone, seen) = (mode_alone(&program), mode(&program));
            let source = mode(&mount.source.join("program"));
            assert_eq!(
                (mode_alone, seen, source),
                (0o777, 0o777, 0o777),
                "{mode_alone:o}, {seen:o}, {source:o} after {change}"
            );
        }
        // Root's own changes leave them.
        std::fs::set_permissions(&program, PermissionsExt::from_mode(0o6777)).unwrap();
        std::fs::write(&program, b"root's").unwrap();
        assert!(Command::new("fallocate").args(["-l", "1MiB"]).arg(&program).status().unwrap().success());
        if mount.behind == Behind::Directory {
            assert_eq!(mode(&program), 0o6777);
        }
    });
}
