//! Every kind of addition, in a copy of the tree.

use std::fs;
use std::process::Output;

use super::*;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

/// A copy of what cargo and the additions look at. Gone with its owner.
struct Copy(PathBuf);

impl Copy {
    /// Always in the same place: what cargo has compiled of it before is good until it changes.
    fn of_tree(name: &str) -> Copy {
        let copy = Copy(root().join("target/xtask-new").join(name));
        let _ = fs::remove_dir_all(&copy.0);
        fs::create_dir_all(copy.0.join("tests/system")).unwrap();
        let tree =
            ["Cargo.toml", "Cargo.lock", "rustfmt.toml", "crates", "python", "xtask", "scenarios", "docs"];
        for (files, folder) in [(&tree[..], "."), (&["tests/system/lib.sh"], "tests/system")] {
            let mut command = Command::new("cp");
            command.arg("-a").args(files).arg(copy.0.join(folder)).current_dir(root());
            assert!(command.status().unwrap().success());
        }
        copy
    }

    /// Compiled without optimising, which takes longer than the test; into the workspace's folder, where the dependencies are.
    fn cargo(&self, args: &[&str]) -> Output {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut command = Command::new(cargo);
        // What is said of packages, cargo takes from its arguments, and not from the environment.
        for package in ["core", "testkit"] {
            command.arg("--config").arg(format!("profile.dev.package.iogate-{package}.opt-level=0"));
        }
        command.args(args).current_dir(&self.0).env("CARGO_TARGET_DIR", root().join("target"));
        command.output().unwrap()
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn each_kind_is_made_formatted_and_parsed() {
    let copy = Copy::of_tree("kinds");
    for kind in &KINDS {
        let changed = make(&copy.0, kind, "two-queues").unwrap();
        // As it leaves it; what cannot be parsed cannot be formatted.
        assert!(format(&copy.0, &changed, &["--check"]), "{}", kind.name);
        let again = run(&copy.0, kind.name, "two-queues").unwrap_err();
        assert!(format!("{again:#}").contains("already"), "{again:#}");
        for (path, _) in kind.files {
            let text = fs::read_to_string(copy.0.join(Words::of("two-queues").put(path))).unwrap();
            assert!(text.starts_with("//! ") && !text.contains("@"), "{path}");
        }
    }
}

#[test]
fn a_new_scheduler_compiles_and_fails_its_test() {
    let copy = Copy::of_tree("scheduler");
    run(&copy.0, "scheduler", "two-queues").unwrap();
    let kind = &KINDS[0];
    let test = Words::of("two-queues").put(kind.test);
    // Of the workspace instead of the package: what others need is there with the features that all need.
    let test = test.split(' ').skip_while(|word| *word != "--test");
    let args: Vec<&str> = ["test", "--offline", "--workspace"].into_iter().chain(test).collect();
    let done = copy.cargo(&args);
    let said = String::from_utf8_lossy(&done.stdout).into_owned() + &String::from_utf8_lossy(&done.stderr);
    assert!(!done.status.success(), "it passes: {said}");
    assert!(said.contains("test result: FAILED. 0 passed; 1 failed"), "it does not compile: {said}");
    assert!(said.contains("the naive model of two-queues is to be written"), "{said}");
}

#[test]
fn what_is_asked_wrongly_is_said_and_changes_nothing() {
    let wrong = |kind: &str, name: &str| format!("{:#}", run(Path::new("/nowhere"), kind, name).unwrap_err());
    assert!(
        wrong("planet", "x").contains("expected one of scheduler, store, device, workload, got `planet`")
    );
    for name in ["", "Two", "two_queues", "2q", "-a", "a--b", "mod", "a/b"] {
        assert!(wrong("store", name).contains("as in two-queues"), "{name}");
    }
    assert!(format!("{:#}", run(root(), "scheduler", "fifo").unwrap_err()).contains("is there already"));
    let changed = Line::Behind { path: "", text: "here", new: "x" }.put("nothing", &Words::of("x"));
    assert!(changed.unwrap_err().to_string().contains("found it 0 times: mend"));
}
