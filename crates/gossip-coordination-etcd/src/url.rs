//! `etcd://[user@]host[:port],host[:port]/path?setting=value&…`
//!
//! One line that says where a deployment lives. Hosts without a port get etcd's 2379. A user
//! with special characters is percent-encoded. A password in the URL is refused: command lines are
//! visible to every user of the machine. The settings are those of [`EtcdConfig`]:
//!
//! | setting | value |
//! |---|---|
//! | `connect_timeout`, `request_timeout` | `500ms`, `5s` |
//! | `owner_lease_ttl`, `max_clock_skew`, `claim_cooldown` | `15s`, `2s`, `250ms` |
//! | `retries`, `max_children_per_op`, `max_txn_ops`, `max_request_bytes` | a number |
//! | `coalesce` | `on` or `off` |
//! | `password_file` | the file whose first line is the password of the user |
//! | `tls` | `off`: the password crosses a network in clear text |
//! | `ca` | the file of the authorities, in PEM; turns TLS on |
//! | `cert`, `key`, `server_name` | our certificate and its key, in PEM; the servers' name |
//!
//! What it never does: show any part of the URL in an error, because the whole may hold a password.

use gossip_coordination::store::{
    SettingError, TlsSettings, duration_of, number_of, settings_of, text_of,
};
use gossip_stdx::percent_decode;
use thiserror::Error;

use crate::config::{ConfigError, EtcdConfig, EtcdTls, TlsIdentityFiles};
use crate::grpc_config::Credentials;
use crate::keyspace::Namespace;

/// The prefix of a URL.
pub const SCHEME: &str = "etcd://";

/// The default client port of etcd.
const PORT: u16 = 2379;

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
    /// The user is not percent-encoded.
    #[error("the user before @ is not percent-encoded")]
    User,
    /// There is a password in the URL.
    #[error(
        "a password in a URL is visible to other users; use password_file=FILE or \
         GOSSIP_ETCD_PASSWORD"
    )]
    Password,
    /// The settings after `?` cannot be read.
    #[error(transparent)]
    Setting(#[from] SettingError),
    /// The settings are understood and cannot work.
    #[error(transparent)]
    Config(#[from] ConfigError),
}

impl EtcdConfig {
    /// Parses an `etcd://` URL. Settings that it does not have keep their defaults.
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
        let (authority, path) = place.split_once('/').unwrap_or((place, ""));
        // Split at the last `@`: a password may contain one unencoded, and a host contains none.
        let (user, hosts) = match authority.rsplit_once('@') {
            Some((user, _)) if user.contains(':') => return Err(UrlError::Password),
            Some((user, hosts)) => (Some(percent_decode(user).ok_or(UrlError::User)?), hosts),
            None => (None, authority),
        };
        let namespace = Namespace::new(path).map_err(ConfigError::from)?;
        let mut config = Self::new(endpoints(hosts), namespace.path())?;
        config.credentials = user.map(|user| Credentials { user, password: String::new() });
        apply_query(&mut config, query)?;
        // Again, because `new` has checked the default settings only.
        config.validate()?;
        Ok(config)
    }
}

/// Returns the hosts of a comma-separated list, with the default port for those without one. Checks
/// none of them: [`EtcdConfig::validate`] does.
fn endpoints(hosts: &str) -> Vec<String> {
    let with_port = |host: &str| {
        // Colons within brackets belong to an IPv6 address; only one behind them precedes a port.
        let name_end = host.rfind(']').map_or(0, |at| at + 1);
        match host[name_end..].contains(':') {
            true => host.to_owned(),
            false => format!("{host}:{PORT}"),
        }
    };
    hosts.split(',').map(with_port).collect()
}

/// The settings that a URL may have.
const SETTINGS: [&str; 16] = [
    "connect_timeout",
    "request_timeout",
    "owner_lease_ttl",
    "max_clock_skew",
    "claim_cooldown",
    "retries",
    "max_children_per_op",
    "max_txn_ops",
    "max_request_bytes",
    "coalesce",
    "password_file",
    "tls",
    "ca",
    "cert",
    "key",
    "server_name",
];

/// Sets what the part of a URL after `?` says. Unknown and repeated settings are errors. Does not
/// check the values against their bounds.
fn apply_query(config: &mut EtcdConfig, query: &str) -> Result<(), UrlError> {
    let mut tls = TlsSettings::default();
    for (name, value) in settings_of(query, SETTINGS)? {
        apply(config, &mut tls, name, value)?;
    }
    config.allow_clear_text |= tls.is_off();
    config.tls = tls.finish()?.map(|chosen| EtcdTls {
        ca_file: chosen.ca.into(),
        identity: chosen
            .identity
            .map(|(cert, key)| TlsIdentityFiles { cert_file: cert.into(), key_file: key.into() }),
        server_name: chosen.server_name,
    });
    Ok(())
}

/// Sets one setting of [`SETTINGS`] from its text. TLS settings are collected in `tls`, because
/// they depend on each other.
fn apply(
    config: &mut EtcdConfig,
    tls: &mut TlsSettings,
    name: &'static str,
    value: &str,
) -> Result<(), SettingError> {
    match name {
        "connect_timeout" => config.connect_timeout = duration_of(name, value)?,
        "request_timeout" => config.request_timeout = duration_of(name, value)?,
        "owner_lease_ttl" => config.owner_lease_ttl = duration_of(name, value)?,
        "max_clock_skew" => config.max_clock_skew = duration_of(name, value)?,
        "claim_cooldown" => config.claim_cooldown = duration_of(name, value)?,
        "retries" => config.retries = number_of(name, value)?,
        "max_children_per_op" => config.max_children_per_op = number_of(name, value)?,
        "max_txn_ops" => config.max_txn_ops = number_of(name, value)?,
        "max_request_bytes" => config.max_request_bytes = number_of(name, value)?,
        "coalesce" => config.coalesce = switch(name, value)?,
        "password_file" => config.password_file = Some(text_of(name, value)?.into()),
        name if TlsSettings::NAMES.contains(&name) => tls.set(name, value)?,
        _ => unreachable!("every setting that is listed is applied"),
    }
    Ok(())
}

fn switch(name: &'static str, value: &str) -> Result<bool, SettingError> {
    match value {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err(SettingError::Value { name, expected: "on or off" }),
    }
}
