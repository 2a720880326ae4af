//! A journal in etcd, for several coordinators of which one leads.
//!
//! Each coordinator has a lease in etcd. The one that has made the key `leader` under its lease leads; each of its writes is a transaction
//! that compares that key, so one that is deposed can write nothing, and therefore say nothing. It also
//! goes by its own clock: once its lease may be over, it does not lead, whatever it has written. Spoken is the JSON form of etcd's API,
//! version 3.

mod reach;

use std::collections::HashMap;
use std::error::Error;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use iogate_core::coord::journal::{Sum, VERSION};
use iogate_engine::lock;
use reach::{Failure, Reach};
use serde_json::{Value, json};

use super::{Journal, JournalError, Loaded, Record, Standing};
use crate::Endpoint;
use crate::system::since_boot;

/// The lease is kept, or tried for, so many times while it lasts.
const TIMES: u32 = 4;
/// How long to wait before a transaction is sent again that has had no answer.
const RETRY: Duration = Duration::from_millis(50);
/// Most operations of a transaction; etcd takes 128 if nothing else is set.
const OPERATIONS_MAX: usize = 100;
/// Records of an answer: however many there are, each answer comes in time.
const PAGE_RECORDS: usize = 1000;
/// A transaction with so many bytes of records gets no more of them; etcd takes 1.5 MiB if nothing else is set.
const RECORDS_BYTES: usize = 512 << 10;

/// A journal in etcd.
pub struct Etcd {
    shared: Arc<Shared>,
    campaign: Option<JoinHandle<()>>,
    has_begun: bool,
    /// How many transactions this has sent, each as often as it took.
    made: u64,
    /// How many of them when it was loaded.
    loaded_at: u64,
    /// The revision at which the last transaction was made, of whichever leader; 0: none was.
    last_revision: i64,
}

struct Shared {
    reach: Reach,
    /// Before all keys.
    prefix: String,
    /// What others are told.
    own: Endpoint,
    /// How long a leader that is gone is waited for.
    lease: Duration,
    state: Mutex<State>,
    wake: Condvar,
}

#[derive(Default)]
struct State {
    lead: Option<Lead>,
    leader: Option<Endpoint>,
    /// Before then, on [`since_boot`], others may lead, and this one does not.
    rests_until: Duration,
    is_stopping: bool,
}

impl State {
    fn rests(&self) -> bool {
        since_boot() < self.rests_until
    }
}

/// Being the leader.
#[derive(Clone, Copy)]
struct Lead {
    /// At which the key was made: no other leader has the same.
    revision: i64,
    /// The lease is not over before, on [`since_boot`].
    until: Duration,
}

/// A number as etcd writes it: as text.
fn number(value: &Value) -> Option<i64> {
    value.as_str().and_then(|text| text.parse().ok()).or_else(|| value.as_i64())
}

fn bytes(value: &Value) -> Option<Vec<u8>> {
    BASE64.decode(value.as_str()?).ok()
}

