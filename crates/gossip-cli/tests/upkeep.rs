//! A deletion that was killed in its midst, and the commands that come after it; and runs whose
//! record is damaged.
#![expect(clippy::unwrap_used, reason = "a file of tests")]

mod support;

use gossip::coordination::protocol::Tombstone;
use gossip::coordination::store::{Answer, Key, KeyRange, Read, Store as _, Txn, encode_tombstone};
use gossip::coordination::{RunManagement as _, ShardFilter};
use gossip::identity::{LogicalTime, OpId, RunId, ShardKey, TenantId};
use gossip::store::{Backend, Coordinator};
use rstest::rstest;

use support::{Ran, Scratch};

/// The tenant of whoever names none.
const TENANT_NAME: &[u8] = b"default";

/// Shards of the run that is deleted by half.
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

/// How many shards of a run are stored.
fn shards_of(coordinator: &mut Coordinator, run: RunId) -> u64 {
    let range = KeyRange::hot_shards_of(tenant(), run);
    match coordinator.store_mut().read(vec![Read::Count(range)]).unwrap().remove(0) {
        Answer::Count(count) => count,
        other => panic!("{other:?}"),
    }
}

/// A run that was cancelled and deleted, by a process that was killed with its first commit.
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

/// Whoever deletes a run, or makes one, clears away what is left of another; once.
#[rstest]
#[case::deletes(
    "gossip run rm $(gossip run list -o jsonl | sed 's/.*\"run\":\"\\([0-9a-f]*\\)\".*/\\1/')"
)]
#[case::makes("gossip exec range:0..2 --jobs 1 -- true")]
fn what_is_left_of_a_deletion_is_cleared_away_by_the_next_command(#[case] typed: &str) {
    let scratch = Scratch::new();
    ok(scratch.run(&["exec", "range:0..1", "--jobs", "1", "--shards", "1", "--", "true"]));
    let run = half_deleted(&scratch);
    let script = typed.replace("gossip ", &format!("{} ", env!("CARGO_BIN_EXE_gossip")));
    let mut shell = scratch.command("sh");
    let ran = ok(support::finish(shell.args(["-c", &script]).spawn().unwrap()));
    let told = "cleared away what was left of 1 run\n";
    assert!(ran.stderr.contains(told), "{}", ran.stderr);
    assert_eq!(shards_of(&mut coordinator(&scratch), run), 0);
    let ran = ok(scratch.run(&["exec", "range:0..3", "--jobs", "1", "--", "true"]));
    assert!(!ran.stderr.contains("cleared"), "{}", ran.stderr);
}

fn id_of(made: &Ran) -> (&str, RunId) {
    let id = made.stdout.trim();
    (id, RunId::from_raw(u64::from_str_radix(id, 16).unwrap()))
}

/// The list of runs, of which one cannot be read: it is shown as such, and the exit code tells.
fn list_with_unreadable(scratch: &Scratch, id: &str) -> Ran {
    let ran = scratch.run(&["run", "list", "-o", "jsonl"]);
    assert_eq!(ran.code, Some(5), "{ran:?}");
    let line = format!("{{\"run\":\"{id}\",\"status\":\"unreadable\"}}\n");
    assert!(ran.stdout.contains(&line), "{}", ran.stdout);
    assert!(ran.stderr.ends_with("gossip: 1 run cannot be read\n"), "{}", ran.stderr);
    ran
}

