//! Settings of a deployment on etcd: the servers, their limits, and our own limits.
//!
//! An [`EtcdConfig`] is plain data with the usual values. [`EtcdConfig::validate`] refuses what
//! could never work, with the bound that was missed, before anything is connected. Two of its
//! numbers describe the *server* and must be what the server was started with: `max_txn_ops`
//! (`--max-txn-ops`) and `max_request_bytes` (`--max-request-bytes`). Everything that we send is
//! measured against them beforehand, so a transaction is cut to size and not refused.
//!
//! # Never
//! - opens a file or a socket: paths are read and hosts are resolved when a client connects;
//! - shows a user or a password, in an error or in `Debug`.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use gossip_contracts::coordination::MAX_SPLIT_CHILDREN;
use gossip_coordination::store::{self, CLAIM_COOLDOWN_MAX};
use thiserror::Error;

use crate::budget::{Budget, RequestTooSmall};
use crate::grpc_config::{Credentials, DEFAULT_CONNECT_TIMEOUT, DEFAULT_REQUEST_TIMEOUT};
use crate::keyspace::{Namespace, NamespaceError};

/// Endpoints of one cluster. Clusters have three to seven members.
pub(crate) const ENDPOINTS_MAX: usize = 16;

/// The default time that an owner key outlives the keep-alives of its process.
pub const DEFAULT_OWNER_LEASE_TTL: Duration = Duration::from_secs(15);
/// The shortest owner lease: etcd grants no less than its election timeout of about a second, and
/// a keep-alive at a third of the time must be able to fail once.
pub(crate) const OWNER_LEASE_TTL_MIN: Duration = Duration::from_secs(2);
/// The longest owner lease. A hint that is an hour late is no hint.
pub(crate) const OWNER_LEASE_TTL_MAX: Duration = Duration::from_secs(3600);

/// The default maximum difference between clocks of machines (DESIGN Q7).
pub const DEFAULT_MAX_CLOCK_SKEW: Duration = store::DEFAULT_MAX_CLOCK_SKEW;
/// Clocks that differ by more are broken; every takeover would have to wait for so long.
pub(crate) const MAX_CLOCK_SKEW_MAX: Duration = Duration::from_secs(60);

/// The default number of retries of requests that were certainly not applied.
/// Races of the protocol are counted by the store layer and not here.
pub const DEFAULT_RETRIES: u32 = 4;
/// More would keep a caller waiting for a cluster that is gone.
pub const RETRIES_MAX: u32 = 64;

/// The shortest timeout of either kind. A synced write on a slow disk takes tens of milliseconds.
pub(crate) const TIMEOUT_MIN: Duration = Duration::from_millis(50);
/// The longest timeout of either kind: callers hold leases that run out meanwhile.
pub(crate) const TIMEOUT_MAX: Duration = Duration::from_secs(300);

/// etcd's own default of `--max-txn-ops`.
pub const DEFAULT_MAX_TXN_OPS: usize = 128;
/// The fewest operations with which every operation of the protocol but a large split fits.
pub(crate) const MAX_TXN_OPS_MIN: usize = 32;
/// More operations than any transaction of ours has.
pub(crate) const MAX_TXN_OPS_MAX: usize = 1 << 16;

/// etcd's own default of `--max-request-bytes`: 1.5 MiB.
pub const DEFAULT_MAX_REQUEST_BYTES: usize = 3 << 19;
/// etcd itself warns above ten mebibytes.
pub(crate) const MAX_REQUEST_BYTES_MAX: usize = 10 << 20;

const _: () = assert!(OWNER_LEASE_TTL_MIN.as_secs() <= DEFAULT_OWNER_LEASE_TTL.as_secs());
const _: () = assert!(DEFAULT_OWNER_LEASE_TTL.as_secs() <= OWNER_LEASE_TTL_MAX.as_secs());
const _: () = assert!(DEFAULT_MAX_CLOCK_SKEW.as_secs() <= MAX_CLOCK_SKEW_MAX.as_secs());
const _: () = assert!(DEFAULT_RETRIES <= RETRIES_MAX);
const _: () = assert!(MAX_TXN_OPS_MIN <= DEFAULT_MAX_TXN_OPS);
const _: () = assert!(DEFAULT_MAX_REQUEST_BYTES <= MAX_REQUEST_BYTES_MAX);

