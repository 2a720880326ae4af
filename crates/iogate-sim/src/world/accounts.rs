//! Accounts of who slows whom down at the servers.

use iogate_core::blame::{Account, Accounting};
use iogate_core::profile::measure;
use iogate_core::sched::Prices;

use super::build::server_device;
use super::{Lent, SimError, World};
use crate::result::RunResult;
use crate::scenario::Scenario;

/// As [`simulate`](super::simulate), with the accounts that the servers' gates have kept, those of all servers together. What the
/// devices charge is measured before, where nothing lies between them and the gates.
///
/// # Errors
/// If the scenario does not fit together, or the run cannot end.
pub fn simulate_with_accounts(scenario: &Scenario, seed: u64) -> Result<(RunResult, Vec<Account>), SimError> {
    let mut observer = ();
    let mut world = World::build(scenario, seed, &mut observer, Lent::NONE)?;
    let servers = &scenario.cluster.servers;
    let prices = if servers.cache.is_none() && servers.elevator.is_none() {
        measure(server_device(servers, 0, seed)?, seed).finish("servers", false, None).prices()
    } else {
        Prices::default()
    };
    let (first, begin) = (world.first_server() as usize, world.queue.now());
    for node in &mut world.nodes[first..] {
        let now = node.clock_at(begin);
        if let Some(gate) = &mut node.gate {
            gate.set_accounting(now, Some((Accounting::Exact, &prices)));
        }
    }
    let cut_off = world.run(iogate_core::Time::ZERO + scenario.time_max)?;
    world.check(cut_off)?;
    let end = world.queue.now();
    let servers = &mut world.nodes[first..];
    let accounts = servers.iter_mut().filter_map(|node| {
        let now = node.clock_at(end);
        node.gate.as_mut()?.accounts(now)
    });
    let accounts = Account::together(accounts.flatten());
    Ok((world.result(cut_off), accounts))
}
