//! One type for a handle of any supported store.

use gossip_coordination::InfraError;
use gossip_coordination::store::{Answer, CommitOutcome, MapStore, Read, Store, StoreLimits, Txn};
use gossip_coordination_etcd::{BlockingStore, EtcdStore, GrpcClient};
use gossip_coordination_postgres::BlockingStore as PostgresStore;
use gossip_coordination_sqlite::SqliteStore;

/// A handle of a store.
#[derive(Debug)]
#[non_exhaustive]
pub enum AnyStore {
    /// In this process.
    Memory(MapStore),
    /// In a file.
    Sqlite(SqliteStore),
    /// In a cluster.
    Etcd(BlockingStore<EtcdStore<GrpcClient>>),
    /// In a schema of a database.
    Postgres(PostgresStore),
}

impl Store for AnyStore {
    fn read(&mut self, reads: Vec<Read>) -> Result<Vec<Answer>, InfraError> {
        match self {
            Self::Memory(store) => store.read(reads),
            Self::Sqlite(store) => store.read(reads),
            Self::Etcd(store) => store.read(reads),
            Self::Postgres(store) => store.read(reads),
        }
    }

    fn commit(&mut self, txns: Vec<Txn>) -> Vec<Result<CommitOutcome, InfraError>> {
        match self {
            Self::Memory(store) => store.commit(txns),
            Self::Sqlite(store) => store.commit(txns),
            Self::Etcd(store) => store.commit(txns),
            Self::Postgres(store) => store.commit(txns),
        }
    }

    fn wait(&mut self, ticks: u64) {
        match self {
            Self::Memory(store) => store.wait(ticks),
            Self::Sqlite(store) => store.wait(ticks),
            Self::Etcd(store) => store.wait(ticks),
            Self::Postgres(store) => store.wait(ticks),
        }
    }

    fn limits(&self) -> StoreLimits {
        match self {
            Self::Memory(store) => store.limits(),
            Self::Sqlite(store) => store.limits(),
            Self::Etcd(store) => store.limits(),
            Self::Postgres(store) => store.limits(),
        }
    }

    fn change_count(&mut self) -> Option<u64> {
        match self {
            Self::Memory(store) => store.change_count(),
            Self::Sqlite(store) => store.change_count(),
            Self::Etcd(store) => store.change_count(),
            Self::Postgres(store) => store.change_count(),
        }
    }

    fn binding(&self) -> Option<u64> {
        match self {
            Self::Memory(store) => store.binding(),
            Self::Sqlite(store) => store.binding(),
            Self::Etcd(store) => store.binding(),
            Self::Postgres(store) => store.binding(),
        }
    }
}
