//! Batches of independent transactions in one request.
//!
//! etcd accepts transactions as operations of a transaction. Each nested one has its own compares
//! and its own outcome, so none fails because of another's conflict, and all of them cost one entry
//! of the raft log.
//!
//! # Which transactions may share a batch
//!
//! All compares of nested transactions see the state *before* the batch. Two transactions are
//! independent only if neither writes a key that the other compares or writes: otherwise both could
//! succeed where, in sequence, the second would fail. Two that compare the same key without writing
//! it may share a batch, and the server compares it once ([`groups`](crate::groups)): the head of a
//! run, which every operation on one of its shards compares.
//!
//! # Limits
//!
//! The number of nested transactions plus the longest operation list of any of them must not exceed
//! the server's limit. Bytes are counted as encoded. A single transaction is sent without a
//! wrapper, and may use both limits in full.

use gossip_coordination::store::{CommitOutcome, Footprint, Txn, Write};
use gossip_coordination::{InfraError, StoreRefusal};

use crate::budget::Budget;
use crate::error::EtcdError;
use crate::groups::{Group, Member, groups};
use crate::keyspace::Namespace;
use crate::kv::EtcdKv;
use crate::message::LoneTxn;
use crate::proto::{Request, TxnRequest, TxnResponse};
use crate::sender::{Outcome, SendRequest};
use crate::wire;

/// Overhead of a nested transaction: two tags and two lengths of at most four bytes each.
const NESTED_FRAME_LEN: usize = 10;

/// A measured transaction, ready to be sent.
#[derive(Debug)]
pub(crate) struct PreparedTxn {
    txn: Txn,
    /// Operations in its longest list.
    ops: usize,
    /// Bytes of its request, with the longest possible lease id.
    bytes: usize,
    /// Whether it binds keys to the owner lease.
    binds: bool,
    /// The server's limit of operations.
    limit: usize,
}

impl PreparedTxn {
    /// Measures `txn`.
    ///
    /// # Errors
    ///
    /// [`StoreRefusal::TooLarge`] if it exceeds the limits of the server on its own.
    pub(crate) fn new(
        namespace: &Namespace,
        budget: &Budget,
        txn: Txn,
    ) -> Result<Self, InfraError> {
        // The lease may not be granted yet. Measured with the longest id, the request fits
        // whichever one it gets.
        let lease = wire::SOME_LEASE;
        let message = LoneTxn { namespace, txn: &txn, lease, measured: None };
        let (ops, bytes) = (message.op_count(), message.encoded_len());
        let binds = txn.writes().iter().any(|write| matches!(write, Write::Bind(..)));
        // Refused here, because the server's error names no sizes and would fail the whole batch.
        if ops > budget.ops || bytes > budget.bytes {
            return Err(too_large(ops, bytes, budget));
        }
        Ok(Self { txn, ops, bytes, binds, limit: budget.ops })
    }

    /// Returns whether it binds keys to the owner lease.
    pub(crate) const fn binds(&self) -> bool {
        self.binds
    }
}

/// A single transaction is sent without a wrapper.
impl SendRequest for PreparedTxn {
    type Outcomes = Outcome;

    fn binds(&self) -> bool {
        self.binds
    }

    async fn send<K: EtcdKv>(
        &self,
        kv: &K,
        namespace: &Namespace,
        lease: i64,
    ) -> Result<TxnResponse, EtcdError> {
        // Measured with the longest lease id, so the size is exact only without a lease.
        let measured = (!self.binds).then_some(self.bytes);
        kv.txn(LoneTxn { namespace, txn: &self.txn, lease, measured }).await
    }

    fn outcomes(&self, namespace: &Namespace, response: TxnResponse) -> Outcome {
        // Without a valid header the transaction may have been applied.
        match wire::revision(response.header.as_ref()) {
            Some(revision) => wire::outcome(namespace, &self.txn, None, response, revision),
            None => Ok(CommitOutcome::Unknown),
        }
    }
}

/// Transactions of one request, each with a note of the caller.
#[derive(Debug)]
pub(crate) struct Batch<N> {
    txns: Vec<(PreparedTxn, N)>,
    /// Of all transactions; computed when the second one is added.
    footprint: Option<Footprint>,
    /// Operations of the largest transaction.
    ops_max: usize,
    /// Bytes of all transactions, nested.
    bytes: usize,
}

