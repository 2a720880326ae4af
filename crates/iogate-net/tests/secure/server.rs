//! A server's listeners: whom each lets in, and whom it does not.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use iogate_core::wire::open;
use iogate_net::client::{ClientOptions, Remote, RemoteOptions};
use iogate_net::coordinator::{self, Coordinator, CoordinatorConfig, Local};
use iogate_net::server::{Export, Limits};
use iogate_net::transport::auth::{Credential, Munge, Policy};
use iogate_net::transport::{Dial, dial, dial_tls};
use iogate_net::turns;
use iogate_net::{Endpoint, Listener, Server, ServerConfig};
use iogate_vfs::{Caller, Tree};

use crate::certificates::{Stage, named};
use crate::common::{self, own};
use crate::daemon::Daemon;

/// A server with one export, and one listener.
struct Setup {
    server: Server,
    dir: tempfile::TempDir,
}

impl Setup {
    fn new(policy: Policy) -> Setup {
        Setup::with(policy, Limits::default())
    }

    fn with(policy: Policy, limits: Limits) -> Setup {
        let dir = tempfile::tempdir().unwrap();
        let tree = common::directory(dir.path());
        let export = Export::new("files", common::engine(&*tree), tree);
        let config = ServerConfig { limits, ..ServerConfig::alone(vec![export]) };
        let listener = Listener::bind(&"127.0.0.1:0".parse().unwrap(), policy).unwrap();
        Setup { server: Server::start(config, vec![listener]).unwrap(), dir }
    }

    fn connect(&self, auth: Credential, dial: Dial) -> io::Result<Remote> {
        let client = ClientOptions { auth, dial, retry_for: Duration::ZERO, ..ClientOptions::default() };
        let options = RemoteOptions { client, ..RemoteOptions::default() };
        Ok(Remote::connect(&self.server.endpoints()[..1], &options)?)
    }

    fn refuses(&self, what: &str, auth: Credential, dial: Dial) -> String {
        match self.connect(auth, dial) {
            Ok(_) => panic!("{what}: is let in"),
            Err(error) => error.to_string(),
        }
    }

    /// Writes and reads a file.
    fn works_with(&self, remote: &Remote) {
        let file = remote.create("file".as_ref(), 0o644).unwrap();
        let data: Vec<u8> = (0..3_000_000u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 9) as u8).collect();
        assert_eq!(file.write_at(0, &data).unwrap(), data.len());
        let mut found = vec![0; data.len()];
        assert_eq!(file.read_at(0, &mut found).unwrap(), data.len());
        assert!(found == data);
        assert!(std::fs::read(self.dir.path().join("file")).unwrap() == data);
    }
}

fn plain() -> Dial {
    Arc::new(dial)
}

#[test]
fn munge_lets_in_who_shows_a_credential() {
    let daemon = Daemon::start(11);
    let stranger = Daemon::start(12);
    let setup = Setup::new(Policy::Munge(daemon.munge()));
    let remote = setup.connect(Credential::Munge(daemon.munge()), plain()).unwrap();
    setup.works_with(&remote);

    let told = setup.refuses("nothing", Credential::None, plain());
    assert!(told.contains("munge"), "it is told what to do: {told}");
    setup.refuses("the socket's word", Credential::Socket, plain());
    let told = setup.refuses("another key's", Credential::Munge(stranger.munge()), plain());
    assert!(told.contains("not valid"), "{told}");
    let gone = Munge::new(Some(daemon.dir.path().join("nowhere")));
    let told = setup.refuses("no daemon", Credential::Munge(gone), plain());
    assert!(told.contains("munged"), "{told}");
}

