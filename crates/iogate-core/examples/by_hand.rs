//! A gate driven by hand: two reads that lie one behind the other arrive in the wrong order, and leave as one dispatch. The page
//! docs/how-to/embedding.md shows it.
//!
//! `cargo run -p iogate-core --example by_hand`

use std::time::Instant;

use iogate_core::{
    AppId, ClientId, Decision, FileId, Gate, GateConfig, Layout, Op, Outcome, Request, RequestId,
    SchedulerConfig, SchedulerKind, Time,
};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let scheduler = SchedulerConfig::new(SchedulerKind::ToAgg);
    let mut gate = Gate::new(&GateConfig { scheduler, queue_max: 1000, depth: 1, layout: Layout::SINGLE })?;
    let began = Instant::now();
    let now = || Time::from_nanos(began.elapsed().as_nanos() as u64);

    for (id, offset) in [(0, 4096), (1, 0)] {
        let request = Request {
            id: RequestId(id),
            file: FileId(1),
            op: Op::Read,
            offset,
            bytes: 4096,
            app: AppId(0),
            client: ClientId(0),
            target: None,
            issued: None,
        };
        gate.submit(now(), &request)?;
    }
    loop {
        match gate.next(now()) {
            Decision::Dispatch(dispatch) => {
                println!("read {} bytes at {}", dispatch.bytes, dispatch.offset);
                for part in gate.parts(dispatch.id) {
                    println!("- request {}", part.request.0);
                }
                // Here it would be read.
                gate.complete(now(), dispatch.id, Outcome::Done { bytes: dispatch.bytes });
            }
            // A scheduler may wait for what follows: it wants to be asked again then, or after the next arrival.
            Decision::WaitUntil(time, _) => println!("nothing to do until {time:?}"),
            Decision::Idle => break Ok(()),
        }
    }
}
