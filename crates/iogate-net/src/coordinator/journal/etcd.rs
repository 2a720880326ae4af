//! A journal in etcd, for several coordinators of which one leads.
//!
//! Each coordinator has a lease in etcd. The one that has made the key `leader` under its lease leads; each of its writes is a transaction
//! that compares that key, so one that is deposed can write nothing, and therefore say nothing. It also
//! goes by its own clock: once its lease may be over, it does not lead, whatever it has written. Spoken is the JSON form of etcd's API,
//! version 3.

use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};

use super::record::Sum;
use super::{Journal, JournalError, Loaded, Record, Standing};
use crate::Endpoint;

/// The lease is kept, or tried for, so many times while it lasts.
const TIMES: u32 = 4;
/// How long etcd may take to answer.
const ANSWER_MAX: Duration = Duration::from_secs(2);
/// Most operations of a transaction; etcd takes 128 if nothing else is set.
const OPERATIONS_MAX: usize = 100;
/// Most bytes of an answer.
const ANSWER_BYTES_MAX: u64 = 1 << 30;

/// A journal in etcd.
pub struct Etcd {
    shared: Arc<Shared>,
    campaign: Option<JoinHandle<()>>,
    has_begun: bool,
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
    is_stopping: bool,
}

/// Being the leader.
#[derive(Clone, Copy)]
struct Lead {
    /// At which the key was made: no other leader has the same.
    revision: i64,
    /// The lease is not over before.
    until: Instant,
}

/// Reaches etcd, at any of its addresses.
struct Reach {
    urls: Vec<String>,
    agent: ureq::Agent,
}

impl Reach {
    /// Asks until somebody answers.
    fn ask(&self, path: &str, question: &Value) -> Result<Value, String> {
        let question = question.to_string();
        let mut failures = Vec::new();
        for url in &self.urls {
            let asked = || -> Result<Value, Box<dyn std::error::Error>> {
                let mut answer = self.agent.post(format!("{url}/v3/{path}")).send(question.as_bytes())?;
                let bytes = answer.body_mut().with_config().limit(ANSWER_BYTES_MAX).read_to_vec()?;
                Ok(serde_json::from_slice(&bytes)?)
            };
            match asked() {
                Ok(answer) => return Ok(answer),
                Err(error) => failures.push(format!("{url}: {error}")),
            }
        }
        Err(failures.join("; "))
    }
}

/// A number as etcd writes it: as text.
fn number(value: &Value) -> Option<i64> {
    value.as_str().and_then(|text| text.parse().ok()).or_else(|| value.as_i64())
}

