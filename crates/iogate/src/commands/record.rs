//! `iogate record`: what arrives and completes at a gate that is up, as a trace.

use std::collections::VecDeque;
use std::fs::{self, File, TryLockError};
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use iogate_core::recording::{Chunk, EVENT_BYTES, EVENTS_MAX, Event};
use iogate_fuse::ControlError;
use iogate_sim::record::{Assembler, HEADER, Line};
use signal_hook::iterator::Signals;

use crate::attempt::Attempt;
use crate::cli::RecordArgs;
use crate::commands::asker::{Asker, Place, Reached, unanswered};
use crate::commands::signals;
use crate::failure::Failure;
use crate::output::{being_written, check_is_file, say};

/// How long nothing may have come before the gate is asked again.
const PAUSE: Duration = Duration::from_millis(20);
/// The most that is asked for at once: an extended attribute holds no more.
const PIECE_BYTES: u32 = 1 << 16;
/// As many as a ring has.
const PIECES_MAX: usize = EVENTS_MAX * EVENT_BYTES / PIECE_BYTES as usize + 1;

pub(crate) fn record(args: &RecordArgs) -> Result<(), Failure> {
    let place = Place::of(&args.place)?;
    // Before the recording begins, so that no signal ends it in the midst of a line.
    let mut signals = signals::of_the_end()?;
    let mut asker = Asker::new(place, args.export.as_deref())?;
    let name = name().context("random numbers")?;
    let first = read(&mut asker, name, 0).map_err(|end| end.failure(asker.place()))?;
    let trace = Trace::create(&args.out, args.rotate.map(|bytes| bytes.0), args.keep);
    // The gate keeps few recordings, and one that nobody reads for a while yet.
    let mut trace = trace.inspect_err(|_| end(&mut asker, name))?;
    say(format_args!("recording {} to {}; end with Ctrl-C", asker.place(), args.out.display()));
    let until = args.duration.map(|time| Instant::now() + time.0);
    let is_due = |signals: &mut Signals| {
        signals.pending().next().is_some() || until.is_some_and(|until| Instant::now() >= until)
    };
    let mut recorder = Recorder { assembler: Assembler::default(), reading: Reading::default() };
    let mut ended = recorder.take(&first, &mut trace).err();
    while ended.is_none() && !is_due(&mut signals) {
        match recorder.step(&mut asker, name, &mut trace) {
            Ok(0) => std::thread::sleep(PAUSE),
            Ok(_) => {}
            Err(end) => ended = Some(end),
        }
    }
    if ended.is_none() {
        // What has come up to now.
        for _ in 0..PIECES_MAX {
            match recorder.step(&mut asker, name, &mut trace) {
                Ok(0) => break,
                Ok(_) => {}
                Err(end) => {
                    ended = Some(end);
                    break;
                }
            }
        }
    }
    if !matches!(ended, Some(End::Gone(_))) {
        end(&mut asker, name);
    }
    recorder.finish(asker.place(), &args.out, trace, ended)
}

/// What happens at a gate in the next while; less than that if it is more than `most` events.
pub(crate) fn events(asker: &mut Asker, time: Duration, most: usize) -> Result<Vec<Event>, Failure> {
    let name = name().context("random numbers")?;
    let events = events_of(time, most, |from| read(asker, name, from));
    let events = events.map_err(|end| end.failure(asker.place()))?;
    end(asker, name);
    Ok(events)
}

/// Tells the gate that nobody reads a recording any more.
fn end(asker: &mut Asker, name: u64) {
    let _ = read(asker, name, u64::MAX);
}

fn events_of(
    time: Duration,
    most: usize,
    mut read: impl FnMut(u64) -> Result<Chunk, End>,
) -> Result<Vec<Event>, End> {
    let until = Instant::now() + time;
    let (mut events, mut reading) = (Vec::new(), Reading::default());
    loop {
        let is_last = Instant::now() >= until || events.len() >= most;
        let chunk = read(reading.next)?;
        reading.took(&chunk);
        let is_empty = chunk.events.is_empty();
        events.extend(chunk.events);
        if is_last {
            events.extend(reading.end());
            return Ok(events);
        }
        if is_empty {
            std::thread::sleep(PAUSE);
        }
    }
}

