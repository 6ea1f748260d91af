//! [`GrpcClient`]: [`EtcdKv`] over gRPC to a real cluster.
//!
//! One member is used until it fails; then the next one is. A request is resent to another member
//! only if it is a read, or if it was certainly not applied. Each member is tried at most once per
//! request, and an expired token is renewed at most once, so every call is bounded:
//! members × (time to connect + time of a request) × 2.
//!
//! Needs a Tokio runtime with timers and network; the connections belong to the runtime in which
//! the first request was made. Every call runs in its own task, which is aborted with its caller,
//! so a caller that stops polling its future does not block others.
//!
//! It never resends a write that may have been applied, never shows a password or a token in
//! `Debug` or an error, and never sends a write to a cluster while a `NOSPACE` alarm that it has
//! met is still active.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, PoisonError};
use std::time::Duration;

use prost::Message;
use prost::bytes::Bytes;
use tokio::time::Instant;
use tonic::metadata::{Ascii, MetadataValue};

use crate::abort_on_drop::AbortOnDrop;
use crate::error::{EtcdCause, EtcdError, Fate};
use crate::grpc_config::{Credentials, GrpcConfig};
use crate::kv::{Alarm, EtcdKv, LeaseGrant, LeaseTtl, MemberStatus};
use crate::message::{EncodedTxn, TxnMessage};
use crate::node::{Method, Node};
use crate::proto::{
    AlarmAction, AlarmMember, AlarmRequest, AlarmResponse, AlarmType, AuthenticateRequest,
    AuthenticateResponse, CompactionRequest, CompactionResponse, DefragmentRequest,
    DefragmentResponse, LeaseGrantRequest, LeaseGrantResponse, LeaseKeepAliveRequest,
    LeaseKeepAliveResponse, LeaseRevokeRequest, LeaseRevokeResponse, LeaseTimeToLiveRequest,
    LeaseTimeToLiveResponse, RangeRequest, RangeResponse, StatusRequest, StatusResponse,
    TxnResponse,
};
use crate::status::AUTH_NOT_ENABLED;
use crate::tasks::Tasks;
use crate::txn_effect::Effect;

/// Token renewals per call. A second refusal is not caused by an expired token.
const MAX_TOKEN_RENEWALS: usize = 1;

const AUTHENTICATE: Method = Method::login("authentication", "/etcdserverpb.Auth/Authenticate");
const RANGE: Method = Method::read("range", "/etcdserverpb.KV/Range");
const TXN: Method = Method::write("txn", "/etcdserverpb.KV/Txn");
const READ_TXN: Method = Method::read("read", "/etcdserverpb.KV/Txn");
const COMPACT: Method = Method::write("compaction", "/etcdserverpb.KV/Compact");
const COMPACT_FILE: Method = Method::repair("compaction", "/etcdserverpb.KV/Compact");
const LEASE_GRANT: Method = Method::write("lease grant", "/etcdserverpb.Lease/LeaseGrant");
const LEASE_REVOKE: Method = Method::write("lease revoke", "/etcdserverpb.Lease/LeaseRevoke");
// Idempotent. A stalled member must not cost the lease, so the next one is tried well within the
// shortest advised TTL.
const KEEP_ALIVE: Method = Method::quick("lease keep-alive", "/etcdserverpb.Lease/LeaseKeepAlive");
const TIME_TO_LIVE: Method =
    Method::read("lease time-to-live", "/etcdserverpb.Lease/LeaseTimeToLive");
const STATUS: Method = Method::read("status", "/etcdserverpb.Maintenance/Status");
const ALARMS: Method = Method::read("alarm list", "/etcdserverpb.Maintenance/Alarm");
const DISARM: Method = Method::write("alarm disarm", "/etcdserverpb.Maintenance/Alarm");
const DEFRAGMENT: Method =
    Method::repair("defragmentation", "/etcdserverpb.Maintenance/Defragment");

/// A client of a real cluster. Clones share connections and token.
#[derive(Clone)]
pub struct GrpcClient {
    inner: Arc<Inner>,
}

