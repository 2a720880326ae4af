//! What an etcd that refuses to write, or says nothing, does to the journal: a small server of ours stands for it.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use iogate_core::coord::journal::SessionRecord;

use super::*;

/// Answers each request, of a path with a question, by `answer`: with a status and a body.
pub(super) fn node(
    listener: TcpListener,
    answer: impl Fn(&str, &Value) -> (u16, Value) + Send + Sync + 'static,
) {
    let answer = Arc::new(answer);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let answer = Arc::clone(&answer);
            std::thread::spawn(move || serve(stream, &*answer));
        }
    });
}

fn serve(mut stream: TcpStream, answer: &dyn Fn(&str, &Value) -> (u16, Value)) {
    let (mut bytes, mut come) = (vec![0; 1 << 16], Vec::new());
    while let Ok(count @ 1..) = stream.read(&mut bytes) {
        come.extend_from_slice(&bytes[..count]);
        let Some(head) = come.windows(4).position(|four| four == b"\r\n\r\n") else { continue };
        // A question that has not come whole is no JSON.
        let Ok(question) = serde_json::from_slice(&come[head + 4..]) else { continue };
        let path = String::from_utf8_lossy(&come[..head]).split(' ').nth(1).unwrap_or("").to_owned();
        let (status, body) = answer(&path, &question);
        let body = body.to_string();
        let head = format!("HTTP/1.1 {status} Word\r\nContent-Length: {}\r\n\r\n", body.len());
        if stream.write_all(format!("{head}{body}").as_bytes()).is_err() {
            break;
        }
        come.clear();
    }
}

/// What stands in for etcd: it takes transactions as long as the keys `leader` and `last` are as they say.
#[derive(Default)]
struct Store {
    /// So many of the next transactions are refused.
    refuses: AtomicUsize,
    /// So many of those are made all the same.
    makes: AtomicUsize,
    /// Revision and value of `last`.
    last: Mutex<(i64, Value)>,
    /// What has been written, as etcd gives it.
    kept: Mutex<BTreeMap<Vec<u8>, Value>>,
    /// Records that were put, and the largest transaction.
    puts: AtomicUsize,
    bytes_max: AtomicU64,
    /// Leases that were ended.
    ended: AtomicUsize,
}

fn take_one(count: &AtomicUsize) -> bool {
    count.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |count| count.checked_sub(1)).is_ok()
}

impl Store {
    fn answer(&self, path: &str, question: &Value) -> (u16, Value) {
        match path {
            "/v3/lease/grant" => return (200, json!({ "ID": "7" })),
            "/v3/lease/keepalive" => return (200, json!({ "result": { "TTL": "60" } })),
            "/v3/lease/revoke" => {
                self.ended.fetch_add(1, Ordering::SeqCst);
                return (200, json!({}));
            }
            "/v3/kv/txn" => {}
            "/v3/kv/range" => {
                assert_eq!(question["revision"], "1", "of the moment of the first page");
                return (200, self.range(question));
            }
            _ => return (200, json!({})),
        }
        let mut last = self.last.lock().unwrap();
        let compare = &question["compare"];
        if compare.is_null() || compare[1].is_null() {
            // To lead, or to load.
            let found = question["success"][1]["request_range"].as_object().map(
                |range| json!([{ "response_range": {} }, { "response_range": self.range(&json!(range)) }]),
            );
            let header = json!({ "revision": "1" });
            return (200, json!({ "succeeded": true, "header": header, "responses": found }));
        }
        self.bytes_max.fetch_max(question.to_string().len() as u64, Ordering::SeqCst);
        let is_refused = take_one(&self.refuses);
        let is_made = !is_refused || take_one(&self.makes);
        let is_next = number(&compare[1]["mod_revision"]) == Some(last.0);
        if is_next && is_made {
            let puts = question["success"].as_array().unwrap();
            *last = (last.0 + 1, puts[0]["request_put"]["value"].clone());
            self.puts.fetch_add(puts.len() - 1, Ordering::SeqCst);
            let mut kept = self.kept.lock().unwrap();
            kept.extend(puts[1..].iter().map(|put| {
                let pair = &put["request_put"];
                (bytes(&pair["key"]).unwrap(), pair.clone())
            }));
        }
        let (revision, value) = &*last;
        match (is_refused, is_next) {
            (true, _) => (429, json!({ "message": "etcdserver: mvcc: database space exceeded" })),
            (false, true) => {
                (200, json!({ "succeeded": true, "header": { "revision": revision.to_string() } }))
            }
            (false, false) => {
                let found = json!({ "value": value, "mod_revision": revision.to_string() });
                (200, json!({ "responses": [{ "response_range": { "kvs": [found] } }] }))
            }
        }
    }
}

