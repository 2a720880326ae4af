//! AGIOS's configuration file as a scheduler of ours.
//!
//! Of libconfig's syntax there is what such files use: `name = value` with numbers, strings and booleans, in any group, and comments.

use iogate_core::SchedulerConfig;
use iogate_gate::Failed;

/// AGIOS's algorithms, and which of ours they are.
const ALGORITHMS: [(&str, &str); 8] = [
    ("MLF", "mlf"),
    ("aIOLi", "aioli"),
    ("SJF", "sjf"),
    ("TO", "fifo"),
    ("TO-agg", "to-agg"),
    ("SW", "app-window"),
    ("NOOP", "fifo"),
    ("TWINS", "twins"),
];
/// What is set in files without it.
const ALGORITHM: &str = "SJF";

const DEFAULT_ALGORITHM: &str = "default_algorithm";
/// Settings that are numbers.
const NUMBERS: [&str; 5] = ["mlf_quantum", "aioli_quantum", "waiting_time", "SW_window", "twins_window"];

fn number(text: &str) -> Option<u64> {
    text.trim_end_matches('L').parse().ok()
}

/// Whether one is the other but for a slip: one character, or two that have changed places.
fn is_nearly(word: &str, other: &str) -> bool {
    let common = |a: &[u8], b: &[u8]| a.iter().zip(b).take_while(|(a, b)| a == b).count();
    let (a, b) = (word.as_bytes(), other.as_bytes());
    let head = common(a, b);
    let (a, b) = (&a[head..], &b[head..]);
    let tail = a.iter().rev().zip(b.iter().rev()).take_while(|(a, b)| a == b).count();
    let left = (a.len() - tail, b.len() - tail);
    left != (0, 0) && (left.0.max(left.1) == 1 || left == (2, 2) && a[0] == b[1] && a[1] == b[0])
}

fn invalid(text: String) -> Failed {
    Failed::new(libc::EINVAL, text)
}

/// A piece of a file, and the line that it begins in.
type Token<'a> = (&'a str, usize);

fn is_word(char: char) -> bool {
    char.is_alphanumeric() || "_-+.*".contains(char)
}

/// The pieces of a file that say something: words, strings with their quotation marks, and single signs.
fn tokens(text: &str) -> Result<Vec<Token<'_>>, Failed> {
    let mut tokens = Vec::new();
    let (mut rest, mut line) = (text, 1);
    while let Some(first) = rest.chars().next() {
        let open = |what: &str| invalid(format!("line {line}: {what} that does not end"));
        let length = if first == '#' || rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if let Some(comment) = rest.strip_prefix("/*") {
            comment.find("*/").ok_or_else(|| open("a comment"))? + 4
        } else if first == '"' {
            rest[1..].find('"').ok_or_else(|| open("a string"))? + 2
        } else if is_word(first) {
            rest.find(|char| !is_word(char)).unwrap_or(rest.len())
        } else {
            first.len_utf8()
        };
        let (token, behind) = rest.split_at(length);
        let is_comment = first == '#' || token.starts_with("//") || token.starts_with("/*");
        if !is_comment && !first.is_whitespace() {
            tokens.push((token, line));
        }
        line += token.matches('\n').count();
        rest = behind;
    }
    Ok(tokens)
}

/// Groups and lists within each other that are read.
const DEPTH_MAX: u32 = 32;

/// Reads what libconfig would read.
struct Reader<'a> {
    /// From the last to the first.
    tokens: Vec<Token<'a>>,
    /// The last line.
    end: usize,
    pairs: Vec<(&'a str, &'a str)>,
}

impl<'a> Reader<'a> {
    fn next_is(&self, sign: &str) -> bool {
        self.tokens.last().is_some_and(|(token, _)| *token == sign)
    }

    fn expected<T>(&self, what: &str) -> Result<T, Failed> {
        Err(invalid(match self.tokens.last() {
            Some((found, line)) => format!("line {line}: expected {what}, found '{found}'"),
            None => format!("line {}: expected {what}, found the end of the file", self.end),
        }))
    }

