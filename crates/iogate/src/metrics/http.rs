//! As much of HTTP/1.1 as a scrape and the live page need: one request a connection, without a body, and nothing that changes anything.

use std::net::IpAddr;

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
    /// A part of the page: its type, its content.
    File {
        content_type: &'static str,
        content: &'static str,
        with_body: bool,
    },
    /// What goes on, once a second, until the client goes.
    Events,
    /// With this status.
    Refused(&'static str),
}

/// The page's parts, by path.
const FILES: [(&str, &str, &str); 3] = [
    ("/", "text/html; charset=utf-8", include_str!("page.html")),
    ("/page.css", "text/css; charset=utf-8", include_str!("page.css")),
    ("/page.js", "text/javascript; charset=utf-8", include_str!("page.js")),
];

/// On every answer. A page of this takes scripts, styles and events from here alone, and is shown in no other page; no other page may
/// read any of it.
const HEADERS: &str = "Content-Security-Policy: default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
                       img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'\r\n\
                       Cross-Origin-Resource-Policy: same-origin\r\nX-Content-Type-Options: nosniff\r\n\
                       Referrer-Policy: no-referrer\r\nCache-Control: no-store\r\n";

/// The answer to what has come so far; `None`: more must come. Where `host` is given, this is on loopback: who asks must call it so, or
/// `localhost`, or by an address. A page from elsewhere, whose name was made to mean this machine, would call it by that name.
pub(super) fn answer(request: &[u8], host: Option<&str>) -> Option<Answer> {
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
    let headers: Vec<(&str, &str)> = lines.filter_map(|line| line.split_once(':')).collect();
    let values = |wanted: &'static str| {
        headers
            .iter()
            .filter(move |(name, _)| name.eq_ignore_ascii_case(wanted))
            .map(|(_, value)| value.trim())
    };
    if let Some(host) = host
        && !values("host").all(|asked| is_local(asked, host))
    {
        return Some(Answer::Refused("421 Misdirected Request"));
    }
    let path = target.unwrap_or_default().split('?').next().unwrap_or_default();
    let file = FILES.iter().find(|(name, ..)| *name == path);
    if file.is_none() && !["/metrics", "/events"].contains(&path) {
        return Some(Answer::Refused("404 Not Found"));
    }
    let with_body = match method {
        Some("GET") => true,
        Some("HEAD") if path != "/events" => false,
        _ => return Some(Answer::Refused("405 Method Not Allowed")),
    };
    if let Some(&(_, content_type, content)) = file {
        return Some(Answer::File { content_type, content, with_body });
    }
    if path == "/events" {
        return Some(Answer::Events);
    }
    let accepted =
        values("accept").any(|value| value.to_ascii_lowercase().contains("application/openmetrics-text"));
    let form = if accepted { Form::OpenMetrics } else { Form::Prometheus };
    Some(Answer::Metrics { form, with_body })
}

/// Whether a `Host` header names this machine's loopback, or is the name that was given for it.
fn is_local(asked: &str, given: &str) -> bool {
    let name = match asked.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => asked.split(':').next().unwrap_or_default(),
    };
    let is = |other: &str| name.eq_ignore_ascii_case(other);
    is("localhost") || is(given) || name.parse::<IpAddr>().is_ok()
}

/// An answer's bytes. The connection ends with it.
pub(super) fn reply(status: &str, content_type: &str, body: &str, with_body: bool) -> Vec<u8> {
    let allow = if status.starts_with("405") { "Allow: GET, HEAD\r\n" } else { "" };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {}\r\n{allow}{HEADERS}Connection: close\r\n\r\n",
        body.len()
    );
    let body = if with_body { body } else { "" };
    [head.as_bytes(), body.as_bytes()].concat()
}

/// What an answer with events begins with.
pub(super) fn events_begin() -> Vec<u8> {
    format!("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n{HEADERS}Connection: close\r\n\r\n").into()
}