impl Store {
    /// The records from a key on, at most as many as the question says.
    fn range(&self, question: &Value) -> Value {
        let (from, limit) = (bytes(&question["key"]).unwrap(), number(&question["limit"]).unwrap() as usize);
        let kept = self.kept.lock().unwrap();
        let pairs: Vec<&Value> = kept.range(from..).map(|(_, pair)| pair).take(limit + 1).collect();
        json!({ "kvs": pairs[..pairs.len().min(limit)], "more": pairs.len() > limit })
    }
}

/// A journal that leads, in a stand-in of etcd.
fn leading() -> (Etcd, Arc<Store>) {
    leading_for(Duration::from_secs(60))
}

/// The same, with such a lease.
fn leading_for(lease: Duration) -> (Etcd, Arc<Store>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let store = Arc::new(Store::default());
    let this = Arc::clone(&store);
    node(listener, move |path, question| this.answer(path, question));
    let own = Endpoint::Unix("/nowhere".into());
    let mut journal = Etcd::new(vec![url], "test", own, lease).unwrap();
    wait_to_lead(&mut journal);
    journal.load().unwrap();
    let begin = Record::Begin { version: 1, token: 0, number: 0, clock_offset: 0, is_incomplete: false };
    journal.append(&[begin], &mut Vec::new).unwrap();
    (journal, store)
}

fn wait_to_lead(journal: &mut Etcd) {
    while journal.standing() != Standing::Leads {
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn session(number: u64, name: String) -> Record {
    Record::Session(SessionRecord { number, secret: [0; 16], uid: 0, gid: 0, name })
}

#[test]
fn what_etcd_refuses_is_an_error_and_can_be_written_later() {
    for made_all_the_same in [0, 1] {
        let (mut journal, store) = leading();
        store.refuses.store(2, Ordering::SeqCst);
        store.makes.store(made_all_the_same, Ordering::SeqCst);
        let records = [session(1, "one".into())];
        for _ in 0..2 {
            let refused = journal.append(&records, &mut Vec::new).unwrap_err();
            assert!(matches!(refused, JournalError::Io { .. }), "{refused}");
            assert!(refused.to_string().contains("database space exceeded"), "{refused}");
        }
        journal.append(&records, &mut Vec::new).unwrap();
        journal.append(&[session(2, "two".into())], &mut Vec::new).unwrap();
        assert_eq!(store.puts.load(Ordering::SeqCst), 3 + made_all_the_same, "with that of the beginning");
        assert_eq!(journal.standing(), Standing::Leads);
    }
}

#[test]
fn no_transaction_is_larger_than_etcd_takes() {
    let (mut journal, store) = leading();
    let records: Vec<_> = (0..90).map(|number| session(number, "n".repeat(30 << 10))).collect();
    journal.append(&records, &mut Vec::new).unwrap();
    assert_eq!(store.puts.load(Ordering::SeqCst), 1 + records.len());
    let most = store.bytes_max.load(Ordering::SeqCst);
    assert!(most < 1 << 20, "{most} bytes");
}

#[test]
fn all_is_loaded_however_much_there_is() {
    for count in [0, 1, PAGE_RECORDS - 1, PAGE_RECORDS, 2 * PAGE_RECORDS, 2 * PAGE_RECORDS + 17] {
        let (mut journal, _store) = leading();
        let records: Vec<_> = (1..=count as u64).map(|number| session(number, "name".into())).collect();
        journal.append(&records, &mut Vec::new).unwrap();
        let loaded = journal.load().unwrap();
        assert_eq!(loaded.sessions.len(), count);
    }
}

#[test]
fn what_another_version_has_written_is_not_loaded() {
    let (mut journal, _store) = leading();
    let version = VERSION + 1;
    let begin = Record::Begin { version, token: 0, number: 0, clock_offset: 0, is_incomplete: false };
    journal.append(&[begin], &mut Vec::new).unwrap();
    let error = journal.load().unwrap_err();
    assert!(matches!(error, JournalError::Version { found, .. } if found == version), "{error}");
}

#[test]
fn who_resigns_has_others_lead_for_a_while() {
    let (mut journal, store) = leading_for(Duration::from_secs(2));
    let resigned = since_boot();
    journal.resign();
    assert_eq!(journal.standing(), Standing::Follows(None));
    while store.ended.load(Ordering::SeqCst) == 0 {
        std::thread::sleep(Duration::from_millis(5));
    }
    wait_to_lead(&mut journal);
    assert!(since_boot() >= resigned + Duration::from_secs(2));
    assert_eq!(store.ended.load(Ordering::SeqCst), 1);
}
