//! The coordinator of a user's worker: the production coordinator, with a message to the oracle
//! before and after each call.
//!
//! It makes no decision and changes no result. Runs belong to the simulated world, so operations of
//! administrators are refused without a call.

use gossip_contracts::identity::ShardId;
use gossip_coordination::operations::*;
use gossip_coordination::protocol::ClaimScope;
use gossip_coordination::{
    AsyncCoordinationBackend, AsyncRunManagement, AsyncShardClaiming, ClaimError, ClaimReservation,
    StoreRefusal, for_each_run_operation, for_each_shard_operation,
};

use super::answers::Renewal;
use super::messages::{About, Answered, Grant, Message, Notice};
use super::op::{Ending, Label, MayBeInfra, Verb, ending};
use super::port::SimStore;
use super::worker::Handle;

/// A coordinator whose operations are reported to the oracle.
#[derive(Debug)]
pub struct SimCoordinator {
    handle: Handle,
    store: SimStore,
}

impl SimCoordinator {
    pub(super) const fn new(handle: Handle, store: SimStore) -> Self {
        Self { handle, store }
    }

    fn begin(&self, notice: Notice) {
        self.store.post(Message::Begins(Box::new(notice)));
    }

    fn end<T, E: MayBeInfra>(&self, result: &Result<IdempotentOutcome<T>, E>) {
        self.end_born(result, |_| None);
    }

    /// As [`SimCoordinator::end`] for an operation that created the shards that `born` returns.
    fn end_born<T, E: MayBeInfra>(
        &self,
        result: &Result<IdempotentOutcome<T>, E>,
        born: impl FnOnce(&T) -> Option<Vec<ShardId>>,
    ) {
        let mut answered = match result {
            Ok(IdempotentOutcome::Executed(_)) => answered(Ending::Executed, "Executed"),
            Ok(IdempotentOutcome::Replayed(_)) => answered(Ending::Replayed, "Replayed"),
            Err(error) => failed(error),
        };
        answered.born = result.as_ref().ok().and_then(|it| born(it.as_ref().into_inner()));
        self.store.post(Message::Ended(Box::new(answered)));
    }

    /// As [`SimCoordinator::end`] for an operation that is never replayed.
    fn end_plain<T, E: MayBeInfra>(&self, result: &Result<T, E>) {
        self.end_with(result, |_, _| ());
    }

    fn end_with<T, E: MayBeInfra>(
        &self,
        result: &Result<T, E>,
        more: impl FnOnce(&mut Answered, &T),
    ) {
        let mut answer =
            result.as_ref().map_or_else(failed, |_| answered(Ending::Executed, "Executed"));
        if let Ok(value) = result {
            more(&mut answer, value);
        }
        self.store.post(Message::Ended(Box::new(answer)));
    }
}

/// Reports the results of a batch of renewals. It failed if all renewals failed.
fn answered_batch(results: &[Result<RenewResult, RenewError>]) -> Answered {
    let renewal = |result: &Result<RenewResult, RenewError>| match result {
        Ok(it) => Renewal::Until(it.new_deadline.as_raw(), it.request.clone()),
        Err(error) => Renewal::Not(ending(error), Label::of(error)),
    };
    let none = results.iter().all(Result::is_err);
    let first = results.iter().find_map(|result| result.as_ref().err()).filter(|_| none);
    let answer = first.map_or_else(|| answered(Ending::Executed, "Executed"), failed);
    Answered { batch: results.iter().map(renewal).collect(), ..answer }
}

fn answered(ending: Ending, name: &str) -> Answered {
    let (label, batch) = (Label::named(name), Vec::new());
    Answered { ending, label, born: None, granted: None, renewed: None, batch }
}

fn failed<E: MayBeInfra>(error: &E) -> Answered {
    Answered { label: Label::of(error), ..answered(ending(error), "") }
}

fn granted(answered: &mut Answered, view: &AcquireResultView<'_>) {
    let (spec, cursor) = (view.snapshot.spec(), view.snapshot.cursor());
    answered.granted = Some(Grant {
        lease: view.lease.clone(),
        start: spec.start.to_vec(),
        end: spec.end.to_vec(),
        last_key: cursor.last_key().map(<[u8]>::to_vec),
        attempts: view.attempts,
    });
}

fn last_key(cursor: &CursorUpdate<'_>) -> Option<Vec<u8>> {
    cursor.last_key().map(<[u8]>::to_vec)
}

/// Returns the error of an operation that only the world may call.
fn not_permitted() -> InfraError {
    let message = "runs of a simulated world are managed by the world".to_owned();
    let (operation, why) = ("simulated worker", StoreRefusal::NotPermitted);
    InfraError::Refused { operation, why, message }
}

