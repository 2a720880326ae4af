//! Programs as they are: each runs in a plain directory and, with the library, in one of a forwarder, and must say the same. The
//! forwarder is a real one, over a Unix socket.

#[path = "../examples/forwarder.rs"]
#[allow(dead_code, reason = "it is a program, too")]
mod forwarder;

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use iogate_net::{Endpoint, Server};

/// A forwarder, and what lies behind it.
struct Setup {
    dir: tempfile::TempDir,
    server: Option<Server>,
}

impl Setup {
    fn new() -> Setup {
        let dir = tempfile::tempdir().unwrap();
        for name in ["plain", "served", "built"] {
            std::fs::create_dir(dir.path().join(name)).unwrap();
        }
        let endpoint = Endpoint::Unix(dir.path().join("socket"));
        let server = forwarder::serve(&dir.path().join("served"), &endpoint).unwrap();
        Setup { dir, server: Some(server) }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Lets a program use the library.
    fn with_library<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        command
            .env("LD_PRELOAD", library())
            .env("IOGATE_PREFIX", PREFIX)
            .env("IOGATE_FORWARDERS", format!("unix:{}", self.path("socket").display()))
    }

    /// Compiles a program of `tests/programs`.
    fn compile(&self, name: &str) -> PathBuf {
        let built = self.path("built").join(name);
        let source = source(&format!("{name}.c"));
        let mut compiler = Command::new("cc");
        run(compiler.args(["-O1", "-w", "-pthread", "-o"]).arg(&built).arg(source));
        built
    }

    /// Runs a program in both directories, and compares what it says.
    fn compare(&self, program: impl Fn() -> Command) {
        let plain = run(program().arg(self.path("plain")));
        let ours = run(self.with_library(&mut program()).arg(PREFIX));
        let lines = |output: &Output| String::from_utf8_lossy(&output.stdout).into_owned();
        let (plain, ours) = (lines(&plain), lines(&ours));
        for (number, (plain, ours)) in plain.lines().zip(ours.lines()).enumerate() {
            assert_eq!(ours, plain, "line {}", number + 1);
        }
        assert_eq!(ours.lines().count(), plain.lines().count());
        assert!(plain.lines().count() > 10, "it says something: {plain}");
        assert_eq!(self.list("served"), self.list("plain"), "what it leaves");
    }

    /// Everything in a directory, with what it is; but what is the server's own.
    fn list(&self, name: &str) -> Vec<String> {
        let format = [
            "-path",
            "./.iogate",
            "-prune",
            "-o",
            "-type",
            "f",
            "-printf",
            "%P %m %s\\n",
            "-o",
            "-printf",
            "%P %y\\n",
        ];
        let found = run(Command::new("find").args(format).current_dir(self.path(name)));
        let mut lines: Vec<String> =
            String::from_utf8_lossy(&found.stdout).lines().map(str::to_owned).collect();
        lines.sort();
        lines
    }
}

const PREFIX: &str = "/iogate-of-tests";

fn library() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let library = test.parent().unwrap().join("libiogate_preload.so");
    assert!(library.exists(), "{} is missing: build the package first", library.display());
    library
}

fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs").join(name)
}

fn run(command: &mut Command) -> Output {
    let output = command.stdin(Stdio::null()).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(
        output.status.success(),
        "{command:?}: {}\n{}\n{}",
        output.status,
        text(&output.stdout),
        text(&output.stderr)
    );
    output
}

#[test]
fn c_programs_see_what_posix_promises() {
    let setup = Setup::new();
    let program = setup.compile("posix");
    setup.compare(|| Command::new(&program));
}

#[test]
fn a_number_that_is_given_out_again_leads_where_the_kernel_says() {
    let setup = Setup::new();
    let program = setup.compile("reused");
    setup.compare(|| Command::new(&program));
}

#[test]
fn programs_leave_wherever_a_signal_meets_them() {
    let setup = Setup::new();
    let built = setup.compile("leaving");
    // What children that are interrupted leave behind is not the same twice.
    let says = |mut program: Command, dir: &str| {
        let output = run(program.arg("200").arg(&built).arg(dir));
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let plain = says(Command::new("timeout"), setup.path("plain").to_str().unwrap());
    let mut ours = Command::new("timeout");
    setup.with_library(&mut ours);
    assert_eq!(says(ours, PREFIX), plain);
    assert!(plain.starts_with("48 of 48 have ended"), "{plain}");
}

#[test]
fn shells_and_their_commands_work() {
    let setup = Setup::new();
    setup.compare(|| {
        let mut shell = Command::new("bash");
        shell.arg(source("shell.sh"));
        shell
    });
}

#[test]
fn python_programs_work() {
    let setup = Setup::new();
    setup.compare(|| {
        let mut python = Command::new("python3");
        python.arg(source("files.py"));
        python
    });
}

#[test]
fn without_a_forwarder_calls_fail_and_the_rest_goes_on() {
    let setup = Setup::new();
    let mut shell = Command::new("bash");
    setup
        .with_library(&mut shell)
        .env("IOGATE_FORWARDERS", format!("unix:{}", setup.path("nobody").display()));
    let script = format!(
        "cat {PREFIX}/file; echo status $?; echo elsewhere > {0}; cat {0}",
        setup.path("kept").display()
    );
    let output = run(shell.arg("-c").arg(script));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "status 1\nelsewhere\n");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("cannot be reached"), "{said}");
}