impl<N> Batch<N> {
    /// Returns a batch of one.
    pub(crate) fn of(prepared: PreparedTxn, note: N) -> Self {
        let (ops_max, bytes) = (prepared.ops, NESTED_FRAME_LEN + prepared.bytes);
        Self { txns: vec![(prepared, note)], footprint: None, ops_max, bytes }
    }

    /// Adds a transaction and returns `None`, or returns it unchanged if it must go into another
    /// batch: it does not fit, or it is not independent of one in this batch.
    pub(crate) fn add(
        &mut self,
        budget: &Budget,
        prepared: PreparedTxn,
        note: N,
    ) -> Option<(PreparedTxn, N)> {
        // The server adds the length of the outer list to that of the longest nested one.
        let ops = self.txns.len() + 1 + self.ops_max.max(prepared.ops);
        let bytes = self.bytes + NESTED_FRAME_LEN + prepared.bytes;
        let fits = ops <= budget.ops && bytes <= budget.bytes;
        let txns = &self.txns;
        // Built for the second transaction: a batch of one, the usual case, needs no sets.
        let footprint = self
            .footprint
            .get_or_insert_with(|| txns.iter().map(|(prepared, _)| &prepared.txn).collect());
        if !fits || footprint.conflicts_with(&prepared.txn) {
            return Some((prepared, note));
        }
        footprint.add(&prepared.txn);
        self.ops_max = self.ops_max.max(prepared.ops);
        self.bytes = bytes;
        self.txns.push((prepared, note));
        None
    }

    /// Returns whether a minimal transaction still fits.
    pub(crate) fn has_room(&self, budget: &Budget) -> bool {
        self.txns.len() + 1 + self.ops_max <= budget.ops && self.bytes < budget.bytes
    }

    /// Returns the number of transactions; at least one.
    pub(crate) fn len(&self) -> usize {
        self.txns.len()
    }

    /// Returns the request: the transaction itself if there is only one, else all of them nested in
    /// one, with `lease` in the keys that they bind.
    pub(crate) fn request(&self, namespace: &Namespace, lease: i64) -> TxnRequest {
        let request = |place: usize| wire::txn_request(namespace, &self.txns[place].0.txn);
        let mut whole = match self.txns.len() {
            1 => request(0),
            _ => {
                let groups = self.groups();
                let steps = groups.iter().map(|group| group_request(request, group));
                let success = steps.map(|txn| Request::Txn(txn).into()).collect();
                TxnRequest { success, ..TxnRequest::default() }
            }
        };
        // After nesting, so that one pass reaches all of them. The lease may have been replaced
        // since they were measured, and differs between attempts.
        if self.has_bound() {
            wire::set_lease(&mut whole, lease);
        }
        whole
    }

    /// Returns the outcome of each transaction, in their order, from the response to
    /// [`Batch::request`] of a batch of two or more. A transaction without an answer in it is
    /// `Unknown`.
    fn outcomes_of_several(&self, namespace: &Namespace, response: TxnResponse) -> Vec<Outcome> {
        // Without a valid header the batch may have been applied.
        let Some(revision) = wire::revision(response.header.as_ref()) else {
            return self.txns.iter().map(|_| Ok(CommitOutcome::Unknown)).collect();
        };
        let of = |prepared: &PreparedTxn, response: Option<TxnResponse>| match response {
            Some(response) => wire::outcome(namespace, &prepared.txn, None, response, revision),
            None => Ok(CommitOutcome::Unknown),
        };
        // Unknown until an answer shows otherwise: a response that is too short must not report a
        // transaction as refused.
        let mut outcomes: Vec<_> = self.txns.iter().map(|_| Ok(CommitOutcome::Unknown)).collect();
        let mut answers = response.responses.into_iter();
        // Computed again instead of stored: the groups depend on the batch only, so they are those
        // of the request.
        for group in self.groups() {
            match (group, wire::txn_answer(answers.next())) {
                (Group::Single(place), answer) => {
                    outcomes[place] = of(&self.txns[place].0, answer);
                }
                // Without an answer the group may have been applied, so its members stay `Unknown`.
                (Group::Sharing(_), None) => {}
                (Group::Sharing(members), Some(answer)) => {
                    for (place, outcome) in self.of_group(namespace, &members, answer, revision) {
                        outcomes[place] = outcome;
                    }
                }
            }
        }
        outcomes
    }

    /// Returns each transaction with its note.
    pub(crate) fn apart(self) -> impl Iterator<Item = (PreparedTxn, N)> {
        self.txns.into_iter()
    }

