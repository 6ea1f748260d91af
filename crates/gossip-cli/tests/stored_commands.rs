//! Commands from the store: a worker runs one unasked only if its own job key signed it.

#![expect(clippy::unwrap_used, reason = "a file of tests")]

mod support;

use std::process::Command;

use gossip::coordination::{RunManagement as _, ShardFilter};
use gossip::identity::{OpId, RunId};
use gossip::model::{CursorUpdate, InitialShardInput, ShardSpecRef};
use gossip::runtime::{Clock as _, SystemClock};
use gossip::store::{Backend, StoreUrl};
use gossip::{DEFAULT_TENANT, tenant_id};
use gossip_testkit::test_support::{EtcdServer, PostgresServer};

use support::{Ran, Scratch, finish, write_key};

/// The binary with a store and with the job key in a file, or with none.
fn gossip(scratch: &Scratch, store: &str, key: Option<&str>, args: &[&str]) -> Ran {
    let mut command: Command = scratch.gossip(args);
    command.env("GOSSIP_STORE", store).env_remove("GOSSIP_JOB_KEY_FILE");
    if let Some(key) = key {
        command.env("GOSSIP_JOB_KEY_FILE", scratch.path().join(key));
    }
    finish(command.spawn().unwrap())
}

/// Creates a run whose command writes a line, signed by a key or not at all.
fn create(scratch: &Scratch, store: &str, key: Option<&str>, range: &str) -> String {
    let args = ["-q", "run", "create", range, "--", "sh", "-c", "echo $1 >> ran", "sh", "{}"];
    let made = gossip(scratch, store, key, &args);
    assert_eq!(made.code, Some(0), "{}", made.stderr);
    made.stdout.trim().to_owned()
}

/// Registers a run of a tenant whose shards have the job of another run of the default tenant.
fn copy_job(store: &str, from: &str, (tenant, run): (&str, RunId)) {
    let backend = Backend::open(&store.parse::<StoreUrl>().unwrap()).unwrap();
    let (mut coordinator, now) = (backend.coordinator(), SystemClock::new().now());
    let owner = tenant_id(DEFAULT_TENANT).unwrap();
    let from = RunId::from_raw(u64::from_str_radix(from, 16).unwrap());
    let mut roots = Vec::new();
    coordinator.list_shards_into(now, owner, from, ShardFilter::all(), &mut roots).unwrap();
    let config = coordinator.get_run(owner, from).unwrap().config();
    let inputs: Vec<_> = roots
        .iter()
        .map(|root| InitialShardInput {
            shard_id: root.shard,
            spec: ShardSpecRef::new(&root.start, &root.end, &root.metadata),
            cursor: CursorUpdate::initial(),
        })
        .collect();
    let (tenant, op) = (tenant_id(tenant).unwrap(), OpId::from_raw(9));
    coordinator.create_run_with_shards(now, tenant, run, config, &inputs, op).unwrap();
}

fn check(store: &str) {
    let scratch = Scratch::new();
    for (name, digit) in [("ours", 'a'), ("theirs", 'b')] {
        write_key(&scratch.path().join(name), digit);
    }
    let refused = |key: Option<&str>, run: &str| {
        let ran = gossip(&scratch, store, key, &["worker", run]);
        assert_eq!(ran.code, Some(2), "{}", ran.stderr);
        for way_out in ["--allow-command", "copy the job key", "not signed"] {
            assert!(ran.stderr.contains(way_out), "{way_out}: {}", ran.stderr);
        }
        assert!(!ran.stderr.contains(&"a".repeat(64)), "{}", ran.stderr);
        assert!(scratch.lines("ran").is_empty());
    };
    // One who can write the store has no key, or another one.
    let forged = create(&scratch, store, Some("theirs"), "range:0..1");
    let unsigned = create(&scratch, store, None, "range:1..2");
    for run in [&forged, &unsigned] {
        refused(Some("ours"), run);
    }
    // A worker without a key trusts no stored command.
    let ours = create(&scratch, store, Some("ours"), "range:2..3");
    refused(None, &ours);
    refused(Some("theirs"), &ours);
    // A signed job that was copied, as one with raw access to the store could.
    let moved = RunId::from_raw(77);
    copy_job(store, &ours, (DEFAULT_TENANT, moved));
    refused(Some("ours"), &format!("{:016x}", moved.as_raw()));
    copy_job(store, &ours, ("eve", RunId::from_raw(u64::from_str_radix(&ours, 16).unwrap())));
    let of_eve = gossip(&scratch, store, Some("ours"), &["--tenant", "eve", "worker", &ours]);
    assert_eq!(of_eve.code, Some(2), "{}", of_eve.stderr);
    assert!(of_eve.stderr.contains("not signed"), "{}", of_eve.stderr);
    assert!(scratch.lines("ran").is_empty());
    // Three ways to run it: the same key, leave for this one, and a command of the worker's own.
    let signed = gossip(&scratch, store, Some("ours"), &["worker", &ours]);
    assert_eq!(signed.code, Some(0), "{}", signed.stderr);
    let allowed = gossip(&scratch, store, None, &["worker", &forged, "--allow-command"]);
    assert_eq!(allowed.code, Some(0), "{}", allowed.stderr);
    let own = ["worker", &unsigned, "--", "sh", "-c", "echo own >> ran"];
    let own = gossip(&scratch, store, None, &own);
    assert_eq!(own.code, Some(0), "{}", own.stderr);
    assert_eq!(scratch.lines("ran"), ["2", "0", "own"]);
}

#[test]
fn forged_commands_do_not_run_from_sqlite() {
    let scratch = Scratch::new();
    check(&format!("sqlite:{}", scratch.store().display()));
}

#[test]
fn forged_commands_do_not_run_from_etcd() {
    let etcd = EtcdServer::single();
    check(&format!("etcd://127.0.0.1:{}/team", etcd.client_port()));
}

#[test]
fn forged_commands_do_not_run_from_postgres() {
    let server = PostgresServer::single();
    let (user, port) = (server.user(), server.port());
    check(&format!("postgres://{user}@127.0.0.1:{port}/postgres"));
}

/// The key is made with the first run, for its user only, and workers of the same user have it.
#[test]
fn job_key_is_made_on_first_use_in_the_configuration_directory() {
    let scratch = Scratch::new();
    let gossip = |args: &[&str]| {
        let mut command = scratch.gossip(args);
        command.env_remove("GOSSIP_JOB_KEY_FILE").env("HOME", scratch.path());
        finish(command.spawn().unwrap())
    };
    let key = scratch.path().join(".config/gossip/job-key");
    assert_eq!(gossip(&["exec", "range:0..1", "--plan", "--", "true"]).code, Some(0));
    assert!(!key.exists(), "a plan writes nothing");
    let made = gossip(&["-q", "run", "create", "range:0..1", "--", "true", "{}"]);
    assert_eq!(std::fs::read_to_string(&key).unwrap().trim().len(), 64);
    let mode = std::os::unix::fs::MetadataExt::mode(&key.metadata().unwrap());
    assert_eq!(mode & 0o777, 0o600);
    let joined = gossip(&["worker", made.stdout.trim()]);
    assert_eq!(joined.code, Some(0), "{}", joined.stderr);
    // One that others may read is no secret.
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o644);
    std::fs::set_permissions(&key, open).unwrap();
    let refused = gossip(&["worker", made.stdout.trim()]);
    assert_eq!(refused.code, Some(2), "{}", refused.stderr);
    assert!(refused.stderr.contains("chmod 600"), "{}", refused.stderr);
}