#[test]
fn a_forwarder_is_found_from_another_working_directory() {
    let setup = Setup::new();
    std::fs::write(setup.path("served/lines"), "one\ntwo\n").unwrap();
    let mut shell = Command::new("bash");
    setup.with_library(&mut shell).env("IOGATE_FORWARDERS", "unix:socket").current_dir(setup.dir.path());
    // All by the shell itself: another program would start where it has gone to.
    let output = run(shell.arg("-c").arg(format!("cd / && read line <{PREFIX}/lines && echo $line")));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "one\n");
}

#[test]
fn children_wait_for_a_forwarder_that_is_started_again() {
    let mut setup = Setup::new();
    std::fs::write(setup.path("served/lines"), "one\ntwo\nthree\n").unwrap();
    // A shell's own child, and a program that is started with an open file.
    let script = format!(
        "exec 3<{PREFIX}/lines; read -u 3 line; echo $line >ready; until [ -e go ]; do sleep 0.01; done
         (read -u 3 line; echo $line); cat <&3"
    );
    let mut shell = Command::new("timeout");
    shell.args(["200", "bash", "-c", &script]).current_dir(setup.dir.path()).stdout(Stdio::piped());
    let child = setup.with_library(&mut shell).spawn().unwrap();
    while !std::fs::read_to_string(setup.path("ready")).is_ok_and(|text| text == "one\n") {
        std::thread::sleep(Duration::from_millis(5));
    }
    drop(setup.server.take());
    std::fs::write(setup.path("go"), "").unwrap();
    // It has some time to miss the forwarder.
    std::thread::sleep(Duration::from_millis(500));
    let endpoint = Endpoint::Unix(setup.path("socket"));
    setup.server = Some(forwarder::serve(&setup.path("served"), &endpoint).unwrap());
    let output = child.wait_with_output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "two\nthree\n");
}

#[test]
fn a_listing_ends_well_although_its_forwarder_is_started_again_just_before() {
    let mut setup = Setup::new();
    std::fs::write(setup.path("served/one"), "").unwrap();
    // Which takes any errno behind the last entry for an error.
    let script = format!(
        "import os, time\nfound = os.scandir('{PREFIX}')\nprint(next(found).name)\nopen('ready', 'x')\n\
         while not os.path.exists('go'): time.sleep(0.01)\nprint([one.name for one in found])"
    );
    let mut python = Command::new("timeout");
    python.args(["200", "python3", "-c", &script]).current_dir(setup.dir.path()).stdout(Stdio::piped());
    let child = setup.with_library(&mut python).spawn().unwrap();
    while !setup.path("ready").exists() {
        std::thread::sleep(Duration::from_millis(5));
    }
    drop(setup.server.take());
    std::fs::write(setup.path("go"), "").unwrap();
    // It has some time to miss the forwarder.
    std::thread::sleep(Duration::from_millis(500));
    let endpoint = Endpoint::Unix(setup.path("socket"));
    setup.server = Some(forwarder::serve(&setup.path("served"), &endpoint).unwrap());
    let output = child.wait_with_output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "one\n[]\n");
}

#[test]
fn what_the_library_cannot_do_fails_aloud() {
    let setup = Setup::new();
    let program = setup.compile("refused");
    let output = run(setup.with_library(&mut Command::new(program)).arg(PREFIX));
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        "shared ENODEV\nsystem call EBADF\nwatch EPERM\nOFD lock EINVAL\n\
         lock ENOLCK\nlock held\nlock held\n"
    );
}

#[test]
fn without_settings_the_library_does_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let mut shell = Command::new("bash");
    shell.env("LD_PRELOAD", library()).env_remove("IOGATE_FORWARDERS").current_dir(&dir);
    let output =
        run(shell.arg("-c").arg("echo here > file; cat file; ls /iogate-of-tests 2>/dev/null || echo none"));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "here\nnone\n");
}
