//! What `iogate top` draws: gates, the table of applications, more of the selected one. At any size; what does not fit is left out.

use iogate_report::live::{AppRow, GateNow};
use iogate_report::units::{count, counted};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Cell, Clear, Paragraph, Row as TableRow, Sparkline, Table, TableState};

use super::state::{LOOKS, Row, Said, State, bars};

/// Lines of the part about the selected application; it is left out of a window that is lower than this many.
const DETAIL_LINES: u16 = 6;
const DETAIL_FROM: u16 = 18;
/// Lines about gates, at most this part of the window's.
const GATES_PART: u16 = 3;

const HELP: [&str; 12] = [
    "q, Esc, Ctrl-C   leave",
    "s, S             sort by the next column, by the one before",
    "r                the other way round",
    "p, space         pause, and go on",
    "up, down         select an application",
    "?, h             this",
    "",
    "got/entitled     of the device's time, in percent, where a policy is in force",
    "queued           requests that are not dispatched yet",
    "latency          from a request's arrival to its completion, the mean of the last second",
    "last minute      bytes read and written, all rows in one scale",
    "                 (any key goes back)",
];

/// Draws everything.
pub(super) fn draw(state: &State, frame: &mut Frame<'_>) {
    let area = frame.area();
    if area.is_empty() {
        return;
    }
    let gates = gate_lines(state);
    let rows = state.rows();
    let selected = state.selected(&rows);
    let gates_height = (gates.len() as u16).min((area.height / GATES_PART).max(1));
    let detail = selected.filter(|_| area.height >= DETAIL_FROM);
    let [top, above, table, below] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(gates_height),
        Constraint::Min(0),
        Constraint::Length(if detail.is_some() { DETAIL_LINES } else { 0 }),
    ])
    .areas(area);
    frame.render_widget(title(state), top);
    frame.render_widget(Paragraph::new(gates), above);
    draw_table(state, &rows, selected, frame, table);
    if let Some(at) = detail {
        draw_detail(state, &rows[at], frame, below);
    }
    if state.shows_help {
        draw_help(frame, area);
    }
}

fn title(state: &State) -> Line<'static> {
    let way = if state.is_reversed { ", least first" } else { "" };
    let mut spans = vec![
        Span::styled("iogate top", Modifier::BOLD),
        Span::raw(format!("  by {}{way}  ", state.sort.name())),
    ];
    if state.is_paused() {
        spans.push(Span::styled(" paused ", Modifier::REVERSED));
        spans.push(Span::raw("  "));
    }
    spans.push(Span::styled("q leave  s sort  p pause  ? help", Color::DarkGray));
    Line::from(spans)
}

/// What is to be said of each gate: what it gets done, its scheduler, and why that.
fn gate_lines(state: &State) -> Vec<Line<'static>> {
    let places = &state.picture().places;
    let mut lines = Vec::new();
    for place in places {
        match &place.said {
            Said::Nothing => lines.push(Line::from(format!("{}: asked", place.name))),
            Said::Gone(error) => {
                lines.push(Line::styled(error.clone(), Style::new().fg(Color::Red)));
            }
            Said::Now(gates) if gates.is_empty() => {
                lines.push(Line::from(format!("{}: it has no gate", place.name)));
            }
            Said::Now(gates) => {
                for gate in gates {
                    let name = if gates.len() > 1 {
                        format!("{} {}", place.name, gate.gate)
                    } else {
                        place.name.clone()
                    };
                    lines.push(gate_line(&name, gate));
                    let why = gate.why.as_ref().map(|why| format!(", chosen: {why}")).unwrap_or_default();
                    let scheduler = format!("  scheduler: {}{why}", gate.scheduler);
                    let policy = gate.policy.as_ref().map(|policy| format!("  policy: {policy}"));
                    let more = std::iter::once(scheduler).chain(policy);
                    lines.extend(more.map(|text| Line::styled(text, Color::DarkGray)));
                }
            }
        }
    }
    lines
}

fn gate_line(name: &str, gate: &GateNow) -> Line<'static> {
    let [read, written, requests] = gate.total;
    Line::from(vec![
        Span::styled(name.to_owned(), Modifier::BOLD),
        Span::raw(format!(
            "  read {}  written {}  {} requests/s  {} queued  {} of {} in service",
            AppRow::rate(read),
            AppRow::rate(written),
            count(requests),
            count(gate.queued),
            gate.in_service,
            gate.depth,
        )),
    ])
}