/// Whoever is told that something is damaged finds out which run it is, and can delete that one.
#[rstest]
#[case::head(|tenant, run| Key::RunHead { tenant, run })]
#[case::roots(|tenant, run| Key::RunRoots { tenant, run, chunk: 0 })]
fn a_damaged_run_is_listed_as_such_and_can_be_deleted(
    #[case] key: fn(TenantId, RunId) -> Key,
    // The second seems to be of a newer format, and is not.
    #[values(b"\x01\x02\x03", b"damaged")] garbage: &[u8],
) {
    let scratch = Scratch::new();
    let other = ok(scratch.run(&["run", "create", "range:0..4", "--shards", "1", "--", "true"]));
    let made = ok(scratch.run(&["run", "create", "range:0..8", "--shards", "2", "--", "true"]));
    let (id, run) = id_of(&made);
    // Not damaged, and not over: it takes more than the word.
    let ran = scratch.run(&["run", "rm", id, "--damaged"]);
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(ran.stderr.contains("the run is not over"), "{}", ran.stderr);
    let mut txn = Txn::new();
    txn.put(key(tenant(), run), garbage.to_vec());
    coordinator(&scratch).store_mut().commit(vec![txn]).remove(0).unwrap();
    let ran = scratch.run(&["run", "rm", id]);
    assert_eq!(ran.code, Some(5), "{ran:?}");
    assert!(ran.stderr.contains("next: gossip run list tells"), "{}", ran.stderr);
    // A variable that was left in the shell is not the word.
    let mut typed = scratch.gossip(&["run", "rm", id]);
    let ran = support::finish(typed.env("GOSSIP_DAMAGED", "yes").spawn().unwrap());
    assert_eq!(ran.code, Some(5), "{ran:?}");
    let ran = list_with_unreadable(&scratch, id);
    assert!(ran.stdout.contains(id_of(&other).0), "{}", ran.stdout);
    let advice = format!("if it is damaged, gossip run rm {id} --damaged deletes it\n");
    assert!(ran.stderr.contains(&advice), "{}", ran.stderr);
    let ran = ok(scratch.run(&["run", "rm", id, "--damaged", "-o", "jsonl"]));
    let told = format!("{{\"run\":\"{id}\",\"status\":\"deleted\"}}\n");
    assert_eq!((ran.stdout, ran.stderr.as_str()), (told, "deleted\n"));
    assert_eq!(shards_of(&mut coordinator(&scratch), run), 0);
    let ran = ok(scratch.run(&["run", "list", "-o", "jsonl"]));
    assert!(!ran.stdout.contains(id) && ran.stderr.is_empty(), "{ran:?}");
    // Its id is not used again: the same command makes the next generation.
    let again = ok(scratch.run(&["run", "create", "range:0..8", "--shards", "2", "--", "true"]));
    assert_ne!(id_of(&again).1, run);
}

/// A run that can be read is no damaged one, whatever its shards say: it is ended first.
#[rstest]
#[case::hot(|tenant, shard| Key::ShardHot { tenant, shard })]
#[case::cold(|tenant, shard| Key::ShardCold { tenant, shard })]
fn what_is_typed_for_a_damaged_shard_is_told_and_works(#[case] key: fn(TenantId, ShardKey) -> Key) {
    let scratch = Scratch::new();
    let made = ok(scratch.run(&["run", "create", "range:0..8", "--shards", "2", "--", "true"]));
    let (id, run) = id_of(&made);
    let coordinator = &mut coordinator(&scratch);
    let (mut rows, now) = (Vec::new(), LogicalTime::from_raw(1));
    coordinator.list_shards_into(now, tenant(), run, ShardFilter::all(), &mut rows).unwrap();
    let mut txn = Txn::new();
    txn.put(key(tenant(), ShardKey::new(run, rows[0].shard)), b"\x01\x02\x03".to_vec());
    coordinator.store_mut().commit(vec![txn]).remove(0).unwrap();
    let ran = list_with_unreadable(&scratch, id);
    let advice = format!("if it is damaged, gossip run cancel {id}, then gossip run rm {id} ");
    assert!(ran.stderr.contains(&advice), "{}", ran.stderr);
    ok(scratch.run(&["run", "cancel", id]));
    let ran = list_with_unreadable(&scratch, id);
    let advice = format!("if it is damaged, gossip run rm {id} deletes it\n");
    assert!(ran.stderr.contains(&advice), "{}", ran.stderr);
    ok(scratch.run(&["run", "rm", id]));
    assert_eq!(shards_of(coordinator, run), 0);
    ok(scratch.run(&["run", "list"]));
}
