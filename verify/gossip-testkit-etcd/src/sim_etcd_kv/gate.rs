//! What a server refuses before it looks at its data: too many steps, empty keys, keys written
//! twice, too many bytes.

use std::collections::BTreeSet;

use gossip_coordination_etcd::proto::{DeleteRangeRequest, Request, RequestOp, TxnRequest};
use gossip_coordination_etcd::{EtcdCause, SizeLimit};
use prost::Message;

use super::SimLimits;
use super::state::Span;

/// What a server adds to a request before it measures it: a header and two lengths. At least.
const ENVELOPE_BYTES: usize = 32;

/// Checks a transaction as the server's gate does, in its order.
pub(super) fn check_txn(request: &TxnRequest, limits: &SimLimits) -> Result<(), EtcdCause> {
    check_steps(request, limits.max_txn_ops)?;
    Writes::of(&request.success)?;
    Writes::of(&request.failure)?;
    let is_too_large = request.encoded_len() + ENVELOPE_BYTES > limits.max_request_bytes;
    // The limit applies to raft proposals only; a read-only transaction is not proposed.
    if is_too_large && !is_read_only(request) {
        return Err(EtcdCause::TooLarge(SizeLimit::Bytes));
    }
    Ok(())
}

/// Whether no step of a transaction can write, whichever way its compares go.
pub(super) fn is_read_only(request: &TxnRequest) -> bool {
    request.success.iter().chain(&request.failure).all(|step| match &step.request {
        None | Some(Request::Range(_)) => true,
        Some(Request::Put(_) | Request::DeleteRange(_)) => false,
        Some(Request::Txn(inner)) => is_read_only(inner),
    })
}

/// Whether some step of a transaction can put a key, whichever way its compares go.
pub(super) fn may_put(request: &TxnRequest) -> bool {
    request.success.iter().chain(&request.failure).any(|step| match &step.request {
        None | Some(Request::Range(_) | Request::DeleteRange(_)) => false,
        Some(Request::Put(_)) => true,
        Some(Request::Txn(inner)) => may_put(inner),
    })
}

/// The largest of the three lists counts against the limit, and each nested transaction is
/// limited to the remainder.
fn check_steps(request: &TxnRequest, limit: usize) -> Result<(), EtcdCause> {
    let lists = [request.compare.len(), request.success.len(), request.failure.len()];
    let largest = lists.into_iter().max().unwrap_or(0);
    let Some(left) = limit.checked_sub(largest) else {
        return Err(EtcdCause::TooLarge(SizeLimit::Ops));
    };
    if request.compare.iter().any(|it| it.key.is_empty()) {
        return Err(EMPTY_KEY);
    }
    request.success.iter().chain(&request.failure).try_for_each(|step| check_step(step, left))
}

const EMPTY_KEY: EtcdCause = EtcdCause::BadRequest("a key is empty");

fn check_step(step: &RequestOp, limit: usize) -> Result<(), EtcdCause> {
    let key = match &step.request {
        None => return Err(EtcdCause::BadRequest("a step is empty")),
        Some(Request::Range(it)) => &it.key,
        Some(Request::Put(it)) => &it.key,
        Some(Request::DeleteRange(it)) => &it.key,
        Some(Request::Txn(it)) => return check_steps(it, limit),
    };
    if key.is_empty() { Err(EMPTY_KEY) } else { Ok(()) }
}

/// The keys that a list of steps may write and the spans that it may delete.
#[derive(Default)]
struct Writes {
    puts: BTreeSet<Vec<u8>>,
    deletes: Vec<Span>,
}

const TWICE: EtcdCause = EtcdCause::BadRequest("a key is written twice");

impl Writes {
    /// Collects what steps write, and refuses a key that is put twice, or put and deleted.
    ///
    /// Order matters, as in the server: what a nested transaction deletes forbids puts of those
    /// after it and of this level, not of those before it.
    fn of(steps: &[RequestOp]) -> Result<Self, EtcdCause> {
        let mut writes = Self { puts: BTreeSet::new(), deletes: own_deletes(steps) };
        for step in steps {
            if let Some(Request::Txn(inner)) = &step.request {
                writes.add_nested(inner)?;
            }
        }
        for step in steps {
            if let Some(Request::Put(put)) = &step.request {
                writes.add_put(&put.key)?;
            }
        }
        Ok(writes)
    }

    fn add_nested(&mut self, inner: &TxnRequest) -> Result<(), EtcdCause> {
        let then = Self::of(&inner.success)?;
        let otherwise = Self::of(&inner.failure)?;
        for key in &then.puts {
            self.add_put(key)?;
        }
        // Only one of the two lists is done, so both may put the same key.
        for key in otherwise.puts.difference(&then.puts) {
            self.add_put(key)?;
        }
        self.deletes.extend(then.deletes);
        self.deletes.extend(otherwise.deletes);
        Ok(())
    }

    fn add_put(&mut self, key: &[u8]) -> Result<(), EtcdCause> {
        let is_deleted = self.deletes.iter().any(|span| span.contains(key));
        if is_deleted || !self.puts.insert(key.to_vec()) {
            return Err(TWICE);
        }
        Ok(())
    }
}

fn own_deletes(steps: &[RequestOp]) -> Vec<Span> {
    let deletes = steps.iter().filter_map(|step| match &step.request {
        Some(Request::DeleteRange(DeleteRangeRequest { key, range_end, .. })) => {
            Some(Span::as_written(key, range_end))
        }
        None | Some(Request::Range(_) | Request::Put(_) | Request::Txn(_)) => None,
    });
    deletes.collect()
}
