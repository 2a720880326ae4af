//! `iogate cluster` where something goes wrong: what is said, and that no process stays that nobody finds.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

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

fn error(output: &Output) -> String {
    assert!(!output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A cluster in a folder of its own, on Unix sockets; down when the test is over.
struct Cluster {
    folder: tempfile::TempDir,
}

impl Cluster {
    /// One whose forwarder is gone, and whose server is stopped: the next forwarder waits for that. The processes of both.
    fn whose_next_forwarder_waits() -> (Cluster, [Pid; 2]) {
        let cluster = Cluster::new("servers = { count = 1 }\nforwarders = { count = 1 }\n");
        cluster.up();
        let [server, forwarder] = ["server-0", "forwarder-0"].map(|node| cluster.pid(node).unwrap());
        kill_process(forwarder, Signal::KILL).unwrap();
        eventually("the forwarder ends", || (!runs(forwarder)).then_some(()));
        kill_process(server, Signal::STOP).unwrap();
        (cluster, [server, forwarder])
    }

    fn new(layers: &str) -> Cluster {
        let cluster = Cluster { folder: tempfile::tempdir().unwrap() };
        cluster.describe(layers);
        cluster
    }

    /// Writes the file that it is to be started by.
    fn describe(&self, layers: &str) {
        std::fs::write(self.folder.path().join("it.toml"), format!("name = \"it\"\n{layers}")).unwrap();
    }

    /// A file of the cluster's own.
    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join("it").join(name)
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_iogate"));
        command.arg("cluster").args(args).args(["--dir", "it"]).current_dir(self.folder.path());
        command
    }

    fn run(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    fn up(&self) {
        let output = self.run(&["up", "it.toml"]);
        assert!(output.status.success(), "{output:?}");
    }

    /// The process that is noted for a node.
    fn pid(&self, node: &str) -> Option<Pid> {
        let text = std::fs::read_to_string(self.path(&format!("{node}.pid"))).ok()?;
        Pid::from_raw(text.split(' ').next()?.parse().ok()?)
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let _ = self.run(&["down", "it"]);
    }
}

/// Whether a process is there and has not ended.
fn runs(pid: Pid) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, state)| !state.starts_with('Z'))
}

#[test]
fn a_setting_that_one_layer_refuses_says_what_was_changed() {
    let gates = ["gate = { scheduler = \"sjf\" }", "gate = { scheduler = \"fifo\" }"];
    let [servers, forwarders] = gates;
    let cluster = Cluster::new(&format!(
        "servers = {{ count = 2, {servers} }}\nforwarders = {{ count = 1, {forwarders} }}\n"
    ));
    cluster.up();
    let said = error(&cluster.run(&["set", "it", "age_max=2s"]));
    assert!(
        said.contains("forwarder-0") && said.contains("changed before that: server-0, server-1"),
        "{said}"
    );
    assert!(!said.contains("nothing was changed"), "{said}");
    let said = error(&cluster.run(&["set", "it", "quantum=3"]));
    assert!(said.contains("server-0") && said.contains("nothing was changed"), "{said}");
}

#[test]
fn what_is_printed_can_be_used_from_anywhere_and_in_any_shell() {
    let cluster = Cluster::new("servers = { count = 1 }\n");
    let run = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_iogate"));
        command.arg("cluster").args(args).args(["--dir", "of it"]).current_dir(cluster.folder.path());
        let output = command.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let begun = run(&["up", "it.toml"]);
    let entrances = run(&["status", "it", "--entrances"]);
    run(&["down", "it", "--purge"]);
    let folder = cluster.folder.path().canonicalize().unwrap();
    let entrance = format!("unix:{}/of it/server-0.socket", folder.display());
    assert!(begun.contains(&format!("`iogate mount --remote '{entrance}' DIRECTORY`")), "{begun}");
    assert_eq!(entrances.trim_end(), entrance);
}

