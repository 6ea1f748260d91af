//! Server-sent events.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use gossip::coordination::store::fresh_nonce;
use gossip::identity::RunId;
use tokio::sync::mpsc;
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::ReceiverStream;

use crate::app::App;
use crate::hub::Missed;
use crate::problem::{Code, Problem};
use crate::state::{Shared, add};

/// Updates that wait for a slow client, besides what the kernel holds.
const QUEUE: usize = 4;

/// Proxies close connections on which nothing is sent for long.
const COMMENT_EVERY: Duration = Duration::from_secs(15);

/// Browsers come back after a random time from this to that, in milliseconds, so that they do not
/// come together.
const RETRY: (u64, u64) = (2_000, 10_000);

/// Returns the stream of updates behind `last`, of all runs and in full of `runs`.
pub(crate) fn open(
    app: &Arc<App>,
    runs: Vec<RunId>,
    last: Option<&str>,
    headers: &HeaderMap,
) -> Result<Response, Problem> {
    let shared = Arc::clone(&app.shared);
    let streams = &shared.counters.streams;
    if streams.fetch_add(1, Ordering::SeqCst) >= shared.options.limits.streams {
        streams.fetch_sub(1, Ordering::SeqCst);
        return Err(Problem::new(Code::Busy).detail("too many streams"));
    }
    // Counted back when this is dropped, however the stream ends.
    let open = Open(Arc::clone(&shared));
    // A new EventSource has no header for it.
    let header = headers.get("last-event-id").and_then(|id| id.to_str().ok());
    let last = header.or(last).filter(|last| !last.is_empty());
    let retry = RETRY.0 + fresh_nonce() % (RETRY.1 - RETRY.0 + 1);
    let (from, event) = match last.map(|last| shared.hub.number(last)) {
        None => (shared.hub.newest(), "hello"),
        // The updates since then are sent as if the client had never left.
        Some(Some(number)) => (number, "hello"),
        Some(None) => (shared.hub.newest(), "resync"),
    };
    if event == "resync" {
        add(&shared.counters.resyncs);
    }
    let id = shared.hub.id(from);
    let first = format!("retry: {retry}\nid: {id}\nevent: {event}\ndata: {{}}\n\n");
    let (send, updates) = mpsc::channel(QUEUE);
    tokio::spawn(async move {
        feed(&open.0, send, Bytes::from(first), from, &runs).await;
        drop(open);
    });
    let body = Body::from_stream(ReceiverStream::new(updates).map(Ok::<_, std::io::Error>));
    let mut response = body.into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    // A proxy that buffers would hold updates back until its buffer is full.
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    Ok(response)
}

/// An open stream, which is counted.
struct Open(Arc<Shared>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.counters.streams.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Sends updates until the client is gone or too slow.
async fn feed(
    shared: &Shared,
    send: mpsc::Sender<Bytes>,
    first: Bytes,
    mut from: u64,
    runs: &[RunId],
) {
    let mut news = shared.hub.subscribe();
    let patience = shared.options.limits.write_time;
    let put = async |bytes: Bytes| {
        matches!(tokio::time::timeout(patience, send.send(bytes)).await, Ok(Ok(())))
    };
    if !put(first).await {
        return;
    }
    loop {
        // Before the look, so that an update in between is noticed by the wait below.
        news.mark_unchanged();
        for run in runs {
            // Again with each update: a run is read first only as long as a client looks at it.
            shared.want(*run);
        }
        let bytes = match shared.hub.after(from, runs) {
            Missed::Updates(updates, newest) => {
                from = newest;
                Bytes::from(updates.concat())
            }
            Missed::TooMany(newest) => {
                from = newest;
                add(&shared.counters.resyncs);
                let id = shared.hub.id(newest);
                Bytes::from(format!("id: {id}\nevent: resync\ndata: {{}}\n\n"))
            }
        };
        if !bytes.is_empty() && !put(bytes).await {
            return;
        }
        tokio::select! {
            changed = news.changed() => if changed.is_err() { return },
            () = send.closed() => return,
            () = tokio::time::sleep(COMMENT_EVERY) => {
                if !put(Bytes::from_static(b": still here\n\n")).await {
                    return;
                }
            }
        }
    }
}
