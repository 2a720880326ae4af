//! How a server is, for people and programs.

use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::Arc;

use iogate_core::AppId;
use iogate_core::auto::pattern::patterns;
use iogate_core::stats::summary::{Names, Numbers, Summary};
use iogate_core::wire::PAYLOAD_BYTES_MAX;
use iogate_engine::Engine;
use iogate_engine::store::ModelledStore;
use iogate_vfs::policy_file;
use serde::{Deserialize, Serialize};

use super::connection::Connection;
use super::export::Export;
use super::session::Session;
use super::{Shared, gate_in_short, lock};
use crate::transport::auth;

/// How a server is.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Status {
    /// The forwarder's index among `nodes`.
    pub node: u32,
    /// Forwarders that work together.
    pub nodes: u32,
    /// How long it has been running, in ms.
    pub up_ms: u64,
    /// Sessions, those that wait for their client included.
    pub sessions: usize,
    /// Requests that are not answered yet.
    pub underway: usize,
    /// Bytes of memory for data underway.
    pub memory_bytes: usize,
    /// What it offers.
    pub exports: Vec<ExportStatus>,
    /// Who is connected; left out if there are too many for a message.
    pub connections: Vec<ConnectionStatus>,
    /// How many that are.
    pub connection_count: usize,
}

/// One export.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ExportStatus {
    /// Its name.
    pub name: String,
    /// The scheduler in force, with its parameters.
    pub scheduler: String,
    /// Requests in the gate.
    pub queued: usize,
    /// What the gate did.
    pub gate: GateStatus,
}

/// A gate, and what is behind it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct GateStatus {
    /// What it did.
    #[serde(flatten)]
    pub summary: Summary,
    /// When the last request of each application was complete: its id, and nanoseconds since the Unix epoch.
    #[serde(default)]
    pub last_served: Vec<(u32, u64)>,
    /// The modelled devices.
    #[serde(default)]
    pub devices: Vec<DeviceUse>,
}

/// What a modelled device did.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct DeviceUse {
    /// For how long it served.
    pub busy_ns: u64,
    /// How often it had to reposition.
    pub repositions: u64,
}

/// One connection.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ConnectionStatus {
    /// Who is at the other end.
    pub peer: String,
    /// What the client calls itself; empty before its `Hello`.
    pub name: String,
    /// The export that it uses.
    pub export: String,
    /// The user that it was taken for.
    pub uid: Option<u32>,
    /// Age of the session, in ms.
    pub session_ms: u64,
    /// Age of the connection, in ms.
    pub connected_ms: u64,
    /// Requests so far.
    pub requests: u64,
    /// Bytes received.
    pub bytes_in: u64,
    /// Bytes sent.
    pub bytes_out: u64,
    /// Requests that are not answered.
    pub underway: u32,
    /// Open files.
    pub open_files: usize,
    /// Sizes of its reads and writes.
    pub request_sizes: Vec<SizeCount>,
    /// What the kernel knows of a TCP connection.
    pub tcp: Option<TcpStatus>,
}

/// How many requests there were of about a size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SizeCount {
    /// At most so many bytes, and at least 8/9 of them.
    pub bytes: u64,
    /// Requests.
    pub count: u64,
}

/// What the kernel knows of a TCP connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TcpStatus {
    /// Congestion window: segments that may be underway.
    pub congestion_window: u32,
    /// Bytes of a segment.
    pub segment_bytes: u32,
    /// Round-trip time, smoothed, in us.
    pub round_trip_us: u32,
    /// Segments sent again, of all time.
    pub retransmits: u32,
}

impl Status {
    /// As JSON, without the connections if they would not fit a message.
    pub fn to_json(&self) -> Vec<u8> {
        let json = serde_json::to_vec(self).unwrap_or_default();
        if json.len() <= PAYLOAD_BYTES_MAX as usize {
            return json;
        }
        let short = Status { connections: Vec::new(), ..self.clone() };
        serde_json::to_vec(&short).unwrap_or_default()
    }
}

/// About how many bytes a status has, and each connection in it.
const STATUS_BYTES: usize = 16 << 10;
/// Applications, files and targets of each gate.
const GROUPS_MAX: usize = 32;
const CONNECTION_BYTES: usize = 1 << 10;

impl Shared {
    /// As much of the status as a session's client may see: who else is connected is for root and the server's own user.
    pub(super) fn status_for(&self, session: &Session) -> Status {
        let mut status = self.status();
        if !session.sees_others() {
            status.connections.retain(|connection| connection.uid == Some(session.user.uid));
        }
        status
    }

    /// About how many bytes a status has.
    pub(super) fn status_bytes(&self) -> usize {
        STATUS_BYTES + CONNECTION_BYTES * lock(&self.connections).len()
    }

