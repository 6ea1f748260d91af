//! The simulated administrator: creates, registers, pauses, ends and deletes runs, and sends
//! requests to lease holders in between.

use gossip_contracts::coordination::{CursorSemantics, CursorUpdate, InitialShardInput};
use gossip_contracts::identity::{FenceEpoch, OpId, RunId, ShardId, WorkerId};
use gossip_coordination::store::{Allotment, fly_async, set_allotment};
use gossip_coordination::{
    AsyncRunManagement, CreateRunError, GetRunError, IdempotentOutcome, RegisterShardsError,
    RunConfig, RunProgress, RunStatus, RunTransitionError, ShardAction, ShardStatus, SplitKey,
};

use super::context::{Cx, Draft, Phase};
use super::effects::wanted_parts;
use super::keyspace::KEYS_MAX;
use super::op::{Ending, LeaseRef, Op, Said, Verb};
use super::oracle::{Rule, RunFacts};
use super::pools::Pooled;
use super::random::mix;
use super::splits::spec;
use super::worker::{Handle, keys};
use super::world::{LEASE_TICKS_MAX, SHARDS_PER_TENANT};

/// Maximum number of unfinished runs per tenant.
const RUNS_MAX: usize = 3;

/// One operation in this many reuses the operation id of the one before. If both are about the same
/// run or shard, it must be rejected with `OpIdConflict`.
const REUSED_ONE_IN: u64 = 6;

/// One registration in this many is preceded by a malformed manifest.
const MALFORMED_ONE_IN: u64 = 8;

/// Ticks between two operations of an administrator.
const PAUSE_TICKS: u64 = 40;

/// Maximum number of root shards of a run.
const ROOTS_MAX: u64 = 6;

/// Maximum number of runs that one garbage collection removes.
const COLLECT_MAX: usize = 4;

/// Ticks until a request expires.
const REQUEST_TICKS: u64 = 200;

/// Ticks without progress after which an unfinished registration is collected.
const STALE_AFTER: u64 = 400;

/// Maximum attempts of an operation whose outcome is unknown.
const TRIES_MAX: u32 = 3;

/// The smallest quota that an operator sets, below the number of shards that a tenant often has.
const ALLOTMENT_LEAST: u32 = SHARDS_PER_TENANT / 2;

/// Number of quotas from the smallest one on.
const ALLOTMENT_RANGE: u64 = SHARDS_PER_TENANT as u64;

/// An administrator.
pub(super) struct Admin {
    pub(super) cx: Cx,
    pub(super) handle: Pooled<Handle>,
    pub(super) sequence: u64,
}

impl Admin {
    /// Runs until the process is killed.
    pub(super) async fn run(mut self) {
        while self.cx.phase() == Phase::Faulty {
            self.faulty_step().await;
            self.cx.sleep(1 + self.cx.below(PAUSE_TICKS)).await;
        }
        while self.cx.phase() == Phase::Calm {
            self.calm_step().await;
            self.cx.sleep(PAUSE_TICKS).await;
        }
    }

    async fn faulty_step(&mut self) {
        let run = self.cx.any_run();
        let (Some(run), roll) = (run, self.cx.below(32)) else { return self.make_run().await };
        if self.facts(run, |facts| facts.status.is_none() && !facts.deleted) {
            _ = self.create(run).await;
        }
        match roll {
            0..4 => self.make_run().await,
            4..7 => _ = self.register(run).await,
            7 => self.switch(run, Verb::PauseRun).await,
            8..12 => self.switch(run, Verb::ResumeRun).await,
            12..15 => self.request(run).await,
            15 | 16 => self.revoke(run).await,
            17..20 => self.unpark(run).await,
            20..23 => self.finish(run, Verb::CompleteRun).await,
            23 if self.cx.one_in(4) => self.finish(run, Verb::FailRun).await,
            24 if self.cx.one_in(4) => self.finish(run, Verb::CancelRun).await,
            25 | 26 => self.delete_any().await,
            27 => _ = self.collect().await,
            28 => self.query(run).await,
            29 => _ = self.list_some(run).await,
            30 => self.allot().await,
            _ => self.list_runs().await,
        }
    }

