//! The messages of etcd's v3 interface that we use, declared by their public field numbers.
//!
//! Only the fields that we use are declared; a field that a newer server adds is skipped when it
//! is decoded. There is no `.proto` file and no generated code, so the build needs no `protoc`.
//!
//! Messages that can hold a key, a value, a name or a secret have a `Debug` that shows lengths.

use std::fmt;

/// Writes `Debug` with the length of each secret field and the value of each other.
macro_rules! debug_by_length {
    ($name:ident { $($hidden:ident),* ; $($shown:ident),* }) => {
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($name))
                    $(.field(concat!(stringify!($hidden), "_len"), &self.$hidden.len()))*
                    $(.field(stringify!($shown), &self.$shown))*
                    .finish()
            }
        }
    };
}

/// Opens every answer.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ResponseHeader {
    /// The cluster that answered.
    #[prost(uint64, tag = "1")]
    pub cluster_id: u64,
    /// The member that answered.
    #[prost(uint64, tag = "2")]
    pub member_id: u64,
    /// The revision of the store when the request was applied; 0 inside a nested transaction.
    #[prost(int64, tag = "3")]
    pub revision: i64,
    /// The term of the consensus at that moment.
    #[prost(uint64, tag = "4")]
    pub raft_term: u64,
}

/// A key with its value and its history.
#[derive(Clone, PartialEq, prost::Message)]
#[prost(skip_debug)]
pub struct KeyValue {
    /// Never empty.
    #[prost(bytes = "vec", tag = "1")]
    pub key: Vec<u8>,
    /// The revision that created the key since it was last absent.
    #[prost(int64, tag = "2")]
    pub create_revision: i64,
    /// The revision that wrote it last.
    #[prost(int64, tag = "3")]
    pub mod_revision: i64,
    /// How often it was written since it was created, beginning with 1.
    #[prost(int64, tag = "4")]
    pub version: i64,
    /// Empty in answers to `keys_only`.
    #[prost(bytes = "vec", tag = "5")]
    pub value: Vec<u8>,
    /// The lease whose end deletes the key; 0 for none.
    #[prost(int64, tag = "6")]
    pub lease: i64,
}
debug_by_length!(KeyValue { key, value; create_revision, mod_revision, version, lease });

/// The order of a range's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, prost::Enumeration)]
#[expect(clippy::exhaustive_enums, reason = "the public interface has exactly these")]
#[repr(i32)]
pub enum SortOrder {
    /// By key, as it happens to be stored.
    None = 0,
    /// Smallest first.
    Ascend = 1,
    /// Largest first.
    Descend = 2,
}

/// What a range is sorted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, prost::Enumeration)]
#[expect(clippy::exhaustive_enums, reason = "the public interface has exactly these")]
#[repr(i32)]
pub enum SortTarget {
    /// The key's bytes.
    Key = 0,
    /// How often it was written.
    Version = 1,
    /// When it was created.
    Create = 2,
    /// When it was written last.
    Mod = 3,
    /// The value's bytes.
    Value = 4,
}

/// Asks for a key, or for the keys of a range.
#[derive(Clone, PartialEq, prost::Message)]
#[prost(skip_debug)]
pub struct RangeRequest {
    /// The key, or the first key of the range.
    #[prost(bytes = "vec", tag = "1")]
    pub key: Vec<u8>,
    /// The first key after the range; empty for one key, a single zero byte for "to the end".
    #[prost(bytes = "vec", tag = "2")]
    pub range_end: Vec<u8>,
    /// At most so many keys; 0 for all.
    #[prost(int64, tag = "3")]
    pub limit: i64,
    /// As of this revision; 0 for now.
    #[prost(int64, tag = "4")]
    pub revision: i64,
    /// The order of the answer.
    #[prost(enumeration = "SortOrder", tag = "5")]
    pub sort_order: i32,
    /// What it is ordered by.
    #[prost(enumeration = "SortTarget", tag = "6")]
    pub sort_target: i32,
    /// Answered by one member alone, perhaps with old news. We never set it.
    #[prost(bool, tag = "7")]
    pub serializable: bool,
    /// Leaves the values out.
    #[prost(bool, tag = "8")]
    pub keys_only: bool,
    /// Leaves the keys out as well.
    #[prost(bool, tag = "9")]
    pub count_only: bool,
}
debug_by_length!(RangeRequest {
    key, range_end; limit, revision, sort_order, sort_target, serializable, keys_only, count_only
});