    pub(super) fn status(&self) -> Status {
        let connections: Vec<_> = lock(&self.connections).values().cloned().collect();
        let exports = self.exports.iter().map(|served| {
            let (scheduler, queued) = gate_in_short(&served.engine);
            ExportStatus {
                name: served.name.clone(),
                scheduler,
                queued,
                gate: GateStatus::of(&served.export),
            }
        });
        Status {
            node: self.node,
            nodes: self.nodes,
            up_ms: self.started.elapsed().as_millis() as u64,
            sessions: lock(&self.sessions).len(),
            underway: self.underway.load(std::sync::atomic::Ordering::Relaxed),
            memory_bytes: self.pool.used(),
            exports: exports.collect(),
            connection_count: connections.len(),
            connections: connections.iter().map(|connection| connection.status()).collect(),
        }
    }
}

/// Users are called by their names and classes of files by their globs, all else by its number.
struct ClassNames<'a>(&'a Engine);

impl Names for ClassNames<'_> {
    fn app(&self, app: AppId) -> String {
        let called = self.0.paths_called(app).or_else(|| auth::class_called(app));
        called.unwrap_or_else(|| Numbers.app(app))
    }
}

impl Export {
    /// Some of the accounts of the gate, as JSON; `null` if it keeps none.
    pub(super) fn accounts_json(&self, from: u32) -> Vec<u8> {
        serde_json::to_vec(&self.engine.accounts(from, &ClassNames(&self.engine))).unwrap_or_default()
    }
}

impl GateStatus {
    fn of(export: &Export) -> GateStatus {
        let (stats, config, apps, now) = export
            .engine
            .with_gate(|gate, now| (gate.stats().clone(), gate.config().clone(), gate.apps_now(now), now));
        let (names, unix) = (ClassNames(&export.engine), crate::system::unix_now());
        let at = |last| unix.saturating_sub(now.since(last).as_nanos());
        let used = |device: &Arc<ModelledStore>| {
            let stats = device.device_stats();
            DeviceUse { busy_ns: stats.busy.as_nanos(), repositions: stats.repositions }
        };
        let mut summary = Summary::new(&stats, &config.scheduler, config.depth, &names, GROUPS_MAX);
        summary.about.extend(policy_file::in_short(&export.engine).map(|policy| ("policy".into(), policy)));
        summary.set_now(apps, &names);
        summary.patterns = patterns(&export.engine.seen());
        summary.choice = export.engine.choice();
        let mut counters = export.engine.counters(&export.name, &names);
        if let Some(state) = export.tree.state() {
            counters.is_connected = Some(state.is_well);
            summary.about.push(("connection".into(), state.text));
        }
        summary.counters = Some(counters);
        GateStatus {
            summary,
            last_served: stats.apps.iter().map(|(app, sums)| (app.0, at(sums.last))).collect(),
            devices: export.devices.iter().map(used).collect(),
        }
    }
}

impl Connection {
    fn status(self: &Arc<Self>) -> ConnectionStatus {
        let session = self.session.get();
        let figures = lock(&self.figures);
        let sizes = figures.sizes.iter().flat_map(|sizes| sizes.iter());
        ConnectionStatus {
            peer: self.peer_text(),
            name: session.map(|session| session.name.clone()).unwrap_or_default(),
            export: session.map(|session| session.export.name.clone()).unwrap_or_default(),
            uid: session.map(|session| session.user.uid),
            session_ms: session.map_or(0, |session| session.since.elapsed().as_millis() as u64),
            connected_ms: self.since.elapsed().as_millis() as u64,
            requests: figures.requests,
            bytes_in: figures.bytes_in,
            bytes_out: self.bytes_out(),
            underway: session.map_or(0, |session| lock(&session.state).in_flight()),
            open_files: session.map_or(0, |session| lock(&session.state).open_files()),
            request_sizes: sizes.map(|(bytes, count)| SizeCount { bytes, count }).collect(),
            tcp: tcp(self.socket.fd()),
        }
    }
}

/// What the kernel knows; `None` if it is not a TCP socket.
fn tcp(socket: BorrowedFd<'_>) -> Option<TcpStatus> {
    // SAFETY: all-zero bytes are a value of this plain structure.
    let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
    let mut bytes = size_of::<libc::tcp_info>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `bytes` bytes into `info`.
    let result = unsafe {
        let (level, what) = (libc::IPPROTO_TCP, libc::TCP_INFO);
        libc::getsockopt(socket.as_raw_fd(), level, what, (&raw mut info).cast(), &raw mut bytes)
    };
    (result == 0).then_some(TcpStatus {
        congestion_window: info.tcpi_snd_cwnd,
        segment_bytes: info.tcpi_snd_mss,
        round_trip_us: info.tcpi_rtt,
        retransmits: info.tcpi_total_retrans,
    })
}
