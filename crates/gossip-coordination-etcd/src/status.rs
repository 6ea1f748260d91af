//! Reads a failed call: what it means, and whether the request may have happened.
//!
//! The table is in the documentation of [`crate::error`]'s module. A status that carries a source
//! was made on this side by the transport; one without came from the server, and its text is one
//! of etcd's public ones or is not recognised.

use std::error::Error;
use std::io;

use tokio_rustls::rustls;
use tonic::{Code, ConnectError, Status};

use crate::error::{EtcdCause, EtcdError, Fate, SizeLimit};

/// The oldest server that has nested transactions and compares of ranges.
pub(crate) const OLDEST_VERSION: &str = "3.3";

/// How far a chain of causes is followed; the deepest we know has seven links.
const MAX_CHAIN: usize = 16;

/// Who is on the other end of a connection that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Peer {
    /// Unchecked: it may not be an etcd server.
    Stranger,
    /// An etcd that has answered over this connection. Whatever ends such a connection says nothing
    /// about who it is: a test of it that ran out, a server that closes it, a reset stream.
    Known,
}

/// Returns the error of a failed call.
pub(crate) fn classify(
    operation: &'static str,
    endpoint: &str,
    peer: Peer,
    status: &Status,
) -> EtcdError {
    let (fate, cause) = match status.source() {
        Some(source) => transport_failure(endpoint, peer, source),
        None => server_answer(endpoint, status.code(), status.message()),
    };
    EtcdError { operation, fate, cause }
}