    /// Removes everything that keeps the simulation from finishing once faults are over. The
    /// administrator remembers which runs it created; their state comes from the coordinator.
    async fn calm_step(&mut self) {
        // An operator sets a damaged quota again; setting the same one changes nothing.
        self.allot().await;
        let runs = self.cx.shared.borrow().directory[self.cx.tenant as usize].clone();
        if runs.is_empty() && self.collect().await {
            self.cx.shared.borrow_mut().tidy[self.cx.tenant as usize] = true;
        }
        for run in runs {
            let (op, id) = (self.cx.begin(self.about(Verb::GetRun, run)), self.id(run));
            let result = self.handle.get_run(self.cx.tenant_id, id).await;
            self.cx.end_plain(&op, &result);
            let known = match result {
                Ok(record) => Some((record.status(), record.is_paused())),
                Err(GetRunError::RunNotFound) => None,
                // A stored value is damaged.
                Err(_) => continue,
            };
            match known {
                None => {
                    if self.create(run).await {
                        self.remove_from_directory(run);
                    }
                }
                Some((RunStatus::Initializing, _)) => {
                    // The shard quota may be exhausted.
                    if self.register(run).await {
                        self.finish(run, Verb::CancelRun).await;
                    }
                }
                Some((RunStatus::Active, paused)) => {
                    if paused {
                        self.switch(run, Verb::ResumeRun).await;
                    }
                    self.clear(run).await;
                    self.finish(run, Verb::CompleteRun).await;
                }
                Some((RunStatus::Done | RunStatus::Failed | RunStatus::Cancelled, _)) => {
                    self.remove_from_directory(run);
                }
            }
        }
    }

    /// Unparks the shards that are listed as parked.
    async fn clear(&mut self, run: u32) {
        for row in self.list(run).await {
            let Some(shard) = self.cx.find(self.cx.key_of_run(run, row.shard)) else { continue };
            let target = self.cx.target(shard);
            if row.status == ShardStatus::Parked {
                self.unpark_shard(target).await;
            }
        }
    }

    /// Sets the shard quota of the tenant, as its operator does with `store::set_allotment`.
    async fn allot(&mut self) {
        let max = match self.cx.phase() {
            Phase::Faulty => ALLOTMENT_LEAST + self.cx.odd_below(ALLOTMENT_RANGE) as u32,
            Phase::Calm => SHARDS_PER_TENANT,
        };
        let said = Said { allotment: Some(max), ..Said::default() };
        let op = self.cx.begin(Draft { said, ..Draft::new(Verb::SetAllotment) });
        let flight = set_allotment(self.cx.tenant_id, Some(Allotment::of_shards(max.into())));
        let result = fly_async(&mut self.cx.store.clone(), flight).await;
        self.cx.end_plain(&op, &result);
        if result.is_ok() {
            self.cx.judge(|oracle| oracle.check_allotment(&op, max));
        }
    }

    pub(super) fn facts<T>(&self, run: u32, look: impl FnOnce(&RunFacts) -> T) -> T {
        look(&self.cx.shared.borrow().oracle.runs[run as usize])
    }

    /// Returns the id of the next operation: a new one, or sometimes the previous one again.
    fn next_op_id(&mut self) -> OpId {
        let again = self.cx.phase() == Phase::Faulty && self.cx.one_in(REUSED_ONE_IN);
        self.sequence += u64::from(!again);
        self.last_op_id()
    }

    /// Returns an id that no other operation has.
    pub(super) fn new_op_id(&mut self) -> OpId {
        self.sequence += 1;
        self.last_op_id()
    }

