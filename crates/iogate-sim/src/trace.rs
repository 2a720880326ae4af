//! The trace format: one row a request, read line by line in bounded memory.

use std::borrow::Cow;
use std::collections::HashMap;
use std::io::{self, BufRead, Read};

use csv_core::ReadRecordResult;
use iogate_core::{AppId, ClientId, FileId, Op, TargetId, Time};

/// The longest line, in bytes: what is longer is not a trace, and would otherwise be read into memory.
pub const LINE_BYTES_MAX: usize = 64 * 1024;

/// The most targets that a trace may name.
pub const TARGETS_MAX: u32 = 4096;

/// What messages call a column that the header does not have.
const AFTER: &str = "after the last";

/// Names that are not numbers get ids from here on, so that they never meet a number.
const FIRST_WORD_ID: u64 = 1 << 63;

/// One request of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// Its number: data rows counted from 1, the header not counted.
    pub number: u64,
    /// When it arrives at the gate.
    pub time: Time,
    /// The application; 0 is unknown.
    pub app: AppId,
    /// The client; 0 is unknown.
    pub client: ClientId,
    /// The file; [`Files::name`] has its name.
    pub file: FileId,
    /// Read or write.
    pub op: Op,
    /// First byte.
    pub offset: u64,
    /// Length in bytes, not zero.
    pub bytes: u32,
    /// The target that holds it, where the trace says.
    pub target: Option<TargetId>,
    /// When the client issued it, where the trace says.
    pub issued: Option<Time>,
    /// When it was over, where the trace says: it was recorded at a gate.
    pub done: Option<Time>,
    /// Requests that arrived between this one and the next, and are not in the trace.
    pub lost: u64,
}

/// Why a trace was refused.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The input failed.
    #[error("line {line}: cannot be read: {source}")]
    Read {
        /// The line that was being read, from 1.
        line: u64,
        /// The operating system's error.
        source: io::Error,
    },
    /// A field is not what it should be.
    #[error("line {line}, column {number} ({column}): expected {expected}, found {found}")]
    Field {
        /// The line, from 1; the header is line 1.
        line: u64,
        /// The column, from 1.
        number: usize,
        /// The column's name.
        column: String,
        /// What should have been there.
        expected: String,
        /// What was there, quoted, or `the end of the line`.
        found: String,
    },
    /// The line is not text of a sensible length.
    #[error("line {line}: expected at most {LINE_BYTES_MAX} bytes, found more; is this a trace?")]
    LineTooLong {
        /// The line, from 1.
        line: u64,
    },
    /// A row is earlier than the one before it.
    #[error(
        "line {line}, column {number} (time_us): expected a time not before {before}, that of the row above, \
         found {found}; sort the trace by time"
    )]
    Order {
        /// The line, from 1.
        line: u64,
        /// The column, from 1.
        number: usize,
        /// The time of the row before, in microseconds.
        before: Micros,
        /// The time of this row, in microseconds.
        found: Micros,
    },
}

/// Writes a time in microseconds: whole if it is, else with up to three decimals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Micros(pub Time);

impl std::fmt::Display for Micros {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let ns = self.0.as_nanos();
        match ns % 1_000 {
            0 => write!(f, "{}", ns / 1_000),
            rest => write!(f, "{}.{}", ns / 1_000, format!("{rest:03}").trim_end_matches('0')),
        }
    }
}

/// The files of a trace: numbers are their own ids, other names get theirs in order of appearance.
#[derive(Debug, Default)]
pub struct Files {
    words: Vec<Box<str>>,
    ids: HashMap<Box<str>, u64>,
}

impl Files {
    fn id(&mut self, name: &str) -> FileId {
        // Only a number that prints as it was written stands for itself: 007 is a name.
        if let Ok(number) = name.parse::<u64>()
            && number < FIRST_WORD_ID
            && (name == "0" || !name.starts_with(['0', '+']))
        {
            return FileId(number);
        }
        if let Some(&index) = self.ids.get(name) {
            return FileId(FIRST_WORD_ID + index);
        }
        let index = self.words.len() as u64;
        self.words.push(name.into());
        self.ids.insert(name.into(), index);
        FileId(FIRST_WORD_ID + index)
    }

