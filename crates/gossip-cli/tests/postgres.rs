//! Several workers on one PostgreSQL server: joining by URL with a password, and a server that is
//! killed and recovers.

mod support;

use std::collections::BTreeSet;
use std::process::Command;

use gossip_testkit::test_support::{PostgresOptions, PostgresServer};
use serde_json::Value;

use support::{Scratch, finish, wait_until};

const PASSWORD: &str = "canary";

/// A server on which the role `worker` needs a password.
fn server() -> PostgresServer {
    let server = PostgresServer::with_options(&PostgresOptions {
        access: vec![
            "host all gossip 127.0.0.1/32 trust".to_owned(),
            "host all worker 127.0.0.1/32 scram-sha-256".to_owned(),
        ],
        ..PostgresOptions::default()
    });
    server.sql(&format!("CREATE ROLE worker LOGIN PASSWORD '{PASSWORD}'"));
    server.sql("GRANT CREATE ON DATABASE postgres TO worker");
    server
}

/// The binary with a store on the server.
fn gossip(scratch: &Scratch, server: &PostgresServer, args: &[&str]) -> Command {
    let mut command = scratch.gossip(args);
    let url = format!("postgres://worker@127.0.0.1:{}/postgres?schema=team", server.port());
    command.env("GOSSIP_STORE", url).env("PGPASSWORD", PASSWORD);
    command
}

#[test]
fn machines_join_a_run_by_its_url_and_a_password_from_the_environment() {
    let (scratch, server) = (Scratch::new(), server());
    let note = ["sh", "-c", "sleep 0.01; echo $1 >> seen", "sh", "{}"];
    let create = [&["run", "create", "range:0..200", "--shards", "6", "--"], &note[..]].concat();
    let made = finish(gossip(&scratch, &server, &create).spawn().unwrap());
    assert_eq!(made.code, Some(0), "{}", made.stderr);
    let id = made.stdout.trim();
    let join = ["worker", id, "--jobs", "2", "-q", "-o", "jsonl"];
    let joined = [(); 3].map(|()| gossip(&scratch, &server, &join).spawn().unwrap());
    let ended = joined.map(finish);
    assert!(ended.iter().all(|ran| ran.code == Some(0) && ran.stderr.is_empty()), "{ended:?}");
    let summaries = ended.each_ref().map(|ran| serde_json::from_str::<Value>(&ran.stdout).unwrap());
    let here: u64 = summaries.iter().filter_map(|it| it["keys_here"].as_u64()).sum();
    assert_eq!(here, 200);
    assert_eq!(scratch.lines("seen").len(), 200);
    let mut without = gossip(&scratch, &server, &["run", "list"]);
    let refused = finish(without.env_remove("PGPASSWORD").env_remove("HOME").spawn().unwrap());
    assert_ne!(refused.code, Some(0));
    assert!(!refused.stderr.contains(PASSWORD), "{}", refused.stderr);
}

/// Crash recovery raises the fence floors: leases are refused and claimed again; no key is lost.
#[test]
fn a_killed_server_loses_no_key() {
    let (scratch, mut server) = (Scratch::new(), server());
    let note = ["sh", "-c", "sleep 0.02; echo $1 >> seen", "sh", "{}"];
    let args = ["exec", "range:0..150", "--jobs", "2", "--lease", "1s", "-o", "jsonl", "--"];
    let args = [&args[..], &note].concat();
    let child = gossip(&scratch, &server, &args).spawn().unwrap();
    wait_until("some keys", || scratch.lines("seen").len() >= 20);
    server.kill();
    server.restart_killed();
    let ran = finish(child);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(ran.stdout.contains("\"keys\":150"), "{}", ran.stdout);
    let seen: BTreeSet<_> = scratch.lines("seen").into_iter().collect();
    assert_eq!(seen.len(), 150);
}

#[test]
fn store_is_created_declared_and_measured() {
    let (scratch, server) = (Scratch::new(), server());
    let run = |args: &[&str]| finish(gossip(&scratch, &server, args).spawn().unwrap());
    let made = run(&["store", "init", "--durability", "replicated"]);
    assert_eq!(made.code, Some(0), "{}", made.stderr);
    assert_eq!(run(&["exec", "range:0..3", "-q", "--", "true", "{}"]).code, Some(0));
    let stats = run(&["store", "stats", "-o", "json"]);
    assert_eq!(stats.code, Some(0), "{}", stats.stderr);
    let stats: Value = serde_json::from_str(&stats.stdout).unwrap();
    assert!(stats["rows"].as_u64() > Some(3) && stats["size"].as_u64() > Some(8_192), "{stats}");
    assert_eq!((&stats["durability"], &stats["format"]), (&"replicated".into(), &2.into()));
    assert_eq!(stats["incarnation"].as_str().map(str::len), Some(16), "{stats}");
    // A store without these has another command.
    for args in [&["store", "stats"][..], &["store", "init", "--durability", "local"]] {
        let refused = scratch.run(args);
        assert_ne!(refused.code, Some(0));
        assert!(!refused.stderr.is_empty());
    }
    assert_eq!(scratch.run(&["store", "init"]).code, Some(0));
    let refused = scratch.run(&["store", "stats"]);
    assert!(refused.stderr.contains("gossip doctor"), "{}", refused.stderr);
}
