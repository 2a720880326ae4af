//! `iogate serve`: who may do what. As root, which alone can act for several users; without it these tests pass by.

use std::io::{BufRead, BufReader, ErrorKind};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use iogate_core::wire::{Change, Identity, open, set};
use iogate_engine::Origin;
use iogate_net::Endpoint;
use iogate_net::client::{ClientOptions, Remote, RemoteOptions};
use iogate_net::transport::auth::Credential;
use iogate_net::transport::{TlsClient, dial_tls};
use iogate_vfs::{Caller, OpenHow, Tree};

const USER: Caller = Caller::new(12345, 12345);
const ROOT: Caller = Caller::new(0, 0);
/// Who has files, and who wants to get at them.
const ALICE: u32 = 2000;
const BOB: u32 = 2001;

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// A server that runs.
struct Server {
    child: Child,
    socket: PathBuf,
}

impl Server {
    /// Of a directory of this name in the folder, which everybody may change, with a socket of that name.
    fn start(folder: &Path, name: &str, listen: &str, export: &str) -> Server {
        let data = folder.join(format!("{name}-data"));
        std::fs::create_dir_all(&data).unwrap();
        std::fs::set_permissions(&data, PermissionsExt::from_mode(0o1777)).unwrap();
        let export = format!("directory = \"{}\"\n{export}", data.display());
        Server::run(folder, name, listen, &export, None).unwrap()
    }

    /// One that believes root, as a mount that several users share is.
    fn that_trusts_root(folder: &Path) -> Server {
        Server::start(folder, "trusting", "", "forwarders = [\"root\"]\nusers = { squash = \"none\" }")
    }

    /// As another user than root, if one is given. `None` if that one cannot run the program from where it is.
    fn run(folder: &Path, name: &str, listen: &str, export: &str, user: Option<u32>) -> Option<Server> {
        // Other users are to reach the sockets.
        std::fs::set_permissions(folder, PermissionsExt::from_mode(0o777)).unwrap();
        let (socket, config) = (folder.join(name), folder.join(format!("{name}.toml")));
        let text =
            format!("[[listen]]\nat = \"unix:{}\"\n{listen}\n[[export]]\n{export}\n", socket.display());
        std::fs::write(&config, text).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_iogate"));
        command.args(["serve".as_ref(), config.as_os_str()]).stdout(Stdio::piped()).current_dir("/");
        if let Some(user) = user {
            command.uid(user).gid(user);
        }
        let mut child = match command.spawn() {
            Err(error) if user.is_some() && error.kind() == ErrorKind::PermissionDenied => return None,
            started => started.unwrap(),
        };
        let out = BufReader::new(child.stdout.take().unwrap());
        assert!(out.lines().any(|line| line.unwrap() == "ready"), "the server does not start");
        Some(Server { child, socket })
    }

    fn endpoint(&self) -> Endpoint {
        Endpoint::Unix(self.socket.clone())
    }

    fn connect(&self, export: &str) -> std::io::Result<Remote> {
        connect(&self.endpoint(), ClientOptions { export: export.into(), ..ClientOptions::default() })
    }

    fn remote(&self) -> Remote {
        self.connect("").unwrap()
    }
}

fn connect(endpoint: &Endpoint, options: ClientOptions) -> std::io::Result<Remote> {
    let client = ClientOptions { retry_for: Duration::from_secs(1), ..options };
    Ok(Remote::connect(
        std::slice::from_ref(endpoint),
        &RemoteOptions { client, ..RemoteOptions::default() },
    )?)
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs something in a thread that is another user's: what it connects to, the kernel says so.
fn as_user<R: Send>(id: u32, run: impl FnOnce() -> R + Send) -> R {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            use rustix::thread::{Gid, Uid, set_thread_groups, set_thread_res_gid, set_thread_res_uid};
            let (uid, gid) = (Uid::from_raw(id), Gid::from_raw(id));
            set_thread_groups(&[]).unwrap();
            set_thread_res_gid(gid, gid, gid).unwrap();
            set_thread_res_uid(uid, uid, uid).unwrap();
            run()
        });
        thread.join().unwrap()
    })
}

/// What a refused connection or operation says.
fn refusal<R>(result: std::io::Result<R>) -> (Option<i32>, String) {
    match result {
        Ok(_) => panic!("it is let in"),
        Err(error) => (error.raw_os_error(), error.to_string()),
    }
}