    fn word(&mut self) -> Option<&'a str> {
        let (token, _) = self.tokens.pop_if(|(token, _)| token.starts_with(is_word))?;
        Some(token)
    }

    /// `name = value`, again and again, until something else comes.
    fn settings(&mut self, depth: u32) -> Result<(), Failed> {
        while let Some(name) = self.word() {
            if !self.next_is("=") && !self.next_is(":") {
                return self.expected(&format!("= after {name}"));
            }
            self.tokens.pop();
            self.value(name, depth)?;
            while self.next_is(";") || self.next_is(",") {
                self.tokens.pop();
            }
        }
        Ok(())
    }

    fn value(&mut self, name: &'a str, depth: u32) -> Result<(), Failed> {
        if depth > DEPTH_MAX {
            return self.expected(&format!("at most {DEPTH_MAX} groups within each other"));
        }
        let Some((token, _)) = self.tokens.last().copied() else { return self.expected("a value") };
        if token.starts_with('"') || token.starts_with(is_word) {
            self.tokens.pop();
            self.pairs.push((name, token.trim_matches('"')));
            // Strings behind each other are one, of which no setting here has any use.
            while self.tokens.last().is_some_and(|(token, _)| token.starts_with('"')) {
                self.tokens.pop();
            }
            return Ok(());
        }
        let ends = match token {
            "{" => "}",
            "[" => "]",
            "(" => ")",
            _ => return self.expected("a value"),
        };
        self.tokens.pop();
        if ends == "}" {
            self.settings(depth + 1)?;
        } else {
            while !self.next_is(ends) {
                self.value("", depth + 1)?;
                if !self.next_is(ends) && !self.next_is(",") {
                    return self.expected(&format!("{ends} or a comma"));
                }
                self.tokens.pop_if(|(token, _)| *token == ",");
            }
        }
        if !self.next_is(ends) {
            return self.expected(ends);
        }
        self.tokens.pop();
        Ok(())
    }
}

/// The settings of a file, name and value.
fn pairs(text: &str) -> Result<Vec<(&str, &str)>, Failed> {
    let mut tokens = tokens(text)?;
    tokens.reverse();
    let mut reader = Reader { tokens, end: text.lines().count().max(1), pairs: Vec::new() };
    reader.settings(0)?;
    if reader.tokens.is_empty() { Ok(reader.pairs) } else { reader.expected("name = value") }
}

