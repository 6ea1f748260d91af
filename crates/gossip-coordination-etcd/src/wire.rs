//! Transactions and reads of the store layer as messages of etcd, and the answers back.
//!
//! | store layer | etcd |
//! |---|---|
//! | the key is at revision r | `mod_revision == r` |
//! | the key is absent | `version == 0` |
//! | the range is empty | `version == 0` for the whole range, which only holds without keys |
//! | put, delete | put, delete of one key |
//! | bind | put with the lease of this process |
//!
//! A transaction that fails reads every key that it compared, in the same instant, so that the
//! response has the present values. A transaction without read-back reads nothing: the reads would
//! be sent and written to the raft log even if they are never executed.
//!
//! What it never does: send anything, or trust an answer. An answer of the wrong shape is
//! [`InfraError::Corruption`].

use std::slice;

use gossip_coordination::InfraError;
use gossip_coordination::store::{
    Answer, CommitOutcome, Compare, Conflict, Key, KeyRange, Page, Read, Txn, Versioned, Write,
};

use crate::keyspace::{KeySpan, Namespace};
use crate::proto::{
    self, CompareResult, CompareTarget, DeleteRangeRequest, KeyValue, PutRequest, RangeRequest,
    RangeResponse, Request, RequestOp, Response, ResponseOp, TargetUnion, TxnRequest, TxnResponse,
};

/// A placeholder for the lease of this process. No lease is longer when encoded, so a
/// request that is measured with it is never measured too small.
pub(crate) const SOME_LEASE: i64 = i64::MAX;

/// Returns the request of `txn`, with [`SOME_LEASE`] for the keys that it binds.
pub(crate) fn txn_request(namespace: &Namespace, txn: &Txn) -> TxnRequest {
    let (compares, writes) = (txn.compares(), txn.writes());
    let mut request = TxnRequest {
        compare: Vec::with_capacity(compares.len()),
        success: Vec::with_capacity(writes.len()),
        failure: Vec::with_capacity(if txn.is_without_read_back() { 0 } else { compares.len() }),
    };
    for compare in compares {
        // `None` for a range that is empty for ever: its compare always holds, so it is not sent.
        if let Some(target) = Target::of(namespace, compare) {
            if !txn.is_without_read_back() {
                request.failure.push(target.read());
            }
            request.compare.push(target.compare());
        }
    }
    request.success.extend(writes.iter().map(|write| write_op(namespace, write)));
    request
}

/// Puts `lease` where [`txn_request`] left room for it.
pub(crate) fn set_lease(request: &mut TxnRequest, lease: i64) {
    for op in &mut request.success {
        match &mut op.request {
            // Only keys to be bound carry the placeholder; other puts have no lease.
            Some(Request::Put(put)) if put.lease != 0 => put.lease = lease,
            Some(Request::Txn(nested)) => set_lease(nested, lease),
            Some(Request::Put(_) | Request::Range(_) | Request::DeleteRange(_)) | None => {}
        }
    }
}

/// Returns the outcome of `txn`, applied or a conflict, from the response to its own request, which
/// has all of its compares but the one that is `elsewhere`. `revision` is that of the outermost
/// transaction, which is the revision of everything in it.
pub(crate) fn outcome(
    namespace: &Namespace,
    txn: &Txn,
    elsewhere: Option<usize>,
    response: TxnResponse,
    revision: u64,
) -> Result<CommitOutcome, InfraError> {
    if response.succeeded {
        return Ok(CommitOutcome::Applied { revision });
    }
    if txn.is_without_read_back() {
        return conflict_without_values(txn);
    }
    // The shared compare held, or its group would have failed as a whole; it was not sent here.
    let compares = txn.compares().iter().enumerate();
    let said = compares.filter(|(index, _)| Some(*index) != elsewhere);
    conflict(namespace, said.map(|(_, compare)| compare), response.responses)
}