    fn last_op_id(&self) -> OpId {
        OpId::from_raw(mix(u64::from(self.cx.process) << 48 ^ mix(self.sequence)))
    }

    async fn make_run(&mut self) {
        let open = self.cx.shared.borrow().directory[self.cx.tenant as usize].len();
        if open >= RUNS_MAX {
            return self.delete_any().await;
        }
        let key_count = 24 + self.cx.below(u64::from(KEYS_MAX) - 24) as u32;
        let roots = 1 + self.cx.below(ROOTS_MAX) as u32;
        let cuts: Vec<u32> = (1..roots).map(|root| root * key_count / roots).collect();
        let lease = LEASE_TICKS_MAX / 2 + self.cx.below(LEASE_TICKS_MAX / 2);
        let retries = (!self.cx.one_in(3)).then(|| 1 + self.cx.below(4) as u32);
        let semantics = match self.cx.odd_below(2) {
            0 => CursorSemantics::Dispatched,
            _ => CursorSemantics::Completed,
        };
        let run = {
            let mut shared = self.cx.shared.borrow_mut();
            let made = shared.oracle.runs_of[self.cx.tenant as usize].len() as u64;
            let id = RunId::from_raw(1 + made);
            let run = shared.oracle.expect_run(RunFacts {
                tenant: self.cx.tenant,
                id,
                status: None,
                deleted: false,
                paused: false,
                floor: 0,
                unprotected: false,
                lease,
                retries,
                semantics,
                key_count,
                cuts,
                roots_born: 0,
                chunks: Vec::new(),
                deleted_by: None,
                unsettled: 0,
                logged: 0,
                shards: Vec::new(),
                changed_at: 0,
                touched_at: 0,
            });
            shared.directory[self.cx.tenant as usize].push(run);
            run
        };
        _ = self.create(run).await;
        _ = self.register(run).await;
    }

    /// Creates a run. Returns whether it was rejected because the run exists.
    async fn create(&mut self, run: u32) -> bool {
        let (id, lease) = self.facts(run, |facts| (facts.id, facts.lease));
        let (retries, semantics) = self.facts(run, |facts| (facts.retries, facts.semantics));
        let op = self.cx.begin(Draft::of_run(Verb::CreateRun, run, OpId::from_raw(0)));
        let config = RunConfig::try_new(semantics, lease, retries);
        let config = config.expect("the lease duration is not zero");
        let result = self.handle.create_run(op.now, self.cx.tenant_id, id, config).await;
        self.cx.end_plain(&op, &result);
        matches!(result, Err(CreateRunError::RunAlreadyExists { .. }))
    }

    /// Registers the shards of a run. Returns whether it was rejected by the shard quota.
    async fn register(&mut self, run: u32) -> bool {
        if self.cx.phase() == Phase::Faulty && self.cx.odd_below(MALFORMED_ONE_IN) == 0 {
            self.send_malformed(run).await;
        }
        for _ in 0..TRIES_MAX {
            let (ending, no_room) = self.send_manifest(run, None).await;
            match ending {
                Ending::Failed { corrupt: false, .. } => {}
                Ending::Executed | Ending::Replayed if self.cx.one_in(8) => {
                    // A single root for all keys, under the id of the registered manifest.
                    let whole = self.send_manifest(run, Some(Vec::new()));
                    return whole.await.1;
                }
                Ending::Executed | Ending::Replayed | Ending::Refused | Ending::Failed { .. } => {
                    return no_room;
                }
            }
        }
        false
    }

