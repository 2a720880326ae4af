//! What is remembered over kills and media that fail, against what a naive observer of the requests knows.

mod names;

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec;

use proptest::prelude::*;

use super::super::{HEADER_BYTES, Log, NOTE_BYTES, Outcome};
use super::*;
use crate::medium::Medium;

const BOOT: [u8; 16] = [1; 16];

/// What goes wrong with a write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Fault {
    /// So much of a thousandth is written, and then it fails.
    torn: Option<u64>,
    /// It cannot be cut off again.
    stays: bool,
}

/// A file that fails when it is told to.
#[derive(Debug, Default)]
struct Paper {
    bytes: Option<Vec<u8>>,
    fault: Fault,
    cannot_replace: bool,
}

impl Medium for Paper {
    type Error = String;

    fn boot(&self) -> &str {
        ""
    }

    fn read(&mut self, _: &str) -> Result<Option<Vec<u8>>, String> {
        Ok(self.bytes.clone())
    }

    fn replace(&mut self, _: &str, bytes: &[u8]) -> Result<Result<(), String>, String> {
        if self.cannot_replace {
            return Err("no space left on device".into());
        }
        self.bytes = Some(bytes.into());
        Ok(Ok(()))
    }

    fn append(&mut self, _: &str, at: u64, bytes: &[u8]) -> Result<(), String> {
        let file = self.bytes.as_mut().ok_or("it is not there")?;
        assert!(file.len() as u64 >= at, "a gap");
        let count =
            self.fault.torn.map_or(bytes.len() as u64, |part| bytes.len() as u64 * part / 1000) as usize;
        let end = at as usize + count;
        // As a file: what was behind it stays.
        file.resize(file.len().max(end), 0);
        file[at as usize..end].copy_from_slice(&bytes[..count]);
        if self.fault.torn.is_some() { Err("no space left on device".into()) } else { Ok(()) }
    }

    fn cut(&mut self, _: &str, bytes: u64) -> Result<(), String> {
        if self.fault.stays {
            return Err("input or output failed".into());
        }
        self.bytes.as_mut().ok_or("it is not there")?.truncate(bytes as usize);
        Ok(())
    }
}

fn key(number: u64) -> Key {
    Key { uid: 1, client: [2; 16], number, step: 0 }
}

fn to_note(number: u64, state: State, bytes: &[u8]) -> ToNote {
    ToNote { key: key(number), below: 1, state, bytes: bytes.to_vec() }
}

/// A process: what it remembers, and its log.
struct Process {
    once: Once<u64>,
    log: Log<Paper>,
}

impl Process {
    fn start(paper: Paper) -> Process {
        Process::start_at(paper, 100)
    }

    fn start_at(paper: Paper, now: u64) -> Process {
        let mut once = Once::new(Limits::default());
        let log = Log::open(paper, BOOT, [7; 16], |note| once.restore(note)).expect("it can be read");
        once.restored(now);
        Process { once, log }
    }

    /// Writes what has come.
    fn write(&mut self, begins_anew: bool) -> bool {
        let writing = self.once.begin_writing(begins_anew, 100);
        let result = self.log.write(&writing.notes, writing.all.as_deref());
        self.once.written(result.as_ref().map_or(Err(28), |()| Ok(())));
        result.is_ok()
    }

    /// Notes, writes, and says what came of it.
    fn note(&mut self, note: ToNote) -> Result<(), i32> {
        let batch = self.once.note(&[note], 100);
        assert_eq!(self.once.settled(batch), None);
        self.write(false);
        self.once.settled(batch).expect("it was written")
    }

    fn restart(self) -> Process {
        Process::start(Paper { fault: Fault::default(), ..self.log.into_medium() })
    }
}

#[test]
fn notes_count_once_they_are_written_and_those_of_a_batch_together() {
    let mut process = Process::start(Paper::default());
    let first = process.once.note(&[to_note(1, State::Intent, b"a")], 100);
    let writing = process.once.begin_writing(false, 100);
    let (second, third) = (
        process.once.note(&[to_note(2, State::Intent, b"b")], 100),
        process.once.note(&[to_note(3, State::Intent, b"c"), to_note(4, State::Intent, b"d")], 100),
    );
    assert_eq!(second, third, "they wait together");
    assert_eq!(process.once.settled(first), None);
    process.log.write(&writing.notes, None).unwrap();
    process.once.written(Ok(()));
    assert_eq!([first, second].map(|batch| process.once.settled(batch)), [Some(Ok(())), None]);
    process.log.medium_mut().fault.torn = Some(900);
    assert!(!process.write(false));
    assert_eq!(
        [second, third, second].map(|batch| process.once.settled(batch)),
        [
            Some(Err(28)),
            Some(Err(28)),
            // Both have heard of it: nothing is kept of it.
            Some(Ok(())),
        ]
    );
    assert_eq!(process.once.begin(key(1), &[]), Begun::Unknown, "its intent is in the log");
    assert_eq!(
        process.once.begin(key(2), &[]),
        Begun::New,
        "it must not be done, and may be asked for again"
    );
    let mut next = process.restart();
    assert_eq!(next.once.unsettled().collect::<Vec<_>>(), [(key(1), &b"a"[..])]);
    assert_eq!(next.once.begin(key(4), &[]), Begun::New);
}