struct Inner {
    /// Never empty.
    nodes: Vec<Node>,
    /// The member to ask first, modulo their number.
    preferred: AtomicUsize,
    credentials: Option<Credentials>,
    token: std::sync::Mutex<Token>,
    /// Serializes renewals. Holds when the last one failed, and its cause, for callers that waited.
    renewal: tokio::sync::Mutex<Option<(Instant, EtcdCause)>>,
    /// Whether a write returned `NOSPACE` and the alarm has not been found inactive since.
    is_full: AtomicBool,
}

/// The token that replaces user and password.
#[derive(Clone, Default)]
struct Token {
    /// Counts renewals, so that concurrent refusals cause one renewal.
    generation: u64,
    /// `None` before the first renewal, and for a cluster without authentication.
    value: Option<MetadataValue<Ascii>>,
}

impl GrpcClient {
    /// Creates a client, which connects with its first request. Fails if there is no endpoint or
    /// one cannot be used as it is written; does not look whether it can be reached.
    pub fn new(config: &GrpcConfig) -> Result<Self, EtcdError> {
        let bad = |cause| EtcdError::not_sent("client", cause);
        if config.endpoints.is_empty() {
            return Err(bad(EtcdCause::BadConfig("there is no endpoint")));
        }
        // Shared by all members: the first response sets the cluster id, and later ones must match.
        let cluster = Arc::new(OnceLock::new());
        let node = |address: &String| Node::new(address, config, &cluster);
        let nodes: Result<Vec<Node>, EtcdCause> = config.endpoints.iter().map(node).collect();
        let inner = Inner {
            nodes: nodes.map_err(bad)?,
            preferred: AtomicUsize::new(0),
            credentials: config.credentials.clone(),
            token: std::sync::Mutex::default(),
            renewal: tokio::sync::Mutex::default(),
            is_full: AtomicBool::new(false),
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Connects to every reachable member and checks that they form one cluster. Unreachable
    /// members are checked when they are first used.
    ///
    /// # Errors
    ///
    /// [`EtcdCause::OtherCluster`] if they are not of one cluster.
    pub async fn discover_members(&self) -> Result<(), EtcdError> {
        let connect = |index: usize| {
            let client = self.clone();
            async move { client.inner.nodes[index].open("connect").await.map(drop) }
        };
        let runtime = Tasks::current();
        let connections: Vec<_> = (0..self.inner.nodes.len())
            .map(|it| AbortOnDrop::start(&runtime, connect(it)))
            .collect();
        // All were started above, so members that are down cost one timeout together. Only another
        // cluster is an error here: a member that is down may come back.
        for connection in connections {
            if let Some(Err(error)) = connection.await
                && matches!(error.cause, EtcdCause::OtherCluster { .. })
            {
                return Err(error);
            }
        }
        Ok(())
    }

    /// As [`EtcdKv::compact`], but waits until the entries are removed from the file, so that a
    /// following [`defragment`](Self::defragment) frees their space.
    pub async fn compact_file(&self, revision: i64) -> Result<(), EtcdError> {
        let request = CompactionRequest { revision, physical: true };
        let _: CompactionResponse = self.call(&COMPACT_FILE, &request).await?;
        Ok(())
    }

    /// Returns the space that compaction freed to the file system, one member after the other. A
    /// member serves no requests meanwhile: for repairs, not for regular operation.
    pub async fn defragment(&self) -> Result<(), EtcdError> {
        let client = self.clone();
        let work = async move { client.defragment_here().await };
        let ended = || Err(EtcdError::unknown(DEFRAGMENT.operation, EtcdCause::ended()));
        AbortOnDrop::start(&Tasks::current(), work).await.unwrap_or_else(ended)
    }

    async fn defragment_here(&self) -> Result<(), EtcdError> {
        // One after the other, so that the cluster keeps its quorum.
        for node in &self.inner.nodes {
            let token = self.token(&DEFRAGMENT).await?;
            let message = encoded(&DefragmentRequest {});
            let _: DefragmentResponse = node.call(&DEFRAGMENT, message, token.value).await?;
        }
        Ok(())
    }

    /// Disarms the `NOSPACE` alarms of all members.
    pub async fn disarm_no_space(&self) -> Result<(), EtcdError> {
        let alarm = AlarmType::NoSpace as i32;
        let alarms = self.active_alarms().await?;
        for AlarmMember { member_id, .. } in alarms.into_iter().filter(|it| it.alarm == alarm) {
            let action = AlarmAction::Deactivate as i32;
            let request = AlarmRequest { action, member_id, alarm };
            let _: AlarmResponse = self.call(&DISARM, &request).await?;
        }
        Ok(())
    }

    /// Sends one request to the preferred member and, if it is a read or was certainly not applied,
    /// to the others. Returns the answer or the last error, whose fate says whether it may be
    /// applied.
    pub(crate) async fn call<Q: Message, A: Message + Default + 'static>(
        &self,
        method: &Method,
        request: &Q,
    ) -> Result<A, EtcdError> {
        self.call_encoded(method, encoded(request)).await
    }

    /// As [`call`](Self::call), for an encoded request.
    async fn call_encoded<A: Message + Default + 'static>(
        &self,
        method: &Method,
        message: Bytes,
    ) -> Result<A, EtcdError> {
        let (client, method) = (self.clone(), *method);
        // In its own task: it may hold the lock of a connection or of the token renewal, which
        // other callers wait for.
        let call = async move { client.call_here(&method, &message).await };
        let answer = AbortOnDrop::start(&Tasks::current(), call).await;
        answer.unwrap_or_else(|| Err(EtcdError::unknown(method.operation, EtcdCause::ended())))
    }

