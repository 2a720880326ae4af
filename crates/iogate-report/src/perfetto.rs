//! A run as Chrome trace events, for a trace viewer such as Perfetto: an onlooker that writes as the run goes.
//!
//! One process a server, with a slice for each dispatch; one process an application, with a thread for each rank and
//! slices of computing and I/O. Dispatches that a server has in service at once lie on threads of their own.

use std::collections::{HashMap, HashSet};
use std::io::{self, Write};

use iogate_core::{FileId, Op, Time};
use iogate_sim::world::{Observer, Phase, Served};
use serde::Serialize;
use serde_json::{Value, json};

/// Events written unless told otherwise: about 150 MB.
pub const EVENTS_MAX: u64 = 1_000_000;

/// Process ids of servers count from 1, those of applications from here.
const APPS_FROM: u64 = 1_000_000;

/// Writes the trace.
pub struct Perfetto<W: Write> {
    out: W,
    app_names: HashMap<u32, String>,
    file_names: HashMap<FileId, String>,
    events_left: u64,
    events_max: u64,
    /// Processes and threads that have a name.
    named: HashSet<(u64, u64)>,
    /// When each thread of a server is free again.
    free_at: HashMap<u32, Vec<Time>>,
    empty: bool,
    stopped: bool,
    failed: Option<io::Error>,
}

#[derive(Serialize)]
struct Event<'a> {
    name: &'a str,
    ph: char,
    pid: u64,
    tid: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    ts: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dur: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    s: Option<char>,
    #[serde(skip_serializing_if = "Value::is_null")]
    args: Value,
}

impl<W: Write> Perfetto<W> {
    /// Writes to `out` at most `events_max` slices and then a mark that the rest is missing. Applications without a
    /// name in `app_names` are called by their id.
    pub fn new(out: W, app_names: impl IntoIterator<Item = (u32, String)>, events_max: u64) -> Perfetto<W> {
        let mut perfetto = Perfetto {
            out,
            app_names: app_names.into_iter().collect(),
            file_names: HashMap::new(),
            events_left: events_max,
            events_max,
            named: HashSet::new(),
            free_at: HashMap::new(),
            empty: true,
            stopped: false,
            failed: None,
        };
        perfetto.failed = perfetto.out.write_all(b"{\"displayTimeUnit\":\"ms\",\"traceEvents\":[").err();
        perfetto
    }

    /// Names files, which are called by their ids otherwise. Of several names of one the first counts.
    #[must_use]
    pub fn with_files(mut self, names: impl IntoIterator<Item = (FileId, String)>) -> Perfetto<W> {
        for (file, name) in names {
            self.file_names.entry(file).or_insert(name);
        }
        self
    }

    /// Completes the trace and returns what it was written to.
    ///
    /// # Errors
    /// The first error in writing any of it.
    pub fn finish(mut self) -> io::Result<W> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        self.out.write_all(b"\n]}\n")?;
        self.out.flush()?;
        Ok(self.out)
    }

    fn slice(&mut self, name: &str, (pid, tid): (u64, u64), start: Time, end: Time, args: Value) {
        let (ts, dur) = (Some(micros(start.as_nanos())), Some(micros(end.since(start).as_nanos())));
        self.write(&Event { name, ph: 'X', pid, tid, ts, dur, s: None, args });
        self.events_left -= 1;
    }

    /// Whether one more slice may be written; the first time that it may not, says so in the trace.
    fn has_room(&mut self, now: Time) -> bool {
        if self.events_left == 0 && !self.stopped {
            self.stopped = true;
            let name = format!("stopped after {} events", self.events_max);
            let ts = Some(micros(now.as_nanos()));
            self.write(&Event {
                name: &name,
                ph: 'i',
                pid: 0,
                tid: 0,
                ts,
                dur: None,
                s: Some('g'),
                args: Value::Null,
            });
        }
        self.events_left > 0 && self.failed.is_none()
    }

    fn name(&mut self, what: &str, (pid, tid): (u64, u64), name: &str) {
        let args = json!({ "name": name });
        self.write(&Event { name: what, ph: 'M', pid, tid, ts: None, dur: None, s: None, args });
    }

    fn write(&mut self, event: &Event) {
        if self.failed.is_some() {
            return;
        }
        let separator: &[u8] = if self.empty { b"\n" } else { b",\n" };
        self.empty = false;
        let written = self.out.write_all(separator);
        self.failed =
            written.and_then(|()| serde_json::to_writer(&mut self.out, event).map_err(io::Error::from)).err();
    }
}

impl<W: Write> Observer for Perfetto<W> {
    fn served(&mut self, served: &Served) {
        if !self.has_room(served.end) {
            return;
        }
        // Dispatches come in the order in which the server serves them: a thread is free when its last one has ended.
        let threads = self.free_at.entry(served.server).or_default();
        let thread = threads.iter().position(|free| *free <= served.start).unwrap_or_else(|| {
            threads.push(Time::ZERO);
            threads.len() - 1
        });
        threads[thread] = served.end;
        let at = (1 + u64::from(served.server), 1 + thread as u64);
        if self.named.insert((at.0, 0)) {
            self.name("process_name", at, &format!("server {}", served.server));
        }
        if self.named.insert(at) {
            self.name("thread_name", at, &format!("dispatches {}", at.1));
        }
        let op = if served.op == Op::Read { "read" } else { "write" };
        let file = self.file_names.get(&served.file).cloned().unwrap_or_else(|| served.file.to_string());
        let mut args = json!({ "op": op, "file": file, "offset": served.offset, "bytes": served.bytes });
        // A page cache's transfers are of no request: a count of 0 would look like a fault.
        match served.requests {
            0 => args["by"] = "cache".into(),
            requests => args["requests"] = requests.into(),
        }
        let app = app_name(&self.app_names, served.app.0);
        self.slice(&app, at, served.start, served.end, args);
    }

