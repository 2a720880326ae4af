//! Simulates a large cluster at the level of messages, and says what its nodes sent, received and remembered.

use std::alloc::{GlobalAlloc, Layout, System};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};

use iogate_lab::scale::{Scale, run};

const HELP: &str = "\
Usage: scale [--clients N] [--forwarders N] [--servers N] [--writes N] [--seed N] [--no-restarts]

Clients open, write, sync and close a file each, through forwarders, over data servers
(100000 clients, 64 forwarders, 256 servers and 8 writes if not given). Each forwarder and
each server is killed once. Ends with 1 if a request has failed or a client has not come
to its end.
";

/// Counts what is allocated.
struct Counting;

static BYTES: AtomicU64 = AtomicU64::new(0);

// SAFETY: everything is the system allocator's; this only counts.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        BYTES.fetch_add(layout.size() as u64, Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        BYTES.fetch_sub(layout.size() as u64, Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn main() -> ExitCode {
    let mut scale = Scale::default();
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        let mut number = || args.next().and_then(|value| value.parse().ok()).filter(|&value: &u32| value > 0);
        let set = match &arg[..] {
            "--clients" => number().map(|value| scale.clients = value),
            "--forwarders" => number().map(|value| scale.forwarders = value),
            "--servers" => number().map(|value| scale.servers = value),
            "--writes" => number().map(|value| scale.writes = value),
            "--seed" => number().map(|value| scale.seed = value.into()),
            "--no-restarts" => {
                scale.restarts = false;
                Some(())
            }
            _ => None,
        };
        if set.is_none() {
            eprint!("expected an option with a number above 0, got `{arg}`\n\n{HELP}");
            return ExitCode::from(2);
        }
    }
    let report = run(&scale, Some(|| BYTES.load(Ordering::Relaxed)));
    println!("{report}");
    let is_well = report.failed == 0 && report.done == u64::from(scale.clients);
    if is_well { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
