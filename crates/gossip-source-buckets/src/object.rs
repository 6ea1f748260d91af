//! Bodies of objects: read with `If-Match`, and continued where a connection broke off.

use std::io::{self, Read};
use std::sync::Arc;
use std::sync::mpsc::sync_channel;

use bytes::{Buf as _, Bytes};
use gossip_contracts::connector::{MAX_INLINE_BODY_BYTES, OpenError};
use tokio::runtime::{Builder, Runtime};

use crate::list::{NoPage, Object};
use crate::request::{Client, Failure, Target};
use crate::transport::Reply;

/// How often the body of one object is continued after its connection was lost.
const CONTINUATIONS: u32 = 8;

/// The runtime of a source. `None` only while it is dropped.
pub(crate) struct Driver(Option<Runtime>);

impl Driver {
    pub(crate) fn start() -> io::Result<Self> {
        let mut builder = Builder::new_multi_thread();
        builder.worker_threads(2).thread_name("gossip-buckets").enable_all();
        Ok(Self(Some(builder.build()?)))
    }

    pub(crate) fn spawn(&self, future: impl Future<Output = ()> + Send + 'static) {
        let runtime = self.0.as_ref().expect("it is taken only when it is dropped");
        drop(runtime.spawn(future));
    }

    /// Runs a future on a thread of the runtime and waits for it; `None` if it panicked.
    pub(crate) fn run<R: Send + 'static>(
        &self,
        future: impl Future<Output = R> + Send + 'static,
    ) -> Option<R> {
        let (sender, receiver) = sync_channel(1);
        self.spawn(async move { drop(sender.send(future.await)) });
        receiver.recv().ok()
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        // A runtime waits for its threads when it is dropped, which panics within another runtime.
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

/// What opening an object gives.
pub(crate) enum Opened {
    /// All of it.
    Whole(Vec<u8>),
    /// Its beginning is still to be read.
    Stream(Box<Stream>),
}

impl Client {
    /// Opens the version of an object that was listed; the present one if it was replaced since.
    pub(crate) async fn open(
        self: Arc<Self>,
        key: Vec<u8>,
        listed: Option<String>,
    ) -> Result<Opened, OpenError> {
        if let Some(etag) = listed {
            match Arc::clone(&self).open_version(&key, etag).await {
                // Replaced since it was listed, or perhaps deleted: looked up once more.
                Err(OpenError::Changed) => {}
                opened => return opened,
            }
        }
        let object = self.find(&key).await.map_err(|no_page| match no_page {
            NoPage::Failed(failure) => failure.into_open_error(),
            NoPage::Broken(_) => OpenError::Source(no_page.into_error()),
        })?;
        let Object { etag, .. } = object.ok_or(OpenError::Vanished)?;
        self.open_version(&key, etag).await
    }

    async fn open_version(self: Arc<Self>, key: &[u8], etag: String) -> Result<Opened, OpenError> {
        let mut stream =
            Stream { key: key.to_vec(), etag, offset: 0, len: 0, reply: None, tries: 0 };
        let reply = stream.request(&self).await.map_err(Failure::into_open_error)?;
        let len = reply.header("content-length").and_then(|len| len.parse().ok());
        // Without its length a body that was cut would pass for a whole one.
        stream.len = len.ok_or_else(|| Failure::Malformed.into_open_error())?;
        stream.reply = Some(reply);
        if stream.len > MAX_INLINE_BODY_BYTES as u64 {
            return Ok(Opened::Stream(Box::new(stream)));
        }
        let mut body = Vec::new();
        while let Some(part) =
            stream.next(&self).await.map_err(|error| OpenError::from_io(&error))?
        {
            body.extend_from_slice(&part);
        }
        Ok(Opened::Whole(body))
    }
}

/// The rest of a body.
pub(crate) struct Stream {
    key: Vec<u8>,
    etag: String,
    /// The bytes that were received.
    offset: u64,
    len: u64,
    reply: Option<Reply>,
    tries: u32,
}

impl Stream {
    async fn request(&self, client: &Client) -> Result<Reply, Failure> {
        let mut headers = vec![("if-match", self.etag.clone())];
        if self.offset > 0 {
            headers.push(("range", format!("bytes={}-", self.offset)));
        }
        let target = Target { key: self.key.clone(), headers, ..Target::default() };
        let reply = client.get(&target).await?;
        // A server that ignores `If-Match` would otherwise continue a body with another version.
        if reply.header("etag").is_some_and(|etag| !is_same_version(etag, &self.etag)) {
            return Err(Failure::Refused { status: 412, code: String::new() });
        }
        // A server that ignores the range sends the beginning again.
        match (self.offset, reply.head.status.as_u16()) {
            (0, 200) => Ok(reply),
            (offset, 206) if continues(reply.header("content-range"), offset, self.len) => {
                Ok(reply)
            }
            _ => Err(Failure::Malformed),
        }
    }

    /// Returns the next part; `None` at the end.
    async fn next(&mut self, client: &Client) -> io::Result<Option<Bytes>> {
        while self.offset < self.len {
            if self.reply.is_none() {
                let reply = self.request(client).await;
                self.reply = Some(reply.map_err(|failure| error_of_body(&failure))?);
            }
            let reply = self.reply.as_mut().expect("it was just requested");
            let kind = match reply.next().await {
                Ok(Some(part)) => {
                    self.offset += part.len() as u64;
                    return if self.offset > self.len { Err(cut()) } else { Ok(Some(part)) };
                }
                // Shorter than announced.
                Ok(None) => io::ErrorKind::ConnectionAborted,
                Err(error) => error.kind(),
            };
            self.reply = None;
            self.tries += 1;
            if self.tries > CONTINUATIONS {
                return Err(kind.into());
            }
        }
        // Reads the end, so that the connection is used again.
        if let Some(mut reply) = self.reply.take() {
            let _ = reply.next().await;
        }
        Ok(None)
    }
}

/// Returns whether two ETags name the same version. A proxy that changes the encoding of a body
/// makes its ETag a weak one, and some servers leave out the quotes.
fn is_same_version(received: &str, requested: &str) -> bool {
    let bare = |etag: &str| etag.strip_prefix("W/").unwrap_or(etag).trim_matches('"').to_owned();
    bare(received) == bare(requested)
}

/// Returns whether the `Content-Range` of a reply is the rest of a body behind `offset`.
fn continues(range: Option<&str>, offset: u64, len: u64) -> bool {
    let parse = |range: &str| {
        let (span, total) = range.strip_prefix("bytes ")?.split_once('/')?;
        let (first, last) = span.split_once('-')?;
        Some((first.parse().ok()?, last.parse::<u64>().ok()?, total.parse().ok()?))
    };
    range.and_then(parse) == Some((offset, len.saturating_sub(1), len))
}

/// Returns the error of a body that cannot be continued.
fn error_of_body(failure: &Failure) -> io::Error {
    match failure {
        // Another version, or none.
        Failure::Refused { status: 404 | 412 | 416, .. } => cut(),
        Failure::Refused { status: 401 | 403, .. } => io::ErrorKind::PermissionDenied.into(),
        Failure::Io(kind) => (*kind).into(),
        Failure::Refused { .. }
        | Failure::NoCredentials(_)
        | Failure::Region(_)
        | Failure::Malformed => io::ErrorKind::Other.into(),
    }
}

/// The object is not the one that was opened; [`OpenError::from_io`] says that it has changed.
fn cut() -> io::Error {
    io::ErrorKind::UnexpectedEof.into()
}

/// A body for the processor, read as it is used.
pub(crate) struct Body {
    stream: Option<Box<Stream>>,
    part: Bytes,
    client: Arc<Client>,
    driver: Arc<Driver>,
}

impl Body {
    pub(crate) fn new(stream: Box<Stream>, client: Arc<Client>, driver: Arc<Driver>) -> Self {
        Self { stream: Some(stream), part: Bytes::new(), client, driver }
    }
}

impl Read for Body {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.part.is_empty() && !buffer.is_empty() {
            let Some(mut stream) = self.stream.take() else { return Ok(0) };
            let client = Arc::clone(&self.client);
            let next = self.driver.run(async move {
                let next = stream.next(&client).await;
                (stream, next)
            });
            let (stream, next) = next.ok_or(io::ErrorKind::BrokenPipe)?;
            // After the end, and after an error, nothing more is read.
            if let Some(part) = next? {
                self.part = part;
                self.stream = Some(stream);
            }
        }
        let len = self.part.len().min(buffer.len());
        self.part.copy_to_slice(&mut buffer[..len]);
        Ok(len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_etag_is_compared_without_quotes_and_weakness() {
        for received in ["\"e\"", "e", "W/\"e\""] {
            assert!(is_same_version(received, "\"e\""), "{received}");
        }
        assert!(!is_same_version("\"f\"", "\"e\""));
    }

    #[test]
    fn only_the_rest_behind_the_offset_continues_a_body() {
        assert!(continues(Some("bytes 3-9/10"), 3, 10));
        for range in ["bytes 2-9/10", "bytes 3-8/10", "bytes 3-9/11", "bytes 3-9/*", "3-9/10", ""] {
            assert!(!continues(Some(range), 3, 10), "{range}");
        }
        assert!(!continues(None, 3, 10));
    }
}
