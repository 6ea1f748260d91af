//! [`GrpcClient`]: [`EtcdKv`] spoken to a real cluster.
//!
//! One member is asked until it fails; then the next one is. A request is made again at another
//! member only if it is a read, or if it certainly did not happen. Each member is tried at most
//! once per request, and an expired token is renewed at most once, so every call is bounded:
//! members × (time to connect + time of a request) × 2.
//!
//! Needs a Tokio runtime with timers and network; the connections belong to the runtime in which
//! the first request was made. Every call runs in a task of its own, which ends with its caller, so
//! that one who does not look at its future keeps nobody else waiting.
//!
//! What it never does: send a write again that may have happened; keep a password or a token where
//! `Debug` or an error could show it; send a write to a cluster whose `NOSPACE` alarm it has met
//! and that still stands.

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

/// How often one call renews its token. A second refusal is not about the token's age.
const MAX_TOKEN_RENEWALS: usize = 1;

// It makes a token; another one does no harm.
const AUTHENTICATE: Method = Method::read("authentication", "/etcdserverpb.Auth/Authenticate");
const RANGE: Method = Method::read("range", "/etcdserverpb.KV/Range");
const TXN: Method = Method::write("txn", "/etcdserverpb.KV/Txn");
const READ_TXN: Method = Method::read("read", "/etcdserverpb.KV/Txn");
const COMPACT: Method = Method::write("compaction", "/etcdserverpb.KV/Compact");
const COMPACT_FILE: Method = Method::repair("compaction", "/etcdserverpb.KV/Compact");
const LEASE_GRANT: Method = Method::write("lease grant", "/etcdserverpb.Lease/LeaseGrant");
const LEASE_REVOKE: Method = Method::write("lease revoke", "/etcdserverpb.Lease/LeaseRevoke");
// To keep a lease alive twice is to keep it alive. A member that stands still must not cost the
// lease, so the next one is asked well within the time of the shortest that is advised.
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
    /// One renewal at a time. When the last one failed, and why: callers that waited share it.
    renewal: tokio::sync::Mutex<Option<(Instant, EtcdCause)>>,
    /// Whether a write was answered with `NOSPACE` and the alarm has not been seen to be gone.
    is_full: AtomicBool,
}

/// What stands for user and password.
#[derive(Clone, Default)]
struct Token {
    /// Counts renewals, so that one refusal renews once however many calls it met.
    generation: u64,
    /// `None` before the first renewal, and for a cluster that asks nobody.
    value: Option<MetadataValue<Ascii>>,
}

