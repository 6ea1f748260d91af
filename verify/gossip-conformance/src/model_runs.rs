//! The naive coordinator's runs and claims.

use gossip_contracts::identity::{RunId, ShardId, ShardKey, TenantId};
use gossip_coordination::protocol::RunTransitionKind;
use gossip_coordination::{ParkReason, RUN_OP_LOG_CAP, RunConfig, RunStatus, ShardStatus};

use super::model::{Answer, Model, Run, Shard};
use super::world::ROOTS;

impl Run {
    fn known(&self, op: u64, what: &str) -> Option<Answer> {
        let mut all = self.log.iter().chain(&self.registration);
        let (_, done) = all.find(|(known, _)| *known == op)?;
        Some(if done == what { Ok("Replayed".into()) } else { Err("OpIdConflict") })
    }

    pub(super) fn count(&self, status: ShardStatus) -> usize {
        self.shards.values().filter(|shard| shard.status == status).count()
    }
}

impl Model {
    fn run_mut(&mut self, tenant: TenantId, run: RunId) -> Result<&mut Run, &'static str> {
        let home = self.homes.get_mut(&tenant);
        home.and_then(|home| home.runs.get_mut(&run)).ok_or("RunNotFound")
    }

    pub(super) fn create(&mut self, tenant: TenantId, run: RunId, config: RunConfig) -> Answer {
        let home = self.homes.entry(tenant).or_default();
        if home.runs.contains_key(&run) || home.deleted.contains(&run) {
            return Err("RunAlreadyExists");
        }
        let new = Run {
            config,
            status: RunStatus::Initializing,
            paused: false,
            log: Vec::new(),
            registration: None,
            roots: Vec::new(),
            floor: 0,
            shards: Default::default(),
        };
        home.runs.insert(run, new);
        Ok("Created".into())
    }

    /// Registers the first `count` of the roots.
    pub(super) fn register(
        &mut self,
        tenant: TenantId,
        run_id: RunId,
        count: usize,
        op: u64,
    ) -> Answer {
        let room = self.room_for(tenant, count);
        let what = format!("register {count}");
        let run = self.run_mut(tenant, run_id)?;
        if let Some(answer) = run.known(op, &what) {
            answer?;
            return Ok(format!("Replayed {:?}", run.roots));
        }
        let same = run.registration.as_ref().is_some_and(|(_, done)| *done == what);
        if same && run.status == RunStatus::Active {
            return Ok(format!("Replayed {:?}", run.roots));
        }
        if run.status != RunStatus::Initializing {
            return Err("WrongStatus");
        }
        if !room {
            return Err("ShardLimitExceeded");
        }
        for root in &ROOTS[..count] {
            run.roots.push(root.shard_id);
            let (floor, shard) = (run.floor, Shard::new(root.spec.start, root.spec.end));
            run.shards.insert(root.shard_id, Shard { floor, ..shard });
        }
        run.registration = Some((op, what));
        run.status = RunStatus::Active;
        Ok(format!("Executed {:?}", run.roots))
    }

    pub(super) fn transition(
        &mut self,
        tenant: TenantId,
        run: RunId,
        kind: RunTransitionKind,
        op: u64,
    ) -> Answer {
        let what = format!("{kind:?}");
        let run = self.run_mut(tenant, run)?;
        if let Some(answer) = run.known(op, &what) {
            return answer;
        }
        if run.status.is_terminal() {
            return Err("RunTerminal");
        }
        if run.status == RunStatus::Initializing && kind != RunTransitionKind::Cancel {
            return Err("WrongStatus");
        }
        let open = run.count(ShardStatus::Active) + run.count(ShardStatus::Parked);
        if kind == RunTransitionKind::Complete && open > 0 {
            return Err("NotSettled");
        }
        match kind {
            RunTransitionKind::Complete => run.status = RunStatus::Done,
            RunTransitionKind::Fail => run.status = RunStatus::Failed,
            RunTransitionKind::Cancel => run.status = RunStatus::Cancelled,
            RunTransitionKind::Pause => run.paused = true,
            RunTransitionKind::Resume => run.paused = false,
            other => unreachable!("no sequence has {other:?}"),
        }
        run.log.push((op, what));
        if run.log.len() > RUN_OP_LOG_CAP {
            run.log.remove(0);
        }
        Ok("Executed".into())
    }

    pub(super) fn raise_floor(&mut self, tenant: TenantId, run_id: RunId, at_least: u64) -> Answer {
        let run = self.run_mut(tenant, run_id)?;
        run.floor = (run.floor + (1 << 20)).max(at_least);
        for shard in run.shards.values_mut() {
            shard.floor = run.floor;
        }
        Ok(format!("Raised {}", run.floor))
    }

    pub(super) fn delete(&mut self, tenant: TenantId, run_id: RunId, op: u64) -> Answer {
        let home = self.homes.entry(tenant).or_default();
        if home.deleted.contains(&run_id) {
            return Ok("Replayed".into());
        }
        let run = self.run_mut(tenant, run_id)?;
        if let Some(answer) = run.known(op, "delete") {
            return answer;
        }
        if !run.status.is_terminal() {
            return Err("NotTerminal");
        }
        let home = self.homes.entry(tenant).or_default();
        home.runs.remove(&run_id);
        home.deleted.insert(run_id);
        Ok("Executed".into())
    }

    /// A claim may take any candidate: `picked` is the backend's choice, and `parked` are the
    /// shards that the backend lists as parked afterwards.
    pub(super) fn claim(
        &mut self,
        now: u64,
        tenant: TenantId,
        run_id: RunId,
        by: u64,
        picked: Option<ShardId>,
        parked: &[ShardId],
    ) -> Answer {
        let run = self.run_mut(tenant, run_id)?;
        if run.status.is_terminal() {
            return Err("RunTerminal");
        }
        if run.paused {
            return Err("RunPaused");
        }
        let max = run.config.max_shard_retries().unwrap_or(u32::MAX);
        let free = |shard: &Shard| shard.status == ShardStatus::Active && !shard.live(now);
        // A claim parks the exhausted shards that it tries; which ones it tries is its choice.
        for (id, shard) in &mut run.shards {
            if free(shard) && shard.attempts > max && (picked.is_none() || parked.contains(id)) {
                shard.end(ShardStatus::Parked);
                shard.reason = Some(ParkReason::TooManyErrors);
            }
        }
        let good = |shard: &Shard| free(shard) && shard.attempts <= max;
        match picked {
            Some(id) if run.shards.get(&id).is_some_and(good) => {
                self.acquire(now, tenant, ShardKey::new(run_id, id), by)
            }
            Some(_) => Err("a shard that was not available"),
            None if run.shards.values().any(good) => Ok("a shard was available".into()),
            None => Err("NoneAvailable"),
        }
    }
}
