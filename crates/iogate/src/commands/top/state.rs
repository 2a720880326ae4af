//! What `iogate top` knows and shows, without a terminal or a clock: what places said, the last minute, the order, the selection.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use iogate_report::live::{AppRow, GateNow};
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

/// Looks that are remembered: at one a second, the last minute.
pub(super) const LOOKS: usize = 60;

/// By what rows are sorted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sort {
    Bytes,
    Read,
    Written,
    Requests,
    Latency,
    Queued,
    Share,
    Name,
}

impl Sort {
    const ALL: [Sort; 8] = [
        Sort::Bytes,
        Sort::Read,
        Sort::Written,
        Sort::Requests,
        Sort::Latency,
        Sort::Queued,
        Sort::Share,
        Sort::Name,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Sort::Bytes => "bytes",
            Sort::Read => "read",
            Sort::Written => "written",
            Sort::Requests => "requests",
            Sort::Latency => "latency",
            Sort::Queued => "queued",
            Sort::Share => "share",
            Sort::Name => "name",
        }
    }

    fn moved(self, by: usize) -> Sort {
        let at = Sort::ALL.iter().position(|sort| *sort == self).unwrap_or_default();
        Sort::ALL[(at + by) % Sort::ALL.len()]
    }

    /// The order of two: most first, but names from the first letter on.
    fn order(self, one: &AppRow, other: &AppRow) -> Ordering {
        let most = |of: fn(&AppRow) -> u64| of(other).cmp(&of(one));
        let got = |row: &AppRow| row.class.as_ref().and_then(|class| class.got_percent).unwrap_or(-1.0);
        match self {
            Sort::Bytes => most(AppRow::bytes),
            Sort::Read => most(|row| row.read),
            Sort::Written => most(|row| row.written),
            Sort::Requests => most(|row| row.requests),
            Sort::Latency => most(|row| row.latency_ns.unwrap_or_default()),
            Sort::Queued => most(|row| row.queued.unwrap_or_default().into()),
            Sort::Share => got(other).total_cmp(&got(one)),
            Sort::Name => one.name.cmp(&other.name),
        }
    }
}

/// What a place said last.
#[derive(Clone, Debug)]
pub(super) enum Said {
    /// It was asked, and has not answered yet.
    Nothing,
    Now(Vec<GateNow>),
    /// It does not answer any more: why.
    Gone(String),
}

#[derive(Clone, Debug)]
pub(super) struct Place {
    /// As it was given.
    pub(super) name: String,
    pub(super) said: Said,
}

/// Which application: the place, the gate, its number there; or which group, whose number may be that of one of those in it.
pub(super) type Key = (usize, String, u32, bool);

/// What is to be seen at one time.
#[derive(Clone, Debug)]
pub(super) struct Picture {
    pub(super) places: Vec<Place>,
    /// Bytes a second at the last looks, the latest last.
    history: BTreeMap<Key, VecDeque<u64>>,
}

/// An application in the table, or a group.
pub(super) struct Row<'a> {
    pub(super) key: Key,
    pub(super) gate: &'a GateNow,
    pub(super) app: &'a AppRow,
}

/// Whether to go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flow {
    GoesOn,
    Ends,
}

#[derive(Debug)]
pub(super) struct State {
    picture: Picture,
    /// What is shown instead while it is paused.
    frozen: Option<Box<Picture>>,
    pub(super) sort: Sort,
    pub(super) is_reversed: bool,
    pub(super) shows_help: bool,
    selected: Option<Key>,
}

impl State {
    /// Nobody has said anything yet.
    pub(super) fn new(places: Vec<String>) -> State {
        let places = places.into_iter().map(|name| Place { name, said: Said::Nothing }).collect();
        State {
            picture: Picture { places, history: BTreeMap::new() },
            frozen: None,
            sort: Sort::Bytes,
            is_reversed: false,
            shows_help: false,
            selected: None,
        }
    }

    /// What a place says; an error is that it does not answer.
    pub(super) fn told(&mut self, place: usize, said: Result<Vec<GateNow>, String>) {
        let Some(found) = self.picture.places.get_mut(place) else { return };
        let was_there = matches!(found.said, Said::Now(_));
        found.said = match (said, &found.said) {
            (Ok(gates), _) => Said::Now(gates),
            // It is said once what became of it; what asking it again meets says less.
            (Err(_), Said::Gone(error)) => Said::Gone(error.clone()),
            (Err(error), _) if was_there => Said::Gone(format!("{} is gone: {error}", found.name)),
            (Err(error), _) => Said::Gone(error),
        };
        self.picture.remember(place);
    }

