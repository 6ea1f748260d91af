//! The state of a server: keys with their history, leases, a revision that every write raises.
//!
//! Pure: time advances only on request, nothing is random, and a refused request changes nothing.
//! Each transaction that writes raises the revision by exactly one.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use gossip_coordination_etcd::EtcdCause;
use gossip_coordination_etcd::proto::{
    Compare, CompareResult, CompareTarget, DeleteRangeRequest, DeleteRangeResponse, KeyValue,
    PutRequest, PutResponse, RangeRequest, RangeResponse, Request, RequestOp, Response,
    ResponseHeader, ResponseOp, SortOrder, SortTarget, TargetUnion, TxnRequest, TxnResponse,
};

/// The least life of a lease, in seconds: one and a half election timeouts, rounded up.
const MIN_LEASE_SECONDS: i64 = 2;

/// The revision of a server that holds nothing.
const FIRST_REVISION: i64 = 1;

/// The keys from one to another.
#[derive(Clone, Debug)]
pub(super) struct Span {
    start: Vec<u8>,
    /// The first key after it; `None` for no end.
    end: Option<Vec<u8>>,
}

impl Span {
    /// As requests write it: an empty end for one key, a zero byte for "to the end".
    pub(super) fn new(key: &[u8], range_end: &[u8]) -> Self {
        let end = match range_end {
            // The next key after `key` is `key` with a zero byte.
            [] => Some([key, &[0]].concat()),
            [0] => None,
            end => Some(end.to_vec()),
        };
        Self { start: key.to_vec(), end }
    }

    /// As the gate reads it, which does not know that a zero byte means "to the end": to it, such
    /// a span is empty.
    pub(super) fn as_written(key: &[u8], range_end: &[u8]) -> Self {
        match range_end {
            [0] => Self { start: key.to_vec(), end: Some(vec![0]) },
            end => Self::new(key, end),
        }
    }

    pub(super) fn contains(&self, key: &[u8]) -> bool {
        key >= self.start.as_slice() && self.end.as_ref().is_none_or(|end| key < end.as_slice())
    }

    /// For a map; `None` if nothing can be in it.
    fn bounds(&self) -> Option<Bounds<'_>> {
        match &self.end {
            None => Some((Bound::Included(&self.start), Bound::Unbounded)),
            Some(end) if *end > self.start => {
                Some((Bound::Included(&self.start), Bound::Excluded(end)))
            }
            Some(_) => None,
        }
    }
}

/// As a map takes them.
type Bounds<'a> = (Bound<&'a [u8]>, Bound<&'a [u8]>);

/// What one key was, oldest first; `None` for its absence. Never empty.
type History = Vec<(i64, Option<KeyValue>)>;

/// A lease and the keys that end with it.
#[derive(Clone, Debug)]
struct LeaseState {
    ttl_seconds: i64,
    /// By the model's clock.
    expires_at: u64,
    keys: BTreeSet<Vec<u8>>,
}

/// Keys, leases, revision.
#[derive(Clone, Debug)]
pub(super) struct State {
    revision: i64,
    /// Reads before it are refused.
    compacted: i64,
    keys: BTreeMap<Vec<u8>, History>,
    leases: BTreeMap<i64, LeaseState>,
    next_lease: i64,
}

impl State {
    pub(super) fn new() -> Self {
        Self {
            revision: FIRST_REVISION,
            compacted: -1,
            keys: BTreeMap::new(),
            leases: BTreeMap::new(),
            next_lease: 1,
        }
    }

    pub(super) fn revision(&self) -> i64 {
        self.revision
    }

    /// Gives every lease its whole life again, as a new leader does.
    pub(super) fn restart_leases(&mut self, now: u64) {
        for lease in self.leases.values_mut() {
            let millis = lease.ttl_seconds.unsigned_abs().saturating_mul(1_000);
            lease.expires_at = now.saturating_add(millis);
        }
    }

    /// Reads.
    pub(super) fn range(&self, request: &RangeRequest) -> Result<RangeResponse, EtcdCause> {
        if request.key.is_empty() {
            return Err(EtcdCause::BadRequest("a key is empty"));
        }
        self.check_revision(request.revision)?;
        Ok(self.answer_range(request, self.revision))
    }

    /// Does a transaction that has passed the gate.
    ///
    /// Every compare is decided first, those of nested transactions too; then what would be
    /// refused is looked for; only then is anything written.
    pub(super) fn txn(&mut self, request: &TxnRequest) -> Result<TxnResponse, EtcdCause> {
        let path = self.decide(request);
        self.check_puts(request, &path)?;
        self.check_ranges(request, &path)?;
        let mut writer = Writer { revision: self.revision + 1, has_written: false, state: self };
        let mut answer = writer.run(request, &path);
        let revision = writer.now();
        self.revision = revision;
        answer.header = Some(header(revision));
        Ok(answer)
    }

