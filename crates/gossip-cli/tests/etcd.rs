//! Several workers on one etcd: joining by URL, tenants, and an unavailable store.

#![expect(clippy::unwrap_used, reason = "a file of tests")]

mod support;

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::Command;

use gossip::prelude::*;
use gossip::secrets::{RuleSet, SecretScan, TenantSecretKey};
use gossip_testkit::test_support::EtcdServer;
use rustix::process::Signal;
use serde_json::Value;

use support::{Ran, Scratch, finish, signal, wait_until};

fn url(etcd: &EtcdServer, prefix: &str) -> String {
    format!("etcd://127.0.0.1:{}/{prefix}", etcd.client_port())
}

/// The binary with another store than that of the test.
fn gossip(scratch: &Scratch, store: &str, args: &[&str]) -> Command {
    let mut command = scratch.gossip(args);
    command.env("GOSSIP_STORE", store);
    command
}

fn run(scratch: &Scratch, store: &str, args: &[&str]) -> Ran {
    finish(gossip(scratch, store, args).spawn().unwrap())
}

#[test]
fn machines_join_a_run_by_its_url_and_others_do_not_see_it() {
    let (scratch, etcd) = (Scratch::new(), EtcdServer::single());
    let store = &url(&etcd, "team/prod");
    let note = ["sh", "-c", "sleep 0.01; echo $1 >> seen", "sh", "{}"];
    let create = [&["run", "create", "range:0..200", "--shards", "6", "--"], &note[..]].concat();
    let made = run(&scratch, store, &create);
    assert_eq!(made.code, Some(0), "{}", made.stderr);
    let id = made.stdout.trim();
    let join = ["worker", id, "--jobs", "2", "-q", "-o", "jsonl"];
    let joined = [(); 3].map(|()| gossip(&scratch, store, &join).spawn().unwrap());
    let ended = joined.map(finish);
    let summaries = ended.each_ref().map(|ran| serde_json::from_str::<Value>(&ran.stdout).unwrap());
    assert!(ended.iter().all(|ran| ran.code == Some(0) && ran.stderr.is_empty()), "{ended:?}");
    assert!(summaries.iter().all(|it| it["keys"] == 200), "{summaries:?}");
    let here: u64 = summaries.iter().filter_map(|it| it["keys_here"].as_u64()).sum();
    assert_eq!(here, 200);
    let seen: BTreeSet<_> = scratch.lines("seen").into_iter().collect();
    assert_eq!((seen.len(), scratch.lines("seen").len()), (200, 200));
    assert_eq!(run(&scratch, store, &["run", "verify", id, "--source"]).code, Some(0));
    // Under another prefix, for another tenant, and in another store the run does not exist.
    assert_eq!(scratch.run(&["exec", "range:0..1", "--", "true"]).code, Some(0));
    let elsewhere = run(&scratch, &url(&etcd, "team"), &["worker", id]);
    let other_tenant = run(&scratch, store, &["--tenant", "eve", "worker", id]);
    for ran in [elsewhere, other_tenant, scratch.run(&["worker", id])] {
        assert_eq!(ran.code, Some(2), "{}", ran.stderr);
        assert!(ran.stderr.contains("check --store and --tenant"), "{}", ran.stderr);
    }
}

/// The leases have expired when the store answers again: shards are reacquired, and no key is lost.
#[test]
fn pause_of_the_store_loses_no_key() {
    let (scratch, etcd) = (Scratch::new(), EtcdServer::single());
    let note = ["sh", "-c", "sleep 0.02; echo $1 >> seen", "sh", "{}"];
    let args = ["exec", "range:0..150", "--jobs", "2", "--lease", "1s", "-o", "jsonl", "--"];
    let args = [&args[..], &note].concat();
    let child = gossip(&scratch, &url(&etcd, "away"), &args).spawn().unwrap();
    wait_until("some keys", || scratch.lines("seen").len() >= 20);
    etcd.pause();
    let mut seen = usize::MAX;
    wait_until("a standstill", || {
        // No item is started under an expired lease.
        std::thread::sleep(std::time::Duration::from_millis(1500));
        std::mem::replace(&mut seen, scratch.lines("seen").len()) == scratch.lines("seen").len()
    });
    etcd.resume();
    let ran = finish(child);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(ran.stdout.contains("\"keys\":150"), "{}", ran.stdout);
    assert_eq!(scratch.lines("seen").iter().collect::<BTreeSet<_>>().len(), 150);
}