    /// Sends the manifest of a run, or another one under its id. Returns the outcome, and whether
    /// the shard quota was exhausted.
    async fn send_manifest(&mut self, run: u32, other: Option<Vec<u32>>) -> (Ending, bool) {
        let op_id = OpId::from_raw(mix(self.id(run).as_raw() + 1));
        let (id, planned, count) =
            self.facts(run, |facts| (facts.id, facts.cuts.clone(), facts.key_count));
        let cuts = other.unwrap_or(planned);
        let keys = keys(&self.cx);
        let shards: Vec<_> = wanted_parts((0, count), &cuts)
            .into_iter()
            .zip(0..)
            .map(|(range, shard)| InitialShardInput {
                shard_id: ShardId::from_raw(shard),
                spec: spec(&keys, id, range),
                cursor: CursorUpdate::initial(),
            })
            .collect();
        let said = Said { cuts, ..Said::default() };
        let op = self.cx.begin(Draft { said, ..Draft::of_run(Verb::RegisterShards, run, op_id) });
        let (now, tenant) = (op.now, self.cx.tenant_id);
        let result = self.handle.register_shards(now, tenant, id, &shards, op_id).await;
        let ending = self.cx.end(&op, &result, None);
        (ending, matches!(result, Err(RegisterShardsError::ShardLimitExceeded { .. })))
    }

    async fn switch(&mut self, run: u32, verb: Verb) {
        let op_id = self.next_op_id();
        for _ in 0..TRIES_MAX {
            let (op, id) = (self.cx.begin(Draft::of_run(verb, run, op_id)), self.id(run));
            let (now, tenant) = (op.now, self.cx.tenant_id);
            let result = if verb == Verb::PauseRun {
                self.handle.pause_run(now, tenant, id, op_id).await
            } else {
                self.handle.resume_run(now, tenant, id, op_id).await
            };
            if !self.again(&op, &result) {
                break;
            }
        }
    }

    async fn finish(&mut self, run: u32, verb: Verb) {
        let op_id = self.next_op_id();
        for _ in 0..TRIES_MAX {
            let (op, id) = (self.cx.begin(Draft::of_run(verb, run, op_id)), self.id(run));
            let (now, tenant) = (op.now, self.cx.tenant_id);
            let result = match verb {
                Verb::CompleteRun => self.handle.complete_run(now, tenant, id, op_id).await,
                Verb::FailRun => self.handle.fail_run(now, tenant, id, op_id).await,
                Verb::CancelRun => self.handle.cancel_run(now, tenant, id, op_id).await,
                other => unreachable!("{other:?} does not end a run"),
            };
            let again = self.again(&op, &result);
            let over = matches!(result, Err(RunTransitionError::RunTerminal { .. }));
            if result.is_ok() || over {
                self.remove_from_directory(run);
            }
            if !again {
                break;
            }
        }
        if self.cx.phase() == Phase::Faulty && self.facts(run, RunFacts::is_over) {
            self.delete_any().await;
        }
    }

    /// Returns whether to retry: the outcome is unknown, or a replay is to be observed.
    fn again(&self, op: &Op, result: &Result<IdempotentOutcome<()>, RunTransitionError>) -> bool {
        match self.cx.end(op, result, None) {
            Ending::Failed { corrupt, .. } => !corrupt,
            Ending::Executed | Ending::Replayed => self.cx.one_in(8),
            Ending::Refused => false,
        }
    }

    pub(super) fn id(&self, run: u32) -> RunId {
        self.facts(run, |facts| facts.id)
    }

    /// Removes a run from the list of runs with work.
    fn remove_from_directory(&self, run: u32) {
        let directory = &mut self.cx.shared.borrow_mut().directory;
        directory[self.cx.tenant as usize].retain(|other| *other != run);
    }

    /// Returns a run to delete: mostly a finished one that still exists, otherwise any.
    fn deletable_run(&self) -> Option<u32> {
        let shared = self.cx.shared.borrow();
        let ours = &shared.oracle.runs_of[self.cx.tenant as usize];
        let is_left = |run: &u32| {
            let facts = &shared.oracle.runs[*run as usize];
            facts.is_over() && !facts.deleted
        };
        let left = ours.iter().copied().rev().find(is_left);
        let any = (!ours.is_empty()).then(|| ours[self.cx.below(ours.len() as u64) as usize]);
        if self.cx.one_in(4) { any } else { left.or(any) }
    }

