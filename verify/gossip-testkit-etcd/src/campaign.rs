//! Workers at work on three real servers while the leader is lost, and an oracle that watches.
//!
//! Each worker has, like a process, its own client, store and owner lease. It claims a shard,
//! checkpoints its cursor, releases it and claims the next. The oracle sees the requests with their
//! times and the acknowledgements, never a record:
//!
//! - **no stale write is accepted**: a checkpoint that was sent after a grant with a higher fence
//!   was acknowledged must not succeed;
//! - **nothing acknowledged is lost**: a grant returns a cursor at or after every checkpoint that
//!   was acknowledged before it was requested;
//! - **fences rise**: a grant has a higher fence than every grant acknowledged before it was
//!   requested.
//!
//! It panics at the first violation, and it measures how long no work was acknowledged.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use gossip_contracts::coordination::{
    CursorSemantics, CursorUpdate, InitialShardInput, ShardSpecRef,
};
use gossip_contracts::identity::{LogicalTime, OpId, RunId, ShardId, TenantId, WorkerId};
use gossip_coordination::protocol::ReleaseMode;
use gossip_coordination::store::AsyncStoreCoordinator;
use gossip_coordination::{
    AcquireScratch, AsyncCoordinationBackend, AsyncRunManagement, AsyncShardClaiming,
    CheckpointError, ClaimError, Lease, RenewError, RunConfig,
};
use gossip_coordination_etcd::{
    AsyncEtcdCoordinator, EtcdConfig, EtcdStore, GrpcClient, GrpcConfig,
};
use gossip_testkit::test_support::EtcdCluster;
use tokio::task::JoinSet;

const TENANT: TenantId = TenantId::from_bytes([9; 32]);
const RUN: RunId = RunId::from_raw(1);

/// How long a lease lasts, in milliseconds: longer than an election, so that most are kept.
const LEASE_MILLIS: u64 = 4_000;

/// A request that took longer has failed; much less than a lease.
const REQUEST_TIMEOUT: Duration = Duration::from_millis(1_000);

/// Checkpoints until a worker gives its shard back.
const HOLD: u64 = 40;

/// Between two tries of a worker that was refused.
const PAUSE: Duration = Duration::from_millis(20);

/// How long the leader stays lost after work has resumed.
const LOST_FOR: Duration = Duration::from_secs(2);

/// A cluster that needs longer has not recovered.
const GIVE_UP: Duration = Duration::from_secs(90);

/// Before the clock of a campaign begins, so that no deadline lies before the start of time.
const CLOCK_BASE: u64 = 1_000_000;

/// Ways to lose a leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "a campaign goes through all of them")]
pub enum Loss {
    /// `kill -9`; its process comes back with its data.
    Killed,
    /// `SIGSTOP`; it resumes later as if nothing had happened.
    Stopped,
    /// Its connections with its peers are closed and refused; clients still reach it.
    CutOff,
    /// Packets between it and its peers are dropped, so their connections hang; clients still
    /// reach it.
    PacketsDropped,
    /// Every packet to and from it is dropped, those of its clients as well.
    Unplugged,
}

impl Loss {
    /// Every way.
    pub const ALL: [Self; 5] =
        [Self::Killed, Self::Stopped, Self::CutOff, Self::PacketsDropped, Self::Unplugged];

    /// Whether the members must have machines of their own, which not every machine lets them
    /// have ([`EtcdCluster::can_have_machines`]).
    pub const fn needs_machines(self) -> bool {
        match self {
            Self::Killed | Self::Stopped | Self::CutOff => false,
            Self::PacketsDropped | Self::Unplugged => true,
        }
    }