    fn phase(&mut self, phase: &Phase) {
        if !self.has_room(phase.end) {
            return;
        }
        let at = (APPS_FROM + u64::from(phase.app.0), 1 + u64::from(phase.rank));
        if self.named.insert((at.0, 0)) {
            let app = app_name(&self.app_names, phase.app.0);
            self.name("process_name", at, &app);
        }
        if self.named.insert(at) {
            self.name("thread_name", at, &format!("rank {}", phase.rank));
        }
        let name = if phase.io { "I/O" } else { "compute" };
        self.slice(name, at, phase.start, phase.end, Value::Null);
    }
}

fn app_name(names: &HashMap<u32, String>, app: u32) -> String {
    names.get(&app).cloned().unwrap_or_else(|| format!("application {app}"))
}

fn micros(ns: u64) -> f64 {
    ns as f64 / 1e3
}

#[cfg(test)]
mod tests {
    use iogate_core::{AppId, FileId, Span};

    use super::*;

    fn at(us: u64) -> Time {
        Time::ZERO + Span::from_micros(us)
    }

    fn served(start: u64, end: u64) -> Served {
        Served {
            server: 2,
            app: AppId(1),
            file: FileId(9),
            op: Op::Write,
            offset: 4096,
            bytes: 512,
            requests: 3,
            start: at(start),
            end: at(end),
        }
    }

    fn events(trace: &[u8]) -> Vec<Value> {
        let trace: Value = serde_json::from_slice(trace).unwrap();
        trace["traceEvents"].as_array().unwrap().clone()
    }

    #[test]
    fn servers_and_ranks_have_their_slices() {
        let mut perfetto = Perfetto::new(Vec::new(), [(1, "ior \"1\"".to_owned())], EVENTS_MAX);
        // The second begins while the first is in service, the third when both have ended.
        for (start, end) in [(0, 10), (5, 12), (12, 13)] {
            perfetto.served(&served(start, end));
        }
        perfetto.phase(&Phase { app: AppId(1), rank: 3, io: true, start: at(0), end: at(13) });
        let events = events(&perfetto.finish().unwrap());
        let slices: Vec<&Value> = events.iter().filter(|event| event["ph"] == "X").collect();
        assert_eq!(slices.len(), 4);
        let first = json!({
            "name": "ior \"1\"", "ph": "X", "pid": 3, "tid": 1, "ts": 0.0, "dur": 10.0,
            "args": { "op": "write", "file": FileId(9).to_string(), "offset": 4096, "bytes": 512, "requests": 3 },
        });
        assert_eq!(slices[0], &first);
        assert_eq!(
            slices.iter().map(|slice| slice["tid"].as_u64().unwrap()).collect::<Vec<_>>(),
            [1, 2, 1, 4]
        );
        assert_eq!(slices[3]["name"], "I/O");
        let names: Vec<&Value> =
            events.iter().filter(|event| event["ph"] == "M").map(|event| &event["args"]["name"]).collect();
        assert_eq!(names, ["server 2", "dispatches 1", "dispatches 2", "ior \"1\"", "rank 3"]);
    }

    #[test]
    fn files_have_names_and_what_a_cache_transfers_is_of_no_request() {
        let names = [(FileId(9), "ior: file".to_owned()), (FileId(9), "other: file".to_owned())];
        let mut perfetto = Perfetto::new(Vec::new(), [], EVENTS_MAX).with_files(names);
        perfetto.served(&Served { requests: 0, ..served(0, 10) });
        let events = events(&perfetto.finish().unwrap());
        let args = &events.iter().find(|event| event["ph"] == "X").unwrap()["args"];
        assert_eq!(
            args,
            &json!({ "op": "write", "file": "ior: file", "offset": 4096, "bytes": 512, "by": "cache" })
        );
    }

    #[test]
    fn it_stops_with_a_mark() {
        let mut perfetto = Perfetto::new(Vec::new(), [], 2);
        (0..5).for_each(|i| perfetto.served(&served(i, i + 1)));
        let events = events(&perfetto.finish().unwrap());
        assert_eq!(events.iter().filter(|event| event["ph"] == "X").count(), 2);
        let marks: Vec<&Value> = events.iter().filter(|event| event["ph"] == "i").collect();
        assert_eq!(marks.len(), 1);
        assert_eq!((&marks[0]["name"], &marks[0]["ts"]), (&json!("stopped after 2 events"), &json!(3.0)));
    }

    #[test]
    fn an_empty_trace_is_a_trace() {
        assert!(events(&Perfetto::new(Vec::new(), [], 2).finish().unwrap()).is_empty());
    }

    #[test]
    fn an_error_in_writing_is_told_at_the_end() {
        let mut room = [0; 200];
        let mut perfetto = Perfetto::new(&mut room[..], [], EVENTS_MAX);
        (0..5).for_each(|i| perfetto.served(&served(i, i + 1)));
        assert_eq!(perfetto.finish().unwrap_err().kind(), io::ErrorKind::WriteZero);
    }
}
