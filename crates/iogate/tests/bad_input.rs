//! Wrong inputs to the real program, at least two to each command: each is refused in one line that says what was expected and what
//! came, and what to do is in that or in one more; nothing is printed as a result, and nothing is left behind.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What the folder of each case has: `dir`, which is empty; `full`, which is not; `mnt`; and these.
const FILES: [(&str, &str); 10] = [
    ("file", "x\n"),
    ("t.csv", "time_us,app,client,file,op,offset,bytes\n0,1,1,a,r,0,8\n"),
    ("late.csv", "time_us,app,client,file,op,offset,bytes\n18446744073709551.615,1,1,a,r,0,8\n"),
    ("back.csv", "time_us,app,client,file,op,offset,bytes\n1,1,1,a,r,0,8\n0,1,1,a,r,0,8\n"),
    ("few.csv", "time_us,app\n"),
    ("broken.toml", "x = [\n"),
    ("other.toml", "\nnothing = 1\n"),
    (
        "traced.toml",
        "title = \"t\"\n[clients]\nnodes = 1\n[servers]\nnodes = 1\ndevice = \"unit:1ms\"\n[[app]]\nname = \"a\"\npattern = \"trace\"\nfile = \"t.csv\"\n",
    ),
    (
        "tls.toml",
        "[[listen]]\nat = \"127.0.0.1:1\"\nauth = \"tls\"\ntls = { certificate = \"file\", key = \"file\", clients = \"file\" }\n[[export]]\ndirectory = \"dir\"\n",
    ),
    (
        "links.toml",
        "name = \"a\"\ntransport = \"tcp\"\nnetwork = { bandwidth = \"1Gbit\" }\n[servers]\ncount = 1\n",
    ),
];

