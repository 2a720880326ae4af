//! Programs that take turns without knowing it: each writes in a way of its own, and a real coordinator says which turns that took.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use iogate_net::coordinator::{Coordinator, CoordinatorConfig, Ending, Finished, Local};
use iogate_net::transport::auth::Policy;
use iogate_net::{Endpoint, Listener};

/// A coordinator, and a folder for programs.
struct Setup {
    dir: tempfile::TempDir,
    coordinator: Coordinator,
}

impl Setup {
    fn new() -> Setup {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("files")).unwrap();
        let endpoint = Endpoint::Unix(dir.path().join("socket"));
        let listener = Listener::bind(&endpoint, Policy::Peer).unwrap();
        let journal = Box::new(Local::open(&dir.path().join("state")).unwrap());
        let coordinator = Coordinator::start(CoordinatorConfig::default(), vec![listener], journal).unwrap();
        let built = dir.path().join("output");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/output.c");
        let compiled =
            Command::new("cc").args(["-O1", "-w", "-pthread", "-o"]).arg(built).arg(source).status();
        assert!(compiled.unwrap().success());
        Setup { dir, coordinator }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// A program with the library, of a job.
    fn program(&self, program: &str, job: &str) -> Command {
        let mut command = Command::new(program);
        command
            .current_dir(self.path("files"))
            .stdin(Stdio::null())
            .env("LD_PRELOAD", library())
            .env("IOGATE_COORD", format!("unix:{}", self.path("socket").display()))
            .env("IOGATE_FILES", "*.ckpt")
            .env("IOGATE_IDLE", "60s")
            .env("IOGATE_JOB", job);
        command
    }

    fn way(&self, way: &str, job: &str) -> Command {
        let mut command = self.program(self.path("output").to_str().unwrap(), job);
        command.arg(way);
        command
    }

    /// The turns of a job that are over, the last one first, once nobody holds one.
    fn turns(&self, job: &str) -> Vec<Finished> {
        for _ in 0..2000 {
            let status = self.coordinator.status().unwrap();
            if status.holders.is_empty() {
                return status.finished.into_iter().filter(|turn| turn.label == job).collect();
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        panic!("somebody still has a turn");
    }

    /// A job has had so many turns, has ended each, and has written so many bytes in them.
    fn expect(&self, job: &str, count: usize, bytes: u64) {
        let turns = self.turns(job);
        assert_eq!(turns.len(), count, "{job}: {turns:?}");
        assert!(turns.iter().all(|turn| turn.ending == Ending::Released), "{job}: {turns:?}");
        assert_eq!(turns.iter().map(|turn| turn.bytes).sum::<u64>(), bytes, "{job}: {turns:?}");
    }
}

fn library() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let library = test.parent().unwrap().join("libiogate_preload.so");
    assert!(library.exists(), "{} is missing: build the package first", library.display());
    library
}

fn run(command: &mut Command) -> Output {
    finish(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap())
}

fn finish(child: std::process::Child) -> Output {
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}: {}", output.status, String::from_utf8_lossy(&output.stderr));
    output
}

#[test]
fn every_way_to_write_takes_its_turns() {
    let setup = Setup::new();
    for (way, turns, bytes) in [
        ("plain", 1, 8000),
        ("fails", 1, 0),
        ("stdio", 3, 11_023),
        ("two", 1, 3000),
        ("sync", 2, 2000),
        ("dups", 1, 4000),
        ("forks", 2, 3000),
        ("threads", 1, 200_000),
        ("exits", 1, 1000),
        ("_exits", 1, 1000),
        ("execs", 1, 1000),
        ("others", 0, 0),
        ("stale", 0, 0),
        ("copies", 1, 2000),
        ("names", 3, 3000),
    ] {
        let output = run(&mut setup.way(way, way));
        assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{way}");
        setup.expect(way, turns, bytes);
    }
    let standard_output = std::fs::read_to_string(setup.path("files/c.ckpt"));
    assert!(standard_output.is_ok_and(|text| text.len() == 2000), "creat and an append came after");
}

