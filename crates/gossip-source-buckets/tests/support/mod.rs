//! A server of a bucket that keeps keys as bytes and misbehaves on request.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

/// One request.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    pub(crate) method: String,
    /// The key, decoded once; empty for the bucket.
    pub(crate) key: Vec<u8>,
    /// Names and decoded values.
    pub(crate) query: BTreeMap<String, Vec<u8>>,
    pub(crate) headers: BTreeMap<String, String>,
    /// As it was sent.
    pub(crate) path: String,
}

impl Seen {
    pub(crate) fn is_list(&self) -> bool {
        self.query.contains_key("list-type")
    }
}

/// What the server does instead of what it should.
pub(crate) enum Fault {
    /// A status, with a code and more headers.
    Refuse(u16, &'static str, String),
    /// Closes the connection without a response.
    Close,
    /// Sends so many bytes of the body, then closes.
    Cut(usize),
    /// Another body.
    Body(String),
}

type Decide = dyn FnMut(&Seen) -> Option<Fault> + Send;

#[derive(Default)]
struct State {
    objects: Mutex<BTreeMap<Vec<u8>, Vec<u8>>>,
    seen: Mutex<Vec<Seen>>,
    fault: Mutex<Option<Box<Decide>>>,
}

/// A server with one bucket named `bucket`. Its threads end with the process.
pub(crate) struct Server {
    pub(crate) port: u16,
    state: Arc<State>,
}

impl Server {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = Arc::<State>::default();
        let shared = Arc::clone(&state);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let state = Arc::clone(&shared);
                thread::spawn(move || while serve(&state, &stream).is_some() {});
            }
        });
        Self { port, state }
    }

    pub(crate) fn put(&self, key: impl AsRef<[u8]>, body: impl AsRef<[u8]>) {
        let (key, body) = (key.as_ref().to_vec(), body.as_ref().to_vec());
        self.state.objects.lock().unwrap().insert(key, body);
    }

    pub(crate) fn remove(&self, key: &[u8]) {
        self.state.objects.lock().unwrap().remove(key);
    }

    /// Asks before each request what goes wrong with it.
    pub(crate) fn fail(&self, decide: impl FnMut(&Seen) -> Option<Fault> + Send + 'static) {
        *self.state.fault.lock().unwrap() = Some(Box::new(decide));
    }

    /// Returns the requests since the last call.
    pub(crate) fn take_seen(&self) -> Vec<Seen> {
        std::mem::take(&mut self.state.seen.lock().unwrap())
    }
}

/// Answers one request; `None` if the connection is to be closed.
fn serve(state: &State, stream: &TcpStream) -> Option<()> {
    let seen = read(stream)?;
    state.seen.lock().unwrap().push(seen.clone());
    let fault = state.fault.lock().unwrap().as_mut().and_then(|decide| decide(&seen));
    let (status, headers, body) = match &fault {
        Some(Fault::Close) => return None,
        Some(Fault::Refuse(status, code, headers)) => {
            (*status, headers.clone(), error(code).into_bytes())
        }
        Some(Fault::Body(body)) => (200, String::new(), body.clone().into_bytes()),
        Some(Fault::Cut(_)) | None => answer(state, &seen),
    };
    let len = body.len();
    let sent = if let Some(Fault::Cut(sent)) = fault { sent.min(len) } else { len };
    let head = format!("HTTP/1.1 {status} X\r\n{headers}Content-Length: {len}\r\n\r\n");
    // Head and body at once: a second small packet would wait for the first to be acknowledged.
    let mut response = head.into_bytes();
    response.extend_from_slice(&body[..sent]);
    let mut out = stream;
    out.write_all(&response).ok()?;
    (sent == len).then_some(())
}

fn read(stream: &TcpStream) -> Option<Seen> {
    let mut reader = BufReader::with_capacity(1, stream);
    let mut line = String::new();
    reader.read_line(&mut line).ok().filter(|len| *len > 0)?;
    let mut words = line.split(' ');
    let (method, target) = (words.next()?.to_owned(), words.next()?.to_owned());
    let mut headers = BTreeMap::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim_end().split_once(": ") else { break };
        headers.insert(name.to_ascii_lowercase(), value.to_owned());
    }
    let (path, query) = target.split_once('?').unwrap_or((&target, ""));
    let key = path.strip_prefix("/bucket/").unwrap_or("");
    let query = query.split('&').filter_map(|pair| pair.split_once('='));
    let query = query.map(|(name, value)| (name.to_owned(), decode(value))).collect();
    Some(Seen { method, key: decode(key), query, headers, path: path.to_owned() })
}

