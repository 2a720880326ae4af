//! The program with a real mount: up, asked, told, down; and the demo. Where FUSE is not to be had, only the demo.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

fn iogate() -> Command {
    Command::new(env!("CARGO_BIN_EXE_iogate"))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn can_mount() -> bool {
    std::fs::File::options().read(true).write(true).open("/dev/fuse").is_ok()
}

fn is_mounted(path: &Path) -> bool {
    let path = path.to_string_lossy();
    std::fs::read_to_string("/proc/self/mounts")
        .unwrap()
        .lines()
        .any(|line| line.split(' ').nth(1) == Some(&path))
}

/// A mount that is gone when the test is over, however it ends.
struct Mount {
    folder: tempfile::TempDir,
}

impl Mount {
    fn new(args: &[&str]) -> Mount {
        let mount = Mount { folder: tempfile::tempdir().unwrap() };
        std::fs::create_dir(mount.source()).unwrap();
        std::fs::create_dir(mount.point()).unwrap();
        let mut command = iogate();
        // Flags end where a path may begin with a dash.
        command.arg("mount").args(args).arg(mount.source()).arg("--").arg(mount.point());
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        assert!(is_mounted(&mount.point()), "the command returns when the mount is ready");
        mount
    }

    fn source(&self) -> PathBuf {
        self.folder.path().join("source")
    }

    fn point(&self) -> PathBuf {
        self.folder.path().join("mount")
    }

    fn ask(&self, command: &str, args: &[&str]) -> Output {
        iogate().arg(command).arg(self.point()).args(args).output().unwrap()
    }

    fn status(&self) -> Value {
        let output = self.ask("status", &["--json"]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if is_mounted(&self.point()) {
            let _ = self.ask("umount", &["--lazy"]);
        }
    }
}

#[test]
fn a_mount_is_asked_and_told() {
    if !can_mount() {
        return eprintln!("skipped: /dev/fuse is not to be had");
    }
    let mount = Mount::new(&["--scheduler", "aioli", "--param", "wait_max=500us"]);
    let data: Vec<u8> = (0..300_000u32).map(|i| (i % 251) as u8).collect();
    std::fs::write(mount.point().join("file with spaces"), &data).unwrap();
    assert_eq!(std::fs::read(mount.point().join("file with spaces")).unwrap(), data);
    assert_eq!(std::fs::read(mount.source().join("file with spaces")).unwrap(), data);

    let status = mount.status();
    assert_eq!((&status["scheduler"], &status["params"]["wait_max"]), (&"aioli".into(), &"500us".into()));
    assert_eq!(status["write"]["bytes"], 300_000);
    // What was asked for; programs ask past the end to find it.
    assert!(status["read"]["bytes"].as_u64().unwrap() >= 300_000);
    assert_eq!(status["files"][0]["name"], "file with spaces");
    let table = text(&mount.ask("status", &[]).stdout);
    assert!(table.contains("scheduler   aioli ") && table.contains("file with spaces"), "{table}");

    assert!(mount.ask("set", &["wait_max=1ms"]).status.success());
    assert_eq!(mount.status()["params"]["wait_max"], "1ms");
    assert!(mount.ask("set", &["scheduler=hbrr", "quantum=3"]).status.success());
    let status = mount.status();
    assert_eq!((&status["scheduler"], &status["params"]["quantum"]), (&"hbrr".into(), &"3".into()));
    for (setting, said) in [
        ("scheduler=hbr", "did you mean 'hbrr'?"),
        ("quantm=4", "did you mean 'quantum'?"),
        ("quantum=0", "out of range"),
        ("quantum", "expected name=value"),
    ] {
        let output = mount.ask("set", &[setting]);
        assert_eq!(output.status.code(), Some(2));
        assert!(text(&output.stderr).contains(said), "{}", text(&output.stderr));
    }
    assert_eq!(mount.status()["params"]["quantum"], "3", "a refused change changes nothing");

    let output = iogate().arg("mount").args([mount.source(), mount.point()]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("is a mount point already"), "{}", text(&output.stderr));

    let output = mount.ask("umount", &[]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(!is_mounted(&mount.point()));
    assert_eq!(std::fs::read_dir(mount.point()).unwrap().count(), 0);
}

/// A server of the folder's directory `data`, at the folder's `socket`, by a path that only counts there.
struct Served(Child);

impl Served {
    fn start(folder: &Path) -> Served {
        let args = ["serve", "--directory", "data", "--listen", "unix:socket"];
        let mut server =
            Served(iogate().args(args).current_dir(folder).stdout(Stdio::piped()).spawn().unwrap());
        let out = BufReader::new(server.0.stdout.take().unwrap());
        assert!(out.lines().any(|line| line.unwrap() == "ready"), "the server does not start");
        server
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_mount_in_the_background_finds_its_server_again() {
    if !can_mount() {
        return eprintln!("skipped: /dev/fuse is not to be had");
    }
    let mount = Mount { folder: tempfile::tempdir().unwrap() };
    let folder = mount.folder.path();
    for name in ["data", "mount"] {
        std::fs::create_dir(folder.join(name)).unwrap();
    }
    let server = Served::start(folder);
    let output =
        iogate().args(["mount", "--remote", "unix:socket", "mount"]).current_dir(folder).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    std::fs::write(mount.point().join("file"), "before").unwrap();
    drop(server);
    let _server = Served::start(folder);
    assert_eq!(std::fs::read(mount.point().join("file")).unwrap(), b"before");
}

#[test]
fn a_layout_says_which_target_a_request_is_for() {
    if !can_mount() {
        return eprintln!("skipped: /dev/fuse is not to be had");
    }
    let striped = ["--scheduler", "server-window", "--layout", "stripe=4KiB,targets=4,first=1", "--no-uring"];
    for (args, expected) in [(&striped[..], [1, 2, 3, 0].as_slice()), (&striped[..2], &[0])] {
        let mount = Mount::new(args);
        let output = Command::new("dd")
            .arg(format!("of={}/a", mount.point().display()))
            .args(["if=/dev/zero", "bs=4k", "count=8"])
            .output();
        assert!(output.unwrap().status.success());
        let status = mount.status();
        let shares = status["targets"].as_array().unwrap().iter();
        let mut shares: Vec<_> =
            shares.map(|share| (share["id"].as_u64().unwrap(), share["bytes"].as_u64().unwrap())).collect();
        shares.sort_unstable();
        let mut expected: Vec<_> =
            expected.iter().map(|&target| (target, 8 * 4096 / expected.len() as u64)).collect();
        expected.sort_unstable();
        assert_eq!(shares, expected);
        let layout = mount.ask("layout", &[]);
        assert!(text(&layout.stderr).contains("expected a regular file"), "{}", text(&layout.stderr));
    }
}

#[test]
fn a_modelled_store_takes_the_time_of_its_device() {
    if !can_mount() {
        return eprintln!("skipped: /dev/fuse is not to be had");
    }
    let mount = Mount::new(&["--store", "modelled", "--device", "unit:20ms", "--scheduler", "fifo"]);
    std::fs::write(mount.source().join("a"), [7; 4 * 4096]).unwrap();
    let start = std::time::Instant::now();
    let output = Command::new("dd")
        .arg(format!("if={}/a", mount.point().display()))
        .args(["of=/dev/null", "bs=4k"])
        .output();
    assert!(output.unwrap().status.success());
    // Four reads, perhaps a fifth that finds the end.
    assert!(start.elapsed().as_millis() >= 80, "{:?}", start.elapsed());
}

fn demo(args: &[&str]) -> (Value, String) {
    let folder = tempfile::tempdir().unwrap();
    let scratch = tempfile::tempdir().unwrap();
    let output = iogate()
        .args(["demo", "--quick", "--json"])
        .args(args)
        .current_dir(folder.path())
        .env("TMPDIR", scratch.path())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(text(&output.stderr), "", "no progress bars where there is no terminal");
    let left: Vec<_> =
        std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["iogate-demo.html"]);
    assert_eq!(std::fs::read_dir(scratch.path()).unwrap().count(), 0, "temporary files are gone");
    let html = std::fs::read_to_string(folder.path().join("iogate-demo.html")).unwrap();
    (serde_json::from_slice(&output.stdout).unwrap(), html)
}

fn check_demo((report, html): (Value, String)) {
    let runs = report["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 2);
    for run in runs {
        assert_eq!(run["gate"]["read"]["bytes"], (4 + 4) * 1024 * 1024 + 256 * 1024);
        assert_eq!(run["apps"].as_array().unwrap().len(), 3);
    }
    let of = |run: usize, name: &str| runs[run][name].as_u64().unwrap();
    assert_eq!(
        (runs[0]["gate"]["scheduler"].as_str(), runs[1]["gate"]["scheduler"].as_str()),
        (Some("fifo"), Some("aioli"))
    );
    assert!(of(1, "repositions") < of(0, "repositions"), "fewer seeks with scheduling");
    assert!(of(1, "makespan_ns") < of(0, "makespan_ns"), "sooner done with scheduling");
    for said in ["Who was served when", "strided-1", "sequential", "</html>"] {
        assert!(html.contains(said), "{said}");
    }
}

#[test]
fn the_demo_shows_the_improvement() {
    check_demo(demo(&[]));
}

#[test]
fn a_mount_whose_process_was_killed_is_taken_off() {
    if !can_mount() {
        return eprintln!("skipped: /dev/fuse is not to be had");
    }
    let folder = tempfile::tempdir().unwrap();
    // The list of mounts has its own way with blanks and backslashes.
    let (source, point) = (folder.path().join("source"), folder.path().join("a b\\040 \u{e9}"));
    std::fs::create_dir(&source).unwrap();
    std::fs::create_dir(&point).unwrap();
    let mut child = iogate().arg("mount").args([&source, &point]).arg("--foreground").spawn().unwrap();
    let is_root = || iogate().arg("status").arg(&point).output().unwrap().status.success();
    for _ in 0..500 {
        if is_root() {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    assert!(is_root());
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(std::fs::read_dir(&point).is_err(), "nobody serves it");
    let output = iogate().arg("umount").arg(&point).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(std::fs::read_dir(&point).unwrap().count(), 0);
    let again = iogate().arg("umount").arg(&point).output().unwrap();
    assert!(text(&again.stderr).contains("is not a mount point"), "{}", text(&again.stderr));
    for place in [&*point, Path::new("/proc")] {
        let asked = iogate().args(["umount", "--if-mounted"]).arg(place).output().unwrap();
        assert!(asked.status.success() && asked.stderr.is_empty(), "{}", text(&asked.stderr));
    }
    assert!(Path::new("/proc/self").exists(), "what is not iogate's is left alone");
}

/// A mount in the foreground, whose process is a child; both are gone when the test is over.
struct Foreground {
    folder: tempfile::TempDir,
    child: Child,
}

impl Foreground {
    fn new(args: &[&str]) -> Foreground {
        let folder = tempfile::tempdir().unwrap();
        let (source, point) = (folder.path().join("source"), folder.path().join("mount"));
        std::fs::create_dir(&source).unwrap();
        std::fs::create_dir(&point).unwrap();
        let child =
            iogate().arg("mount").args([&source, &point]).args(args).arg("--foreground").spawn().unwrap();
        let mount = Foreground { folder, child };
        eventually("the mount comes up", || {
            iogate().arg("status").arg(mount.point()).output().unwrap().status.success().then_some(())
        });
        mount
    }

    fn point(&self) -> PathBuf {
        self.folder.path().join("mount")
    }

    fn terminate(&self) {
        assert!(Command::new("kill").arg(self.child.id().to_string()).status().unwrap().success());
    }

    fn umount(&self, args: &[&str]) -> Output {
        iogate().arg("umount").arg(self.point()).args(args).output().unwrap()
    }
}

impl Drop for Foreground {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if is_mounted(&self.point()) {
            let _ = self.umount(&["--lazy"]);
        }
    }
}

/// Waits for something that has to happen.
fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let begin = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(begin.elapsed() < Duration::from_secs(60), "expected within a minute: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_dead_mount_with_an_open_file_is_taken_off_and_one_in_use_says_how() {
    if !can_mount() {
        return eprintln!("skipped: /dev/fuse is not to be had");
    }
    let mut mount = Foreground::new(&[]);
    let open = std::fs::File::create(mount.point().join("open")).unwrap();
    let refused = mount.umount(&[]);
    let said = text(&refused.stderr);
    assert!(!refused.status.success());
    assert!(said.contains("in use") && said.contains("iogate umount --lazy"), "{said}");
    mount.child.kill().unwrap();
    mount.child.wait().unwrap();
    let output = mount.umount(&[]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(!is_mounted(&mount.point()));
    drop(open);
}

/// A server that is not there at first, and a mount of it, that are gone when the test is over.
struct LateServer {
    folder: tempfile::TempDir,
    server: Option<Child>,
}

impl LateServer {
    fn point(&self) -> PathBuf {
        self.folder.path().join("mount")
    }

    fn address(&self) -> String {
        format!("unix:{}", self.folder.path().join("socket").display())
    }
}

impl Drop for LateServer {
    fn drop(&mut self) {
        if is_mounted(&self.point()) {
            let _ = iogate().args(["umount", "--lazy"]).arg(self.point()).status();
        }
        if let Some(server) = &mut self.server {
            let _ = server.kill();
            let _ = server.wait();
        }
    }
}

#[test]
fn a_mount_waits_for_a_server_that_is_not_there_yet_and_not_for_ever() {
    if !can_mount() {
        return eprintln!("skipped: /dev/fuse is not to be had");
    }
    let mut served = LateServer { folder: tempfile::tempdir().unwrap(), server: None };
    for name in ["mount", "data"] {
        std::fs::create_dir(served.folder.path().join(name)).unwrap();
    }
    std::fs::write(served.folder.path().join("data/file"), "content").unwrap();
    let mount = |wait: &str| {
        let args = ["mount", "--remote", &served.address(), "--wait", "1h", "--wait", wait];
        let mut command = iogate();
        command.args(args).arg(served.point()).stderr(Stdio::piped());
        command
    };
    let late = mount("50ms").output().unwrap();
    let said = text(&late.stderr);
    assert_eq!(late.status.code(), Some(1), "{said}");
    assert!(said.starts_with("waits for at most 50ms: the server unix:"), "{said}");
    assert_eq!(said.lines().filter(|line| line.starts_with("error: the server unix:")).count(), 1, "{said}");

    let mut mounting = mount("1h").spawn().unwrap();
    let mut said = String::new();
    BufReader::new(mounting.stderr.take().unwrap()).read_line(&mut said).unwrap();
    assert!(said.starts_with("waits for "), "{said}");
    let mut server = iogate();
    server.args(["serve", "--with-parent", "--directory"]).arg(served.folder.path().join("data"));
    let server = server.args(["--listen", &served.address()]).stdout(Stdio::null()).spawn().unwrap();
    served.server = Some(server);
    assert!(mounting.wait().unwrap().success());
    assert_eq!(std::fs::read_to_string(served.point().join("file")).unwrap(), "content");
}

/// The kernel lets nobody set an attribute of the root while a name is made in it.
#[test]
fn a_change_does_not_wait_for_ever_for_a_mount_that_hangs() {
    if !can_mount() {
        return eprintln!("skipped: /dev/fuse is not to be had");
    }
    let mut served = LateServer { folder: tempfile::tempdir().unwrap(), server: None };
    for name in ["mount", "data"] {
        std::fs::create_dir(served.folder.path().join(name)).unwrap();
    }
    let mut server = iogate();
    server.args(["serve", "--with-parent", "--directory"]).arg(served.folder.path().join("data"));
    let server = server.args(["--listen", &served.address()]).stdout(Stdio::null()).spawn().unwrap();
    let pid = server.id().to_string();
    served.server = Some(server);
    let args = ["mount", "--remote", &served.address(), "--wait", "1h"];
    assert!(iogate().args(args).arg(served.point()).stderr(Stdio::null()).status().unwrap().success());
    let set = || iogate().arg("set").arg(served.point()).arg("scheduler=sjf").output().unwrap();
    assert!(set().status.success());

    let signal = |name: &str| assert!(Command::new("kill").args([name, &pid]).status().unwrap().success());
    // While it makes a name, the kernel lets nobody change the root; unless it first asks for the root's attributes, which last a second.
    let (took, output) = eventually("a change is held up", || {
        std::fs::metadata(served.point()).unwrap();
        signal("-STOP");
        let mut making = Command::new("mkdir").arg(served.point().join("new")).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(300));
        let begun = Instant::now();
        let output = set();
        let took = begun.elapsed();
        signal("-CONT");
        assert!(making.wait().unwrap().success());
        std::fs::remove_dir(served.point().join("new")).unwrap();
        (!output.status.success()).then_some((took, output))
    });
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains(" has not answered in 5 s, held up by its source"), "{said}");
    assert!(took >= Duration::from_secs(5) && took < Duration::from_secs(30), "{took:?}");
    assert!(set().status.success(), "{}", text(&output.stderr));
}

#[test]
fn a_signal_ends_a_mount_of_which_another_namespace_has_a_copy() {
    if !can_mount() {
        return eprintln!("skipped: /dev/fuse is not to be had");
    }
    let mut mount = Foreground::new(&[]);
    // Says when it has the copy and a file of it open, and when it has closed that.
    let script = "exec 3>open; echo ready; read line; echo more >&3; exec 3>&-; echo closed; read line";
    let copy = Command::new("unshare")
        .args(["--mount", "--propagation", "private", "sh", "-c", &format!("cd \"$1\" && {script}"), "sh"])
        .arg(mount.point())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn();
    let Ok(mut copy) = copy else { return eprintln!("skipped: there is no unshare") };
    let mut lines = BufReader::new(copy.stdout.take().unwrap()).lines();
    if lines.next().is_none() {
        return eprintln!("skipped: no mount namespaces here");
    }
    mount.terminate();
    eventually("it is taken off", || (!is_mounted(&mount.point())).then_some(()));
    copy.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
    assert_eq!(lines.next().unwrap().unwrap(), "closed", "what is open stays usable");
    let status = eventually("the mount's process ends", || mount.child.try_wait().unwrap());
    assert!(status.success(), "{status}");
    assert_eq!(std::fs::read(mount.folder.path().join("source/open")).unwrap(), b"more\n");
    drop(copy.stdin.take());
    copy.wait().unwrap();
}

/// Whether a test has run in a process of its own, for want of capabilities in this one: in containers root may not have that
/// of passing disk quotas. As another user than root, it passes by.
fn in_a_namespace_with_all_capabilities(test: &str) -> bool {
    let is_root = Command::new("id").arg("-u").output().is_ok_and(|output| output.stdout == b"0\n");
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:")).unwrap().trim();
    if !is_root || u64::from_str_radix(effective, 16).unwrap() >> 24 & 1 == 1 {
        return !is_root;
    }
    let enter = ["--user", "--map-root-user", "--mount"];
    if !Command::new("unshare").args(enter).arg("true").status().is_ok_and(|status| status.success()) {
        eprintln!("skipped: needs all capabilities, or namespaces of users");
        return true;
    }
    let mut again = Command::new("unshare");
    again.args(enter).arg(std::env::current_exe().unwrap()).args(["--exact", test, "--nocapture"]);
    let output = again.output().unwrap();
    assert!(
        output.status.success() && text(&output.stdout).contains(" 1 passed"),
        "{}{}",
        text(&output.stdout),
        text(&output.stderr)
    );
    true
}

#[test]
fn no_thread_of_a_mount_passes_disk_quotas() {
    if !can_mount() || in_a_namespace_with_all_capabilities("no_thread_of_a_mount_passes_disk_quotas") {
        return;
    }
    for backend in ["calls", "auto"] {
        let mount = Foreground::new(&["--backend", backend]);
        let file = std::fs::File::create(mount.point().join("file")).unwrap();
        std::thread::scope(|scope| {
            for thread in 0..16 {
                let file = &file;
                scope.spawn(move || {
                    (0..64).for_each(|n| file.write_all_at(&[1; 4096], (thread << 20) + n * 4096).unwrap());
                });
            }
        });
        let mut seen = 0;
        for task in std::fs::read_dir(format!("/proc/{}/task", mount.child.id())).unwrap() {
            let Ok(status) = std::fs::read_to_string(task.unwrap().path().join("status")) else { continue };
            let field = |name: &str| {
                status.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim().to_owned()
            };
            let capabilities = u64::from_str_radix(&field("CapEff:"), 16).unwrap();
            let has = |number: u32| capabilities >> number & 1 == 1;
            let (fsetid, sys_resource) = (has(4), has(24));
            // What waits for the end, for signals or for messages does no I/O for others.
            let serves = ["iogate-dev", "iogate-ring", "iogate-engine", "iogate-worker"];
            if serves.iter().any(|name| field("Name:").starts_with(name)) {
                seen += 1;
                assert!(!sys_resource, "{}", field("Name:"));
                assert!(fsetid, "the kernel says what is cleared: {}", field("Name:"));
            }
        }
        assert!(seen >= 3, "{seen} threads that serve");
    }
}

#[test]
fn the_demo_sees_that_the_device_is_not_the_real_one() {
    let hide = "mount --bind /dev/null /dev/fuse && exec \"$0\" demo --quick --json --html \"$1\"";
    let hidden = |script: &str, html: &Path| {
        Command::new("unshare")
            .args(["--mount", "sh", "-c", script, env!("CARGO_BIN_EXE_iogate")])
            .arg(html)
            .output()
    };
    let folder = tempfile::tempdir().unwrap();
    let html = folder.path().join("r.html");
    if !can_mount() || !hidden("mount --bind /dev/null /dev/fuse", &html).is_ok_and(|o| o.status.success()) {
        return eprintln!("skipped: /dev/fuse cannot be hidden here");
    }
    let output = hidden(hide, &html).unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let said = report["notes"][1].as_str().unwrap();
    assert!(said.starts_with("There is no mount (/dev/fuse cannot be used"), "{said}");
}

#[test]
fn the_demo_does_without_a_mount() {
    let (report, html) = demo(&["--in-process"]);
    assert!(report["notes"][1].as_str().unwrap().starts_with("There is no mount (as asked for)"));
    check_demo((report, html));
}