    /// As [`call_encoded`](Self::call_encoded), in the present task. Renews a refused token once.
    async fn call_here<A: Message + Default + 'static>(
        &self,
        method: &Method,
        message: &Bytes,
    ) -> Result<A, EtcdError> {
        let mut renewals = 0;
        loop {
            let token = self.token(method).await?;
            // A refusal for its token comes before the request is applied, so it may be sent again.
            let result = self.call_members(method, message, &token).await;
            match result {
                Err(EtcdError { cause: EtcdCause::AuthRefused, .. })
                    if self.inner.credentials.is_some() && renewals < MAX_TOKEN_RENEWALS =>
                {
                    renewals += 1;
                    self.renew_token(method, token.generation).await?;
                }
                other => return other,
            }
        }
    }

    /// Tries as many times as there are members, beginning with the preferred one. Stops at the
    /// first answer, and at an error after which the request may not be sent again or that every
    /// member would return.
    async fn call_members<A: Message + Default + 'static>(
        &self,
        method: &Method,
        message: &Bytes,
        token: &Token,
    ) -> Result<A, EtcdError> {
        let nodes = &self.inner.nodes;
        let mut tried = 0;
        loop {
            // Loaded for every attempt: a concurrent call may have found a member that works.
            let index = self.inner.preferred.load(Ordering::Relaxed);
            let node = &nodes[index % nodes.len()];
            let error = match node.call(method, message.clone(), token.value.clone()).await {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            tried += 1;
            // Every member would return the same error, so this one stays preferred.
            if !is_members_fault(&error) {
                return Err(error);
            }
            // Also if this request must not be repeated: the next one should not meet the same
            // member.
            self.switch_from(index);
            if tried == nodes.len() || !(method.is_read || error.is_certain()) {
                return Err(error);
            }
        }
    }

    /// Prefers the next member, unless a concurrent call has switched already.
    fn switch_from(&self, index: usize) {
        let next = index.wrapping_add(1);
        let order = Ordering::Relaxed;
        // If this fails, a concurrent call has switched, and a second switch would skip a member.
        let _ = self.inner.preferred.compare_exchange(index, next, order, order);
    }

    /// Returns the token, and requests one if there is none yet.
    async fn token(&self, method: &Method) -> Result<Token, EtcdError> {
        let token = self.current_token();
        if self.inner.credentials.is_none() || token.generation > 0 {
            return Ok(token);
        }
        self.renew_token(method, token.generation).await?;
        Ok(self.current_token())
    }

    fn current_token(&self) -> Token {
        self.inner.token.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns how often a token was requested.
    #[cfg(test)]
    pub(crate) fn token_count(&self) -> u64 {
        self.current_token().generation
    }

    /// Requests a token and stores it, unless a concurrent call has replaced that of `generation`.
    /// Does nothing without credentials. An error is always `NotSent`: the request that needs the
    /// token was not sent.
    async fn renew_token(&self, method: &Method, generation: u64) -> Result<(), EtcdError> {
        let Some(Credentials { user, password }) = self.inner.credentials.clone() else {
            return Ok(());
        };
        // Before the lock, to recognise a renewal that ended while this call waited for it.
        let began = Instant::now();
        let mut failure = self.inner.renewal.lock().await;
        if self.current_token().generation > generation {
            return Ok(());
        }
        // The caller's own request was not sent, whatever happened to the renewal.
        let not_sent = |cause| EtcdError::not_sent(method.operation, cause);
        // Another renewal may have failed while this call waited for the lock; its result serves
        // all that waited.
        if let Some((ended, cause)) = &*failure
            && *ended >= began
        {
            return Err(not_sent(cause.clone()));
        }
        let message = encoded(&AuthenticateRequest { name: user, password });
        let value = match self.request_token(&message).await {
            Ok(value) => value,
            Err(cause) => {
                *failure = Some((Instant::now(), cause.clone()));
                return Err(not_sent(cause));
            }
        };
        let mut token = self.inner.token.lock().unwrap_or_else(PoisonError::into_inner);
        *token = Token { generation: generation + 1, value };
        Ok(())
    }

    /// Returns a token, or `None` from a cluster without authentication; if that is enabled later,
    /// requests are refused and the token is renewed.
    async fn request_token(
        &self,
        message: &Bytes,
    ) -> Result<Option<MetadataValue<Ascii>>, EtcdCause> {
        match self.call_members(&AUTHENTICATE, message, &Token::default()).await {
            Ok(AuthenticateResponse { token, .. }) => parse_token(&token).map(Some),
            Err(error) if error.cause == EtcdCause::BadRequest(AUTH_NOT_ENABLED) => Ok(None),
            Err(error) => Err(error.cause),
        }
    }

    /// Sends a write that needs space. Refused here while a known `NOSPACE` alarm is active: the
    /// server applies an entry that fills the last page and still returns the error, so its own
    /// refusal would leave the commit unresolved.
    async fn growing_write<A: Message + Default + 'static>(
        &self,
        method: &Method,
        message: Bytes,
    ) -> Result<A, EtcdError> {
        // Costs one more request per write, so it is done only after the database was full.
        if self.inner.is_full.load(Ordering::Relaxed) {
            self.check_space(method).await?;
        }
        let result = self.call_encoded(method, message).await;
        if let Err(EtcdError { cause: EtcdCause::NoSpace, .. }) = &result {
            self.inner.is_full.store(true, Ordering::Relaxed);
        }
        result
    }

    /// Fails while the known alarm is active, and also if that cannot be found out. Otherwise the
    /// write may be sent.
    async fn check_space(&self, method: &Method) -> Result<(), EtcdError> {
        let not_sent = |cause| Err(EtcdError::not_sent(method.operation, cause));
        match self.alarms().await {
            Ok(alarms) if alarms.contains(&Alarm::NoSpace) => not_sent(EtcdCause::NoSpace),
            Ok(_) => {
                self.inner.is_full.store(false, Ordering::Relaxed);
                Ok(())
            }
            // Without the permission to list alarms, only the write itself can find out.
            Err(EtcdError { cause: EtcdCause::PermissionDenied, .. }) => Ok(()),
            Err(error) => not_sent(error.cause),
        }
    }

    async fn active_alarms(&self) -> Result<Vec<AlarmMember>, EtcdError> {
        let answer: AlarmResponse = self.call(&ALARMS, &AlarmRequest::default()).await?;
        Ok(answer.alarms)
    }
}