/// The record of a key with its value.
fn record(pair: &Value) -> Result<Record, JournalError> {
    let text = bytes(&pair["value"]).ok_or_else(|| "no base64".to_owned());
    text.and_then(|text| serde_json::from_slice(&text).map_err(|error| error.to_string())).map_err(|why| {
        let path = bytes(&pair["key"]).unwrap_or_default();
        JournalError::Damaged { path: String::from_utf8_lossy(&path).into_owned().into(), at: 0, why }
    })
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    fn key(&self, name: &str) -> String {
        BASE64.encode(format!("{}{name}", self.prefix))
    }

    /// Being the leader, if that is so now.
    fn lead(&self) -> Option<Lead> {
        let state = self.state();
        state.lead.filter(|lead| since_boot() < lead.until && !state.rests())
    }

    /// Tries to lead, and goes on leading, until it is to stop.
    fn campaign(&self) {
        let mut lease = None;
        loop {
            if self.state().rests() {
                self.state().lead = None;
                self.end(lease.take());
            } else if let Err(error) = self.step(&mut lease) {
                tracing::warn!("{error}");
            }
            let state = self.state();
            let goes_on = |state: &mut State| !(state.is_stopping || lease.is_some() && state.rests());
            let waited = self.wake.wait_timeout_while(state, self.lease / TIMES, goes_on);
            if waited.unwrap_or_else(PoisonError::into_inner).0.is_stopping {
                break;
            }
        }
        self.end(lease);
    }

    /// Ends a lease, so that the next leader need not wait for that.
    fn end(&self, lease: Option<i64>) {
        if let Some(lease) = lease {
            let _ = self.reach.ask("lease/revoke", &json!({ "ID": lease }));
        }
    }

    fn step(&self, lease: &mut Option<i64>) -> Result<(), Box<dyn Error>> {
        let sent = since_boot();
        if let Some(id) = *lease {
            let kept = self.reach.ask("lease/keepalive", &json!({ "ID": id }))?;
            if number(&kept["result"]["TTL"]).is_none_or(|ttl| ttl <= 0) {
                *lease = None;
                self.state().lead = None;
            }
        }
        let id = match *lease {
            Some(id) => id,
            None => {
                let granted = self.reach.ask("lease/grant", &json!({ "TTL": self.lease.as_secs() }))?;
                let id = number(&granted["ID"]).ok_or_else(|| format!("etcd gives no lease: {granted}"))?;
                *lease.insert(id)
            }
        };
        if let Some(lead) = &mut self.state().lead {
            lead.until = sent + self.lease;
            return Ok(());
        }
        let key = self.key("leader");
        let tried = self.reach.ask(
            "kv/txn",
            &json!({
                "compare": [{ "key": key, "target": "CREATE", "result": "EQUAL", "create_revision": "0" }],
                "success": [{ "request_put": {
                    "key": key, "value": BASE64.encode(self.own.to_string()), "lease": id.to_string(),
                } }],
                "failure": [{ "request_range": { "key": key } }],
            }),
        )?;
        let mut state = self.state();
        if tried["succeeded"] == Value::Bool(true) {
            let revision =
                number(&tried["header"]["revision"]).ok_or("etcd gives an answer without a revision")?;
            state.lead = Some(Lead { revision, until: sent + self.lease });
            state.leader = None;
            return Ok(());
        }
        let found = &tried["responses"][0]["response_range"]["kvs"][0];
        if number(&found["lease"]) == Some(id) {
            // It was made by an attempt whose answer was lost.
            let revision = number(&found["create_revision"]).ok_or("etcd has a key without a revision")?;
            state.lead = Some(Lead { revision, until: sent + self.lease });
            return Ok(());
        }
        let leader = bytes(&found["value"]).and_then(|text| String::from_utf8(text).ok()?.parse().ok());
        state.leader = leader;
        Ok(())
    }
}

impl Etcd {
    /// Begins to try to lead. Coordinators with the same `name` are one; `own` is where clients reach this one; `lease`, in whole
    /// seconds and at least 2 (etcd's smallest), is how long the others wait for a leader that is gone. Fails if the
    /// system has no thread left; that etcd cannot be reached is no failure, but a reason to try again.
    pub fn new(urls: Vec<String>, name: &str, own: Endpoint, lease: Duration) -> io::Result<Etcd> {
        let shared = Arc::new(Shared {
            reach: Reach::new(urls),
            prefix: format!("/iogate/{name}/"),
            own,
            lease: Duration::from_secs(lease.as_secs().max(2)),
            state: Mutex::default(),
            wake: Condvar::new(),
        });
        let campaigner = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("iogate-etcd".into());
        let campaign = thread.spawn(move || campaigner.campaign())?;
        Ok(Etcd {
            shared,
            campaign: Some(campaign),
            has_begun: false,
            made: 0,
            loaded_at: 0,
            last_revision: 0,
        })
    }