    /// Grants a lease; its name and its seconds.
    pub(super) fn grant(&mut self, ttl_seconds: i64, now: u64) -> (i64, i64) {
        let ttl_seconds = ttl_seconds.max(MIN_LEASE_SECONDS);
        let id = self.next_lease;
        self.next_lease += 1;
        let expires_at = expiry(now, ttl_seconds);
        self.leases.insert(id, LeaseState { ttl_seconds, expires_at, keys: BTreeSet::new() });
        (id, ttl_seconds)
    }

    /// Begins a lease's life anew; its seconds.
    pub(super) fn keep_alive(&mut self, lease: i64, now: u64) -> Option<i64> {
        let state = self.leases.get_mut(&lease)?;
        state.expires_at = expiry(now, state.ttl_seconds);
        Some(state.ttl_seconds)
    }

    /// Seconds left and granted.
    pub(super) fn time_to_live(&self, lease: i64, now: u64) -> Option<(i64, i64)> {
        let state = self.leases.get(&lease)?;
        let left = state.expires_at.saturating_sub(now) / MILLIS;
        Some((i64::try_from(left).unwrap_or(i64::MAX), state.ttl_seconds))
    }

    /// Ends a lease. Its keys go in one revision; without keys there is none.
    pub(super) fn revoke(&mut self, lease: i64) -> Result<(), EtcdCause> {
        let state = self.leases.remove(&lease).ok_or(EtcdCause::LeaseNotFound)?;
        let mut writer = Writer { revision: self.revision + 1, has_written: false, state: self };
        for key in &state.keys {
            writer.delete(key);
        }
        self.revision = writer.now();
        Ok(())
    }

    /// Ends every lease whose time has come.
    pub(super) fn expire(&mut self, now: u64) {
        self.revoke_where(|lease| lease.expires_at <= now);
    }

    /// Ends every lease, whatever its time.
    pub(super) fn expire_all(&mut self) {
        self.revoke_where(|_| true);
    }

    fn revoke_where(&mut self, is_due: impl Fn(&LeaseState) -> bool) {
        let due = self.leases.iter().filter(|(_, it)| is_due(it)).map(|(id, _)| *id);
        for lease in due.collect::<Vec<_>>() {
            self.revoke(lease).expect("a lease that was just listed is there");
        }
    }

    /// Forgets what keys were before a revision.
    pub(super) fn compact(&mut self, revision: i64) -> Result<(), EtcdCause> {
        if revision <= self.compacted {
            return Err(EtcdCause::Compacted);
        }
        if revision > self.revision {
            return Err(EtcdCause::FutureRevision);
        }
        self.compacted = revision;
        self.keys.retain(|_, history| {
            // The last entry at or before the revision is still what the key was at it.
            let kept = history.partition_point(|(at, _)| *at <= revision).saturating_sub(1);
            history.drain(..kept);
            !matches!(history.as_slice(), [(at, None)] if *at <= revision)
        });
        Ok(())
    }

    fn check_revision(&self, revision: i64) -> Result<(), EtcdCause> {
        match revision {
            ..=0 => Ok(()),
            _ if revision > self.revision => Err(EtcdCause::FutureRevision),
            _ if revision < self.compacted => Err(EtcdCause::Compacted),
            _ => Ok(()),
        }
    }

    /// Puts of the steps that will be done must name leases that exist.
    fn check_puts(&self, request: &TxnRequest, path: &Path) -> Result<(), EtcdCause> {
        for_each_step(request, path, &mut |step| match step {
            Request::Put(put) if put.lease != 0 && !self.leases.contains_key(&put.lease) => {
                Err(EtcdCause::LeaseNotFound)
            }
            Request::Put(_) | Request::Range(_) | Request::DeleteRange(_) | Request::Txn(_) => {
                Ok(())
            }
        })
    }

    /// Ranges of the steps that will be done must name revisions that are kept.
    fn check_ranges(&self, request: &TxnRequest, path: &Path) -> Result<(), EtcdCause> {
        for_each_step(request, path, &mut |step| match step {
            Request::Range(range) => self.check_revision(range.revision),
            Request::Put(_) | Request::DeleteRange(_) | Request::Txn(_) => Ok(()),
        })
    }

    /// Which way a transaction goes, and each nested one that it will do.
    fn decide(&self, request: &TxnRequest) -> Path {
        let succeeded = request.compare.iter().all(|compare| self.holds(compare));
        let nested = steps(request, succeeded).iter().filter_map(|step| match &step.request {
            Some(Request::Txn(inner)) => Some(self.decide(inner)),
            None | Some(Request::Range(_) | Request::Put(_) | Request::DeleteRange(_)) => None,
        });
        Path { succeeded, nested: nested.collect() }
    }

