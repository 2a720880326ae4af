//! The choice of a gate's scheduler, beside the gate of a node.

use std::sync::Arc;

use iogate_core::auto::driver::REQUESTS_PER_S;
use iogate_core::auto::{Auto, Chooser, Meter, Pace, Pricing};
use iogate_core::device::Device;
use iogate_core::profile::{Profile, Profiled, Refit};
use iogate_core::{ClientId, Dispatch, DispatchId, Gate, GateConfig, Part, Request, RequestId, Time};

use super::build::server_device;
use crate::result::Chosen;
use crate::scenario::Servers;

/// Its shadows have another seed than the device itself: what random times will come is not known.
const OTHER_SEED: u64 = 1 << 48;

/// What chooses for one gate.
pub(super) struct Choosing {
    auto: Auto,
}

impl Choosing {
    /// For the gate of a server: what its device charges is known, but below a page cache or an elevator it is learnt.
    pub(super) fn server(
        config: &GateConfig,
        servers: &Servers,
        node: u32,
        seed: u64,
        now: Time,
    ) -> Choosing {
        if servers.cache.is_some() || servers.elevator.is_some() {
            return Choosing::learning(config, now);
        }
        Choosing::new(config, Arc::new(Model { servers: servers.clone(), node, seed }), now)
    }

    /// For a gate of which nothing is known of what is behind it.
    pub(super) fn learning(config: &GateConfig, now: Time) -> Choosing {
        const KIND: &str = "servers";
        let assumed = Profile::assumed(KIND, false);
        let prices = Arc::new(move || -> Box<dyn Device> { Box::new(Profiled::new(&assumed)) });
        let Choosing { auto } = Choosing::new(config, prices, now);
        Choosing { auto: auto.learning(Meter::new(Refit::from_nothing(KIND, false))) }
    }

    fn new(config: &GateConfig, pricing: Arc<dyn Pricing>, now: Time) -> Choosing {
        let chooser = Chooser::new(config, pricing, now);
        Choosing { auto: Auto::new(chooser, Pace::new(REQUESTS_PER_S, now)) }
    }

    /// A request has come into the gate.
    pub(super) fn arrived(&mut self, now: Time, request: &Request) {
        self.auto.arrived(now, request);
    }

    /// The gate is about to be asked; `client` says whose a request in it is.
    pub(super) fn look(&mut self, now: Time, gate: &mut Gate, client: impl Fn(RequestId) -> ClientId) {
        self.auto.look(now, gate, client);
    }

    /// The gate has handed something over.
    pub(super) fn dispatched(&mut self, now: Time, dispatch: &Dispatch) {
        self.auto.dispatched(now, dispatch);
    }

    /// A dispatch has been carried out.
    pub(super) fn ended(&mut self, now: Time, id: DispatchId, parts: impl Iterator<Item = Part>) {
        self.auto.ended(now, id);
        parts.for_each(|part| self.auto.completed(now, part.request, part.app, part.bytes));
    }

    /// How often it has changed the scheduler.
    pub(super) fn switches(&self) -> u64 {
        self.auto.status().switches
    }

    /// The last changes, on the `node`-th node of its layer, whose clock showed `clock` at the start.
    pub(super) fn chosen(&self, node: u32, clock: Time) -> impl Iterator<Item = Chosen> {
        self.auto.changes().iter().map(move |change| Chosen {
            node,
            at: Time::ZERO + change.at.since(clock),
            scheduler: change.to.to_string(),
            why: change.to_string(),
        })
    }
}

/// What the device of a server charges.
struct Model {
    servers: Servers,
    node: u32,
    seed: u64,
}

impl Pricing for Model {
    fn device(&self) -> Box<dyn Device> {
        server_device(&self.servers, self.node, self.seed ^ OTHER_SEED).expect("the server has such a device")
    }

    fn extent_bytes(&self) -> u64 {
        self.servers.extent
    }
}
