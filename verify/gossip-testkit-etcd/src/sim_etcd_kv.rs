//! A model of etcd: the part that [`EtcdKv`] has, in memory, on a clock of its own.
//!
//! Revisions, versions, compares of every kind and of ranges, nested transactions, the limits of
//! the gate, leases that end, compaction, `NOSPACE`. It is held to the real server by a test that
//! gives both the same sequences of requests. Its answers leave cluster, member and term open.
//!
//! What it never does: read a clock, wait, draw a random number that was not seeded, or start a
//! thread. [`EtcdKv::sleep`] moves the model's clock and returns. Every request happens as a whole
//! when its future is first polled, and its future is ready then.

// The paths are written out because the unit tests of `gossip-coordination-etcd` include this file
// by its path, and rustc would look for the modules beside it.
#[path = "sim_etcd_kv/faults.rs"]
pub(crate) mod faults;
#[path = "sim_etcd_kv/gate.rs"]
mod gate;
#[path = "sim_etcd_kv/state.rs"]
mod state;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gossip_coordination_etcd::proto::{
    KeyValue, RangeRequest, RangeResponse, TxnRequest, TxnResponse,
};
use gossip_coordination_etcd::{
    Alarm, EtcdCause, EtcdError, EtcdKv, LeaseGrant, LeaseTtl, MemberStatus, TxnMessage,
};

use self::faults::Faults;
pub use self::faults::{Fault, FaultRates, Target};
use self::state::State;

/// The timeout reported to a caller whose reply was lost.
const LOST_AFTER_MILLIS: u64 = 8_000;

/// The limits of a server, as its flags set them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SimLimits {
    /// `--max-txn-ops`.
    pub max_txn_ops: usize,
    /// `--max-request-bytes`.
    pub max_request_bytes: usize,
}

impl Default for SimLimits {
    /// The server's own defaults.
    fn default() -> Self {
        Self { max_txn_ops: 128, max_request_bytes: 3 << 19 }
    }
}

/// A client of the model. Clones share the model, its clock, and what the client remembers.
#[derive(Clone)]
pub struct SimEtcdKv {
    model: Arc<Mutex<Model>>,
}

/// The contents of a server, as `etcdctl snapshot save` copies them.
#[derive(Clone, Debug)]
pub struct Snapshot(State);

struct Model {
    state: State,
    limits: SimLimits,
    faults: Faults,
    /// Milliseconds since the model was made.
    now: u64,
    requests: u64,
    is_full: bool,
    /// Whether this client has met `NOSPACE`, as the real one remembers it.
    has_met_full: bool,
}

impl SimEtcdKv {
    /// An empty model with the server's default limits.
    pub fn new() -> Self {
        Self::with_limits(SimLimits::default())
    }

    /// An empty model.
    pub fn with_limits(limits: SimLimits) -> Self {
        let model = Model {
            state: State::new(),
            limits,
            faults: Faults::default(),
            now: 0,
            requests: 0,
            is_full: false,
            has_met_full: false,
        };
        Self { model: Arc::new(Mutex::new(model)) }
    }

    /// Plans a fault for a request of a kind, after so many others of the kind.
    pub fn inject(&self, skip: usize, target: Target, fault: Fault) {
        self.model().faults.plan(skip, target, fault);
    }

    /// Lets faults happen by themselves, drawn from a seed.
    pub fn inject_randomly(&self, seed: u64, rates: FaultRates) {
        self.model().faults.set_random(seed, rates);
    }

    /// Forgets every fault that has not happened yet.
    pub fn clear_faults(&self) {
        self.model().faults.clear();
    }

    /// Lets time pass; leases end when theirs has come.
    pub fn advance(&self, millis: u64) {
        self.model().advance(millis);
    }

    /// Milliseconds since the model was made.
    pub fn now(&self) -> u64 {
        self.model().now
    }

    /// Ends every lease at once, as a leader does that stalled.
    pub fn expire_leases(&self) {
        self.model().state.expire_all();
    }

    /// Copies everything, with its revisions.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot(self.model().state.clone())
    }

    /// Replaces everything by a snapshot, as a cluster that is restored with the same token:
    /// revisions repeat, and clients notice nothing. Leases begin anew.
    pub fn restore(&self, snapshot: &Snapshot) {
        let mut model = self.model();
        model.state = snapshot.0.clone();
        let now = model.now;
        model.state.restart_leases(now);
    }

    /// Raises the `NOSPACE` alarm.
    pub fn fill(&self) {
        self.model().is_full = true;
    }

    /// Takes the `NOSPACE` alarm back.
    pub fn disarm(&self) {
        self.model().is_full = false;
    }

    /// How many requests were made so far, lost ones included.
    pub fn requests(&self) -> u64 {
        self.model().requests
    }

    /// Everything that is there now, past all faults.
    pub fn contents(&self) -> Vec<KeyValue> {
        let everything =
            RangeRequest { key: vec![0], range_end: vec![0], ..RangeRequest::default() };
        let found = self.model().state.range(&everything);
        found.expect("a range of everything is never refused").kvs
    }

    /// Returns the present revision, past all faults.
    pub fn revision(&self) -> i64 {
        self.model().state.revision()
    }

    fn model(&self) -> MutexGuard<'_, Model> {
        self.model.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for SimEtcdKv {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for SimEtcdKv {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let model = self.model();
        f.debug_struct("SimEtcdKv")
            .field("now", &model.now)
            .field("revision", &model.state.revision())
            .finish()
    }
}