    /// The name of a file as the trace has it.
    pub fn name(&self, file: FileId) -> Cow<'_, str> {
        match file.0.checked_sub(FIRST_WORD_ID).and_then(|index| self.words.get(index as usize)) {
            Some(word) => Cow::Borrowed(word),
            None => Cow::Owned(file.0.to_string()),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Column {
    Time,
    App,
    Client,
    File,
    Op,
    Offset,
    Bytes,
    Target,
    Issued,
    Done,
    Lost,
}

/// The columns by name; the first [`REQUIRED`] must be there.
const COLUMNS: [(&str, Column); 11] = [
    ("time_us", Column::Time),
    ("app", Column::App),
    ("client", Column::Client),
    ("file", Column::File),
    ("op", Column::Op),
    ("offset", Column::Offset),
    ("bytes", Column::Bytes),
    ("target", Column::Target),
    ("issued_us", Column::Issued),
    ("done_us", Column::Done),
    ("lost", Column::Lost),
];
const REQUIRED: usize = 7;

impl Column {
    fn name(self) -> &'static str {
        COLUMNS[self as usize].0
    }
}

/// Reads a trace row by row.
pub struct TraceReader<R> {
    lines: Lines<R>,
    columns: Vec<Column>,
    files: Files,
    rows: u64,
    last: Time,
    targets: u32,
    sorted: Option<std::vec::IntoIter<Row>>,
}

impl<R: BufRead> TraceReader<R> {
    /// Reads the header.
    pub fn new(input: R) -> Result<TraceReader<R>, TraceError> {
        let mut lines = Lines::new(input);
        let columns = read_header(&mut lines)?;
        let (files, last) = (Files::default(), Time::ZERO);
        Ok(TraceReader { lines, columns, files, rows: 0, last, targets: TARGETS_MAX, sorted: None })
    }

    /// Refuses rows from here on that name a target not below `targets`.
    pub fn set_targets(&mut self, targets: u32) {
        self.targets = targets.min(TARGETS_MAX);
    }

    /// Whether the trace has a `target` column.
    pub fn has_targets(&self) -> bool {
        self.columns.contains(&Column::Target)
    }

    /// Whether the trace says when requests were over.
    pub fn has_completions(&self) -> bool {
        self.columns.contains(&Column::Done)
    }

    /// The names of the files seen so far.
    pub fn files(&self) -> &Files {
        &self.files
    }

    /// The next row; `None` at the end. Rows come in order of time.
    pub fn next_row(&mut self) -> Result<Option<Row>, TraceError> {
        if let Some(sorted) = &mut self.sorted {
            return Ok(sorted.next());
        }
        let Some(row) = self.next_row_in_any_order()? else { return Ok(None) };
        if row.time < self.last {
            let number = 1 + self.columns.iter().position(|c| *c == Column::Time).unwrap_or(0);
            let (before, found) = (Micros(self.last), Micros(row.time));
            return Err(TraceError::Order { line: self.lines.number, number, before, found });
        }
        self.last = row.time;
        Ok(Some(row))
    }

    /// Reads the whole trace into memory and sorts it by time; rows of one time stay in the order of the trace.
    pub fn sort(&mut self) -> Result<(), TraceError> {
        let mut rows = Vec::new();
        while let Some(row) = self.next_row_in_any_order()? {
            rows.push(row);
        }
        rows.sort_by_key(|row| row.time);
        self.sorted = Some(rows.into_iter());
        Ok(())
    }

