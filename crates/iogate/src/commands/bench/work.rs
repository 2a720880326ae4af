//! What a run does, written out: a script for each process, and the files that they need.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use iogate_core::{FileId, Op};
use iogate_sim::scenario::{App, Barrier, Scenario};
use iogate_sim::striping::Striping;
use iogate_sim::workload::{Program, Step};
use iogate_sim::world;

use super::feasibility;
use super::script::{Job, Place, write_step};
use super::turns::How;
use crate::failure::Failure;

/// The most steps of all processes: their scripts then take some hundred MB.
const STEPS_MAX: u64 = 10_000_000;
/// The most threads of all processes, which is how many requests can be in progress at once.
const THREADS_MAX: u32 = 4096;
/// The same of clients of NFS, each of which has a connection of its own: fewer than a server lets come in.
const CONNECTIONS_MAX: u32 = 1000;
/// How the addresses of clients of NFS begin: of this machine, as all that begin with 127.
const CLIENTS: [u8; 2] = [127, 200];

/// Where processes go with their requests.
pub(super) enum Entrances {
    /// To all data servers, each of which has a part of every file.
    Servers(Vec<Place>),
    /// To a forwarder, which has whole files: to which one, its client node decides.
    Forwarders(Vec<Place>),
    /// To all data servers, by NFS.
    Exports(Vec<SocketAddr>),
}

impl Entrances {
    /// Those of a process of an application on a client node, and the longest request there.
    fn of(&self, app: usize, node: u32, scenario: &Scenario) -> (Vec<Place>, u32) {
        let cluster = &scenario.cluster;
        match (self, cluster.forwarders.first()) {
            (Entrances::Forwarders(all), Some(layer)) => {
                // In blocks, as in the simulator.
                let index = u64::from(node) * all.len() as u64 / u64::from(cluster.clients.nodes);
                (all.get(index as usize).cloned().into_iter().collect(), layer.transfer)
            }
            (Entrances::Servers(all) | Entrances::Forwarders(all), _) => {
                (all.clone(), cluster.servers.transfer)
            }
            (Entrances::Exports(servers), _) => {
                let from = client_address(app, node);
                let place = |server: &SocketAddr| Place::Nfs { server: *server, from };
                (servers.iter().map(place).collect(), cluster.servers.transfer)
            }
        }
    }

    /// The most threads of all processes.
    fn threads_max(&self) -> u32 {
        match self {
            Entrances::Servers(_) | Entrances::Forwarders(_) => THREADS_MAX,
            Entrances::Exports(_) => CONNECTIONS_MAX,
        }
    }
}

/// Where a process of an application comes from as a client of NFS: each application has addresses of its own, one for each of its nodes.
fn client_address(app: usize, node: u32) -> Ipv4Addr {
    let [a, b] = CLIENTS;
    Ipv4Addr::new(a, b, app as u8, (1 + node % 254) as u8)
}

/// The same for the servers, which tell applications apart by it: lines of the file that `IOGATE_APP_FILE` names.
pub(super) fn applications_by_address(apps: &[App]) -> String {
    let [a, b] = CLIENTS;
    apps.iter().enumerate().map(|(index, app)| format!("{a}.{b}.{index}.*/* {}\n", app.id)).collect()
}

/// What a run does.
pub(super) struct Work {
    /// The applications.
    pub(super) apps: Vec<App>,
    /// The processes of all applications, one application after the other.
    pub(super) processes: Vec<Process>,
    /// The files.
    pub(super) files: BTreeMap<FileId, FileUse>,
    /// Whether processes want more requests in progress than there may be threads.
    pub(super) is_throttled: bool,
    pub(super) striping: Striping,
}

/// One process.
pub(super) struct Process {
    /// The index of its application.
    pub(super) app: usize,
    pub(super) rank: u32,
    job: Job,
}

/// How a file is used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct FileUse {
    /// Where the last byte ends that is accessed.
    pub(super) end: u64,
    /// Bytes that are written, those written again included.
    pub(super) written: u64,
    /// The index of the first application that uses it.
    pub(super) app: usize,
}