impl Model {
    fn advance(&mut self, millis: u64) {
        self.now = self.now.saturating_add(millis);
        self.state.expire(self.now);
    }

    /// One request: meets its fault, if it has one, and happens.
    fn request<A>(
        &mut self,
        operation: &'static str,
        kind: Target,
        act: impl FnOnce(&mut Self) -> Result<A, EtcdCause>,
    ) -> Result<A, EtcdError> {
        self.requests += 1;
        let fault = self.faults.next(kind);
        match fault {
            Some(Fault::LoseRequest) => return Err(lost(operation)),
            Some(Fault::Refuse) => return Err(EtcdError::refused(operation, EtcdCause::Busy)),
            Some(Fault::Delay(millis)) => self.advance(millis),
            Some(Fault::ExpireLeases) => self.state.expire_all(),
            Some(Fault::LoseReply | Fault::FillSpace) | None => {}
        }
        let result = act(self);
        match fault {
            Some(Fault::LoseReply) => return Err(lost(operation)),
            Some(Fault::FillSpace) => {
                self.is_full = true;
                return Err(self.full(operation));
            }
            Some(Fault::LoseRequest | Fault::Refuse | Fault::Delay(_) | Fault::ExpireLeases)
            | None => {}
        }
        result.map_err(|cause| match cause {
            EtcdCause::NoSpace => self.full(operation),
            cause => EtcdError::refused(operation, cause),
        })
    }

    /// The answer of a full server, which is not certain; the client will look before it leaps.
    fn full(&mut self, operation: &'static str) -> EtcdError {
        self.has_met_full = true;
        EtcdError::unknown(operation, EtcdCause::NoSpace)
    }

    /// What the real client does before a write that takes space.
    fn look_before(&mut self, operation: &'static str) -> Result<(), EtcdError> {
        if self.has_met_full && self.is_full {
            return Err(EtcdError::not_sent(operation, EtcdCause::NoSpace));
        }
        self.has_met_full = false;
        Ok(())
    }

    /// A full server refuses every transaction that could put a key, whichever way it would go.
    fn txn(&mut self, request: &TxnRequest) -> Result<TxnResponse, EtcdCause> {
        if self.is_full && gate::may_put(request) {
            return Err(EtcdCause::NoSpace);
        }
        gate::check_txn(request, &self.limits)?;
        self.state.txn(request)
    }
}

impl EtcdKv for SimEtcdKv {
    async fn range(&self, request: RangeRequest) -> Result<RangeResponse, EtcdError> {
        self.model().request("range", Target::Read, |model| model.state.range(&request))
    }

    async fn txn(&self, request: impl TxnMessage) -> Result<TxnResponse, EtcdError> {
        let request = request.into_request();
        let mut model = self.model();
        let (operation, kind) = if gate::is_read_only(&request) {
            ("read", Target::Read)
        } else {
            if gate::may_put(&request) {
                model.look_before("txn")?;
            }
            ("txn", Target::Write)
        };
        model.request(operation, kind, |model| model.txn(&request))
    }

    async fn lease_grant(&self, ttl_seconds: i64) -> Result<LeaseGrant, EtcdError> {
        let mut model = self.model();
        model.look_before("lease grant")?;
        model.request("lease grant", Target::Lease, |model| {
            if model.is_full {
                return Err(EtcdCause::NoSpace);
            }
            let (id, ttl_seconds) = model.state.grant(ttl_seconds, model.now);
            Ok(LeaseGrant { id, ttl_seconds })
        })
    }

    async fn lease_keep_alive(&self, lease: i64) -> Result<Option<i64>, EtcdError> {
        self.model().request("lease keep-alive", Target::Lease, |model| {
            Ok(model.state.keep_alive(lease, model.now))
        })
    }

    async fn lease_revoke(&self, lease: i64) -> Result<(), EtcdError> {
        let mut model = self.model();
        model.request("lease revoke", Target::Lease, |model| model.state.revoke(lease))
    }

    async fn lease_time_to_live(&self, lease: i64) -> Result<Option<LeaseTtl>, EtcdError> {
        self.model().request("lease time-to-live", Target::Lease, |model| {
            let left = model.state.time_to_live(lease, model.now);
            Ok(left.map(|(remaining_seconds, granted_seconds)| LeaseTtl {
                remaining_seconds,
                granted_seconds,
            }))
        })
    }

    async fn compact(&self, revision: i64) -> Result<(), EtcdError> {
        let mut model = self.model();
        model.request("compaction", Target::Any, |model| model.state.compact(revision))
    }

    async fn status(&self) -> Result<MemberStatus, EtcdError> {
        self.model().request("status", Target::Any, |model| {
            Ok(MemberStatus {
                version: "3.4.0".to_owned(),
                member_id: 1,
                leader: 1,
                revision: model.state.revision(),
                db_size: 0,
                db_size_in_use: 0,
            })
        })
    }

    async fn alarms(&self) -> Result<Vec<Alarm>, EtcdError> {
        self.model().request("alarm list", Target::Any, |model| {
            Ok(if model.is_full { vec![Alarm::NoSpace] } else { Vec::new() })
        })
    }

    async fn sleep(&self, millis: u64) {
        self.advance(millis);
    }
}

fn lost(operation: &'static str) -> EtcdError {
    EtcdError::unknown(operation, EtcdCause::Timeout { millis: LOST_AFTER_MILLIS })
}
