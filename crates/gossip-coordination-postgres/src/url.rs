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

use std::time::Duration;

use gossip_coordination::store::parse_duration;
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
    /// A part after `?` is not `setting=value`.
    #[error("part {index} behind ? is no setting=value")]
    Pair {
        /// Which one, from zero.
        index: usize,
    },
    /// There is no such setting.
    #[error("part {index} behind ? is no setting that we know")]
    UnknownSetting {
        /// Which one, from zero.
        index: usize,
    },
    /// A setting is given twice.
    #[error("{name} is set twice")]
    SetTwice {
        /// Which one.
        name: &'static str,
    },
    /// A value is not what the setting takes.
    #[error("{name} must be {expected}")]
    Value {
        /// Which setting.
        name: &'static str,
        /// What it takes.
        expected: &'static str,
    },
    /// A certificate without its key, or a key without its certificate.
    #[error("cert and key belong together")]
    HalfIdentity,
    /// A setting of TLS without the authorities, which turn it on.
    #[error("cert, key and server_name need ca, the file of the authorities")]
    NoAuthorities,
    /// Both TLS and clear text are asked for.
    #[error("ca turns TLS on and tls=off turns it off")]
    Contradiction,
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
    let mut values: [Option<&str>; SETTINGS.len()] = [None; SETTINGS.len()];
    for (index, pair) in query.split('&').filter(|pair| !pair.is_empty()).enumerate() {
        let (name, value) = pair.split_once('=').ok_or(UrlError::Pair { index })?;
        let known = SETTINGS.iter().position(|setting| *setting == name);
        let at = known.ok_or(UrlError::UnknownSetting { index })?;
        // An error rather than a choice: nothing says which of the two is meant.
        if values[at].replace(value).is_some() {
            return Err(UrlError::SetTwice { name: SETTINGS[at] });
        }
    }
    let mut tls = TlsSettings::default();
    // In the order of the list, so that the reported error does not depend on the order in the URL.
    for (name, value) in SETTINGS.into_iter().zip(values) {
        if let Some(value) = value {
            apply(config, &mut tls, name, value)?;
        }
    }
    config.tls = tls.finish()?;
    Ok(())
}

/// Sets one setting of [`SETTINGS`] from its text. TLS settings are collected in `tls`, because
/// they depend on each other.
fn apply(
    config: &mut PostgresConfig,
    tls: &mut TlsSettings,
    name: &'static str,
    value: &str,
) -> Result<(), UrlError> {
    match name {
        "schema" => config.schema = text(name, value)?,
        "password_file" => config.password_file = Some(text(name, value)?.into()),
        "connect_timeout" => config.connect_timeout = duration(name, value)?,
        "request_timeout" => config.request_timeout = duration(name, value)?,
        "claim_cooldown" => config.claim_cooldown = duration(name, value)?,
        "max_children_per_op" => {
            let parsed = value.parse().ok();
            config.max_children_per_op =
                parsed.ok_or(UrlError::Value { name, expected: "a number" })?;
        }
        "pooler" if value == "transaction" => config.is_pooled = true,
        "pooler" => return Err(UrlError::Value { name, expected: "transaction" }),
        "ca" => tls.ca = Some(text(name, value)?),
        "cert" => tls.cert = Some(text(name, value)?),
        "key" => tls.key = Some(text(name, value)?),
        "server_name" => tls.server_name = Some(text(name, value)?),
        "tls" if value == "off" => tls.is_off = true,
        "tls" => return Err(UrlError::Value { name, expected: "off" }),
        _ => unreachable!("every setting that is listed is applied"),
    }
    Ok(())
}

/// The TLS settings of a URL.
#[derive(Default)]
struct TlsSettings {
    ca: Option<String>,
    cert: Option<String>,
    key: Option<String>,
    server_name: Option<String>,
    is_off: bool,
}

impl TlsSettings {
    fn finish(self) -> Result<PostgresTls, UrlError> {
        let identity = match (self.cert, self.key) {
            (Some(cert), Some(key)) => Some((cert.into(), key.into())),
            (None, None) => None,
            (Some(_), None) | (None, Some(_)) => return Err(UrlError::HalfIdentity),
        };
        match self.ca {
            Some(_) if self.is_off => Err(UrlError::Contradiction),
            Some(ca) => {
                let server_name = self.server_name;
                Ok(PostgresTls::Verified(TlsFiles { ca_file: ca.into(), identity, server_name }))
            }
            // The authorities of the system are not trusted, so without `ca` no server could be
            // verified.
            None if identity.is_some() || self.server_name.is_some() => {
                Err(UrlError::NoAuthorities)
            }
            None if self.is_off => Ok(PostgresTls::Off),
            None => Ok(PostgresTls::LoopbackOnly),
        }
    }
}

fn text(name: &'static str, value: &str) -> Result<String, UrlError> {
    let decoded = percent_decode(value).filter(|text| !text.is_empty());
    decoded.ok_or(UrlError::Value { name, expected: "percent-encoded text" })
}

fn duration(name: &'static str, value: &str) -> Result<Duration, UrlError> {
    let error = UrlError::Value { name, expected: "a number followed by ms, s or m" };
    parse_duration(value).ok_or(error)
}