    /// Has a transaction made if this coordinator leads; tries again while it does and etcd does not refuse it. Each compares the
    /// revision of the one before it, so one that is sent twice, or is delayed on its way, is made once, or never.
    fn commit(&mut self, operations: &[Value]) -> Result<(), JournalError> {
        self.made += 1;
        let began = since_boot();
        while let Some(lead) = self.shared.lead() {
            let (leader, last) = (self.shared.key("leader"), self.shared.key("last"));
            let own = BASE64.encode(format!("{}:{}", lead.revision, self.made));
            let put = json!({ "request_put": { "key": last, "value": own } });
            let success: Vec<&Value> = std::iter::once(&put).chain(operations).collect();
            let done = self.shared.reach.ask(
                "kv/txn",
                &json!({
                    "compare": [
                        { "key": leader, "target": "CREATE", "result": "EQUAL",
                            "create_revision": lead.revision.to_string() },
                        { "key": last, "target": "MOD", "result": "EQUAL",
                            "mod_revision": self.last_revision.to_string() },
                    ],
                    "success": success,
                    "failure": [{ "request_range": { "key": last } }],
                }),
            );
            let done = match done {
                Ok(done) => done,
                // Whether it was made is not known: the next attempt tells. A lease can be kept where nothing can be written.
                Err(Failure::Unanswered(why)) if since_boot() < began + 2 * self.shared.lease => {
                    tracing::warn!("{}", Failure::Unanswered(why));
                    std::thread::sleep(RETRY);
                    continue;
                }
                Err(failure) => return Err(self.failed("write to", failure)),
            };
            let found = &done["responses"][0]["response_range"]["kvs"][0];
            let told = number(&found["mod_revision"]);
            let revision = match done["succeeded"] == Value::Bool(true) {
                true => number(&done["header"]["revision"]),
                // Made by an attempt whose answer was lost.
                false if found["value"] == own => told,
                // One of before was made although this was not told. Its records are given again.
                false if told != Some(self.last_revision) && self.has_sent(lead, &found["value"]) => {
                    self.last_revision = told.unwrap_or(0);
                    continue;
                }
                false => None,
            };
            let Some(revision) = revision else { break };
            self.last_revision = revision;
            // What comes of it must not be said if another may lead by now.
            return self.shared.lead().map(drop).ok_or(JournalError::Deposed);
        }
        self.shared.state().lead = None;
        Err(JournalError::Deposed)
    }

    /// Whether this transaction, by what it has left at the key `last`, is one of those since the journal was loaded.
    fn has_sent(&self, lead: Lead, last: &Value) -> bool {
        let last = String::from_utf8(bytes(last).unwrap_or_default()).unwrap_or_default();
        let made = last.strip_prefix(&format!("{}:", lead.revision)).and_then(|made| made.parse().ok());
        made.is_some_and(|made: u64| made > self.loaded_at)
    }

    fn failed(&self, action: &'static str, failure: Failure) -> JournalError {
        let source = io::Error::other(failure);
        JournalError::Io { action, path: self.place().into(), source }
    }

    fn operation(&self, record: &Record) -> (String, Value) {
        let put = |name: String| {
            let (key, text) = (self.shared.key(&name), serde_json::to_vec(record).unwrap_or_default());
            let value = BASE64.encode(text);
            (name, json!({ "request_put": { "key": key, "value": value } }))
        };
        let delete = |name: String| {
            let key = self.shared.key(&name);
            (name, json!({ "request_delete_range": { "key": key } }))
        };
        match record {
            Record::Begin { .. } => put("state/begin".into()),
            Record::TokenGiven(_) => put("state/token".into()),
            Record::Session(session) => put(format!("state/session/{:020}", session.number)),
            Record::SessionGone(number) => delete(format!("state/session/{number:020}")),
            Record::Claim(claim) => put(format!("state/claim/{:020}", claim.claim)),
            Record::Gone(claim) => delete(format!("state/claim/{claim:020}")),
        }
    }
}