/// Returns fate and cause of a failure of the transport. It is certain only if no connection could
/// be made.
pub(crate) fn transport_failure(
    endpoint: &str,
    peer: Peer,
    source: &(dyn Error + 'static),
) -> (Fate, EtcdCause) {
    let chain = Chain::of(source);
    // Without a connection nothing was sent. Over an established one the request may have left.
    let fate = if chain.is_connect { Fate::NotSent } else { Fate::Unknown };
    let endpoint = endpoint.to_owned();
    let cause = match peer {
        Peer::Stranger if chain.is_tls => EtcdCause::Tls { endpoint, detail: chain.detail },
        Peer::Stranger if chain.is_foreign_protocol() => {
            wrong_version("a server that does not speak HTTP/2")
        }
        Peer::Stranger | Peer::Known => EtcdCause::Unreachable { endpoint, detail: chain.detail },
    };
    (fate, cause)
}

/// Returns the cause for a server that is not a supported etcd.
pub(crate) fn wrong_version(found: &str) -> EtcdCause {
    EtcdCause::WrongVersion { found: found.to_owned(), needed: OLDEST_VERSION }
}

/// A summary of the causes of a transport failure.
struct Chain {
    /// No connection was made.
    is_connect: bool,
    is_tls: bool,
    /// An operating system's error is in it.
    is_io: bool,
    /// The HTTP/2 layer gave up.
    is_http2: bool,
    /// The last link, which says most.
    detail: String,
}

impl Chain {
    fn of(source: &(dyn Error + 'static)) -> Self {
        let mut chain = Self {
            is_connect: false,
            is_tls: false,
            is_io: false,
            is_http2: false,
            detail: String::new(),
        };
        let mut next = Some(source);
        // Bounded, because the chain is made by other libraries.
        for _ in 0..MAX_CHAIN {
            let Some(link) = next else { break };
            chain.add(link);
            next = link.source();
        }
        chain
    }

    fn add(&mut self, link: &(dyn Error + 'static)) {
        self.detail = link.to_string();
        self.is_connect |= link.is::<ConnectError>();
        self.is_tls |= link.is::<rustls::Error>();
        self.is_http2 |= self.detail.starts_with("http2 error");
        // By its text, because the HTTP/2 layer drops the type of an alert.
        self.is_tls |= self.detail.starts_with("received fatal alert");
        // An operating system's error hides the error that it wraps from the chain.
        if let Some(error) = link.downcast_ref::<io::Error>() {
            self.is_io = true;
            self.is_tls |= error.get_ref().is_some_and(|inner| inner.is::<rustls::Error>());
        }
    }

    /// Returns whether the connection works and its responses are not HTTP/2.
    fn is_foreign_protocol(&self) -> bool {
        self.is_http2 && !self.is_io && !self.is_connect
    }
}

/// Returns fate and cause of a status of the server. A status that is not recognised is `Unknown`.
fn server_answer(endpoint: &str, code: Code, text: &str) -> (Fate, EtcdCause) {
    // The code does not decide: etcd uses the same one for requests that were applied and for those
    // that were not.
    if let Some(text) = text.strip_prefix("etcdserver: ")
        && let Some(meaning) = etcd_text(text)
    {
        return meaning;
    }
    let other = EtcdCause::Other { code: code as i32, text_len: text.len() };
    match code {
        // The limit of the server's transport; the request never reached its gate.
        Code::ResourceExhausted if text.starts_with("grpc: received message larger than max") => {
            (Fate::Refused, EtcdCause::TooLarge(SizeLimit::Bytes))
        }
        // Our own limit on the answer, so the server has executed the request.
        Code::OutOfRange if text.starts_with("Error, decoded message length too large") => {
            (Fate::Unknown, EtcdCause::TooLarge(SizeLimit::Answer))
        }
        Code::Unimplemented => (Fate::Refused, wrong_version("a server without this request")),
        Code::DeadlineExceeded => (Fate::Unknown, EtcdCause::ServerTimeout),
        // From a proxy or the server's transport; the request may have passed it.
        Code::Unavailable | Code::Cancelled => {
            let detail = format!("gRPC code {}", code as i32);
            (Fate::Unknown, EtcdCause::Unreachable { endpoint: endpoint.to_owned(), detail })
        }
        _ => (Fate::Unknown, other),
    }
}

/// Returns fate and cause of a text of etcd's public interface, without its common prefix.
fn etcd_text(text: &str) -> Option<(Fate, EtcdCause)> {
    certain_text(text)
        .map(|cause| (Fate::Refused, cause))
        .or_else(|| uncertain_text(text).map(|cause| (Fate::Unknown, cause)))
}

/// Returns the cause if etcd uses `text` only for requests that it did not apply, else `None`.
fn certain_text(text: &str) -> Option<EtcdCause> {
    Some(match text {
        "no leader" => EtcdCause::NoLeader,
        "too many requests" => EtcdCause::Busy,
        "too many operations in txn request" => EtcdCause::TooLarge(SizeLimit::Ops),
        "request is too large" => EtcdCause::TooLarge(SizeLimit::Bytes),
        "user name is empty"
        | "invalid auth token"
        | "revision of auth store is old"
        | "authentication failed, invalid user ID or password" => EtcdCause::AuthRefused,
        "permission denied" => EtcdCause::PermissionDenied,
        "requested lease not found" => EtcdCause::LeaseNotFound,
        "mvcc: required revision has been compacted" => EtcdCause::Compacted,
        "mvcc: required revision is a future revision" => EtcdCause::FutureRevision,
        "not capable" => wrong_version("a cluster with members of an older version"),
        "duplicate key given in txn request" => EtcdCause::BadRequest("a key is written twice"),
        "key is not provided" => EtcdCause::BadRequest("a key is empty"),
        "key not found" => EtcdCause::BadRequest("a step is empty"),
        "lease already exists" => EtcdCause::BadRequest("the lease exists already"),
        "too large lease TTL" => EtcdCause::BadRequest("the lease would live too long"),
        "authentication is not enabled" => EtcdCause::BadRequest(AUTH_NOT_ENABLED),
        _ => return None,
    })
}

/// Identifies the answer of a cluster without authentication.
pub(crate) const AUTH_NOT_ENABLED: &str = "authentication is not enabled";

/// Returns the cause if `text` is one that etcd uses also for requests that it may have applied,
/// else `None`.
fn uncertain_text(text: &str) -> Option<EtcdCause> {
    Some(match text {
        "mvcc: database space exceeded" => EtcdCause::NoSpace,
        "request timed out"
        | "request timed out, possibly due to connection lost"
        | "request timed out, possibly due to previous leader failure"
        | "request timed out, waiting for the applied index took too long" => {
            EtcdCause::ServerTimeout
        }
        // Proposed, and the next leader may still commit it.
        "leader changed" | "not leader" | "server stopped" | "unhealthy cluster" => {
            EtcdCause::NoLeader
        }
        "corrupt cluster" => EtcdCause::Corrupt,
        _ => return None,
    })
}
