//! Group commit and owner lease under task orders that no runtime produces on its own
//! (`explorer.rs`), on the model of etcd, with its faults.
//!
//! Callers commit concurrently, and some read an owner key first, which prefetches the lease
//! concurrently. Some abandon a commit at any point where it waits, and some stop polling a commit
//! they began until all other callers are done.
//!
//! # Laws
//! - No caller waits forever, even if another gives up, stops polling, or meets a fault.
//! - Each transaction is answered once, with its outcome: applied ones are stored, refused ones are
//!   not, none is applied twice, and of those that expect the same key to be absent at most one is
//!   applied.
//! - No transaction is sent after its caller gave up, and at most two requests are in flight; a
//!   finished sender releases its permit.
//! - A process requests one lease, and another only when that one is gone; an owner whose key was
//!   deleted with its lease can see that from the binding.
//! - The tasks of a store end with its last handle.

use std::collections::{BTreeMap, BTreeSet};
use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::Poll;

use gossip_contracts::identity::{RunId, ShardId, ShardKey, TenantId};
use gossip_coordination::store::{AsyncStore, CommitOutcome, Key, Read, Txn};
use tokio::sync::Semaphore;

use crate::explorer::{Explorer, pause};
use crate::message::TxnMessage;
use crate::proto::{RangeRequest, RangeResponse, Request, TxnRequest, TxnResponse};
use crate::sender::Outcome;
use crate::sim_etcd_kv::{FaultRates, SimEtcdKv};
use crate::tasks::Tasks;
use crate::{Alarm, EtcdConfig, EtcdError, EtcdKv, EtcdStore, LeaseGrant, LeaseTtl, MemberStatus};

/// Orders that are tried: some seconds without optimisation.
const ORDERS: u64 = 2_000;

const CALLERS: u64 = 6;
/// Commits of each caller.
const COMMITS: u64 = 3;

/// Within so long every retry has ended.
const QUIET_MILLIS: u64 = 10_000;

/// As many requests may be in flight.
const SENDER_TASKS: usize = 2;

/// The number of the key that every `Contend` transaction expects to be absent.
const CONTENDED: u64 = 1_000_000;

/// Observed requests, and the transactions whose callers gave up.
#[derive(Debug, Default)]
struct Wire {
    in_flight: usize,
    in_flight_max: usize,
    /// Leases whose grant was returned. A lease requested by a caller that gave up may be granted,
    /// too, and expires without a keep-alive.
    grants: u64,
    /// Transactions of callers that gave up, by their numbers.
    given_up: BTreeSet<u64>,
    /// Those of them whose sending was begun afterwards.
    sent_in_vain: BTreeSet<u64>,
}

/// The model of etcd, each of whose requests takes a while both ways.
#[derive(Clone, Debug)]
struct SlowKv {
    model: SimEtcdKv,
    explorer: Explorer,
    wire: Arc<Mutex<Wire>>,
}

impl SlowKv {
    fn wire(&self) -> MutexGuard<'_, Wire> {
        self.wire.lock().unwrap()
    }

    /// The model's time is the explorer's.
    async fn travel(&self) {
        pause().await;
        self.model.advance(self.explorer.now().saturating_sub(self.model.now()));
    }
}

/// A request on its way.
struct Flight(Arc<Mutex<Wire>>);

impl Flight {
    fn begin(kv: &SlowKv) -> Self {
        let mut wire = kv.wire();
        wire.in_flight += 1;
        wire.in_flight_max = wire.in_flight_max.max(wire.in_flight);
        Self(Arc::clone(&kv.wire))
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        self.0.lock().unwrap().in_flight -= 1;
    }
}

impl EtcdKv for SlowKv {
    async fn range(&self, request: RangeRequest) -> Result<RangeResponse, EtcdError> {
        self.travel().await;
        self.model.range(request).await
    }

