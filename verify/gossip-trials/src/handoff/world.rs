//! The run that every process of a trial works on.

use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use gossip::store::{AnyStore, Backend, Coordinator, StoreUrl};
use gossip_contracts::coordination::CursorSemantics;
use gossip_contracts::identity::OpId;
use gossip_coordination::store::fresh_nonce;
use gossip_coordination::{RunConfig, RunManagement};
use gossip_handoff::StoreRepository;
use gossip_handoff::lease_handoff::{Driver, HandoffConfig};

use crate::Failure;
use crate::run::{RUN, TENANT, now, shards_between};

/// Lease in milliseconds for trials with kills: short, so that shards of killed processes are free
/// soon, and long enough for a process that is starved for a second or two.
pub(crate) const SHORT_LEASE: u64 = 6_000;
/// Lease in milliseconds for trials without kills: the product's default.
pub(crate) const LEASE: u64 = 15_000;

const _: () = assert!(SHORT_LEASE < LEASE);

/// Handoff configuration of the processes.
pub(crate) const CONFIG: HandoffConfig = HandoffConfig {
    prepare_ticks: 4_000,
    offer_ticks: 4_000,
    finish_ticks: 4_000,
    lead_ticks: 12,
    find_ticks: 5,
    poll_ticks: 1,
    accepts_per_read: 8,
    retry_ticks: 10,
};

/// The handoff behaviour of a worker. The number is passed to its process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// Hands off shards continuously.
    Moving,
    /// Hands off shards when it drains.
    Draining,
}

impl Shape {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Moving => "moving",
            Self::Draining => "draining",
        }
    }
}

impl Shape {
    /// Processing time of a batch without the store. The eight restarted workers together load the
    /// store about as much as the four of `moves`: hundreds of commits per second each, far more
    /// than a product does.
    pub(crate) const fn pace(self) -> Duration {
        match self {
            Self::Moving => Duration::from_micros(300),
            Self::Draining => Duration::from_millis(1),
        }
    }
}

impl FromStr for Shape {
    type Err = Failure;

    fn from_str(name: &str) -> Result<Self, Failure> {
        let all = [Self::Moving, Self::Draining];
        all.into_iter().find(|one| one.name() == name).ok_or_else(|| "unknown shape".into())
    }
}

/// Busy timeout of the file. A trial ends with the first failure, and a busy disk can take seconds
/// for a sync.
const PATIENCE: Duration = Duration::from_secs(60);

/// An open store with the handles of one thread.
pub(crate) struct Site {
    pub(crate) backend: Coordinator,
    pub(crate) records: StoreRepository<AnyStore>,
    /// Kept open as long as its handles.
    open: Arc<Backend>,
}

impl Site {
    pub(crate) fn open(url: &str) -> Result<Self, Failure> {
        let mut url = url.parse::<StoreUrl>()?;
        if let StoreUrl::Sqlite { options, .. } = &mut url {
            options.busy_timeout = PATIENCE;
        }
        Ok(Self::on(Arc::new(Backend::open(&url)?)))
    }

    /// Returns handles for another thread of this process. Concurrent commits share a group.
    pub(crate) fn another(&self) -> Self {
        Self::on(Arc::clone(&self.open))
    }

    fn on(open: Arc<Backend>) -> Self {
        let records = StoreRepository::new(open.store(), TENANT, fresh_nonce());
        Self { backend: open.coordinator(), records, open }
    }

    /// Returns the handoff driver of this site.
    pub(crate) const fn driver(&mut self) -> Driver<'_, Coordinator, StoreRepository<AnyStore>> {
        Driver { tenant: TENANT, backend: &mut self.backend, records: &mut self.records }
    }

    /// A store of its own for one more thread.
    pub(crate) fn another_store(&self) -> AnyStore {
        self.open.store()
    }
}

/// Creates the run: `shards` of `keys` consecutive numbers each, with leases of `lease`.
pub(crate) fn found(url: &str, shards: u64, keys: u64, lease: u64) -> Result<(), Failure> {
    let edges: Vec<_> = (0..=shards).map(|nth| key_of(nth * keys)).collect();
    let roots = shards_between(&edges, b"trial");
    let config = RunConfig::try_new(CursorSemantics::Completed, lease, None)?;
    let (mut site, op) = (Site::open(url)?, OpId::from_raw(u64::MAX));
    site.backend.create_run_with_shards(now(), TENANT, RUN, config, &roots, op)?;
    Ok(())
}

/// The key of a number; the order of keys is the order of numbers.
pub(crate) const fn key_of(number: u64) -> [u8; 8] {
    number.to_be_bytes()
}

/// The number of a key.
pub(crate) fn number_of(key: &[u8]) -> Result<u64, Failure> {
    Ok(u64::from_be_bytes(key.try_into()?))
}