/// How far a recording has been read.
#[derive(Debug, Default)]
struct Reading {
    /// The first event that has not been.
    next: u64,
    /// Arrivals lost before that. If it ever comes, an event before it says so.
    lost: u64,
}

impl Reading {
    fn took(&mut self, chunk: &Chunk) {
        self.next = chunk.first + chunk.events.len() as u64;
        self.lost = chunk.lost;
    }

    /// What is missing at the end, if nothing is read any more.
    fn end(&self) -> Option<Event> {
        (self.lost > 0).then_some(Event::Lost { arrivals: self.lost })
    }
}

/// A number that no other recording has.
fn name() -> io::Result<u64> {
    let mut bytes = [0; 8];
    io::Read::read_exact(&mut File::open("/dev/urandom")?, &mut bytes)?;
    Ok(u64::from_le_bytes(bytes))
}

/// Why a recording is over before it was asked to be.
enum End {
    /// The mount or the server has gone, or the gate has forgotten the recording.
    Gone(String),
    /// It may not be recorded.
    Refused(Failure),
    /// The trace cannot be written.
    Output(anyhow::Error),
}

impl End {
    fn failure(self, place: &Place) -> Failure {
        match self {
            End::Gone(why) => Failure::failed(anyhow!("{place} cannot be recorded: {why}")),
            End::Refused(failure) => failure,
            End::Output(error) => Failure::failed(error),
        }
    }
}

/// What has come since event `from`; `u64::MAX` ends the recording.
fn read(asker: &mut Asker, name: u64, from: u64) -> Result<Chunk, End> {
    let bytes = match asker.reach().map_err(End::Refused)? {
        Reached::Mount(mountpoint) => {
            iogate_fuse::record(mountpoint, name, from).map_err(|error| match error {
                ControlError::NotAMount { .. } if from == 0 => End::Refused(Failure::failed(error)),
                ControlError::NotAMount { .. } => End::Gone("it is not mounted any more".into()),
                ControlError::NotAllowed { .. } => End::Refused(Failure::failed(error)),
                error if from == 0 => End::Refused(unanswered(error)),
                error => End::Gone(error.to_string()),
            })?
        }
        Reached::Server(_, client) => {
            client.record(name, from, PIECE_BYTES).map_err(|error| match error.kind() {
                io::ErrorKind::PermissionDenied => End::Refused(Failure::failed(error)),
                _ => End::Gone(error.to_string()),
            })?
        }
    };
    if from == u64::MAX {
        return Ok(Chunk::default());
    }
    Chunk::decode(&bytes).ok_or_else(|| End::Gone("it answers in another version's words".into()))
}

struct Recorder {
    assembler: Assembler,
    reading: Reading,
}

impl Recorder {
    /// Reads a piece, and says how many events were in it.
    fn step(&mut self, asker: &mut Asker, name: u64, trace: &mut Trace) -> Result<usize, End> {
        let chunk = read(asker, name, self.reading.next)?;
        self.take(&chunk, trace)?;
        Ok(chunk.events.len())
    }

    fn take(&mut self, chunk: &Chunk, trace: &mut Trace) -> Result<(), End> {
        for event in &chunk.events {
            self.assembler.push(*event);
        }
        self.reading.took(chunk);
        while let Some(line) = self.assembler.next_line() {
            trace.push(&line).map_err(End::Output)?;
        }
        trace.flush().map_err(End::Output)
    }

    /// Nothing more comes.
    fn end(&mut self) {
        if let Some(event) = self.reading.end() {
            self.assembler.push(event);
        }
    }

    /// Writes what is left, and says what there is.
    fn finish(
        mut self,
        place: &Place,
        out: &Path,
        mut trace: Trace,
        ended: Option<End>,
    ) -> Result<(), Failure> {
        let mut failed = None;
        self.end();
        if !matches!(ended, Some(End::Output(_))) {
            let left = self.assembler.finish().try_for_each(|line| trace.push(&line));
            failed = left.and_then(|()| trace.flush()).err();
        }
        let (rows, lost) = (trace.rows, self.assembler.lost());
        let unfinished = self.assembler.unfinished();
        let gone = match trace.gone {
            0 => String::new(),
            gone => format!("; the first {gone} of them were in files that are not kept"),
        };
        say(format_args!(
            "{}: {rows} requests, {lost} lost, {unfinished} without their completion{gone}",
            out.display()
        ));
        match ended {
            Some(End::Output(error)) => failed = Some(error),
            Some(End::Refused(failure)) => return Err(failure),
            Some(End::Gone(why)) => say(format_args!("{place} has ended the recording: {why}")),
            None => {}
        }
        match failed {
            Some(error) => {
                Err(Failure::failed(error).hint("what was recorded up to then is there, in whole lines"))
            }
            None => Ok(()),
        }
    }
}