    async fn delete_any(&mut self) {
        let Some(run) = self.deletable_run() else { return };
        let op_id = self.next_op_id();
        for _ in 0..TRIES_MAX {
            let (op, id) =
                (self.cx.begin(Draft::of_run(Verb::DeleteRun, run, op_id)), self.id(run));
            let result = self.handle.delete_run(op.now, self.cx.tenant_id, id, op_id).await;
            match self.cx.end(&op, &result, None) {
                Ending::Failed { corrupt: false, .. } => {}
                Ending::Executed | Ending::Replayed if self.cx.one_in(4) => {}
                Ending::Executed | Ending::Replayed | Ending::Refused | Ending::Failed { .. } => {
                    break;
                }
            }
        }
    }

    /// Collects abandoned runs and the remains of deleted ones. Returns whether none are left.
    async fn collect(&mut self) -> bool {
        let op = self.cx.begin(Draft::new(Verb::CollectRuns));
        let (mut gone, tenant) = (Vec::new(), self.cx.tenant_id);
        let result = self
            .handle
            .gc_stale_initializing_runs_into(op.now, tenant, STALE_AFTER, COLLECT_MAX, &mut gone)
            .await;
        self.cx.end_plain(&op, &result);
        let all = result.is_ok() && gone.len() < COLLECT_MAX;
        if all {
            self.cx.judge(|oracle| oracle.check_collection(&op));
        }
        for id in gone {
            let run = self.cx.shared.borrow().oracle.run_of(self.cx.tenant, id);
            self.cx.judge(|oracle| {
                let deleted = run.is_some_and(|run| oracle.runs[run as usize].deleted);
                let deleted = deleted || op.misled.get();
                oracle.require(
                    deleted,
                    Rule::Acknowledged,
                    "a collection reported a run that was not deleted",
                )
            });
            run.into_iter().for_each(|run| self.remove_from_directory(run));
        }
        all
    }

    fn any_shard(&self, run: u32) -> Option<LeaseRef> {
        let shared = self.cx.shared.borrow();
        let ours = shared.oracle.shards_of[self.cx.tenant as usize].iter().copied();
        let of_run = ours.filter(|shard| shared.oracle.shards[*shard as usize].run == run);
        let shards: Vec<u32> = of_run.collect();
        let count = shards.len() as u64;
        let shard = (count > 0).then(|| shards[self.cx.below(count) as usize])?;
        let key = shared.oracle.shards[shard as usize].key;
        Some(LeaseRef::to(shard, key))
    }

    async fn request(&mut self, run: u32) {
        let Some(target) = self.any_shard(run) else { return };
        let op_id = self.next_op_id();
        let action = self.any_action(target);
        let until = self.cx.now().saturating_add(REQUEST_TICKS);
        for _ in 0..TRIES_MAX {
            let asked = Some((action.clone(), until.as_raw()));
            let said = Said { asked, ..Said::default() };
            let draft = Draft::about(Verb::RequestAction, target, op_id);
            let op = self.cx.begin(Draft { said, ..draft });
            let (now, tenant) = (op.now, self.cx.tenant_id);
            let result =
                self.handle.request_action(now, tenant, target.key, &action, until, op_id).await;
            match self.cx.end(&op, &result, None) {
                Ending::Failed { corrupt: false, .. } => {}
                Ending::Executed | Ending::Replayed if self.cx.one_in(8) => {}
                Ending::Executed | Ending::Replayed | Ending::Refused | Ending::Failed { .. } => {
                    break;
                }
            }
        }
    }

