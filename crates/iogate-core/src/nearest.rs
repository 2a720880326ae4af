//! What a mistyped name was probably meant to be.

use alloc::string::String;
use alloc::vec::Vec;

/// The candidate with the smallest edit distance, if that is small enough to be a slip.
pub fn nearest<'a>(word: &str, candidates: impl Iterator<Item = &'a str>) -> Option<String> {
    candidates
        .map(|candidate| (edit_distance(word, candidate), candidate))
        .min()
        .filter(|(distance, candidate)| *distance <= 1 + candidate.len() / 3)
        .map(|(_, candidate)| candidate.into())
}

fn edit_distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut diagonal = core::mem::replace(&mut row[0], i + 1);
        for (j, y) in b.bytes().enumerate() {
            let replace = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = replace.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

/// The part of a message that offers the near name, if there is one.
pub fn did_you_mean(near: &Option<String>) -> String {
    near.as_ref().map(|near| alloc::format!("did you mean '{near}'? ")).unwrap_or_default()
}
