//! One member of the cluster: its address and, on demand, a connection to it.
//!
//! A new connection is used only after the server has reported a supported version and the same
//! cluster as the other members. So no other request reaches a server that is not etcd, or a member
//! of another cluster, in which cached revisions are meaningless. A connection that breaks while
//! idle is replaced in the same way.
//!
//! A server that states neither without a login receives the login, and then the same question with
//! the token, before any other request. Without a login it is not used.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use http::uri::PathAndQuery;
use prost::Message;
use prost::bytes::Bytes;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};
use tonic::Request;
use tonic::client::Grpc;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};

use crate::config::EtcdTls;
use crate::diagnosis::diagnose;
use crate::error::{EtcdCause, EtcdError, Fate};
use crate::grpc_codec::AnswerCodec;
use crate::grpc_config::{GrpcConfig, TlsOptions};
use crate::proto::{StatusRequest, StatusResponse};
use crate::single_use_connector::SingleUseConnector;
use crate::status::{OLDEST_VERSION, Peer, classify, transport_failure, wrong_version};

/// Connections that one request may use: one that broke while idle, and its replacement.
const CONNECTIONS_MAX: usize = 2;

/// The timeout of maintenance requests in request timeouts: minutes, for a database of gigabytes.
const REPAIR_FACTOR: u32 = 60;

/// The timeout of a request that a server answers from memory. After it another member is tried.
const QUICK_TIMEOUT: Duration = Duration::from_secs(2);

/// One method of the gRPC interface.
#[derive(Clone, Copy)]
pub(crate) struct Method {
    /// For messages.
    pub(crate) operation: &'static str,
    /// Service and method name.
    pub(crate) path: &'static str,
    /// Whether it has no effect, so that it may always be repeated.
    pub(crate) is_read: bool,
    /// How long it may take.
    pub(crate) pace: Pace,
    /// Whether it is the login, which precedes the check of a server that requires one.
    pub(crate) is_login: bool,
}

/// How long a request may take.
#[derive(Clone, Copy)]
pub(crate) enum Pace {
    /// At most [`QUICK_TIMEOUT`]: it needs neither disk nor quorum.
    Quick,
    /// The configured request timeout.
    Usual,
    /// Maintenance that may take minutes.
    Slow,
}

impl Method {
    /// Returns a request without effect.
    pub(crate) const fn read(operation: &'static str, path: &'static str) -> Self {
        Self { operation, path, is_read: true, pace: Pace::Usual, is_login: false }
    }

    /// Returns the login. It creates a token, and a second one is harmless.
    pub(crate) const fn login(operation: &'static str, path: &'static str) -> Self {
        Self { is_login: true, ..Self::read(operation, path) }
    }

    /// Returns an idempotent request that is answered from memory.
    pub(crate) const fn quick(operation: &'static str, path: &'static str) -> Self {
        Self { operation, path, is_read: true, pace: Pace::Quick, is_login: false }
    }

    /// Returns a request with an effect.
    pub(crate) const fn write(operation: &'static str, path: &'static str) -> Self {
        Self { operation, path, is_read: false, pace: Pace::Usual, is_login: false }
    }

    /// Returns a maintenance request.
    pub(crate) const fn repair(operation: &'static str, path: &'static str) -> Self {
        Self { operation, path, is_read: false, pace: Pace::Slow, is_login: false }
    }
}

/// The first request on a connection.
const STATUS: Method = Method::read("connect", "/etcdserverpb.Maintenance/Status");

/// A member.
pub(crate) struct Node {
    /// Host and port, for messages. Never the whole address, which may hold a password.
    name: String,
    endpoint: Endpoint,
    /// Also part of `endpoint`; kept to diagnose failed connections.
    tls: Option<TlsOptions>,
    tls_files: Option<EtcdTls>,
    connect_timeout: Duration,
    request_timeout: Duration,
    max_answer_bytes: usize,
    cluster: Arc<OnceLock<u64>>,
    link: Mutex<Link>,
}

/// The state of the connection.
#[derive(Default)]
struct Link {
    channel: Option<Channel>,
    /// Why the server has not stated its version and cluster; `None` once it has.
    unchecked: Option<EtcdCause>,
    /// Counts channels, so that only the failed one is dropped.
    generation: u64,
    /// When the last attempt failed, and its cause. Callers that waited for it share it.
    failure: Option<(Instant, EtcdCause)>,
}