    async fn txn(&self, request: impl TxnMessage) -> Result<TxnResponse, EtcdError> {
        let request = request.into_request();
        let _flight = Flight::begin(self);
        {
            let mut wire = self.wire();
            let vain = put_numbers(&request).into_iter().filter(|it| wire.given_up.contains(it));
            let vain: Vec<u64> = vain.collect();
            wire.sent_in_vain.extend(vain);
        }
        self.travel().await;
        let answer = self.model.txn(request).await;
        self.travel().await;
        answer
    }

    async fn lease_grant(&self, ttl_seconds: i64) -> Result<LeaseGrant, EtcdError> {
        self.travel().await;
        let granted = self.model.lease_grant(ttl_seconds).await;
        self.travel().await;
        self.wire().grants += u64::from(granted.is_ok());
        granted
    }

    async fn lease_keep_alive(&self, lease: i64) -> Result<Option<i64>, EtcdError> {
        self.travel().await;
        let kept = self.model.lease_keep_alive(lease).await;
        self.travel().await;
        kept
    }

    async fn lease_revoke(&self, lease: i64) -> Result<(), EtcdError> {
        self.model.lease_revoke(lease).await
    }

    async fn lease_time_to_live(&self, lease: i64) -> Result<Option<LeaseTtl>, EtcdError> {
        self.model.lease_time_to_live(lease).await
    }

    async fn compact(&self, revision: i64) -> Result<(), EtcdError> {
        self.model.compact(revision).await
    }

    async fn status(&self) -> Result<MemberStatus, EtcdError> {
        self.model.status().await
    }

    async fn alarms(&self) -> Result<Vec<Alarm>, EtcdError> {
        self.model.alarms().await
    }

    async fn sleep(&self, millis: u64) {
        self.explorer.sleep(millis).await;
    }
}

/// The numbers of the transactions that a request carries.
fn put_numbers(request: &TxnRequest) -> Vec<u64> {
    let steps = request.success.iter().flat_map(|step| match &step.request {
        Some(Request::Put(put)) => vec![number_of(&put.value)],
        Some(Request::Txn(inner)) => put_numbers(inner),
        Some(Request::Range(_) | Request::DeleteRange(_)) | None => Vec::new(),
    });
    steps.collect()
}

fn number_of(value: &[u8]) -> u64 {
    u64::from_be_bytes(value.try_into().expect("values are numbers"))
}

fn key(number: u64) -> Key {
    let shard = ShardKey::new(RunId::from_raw(1), ShardId::from_raw(number));
    Key::Owner { tenant: TenantId::from_bytes([7; 32]), shard }
}

/// What a transaction does to its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Deed {
    /// Writes one of its own.
    Put,
    /// Binds one of its own.
    Bind,
    /// Writes the contended key, if it is absent.
    Contend,
}

impl Deed {
    fn txn(self, number: u64) -> Txn {
        let (mut txn, value) = (Txn::new(), number.to_be_bytes().to_vec());
        match self {
            Self::Put => txn.put(key(number), value),
            Self::Bind => txn.bind(key(number), value),
            Self::Contend => {
                txn.expect_revision(key(CONTENDED), None);
                txn.put(key(CONTENDED), value);
            }
        }
        txn
    }
}

/// The result of one transaction, as its caller received it.
#[derive(Debug)]
struct Told {
    deed: Deed,
    /// `None` if it gave up.
    outcome: Option<Outcome>,
    /// The binding before it began.
    binding: Option<u64>,
}

/// Everything that callers share.
#[derive(Clone)]
struct Stage {
    kv: SlowKv,
    told: Arc<Mutex<BTreeMap<u64, Told>>>,
    /// One permit for each finished caller that polled its commits without a pause.
    done: Arc<Semaphore>,
}

impl Stage {
    fn draw(&self, bound: u64) -> u64 {
        self.kv.explorer.draw(bound)
    }