fn draw_table(state: &State, rows: &[Row<'_>], selected: Option<usize>, frame: &mut Frame<'_>, area: Rect) {
    let has_shares = rows.iter().any(|row| row.app.class.is_some());
    let has_gates =
        rows.windows(2).any(|two| two[0].gate.gate != two[1].gate.gate || two[0].key.0 != two[1].key.0);
    // Name, read, written, requests, latency and queued, with the spaces between them.
    let mut used = 14 + 11 + 11 + 8 + 9 + 7 + if has_shares { 13 } else { 0 };
    let has_gates = has_gates && area.width >= used + 16;
    used += if has_gates { 15 } else { 0 };
    let spark = usize::from(area.width.saturating_sub(used).min(LOOKS as u16));

    let mut header = vec!["application", "read", "written", "req/s", "latency", "queued"];
    let mut widths = vec![
        Constraint::Fill(1),
        Constraint::Length(10),
        Constraint::Length(10),
        Constraint::Length(7),
        Constraint::Length(8),
        Constraint::Length(6),
    ];
    if has_gates {
        header.insert(0, "gate");
        widths.insert(0, Constraint::Length(14));
    }
    if has_shares {
        header.push("got/entitled");
        widths.push(Constraint::Length(12));
    }
    let left = if has_gates { 2 } else { 1 };
    let has_spark = spark >= 4;
    if has_spark {
        header.push(if spark < 11 { "minute" } else { "last minute" });
        widths.push(Constraint::Length(spark as u16));
    }
    let picture = state.picture();
    let histories: Vec<Vec<u64>> = rows.iter().map(|row| picture.history(&row.key)).collect();
    let most = histories.iter().flatten().copied().max().unwrap_or_default();
    let lines = rows.iter().zip(&histories).map(|(row, history)| {
        let mut cells = vec![row.app.indented()];
        if has_gates {
            cells.insert(0, gate_name(state, row));
        }
        cells.extend([
            AppRow::rate(row.app.read),
            AppRow::rate(row.app.written),
            count(row.app.requests),
            row.app.latency(),
            row.app.waiting(),
        ]);
        if has_shares {
            cells.push(row.app.share());
        }
        let mut cells = aligned(cells, left);
        if has_spark {
            cells.push(Cell::from(Span::styled(bars(history, spark, most), Color::Green)));
        }
        TableRow::new(cells)
    });
    let last = header.len() - usize::from(has_spark);
    let mut head = aligned(header[..last].iter().map(|name| (*name).to_owned()).collect(), left);
    head.extend(header[last..].iter().map(|name| Cell::from(*name)));
    let table = Table::new(lines, widths)
        .header(TableRow::new(head).style(Style::new().add_modifier(Modifier::BOLD | Modifier::UNDERLINED)))
        .row_highlight_style(Modifier::REVERSED);
    frame.render_stateful_widget(table, area, &mut TableState::new().with_selected(selected));
}

/// Cells, the first ones to the left and the others to the right.
fn aligned(cells: Vec<String>, left: usize) -> Vec<Cell<'static>> {
    let cells = cells.into_iter().enumerate();
    let aligned = |(index, text)| {
        let line = Line::from(text);
        Cell::from(if index < left { line } else { line.right_aligned() })
    };
    cells.map(aligned).collect()
}

/// The gate of a row: of a server with several, its own name, else that of the place. Its end says more than its start.
fn gate_name(state: &State, row: &Row<'_>) -> String {
    let place = &state.picture().places[row.key.0];
    let several = matches!(&place.said, Said::Now(gates) if gates.len() > 1);
    let name = if several { format!("{} {}", place.name, row.gate.gate) } else { place.name.clone() };
    let chars = name.chars().count();
    if chars <= 14 { name } else { format!("\u{2026}{}", name.chars().skip(chars - 13).collect::<String>()) }
}

