//! Transactions and reads of the store layer as messages of etcd, and the answers back.
//!
//! | the store layer says | etcd is told |
//! |---|---|
//! | the key is at revision r | `mod_revision == r` |
//! | the key is absent | `version == 0` |
//! | the range is empty | `version == 0` for the whole range, which only holds without keys |
//! | put, delete | put, delete of one key |
//! | bind | put with the lease of this process |
//!
//! A transaction that fails reads every key that it compared, in the same instant, so that the
//! answer tells what is there now.
//!
//! What it never does: send anything, or trust an answer. An answer of the wrong shape is
//! [`InfraError::Corruption`].

use gossip_coordination::InfraError;
use gossip_coordination::store::{
    Answer, CommitOutcome, Compare, Conflict, Key, Page, Read, Txn, Versioned, Write,
};

use crate::keyspace::{KeySpan, Namespace};
use crate::proto::{
    self, CompareResult, CompareTarget, DeleteRangeRequest, KeyValue, PutRequest, RangeRequest,
    RangeResponse, Request, RequestOp, Response, ResponseOp, TargetUnion, TxnRequest, TxnResponse,
};

/// Stands for the lease of this process until it is known. No lease is longer when encoded, so a
/// request that is measured with it is never measured too small.
pub(crate) const SOME_LEASE: i64 = i64::MAX;

/// The request of `txn`, with [`SOME_LEASE`] for the keys that it binds.
pub(crate) fn txn_request(namespace: &Namespace, txn: &Txn) -> TxnRequest {
    let mut request = TxnRequest::default();
    for compare in txn.compares() {
        // A range whose ends are the wrong way round is empty for ever.
        if let Some(target) = Target::of(namespace, compare) {
            request.failure.push(target.read());
            request.compare.push(target.compare());
        }
    }
    request.success.extend(txn.writes().iter().map(|write| write_op(namespace, write)));
    request
}

/// Puts `lease` where [`txn_request`] left room for it.
pub(crate) fn set_lease(request: &mut TxnRequest, lease: i64) {
    for op in &mut request.success {
        match &mut op.request {
            Some(Request::Put(put)) if put.lease != 0 => put.lease = lease,
            Some(Request::Txn(nested)) => set_lease(nested, lease),
            Some(Request::Put(_) | Request::Range(_) | Request::DeleteRange(_)) | None => {}
        }
    }
}

/// What became of a transaction with `compares`, from the answer to its own request. `revision` is
/// that of the outermost transaction, which is the revision of everything in it.
pub(crate) fn outcome<'c>(
    namespace: &Namespace,
    compares: impl IntoIterator<Item = &'c Compare>,
    response: TxnResponse,
    revision: u64,
) -> Result<CommitOutcome, InfraError> {
    if response.succeeded {
        return Ok(CommitOutcome::Applied { revision });
    }
    conflict(namespace, compares, response.responses)
}

/// The conflict of a transaction with `compares`, of which at least one failed.
pub(crate) fn conflict<'c>(
    namespace: &Namespace,
    compares: impl IntoIterator<Item = &'c Compare>,
    answers: impl IntoIterator<Item = ResponseOp>,
) -> Result<CommitOutcome, InfraError> {
    let mut answers = answers.into_iter();
    let mut found = Vec::new();
    for compare in compares {
        let Some(target) = Target::of(namespace, compare) else { continue };
        let range = range_answer(answers.next());
        let range = range.ok_or_else(|| crossed("a compared key is not told"))?;
        found.extend(target.broken_by(namespace, range)?);
    }
    Conflict::new(found)
        .map(CommitOutcome::Conflict)
        .ok_or_else(|| crossed("a transaction failed whose compares all hold"))
}

/// The revision that an answer was given at; `None` if it does not say so.
pub(crate) fn revision(header: Option<&proto::ResponseHeader>) -> Option<u64> {
    let revision = header.and_then(|header| u64::try_from(header.revision).ok());
    revision.filter(|revision| *revision > 0)
}

/// The requests of `reads`, in their order; `None` where nothing need be asked.
pub(crate) fn read_requests(
    namespace: &Namespace,
    reads: &[Read],
    page: usize,
) -> Vec<Option<RangeRequest>> {
    let request = |read: &Read| match read {
        Read::Get(key) => Some(get(namespace.key(key))),
        Read::Scan { range, limit } => {
            // Zero would mean no limit at all to the server.
            let limit = i64::try_from((*limit).min(page)).unwrap_or(i64::MAX);
            let span = namespace.span(range).filter(|_| limit > 0)?;
            Some(RangeRequest { limit, ..scan(span) })
        }
        Read::Count(range) => {
            Some(RangeRequest { count_only: true, ..scan(namespace.span(range)?) })
        }
    };
    reads.iter().map(request).collect()
}

/// The answer to `read`, from what the server said.
pub(crate) fn answer(
    namespace: &Namespace,
    read: &Read,
    response: Option<RangeResponse>,
) -> Result<Answer, InfraError> {
    let response = response.ok_or_else(|| crossed("a read is not answered"))?;
    Ok(match read {
        Read::Get(key) => Answer::Value(value_of(namespace, key, response)?),
        Read::Scan { .. } => Answer::Page(page_of(namespace, response)?),
        Read::Count(_) => {
            let count = u64::try_from(response.count);
            Answer::Count(count.map_err(|_| crossed("a count is negative"))?)
        }
    })
}

