//! URLs of stores.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use gossip_coordination_etcd::{EtcdConfig, SCHEME as ETCD, UrlError};
use gossip_coordination_sqlite::{SqliteOptions, SyncMode};
use thiserror::Error;

const MEMORY: &str = "memory:";
const SQLITE: &str = "sqlite:";

/// Where coordination lives.
#[derive(Clone)]
#[non_exhaustive]
pub enum StoreUrl {
    /// In this process.
    Memory,
    /// In a file.
    Sqlite {
        /// The file; not empty.
        path: PathBuf,
        /// How it is opened.
        options: SqliteOptions,
    },
    /// In a cluster.
    Etcd(Box<EtcdConfig>),
}

impl StoreUrl {
    /// Returns a URL for a file, with default options.
    #[must_use]
    pub fn sqlite(path: impl AsRef<Path>) -> Self {
        Self::Sqlite { path: path.as_ref().to_path_buf(), options: SqliteOptions::default() }
    }

    /// Returns whether other processes can open the same store.
    #[must_use]
    pub const fn is_shared(&self) -> bool {
        match self {
            Self::Memory => false,
            Self::Sqlite { .. } | Self::Etcd(_) => true,
        }
    }
}

impl FromStr for StoreUrl {
    type Err = StoreUrlError;

    fn from_str(url: &str) -> Result<Self, StoreUrlError> {
        if url == MEMORY {
            return Ok(Self::Memory);
        }
        if let Some(rest) = url.strip_prefix(SQLITE) {
            return sqlite(rest);
        }
        if url.starts_with(ETCD) {
            return Ok(Self::Etcd(Box::new(EtcdConfig::from_url(url)?)));
        }
        // `memory:x` and `etcd:host` are slips of a known scheme.
        Err(if url.starts_with(MEMORY) {
            StoreUrlError::MemoryPath
        } else if url.starts_with("etcd:") {
            StoreUrlError::EtcdSlashes
        } else if url.contains("://") {
            StoreUrlError::UnknownScheme
        } else {
            StoreUrlError::NoScheme
        })
    }
}

/// Kind and place, without anything that could be secret.
impl fmt::Debug for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory => f.write_str("Memory"),
            Self::Sqlite { path, options } => {
                f.debug_struct("Sqlite").field("path", path).field("options", options).finish()
            }
            Self::Etcd(config) => f.debug_tuple("Etcd").field(config).finish(),
        }
    }
}

/// Why a URL names no store. Shows nothing of it.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum StoreUrlError {
    /// There is no scheme: most likely a path.
    #[error("a store is memory:, sqlite:PATH or etcd://HOST/PREFIX; for a file use sqlite:PATH")]
    NoScheme,
    /// The scheme is none of ours.
    #[error("unknown kind of store; there are memory:, sqlite:PATH and etcd://HOST/PREFIX")]
    UnknownScheme,
    /// Something follows `memory:`.
    #[error("memory: takes no path; for a file use sqlite:PATH")]
    MemoryPath,
    /// `etcd:` without slashes.
    #[error("a cluster is etcd://HOST:PORT/PREFIX, with two slashes")]
    EtcdSlashes,
    /// `sqlite:` without a path.
    #[error("sqlite: needs the path of a file")]
    NoPath,
    /// `sqlite://PATH`: meant as a path here, and in fact one in the root directory.
    #[error("a file is sqlite:PATH, as sqlite:state.db or sqlite:/var/lib/state.db, without //")]
    SqliteSlashes,
    /// What follows `?` behind a path is not understood.
    #[error("a file takes ?sync=full or ?sync=relaxed; a ? in its name is written %3F")]
    SqliteSetting,
    /// The URL of a cluster is not understood.
    #[error(transparent)]
    Etcd(#[from] UrlError),
}

fn sqlite(rest: &str) -> Result<StoreUrl, StoreUrlError> {
    let (path, setting) = match rest.split_once('?') {
        Some((path, setting)) => (path, Some(setting)),
        None => (rest, None),
    };
    let sync = match setting {
        None | Some("sync=full") => SyncMode::Full,
        Some("sync=relaxed") => SyncMode::Relaxed,
        Some(_) => return Err(StoreUrlError::SqliteSetting),
    };
    if path.is_empty() {
        return Err(StoreUrlError::NoPath);
    }
    if path.starts_with("//") && !path.starts_with("///") {
        return Err(StoreUrlError::SqliteSlashes);
    }
    // The only character that a path cannot say as it is.
    let path = PathBuf::from(path.replace("%3F", "?"));
    Ok(StoreUrl::Sqlite { path, options: SqliteOptions { sync, ..SqliteOptions::default() } })
}