    /// Why there is nothing left to be seen, if all places are gone.
    pub(super) fn end(&self) -> Option<String> {
        let mut errors = Vec::new();
        for place in &self.picture.places {
            match &place.said {
                Said::Gone(error) => errors.push(error.clone()),
                _ => return None,
            }
        }
        Some(errors.join("; "))
    }

    pub(super) fn is_paused(&self) -> bool {
        self.frozen.is_some()
    }

    /// What is to be shown.
    pub(super) fn picture(&self) -> &Picture {
        self.frozen.as_deref().unwrap_or(&self.picture)
    }

    /// The rows in their order, each group with those in it below it.
    pub(super) fn rows(&self) -> Vec<Row<'_>> {
        let mut rows = self.picture().rows();
        rows.sort_by(|one, other| {
            let order = self.sort.order(one.app, other.app);
            let order = if self.is_reversed { order.reverse() } else { order };
            order.then_with(|| one.key.cmp(&other.key))
        });
        below_their_groups(rows)
    }

    /// Which of the rows is selected: the first one, if it was not said or is gone.
    pub(super) fn selected(&self, rows: &[Row<'_>]) -> Option<usize> {
        let found = rows.iter().position(|row| Some(&row.key) == self.selected.as_ref());
        found.or((!rows.is_empty()).then_some(0))
    }

    pub(super) fn key(&mut self, key: KeyEvent) -> Flow {
        if key.kind == KeyEventKind::Release {
            return Flow::GoesOn;
        }
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Char('c' | 'd') if control => return Flow::Ends,
            KeyCode::Char('q') => return Flow::Ends,
            KeyCode::Esc if !self.shows_help => return Flow::Ends,
            // Any other key takes the help away.
            _ if self.shows_help => self.shows_help = false,
            KeyCode::Char('?' | 'h') | KeyCode::F(1) => self.shows_help = true,
            KeyCode::Char('p' | ' ') => {
                self.frozen = match self.frozen {
                    Some(_) => None,
                    None => Some(Box::new(self.picture.clone())),
                };
            }
            KeyCode::Char('s') | KeyCode::Right | KeyCode::Char('>') => self.sort = self.sort.moved(1),
            KeyCode::Char('S') | KeyCode::Left | KeyCode::Char('<') => {
                self.sort = self.sort.moved(Sort::ALL.len() - 1);
            }
            KeyCode::Char('r') => self.is_reversed = !self.is_reversed,
            KeyCode::Down | KeyCode::Char('j') => self.select(1),
            KeyCode::Up | KeyCode::Char('k') => self.select(-1),
            KeyCode::PageDown => self.select(10),
            KeyCode::PageUp => self.select(-10),
            KeyCode::Home => self.select(isize::MIN),
            KeyCode::End => self.select(isize::MAX),
            _ => {}
        }
        Flow::GoesOn
    }

    fn select(&mut self, by: isize) {
        let rows = self.rows();
        let Some(at) = self.selected(&rows) else { return };
        let to = at.saturating_add_signed(by).min(rows.len() - 1);
        self.selected = Some(rows[to].key.clone());
    }
}

impl Picture {
    fn rows(&self) -> Vec<Row<'_>> {
        let mut rows = Vec::new();
        for (index, place) in self.places.iter().enumerate() {
            let Said::Now(gates) = &place.said else { continue };
            for gate in gates {
                rows.extend(gate.apps.iter().map(|app| Row {
                    key: (index, gate.gate.clone(), app.app, app.is_group),
                    gate,
                    app,
                }));
            }
        }
        rows
    }

    /// Bytes a second of an application at the last looks, the latest last.
    pub(super) fn history(&self, key: &Key) -> Vec<u64> {
        self.history.get(key).map(|looks| looks.iter().copied().collect()).unwrap_or_default()
    }

    /// Notes what the applications of a place get, also that they get nothing.
    fn remember(&mut self, place: usize) {
        let first = |place| (place, String::new(), 0, false);
        let now: BTreeMap<Key, u64> = (self.rows().into_iter())
            .filter(|row| row.key.0 == place)
            .map(|row| (row.key, row.app.bytes()))
            .collect();
        for (key, looks) in self.history.range_mut(first(place)..first(place + 1)) {
            looks.push_back(now.get(key).copied().unwrap_or_default());
            if looks.len() > LOOKS {
                looks.pop_front();
            }
        }
        self.history.retain(|key, looks| now.contains_key(key) || looks.iter().any(|bytes| *bytes > 0));
        for (key, bytes) in now {
            self.history.entry(key).or_insert_with(|| [bytes].into());
        }
    }
}