impl Node {
    /// Returns an unconnected member. The first connected member of those that share `cluster` sets
    /// the cluster id. Fails if the address is malformed, or contradicts the TLS settings.
    pub(crate) fn new(
        address: &str,
        config: &GrpcConfig,
        cluster: &Arc<OnceLock<u64>>,
    ) -> Result<Self, EtcdCause> {
        let bad = |_| EtcdCause::BadConfig("an endpoint is not http://HOST:PORT or https://");
        let endpoint = Endpoint::from_shared(address.to_owned()).map_err(bad)?;
        let (Some(host), Some(port)) = (endpoint.uri().host(), endpoint.uri().port_u16()) else {
            return Err(EtcdCause::BadConfig("an endpoint has no host or no port"));
        };
        let name = format!("{host}:{port}");
        // A contradiction is refused and not resolved by a guess: plain text where TLS was meant
        // would reveal the password.
        let endpoint = match (endpoint.uri().scheme_str(), &config.tls) {
            (Some("http"), None) => endpoint,
            (Some("https"), Some(tls)) => with_tls(endpoint, tls)?,
            (Some("http"), Some(_)) => {
                return Err(EtcdCause::BadConfig("TLS is configured, but an endpoint is http"));
            }
            (Some("https"), None) => {
                return Err(EtcdCause::BadConfig("an endpoint is https, but no CA is configured"));
            }
            _ => return Err(EtcdCause::BadConfig("an endpoint is neither http nor https")),
        };
        Ok(Self {
            name,
            endpoint: tuned(endpoint, config),
            tls: config.tls.clone(),
            tls_files: config.tls_files.clone(),
            connect_timeout: config.connect_timeout,
            request_timeout: config.request_timeout,
            max_answer_bytes: config.max_answer_bytes,
            cluster: Arc::clone(cluster),
            link: Mutex::default(),
        })
    }