    /// Some transactions with numbers from `first` on.
    fn deeds(&self, first: u64) -> Vec<(u64, Deed)> {
        let deed = |number| match self.draw(4) {
            0 | 1 => (number, Deed::Put),
            2 => (number, Deed::Bind),
            _ => (number, Deed::Contend),
        };
        (first..=first + self.draw(2)).map(deed).collect()
    }

    /// Commits, and gives up after so many looks.
    async fn commit(
        &self,
        store: &mut EtcdStore<SlowKv>,
        deeds: &[(u64, Deed)],
        looks: u64,
    ) -> Option<Vec<Outcome>> {
        let txns = deeds.iter().map(|(number, deed)| deed.txn(*number)).collect();
        within(looks, store.commit(txns)).await
    }

    /// Begins a commit and does not poll it again until all other callers are done.
    async fn look_away(
        &self,
        store: &mut EtcdStore<SlowKv>,
        deeds: &[(u64, Deed)],
        others: u32,
    ) -> Option<Vec<Outcome>> {
        let txns = deeds.iter().map(|(number, deed)| deed.txn(*number)).collect();
        let mut commit = pin!(store.commit(txns));
        let begun = poll_fn(|context| Poll::Ready(commit.as_mut().poll(context))).await;
        drop(self.done.acquire_many(others).await);
        Some(match begun {
            Poll::Ready(outcomes) => outcomes,
            Poll::Pending => commit.await,
        })
    }

    async fn call(self, caller: u64, mut store: EtcdStore<SlowKv>, others: Option<u32>) {
        for nth in 0..COMMITS {
            let deeds = self.deeds(1 + caller * 100 + nth * 10);
            let binding = store.binding();
            let looks = if self.draw(3) == 0 { 1 + self.draw(6) } else { u64::MAX };
            if self.draw(4) == 0 {
                // What it finds, or why it does not, is not what these laws are about.
                let _ = within(looks, store.read(vec![Read::Get(key(CONTENDED))])).await;
            }
            let outcomes = match others {
                Some(others) => self.look_away(&mut store, &deeds, others).await,
                None => self.commit(&mut store, &deeds, looks).await,
            };
            let mut outcomes = outcomes.map(Vec::into_iter);
            for (number, deed) in deeds {
                let outcome = outcomes.as_mut().map(|it| it.next().expect("one for each"));
                if outcome.is_none() {
                    self.kv.wire().given_up.insert(number);
                }
                self.told.lock().unwrap().insert(number, Told { deed, outcome, binding });
            }
            assert!(outcomes.is_none_or(|mut it| it.next().is_none()), "one for each");
        }
        if others.is_none() {
            self.done.add_permits(1);
        }
    }
}

/// What `future` comes to, unless that takes more than so many looks.
async fn within<F: Future>(looks: u64, future: F) -> Option<F::Output> {
    let (mut future, mut left) = (pin!(future), looks);
    poll_fn(|context| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        let polled = future.as_mut().poll(context).map(Some);
        if polled.is_pending() && left == 0 {
            context.waker().wake_by_ref();
        }
        polled
    })
    .await
}

