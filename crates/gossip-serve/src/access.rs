//! What the server needs from the program that starts it.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use gossip::identity::{RunId, TenantId};
use gossip::runtime::{Density, Job};
use gossip::store::Backend;

/// What the program that starts the server knows and the server does not: how the store is opened,
/// and what a certificate says.
///
/// Every method may be called from any thread, and may block.
pub trait Access: Send + Sync + 'static {
    /// Opens the store, also again after it could not be read.
    ///
    /// # Errors
    ///
    /// The reason, without anything secret.
    fn open(&self) -> Result<Backend, String>;

    /// Returns where the store is, without anything secret.
    fn place(&self) -> String;

    /// Fails if the store has vanished although open handles can still read it.
    ///
    /// # Errors
    ///
    /// The reason, without anything secret.
    fn check(&self) -> Result<(), String>;

    /// Measures the source of a run; an empty density if it is on another machine.
    fn density(&self, job: &Job) -> Density;

    /// Returns the command of a run as it is typed.
    fn command(&self, job: &Job) -> String;

    /// Writes the certificate of a finished run and verifies what it wrote.
    ///
    /// # Errors
    ///
    /// Why there is none.
    fn certificate(&self, run: RunId) -> Result<Certificate, String>;
}

/// A certificate that was verified.
#[derive(Clone, Debug)]
#[expect(clippy::exhaustive_structs, reason = "made by the program that starts the server")]
pub struct Certificate {
    /// Its text.
    pub text: String,
    /// What the verification found, in one sentence.
    pub summary: String,
    /// Whether every range is done and no item is unread.
    pub is_complete: bool,
}

/// Settings of a server.
#[derive(Clone)]
#[expect(clippy::exhaustive_structs, reason = "made by the program that starts the server")]
pub struct ServeOptions {
    /// Where to listen.
    pub listen: SocketAddr,
    /// The tenant whose runs are shown.
    pub tenant: TenantId,
    /// The name of that tenant.
    pub tenant_name: String,
    /// Whether every change is refused.
    pub read_only: bool,
    /// Names that requests may address besides the loopback names.
    pub allow_hosts: Vec<String>,
    /// The operator's tokens; without them one is made, which is allowed on loopback only.
    pub tokens: Vec<(Role, String)>,
    /// Version of the program.
    pub version: String,
    /// Bounds on clients.
    pub limits: ServeLimits,
}

/// The number of tokens only: a token must not reach a log.
impl fmt::Debug for ServeOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServeOptions")
            .field("listen", &self.listen)
            .field("read_only", &self.read_only)
            .field("tokens", &self.tokens.len())
            .field("version", &self.version)
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}

/// Bounds on clients.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::exhaustive_structs, reason = "made by the program that starts the server")]
pub struct ServeLimits {
    /// Connections at once. Further ones are closed at once.
    pub connections: usize,
    /// Connections of one address.
    pub connections_of_address: usize,
    /// Connections of one loopback address, which may be that of a proxy.
    pub connections_of_loopback: usize,
    /// Streams of updates at once.
    pub streams: u64,
    /// Requests per second of one address.
    pub requests_per_second: u32,
    /// Requests of one address at once.
    pub requests_at_once: u32,
    /// Longest time for the head of a request, and between two requests of a connection.
    pub head_time: Duration,
    /// Longest time for a request, body included. A stream is answered at once.
    pub request_time: Duration,
    /// Longest time in which a client takes none of the bytes that wait for it.
    pub write_time: Duration,
}

impl Default for ServeLimits {
    fn default() -> Self {
        Self {
            connections: 1_024,
            // Two hundred browsers behind a proxy have a stream each.
            connections_of_address: 256,
            connections_of_loopback: 1_024,
            streams: 512,
            // Two hundred browsers that come back after a restart send about a thousand.
            requests_per_second: 200,
            requests_at_once: 4_000,
            head_time: Duration::from_secs(15),
            request_time: Duration::from_secs(60),
            write_time: Duration::from_secs(30),
        }
    }
}

/// What the bearer of a token may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[expect(clippy::exhaustive_enums, reason = "looking and changing: no third")]
pub enum Role {
    /// Look.
    Read,
    /// Look, and change runs.
    Operate,
}