/// The answer to a [`RangeRequest`].
#[derive(Clone, PartialEq, prost::Message)]
pub struct RangeResponse {
    /// Opens every answer.
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
    /// The keys, at most `limit`; none for `count_only`.
    #[prost(message, repeated, tag = "2")]
    pub kvs: Vec<KeyValue>,
    /// Whether `limit` cut some off.
    #[prost(bool, tag = "3")]
    pub more: bool,
    /// How many keys the range holds, whatever `limit` is.
    #[prost(int64, tag = "4")]
    pub count: i64,
}

/// Writes a key.
#[derive(Clone, PartialEq, prost::Message)]
#[prost(skip_debug)]
pub struct PutRequest {
    /// Never empty.
    #[prost(bytes = "vec", tag = "1")]
    pub key: Vec<u8>,
    /// May be empty.
    #[prost(bytes = "vec", tag = "2")]
    pub value: Vec<u8>,
    /// The lease whose end deletes the key; 0 for none. A put replaces the lease of the key.
    #[prost(int64, tag = "3")]
    pub lease: i64,
    /// Requests the previous value.
    #[prost(bool, tag = "4")]
    pub prev_kv: bool,
}
debug_by_length!(PutRequest { key, value; lease, prev_kv });

/// The answer to a [`PutRequest`].
#[derive(Clone, PartialEq, prost::Message)]
pub struct PutResponse {
    /// Opens every answer.
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
    /// The previous value, if requested.
    #[prost(message, optional, tag = "2")]
    pub prev_kv: Option<KeyValue>,
}

/// Deletes a key, or the keys of a range.
#[derive(Clone, PartialEq, prost::Message)]
#[prost(skip_debug)]
pub struct DeleteRangeRequest {
    /// The key, or the first key of the range.
    #[prost(bytes = "vec", tag = "1")]
    pub key: Vec<u8>,
    /// As in [`RangeRequest`].
    #[prost(bytes = "vec", tag = "2")]
    pub range_end: Vec<u8>,
    /// Requests the previous value.
    #[prost(bool, tag = "3")]
    pub prev_kv: bool,
}
debug_by_length!(DeleteRangeRequest { key, range_end; prev_kv });

/// The answer to a [`DeleteRangeRequest`].
#[derive(Clone, PartialEq, prost::Message)]
pub struct DeleteRangeResponse {
    /// Opens every answer.
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
    /// How many keys there were.
    #[prost(int64, tag = "2")]
    pub deleted: i64,
    /// The previous value, if requested.
    #[prost(message, repeated, tag = "3")]
    pub prev_kvs: Vec<KeyValue>,
}

/// One step of a transaction.
#[derive(Clone, PartialEq, prost::Message)]
pub struct RequestOp {
    /// `None` is refused by the server.
    #[prost(oneof = "Request", tags = "1, 2, 3, 4")]
    pub request: Option<Request>,
}

impl From<Request> for RequestOp {
    fn from(request: Request) -> Self {
        Self { request: Some(request) }
    }
}

/// The kinds of [`RequestOp`].
#[derive(Clone, PartialEq, prost::Oneof)]
#[expect(clippy::exhaustive_enums, reason = "the public interface has exactly these")]
pub enum Request {
    /// Reads.
    #[prost(message, tag = "1")]
    Range(RangeRequest),
    /// Writes one key.
    #[prost(message, tag = "2")]
    Put(PutRequest),
    /// Deletes.
    #[prost(message, tag = "3")]
    DeleteRange(DeleteRangeRequest),
    /// A transaction of its own, with compares and an outcome of its own.
    #[prost(message, tag = "4")]
    Txn(TxnRequest),
}

/// The answer to one step of a transaction.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ResponseOp {
    /// Of the same kind as its step.
    #[prost(oneof = "Response", tags = "1, 2, 3, 4")]
    pub response: Option<Response>,
}

