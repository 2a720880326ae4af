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
/// Of a refusal, so much is for people.
const REASON_BYTES_MAX: usize = 400;

/// Why there is no answer to go by.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Failure {
    /// A node says no, and asked again it would: there is no room, say, or too much at once.
    #[error("etcd refuses: {0}")]
    Refused(String),
    /// Asked again, it may answer.
    #[error("etcd does not answer: {0}")]
    Unanswered(String),
}

impl Failure {
    fn because(error: impl std::fmt::Display) -> Failure {
        Failure::Unanswered(error.to_string())
    }
}

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
        // A status comes with etcd's reason.
        let config = ureq::Agent::config_builder().http_status_as_error(false);
        let config = config.timeout_global(Some(ANSWER_MAX)).build();
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
    /// nothing may be asked that does harm then; nor is it certain that what is refused was not carried out.
    pub(super) fn ask(&self, path: &str, question: &Value) -> Result<Value, Failure> {
        let question: Arc<[u8]> = question.to_string().into_bytes().into();
        let first = self.last.load(Ordering::Relaxed);
        let mut order = (0..self.urls.len()).map(|step| (first + step) % self.urls.len());
        let mut left = self.urls.len();
        let (tell, told) = channel();
        let (mut failures, mut is_refused) = (Vec::new(), false);
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
                Ok((index, Err(failure))) => {
                    is_refused |= matches!(failure, Failure::Refused(_));
                    let (Failure::Refused(why) | Failure::Unanswered(why)) = failure;
                    failures.push(format!("{}: {why}", self.urls[index]));
                }
                Err(RecvTimeoutError::Timeout) if left > 0 => {}
                Err(_) => {
                    failures.push("no answer in time".into());
                    break;
                }
            }
        }
        let why = failures.join("; ");
        Err(if is_refused { Failure::Refused(why) } else { Failure::Unanswered(why) })
    }
}

fn ask(agent: &ureq::Agent, url: &str, question: &[u8]) -> Result<Value, Failure> {
    let mut answer = agent.post(url).send(question).map_err(Failure::because)?;
    let bytes = answer.body_mut().with_config().limit(ANSWER_BYTES_MAX).read_to_vec();
    let bytes = bytes.map_err(Failure::because)?;
    let status = answer.status();
    if !status.is_success() {
        let text =
            format!("{status}: {}", String::from_utf8_lossy(&bytes[..bytes.len().min(REASON_BYTES_MAX)]));
        return Err(if status.is_client_error() {
            Failure::Refused(text)
        } else {
            Failure::Unanswered(text)
        });
    }
    serde_json::from_slice(&bytes).map_err(Failure::because)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::time::Instant;

    use serde_json::json;

    use super::super::tests::node;
    use super::*;

    fn url(listener: &TcpListener) -> String {
        format!("http://{}/", listener.local_addr().unwrap())
    }

    #[test]
    fn a_node_that_never_answers_is_waited_for_once() {
        let listen = || TcpListener::bind("127.0.0.1:0").unwrap();
        // The kernel takes connections, and nobody reads them.
        let (silent, live) = (listen(), listen());
        let reach = Reach::new(vec![url(&silent), url(&live)]);
        node(live, |_, _| (200, json!({})));
        let began = Instant::now();
        for _ in 0..50 {
            assert_eq!(reach.ask("kv/txn", &json!({})), Ok(json!({})));
        }
        assert!(began.elapsed() < 20 * ANSWER_MAX, "{:?}", began.elapsed());
        assert_eq!(reach.last.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn each_node_s_reason_is_told() {
        let gone = TcpListener::bind("127.0.0.1:0").unwrap();
        let urls = vec![url(&gone), url(&gone)];
        drop(gone);
        let error = Reach::new(urls).ask("kv/txn", &json!({})).unwrap_err();
        assert!(matches!(error, Failure::Unanswered(_)), "{error}");
        assert_eq!(error.to_string().matches("http://127.0.0.1:").count(), 2, "{error}");
    }
    #[test]
    fn a_refusal_is_no_silence() {
        let answers = |status| {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let url = url(&listener);
            node(listener, move |_, _| (status, json!({ "message": "no room" })));
            url
        };
        let ask = |statuses: &[u16]| {
            let urls = statuses.iter().map(|status| answers(*status)).collect();
            Reach::new(urls).ask("kv/txn", &json!({}))
        };
        let refused = ask(&[503, 429]).unwrap_err();
        assert!(matches!(&refused, Failure::Refused(why) if why.contains("no room")), "{refused}");
        let unanswered = ask(&[503, 503]).unwrap_err();
        assert!(matches!(unanswered, Failure::Unanswered(_)), "{unanswered}");
        assert!(ask(&[400, 200]).is_ok(), "another node takes it");
    }
}