/// Exit status, arguments, what the message says.
const CASES: &[(i32, &str, &str)] = &[
    // Flags and commands.
    (2, "mouny", "unrecognized subcommand 'mouny'; "),
    (2, "mount", "required arguments were not provided: <SOURCE>"),
    (2, "mount dir", "expected what to mount and where"),
    (2, "mount dir mnt --no-such-option", "unexpected argument '--no-such-option'"),
    (2, "mount dir mnt --accounts asked", "asked"),
    (2, "mount dir mnt --depth 0", "'--depth <N>': expected 1 to 65536"),
    (2, "mount dir mnt --depth many", "'--depth <N>': expected a whole number"),
    (2, "mount dir mnt --queue 0", "expected 1 to 16777216"),
    (2, "mount dir mnt --threads 0", "expected 1 to 1024"),
    (2, "mount dir mnt --cache all", "expected one of direct, page"),
    (2, "mount dir mnt --fair group", "expected one of user, job, app, account"),
    (2, "mount dir mnt --fair path", "expected one of user, job, app, account"),
    (2, "mount dir mnt --layout nonsense", "expected auto, auto,targets=8, or stripe="),
    (2, "mount dir mnt --http nonsense", "expected HOST:PORT or unix:PATH"),
    (2, "mount dir mnt --scheduler ailoi", "did you mean 'aioli'?"),
    (2, "mount dir mnt --scheduler twin", "did you mean 'twins'?"),
    (2, "mount dir mnt --scheduler aioli --param quantum=1", "did you mean 'quantum_base'?"),
    (2, "mount dir mnt --scheduler aioli --param quantum_base=1", "expected 512 to 1GiB"),
    (2, "mount dir mnt --scheduler aioli --param quantum_base", "expected name=value"),
    (2, "mount dir mnt --scheduler twins --param window=banana", "expected a time"),
    (
        2,
        "mount dir mnt --scheduler auto --param age_max=1ms",
        "what chooses a scheduler chooses its parameters",
    ),
    (
        2,
        "mount dir mnt --param age_max=1ms",
        "--param age_max=1ms without --scheduler: expected the scheduler",
    ),
    (2, "nfs dir --param age_max=1ms", "without --scheduler"),
    (2, "serve --directory dir --listen unix:s --param age_max=1ms", "without --scheduler"),
    (2, "mount dir mnt --store modelled --device floppy", "unknown device 'floppy'"),
    (2, "mount dir mnt --device hdd", "--device is for a modelled store"),
    (2, "mount dir mnt --index 3", "cannot be used with"),
    (2, "mount dir mnt --fair user --policy other.toml", "cannot be used with"),
    (2, "mount dir mnt --spread file", "'<SOURCE>'"),
    (2, "mount dir mnt --retry-for 1s", "'<SOURCE>'"),
    (2, "mount --remote 127.0.0.1 mnt", "the port is missing"),
    (2, "mount --remote 127.0.0.1:1 dir mnt", "cannot be used with"),
    (1, "mount -- nowhere mnt", "the source nowhere must be a directory"),
    (1, "mount nowhere --read-only mnt", "the source nowhere must be a directory"),
    (2, "mount dir mnt --log -", "expected a file, as this is not written to standard output"),
    (2, "mount --remote 127.0.0.1:1 --retry-for soon mnt", "expected a time with its unit"),
    (2, "mount --remote 127.0.0.1:1 --wait soon mnt", "expected a time with its unit"),
    (2, "mount --remote 127.0.0.1:1 --wait 10ms --index 1 mnt", "expected a number below that of servers"),
    (2, "mount --remote 127.0.0.1:1 --tls-authorities x.pem mnt", "--tls-certificate <FILE>"),
    // Places.
    (1, "mount nowhere mnt", "the source nowhere must be a directory"),
    (1, "mount file mnt", "the source file must be a directory"),
    (1, "mount dir nowhere", "create it with mkdir"),
    (1, "mount dir file", "must be a directory"),
    (1, "mount dir full", "must be empty"),
    (1, "mount dir mnt --log nowhere/log", "the file cannot be written"),
    (1, "mount dir mnt --http unix:nowhere/s", "cannot listen at unix:nowhere/s"),
    (1, "mount dir mnt --http 192.0.2.1:1", "cannot listen at 192.0.2.1:1"),
    (1, "mount --remote 127.0.0.1:1 --retry-for 0s mnt", "expected `iogate serve` to listen there"),
    (1, "mount --remote unix:nowhere --retry-for 0s mnt", "expected `iogate serve` to listen there"),
    (2, "mount dir mnt --policy nowhere.toml", "the policy nowhere.toml cannot be read"),
    (2, "mount dir mnt --policy broken.toml", "broken.toml, line 1: "),
    (2, "umount", "required arguments were not provided: <MOUNTPOINT>"),
    (1, "umount nowhere", "is not a mount point"),
    (1, "umount dir", "is not a mount point"),
    (2, "umount mnt --lazy=no", "unexpected value 'no' for '--lazy'"),
    // What runs.
    (2, "status", "<MOUNTPOINT|ADDRESS>"),
    (1, "status nowhere", "nowhere"),
    (1, "status dir", "is not the root of an iogate mount"),
    (1, "status 127.0.0.1:1", "cannot be reached"),
    (1, "status unix:nowhere", "cannot be reached"),
    (1, "status unix:file", "cannot be reached"),
    (2, "status dir --watch=soon", "expected a number"),
    (2, "status dir --json --openmetrics", "cannot be used with"),
    (2, "top dir", "expected a terminal"),
    (2, "top dir --interval 0", "expected at least 0.1 seconds"),
    (2, "top dir --json", "--once"),
    (1, "top dir --once", "is not the root of an iogate mount"),
    (1, "top nowhere --once", "the mount at nowhere does not answer"),
    (2, "set dir", "<NAME=VALUE>"),
    (2, "set dir policy=nowhere.toml", "the policy nowhere.toml cannot be read"),
    (2, "set dir depth=5", "depth=5: expected what can be changed while it serves: scheduler=NAME"),
    (2, "set dir scheduler=sjf queue=7", "queue=7: expected what can be changed"),
    (1, "set dir scheduler=sjf", "is not the root of an iogate mount"),
    (1, "set nowhere scheduler=sjf", "nowhere"),
    (2, "record dir", "--out <TRACE>"),
    (1, "record dir --out o.csv", "is not the root of an iogate mount"),
    (1, "record nowhere --out o.csv", "the mount at nowhere does not answer"),
    (1, "record 127.0.0.1:1 --out o.csv", "cannot be reached"),
    (2, "record dir --out o.csv --for soon", "expected a time with its unit"),
    (2, "record dir --out o.csv --for 0s", "'--for <TIME>': expected more than no time, as in 60s"),
    (2, "record dir --out o.csv --rotate 1MiB --keep many", "expected a whole number"),
    (2, "record dir --out o.csv --rotate 0", "expected 1 to "),
    (2, "why nowhere", "expected a mount point, a server's address"),
    (1, "why dir", "is not the root of an iogate mount"),
    (2, "why broken.toml", "broken.toml:1: "),
    (2, "why dir --counterfactual x --profile nowhere.toml", "profile nowhere.toml: "),
    (2, "why dir --counterfactual x --profile broken.toml", "profile broken.toml: not TOML"),
    (2, "why dir --counterfactual x --device nonesuch", "unknown device 'nonesuch'"),
    (2, "why traced.toml --html t.csv", "--html t.csv would replace what the scenario reads"),
    (2, "why broken.toml --html broken.toml", "--html broken.toml would replace the scenario"),
    (
        2,
        "why dir --counterfactual x --device profile:other.toml --html other.toml",
        "would replace the profile",
    ),
    (2, "demo --device profile:other.toml --html other.toml", "would replace the profile"),
    (2, "why dir --for 0", "--for: expected more than no time"),
    (2, "why dir --device hdd", "--counterfactual <APP>"),
    // Policies.
    (2, "policy check", "<FILE>"),
    (2, "policy check nowhere.toml", "the policy nowhere.toml cannot be read"),
    (2, "policy check dir", "the policy dir cannot be read"),
    (2, "policy check broken.toml", "broken.toml, line 1: "),
    (2, "policy check other.toml", "other.toml, line 2: "),
    // Servers.
    (2, "serve", "<CONFIG>"),
    (2, "serve nowhere.toml", "the configuration nowhere.toml cannot be read"),
    (2, "serve dir", "the configuration dir cannot be read"),
    (2, "serve broken.toml", "the configuration broken.toml: line 1, `x = [`: "),
    (2, "serve other.toml", "the configuration other.toml: line 2, `nothing = 1`: unknown field `nothing`"),
    (1, "serve --check --directory nowhere --listen unix:s", "nowhere must be a directory"),
    (
        2,
        "serve --check tls.toml",
        "the configuration tls.toml: listen at 127.0.0.1:1: cannot read a certificate from file: expected PEM",
    ),
    (2, "serve broken.toml --directory dir", "cannot be used with"),
    (2, "serve --directory dir", "--listen <ADDRESS>"),
    (2, "serve --directory dir --listen nonsense", "the port is missing"),
    (2, "serve --directory dir --listen 192.0.2.1:1", "lets everybody who reaches 192.0.2.1 in"),
    (1, "serve --directory nowhere --listen unix:s", "must be a directory"),
    (1, "serve --directory file --listen unix:s", "must be a directory"),
    (1, "serve --directory dir --listen unix:nowhere/s", "cannot listen at unix:nowhere/s"),
    (2, "nfs", "<DIR>"),
    (1, "nfs nowhere", "must be a directory"),
    (1, "nfs file", "must be a directory"),
    (2, "nfs dir --listen nonsense", "expected ADDRESS:PORT"),
    (2, "nfs dir --accounts on", "--control <unix:PATH>"),
    (2, "nfs dir --control unix:socket --accounts some", "sampled, on, off"),
    (2, "nfs dir --listen 127.0.0.1:99999", "expected ADDRESS:PORT"),
    (2, "nfs dir --allow 300.0.0.0/8", "expected an address or a network"),
    (2, "nfs dir --allow 10.0.0.0/64", "expected an address or a network"),
    (2, "nfs dir --anonymous me", "expected UID:GID"),
    (2, "nfs dir --listen 192.0.2.1:2049", "expected --allow with it"),
    (1, "nfs dir --listen 192.0.2.1:2049 --allow 10.0.0.0/8", "cannot listen at 192.0.2.1:2049"),
    (2, "cluster start other.toml", "unrecognized subcommand 'start'; "),
    (2, "cluster up nowhere.toml", "the cluster nowhere.toml cannot be read"),
    (2, "cluster up broken.toml", "the cluster broken.toml: line 1, `x = [`: "),
    (2, "cluster up other.toml", "the cluster other.toml: line 2, `nothing = 1`: "),
    (2, "cluster up links.toml", "bandwidth = \"1Gbit\": expected a rate, as in 1Gbit/s"),
    (2, "cluster status nowhere --dir dir", "there is no cluster"),
    (2, "cluster status", "<NAME|FILE>"),
    (2, "cluster set nowhere --dir dir fair=user", "there is no cluster"),
    (2, "cluster set nowhere --dir dir policy=nowhere", "the policy nowhere cannot be read"),
    (2, "cluster set nowhere", "<SETTING>..."),
    (2, "cluster set nowhere --servers --forwarders fair=user", "cannot be used with"),
    (2, "cluster down", "<NAME|FILE>"),
    (2, "cluster down nowhere --dir dir", "there is no cluster"),
    // Turns.
    (2, "coord serve --listen nonsense --state s", "the port is missing"),
    (1, "coord serve --listen unix:s --state file", "file"),
    (2, "coord status", "<COORD>..., and IOGATE_COORD is not set here"),
    (2, "coord status nonsense", "the port is missing"),
    (1, "coord status unix:nowhere", "no coordinator answers: unix:nowhere cannot be reached"),
    (2, "coord release", "<TOKEN>"),
    (2, "coord release --coord unix:nowhere many", "expected a whole number"),
    (1, "coord release --coord unix:nowhere 1", "unix:nowhere"),
    (2, "turn", "<DIR|PLACE>"),
    (2, "turn dir", "<COMMAND>"),
    (127, "turn dir --policy none -- no-such-program", "no-such-program cannot be run"),
    (126, "turn dir --policy none -- ./file", "./file cannot be run"),
    (2, "turn dir --policy lock -- true", "IOGATE_COORD: expected to be set"),
    (2, "turn dir --policy sometimes -- true", "expected one of lock, backoff"),
    (2, "turn dir --timeout soon -- true", "expected a time with its unit"),
    (2, "turn dir --bytes much -- true", "expected a number of bytes"),
    (2, "run", "<COMMAND>"),
    (2, "run no-such-program", "there is no coordinator"),
    (127, "run --policy none no-such-program", "no-such-program cannot be run"),
    (2, "run --policy never true", "expected lock, backoff"),
    (2, "run --target nowhere true", "--target nowhere"),
    (2, "run --target dir=a --target dir=b true", "dir=a is given, too: expected one name for a directory"),
    (2, "run --weight 0 true", "expected 1 to 4294967295"),
    (2, "run --coord nonsense true", "expected HOST:PORT or unix:PATH"),
    (1, "probe nowhere", "nowhere cannot be probed"),
    (1, "probe file", "expected a directory, found a file"),
    (2, "probe dir --rounds 0", "expected 1 to 10000"),
    (2, "probe dir --threshold 101", "expected 1 to 100"),
    (2, "probe dir --bytes 0", "out of range"),
    // Storage and traces.
    (2, "profile", "<DIR|--device <DEVICE>|--kept>"),
    (1, "profile nowhere", "nowhere cannot be profiled"),
    (1, "profile file", "file cannot be profiled"),
    (2, "profile dir --budget 0s", "expected some time"),
    (2, "profile dir --device hdd", "cannot be used with"),
    (2, "profile --device hdd --kept", "cannot be used with"),
    (2, "profile dir --kept --out o.toml", "cannot be used with"),
    (2, "profile --kept --budget 1s", "cannot be used with"),
    (2, "profile --device hdd --budget 1s", "cannot be used with"),
    (2, "profile --device profile:other.toml --out other.toml", "would replace the profile"),
    (2, "profile dir --forget", "--kept"),
    (2, "profile --kept --forget=all", "unexpected value 'all' for '--forget'"),
    (2, "profile --kept", "nothing is kept: IOGATE_PROFILES says so"),
    (1, "profile --kept nowhere", "nowhere must be a directory"),
    (1, "profile --kept file", "file must be a directory"),
    (1, "profile --kept /proc", "nothing says for certain which file system it is"),
    (2, "mount dir mnt --store modelled --profile kept", "found with a modelled store"),
    (2, "mount --remote 127.0.0.1:1 --profile kept mnt", "expected with a directory, found with --remote"),
    (2, "mount dir mnt --profile nowhere.toml", "profile nowhere.toml: "),
    (2, "nfs dir --listen 127.0.0.1:0 --profile broken.toml", "profile broken.toml: not TOML"),
    (2, "profile --device floppy", "unknown device 'floppy'"),
    (2, "profile --device profile:nowhere.toml", "the profile nowhere.toml"),
    (2, "profile --device profile:t.csv", "the profile t.csv: not TOML"),
    (2, "layout nowhere", "nowhere"),
    (2, "layout", "<FILE>"),
    (2, "layout dir", "expected a regular file"),
    (2, "replay t.csv", "--device <DEVICE>"),
    (2, "replay nowhere.csv --device hdd", "the trace nowhere.csv cannot be read"),
    (2, "replay t.csv --device hd", "did you mean 'hdd'?"),
    (2, "replay few.csv --device hdd", "expected the column client"),
    (2, "replay t.csv --device hdd --targets 0", "expected 1 to 4096"),
    (1, "replay t.csv --device hdd --log dir", "dir cannot be written"),
    (2, "replay dir --device hdd", "the trace dir cannot be read"),
    (2, "replay t.csv --device hdd --html t.csv", "--html t.csv would replace the trace"),
    (2, "replay t.csv --device profile:other.toml --log other.toml", "would replace the profile"),
    (2, "replay late.csv --device unit:1", "below 2^63 nanoseconds, found '18446744073709551.615'"),
    (2, "replay back.csv --device unit:1", "found 0; sort the trace by time"),
    (
        1,
        "replay t.csv --device hdd --html nowhere/x.html",
        "nowhere/x.html cannot be written: No such file or directory (os error 2)",
    ),
    (
        2,
        "replay t.csv --device hdd --json --html -",
        "--json and --html both write to standard output: name a file",
    ),
    (2, "train --out nowhere", "expected a directory that is there"),
    (2, "train --from t.csv", "line 1, column 1: expected `mix`, found `time_us`"),
    (2, "train --from nowhere.csv", "nowhere.csv cannot be read"),
    (2, "train --mixes 0", "0"),
    (2, "advise few.csv", "expected the column client"),
    (2, "advise nowhere.csv", "the trace nowhere.csv cannot be read"),
    (2, "advise t.csv --device floppy", "unknown device 'floppy'"),
    (2, "schedulers sjff", "did you mean 'sjf'?"),
    (2, "schedulers fifo sjf", "unexpected argument 'sjf'"),
    // Experiments.
    (2, "sim nowhere.toml", "the scenario nowhere.toml cannot be read"),
    (2, "sim broken.toml", "broken.toml:1: "),
    (2, "sim windows --shard 3/2", "expected I/N with I from 1 to N"),
    (2, "sim windows --set nonsense", "expected key=value"),
    (2, "sim windows --set no.such=1", "unknown key 'no'"),
    (2, "sim windows --set network.retransmit=1s", "network.retransmit: a network without buffer"),
    (2, "sim windows --seeds 0", "expected 1 to 100000"),
    (2, "sim windows --threads 0", "expected at least 1"),
    (1, "sim windows --json nowhere/o.json", "nowhere/o.json cannot be written"),
    (2, "sim windows --json - --html -", "--json and --html both write to standard output: name a file"),
    (2, "sim windows --csv - --json -", "--json and --csv both write to standard output: name a file"),
    (1, "sim windows --results file", "the folder file cannot be made"),
    (2, "sim broken.toml --csv broken.toml", "--csv broken.toml would replace the scenario"),
    (2, "sim dir/../broken.toml --trace broken.toml", "--trace broken.toml would replace the scenario"),
    (2, "sim traced.toml --html t.csv", "--html t.csv would replace what the scenario reads"),
    (2, "sim traced.toml --trace dir/../t.csv", "would replace what the scenario reads"),
    (2, "bench nowhere.toml", "the scenario nowhere.toml cannot be read"),
    (2, "bench broken.toml", "broken.toml:1: "),
    (2, "bench broken.toml --json broken.toml", "--json broken.toml would replace the scenario"),
    (2, "bench traced.toml --csv t.csv", "--csv t.csv would replace what the scenario reads"),
    (2, "sim dir", "the scenario dir: expected a file, found a directory"),
    (2, "scenario show nosuch", "unknown scenario 'nosuch'"),
    (2, "scenario show", "<NAME>"),
    (2, "scenario list all", "unexpected argument 'all'"),
    (2, "scenario list --jsn", "unexpected argument '--jsn'"),
    (2, "scenario check nowhere.toml", "the scenario nowhere.toml cannot be read"),
    (2, "scenario check broken.toml", "broken.toml:1: "),
    (2, "merge", "<PATH>"),
    (2, "merge dir", "has no partial results"),
    (2, "merge t.csv", "has no partial results"),
    (2, "merge t.csv --html t.csv", "--html t.csv would replace what is joined"),
    (2, "merge nowhere.json", "nowhere.json cannot be read"),
    (2, "reproduce nosuch", "expected one of aioli, agios"),
    (1, "reproduce aioli --quick --out file", "the folder file cannot be made"),
    (2, "demo --device floppy", "unknown device 'floppy'"),
    (1, "demo --quick --html nowhere/x.html", "nowhere/x.html cannot be written"),
    (2, "devices hd", "unexpected argument 'hd'"),
    (2, "devices --jsn", "unexpected argument '--jsn'"),
    (2, "completions ksh", "expected one of bash"),
    (2, "completions", "<SHELL>"),
    (2, "man", "<DIRECTORY>"),
    (1, "man file", "the man pages cannot be written to file"),
    (2, "help nosuch", "unrecognized subcommand 'nosuch'"),
    (2, "help cluster nosuch", "unrecognized subcommand 'nosuch'"),
];