    /// What becomes of the leader, for a table.
    pub const fn in_words(self) -> &'static str {
        match self {
            Self::Killed => "killed (`kill -9`), later restarted with its data",
            Self::Stopped => "stopped (`SIGSTOP`), later continued",
            Self::CutOff => "cut off from its peers by closed connections; clients still reach it",
            Self::PacketsDropped => {
                "cut off from its peers by dropped packets (network namespaces); clients still \
                 reach it"
            }
            Self::Unplugged => "cut off from peers and clients by dropped packets (namespaces)",
        }
    }

    /// Servers that can be lost so.
    pub fn cluster(self) -> EtcdCluster {
        if self.needs_machines() { EtcdCluster::three_machines() } else { EtcdCluster::three() }
    }

    /// Lets it befall a member.
    pub fn befall(self, cluster: &mut EtcdCluster, member: usize) {
        match self {
            Self::Killed => cluster.member(member).kill(),
            Self::Stopped => cluster.member(member).pause(),
            Self::CutOff | Self::PacketsDropped => cluster.cut_off(member),
            Self::Unplugged => cluster.unplug(member),
        }
    }

    /// Lets the member come back.
    fn end(self, cluster: &mut EtcdCluster, member: usize) {
        match self {
            Self::Killed => cluster.member(member).restart(),
            Self::Stopped => cluster.member(member).resume(),
            Self::CutOff | Self::PacketsDropped | Self::Unplugged => cluster.heal(),
        }
    }
}

/// How long work stood still.
#[derive(Clone, Copy, Debug)]
pub struct Resumed {
    /// From the beginning of the loss to the first acknowledgement of something asked for when the
    /// loss was complete.
    pub first: Duration,
    /// Until every worker had one.
    pub all: Duration,
}

/// What a campaign has seen.
#[derive(Clone, Copy, Debug, Default)]
pub struct Verdict {
    /// Checkpoints that were acknowledged.
    pub acknowledged: u64,
    /// Leases that were granted.
    pub granted: u64,
    /// Writes that were refused because the lease was lost.
    pub refused: u64,
}

/// Workers on three servers.
#[derive(Debug)]
pub struct Campaign {
    cluster: EtcdCluster,
    oracle: Arc<Oracle>,
    workers: JoinSet<()>,
    worker_count: usize,
    shard_count: u32,
    config: EtcdConfig,
}

impl Campaign {
    /// Creates a run of `shard_count` shards and lets `worker_count` workers begin.
    pub async fn start(cluster: EtcdCluster, worker_count: usize, shard_count: u32) -> Self {
        let endpoints = cluster.endpoints();
        let hosts = endpoints.iter().map(|it| it.trim_start_matches("http://"));
        let mut config = EtcdConfig::new(hosts, "campaign").expect("the usual settings work");
        config.request_timeout = REQUEST_TIMEOUT;
        config.connect_timeout = REQUEST_TIMEOUT;
        let oracle = Arc::new(Oracle::new(worker_count, shard_count));
        create_run(&mut connect(&config).await, &oracle, shard_count).await;
        let mut workers = JoinSet::new();
        for index in 0..worker_count {
            let mut config = config.clone();
            // Each begins at another member.
            config.endpoints.rotate_left(index % endpoints.len());
            let worker = Worker { index, oracle: Arc::clone(&oracle) };
            workers.spawn(worker.work(config));
        }
        Self { cluster, oracle, workers, worker_count, shard_count, config }
    }

    /// Loses the leader, waits until every worker works again, and lets the member come back.
    pub async fn lose_leader(&mut self, loss: Loss) -> Resumed {
        let leader = self.cluster.leader(None);
        let begun = Instant::now();
        loss.befall(&mut self.cluster, leader);
        self.oracle.mark(begun);
        let resumed = self.wait_until_resumed().await;
        tokio::time::sleep(LOST_FOR).await;
        loss.end(&mut self.cluster, leader);
        self.cluster.leader(None);
        // The member that came back must not bring old news with it.
        self.oracle.mark(Instant::now());
        self.wait_until_resumed().await;
        resumed
    }

    /// Lets the workers end and looks at every shard once more.
    ///
    /// # Panics
    ///
    /// If anything acknowledged is missing.
    pub async fn finish(mut self) -> Verdict {
        self.oracle.is_over.store(true, Ordering::SeqCst);
        while let Some(ended) = self.workers.join_next().await {
            ended.expect("a worker ends without a violation");
        }
        let mut coordinator = connect(&self.config).await;
        for shard in 0..self.shard_count {
            self.oracle.look_at(&mut coordinator, shard).await;
        }
        self.oracle.state().verdict
    }

    async fn wait_until_resumed(&mut self) -> Resumed {
        let begun = Instant::now();
        loop {
            if let Some(resumed) = self.oracle.resumed(self.worker_count) {
                return resumed;
            }
            // A violation ends a worker; do not wait for it to resume.
            if let Some(ended) = self.workers.try_join_next() {
                ended.expect("a worker works without a violation");
            }
            assert!(begun.elapsed() < GIVE_UP, "work does not resume");
            tokio::time::sleep(PAUSE).await;
        }
    }
}

