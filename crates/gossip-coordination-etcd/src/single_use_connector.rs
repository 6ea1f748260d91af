//! A way to a server that can be gone once.
//!
//! The gRPC library makes a connection that broke again by itself, before the next request, and
//! asks nobody who is there now. A server may have been replaced meanwhile, by one of another
//! cluster. So it is given a way that leads to one connection, and another is made by
//! [`Node`](crate::node::Node), which asks first.

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

/// Connects to what it is first called with, and never again.
#[derive(Debug)]
pub(crate) struct SingleUseConnector {
    tcp: HttpConnector,
    is_used: bool,
}

impl SingleUseConnector {
    /// A way that has not been gone yet.
    pub(crate) fn new(connect_timeout: Duration) -> Self {
        let mut tcp = HttpConnector::new();
        // TLS is laid over it by the gRPC library.
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
