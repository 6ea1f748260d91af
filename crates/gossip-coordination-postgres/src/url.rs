//! `postgres://user@host[:port]/database?setting=value&…`
//!
//! | setting | value |
//! |---|---|
//! | `schema` | the schema that holds the store, `gossip` by default |
//! | `password_file` | the file whose first line is the password |
//! | `ca` | the file of the authorities, in PEM; turns TLS on |
//! | `cert`, `key`, `server_name` | our certificate and its key, in PEM; the server's name |
//! | `tls` | `off`: clear text on a network |
//! | `pooler` | `transaction`: a pooler in transaction mode is in between |
//! | `connect_timeout`, `request_timeout`, `claim_cooldown` | `500ms`, `5s` |
//! | `max_children_per_op` | a number |
//!
//! A user or database with special characters is percent-encoded. A password in the URL is refused:
//! command lines are visible to every user of the machine.
//!
//! What it never does: show any part of the URL in an error.

use gossip_coordination::store::{
    SettingError, TlsSettings, duration_of, number_of, settings_of, text_of,
};
use gossip_stdx::percent_decode;
use thiserror::Error;

use crate::config::{ConfigError, DEFAULT_PORT, PostgresConfig, PostgresTls, TlsFiles};

/// The prefix of a URL.
pub const SCHEME: &str = "postgres://";

/// The longest URL: far more than all settings need.
const URL_LEN_MAX: usize = 8 << 10;

/// Why a URL is invalid. States the position, and never the content.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum UrlError {
    /// Another scheme, or none.
    #[error("the URL does not begin with {SCHEME}")]
    Scheme,
    /// The URL is too long.
    #[error("a URL of {len} bytes exceeds {max}")]
    TooLong {
        /// Its length.
        len: usize,
        /// The longest allowed.
        max: usize,
    },
    /// There is a password in the URL.
    #[error(
        "a password in a URL is visible to other users; use password_file=FILE, PGPASSWORD or \
         the password file of libpq"
    )]
    Password,
    /// User, host and database are not `user@host:port/database`.
    #[error("a store is postgres://USER@HOST:PORT/DATABASE, percent-encoded")]
    Place,
    /// The settings after `?` cannot be read.
    #[error(transparent)]
    Setting(#[from] SettingError),
    /// The settings are understood and cannot work.
    #[error(transparent)]
    Config(#[from] ConfigError),
}

impl PostgresConfig {
    /// Parses a `postgres://` URL. Settings that it does not have keep their defaults.
    ///
    /// # Errors
    ///
    /// [`UrlError`], which shows nothing of the URL.
    pub fn from_url(url: &str) -> Result<Self, UrlError> {
        // First, to bound the cost of everything below.
        if url.len() > URL_LEN_MAX {
            return Err(UrlError::TooLong { len: url.len(), max: URL_LEN_MAX });
        }
        let rest = url.strip_prefix(SCHEME).ok_or(UrlError::Scheme)?;
        let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, database) = place.split_once('/').ok_or(UrlError::Place)?;
        let (user, host) = authority.rsplit_once('@').ok_or(UrlError::Place)?;
        if user.contains(':') {
            return Err(UrlError::Password);
        }
        let (host, port) = host_and_port(host).ok_or(UrlError::Place)?;
        let decode = |part| percent_decode(part).ok_or(UrlError::Place);
        let mut config = Self::new(host, port, &decode(user)?, &decode(database)?);
        apply_query(&mut config, query)?;
        config.validate()?;
        Ok(config)
    }
}

/// Returns the host without brackets, and its port.
fn host_and_port(text: &str) -> Option<(&str, u16)> {
    // Colons within brackets belong to an IPv6 address.
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => rest.split_once(']').map(|(host, port)| (host, port.strip_prefix(':')))?,
        None => text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port))),
    };
    let port = port.map_or(Some(DEFAULT_PORT), |port| port.parse().ok())?;
    Some((host, port))
}

/// The settings that a URL may have.
const SETTINGS: [&str; 12] = [
    "schema",
    "password_file",
    "connect_timeout",
    "request_timeout",
    "claim_cooldown",
    "max_children_per_op",
    "pooler",
    "ca",
    "cert",
    "key",
    "server_name",
    "tls",
];

/// Sets what the part of a URL after `?` says. Unknown and repeated settings are errors.
fn apply_query(config: &mut PostgresConfig, query: &str) -> Result<(), UrlError> {
    let mut tls = TlsSettings::default();
    for (name, value) in settings_of(query, SETTINGS)? {
        apply(config, &mut tls, name, value)?;
    }
    let is_off = tls.is_off();
    config.tls = match tls.finish()? {
        Some(chosen) => PostgresTls::Verified(TlsFiles {
            ca_file: chosen.ca.into(),
            identity: chosen.identity.map(|(cert, key)| (cert.into(), key.into())),
            server_name: chosen.server_name,
        }),
        None if is_off => PostgresTls::Off,
        None => PostgresTls::LoopbackOnly,
    };
    Ok(())
}

/// Sets one setting of [`SETTINGS`] from its text. TLS settings are collected in `tls`, because
/// they depend on each other.
fn apply(
    config: &mut PostgresConfig,
    tls: &mut TlsSettings,
    name: &'static str,
    value: &str,
) -> Result<(), SettingError> {
    match name {
        "schema" => config.schema = text_of(name, value)?,
        "password_file" => config.password_file = Some(text_of(name, value)?.into()),
        "connect_timeout" => config.connect_timeout = duration_of(name, value)?,
        "request_timeout" => config.request_timeout = duration_of(name, value)?,
        "claim_cooldown" => config.claim_cooldown = duration_of(name, value)?,
        "max_children_per_op" => config.max_children_per_op = number_of(name, value)?,
        "pooler" if value == "transaction" => config.is_pooled = true,
        "pooler" => {
            return Err(SettingError::Value { name, expected: "transaction" });
        }
        name if TlsSettings::NAMES.contains(&name) => tls.set(name, value)?,
        _ => unreachable!("every setting that is listed is applied"),
    }
    Ok(())
}