/// Settings of a deployment on etcd.
#[derive(Clone, Debug)]
pub struct EtcdConfig {
    /// The members of the cluster, as `host:port`. Any of them serves the whole cluster.
    pub endpoints: Vec<String>,
    /// The namespace of this deployment.
    pub namespace: Namespace,
    /// The credentials, if the cluster requires authentication.
    pub credentials: Option<Credentials>,
    /// The file whose first line is the password; that of the credentials is not used then. Read
    /// when a client connects.
    pub password_file: Option<PathBuf>,
    /// Whether credentials may cross a network without TLS: the caller takes responsibility.
    pub allow_clear_text: bool,
    /// TLS settings; `None` for plain text.
    pub tls: Option<EtcdTls>,
    /// Timeout of connecting to a member.
    pub connect_timeout: Duration,
    /// Timeout of a request. A commit that timed out has an unknown outcome.
    pub request_timeout: Duration,
    /// How long owner keys exist after the last keep-alive of their process; in whole seconds.
    ///
    /// Below ten seconds a leader that stalls for a moment revokes leases of healthy workers: a
    /// leader that was stopped for nine seconds revoked a lease of four in every try, and none of
    /// ten.
    pub owner_lease_ttl: Duration,
    /// The maximum difference between clocks: while an owner key exists, a takeover waits for the
    /// deadline plus this.
    pub max_clock_skew: Duration,
    /// Maximum retries of a request that certainly was not applied.
    pub retries: u32,
    /// Maximum children of one split, if the server's limits allow as many.
    pub max_children_per_op: usize,
    /// Minimum time between two claims of a worker; zero disables it.
    pub claim_cooldown: Duration,
    /// The server's `--max-txn-ops`.
    pub max_txn_ops: usize,
    /// The server's `--max-request-bytes`.
    pub max_request_bytes: usize,
    /// Whether concurrent operations of a process share transactions.
    pub coalesce: bool,
}

impl EtcdConfig {
    /// Returns the default settings for a namespace of a cluster.
    ///
    /// # Errors
    ///
    /// [`ConfigError::Namespace`] if `namespace` is none, and what [`EtcdConfig::validate`] finds.
    pub fn new(
        endpoints: impl IntoIterator<Item = impl Into<String>>,
        namespace: &str,
    ) -> Result<Self, ConfigError> {
        let namespace = Namespace::new(namespace)?;
        let config = Self {
            endpoints: endpoints.into_iter().map(Into::into).collect(),
            namespace,
            credentials: None,
            password_file: None,
            allow_clear_text: false,
            tls: None,
            connect_timeout: DEFAULT_CONNECT_TIMEOUT,
            request_timeout: DEFAULT_REQUEST_TIMEOUT,
            owner_lease_ttl: DEFAULT_OWNER_LEASE_TTL,
            max_clock_skew: DEFAULT_MAX_CLOCK_SKEW,
            retries: DEFAULT_RETRIES,
            max_children_per_op: MAX_SPLIT_CHILDREN,
            claim_cooldown: Duration::ZERO,
            max_txn_ops: DEFAULT_MAX_TXN_OPS,
            max_request_bytes: DEFAULT_MAX_REQUEST_BYTES,
            coalesce: true,
        };
        config.validate()?;
        Ok(config)
    }

    /// Checks every setting against its bounds.
    ///
    /// # Errors
    ///
    /// The first setting that is out of bounds, with its bounds.
    pub fn validate(&self) -> Result<(), ConfigError> {
        self.check_endpoints()?;
        self.check_credentials()?;
        self.check_times()?;
        let within = |name, value, min, max| Range { name, min, max }.check(value);
        within("retries", u64::from(self.retries), 0, u64::from(RETRIES_MAX))?;
        within("max_children_per_op", wide(self.max_children_per_op), 2, wide(MAX_SPLIT_CHILDREN))?;
        let (min, max) = (wide(MAX_TXN_OPS_MIN), wide(MAX_TXN_OPS_MAX));
        within("max_txn_ops", wide(self.max_txn_ops), min, max)?;
        within("max_request_bytes", wide(self.max_request_bytes), 1, wide(MAX_REQUEST_BYTES_MAX))?;
        // Built for its check only: limits without room for one shard would fail at the first
        // commit.
        Budget::new(self)?;
        Ok(())
    }

    fn check_endpoints(&self) -> Result<(), ConfigError> {
        let count = wide(self.endpoints.len());
        Range { name: "endpoints", min: 1, max: wide(ENDPOINTS_MAX) }.check(count)?;
        match self.endpoints.iter().position(|endpoint| !is_host_and_port(endpoint)) {
            Some(index) => Err(ConfigError::Endpoint { index }),
            None => Ok(()),
        }
    }

