//! As much of HTTP/1.1 as a scrape needs: one request a connection, without a body.

use iogate_report::metrics::Form;

/// Most bytes of a request.
const HEAD_MAX: usize = 8 << 10;

/// What a request gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Metrics {
        form: Form,
        with_body: bool,
    },
    /// With this status.
    Refused(&'static str),
}

/// The answer to what has come so far; `None`: more must come.
pub(super) fn answer(request: &[u8]) -> Option<Answer> {
    let Some(end) = request.windows(4).position(|bytes| bytes == b"\r\n\r\n") else {
        return (request.len() > HEAD_MAX).then_some(Answer::Refused("431 Request Header Fields Too Large"));
    };
    let head = String::from_utf8_lossy(&request[..end]);
    let mut lines = head.split("\r\n");
    let mut words = lines.next().unwrap_or_default().split(' ');
    let (method, target, version) = (words.next(), words.next(), words.next());
    if !version.is_some_and(|version| version.starts_with("HTTP/1.")) || words.next().is_some() {
        return Some(Answer::Refused("400 Bad Request"));
    }
    let path = target.unwrap_or_default().split('?').next();
    if path != Some("/metrics") {
        return Some(Answer::Refused("404 Not Found"));
    }
    let with_body = match method {
        Some("GET") => true,
        Some("HEAD") => false,
        _ => return Some(Answer::Refused("405 Method Not Allowed")),
    };
    let accepted = lines.filter_map(|line| line.split_once(':')).any(|(name, value)| {
        name.eq_ignore_ascii_case("accept")
            && value.to_ascii_lowercase().contains("application/openmetrics-text")
    });
    let form = if accepted { Form::OpenMetrics } else { Form::Prometheus };
    Some(Answer::Metrics { form, with_body })
}

/// An answer's bytes. The connection ends with it.
pub(super) fn reply(status: &str, content_type: &str, body: &str, with_body: bool) -> Vec<u8> {
    let allow = if status.starts_with("405") { "Allow: GET, HEAD\r\n" } else { "" };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {}\r\n{allow}Connection: close\r\n\r\n",
        body.len()
    );
    let body = if with_body { body } else { "" };
    [head.as_bytes(), body.as_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_scrape_asks_is_answered_and_all_else_refused() {
        let metrics = |form, with_body| Some(Answer::Metrics { form, with_body });
        let refused = |status| Some(Answer::Refused(status));
        for (request, expected) in [
            ("", None),
            ("GET /metrics HTTP/1.1\r\nHost: a\r\n", None),
            ("GET /metrics HTTP/1.1\r\n\r\n", metrics(Form::Prometheus, true)),
            ("GET /metrics?a=b HTTP/1.0\r\nHost: a\r\n\r\n", metrics(Form::Prometheus, true)),
            ("HEAD /metrics HTTP/1.1\r\nAccept: text/plain\r\n\r\n", metrics(Form::Prometheus, false)),
            (
                "GET /metrics HTTP/1.1\r\naccept: Application/OpenMetrics-Text;version=1.0.0;q=0.75,*/*;q=0.1\r\n\r\n",
                metrics(Form::OpenMetrics, true),
            ),
            ("POST /metrics HTTP/1.1\r\n\r\n", refused("405 Method Not Allowed")),
            ("GET / HTTP/1.1\r\n\r\n", refused("404 Not Found")),
            ("GET /metricsx HTTP/1.1\r\n\r\n", refused("404 Not Found")),
            ("GET /metrics\r\n\r\n", refused("400 Bad Request")),
            ("GET /metrics HTTP/2\r\n\r\n", refused("400 Bad Request")),
            ("GET /metrics HTTP/1.1 x\r\n\r\n", refused("400 Bad Request")),
            ("\r\n\r\n", refused("400 Bad Request")),
        ] {
            assert_eq!(answer(request.as_bytes()), expected, "{request:?}");
        }
        assert_eq!(answer(b"\xff\xfe\r\n\r\n"), refused("400 Bad Request"));
        assert_eq!(answer(&[b'a'; HEAD_MAX]), None);
        assert_eq!(answer(&[b'a'; HEAD_MAX + 1]), refused("431 Request Header Fields Too Large"));
    }

    #[test]
    fn an_answer_says_how_long_it_is() {
        let text = String::from_utf8(reply("200 OK", "text/plain", "\u{e9}\n", true)).unwrap();
        assert_eq!(
            text,
            "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 3\r\nConnection: close\r\n\r\n\u{e9}\n"
        );
        let text = String::from_utf8(reply("200 OK", "text/plain", "abc", false)).unwrap();
        assert!(text.contains("Content-Length: 3\r\n") && text.ends_with("\r\n\r\n"));
    }
}