impl Journal for Etcd {
    fn standing(&mut self) -> Standing {
        match self.shared.lead() {
            Some(_) => Standing::Leads,
            None => Standing::Follows(self.shared.state().leader.clone()),
        }
    }

    fn resign(&mut self) {
        // The others try four times as often.
        self.shared.state().rests_until = since_boot() + self.shared.lease;
        self.shared.wake.notify_all();
    }

    fn load(&mut self) -> Result<Loaded, JournalError> {
        (self.has_begun, self.loaded_at) = (false, self.made);
        let ask = |path, question: &Value| {
            self.shared.reach.ask(path, question).map_err(|failure| self.failed("read", failure))
        };
        let to = self.shared.key("state0");
        let page = |from: &str| json!({ "key": from, "range_end": to, "limit": PAGE_RECORDS.to_string() });
        // A transaction: so that both are of the same moment, as all further pages are.
        let mut found = ask(
            "kv/txn",
            &json!({ "success": [
                { "request_range": { "key": self.shared.key("last") } },
                { "request_range": page(&self.shared.key("state/")) },
            ] }),
        )?;
        let revision = found["header"]["revision"].take();
        let range = |index: usize| &found["responses"][index]["response_range"];
        let last_revision = number(&range(0)["kvs"][0]["mod_revision"]).unwrap_or(0);
        let mut records = found["responses"][1]["response_range"].take();
        let mut sum = Sum::default();
        loop {
            let pairs = records["kvs"].as_array().map_or(&[][..], Vec::as_slice);
            for pair in pairs {
                let another =
                    |found| JournalError::Version { path: self.place().into(), found, expected: VERSION };
                sum.add(record(pair)?).map_err(another)?;
            }
            let (Some(last), Value::Bool(true)) = (pairs.last(), &records["more"]) else { break };
            let after = [&bytes(&last["key"]).unwrap_or_default()[..], &[0]].concat();
            let mut next = page(&BASE64.encode(after));
            next["revision"] = revision.clone();
            records = ask("kv/range", &next)?;
        }
        self.last_revision = last_revision;
        Ok(sum.finish(false))
    }

    fn append(
        &mut self,
        records: &[Record],
        _all: &mut dyn FnMut() -> Vec<Record>,
    ) -> Result<(), JournalError> {
        // What it begins with is there already.
        let is_first = !std::mem::replace(&mut self.has_begun, true);
        let new = records.iter().filter(|record| !is_first || matches!(record, Record::Begin { .. }));
        let new: Vec<_> = new.collect();
        let mut operations: HashMap<String, Value> = HashMap::new();
        let (mut token, mut bytes) = (0, 0);
        let mut left = new.len();
        for record in new {
            if let Record::Claim(claim) = record {
                token = token.max(claim.held.map_or(0, |held| held.token));
            }
            // A transaction has each key once: the last word counts.
            let (key, operation) = self.operation(record);
            bytes += operation["request_put"]["value"].as_str().map_or(0, str::len);
            operations.insert(key, operation);
            left -= 1;
            if operations.len() >= OPERATIONS_MAX || bytes >= RECORDS_BYTES || left == 0 {
                self.note_token(&mut operations, token);
                bytes = 0;
                self.commit(&operations.drain().map(|(_, operation)| operation).collect::<Vec<_>>())?;
            }
        }
        Ok(())
    }

    fn place(&self) -> String {
        format!("etcd at {}, {}", self.shared.reach.place(), self.shared.prefix)
    }
}

impl Etcd {
    /// A token outlives the claim that had it.
    fn note_token(&self, operations: &mut HashMap<String, Value>, token: u64) {
        if token > 0 {
            operations.extend([self.operation(&Record::TokenGiven(token))]);
        }
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        self.shared.state().is_stopping = true;
        self.shared.wake.notify_all();
        if let Some(campaign) = self.campaign.take() {
            // A panic there was reported by its thread.
            let _ = campaign.join();
        }
    }
}

#[cfg(test)]
mod tests;
