//! An open store, from which every thread or task takes a coordinator of its own.

use gossip_coordination::store::{
    AsyncStoreCoordinator, MapStore, SharedMemory, StoreConfig, StoreCoordinator,
};
use gossip_coordination_etcd::{BlockingStore, ConnectError, EtcdConfig, EtcdStore, GrpcClient};
use gossip_coordination_sqlite::{self as sqlite, AsyncSqliteStore, SqliteDatabase, fresh_nonce};
use thiserror::Error;

use super::any_store::{AnyAsyncStore, AnyStore};
use super::url::StoreUrl;

/// A coordinator on whatever store was chosen, blocking.
pub type Coordinator = StoreCoordinator<AnyStore>;

/// A coordinator on whatever store was chosen, asynchronous.
pub type AsyncCoordinator = AsyncStoreCoordinator<AnyAsyncStore>;

/// An open store for threads.
#[derive(Debug)]
pub struct Backend {
    open: Open,
    /// Of all its handles.
    memory: SharedMemory,
}

#[derive(Debug)]
enum Open {
    Memory(MapStore),
    Sqlite(SqliteDatabase),
    Etcd(BlockingStore<EtcdStore<GrpcClient>>, Box<EtcdConfig>),
}

impl Backend {
    /// Opens what `url` names. A file that is not there is made; a cluster must answer.
    ///
    /// # Errors
    ///
    /// [`OpenError`] says what is in the way and what to do about it.
    pub fn open(url: &StoreUrl) -> Result<Self, OpenError> {
        let open = match url {
            StoreUrl::Memory => Open::Memory(MapStore::new()),
            StoreUrl::Sqlite { path, options } => {
                Open::Sqlite(SqliteDatabase::open(path, *options)?)
            }
            StoreUrl::Etcd(config) => {
                let coordinator = config.connect_blocking()?;
                Open::Etcd(coordinator.store().clone(), config.clone())
            }
        };
        Ok(Self { open, memory: SharedMemory::default() })
    }

    /// A handle for one thread. Handles of one backend share its connection and what they remember,
    /// and are committed in groups.
    #[must_use]
    pub fn coordinator(&self) -> Coordinator {
        let usual = || StoreConfig::new(fresh_nonce());
        let (store, config) = match &self.open {
            Open::Memory(store) => (AnyStore::Memory(store.another_handle()), usual()),
            Open::Sqlite(database) => (AnyStore::Sqlite(database.store()), usual()),
            Open::Etcd(store, config) => (AnyStore::Etcd(store.clone()), config.store_config()),
        };
        StoreCoordinator::sharing(store, config, &self.memory)
    }

    /// The store itself, for what is not coordination: records of planned moves.
    #[must_use]
    pub fn store(&self) -> AnyStore {
        match &self.open {
            Open::Memory(store) => AnyStore::Memory(store.another_handle()),
            Open::Sqlite(database) => AnyStore::Sqlite(database.store()),
            Open::Etcd(store, _) => AnyStore::Etcd(store.clone()),
        }
    }

    /// Tells the store that the work of this process is over, so that nobody waits for it: in a
    /// cluster its owner keys vanish at once, and not when their lease runs out.
    ///
    /// It is a courtesy. Nothing rests on it, so it has no error, and whoever goes on all the same
    /// gets new keys. It waits no longer than one request, and one that is under way.
    pub fn retire(&self) {
        match &self.open {
            Open::Memory(_) | Open::Sqlite(_) => {}
            Open::Etcd(store, _) => {
                let _ended =
                    store.block_on(|store| async move { store.revoke_owner_lease().await });
            }
        }
    }
}

/// An open store for tasks.
#[derive(Debug)]
pub struct AsyncBackend {
    open: AsyncOpen,
    /// Of all its handles.
    memory: SharedMemory,
}

#[derive(Debug)]
enum AsyncOpen {
    Memory(MapStore),
    Sqlite(AsyncSqliteStore),
    Etcd(EtcdStore<GrpcClient>, Box<EtcdConfig>),
}

impl AsyncBackend {
    /// As [`Backend::open`]. Opening a file blocks for as long as its check takes.
    ///
    /// # Errors
    ///
    /// As [`Backend::open`].
    ///
    /// # Panics
    ///
    /// For `etcd://` outside of a tokio runtime, as do the operations that are polled outside of
    /// one.
    pub async fn open(url: &StoreUrl) -> Result<Self, OpenError> {
        let open = match url {
            StoreUrl::Memory => AsyncOpen::Memory(MapStore::new()),
            StoreUrl::Sqlite { path, options } => {
                AsyncOpen::Sqlite(SqliteDatabase::open(path, *options)?.async_store()?)
            }
            StoreUrl::Etcd(config) => {
                let coordinator = config.connect().await?;
                AsyncOpen::Etcd(coordinator.store().clone(), config.clone())
            }
        };
        Ok(Self { open, memory: SharedMemory::default() })
    }

    /// A handle for one task.
    #[must_use]
    pub fn coordinator(&self) -> AsyncCoordinator {
        let usual = || StoreConfig::new(fresh_nonce());
        let (store, config) = match &self.open {
            AsyncOpen::Memory(store) => (AnyAsyncStore::Memory(store.another_handle()), usual()),
            AsyncOpen::Sqlite(store) => (AnyAsyncStore::Sqlite(store.clone()), usual()),
            AsyncOpen::Etcd(store, config) => {
                (AnyAsyncStore::Etcd(store.clone()), config.store_config())
            }
        };
        AsyncStoreCoordinator::sharing(store, config, &self.memory)
    }

    /// As [`Backend::store`].
    #[must_use]
    pub fn store(&self) -> AnyAsyncStore {
        match &self.open {
            AsyncOpen::Memory(store) => AnyAsyncStore::Memory(store.another_handle()),
            AsyncOpen::Sqlite(store) => AnyAsyncStore::Sqlite(store.clone()),
            AsyncOpen::Etcd(store, _) => AnyAsyncStore::Etcd(store.clone()),
        }
    }

    /// As [`Backend::retire`].
    pub async fn retire(&self) {
        match &self.open {
            AsyncOpen::Memory(_) | AsyncOpen::Sqlite(_) => {}
            AsyncOpen::Etcd(store, _) => {
                let _ended = store.revoke_owner_lease().await;
            }
        }
    }
}

/// Why a store could not be opened.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The file.
    #[error(transparent)]
    Sqlite(#[from] sqlite::OpenError),
    /// The cluster.
    #[error(transparent)]
    Etcd(#[from] ConnectError),
}