async fn connect(config: &EtcdConfig) -> AsyncEtcdCoordinator {
    let begun = Instant::now();
    loop {
        match config.connect().await {
            Ok(coordinator) => return coordinator,
            Err(error) => assert!(begun.elapsed() < GIVE_UP, "{error}"),
        }
    }
}

async fn create_run(coordinator: &mut AsyncEtcdCoordinator, oracle: &Oracle, shard_count: u32) {
    let bounds: Vec<[u8; 4]> = (0..=shard_count).map(|bound| (bound + 1).to_be_bytes()).collect();
    let ranges = bounds.iter().zip(bounds.iter().skip(1)).zip(0..);
    let roots: Vec<_> = ranges
        .map(|((start, end), id)| InitialShardInput {
            shard_id: ShardId::from_raw(id),
            spec: ShardSpecRef::new(start, end, b""),
            cursor: CursorUpdate::initial(),
        })
        .collect();
    let config = RunConfig::try_new(CursorSemantics::Completed, LEASE_MILLIS, None);
    let config = config.expect("a plain run");
    let now = oracle.now();
    coordinator.create_run(now, TENANT, RUN, config).await.expect("a new run");
    let op = OpId::from_raw(u64::MAX);
    coordinator.register_shards(now, TENANT, RUN, &roots, op).await.expect("a new run");
}

/// One worker.
struct Worker {
    index: usize,
    oracle: Arc<Oracle>,
}

impl Worker {
    async fn work(self, config: EtcdConfig) {
        let endpoints = config.endpoints.iter().map(|host| format!("http://{host}"));
        let mut grpc = GrpcConfig::new(endpoints);
        grpc.request_timeout = config.request_timeout;
        grpc.connect_timeout = config.connect_timeout;
        let client = GrpcClient::new(&grpc).expect("the endpoints are ours");
        let store = EtcdStore::start(client, &config).expect("the usual settings work");
        let mut coordinator = AsyncStoreCoordinator::new(store, config.store_config());
        let mut op = (self.index as u64) << 40;
        while !self.oracle.is_over.load(Ordering::SeqCst) {
            match self.claim(&mut coordinator).await {
                Some((lease, cursor)) => self.hold(&mut coordinator, lease, cursor, &mut op).await,
                None => tokio::time::sleep(PAUSE).await,
            }
        }
    }

    /// Claims a shard and returns its lease and cursor.
    async fn claim(&self, coordinator: &mut AsyncEtcdCoordinator) -> Option<(Lease, u64)> {
        let (known, now) = (self.oracle.known(), self.oracle.now());
        let worker = WorkerId::from_raw(1 + self.index as u64);
        let mut scratch = AcquireScratch::new();
        let claim = coordinator.claim_next_available(now, TENANT, RUN, worker, &mut scratch);
        let granted = match claim.await {
            Ok(granted) => granted,
            Err(ClaimError::NoneAvailable { .. }) => return None,
            Err(ClaimError::BackendError(error)) if error.is_retryable() => return None,
            Err(error) => panic!("a worker is refused for no good reason: {error}"),
        };
        let cursor = number_in(granted.snapshot.cursor().last_key());
        self.oracle.granted(&granted.lease, cursor, &known);
        Some((granted.lease, cursor))
    }

    /// Works on a shard until it is given back or lost.
    async fn hold(
        &self,
        coordinator: &mut AsyncEtcdCoordinator,
        mut lease: Lease,
        mut cursor: u64,
        op: &mut u64,
    ) {
        for _ in 0..HOLD {
            (cursor, *op) = (cursor + 1, *op + 1);
            let is_ours = self.renew(coordinator, &mut lease).await
                && self.checkpoint(coordinator, &lease, cursor, OpId::from_raw(*op)).await;
            if !is_ours {
                self.oracle.state().verdict.refused += 1;
                return;
            }
        }
        *op += 1;
        let (now, op) = (self.oracle.now(), OpId::from_raw(*op));
        // A shard that could not be given back is free when its lease runs out.
        let _given = coordinator.release(now, TENANT, &lease, ReleaseMode::Clean, op).await;
    }

