//! One member of the cluster: its address and, once it was needed, a connection to it.
//!
//! A new connection is used only after the server on its other end has told a version that we can
//! use, and the cluster that it shares with the other members. So nothing but that question ever
//! reaches a server that is not etcd, or one of another cluster, where what we know does not hold.
//! A connection that breaks while nobody uses it is made again the same way, with the question.

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

use crate::diagnosis::diagnose;
use crate::error::{EtcdCause, EtcdError, Fate};
use crate::grpc_codec::AnswerCodec;
use crate::grpc_config::{GrpcConfig, TlsOptions};
use crate::proto::{StatusRequest, StatusResponse};
use crate::single_use_connector::SingleUseConnector;
use crate::status::{OLDEST_VERSION, Peer, classify, transport_failure, wrong_version};

/// Connections that one request may find: one that broke while nobody used it, and another.
const CONNECTIONS_MAX: usize = 2;

/// How much longer a repair may take than a request: minutes, for a database of gigabytes.
const REPAIR_FACTOR: u32 = 60;

/// How long a question waits that a server answers from its memory. Whoever waits longer had better
/// ask another member.
const QUICK_PATIENCE: Duration = Duration::from_secs(2);

/// One request of the interface.
#[derive(Clone, Copy)]
pub(crate) struct Method {
    /// For messages.
    pub(crate) operation: &'static str,
    /// Service and name.
    pub(crate) path: &'static str,
    /// Whether it changes nothing, so that it may be repeated whatever came of it.
    pub(crate) is_read: bool,
    /// How long it may take.
    pub(crate) pace: Pace,
}

/// How long a request may take.
#[derive(Clone, Copy)]
pub(crate) enum Pace {
    /// No longer than [`QUICK_PATIENCE`]: no disk and no majority is asked.
    Quick,
    /// As the settings say.
    Usual,
    /// It is a repair that may take minutes.
    Slow,
}

impl Method {
    /// A request that changes nothing.
    pub(crate) const fn read(operation: &'static str, path: &'static str) -> Self {
        Self { operation, path, is_read: true, pace: Pace::Usual }
    }

    /// A request that changes nothing, or nothing twice, and is answered from memory.
    pub(crate) const fn quick(operation: &'static str, path: &'static str) -> Self {
        Self { operation, path, is_read: true, pace: Pace::Quick }
    }

    /// A request that changes something.
    pub(crate) const fn write(operation: &'static str, path: &'static str) -> Self {
        Self { operation, path, is_read: false, pace: Pace::Usual }
    }

    /// A repair.
    pub(crate) const fn repair(operation: &'static str, path: &'static str) -> Self {
        Self { operation, path, is_read: false, pace: Pace::Slow }
    }
}

/// What opens a connection.
const STATUS: Method = Method::read("connect", "/etcdserverpb.Maintenance/Status");

/// A member.
pub(crate) struct Node {
    /// Host and port, for messages. Never the whole address, which may hold a password.
    name: String,
    endpoint: Endpoint,
    /// Is part of `endpoint` already; kept to find out why a connection broke.
    tls: Option<TlsOptions>,
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
    /// Counts channels, so that only the one that failed is dropped.
    generation: u64,
    /// When the last attempt failed, and why. Callers that waited for it share it.
    failure: Option<(Instant, EtcdCause)>,
}