#[test]
fn an_outcome_is_known_although_the_log_does_not_take_it() {
    let mut process = Process::start(Paper::default());
    assert_eq!(process.once.begin(key(1), &[]), Begun::New);
    process.note(to_note(1, State::Intent, b"before")).unwrap();
    process.log.medium_mut().fault.torn = Some(0);
    process.note(to_note(1, State::Outcome, b"so")).unwrap_err();
    assert!(process.once.end(&key(1)).is_empty());
    assert_eq!(process.once.begin(key(1), &[]), Begun::Known(b"so"));
    assert_eq!(process.restart().once.begin(key(1), &[]), Begun::Unknown, "until somebody has looked");
}

#[test]
fn who_asks_for_what_runs_goes_on_when_it_is_done() {
    let mut process = Process::start(Paper::default());
    assert_eq!(process.once.begin(key(1), &[]), Begun::New);
    assert_eq!(process.once.begin(key(1), &[]), Begun::Running);
    assert_eq!([7, 8].map(|then| process.once.wait(&key(1), &[], then)), [None, None]);
    assert_eq!(process.once.end(&key(1)), [7, 8]);
    assert_eq!(process.once.wait(&key(1), &[], 9), Some(9), "it is done");
    assert!(process.once.end(&key(1)).is_empty());
}

#[test]
fn a_value_that_cannot_be_noted_leaves_the_one_before() {
    let mut process = Process::start(Paper::default());
    process.note(to_note(1, State::Value, b"first")).unwrap();
    // Two in a batch that fails, and one behind them in a batch that fails too.
    let failing = process.once.note(&[to_note(1, State::Value, b"b"), to_note(1, State::Value, b"c")], 100);
    let writing = process.once.begin_writing(false, 100);
    let behind = process.once.note(&[to_note(1, State::Value, b"d")], 100);
    process.log.medium_mut().fault.torn = Some(500);
    process.log.write(&writing.notes, None).unwrap_err();
    process.once.written(Err(28));
    assert_eq!(process.once.settled(failing), Some(Err(28)));
    assert_eq!(process.once.begin(key(1), &[]), Begun::Known(b"d"), "which is still to be written");
    assert!(!process.write(false));
    assert_eq!(process.once.settled(behind), Some(Err(28)));
    assert_eq!(process.once.begin(key(1), &[]), Begun::Known(b"first"));
    assert_eq!(process.restart().once.begin(key(1), &[]), Begun::Known(b"first"), "as the log has it");
}

#[test]
fn what_did_not_fit_is_never_found_behind_what_comes_later() {
    let mut process = Process::start(Paper::default());
    process.log.medium_mut().fault = Fault { torn: Some(1000), stays: true };
    process.note(to_note(1, State::Intent, &[1; 10])).unwrap_err();
    process.log.medium_mut().fault = Fault { torn: None, stays: true };
    process.note(to_note(2, State::Intent, b"")).unwrap_err();
    process.log.medium_mut().fault = Fault::default();
    process.note(to_note(2, State::Intent, b"")).unwrap();
    assert_eq!(process.log.bytes(), (HEADER_BYTES + NOTE_BYTES) as u64);
    let mut next = process.restart();
    assert_eq!((next.once.table().len(), next.once.begin(key(1), &[])), (1, Begun::New));
}

#[test]
fn a_log_begins_anew_with_what_is_remembered_or_grows_on() {
    let mut process = Process::start(Paper::default());
    let value = vec![5; 60_000];
    for _ in 0..80 {
        process.note(to_note(1, State::Value, &value)).unwrap();
    }
    assert!(process.log.bytes() > 4 << 20);
    assert!(process.log.is_worth_shrinking(process.once.table().log_bytes()));
    process.log.medium_mut().cannot_replace = true;
    let batch = process.once.note(&[to_note(2, State::Value, b"too")], 100);
    assert!(process.write(true), "it has grown on");
    assert_eq!((process.once.settled(batch), process.log.notices().len()), (Some(Ok(())), 1));
    assert!(!process.log.is_worth_shrinking(process.once.table().log_bytes()), "not tried again at once");
    process.log.medium_mut().cannot_replace = false;
    process.once.note(&[to_note(3, State::Value, b"and")], 100);
    assert!(process.write(true));
    assert!(process.log.bytes() < 70_000);
    let number = process.log.number();
    let mut next = process.restart();
    assert_eq!((next.log.number(), next.once.table().len()), (number, 3));
    assert_eq!(next.once.begin(key(3), &[]), Begun::Known(b"and"));
}

