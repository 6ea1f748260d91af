//! An open store. Each thread takes its own coordinator handle from it.

use std::time::Duration;

use gossip_coordination::InfraError;
use gossip_coordination::store::{
    DEFAULT_MAX_CLOCK_SKEW, FORMAT_VERSION, MapStore, ProcessState, StoreConfig, StoreCoordinator,
    fly, fresh_nonce, load_store_format, ticks,
};
use gossip_coordination_etcd::{
    Alarm, BlockingStore, ConnectError, EtcdConfig, EtcdError, EtcdKv as _, EtcdStore, GrpcClient,
    MemberStatus,
};
use gossip_coordination_postgres::{self as postgres, PostgresConfig};
use gossip_coordination_sqlite::{self as sqlite, SqliteDatabase, SqliteOptions, SyncMode};
use gossip_scanner_runtime::monotonic_ticks;
use thiserror::Error;

use super::any_store::AnyStore;
use super::boot;
use super::url::StoreUrl;

/// A coordinator on the selected store.
pub type Coordinator = StoreCoordinator<AnyStore>;

/// The shortest interval between checkpoints of a thread on a server, in ticks: a hundred busy
/// threads then cause two hundred commits a second.
const SERVER_CHECKPOINT_TICKS_MIN: u64 = 500;

/// An open store.
#[derive(Debug)]
pub struct Backend {
    open: Open,
    /// Shared by all handles.
    process: ProcessState,
}

#[derive(Debug)]
enum Open {
    /// The store and the claim cooldown.
    Memory(MapStore, Duration),
    Sqlite(SqliteDatabase),
    Etcd(BlockingStore<EtcdStore<GrpcClient>>, Box<EtcdConfig>),
    Postgres(postgres::BlockingStore, Box<PostgresConfig>),
}

impl Backend {
    /// Opens the store of `url`. Creates a missing file or schema; a server must answer.
    ///
    /// # Errors
    ///
    /// [`OpenStoreError`], with the cause and the remedy in its text.
    pub fn open(url: &StoreUrl) -> Result<Self, OpenStoreError> {
        let open = match url {
            StoreUrl::Memory { claim_cooldown } => Open::Memory(MapStore::new(), *claim_cooldown),
            StoreUrl::Sqlite { path, options } => {
                let boot = options.boot.or_else(boot::present);
                // Without it a power cut goes unnoticed, and the fences of lost grants are issued
                // again.
                if boot.is_none() && options.sync == SyncMode::Relaxed {
                    return Err(OpenStoreError::NoBootId);
                }
                Open::Sqlite(SqliteDatabase::open(path, SqliteOptions { boot, ..*options })?)
            }
            StoreUrl::Etcd(config) => {
                let coordinator = config.connect_blocking()?;
                Open::Etcd(coordinator.store().clone(), config.clone())
            }
            StoreUrl::Postgres(config) => {
                Open::Postgres(postgres::BlockingStore::connect(config)?, config.clone())
            }
        };
        // A monotonic clock, because the wall clock may be set back and leave a lease with a
        // deadline far ahead.
        let process = ProcessState::default().watching(monotonic_ticks());
        let backend = Self { open, process };
        // A store that cannot be read now, or not by this tenant's credentials, reports that itself
        // in the first operation; the format is then learnt from the records.
        if let Ok(found) = backend.format() {
            if found > FORMAT_VERSION {
                return Err(OpenStoreError::NewerFormat { found });
            }
            backend.process.note_format(found);
        }
        Ok(backend)
    }

    /// Returns the format of the store, which is above [`FORMAT_VERSION`] once a newer program has
    /// upgraded the store. A worker polls it and drains then.
    ///
    /// # Errors
    ///
    /// [`InfraError`] if it cannot be read.
    pub fn format(&self) -> Result<u8, InfraError> {
        fly(&mut self.store(), load_store_format())
    }

    /// Returns whether the store has room for the results of items. etcd holds all of its data in
    /// memory, so results could fill it for every tenant.
    #[must_use]
    pub(crate) const fn keeps_results(&self) -> bool {
        match self.open {
            Open::Memory(..) | Open::Sqlite(_) | Open::Postgres(..) => true,
            Open::Etcd(..) => false,
        }
    }