fn created(flags: u32) -> OpenHow {
    OpenHow { flags: open::READ | open::WRITE | open::CREATE | flags, mode: 0o755, ..OpenHow::default() }
}

fn mode(mode: u32) -> Change {
    Change { which: set::MODE, mode, ..Change::default() }
}

#[test]
fn set_user_id_goes_when_the_owner_changes_the_file_as_on_a_local_file_system() {
    if !is_root() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let server = Server::that_trusts_root(folder.path());
    let remote = server.remote();
    let path = Path::new("program");
    let file = remote.open(USER, path, created(0)).unwrap();
    file.append(USER, Origin::default(), &[1; 10_000]).unwrap().unwrap();
    let found = || std::fs::metadata(folder.path().join("trusting-data/program")).unwrap().mode() & 0o7777;
    let plain = remote.open_with(path, open::READ | open::WRITE, 0).unwrap();
    let changes: [(&str, &dyn Fn()); 6] = [
        ("a write", &|| assert_eq!(plain.write_at(0, b"changed").unwrap(), 7)),
        ("an append", &|| {
            file.append(USER, Origin::default(), b"longer").unwrap().unwrap();
        }),
        ("space", &|| file.allocate(0, 0, 1 << 20).unwrap()),
        ("a hole", &|| file.allocate(3, 0, 4096).unwrap()),
        ("zeros", &|| file.allocate(16, 0, 4096).unwrap()),
        ("a size", &|| {
            file.set_attr(USER, &Change { which: set::SIZE, size: 100, ..Change::default() }).unwrap();
        }),
    ];
    for (what, change) in changes {
        remote.set_attr(USER, path, Identity::default(), &mode(0o6755)).unwrap();
        assert_eq!(found(), 0o6755, "its owner may set it");
        change();
        assert_eq!(found(), 0o755, "{what} leaves it");
    }
    // To open it for writing changes nothing yet.
    remote.set_attr(USER, path, Identity::default(), &mode(0o4755)).unwrap();
    drop(remote.open(USER, path, OpenHow { flags: open::WRITE, ..OpenHow::default() }).unwrap());
    assert_eq!(found(), 0o4755);
    // What only root may, it still may: a group that it is not in.
    let given = Change { which: set::UID | set::GID, uid: 1, gid: 77, ..Change::default() };
    remote.set_attr(Caller::new(0, 0), path, Identity::default(), &given).unwrap();
    remote.set_attr(Caller::new(0, 0), path, Identity::default(), &mode(0o2755)).unwrap();
    assert_eq!(found(), 0o2755);
}

#[test]
fn threads_of_a_root_server_cannot_pass_disk_quotas() {
    if !is_root() {
        return;
    }
    // CAP_SYS_RESOURCE, and CAP_FSETID, which keeps set-user-ID.
    const GIVEN_UP: u64 = 1 << 24 | 1 << 4;
    let folder = tempfile::tempdir().unwrap();
    let server = Server::that_trusts_root(folder.path());
    let remote = server.remote();
    let file = remote.create(Path::new("file"), 0o644).unwrap();
    for round in 0..100 {
        file.write_at(round << 16, &[1; 1 << 16]).unwrap();
    }
    file.sync(false).unwrap();
    let mut threads = 0;
    for task in std::fs::read_dir(format!("/proc/{}/task", server.child.id())).unwrap() {
        let task = task.unwrap().path();
        let name = std::fs::read_to_string(task.join("comm")).unwrap();
        let carries_out =
            ["iogate-net-", "iogate-engine", "iogate-ring"].iter().any(|kind| name.starts_with(kind));
        if !carries_out || name.trim_end() == "iogate-net-watc" {
            continue;
        }
        let status = std::fs::read_to_string(task.join("status")).unwrap();
        let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:\t")).unwrap();
        let effective = u64::from_str_radix(effective, 16).unwrap();
        assert_eq!(effective & GIVEN_UP, 0, "{name}");
        threads += 1;
    }
    assert!(threads >= 3, "{threads} threads");
}