    /// Sends one encoded request to this member and returns its answer. Connects if necessary, and
    /// once more if the connection broke while idle. Resends nothing that may have been sent.
    pub(crate) async fn call<A: Message + Default + 'static>(
        &self,
        method: &Method,
        message: Bytes,
        token: Option<MetadataValue<Ascii>>,
    ) -> Result<A, EtcdError> {
        let mut attempt = 1;
        loop {
            let (channel, generation) = self.open(method.operation).await?;
            if !method.is_login {
                self.check_with_token(method, &channel, generation, token.as_ref()).await?;
            }
            let request = request(message.clone(), token.clone());
            let (error, is_transport) = match self.send_in_time(method, channel, request).await {
                Ok(answer) => return Ok(answer),
                Err(failure) => failure,
            };
            // Only a broken connection is dropped; after a timeout or an error of the server it is
            // still usable.
            if is_transport {
                self.drop_channel(generation).await;
            }
            // The connection broke while idle, so the request was not sent and may be resent.
            let is_stale = is_transport && error.fate == Fate::NotSent;
            if !is_stale || attempt == CONNECTIONS_MAX {
                return Err(error);
            }
            attempt += 1;
        }
    }

    /// Checks a server that has not stated its version and cluster without a login. Does nothing if
    /// it has. An error is always `NotSent`: the caller's request waits for this check.
    async fn check_with_token(
        &self,
        method: &Method,
        channel: &Channel,
        generation: u64,
        token: Option<&MetadataValue<Ascii>>,
    ) -> Result<(), EtcdError> {
        let not_sent = |cause| EtcdError::not_sent(method.operation, cause);
        let refused = self.link.lock().await.unchecked.clone();
        let Some(refused) = refused else { return Ok(()) };
        let Some(token) = token else { return Err(not_sent(refused)) };
        let question = request(Bytes::from(StatusRequest {}.encode_to_vec()), Some(token.clone()));
        let asked = self.send_in_time(&STATUS, channel.clone(), question).await;
        let status = asked.map_err(|(error, _)| not_sent(error.cause))?;
        self.check_status(status).map_err(not_sent)?;
        let mut link = self.link.lock().await;
        // Another connection may have replaced this one meanwhile.
        if link.generation == generation {
            link.unchecked = None;
        }
        Ok(())
    }

    /// As [`send`](Self::send), with a timeout, over a connection to an etcd.
    async fn send_in_time<A: Message + Default + 'static>(
        &self,
        method: &Method,
        channel: Channel,
        request: Request<Bytes>,
    ) -> Result<A, (EtcdError, bool)> {
        let call = self.send(method, Peer::Known, channel, request);
        let limit = self.timeout(method);
        // The connection stays: a slow answer does not show that it is dead, and its keep-alives
        // find that out.
        let late = |_| Err((timed_out(method, limit), false));
        timeout(limit, call).await.unwrap_or_else(late)
    }

    /// Sends over a connection, without a timeout. An error comes with whether the connection
    /// failed, so that the caller drops it.
    async fn send<A: Message + Default + 'static>(
        &self,
        method: &Method,
        peer: Peer,
        channel: Channel,
        request: Request<Bytes>,
    ) -> Result<A, (EtcdError, bool)> {
        let mut grpc = Grpc::new(channel).max_decoding_message_size(self.max_answer_bytes);
        if let Err(error) = grpc.ready().await {
            // The request was not handed to the connection yet, so it was certainly not sent.
            let (_, cause) = transport_failure(&self.name, peer, &error);
            return Err((EtcdError::not_sent(method.operation, cause), true));
        }
        let path = PathAndQuery::from_static(method.path);
        let codec = AnswerCodec::new(request.get_ref().len());
        // Also for unary methods: with one message each way a stream is the same on the wire.
        let answer = async {
            let stream = grpc.server_streaming(request, path, codec).await?;
            let mut stream = stream.into_inner();
            let answer = stream.message().await?;
            // Reads the trailers: dropping the stream before them would send a reset.
            let _end = stream.message().await;
            Ok(answer)
        };
        match answer.await {
            Ok(Some(answer)) => Ok(answer),
            // The server may have applied the request before the stream ended.
            Ok(None) => Err((self.empty_answer(method), true)),
            Err(status) => {
                // A status with a source was made on this side; one without is the server's answer.
                let is_transport = std::error::Error::source(&status).is_some();
                Err((classify(method.operation, &self.name, peer, &status), is_transport))
            }
        }
    }

    /// Returns the connection and its generation, and connects if there is none. An error is always
    /// `NotSent`.
    pub(crate) async fn open(&self, operation: &'static str) -> Result<(Channel, u64), EtcdError> {
        // Before the lock, to recognise an attempt that failed while this call waited for it.
        let began = Instant::now();
        let mut link = self.link.lock().await;
        if let Some(channel) = &link.channel {
            return Ok((channel.clone(), link.generation));
        }
        // Another caller may have failed while this one waited for the lock. Its result serves all
        // that waited, or a dead member would cost one timeout per caller.
        if let Some((ended, cause)) = &link.failure
            && *ended >= began
        {
            return Err(EtcdError::not_sent(operation, cause.clone()));
        }
        match timeout(self.connect_timeout, self.connect()).await.unwrap_or_else(|_| {
            Err(self.unreachable(format!("no connection within {:?}", self.connect_timeout)))
        }) {
            Ok((channel, unchecked)) => {
                link.generation += 1;
                link.failure = None;
                link.unchecked = unchecked;
                link.channel = Some(channel.clone());
                Ok((channel, link.generation))
            }
            Err(cause) => {
                link.failure = Some((Instant::now(), cause.clone()));
                Err(EtcdError::not_sent(operation, cause))
            }
        }
    }

    /// Connects and checks the server. Diagnoses a failure without a clear cause.
    async fn connect(&self) -> Result<(Channel, Option<EtcdCause>), EtcdCause> {
        let (endpoint, tls) = self.current_endpoint();
        match self.try_connect(&endpoint).await {
            Err(cause @ EtcdCause::Unreachable { .. }) => {
                Err(diagnose(&self.name, tls.as_ref()).await.unwrap_or(cause))
            }
            other => other,
        }
    }

    /// Returns the endpoint and its settings of TLS, from the files as they are now. A file that is
    /// being replaced may be missing or incomplete; the settings of the start are used then.
    fn current_endpoint(&self) -> (Endpoint, Option<TlsOptions>) {
        let read = self.tls_files.as_ref().and_then(|files| TlsOptions::read(files).ok());
        let made = read.and_then(|tls| {
            let endpoint = with_tls(self.endpoint.clone(), &tls).ok()?;
            Some((endpoint, Some(tls)))
        });
        made.unwrap_or_else(|| (self.endpoint.clone(), self.tls.clone()))
    }

    /// Connects and asks for the status. Returns also why the server refused to state it, if it
    /// did. Fails if there is no connection, or if the server is too old or of another cluster.
    async fn try_connect(
        &self,
        endpoint: &Endpoint,
    ) -> Result<(Channel, Option<EtcdCause>), EtcdCause> {
        let connector = SingleUseConnector::new(self.connect_timeout);
        let connected = endpoint.connect_with_connector(connector).await;
        let failure = |error| transport_failure(&self.name, Peer::Stranger, &error).1;
        let channel = connected.map_err(failure)?;
        // Without a token: a server that was not checked must not receive one.
        let question = request(Bytes::from(StatusRequest {}.encode_to_vec()), None);
        let asked = self.send(&STATUS, Peer::Stranger, channel.clone(), question).await;
        match asked.map_err(|(error, _)| error.cause) {
            Ok(status) => self.check_status(status).map(|()| (channel, None)),
            // Only etcd returns these errors, so this is one. It is asked again with a token.
            Err(cause @ (EtcdCause::AuthRefused | EtcdCause::PermissionDenied)) => {
                Ok((channel, Some(cause)))
            }
            // An unrecognised error is not taken for another kind of server: it may be an etcd that
            // starts, or a proxy in front of one.
            Err(cause) => Err(cause),
        }
    }

    /// Checks version and cluster.
    fn check_status(&self, status: StatusResponse) -> Result<(), EtcdCause> {
        let StatusResponse { version, header, .. } = status;
        check_version(&version)?;
        self.check_cluster(header.map_or(0, |header| header.cluster_id))
    }

    /// Checks that this is the cluster of the other members. Zero is not a cluster id.
    fn check_cluster(&self, found: u64) -> Result<(), EtcdCause> {
        if found == 0 || *self.cluster.get_or_init(|| found) == found {
            return Ok(());
        }
        Err(EtcdCause::OtherCluster { endpoint: self.name.clone() })
    }

    /// Drops a failed connection, unless a newer one has replaced it.
    async fn drop_channel(&self, generation: u64) {
        let mut link = self.link.lock().await;
        if link.generation == generation {
            link.channel = None;
        }
    }

    fn timeout(&self, method: &Method) -> Duration {
        match method.pace {
            Pace::Quick => self.request_timeout.min(QUICK_TIMEOUT),
            Pace::Usual => self.request_timeout,
            Pace::Slow => self.request_timeout.saturating_mul(REPAIR_FACTOR),
        }
    }

    fn empty_answer(&self, method: &Method) -> EtcdError {
        EtcdError {
            operation: method.operation,
            fate: Fate::Unknown,
            cause: self.unreachable("the answer was cut short".to_owned()),
        }
    }

    fn unreachable(&self, detail: String) -> EtcdCause {
        EtcdCause::Unreachable { endpoint: self.name.clone(), detail }
    }
}