    /// The next row, wherever its time is; `None` at the end.
    pub fn next_row_in_any_order(&mut self) -> Result<Option<Row>, TraceError> {
        if !self.lines.next_record()? {
            return Ok(None);
        }
        let lines = &self.lines;
        if lines.fields() > self.columns.len() {
            let number = self.columns.len() + 1;
            return Err(lines.field_error(number, AFTER, "the end of the line", Some(lines.raw(number - 1))));
        }
        self.rows += 1;
        let mut row = Row {
            number: self.rows,
            time: Time::ZERO,
            app: AppId(0),
            client: ClientId(0),
            file: FileId(0),
            op: Op::Read,
            offset: 0,
            bytes: 0,
            target: None,
            issued: None,
            done: None,
            lost: 0,
        };
        for (index, &column) in self.columns.iter().enumerate() {
            let field = lines.field(index, column)?;
            let refuse =
                |expected: &str| lines.field_error(index + 1, column.name(), expected, Some(field.into()));
            match column {
                Column::Time => row.time = micros(field).ok_or_else(|| refuse(TIME_EXPECTED))?,
                Column::App => row.app = AppId(whole(field).ok_or_else(|| refuse(ID_EXPECTED))?),
                Column::Client => row.client = ClientId(whole(field).ok_or_else(|| refuse(ID_EXPECTED))?),
                Column::File if field.is_empty() => return Err(refuse("a number or a name")),
                Column::File => row.file = self.files.id(field),
                Column::Op => {
                    row.op = match field {
                        "r" => Op::Read,
                        "w" => Op::Write,
                        _ => return Err(refuse("r or w")),
                    }
                }
                Column::Offset => {
                    row.offset = whole(field).ok_or_else(|| refuse("a whole number of bytes, below 2^64"))?;
                }
                Column::Bytes => {
                    let bytes = whole(field).filter(|bytes| *bytes > 0);
                    row.bytes =
                        bytes.ok_or_else(|| refuse("a whole number of bytes, from 1 to 4294967295"))?;
                }
                Column::Target if field.is_empty() => {}
                Column::Target => {
                    let target = whole(field).filter(|target| *target < self.targets).map(TargetId);
                    let expected = || format!("a target, from 0 to {}, or nothing", self.targets - 1);
                    row.target = Some(target.ok_or_else(|| refuse(&expected()))?);
                }
                Column::Issued if field.is_empty() => {}
                Column::Issued => row.issued = Some(micros(field).ok_or_else(|| refuse(TIME_EXPECTED))?),
                Column::Done if field.is_empty() => {}
                Column::Done => row.done = Some(micros(field).ok_or_else(|| refuse(TIME_EXPECTED))?),
                Column::Lost if field.is_empty() => {}
                Column::Lost => {
                    row.lost =
                        whole(field).ok_or_else(|| refuse("a whole number of requests, or nothing"))?;
                }
            }
        }
        if let Some(done) = row.done.filter(|done| *done < row.time) {
            let number = 1 + self.columns.iter().position(|c| *c == Column::Done).unwrap_or(0);
            let expected = format!("a time not before the arrival, {}", Micros(row.time));
            return Err(self.lines.field_error(
                number,
                "done_us",
                &expected,
                Some(Micros(done).to_string().into()),
            ));
        }
        if row.offset.checked_add(u64::from(row.bytes)).is_none() {
            let number = 1 + self.columns.iter().position(|c| *c == Column::Bytes).unwrap_or(0);
            let found = Some(row.bytes.to_string().into());
            return Err(self.lines.field_error(number, "bytes", "a range that ends below 2^64", found));
        }
        Ok(Some(row))
    }
}

const TIME_EXPECTED: &str =
    "a time in microseconds, such as 1500 or 1500.25, with at most 3 decimals and below 2^63 nanoseconds";
/// Later times leave too little after them for what is served: clocks of gates end at 2^64 nanoseconds.
const TIME_MAX: u64 = u64::MAX >> 1;
const ID_EXPECTED: &str = "a whole number, from 0 to 4294967295";

fn whole<N: std::str::FromStr>(text: &str) -> Option<N> {
    // `parse` alone would take a sign.
    if text.starts_with('+') { None } else { text.parse().ok() }
}

/// Microseconds with at most three decimals: nanoseconds, exactly.
fn micros(text: &str) -> Option<Time> {
    let (whole_us, decimals) = text.split_once('.').unwrap_or((text, "0"));
    if decimals.is_empty() || decimals.len() > 3 {
        return None;
    }
    let below_us = whole::<u64>(decimals)? * 10u64.pow(3 - decimals.len() as u32);
    let ns = whole::<u64>(whole_us)?.checked_mul(1_000)?.checked_add(below_us)?;
    (ns <= TIME_MAX).then_some(Time::from_nanos(ns))
}

fn read_header<R: BufRead>(lines: &mut Lines<R>) -> Result<Vec<Column>, TraceError> {
    let all = || COLUMNS.map(|(name, _)| name).join(", ");
    if !lines.next_record()? {
        return Err(TraceError::Field {
            line: 1,
            number: 1,
            column: "time_us".into(),
            expected: format!("a header with the columns {}", all()),
            found: "the end of the trace".into(),
        });
    }
    let mut columns = Vec::new();
    for index in 0..lines.fields() {
        let name = lines.raw(index);
        let refuse =
            |expected: &str| Err(lines.field_error(index + 1, "header", expected, Some(name.clone())));
        match COLUMNS.iter().find(|(known, _)| *known == name) {
            None => return refuse(&format!("the name of a column, one of {}", all())),
            Some((_, column)) if columns.contains(column) => return refuse("each column once"),
            Some((_, column)) => columns.push(*column),
        }
    }
    match COLUMNS[..REQUIRED].iter().find(|(_, column)| !columns.contains(column)) {
        Some((missing, _)) => {
            Err(lines.field_error(columns.len() + 1, "header", &format!("the column {missing}"), None))
        }
        None => Ok(columns),
    }
}

/// Lines of bounded length, split into fields.
struct Lines<R> {
    input: R,
    number: u64,
    line: Vec<u8>,
    csv: csv_core::Reader,
    text: Vec<u8>,
    ends: Vec<usize>,
    count: usize,
}

impl<R: BufRead> Lines<R> {
    fn new(input: R) -> Lines<R> {
        let ends = vec![0; 16];
        Lines {
            input,
            number: 0,
            line: Vec::new(),
            csv: csv_core::Reader::new(),
            text: Vec::new(),
            ends,
            count: 0,
        }
    }