/// Each of several servers has its own stripes: a mount of them would show the files of one, or fail.
#[test]
fn servers_that_no_forwarder_is_in_front_of_are_no_entrance() {
    let cluster = Cluster::new("servers = { count = 2 }\n");
    let begun = cluster.run(&["up", "it.toml"]);
    let begun = String::from_utf8(begun.stdout).unwrap();
    assert!(
        begun.contains("no forwarder stripes files over its servers") && !begun.contains("mount"),
        "{begun}"
    );
    let output = cluster.run(&["status", "it", "--entrances"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(error(&output).contains("several data servers and no forwarder"));
    // Whoever names them all the same is refused.
    let place = |node: &str| format!("unix:{}", cluster.path(&format!("{node}.socket")).display());
    let both = format!("{},{}", place("server-0"), place("server-1"));
    std::fs::create_dir(cluster.folder.path().join("mnt")).unwrap();
    let mut mount = Command::new(env!("CARGO_BIN_EXE_iogate"));
    mount.args(["mount", "--remote", &both, "--spread", "file", "mnt"]).current_dir(cluster.folder.path());
    let said = error(&mount.output().unwrap());
    assert!(said.contains("do not have the same files"), "{said}");
}

#[test]
fn what_cannot_be_made_leaves_no_cluster() {
    let cases = [
        (
            "servers = { count = 2, directory = \"/proc/it\" }\n",
            1,
            "the data directory /proc/it/server-0/objects cannot be made",
        ),
        (
            "[servers]\ncount = 1\ndevice = \"hd\"\n",
            2,
            "it.toml: line 4, `device = \"hd\"`: the device of servers: unknown device 'hd'",
        ),
        (
            "[servers]\ncount = 1\ngate = { scheduler = \"ffo\" }\n",
            2,
            "it.toml: line 4, `gate = { scheduler = \"ffo\" }`: the gate of servers: unknown scheduler 'ffo'",
        ),
    ];
    for (layers, status, expected) in cases {
        let cluster = Cluster::new(layers);
        let output = cluster.run(&["up", "it.toml"]);
        assert!(error(&output).contains(expected), "{output:?}");
        assert_eq!(output.status.code(), Some(status));
        assert!(!cluster.path("").exists(), "{layers}");
        assert!(error(&cluster.run(&["status", "it"])).contains("there is no cluster"), "{layers}");
    }
}

/// `iogate cluster up` that has been begun.
struct Up(Child);

impl Drop for Up {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_node_that_was_starting_when_up_was_killed_is_found() {
    let (cluster, [server, forwarder]) = Cluster::whose_next_forwarder_waits();
    let mut up = Up(cluster.command(&["up", "it.toml"]).stderr(Stdio::null()).spawn().unwrap());
    let starting = eventually("the forwarder's process is noted, or there is none", || {
        let noted = cluster.pid("forwarder-0").filter(|pid| *pid != forwarder);
        noted.map(Some).or_else(|| up.0.try_wait().unwrap().map(|_| None))
    });
    drop(up);
    kill_process(server, Signal::CONT).unwrap();
    let starting = starting.expect("it is noted before it serves");
    let output = cluster.run(&["down", "it"]);
    assert!(output.status.success(), "{output:?}");
    assert!(!runs(starting) && !runs(server));
}

#[test]
fn a_cluster_that_is_just_being_started_is_left_alone() {
    let (cluster, [server, forwarder]) = Cluster::whose_next_forwarder_waits();
    let mut up = Up(cluster.command(&["up", "it.toml"]).stdout(Stdio::null()).spawn().unwrap());
    let starting = eventually("the forwarder's process is noted", || {
        cluster.pid("forwarder-0").filter(|pid| *pid != forwarder)
    });
    let others = [&["up", "it.toml"][..], &["down", "it"]].map(|args| {
        let mut child = cluster.command(args).stderr(Stdio::piped()).spawn().unwrap();
        // It has to end while the server is stopped: one that waits for the server, too, does not, or says something else.
        let deadline = Instant::now() + Duration::from_secs(30);
        let mut ended = false;
        while !ended && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(10));
            ended = child.try_wait().unwrap().is_some();
        }
        (ended, child)
    });
    kill_process(server, Signal::CONT).unwrap();
    for (ended, child) in others {
        let said = error(&child.wait_with_output().unwrap());
        assert!(ended && said.contains("is just being started or stopped"), "{said}");
    }
    assert!(up.0.wait().unwrap().success());
    assert!(runs(starting) && cluster.pid("forwarder-0") == Some(starting));
}

#[test]
fn a_node_whose_number_cannot_be_written_does_not_stay() {
    let cluster = Cluster::new("servers = { count = 1 }\n");
    cluster.up();
    assert!(cluster.run(&["down", "it"]).status.success());
    std::fs::create_dir(cluster.path("server-0.pid")).unwrap();
    let said = error(&cluster.run(&["up", "it.toml"]));
    assert!(said.contains("server-0.pid cannot be written"), "{said}");
    assert!(!listens(&cluster.path("server-0.socket")), "its process is still there");
    std::fs::remove_dir(cluster.path("server-0.pid")).unwrap();
}

fn listens(socket: &Path) -> bool {
    std::os::unix::net::UnixStream::connect(socket).is_ok()
}

#[test]
fn a_node_that_the_new_file_has_not_keeps_the_cluster_from_being_another_one() {
    let cluster = Cluster::new("servers = { count = 2 }\n");
    cluster.up();
    let first = cluster.pid("server-0").unwrap();
    kill_process(first, Signal::KILL).unwrap();
    eventually("the first server ends", || (!runs(first)).then_some(()));
    cluster.describe("servers = { count = 1 }\n");
    let said = error(&cluster.run(&["up", "it.toml"]));
    assert!(said.contains("is up with another configuration"), "{said}");
}

/// And clients of one over TCP go on with the certificates that they have.
#[test]
fn nodes_that_are_started_again_from_elsewhere_are_what_they_were() {
    let cluster =
        Cluster::new("transport = \"tcp\"\nport = 27310\n[servers]\ncount = 1\ndirectory = \"data\"\n");
    cluster.up();
    let files = ["server-0.toml", "ca.crt", "node.crt", "node.key"];
    let read = || files.map(|name| std::fs::read_to_string(cluster.path(name)).unwrap());
    let before = read();
    let pid = cluster.pid("server-0").unwrap();
    kill_process(pid, Signal::KILL).unwrap();
    eventually("the node is gone", || (!runs(pid)).then_some(()));
    let elsewhere = tempfile::tempdir().unwrap();
    let (file, folder) = (cluster.folder.path().join("it.toml"), cluster.folder.path().join("it"));
    let mut up = Command::new(env!("CARGO_BIN_EXE_iogate"));
    up.args(["cluster", "up"]).arg(file).arg("--dir").arg(folder).current_dir(elsewhere.path());
    let output = up.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(read() == before);
    assert!(cluster.folder.path().join("data/server-0/objects").is_dir());
    assert_eq!(std::fs::read_dir(elsewhere.path()).unwrap().count(), 0);
    // Its data is not where the rest is, and stays.
    let data = cluster.folder.path().join("data");
    let told = format!("its data stays in {}", data.display());
    let said = |args: &[&str]| String::from_utf8(cluster.run(args).stdout).unwrap();
    let down = said(&["down", "it"]);
    assert!(down.contains(&format!("{told} (--purge removes its folder only)")), "{down}");
    let purged = said(&["down", "it", "--purge"]);
    assert!(purged.contains(&format!("its folder removed; {told}")), "{purged}");
    assert!(!cluster.path("").exists() && data.join("server-0/objects").is_dir());
}

/// A network namespace, as the machine that clusters are on.
struct Machine(String);

impl Machine {
    /// None where that cannot be made.
    fn new() -> Option<Machine> {
        let machine = Machine(format!("it{}", std::process::id()));
        let made = Command::new("ip").args(["netns", "add", &machine.0]).stderr(Stdio::null()).status();
        made.is_ok_and(|made| made.success()).then_some(machine)
    }

    fn run(&self, program: &str, args: &[&str]) -> Output {
        let space = format!("--net=/run/netns/{}", self.0);
        Command::new("nsenter").arg(space).arg(program).args(args).output().unwrap()
    }

    fn cluster(&self, args: &[&str], folder: &Path) -> Output {
        let folder = folder.to_str().unwrap();
        self.run(env!("CARGO_BIN_EXE_iogate"), &[&["cluster"], args, &["--dir", folder]].concat())
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "del", &self.0]).status();
    }
}

