//! A connector that connects once.
//!
//! The gRPC library reconnects a broken connection automatically before the next request, without a
//! check of the server. The server may have been replaced by one of another cluster meanwhile. So
//! the library gets a connector for one connection, and [`Node`](crate::node::Node) makes the next
//! one, after checking the server's version and cluster.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use http::Uri;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tower_service::Service;

/// Connects on the first call, and fails on every further one.
#[derive(Debug)]
pub(crate) struct SingleUseConnector {
    tcp: HttpConnector,
    is_used: bool,
}

impl SingleUseConnector {
    /// Returns an unused connector.
    pub(crate) fn new(connect_timeout: Duration) -> Self {
        let mut tcp = HttpConnector::new();
        // The gRPC library adds TLS, so `https` URIs must be accepted.
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_connect_timeout(Some(connect_timeout));
        Self { tcp, is_used: false }
    }
}

type Connection = TokioIo<TcpStream>;
type Failure = Box<dyn std::error::Error + Send + Sync>;

impl Service<Uri> for SingleUseConnector {
    type Response = Connection;
    type Error = Failure;
    type Future = Pin<Box<dyn Future<Output = Result<Connection, Failure>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Failure>> {
        self.tcp.poll_ready(context).map_err(Failure::from)
    }

    fn call(&mut self, to: Uri) -> Self::Future {
        if std::mem::replace(&mut self.is_used, true) {
            let lost = io::Error::new(io::ErrorKind::NotConnected, "the connection was lost");
            return Box::pin(std::future::ready(Err(lost.into())));
        }
        let connecting = self.tcp.call(to);
        Box::pin(async move { Ok(connecting.await?) })
    }
}
