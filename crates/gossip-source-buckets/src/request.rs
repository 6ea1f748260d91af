//! Signed requests, their retries, and what a refusal means.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};
use std::time::Duration;

use bytes::Bytes;
use gossip_contracts::connector::{ConnectorError, OpenError};
use http::{Request, Uri};
use http_body_util::Empty;
use ring::rand::{SecureRandom as _, SystemRandom};

use crate::clock::Seconds;
use crate::credentials::{Chain, Keys};
use crate::encode::encode_into;
use crate::environment::BucketEnvironment;
use crate::place::Place;
use crate::sign::{EMPTY_HASH, Signed, query_text};
use crate::transport::{Reply, Transport};
use crate::xml::{Event, Reader};

/// How long the head of a response may take. A page behind many delete markers takes minutes; the
/// lease of its shard is renewed meanwhile.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(150);

/// How often one request is sent.
const TRIES: u32 = 8;
/// The longest wait before the second try; it doubles with each further one, up to [`WAIT_MAX`].
const FIRST_WAIT: Duration = Duration::from_millis(100);
const WAIT_MAX: Duration = Duration::from_secs(10);

/// Retries that a process has left: a failing server gets no multiple of its load. A retry takes
/// [`RETRY_COST`], a success gives one back.
const RETRY_BUDGET: u32 = 500;
const RETRY_COST: u32 = 5;

/// The region of servers that have none, and of AWS if nothing else is said.
const DEFAULT_REGION: &str = "us-east-1";

/// The longest error that is read.
const ERROR_LEN_MAX: usize = 64 << 10;

/// Why there is no answer.
#[derive(Debug)]
pub(crate) enum Failure {
    /// No response, after all tries.
    Io(io::ErrorKind),
    /// The server refused, with its code.
    Refused { status: u16, code: String },
    /// There are no credentials; the text names the places that were tried.
    NoCredentials(String),
    /// The bucket is in another region, if the server says in which.
    Region(Option<String>),
    /// The answer is not what it should be.
    Malformed,
}

impl Failure {
    pub(crate) fn has_code(&self, expected: &str) -> bool {
        matches!(self, Self::Refused { code, .. } if code == expected)
    }

    pub(crate) fn into_error(self) -> ConnectorError {
        let unavailable = |kind| ConnectorError::Unavailable { kind };
        match self {
            Self::Io(kind) => unavailable(kind),
            Self::NoCredentials(_) => ConnectorError::PermissionDenied,
            Self::Region(_) => ConnectorError::NotFound,
            Self::Malformed => ConnectorError::Malformed { position: 0 },
            Self::Refused { code, .. } if code == "NoSuchBucket" => ConnectorError::NotFound,
            Self::Refused { status: 401 | 403, .. } => ConnectorError::PermissionDenied,
            Self::Refused { status: 404, .. } => ConnectorError::NotFound,
            Self::Refused { .. } => unavailable(io::ErrorKind::Other),
        }
    }

    /// Returns what the failure means for one object.
    pub(crate) fn into_open_error(self) -> OpenError {
        if self.has_code("InvalidObjectState") {
            return OpenError::Archived;
        }
        match self {
            // Only the store itself says so. A proxy between may also answer 404, and for every
            // object: taken for an answer, the run would end without having read any.
            Self::Refused { status: 404, code } if code == "NoSuchKey" => OpenError::Vanished,
            Self::Refused { status: 401 | 403, .. } => OpenError::PermissionDenied,
            Self::Refused { status: 412, .. } => OpenError::Changed,
            other => OpenError::Source(other.into_error()),
        }
    }
}

// For the user, before a run. No text of the server: its codes only.
impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(kind) => write!(f, "the server did not answer ({kind})"),
            Self::NoCredentials(why) => f.write_str(why),
            Self::Region(Some(region)) => {
                write!(f, "the bucket is in region {region}; add region={region}")
            }
            Self::Region(None) => {
                f.write_str("the bucket is in another region; add region=NAME of the bucket")
            }
            Self::Malformed => f.write_str("the server does not answer like S3"),
            Self::Refused { code, .. } if code == "NoSuchBucket" => {
                f.write_str("there is no such bucket")
            }
            Self::Refused { code, .. }
                if ["SignatureDoesNotMatch", "InvalidAccessKeyId"].contains(&&**code) =>
            {
                write!(f, "the server does not accept the credentials ({code})")
            }
            Self::Refused { status: 401 | 403, code } => {
                write!(f, "the bucket may not be listed ({code}); s3:ListBucket is needed")
            }
            Self::Refused { status, code } => write!(f, "the server refused: {status} {code}"),
        }
    }
}