/// The answer to a range that was one step of a transaction; `None` if that is not what it is.
pub(crate) fn range_answer(answer: Option<ResponseOp>) -> Option<RangeResponse> {
    match answer?.response? {
        Response::Range(range) => Some(range),
        Response::Put(_) | Response::DeleteRange(_) | Response::Txn(_) => None,
    }
}

/// The answer to a transaction that was one step of another; `None` if that is not what it is.
pub(crate) fn txn_answer(answer: Option<ResponseOp>) -> Option<TxnResponse> {
    match answer?.response? {
        Response::Txn(txn) => Some(txn),
        Response::Put(_) | Response::DeleteRange(_) | Response::Range(_) => None,
    }
}

/// What a compare is about, in etcd's keys.
struct Target<'c> {
    compare: &'c Compare,
    key: Vec<u8>,
    /// Empty for a single key.
    range_end: Vec<u8>,
}

impl<'c> Target<'c> {
    /// `None` for a range that holds no key for ever.
    fn of(namespace: &Namespace, compare: &'c Compare) -> Option<Self> {
        let (key, range_end) = match compare {
            Compare::At { key, .. } | Compare::Absent(key) => (namespace.key(key), Vec::new()),
            Compare::Empty(range) => {
                let KeySpan { start, end } = namespace.span(range)?;
                (start, end)
            }
        };
        Some(Self { compare, key, range_end })
    }

    fn compare(self) -> proto::Compare {
        let (target, union) = match self.compare {
            // A revision that etcd cannot have is one that no key is at.
            Compare::At { revision, .. } => {
                let revision = i64::try_from(*revision).unwrap_or(i64::MAX);
                (CompareTarget::Mod, TargetUnion::ModRevision(revision))
            }
            Compare::Absent(_) | Compare::Empty(_) => {
                (CompareTarget::Version, TargetUnion::Version(0))
            }
        };
        proto::Compare {
            result: CompareResult::Equal as i32,
            target: target as i32,
            key: self.key,
            target_union: Some(union),
            range_end: self.range_end,
        }
    }

    /// Reads what the compare looks at; of a range, the first key.
    fn read(&self) -> RequestOp {
        let limit = i64::from(!self.range_end.is_empty());
        let (key, range_end) = (self.key.clone(), self.range_end.clone());
        Request::Range(RangeRequest { key, range_end, limit, ..RangeRequest::default() }).into()
    }

    /// The key that is not as expected, with what is there.
    fn broken_by(
        &self,
        namespace: &Namespace,
        range: RangeResponse,
    ) -> Result<Option<(Key, Option<Versioned>)>, InfraError> {
        Ok(match self.compare {
            Compare::At { key, revision } => {
                let value = value_of(namespace, key, range)?;
                let is_as_expected = value.as_ref().is_some_and(|v| v.revision == *revision);
                (!is_as_expected).then_some((*key, value))
            }
            Compare::Absent(key) => {
                let value = value_of(namespace, key, range)?;
                value.is_some().then_some((*key, value))
            }
            Compare::Empty(_) => {
                let first = page_of(namespace, range)?.into_iter().next();
                first.map(|(key, value)| (key, Some(value)))
            }
        })
    }
}

fn write_op(namespace: &Namespace, write: &Write) -> RequestOp {
    let put = |key: &Key, bytes: &[u8], lease| {
        let (key, value) = (namespace.key(key), bytes.to_vec());
        Request::Put(PutRequest { key, value, lease, prev_kv: false })
    };
    let request = match write {
        Write::Put(key, bytes) => put(key, bytes, 0),
        Write::Bind(key, bytes) => put(key, bytes, SOME_LEASE),
        Write::Delete(key) => Request::DeleteRange(DeleteRangeRequest {
            key: namespace.key(key),
            ..DeleteRangeRequest::default()
        }),
    };
    request.into()
}

fn get(key: Vec<u8>) -> RangeRequest {
    RangeRequest { key, ..RangeRequest::default() }
}

fn scan(KeySpan { start, end }: KeySpan) -> RangeRequest {
    RangeRequest { key: start, range_end: end, ..RangeRequest::default() }
}

fn value_of(
    namespace: &Namespace,
    key: &Key,
    range: RangeResponse,
) -> Result<Option<Versioned>, InfraError> {
    let Some((found, value)) = page_of(namespace, range)?.into_iter().next() else {
        return Ok(None);
    };
    if found != *key {
        return Err(crossed("a read is answered with another key"));
    }
    Ok(Some(value))
}

fn page_of(namespace: &Namespace, range: RangeResponse) -> Result<Page, InfraError> {
    range.kvs.into_iter().map(|kv| entry(namespace, kv)).collect()
}

fn entry(namespace: &Namespace, kv: KeyValue) -> Result<(Key, Versioned), InfraError> {
    let key = namespace.parse(&kv.key)?;
    let revision = u64::try_from(kv.mod_revision);
    let revision = revision.map_err(|_| crossed("a revision is negative"))?;
    Ok((key, Versioned { revision, bytes: kv.value }))
}

/// An answer that does not fit its question.
fn crossed(message: &str) -> InfraError {
    InfraError::Corruption { operation: "etcd.answer", message: message.to_owned() }
}
