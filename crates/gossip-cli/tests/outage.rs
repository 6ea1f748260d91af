//! A worker with default settings while the cluster is unreachable.

mod support;

use std::collections::BTreeSet;
use std::thread;
use std::time::Duration;

use gossip::etcd::{
    DEFAULT_KEEP_ALIVE_INTERVAL, DEFAULT_KEEP_ALIVE_TIMEOUT, DEFAULT_REQUEST_TIMEOUT,
};
use gossip_testkit::test_support::{Direction, EtcdServer, Proxy};

use support::{Scratch, finish, wait_until};

/// Long enough for a connection to be closed with requests on it, and for leases to expire; much
/// shorter than the time after which a worker stops.
const OUTAGE: Duration = DEFAULT_KEEP_ALIVE_INTERVAL
    .saturating_add(DEFAULT_KEEP_ALIVE_TIMEOUT)
    .saturating_add(DEFAULT_REQUEST_TIMEOUT);

/// Number of keys; each takes some time, so that the outage happens in the middle of the run.
const KEYS: usize = 200;

/// Keys that are done before the outage.
const KEYS_BEFORE: usize = 10;

/// Appends its number to a file of the test.
const NOTE: [&str; 5] = ["sh", "-c", "sleep 0.05; echo \"$1\" >> seen", "sh", "{}"];

/// A network that drops all packets does not stop the worker: it waits, then finishes the run.
#[test]
fn worker_waits_out_an_outage_and_finishes() {
    let scratch = Scratch::new();
    let server = EtcdServer::single();
    let proxy = Proxy::before(server.client_port());
    let store = format!("etcd://127.0.0.1:{}/outage", proxy.port());
    let keys = format!("range:0..{KEYS}");
    let args = [&["--store", &store, "exec", &keys, "--jobs", "2", "--"], &NOTE[..]].concat();
    let worker = scratch.gossip(&args).spawn().unwrap();
    wait_until("work", || scratch.lines("seen").len() >= KEYS_BEFORE);
    proxy.hold(Direction::ToTarget);
    proxy.hold(Direction::FromTarget);
    thread::sleep(OUTAGE);
    // The held requests are lost with their connections.
    proxy.reset();
    proxy.open();
    let ran = finish(worker);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    // Items that were not acknowledged are processed again.
    let seen: BTreeSet<String> = scratch.lines("seen").into_iter().collect();
    assert_eq!(seen.len(), KEYS);
}