impl From<Response> for ResponseOp {
    fn from(response: Response) -> Self {
        Self { response: Some(response) }
    }
}

/// The kinds of [`ResponseOp`].
#[derive(Clone, PartialEq, prost::Oneof)]
#[expect(clippy::exhaustive_enums, reason = "the public interface has exactly these")]
pub enum Response {
    /// Answers a range.
    #[prost(message, tag = "1")]
    Range(RangeResponse),
    /// Answers a put.
    #[prost(message, tag = "2")]
    Put(PutResponse),
    /// Answers a deletion.
    #[prost(message, tag = "3")]
    DeleteRange(DeleteRangeResponse),
    /// Answers a nested transaction.
    #[prost(message, tag = "4")]
    Txn(TxnResponse),
}

/// How a compare compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, prost::Enumeration)]
#[expect(clippy::exhaustive_enums, reason = "the public interface has exactly these")]
#[repr(i32)]
pub enum CompareResult {
    /// The same.
    Equal = 0,
    /// The present value is greater.
    Greater = 1,
    /// The present value is less.
    Less = 2,
    /// Not the same.
    NotEqual = 3,
}

/// What a compare looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, prost::Enumeration)]
#[expect(clippy::exhaustive_enums, reason = "the public interface has exactly these")]
#[repr(i32)]
pub enum CompareTarget {
    /// How often the key was written; 0 for an absent key.
    Version = 0,
    /// When it was created; 0 for an absent key.
    Create = 1,
    /// When it was written last; 0 for an absent key.
    Mod = 2,
    /// Its value; never holds for an absent key.
    Value = 3,
    /// Its lease; 0 for an absent key or no lease.
    Lease = 4,
}

/// A condition of a transaction, on one key or on every key of a range.
#[derive(Clone, PartialEq, prost::Message)]
#[prost(skip_debug)]
pub struct Compare {
    /// How.
    #[prost(enumeration = "CompareResult", tag = "1")]
    pub result: i32,
    /// What of the key.
    #[prost(enumeration = "CompareTarget", tag = "2")]
    pub target: i32,
    /// The key, or the first key of the range.
    #[prost(bytes = "vec", tag = "3")]
    pub key: Vec<u8>,
    /// What it is compared with; of the kind of `target`.
    #[prost(oneof = "TargetUnion", tags = "4, 5, 6, 7, 8")]
    pub target_union: Option<TargetUnion>,
    /// As in [`RangeRequest`]. Without a key in the range, the compare looks at an absent key.
    #[prost(bytes = "vec", tag = "64")]
    pub range_end: Vec<u8>,
}
debug_by_length!(Compare { key, range_end; result, target, target_union });

/// What a compare compares with.
#[derive(Clone, PartialEq, prost::Oneof)]
#[prost(skip_debug)]
#[expect(clippy::exhaustive_enums, reason = "the public interface has exactly these")]
pub enum TargetUnion {
    /// For [`CompareTarget::Version`].
    #[prost(int64, tag = "4")]
    Version(i64),
    /// For [`CompareTarget::Create`].
    #[prost(int64, tag = "5")]
    CreateRevision(i64),
    /// For [`CompareTarget::Mod`].
    #[prost(int64, tag = "6")]
    ModRevision(i64),
    /// For [`CompareTarget::Value`].
    #[prost(bytes = "vec", tag = "7")]
    Value(Vec<u8>),
    /// For [`CompareTarget::Lease`].
    #[prost(int64, tag = "8")]
    Lease(i64),
}

impl fmt::Debug for TargetUnion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Version(it) => write!(f, "Version({it})"),
            Self::CreateRevision(it) => write!(f, "CreateRevision({it})"),
            Self::ModRevision(it) => write!(f, "ModRevision({it})"),
            Self::Value(it) => write!(f, "Value({} bytes)", it.len()),
            Self::Lease(it) => write!(f, "Lease({it})"),
        }
    }
}

/// Steps that depend on conditions: `success` if every compare holds, else `failure`.
///
/// Every compare, also of nested transactions, looks at the state before the outermost transaction.
#[derive(Clone, PartialEq, prost::Message)]
pub struct TxnRequest {
    /// All must hold.
    #[prost(message, repeated, tag = "1")]
    pub compare: Vec<Compare>,
    /// Done if they do.
    #[prost(message, repeated, tag = "2")]
    pub success: Vec<RequestOp>,
    /// Done if one does not.
    #[prost(message, repeated, tag = "3")]
    pub failure: Vec<RequestOp>,
}