/// One world, and the laws.
fn world(seed: u64) {
    let explorer = Explorer::new(seed);
    let model = SimEtcdKv::new();
    let has_faults = seed % 2 == 1;
    if has_faults {
        let rates = FaultRates { lose_request: 40, lose_reply: 60, refuse: 60, expire_leases: 100 };
        model.inject_randomly(seed, rates);
    }
    let kv = SlowKv { model, explorer: explorer.clone(), wire: Arc::default() };
    let config = EtcdConfig::new(["model:1"], "explored").expect("the usual settings work");
    let config = EtcdConfig { retries: if has_faults { 2 } else { 0 }, ..config };
    let tasks = Tasks::Explored(explorer.clone());
    let store = EtcdStore::start_on(tasks, kv.clone(), &config).expect("the usual settings work");
    let stage = Stage { kv, told: Arc::default(), done: Arc::new(Semaphore::new(0)) };
    let looks_away = seed.is_multiple_of(4);
    let callers: Vec<_> = (0..CALLERS)
        .map(|caller| {
            let others = (looks_away && caller == 0).then_some(CALLERS as u32 - 1);
            explorer.spawn(stage.clone().call(caller, store.clone(), others))
        })
        .collect();
    explorer.run(|| callers.iter().all(|caller| caller.is_over()));
    stage.kv.model.clear_faults();
    let (probe, mut prober) = (store.clone(), store.clone());
    let keeper = explorer.spawn(async move {
        // A sender that retries for callers that gave up keeps its permit until the retries end.
        probe.kv().sleep(QUIET_MILLIS).await;
        probe.keep_alive().await;
        prober.commit(vec![Deed::Put.txn(0)]).await
    });
    explorer.run(|| keeper.is_over());
    judge(&stage, &store, has_faults);
    drop((store, keeper));
    explorer.run(|| explorer.task_count() == 0);
}

/// Checks the laws after all callers are done.
fn judge(stage: &Stage, store: &EtcdStore<SlowKv>, has_faults: bool) {
    let contents = stage.kv.model.contents();
    assert!(contents.iter().all(|it| it.version == 1), "a transaction was applied twice");
    let present: BTreeSet<u64> = contents.iter().map(|it| number_of(&it.value)).collect();
    assert!(present.contains(&0), "the store does not commit any more");
    let told = stage.told.lock().unwrap();
    let mut winners = 0;
    for (number, Told { deed, outcome, binding }) in &*told {
        let is_there = present.contains(number);
        match outcome {
            Some(Ok(CommitOutcome::Applied { .. })) => {
                winners += u64::from(*deed == Deed::Contend);
                let is_gone_with_lease = *deed == Deed::Bind && store.binding() > *binding;
                assert!(is_there || is_gone_with_lease, "{number}: {deed:?} was lost silently");
            }
            Some(Ok(CommitOutcome::Conflict(_))) => {
                assert!(*deed == Deed::Contend && !is_there, "{number}: {deed:?} in conflict");
            }
            Some(Err(_)) => assert!(!is_there, "{number}: {deed:?} was refused and happened"),
            Some(Ok(CommitOutcome::Unknown)) => assert!(has_faults, "nothing was lost"),
            None => {}
        }
    }
    assert_eq!(store.free_permits(), Some(SENDER_TASKS), "a sender did not release its permit");
    assert!(winners <= 1, "{winners} transactions created the contended key");
    let wire = stage.kv.wire();
    assert!(wire.in_flight_max <= SENDER_TASKS, "{} requests at a time", wire.in_flight_max);
    if !has_faults {
        assert!(wire.grants <= 1, "{} leases", wire.grants);
        let put = |number: &&u64| told[number].deed != Deed::Bind;
        // A batch that binds may wait for its lease after it was gathered.
        assert_eq!(wire.sent_in_vain.iter().find(put), None, "sent after its caller gave up");
    }
}

fn explore(orders: u64) {
    (0..orders).for_each(world);
}

#[test]
fn in_every_order_each_transaction_is_answered_once_and_no_caller_waits_without_end() {
    explore(ORDERS);
}

#[test]
fn the_same_seed_is_the_same_order() {
    let polls = |seed| {
        let explorer = Explorer::new(seed);
        let seen = Arc::new(Mutex::new(Vec::new()));
        for number in 0..5 {
            let seen = Arc::clone(&seen);
            drop(explorer.spawn(async move {
                for _ in 0..5 {
                    pause().await;
                    seen.lock().unwrap().push(number);
                }
            }));
        }
        explorer.run(|| explorer.task_count() == 0);
        let seen = seen.lock().unwrap();
        seen.clone()
    };
    assert_eq!(polls(1), polls(1));
    assert_ne!(polls(1), polls(2));
}