#[test]
fn a_log_of_another_boot_or_of_nobody_begins_anew() {
    let mut process = Process::start(Paper::default());
    process.note(to_note(1, State::Value, b"value")).unwrap();
    let number = process.log.number();
    let paper = process.log.into_medium();
    let log = Log::open(paper, [9; 16], [8; 16], |_| panic!("of another boot")).unwrap();
    assert_ne!(log.number(), number);
    let paper = Paper { bytes: Some(b"something else".to_vec()), ..Paper::default() };
    let log = Log::open(paper, BOOT, [8; 16], |_| panic!("nobody's")).unwrap();
    assert_eq!(log.bytes(), HEADER_BYTES as u64);
}

#[test]
fn records_that_were_being_appended_are_found_by_file() {
    let mut process = Process::start(Paper::default());
    let file = Identity { inode: 3, generation: 4 };
    for (number, place) in [(1, 700), (2, 500)] {
        let mut bytes = Vec::new();
        AppendIntent::new(file, place, b"record", 4096).encode(&mut bytes);
        process.note(to_note(number, State::Intent, &bytes)).unwrap();
    }
    let mut outcome = Vec::new();
    Outcome { kind: 1, errno: 0, fields: b"" }.encode(&mut outcome);
    process.note(to_note(3, State::Outcome, &outcome)).unwrap();
    assert!(!process.once.has_unsettled(&file), "they are this process's own");
    let mut next = process.restart();
    assert!(next.once.has_unsettled(&file));
    let places = |once: &Once<u64>| {
        once.unsettled_of(&file).into_iter().map(|(_, intent)| intent.place).collect::<Vec<_>>()
    };
    assert_eq!(places(&next.once), [500, 700]);
    assert!(next.once.has_unsettled(&file), "nobody has said yet what became of them");
    next.once.settle(&file);
    assert!(places(&next.once).is_empty() && !next.once.has_unsettled(&file));
    // No client asks for them any more by then; what they have left in the file is there all the same.
    let paper = Paper { fault: Fault::default(), ..next.log.into_medium() };
    let late = 100 + 2 * Limits::default().seconds;
    let mut later = Process::start_at(paper, late);
    // Nor do they go when the log begins anew before anybody has looked.
    let writing = later.once.begin_writing(true, late);
    later.log.write(&writing.notes, writing.all.as_deref()).unwrap();
    later.once.written(Ok(()));
    let later = later.restart();
    assert_eq!(places(&later.once), [500, 700]);
}

#[derive(Clone, Debug)]
enum Step {
    Begin(u64),
    Intend(u64),
    Finish(u64),
    Write(Fault, bool),
    /// While it writes, after so much of a thousandth.
    Kill(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let fault = (prop::option::weighted(0.3, 0u64..=1000), any::<bool>())
        .prop_map(|(torn, stays)| Fault { torn, stays: stays && torn.is_some() });
    prop_oneof![
        6 => (1u64..6).prop_map(Step::Begin),
        6 => (1u64..6).prop_map(Step::Intend),
        6 => (1u64..6).prop_map(Step::Finish),
        6 => (fault, prop::bool::weighted(0.2)).prop_map(|(fault, anew)| Step::Write(fault, anew)),
        1 => (0u64..=1000).prop_map(Step::Kill),
    ]
}

/// How far a request is, for who carries it out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Begun,
    Intending(BatchId),
    CarriedOut,
    Finishing(BatchId),
}

/// What an observer of all processes knows.
#[derive(Default)]
struct Observer {
    stages: BTreeMap<u64, Stage>,
    /// Carried out, ever.
    done: BTreeSet<u64>,
    /// Answered, ever.
    answered: BTreeSet<u64>,
    /// Of an intent that failed or was killed, the log may have something.
    perhaps: BTreeSet<u64>,
}

impl Observer {
    /// Goes on with what was written.
    fn hear(&mut self, once: &mut Once<u64>) {
        for (number, stage) in self.stages.clone() {
            let (Stage::Intending(batch) | Stage::Finishing(batch)) = stage else { continue };
            match (stage, once.settled(batch)) {
                (_, None) => {}
                (Stage::Intending(_), Some(Ok(()))) => {
                    assert!(self.done.insert(number), "request {number} is carried out twice");
                    self.stages.insert(number, Stage::CarriedOut);
                }
                (Stage::Intending(_), Some(Err(_))) => {
                    self.perhaps.insert(number);
                    assert!(once.end(&key(number)).is_empty());
                    self.stages.remove(&number);
                }
                // Whether the log has the outcome or its intent only: it is answered.
                (_, Some(written)) => {
                    if written.is_ok() {
                        self.answered.insert(number);
                    }
                    assert!(once.end(&key(number)).is_empty());
                    self.stages.remove(&number);
                }
            }
        }
    }

