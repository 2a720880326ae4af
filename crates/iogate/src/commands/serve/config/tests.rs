//! Configurations that are right and wrong, and those that the handbook shows.

use super::*;

const LISTEN: &str = "[[listen]]\nat = \"unix:/run/iogate.socket\"\n";

fn error(text: &str) -> String {
    format!("{:#}", Config::parse(text).unwrap_err())
}

#[test]
fn a_forwarder_is_read() {
    let text = r#"
node = 1
nodes = 4
session_grace = "30s"

[[listen]]
at = "127.0.0.1:7000"
auth = "munge"

[[export]]
name = "scratch"
servers = ["io0:7000", "io1:7000"]
stripe = "64KiB"
gate = { scheduler = "twins", window = "2ms", depth = 32 }
batch = 16
users = { squash = "all", nobody = "1000:1000" }

[limits]
bytes = "64MiB"
"#;
    let config = Config::parse(text).unwrap();
    assert_eq!((config.node, config.nodes), (1, 4));
    let export = &config.export[0];
    assert_eq!(export.gate.scheduler.to_string(), "twins(window=2ms)");
    assert!(!export.gate.auto);
    assert!(Gate::default().auto, "it is chosen where none is named");
    assert_eq!((export.gate.depth, export.gate.queue), (32, 65_536));
    assert_eq!(export.users.squash, Squash::All);
    assert_eq!(export.users.nobody, Some(Ids((1000, 1000))));
    assert_eq!(config.limits.bytes, Some(Bytes(64 << 20)));
    assert_eq!(config.listen[0].auth().unwrap(), Auth::Munge);
}

#[test]
fn what_is_wrong_is_named() {
    let export = |rest: &str| format!("{LISTEN}[[export]]\n{rest}\n");
    for (text, parts) in [
        (
            export("directory = \"/s\"\ngate = { scheduler = \"twinz\" }"),
            &["did you mean 'twins'", "line"][..],
        ),
        (
            export("directory = \"/s\"\ngate = { scheduler = \"twins\", node = 1 }"),
            &["node: it is said once"],
        ),
        (
            export("directory = \"/s\"\ngate = { scheduler = \"auto\", age_max = \"1s\" }"),
            &["age_max = \"1s\" and scheduler = \"auto\""],
        ),
        (
            export("directory = \"/s\"\ngate = { age_max = \"1s\" }"),
            &["age_max = \"1s\": expected a key of gates, or the scheduler"],
        ),
        (export("directory = \"/s\"\ngate = { scheduler = \"fifo\", dept = 3 }"), &["did you mean 'depth'?"]),
        (export("directory = \"/s\"\ngate = { schduler = \"fifo\" }"), &["did you mean 'scheduler'?"]),
        (export("directory = \"/s\"\ngate = { depth = 0 }"), &["1 to 65536", "found 0"]),
        (export("directory = \"/s\"\ngate = { fair = \"group\" }"), &["fair: expected one of user", "group"]),
        (export("directory = \"/s\"\ngate = { policy = 1 }"), &["policy: expected a file"]),
        (export("directory = \"/s\"\ngate = { policy = \"/no-such\" }"), &["/no-such cannot be read"]),
        (
            export("directory = \"/s\"\ngate = { fair = \"user\", policy = \"/no-such\" }"),
            &["fair and policy: one of them"],
        ),
        (export("directory = \"/s\"\ncolour = 1"), &["unknown field `colour`", "directory"]),
        (export("directory = \"/s\"\nbatch = 4\nprofile = \"kept\""), &["goes without batch"]),
        (export("name = \"x\""), &["one of directory, targets", "none of them", "export `x`"]),
        (export("directory = \"/s\"\nforward = \"a:1\""), &["directory and forward"]),
        (export("targets = [\"/a\"]"), &["names = \"DIRECTORY\""]),
        (export("forward = \"a:1\"\nstripe = \"1KiB\""), &["stripe goes with"]),
        (export("forward = \"a\""), &["the port is missing"]),
        (export("forward = \"a:1\"\ndirect = true"), &["direct goes with directory or targets"]),
        (export("servers = [\"a:1\"]\nanswers = \"sync\""), &["answers = \"sync\" goes with"]),
        (export("servers = [\"a:1\"]\nanswers_at = \"/a\""), &["answers_at goes with"]),
        (
            export("directory = \"/s\"\nclient = { auth = \"none\" }"),
            &["client goes with servers or forward"],
        ),
        (format!("node = 4\nnodes = 4\n{}", export("directory = \"/s\"")), &["node = 4", "below the number"]),
        (
            format!("{}[[export]]\ndirectory = \"/t\"\n", export("directory = \"/s\"")),
            &["two exports are called `default`"],
        ),
        (export("directory = \"/s\"\nname = \"\""), &["expected a name", "found \"\""]),
        (export("directory = \"/s\"\nname = \"a\\u0000b\""), &["expected a name", "a\\0b"]),
    ] {
        let error = error(&text);
        for part in parts {
            assert!(error.contains(part), "{text}\n{error}");
        }
    }
    let listen = |rest: &str| format!("[[export]]\ndirectory = \"/s\"\n[[listen]]\n{rest}\n");
    for (text, part) in [
        (listen("at = \"0.0.0.0:7000\""), "auth is missing"),
        (listen("at = \"0.0.0.0:7000\"\nauth = \"none\""), "lets everybody who reaches 0.0.0.0 in"),
        (listen("at = \"io:7000\"\nauth = \"peer\""), "for Unix sockets"),
        (listen("at = \"io:7000\"\nauth = \"tls\""), "go together"),
        (listen("at = \"io:7000\"\nauth = \"magic\""), "unknown variant `magic`"),
    ] {
        assert!(error(&text).contains(part), "{text}\n{}", error(&text));
    }
    assert!(Config::parse(&listen("at = \"127.0.0.1:1\"\nauth = \"none\"")).is_ok());
    let meant = "at = \"0.0.0.0:1\"\nauth = \"none\"\nallow_unauthenticated_network = true";
    assert!(Config::parse(&listen(meant)).is_ok());
}

#[test]
fn what_the_handbook_shows_is_right() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let mut found = 0;
    for page in std::fs::read_dir(docs).unwrap().map(|entry| entry.unwrap().path()) {
        if page.extension().is_none_or(|ending| ending != "md") {
            continue;
        }
        let text = std::fs::read_to_string(&page).unwrap();
        let blocks = text.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next());
        for block in blocks.filter(|block| block.contains("listen]]") || block.contains("listen =")) {
            let export = if block.contains("[[export]]") { "" } else { "[[export]]\ndirectory = \"/srv\"\n" };
            let whole = format!("{block}{export}");
            Config::parse(&whole).unwrap_or_else(|error| panic!("{}: {error:#}\n{block}", page.display()));
            found += 1;
        }
    }
    assert!(found >= 4, "{found}");
}