    /// Whether a compare holds: for every key of its range, or for an absent key if there is none.
    fn holds(&self, compare: &Compare) -> bool {
        let span = Span::new(&compare.key, &compare.range_end);
        let mut found = self.live(&span, self.revision).peekable();
        if found.peek().is_none() {
            // No value is different from every value, even from an empty one.
            return compare.target() != CompareTarget::Value
                && compares(compare, &KeyValue::default());
        }
        found.all(|kv| compares(compare, kv))
    }

    /// The keys of a span that existed at a revision, in order.
    fn live(&self, span: &Span, revision: i64) -> impl Iterator<Item = &KeyValue> {
        let bounds = span.bounds();
        let entries = bounds.map(|bounds| self.keys.range::<[u8], _>(bounds));
        entries.into_iter().flatten().filter_map(move |(_, history)| at(history, revision))
    }

    /// Answers a range request; `now` is the revision in the response header.
    fn answer_range(&self, request: &RangeRequest, now: i64) -> RangeResponse {
        let revision = if request.revision > 0 { request.revision } else { now };
        let span = Span::new(&request.key, &request.range_end);
        let header = Some(header(now));
        let count = self.live(&span, revision).count();
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        if request.count_only {
            return RangeResponse { header, count, ..RangeResponse::default() };
        }
        let limit = usize::try_from(request.limit).unwrap_or(0);
        let limit = if limit == 0 { usize::MAX } else { limit };
        let mut kvs = self.sorted(request, &span, revision, limit);
        let more = kvs.len() > limit;
        kvs.truncate(limit);
        if request.keys_only {
            kvs.iter_mut().for_each(|kv| kv.value.clear());
        }
        RangeResponse { header, kvs, more, count }
    }

    /// The keys of a range in the order asked for, one more than `limit` if there are so many.
    fn sorted(
        &self,
        request: &RangeRequest,
        span: &Span,
        revision: i64,
        limit: usize,
    ) -> Vec<KeyValue> {
        let target = request.sort_target();
        let order = request.sort_order();
        let fetched = match order {
            // Sorted after it was cut off, as the server does it.
            SortOrder::None => limit.saturating_add(1),
            SortOrder::Ascend | SortOrder::Descend => usize::MAX,
        };
        let mut kvs: Vec<KeyValue> = self.live(span, revision).take(fetched).cloned().collect();
        match order {
            SortOrder::None | SortOrder::Ascend => kvs.sort_by(|a, b| by(target, a, b)),
            SortOrder::Descend => kvs.sort_by(|a, b| by(target, b, a)),
        }
        kvs
    }
}

/// A transaction that is being applied: all its writes have the same revision, and later steps see
/// the writes of earlier ones.
struct Writer<'a> {
    state: &'a mut State,
    /// Of everything that it writes.
    revision: i64,
    has_written: bool,
}

impl Writer<'_> {
    /// The revision as the steps so far have left it.
    fn now(&self) -> i64 {
        if self.has_written { self.revision } else { self.revision - 1 }
    }

    fn run(&mut self, request: &TxnRequest, path: &Path) -> TxnResponse {
        let mut nested = path.nested.iter();
        let mut responses: Vec<ResponseOp> = Vec::new();
        for step in steps(request, path.succeeded).iter().filter_map(|it| it.request.as_ref()) {
            let response = match step {
                Request::Range(it) => Response::Range(self.state.answer_range(it, self.now())),
                Request::Put(it) => Response::Put(self.put(it)),
                Request::DeleteRange(it) => Response::DeleteRange(self.delete_range(it)),
                Request::Txn(it) => {
                    let path = nested.next().expect("every nested transaction was decided");
                    Response::Txn(self.run(it, path))
                }
            };
            responses.push(response.into());
        }
        // The server leaves the revision of a nested answer open.
        TxnResponse { header: Some(header(0)), succeeded: path.succeeded, responses }
    }

    fn put(&mut self, put: &PutRequest) -> PutResponse {
        let history = self.state.keys.entry(put.key.clone()).or_default();
        let before = at(history, self.revision).cloned();
        let (create_revision, version) = match &before {
            Some(kv) => (kv.create_revision, kv.version + 1),
            None => (self.revision, 1),
        };
        let kv = KeyValue {
            key: put.key.clone(),
            create_revision,
            mod_revision: self.revision,
            version,
            value: put.value.clone(),
            lease: put.lease,
        };
        history.push((self.revision, Some(kv)));
        self.has_written = true;
        self.state.detach(before.as_ref());
        if let Some(lease) = self.state.leases.get_mut(&put.lease) {
            lease.keys.insert(put.key.clone());
        }
        let prev_kv = before.filter(|_| put.prev_kv);
        PutResponse { header: Some(header(self.revision)), prev_kv }
    }

    fn delete_range(&mut self, request: &DeleteRangeRequest) -> DeleteRangeResponse {
        let span = Span::new(&request.key, &request.range_end);
        let found: Vec<KeyValue> = self.state.live(&span, self.revision).cloned().collect();
        for kv in &found {
            self.delete(&kv.key);
        }
        let deleted = i64::try_from(found.len()).unwrap_or(i64::MAX);
        let prev_kvs = if request.prev_kv { found } else { Vec::new() };
        DeleteRangeResponse { header: Some(header(self.now())), deleted, prev_kvs }
    }

    /// Deletes a key, if it is there.
    fn delete(&mut self, key: &[u8]) {
        let Some(history) = self.state.keys.get_mut(key) else { return };
        let Some(before) = at(history, self.revision).cloned() else { return };
        history.push((self.revision, None));
        self.has_written = true;
        self.state.detach(Some(&before));
    }
}

