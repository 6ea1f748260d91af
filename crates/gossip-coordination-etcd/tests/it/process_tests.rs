//! A worker that is a process of its own, stopped by a signal for longer than its lease lasts; many
//! of them are stopped by `cargo xtask etcd-faults`.

use std::process::Command;
use std::time::Duration;

use gossip_coordination_etcd::EtcdConfig;
use gossip_testkit_etcd::{StoppedWorkers, be_a_stopped_worker};

use crate::real_servers::Servers;

#[test]
fn a_stopped_process_is_replaced_and_its_late_write_refused() {
    if be_a_stopped_worker() {
        return;
    }
    let config = EtcdConfig { owner_lease_ttl: Duration::from_secs(2), ..Servers::Single.config() };
    let name = "process_tests::a_stopped_process_is_replaced_and_its_late_write_refused";
    let mut program = Command::new(std::env::current_exe().unwrap());
    program.args(["--exact", name, "--nocapture"]);
    let takeover = StoppedWorkers::new(config).stop_one(program);
    println!("{takeover:?}");
}
