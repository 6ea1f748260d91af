//! Accepts connections, bounds their number and their time, and serves HTTP/1.1 on them.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::time::{Instant, Sleep, sleep};
use tower::ServiceExt as _;

use crate::access::ServeLimits;
use crate::security::Peer;
use crate::state::{Shared, add};

/// Longest head of a request, and its headers.
const HEAD_MAX: usize = 32 << 10;
const HEADERS_MAX: usize = 64;

/// Pause after a failed accept, such as for lack of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Bytes that the kernel holds for a connection, so that clients that read nothing do not fill its
/// memory. A slow client waits no longer for a larger buffer.
const SEND_BUFFER: u32 = 64 << 10;

/// Connections that wait to be accepted.
const BACKLOG: u32 = 1_024;

/// Listens on an address.
pub(crate) fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // As the standard library does, so that a restart does not wait for old connections.
    socket.set_reuseaddr(true)?;
    // The accepted connections inherit it.
    socket.set_send_buffer_size(SEND_BUFFER)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Accepts connections for ever.
pub(crate) async fn accept(listener: TcpListener, router: Router, shared: Arc<Shared>) {
    let limits = shared.options.limits;
    let open = Arc::new(Open { shared, of_address: Mutex::default() });
    loop {
        let Ok((stream, peer)) = listener.accept().await else {
            sleep(ACCEPT_PAUSE).await;
            continue;
        };
        // An IPv4 client of a socket for IPv6 counts under its own address.
        let peer = Peer(peer.ip().to_canonical());
        // Dropping the stream closes it at once, before a byte is read.
        let Some(slot) = Slot::take(&open, peer.0) else { continue };
        let router = router.clone();
        tokio::spawn(async move {
            serve(stream, peer, router, limits).await;
            drop(slot);
        });
    }
}

/// The open connections.
struct Open {
    shared: Arc<Shared>,
    of_address: Mutex<BTreeMap<IpAddr, usize>>,
}

/// The place of one connection.
struct Slot {
    open: Arc<Open>,
    peer: IpAddr,
}

impl Slot {
    /// Takes a place for a connection of `peer`, if there is one.
    fn take(open: &Arc<Open>, peer: IpAddr) -> Option<Self> {
        let limits = &open.shared.options.limits;
        let limit = match peer.is_loopback() {
            true => limits.connections_of_loopback,
            false => limits.connections_of_address,
        };
        let mut of_address = open.of_address.lock().unwrap_or_else(PoisonError::into_inner);
        let own = of_address.get(&peer).copied().unwrap_or(0);
        if own >= limit || of_address.values().sum::<usize>() >= limits.connections {
            add(&open.shared.counters.refused_connections);
            return None;
        }
        of_address.insert(peer, own + 1);
        drop(of_address);
        open.shared.counters.connections.fetch_add(1, Ordering::SeqCst);
        Some(Self { open: Arc::clone(open), peer })
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.open.shared.counters.connections.fetch_sub(1, Ordering::SeqCst);
        let mut of_address = self.open.of_address.lock().unwrap_or_else(PoisonError::into_inner);
        match of_address.get_mut(&self.peer) {
            Some(own) if *own > 1 => *own -= 1,
            Some(_) | None => drop(of_address.remove(&self.peer)),
        }
    }
}

async fn serve(stream: TcpStream, peer: Peer, router: Router, limits: ServeLimits) {
    // Updates are small, and late ones are useless.
    drop(stream.set_nodelay(true));
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(peer);
        router.clone().oneshot(request)
    });
    let stream = TimedStream::new(stream, limits.write_time);
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.head_time)
        .max_buf_size(HEAD_MAX)
        .max_headers(HEADERS_MAX)
        .serve_connection(TokioIo::new(stream), service);
    // A client that breaks off or sends nonsense is none of our errors.
    drop(served.await);
}

/// A stream that fails if its peer takes no byte for too long.
struct TimedStream {
    stream: TcpStream,
    limit: Duration,
    /// Since when a write waits.
    waiting: Option<Pin<Box<Sleep>>>,
}

impl TimedStream {
    const fn new(stream: TcpStream, limit: Duration) -> Self {
        Self { stream, limit, waiting: None }
    }

    fn timed<T>(
        &mut self,
        context: &mut Context<'_>,
        written: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        // Any progress resets the time: a slow client is allowed, one that takes nothing is not.
        if written.is_ready() {
            self.waiting = None;
            return written;
        }
        let until = Instant::now() + self.limit;
        let waiting = self.waiting.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(until)));
        match waiting.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl AsyncRead for TimedStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for TimedStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.timed(context, written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        self.timed(context, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = Pin::new(&mut self.stream).poll_shutdown(context);
        self.timed(context, shut)
    }
}
