//! Globs that name classes of files in a policy by path.

use iogate_core::glob::Glob;
use iogate_core::policy::{Overlap, PathClasses};
use toml::Spanned;

use super::{DeString, Reader, SharesError, Value, line};
use crate::app::application_of_glob;

impl Reader<'_> {
    /// The classes of files, whose globs are the names of tables, in the order of the file; `None`: it has no such tables.
    pub(super) fn paths(&self, classes: Option<&Value<'_>>) -> Result<PathClasses, SharesError> {
        let table = classes.and_then(|classes| classes.get_ref().as_table());
        let mut keys: Vec<_> = table.into_iter().flat_map(|table| table.keys()).collect();
        keys.sort_by_key(|key| key.span().start);
        let read = |key: &Spanned<DeString<'_>>| {
            let text = key.get_ref();
            let glob = Glob::parse(text).map_err(|error| SharesError {
                line: line(self.text, key.span()),
                why: format!("class: {error}, found \"{text}\""),
            })?;
            Ok((glob, application_of_glob(text)))
        };
        let globs = keys.into_iter().map(read).collect::<Result<_, _>>()?;
        // No glob is empty.
        Ok(PathClasses { globs, elsewhere: application_of_glob("") })
    }
}

/// What is probably not meant of globs that match the same files, for people.
pub fn overlaps(paths: &PathClasses) -> Vec<String> {
    let say = |overlap: Overlap<'_>| {
        let Overlap { glob, before, is_hidden } = overlap;
        let before: Vec<_> = before.iter().map(|glob| format!("class.\"{glob}\"")).collect();
        let before = before.join(", ");
        match is_hidden {
            true => {
                format!("class.\"{glob}\" has no files: {before} stands before it, and matches all of them")
            }
            false => format!(
                "class.\"{glob}\" overlaps {before}: what matches both is in the class that stands first"
            ),
        }
    };
    paths.overlaps().into_iter().map(say).collect()
}

#[cfg(test)]
mod tests {
    use iogate_core::AppId;
    use iogate_engine::ClassBy;

    use super::super::{Shares, shown};
    use super::*;

    fn parse(text: &str) -> Result<Shares, SharesError> {
        Shares::parse(text, &|_| None, &|_| None)
    }

    #[test]
    fn globs_are_classes_in_the_order_of_the_file() {
        let shares = parse(
            "by = \"path\"\n[others]\nweight = 7\n[class.\"projects/*/out\"]\nweight = 2\n[class.home]\n[class.\"**/*.h5\"]\n\
             max = \"20MB/s\"\n",
        )
        .unwrap();
        let policy = &shares.policy;
        assert!(policy.check().is_ok() && shares.by() == "path" && shares.by == ClassBy::Path);
        let globs: Vec<String> = policy.paths.globs.iter().map(|(glob, _)| glob.to_string()).collect();
        assert_eq!(globs, ["projects/*/out", "home", "**/*.h5"]);
        let weight = |path: &str| policy.of(policy.paths.class(Some(path.as_bytes()))).weight;
        assert_eq!([weight("projects/a/out/x.h5"), weight("home/x.h5"), weight("x")], [2, 1, 7]);
        let h5 = policy.of(policy.paths.class(Some(b"x.h5")));
        assert_eq!(h5.max.bytes.map(|rate| rate.get()), Some(20_000_000));
        assert_eq!(policy.of(policy.paths.class(None)).weight, 7);
        assert_ne!(policy.paths.elsewhere, AppId(0));
        assert_eq!(shown::classes(policy, shares.by), "3 named, for all other paths weight 7");
        assert_eq!(
            overlaps(&policy.paths),
            ["class.\"**/*.h5\" overlaps class.\"projects/*/out\", class.\"home\": \
             what matches both is in the class that stands first"]
        );
        let all = parse("by = \"path\"\n[others]\nmax = \"1MB/s\"\n").unwrap();
        assert_eq!(all.policy.paths.class(Some(b"x")), policy.paths.elsewhere);
        assert_eq!(shown::classes(&all.policy, all.by), "for all paths weight 1, at most 1MB/s");
        let hidden = parse("by = \"path\"\n[class.\"a/**\"]\n[class.\"a/b\"]\n").unwrap();
        assert_eq!(
            overlaps(&hidden.policy.paths),
            ["class.\"a/b\" has no files: class.\"a/**\" stands before it, and matches all of them"]
        );
        assert!(Shares::equal("path").is_none(), "without globs there is nothing to divide");
    }

    #[test]
    fn what_is_no_glob_is_said_with_its_line() {
        for (text, at, says) in [
            (
                "by = \"path\"\n[class.a]\n[class.\"/scratch/b\"]",
                3,
                "class: expected names with one slash between two of them, and none of them . or .., \
                 as in \"checkpoints/**\", found \"/scratch/b\"",
            ),
            ("by = \"path\"\n[class.\"run[0-9]\"]", 2, "class: expected no signs but *, ** and ?"),
            ("by = \"path\"\n[class.\"a**\"]", 2, "class: expected ** by itself between slashes"),
            ("by = \"path\"\n[class.\"\"]", 2, "class: expected names"),
            ("by = \"path\"\nclass = 1", 2, "class: expected tables of classes"),
            ("by = \"path\"\n[group.physics]", 2, "group: expected by = \"user\" or"),
            ("by = \"paths\"", 1, "by: expected one of user, job, app, account, path, group/user"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.line == at && error.why.starts_with(says), "{text:?}: {error}");
        }
    }
}
