//! A worker with its usual settings and a cluster that nothing reaches for a while.

mod support;

use std::collections::BTreeSet;
use std::thread;
use std::time::Duration;

use gossip_coordination_etcd::{
    DEFAULT_KEEP_ALIVE_INTERVAL, DEFAULT_KEEP_ALIVE_TIMEOUT, DEFAULT_REQUEST_TIMEOUT,
};
use gossip_testkit::test_support::{Direction, EtcdServer, Proxy};

use support::{Scratch, finish, wait_until};

/// Long enough for a connection to be given up while requests wait on it, and for leases to run
/// out; much shorter than a worker is patient.
const OUTAGE: Duration = DEFAULT_KEEP_ALIVE_INTERVAL
    .saturating_add(DEFAULT_KEEP_ALIVE_TIMEOUT)
    .saturating_add(DEFAULT_REQUEST_TIMEOUT);

/// Keys, each of which takes its handler some time, so that the outage comes in their midst.
const KEYS: usize = 200;

/// Keys that are done before it.
const KEYS_BEFORE: usize = 10;

/// Notes its number when it is done.
const NOTE: [&str; 5] = ["sh", "-c", "sleep 0.05; echo \"$1\" >> seen", "sh", "{}"];

/// A network that swallows everything is no reason to end: the worker waits, and does the rest.
#[test]
fn a_worker_waits_an_outage_out_and_does_the_rest() {
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
    // What was held is lost with its connections.
    proxy.reset();
    proxy.open();
    let ran = finish(worker);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    // Some may be done twice: what was not acknowledged is done again.
    let seen: BTreeSet<String> = scratch.lines("seen").into_iter().collect();
    assert_eq!(seen.len(), KEYS);
}