impl Node {
    /// A member at an address, not connected yet. The first of those that share `cluster` to be
    /// connected says which one it is.
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
            connect_timeout: config.connect_timeout,
            request_timeout: config.request_timeout,
            max_answer_bytes: config.max_answer_bytes,
            cluster: Arc::clone(cluster),
            link: Mutex::default(),
        })
    }

    /// One attempt of one request, bounded in time. The message is encoded already.
    pub(crate) async fn call<A: Message + Default + 'static>(
        &self,
        method: &Method,
        message: Bytes,
        token: Option<MetadataValue<Ascii>>,
    ) -> Result<A, EtcdError> {
        let mut attempt = 1;
        loop {
            let (channel, generation) = self.open(method.operation).await?;
            let request = request(message.clone(), token.clone());
            let (error, is_transport) = match self.send_in_time(method, channel, request).await {
                Ok(answer) => return Ok(answer),
                Err(failure) => failure,
            };
            if is_transport {
                self.drop_channel(generation).await;
            }
            // It broke while nobody used it, so nothing was sent over it.
            let is_stale = is_transport && error.fate == Fate::NotSent;
            if !is_stale || attempt == CONNECTIONS_MAX {
                return Err(error);
            }
            attempt += 1;
        }
    }

    /// As [`send`](Self::send), over a connection that has answered before.
    async fn send_in_time<A: Message + Default + 'static>(
        &self,
        method: &Method,
        channel: Channel,
        request: Request<Bytes>,
    ) -> Result<A, (EtcdError, bool)> {
        let call = self.send(method, Peer::Known, channel, request);
        let patience = self.patience(method);
        let late = |_| Err((timed_out(method, patience), false));
        timeout(patience, call).await.unwrap_or_else(late)
    }

    /// Sends over a connection. With an error comes whether the connection is to blame.
    async fn send<A: Message + Default + 'static>(
        &self,
        method: &Method,
        peer: Peer,
        channel: Channel,
        request: Request<Bytes>,
    ) -> Result<A, (EtcdError, bool)> {
        let mut grpc = Grpc::new(channel).max_decoding_message_size(self.max_answer_bytes);
        if let Err(error) = grpc.ready().await {
            // It was not handed over yet, whatever is wrong with the connection.
            let (_, cause) = transport_failure(&self.name, peer, &error);
            return Err((EtcdError::not_sent(method.operation, cause), true));
        }
        let path = PathAndQuery::from_static(method.path);
        let codec = AnswerCodec::new(request.get_ref().len());
        // For one message each way, a stream that we close after it is the same as a plain call.
        let answer = async {
            let stream = grpc.server_streaming(request, path, codec).await?;
            let mut stream = stream.into_inner();
            let answer = stream.message().await?;
            // What follows is the end of the stream; without it we would seem to have hung up.
            let _end = stream.message().await;
            Ok(answer)
        };
        match answer.await {
            Ok(Some(answer)) => Ok(answer),
            Ok(None) => Err((self.empty_answer(method), true)),
            Err(status) => {
                let is_transport = std::error::Error::source(&status).is_some();
                Err((classify(method.operation, &self.name, peer, &status), is_transport))
            }
        }
    }

    /// The connection, made if there is none.
    pub(crate) async fn open(&self, operation: &'static str) -> Result<(Channel, u64), EtcdError> {
        let began = Instant::now();
        let mut link = self.link.lock().await;
        if let Some(channel) = &link.channel {
            return Ok((channel.clone(), link.generation));
        }
        // While we waited, another caller may have tried: once is enough for all who waited.
        if let Some((ended, cause)) = &link.failure
            && *ended >= began
        {
            return Err(EtcdError::not_sent(operation, cause.clone()));
        }
        match timeout(self.connect_timeout, self.connect()).await.unwrap_or_else(|_| {
            Err(self.unreachable(format!("no connection within {:?}", self.connect_timeout)))
        }) {
            Ok(channel) => {
                link.generation += 1;
                link.failure = None;
                link.channel = Some(channel.clone());
                Ok((channel, link.generation))
            }
            Err(cause) => {
                link.failure = Some((Instant::now(), cause.clone()));
                Err(EtcdError::not_sent(operation, cause))
            }
        }
    }

    /// Connects and asks for the version. A failure without a good reason is looked into.
    async fn connect(&self) -> Result<Channel, EtcdCause> {
        match self.try_connect().await {
            Err(cause @ EtcdCause::Unreachable { .. }) => {
                Err(diagnose(&self.name, self.tls.as_ref()).await.unwrap_or(cause))
            }
            other => other,
        }
    }

    async fn try_connect(&self) -> Result<Channel, EtcdCause> {
        let way = SingleUseConnector::new(self.connect_timeout);
        let connected = self.endpoint.connect_with_connector(way).await;
        let failure = |error| transport_failure(&self.name, Peer::Stranger, &error).1;
        let channel = connected.map_err(failure)?;
        let question = request(Bytes::from(StatusRequest {}.encode_to_vec()), None);
        let asked = self.send(&STATUS, Peer::Stranger, channel.clone(), question).await;
        match asked.map_err(|(error, _)| error.cause) {
            Ok(StatusResponse { version, header, .. }) => {
                check_version(&version)?;
                self.check_cluster(header.map_or(0, |header| header.cluster_id))?;
            }
            // A server that answers in etcd's words is etcd, and its version is its own business.
            Err(EtcdCause::AuthRefused | EtcdCause::PermissionDenied) => {}
            // Only what is known for an answer of another kind of server is one. What nobody
            // recognises may be an etcd in trouble, or a proxy before one that starts.
            Err(cause) => return Err(cause),
        }
        Ok(channel)
    }

    /// Whether this is the cluster of the other members. Zero is no cluster's name.
    fn check_cluster(&self, found: u64) -> Result<(), EtcdCause> {
        if found == 0 || *self.cluster.get_or_init(|| found) == found {
            return Ok(());
        }
        Err(EtcdCause::OtherCluster { endpoint: self.name.clone() })
    }

    /// Forgets a connection that failed, unless a newer one stands.
    async fn drop_channel(&self, generation: u64) {
        let mut link = self.link.lock().await;
        if link.generation == generation {
            link.channel = None;
        }
    }

    fn patience(&self, method: &Method) -> Duration {
        match method.pace {
            Pace::Quick => self.request_timeout.min(QUICK_PATIENCE),
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

fn timed_out(method: &Method, patience: Duration) -> EtcdError {
    let millis = u64::try_from(patience.as_millis()).unwrap_or(u64::MAX);
    EtcdError::unknown(method.operation, EtcdCause::Timeout { millis })
}

/// The time limits and tests of a connection.
fn tuned(endpoint: Endpoint, config: &GrpcConfig) -> Endpoint {
    endpoint
        .connect_timeout(config.connect_timeout)
        .http2_keep_alive_interval(config.keep_alive_interval)
        .keep_alive_timeout(config.keep_alive_timeout)
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

/// A request with its metadata. A member without a leader is told not to take it, so that it
/// refuses at once and for certain instead of waiting.
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