/// All paths below a folder.
fn names(folder: &Path) -> Vec<PathBuf> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            names.extend(self::names(&path));
        }
        names.push(path);
    }
    names.sort_unstable();
    names
}

/// What the line of an error may end with, in place of a hint.
const ORDERS: [&str; 6] = ["create", "name", "open", "run", "start", "use"];

/// Whether there is one hint; or none, and the line of the error goes on after what is wrong with what to do.
fn says_what_to_do(error: &str, hints: &[&str]) -> bool {
    match hints {
        [] => ORDERS.iter().any(|order| {
            let said = [format!(": {order} "), format!("; {order} "), format!("; {order},")];
            said.iter().any(|said| error.contains(said))
        }),
        [hint] => hint.strip_prefix("  hint: ").is_some_and(|hint| !hint.is_empty() && !error.contains(hint)),
        _ => false,
    }
}

/// What the program prints.
fn printed(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_iogate")).args(arguments).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

/// The commands that a command's help lists, in two columns.
fn commands(help: &str) -> Vec<String> {
    let lines = help.lines().skip_while(|line| !line.starts_with("Usage: ")).skip(1);
    let lines = lines.take_while(|line| *line != "Options:");
    lines
        .filter_map(|line| {
            line.strip_prefix("  ").filter(|line| line.starts_with(|first: char| first.is_ascii_lowercase()))
        })
        .filter_map(|line| line.split_whitespace().next())
        .map(str::to_owned)
        .collect()
}

#[test]
fn every_command_is_represented() {
    let mut few = Vec::new();
    let all = commands(&printed(&["--help"]));
    assert!(all.len() > 25, "{all:?}");
    for command in all {
        let help = if command == "help" { String::new() } else { printed(&[&command, "--help"]) };
        let below = if help.contains(" <COMMAND>\n") { commands(&help) } else { Vec::new() };
        let below = below.iter().filter(|below| *below != "help").map(|below| format!("{command} {below}"));
        let below: Vec<String> = below.collect();
        for path in if below.is_empty() { vec![command] } else { below } {
            let is_of = |line: &str| {
                line.strip_prefix(&*path).is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
            };
            let count = CASES.iter().filter(|(_, line, _)| is_of(line)).count();
            if count < 2 {
                few.push(format!("{path}: {count}"));
            }
        }
    }
    assert!(few.is_empty(), "{few:?}");
}

#[test]
fn each_is_refused_in_a_line() {
    assert!(CASES.len() >= 180, "{} cases", CASES.len());
    let folder = tempfile::tempdir().unwrap();
    for name in ["dir", "mnt", "full", "full/x"] {
        std::fs::create_dir(folder.path().join(name)).unwrap();
    }
    for (name, text) in FILES {
        std::fs::write(folder.path().join(name), text).unwrap();
    }
    let before = names(folder.path());
    let mut wrong = Vec::new();
    for &(status, arguments, expected) in CASES {
        let output = Command::new(env!("CARGO_BIN_EXE_iogate"))
            .args(arguments.split(' '))
            .current_dir(folder.path())
            .env("HOME", folder.path().join("dir"))
            .env_remove("IOGATE_COORD")
            .env("IOGATE_PROFILES", "none")
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let (said, printed) =
            (String::from_utf8(output.stderr).unwrap(), String::from_utf8(output.stdout).unwrap());
        let mut lines = said.lines();
        let error = lines.next().unwrap_or_default();
        let hints: Vec<&str> = lines.collect();
        let is_right = output.status.code() == Some(status)
            && error.starts_with("error: ")
            && error.contains(expected)
            && says_what_to_do(error, &hints)
            && printed.is_empty();
        if !is_right {
            wrong.push(format!(
                "iogate {arguments}: {} (expected {status}, '{expected}')\n{said}{printed}",
                output.status
            ));
        }
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), CASES.len(), wrong.join("\n"));
    assert_eq!(names(folder.path()), before, "something is left behind");
}