fn timed_out(method: &Method, limit: Duration) -> EtcdError {
    let millis = u64::try_from(limit.as_millis()).unwrap_or(u64::MAX);
    EtcdError::unknown(method.operation, EtcdCause::Timeout { millis })
}

/// Sets the timeouts and keep-alives of a connection.
fn tuned(endpoint: Endpoint, config: &GrpcConfig) -> Endpoint {
    endpoint
        .connect_timeout(config.connect_timeout)
        .http2_keep_alive_interval(config.keep_alive_interval)
        .keep_alive_timeout(config.keep_alive_timeout)
        // A worker may be silent for longer than the interval; its next request should not be the
        // one that finds the connection dead.
        .keep_alive_while_idle(true)
}

fn with_tls(endpoint: Endpoint, options: &TlsOptions) -> Result<Endpoint, EtcdCause> {
    let mut tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(&options.ca_pem));
    if let Some(identity) = &options.identity {
        tls = tls.identity(Identity::from_pem(&identity.cert_pem, &identity.key_pem));
    }
    if let Some(name) = &options.server_name {
        tls = tls.domain_name(name);
    }
    endpoint.tls_config(tls).map_err(|_| EtcdCause::BadConfig("the certificates are no valid PEM"))
}

/// Returns a request with its metadata. With `hasleader` a member without a leader refuses the
/// request at once, certainly not applied, instead of waiting until it times out.
fn request(message: Bytes, token: Option<MetadataValue<Ascii>>) -> Request<Bytes> {
    let mut request = Request::new(message);
    request.metadata_mut().insert("hasleader", MetadataValue::from_static("true"));
    if let Some(token) = token {
        request.metadata_mut().insert("token", token);
    }
    request
}

/// Compares the first two numbers of a version with [`OLDEST_VERSION`].
fn check_version(version: &str) -> Result<(), EtcdCause> {
    match (two_numbers(version), two_numbers(OLDEST_VERSION)) {
        (Some(found), Some(needed)) if found >= needed => Ok(()),
        (Some((major, minor)), _) => Err(wrong_version(&format!("etcd {major}.{minor}"))),
        (None, _) => Err(wrong_version("a server without a version")),
    }
}

fn two_numbers(version: &str) -> Option<(u32, u32)> {
    let mut parts = version.split('.');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_by_number() {
        for good in ["3.3.0", "3.4.23", "3.10.1", "4.0.0-rc.1"] {
            assert_eq!(check_version(good), Ok(()), "{good}");
        }
        for bad in ["3.2.9", "2.3.8", "", "x.y", "3"] {
            assert!(check_version(bad).is_err(), "{bad}");
        }
    }
}