impl GrpcClient {
    /// A client of these members. Nothing is sent before the first request.
    pub fn new(config: &GrpcConfig) -> Result<Self, EtcdError> {
        let bad = |cause| EtcdError::not_sent("client", cause);
        if config.endpoints.is_empty() {
            return Err(bad(EtcdCause::BadConfig("there is no endpoint")));
        }
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

    /// Connects to every member that is there. Members that cannot be reached now are not missed;
    /// who begins with them must meet the same cluster all the same.
    ///
    /// # Errors
    ///
    /// [`EtcdCause::OtherCluster`] if they are not of one cluster.
    pub async fn discover_members(&self) -> Result<(), EtcdError> {
        let meet = |index: usize| {
            let client = self.clone();
            async move { client.inner.nodes[index].open("connect").await.map(drop) }
        };
        let runtime = Tasks::current();
        let meetings: Vec<_> =
            (0..self.inner.nodes.len()).map(|it| AbortOnDrop::start(&runtime, meet(it))).collect();
        for meeting in meetings {
            if let Some(Err(error)) = meeting.await
                && matches!(error.cause, EtcdCause::OtherCluster { .. })
            {
                return Err(error);
            }
        }
        Ok(())
    }

    /// As [`EtcdKv::compact`], and waits until the entries are out of the file, so that a
    /// [`defragment`](Self::defragment) after it finds their space.
    pub async fn compact_file(&self, revision: i64) -> Result<(), EtcdError> {
        let request = CompactionRequest { revision, physical: true };
        let _: CompactionResponse = self.call(&COMPACT_FILE, &request).await?;
        Ok(())
    }

    /// Gives back the space that compaction freed, at every member in turn. A member does nothing
    /// else meanwhile: for repairs, not for daily work.
    pub async fn defragment(&self) -> Result<(), EtcdError> {
        let client = self.clone();
        let work = async move { client.defragment_here().await };
        let ended = || Err(EtcdError::unknown(DEFRAGMENT.operation, EtcdCause::ended()));
        AbortOnDrop::start(&Tasks::current(), work).await.unwrap_or_else(ended)
    }

    async fn defragment_here(&self) -> Result<(), EtcdError> {
        for node in &self.inner.nodes {
            let token = self.token(&DEFRAGMENT).await?;
            let message = encoded(&DefragmentRequest {});
            let _: DefragmentResponse = node.call(&DEFRAGMENT, message, token.value).await?;
        }
        Ok(())
    }

    /// Takes back the `NOSPACE` alarms of all members.
    pub async fn disarm_no_space(&self) -> Result<(), EtcdError> {
        let alarm = AlarmType::NoSpace as i32;
        let alarms = self.standing_alarms().await?;
        for AlarmMember { member_id, .. } in alarms.into_iter().filter(|it| it.alarm == alarm) {
            let action = AlarmAction::Deactivate as i32;
            let request = AlarmRequest { action, member_id, alarm };
            let _: AlarmResponse = self.call(&DISARM, &request).await?;
        }
        Ok(())
    }

    /// One request, made at the preferred member and, if that is safe, at the others.
    pub(crate) async fn call<Q: Message, A: Message + Default + 'static>(
        &self,
        method: &Method,
        request: &Q,
    ) -> Result<A, EtcdError> {
        self.call_encoded(method, encoded(request)).await
    }