/// An empty file, which no other recording writes to meanwhile: their lines would lie between and over each other.
fn begun(path: &Path) -> Result<File, Failure> {
    let cannot = |error| Failure::usage(anyhow::Error::new(error).context(Attempt::write(path.display())));
    let file = File::options().write(true).create(true).truncate(false).open(path).map_err(cannot)?;
    if !file.metadata().is_ok_and(|found| found.is_file()) {
        return Ok(file);
    }
    // Where there are no locks, nothing is known of others.
    if let Err(TryLockError::WouldBlock) = file.try_lock() {
        return Err(being_written(path).hint("name another file, or wait until that one has ended"));
    }
    file.set_len(0).map_err(cannot)?;
    Ok(file)
}

/// The file that is being written, in whole lines, and those before it.
struct Trace {
    path: PathBuf,
    file: File,
    /// Whole lines that are not in the file yet.
    pending: Vec<u8>,
    /// Bytes in the file.
    bytes: u64,
    rotate: Option<u64>,
    keep: u32,
    /// Lines in the file and in those before it, and lines that are pending.
    rows: u64,
    pending_rows: u64,
    /// How many there were up to the end of each file before it that is kept, the youngest first.
    before: VecDeque<u64>,
    /// Lines in files that are not kept any more.
    gone: u64,
}

impl Trace {
    fn create(path: &Path, rotate: Option<u64>, keep: u32) -> Result<Trace, Failure> {
        check_is_file(path)?;
        let file = begun(path)?;
        let pending = HEADER.as_bytes().to_vec();
        let mut path = path.to_owned();
        if rotate.is_some() {
            if !file.metadata().is_ok_and(|found| found.is_file()) {
                let error = anyhow!("{}: expected a regular file, as it is to be rotated", path.display());
                return Err(Failure::usage(error).hint("leave --rotate out"));
            }
            // What a link leads to is rotated, not the link.
            path = fs::canonicalize(&path).unwrap_or(path);
        }
        let mut trace = Trace {
            path,
            file,
            pending,
            bytes: 0,
            rotate,
            keep,
            rows: 0,
            pending_rows: 0,
            before: VecDeque::new(),
            gone: 0,
        };
        trace.flush().map_err(Failure::failed)?;
        Ok(trace)
    }

    fn push(&mut self, line: &Line) -> anyhow::Result<()> {
        let full = self.rotate.is_some_and(|most| self.bytes + self.pending.len() as u64 >= most);
        if full {
            self.flush()?;
            self.next_file().with_context(|| format!("{} cannot be rotated", self.path.display()))?;
        }
        line.write(&mut self.pending).expect("memory takes what is written");
        self.pending_rows += 1;
        Ok(())
    }

    /// Writes whole lines; where there is no room for all of them, as if none had been begun.
    fn flush(&mut self) -> anyhow::Result<()> {
        if let Err(error) = self.file.write_all(&self.pending) {
            let _ = self.file.set_len(self.bytes).and_then(|()| self.file.seek(SeekFrom::End(0)));
            (self.pending_rows, self.pending) = (0, Vec::new());
            return Err(anyhow::Error::new(error).context(Attempt::write(self.path.display())));
        }
        self.bytes += self.pending.len() as u64;
        self.rows += self.pending_rows;
        self.pending_rows = 0;
        self.pending.clear();
        Ok(())
    }