/// Returns the conflict of a transaction without read-back.
pub(crate) fn conflict_without_values(txn: &Txn) -> Result<CommitOutcome, InfraError> {
    Conflict::without_values(txn)
        .map(CommitOutcome::Conflict)
        .ok_or_else(|| protocol_mismatch("a transaction failed that compares nothing"))
}

/// Returns the conflict of a failed transaction: the keys whose compares do not hold, with their
/// present values from `answers`, one per compare. Corruption if an answer is missing or all hold.
pub(crate) fn conflict<'c>(
    namespace: &Namespace,
    compares: impl IntoIterator<Item = &'c Compare>,
    answers: impl IntoIterator<Item = ResponseOp>,
) -> Result<CommitOutcome, InfraError> {
    let mut answers = answers.into_iter();
    let mut found = Vec::new();
    for compare in compares {
        // Left out of the request as well, so no answer is taken for it.
        let Some(target) = Target::of(namespace, compare) else { continue };
        let range = range_answer(answers.next());
        let range = range.ok_or_else(|| protocol_mismatch("a compared key is not read back"))?;
        found.extend(target.broken_by(namespace, range)?);
    }
    // Compares and reads see one instant, so a failure without a broken compare contradicts itself.
    Conflict::new(found)
        .map(CommitOutcome::Conflict)
        .ok_or_else(|| protocol_mismatch("a transaction failed whose compares all hold"))
}

/// Returns the revision of a response; `None` if it has none.
pub(crate) fn revision(header: Option<&proto::ResponseHeader>) -> Option<u64> {
    let revision = header.and_then(|header| u64::try_from(header.revision).ok());
    // Nested responses have a header with revision zero; no commit does.
    revision.filter(|revision| *revision > 0)
}

/// What the server is asked by one read.
#[derive(Clone, Debug)]
pub(crate) enum Question {
    /// A range.
    One(RangeRequest),
    /// The first of these that has a key, or the last; at least one.
    FirstOf(Vec<RangeRequest>),
}

impl Question {
    /// Sets the revision at which it is read; zero is the latest.
    pub(crate) fn pin(&mut self, revision: i64) {
        match self {
            Self::One(range) => range.revision = revision,
            Self::FirstOf(ranges) => ranges.iter_mut().for_each(|it| it.revision = revision),
        }
    }

    /// Returns how deep its transactions are nested when it is a step of one.
    pub(crate) const fn depth(&self) -> usize {
        match self {
            Self::One(_) => 0,
            Self::FirstOf(ranges) => ranges.len().saturating_sub(1),
        }
    }

    /// Returns the question as one step of a transaction. Whether a range is empty is compared
    /// where it is read, so one request finds the first that is not, and the server reads no
    /// further.
    pub(crate) fn into_op(self) -> Option<RequestOp> {
        let mut ranges = match self {
            Self::One(range) => vec![range],
            Self::FirstOf(ranges) => ranges,
        };
        // The last range needs no compare: it is the answer even if it is empty.
        let last = Request::Range(ranges.pop()?).into();
        Some(ranges.into_iter().rfold(last, |further: RequestOp, range| {
            let (key, range_end) = (range.key.clone(), range.range_end.clone());
            Request::Txn(TxnRequest {
                compare: vec![is_empty(key, range_end)],
                success: vec![further],
                failure: vec![Request::Range(range).into()],
            })
            .into()
        }))
    }
}

/// Returns the requests of `reads`, in their order, each for at most `page` entries; `None` for a
/// read that has no entries in any case.
pub(crate) fn questions(
    namespace: &Namespace,
    reads: &[Read],
    page: usize,
) -> Vec<Option<Question>> {
    let limited = |range: &KeyRange, limit: usize| {
        // To the server a limit of zero is no limit, so such a read is not sent.
        let limit = i64::try_from(limit.min(page)).unwrap_or(i64::MAX);
        let span = namespace.span(range).filter(|_| limit > 0)?;
        Some(RangeRequest { limit, ..scan(span) })
    };
    let question = |read: &Read| match read {
        Read::Get(key) => Some(Question::One(get(namespace.key(key)))),
        Read::Scan { range, limit } => limited(range, *limit).map(Question::One),
        Read::Count(range) => {
            let range = scan(namespace.span(range)?);
            // Otherwise the server would send every key of the range.
            Some(Question::One(RangeRequest { count_only: true, ..range }))
        }
        Read::ScanFirst { ranges, limit } => {
            let ranges: Vec<_> = ranges.iter().filter_map(|it| limited(it, *limit)).collect();
            (!ranges.is_empty()).then_some(Question::FirstOf(ranges))
        }
    };
    reads.iter().map(question).collect()
}