#[test]
fn a_server_that_is_not_root_serves_its_own_user_only() {
    if !is_root() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    std::fs::create_dir(&data).unwrap();
    std::fs::write(data.join("diary"), "alice's").unwrap();
    for path in [data.join("diary"), data.clone()] {
        chown(&path, Some(ALICE), Some(ALICE)).unwrap();
    }
    std::fs::set_permissions(data.join("diary"), PermissionsExt::from_mode(0o600)).unwrap();
    std::fs::set_permissions(&data, PermissionsExt::from_mode(0o700)).unwrap();
    let export = format!("directory = \"{}\"", data.display());
    let diary = Path::new("diary");
    let run = |name: &str, listen: &str, more: &str| {
        Server::run(folder.path(), name, listen, &format!("{export}\n{more}"), Some(ALICE))
    };
    let Some(server) = run("plain", "", "") else { return };
    let read = |server: &Server| server.connect("")?.open_file(diary)?.read_at(0, &mut [0; 16]);
    assert_eq!(as_user(ALICE, || read(&server)).unwrap(), 7);
    let (_, said) = refusal(as_user(BOB, || read(&server)));
    assert!(said.contains("its own user's name only"), "{said}");
    refusal(read(&server));

    // Not by a list of users either, whom it cannot act for.
    let list = format!("users_allowed = [{ALICE}, {BOB}]");
    let listed = run("listed", &list, "").unwrap();
    assert_eq!(as_user(ALICE, || read(&listed)).unwrap(), 7);
    refusal(as_user(BOB, || read(&listed)));
    // Only if its owner says that all may be she.
    let open = format!("users = {{ squash = \"all\", nobody = \"{ALICE}:{ALICE}\" }}");
    let open = run("open", "", &open).unwrap();
    assert_eq!(as_user(BOB, || read(&open)).unwrap(), 7);
}

#[test]
fn a_listener_lets_in_the_users_of_its_list_by_name_or_number() {
    if !is_root() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let users = format!("users_allowed = [\"daemon\", {ALICE}]\nmode = \"0666\"");
    let server = Server::start(folder.path(), "listed", &users, "");
    as_user(ALICE, || server.connect("").unwrap());
    as_user(1, || server.connect("").unwrap());
    let (_, said) = refusal(as_user(BOB, || server.connect("")));
    assert!(said.contains("`users_allowed`") && !said.contains("daemon"), "{said}");
}

#[test]
fn a_forwarder_that_is_not_trusted_serves_nobody_in_a_wrong_name() {
    if !is_root() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let forwarder = |name: &str, behind: &Server| {
        let export = format!("forward = \"{}\"\nusers = {{ squash = \"none\" }}", behind.endpoint());
        Server::run(folder.path(), name, "", &export, None).unwrap()
    };
    let create = |server: &Server| server.connect("")?.create(Path::new("file"), 0o600).map(drop);
    let behind = Server::start(folder.path(), "distrustful", "", "");
    let front = forwarder("front", &behind);
    let (_, said) = refusal(as_user(BOB, || create(&front)));
    assert!(said.contains("do not trust it"), "{said}");
    assert!(!folder.path().join("distrustful-data/file").exists());
    // One that is trusted acts in its clients' names.
    let behind = Server::that_trusts_root(folder.path());
    let front = forwarder("trusted", &behind);
    as_user(BOB, || create(&front)).unwrap();
    assert_eq!(std::fs::metadata(folder.path().join("trusting-data/file")).unwrap().uid(), BOB);
}

#[test]
fn the_objects_of_a_striped_file_cannot_be_given_to_another_name() {
    if !is_root() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    for name in ["names", "objects"] {
        std::fs::create_dir(folder.path().join(name)).unwrap();
        std::fs::set_permissions(folder.path().join(name), PermissionsExt::from_mode(0o1777)).unwrap();
    }
    let export = |name: &str| {
        format!(
            "name = \"{name}\"\ndirectory = \"{}\"\nforwarders = [0]\nusers = {{ squash = \"none\" }}",
            folder.path().join(name).display()
        )
    };
    let exports = format!("{}\n[[export]]\n{}", export("objects"), export("names"));
    let server = Server::run(folder.path(), "server", "", &exports, None).unwrap();
    let (name, path) = (b"user.iogate.object", Path::new("victim"));
    let names = server.connect("names").unwrap();
    names.create(path, 0o644).unwrap();
    names.set_xattr(ROOT, path, Default::default(), name, b"an object", 0).unwrap();
    as_user(BOB, || {
        let names = server.connect("names").unwrap();
        let bob = Caller::new(BOB, BOB);
        let mine = Path::new("mine");
        names.create(mine, 0o644).unwrap();
        let set = names.set_xattr(bob, mine, Default::default(), name, b"an object", 0);
        assert_eq!(refusal(set).0, Some(rustix::io::Errno::PERM.raw_os_error()));
        assert_eq!(refusal(names.xattr(bob, path, name)).0, Some(rustix::io::Errno::NODATA.raw_os_error()));
        assert_eq!(names.xattrs(bob, path).unwrap(), b"");
    });
    assert_eq!(names.xattr(ROOT, path, name).unwrap(), b"an object");
}

