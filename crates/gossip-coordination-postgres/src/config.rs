//! Settings of a store on PostgreSQL.
//!
//! # Never
//! - opens a file or a socket: paths are read and hosts are resolved when the store connects;
//! - reads the environment: the caller passes [`PostgresEnvironment`];
//! - shows a user or a password, in an error or in `Debug`.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use gossip_contracts::coordination::MAX_SPLIT_CHILDREN;
use gossip_coordination::store::CLAIM_COOLDOWN_MAX;
use thiserror::Error;

/// The default port of PostgreSQL.
pub(crate) const DEFAULT_PORT: u16 = 5432;
/// The default schema.
pub(crate) const DEFAULT_SCHEMA: &str = "gossip";
/// The default timeout of connecting.
pub const DEFAULT_CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// The default timeout of a request: twice the lock timeout of the server's functions.
pub const DEFAULT_REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// The shortest timeout of either kind. A synced write on a slow disk takes tens of milliseconds.
pub const TIMEOUT_MIN: Duration = Duration::from_millis(50);
/// The longest timeout of either kind: callers hold leases that run out meanwhile.
pub const TIMEOUT_MAX: Duration = Duration::from_secs(300);

/// The longest name of a user, a database or a schema: PostgreSQL cuts longer ones.
pub const NAME_LEN_MAX: usize = 63;

/// Settings of a store on PostgreSQL.
#[derive(Clone)]
pub struct PostgresConfig {
    /// The host name or address of the primary.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// The role.
    pub user: String,
    /// The database.
    pub database: String,
    /// The schema that holds the store: lower-case letters, digits and underscores.
    pub schema: String,
    /// The file whose first line is the password.
    pub password_file: Option<PathBuf>,
    /// The places that libpq reads a password from.
    pub environment: PostgresEnvironment,
    /// How the connection is encrypted.
    pub tls: PostgresTls,
    /// Whether a pooler in transaction mode is between us and the server: statements are not
    /// prepared and no session settings are made.
    pub is_pooled: bool,
    /// Timeout of connecting.
    pub connect_timeout: Duration,
    /// Timeout of a request. A commit that timed out has an unknown outcome.
    pub request_timeout: Duration,
    /// Maximum children of one split.
    pub max_children_per_op: usize,
    /// Minimum time between two claims of a worker; zero disables it.
    pub claim_cooldown: Duration,
}

impl PostgresConfig {
    /// Returns the default settings for a database, encrypted unless the host is this machine.
    #[must_use]
    pub fn new(host: &str, port: u16, user: &str, database: &str) -> Self {
        Self {
            host: host.to_owned(),
            port,
            user: user.to_owned(),
            database: database.to_owned(),
            schema: DEFAULT_SCHEMA.to_owned(),
            password_file: None,
            environment: PostgresEnvironment::default(),
            tls: PostgresTls::LoopbackOnly,
            is_pooled: false,
            connect_timeout: DEFAULT_CONNECT_TIMEOUT,
            request_timeout: DEFAULT_REQUEST_TIMEOUT,
            max_children_per_op: MAX_SPLIT_CHILDREN,
            claim_cooldown: Duration::ZERO,
        }
    }