    /// Returns the shortest interval between checkpoints that this store asks for, in ticks. A
    /// server is shared with other workers, so the time of a checkpoint here is not its only cost.
    #[must_use]
    pub(crate) const fn checkpoint_ticks_min(&self) -> u64 {
        match self.open {
            Open::Memory(..) | Open::Sqlite(_) => 0,
            Open::Etcd(..) | Open::Postgres(..) => SERVER_CHECKPOINT_TICKS_MIN,
        }
    }

    /// Returns a handle for one thread. Handles of a backend share its connection, its record
    /// cache and its claim cooldowns, and their commits are batched.
    #[must_use]
    pub fn coordinator(&self) -> Coordinator {
        let (store, config) = match &self.open {
            Open::Memory(store, claim_cooldown) => {
                let claim_cooldown_interval = ticks(*claim_cooldown);
                let usual = StoreConfig::new(fresh_nonce());
                // Threads share one clock, but it may be set while they hold leases.
                let max_clock_skew = ticks(DEFAULT_MAX_CLOCK_SKEW);
                let config = StoreConfig { claim_cooldown_interval, max_clock_skew, ..usual };
                (AnyStore::Memory(store.another_handle()), config)
            }
            Open::Sqlite(database) => (AnyStore::Sqlite(database.store()), database.store_config()),
            Open::Etcd(store, config) => (AnyStore::Etcd(store.clone()), config.store_config()),
            Open::Postgres(store, config) => {
                (AnyStore::Postgres(store.clone()), config.store_config())
            }
        };
        StoreCoordinator::sharing(store, config, &self.process)
    }

    /// Returns a handle of the store itself, for data that is not coordination: handoff records.
    #[must_use]
    pub fn store(&self) -> AnyStore {
        match &self.open {
            Open::Memory(store, _) => AnyStore::Memory(store.another_handle()),
            Open::Sqlite(database) => AnyStore::Sqlite(database.store()),
            Open::Etcd(store, _) => AnyStore::Etcd(store.clone()),
            Open::Postgres(store, _) => AnyStore::Postgres(store.clone()),
        }
    }

    /// Returns the state of the member that answers and the alarms of the cluster, if the store is
    /// in etcd.
    ///
    /// # Errors
    ///
    /// The cluster does not answer, or refuses the question to this user.
    pub fn etcd_health(&self) -> Option<Result<(MemberStatus, Vec<Alarm>), EtcdError>> {
        let Open::Etcd(store, _) = &self.open else { return None };
        store.block_on(|store| async move {
            Ok((store.kv().status().await?, store.kv().alarms().await?))
        })
    }

    /// Releases what the store holds for the lifetime of this process: on etcd its owner keys are
    /// removed now, and not when their lease expires.
    ///
    /// Other workers take over sooner; nothing depends on it, so a failure is ignored. A handle
    /// that is used afterwards writes new keys. It waits for one request at most, besides one that
    /// is in flight.
    pub fn retire(&self) {
        match &self.open {
            Open::Memory(..) | Open::Sqlite(_) | Open::Postgres(..) => {}
            Open::Etcd(store, _) => {
                let _ended =
                    store.block_on(|store| async move { store.revoke_owner_lease().await });
            }
        }
    }
}

/// Why a store could not be opened.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OpenStoreError {
    /// The file.
    #[error(transparent)]
    Sqlite(#[from] sqlite::OpenSqliteError),
    /// A newer program has upgraded the store.
    #[error("store has format {found}, this gossip reads up to {FORMAT_VERSION}")]
    NewerFormat {
        /// The format of the store.
        found: u8,
    },
    /// The file is to be opened with relaxed sync on a system without a boot id.
    #[error("sync=relaxed needs the boot id of Linux; use sync=full on this system")]
    NoBootId,
    /// The cluster.
    #[error(transparent)]
    Etcd(#[from] ConnectError),
    /// The database.
    #[error(transparent)]
    Postgres(#[from] postgres::ConnectError),
}