fn answer(state: &State, seen: &Seen) -> (u16, String, Vec<u8>) {
    if seen.path == "/keys" {
        return (200, String::new(), br#"{"AccessKeyId":"k","SecretAccessKey":"s"}"#.to_vec());
    }
    if !seen.path.starts_with("/bucket") {
        return (404, String::new(), error("NoSuchBucket").into_bytes());
    }
    let objects = state.objects.lock().unwrap();
    if seen.is_list() {
        return (200, String::new(), list(&objects, seen).into_bytes());
    }
    let Some(body) = objects.get(&seen.key) else {
        return (404, String::new(), error("NoSuchKey").into_bytes());
    };
    if seen.headers.get("if-match").is_some_and(|etag| *etag != etag_of(body)) {
        return (412, String::new(), error("PreconditionFailed").into_bytes());
    }
    let etag = format!("ETag: {}\r\n", etag_of(body));
    match seen.headers.get("range") {
        None => (200, etag, body.clone()),
        Some(range) => {
            let first = range.strip_prefix("bytes=").unwrap().strip_suffix('-').unwrap();
            let range =
                format!("Content-Range: bytes {first}-{}/{}\r\n", body.len() - 1, body.len());
            (206, etag + &range, body[first.parse().unwrap()..].to_vec())
        }
    }
}

fn list(objects: &BTreeMap<Vec<u8>, Vec<u8>>, seen: &Seen) -> String {
    let value = |name: &str| seen.query.get(name).cloned().unwrap_or_default();
    let (prefix, after) = (value("prefix"), value("start-after"));
    let max: usize = String::from_utf8(value("max-keys")).unwrap().parse().unwrap();
    let found: Vec<_> = objects
        .iter()
        .filter(|(key, _)| key.starts_with(&prefix) && (after.is_empty() || **key > after))
        .collect();
    let listed: Vec<_> = found.iter().take(max).map(|(key, body)| (&***key, &***body)).collect();
    page(&listed, found.len() > max)
}

/// Returns a page with these objects.
pub(crate) fn page(objects: &[(&[u8], &[u8])], is_truncated: bool) -> String {
    let contents = objects.iter().map(|(key, body)| {
        let (key, etag, len) = (encode(key), etag_of(body).replace('"', "&quot;"), body.len());
        format!("<Contents><Key>{key}</Key><ETag>{etag}</ETag><Size>{len}</Size></Contents>")
    });
    let contents: String = contents.collect();
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?><ListBucketResult><EncodingType>url\
         </EncodingType><IsTruncated>{is_truncated}</IsTruncated>{contents}</ListBucketResult>"
    )
}

fn error(code: &str) -> String {
    format!("<Error><Code>{code}</Code><Region>eu-west-7</Region></Error>")
}

/// A hash that is good enough for bodies of tests.
fn etag_of(body: &[u8]) -> String {
    let sum = body.iter().fold(body.len() as u64 + 7, |sum, byte| {
        sum.wrapping_mul(0x100_0000_01b3) ^ u64::from(*byte)
    });
    format!("\"{sum:016x}\"")
}

/// Encodes as S3 does: a space is a plus sign.
fn encode(key: &[u8]) -> String {
    let encoded = key.iter().map(|byte| match byte {
        b' ' => "+".to_owned(),
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'-' | b'.' => {
            char::from(*byte).to_string()
        }
        byte => format!("%{byte:02X}"),
    });
    encoded.collect()
}

fn decode(text: &str) -> Vec<u8> {
    let (mut bytes, mut rest) = (Vec::new(), text.as_bytes());
    while let Some((byte, tail)) = rest.split_first() {
        rest = tail;
        if *byte == b'%' {
            let digits = std::str::from_utf8(&rest[..2]).unwrap();
            bytes.push(u8::from_str_radix(digits, 16).unwrap());
            rest = &rest[2..];
        } else {
            bytes.push(*byte);
        }
    }
    bytes
}

/// Reads a body to its end.
pub(crate) fn read_all(mut body: impl std::io::Read) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    body.read_to_end(&mut bytes).map(|_| bytes)
}
