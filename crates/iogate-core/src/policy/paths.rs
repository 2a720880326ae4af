//! Classes of files, by their paths.

use alloc::vec;
use alloc::vec::Vec;

use crate::glob::{Glob, names_of};
use crate::request::AppId;

/// Which class a file is in by its path: that of the first glob that matches.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PathClasses {
    /// The globs and their classes, in the order in which they count.
    pub globs: Vec<(Glob, AppId)>,
    /// The class of all files that no glob matches, or whose path is not known.
    pub elsewhere: AppId,
}

/// A glob that matches files which are in the classes of globs before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Overlap<'a> {
    /// The glob.
    pub glob: &'a Glob,
    /// Those before it; if it is hidden, one that is enough for that.
    pub before: Vec<&'a Glob>,
    /// It has no file left.
    pub is_hidden: bool,
}

impl PathClasses {
    /// The class of a file with this path; `None`: it is not known.
    pub fn class(&self, path: Option<&[u8]>) -> AppId {
        let find = |path: &[u8]| {
            let names = names_of(path);
            self.globs.iter().find(|(glob, _)| glob.matches_names(&names))
        };
        path.and_then(find).map_or(self.elsewhere, |(_, class)| *class)
    }

    /// What is probably not meant: globs that can match nothing, as one before them matches all of it, and globs that match some of what
    /// one before them matches, and neither of the two is an exception of the other.
    pub fn overlaps(&self) -> Vec<Overlap<'_>> {
        let overlap = |(at, (glob, _)): (usize, &'_ (Glob, AppId))| {
            let before = || self.globs[..at].iter().map(|(glob, _)| glob);
            if let Some(first) = before().find(|first| first.covers(glob)) {
                return Some((at, vec![first], true));
            }
            let some: Vec<_> = before().filter(|one| one.overlaps(glob) && !glob.covers(one)).collect();
            (!some.is_empty()).then_some((at, some, false))
        };
        let found = self.globs.iter().enumerate().filter_map(overlap);
        found.map(|(at, before, is_hidden)| Overlap { glob: &self.globs[at].0, before, is_hidden }).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn classes(globs: &[&str]) -> PathClasses {
        let class = |(at, text): (usize, &&str)| (Glob::parse(text).unwrap(), AppId(at as u32 + 1));
        PathClasses { globs: globs.iter().enumerate().map(class).collect(), elsewhere: AppId(99) }
    }

    #[test]
    fn the_first_that_matches_counts() {
        let classes = classes(&["projects/*/out", "projects/**", "**/*.h5"]);
        for (path, class) in [
            ("projects/a/out/x.h5", 1),
            ("projects/a/in/x.h5", 2),
            ("home/x.h5", 3),
            ("home/x", 99),
            ("", 99),
        ] {
            assert_eq!(classes.class(Some(path.as_bytes())), AppId(class), "{path}");
        }
        assert_eq!(classes.class(None), AppId(99));
        assert_eq!(PathClasses::default().class(Some(b"a")), AppId(0));
    }

    #[test]
    fn globs_that_have_nothing_or_less_than_it_seems_are_named() {
        let globs = ["projects/a/**", "**/*.h5", "projects/**", "projects/b", "checkpoints"];
        let classes = classes(&globs);
        let at = |at: usize| &classes.globs[at].0;
        let some = |glob: usize, before: &[usize], is_hidden| Overlap {
            glob: at(glob),
            before: before.iter().map(|one| at(*one)).collect(),
            is_hidden,
        };
        // The third has an exception before it, which is as it should be.
        let expected =
            [some(1, &[0], false), some(2, &[1], false), some(3, &[2], true), some(4, &[1], false)];
        assert_eq!(classes.overlaps(), expected);
    }
}
