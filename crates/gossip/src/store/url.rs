//! URLs of stores.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use gossip_coordination::store::{CLAIM_COOLDOWN_MAX, parse_duration};
use gossip_coordination_etcd::{EtcdConfig, SCHEME as ETCD, UrlError};
use gossip_coordination_postgres::{
    PostgresConfig, PostgresEnvironment, SCHEME as POSTGRES, UrlError as PostgresUrlError,
};
use gossip_coordination_sqlite::{SqliteOptions, SyncMode};
use thiserror::Error;

const MEMORY: &str = "memory:";
const SQLITE: &str = "sqlite:";
const CLAIM_COOLDOWN: &str = "claim_cooldown=";
const ALLOW_NETWORK: &str = "allow_network_file_system=yes";

/// Where coordination lives.
#[derive(Clone)]
#[non_exhaustive]
pub enum StoreUrl {
    /// In this process.
    Memory {
        /// Minimum time between a worker's claims; zero disables it.
        claim_cooldown: Duration,
    },
    /// In a file.
    Sqlite {
        /// The file; not empty.
        path: PathBuf,
        /// How it is opened.
        options: SqliteOptions,
    },
    /// In a cluster.
    Etcd(Box<EtcdConfig>),
    /// In a database.
    Postgres(Box<PostgresConfig>),
}

impl StoreUrl {
    /// Returns a URL for a store in this process, with default settings.
    #[must_use]
    pub const fn memory() -> Self {
        Self::Memory { claim_cooldown: Duration::ZERO }
    }

    /// Returns a URL for a file, with default options.
    #[must_use]
    pub fn sqlite(path: impl AsRef<Path>) -> Self {
        Self::Sqlite { path: path.as_ref().to_path_buf(), options: SqliteOptions::default() }
    }

    /// Returns whether other processes can open the same store.
    #[must_use]
    pub const fn is_shared(&self) -> bool {
        match self {
            Self::Memory { .. } => false,
            Self::Sqlite { .. } | Self::Etcd(_) | Self::Postgres(_) => true,
        }
    }

    /// Returns the same store, with the places of libpq that a password of `postgres://` may be in.
    /// Other stores take no password from there.
    #[must_use]
    pub fn with_postgres_environment(mut self, environment: PostgresEnvironment) -> Self {
        if let Self::Postgres(config) = &mut self {
            config.environment = environment;
        }
        self
    }

    /// Returns the same store, with a password for the user of `etcd://`. Ignored if the URL names
    /// no user, and for other stores.
    #[must_use]
    pub fn with_etcd_password(mut self, password: Option<String>) -> Self {
        if let Self::Etcd(config) = &mut self
            && let (Some(credentials), Some(password)) = (&mut config.credentials, password)
        {
            credentials.password = password;
        }
        self
    }
}

impl FromStr for StoreUrl {
    type Err = StoreUrlError;

    fn from_str(url: &str) -> Result<Self, StoreUrlError> {
        if url == MEMORY {
            return Ok(Self::memory());
        }
        if let Some(query) = url.strip_prefix(MEMORY).and_then(|rest| rest.strip_prefix('?')) {
            return memory(query);
        }
        if let Some(rest) = url.strip_prefix(SQLITE) {
            return sqlite(rest);
        }
        if url.starts_with(ETCD) {
            return Ok(Self::Etcd(Box::new(EtcdConfig::from_url(url)?)));
        }
        if url.starts_with(POSTGRES) {
            return Ok(Self::Postgres(Box::new(PostgresConfig::from_url(url)?)));
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
            Self::Memory { claim_cooldown } => {
                f.debug_struct("Memory").field("claim_cooldown", claim_cooldown).finish()
            }
            Self::Sqlite { path, options } => {
                f.debug_struct("Sqlite").field("path", path).field("options", options).finish()
            }
            Self::Etcd(config) => f.debug_tuple("Etcd").field(config).finish(),
            Self::Postgres(config) => f.debug_tuple("Postgres").field(config).finish(),
        }
    }
}

