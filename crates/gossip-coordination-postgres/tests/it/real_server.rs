//! The server that the tests of this crate share, and schemas of their own on it.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use gossip_coordination_postgres::PostgresConfig;
use gossip_testkit::test_support::PostgresServer;

static SHARED: LazyLock<PostgresServer> = LazyLock::new(PostgresServer::single);

/// Returns settings for an unused schema on the shared server.
pub(crate) fn config() -> PostgresConfig {
    config_on(&SHARED)
}

/// Returns settings for an unused schema on a server.
pub(crate) fn config_on(server: &PostgresServer) -> PostgresConfig {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let schema = format!("test_{}", NEXT.fetch_add(1, Ordering::Relaxed));
    let config = PostgresConfig::new("127.0.0.1", server.port(), server.user(), "postgres");
    PostgresConfig { schema, ..config }
}

/// The shared server.
pub(crate) fn server() -> &'static PostgresServer {
    &SHARED
}
