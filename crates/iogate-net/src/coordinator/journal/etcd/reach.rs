//! Reaching etcd at any of its addresses: the one that answered last first, and the others beside it if it is slow.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use iogate_engine::Workers;
use serde_json::Value;

/// How long a node may take to answer.
const ANSWER_MAX: Duration = Duration::from_secs(2);
/// After so long without an answer the next node is asked too.
const NEXT_AFTER: Duration = Duration::from_millis(200);
/// Most bytes of an answer.
const ANSWER_BYTES_MAX: u64 = 1 << 30;

/// etcd's nodes.
pub(super) struct Reach {
    urls: Vec<String>,
    agent: ureq::Agent,
    /// The node that answered last.
    last: AtomicUsize,
    workers: Arc<Workers>,
}

impl Reach {
    pub(super) fn new(urls: Vec<String>) -> Reach {
        let config = ureq::Agent::config_builder().timeout_global(Some(ANSWER_MAX)).build();
        let urls: Vec<_> = urls.into_iter().map(|url| url.trim_end_matches('/').to_owned()).collect();
        // Two threads ask, and what they no longer wait for may linger.
        let threads_max = 4 * urls.len().max(1);
        Reach {
            urls,
            agent: config.into(),
            last: AtomicUsize::new(0),
            workers: Workers::new("iogate-etcd-ask", threads_max, || {}),
        }
    }

    /// Where etcd is, for people.
    pub(super) fn place(&self) -> String {
        self.urls.join(", ")
    }

    /// Asks until a node answers. One that takes long, or whose answer is lost, may carry the request out later, even after others: so
    /// nothing may be asked that does harm then.
    pub(super) fn ask(&self, path: &str, question: &Value) -> Result<Value, String> {
        let question: Arc<[u8]> = question.to_string().into_bytes().into();
        let first = self.last.load(Ordering::Relaxed);
        let mut order = (0..self.urls.len()).map(|step| (first + step) % self.urls.len());
        let mut left = self.urls.len();
        let (tell, told) = channel();
        let mut failures = Vec::new();
        while failures.len() < self.urls.len() {
            if let Some(index) = order.next() {
                left -= 1;
                let url = format!("{}/v3/{path}", self.urls[index]);
                let (agent, question, tell) = (self.agent.clone(), Arc::clone(&question), tell.clone());
                self.workers.run(move || {
                    // Another node may have answered before.
                    let _ = tell.send((index, ask(&agent, &url, &question)));
                });
            }
            let patience = if left > 0 { NEXT_AFTER } else { 2 * ANSWER_MAX };
            match told.recv_timeout(patience) {
                Ok((index, Ok(answer))) => {
                    self.last.store(index, Ordering::Relaxed);
                    return Ok(answer);
                }
                Ok((index, Err(error))) => failures.push(format!("{}: {error}", self.urls[index])),
                Err(RecvTimeoutError::Timeout) if left > 0 => {}
                Err(_) => {
                    failures.push("no answer in time".into());
                    break;
                }
            }
        }
        Err(failures.join("; "))
    }
}

fn ask(agent: &ureq::Agent, url: &str, question: &[u8]) -> Result<Value, String> {
    let asked = || -> Result<Value, Box<dyn std::error::Error>> {
        let mut answer = agent.post(url).send(question)?;
        let bytes = answer.body_mut().with_config().limit(ANSWER_BYTES_MAX).read_to_vec()?;
        Ok(serde_json::from_slice(&bytes)?)
    };
    asked().map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::time::Instant;

    use super::*;

    /// Answers each request with `{}`.
    fn node(listener: TcpListener) {
        let serve = |mut stream: TcpStream| {
            let (mut bytes, mut come) = ([0; 4096], Vec::new());
            while let Ok(count @ 1..) = stream.read(&mut bytes) {
                come.extend_from_slice(&bytes[..count]);
                let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}";
                if come.ends_with(b"{}") && stream.write_all(answer).is_err() {
                    break;
                }
            }
        };
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                std::thread::spawn(move || serve(stream));
            }
        });
    }

    fn url(listener: &TcpListener) -> String {
        format!("http://{}/", listener.local_addr().unwrap())
    }

    #[test]
    fn a_node_that_never_answers_is_waited_for_once() {
        let listen = || TcpListener::bind("127.0.0.1:0").unwrap();
        // The kernel takes connections, and nobody reads them.
        let (silent, live) = (listen(), listen());
        let reach = Reach::new(vec![url(&silent), url(&live)]);
        node(live);
        let began = Instant::now();
        for _ in 0..50 {
            assert_eq!(reach.ask("kv/txn", &serde_json::json!({})), Ok(serde_json::json!({})));
        }
        assert!(began.elapsed() < 20 * ANSWER_MAX, "{:?}", began.elapsed());
        assert_eq!(reach.last.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn each_node_s_reason_is_told() {
        let gone = TcpListener::bind("127.0.0.1:0").unwrap();
        let urls = vec![url(&gone), url(&gone)];
        drop(gone);
        let error = Reach::new(urls).ask("kv/txn", &serde_json::json!({})).unwrap_err();
        assert_eq!(error.matches("http://127.0.0.1:").count(), 2, "{error}");
    }
}