fn bytes(value: &Value) -> Option<Vec<u8>> {
    BASE64.decode(value.as_str()?).ok()
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn key(&self, name: &str) -> String {
        BASE64.encode(format!("{}{name}", self.prefix))
    }

    /// Being the leader, if that is so now.
    fn lead(&self) -> Option<Lead> {
        self.state().lead.filter(|lead| Instant::now() < lead.until)
    }

    /// Tries to lead, and goes on leading, until it is to stop.
    fn campaign(&self) {
        let mut lease = None;
        loop {
            if let Err(error) = self.step(&mut lease) {
                tracing::warn!("etcd does not answer: {error}");
            }
            let state = self.state();
            let (state, _) = self
                .wake
                .wait_timeout_while(state, self.lease / TIMES, |state| !state.is_stopping)
                .unwrap_or_else(PoisonError::into_inner);
            if state.is_stopping {
                break;
            }
        }
        // So that the next one need not wait for it to end.
        if let Some(lease) = lease {
            let _ = self.reach.ask("lease/revoke", &json!({ "ID": lease }));
        }
    }

    fn step(&self, lease: &mut Option<i64>) -> Result<(), String> {
        let sent = Instant::now();
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
                let id = number(&granted["ID"]).ok_or_else(|| format!("no lease: {granted}"))?;
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
            let revision = number(&tried["header"]["revision"]).ok_or("an answer without a revision")?;
            state.lead = Some(Lead { revision, until: sent + self.lease });
            state.leader = None;
            return Ok(());
        }
        let found = &tried["responses"][0]["response_range"]["kvs"][0];
        if number(&found["lease"]) == Some(id) {
            // It was made by an attempt whose answer was lost.
            let revision = number(&found["create_revision"]).ok_or("a key without a revision")?;
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
    pub fn new(urls: Vec<String>, name: &str, own: Endpoint, lease: Duration) -> std::io::Result<Etcd> {
        let config = ureq::Agent::config_builder().timeout_global(Some(ANSWER_MAX)).build();
        let urls = urls.into_iter().map(|url| url.trim_end_matches('/').to_owned()).collect();
        let shared = Arc::new(Shared {
            reach: Reach { urls, agent: config.into() },
            prefix: format!("/iogate/{name}/"),
            own,
            lease: Duration::from_secs(lease.as_secs().max(2)),
            state: Mutex::default(),
            wake: Condvar::new(),
        });
        let campaigner = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("iogate-etcd".into());
        let campaign = thread.spawn(move || campaigner.campaign())?;
        Ok(Etcd { shared, campaign: Some(campaign), has_begun: false })
    }

    /// Has a transaction made if this coordinator leads; tries again while it does.
    fn commit(&self, operations: &[&Value]) -> Result<(), JournalError> {
        while let Some(lead) = self.shared.lead() {
            let compare = json!({
                "key": self.shared.key("leader"), "target": "CREATE", "result": "EQUAL",
                "create_revision": lead.revision.to_string(),
            });
            let done =
                self.shared.reach.ask("kv/txn", &json!({ "compare": [compare], "success": operations }));
            match done {
                // What comes of it must not be said if another may lead by now.
                Ok(done) if done["succeeded"] == Value::Bool(true) => {
                    return self.shared.lead().map(drop).ok_or(JournalError::Deposed);
                }
                Ok(_) => break,
                // Whether it was made is not known; made twice it is the same.
                Err(error) => {
                    tracing::warn!("etcd does not answer: {error}");
                    std::thread::sleep(Duration::from_millis(50));
                }
            }
        }
        self.shared.state().lead = None;
        Err(JournalError::Deposed)
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

    fn load(&mut self) -> Result<Loaded, JournalError> {
        self.has_begun = false;
        let (from, to) = (self.shared.key("state/"), self.shared.key("state0"));
        let found = self.shared.reach.ask("kv/range", &json!({ "key": from, "range_end": to }));
        let found = found.map_err(|error| {
            tracing::warn!("etcd does not answer: {error}");
            JournalError::Deposed
        })?;
        let mut sum = Sum::default();
        for pair in found["kvs"].as_array().into_iter().flatten() {
            let record = bytes(&pair["value"]).ok_or_else(|| "no base64".to_owned());
            let record =
                record.and_then(|text| serde_json::from_slice(&text).map_err(|error| error.to_string()));
            let path =
                || bytes(&pair["key"]).map_or_else(String::new, |key| String::from_utf8_lossy(&key).into());
            sum.add(record.map_err(|why| JournalError::Damaged { path: path().into(), at: 0, why })?);
        }
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
        let mut token = 0;
        let mut left = new.len();
        for record in new {
            if let Record::Claim(claim) = record {
                token = token.max(claim.held.map_or(0, |held| held.token));
            }
            // A transaction has each key once: the last word counts.
            let (key, operation) = self.operation(record);
            operations.insert(key, operation);
            left -= 1;
            if operations.len() >= OPERATIONS_MAX || left == 0 {
                self.note_token(&mut operations, token);
                self.commit(&operations.values().collect::<Vec<_>>())?;
                operations.clear();
            }
        }
        Ok(())
    }

    fn place(&self) -> String {
        format!("etcd at {}, {}", self.shared.reach.urls.join(", "), self.shared.prefix)
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