/// Returns the answer to `read` from the response of the server. Corruption if there is no response
/// or it has other keys than those that were read.
pub(crate) fn answer(
    namespace: &Namespace,
    read: &Read,
    response: Option<RangeResponse>,
) -> Result<Answer, InfraError> {
    let response = response.ok_or_else(|| protocol_mismatch("a read is not answered"))?;
    Ok(match read {
        Read::Get(key) => Answer::Value(value_of(namespace, key, response)?),
        Read::Scan { range, limit } => {
            Answer::Page(page_of(namespace, slice::from_ref(range), *limit, response)?)
        }
        Read::ScanFirst { ranges, limit } => {
            Answer::Page(page_of(namespace, ranges, *limit, response)?)
        }
        Read::Count(_) => {
            let count = u64::try_from(response.count);
            Answer::Count(count.map_err(|_| protocol_mismatch("a count is negative"))?)
        }
    })
}

/// Returns the response to a range that was one step of a transaction; `None` if it is another
/// kind.
pub(crate) fn range_answer(answer: Option<ResponseOp>) -> Option<RangeResponse> {
    match answer?.response? {
        Response::Range(range) => Some(range),
        Response::Put(_) | Response::DeleteRange(_) | Response::Txn(_) => None,
    }
}

/// Returns the response to a [`Question`] that was one step of a transaction; `None` if it is
/// another kind. It is nested as deep as there are ranges, which are few.
pub(crate) fn question_answer(answer: Option<ResponseOp>) -> Option<RangeResponse> {
    let mut answer = answer?;
    // Each level has one step, whichever branch was taken.
    while let Some(Response::Txn(txn)) = answer.response {
        answer = txn.responses.into_iter().next()?;
    }
    range_answer(Some(answer))
}

/// Returns the response to a transaction that was one step of another; `None` if it is another
/// kind.
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
    /// Returns the target of a compare; `None` for a range that never has a key.
    fn of(namespace: &Namespace, compare: &'c Compare) -> Option<Self> {
        let (key, range_end) = match compare {
            Compare::At { key, .. } | Compare::Value { key, .. } | Compare::Absent(key) => {
                (namespace.key(key), Vec::new())
            }
            Compare::Empty(range) => {
                let KeySpan { start, end } = namespace.span(range)?;
                (start, end)
            }
        };
        Some(Self { compare, key, range_end })
    }

    fn compare(self) -> proto::Compare {
        match self.compare {
            Compare::At { revision, .. } => proto::Compare {
                result: CompareResult::Equal as i32,
                target: CompareTarget::Mod as i32,
                key: self.key,
                // etcd's revisions are signed. No key has the highest one, so the compare fails.
                target_union: Some(TargetUnion::ModRevision(
                    i64::try_from(*revision).unwrap_or(i64::MAX),
                )),
                range_end: self.range_end,
            },
            Compare::Value { value, .. } => proto::Compare {
                result: CompareResult::Equal as i32,
                target: CompareTarget::Value as i32,
                key: self.key,
                target_union: Some(TargetUnion::Value(value.to_vec())),
                range_end: self.range_end,
            },
            Compare::Absent(_) | Compare::Empty(_) => is_empty(self.key, self.range_end),
        }
    }

    /// Reads what the compare looks at; of a range, the first key.
    fn read(&self) -> RequestOp {
        // One key shows that a range is not empty. For a single key, zero means no limit.
        let limit = i64::from(!self.range_end.is_empty());
        let (key, range_end) = (self.key.clone(), self.range_end.clone());
        Request::Range(RangeRequest { key, range_end, limit, ..RangeRequest::default() }).into()
    }

    /// Returns the key and its present value if the compare does not hold for the read-back
    /// `range`, else `None`. For a range the key is its first one.
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
            Compare::Value { key, value: expected } => {
                let value = value_of(namespace, key, range)?;
                let is_as_expected = value.as_ref().is_some_and(|v| v.bytes == **expected);
                (!is_as_expected).then_some((*key, value))
            }
            Compare::Absent(key) => {
                let value = value_of(namespace, key, range)?;
                value.is_some().then_some((*key, value))
            }
            Compare::Empty(wanted) => {
                let first = page_of(namespace, slice::from_ref(wanted), 1, range)?.pop();
                first.map(|(key, value)| (key, Some(value)))
            }
        })
    }
}