/// Why a URL names no store. Shows nothing of it.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum StoreUrlError {
    /// There is no scheme: most likely a path.
    #[error(
        "a store is memory:, sqlite:PATH, etcd://HOST/PREFIX or postgres://USER@HOST/DATABASE; for \
         a file use sqlite:PATH"
    )]
    NoScheme,
    /// The scheme is none of ours.
    #[error(
        "unknown kind of store; there are memory:, sqlite:PATH, etcd://HOST/PREFIX and \
         postgres://USER@HOST/DATABASE"
    )]
    UnknownScheme,
    /// A path follows `memory:`.
    #[error("memory: takes no path; for a file use sqlite:PATH")]
    MemoryPath,
    /// A setting of `memory:` is not understood.
    #[error("memory: takes ?claim_cooldown=250ms and no other setting")]
    MemorySetting,
    /// The value of `claim_cooldown` is not a duration, or too long.
    #[error("claim_cooldown is a number followed by ms, s or m, at most 60m")]
    ClaimCooldown,
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
    #[error(
        "a file takes ?sync=full or ?sync=relaxed, claim_cooldown=250ms and \
         allow_network_file_system=yes, joined by &; a ? in its name is written %3F"
    )]
    SqliteSetting,
    /// The URL of a cluster is not understood.
    #[error(transparent)]
    Etcd(#[from] UrlError),
    /// The URL of a database is not understood.
    #[error(transparent)]
    Postgres(#[from] PostgresUrlError),
}

fn memory(query: &str) -> Result<StoreUrl, StoreUrlError> {
    let mut claim_cooldown = None;
    for setting in query.split('&') {
        let value = setting.strip_prefix(CLAIM_COOLDOWN).ok_or(StoreUrlError::MemorySetting)?;
        // Twice is an error: nothing says which of the two is meant.
        if claim_cooldown.replace(cooldown(value)?).is_some() {
            return Err(StoreUrlError::MemorySetting);
        }
    }
    Ok(StoreUrl::Memory { claim_cooldown: claim_cooldown.unwrap_or_default() })
}

fn cooldown(value: &str) -> Result<Duration, StoreUrlError> {
    let cooldown = parse_duration(value).filter(|cooldown| *cooldown <= CLAIM_COOLDOWN_MAX);
    cooldown.ok_or(StoreUrlError::ClaimCooldown)
}

fn sqlite(rest: &str) -> Result<StoreUrl, StoreUrlError> {
    let (path, query) = match rest.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (rest, None),
    };
    let (mut sync, mut claim_cooldown, mut allow_network_file_system) = (None, None, false);
    for setting in query.into_iter().flat_map(|query| query.split('&')) {
        let is_repeated = match setting {
            "sync=full" => sync.replace(SyncMode::Full).is_some(),
            "sync=relaxed" => sync.replace(SyncMode::Relaxed).is_some(),
            ALLOW_NETWORK => std::mem::replace(&mut allow_network_file_system, true),
            other => {
                let value = other.strip_prefix(CLAIM_COOLDOWN);
                let value = value.ok_or(StoreUrlError::SqliteSetting)?;
                claim_cooldown.replace(cooldown(value)?).is_some()
            }
        };
        if is_repeated {
            return Err(StoreUrlError::SqliteSetting);
        }
    }
    // SQLite would open a temporary database, which is deleted when it is closed.
    if path.is_empty() {
        return Err(StoreUrlError::NoPath);
    }
    // Two slashes are a slip of `sqlite:PATH`. Three are accepted as the usual way to write an
    // absolute path.
    if path.starts_with("//") && !path.starts_with("///") {
        return Err(StoreUrlError::SqliteSlashes);
    }
    // The only character that a path cannot say as it is.
    let path = PathBuf::from(path.replace("%3F", "?"));
    let options = SqliteOptions {
        sync: sync.unwrap_or_default(),
        claim_cooldown: claim_cooldown.unwrap_or_default(),
        allow_network_file_system,
        ..SqliteOptions::default()
    };
    Ok(StoreUrl::Sqlite { path, options })
}
