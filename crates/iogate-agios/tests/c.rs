//! The functions of `agios.h`, as C programs use them: compiled here, and run as they are, under valgrind, and with an address sanitizer.

#[path = "../../iogate-gate/tests/common/installed.rs"]
mod installed;

use std::path::{Path, PathBuf};
use std::process::Command;

/// Algorithms of AGIOS.
const ALGORITHMS: [&str; 8] = ["MLF", "aIOLi", "SJF", "TO", "TO-agg", "SW", "NOOP", "TWINS"];

/// Of the functions of the installed library.
const VERSION: &str = "IOGATE_AGIOS_0.1";

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

struct Scene {
    folder: tempfile::TempDir,
    program: PathBuf,
}

impl Scene {
    fn new(flags: &[&str]) -> Scene {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("agios");
        // Beside the tests.
        let libraries = std::env::current_exe().unwrap().parent().unwrap().to_owned();
        let compiled = Command::new("cc")
            .args(["-std=gnu11", "-g", "-O1", "-Wall", "-Wextra", "-Werror"])
            .args(flags)
            .arg("-o")
            .arg(&program)
            .arg(root().join("tests/programs/agios.c"))
            .arg("-I")
            .arg(root().join("include"))
            .arg("-L")
            .arg(&libraries)
            .args(["-liogate_agios", "-lpthread"])
            .arg(format!("-Wl,-rpath,{}", libraries.display()))
            .output()
            .expect("cc is there: scripts/setup installs it");
        assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
        Scene { folder, program }
    }

    /// A mode of the program with a configuration, behind another program where one is given.
    #[track_caller]
    fn run(&self, mode: &str, config: &str, under: &[&str]) {
        let path = self.folder.path().join("agios.conf");
        std::fs::write(&path, config).unwrap();
        let mut words: Vec<&std::ffi::OsStr> = under.iter().map(std::ffi::OsStr::new).collect();
        words.extend([self.program.as_os_str(), mode.as_ref(), path.as_os_str()]);
        let output = Command::new(words[0]).args(&words[1..]).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{mode}, {config}: {:?}: {said}", output.status);
    }
}

fn algorithm(name: &str) -> String {
    format!("library_options:\n{{\n\twaiting_time = 1000 # ns\n\tdefault_algorithm = \"{name}\" ;\n}};\n")
}

#[test]
fn the_calls_of_the_multi_callback_test_with_each_algorithm() {
    let scene = Scene::new(&[]);
    for name in ALGORITHMS {
        scene.run("multi", &algorithm(name), &[]);
    }
}

#[test]
fn requests_by_value_in_lists_and_with_pointers() {
    let scene = Scene::new(&[]);
    for name in ALGORITHMS {
        scene.run("values", &algorithm(name), &[]);
    }
}

#[test]
fn waits_happen_and_an_idle_library_uses_no_processor() {
    let scene = Scene::new(&[]);
    scene.run("waits", "default_algorithm = \"aIOLi\" waiting_time = 300000000", &[]);
    for name in ALGORITHMS {
        scene.run("idle", &algorithm(name), &[]);
    }
}

#[test]
fn queue_ids_are_as_many_as_there_are_applications_but_for_twins() {
    let scene = Scene::new(&[]);
    for name in ALGORITHMS.into_iter().filter(|name| *name != "TWINS") {
        scene.run("queues", &algorithm(name), &[]);
    }
    scene.run("servers", &format!("{} twins_window = 1000", algorithm("TWINS")), &[]);
}

#[test]
fn cancelling_goes_by_the_file() {
    Scene::new(&[]).run("cancel", &algorithm("TO"), &[]);
}

#[test]
fn what_is_wrong_is_false_with_a_text_and_a_child_has_its_own() {
    let scene = Scene::new(&[]);
    scene.run("errors", &algorithm("SJF"), &[]);
    scene.run("fork", &algorithm("SJF"), &[]);
}

#[test]
fn under_valgrind() {
    let scene = Scene::new(&[]);
    let valgrind = ["valgrind", "-q", "--error-exitcode=9", "--fair-sched=yes"];
    let leaks = ["--leak-check=full", "--errors-for-leak-kinds=definite,indirect"];
    for (mode, name) in [("values", "SJF"), ("cancel", "TO"), ("errors", "SJF")] {
        scene.run(mode, &algorithm(name), &[&valgrind[..], &leaks[..]].concat());
    }
    // A child after fork cannot free what is its parent's.
    scene.run("fork", &algorithm("SJF"), &[&valgrind[..], &["--leak-check=no"]].concat());
}

#[test]
fn with_a_sanitizer() {
    let scene = Scene::new(&["-fsanitize=address"]);
    for (mode, name) in
        [("values", "TO-agg"), ("cancel", "TO"), ("errors", "SJF"), ("multi", "aIOLi"), ("fork", "TO")]
    {
        scene.run(mode, &algorithm(name), &[]);
    }
}

#[test]
fn the_installed_library_has_a_name_and_versions_and_nothing_else_is_seen_of_it() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().display().to_string();
    installed::link(root(), "agios", VERSION, folder.path());
    let scene = Scene::new(&["-L", &place, &format!("-Wl,-rpath,{place}")]);
    installed::asks_for(&scene.program, "libiogate_agios", VERSION);
    scene.run("values", &algorithm("TO"), &[]);
}

#[test]
fn the_manual_has_all_that_the_header_says() {
    installed::manual(root(), "agios", "agios.h");
}
