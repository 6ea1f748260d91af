//! TLS for connections to the server, always verified.

use std::future::Future;
use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream as RustlsStream;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use crate::config::TlsFiles;

/// Makes connections that verify the server.
#[derive(Clone)]
pub(crate) struct Verified {
    config: Arc<ClientConfig>,
    server_name: Option<String>,
}

impl Verified {
    /// Reads the files. They are read again for every connection, so that rotated certificates need
    /// no restart.
    ///
    /// # Errors
    ///
    /// If a file cannot be read or has no usable content.
    pub(crate) fn read(files: &TlsFiles) -> io::Result<Self> {
        let mut roots = RootCertStore::empty();
        for certificate in certificates(&files.ca_file)? {
            roots.add(certificate).map_err(invalid)?;
        }
        // Named here, because the default of the process belongs to the program and may be
        // missing.
        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider);
        let builder = builder.with_safe_default_protocol_versions().map_err(invalid)?;
        let builder = builder.with_root_certificates(roots);
        let config = match &files.identity {
            None => builder.with_no_client_auth(),
            Some((cert, key)) => {
                let key = PrivateKeyDer::from_pem_file(key).map_err(invalid)?;
                builder.with_client_auth_cert(certificates(cert)?, key).map_err(invalid)?
            }
        };
        Ok(Self { config: Arc::new(config), server_name: files.server_name.clone() })
    }
}

fn certificates(path: &Path) -> io::Result<Vec<CertificateDer<'static>>> {
    let found = CertificateDer::pem_file_iter(path).map_err(invalid)?;
    let found: Vec<_> = found.collect::<Result<_, _>>().map_err(invalid)?;
    // Reading an empty file is no error, and without authorities every server would look
    // untrusted.
    match found.is_empty() {
        true => Err(invalid("it has no certificate")),
        false => Ok(found),
    }
}

fn invalid(error: impl ToString) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error.to_string())
}

impl<S> MakeTlsConnect<S> for Verified
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    type Stream = Encrypted<S>;
    type TlsConnect = Handshake;
    type Error = io::Error;

    fn make_tls_connect(&mut self, host: &str) -> io::Result<Handshake> {
        // The name of the certificate differs from the host behind a tunnel or a proxy, where the
        // host is an address.
        let name = self.server_name.clone().unwrap_or_else(|| host.to_owned());
        let name = ServerName::try_from(name).map_err(invalid)?;
        Ok(Handshake { connector: TlsConnector::from(Arc::clone(&self.config)), name })
    }
}

/// A handshake that is still to come.
pub(crate) struct Handshake {
    connector: TlsConnector,
    name: ServerName<'static>,
}

impl<S> TlsConnect<S> for Handshake
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    type Stream = Encrypted<S>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Encrypted<S>>> + Send>>;

    fn connect(self, stream: S) -> Self::Future {
        Box::pin(async move {
            let stream = self.connector.connect(self.name, stream).await?;
            Ok(Encrypted(Box::new(stream)))
        })
    }
}

/// An encrypted connection.
pub(crate) struct Encrypted<S>(Box<RustlsStream<S>>);

impl<S: AsyncRead + AsyncWrite + Unpin> TlsStream for Encrypted<S> {
    fn channel_binding(&self) -> ChannelBinding {
        // The server is verified by its certificate.
        ChannelBinding::none()
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Encrypted<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Encrypted<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}