/// One event. The text has no line breaks: JSON escapes them.
pub(super) fn event(json: &str) -> Vec<u8> {
    format!("data: {json}\n\n").into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_for_is_answered_and_all_else_refused() {
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
            ("GET /events HTTP/1.1\r\nAccept: text/event-stream\r\n\r\n", Some(Answer::Events)),
            ("HEAD /events HTTP/1.1\r\n\r\n", refused("405 Method Not Allowed")),
            ("POST /metrics HTTP/1.1\r\n\r\n", refused("405 Method Not Allowed")),
            ("PUT / HTTP/1.1\r\n\r\n", refused("405 Method Not Allowed")),
            ("GET /page HTTP/1.1\r\n\r\n", refused("404 Not Found")),
            ("GET /metricsx HTTP/1.1\r\n\r\n", refused("404 Not Found")),
            ("GET /metrics\r\n\r\n", refused("400 Bad Request")),
            ("GET /metrics HTTP/2\r\n\r\n", refused("400 Bad Request")),
            ("GET /metrics HTTP/1.1 x\r\n\r\n", refused("400 Bad Request")),
            ("\r\n\r\n", refused("400 Bad Request")),
        ] {
            assert_eq!(answer(request.as_bytes(), None), expected, "{request:?}");
        }
        let page = answer(b"GET / HTTP/1.1\r\n\r\n", None);
        assert!(matches!(page, Some(Answer::File { content, .. }) if content.starts_with("<!doctype html>")));
        assert_eq!(answer(b"\xff\xfe\r\n\r\n", None), refused("400 Bad Request"));
        assert_eq!(answer(&[b'a'; HEAD_MAX], None), None);
        assert_eq!(answer(&[b'a'; HEAD_MAX + 1], None), refused("431 Request Header Fields Too Large"));
    }

    /// A page of evil.example may ask for evil.example, and have that name mean 127.0.0.1.
    #[test]
    fn on_loopback_nobody_is_answered_who_calls_it_by_another_name() {
        let asked =
            |host: &str| answer(format!("GET / HTTP/1.1\r\nhost: {host}\r\n\r\n").as_bytes(), Some("node7"));
        for fine in ["localhost", "LOCALHOST:9464", "127.0.0.1:9464", "[::1]:9464", "node7:1", "192.0.2.1"] {
            assert!(matches!(asked(fine), Some(Answer::File { .. })), "{fine}");
        }
        for wrong in ["evil.example", "evil.example:9464", "", "localhost.evil.example", "[evil]:1"] {
            assert_eq!(asked(wrong), Some(Answer::Refused("421 Misdirected Request")), "{wrong}");
        }
        let twice = b"GET / HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n";
        assert_eq!(answer(twice, Some("node7")), Some(Answer::Refused("421 Misdirected Request")));
        assert!(matches!(answer(b"GET / HTTP/1.0\r\n\r\n", Some("node7")), Some(Answer::File { .. })));
    }

    #[test]
    fn an_answer_says_how_long_it_is_and_whose_it_is() {
        let text = String::from_utf8(reply("200 OK", "text/plain", "\u{e9}\n", true)).unwrap();
        assert!(
            text.starts_with("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 3\r\n"),
            "{text}"
        );
        assert!(text.ends_with("Connection: close\r\n\r\n\u{e9}\n"), "{text}");
        assert!(
            text.contains("Content-Security-Policy: default-src 'none'; ")
                && !text.contains("Access-Control")
        );
        let text = String::from_utf8(reply("200 OK", "text/plain", "abc", false)).unwrap();
        assert!(text.contains("Content-Length: 3\r\n") && text.ends_with("\r\n\r\n"));
        assert!(!String::from_utf8(events_begin()).unwrap().contains("Content-Length"));
    }

    #[test]
    fn the_page_needs_nothing_from_elsewhere() {
        for (path, _, content) in FILES {
            let elsewhere = content.replace("http://www.w3.org/2000/svg", "");
            assert!(
                !elsewhere.contains("//www") && !elsewhere.contains("http:") && !elsewhere.contains("https:"),
                "{path}"
            );
            for markup in [
                "innerHTML",
                "outerHTML",
                "insertAdjacentHTML",
                "document.write",
                "eval(",
                "<script>",
                "style=",
            ] {
                assert!(!content.contains(markup), "{path} has {markup}");
            }
        }
    }
}