/// The scheduler that a file's text asks for.
///
/// # Errors
/// If it is not in the syntax of libconfig, the algorithm is unknown or dynamic, or a value is out of range.
pub(crate) fn scheduler(text: &str) -> Result<SchedulerConfig, Failed> {
    let pairs = pairs(text)?;
    if let Some((name, _)) = pairs.iter().find(|(name, _)| is_nearly(name, DEFAULT_ALGORITHM)) {
        return Err(invalid(format!("there is no setting {name}; did you mean {DEFAULT_ALGORITHM}?")));
    }
    for name in NUMBERS {
        let wrong = pairs.iter().find(|(key, value)| *key == name && number(value).is_none());
        if let Some((_, text)) = wrong {
            return Err(invalid(format!("{name} = '{text}': expected a number from 0 on")));
        }
    }
    let value = |name: &str| pairs.iter().rev().find(|(key, _)| *key == name).map(|(_, value)| *value);
    if value("trace").is_some_and(|trace| trace.eq_ignore_ascii_case("true")) {
        return Err(invalid("trace = true: no traces are written here; expected false".into()));
    }
    let wanted = value(DEFAULT_ALGORITHM).unwrap_or(ALGORITHM);
    let Some((_, ours)) = ALGORITHMS.iter().find(|(theirs, _)| *theirs == wanted) else {
        let known: Vec<&str> = ALGORITHMS.iter().map(|(theirs, _)| *theirs).collect();
        return Err(invalid(format!("default_algorithm = '{wanted}': expected one of {}", known.join(", "))));
    };
    let mut settings = SchedulerConfig::by_name(ours).map_err(|error| invalid(error.to_string()))?;
    // Of the file's name and unit to ours.
    let params: &[(&str, &str, &str)] = match wanted {
        "MLF" => &[("mlf_quantum", "", "quantum_base"), ("waiting_time", "ns", "wait_max")],
        "aIOLi" => &[
            ("aioli_quantum", "", "quantum_base"),
            ("waiting_time", "ns", "wait_max"),
            ("waiting_time", "ns", "contiguous_wait"),
        ],
        "SW" => &[("SW_window", "ms", "window")],
        "TWINS" => &[("twins_window", "us", "window")],
        _ => &[],
    };
    for (theirs, unit, name) in params {
        let Some(text) = value(theirs) else { continue };
        let Some(number) = number(text) else { continue };
        settings
            .set(name, &format!("{number}{unit}"))
            .map_err(|error| invalid(format!("{theirs} = '{text}': {error}")))?;
    }
    Ok(settings)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_read_as_libconfig_does() {
        let text = "library_options:\n{ # trace = true ;\n /* default_algorithm = \"MLF\" */\n\ttrace = false ;\n\
                    waiting_time = 800000 // ns\n aioli_quantum = 131072L; default_algorithm = \"aIOLi\" ;\n};";
        let settings = scheduler(text).unwrap().to_string();
        assert!(settings.starts_with("aioli("), "{settings}");
        for part in ["quantum_base=128KiB", "wait_max=800us", "contiguous_wait=800us"] {
            assert!(settings.contains(part), "{settings}");
        }
        assert_eq!(scheduler("").unwrap().to_string(), "sjf");
        assert_eq!(
            scheduler("default_algorithm=\"SW\" SW_window=250").unwrap().to_string(),
            "app-window(window=250ms)"
        );
        assert_eq!(
            scheduler("default_algorithm: \"TWINS\"; twins_window: 2000;").unwrap().to_string(),
            "twins(window=2ms)"
        );
    }

    #[test]
    fn what_is_wrong_is_said() {
        let said = |text: &str| scheduler(text).unwrap_err().text;
        assert!(said("default_algorithm = \"WFQ\"").contains("'WFQ': expected one of MLF"));
        assert!(said("default_algorithm = \"SW\" SW_window = soon").contains("SW_window = 'soon'"));
        assert!(said("trace = true").contains("no traces"));
        for (text, expected) in [
            ("default_algorithm = \"", "line 1: a string that does not end"),
            ("\n/*", "line 2: a comment that does not end"),
            ("garbage !!", "line 1: expected = after garbage, found '!'"),
            ("library_options = {\n trace = false;\n", "line 2: expected }, found the end of the file"),
            ("library_options = { default_algoritm = \"aIOLi\"; };", "did you mean default_algorithm?"),
            ("default_aglorithm = \"aIOLi\"", "did you mean default_algorithm?"),
            ("waiting_time = -3", "waiting_time = '-3': expected a number from 0 on"),
            ("=", "line 1: expected name = value, found '='"),
            ("a = ", "line 1: expected a value, found the end of the file"),
            ("a = =", "line 1: expected a value, found '='"),
            ("a = 1 }", "line 1: expected name = value, found '}'"),
            ("a = [1 2]", "expected ] or a comma, found '2'"),
        ] {
            assert!(said(text).contains(expected), "{text}: {}", said(text));
        }
        assert!(said(&"a = {".repeat(100_000)).contains("at most 32 groups"));
        for text in [
            "",
            "#",
            "// x",
            "\u{e9} = 1",
            "a = [1, 2,]; b = ({ c = \"d\" \"e\" }, 2)",
            "starting_algorithm = \"TO\"",
        ] {
            assert_eq!(scheduler(text).unwrap().to_string(), "sjf", "{text}");
        }
    }
}