/// The answer to a [`TxnRequest`].
#[derive(Clone, PartialEq, prost::Message)]
pub struct TxnResponse {
    /// Opens every answer.
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
    /// Whether every compare held.
    #[prost(bool, tag = "2")]
    pub succeeded: bool,
    /// One answer for each step done, in order.
    #[prost(message, repeated, tag = "3")]
    pub responses: Vec<ResponseOp>,
}

/// Forgets what keys were before a revision.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct CompactionRequest {
    /// Everything before it that is not current any more is forgotten.
    #[prost(int64, tag = "1")]
    pub(crate) revision: i64,
    /// Answers only when the entries are out of the file.
    #[prost(bool, tag = "2")]
    pub(crate) physical: bool,
}

/// The answer to a [`CompactionRequest`].
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct CompactionResponse {
    /// Opens every answer.
    #[prost(message, optional, tag = "1")]
    pub(crate) header: Option<ResponseHeader>,
}

/// Asks for a lease.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct LeaseGrantRequest {
    /// Seconds; the server may give more.
    #[prost(int64, tag = "1")]
    pub(crate) ttl: i64,
    /// 0 lets the server choose.
    #[prost(int64, tag = "2")]
    pub(crate) id: i64,
}

/// The answer to a [`LeaseGrantRequest`].
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct LeaseGrantResponse {
    /// Opens every answer.
    #[prost(message, optional, tag = "1")]
    pub(crate) header: Option<ResponseHeader>,
    /// The lease.
    #[prost(int64, tag = "2")]
    pub(crate) id: i64,
    /// Seconds granted.
    #[prost(int64, tag = "3")]
    pub(crate) ttl: i64,
    /// Empty, unless the lease was refused.
    #[prost(string, tag = "4")]
    pub(crate) error: String,
}

/// Ends a lease and deletes its keys.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct LeaseRevokeRequest {
    /// The lease.
    #[prost(int64, tag = "1")]
    pub(crate) id: i64,
}

/// The answer to a [`LeaseRevokeRequest`].
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct LeaseRevokeResponse {
    /// Opens every answer.
    #[prost(message, optional, tag = "1")]
    pub(crate) header: Option<ResponseHeader>,
}

/// Keeps a lease; sent on a stream.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct LeaseKeepAliveRequest {
    /// The lease.
    #[prost(int64, tag = "1")]
    pub(crate) id: i64,
}

/// The answer to a [`LeaseKeepAliveRequest`].
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct LeaseKeepAliveResponse {
    /// Opens every answer.
    #[prost(message, optional, tag = "1")]
    pub(crate) header: Option<ResponseHeader>,
    /// The lease.
    #[prost(int64, tag = "2")]
    pub(crate) id: i64,
    /// Seconds from now; 0 if there is no such lease.
    #[prost(int64, tag = "3")]
    pub(crate) ttl: i64,
}

/// Asks how long a lease has to live.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct LeaseTimeToLiveRequest {
    /// The lease.
    #[prost(int64, tag = "1")]
    pub(crate) id: i64,
    /// Asks for the keys attached to it as well.
    #[prost(bool, tag = "2")]
    pub(crate) keys: bool,
}

/// The answer to a [`LeaseTimeToLiveRequest`].
#[derive(Clone, PartialEq, prost::Message)]
#[prost(skip_debug)]
pub(crate) struct LeaseTimeToLiveResponse {
    /// Opens every answer.
    #[prost(message, optional, tag = "1")]
    pub(crate) header: Option<ResponseHeader>,
    /// The lease.
    #[prost(int64, tag = "2")]
    pub(crate) id: i64,
    /// Seconds left; -1 if there is no such lease.
    #[prost(int64, tag = "3")]
    pub(crate) ttl: i64,
    /// Seconds granted.
    #[prost(int64, tag = "4")]
    pub(crate) granted_ttl: i64,
    /// The keys attached to it, if they were asked for.
    #[prost(bytes = "vec", repeated, tag = "5")]
    pub(crate) keys: Vec<Vec<u8>>,
}
debug_by_length!(LeaseTimeToLiveResponse { keys; header, id, ttl, granted_ttl });