#[test]
fn programs_that_others_have_written_take_theirs() {
    let setup = Setup::new();
    let script = |name: &str, script: &str, turns: usize, bytes: u64| {
        run(setup.program("bash", name).args(["-ec", script]));
        setup.expect(name, turns, bytes);
    };
    script("builtin", "echo text > a.ckpt; echo more >> a.ckpt; cat a.ckpt > other", 2, 10);
    script("redirected", "seq 1000 > b.ckpt; [ $(wc -l < b.ckpt) = 1000 ]", 1, 3893);
    script("subshell", "(echo one; echo two) > c.ckpt", 1, 8);
    script("pipeline", "seq 1000 | sort -rn | tee other > d.ckpt; cmp other d.ckpt", 1, 3893);
    script("dd", "dd if=/dev/zero of=e.ckpt bs=64k count=16 status=none", 1, 1 << 20);
    script("cp", "cp --reflink=never e.ckpt f.ckpt; cmp e.ckpt f.ckpt", 1, 1 << 20);
    script("tar", "tar cf g.ckpt e.ckpt", 1, (1 << 20) + 6144);
    let python = "\
import os, shutil, tempfile
with open('h.ckpt.new', 'wb') as file:
    file.write(bytes(100_000))
with open('i.ckpt', 'wb') as file:
    file.write(bytes(100_000))
    file.flush()
    os.fsync(file.fileno())
    os.pwrite(file.fileno(), b'end', 200_000)
shutil.copyfile('i.ckpt', 'j.ckpt')
";
    script("python", &format!("python3 -c \"{python}\""), 3, 100_000 + 3 + 200_003);
    let lines = "#include <fstream>\n#include <iostream>\nint main() { std::ofstream file(\"k.ckpt\"); \
        file << std::string(100'000, 'x') << 7; std::cout << \"out\\n\"; std::cerr << \"err\\n\"; }";
    std::fs::write(setup.path("stream.cc"), lines).unwrap();
    script(
        "c++",
        "c++ -o stream ../stream.cc; ./stream > l.ckpt 2>/dev/null; [ \"$(cat l.ckpt)\" = out ]",
        1,
        100_005,
    );
}

#[test]
fn jobs_are_alone_in_their_turns_and_tokens_grow() {
    let setup = Setup::new();
    let jobs = ["one", "two", "three"];
    let children = jobs.map(|job| setup.way("alone", job).stderr(Stdio::piped()).spawn().unwrap());
    children.into_iter().for_each(|child| drop(finish(child)));
    for job in jobs {
        setup.expect(job, 5, 5000);
        let tokens: Vec<u64> = setup.turns(job).iter().map(|turn| turn.token).collect();
        assert!(tokens.is_sorted_by(|last, before| last > before), "{tokens:?}");
    }
}

#[test]
fn processes_of_a_job_share_a_turn() {
    let setup = Setup::new();
    let children = [(); 2].map(|()| setup.way("together", "both").stderr(Stdio::piped()).spawn().unwrap());
    children.into_iter().for_each(|child| drop(finish(child)));
    setup.expect("both", 2, 2000);
}

#[test]
fn a_turn_without_writes_ends() {
    let setup = Setup::new();
    let child = setup.way("idle", "idle").env("IOGATE_IDLE", "20ms").stderr(Stdio::piped()).spawn().unwrap();
    while setup.turns("idle").is_empty() {
        std::thread::sleep(Duration::from_millis(5));
    }
    std::fs::write(setup.path("files/go"), "").unwrap();
    finish(child);
    setup.expect("idle", 2, 2000);
}

#[test]
fn a_turn_does_not_end_in_a_write_however_soon_it_ends_without_one() {
    let setup = Setup::new();
    run(setup.way("large", "large").env("IOGATE_IDLE", "0s"));
    setup.expect("large", 1, 64 << 20);
}

#[test]
fn without_a_coordinator_programs_go_on_unless_they_must_not() {
    let setup = Setup::new();
    setup.coordinator.shutdown();
    let mut plain = setup.way("plain", "");
    let output = run(plain.env("IOGATE_PATIENCE", "10ms"));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("going on without"), "{said}");
    assert_eq!(std::fs::metadata(setup.path("files/a.ckpt")).unwrap().len(), 11_000);
    let mut refused = setup.way("refused", "");
    let output = run(refused.env("IOGATE_PATIENCE", "10ms").env("IOGATE_STRICT", "1"));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "EHOSTUNREACH\n");
}

#[test]
fn what_is_wrong_in_the_environment_is_said_and_nothing_else_changes() {
    let setup = Setup::new();
    for (variable, value, says) in [
        ("IOGATE_POLICY", "locks", "IOGATE_POLICY"),
        ("IOGATE_IDLE", "2", "IOGATE_IDLE"),
        ("IOGATE_FILES", "[a", "`[a`"),
    ] {
        let output = run(setup.way("plain", "wrong").env(variable, value));
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.contains(says), "{said}");
    }
    setup.expect("wrong", 0, 0);
}