impl Work {
    /// Goes through the programs of a run.
    /// `turns` says how an application takes turns.
    pub(super) fn plan(
        scenario: &Scenario,
        seed: u64,
        entrances: &Entrances,
        turns: impl Fn(&App) -> Option<How>,
    ) -> Result<Work, Failure> {
        let servers = &scenario.cluster.servers;
        let striping = Striping { stripe: servers.stripe, servers: servers.nodes.into() };
        let apps = world::apps(scenario, seed);
        let count = apps.iter().map(|app| u64::from(app.processes)).sum();
        feasibility::check_processes(count)?;
        let mut work =
            Work { apps, processes: Vec::new(), files: BTreeMap::new(), is_throttled: false, striping };
        let mut steps = 0;
        for index in 0..work.apps.len() {
            let app = work.apps[index].clone();
            for rank in 0..app.processes {
                let (places, transfer) = entrances.of(index, app.first_node + rank % app.nodes, scenario);
                let cut = Striping { servers: places.len() as u64, ..striping };
                let mut needs = Needs::default();
                let mut program = Program::new(&app, rank, seed);
                loop {
                    let step = program.next_step();
                    if step == Step::End {
                        break;
                    }
                    steps += 1;
                    if steps > STEPS_MAX {
                        return Err(Failure::usage(anyhow!(
                            "app.{}: more than {STEPS_MAX} steps of all processes are too many for a real run",
                            app.name
                        ))
                        .hint("let the applications access fewer bytes, or in longer requests"));
                    }
                    needs.add(step, &cut, transfer.into());
                }
                let most = needs.requests_at_once(app.workload.outstanding);
                let threads = if most <= 1 { 0 } else { most.min(entrances.threads_max() / count as u32) };
                work.is_throttled |= u64::from(most) > u64::from(threads.max(1));
                for (file, found) in &needs.files {
                    let all = work.files.entry(*file).or_insert(FileUse { app: index, ..FileUse::default() });
                    all.end = all.end.max(found.end);
                    all.written = all.written.saturating_add(found.written);
                }
                let job = Job {
                    places,
                    files: needs.files.keys().map(|file| file.0).collect(),
                    writes: needs.files.values().any(|file| file.written > 0),
                    stripe: servers.stripe,
                    transfer: transfer.into(),
                    outstanding: app.workload.outstanding,
                    threads,
                    time_steps: app.workload.barrier == Barrier::Call && rank == 0,
                    turns: turns(&app),
                    leads: rank == 0,
                };
                work.processes.push(Process { app: index, rank, job });
            }
        }
        Ok(work)
    }

    /// Bytes that all servers' folders hold after the run; where files are read, of these too if they are not sparse.
    pub(super) fn bytes(&self, sparse: bool) -> u64 {
        let bytes = |file: &FileUse| if sparse { file.written.min(file.end) } else { file.end };
        self.files.values().map(bytes).fold(0, u64::saturating_add)
    }

    /// Writes the script of each process into `folder`; returns their paths.
    pub(super) fn write_scripts(&self, seed: u64, folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
        let script = |(index, process): (usize, &Process)| {
            let path = folder.join(format!("script-{index}"));
            let write = || -> anyhow::Result<()> {
                let mut out = BufWriter::new(File::create(&path)?);
                process.job.write(&mut out)?;
                let mut program = Program::new(&self.apps[process.app], process.rank, seed);
                loop {
                    match program.next_step() {
                        Step::End => return Ok(out.flush()?),
                        step => write_step(&mut out, step)?,
                    }
                }
            };
            write().with_context(|| format!("the script {}", path.display()))?;
            Ok(path)
        };
        self.processes.iter().enumerate().map(script).collect()
    }
}

/// What one process needs.
#[derive(Default)]
struct Needs {
    files: BTreeMap<FileId, FileUse>,
    /// The most requests of a call.
    of_call: u32,
    /// The most requests of calls between two waits for all, and those since the last.
    between_waits: u32,
    since_wait: u32,
}

impl Needs {
    fn add(&mut self, step: Step, striping: &Striping, transfer: u64) {
        match step {
            Step::Call(call) => {
                let mut requests = 0u32;
                for index in 0..u64::from(call.count) {
                    let offset = call.offset + index * call.stride;
                    striping.for_each_request(offset, call.bytes.into(), transfer, |_, _, _| requests += 1);
                }
                self.of_call = self.of_call.max(requests);
                self.since_wait = self.since_wait.saturating_add(requests);
                self.between_waits = self.between_waits.max(self.since_wait);
                let file = self.files.entry(call.file).or_default();
                let last = call.offset + u64::from(call.count - 1) * call.stride;
                file.end = file.end.max(last + u64::from(call.bytes));
                if call.op == Op::Write {
                    file.written = file.written.saturating_add(call.total_bytes());
                }
            }
            Step::Finish => self.since_wait = 0,
            _ => {}
        }
    }

    fn requests_at_once(&self, outstanding: Option<u32>) -> u32 {
        match outstanding {
            Some(calls) => calls.saturating_mul(self.of_call).min(self.between_waits),
            None => self.between_waits,
        }
    }
}

#[cfg(test)]
mod tests {
    use iogate_sim::workload::Call;

    use super::*;

    #[test]
    fn a_process_needs_a_thread_for_each_request_at_once() {
        let striping = Striping { stripe: 10, servers: 2 };
        let call = Call { file: FileId(1), op: Op::Write, offset: 0, bytes: 25, stride: 100, count: 2 };
        let mut needs = Needs::default();
        for step in [Step::Call(call), Step::Call(call), Step::Finish, Step::Call(call)] {
            needs.add(step, &striping, 10);
        }
        // 10 + 10 + 5, twice.
        assert_eq!(needs.of_call, 6);
        assert_eq!(
            [Some(1), Some(2), Some(9), None].map(|calls| needs.requests_at_once(calls)),
            [6, 12, 12, 12]
        );
        assert_eq!(needs.files[&FileId(1)], FileUse { end: 125, written: 150, app: 0 });
    }
}
