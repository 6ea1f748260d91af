//! Garbage collection of interrupted deletions, and deletion of runs with damaged records.
#![expect(clippy::unwrap_used, reason = "a file of tests")]

mod support;

use gossip::coordination::protocol::Tombstone;
use gossip::coordination::store::{Answer, Key, KeyRange, Read, Store as _, Txn, encode_tombstone};
use gossip::coordination::{RunManagement as _, ShardFilter};
use gossip::identity::{LogicalTime, OpId, RunId, ShardKey, TenantId};
use gossip::store::{Backend, Coordinator};
use rstest::rstest;

use support::{Ran, Scratch};

/// The default tenant.
const TENANT_NAME: &[u8] = b"default";

/// Shards of the run whose deletion is interrupted.
const SHARDS: u64 = 2;

fn tenant() -> TenantId {
    let mut id = [0; 32];
    id[..TENANT_NAME.len()].copy_from_slice(TENANT_NAME);
    TenantId::from_bytes(id)
}

fn coordinator(scratch: &Scratch) -> Coordinator {
    let url = format!("sqlite:{}", scratch.path().join("store.db").display());
    Backend::open(&url.parse().unwrap()).unwrap().coordinator()
}

/// Returns the number of stored shards of a run.
fn shards_of(coordinator: &mut Coordinator, run: RunId) -> u64 {
    let range = KeyRange::hot_shards_of(tenant(), run);
    match coordinator.store_mut().read(vec![Read::Count(range)]).unwrap().remove(0) {
        Answer::Count(count) => count,
        other => panic!("{other:?}"),
    }
}

/// Creates a run whose deletion was interrupted after its first commit.
fn half_deleted(scratch: &Scratch) -> RunId {
    let made = ok(scratch.run(&["run", "create", "range:0..8", "--shards", "2", "--", "true"]));
    let id = made.stdout.trim();
    ok(scratch.run(&["run", "cancel", id]));
    let (tenant, run) = (tenant(), RunId::from_raw(u64::from_str_radix(id, 16).unwrap()));
    let coordinator = &mut coordinator(scratch);
    let mut grave = Vec::new();
    let tombstone = Tombstone { op_id: OpId::from_raw(1), payload_hash: 1 };
    encode_tombstone(tenant, run, &tombstone, &mut grave);
    let mut txn = Txn::new();
    txn.delete(Key::RunHead { tenant, run });
    txn.put(Key::Tombstone { tenant, run }, grave);
    coordinator.store_mut().commit(vec![txn]).remove(0).unwrap();
    assert_eq!(shards_of(coordinator, run), SHARDS);
    run
}

fn ok(ran: Ran) -> Ran {
    assert_eq!(ran.code, Some(0), "{ran:?}");
    ran
}

/// The next command that deletes or creates a run completes an interrupted deletion, once.
#[rstest]
#[case::deletes(
    "gossip run rm $(gossip run list -o jsonl | sed 's/.*\"run\":\"\\([0-9a-f]*\\)\".*/\\1/')"
)]
#[case::makes("gossip exec range:0..2 --jobs 1 -- true")]
fn next_command_completes_an_interrupted_deletion(#[case] command: &str) {
    let scratch = Scratch::new();
    ok(scratch.run(&["exec", "range:0..1", "--jobs", "1", "--shards", "1", "--", "true"]));
    let run = half_deleted(&scratch);
    let script = command.replace("gossip ", &format!("{} ", env!("CARGO_BIN_EXE_gossip")));
    let mut shell = scratch.command("sh");
    let ran = ok(support::finish(shell.args(["-c", &script]).spawn().unwrap()));
    let text = "removed the remaining data of 1 deleted run\n";
    assert!(ran.stderr.contains(text), "{}", ran.stderr);
    assert_eq!(shards_of(&mut coordinator(&scratch), run), 0);
    let ran = ok(scratch.run(&["exec", "range:0..3", "--jobs", "1", "--", "true"]));
    assert!(!ran.stderr.contains("removed"), "{}", ran.stderr);
}

fn id_of(made: &Ran) -> (&str, RunId) {
    let id = made.stdout.trim();
    (id, RunId::from_raw(u64::from_str_radix(id, 16).unwrap()))
}

/// Lists the runs, and checks that one is listed as unreadable and makes the command fail.
fn list_with_unreadable(scratch: &Scratch, id: &str) -> Ran {
    let ran = scratch.run(&["run", "list", "-o", "jsonl"]);
    assert_eq!(ran.code, Some(5), "{ran:?}");
    let line = format!("{{\"name\":null,\"run\":\"{id}\",\"status\":\"unreadable\"}}\n");
    assert!(ran.stdout.contains(&line), "{}", ran.stdout);
    assert!(ran.stderr.ends_with("gossip: 1 run cannot be read\n"), "{}", ran.stderr);
    ran
}