    /// Checks every setting against its bounds.
    ///
    /// # Errors
    ///
    /// The first setting that cannot work.
    pub fn validate(&self) -> Result<(), ConfigError> {
        // Letters, digits and what addresses and zones of IPv6 need. A slash would name the
        // directory of a Unix socket.
        let is_host = |byte: u8| byte.is_ascii_alphanumeric() || b".-_:%".contains(&byte);
        if self.host.is_empty() || !self.host.bytes().all(is_host) || self.port == 0 {
            return Err(ConfigError::Host);
        }
        for (name, value) in [("user", &self.user), ("database", &self.database)] {
            // The server cuts a longer name, and the protocol ends a name at a NUL: either would
            // be another name.
            if value.is_empty() || value.len() > NAME_LEN_MAX || value.contains('\0') {
                return Err(ConfigError::Name { name });
            }
        }
        // So narrow that it needs no quotes in a statement.
        let is_letter = |byte: u8| byte.is_ascii_lowercase() || byte == b'_';
        let is_schema = self.schema.bytes().all(|byte| is_letter(byte) || byte.is_ascii_digit())
            && self.schema.bytes().next().is_some_and(is_letter)
            && self.schema.len() <= NAME_LEN_MAX
            && !self.schema.starts_with("pg_");
        if !is_schema {
            return Err(ConfigError::Schema);
        }
        let times = [("connect_timeout", self.connect_timeout)];
        for (name, time) in times.into_iter().chain([("request_timeout", self.request_timeout)]) {
            // Both bounds: a shorter timeout makes healthy commits unknown, a longer one outlives
            // the lease of the caller.
            if !(TIMEOUT_MIN..=TIMEOUT_MAX).contains(&time) {
                return Err(ConfigError::Timeout { name });
            }
        }
        if self.claim_cooldown > CLAIM_COOLDOWN_MAX {
            return Err(ConfigError::ClaimCooldown);
        }
        if !(2..=MAX_SPLIT_CHILDREN).contains(&self.max_children_per_op) {
            return Err(ConfigError::Children);
        }
        // A password or the records of a tenant would cross a network in clear text.
        if matches!(self.tls, PostgresTls::LoopbackOnly) && !self.is_loopback() {
            return Err(ConfigError::NoTls);
        }
        Ok(())
    }

    /// Returns whether the host is this machine.
    fn is_loopback(&self) -> bool {
        self.host == "localhost" || self.host.parse().is_ok_and(|it: IpAddr| it.is_loopback())
    }
}

/// Shows nothing of the user and of the password.
impl fmt::Debug for PostgresConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresConfig")
            .field("host", &self.host)
            .field("port", &self.port)
            .field("schema", &self.schema)
            .field("tls", &self.tls)
            .field("is_pooled", &self.is_pooled)
            .field("connect_timeout", &self.connect_timeout)
            .field("request_timeout", &self.request_timeout)
            .finish_non_exhaustive()
    }
}

/// The places of libpq that a program may take a password from.
#[derive(Clone, Default)]
pub struct PostgresEnvironment {
    /// The value of `PGPASSWORD`.
    pub password: Option<String>,
    /// The password file: `PGPASSFILE`, or `.pgpass` in the home directory.
    pub password_file: Option<PathBuf>,
}

impl fmt::Debug for PostgresEnvironment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresEnvironment")
            .field("has_password", &self.password.is_some())
            .field("has_password_file", &self.password_file.is_some())
            .finish()
    }
}

/// How the connection is encrypted.
#[derive(Clone, Debug)]
#[expect(clippy::exhaustive_enums, reason = "there is no other way")]
pub enum PostgresTls {
    /// Not at all, and only if the host is this machine.
    LoopbackOnly,
    /// Not at all, on any network: the caller takes responsibility.
    Off,
    /// By TLS, and the server is verified.
    Verified(TlsFiles),
}

/// Files of TLS, in PEM.
#[derive(Clone, Debug)]
pub struct TlsFiles {
    /// The authorities that may sign the server's certificate.
    pub ca_file: PathBuf,
    /// The client's certificate and its key, if the server requires one.
    pub identity: Option<(PathBuf, PathBuf)>,
    /// The name in the server's certificate, if it is not the host.
    pub server_name: Option<String>,
}

/// Why settings cannot work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The host or the port is invalid.
    #[error("the host is no host name or address, or the port is 0")]
    Host,
    /// A name is missing or too long.
    #[error("the {name} is missing, or longer than {NAME_LEN_MAX} bytes")]
    Name {
        /// Which one.
        name: &'static str,
    },
    /// The schema's name is not of the allowed form.
    #[error(
        "the schema must have lower-case letters, digits and _ only, at most {NAME_LEN_MAX}, and \
         not begin with a digit or pg_"
    )]
    Schema,
    /// A timeout is out of bounds.
    #[error("{name} must be from 50ms to 300s")]
    Timeout {
        /// Which one.
        name: &'static str,
    },
    /// The cooldown is too long.
    #[error("claim_cooldown must be at most 60m")]
    ClaimCooldown,
    /// The number of children is out of bounds.
    #[error("max_children_per_op must be from 2 to {MAX_SPLIT_CHILDREN}")]
    Children,
    /// Another machine without TLS.
    #[error(
        "the host is another machine: give ca=FILE, the authorities that sign its certificate, or \
         tls=off to send everything in clear text"
    )]
    NoTls,
}