    /// The same for the bytes of a request.
    async fn call_encoded<A: Message + Default + 'static>(
        &self,
        method: &Method,
        message: Bytes,
    ) -> Result<A, EtcdError> {
        let (client, method) = (self.clone(), *method);
        // Others wait while a connection is made or a token renewed.
        let call = async move { client.call_here(&method, &message).await };
        let answer = AbortOnDrop::start(&Tasks::current(), call).await;
        answer.unwrap_or_else(|| Err(EtcdError::unknown(method.operation, EtcdCause::ended())))
    }

    /// The same in the caller's own task.
    async fn call_here<A: Message + Default + 'static>(
        &self,
        method: &Method,
        message: &Bytes,
    ) -> Result<A, EtcdError> {
        let mut renewals = 0;
        loop {
            let token = self.token(method).await?;
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

    /// Tries the members in turn, each at most once.
    async fn call_members<A: Message + Default + 'static>(
        &self,
        method: &Method,
        message: &Bytes,
        token: &Token,
    ) -> Result<A, EtcdError> {
        let nodes = &self.inner.nodes;
        let mut tried = 0;
        loop {
            let index = self.inner.preferred.load(Ordering::Relaxed);
            let node = &nodes[index % nodes.len()];
            let error = match node.call(method, message.clone(), token.value.clone()).await {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            tried += 1;
            if !is_members_fault(&error) {
                return Err(error);
            }
            self.leave(index);
            if tried == nodes.len() || !(method.is_read || error.is_certain()) {
                return Err(error);
            }
        }
    }

    /// Prefers the next member, unless another call has moved on already.
    fn leave(&self, index: usize) {
        let next = index.wrapping_add(1);
        let order = Ordering::Relaxed;
        // Who loses this race finds the member already left.
        let _ = self.inner.preferred.compare_exchange(index, next, order, order);
    }

    /// The token to send; asked for if there is none yet.
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

    /// How often a token was asked for.
    #[cfg(test)]
    pub(crate) fn token_count(&self) -> u64 {
        self.current_token().generation
    }

    /// Asks for a token, unless somebody has done so since `generation`.
    async fn renew_token(&self, method: &Method, generation: u64) -> Result<(), EtcdError> {
        let Some(Credentials { user, password }) = self.inner.credentials.clone() else {
            return Ok(());
        };
        let began = Instant::now();
        let mut failure = self.inner.renewal.lock().await;
        if self.current_token().generation > generation {
            return Ok(());
        }
        // The request itself was not sent, whatever became of the question.
        let not_sent = |cause| EtcdError::not_sent(method.operation, cause);
        // While we waited, another caller may have asked: once is enough for all who waited.
        if let Some((ended, cause)) = &*failure
            && *ended >= began
        {
            return Err(not_sent(cause.clone()));
        }
        let message = encoded(&AuthenticateRequest { name: user, password });
        let value = match self.ask_for_token(&message).await {
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

    /// A token, or `None` from a cluster that asks nobody; should it begin to, it will say so.
    async fn ask_for_token(
        &self,
        message: &Bytes,
    ) -> Result<Option<MetadataValue<Ascii>>, EtcdCause> {
        match self.call_members(&AUTHENTICATE, message, &Token::default()).await {
            Ok(AuthenticateResponse { token, .. }) => parse_token(&token).map(Some),
            Err(error) if error.cause == EtcdCause::BadRequest(AUTH_NOT_ENABLED) => Ok(None),
            Err(error) => Err(error.cause),
        }
    }

    /// A write that takes space. Refused here while a `NOSPACE` alarm stands that we have met: the
    /// server's own refusal would not be certain.
    async fn growing_write<A: Message + Default + 'static>(
        &self,
        method: &Method,
        message: Bytes,
    ) -> Result<A, EtcdError> {
        if self.inner.is_full.load(Ordering::Relaxed) {
            self.look_for_space(method).await?;
        }
        let result = self.call_encoded(method, message).await;
        if let Err(EtcdError { cause: EtcdCause::NoSpace, .. }) = &result {
            self.inner.is_full.store(true, Ordering::Relaxed);
        }
        result
    }

    /// Whether the alarm that we have met still stands.
    async fn look_for_space(&self, method: &Method) -> Result<(), EtcdError> {
        let not_sent = |cause| Err(EtcdError::not_sent(method.operation, cause));
        match self.alarms().await {
            Ok(alarms) if alarms.contains(&Alarm::NoSpace) => not_sent(EtcdCause::NoSpace),
            Ok(_) => {
                self.inner.is_full.store(false, Ordering::Relaxed);
                Ok(())
            }
            // Who may not ask finds out by writing.
            Err(EtcdError { cause: EtcdCause::PermissionDenied, .. }) => Ok(()),
            Err(error) => not_sent(error.cause),
        }
    }

    async fn standing_alarms(&self) -> Result<Vec<AlarmMember>, EtcdError> {
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
            Effect::None => self.call_encoded(&READ_TXN, bytes).await,
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
        let alarms = self.standing_alarms().await?;
        Ok(alarms.iter().filter_map(|it| alarm(it.alarm())).collect())
    }

    async fn sleep(&self, millis: u64) {
        tokio::time::sleep(Duration::from_millis(millis)).await;
    }
}

fn encoded(message: &impl Message) -> Bytes {
    Bytes::from(message.encode_to_vec())
}

/// Whether another member may do better.
fn is_members_fault(error: &EtcdError) -> bool {
    match (error.fate, &error.cause) {
        // What this member could not be asked, another may answer.
        (
            Fate::NotSent,
            EtcdCause::WrongVersion { .. } | EtcdCause::OtherCluster { .. } | EtcdCause::Tls { .. },
        ) => true,
        (_, cause) => cause.is_transient() && *cause != EtcdCause::Busy,
    }
}

fn parse_token(token: &str) -> Result<MetadataValue<Ascii>, EtcdCause> {
    let mut value = MetadataValue::try_from(token).map_err(|_| EtcdCause::AuthRefused)?;
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
