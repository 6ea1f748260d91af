//! `gossip store restored`: leases from before a restore are refused.
#![expect(clippy::unwrap_used, reason = "a file of tests")]

mod support;

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use gossip::coordination::protocol::{FENCE_FLOOR_STEP, ReleaseMode};
use gossip::coordination::{
    AcquireScratch, CheckpointError, CoordinationBackend as _, Lease, ReleaseError,
    ShardClaiming as _,
};
use gossip::identity::{LogicalTime, OpId, RunId, TenantId, WorkerId};
use gossip::model::CursorUpdate;
use gossip::store::{Backend, Coordinator};

use support::Scratch;

/// A time after the clock of the command, so that no lease of the test is expired.
const NOW: u64 = 1 << 42;

fn tenant() -> TenantId {
    let mut id = [0; 32];
    id[..7].copy_from_slice(b"default");
    TenantId::from_bytes(id)
}

fn coordinator(scratch: &Scratch) -> Coordinator {
    let url = format!("sqlite:{}", scratch.store().display());
    Backend::open(&url.parse().unwrap()).unwrap().coordinator()
}

fn claim(coordinator: &mut Coordinator, now: u64, run: RunId, worker: u64) -> Lease {
    let (now, worker) = (LogicalTime::from_raw(now), WorkerId::from_raw(worker));
    let mut scratch = AcquireScratch::new();
    let claimed = coordinator.claim_next_available(now, tenant(), run, worker, &mut scratch);
    claimed.unwrap().lease
}

/// Backs the store up as an operator does, and returns the file.
fn back_up(scratch: &Scratch) -> PathBuf {
    let file = scratch.path().join("backup.db");
    let ran = scratch.run(&[OsStr::new("store"), OsStr::new("backup"), file.as_os_str()]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    file
}

/// The file of a store and the files that SQLite keeps beside it.
fn files(store: &Path) -> [PathBuf; 3] {
    ["", "-wal", "-shm"].map(|end| PathBuf::from(format!("{}{end}", store.display())))
}

/// Makes `to` a copy of the closed store `from`.
fn copy(from: &Path, to: &Path) {
    for (from, to) in files(from).into_iter().zip(files(to)) {
        if to.exists() {
            fs::remove_file(&to).unwrap();
        }
        if from.exists() {
            fs::copy(&from, &to).unwrap();
        }
    }
}

#[test]
fn worker_that_was_granted_a_shard_after_the_backup_is_refused() {
    let scratch = Scratch::new();
    let made = scratch.run(&["run", "create", "range:0..8", "--shards", "1", "--", "true"]);
    let id = made.stdout.trim();
    let run = RunId::from_raw(u64::from_str_radix(id, 16).unwrap());
    let backup = back_up(&scratch);
    let lost = {
        let mut late = coordinator(&scratch);
        claim(&mut late, NOW, run, 1)
    };
    copy(&backup, &scratch.store());

    let ran = scratch.run(&["store", "restored", "-o", "jsonl"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.stdout.contains(id) && ran.stdout.contains("fence_floor"), "{ran:?}");

    let mut after = coordinator(&scratch);
    let now = LogicalTime::from_raw(NOW + 1);
    let cursor = CursorUpdate::with_last_key(b"0");
    let written = after.checkpoint(now, tenant(), &lost, cursor, OpId::from_raw(1));
    assert!(matches!(written, Err(CheckpointError::StaleFence { .. })), "{written:?}");
    let new = claim(&mut after, NOW + 2, run, 2);
    assert!(new.fence().as_raw() >= FENCE_FLOOR_STEP && new.fence() > lost.fence());
    let released = after.release(now, tenant(), &lost, ReleaseMode::Clean, OpId::from_raw(2));
    assert!(matches!(released, Err(ReleaseError::StaleFence { .. })), "{released:?}");
}

#[test]
fn second_call_raises_the_floor_again() {
    let scratch = Scratch::new();
    scratch.run(&["run", "create", "range:0..8", "--shards", "1", "--", "true"]);
    let floor = || {
        let ran = scratch.run(&["store", "restored", "-o", "jsonl"]);
        let value: serde_json::Value = serde_json::from_str(ran.stdout.trim()).unwrap();
        value["fence_floor"].as_u64().unwrap()
    };
    let first = floor();
    assert!(floor() >= first + FENCE_FLOOR_STEP);
}

/// The commands of docs/operations.md, with a worker that holds a lease from after the backup.
#[test]
fn restored_run_is_resumed_and_a_worker_from_before_is_refused() {
    let scratch = Scratch::with_short_leases();
    let exec = ["exec", "range:0..8", "--shards", "1", "-j", "1", "--lease", "1s", "--", "echo"];
    let create = ["run", "create", "range:0..8", "--shards", "1", "--lease", "1s", "--", "echo"];
    let id = scratch.run(&create).stdout.trim().to_owned();
    let run = RunId::from_raw(u64::from_str_radix(&id, 16).unwrap());
    let backup = back_up(&scratch);
    let lost = claim(&mut coordinator(&scratch), NOW, run, 1);
    copy(&backup, &scratch.store());
    assert_eq!(scratch.run(&["store", "restored"]).code, Some(0));

    let cursor = CursorUpdate::with_last_key(b"0");
    let (now, op) = (LogicalTime::from_raw(NOW + 1), OpId::from_raw(1));
    let late = coordinator(&scratch).checkpoint(now, tenant(), &lost, cursor, op);
    assert!(matches!(late, Err(CheckpointError::StaleFence { .. })), "{late:?}");
    let ran = scratch.run(&exec);
    assert_eq!((ran.code, ran.stdout.lines().count()), (Some(0), 8), "{ran:?}");
    let shown = scratch.run(&["run", "show", &id, "-o", "jsonl"]);
    assert!(shown.stdout.contains("\"done\""), "{shown:?}");
}

#[test]
fn all_tenants_are_raised_unless_one_is_asked_for() {
    let scratch = Scratch::new();
    for tenant in ["one", "two"] {
        let create = ["run", "create", "range:0..8", "--shards", "1", "--tenant", tenant];
        scratch.run(&[&create[..], &["--", "true"]].concat());
    }
    let tenants = |args: &[&str]| {
        let ran = scratch.run(&[&["store", "restored", "-o", "jsonl"], args].concat());
        let names = ran.stdout.lines().map(|line| {
            let value: serde_json::Value = serde_json::from_str(line).unwrap();
            value["tenant"].as_str().unwrap().to_owned()
        });
        names.collect::<Vec<_>>()
    };
    assert_eq!(tenants(&[]), ["one", "two"]);
    assert_eq!(tenants(&["--only-tenant", "--tenant", "two"]), ["two"]);
    assert_eq!(tenants(&["--only-tenant"]), [""; 0]);
}