/// The list of runs names a damaged run and the command that deletes it.
#[rstest]
#[case::head(|tenant, run| Key::RunHead { tenant, run })]
#[case::roots(|tenant, run| Key::RunRoots { tenant, run, chunk: 0 })]
fn damaged_run_is_listed_and_can_be_deleted(
    #[case] key: fn(TenantId, RunId) -> Key,
    // The second looks like a newer format.
    #[values(b"\x01\x02\x03", b"damaged")] garbage: &[u8],
) {
    let scratch = Scratch::new();
    let other = ok(scratch.run(&["run", "create", "range:0..4", "--shards", "1", "--", "true"]));
    let made = ok(scratch.run(&["run", "create", "range:0..8", "--shards", "2", "--", "true"]));
    let (id, run) = id_of(&made);
    // The flag does not delete a run that is neither damaged nor finished.
    let ran = scratch.run(&["run", "rm", id, "--damaged"]);
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(ran.stderr.contains("the run is not finished"), "{}", ran.stderr);
    let mut txn = Txn::new();
    txn.put(key(tenant(), run), garbage.to_vec());
    coordinator(&scratch).store_mut().commit(vec![txn]).remove(0).unwrap();
    let ran = scratch.run(&["run", "rm", id]);
    assert_eq!(ran.code, Some(5), "{ran:?}");
    assert!(ran.stderr.contains("how to delete it: gossip run list"), "{}", ran.stderr);
    // An environment variable does not set the flag.
    let mut command = scratch.gossip(&["run", "rm", id]);
    let ran = support::finish(command.env("GOSSIP_DAMAGED", "yes").spawn().unwrap());
    assert_eq!(ran.code, Some(5), "{ran:?}");
    let ran = list_with_unreadable(&scratch, id);
    assert!(ran.stdout.contains(id_of(&other).0), "{}", ran.stdout);
    let advice = format!("If it is damaged, delete it: `gossip run rm {id} --damaged`\n");
    assert!(ran.stderr.contains(&advice), "{}", ran.stderr);
    let ran = ok(scratch.run(&["run", "rm", id, "--damaged", "-o", "jsonl"]));
    let record = format!("{{\"run\":\"{id}\",\"status\":\"deleted\"}}\n");
    assert_eq!((ran.stdout, ran.stderr.as_str()), (record, "deleted\n"));
    assert_eq!(shards_of(&mut coordinator(&scratch), run), 0);
    let ran = ok(scratch.run(&["run", "list", "-o", "jsonl"]));
    assert!(!ran.stdout.contains(id) && ran.stderr.is_empty(), "{ran:?}");
    // Its id is not reused: the same command creates the next generation.
    let again = ok(scratch.run(&["run", "create", "range:0..8", "--shards", "2", "--", "true"]));
    assert_ne!(id_of(&again).1, run);
}

/// A run whose head is damaged may be unfinished, and hides no other run.
#[test]
fn active_runs_are_listed_beside_a_damaged_head() {
    let scratch = Scratch::new();
    let other = ok(scratch.run(&["run", "create", "range:0..4", "--shards", "1", "--", "true"]));
    let made = ok(scratch.run(&["run", "create", "range:0..8", "--shards", "2", "--", "true"]));
    ok(scratch.run(&["exec", "range:0..2", "--name", "finished", "--", "true"]));
    let (id, run) = id_of(&made);
    let mut txn = Txn::new();
    txn.put(Key::RunHead { tenant: tenant(), run }, b"damaged".to_vec());
    coordinator(&scratch).store_mut().commit(vec![txn]).remove(0).unwrap();
    let ran = scratch.run(&["run", "list", "--active", "-o", "jsonl"]);
    assert_eq!(ran.code, Some(5), "{ran:?}");
    assert!(ran.stdout.contains(id) && ran.stdout.contains(id_of(&other).0), "{ran:?}");
    assert_eq!(ran.stdout.lines().count(), 2, "{}", ran.stdout);
    ok(scratch.run(&["worker", "list"]));
}

/// A damaged shard makes no run unreadable: it is counted, and the run can be cancelled and
/// deleted.
#[rstest]
#[case::hot(|tenant, shard| Key::ShardHot { tenant, shard })]
#[case::cold(|tenant, shard| Key::ShardCold { tenant, shard })]
fn run_with_a_damaged_shard_is_listed_and_deleted(#[case] key: fn(TenantId, ShardKey) -> Key) {
    let scratch = Scratch::new();
    let made = ok(scratch.run(&["run", "create", "range:0..8", "--shards", "2", "--", "true"]));
    let (id, run) = id_of(&made);
    let coordinator = &mut coordinator(&scratch);
    let (mut rows, now) = (Vec::new(), LogicalTime::from_raw(1));
    coordinator.list_shards_into(now, tenant(), run, ShardFilter::all(), &mut rows).unwrap();
    let mut txn = Txn::new();
    txn.put(key(tenant(), ShardKey::new(run, rows[0].shard)), b"\x01\x02\x03".to_vec());
    coordinator.store_mut().commit(vec![txn]).remove(0).unwrap();
    for status in ["active", "cancelled"] {
        if status == "cancelled" {
            ok(scratch.run(&["run", "cancel", id]));
        }
        let ran = ok(scratch.run(&["run", "list", "-o", "jsonl"]));
        assert!(ran.stdout.contains("\"damaged\":1"), "{}", ran.stdout);
        assert!(ran.stdout.contains(&format!("\"status\":\"{status}\"")), "{}", ran.stdout);
    }
    ok(scratch.run(&["run", "rm", id]));
    assert_eq!(shards_of(coordinator, run), 0);
    ok(scratch.run(&["run", "list"]));
}
