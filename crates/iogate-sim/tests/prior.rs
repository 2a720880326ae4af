//! The prior of the automatic choice: what is committed is what training makes.

use std::path::Path;

use iogate_sim::choice::train::{Fold, Situation, folds, grow, read, table, write};

fn committed() -> String {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/choice/train/situations.csv");
    std::fs::read_to_string(file).unwrap()
}

#[test]
fn the_committed_tree_is_grown_from_the_committed_situations() {
    let text = committed();
    let situations = read(&text).unwrap();
    assert_eq!(write(&situations), text);
    let grown = grow(&situations.iter().collect::<Vec<_>>());
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../iogate-core/src/auto/prior/table.rs");
    let source = std::fs::read_to_string(file).unwrap();
    assert!(
        table(&grown, situations.len()) == source,
        "`iogate train --from situations.csv --out DIR` makes another table.rs"
    );
    let folds = folds(&situations);
    // What the handbook says of it.
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/explanation/choosing.md");
    let docs = std::fs::read_to_string(docs).unwrap();
    for Fold { from, on, situations, gain, best, harmed } in &folds {
        let times = |sum: i64| format!("{:.3}", (sum as f64 / 1e6 / *situations as f64).exp());
        let row =
            format!("| {from} | {on} | {situations} | {} | {} | {harmed} |\n", times(*gain), times(*best));
        assert!(docs.contains(&row), "docs/explanation/choosing.md: {row}");
    }
    assert!(folds[0].gain > 0 && folds[1].gain > 0 && folds[1].situations == situations.len(), "{folds:?}");
}

#[test]
fn the_committed_situations_are_what_becomes_of_them() {
    let situations = read(&committed()).unwrap();
    // All would take half an hour: one of each kind of storage, of those that are soon over.
    let mut seen = Vec::new();
    for number in CHECKED {
        let of = situations.iter().find(|of| of.number == number).unwrap();
        assert_eq!(
            Situation::carry_out(number).as_ref(),
            Some(of),
            "`iogate train` makes other situations: make them all again"
        );
        seen.push(of.storage.clone());
    }
    seen.sort();
    assert_eq!(seen, ["array", "constant", "disk", "flash", "memory", "priced"]);
}

/// Of each kind of storage one.
const CHECKED: [u64; 6] = [0, 1, 43, 4, 6, 28];

#[test]
fn texts_that_are_none_are_refused_in_a_line() {
    let text = committed();
    let header = text.lines().next().unwrap();
    let row = text.lines().nth(1).unwrap();
    let (short, _) = row.rsplit_once(',').unwrap();
    for (text, expected) in [
        (String::new(), "line 1, column 1: expected `mix`, found ``"),
        (row.into(), "line 1, column 1: expected `mix`, found `0`"),
        (format!("{header}\n"), "expected situations, found none"),
        (format!("{header}\n{row}\n{short}\n"), "line 3: expected"),
        (format!("{header}\n{}\n", row.replace("0,", "x,")), "line 2, column 1: expected"),
    ] {
        let error = read(&text).unwrap_err();
        assert!(error.starts_with(expected) && !error.contains('\n'), "{error}");
    }
}
