//! Patterns of names and of paths.

use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;

/// In a pattern of paths it stands for any number of names, also none.
const ANY_NAMES: &[u8] = b"**";

/// Whether a name is as a pattern says: in it `*` stands for any bytes, and `?` for one.
pub fn name_fits(pattern: &[u8], name: &[u8]) -> bool {
    fits(pattern, name, is_any, |sign, byte| *sign == b'?' || sign == byte)
}

/// A pattern of paths below a root: patterns of names as in [`name_fits`], with a slash between two of them, of which `**` stands for any
/// number of names. What is below a directory that it matches, it matches, too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Glob {
    text: String,
    /// What stands between the slashes, and behind that any names.
    names: Vec<Vec<u8>>,
}

/// Why a text is no [`Glob`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GlobError {
    /// It begins or ends with a slash, has two in a row, or leads out of where it begins.
    #[error(
        "expected names with one slash between two of them, and none of them . or .., as in \"checkpoints/**\""
    )]
    NoPath,
    /// `**` is part of a name.
    #[error("expected ** by itself between slashes, as in \"**/*.h5\"")]
    Stars,
    /// It has a sign that means something in globs elsewhere.
    #[error(
        "expected no signs but *, ** and ? that stand for others: write ? where a name has one of [ ] {{ }} \\"
    )]
    Sign,
}

impl Glob {
    /// Reads a pattern.
    ///
    /// # Errors
    /// Says what was expected.
    pub fn parse(text: &str) -> Result<Glob, GlobError> {
        let mut names: Vec<Vec<u8>> = text.split('/').map(|name| name.as_bytes().to_vec()).collect();
        if names.iter().any(|name| matches!(&name[..], b"" | b"." | b"..")) {
            return Err(GlobError::NoPath);
        }
        if text.contains(['[', ']', '{', '}', '\\']) {
            return Err(GlobError::Sign);
        }
        let has_stars = |name: &Vec<u8>| name.len() > 2 && name.windows(2).any(|two| two == ANY_NAMES);
        if names.iter().any(has_stars) {
            return Err(GlobError::Stars);
        }
        names.push(ANY_NAMES.to_vec());
        Ok(Glob { text: text.into(), names })
    }

    /// Whether it matches a path, or a directory that this is below.
    pub fn matches(&self, path: &[u8]) -> bool {
        self.matches_names(&names_of(path))
    }

    /// The same for [`names_of`] a path.
    pub(crate) fn matches_names(&self, names: &[&[u8]]) -> bool {
        fits(&self.names, names, |name| is_any_names(name), |pattern, name| name_fits(pattern, name))
    }

    /// Whether it matches all that the other one matches. What is found is so, but not all that is so is found.
    pub fn covers(&self, other: &Glob) -> bool {
        let sign_covers = |ours: &u8, theirs: &u8| ours == theirs || *ours == b'?' && *theirs != b'*';
        let name_covers = |ours: &Vec<u8>, theirs: &Vec<u8>| {
            !is_any_names(theirs) && fits(ours, theirs, is_any, sign_covers)
        };
        fits(&self.names, &other.names, |name| is_any_names(name), name_covers)
    }

    /// Whether there may be a path that both match.
    pub fn overlaps(&self, other: &Glob) -> bool {
        let signs_meet = |one: &u8, two: &u8| one == two || *one == b'?' || *two == b'?';
        let names_meet = |one: &Vec<u8>, two: &Vec<u8>| meet(one, two, is_any, signs_meet);
        meet(&self.names, &other.names, |name| is_any_names(name), names_meet)
    }
}

impl fmt::Display for Glob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// What stands between the slashes of a path.
pub(crate) fn names_of(path: &[u8]) -> Vec<&[u8]> {
    path.split(|byte| *byte == b'/').collect()
}

fn is_any(sign: &u8) -> bool {
    *sign == b'*'
}

fn is_any_names(name: &[u8]) -> bool {
    name == ANY_NAMES
}