    /// TRACE becomes TRACE.1, that TRACE.2 and so on; the last one goes.
    fn next_file(&mut self) -> io::Result<()> {
        let numbered = |number: u32| {
            let mut name = self.path.clone().into_os_string();
            name.push(format!(".{number}"));
            PathBuf::from(name)
        };
        for number in (1..self.keep).rev() {
            match fs::rename(numbered(number), numbered(number + 1)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        if self.keep > 0 {
            fs::rename(&self.path, numbered(1))?;
        }
        self.before.push_front(self.rows);
        if self.before.len() > self.keep as usize {
            self.gone = self.before.pop_back().unwrap_or_default();
        }
        self.file = File::create(&self.path)?;
        // It is new, and where there are no locks there is none.
        let _ = self.file.try_lock();
        self.bytes = 0;
        self.pending.extend(HEADER.as_bytes());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use iogate_core::request::RequestId;
    use iogate_core::time::Time;
    use iogate_core::{AppId, ClientId, FileId, Op};

    use super::*;

    fn arrived(id: u64) -> Event {
        Event::Arrived {
            id: RequestId(id),
            time: Time::from_nanos(id),
            app: AppId(1),
            client: ClientId(1),
            file: FileId(1),
            op: Op::Write,
            offset: id,
            bytes: 1,
        }
    }

    /// What a ring answers that is full, until it has room for two events, and is full again.
    fn chunks() -> VecDeque<Chunk> {
        [
            Chunk { first: 0, events: vec![arrived(1)], lost: 2 },
            Chunk { first: 1, events: Vec::new(), lost: 3 },
            Chunk { first: 1, events: Vec::new(), lost: 3 },
            Chunk { first: 1, events: vec![Event::Lost { arrivals: 3 }, arrived(2)], lost: 0 },
            Chunk { first: 3, events: Vec::new(), lost: 4 },
        ]
        .into()
    }

    #[test]
    fn each_loss_is_among_the_events_once() {
        let mut chunks = chunks();
        let mut read = Vec::new();
        let events = events_of(Duration::from_secs(3600), 3, |from| {
            read.push(from);
            Ok(chunks.pop_front().expect("enough has been read"))
        });
        let expected = [arrived(1), Event::Lost { arrivals: 3 }, arrived(2), Event::Lost { arrivals: 4 }];
        assert!(matches!(events, Ok(events) if events == expected));
        assert_eq!(read, [0, 1, 1, 1, 3]);
    }

    #[test]
    fn a_loss_at_the_end_is_counted() {
        let dir = tempfile::tempdir().unwrap();
        let mut trace = Trace::create(&dir.path().join("trace"), None, 0).ok().unwrap();
        let mut recorder = Recorder { assembler: Assembler::default(), reading: Reading::default() };
        for chunk in chunks() {
            assert!(recorder.take(&chunk, &mut trace).is_ok());
        }
        assert_eq!(recorder.assembler.lost(), 3);
        recorder.end();
        assert_eq!(recorder.assembler.lost(), 7);
        let mut lines = Vec::new();
        recorder.assembler.finish().for_each(|line| line.write(&mut lines).unwrap());
        let lines = String::from_utf8(lines).unwrap();
        let lost: Vec<_> = lines.lines().map(|line| line.rsplit_once(',').unwrap().1).collect();
        assert_eq!(lost, ["3", "4"]);
    }

    #[test]
    fn lines_that_are_rotated_away_are_counted() {
        let dir = tempfile::tempdir().unwrap();
        let mut trace = Trace::create(&dir.path().join("trace"), Some(1), 2).ok().unwrap();
        let mut gone = Vec::new();
        for lines in [3, 5, 7, 11] {
            trace.rows += lines;
            trace.next_file().unwrap();
            gone.push(trace.gone);
        }
        assert_eq!(gone, [0, 0, 3, 8], "of four files two are kept");
    }

    #[test]
    fn a_file_is_rotated_where_it_lies_and_nothing_else_is() {
        let dir = tempfile::tempdir().unwrap();
        let (link, real) = (dir.path().join("link"), dir.path().join("folder/real"));
        fs::create_dir(dir.path().join("folder")).unwrap();
        std::os::unix::fs::symlink("folder/real", &link).unwrap();
        let mut trace = Trace::create(&link, Some(1), 2).ok().unwrap();
        trace.flush().and_then(|()| Ok(trace.next_file()?)).unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert!(real.is_file() && dir.path().join("folder/real.1").is_file());
        assert!(Trace::create(Path::new("/dev/null"), Some(1), 2).is_err());
        assert!(Trace::create(Path::new("/dev/null"), None, 2).is_ok());
    }
}