impl fmt::Debug for GrpcClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GrpcClient").field("members", &self.inner.nodes.len()).finish()
    }
}

impl EtcdKv for GrpcClient {
    async fn range(&self, request: RangeRequest) -> Result<RangeResponse, EtcdError> {
        self.call(&RANGE, &request).await
    }

    async fn txn(&self, request: impl TxnMessage) -> Result<TxnResponse, EtcdError> {
        let EncodedTxn { bytes, effect } = request.encode();
        match effect {
            // Declared as a read, so that it may be repeated at another member.
            Effect::None => self.call_encoded(&READ_TXN, bytes).await,
            // A full database accepts deletions, and needs them.
            Effect::Shrinks => self.call_encoded(&TXN, bytes).await,
            Effect::Grows => self.growing_write(&TXN, bytes).await,
        }
    }

    async fn lease_grant(&self, ttl_seconds: i64) -> Result<LeaseGrant, EtcdError> {
        let request = LeaseGrantRequest { ttl: ttl_seconds, id: 0 };
        let answer: LeaseGrantResponse =
            self.growing_write(&LEASE_GRANT, encoded(&request)).await?;
        Ok(LeaseGrant { id: answer.id, ttl_seconds: answer.ttl })
    }

    async fn lease_keep_alive(&self, lease: i64) -> Result<Option<i64>, EtcdError> {
        let request = LeaseKeepAliveRequest { id: lease };
        let answer: LeaseKeepAliveResponse = self.call(&KEEP_ALIVE, &request).await?;
        // A lease that is gone is reported by a TTL of zero, not by an error.
        Ok((answer.ttl > 0).then_some(answer.ttl))
    }

