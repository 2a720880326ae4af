//! Values that are out of range, or of another kind than they look, and keys that nothing would use: what is said of them.

use iogate_sim::scenario::{Plan, Source};

const BASE: &str = "title = 'base'\n[clients]\nnodes = 8\n[servers]\nnodes = 1\ndevice = 'unit:1ms'\n[[app]]\nname = 'ior'\n\
                    processes = 8\npattern = 'contiguous'\nop = 'write'\nbytes = '1MiB'\nrequest = '32KiB'\n";

fn read(settings: &[&str]) -> Result<Plan, String> {
    let settings: Vec<String> = settings.iter().map(|text| (*text).to_owned()).collect();
    let open = |_: &str| Err("there are no files".to_owned());
    Plan::read(&Source { name: "x", text: BASE, settings: &settings, quick: false, open: &open })
        .map_err(|error| error.to_string())
}

#[track_caller]
fn says(settings: &[&str], said: &str) {
    let message = read(settings).expect_err(&settings.join(", "));
    assert!(message.contains(said), "{settings:?}: {message}\nshould contain\n{said}");
}

/// Tables and pictures know points by their values: of two with the same, nobody could say which is which.
#[test]
fn points_have_names_of_their_own() {
    let swept = |sweep: &str| {
        let open = |_: &str| Err("there are no files".to_owned());
        let text = format!("{BASE}{sweep}");
        let plan = Plan::read(&Source { name: "x", text: &text, settings: &[], quick: false, open: &open });
        plan.map(|plan| plan.points.len()).map_err(|error| error.to_string())
    };
    let two = |labels: [&str; 2], axis: &str| {
        let case = |(nodes, label)| format!("[[sweep.{axis}]]\n{label}\nservers.nodes = {nodes}\n");
        swept(&(1..).zip(labels).map(case).collect::<String>())
    };
    assert_eq!(two(["label = 'one'", "label = 'two'"], "case"), Ok(2));
    assert_eq!(two(["", ""], "case"), Ok(2));
    let same = two(["label = 'one'", "label = 'one'"], "case").unwrap_err();
    assert!(same.contains("two cases of case are called 'one': give each a label of its own"), "{same}");
    let twice = swept("[sweep]\nservers.nodes = [1, 2, 1]\n").unwrap_err();
    assert!(twice.contains("the sweep over servers.nodes has 1 twice: leave one out"), "{twice}");
    says(&["servers.nodes=[2, 2]"], "has 2 twice");
    let axes =
        swept("[[sweep.case]]\nservers.nodes = 1\n[[sweep.cases.case]]\nservers.nodes = 2\n").unwrap_err();
    assert!(axes.contains("two axes are called case"), "{axes}");
    let lines = two(["label = \"a\\nb\"", "label = 'c'"], "case").unwrap_err();
    assert!(lines.contains("case = \"a\\nb\": expected one line, without control characters"), "{lines}");
    says(&["title=\"\\u001b[31m\""], "expected one line, without control characters");
}

/// As it does in a file: from outside and in cases it did nothing.
#[test]
fn an_empty_table_is_a_table() {
    let first = |settings: &[&str]| read(settings).unwrap().points.remove(0).scenario;
    assert!(first(&[]).batch.is_none());
    assert!(first(&["batch={}"]).batch.is_some_and(|batch| batch.backfill));
    assert!(first(&["clients.gate={}"]).cluster.clients.gate.is_some());
    // What is there stays as it is.
    let both =
        first(&["servers.gate={ scheduler = 'sjf', depth = 3 }", "servers.gate={}"]).cluster.servers.gate;
    assert_eq!((both.name().as_str(), both.depth), ("sjf", 3));
}
