//! Grants whose replies are lost do not park a shard; workers that die do (DESIGN Q13, ADR 82).
//!
//! The story: a slow store commits every grant and answers none in time. Each worker that asks
//! gets the shard without learning of it, its lease expires, and the next worker asks. Counted as
//! attempts, these grants parked a shard that no worker had ever seen.

use gossip_contracts::coordination::{
    CursorSemantics, CursorUpdate, InitialShardInput, ShardSpecRef,
};
use gossip_contracts::identity::{LogicalTime, OpId, RunId, ShardId, ShardKey, TenantId, WorkerId};
use rstest::rstest;

use super::{
    Answer, CommitOutcome, MapStore, Read, Store, StoreConfig, StoreCoordinator, StoreLimits, Txn,
};
use crate::*;

const TENANT: TenantId = TenantId::from_bytes([4; 32]);
const RUN: RunId = RunId::from_raw(5);
const KEY: ShardKey = ShardKey::new(RUN, ShardId::from_raw(0));
const LEASE: u64 = 100;

/// A store that applies the first commits and returns no reply from then on.
struct Mute {
    inner: MapStore,
    /// Commits that are answered before it falls silent.
    answered: u32,
}

impl Mute {
    const fn is_silent(&self) -> bool {
        self.answered == 0
    }
}

fn no_reply() -> InfraError {
    InfraError::Transient { operation: "mute.read", message: "no reply".to_owned() }
}

impl Store for Mute {
    fn read(&mut self, reads: Vec<Read>) -> Result<Vec<Answer>, InfraError> {
        // The load before the first commit is answered: only then is there a commit to lose.
        if self.is_silent() { Err(no_reply()) } else { self.inner.read(reads) }
    }

    fn commit(&mut self, txns: Vec<Txn>) -> Vec<Result<CommitOutcome, InfraError>> {
        let outcomes = self.inner.commit(txns);
        self.answered -= 1;
        match self.is_silent() {
            true => outcomes.iter().map(|_| Ok(CommitOutcome::Unknown)).collect(),
            false => outcomes,
        }
    }

    fn wait(&mut self, _: u64) {}

    fn limits(&self) -> StoreLimits {
        StoreLimits::GENEROUS
    }
}

fn administrator(retries: u32) -> StoreCoordinator<MapStore> {
    let mut admin = StoreCoordinator::new(MapStore::new(), StoreConfig::new(1 << 32));
    let spec = ShardSpecRef::new(b"a", b"z", b"");
    let root = InitialShardInput { shard_id: KEY.shard(), spec, cursor: CursorUpdate::initial() };
    let config = RunConfig::try_new(CursorSemantics::Completed, LEASE, Some(retries)).unwrap();
    let (now, op_id) = (LogicalTime::from_raw(1), OpId::from_raw(1));
    admin.create_run_with_shards(now, TENANT, RUN, config, &[root], op_id).unwrap();
    admin
}

/// The start of the nth lease; the leases before it have expired.
const fn turn(nth: u64) -> LogicalTime {
    LogicalTime::from_raw(10 + nth * LEASE)
}

/// Worker `nth` acquires through a store that answers `answered` commits and is silent then.
fn acquire_and_lose(admin: &StoreCoordinator<MapStore>, nth: u64, answered: u32) {
    let store = Mute { inner: admin.store().another_handle(), answered: answered + 1 };
    let mut worker = StoreCoordinator::new(store, StoreConfig::new((nth + 2) << 32));
    let (by, mut scratch) = (WorkerId::from_raw(nth), AcquireScratch::new());
    let lost = worker.acquire_and_restore_into(turn(nth), TENANT, KEY, by, &mut scratch);
    let Err(AcquireError::BackendError(error)) = lost else { panic!("{lost:?}") };
    assert!(error.is_unresolved(), "the grant was applied: {error}");
}

/// Worker `nth` acquires; returns the attempts that it is shown.
fn acquire(admin: &StoreCoordinator<MapStore>, nth: u64) -> Result<u32, AcquireError> {
    let store = admin.store().another_handle();
    let mut worker = StoreCoordinator::new(store, StoreConfig::new((nth + 2) << 32));
    let (by, mut scratch) = (WorkerId::from_raw(nth), AcquireScratch::new());
    let granted = worker.acquire_and_restore_into(turn(nth), TENANT, KEY, by, &mut scratch)?;
    Ok(granted.attempts)
}

#[rstest]
#[case::no_retries(0)]
#[case::one_retry(1)]
#[case::three_retries(3)]
fn lost_grants_do_not_park_a_shard(#[case] retries: u32) {
    let admin = administrator(retries);
    for nth in 0..20 {
        acquire_and_lose(&admin, nth, 0);
    }
    let attempts = acquire(&admin, 20).expect("no worker has had the shard");
    assert!(attempts <= 2, "at most one lost grant counts: {attempts}");
}

/// The grant arrived, and the reply to its confirmation is lost: no worker has the lease either,
/// but the process may have died, so the attempt counts.
#[test]
fn confirmed_grant_counts_once() {
    let admin = administrator(9);
    assert_eq!(acquire(&admin, 0).unwrap(), 1);
    acquire_and_lose(&admin, 1, 1);
    assert_eq!(acquire(&admin, 2).unwrap(), 3);
}

#[rstest]
#[case::no_retries(0)]
#[case::one_retry(1)]
#[case::three_retries(3)]
fn workers_that_die_before_their_first_renewal_park_the_shard(#[case] retries: u32) {
    let admin = administrator(retries);
    for nth in 0..=u64::from(retries) {
        assert_eq!(acquire(&admin, nth).unwrap(), nth as u32 + 1);
    }
    let parked = acquire(&admin, u64::from(retries) + 1);
    let status = ShardStatus::Parked;
    assert_eq!(parked, Err(AcquireError::ShardTerminal { shard: KEY, status }));
}

/// Lost grants between deaths neither count nor reset the count.
#[test]
fn deaths_are_counted_between_lost_grants() {
    let admin = administrator(2);
    for death in 0..3 {
        let first = 5 * death;
        assert_eq!(acquire(&admin, first).unwrap(), death as u32 + 1);
        let lost = if death < 2 { 4 } else { 0 };
        (first + 1..=first + lost).for_each(|nth| acquire_and_lose(&admin, nth, 0));
    }
    assert!(matches!(acquire(&admin, 15), Err(AcquireError::ShardTerminal { .. })));
}