/// Whether items are as a pattern says, of whose items some stand for any number of others.
fn fits<P, T>(pattern: &[P], items: &[T], is_star: impl Fn(&P) -> bool, is: impl Fn(&P, &T) -> bool) -> bool {
    let (mut at, mut from) = (0, 0);
    // Where to go on if what follows the last star does not fit: the star takes one more.
    let mut star = None;
    while from < items.len() {
        match pattern.get(at) {
            Some(sign) if is_star(sign) => {
                star = Some((at, from));
                at += 1;
            }
            Some(sign) if is(sign, &items[from]) => (at, from) = (at + 1, from + 1),
            _ => {
                let Some((star_at, taken)) = star else { return false };
                star = Some((star_at, taken + 1));
                (at, from) = (star_at + 1, taken + 1);
            }
        }
    }
    pattern[at..].iter().all(is_star)
}

/// Whether there are items that both patterns fit; `is`: whether there is one that both of their items stand for.
fn meet<P>(one: &[P], two: &[P], is_star: impl Fn(&P) -> bool, is: impl Fn(&P, &P) -> bool) -> bool {
    // For what is left of `one` from the item below on: whether there are some for it and for what is left of `two`, from each on.
    let mut below = vec![false; two.len() + 1];
    for at in (0..=one.len()).rev() {
        let mut row = vec![false; two.len() + 1];
        for from in (0..=two.len()).rev() {
            let (ours, theirs) = (one.get(at), two.get(from));
            row[from] = match (ours, theirs) {
                (None, None) => true,
                (Some(ours), Some(theirs)) if !is_star(ours) && !is_star(theirs) => {
                    is(ours, theirs) && below[from + 1]
                }
                // A star ends, or takes what the other one has there.
                _ if ours.is_some_and(&is_star) || theirs.is_some_and(&is_star) => {
                    ours.is_some() && below[from] || theirs.is_some() && row[from + 1]
                }
                _ => false,
            };
        }
        below = row;
    }
    below[0]
}

#[cfg(test)]
mod tests {
    use alloc::format;
    use alloc::string::ToString;

    use proptest::prelude::*;

    use super::*;

    fn glob(text: &str) -> Glob {
        Glob::parse(text).unwrap()
    }

    #[test]
    fn globs_fit_whole_names() {
        for (pattern, name, is_fit) in [
            ("a*c", "abc", true),
            ("a*c", "abcd", false),
            ("a*b*c", "aXbXbXc", true),
            ("?", "", false),
            ("*", "", true),
            ("a?", "ab", true),
            ("", "a", false),
            ("*ab", "aab", true),
        ] {
            assert_eq!(name_fits(pattern.as_bytes(), name.as_bytes()), is_fit, "{pattern} {name}");
        }
    }

    #[test]
    fn globs_match_paths_and_what_is_below() {
        for (text, path, is_match) in [
            ("checkpoints/**", "checkpoints/step1", true),
            ("checkpoints/**", "checkpoints/a/b/c", true),
            ("checkpoints/**", "checkpoints2/a", false),
            ("checkpoints/**", "old/checkpoints/a", false),
            ("checkpoints", "checkpoints/step1", true),
            ("projects/*/out", "projects/a/out/x", true),
            ("projects/*/out", "projects/a/out", true),
            ("projects/*/out", "projects/a/b/out", false),
            ("projects/*/out", "projects/out", false),
            ("**/*.h5", "x.h5", true),
            ("**/*.h5", "a/b/x.h5", true),
            ("**/*.h5", "a/b/x.h5.tmp", false),
            ("a/**/z", "a/z", true),
            ("a/**/z", "a/b/c/z/file", true),
            ("a/**/z", "b/z", false),
            ("run?", "run1/f", true),
            ("run?", "run12/f", false),
            ("**", "anything/at/all", true),
            ("*", "anything/at/all", true),
        ] {
            assert_eq!(glob(text).matches(path.as_bytes()), is_match, "{text} {path}");
        }
        assert!(glob("dat?").matches(b"dat\xff/x"), "names need not be text");
        assert_eq!(glob("a/**").to_string(), "a/**");
    }

    #[test]
    fn what_is_no_glob_is_refused() {
        for (text, error) in [
            ("", GlobError::NoPath),
            ("/scratch/a", GlobError::NoPath),
            ("a/", GlobError::NoPath),
            ("a//b", GlobError::NoPath),
            ("./a", GlobError::NoPath),
            ("a/../b", GlobError::NoPath),
            ("a**", GlobError::Stars),
            ("a/***/b", GlobError::Stars),
            ("run[0-9]", GlobError::Sign),
            ("{a,b}/**", GlobError::Sign),
            ("a\\*", GlobError::Sign),
        ] {
            assert_eq!(Glob::parse(text), Err(error), "{text}");
        }
        assert!(Glob::parse(".hidden/..x").is_ok());
    }