    fn check_credentials(&self) -> Result<(), ConfigError> {
        match &self.credentials {
            Some(credentials) if credentials.user.is_empty() => Err(ConfigError::NoUser),
            None if self.password_file.is_some() => Err(ConfigError::NoUser),
            Some(_) if self.tls.is_none() && !self.allow_clear_text && !self.is_loopback() => {
                Err(ConfigError::NoTls)
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Returns whether every endpoint is this machine.
    fn is_loopback(&self) -> bool {
        self.endpoints.iter().all(|endpoint| {
            let host = endpoint.rsplit_once(':').map_or(&**endpoint, |(host, _)| host);
            let address = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
            let address = address.unwrap_or(host).parse::<IpAddr>();
            host == "localhost" || address.is_ok_and(|address| address.is_loopback())
        })
    }

    /// Checks the timeouts, the owner lease, the clock skew and the cooldown against their bounds.
    fn check_times(&self) -> Result<(), ConfigError> {
        let timeout = |name, value: Duration| {
            Range { name, min: millis(TIMEOUT_MIN), max: millis(TIMEOUT_MAX) }.check(millis(value))
        };
        timeout("connect_timeout (ms)", self.connect_timeout)?;
        timeout("request_timeout (ms)", self.request_timeout)?;
        // etcd counts whole seconds. Rounding would change a setting silently.
        if self.owner_lease_ttl.subsec_nanos() != 0 {
            return Err(ConfigError::FractionOfSecond);
        }
        let (min, max) = (OWNER_LEASE_TTL_MIN.as_secs(), OWNER_LEASE_TTL_MAX.as_secs());
        Range { name: "owner_lease_ttl (s)", min, max }.check(self.owner_lease_ttl.as_secs())?;
        let max = millis(MAX_CLOCK_SKEW_MAX);
        Range { name: "max_clock_skew (ms)", min: 0, max }.check(millis(self.max_clock_skew))?;
        let max = millis(CLAIM_COOLDOWN_MAX);
        Range { name: "claim_cooldown (ms)", min: 0, max }.check(millis(self.claim_cooldown))
    }
}

/// How connections are encrypted. The files hold PEM and are read when a client connects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EtcdTls {
    /// Authorities that may sign the servers' certificates. Those of the system are not trusted.
    pub ca_file: PathBuf,
    /// The client's certificate and its key, if the servers require one.
    pub identity: Option<TlsIdentityFiles>,
    /// The name in the servers' certificates, if it is not the host of the endpoint.
    pub server_name: Option<String>,
}

/// The files of a certificate and its private key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsIdentityFiles {
    /// The certificate, and those between it and the authority.
    pub cert_file: PathBuf,
    /// Its private key.
    pub key_file: PathBuf,
}

/// A setting that is invalid.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The namespace is invalid.
    #[error(transparent)]
    Namespace(#[from] NamespaceError),
    /// A number lies outside its bounds.
    #[error("{name} is {value}; it must be within {min} and {max}")]
    OutOfRange {
        /// Which setting.
        name: &'static str,
        /// What it is.
        value: u64,
        /// The least it may be.
        min: u64,
        /// The most it may be.
        max: u64,
    },
    /// An endpoint is not `host:port`.
    #[error("endpoint {index} is no host:port")]
    Endpoint {
        /// Which one, from zero.
        index: usize,
    },
    /// Credentials have a password and no user.
    #[error("there are credentials without a user")]
    NoUser,
    /// Credentials for another machine without TLS.
    #[error(
        "a password would cross the network in clear text: give ca=FILE, the authorities that sign \
         the servers' certificates, or tls=off to allow it"
    )]
    NoTls,
    /// etcd counts leases in whole seconds.
    #[error("owner_lease_ttl must be in whole seconds")]
    FractionOfSecond,
    /// The server's limits leave no room for a transaction.
    #[error(transparent)]
    RequestTooSmall(#[from] RequestTooSmall),
}

/// The bounds of a number.
struct Range {
    name: &'static str,
    min: u64,
    max: u64,
}

impl Range {
    const fn check(&self, value: u64) -> Result<(), ConfigError> {
        let Self { name, min, max } = *self;
        if min <= value && value <= max {
            return Ok(());
        }
        Err(ConfigError::OutOfRange { name, value, min, max })
    }
}

/// Returns whether `endpoint` is `host:port` or `[::1]:port`, without scheme, path and user.
fn is_host_and_port(endpoint: &str) -> bool {
    // The last colon: an IPv6 address has others, within brackets.
    let Some((host, port)) = endpoint.rsplit_once(':') else { return false };
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
    let is_address = |byte: u8| byte.is_ascii_hexdigit() || b":.%".contains(&byte);
    let host_is_fine = match host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        Some(address) => !address.is_empty() && address.bytes().all(is_address),
        None => !host.is_empty() && host.bytes().all(is_name),
    };
    host_is_fine && port.parse::<u16>().is_ok_and(|port| port > 0)
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

const fn wide(count: usize) -> u64 {
    count as u64
}