    fn killed(&mut self) {
        let intending = self.stages.iter().filter(|(_, stage)| matches!(stage, Stage::Intending(_)));
        self.perhaps.extend(intending.map(|(&number, _)| number));
        self.stages.clear();
    }

    fn is_right(&self, number: u64, found: Begun<'_>) -> bool {
        match found {
            Begun::Taken => unreachable!("nothing has a name"),
            Begun::Running => self.stages.contains_key(&number),
            Begun::New => !self.stages.contains_key(&number) && !self.done.contains(&number),
            Begun::Known(bytes) => bytes == number.to_le_bytes() && self.done.contains(&number),
            Begun::Unknown => {
                !self.answered.contains(&number)
                    && (self.done.contains(&number) || self.perhaps.contains(&number))
            }
        }
    }
}

proptest! {
    #[test]
    fn no_request_is_carried_out_twice_over_kills(steps in prop::collection::vec(step(), 0..120)) {
        let (mut process, mut observer) = (Process::start(Paper::default()), Observer::default());
        for step in steps {
            match step {
                Step::Begin(number) => {
                    let found = process.once.begin(key(number), &[]);
                    prop_assert!(observer.is_right(number, found), "request {number}: {found:?}");
                    if found == Begun::New {
                        observer.stages.insert(number, Stage::Begun);
                    }
                }
                Step::Intend(number) if observer.stages.get(&number) == Some(&Stage::Begun) => {
                    let batch = process.once.note(&[to_note(number, State::Intent, b"")], 100);
                    observer.stages.insert(number, Stage::Intending(batch));
                }
                Step::Finish(number) if observer.stages.get(&number) == Some(&Stage::CarriedOut) => {
                    let note = to_note(number, State::Outcome, &number.to_le_bytes());
                    let batch = process.once.note(&[note], 100);
                    observer.stages.insert(number, Stage::Finishing(batch));
                }
                Step::Intend(_) | Step::Finish(_) => {}
                Step::Write(fault, begins_anew) => {
                    process.log.medium_mut().fault = fault;
                    process.write(begins_anew);
                    process.log.medium_mut().fault = Fault::default();
                    observer.hear(&mut process.once);
                }
                Step::Kill(part) => {
                    let writing = process.once.begin_writing(false, 100);
                    process.log.medium_mut().fault = Fault { torn: Some(part), stays: true };
                    let _ = process.log.write(&writing.notes, None);
                    observer.killed();
                    process = process.restart();
                }
            }
        }
    }
}

/// What becomes of a request that only one process remembers.
#[derive(Clone, Debug)]
enum Fate {
    /// It is being carried out, and these copies wait for that.
    Running(Vec<u64>),
    /// It was answered so, then.
    Done(u64, u64),
}

proptest! {
    #[test]
    fn copies_of_a_request_are_carried_out_once_and_answered_alike(
        steps in prop::collection::vec((0u64..12, 0u8..8), 1..200),
    ) {
        let limits = Limits { seconds: 60, recent: 1000, ..Limits::default() };
        let mut once: Once<u64> = Once::new(limits);
        let mut fates: BTreeMap<u64, Fate> = BTreeMap::new();
        let mut now = 0;
        for (copy, (number, what)) in (0u64..).zip(steps) {
            match (what, fates.get_mut(&number)) {
                (7, _) => now += 25,
                // It ends, and those who have waited are answered.
                (4..=6, Some(fate)) if matches!(fate, Fate::Running(_)) => {
                    let Fate::Running(waiting) = fate.clone() else { continue };
                    *fate = Fate::Done(copy, now);
                    prop_assert_eq!(once.end_recent(&key(number), &copy.to_le_bytes(), now), waiting);
                }
                (_, Some(Fate::Running(waiting))) => {
                    prop_assert_eq!(once.begin_recent(key(number), || now), Begun::Running);
                    prop_assert_eq!(once.wait(&key(number), &[], copy), None);
                    waiting.push(copy);
                }
                (_, Some(&mut Fate::Done(answer, time))) if now <= time + 60 => {
                    prop_assert_eq!(once.begin_recent(key(number), || now), Begun::Known(&answer.to_le_bytes()));
                    prop_assert_eq!(once.wait(&key(number), &[], copy), Some(copy));
                }
                (_, _) => {
                    prop_assert_eq!(once.begin_recent(key(number), || now), Begun::New);
                    fates.insert(number, Fate::Running(vec![]));
                }
            }
        }
        // Of all that, no log is told.
        prop_assert!(once.table().is_empty());
        prop_assert_eq!(once.begin_writing(false, now), Writing::default());
    }
}