    #[test]
    fn what_a_glob_has_of_another_is_known() {
        for (one, two, covers, overlaps) in [
            ("a", "a/**", true, true),
            ("a/**", "a", true, true),
            ("**", "projects/*/out", true, true),
            ("projects/**", "projects/*/out", true, true),
            ("projects/*/out", "projects/**", false, true),
            ("**/*.h5", "projects/**", false, true),
            ("a/**", "b/**", false, false),
            ("a*", "*b", false, true),
            ("a*c", "a?c", true, true),
            ("a?c", "a*c", false, true),
            ("a?", "ab?", false, false),
        ] {
            assert_eq!(glob(one).covers(&glob(two)), covers, "{one} covers {two}");
            assert_eq!(glob(one).overlaps(&glob(two)), overlaps, "{one} overlaps {two}");
        }
    }

    /// By trying all that a star may stand for.
    fn naive_name(pattern: &[u8], name: &[u8]) -> bool {
        match pattern.split_first() {
            None => name.is_empty(),
            Some((b'*', rest)) => (0..=name.len()).any(|taken| naive_name(rest, &name[taken..])),
            Some((sign, rest)) => name
                .split_first()
                .is_some_and(|(byte, left)| (*sign == b'?' || sign == byte) && naive_name(rest, left)),
        }
    }

    fn naive_names(pattern: &[&str], names: &[&str]) -> bool {
        match pattern.split_first() {
            None => names.is_empty(),
            Some((&"**", rest)) => (0..=names.len()).any(|taken| naive_names(rest, &names[taken..])),
            Some((one, rest)) => names.split_first().is_some_and(|(name, left)| {
                naive_name(one.as_bytes(), name.as_bytes()) && naive_names(rest, left)
            }),
        }
    }

    /// The path, or a directory that it is below, is as the pattern says.
    fn naive(pattern: &str, path: &str) -> bool {
        let (pattern, names): (Vec<&str>, Vec<&str>) =
            (pattern.split('/').collect(), path.split('/').collect());
        (0..=names.len()).any(|end| naive_names(&pattern, &names[..end]))
    }

    fn names(one: &'static str, most: usize) -> impl Strategy<Value = String> {
        prop::collection::vec(one, 1..=most).prop_map(|names| names.join("/"))
    }

    /// All names of one to three of two letters.
    fn some_names() -> Vec<String> {
        let longer = |shorter: &Vec<String>| -> Vec<String> {
            shorter.iter().flat_map(|name| [format!("{name}a"), format!("{name}b")]).collect()
        };
        let one = longer(&vec![String::new()]);
        let two = longer(&one);
        let three = longer(&two);
        [one, two, three].concat()
    }

    proptest! {
        #[test]
        fn matches_are_those_of_trying_everything(
            pattern in names(r"\*\*|[ab?]{1,3}|[ab?]{0,2}\*[ab?]{0,2}|[ab?]?\*[ab?]{1,2}\*[ab]?", 4),
            path in names("[ab]{1,4}", 5),
        ) {
            prop_assert_eq!(glob(&pattern).matches(path.as_bytes()), naive(&pattern, &path), "{} {}", pattern, path);
        }

        #[test]
        fn overlaps_are_those_of_some_path(
            one in names(r"\*\*|[ab?*]|[ab?][ab?*]|\*[ab?]", 2),
            two in names(r"\*\*|[ab?*]|[ab?][ab?*]|\*[ab?]", 2),
        ) {
            let (first, second) = (glob(&one), glob(&two));
            let parts = some_names();
            let (mut overlap, mut all) = (false, true);
            let mut look = |path: &str| {
                let (ours, theirs) = (first.matches(path.as_bytes()), second.matches(path.as_bytes()));
                overlap |= ours && theirs;
                all &= ours || !theirs;
            };
            for a in &parts {
                look(a);
                for b in &parts {
                    look(&format!("{a}/{b}"));
                    for c in ["a", "b", "aa", "ab", "ba", "bb"] {
                        look(&format!("{a}/{b}/{c}"));
                    }
                }
            }
            prop_assert_eq!(first.overlaps(&second), overlap, "{} {}", one, two);
            prop_assert!(all || !first.covers(&second), "{} does not cover {}", one, two);
        }
    }
}
