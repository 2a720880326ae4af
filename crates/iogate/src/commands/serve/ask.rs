//! Asking a server how it is, and telling it what to change.

use std::fmt::{Display, Write};
use std::time::Duration;

use anyhow::Context;
use iogate_core::stats::summary::Summary;
use iogate_net::Endpoint;
use iogate_net::client::{Client, ClientError, ClientOptions, Receiving};
use iogate_net::server::{ConnectionStatus, Status};
use iogate_net::transport::ConnectError;
use iogate_net::transport::auth::{Credential, Munge};
use iogate_report::{Table, status, units};
use serde::de::DeserializeOwned;

/// The errno of a server that wants another proof.
const DENIED: i32 = rustix::io::Errno::ACCESS.raw_os_error();

/// Asks a server how it is.
pub(crate) fn status_of(endpoint: &Endpoint, patience: Duration) -> anyhow::Result<Status> {
    read_status(endpoint, &client(endpoint, "", patience)?)
}

/// As [`status_of`], of a server for which the client's proof is known.
pub(crate) fn status_with(
    endpoint: &Endpoint,
    options: ClientOptions,
    patience: Duration,
) -> anyhow::Result<Status> {
    read_status(endpoint, &Client::connect(endpoint, asking(options, "", patience))?)
}

/// Asks a server by a client that is connected.
pub(crate) fn read_status(endpoint: &Endpoint, client: &Client) -> anyhow::Result<Status> {
    let json = client.status();
    let json = json.with_context(|| format!("the server at {endpoint} does not say how it is"))?;
    understood(format_args!("the server at {endpoint}"), &json)
}

/// What somebody answers in JSON.
pub(crate) fn understood<T: DeserializeOwned>(who: impl Display, json: &[u8]) -> anyhow::Result<T> {
    serde_json::from_slice(json).with_context(|| format!("{who} answers in another version's words"))
}

fn asking(options: ClientOptions, export: &str, patience: Duration) -> ClientOptions {
    ClientOptions {
        name: format!("iogate, pid {}", std::process::id()),
        export: export.into(),
        connect_timeout: patience,
        retry_for: patience,
        receiving: Receiving::Inline,
        ..options
    }
}

/// Changes the settings of the first export of a server for which the client's proof is known. Fails with the server's own words.
pub(crate) fn configure_with(
    endpoint: &Endpoint,
    options: ClientOptions,
    settings: &str,
    patience: Duration,
) -> anyhow::Result<()> {
    Client::connect(endpoint, asking(options, "", patience))?.configure(settings).map_err(anyhow::Error::from)
}

/// A client that asks. Over TCP it proves itself by MUNGE only where it must: not every node has that.
pub(crate) fn client(endpoint: &Endpoint, export: &str, patience: Duration) -> anyhow::Result<Client> {
    let connect = |auth| {
        let options = ClientOptions { auth, ..ClientOptions::default() };
        Client::connect(endpoint, asking(options, export, patience))
    };
    if matches!(endpoint, Endpoint::Unix(_)) {
        return Ok(connect(Credential::Socket)?);
    }
    match connect(Credential::None) {
        Err(ClientError::Connect(ConnectError::Refused { source, .. }))
            if source.raw_os_error() == Some(DENIED) =>
        {
            Ok(connect(Credential::Munge(Munge::new(None)))?)
        }
        connected => Ok(connected?),
    }
}

/// What the status of a gate has only if `all` is asked for.
pub(crate) fn more(gate: &Summary, all: bool) -> String {
    gate.choice.as_ref().filter(|_| all).map_or_else(String::new, status::considered)
}

/// A server's status for people.
pub(crate) fn shown(status: &Status, all: bool) -> String {
    let mut out = String::new();
    let mut line = |name: &str, value: String| writeln!(out, "{name:<12}{value}").expect("text grows");
    let up = units::time(status.up_ms as f64 * 1e6);
    let role = if status.nodes > 1 {
        format!("forwarder {} of {}, ", status.node, status.nodes)
    } else {
        String::new()
    };
    line("server", format!("{role}up for {up}"));
    let (sessions, connections) = (status.sessions as u64, status.connection_count as u64);
    let connections = units::counted(connections, "connection", "connections");
    line("sessions", format!("{}, {connections}", units::count(sessions)));
    let memory = units::bytes(status.memory_bytes as f64);
    let underway = units::counted(status.underway as u64, "request", "requests");
    line("underway", format!("{underway}, {memory} of memory"));
    for export in &status.exports {
        write!(out, "\nexport {}, {} queued\n", export.name, export.queued).expect("text grows");
        out.push_str(&status::status(&export.gate.summary));
        out.push_str(&more(&export.gate.summary, all));
    }
    let table = connections_table(&status.connections);
    if !table.is_empty() {
        write!(out, "\n{table}").expect("text grows");
    }
    out
}

fn connections_table(connections: &[ConnectionStatus]) -> Table {
    let mut table = Table::new([
        "connection",
        "from",
        "user",
        "export",
        "requests",
        "received",
        "sent",
        "underway",
        "open files",
        "round trip",
        "congestion window",
    ]);
    for one in connections {
        let or_none = |text: Option<String>| text.unwrap_or_else(|| "-".into());
        table.row([
            one.name.clone(),
            one.peer.clone(),
            or_none(one.uid.map(|uid| uid.to_string())),
            one.export.clone(),
            units::count(one.requests),
            units::bytes(one.bytes_in as f64),
            units::bytes(one.bytes_out as f64),
            one.underway.to_string(),
            one.open_files.to_string(),
            or_none(one.tcp.map(|tcp| units::time(f64::from(tcp.round_trip_us) * 1e3))),
            or_none(
                one.tcp
                    .map(|tcp| units::bytes(f64::from(tcp.congestion_window) * f64::from(tcp.segment_bytes))),
            ),
        ]);
    }
    table
}
