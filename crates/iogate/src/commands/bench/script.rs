//! What a worker process is told to do: a job in one line of JSON, then a line for each step.

use std::io::{BufRead, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use anyhow::{Context, Result, bail, ensure};
use iogate_core::{FileId, Op, Span};
use iogate_sim::workload::{Call, Step};
use serde::{Deserialize, Serialize};

use super::turns;

/// Where files are; each is called as [`file_name`] says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Place {
    /// In a folder, behind a mount.
    Folder(PathBuf),
    /// On a server of the network protocol.
    Server {
        /// Where it listens.
        endpoint: String,
        /// Its export; empty for the first one.
        export: String,
    },
    /// On a server of NFS.
    Nfs {
        /// Where it listens.
        server: SocketAddr,
        /// The address that the process comes from: its application's, on its node.
        from: Ipv4Addr,
    },
}

/// How a worker does its I/O.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Job {
    /// Where its requests go: several have a part of each file, stripe by stripe; a single one has whole files.
    pub(super) places: Vec<Place>,
    /// The files that the steps access.
    pub(super) files: Vec<u64>,
    /// Whether they are written to.
    pub(super) writes: bool,
    /// Bytes of a stripe.
    pub(super) stripe: u64,
    /// Bytes of a request at most.
    pub(super) transfer: u64,
    /// Calls in progress at once; `None`: no limit.
    pub(super) outstanding: Option<u32>,
    /// Threads that carry out requests; 0: the process's only one does.
    pub(super) threads: u32,
    /// Whether the time from a call to the barrier after it is taken.
    pub(super) time_steps: bool,
    /// How its application takes turns; `None`: not at all.
    pub(super) turns: Option<turns::How>,
    /// Whether it is the one that takes them.
    pub(super) leads: bool,
}

/// What a file is called in the folder of each server.
pub(super) fn file_name(file: FileId) -> String {
    format!("{:016x}", file.0)
}

/// The file that is called so.
pub(super) fn file_of_name(name: &str) -> Option<FileId> {
    u64::from_str_radix(name, 16).ok().map(FileId)
}

impl Job {
    pub(super) fn write(&self, out: &mut impl Write) -> Result<()> {
        serde_json::to_writer(&mut *out, self)?;
        Ok(writeln!(out)?)
    }

    pub(super) fn read(input: &mut impl BufRead) -> Result<Job> {
        let mut line = String::new();
        input.read_line(&mut line)?;
        serde_json::from_str(&line).context("the first line is not a job")
    }
}

/// Writes a step, but for the last, which is the end of the script.
pub(super) fn write_step(out: &mut impl Write, step: Step) -> std::io::Result<()> {
    match step {
        Step::Compute(span) => writeln!(out, "compute {}", span.as_nanos()),
        Step::Until(span) => writeln!(out, "until {}", span.as_nanos()),
        Step::Call(Call { file, op, offset, bytes, stride, count }) => {
            writeln!(out, "{} {} {offset} {bytes} {stride} {count}", op.letter(), file.0)
        }
        Step::Finish => writeln!(out, "finish"),
        Step::Barrier => writeln!(out, "barrier"),
        Step::Send { to, bytes } => writeln!(out, "send {to} {bytes}"),
        Step::Receive { messages } => writeln!(out, "receive {messages}"),
        Step::Phase(begins) => writeln!(out, "phase {}", u8::from(begins)),
        Step::End => Ok(()),
    }
}

/// Reads a line that [`write_step`] wrote.
pub(super) fn read_step(line: &str) -> Result<Step> {
    let mut words = line.split_ascii_whitespace();
    let name = words.next().unwrap_or_default();
    let mut number = || -> Result<u64> { Ok(words.next().context("a number is missing")?.parse()?) };
    let mut small = || -> Result<u32> { Ok(number()?.try_into()?) };
    let step = match name {
        "compute" => Step::Compute(Span::from_nanos(number()?)),
        "until" => Step::Until(Span::from_nanos(number()?)),
        "r" | "w" => Step::Call(Call {
            op: if name == "r" { Op::Read } else { Op::Write },
            file: FileId(number()?),
            offset: number()?,
            bytes: number()?.try_into()?,
            stride: number()?,
            count: number()?.try_into()?,
        }),
        "finish" => Step::Finish,
        "barrier" => Step::Barrier,
        "send" => Step::Send { to: small()?, bytes: number()? },
        "receive" => Step::Receive { messages: number()? },
        "phase" => Step::Phase(number()? == 1),
        _ => bail!("'{line}' is no step"),
    };
    ensure!(words.next().is_none(), "'{line}' has a word too many");
    Ok(step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        let call =
            Call { file: FileId(7 << 32), op: Op::Write, offset: 1 << 40, bytes: 5, stride: 9, count: 3 };
        let steps = [
            Step::Compute(Span::from_micros(3)),
            Step::Until(Span::from_secs(9)),
            Step::Call(call),
            Step::Call(Call { op: Op::Read, ..call }),
            Step::Finish,
            Step::Barrier,
            Step::Send { to: 4, bytes: 100 },
            Step::Receive { messages: 12 },
            Step::Phase(true),
            Step::Phase(false),
        ];
        let job = Job {
            places: vec![
                Place::Folder("b c".into()),
                Place::Server { endpoint: "unix:/a".into(), export: "objects".into() },
                Place::Nfs {
                    server: SocketAddr::from(([127, 0, 0, 9], 2049)),
                    from: Ipv4Addr::new(127, 200, 0, 1),
                },
            ],
            files: vec![7 << 32],
            writes: true,
            stripe: 65_536,
            transfer: 1 << 20,
            outstanding: None,
            threads: 3,
            time_steps: false,
            turns: None,
            leads: true,
        };
        let mut script = Vec::new();
        job.write(&mut script).unwrap();
        steps.iter().for_each(|step| write_step(&mut script, *step).unwrap());
        let mut input = &script[..];
        assert_eq!(Job::read(&mut input).unwrap(), job);
        let read: Vec<Step> = input.lines().map(|line| read_step(&line.unwrap()).unwrap()).collect();
        assert_eq!(read, steps);
    }

    #[test]
    fn what_is_no_step_is_refused() {
        for line in ["", "r", "r 1 2 3 4 x", "finish 1", "send -1 0", "w 1 0 5000000000 1 1", "walk 1"] {
            assert!(read_step(line).is_err(), "{line}");
        }
        assert_eq!(file_of_name(&file_name(FileId(0xAB_0000_0001))), Some(FileId(0xAB_0000_0001)));
    }
}
