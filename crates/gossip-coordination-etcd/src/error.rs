//! What goes wrong between us and etcd, and whether the request may have happened.
//!
//! An error has a [`Fate`] and an [`EtcdCause`]. The fate decides what a caller may do next: only
//! [`Fate::Unknown`] needs a look at the store before the request is made again.
//!
//! # Which errors are certain
//!
//! A write is *certain not to have happened* only if it never left this process, or if the server
//! refused it before it entered the log, or if the applied entry did nothing on every member.
//! Everything else is unknown. A read has no effect, so its fate is of no interest.
//!
//! | what came back | fate | why |
//! |---|---|---|
//! | no connection could be made, TLS failed | `NotSent` | no request is sent without a connection |
//! | the server on the other end is not a usable etcd, or of another cluster | `NotSent` | it is asked for its version first |
//! | `user name is empty`, `invalid auth token`, `permission denied`, old auth revision | `Refused` | checked before an entry is applied; the entry does nothing |
//! | `too many operations`, `duplicate key`, `key is not provided` | `Refused` | checked at the gate |
//! | `request is too large`, message over the transport's limit | `Refused` | checked before it is proposed |
//! | `requested lease not found`, `lease already exists` | `Refused` | checked before the first write of the entry |
//! | `required revision has been compacted`, `future revision` | `Refused` | checked before the first write of the entry |
//! | `too many requests` | `Refused` | the gate sheds load before it proposes |
//! | `no leader` | `Refused` | the gate of a member without a leader; asked for by `hasleader` |
//! | `not capable`, unknown method | `Refused` | no such request exists there |
//! | **`database space exceeded`** | **`Unknown`** | an entry that fills the last page is applied *and* answered so |
//! | `request timed out` (three forms), `leader changed`, `server stopped` | `Unknown` | it was proposed, and the log may still bring it |
//! | `raft proposal dropped` | `Unknown` | it should be certain; the server does not promise it |
//! | connection lost, stream reset, our own timeout | `Unknown` | the server may have it |
//! | anything we do not recognise | `Unknown` | |
//!
//! Because `database space exceeded` is unknown, a client that has met it asks for the alarms
//! before it sends another write; while the alarm is active, the write is refused here, as
//! `NotSent`.
//!
//! # Content of messages
//!
//! The text of a server is matched, never repeated: it could quote what we sent. Unrecognised
//! answers are shown by their code and the length of their text.

use std::fmt;

/// A request that failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("etcd {operation} {fate}: {cause}")]
pub struct EtcdError {
    /// The request, as `txn` or `lease grant`.
    pub(crate) operation: &'static str,
    /// Whether it may have happened.
    pub fate: Fate,
    /// Why it failed.
    pub cause: EtcdCause,
}

impl EtcdError {
    /// Returns the error of a request that never left this process.
    pub fn not_sent(operation: &'static str, cause: EtcdCause) -> Self {
        Self { operation, fate: Fate::NotSent, cause }
    }

    /// Returns the error of a request that the server refused without applying it.
    pub fn refused(operation: &'static str, cause: EtcdCause) -> Self {
        Self { operation, fate: Fate::Refused, cause }
    }

    /// Returns the error of a request that may have been applied, or may still be.
    pub fn unknown(operation: &'static str, cause: EtcdCause) -> Self {
        Self { operation, fate: Fate::Unknown, cause }
    }

    /// Returns whether the request certainly was not applied and never will be.
    pub fn is_certain(&self) -> bool {
        match self.fate {
            Fate::NotSent | Fate::Refused => true,
            Fate::Unknown => false,
        }
    }

    /// Returns whether the same request may succeed later without a change by an operator.
    pub fn is_transient(&self) -> bool {
        self.cause.is_transient()
    }
}

/// Whether a request may have happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "a caller must decide about each of them")]
pub enum Fate {
    /// Certainly not: it never left this process.
    NotSent,
    /// Certainly not: the server refused it.
    Refused,
    /// Perhaps: read the store before it is repeated.
    Unknown,
}

impl fmt::Display for Fate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotSent => "was not sent",
            Self::Refused => "was refused",
            Self::Unknown => "may or may not have happened",
        })
    }
}

