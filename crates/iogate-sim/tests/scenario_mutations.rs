//! Scenario texts that went wrong in any way are refused with a message, or are scenarios; nothing panics.

use std::sync::LazyLock;

use iogate_sim::scenario::{PROBLEMS_MAX, Plan, Source};
use proptest::prelude::*;

static TEXTS: LazyLock<Vec<String>> = LazyLock::new(|| {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios");
    let mut paths: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let mut texts: Vec<String> = paths.iter().filter_map(|path| std::fs::read_to_string(path).ok()).collect();
    texts.push(
        "title = 'x'\nclients.nodes = 4\nservers = { nodes = 2, device = 'unit:1ms' }\n[batch]\n[jobs]\ncount = 2\n\
         nodes = [1, 2]\ncompute_total = ['1s', '2s']\nbytes_total = [1, 9]\n[[fault]]\nkind = 'skew'\n\
         layer = 'servers'\nnode = 1\nahead = '-1s'\n[[app]]\nname = 'a'\nprocesses = 2\npattern = 'tile'\n\
         op = 'read'\ncolumns = 1\nwidth = 2\nheight = 3\nelement = 4\ncollective = { aggregators = 1 }\n\
         [[app]]\nname = 'b'\npattern = 'trace'\nfile = 'x'\n"
            .into(),
    );
    texts
});

/// What takes the place of a value, or of anything.
const WORDS: [&str; 30] = [
    "0",
    "-1",
    "1",
    "4096",
    "4097",
    "1e9",
    "18446744073709551616",
    "0.5",
    "nan",
    "true",
    "''",
    "'0s'",
    "'1h'",
    "'-1s'",
    "'4EiB'",
    "'1TiB'",
    "'4611686018427387904'",
    "[]",
    "[[]]",
    "[1, 2]",
    "{}",
    "{ uniform = ['2s', '1s'] }",
    "{ exponential = '1s' }",
    "1979-05-27",
    "'unlimited'",
    "'a.b'",
    "'*'",
    "'servers'",
    "'trace'",
    "\u{e9}",
];

#[derive(Clone, Debug)]
enum Mutation {
    /// The value in a line becomes another.
    Value(usize, usize),
    /// The key in a line becomes that of another.
    Key(usize, usize),
    /// A line goes away, comes twice, or changes places.
    Remove(usize),
    Repeat(usize, usize),
    /// A character becomes another.
    Character(usize, char),
}

fn mutation() -> impl Strategy<Value = Mutation> {
    let n = 0..1000usize;
    prop_oneof![
        4 => (n.clone(), 0..WORDS.len()).prop_map(|(line, word)| Mutation::Value(line, word)),
        2 => (n.clone(), n.clone()).prop_map(|(line, other)| Mutation::Key(line, other)),
        1 => n.clone().prop_map(Mutation::Remove),
        1 => (n.clone(), n.clone()).prop_map(|(line, to)| Mutation::Repeat(line, to)),
        1 => (n, any::<char>()).prop_map(|(at, character)| Mutation::Character(at, character)),
    ]
}

fn mutate(text: &str, mutation: &Mutation) -> String {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let count = lines.len().max(1);
    let at = |n: usize| n % count;
    match *mutation {
        _ if lines.is_empty() => {}
        Mutation::Value(line, word) => {
            if let Some((key, _)) = lines[at(line)].clone().split_once('=') {
                lines[at(line)] = format!("{key}= {}", WORDS[word]);
            }
        }
        Mutation::Key(line, other) => {
            let key = lines[at(other)].split('=').next().unwrap_or("").to_owned();
            if let Some((_, value)) = lines[at(line)].clone().split_once('=') {
                lines[at(line)] = format!("{key}={value}");
            }
        }
        Mutation::Remove(line) => {
            lines.remove(at(line));
        }
        Mutation::Repeat(line, to) => {
            let line = lines[at(line)].clone();
            lines.insert(at(to), line);
        }
        Mutation::Character(place, character) => {
            let mut characters: Vec<char> = text.chars().collect();
            let count = characters.len().max(1);
            if let Some(old) = characters.get_mut(place * 7 % count) {
                *old = character;
            }
            return characters.into_iter().collect();
        }
    }
    lines.join("\n")
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn mutated_scenarios_are_refused_or_right(
        index in 0..100usize,
        mutations in proptest::collection::vec(mutation(), 1..4),
        key in prop::sample::select(vec!["servers.nodes", "app.*.bytes", "app.0.compute", "jobs.nodes", "sweep", "app", "a..b"]),
        word in prop::sample::select(WORDS.to_vec()),
        set: bool,
        quick: bool,
    ) {
        let mut text = TEXTS[index % TEXTS.len()].clone();
        for mutation in &mutations {
            text = mutate(&text, mutation);
        }
        let settings: Vec<String> = if set { vec![format!("{key}={word}")] } else { Vec::new() };
        let trace = "time_us,app,client,file,op,offset,bytes\n0,1,1,a,r,0,1\n";
        let open = |_: &str| Ok(trace.to_owned());
        let source = Source { name: "m.toml", text: &text, settings: &settings, quick, open: &open };
        match Plan::read(&source) {
            Ok(plan) => {
                prop_assert!(!plan.points.is_empty());
                for point in &plan.points {
                    let scenario = &point.scenario;
                    prop_assert!(scenario.repetitions > 0 && scenario.cluster.servers.nodes > 0);
                    prop_assert!(!scenario.apps.is_empty() || scenario.jobs.is_some());
                    for app in &scenario.apps {
                        let last = if scenario.batch.is_some() { app.nodes } else { app.first_node + app.nodes };
                        prop_assert!(app.processes > 0 && app.id > 0 && last <= scenario.cluster.clients.nodes);
                    }
                }
            }
            Err(error) => {
                prop_assert!((1..=PROBLEMS_MAX).contains(&error.problems.len()));
                let lines = text.lines().count() as u32 + 1;
                for line in error.to_string().lines().filter_map(|line| line.strip_prefix("m.toml:")) {
                    let number: u32 = line.split(':').next().unwrap().parse().unwrap();
                    prop_assert!((1..=lines).contains(&number), "{line} of {lines}");
                }
            }
        }
    }
}