    /// Checkpoints the cursor, with retries until a server replies. `false` if the lease is lost.
    async fn checkpoint(
        &self,
        coordinator: &mut AsyncEtcdCoordinator,
        lease: &Lease,
        cursor: u64,
        op: OpId,
    ) -> bool {
        let key = key_of(lease.shard(), cursor);
        let update = CursorUpdate::try_from_parts(Some(&key), None).expect("a short key");
        loop {
            let (sent, known) = (Instant::now(), self.oracle.known());
            let now = self.oracle.now();
            match coordinator.checkpoint(now, TENANT, lease, update, op).await {
                Ok(_) => {
                    self.oracle.advanced(self.index, lease, cursor, &known, sent);
                    return true;
                }
                Err(CheckpointError::BackendError(error)) if error.is_retryable() => {
                    tokio::time::sleep(PAUSE).await;
                }
                Err(CheckpointError::StaleFence { .. } | CheckpointError::LeaseExpired { .. }) => {
                    return false;
                }
                Err(other) => panic!("a worker does nothing else wrong: {other}"),
            }
        }
    }

    /// Renews a lease of which half is gone. `false` if it is lost.
    async fn renew(&self, coordinator: &mut AsyncEtcdCoordinator, lease: &mut Lease) -> bool {
        let now = self.oracle.now();
        if now.as_raw() + LEASE_MILLIS / 2 < lease.deadline().as_raw() {
            return true;
        }
        match coordinator.renew(now, TENANT, lease).await {
            Ok(renewed) => lease.set_deadline(renewed.new_deadline),
            // The next checkpoint tries again.
            Err(RenewError::BackendError(error)) if error.is_retryable() => {}
            Err(RenewError::StaleFence { .. } | RenewError::LeaseExpired { .. }) => return false,
            Err(other) => panic!("a worker does nothing else wrong: {other}"),
        }
        true
    }
}

fn key_of(shard: ShardId, cursor: u64) -> Vec<u8> {
    let start = u32::try_from(shard.as_raw() + 1).expect("few shards");
    [start.to_be_bytes().as_slice(), &cursor.to_be_bytes()].concat()
}

/// The number in a cursor that [`key_of`] wrote; zero without one.
fn number_in(key: Option<&[u8]>) -> u64 {
    let digits = key.and_then(|key| key.get(4..12));
    digits.map_or(0, |digits| u64::from_be_bytes(digits.try_into().expect("eight bytes")))
}

/// What has been acknowledged.
#[derive(Debug)]
struct Oracle {
    begun: Instant,
    is_over: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    truths: Vec<Truth>,
    verdict: Verdict,
    /// When the last disturbance began, from which times are counted.
    disturbed: Instant,
    /// When it was complete; not before it began. Earlier requests do not count.
    marked: Instant,
    /// When each worker was first acknowledged something that it asked for after that.
    resumed: Vec<Option<Instant>>,
}

/// The acknowledged state of one shard.
#[derive(Clone, Copy, Debug, Default)]
struct Truth {
    /// The highest fence that was granted.
    fence: u64,
    /// The highest cursor that was acknowledged.
    cursor: u64,
}

impl Oracle {
    fn new(worker_count: usize, shard_count: u32) -> Self {
        let state = State {
            truths: vec![Truth::default(); shard_count as usize],
            verdict: Verdict::default(),
            disturbed: Instant::now(),
            marked: Instant::now(),
            resumed: vec![None; worker_count],
        };
        Self { begun: Instant::now(), is_over: AtomicBool::new(false), state: Mutex::new(state) }
    }