    /// Returns the notes, in the order of the transactions.
    pub(crate) fn into_notes(self) -> impl Iterator<Item = N> {
        self.txns.into_iter().map(|(_, note)| note)
    }

    /// Returns whether a transaction binds keys.
    fn has_bound(&self) -> bool {
        self.txns.iter().any(|(prepared, _)| prepared.binds)
    }

    /// Returns the groups of a batch of several.
    fn groups(&self) -> Vec<Group> {
        let limit = self.txns.first().map_or(0, |(prepared, _)| prepared.limit);
        groups(self.txns.iter().map(|(prepared, _)| &prepared.txn), self.ops_max, limit)
    }

    /// Returns the outcomes of the members of a group, with their places in the batch. If the
    /// shared compare failed, every member is a conflict on that key.
    fn of_group(
        &self,
        namespace: &Namespace,
        members: &[Member],
        response: TxnResponse,
        revision: u64,
    ) -> Vec<(usize, Result<CommitOutcome, InfraError>)> {
        let txn = |member: &Member| &self.txns[member.place].0.txn;
        let mut answers = response.responses.into_iter();
        if !response.succeeded {
            // The shared compare failed, so no member was applied. It was read back once if any
            // member wants the value, and only those members get it.
            let asks = members.iter().find(|member| !txn(member).is_without_read_back());
            let compare = asks.map(|member| &txn(member).compares()[member.shared]);
            let conflict = compare.map(|compare| wire::conflict(namespace, [compare], answers));
            let outcome = |member: &Member| match &conflict {
                Some(conflict) if !txn(member).is_without_read_back() => conflict.clone(),
                _ => wire::conflict_without_values(txn(member)),
            };
            return members.iter().map(|member| (member.place, outcome(member))).collect();
        }
        let outcome = |member: &Member| match wire::txn_answer(answers.next()) {
            Some(nested) => {
                wire::outcome(namespace, txn(member), Some(member.shared), nested, revision)
            }
            None => Ok(CommitOutcome::Unknown),
        };
        // Collected at once, because the outcomes consume the answers in the order of the members.
        let places = members.iter().map(|member| member.place);
        places.zip(members.iter().map(outcome).collect::<Vec<_>>()).collect()
    }
}

impl<N: Send + Sync> SendRequest for Batch<N> {
    type Outcomes = Vec<Outcome>;

    fn binds(&self) -> bool {
        self.has_bound()
    }

    async fn send<K: EtcdKv>(
        &self,
        kv: &K,
        namespace: &Namespace,
        lease: i64,
    ) -> Result<TxnResponse, EtcdError> {
        match &*self.txns {
            [(prepared, _)] => prepared.send(kv, namespace, lease).await,
            _ => kv.txn(self.request(namespace, lease)).await,
        }
    }

    fn outcomes(&self, namespace: &Namespace, response: TxnResponse) -> Vec<Outcome> {
        match &*self.txns {
            [(prepared, _)] => vec![prepared.outcomes(namespace, response)],
            _ => self.outcomes_of_several(namespace, response),
        }
    }
}

/// Returns the request of a group, given the `request` of each member: the shared compare, and the
/// members without it as nested transactions that run if it holds.
fn group_request(request: impl Fn(usize) -> TxnRequest, group: &Group) -> TxnRequest {
    let members = match group {
        Group::Single(place) => return request(*place),
        Group::Sharing(members) => members,
    };
    let mut whole = TxnRequest::default();
    whole.success.reserve_exact(members.len());
    for member in members {
        let mut nested = request(member.place);
        // The shared compare and its read-back are sent once for the group. The read-backs have the
        // order of the compares, so one index serves both; without read-back there are none.
        let compare = nested.compare.remove(member.shared);
        if whole.compare.is_empty() {
            whole.compare.push(compare);
        }
        let read = (!nested.failure.is_empty()).then(|| nested.failure.remove(member.shared));
        if whole.failure.is_empty() {
            whole.failure.extend(read);
        }
        whole.success.push(Request::Txn(nested).into());
    }
    whole
}

fn too_large(ops: usize, bytes: usize, budget: &Budget) -> InfraError {
    let message = format!(
        "a transaction of {ops} operations and {bytes} bytes exceeds the server's {} and {}; \
         make it smaller, or start etcd with a larger --max-txn-ops or --max-request-bytes and \
         say so in max_txn_ops or max_request_bytes",
        budget.ops, budget.bytes
    );
    InfraError::Refused { operation: "etcd.commit", why: StoreRefusal::TooLarge, message }
}
