//! Instruction counts of the store layer, without an engine.

#[path = "support/acknowledging.rs"]
mod acknowledging;
#[path = "../../gossip-stdx/benches/support/driver.rs"]
mod driver;

use std::process::ExitCode;

use acknowledging::{TENANT, at, bound_of, set_up};
use driver::{Operation, repeat};
use gossip_contracts::coordination::CursorUpdate;
use gossip_contracts::identity::OpId;
use gossip_coordination::CoordinationBackend;

/// Operations before those that are counted: then the log is full.
const WARM_UP: u64 = 20;

fn main() -> ExitCode {
    let checkpoint = Operation::new("store layer/checkpoint of a cached shard", |count| {
        let (mut coordinator, leases) = set_up(1);
        let mut round = 0;
        repeat(WARM_UP + count, || {
            round += 1;
            let (key, op) = (bound_of(0, round), OpId::from_raw(round));
            let cursor = CursorUpdate::new(&key, b"token");
            let checkpoint = coordinator.checkpoint(at(2 + round), TENANT, &leases[0], cursor, op);
            checkpoint.expect("progress")
        });
    });
    let renewal = Operation::new("store layer/renewal of a cached shard", |count| {
        let (mut coordinator, leases) = set_up(1);
        let mut round = 0;
        repeat(WARM_UP + count, || {
            round += 1;
            coordinator.renew(at(2 + round), TENANT, &leases[0]).expect("a live lease")
        });
    });
    driver::main([checkpoint, renewal].into())
}
