//! What is told of a gate where there is only so much room for it.

use iogate_core::stats::summary::Summary;
// What is not printable would take six bytes each in JSON, too.
use iogate_report::live::printable;

/// Bytes of a name.
const NAME_BYTES_MAX: usize = 100;
/// Bytes of what else is known of a place, where room is short.
const ABOUT_BYTES_MAX: usize = 2000;
const LEFT_OUT: &str = "\u{2026}";

/// A summary as JSON of at most `most` bytes: what is least in it is left out as far as that takes.
pub(crate) fn json(mut summary: Summary, most: usize) -> Vec<u8> {
    let written = |summary: &Summary| serde_json::to_vec(summary).unwrap_or_default();
    let json = written(&summary);
    if json.len() <= most {
        return json;
    }
    let shown: Vec<_> = summary.apps.iter().filter_map(|group| group.id).collect();
    summary.patterns.retain(|pattern| shown.contains(&pattern.app.into()));
    let texts = summary.about.iter_mut().map(|(_, text)| text);
    for text in texts.chain(summary.counters.as_mut().map(|counters| &mut counters.gate)) {
        let whole = printable(text);
        let kept = &whole[..whole.floor_char_boundary(ABOUT_BYTES_MAX)];
        *text = if kept == whole { whole } else { format!("{kept}{LEFT_OUT}") };
    }
    loop {
        let json = written(&summary);
        if json.len() <= most || !summary.halve() {
            return json;
        }
    }
}

/// A name of at most [`NAME_BYTES_MAX`], by its beginning.
pub(crate) fn name(name: &str) -> String {
    let mut name = printable(name);
    name.truncate(name.floor_char_boundary(NAME_BYTES_MAX));
    name
}

/// The same by its end, which says more of a long path than its beginning.
pub(crate) fn end_of_path(path: &str) -> String {
    let path = printable(path);
    if path.len() <= NAME_BYTES_MAX {
        return path;
    }
    let from = path.ceil_char_boundary(path.len() - NAME_BYTES_MAX);
    format!("{LEFT_OUT}{}", &path[from..])
}

#[cfg(test)]
mod tests {
    use iogate_core::auto::pattern::{Access, Pattern};
    use iogate_core::stats::Stats;
    use iogate_core::stats::counters::{App, Counters};
    use iogate_core::stats::summary::{AppNow, Group, NOW_MAX, Numbers};
    use iogate_core::stats::top::{AppCounts, NAMED_MAX};
    use iogate_core::{SchedulerConfig, SchedulerKind};

    use super::*;

    const ROOM: usize = 1 << 16;

    /// As large as a mount's can be, with names that take as much room as any.
    fn full(named: &str) -> Summary {
        let config = SchedulerConfig::new(SchedulerKind::Aioli);
        let mut summary = Summary::new(&Stats::default(), &config, 32, &Numbers, 32);
        let group = |id| Group {
            id,
            name: named.into(),
            requests: u64::MAX >> 8,
            bytes: u64::MAX >> 8,
            dispatches: u64::MAX >> 8,
            waiting_mean_ns: u64::MAX,
            waiting_max_ns: u64::MAX,
            span_ns: u64::MAX,
        };
        let groups: Vec<_> = (1..=32).map(|id| group(Some(id))).chain([group(None)]).collect();
        (summary.apps, summary.files, summary.targets) = (groups.clone(), groups.clone(), groups);
        let now = AppNow { app: 1, name: named.into(), bytes_per_s: u64::MAX, ..AppNow::default() };
        summary.now = vec![now; NOW_MAX];
        let pattern = |app| Pattern {
            app,
            words: "8 clients write 1 MiB pieces at a stride of 64 MiB, 3 ms between them".into(),
            access: Access::Strided(i64::MIN),
            arrivals: u32::MAX,
            reads_percent: 100,
            contiguous_percent: 100,
            bytes: [u64::MAX; 3],
            clients: u32::MAX,
            width_tenths: u32::MAX,
            outstanding_tenths: u32::MAX,
            files: u32::MAX,
            think_ns: Some(u64::MAX),
        };
        summary.patterns = (1..=64).map(pattern).collect();
        let counts = AppCounts { bytes: u64::MAX, ..AppCounts::default() };
        let app = App { app: u32::MAX, name: named.into(), counts };
        let gate = "\u{1}".repeat(4096);
        summary.counters =
            Some(Counters { gate: gate.clone(), apps: vec![app; NAMED_MAX], ..Counters::default() });
        summary.about = vec![("source".into(), gate), ("policy".into(), "x".repeat(100_000))];
        summary
    }

    #[test]
    fn whatever_a_mount_has_seen_its_status_fits() {
        for letter in ["\"", "\n", "a", "\u{e4}", "\u{1f980}"] {
            let named = name(&letter.repeat(4096));
            let json = json(full(&named), ROOM);
            assert!((1..=ROOM).contains(&json.len()), "{letter:?}: {}", json.len());
            let told: Summary = serde_json::from_slice(&json).unwrap();
            assert!(told.apps.len() > 1 && told.apps[0].name == named);
            let all: u64 = told.apps.iter().map(|group| group.requests).sum();
            assert_eq!(all, (u64::MAX >> 8) * 33, "what is left out is told together");
            assert!(told.patterns.iter().all(|pattern| pattern.app <= 32));
        }
    }

    #[test]
    fn what_fits_is_told_in_full() {
        let mut summary = full("a");
        summary.about.clear();
        summary.counters = None;
        let in_full = serde_json::to_vec(&summary).unwrap();
        assert_eq!(json(summary, in_full.len()), in_full);
    }

    #[test]
    fn names_are_cut_between_characters_and_have_no_control_characters() {
        assert_eq!(name("weather"), "weather");
        assert_eq!(name("a\u{7f}\u{1b}[0m\n"), "a\u{fffd}\u{fffd}[0m\u{fffd}");
        assert_eq!(name(&"\u{1f980}".repeat(90)), "\u{1f980}".repeat(25));
        assert_eq!(end_of_path("a/b"), "a/b");
        let long = format!("{}/end", "\u{e4}".repeat(90));
        assert_eq!(end_of_path(&long), format!("\u{2026}{}/end", "\u{e4}".repeat(48)));
    }
}
