//! `gossip serve`: one page that shows the work, one API, one metrics endpoint.
//!
//! ```text
//!  store ◄── sampler (one thread, a bounded rate) ──► state ──► hub ──► streams ──► browsers
//!    ▲                                                  └─────► API, /metrics
//!    └────── desk (one thread, a short queue): failures, changes, certificates
//! ```
//!
//! The number of requests to the store does not depend on the number of browsers, and the cost of a
//! page does not depend on the number of shards once a run has been read: browsers get buckets.
//!
//! The crate uses the face crate `gossip` and nothing below it. It reads no arguments, no
//! environment and no terminal; the program that starts it does ([`Access`]).
#![forbid(unsafe_code)]

mod access;
mod answers;
mod api;
mod app;
mod assets;
mod buckets;
mod connections;
mod desk;
mod events;
mod follow;
mod hub;
mod limits;
mod metrics;
mod pace;
mod problem;
mod sampler;
mod security;
mod state;
mod stream;
mod tokens;
mod wire;

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use gossip::coordination::store::fresh_nonce;
use tokio::runtime::{Builder, Runtime};

pub use self::access::{Access, Certificate, Role, ServeLimits, ServeOptions};

use self::app::App;
use self::limits::Limits;
use self::sampler::Sampler;
use self::security::Hosts;
use self::state::Shared;
use self::tokens::Tokens;

/// Threads that serve connections: two, because the work is a few hundred microseconds a request.
const THREADS: usize = 2;

/// How long open connections may delay the end.
const SHUTDOWN_TIME: Duration = Duration::from_millis(500);

/// Shortest token that an operator may give.
pub const TOKEN_MIN: usize = 16;

/// Why a server did not start.
#[derive(Debug)]
#[non_exhaustive]
pub enum ServeError {
    /// The store cannot be opened.
    Store(String),
    /// The address cannot be used, or the system refuses a thread or random bytes.
    System(io::Error),
    /// Other machines could connect, and no token was given.
    TokenNeeded,
    /// A token is shorter than [`TOKEN_MIN`].
    TokenTooShort,
}

impl std::fmt::Display for ServeError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Store(why) => f.write_str(why),
            Self::System(error) => error.fmt(f),
            Self::TokenNeeded => f.write_str("an address that is not loopback needs a token"),
            Self::TokenTooShort => write!(f, "a token has at least {TOKEN_MIN} bytes"),
        }
    }
}

impl std::error::Error for ServeError {}

impl From<io::Error> for ServeError {
    fn from(error: io::Error) -> Self {
        Self::System(error)
    }
}

/// A running server. It ends when this is dropped.
pub struct Server {
    address: SocketAddr,
    token: Option<String>,
    shared: Arc<Shared>,
    sampler: Option<JoinHandle<()>>,
    runtime: Option<Runtime>,
}

impl std::fmt::Debug for Server {
    /// Writes no token.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Server {
    /// Opens the store and starts to serve.
    ///
    /// # Errors
    ///
    /// [`ServeError`].
    pub fn start(access: Arc<dyn Access>, mut options: ServeOptions) -> Result<Self, ServeError> {
        let mut token = None;
        if options.tokens.is_empty() {
            if !options.listen.ip().is_loopback() {
                return Err(ServeError::TokenNeeded);
            }
            let fresh = tokens::fresh()?;
            options.tokens.push((Role::Operate, fresh.clone()));
            token = Some(fresh);
        }
        if options.tokens.iter().any(|(_, token)| token.len() < TOKEN_MIN) {
            return Err(ServeError::TokenTooShort);
        }
        let backend = access.open().map_err(ServeError::Store)?;
        let runtime = Builder::new_multi_thread().worker_threads(THREADS).enable_all().build()?;
        // Before the threads are started, so that an address in use leaves nothing running.
        let listener = runtime.block_on(async { connections::listen(options.listen) })?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared::new(access, options, backend, fresh_nonce()));
        let (desk, served) = desk::open(Arc::clone(&shared));
        let app = App {
            tokens: Tokens::new(&shared.options.tokens, address.port()),
            hosts: Hosts::new(address, &shared.options.allow_hosts),
            limits: Limits::new(&shared.options.limits),
            desk,
            shared: Arc::clone(&shared),
        };
        let router = api::router(&Arc::new(app));
        let sampler = Sampler::new(Arc::clone(&shared));
        let sampler = thread::Builder::new()
            .name("gossip-sampler".to_owned())
            .spawn(move || sampler.run())?;
        // Ends with the last handle, which the runtime holds.
        thread::Builder::new().name("gossip-desk".to_owned()).spawn(move || served.run())?;
        runtime.spawn(connections::accept(listener, router, Arc::clone(&shared)));
        Ok(Self { address, token, shared, sampler: Some(sampler), runtime: Some(runtime) })
    }

    /// Returns the address on which the server listens.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the token that was made for this start, if none was given.
    #[must_use]
    pub fn token(&self) -> Option<&str> {
        self.token.as_deref()
    }

    /// Returns the address of the page. The token is in the fragment, which a browser sends to
    /// no server.
    #[must_use]
    pub fn url(&self) -> String {
        let fragment = self.token.as_deref().map(|token| format!("#token={token}"));
        // "Every address" is none that a request can name; loopback is one of them.
        let ip = match self.address.ip() {
            IpAddr::V4(Ipv4Addr::UNSPECIFIED) => IpAddr::V4(Ipv4Addr::LOCALHOST),
            IpAddr::V6(Ipv6Addr::UNSPECIFIED) => IpAddr::V6(Ipv6Addr::LOCALHOST),
            ip => ip,
        };
        let address = SocketAddr::new(ip, self.address.port());
        format!("http://{address}/{}", fragment.unwrap_or_default())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // First, so that the sampler ends while connections are shut down.
        self.shared.stop.store(true, Ordering::SeqCst);
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_timeout(SHUTDOWN_TIME);
        }
        if let Some(sampler) = self.sampler.take() {
            // A panic there was printed by the hook.
            drop(sampler.join());
        }
    }
}

// The support of the tests uses the crate by its name.
#[cfg(test)]
extern crate self as gossip_serve;

#[cfg(test)]
#[path = "../tests/support/mod.rs"]
mod support;

#[cfg(test)]
mod hostile_tests;