/// The cause of a failed request. Its text names the remedy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EtcdCause {
    /// No endpoint could be reached, or the connection broke.
    #[error("no answer from {endpoint} ({detail}); check that etcd runs there and is reachable")]
    Unreachable {
        /// Host and port that were tried last.
        endpoint: String,
        /// What the transport said.
        detail: String,
    },
    /// No answer in time, by our clock or the server's.
    #[error("no answer within {millis} ms; check the load and the disks of the etcd servers")]
    Timeout {
        /// The timeout.
        millis: u64,
    },
    /// The server gave up waiting for a majority of its cluster.
    #[error(
        "the server timed out waiting for a majority of its cluster; \
         check that most etcd servers run and see each other"
    )]
    ServerTimeout,
    /// The member has no leader, or lost it.
    #[error("the member has no leader; check that most etcd servers run and see each other")]
    NoLeader,
    /// The server sheds load.
    #[error("the server is too far behind to take more; slow down")]
    Busy,
    /// User, password or token is wrong, or one is needed.
    #[error("the server does not know who we are; check user and password")]
    AuthRefused,
    /// The user may not do this.
    #[error(
        "the user may not; grant its role readwrite permission on the prefix \
         (etcdctl role grant-permission ROLE readwrite PREFIX --prefix=true)"
    )]
    PermissionDenied,
    /// The database has reached its quota.
    #[error(
        "the database is full; compact it (etcdctl compact REVISION), give back the space \
         (etcdctl defrag --cluster), then take the alarm back (etcdctl alarm disarm)"
    )]
    NoSpace,
    /// The request is over a limit of the server.
    #[error("over the limit of {0}; make it smaller or raise the limit of the server")]
    TooLarge(SizeLimit),
    /// The revision asked for is no longer kept.
    #[error("the revision asked for has been compacted; read the current state")]
    Compacted,
    /// The revision asked for does not exist yet.
    #[error("the revision asked for lies in the future; read the current state")]
    FutureRevision,
    /// There is no such lease, or it has ended.
    #[error("there is no such lease any more; ask for a new one")]
    LeaseNotFound,
    /// The server is not an etcd that we can use.
    #[error("found {found}; etcd {needed} or later is needed, at its client port")]
    WrongVersion {
        /// What it is, as far as we can tell.
        found: String,
        /// The oldest version that we can use.
        needed: &'static str,
    },
    /// The server belongs to another cluster than those that answered before.
    #[error(
        "{endpoint} belongs to another cluster than the servers before it; check that all \
         endpoints are of one cluster, and begin anew if it was restored from a backup"
    )]
    OtherCluster {
        /// Host and port.
        endpoint: String,
    },
    /// The two sides do not agree on TLS.
    #[error("TLS with {endpoint} failed ({detail}); check the scheme, the authority, the names")]
    Tls {
        /// Host and port.
        endpoint: String,
        /// What the TLS library said.
        detail: String,
    },
    /// The client cannot be made as it was described.
    #[error("the settings cannot be used: {0}; correct the store's URL or its configuration")]
    BadConfig(&'static str),
    /// The request breaks a rule of the interface; a defect of ours.
    #[error("the server says the request is malformed: {0}; please report it")]
    BadRequest(&'static str),
    /// Members of the cluster disagree about the data.
    #[error("the cluster has raised its CORRUPT alarm; do not write, restore from a backup")]
    Corrupt,
    /// Something that we do not recognise.
    #[error("unrecognised answer, code {code} with {text_len} bytes of text; see the server's log")]
    Other {
        /// The gRPC code.
        code: i32,
        /// How long its text was.
        text_len: usize,
    },
}

impl EtcdCause {
    /// Returns the cause of a request whose task ended before its answer, for example with its
    /// runtime.
    pub(crate) fn ended() -> Self {
        let detail = "the task that asked has ended early".to_owned();
        Self::Unreachable { endpoint: "the servers".to_owned(), detail }
    }

    /// Returns whether it may pass without a change by an operator.
    pub(crate) fn is_transient(&self) -> bool {
        match self {
            Self::Unreachable { .. }
            | Self::Timeout { .. }
            | Self::ServerTimeout
            | Self::NoLeader
            | Self::Busy
            // Perhaps the text of a newer server for a passing condition; retries are bounded.
            | Self::Other { .. } => true,
            Self::AuthRefused
            | Self::PermissionDenied
            | Self::NoSpace
            | Self::TooLarge(_)
            | Self::Compacted
            | Self::FutureRevision
            | Self::LeaseNotFound
            | Self::WrongVersion { .. }
            | Self::OtherCluster { .. }
            | Self::Tls { .. }
            | Self::BadConfig(_)
            | Self::BadRequest(_)
            | Self::Corrupt => false,
        }
    }
}

/// The limits of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SizeLimit {
    /// `--max-txn-ops`.
    Ops,
    /// `--max-request-bytes`.
    Bytes,
    /// The largest answer that we take.
    Answer,
}

impl fmt::Display for SizeLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ops => "operations in a transaction (--max-txn-ops)",
            Self::Bytes => "bytes in a request (--max-request-bytes)",
            Self::Answer => "bytes in an answer",
        })
    }
}