#[test]
fn tls_lets_in_whose_certificate_has_a_name_that_is_listed() {
    let stage = Stage::new();
    let users = [("alice".to_owned(), own())].into();
    let setup = Setup::new(Policy::Tls { server: stage.server(), users });
    let encrypted = || dial_tls(stage.client(), Some("io1".into()));
    let remote = setup.connect(Credential::Socket, encrypted()).unwrap();
    setup.works_with(&remote);

    setup.refuses("no TLS", Credential::Socket, plain());
    setup.refuses("nothing", Credential::None, encrypted());
    let bob = stage.client_with(&stage.cluster.sign("bob", &named("bob")));
    let told =
        setup.refuses("a name that is not listed", Credential::Socket, dial_tls(bob, Some("io1".into())));
    assert!(told.contains("name in your certificate"), "{told}");
    let root = stage.client_with(&stage.cluster.sign("root", &named("root")));
    setup.refuses("root, if not listed", Credential::Socket, dial_tls(root, Some("io1".into())));
    let told = setup.refuses("the wrong server", Credential::Socket, dial_tls(stage.client(), None));
    assert!(told.contains("127.0.0.1"), "the host in the endpoint is not in the certificate: {told}");
    let foreign = stage.client_with(&stage.stranger.sign("s-alice", &named("alice")));
    setup.refuses("another authority's", Credential::Socket, dial_tls(foreign, Some("io1".into())));

    let open_to_all = Setup::new(Policy::None { user: own(), on_any_network: false });
    let told = open_to_all.refuses("TLS to a plain listener", Credential::Socket, encrypted());
    assert!(told.contains("TLS"), "{told}");
}

/// Encrypted, the answer can be read only after the greeting.
#[test]
fn who_is_one_too_many_is_told_so_by_tls() {
    let stage = Stage::new();
    let policy = || Policy::Tls { server: stage.server(), users: [("alice".to_owned(), own())].into() };
    let encrypted = || dial_tls(stage.client(), Some("io1".into()));
    let setup = Setup::with(policy(), Limits { connections_per_client: 1, ..Limits::default() });
    let remote = setup.connect(Credential::Socket, encrypted()).unwrap();
    let told = setup.refuses("one too many", Credential::Socket, encrypted());
    assert!(told.contains("this client has 1 connections, which is the limit"), "{told}");
    setup.works_with(&remote);
    let began = Instant::now();
    while setup.server.status().connection_count != 1 {
        assert!(began.elapsed() < Duration::from_secs(20), "the one that was refused does not end");
        std::thread::sleep(Duration::from_millis(5));
    }

    let limits = coordinator::Limits { connections: 0, ..coordinator::Limits::default() };
    let journal = Box::new(Local::open(setup.dir.path()).unwrap());
    let listener = Listener::bind(&"127.0.0.1:0".parse().unwrap(), policy()).unwrap();
    let config = CoordinatorConfig { limits, ..CoordinatorConfig::default() };
    let coordinator = Coordinator::start(config, vec![listener], journal).unwrap();
    let options = turns::CoordinatorOptions { dial: encrypted(), ..Default::default() };
    let client = turns::Coordinator::new(coordinator.endpoints().to_vec(), options);
    let told = client.status().unwrap_err().to_string();
    assert!(told.contains("the coordinator has 0 connections, which is the limit"), "{told}");
}

#[test]
fn a_client_acts_as_the_user_that_it_was_taken_for() {
    if own().uid != 0 {
        return; // Only root can act as somebody else.
    }
    let stage = Stage::new();
    let alice = Caller::new(12345, 12346);
    let setup =
        Setup::new(Policy::Tls { server: stage.server(), users: [("alice".to_owned(), alice)].into() });
    let remote = setup.connect(Credential::Socket, dial_tls(stage.client(), Some("io1".into()))).unwrap();
    let path = "root-only".as_ref();
    std::fs::write(setup.dir.path().join("root-only"), "secret").unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(setup.dir.path().join("root-only"), mode).unwrap();
    let how = iogate_vfs::OpenHow { flags: open::READ, ..Default::default() };
    let refused = remote.open(common::ROOT, path, how).err().unwrap();
    assert_eq!(refused.raw_os_error(), Some(libc::EACCES), "whatever the request says");
}

#[test]
fn listeners_that_let_in_everybody_are_not_opened_by_mistake() {
    let open = |on_any_network| Policy::None { user: Caller::NOBODY, on_any_network };
    let any: Endpoint = "0.0.0.0:0".parse().unwrap();
    let error = Listener::bind(&any, open(false)).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    assert!(error.to_string().contains("allow_unauthenticated_network"), "{error}");
    Listener::bind(&any, open(true)).unwrap();
    let error = Listener::bind(&"127.0.0.1:0".parse().unwrap(), Policy::Peer).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
}
