//! Finds out what listens at an address when it is not what we expected.
//!
//! Used when a connection broke before its first answer: to a person, "broken pipe" says nothing,
//! and "it speaks TLS, write https" says everything. Nothing of ours is sent but one question.

use std::io;
use std::sync::Arc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{self, ClientConfig, RootCertStore};

use crate::error::EtcdCause;
use crate::grpc_config::TlsOptions;
use crate::status::wrong_version;

/// How many bytes of an answer are read; its beginning identifies the server.
const LOOKED_AT: u64 = 1024;

/// An etcd answers this with its version, and any other server with something else.
const QUESTION: &[u8] = b"GET /version HTTP/1.0\r\n\r\n";

/// Asks the server at `address`, host and port, what it is, and returns a better cause than a
/// broken connection. `None` if nothing listens or no better cause is found. The caller bounds the
/// time.
pub(crate) async fn diagnose(address: &str, tls: Option<&TlsOptions>) -> Option<EtcdCause> {
    // If nothing listens, the cause that the caller has is the right one.
    let answer = ask(address).await?;
    let of_tls = |detail: String| EtcdCause::Tls { endpoint: address.to_owned(), detail };
    match (judge(&answer), tls) {
        (Judgement::Etcd, Some(_)) => Some(of_tls("the server speaks http, not https".to_owned())),
        // An etcd that broke the connection is about to start or to end, and may be back soon.
        (Judgement::Etcd, None) => None,
        (Judgement::OtherHttp, _) => {
            Some(wrong_version("a server that speaks HTTP/1 and is not etcd's client port"))
        }
        (Judgement::Other, Some(options)) => {
            let refused = shake_hands(address, options).await.err()?;
            is_of_tls(&refused).then(|| of_tls(refused.to_string()))
        }
        (Judgement::Other, None) => {
            // Without options no authority is trusted, so the handshake with a server that
            // speaks TLS ends in an error of TLS.
            let refused = shake_hands(address, &TlsOptions::default()).await.err()?;
            let is_tls = is_of_tls(&refused);
            is_tls.then(|| of_tls("the server speaks https, not http".to_owned()))
        }
    }
}

/// The kind of server that an answer to [`QUESTION`] indicates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Judgement {
    Etcd,
    OtherHttp,
    /// No HTTP; perhaps no answer at all.
    Other,
}

fn judge(answer: &[u8]) -> Judgement {
    let text = String::from_utf8_lossy(answer);
    match text.starts_with("HTTP/1") {
        true if text.contains("\"etcdserver\"") => Judgement::Etcd,
        true => Judgement::OtherHttp,
        false => Judgement::Other,
    }
}

/// Returns the beginning of the answer to [`QUESTION`]; `None` if no server listens.
async fn ask(address: &str) -> Option<Vec<u8>> {
    let mut stream = TcpStream::connect(address).await.ok()?;
    let mut answer = Vec::new();
    // The error is ignored: the bytes before the connection broke identify the server as well.
    if stream.write_all(QUESTION).await.is_ok() {
        let _ = stream.take(LOOKED_AT).read_to_end(&mut answer).await;
    }
    Some(answer)
}

/// Performs a TLS handshake and waits for the server's first byte. A server that rejects our
/// certificate says so only then, and only to a client that reads before it writes.
async fn shake_hands(address: &str, options: &TlsOptions) -> io::Result<()> {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    let name = options.server_name.as_deref().unwrap_or(host).to_owned();
    let name = ServerName::try_from(name).map_err(io::Error::other)?;
    let config = client_config(options).map_err(io::Error::other)?;
    let stream = TcpStream::connect(address).await?;
    let mut stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await?;
    stream.read_u8().await.map(drop)
}

/// Returns the TLS settings that the gRPC library derives from the options, for a connection
/// without it.
fn client_config(options: &TlsOptions) -> Result<ClientConfig, rustls::Error> {
    let bad = |_| rustls::Error::General("the certificates are no valid PEM".to_owned());
    let certificates = |pem: &[u8]| -> Result<Vec<CertificateDer<'static>>, rustls::Error> {
        CertificateDer::pem_slice_iter(pem).collect::<Result<_, _>>().map_err(bad)
    };
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(certificates(&options.ca_pem)?);
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder =
        ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    let builder = builder.with_root_certificates(roots);
    let mut config = match &options.identity {
        None => builder.with_no_client_auth(),
        Some(identity) => {
            let key = PrivateKeyDer::from_pem_slice(&identity.key_pem).map_err(bad)?;
            builder.with_client_auth_cert(certificates(&identity.cert_pem)?, key)?
        }
    };
    // As the gRPC library offers it; a server may refuse a handshake without it.
    config.alpn_protocols.push(b"h2".to_vec());
    Ok(config)
}

fn is_of_tls(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.is::<rustls::Error>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_distinguished() {
        let etcd = b"HTTP/1.0 200 OK\r\n\r\n{\"etcdserver\":\"3.4.23\",\"etcdcluster\":\"3.4.0\"}";
        assert_eq!(judge(etcd), Judgement::Etcd);
        assert_eq!(judge(b"HTTP/1.1 404 Not Found\r\n\r\n"), Judgement::OtherHttp);
        assert_eq!(judge(b""), Judgement::Other);
    }
}
