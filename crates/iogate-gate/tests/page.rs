//! The programs of docs/c.md do as printed.

mod common;

use std::process::Command;

use common::{compile, root, succeeded};

/// The blocks of a page: their language, and their text.
fn blocks(page: &str) -> Vec<(&str, &str)> {
    let pieces: Vec<&str> = page.split("```").collect();
    pieces.chunks(2).filter_map(|pair| pair.get(1)?.split_once('\n')).collect()
}

#[test]
fn programs_do_as_printed() {
    let page = std::fs::read_to_string(root().join("../../docs/c.md")).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let blocks = blocks(&page);
    let mut count = 0;
    for pair in blocks.windows(2) {
        let [("c", program), (language, printed)] = pair else { continue };
        assert_eq!(*language, "", "what a program prints is in the block behind it");
        count += 1;
        let (source, binary) =
            (folder.path().join(format!("{count}.c")), folder.path().join(format!("{count}")));
        std::fs::write(&source, program).unwrap();
        compile(&source, &binary, &[]);
        let output = Command::new(&binary).output().unwrap();
        succeeded(&output);
        assert_eq!(String::from_utf8_lossy(&output.stdout), *printed);
    }
    assert_eq!(count, 2, "a program of the page was not run");
}