impl State {
    /// Unties a key from its lease.
    fn detach(&mut self, kv: Option<&KeyValue>) {
        if let Some(kv) = kv
            && let Some(lease) = self.leases.get_mut(&kv.lease)
        {
            lease.keys.remove(&kv.key);
        }
    }
}

/// Which way a transaction went, and the nested ones of the list that was done, in order.
struct Path {
    succeeded: bool,
    nested: Vec<Self>,
}

/// Calls `check` with every step that will be done, in order, nested ones included.
fn for_each_step(
    request: &TxnRequest,
    path: &Path,
    check: &mut impl FnMut(&Request) -> Result<(), EtcdCause>,
) -> Result<(), EtcdCause> {
    let mut nested = path.nested.iter();
    for step in steps(request, path.succeeded).iter().filter_map(|it| it.request.as_ref()) {
        check(step)?;
        if let Request::Txn(inner) = step {
            let path = nested.next().expect("every nested transaction was decided");
            for_each_step(inner, path, check)?;
        }
    }
    Ok(())
}

fn steps(request: &TxnRequest, succeeded: bool) -> &[RequestOp] {
    if succeeded { &request.success } else { &request.failure }
}

/// What a key was at a revision.
fn at(history: &History, revision: i64) -> Option<&KeyValue> {
    let after = history.partition_point(|(written, _)| *written <= revision);
    history[..after].last()?.1.as_ref()
}

/// Whether a compare holds for one key.
fn compares(compare: &Compare, kv: &KeyValue) -> bool {
    let ordering = match compare.target() {
        CompareTarget::Value => kv.value.as_slice().cmp(value(compare)),
        CompareTarget::Version => kv.version.cmp(&number(compare)),
        CompareTarget::Create => kv.create_revision.cmp(&number(compare)),
        CompareTarget::Mod => kv.mod_revision.cmp(&number(compare)),
        CompareTarget::Lease => kv.lease.cmp(&number(compare)),
    };
    match compare.result() {
        CompareResult::Equal => ordering == Ordering::Equal,
        CompareResult::Greater => ordering == Ordering::Greater,
        CompareResult::Less => ordering == Ordering::Less,
        CompareResult::NotEqual => ordering != Ordering::Equal,
    }
}

/// The number that a compare looks for. One of another kind than its target counts as zero.
fn number(compare: &Compare) -> i64 {
    match (compare.target(), &compare.target_union) {
        (CompareTarget::Version, Some(TargetUnion::Version(it)))
        | (CompareTarget::Create, Some(TargetUnion::CreateRevision(it)))
        | (CompareTarget::Mod, Some(TargetUnion::ModRevision(it)))
        | (CompareTarget::Lease, Some(TargetUnion::Lease(it))) => *it,
        _ => 0,
    }
}

/// The value that a compare looks for. Anything else counts as empty.
fn value(compare: &Compare) -> &[u8] {
    match &compare.target_union {
        Some(TargetUnion::Value(value)) => value,
        _ => &[],
    }
}

fn by(target: SortTarget, a: &KeyValue, b: &KeyValue) -> Ordering {
    match target {
        SortTarget::Key => a.key.cmp(&b.key),
        SortTarget::Version => a.version.cmp(&b.version),
        SortTarget::Create => a.create_revision.cmp(&b.create_revision),
        SortTarget::Mod => a.mod_revision.cmp(&b.mod_revision),
        SortTarget::Value => a.value.cmp(&b.value),
    }
}

/// The part of a header that a model has.
fn header(revision: i64) -> ResponseHeader {
    ResponseHeader { revision, ..ResponseHeader::default() }
}

const MILLIS: u64 = 1000;

fn expiry(now: u64, ttl_seconds: i64) -> u64 {
    now.saturating_add(u64::try_from(ttl_seconds).unwrap_or(0).saturating_mul(MILLIS))
}