/// A worker that is drained while the store is down does not wait for it, and a later one resumes.
#[test]
fn worker_stops_while_the_store_is_down() {
    let (scratch, mut etcd) = (Scratch::new(), EtcdServer::single());
    let store = &url(&etcd, "gone");
    let note = ["sh", "-c", "sleep 0.02; echo $1 >> seen", "sh", "{}"];
    let args = ["exec", "range:0..150", "--jobs", "2", "--lease", "1s", "--"];
    let args = [&args[..], &note].concat();
    let child = gossip(&scratch, store, &args).spawn().unwrap();
    wait_until("some keys", || scratch.lines("seen").len() >= 20);
    etcd.kill();
    signal(&child, Signal::TERM);
    let stopped = finish(child);
    assert_eq!(stopped.code, Some(130), "{}", stopped.stderr);
    assert!(stopped.stderr.contains("stopped while the store is unusable"), "{}", stopped.stderr);
    etcd.restart();
    let ran = run(&scratch, store, &args);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(ran.stderr.contains("complete: 150 keys"), "{}", ran.stderr);
    assert_eq!(scratch.lines("seen").iter().collect::<BTreeSet<_>>().len(), 150);
}

#[test]
fn search_for_secrets_is_refused_by_a_store_without_results() {
    let etcd = EtcdServer::single();
    let key = TenantSecretKey::from_bytes([7; 32]);
    let secrets = SecretScan::new(&RuleSet::built_in(), key).unwrap();
    let scan = Scan::of("range:0..2").store(url(&etcd, "findings"));
    let refused = scan.find_secrets(&secrets, |_| {}).unwrap_err();
    let text = "the store keeps no findings; use sqlite:PATH or postgres://USER@HOST/DB";
    assert!(matches!(refused, ScanError::NoResults), "{refused:?}");
    assert_eq!(refused.to_string(), text);
}

/// Their texts are cut: etcd holds all of its data in memory.
#[test]
fn findings_of_commands_are_stored_with_a_short_text() {
    let (scratch, etcd) = (Scratch::new(), EtcdServer::single());
    let store = &url(&etcd, "found");
    let script = "printf %300s $1; case $1 in *0) exit 10;; esac";
    let exec =
        ["exec", "range:0..30", "--found-status", "10", "--", "sh", "-c", script, "sh", "{}"];
    let ran = run(&scratch, store, &exec);
    assert!(ran.stderr.contains("30 keys, 3 findings"), "{}", ran.stderr);
    let shown = run(&scratch, store, &["findings", "@last", "-o", "jsonl"]);
    let values: Vec<Value> =
        shown.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let [found @ .., summary] = &values[..] else { panic!("{}", shown.stderr) };
    assert_eq!((found.len(), &summary["findings"]), (3, &Value::from(3)), "{}", shown.stdout);
    let is_short = |it: &Value| it["text"].as_str().unwrap().len() == 256 && it["cut"] == true;
    assert!(found.iter().all(is_short), "{}", shown.stdout);
}

/// Nothing is read again and again while a worker is busy: neither offers of other workers nor the
/// run. Of the requests counted here, about 25 are those of start and end.
#[test]
fn a_busy_worker_sends_few_requests() {
    let (scratch, etcd) = (Scratch::new(), EtcdServer::single());
    let before = requests(&etcd);
    let args = ["exec", "range:0..1", "-q", "-j1", "--lease", "60s", "--", "sleep", "4"];
    let ran = run(&scratch, &url(&etcd, "busy"), &args);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let sent = requests(&etcd) - before;
    assert!(sent <= 40, "{sent} requests");
}

/// Returns how many requests of keys and leases the server has received.
fn requests(etcd: &EtcdServer) -> u64 {
    let mut connection = TcpStream::connect(("127.0.0.1", etcd.client_port())).unwrap();
    connection.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").unwrap();
    let mut text = String::new();
    connection.read_to_string(&mut text).unwrap();
    let is_ours = |line: &&str| {
        line.starts_with("grpc_server_msg_received_total{")
            && (line.contains("etcdserverpb.KV") || line.contains("etcdserverpb.Lease"))
    };
    let number = |line: &str| line.rsplit(' ').next()?.parse::<u64>().ok();
    text.lines().filter(is_ours).filter_map(number).sum()
}
