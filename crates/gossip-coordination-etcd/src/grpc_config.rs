//! What a [`GrpcClient`](crate::GrpcClient) is made of: addresses, time limits, credentials, TLS.
//!
//! `Debug` shows neither names nor secrets, nor an address, which may hold both.

use std::path::PathBuf;
use std::time::Duration;
use std::{fmt, io};

use crate::config::EtcdTls;

/// Timeout of connecting: twice the largest round trip of a wide-area network, with a retransmitted
/// packet. A machine that is down should cost no more.
pub(crate) const DEFAULT_CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// Timeout of a request. A server times out after seven seconds by default, and its own error says
/// more than our timeout.
pub const DEFAULT_REQUEST_TIMEOUT: Duration = Duration::from_secs(8);

/// How often a connection is tested. Servers close connections that are tested more often than
/// every five seconds.
pub const DEFAULT_KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(10);

/// How long such a test waits; with the interval it bounds how long a dead connection is believed.
pub const DEFAULT_KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(5);

/// Maximum length of a response: pages are much smaller, and a server without limits of its own
/// must not exhaust our memory.
pub(crate) const DEFAULT_MAX_ANSWER_BYTES: usize = 16 << 20;

const _: () = assert!(DEFAULT_CONNECT_TIMEOUT.as_millis() < DEFAULT_REQUEST_TIMEOUT.as_millis());

/// Addresses and connection settings of a cluster.
#[derive(Clone)]
pub struct GrpcConfig {
    /// Members of one cluster, as `http://host:port` or `https://host:port`; at least one. The
    /// first is asked until it fails.
    pub endpoints: Vec<String>,
    /// The credentials; `None` if the cluster requires none.
    pub credentials: Option<Credentials>,
    /// TLS settings; needed for `https`, and only there.
    pub tls: Option<TlsOptions>,
    /// The files of [`Self::tls`], if it is from files. They are read again for each connection, so
    /// that rotated certificates need no restart.
    pub tls_files: Option<EtcdTls>,
    /// Bounds the making of a connection, TLS and the first question included.
    pub connect_timeout: Duration,
    /// Bounds one attempt of one request.
    pub request_timeout: Duration,
    /// How often a connection is tested.
    pub keep_alive_interval: Duration,
    /// How long such a test waits before the connection is given up.
    pub keep_alive_timeout: Duration,
    /// Bounds the bytes of one answer.
    pub max_answer_bytes: usize,
}

impl GrpcConfig {
    /// Returns the default settings for these members.
    pub fn new(endpoints: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self {
            endpoints: endpoints.into_iter().map(Into::into).collect(),
            credentials: None,
            tls: None,
            tls_files: None,
            connect_timeout: DEFAULT_CONNECT_TIMEOUT,
            request_timeout: DEFAULT_REQUEST_TIMEOUT,
            keep_alive_interval: DEFAULT_KEEP_ALIVE_INTERVAL,
            keep_alive_timeout: DEFAULT_KEEP_ALIVE_TIMEOUT,
            max_answer_bytes: DEFAULT_MAX_ANSWER_BYTES,
        }
    }
}

impl fmt::Debug for GrpcConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GrpcConfig")
            .field("endpoints", &self.endpoints.len())
            .field("credentials", &self.credentials)
            .field("tls", &self.tls)
            .field("connect_timeout", &self.connect_timeout)
            .field("request_timeout", &self.request_timeout)
            .field("keep_alive_interval", &self.keep_alive_interval)
            .field("keep_alive_timeout", &self.keep_alive_timeout)
            .field("max_answer_bytes", &self.max_answer_bytes)
            .finish()
    }
}

/// A user and its password.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// The name of the user.
    pub user: String,
    /// Sent to the cluster to get a token.
    pub password: String,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials")
            .field("user_len", &self.user.len())
            .field("password_len", &self.password.len())
            .finish()
    }
}

/// The trusted authorities and, if the cluster requires one, the client's certificate.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct TlsOptions {
    /// The authorities that may sign the servers' certificates, in PEM.
    pub ca_pem: Vec<u8>,
    /// The client's certificate and its private key, in PEM.
    pub identity: Option<TlsIdentity>,
    /// The name that the servers' certificates carry, if it is not the host of the endpoint.
    pub server_name: Option<String>,
}

impl TlsOptions {
    /// Reads the files of a configuration.
    ///
    /// # Errors
    ///
    /// The first file that cannot be read, and why.
    pub(crate) fn read(files: &EtcdTls) -> Result<Self, (PathBuf, io::Error)> {
        let read = |path: &PathBuf| std::fs::read(path).map_err(|error| (path.clone(), error));
        let identity = match &files.identity {
            Some(identity) => Some(TlsIdentity {
                cert_pem: read(&identity.cert_file)?,
                key_pem: read(&identity.key_file)?,
            }),
            None => None,
        };
        let server_name = files.server_name.clone();
        Ok(Self { ca_pem: read(&files.ca_file)?, identity, server_name })
    }
}

impl fmt::Debug for TlsOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsOptions")
            .field("ca_pem_len", &self.ca_pem.len())
            .field("identity", &self.identity)
            .field("server_name_len", &self.server_name.as_ref().map(String::len))
            .finish()
    }
}

/// A certificate with its private key, in PEM.
#[derive(Clone, PartialEq, Eq)]
pub struct TlsIdentity {
    /// The certificate, and those between it and the authority.
    pub cert_pem: Vec<u8>,
    /// Its private key.
    pub key_pem: Vec<u8>,
}

impl fmt::Debug for TlsIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsIdentity")
            .field("cert_pem_len", &self.cert_pem.len())
            .field("key_pem_len", &self.key_pem.len())
            .finish()
    }
}