    fn now(&self) -> LogicalTime {
        let millis = u64::try_from(self.begun.elapsed().as_millis()).expect("a short campaign");
        LogicalTime::from_raw(CLOCK_BASE + millis)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the acknowledged state, taken before a request is sent.
    fn known(&self) -> Vec<Truth> {
        self.state().truths.clone()
    }

    /// A disturbance that began then is complete now. To cut connections takes a while, in which an
    /// election may already begin.
    fn mark(&self, begun: Instant) {
        let mut state = self.state();
        (state.disturbed, state.marked) = (begun, Instant::now());
        state.resumed.fill(None);
    }

    fn resumed(&self, worker_count: usize) -> Option<Resumed> {
        let state = self.state();
        let times: Vec<Instant> = state.resumed.iter().copied().flatten().collect();
        if times.len() < worker_count {
            return None;
        }
        let since = |at: Option<&Instant>| at.map(|at| at.duration_since(state.disturbed));
        Some(Resumed { first: since(times.iter().min())?, all: since(times.iter().max())? })
    }

    fn granted(&self, lease: &Lease, cursor: u64, known: &[Truth]) {
        let (index, fence) = (place(lease.shard()), lease.fence().as_raw());
        assert!(fence > known[index].fence, "a fence was given twice: {fence}");
        assert!(cursor >= known[index].cursor, "acknowledged progress is lost");
        let mut state = self.state();
        state.verdict.granted += 1;
        let truth = &mut state.truths[index];
        truth.fence = truth.fence.max(fence);
    }

    fn advanced(&self, worker: usize, lease: &Lease, cursor: u64, known: &[Truth], sent: Instant) {
        let (index, fence) = (place(lease.shard()), lease.fence().as_raw());
        assert!(fence >= known[index].fence, "a stale write was accepted");
        let mut state = self.state();
        state.verdict.acknowledged += 1;
        state.truths[index].cursor = state.truths[index].cursor.max(cursor);
        if sent >= state.marked {
            state.resumed[worker].get_or_insert_with(Instant::now);
        }
    }

    /// Acquires a shard when every lease is over, and compares.
    async fn look_at(&self, coordinator: &mut AsyncEtcdCoordinator, shard: u32) {
        let key = gossip_contracts::identity::ShardKey::new(RUN, ShardId::from_raw(shard.into()));
        // Everything that was granted has run out by then.
        let late = LogicalTime::from_raw(self.now().as_raw() + 100 * LEASE_MILLIS);
        let (known, begun) = (self.known(), Instant::now());
        let worker = WorkerId::from_raw(u64::MAX);
        let mut scratch = AcquireScratch::new();
        let found = loop {
            let acquire =
                coordinator.acquire_and_restore_into(late, TENANT, key, worker, &mut scratch);
            match acquire.await {
                Ok(granted) => break number_in(granted.snapshot.cursor().last_key()),
                Err(error) => assert!(begun.elapsed() < GIVE_UP, "{error}"),
            }
        };
        assert!(found >= known[shard as usize].cursor, "acknowledged progress is lost at the end");
    }
}

fn place(shard: ShardId) -> usize {
    usize::try_from(shard.as_raw()).expect("few shards")
}

#[cfg(test)]
mod tests {
    use gossip_contracts::identity::FenceEpoch;
    use gossip_coordination::GrantToken;

    use super::*;

    fn lease(fence: u64) -> Lease {
        let (shard, owner) = (ShardId::from_raw(0), WorkerId::from_raw(1));
        let deadline = LogicalTime::from_raw(9);
        let key = gossip_contracts::identity::ShardKey::new(RUN, shard);
        let fence = FenceEpoch::from_raw(fence);
        Lease::new(TENANT, key, owner, fence, deadline, GrantToken::from_raw(1))
    }

    /// A shard whose second grant and fifth checkpoint were acknowledged.
    fn oracle() -> (Oracle, Vec<Truth>) {
        let oracle = Oracle::new(1, 1);
        oracle.granted(&lease(2), 0, &oracle.known());
        oracle.advanced(0, &lease(2), 5, &oracle.known(), Instant::now());
        let known = oracle.known();
        (oracle, known)
    }

    #[test]
    #[should_panic(expected = "a stale write was accepted")]
    fn the_oracle_sees_a_stale_write() {
        let (oracle, known) = oracle();
        oracle.advanced(0, &lease(1), 6, &known, Instant::now());
    }

    #[test]
    #[should_panic(expected = "acknowledged progress is lost")]
    fn the_oracle_sees_lost_progress() {
        let (oracle, known) = oracle();
        oracle.granted(&lease(3), 4, &known);
    }

    #[test]
    #[should_panic(expected = "a fence was given twice")]
    fn the_oracle_sees_a_fence_that_was_given_twice() {
        let (oracle, known) = oracle();
        oracle.granted(&lease(2), 5, &known);
    }
}
