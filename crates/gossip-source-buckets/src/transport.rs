//! HTTP/1.1 connections, clear or over TLS, that are kept for the next request.
//!
//! One request at a time on each. A connection whose response was not read to its end is closed.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

/// How long a connection may take, with its TLS.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a body may pause.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);

/// Where systems have the certificates of their authorities.
const SYSTEM_ROOTS: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/cert.pem",
    "/etc/ssl/ca-bundle.pem",
];

/// Why there is no response.
pub(crate) type Failed = io::Error;

/// The connections to one host.
pub(crate) struct Transport {
    /// With a port.
    address: String,
    /// `None` for clear text.
    tls: Option<(TlsConnector, ServerName<'static>)>,
    idle: Mutex<Vec<Sender>>,
}

type Sender = SendRequest<Empty<Bytes>>;

impl Transport {
    /// Prepares connections to an authority, a host with or without a port.
    pub(crate) fn new(authority: &str, is_tls: bool, ca: Option<&Path>) -> Result<Self, Failed> {
        // A colon within brackets belongs to an address.
        let after_brackets = authority.rsplit_once(']').map_or(authority, |(_, port)| port);
        let has_port = after_brackets.contains(':');
        let port = if is_tls { 443 } else { 80 };
        let address = if has_port { authority.to_owned() } else { format!("{authority}:{port}") };
        let host = address.rsplit_once(':').map_or(&*address, |(host, _)| host);
        let host = host.trim_matches(['[', ']']).to_owned();
        let tls = match is_tls {
            false => None,
            true => {
                let name = ServerName::try_from(host).map_err(invalid)?;
                Some((TlsConnector::from(Arc::new(client_config(ca)?)), name))
            }
        };
        Ok(Self { address, tls, idle: Mutex::default() })
    }

    /// Sends a request and returns the response once its head is there.
    pub(crate) async fn send(
        self: &Arc<Self>,
        request: Request<Empty<Bytes>>,
        timeout: Duration,
    ) -> Result<Reply, Failed> {
        tokio::time::timeout(timeout, self.send_now(request)).await.map_err(|_| timed_out())?
    }

    async fn send_now(self: &Arc<Self>, request: Request<Empty<Bytes>>) -> Result<Reply, Failed> {
        while let Some(mut sender) = self.take_idle() {
            // The server may have closed it: then the request was not sent, and another one is.
            if sender.ready().await.is_err() {
                continue;
            }
            match sender.try_send_request(request.clone()).await {
                Ok(response) => return Ok(self.reply(sender, response)),
                Err(mut error) => {
                    // Without the request it was sent, at least in part.
                    if error.take_message().is_none() {
                        return Err(lost(error.error()));
                    }
                }
            }
        }
        let connected = tokio::time::timeout(CONNECT_TIMEOUT, self.connect()).await;
        let mut sender = connected.map_err(|_| timed_out())??;
        let response = sender.send_request(request).await.map_err(|error| lost(&error))?;
        Ok(self.reply(sender, response))
    }

    fn reply(self: &Arc<Self>, sender: Sender, response: Response<Incoming>) -> Reply {
        let (head, body) = response.into_parts();
        Reply { head, body, connection: Some((Arc::clone(self), sender)) }
    }

    fn take_idle(&self) -> Option<Sender> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop()
    }

    async fn connect(&self) -> Result<Sender, Failed> {
        let stream = TcpStream::connect(&self.address).await?;
        stream.set_nodelay(true)?;
        match &self.tls {
            None => open(stream).await,
            Some((connector, name)) => open(connector.connect(name.clone(), stream).await?).await,
        }
    }
}

async fn open(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
) -> Result<Sender, Failed> {
    let (sender, connection) = handshake(TokioIo::new(stream)).await.map_err(|it| lost(&it))?;
    // Ends with the sender, or with the connection.
    drop(tokio::spawn(async move { drop(connection.await) }));
    Ok(sender)
}

/// A response whose body is still to be read.
pub(crate) struct Reply {
    pub(crate) head: http::response::Parts,
    body: Incoming,
    connection: Option<(Arc<Transport>, Sender)>,
}

impl Reply {
    /// Returns the next part of the body; `None` at its end. A body that ends before its announced
    /// length is an error.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, Failed> {
        loop {
            let frame = tokio::time::timeout(IDLE_TIMEOUT, self.body.frame()).await;
            match frame.map_err(|_| timed_out())? {
                None => {
                    if let Some((transport, sender)) = self.connection.take() {
                        let idle = transport.idle.lock();
                        idle.unwrap_or_else(PoisonError::into_inner).push(sender);
                    }
                    return Ok(None);
                }
                Some(Err(error)) => return Err(lost(&error)),
                // Trailers say nothing here.
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        return Ok(Some(data));
                    }
                }
            }
        }
    }

    /// Reads the whole body, up to a length.
    pub(crate) async fn whole(&mut self, max: usize) -> Result<Vec<u8>, Failed> {
        let mut body = Vec::new();
        while let Some(part) = self.next().await? {
            if body.len() + part.len() > max {
                return Err(invalid("the body is too long"));
            }
            body.extend_from_slice(&part);
        }
        Ok(body)
    }

    /// Returns the text of a header, if it is there.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.headers.get(name).and_then(|value| value.to_str().ok())
    }
}

/// Reads the certificates of the authorities, and accepts no others.
fn client_config(ca: Option<&Path>) -> Result<ClientConfig, Failed> {
    let system = || SYSTEM_ROOTS.iter().map(PathBuf::from).find(|path| path.is_file());
    let path = ca.map(Path::to_owned).or_else(system);
    let path = path.ok_or_else(|| invalid("no certificates of authorities; name a file by ca="))?;
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(path).map_err(invalid)? {
        // A system may have old ones that are not understood; the others count.
        let _ = roots.add(certificate.map_err(invalid)?);
    }
    if roots.is_empty() {
        return Err(invalid("the file of the authorities has no certificate"));
    }
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let builder = builder.with_safe_default_protocol_versions().map_err(invalid)?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}

fn invalid(error: impl ToString) -> Failed {
    io::Error::new(io::ErrorKind::InvalidInput, error.to_string())
}

fn timed_out() -> Failed {
    io::ErrorKind::TimedOut.into()
}

/// The kind only: the text of an error may quote the response.
fn lost(error: &hyper::Error) -> Failed {
    let source = std::error::Error::source(error);
    let io = source.and_then(|source| source.downcast_ref::<io::Error>());
    io.map_or(io::ErrorKind::ConnectionAborted, io::Error::kind).into()
}