/// Each row with what is in it below it, in the order that they have.
fn below_their_groups(rows: Vec<Row<'_>>) -> Vec<Row<'_>> {
    let groups: BTreeSet<Key> =
        rows.iter().filter(|row| row.app.is_group).map(|row| row.key.clone()).collect();
    let mut within: BTreeMap<Option<Key>, Vec<Row<'_>>> = BTreeMap::new();
    for row in rows.into_iter().rev() {
        let group = row.app.within.map(|group| (row.key.0, row.key.1.clone(), group, true));
        within.entry(group.filter(|group| groups.contains(group))).or_default().push(row);
    }
    let mut next = within.remove(&None).unwrap_or_default();
    let mut sorted = Vec::new();
    while let Some(row) = next.pop() {
        next.extend(within.remove(&Some(row.key.clone())).unwrap_or_default());
        sorted.push(row);
    }
    sorted
}

/// Values as a line of bars, at most so many, the latest last; the largest possible value fills a bar.
pub(super) fn bars(values: &[u64], width: usize, most: u64) -> String {
    const BARS: [char; 8] =
        ['\u{2581}', '\u{2582}', '\u{2583}', '\u{2584}', '\u{2585}', '\u{2586}', '\u{2587}', '\u{2588}'];
    let shown = &values[values.len().saturating_sub(width)..];
    let bar = |value: u64| match value {
        0 => ' ',
        value => BARS[(u128::from(value.min(most)) * 8 / u128::from(most.max(1))).clamp(1, 8) as usize - 1],
    };
    let empty = width - shown.len();
    std::iter::repeat_n(' ', empty).chain(shown.iter().map(|value| bar(*value))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gate(name: &str, apps: &[(u32, &str, u64, u64)]) -> GateNow {
        let row = |&(app, name, read, written): &(u32, &str, u64, u64)| AppRow {
            app,
            name: name.into(),
            read,
            written,
            ..AppRow::default()
        };
        GateNow { gate: name.into(), apps: apps.iter().map(row).collect(), ..GateNow::default() }
    }

    fn press(state: &mut State, code: KeyCode) -> Flow {
        state.key(KeyEvent::new(code, KeyModifiers::NONE))
    }

    fn names(state: &State) -> Vec<&str> {
        state.rows().iter().map(|row| row.app.name.as_str()).collect()
    }

    #[test]
    fn rows_come_in_the_order_that_is_asked_for() {
        let mut state = State::new(vec!["here".into(), "there".into()]);
        assert!(state.rows().is_empty() && state.selected(&[]).is_none());
        state.told(0, Ok(vec![gate("here", &[(1, "b", 10, 0), (2, "a", 0, 30)])]));
        state.told(1, Ok(vec![gate("x", &[(1, "c", 20, 0)]), gate("y", &[(1, "d", 20, 0)])]));
        assert_eq!(names(&state), ["a", "c", "d", "b"]);
        press(&mut state, KeyCode::Char('s'));
        assert_eq!(state.sort, Sort::Read);
        assert_eq!(names(&state), ["c", "d", "b", "a"]);
        press(&mut state, KeyCode::Char('r'));
        assert_eq!(names(&state), ["a", "b", "c", "d"], "equal ones keep their order");
        press(&mut state, KeyCode::Left);
        press(&mut state, KeyCode::Left);
        assert_eq!(state.sort, Sort::Name);
        assert_eq!(names(&state), ["d", "c", "b", "a"]);
    }

    #[test]
    fn those_in_a_group_stay_below_it_in_any_order() {
        let mut state = State::new(vec!["here".into(), "there".into()]);
        let mut here =
            gate("here", &[(9, "staff", 35, 0), (1, "a", 5, 0), (9, "others", 30, 0), (2, "b", 40, 0)]);
        here.apps[0].is_group = true;
        here.apps[1].within = Some(9);
        here.apps[2].within = Some(9);
        state.told(0, Ok(vec![here]));
        // A group of the same number elsewhere is another one.
        let mut there = gate("there", &[(1, "c", 38, 0)]);
        there.apps[0].within = Some(9);
        state.told(1, Ok(vec![there]));
        assert_eq!(names(&state), ["b", "c", "staff", "others", "a"]);
        press(&mut state, KeyCode::Char('r'));
        assert_eq!(names(&state), ["staff", "a", "others", "c", "b"]);
        press(&mut state, KeyCode::Down);
        press(&mut state, KeyCode::Down);
        assert_eq!(
            state.selected(&state.rows()),
            Some(2),
            "it is another row than its group, of the same number"
        );
        assert_eq!(state.picture().history(&(0, "here".into(), 9, true)), [35]);
        assert_eq!(state.picture().history(&(0, "here".into(), 9, false)), [30]);
    }

    #[test]
    fn what_is_selected_stays_so_in_another_order() {
        let mut state = State::new(vec!["here".into()]);
        state.told(0, Ok(vec![gate("here", &[(1, "a", 30, 0), (2, "b", 20, 0), (3, "c", 10, 0)])]));
        let at = |state: &State| state.selected(&state.rows());
        assert_eq!(at(&state), Some(0));
        press(&mut state, KeyCode::Down);
        state.told(0, Ok(vec![gate("here", &[(1, "a", 30, 0), (2, "b", 90, 0), (3, "c", 10, 0)])]));
        assert_eq!((at(&state), names(&state)[0]), (Some(0), "b"));
        press(&mut state, KeyCode::End);
        assert_eq!(at(&state), Some(2));
        press(&mut state, KeyCode::PageDown);
        assert_eq!(at(&state), Some(2));
        press(&mut state, KeyCode::PageUp);
        assert_eq!(at(&state), Some(0));
        press(&mut state, KeyCode::End);
        state.told(0, Ok(vec![gate("here", &[(1, "a", 30, 0)])]));
        assert_eq!(at(&state), Some(0), "it is gone");
    }

    #[test]
    fn a_pause_shows_what_was_and_forgets_nothing() {
        let mut state = State::new(vec!["here".into()]);
        state.told(0, Ok(vec![gate("here", &[(1, "a", 1, 0)])]));
        press(&mut state, KeyCode::Char('p'));
        state.told(0, Ok(vec![gate("here", &[(1, "a", 2, 0)])]));
        let key = (0, "here".to_owned(), 1, false);
        assert_eq!((state.rows()[0].app.read, state.picture().history(&key)), (1, vec![1]));
        press(&mut state, KeyCode::Char(' '));
        assert_eq!((state.rows()[0].app.read, state.picture().history(&key)), (2, vec![1, 2]));
    }

    #[test]
    fn the_last_minute_is_remembered_and_no_more() {
        let mut state = State::new(vec!["here".into(), "there".into()]);
        let both = [(1, "a", 7, 0), (2, "b", 3, 1)];
        state.told(0, Ok(vec![gate("here", &both)]));
        for _ in 1..LOOKS {
            state.told(0, Ok(vec![gate("here", &both[..1])]));
            state.told(1, Ok(vec![gate("here", &both[..1])]));
        }
        let of = |state: &State, app| state.picture().history(&(0, "here".into(), app, false));
        assert_eq!(of(&state, 1), [7; LOOKS]);
        assert_eq!((of(&state, 2)[0], of(&state, 2).len()), (4, LOOKS));
        state.told(0, Ok(vec![gate("here", &both[..1])]));
        assert_eq!((of(&state, 1).len(), of(&state, 2).len()), (LOOKS, 0), "who did nothing is forgotten");
    }

    #[test]
    fn it_ends_with_the_last_place_or_when_asked() {
        let mut state = State::new(vec!["here".into(), "there".into()]);
        state.told(0, Err("here is gone".into()));
        assert_eq!(state.end(), None);
        state.told(1, Ok(Vec::new()));
        state.told(1, Err("no answer".into()));
        state.told(1, Err("no mount".into()));
        assert_eq!(state.end().as_deref(), Some("here is gone; there is gone: no answer"));
        state.told(0, Ok(Vec::new()));
        assert_eq!(state.end(), None, "it is back");
        assert_eq!(press(&mut state, KeyCode::Char('?')), Flow::GoesOn);
        assert_eq!(press(&mut state, KeyCode::Esc), Flow::GoesOn, "it only takes the help away");
        assert_eq!(press(&mut state, KeyCode::Esc), Flow::Ends);
        assert_eq!(press(&mut state, KeyCode::Char('q')), Flow::Ends);
        let control_c = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        assert_eq!(state.key(control_c), Flow::Ends);
    }

    #[test]
    fn bars_are_of_the_largest_value() {
        assert_eq!(bars(&[], 3, 0), "   ");
        assert_eq!(bars(&[0, 1, 40, 80, 90], 4, 80), "\u{2581}\u{2584}\u{2588}\u{2588}");
        assert_eq!(bars(&[u64::MAX], 2, u64::MAX), " \u{2588}");
        assert_eq!(bars(&[5], 0, 5), "");
    }
}