fn draw_detail(state: &State, row: &Row<'_>, frame: &mut Frame<'_>, area: Rect) {
    let history = state.picture().history(&row.key);
    let most = history.iter().copied().max().unwrap_or_default();
    let title = format!(" {}: the last minute, at most {} ", row.app.name, AppRow::rate(most));
    let block = Block::bordered().title(title);
    let [says, picture] =
        Layout::vertical([Constraint::Length(1), Constraint::Min(0)]).areas(block.inner(area));
    frame.render_widget(block, area);
    frame.render_widget(Line::from(entitled(row.app)), says);
    // Each look as wide as it may be.
    let wide = (usize::from(picture.width) / LOOKS).max(1);
    let looks = LOOKS.min(usize::from(picture.width));
    let shown = &history[history.len().saturating_sub(looks)..];
    let empty = std::iter::repeat_n(0, looks - shown.len());
    let data: Vec<u64> =
        empty.chain(shown.iter().copied()).flat_map(|value| std::iter::repeat_n(value, wide)).collect();
    frame.render_widget(Sparkline::default().data(data).max(most.max(1)).style(Color::Green), picture);
}

/// What a policy gives an application, in a line.
fn entitled(app: &AppRow) -> String {
    let Some(class) = &app.class else {
        return "no policy is in force: the scheduler alone decides".into();
    };
    let mut text = format!("weight {}", class.weight);
    if let (Some(got), Some(entitled)) = (class.got_percent, class.entitled_percent) {
        text += &format!(", {got:.0} % of the device's time, entitled to {entitled:.0} %");
    }
    if class.deferred > 0 {
        text += &format!(", {} deferred", counted(class.deferred.into(), "request", "requests"));
    }
    for (what, limit) in [("at least", &class.min), ("at most", &class.max)] {
        text += &limit.as_ref().map(|limit| format!(", {what} {limit}")).unwrap_or_default();
    }
    text
}

fn draw_help(frame: &mut Frame<'_>, area: Rect) {
    let widest = HELP.iter().map(|line| line.chars().count()).max().unwrap_or_default() as u16;
    let (width, height) = ((widest + 4).min(area.width), (HELP.len() as u16 + 2).min(area.height));
    let place = Rect { x: (area.width - width) / 2, y: (area.height - height) / 2, width, height };
    frame.render_widget(Clear, place);
    let lines: Vec<Line<'_>> = HELP.iter().map(|line| Line::from(format!(" {line}"))).collect();
    frame.render_widget(Paragraph::new(lines).block(Block::bordered().title(" Help ")), place);
}

#[cfg(test)]
mod tests {
    use iogate_report::live::ClassNow;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use ratatui::crossterm::event::{KeyCode, KeyModifiers};

    use super::*;