    /// Reads the next line that is not blank; false at the end.
    fn next_record(&mut self) -> Result<bool, TraceError> {
        loop {
            self.number += 1;
            self.line.clear();
            let limit = LINE_BYTES_MAX as u64 + 1;
            let read = self.input.by_ref().take(limit).read_until(b'\n', &mut self.line);
            let read = read.map_err(|source| TraceError::Read { line: self.number, source })?;
            if read as u64 == limit {
                return Err(TraceError::LineTooLong { line: self.number });
            }
            if read == 0 {
                return Ok(false);
            }
            if self.number == 1 && self.line.starts_with(b"\xef\xbb\xbf") {
                self.line.drain(..3);
            }
            while self.line.last().is_some_and(|byte| matches!(byte, b'\n' | b'\r')) {
                self.line.pop();
            }
            if !self.line.is_empty() {
                self.split()?;
                return Ok(true);
            }
        }
    }

    fn split(&mut self) -> Result<(), TraceError> {
        self.csv.reset();
        self.text.resize(self.line.len() + 1, 0);
        let (mut read, mut written, mut count) = (0, 0, 0);
        loop {
            let (result, i, o, e) =
                self.csv.read_record(&self.line[read..], &mut self.text[written..], &mut self.ends[count..]);
            (read, written, count) = (read + i, written + o, count + e);
            match result {
                // The second call, with nothing left to read, ends the record.
                ReadRecordResult::InputEmpty => {}
                ReadRecordResult::OutputEndsFull => self.ends.resize(self.ends.len() * 2, 0),
                ReadRecordResult::OutputFull => self.text.resize(self.text.len() * 2, 0),
                ReadRecordResult::Record | ReadRecordResult::End => break,
            }
        }
        self.count = count;
        if read < self.line.len() {
            // To the CSV parser a bare CR ends a record too; what follows it must not be lost.
            let rest = String::from_utf8_lossy(&self.line[read..]);
            let expected = "the end of the line, which is LF or CRLF";
            return Err(self.field_error(count + 1, AFTER, expected, Some(format!("\r{rest}").into())));
        }
        Ok(())
    }

    fn fields(&self) -> usize {
        self.count
    }

    fn bytes(&self, index: usize) -> &[u8] {
        let start = if index == 0 { 0 } else { self.ends[index - 1] };
        &self.text[start..self.ends[index]]
    }

    /// A field for a message, whatever it holds.
    fn raw(&self, index: usize) -> Cow<'static, str> {
        String::from_utf8_lossy(self.bytes(index)).into_owned().into()
    }

    fn field(&self, index: usize, column: Column) -> Result<&str, TraceError> {
        if index >= self.count {
            return Err(self.field_error(index + 1, column.name(), "a value", None));
        }
        std::str::from_utf8(self.bytes(index))
            .map_err(|_| self.field_error(index + 1, column.name(), "UTF-8 text", Some(self.raw(index))))
    }

    fn field_error(
        &self,
        number: usize,
        column: &str,
        expected: &str,
        found: Option<Cow<'_, str>>,
    ) -> TraceError {
        const SHOWN: usize = 60;
        let found = match found {
            None => "the end of the line".into(),
            Some(text) if text.chars().count() > SHOWN => {
                format!("'{}...'", text.chars().take(SHOWN).collect::<String>().escape_debug())
            }
            Some(text) => format!("'{}'", text.escape_debug()),
        };
        let (column, expected) = (column.into(), expected.into());
        TraceError::Field { line: self.number, number, column, expected, found }
    }
}