/// Defines the rows of an operation list as calls that are reported to the oracle.
macro_rules! reported {
    (() $(
        $(#[$doc:meta])*
        fn $name:ident $(<$life:lifetime>)? ($($arg:ident: $type:ty),*) -> $answer:ty
            = $kind:ident $how:tt;
    )*) => { $(
        async fn $name $(<$life>)? (&mut self, $($arg: $type),*) -> $answer {
            reported!(@call self, $name $kind ($($arg),*))
        }
    )* };

    (@call $self:ident, $name:ident on_shard $args:tt) => { reported!(@refuse $args) };
    (@call $self:ident, $name:ident on_run $args:tt) => { reported!(@refuse $args) };
    (@call $self:ident, $name:ident create $args:tt) => { reported!(@refuse $args) };
    (@call $self:ident, $name:ident transition $args:tt) => { reported!(@refuse $args) };
    (@call $self:ident, $name:ident delete $args:tt) => { reported!(@refuse $args) };
    (@call $self:ident, $name:ident collect $args:tt) => { reported!(@refuse $args) };
    // No rule reads these records, so there is nothing to report.
    (@call $self:ident, list_side_records_into read ($($arg:ident),*)) => {
        $self.handle.list_side_records_into($($arg),*).await
    };
    (@call $self:ident, list_events_into read ($($arg:ident),*)) => {
        $self.handle.list_events_into($($arg),*).await
    };
    // A part of a claim, which is reported as a whole.
    (@call $self:ident, collect_claim_candidates_into read ($($arg:ident),*)) => {
        $self.handle.collect_claim_candidates_into($($arg),*).await
    };
    (@call $self:ident, renew_many update
        ($now:ident, $tenant:ident, $leases:ident, $results:ident)) => {{
        $self.begin(Notice::new(Verb::RenewMany, $now, About::Leases($leases.to_vec())));
        $self.handle.renew_many($now, $tenant, $leases, $results).await;
        $self.store.post(Message::Ended(Box::new(answered_batch($results))));
    }};
    (@call $self:ident, $name:ident $kind:ident ($($arg:ident),*)) => {{
        $self.begin(notice!($name($($arg),*)));
        let result = $self.handle.$name($($arg),*).await;
        reported!(@end $self, $name $kind, result);
        result
    }};

    (@refuse ($($arg:ident),*)) => {{
        let _unused = ($($arg),*);
        Err(not_permitted().into())
    }};

    (@end $self:ident, $name:ident grant, $result:ident) => { $self.end_with(&$result, granted) };
    (@end $self:ident, split_replace $kind:ident, $result:ident) => {
        $self.end_born(&$result, |split| Some(split.children.to_vec()))
    };
    (@end $self:ident, split_residual $kind:ident, $result:ident) => {
        $self.end_born(&$result, |split| Some(vec![split.residual]))
    };
    (@end $self:ident, renew $kind:ident, $result:ident) => {
        $self.end_with(&$result, |answered, renewed| {
            answered.renewed = Some(renewed.new_deadline.as_raw());
        })
    };
    (@end $self:ident, $name:ident under_lease, $result:ident) => { $self.end(&$result) };
    (@end $self:ident, $name:ident $kind:ident, $result:ident) => { $self.end_plain(&$result) };
}

/// Builds the notice of an operation from its parameters.
macro_rules! notice {
    (acquire_and_restore_into($now:ident, $tenant:ident, $key:ident, $($rest:tt)*)) => {
        Notice::new(Verb::Acquire, $now, About::Shard($key))
    };
    (acquire_sparing_last_attempt_into($now:ident, $tenant:ident, $key:ident, $($rest:tt)*)) => {
        Notice::new(Verb::Acquire, $now, About::Shard($key))
    };
    (renew($now:ident, $tenant:ident, $lease:ident)) => {
        Notice::under(Verb::Renew, $now, $lease, OpId::from_raw(0))
    };
    (checkpoint($now:ident, $tenant:ident, $lease:ident, $cursor:ident, $op_id:ident)) => {
        Notice {
            last_key: last_key(&$cursor),
            ..Notice::under(Verb::Checkpoint, $now, $lease, $op_id)
        }
    };
    (complete($now:ident, $tenant:ident, $lease:ident, $cursor:ident, $op_id:ident)) => {
        Notice {
            last_key: last_key(&$cursor),
            ..Notice::under(Verb::Complete, $now, $lease, $op_id)
        }
    };
    (checkpoint_with_records($now:ident, $tenant:ident, $lease:ident, $cursor:ident,
        $records:ident, $op_id:ident)) => {
        Notice {
            last_key: last_key(&$cursor),
            ..Notice::under(Verb::Checkpoint, $now, $lease, $op_id)
        }
    };
    (complete_with_records($now:ident, $tenant:ident, $lease:ident, $cursor:ident,
        $records:ident, $op_id:ident)) => {
        Notice {
            last_key: last_key(&$cursor),
            ..Notice::under(Verb::Complete, $now, $lease, $op_id)
        }
    };
    (park_shard_with_records($now:ident, $tenant:ident, $lease:ident, $why:ident,
        $records:ident, $op_id:ident)) => {
        Notice::under(Verb::Park, $now, $lease, $op_id)
    };
    (park_shard($now:ident, $tenant:ident, $lease:ident, $reason:ident, $op_id:ident)) => {
        Notice::under(Verb::Park, $now, $lease, $op_id)
    };
    (park_shard_with_context($now:ident, $tenant:ident, $lease:ident, $reason:ident,
        $context:ident, $op_id:ident)) => {
        Notice::under(Verb::Park, $now, $lease, $op_id)
    };
    (split_replace($now:ident, $tenant:ident, $lease:ident, $plan:ident, $op_id:ident)) => {{
        let starts = $plan.children().iter().skip(1).map(|child| child.spec.start.to_vec());
        let cuts = starts.collect();
        Notice { cuts, ..Notice::under(Verb::SplitReplace, $now, $lease, $op_id) }
    }};
    (split_residual($now:ident, $tenant:ident, $lease:ident, $plan:ident, $op_id:ident)) => {{
        let cuts = vec![$plan.residual().start.to_vec()];
        Notice { cuts, ..Notice::under(Verb::SplitResidual, $now, $lease, $op_id) }
    }};
    (release($now:ident, $tenant:ident, $lease:ident, $mode:ident, $op_id:ident)) => {{
        let clean = matches!($mode, ReleaseMode::Clean);
        Notice { clean, ..Notice::under(Verb::Release, $now, $lease, $op_id) }
    }};
    (offer($now:ident, $tenant:ident, $lease:ident, $terms:ident, $cursor:ident, $op_id:ident)) => {
        Notice {
            last_key: last_key(&$cursor),
            terms: Some($terms),
            ..Notice::under(Verb::Offer, $now, $lease, $op_id)
        }
    };
    (accept($now:ident, $tenant:ident, $key:ident, $worker:ident, $handoff:ident,
        $scratch:ident)) => {{
        let terms = OfferTerms { handoff: $handoff, destination: $worker, deadline: $now };
        Notice { terms: Some(terms), ..Notice::new(Verb::Accept, $now, About::Shard($key)) }
    }};
    (withdraw($now:ident, $tenant:ident, $lease:ident, $handoff:ident, $op_id:ident)) => {{
        let (destination, deadline) = (WorkerId::from_raw(0), LogicalTime::ZERO);
        let terms = Some(OfferTerms { handoff: $handoff, destination, deadline });
        Notice { terms, ..Notice::under(Verb::Withdraw, $now, $lease, $op_id) }
    }};
    (get_run($tenant:ident, $run:ident)) => {
        Notice::new(Verb::GetRun, LogicalTime::ZERO, About::Run($run))
    };
    (get_run_progress($now:ident, $tenant:ident, $run:ident)) => {
        Notice::new(Verb::Progress, $now, About::Run($run))
    };
    (list_shards_into($now:ident, $tenant:ident, $run:ident, $($rest:tt)*)) => {
        Notice::new(Verb::ListShards, $now, About::Run($run))
    };
    (register_worker($now:ident, $($rest:tt)*)) => {
        Notice::new(Verb::RegisterWorker, $now, About::Nothing)
    };
    (heartbeat($now:ident, $($rest:tt)*)) => {
        Notice::new(Verb::Heartbeat, $now, About::Nothing)
    };
    (list_workers_into($now:ident, $($rest:tt)*)) => {
        Notice::new(Verb::ListWorkers, $now, About::Nothing)
    };
    (list_active_runs_into($($rest:tt)*)) => {
        Notice::new(Verb::ActiveRuns, LogicalTime::ZERO, About::Nothing)
    };
    (list_runs_into($($rest:tt)*)) => {
        Notice::new(Verb::ListRuns, LogicalTime::ZERO, About::Nothing)
    };
}

impl AsyncCoordinationBackend for SimCoordinator {
    for_each_shard_operation! { reported () }
}

impl AsyncRunManagement for SimCoordinator {
    for_each_run_operation! { reported () }
}

impl AsyncShardClaiming for SimCoordinator {
    fn reserve_claim(
        &mut self,
        now: LogicalTime,
        tenant: TenantId,
        worker: WorkerId,
    ) -> Result<ClaimReservation, ClaimError> {
        self.handle.reserve_claim(now, tenant, worker)
    }

    async fn claim_within<'a>(
        &mut self,
        scope: ClaimScope,
        now: LogicalTime,
        tenant: TenantId,
        run: RunId,
        worker: WorkerId,
        scratch: &'a mut AcquireScratch,
    ) -> Result<AcquireResultView<'a>, ClaimError> {
        self.begin(Notice::new(Verb::Claim, now, About::Run(run)));
        let result = self.handle.claim_within(scope, now, tenant, run, worker, scratch).await;
        self.end_with(&result, granted);
        result
    }
}