    fn drawn(state: &State, width: u16, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(state, frame)).unwrap();
        terminal.backend().to_string()
    }

    fn gate(name: &str, with_policy: bool) -> GateNow {
        let app = |app: u32, name: &str, read, written| AppRow {
            app,
            name: name.into(),
            read,
            written,
            requests: read / 4096 + 1,
            latency_ns: Some(12_300_000),
            queued: Some(app * 3),
            is_group: false,
            within: None,
            depth: 0,
            class: with_policy.then(|| ClassNow {
                weight: app,
                entitled_percent: Some(25.0),
                got_percent: Some(12.4),
                deferred: 2,
                min: None,
                max: Some("20 MiB/s".into()),
            }),
        };
        GateNow {
            gate: name.into(),
            scheduler: "aioli quantum_base=64KiB".into(),
            queued: 9,
            in_service: 1,
            depth: 16,
            total: [300 << 20, 20 << 20, 82_000],
            apps: vec![app(1, "solver", 300 << 20, 0), app(2, "backup", 0, 20 << 20)],
            ..GateNow::default()
        }
    }

    fn press(state: &mut State, code: char) {
        state.key(ratatui::crossterm::event::KeyEvent::new(KeyCode::Char(code), KeyModifiers::NONE));
    }

    #[test]
    fn a_window_of_usual_size_has_all_of_it() {
        let mut state = State::new(vec!["/mnt/gate".into()]);
        for _ in 0..70 {
            state.told(0, Ok(vec![gate("/mnt/gate", true)]));
        }
        let text = drawn(&state, 80, 24);
        for expected in [
            "iogate top  by bytes",
            "/mnt/gate  read 300 MiB/s  written 20 MiB/s",
            "scheduler: aioli quantum_base=64KiB",
            "application",
            "got/entitled",
            "solver",
            "300 MiB/s",
            "12.3 ms",
            "12/25 %",
            "solver: the last minute, at most 300 MiB/s",
            "weight 1, 12 % of the device's time, entitled to 25 %, 2 requests deferred",
            "\u{2588}\u{2588}\u{2588}\u{2588}",
        ] {
            assert!(text.contains(expected), "{expected} is missing in\n{text}");
        }
        let lines: Vec<&str> = text.lines().collect();
        let at = |name: &str| lines.iter().position(|line| line.contains(name)).unwrap();
        assert!(at("  12.3 ms") == at("solver") && at("backup") == at("solver") + 1, "{text}");
    }

    #[test]
    fn a_group_has_a_row_with_those_in_it_below() {
        let mut state = State::new(vec!["/mnt/gate".into()]);
        let mut of_groups = gate("/mnt/gate", true);
        let user = |app: &AppRow| AppRow { within: Some(9), depth: 1, ..app.clone() };
        let group = AppRow {
            app: 9,
            name: "physics".into(),
            read: 300 << 20,
            is_group: true,
            ..of_groups.apps[0].clone()
        };
        let alone = AppRow { app: 3, name: "alone".into(), read: 310 << 20, ..of_groups.apps[0].clone() };
        of_groups.apps = vec![group, user(&of_groups.apps[0]), user(&of_groups.apps[1]), alone];
        of_groups.total[0] = 630 << 20;
        state.told(0, Ok(vec![of_groups]));
        for width in [80, 200] {
            let text = drawn(&state, width, 24);
            let lines: Vec<&str> = text.lines().map(|line| line.trim_start_matches('"')).collect();
            let at = |name: &str| {
                lines
                    .iter()
                    .position(|line| line.starts_with(name))
                    .unwrap_or_else(|| panic!("no {name} in\n{text}"))
            };
            let head = at("application");
            let rows = ["alone ", "physics ", "  solver ", "  backup "].map(|name| at(name) - head);
            assert_eq!(rows, [1, 2, 3, 4], "{text}");
            assert!(
                lines[at("physics ")].contains("300 MiB/s") && lines[at("physics ")].contains("12/25 %"),
                "{text}"
            );
            // The gate's own line has those, too, that there is no room for.
            assert!(text.contains("read 630 MiB/s  written 20 MiB/s"), "{text}");
        }
    }

    #[test]
    fn several_places_are_told_apart_and_one_that_is_gone_is_said() {
        let names = ["/mnt/a/very/long/path", "io0:7000", "io1:7000"];
        let mut state = State::new(names.map(String::from).into());
        state.told(0, Ok(vec![gate("/mnt/a/very/long/path", false)]));
        state.told(1, Ok(vec![gate("fast", false), gate("slow", false)]));
        let text = drawn(&state, 120, 30);
        for expected in ["\u{2026}ery/long/path", "io0:7000 fast", "io0:7000 slow", "io1:7000: asked"] {
            assert!(text.contains(expected), "{expected} is missing in\n{text}");
        }
        state.told(1, Err("the server at io0:7000 is gone".into()));
        let text = drawn(&state, 120, 30);
        assert!(text.contains("the server at io0:7000 is gone") && !text.contains("io0:7000 fast"), "{text}");
    }

    #[test]
    fn any_size_is_drawn() {
        let mut state = State::new(vec!["a".into(), "b".into(), "c".into()]);
        for help in [false, true] {
            if help {
                press(&mut state, '?');
            }
            for (width, height) in (1..40).flat_map(|n| [(n * 5, n), (n, n * 3), (200, n), (n, 1), (1, n)]) {
                drawn(&state, width, height);
            }
            state.told(0, Ok(vec![gate("a", true)]));
            state.told(1, Ok(vec![gate("x", false), gate("y", true)]));
            state.told(2, Err("c is gone".into()));
        }
    }

    #[test]
    fn a_pause_and_help_are_to_be_seen() {
        let mut state = State::new(vec!["a".into()]);
        press(&mut state, 'p');
        assert!(drawn(&state, 80, 24).contains(" paused "));
        press(&mut state, '?');
        assert!(drawn(&state, 80, 24).contains("got/entitled     of the device's time"));
    }

    #[test]
    fn what_users_are_called_reaches_no_terminal_as_it_is() {
        let mut state = State::new(vec!["a".into()]);
        let mut wide = gate("a", false);
        wide.apps[0].name = "\u{1b}[2Jevil\u{202e}".into();
        wide.apps[1].name = "\u{754c}".repeat(100);
        state.told(0, Ok(vec![wide]));
        let text = drawn(&state, 80, 24);
        assert!(!text.contains('\u{1b}'), "{text:?}");
    }
}
