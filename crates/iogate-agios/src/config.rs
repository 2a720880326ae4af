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

fn invalid(text: String) -> Failed {
    Failed::new(libc::EINVAL, text)
}

/// The settings of a file, name and value.
fn pairs(text: &str) -> Vec<(&str, &str)> {
    let mut tokens = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let length = if rest.starts_with('#') || rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            rest.find("*/").map_or(rest.len(), |at| at + 2)
        } else if first == '"' {
            let length = rest[1..].find('"').map_or(rest.len(), |at| at + 2);
            tokens.push(&rest[..length]);
            length
        } else if first.is_alphanumeric() || "_-+.*".contains(first) {
            let ends = |char: char| !(char.is_alphanumeric() || "_-+.*".contains(char));
            let length = rest.find(ends).unwrap_or(rest.len());
            tokens.push(&rest[..length]);
            length
        } else {
            if first == '=' || first == ':' {
                tokens.push(&rest[..1]);
            }
            first.len_utf8()
        };
        rest = &rest[length..];
    }
    let triples = tokens.windows(3).filter(|triple| matches!(triple[1], "=" | ":"));
    triples.map(|triple| (triple[0], triple[2].trim_matches('"'))).collect()
}

/// The scheduler that a file's text asks for.
///
/// # Errors
/// If the algorithm is unknown or dynamic, or a value is out of range.
pub(crate) fn scheduler(text: &str) -> Result<SchedulerConfig, Failed> {
    let pairs = pairs(text);
    let value = |name: &str| pairs.iter().rev().find(|(key, _)| *key == name).map(|(_, value)| *value);
    if value("trace").is_some_and(|trace| trace.eq_ignore_ascii_case("true")) {
        return Err(invalid("trace = true: no traces are written here; expected false".into()));
    }
    let wanted = value("default_algorithm").unwrap_or(ALGORITHM);
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
        let number: u64 = (text.trim_end_matches('L').parse())
            .map_err(|_| invalid(format!("{theirs} = '{text}': expected a number")))?;
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
        assert!(said("default_algorithm = \"").contains("default_algorithm = ''"));
        for text in ["=", "\"", "/*", "a = ", "= =", "\u{e9} = 1", "#"] {
            assert_eq!(scheduler(text).unwrap().to_string(), "sjf", "{text}");
        }
    }
}