/// Down when the test is over.
struct Networked<'a> {
    machine: &'a Machine,
    folder: PathBuf,
    file: PathBuf,
}

impl Networked<'_> {
    fn run(&self, args: &[&str]) -> Output {
        let [command, rest @ ..] = args else { unreachable!() };
        let file = self.file.to_str().unwrap();
        self.machine.cluster(&[&[*command, file], rest].concat(), &self.folder)
    }
}

impl Drop for Networked<'_> {
    fn drop(&mut self) {
        let _ = self.run(&["down"]);
    }
}

#[test]
fn a_network_is_made_anew_and_is_of_one_cluster_at_a_time() {
    let Some(machine) = Machine::new() else { return };
    let folder = tempfile::tempdir().unwrap();
    let cluster = |which: &str| {
        let name = format!("{which}-{}", machine.0);
        let (file, folder) = (folder.path().join(format!("{which}.toml")), folder.path().join(which));
        let text =
            format!("name = \"{name}\"\ntransport = \"tcp\"\nnetwork = {{}}\nservers = {{ count = 1 }}\n");
        std::fs::write(&file, text).unwrap();
        Networked { machine: &machine, folder, file }
    };
    let (one, other) = (cluster("one"), cluster("other"));
    // What an attempt before has left.
    let space = format!("iogate-one-{}-server-0", machine.0);
    assert!(Command::new("ip").args(["netns", "add", &space]).status().unwrap().success());
    let up = one.run(&["up"]);
    assert!(up.status.success(), "{up:?}");
    let said = error(&other.run(&["up"]));
    assert!(said.contains("has 10.77.0.1 already") && said.contains("`iogate cluster down`"), "{said}");
    let links = machine.run("ip", &["-oneline", "link"]);
    let links = String::from_utf8(links.stdout).unwrap();
    assert_eq!(links.lines().filter(|line| line.contains(": io")).count(), 2, "of the one only: {links}");
    let up = one.run(&["up"]);
    assert!(up.status.success(), "it is up: {up:?}");
    assert!(one.run(&["down"]).status.success());
    // An error in the midst leaves nothing.
    let before = std::fs::read_to_string(&other.file).unwrap();
    let beyond = before.replace("{}", "{ bandwidth = \"4294967295Gbit/s\" }");
    std::fs::write(&other.file, beyond).unwrap();
    if !other.run(&["up"]).status.success() {
        let links = machine.run("ip", &["-oneline", "link"]);
        assert!(!String::from_utf8(links.stdout).unwrap().contains(": io"));
    }
    other.run(&["down"]);
    std::fs::write(&other.file, before).unwrap();
    let up = other.run(&["up"]);
    assert!(up.status.success(), "{up:?}");
}