/// A request for a bucket or an object in it.
#[derive(Clone, Default)]
pub(crate) struct Target {
    /// Raw bytes.
    pub(crate) key: Vec<u8>,
    /// Names and raw values.
    pub(crate) query: Vec<(&'static str, Vec<u8>)>,
    /// Names in lower case, with values.
    pub(crate) headers: Vec<(&'static str, String)>,
}

/// The requests to one bucket.
pub(crate) struct Client {
    pub(crate) place: Place,
    chain: Chain,
    region: String,
    host: String,
    transport: Arc<Transport>,
    /// What the clock of the server is ahead of ours, in seconds, once a server said so.
    skew: AtomicI64,
    budget: AtomicU32,
    random: SystemRandom,
}

impl Client {
    pub(crate) fn new(place: Place, environment: BucketEnvironment) -> Result<Self, Failure> {
        let chain = Chain::new(environment, place.profile.clone(), place.is_anonymous);
        let region = place.region.clone().or_else(|| chain.region());
        let region = region.unwrap_or_else(|| DEFAULT_REGION.to_owned());
        let host = place.endpoint.host(&place.bucket, &region);
        let transport = Transport::new(&host, place.endpoint.is_tls, place.ca.as_deref());
        let transport = Arc::new(transport.map_err(|error| Failure::Io(error.kind()))?);
        let (skew, budget) = (AtomicI64::new(0), AtomicU32::new(RETRY_BUDGET));
        let random = SystemRandom::new();
        Ok(Self { place, chain, region, host, transport, skew, budget, random })
    }

    /// Sends a GET until it succeeds or further tries are pointless.
    pub(crate) async fn get(&self, target: &Target) -> Result<Reply, Failure> {
        let (mut renewed, mut corrected) = (false, false);
        let mut tries = 1;
        loop {
            let keys = self.chain.keys().await.map_err(Failure::NoCredentials)?;
            let request = self.request(target, keys.as_deref())?;
            let failure = match self.transport.send(request, RESPONSE_TIMEOUT).await {
                Ok(reply) if reply.head.status.is_success() => {
                    self.give_back();
                    return Ok(reply);
                }
                Ok(reply) => self.failure_of(reply).await,
                Err(error) => Failure::Io(error.kind()),
            };
            // Each of the two at most once: a server that repeats itself would be asked forever.
            if let (Some(keys), true) = (&keys, is_expired(&failure) && !renewed) {
                renewed = true;
                self.chain.refuse(keys).await;
                continue;
            }
            // The clock of the server was just taken over.
            if failure.has_code("RequestTimeTooSkewed") && !corrected {
                corrected = true;
                continue;
            }
            if !is_transient(&failure) || tries >= TRIES || !self.take_retry() {
                return Err(failure);
            }
            tokio::time::sleep(self.wait_before(tries)).await;
            tries += 1;
        }
    }

    fn request(
        &self,
        target: &Target,
        keys: Option<&Keys>,
    ) -> Result<Request<Empty<Bytes>>, Failure> {
        let mut path = "/".to_owned();
        if !self.place.endpoint.has_bucket_in_host {
            path.push_str(&self.place.bucket);
            if !target.key.is_empty() {
                path.push('/');
            }
        }
        encode_into(&mut path, &target.key, true);
        let encoded = |value: &[u8]| {
            let mut text = String::new();
            encode_into(&mut text, value, false);
            text
        };
        let query = target.query.iter();
        let query: Vec<_> =
            query.map(|(name, value)| ((*name).to_owned(), encoded(value))).collect();
        let now = Seconds(Seconds::now().0 + self.skew.load(Ordering::Relaxed));
        let time = now.basic();
        let mut headers = vec![("host", &*self.host)];
        headers.extend(target.headers.iter().map(|(name, value)| (*name, &**value)));
        if keys.is_some() {
            headers.extend([("x-amz-content-sha256", EMPTY_HASH), ("x-amz-date", &*time)]);
        }
        let token = keys.and_then(Keys::token);
        headers.extend(token.map(|token| ("x-amz-security-token", token)));
        headers.sort_unstable();
        let signed = Signed { method: "GET", path: &path, query: &query, headers: &headers };
        let authorization = keys.map(|keys| signed.authorization(keys, &self.region, now));
        let text = query_text(&query);
        let text = if text.is_empty() { path.clone() } else { format!("{path}?{text}") };
        // Not parsed as a whole URL: a path that begins with two slashes would become a host.
        let uri = Uri::builder().path_and_query(text).build().map_err(|_| Failure::Malformed)?;
        let mut request = Request::builder().method("GET").uri(uri);
        for (name, value) in headers {
            request = request.header(name, value);
        }
        request = request.header("user-agent", "gossip");
        if let Some(authorization) = authorization {
            request = request.header("authorization", authorization);
        }
        request.body(Empty::new()).map_err(|_| Failure::Malformed)
    }

    /// Reads a refusal.
    async fn failure_of(&self, mut reply: Reply) -> Failure {
        let status = reply.head.status.as_u16();
        let region = reply.header("x-amz-bucket-region").map(str::to_owned);
        let date = reply.header("date").and_then(Seconds::parse_http);
        // Without its body the status has to do.
        let body = reply.whole(ERROR_LEN_MAX).await.unwrap_or_default();
        let text = String::from_utf8_lossy(&body);
        let code = element(&text, "Code").unwrap_or_default();
        // A code is a word; anything else may quote the request.
        let is_word = code.len() <= 64 && code.bytes().all(|byte| byte.is_ascii_alphanumeric());
        let code = if is_word { code } else { String::new() };
        if code == "RequestTimeTooSkewed"
            && let Some(date) = date
        {
            self.skew.store(date.0 - Seconds::now().0, Ordering::Relaxed);
        }
        let is_moved = [301, 302, 307, 308].contains(&status)
            || ["AuthorizationHeaderMalformed", "IllegalLocationConstraintException"]
                .contains(&&*code);
        if is_moved {
            let named = element(&text, "Region").or(region);
            let is_name = |it: &String| it.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
            return Failure::Region(named.filter(is_name).filter(|it| !it.is_empty()));
        }
        Failure::Refused { status, code }
    }

    /// Takes a retry from the budget, if there is one.
    fn take_retry(&self) -> bool {
        let less = |left: u32| left.checked_sub(RETRY_COST);
        self.budget.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok()
    }

    fn give_back(&self) {
        let more = |left: u32| (left < RETRY_BUDGET).then(|| left + 1);
        // Full already.
        let _ = self.budget.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
    }

    /// Returns a random part of a wait that doubles with each try, so that the processes of a fleet
    /// do not return together.
    fn wait_before(&self, tries: u32) -> Duration {
        let longest = FIRST_WAIT.saturating_mul(1 << tries.min(16)).min(WAIT_MAX);
        let mut bytes = [0; 2];
        // Without random numbers the whole wait.
        let part = match self.random.fill(&mut bytes) {
            Ok(()) => f64::from(u16::from_le_bytes(bytes)) / f64::from(u16::MAX),
            Err(_) => 1.0,
        };
        longest.mul_f64(part)
    }
}

fn is_expired(failure: &Failure) -> bool {
    let codes = ["ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired", "InvalidToken"];
    codes.iter().any(|code| failure.has_code(code))
}

/// Returns whether the same request may succeed a little later.
fn is_transient(failure: &Failure) -> bool {
    match failure {
        Failure::Io(_) => true,
        Failure::Refused { status, code } => {
            matches!(status, 408 | 429 | 500 | 502 | 503 | 504)
                || ["SlowDown", "RequestTimeout", "InternalError"].contains(&&**code)
        }
        Failure::NoCredentials(_) | Failure::Region(_) | Failure::Malformed => false,
    }
}

/// Returns the text of the first element with this name.
fn element(text: &str, name: &str) -> Option<String> {
    let mut reader = Reader::new(text);
    while let Ok(Some(event)) = reader.next() {
        if event == Event::Start(name) {
            return reader.text_of(name).ok();
        }
    }
    None
}