/// Returns the compare that a range has no key or, without an end, that the key does not exist.
fn is_empty(key: Vec<u8>, range_end: Vec<u8>) -> proto::Compare {
    proto::Compare {
        result: CompareResult::Equal as i32,
        target: CompareTarget::Version as i32,
        key,
        target_union: Some(TargetUnion::Version(0)),
        range_end,
    }
}

/// Returns the operation of a write, with [`SOME_LEASE`] for a bound key.
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

/// Returns the value of `key` from the response to its read; `None` if the key is absent.
fn value_of(
    namespace: &Namespace,
    key: &Key,
    range: RangeResponse,
) -> Result<Option<Versioned>, InfraError> {
    let mut found = range.kvs.into_iter();
    let Some(first) = found.next() else {
        return Ok(None);
    };
    let (found_key, value) = entry(namespace, first)?;
    // A wrong answer must not become the record of another shard.
    if found_key != *key || found.next().is_some() {
        return Err(protocol_mismatch("a read is answered with another key"));
    }
    Ok(Some(value))
}

/// Returns at most `limit` keys of one of `ranges`, in their order. A response with other keys is
/// rejected: it would let one tenant work on the keys of another.
fn page_of(
    namespace: &Namespace,
    ranges: &[KeyRange],
    limit: usize,
    response: RangeResponse,
) -> Result<Page, InfraError> {
    let kvs = response.kvs;
    if kvs.len() > limit {
        return Err(protocol_mismatch("a page holds more keys than were asked for"));
    }
    let spans = || ranges.iter().filter_map(|range| namespace.span(range));
    if !kvs.is_empty() && !spans().any(|span| is_run_of_keys(&span, &kvs)) {
        return Err(protocol_mismatch("a page is not of the range that was asked for"));
    }
    kvs.into_iter().map(|kv| entry(namespace, kv)).collect()
}

/// Returns whether the keys rise and lie in `span`.
fn is_run_of_keys(span: &KeySpan, kvs: &[KeyValue]) -> bool {
    let rises = kvs.windows(2).all(|pair| pair[0].key < pair[1].key);
    let begins = kvs.first().is_none_or(|first| span.start <= first.key);
    let ends = kvs.last().is_none_or(|last| last.key < span.end);
    rises && begins && ends
}

fn entry(namespace: &Namespace, kv: KeyValue) -> Result<(Key, Versioned), InfraError> {
    let key = namespace.parse(&kv.key)?;
    // To etcd a missing key has revision zero, so a later compare with zero would hold for a key
    // that was deleted.
    let revision = u64::try_from(kv.mod_revision).ok().filter(|revision| *revision > 0);
    let revision = revision.ok_or_else(|| protocol_mismatch("a revision is not above zero"))?;
    Ok((key, Versioned { revision, bytes: kv.value }))
}

/// Returns the error for a response that does not fit its request.
fn protocol_mismatch(message: &str) -> InfraError {
    InfraError::Corruption { operation: "etcd.answer", message: message.to_owned() }
}