/// Asks for a token.
#[derive(Clone, PartialEq, prost::Message)]
#[prost(skip_debug)]
pub(crate) struct AuthenticateRequest {
    /// The user.
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    /// The password.
    #[prost(string, tag = "2")]
    pub(crate) password: String,
}
debug_by_length!(AuthenticateRequest { name, password; });

/// The answer to an [`AuthenticateRequest`].
#[derive(Clone, PartialEq, prost::Message)]
#[prost(skip_debug)]
pub(crate) struct AuthenticateResponse {
    /// Opens every answer.
    #[prost(message, optional, tag = "1")]
    pub(crate) header: Option<ResponseHeader>,
    /// Sent with every later request.
    #[prost(string, tag = "2")]
    pub(crate) token: String,
}
debug_by_length!(AuthenticateResponse { token; header });

/// Asks a member how it is.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct StatusRequest {}

/// The answer to a request for the status of a member.
#[derive(Clone, PartialEq, prost::Message)]
pub struct StatusResponse {
    /// Opens every answer.
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
    /// The server's version, as `3.4.23`.
    #[prost(string, tag = "2")]
    pub version: String,
    /// Bytes of the database file.
    #[prost(int64, tag = "3")]
    pub db_size: i64,
    /// The leader as this member sees it; 0 for none.
    #[prost(uint64, tag = "4")]
    pub leader: u64,
    /// The member's place in the log.
    #[prost(uint64, tag = "5")]
    pub raft_index: u64,
    /// The term it is in.
    #[prost(uint64, tag = "6")]
    pub raft_term: u64,
    /// What it has applied of the log.
    #[prost(uint64, tag = "7")]
    pub raft_applied_index: u64,
    /// Alarms and the like, in words.
    #[prost(string, repeated, tag = "8")]
    pub errors: Vec<String>,
    /// Bytes of the database file that hold data.
    #[prost(int64, tag = "9")]
    pub db_size_in_use: i64,
    /// Whether it does not vote.
    #[prost(bool, tag = "10")]
    pub is_learner: bool,
}

/// The action on an alarm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub(crate) enum AlarmAction {
    /// Lists.
    Get = 0,
    /// Raises.
    Activate = 1,
    /// Takes back.
    Deactivate = 2,
}

/// The kinds of alarm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub(crate) enum AlarmType {
    /// Every kind, when asking.
    None = 0,
    /// The database has reached its quota; writes are refused.
    NoSpace = 1,
    /// Members disagree about the data.
    Corrupt = 2,
}

/// Lists, raises or takes back alarms.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct AlarmRequest {
    /// What to do.
    #[prost(enumeration = "AlarmAction", tag = "1")]
    pub(crate) action: i32,
    /// The member; 0 for all.
    #[prost(uint64, tag = "2")]
    pub(crate) member_id: u64,
    /// The kind.
    #[prost(enumeration = "AlarmType", tag = "3")]
    pub(crate) alarm: i32,
}

/// An alarm of a member.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct AlarmMember {
    /// The member.
    #[prost(uint64, tag = "1")]
    pub(crate) member_id: u64,
    /// The kind.
    #[prost(enumeration = "AlarmType", tag = "2")]
    pub(crate) alarm: i32,
}

/// The answer to an [`AlarmRequest`].
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct AlarmResponse {
    /// Opens every answer.
    #[prost(message, optional, tag = "1")]
    pub(crate) header: Option<ResponseHeader>,
    /// The alarms that were meant.
    #[prost(message, repeated, tag = "2")]
    pub(crate) alarms: Vec<AlarmMember>,
}

/// Gives back the space that compaction freed; the member does nothing else meanwhile.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct DefragmentRequest {}

/// The answer to a [`DefragmentRequest`].
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct DefragmentResponse {
    /// Opens every answer.
    #[prost(message, optional, tag = "1")]
    pub(crate) header: Option<ResponseHeader>,
}