/// A cluster of one server over TCP that is up.
struct Cluster {
    folder: PathBuf,
    endpoint: Endpoint,
}

impl Cluster {
    fn up(folder: &Path, more: &[&str]) -> Cluster {
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let file = folder.join("it.toml");
        let text = format!("name = \"it\"\ntransport = \"tcp\"\nport = {free}\nservers = {{ count = 1 }}\n");
        std::fs::write(&file, text).unwrap();
        let cluster = Cluster {
            folder: folder.join("cluster"),
            endpoint: format!("127.0.0.1:{free}").parse().unwrap(),
        };
        cluster.run(&[&["up", file.to_str().unwrap()], more].concat());
        cluster
    }

    fn run(&self, args: &[&str]) -> String {
        let output = Command::new(env!("CARGO_BIN_EXE_iogate"))
            .args([&["cluster"], args, &["--dir", self.folder.to_str().unwrap()]].concat())
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    fn unproven(&self) -> std::io::Result<Remote> {
        let options =
            ClientOptions { export: "objects".into(), auth: Credential::None, ..ClientOptions::default() };
        connect(&self.endpoint, options)
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let _ = Command::new(env!("CARGO_BIN_EXE_iogate"))
            .args(["cluster", "down", "it", "--dir"])
            .arg(&self.folder)
            .stdout(Stdio::null())
            .status();
    }
}

#[test]
fn a_cluster_over_tcp_lets_in_its_owner_only() {
    let folder = tempfile::tempdir().unwrap();
    let cluster = Cluster::up(folder.path(), &[]);
    let mode = |path: &Path| std::fs::metadata(path).unwrap().mode() & 0o7777;
    assert_eq!(mode(&cluster.folder), 0o700);
    assert_eq!(mode(&cluster.folder.join("node.key")), 0o600);
    // Whoever can connect has no certificate.
    let refused = match is_root() {
        true => as_user(65_534, || cluster.unproven()),
        false => cluster.unproven(),
    };
    refusal(refused);
    // Its owner has, and `status` too.
    let [authority, certificate, key] =
        ["ca.crt", "node.crt", "node.key"].map(|name| cluster.folder.join(name));
    let tls = TlsClient::load(&authority, &certificate, &key).unwrap();
    let client =
        ClientOptions { export: "objects".into(), dial: dial_tls(tls, None), ..ClientOptions::default() };
    connect(&cluster.endpoint, client).unwrap().create(Path::new("file"), 0o644).unwrap();
    let status: serde_json::Value = serde_json::from_str(&cluster.run(&["status", "it", "--json"])).unwrap();
    assert_eq!(status[0]["status"]["exports"][0]["name"], "objects", "{status}");
    // So has who changes a gate meanwhile.
    cluster.run(&["set", "it", "scheduler=sjf"]);
    let status: serde_json::Value = serde_json::from_str(&cluster.run(&["status", "it", "--json"])).unwrap();
    assert_eq!(status[0]["status"]["exports"][0]["scheduler"], "sjf", "{status}");
    // Nodes that are up stay as they are, and so do their keys.
    let before = std::fs::read(&key).unwrap();
    cluster.run(&["up", folder.path().join("it.toml").to_str().unwrap()]);
    assert_eq!(std::fs::read(&key).unwrap(), before);
}

#[test]
fn another_user_of_the_machine_is_nobody_in_a_cluster() {
    if !is_root() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let text = "name = \"it\"\ntransport = \"unix\"\nservers = { count = 1 }\nforwarders = { count = 1 }\n";
    std::fs::write(folder.path().join("it.toml"), text).unwrap();
    let at = |name: &str| folder.path().join(format!("cluster/{name}.socket"));
    let cluster = Cluster { folder: folder.path().join("cluster"), endpoint: Endpoint::Unix(at("server-0")) };
    cluster.run(&["up", folder.path().join("it.toml").to_str().unwrap()]);
    let client =
        |export: &str, stripes| ClientOptions { export: export.into(), stripes, ..ClientOptions::default() };
    let front = Endpoint::Unix(at("forwarder-0"));
    let secret = Path::new("secret");
    connect(&front, client("", false)).unwrap().create(secret, 0o600).unwrap();
    let attempts = [
        (&front, "", false),
        (&front, "", true),
        (&cluster.endpoint, "objects", false),
        (&cluster.endpoint, "names", false),
        (&cluster.endpoint, "names", true),
    ];
    // The folder keeps others out, and so does each server where somebody has opened the folder.
    for folder_mode in [0o700, 0o755] {
        std::fs::set_permissions(&cluster.folder, PermissionsExt::from_mode(folder_mode)).unwrap();
        for (endpoint, export, stripes) in attempts {
            let (_, said) = refusal(as_user(BOB, || connect(endpoint, client(export, stripes))));
            let is_kept_out = said.contains("Permission denied");
            assert!(
                is_kept_out || folder_mode == 0o755 && said.contains("users_allowed"),
                "{export}: {said}"
            );
            let Endpoint::Unix(socket) = endpoint else { unreachable!() };
            if folder_mode == 0o755 {
                std::fs::set_permissions(socket, PermissionsExt::from_mode(0o666)).unwrap();
                let (_, said) = refusal(as_user(BOB, || connect(endpoint, client(export, stripes))));
                assert!(said.contains("users_allowed"), "{export}: {said}");
            }
        }
    }
    // Somebody whom the owner lets in acts in no other name than its own, whatever it says, and is no forwarder.
    let config = cluster.folder.join("server-0.toml");
    let text = std::fs::read_to_string(&config).unwrap();
    assert!(text.contains("users_allowed = [0]"), "{text}");
    let text = text.replace("users_allowed = [0]", &format!("users_allowed = [0, {BOB}]"));
    let exports = &text[text.find("[[export]]").unwrap()..];
    cluster.run(&["down", "it"]);
    let listen = format!("users_allowed = [0, {BOB}]\nmode = \"0666\"");
    let exports = exports.strip_prefix("[[export]]\n").unwrap();
    let server = Server::run(folder.path(), "opened", &listen, exports, None).unwrap();
    std::fs::set_permissions(&cluster.folder, PermissionsExt::from_mode(0o755)).unwrap();
    as_user(BOB, || {
        let (_, said) = refusal(connect(&server.endpoint(), client("names", true)));
        assert!(said.contains("`forwarders`"), "{said}");
        let names = connect(&server.endpoint(), client("names", false)).unwrap();
        refusal(names.open(ROOT, secret, OpenHow { flags: open::READ, ..OpenHow::default() }));
        refusal(names.open(ROOT, Path::new("program"), created(0)));
        refusal(names.unlink(ROOT, secret, false));
        refusal(names.set_attr(ROOT, secret, Identity::default(), &mode(0o4755)));
        let objects = connect(&server.endpoint(), client("objects", false)).unwrap();
        refusal(objects.read_dir(ROOT, Path::new("OBJECTS"), 0, &mut |_, _| panic!("it is listed")));
    });
}

#[test]
fn an_insecure_cluster_acts_for_its_owner_only() {
    let folder = tempfile::tempdir().unwrap();
    let cluster = Cluster::up(folder.path(), &["--insecure"]);
    let remote = cluster.unproven().unwrap();
    let file = Path::new("file");
    remote.open(USER, file, created(0)).unwrap();
    let own = rustix::process::geteuid().as_raw();
    assert_eq!(remote.attr(USER, file).unwrap().uid, own, "whatever a request says");
    assert!(cluster.run(&["status", "it"]).contains("server-0"));
}

#[test]
fn a_listener_that_asks_nobody_makes_nobody_a_forwarder() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("s.toml");
    let text = format!(
        "[[listen]]\nat = \"127.0.0.1:0\"\nauth = \"none\"\nanonymous = \"0:0\"\n[[export]]\ndirectory = \"{}\"\nforwarders = [0]\n",
        folder.path().display()
    );
    std::fs::write(&config, text).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_iogate")).arg("serve").arg(&config).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("could act in anybody's name"), "{said}");
}
