//! Finds out what listens at an address when it is not what we expected.
//!
//! Used when a connection broke before its first answer: to a person, "broken pipe" says nothing,
//! and "it speaks TLS, write https" says everything. Nothing of ours is sent but one question.

use std::error::Error;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tonic::transport::{ClientTlsConfig, Endpoint};

use crate::error::EtcdCause;
use crate::status::{transport_failure, wrong_version};

/// How much of an answer is looked at; what tells them apart stands at the beginning.
const LOOKED_AT: u64 = 1024;

/// An etcd answers this with its version, and any other server with something else.
const QUESTION: &[u8] = b"GET /version HTTP/1.0\r\n\r\n";

/// A better cause than a broken connection, if one can be found. `address` is host and port; the
/// caller bounds the time.
pub(crate) async fn diagnose(address: &str, expects_tls: bool) -> Option<EtcdCause> {
    let answer = ask(address).await?;
    let tls = |detail: &str| {
        let endpoint = address.to_owned();
        Some(EtcdCause::Tls { endpoint, detail: detail.to_owned() })
    };
    match judge(&answer) {
        Judgement::Etcd if expects_tls => tls("the endpoint is https and the server speaks http"),
        // An etcd that broke the connection is about to start or to end, and may be back soon.
        Judgement::Etcd => None,
        Judgement::OtherHttp => {
            Some(wrong_version("a server that speaks HTTP/1 and is not etcd's client port"))
        }
        Judgement::Other if !expects_tls && speaks_tls(address).await => {
            tls("the endpoint is http and the server speaks https")
        }
        Judgement::Other => None,
    }
}

/// What an answer to [`QUESTION`] tells.
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

/// The beginning of the answer to [`QUESTION`]; `None` if nobody listens.
async fn ask(address: &str) -> Option<Vec<u8>> {
    let mut stream = TcpStream::connect(address).await.ok()?;
    let mut answer = Vec::new();
    // What came before the connection broke is as good as an answer.
    if stream.write_all(QUESTION).await.is_ok() {
        let _ = stream.take(LOOKED_AT).read_to_end(&mut answer).await;
    }
    Some(answer)
}

/// Whether a server begins a TLS handshake. It ends there: nobody's certificate is trusted.
async fn speaks_tls(address: &str) -> bool {
    let endpoint = Endpoint::from_shared(format!("https://{address}"));
    let endpoint = endpoint.and_then(|it| it.tls_config(ClientTlsConfig::new()));
    let Ok(endpoint) = endpoint else { return false };
    let refused = endpoint.connect().await.err();
    let cause = refused.as_ref().map(|error| transport_failure(address, error as &dyn Error).1);
    matches!(cause, Some(EtcdCause::Tls { .. }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_told_apart() {
        let etcd = b"HTTP/1.0 200 OK\r\n\r\n{\"etcdserver\":\"3.4.23\",\"etcdcluster\":\"3.4.0\"}";
        assert_eq!(judge(etcd), Judgement::Etcd);
        assert_eq!(judge(b"HTTP/1.1 404 Not Found\r\n\r\n"), Judgement::OtherHttp);
        assert_eq!(judge(b""), Judgement::Other);
    }
}