    fn any_action(&self, target: LeaseRef) -> ShardAction {
        let below = |bound: usize| self.cx.below(bound as u64) as usize;
        match self.cx.below(6) {
            0 => ShardAction::Split(None),
            1 => ShardAction::Release,
            2 => ShardAction::HandOff(None),
            3 => ShardAction::Withdraw,
            4 => {
                let (from, to) = self.cx.shared.borrow().oracle.shards[target.shard as usize].range;
                let at = from + below((to - from) as usize) as u32;
                ShardAction::Split(SplitKey::try_new(keys(&self.cx).key(at)))
            }
            _ => {
                let names = &self.cx.shared.borrow().names[self.cx.tenant as usize];
                ShardAction::HandOff(Some(WorkerId::from_raw(names[below(names.len())])))
            }
        }
    }

    async fn revoke(&mut self, run: u32) {
        if let Some(target) = self.any_shard(run) {
            let fence = self.any_fence(target);
            self.revoke_lease(target, fence).await;
        }
    }

    async fn revoke_lease(&mut self, target: LeaseRef, fence: Option<u64>) {
        let op_id = self.next_op_id();
        let said = Said { fence, ..Said::default() };
        let op = self.cx.begin(Draft { said, ..Draft::about(Verb::RevokeLease, target, op_id) });
        let (now, tenant) = (op.now, self.cx.tenant_id);
        let expected = fence.map(FenceEpoch::from_raw);
        let result = self.handle.revoke_lease(now, tenant, target.key, expected, op_id).await;
        self.cx.end(&op, &result, None);
    }

    /// Returns no fence, that of the shard, or the one before it.
    fn any_fence(&self, target: LeaseRef) -> Option<u64> {
        let current = self.cx.shared.borrow().oracle.shards[target.shard as usize].fence;
        match self.cx.odd_below(3) {
            0 => Some(current),
            1 => Some(current.saturating_sub(1)),
            _ => None,
        }
    }

    async fn unpark(&mut self, run: u32) {
        if let Some(target) = self.any_shard(run) {
            self.unpark_shard(target).await;
        }
    }

    async fn unpark_shard(&mut self, target: LeaseRef) {
        let op_id = self.next_op_id();
        for _ in 0..TRIES_MAX {
            let op = self.cx.begin(Draft::about(Verb::Unpark, target, op_id));
            let result =
                self.handle.unpark_shard(op.now, self.cx.tenant_id, target.key, op_id).await;
            match self.cx.end(&op, &result, None) {
                Ending::Failed { corrupt: false, .. } => {}
                Ending::Executed if self.cx.one_in(4) => {}
                Ending::Executed | Ending::Replayed | Ending::Refused | Ending::Failed { .. } => {
                    break;
                }
            }
        }
    }

    async fn query(&mut self, run: u32) {
        let (op, id) = (self.cx.begin(self.about(Verb::GetRun, run)), self.id(run));
        let result = self.handle.get_run(self.cx.tenant_id, id).await;
        self.cx.end_plain(&op, &result);
        if let Ok(result) = result {
            self.cx.judge(|oracle| oracle.check_run_query(&op, &result));
            let (status, roots) = (result.status() as u64, result.root_shards().len() as u64);
            self.cx.hash_values(&[status, result.is_paused().into(), roots]);
        }
        let op = self.cx.begin(self.about(Verb::Progress, run));
        let result = self.handle.get_run_progress(op.now, self.cx.tenant_id, id).await;
        if let Ok(progress) = &result {
            self.cx.judge(|oracle| oracle.check_damaged_count(&op, progress));
        }
        if result.as_ref().is_ok_and(|progress| progress.damaged > 0) {
            self.cx.end_damaged(&op);
            return;
        }
        self.cx.end_plain(&op, &result);
        if let Ok(progress) = result {
            self.cx.judge(|oracle| oracle.check_progress_query(&op, &progress));
            let RunProgress { total, active, done, split, parked, leased, .. } = progress;
            self.cx.hash_values(&[total, active, done, split, parked, leased]);
        }
    }

    pub(super) fn about(&self, verb: Verb, run: u32) -> Draft {
        Draft::of_run(verb, run, OpId::from_raw(0))
    }
}