    async fn lease_revoke(&self, lease: i64) -> Result<(), EtcdError> {
        let request = LeaseRevokeRequest { id: lease };
        let _: LeaseRevokeResponse = self.call(&LEASE_REVOKE, &request).await?;
        Ok(())
    }

    async fn lease_time_to_live(&self, lease: i64) -> Result<Option<LeaseTtl>, EtcdError> {
        let request = LeaseTimeToLiveRequest { id: lease, keys: false };
        let answer: LeaseTimeToLiveResponse = self.call(&TIME_TO_LIVE, &request).await?;
        let ttl = LeaseTtl { remaining_seconds: answer.ttl, granted_seconds: answer.granted_ttl };
        // A lease that is gone is reported by a negative TTL, not by an error.
        Ok((answer.ttl >= 0).then_some(ttl))
    }

    async fn compact(&self, revision: i64) -> Result<(), EtcdError> {
        let request = CompactionRequest { revision, physical: false };
        let _: CompactionResponse = self.call(&COMPACT, &request).await?;
        Ok(())
    }

    async fn status(&self) -> Result<MemberStatus, EtcdError> {
        let answer: StatusResponse = self.call(&STATUS, &StatusRequest {}).await?;
        let header = answer.header.unwrap_or_default();
        Ok(MemberStatus {
            version: answer.version,
            member_id: header.member_id,
            leader: answer.leader,
            revision: header.revision,
            db_size: answer.db_size,
            db_size_in_use: answer.db_size_in_use,
        })
    }

    async fn alarms(&self) -> Result<Vec<Alarm>, EtcdError> {
        let alarms = self.active_alarms().await?;
        Ok(alarms.iter().filter_map(|it| alarm(it.alarm())).collect())
    }

    async fn sleep(&self, millis: u64) {
        tokio::time::sleep(Duration::from_millis(millis)).await;
    }
}

fn encoded(message: &impl Message) -> Bytes {
    Bytes::from(message.encode_to_vec())
}

/// Returns whether another member may succeed.
fn is_members_fault(error: &EtcdError) -> bool {
    match (error.fate, &error.cause) {
        // Nothing was sent to this member; another may be usable.
        (
            Fate::NotSent,
            EtcdCause::WrongVersion { .. } | EtcdCause::OtherCluster { .. } | EtcdCause::Tls { .. },
        ) => true,
        (_, cause) => cause.is_transient() && *cause != EtcdCause::Busy,
    }
}

fn parse_token(token: &str) -> Result<MetadataValue<Ascii>, EtcdCause> {
    let mut value = MetadataValue::try_from(token).map_err(|_| EtcdCause::AuthRefused)?;
    // Keeps it out of debug output and of the header compression tables.
    value.set_sensitive(true);
    Ok(value)
}

fn alarm(kind: AlarmType) -> Option<Alarm> {
    match kind {
        AlarmType::None => None,
        AlarmType::NoSpace => Some(Alarm::NoSpace),
        AlarmType::Corrupt => Some(Alarm::Corrupt),
    }
}
