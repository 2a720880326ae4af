//! `iogate top`: what applications get now, at mounts and servers, in a terminal. This asks them, reads keys and draws; what is shown is
//! decided in `state` and `draw`.

mod draw;
mod state;

use std::io::{self, IsTerminal};
use std::path::Path;
use std::sync::mpsc::{self, Sender};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use iogate_report::live::{self, GateNow};
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event};
use serde_json::json;

use crate::cli::TopArgs;
use crate::commands::asker::{Asker, Place};
use crate::commands::signals;
use crate::failure::Failure;
use crate::output::print;

use state::{Flow, State};

/// What happens.
enum Input {
    /// A place has answered, or does not.
    Told(usize, Result<Vec<GateNow>, String>),
    /// A key, or another size of the window.
    Terminal(Event),
    /// The terminal cannot be read any more.
    Lost(io::Error),
    /// A signal asks for the end.
    Ends,
    /// A thread has panicked, and has said so.
    Broken,
}

pub(crate) fn run(args: &TopArgs) -> Result<(), Failure> {
    let pause = Duration::try_from_secs_f64(args.interval)
        .ok()
        .filter(|pause| *pause >= Duration::from_millis(100))
        .ok_or_else(|| {
            Failure::usage(anyhow!("--interval {}: expected at least 0.1 seconds", args.interval))
        })?;
    let askers = args.places.iter().map(|place| Ok((name_of(place), Asker::new(Place::of(place)?, None)?)));
    let askers = askers.collect::<Result<Vec<_>, Failure>>()?;
    if args.once {
        return once(askers, args.json);
    }
    if !io::stdout().is_terminal() || !io::stdin().is_terminal() {
        let error = anyhow!("expected a terminal for input and output");
        return Err(Failure::usage(error).hint("`iogate top --once` prints one table"));
    }
    // Before the terminal is changed, so that no signal leaves it so.
    let mut signals = signals::of_the_end()?;
    let mut state = State::new(askers.iter().map(|(name, _)| live::printable(name)).collect());
    let (tell, told) = mpsc::channel();
    for (index, (_, asker)) in askers.into_iter().enumerate() {
        spawn("iogate-asks", &tell, move |tell| ask_again(index, asker, pause, tell))?;
    }
    spawn("iogate-signals", &tell, move |tell| {
        signals.forever().next();
        let _ = tell.send(Input::Ends);
    })?;
    let mut screen = Screen(ratatui::try_init().context("the terminal cannot be used")?);
    spawn("iogate-keys", &tell, read_keys)?;
    loop {
        let drawn = screen.0.draw(|frame| draw::draw(&state, frame));
        drawn.context("the terminal cannot be written")?;
        // All that has come meanwhile is one picture.
        let first = told.recv().context("nobody tells anything any more")?;
        for input in std::iter::once(first).chain(told.try_iter()) {
            match input {
                Input::Told(place, said) => state.told(place, said),
                Input::Terminal(Event::Key(key)) => {
                    if state.key(key) == Flow::Ends {
                        return Ok(());
                    }
                }
                // Another size is drawn as all else is.
                Input::Terminal(_) => {}
                Input::Ends => return Ok(()),
                Input::Broken => return Err(Failure::failed(anyhow!("a thread of this program has failed"))),
                Input::Lost(error) => {
                    return Err(anyhow!(error).context("the terminal cannot be read").into());
                }
            }
        }
        if let Some(error) = state.end() {
            return Err(Failure::failed(anyhow!(error)));
        }
    }
}

/// One table, or JSON, without a terminal. Who does not answer has a place in it, too, unless nobody does.
fn once(askers: Vec<(String, Asker)>, json: bool) -> Result<(), Failure> {
    let (mut places, mut failures) = (Vec::new(), None::<Failure>);
    for (name, mut asker) in askers {
        let said = asker.exposed().map(|exposed| live::gates(&exposed)).map_err(|failure| {
            let said = failure.in_full();
            failures = Some(match failures.take() {
                Some(before) => before.and(failure),
                None => failure,
            });
            said
        });
        places.push((name, said));
    }
    if places.iter().any(|(_, said)| said.is_ok()) {
        print(&if json { as_json(&places) } else { as_table(&places) })?;
    }
    failures.map_or(Ok(()), Err)
}

/// Places, with what each has said, or why it has not.
type Places = [(String, Result<Vec<GateNow>, String>)];

fn as_table(places: &Places) -> String {
    let (mut found, mut gone) = (Vec::new(), Vec::new());
    for (name, said) in places {
        match said {
            Ok(gates) => found.extend(gates.iter().map(|gate| {
                let name = if gates.len() > 1 { format!("{name} {}", gate.gate) } else { name.clone() };
                (live::printable(&name), gate)
            })),
            Err(_) => gone.push(live::printable(name)),
        }
    }
    let found = found.iter().map(|(name, gate)| (name.as_str(), *gate));
    live::table(found, gone.iter().map(String::as_str)).to_string()
}

fn as_json(places: &Places) -> String {
    let places = places.iter().map(|(name, said)| match said {
        Ok(gates) => json!({ "place": name, "gates": gates }),
        Err(error) => json!({ "place": name, "error": error }),
    });
    format!("{}\n", places.collect::<serde_json::Value>())
}

fn name_of(place: &Path) -> String {
    place.display().to_string()
}

/// The terminal, which is as it was when this is dropped; a panic restores it, too.
struct Screen(DefaultTerminal);

impl Drop for Screen {
    fn drop(&mut self) {
        // A terminal that has gone needs nothing.
        let _ = ratatui::try_restore();
    }
}

/// Says that its thread has panicked: what it said is on the screen then, and there is no use in going on.
struct Watch(Sender<Input>);

impl Drop for Watch {
    fn drop(&mut self) {
        if thread::panicking() {
            let _ = self.0.send(Input::Broken);
        }
    }
}

fn spawn(
    name: &str,
    tell: &Sender<Input>,
    run: impl FnOnce(&Sender<Input>) + Send + 'static,
) -> anyhow::Result<()> {
    let tell = Watch(tell.clone());
    let spawned = thread::Builder::new().name(name.into()).spawn(move || run(&tell.0));
    spawned.map(drop).context("a thread cannot be started")
}

/// Asks a place again and again, until nobody listens.
fn ask_again(index: usize, mut asker: Asker, pause: Duration, tell: &Sender<Input>) {
    loop {
        let began = Instant::now();
        let said = asker.exposed().map(|exposed| live::gates(&exposed)).map_err(|failure| failure.in_full());
        if tell.send(Input::Told(index, said)).is_err() {
            return;
        }
        thread::sleep(pause.saturating_sub(began.elapsed()));
    }
}

fn read_keys(tell: &Sender<Input>) {
    loop {
        let input = event::read().map_or_else(Input::Lost, Input::Terminal);
        let ends = matches!(input, Input::Lost(_));
        if tell.send(input).is_err() || ends {
            return;
        }
    }
}
