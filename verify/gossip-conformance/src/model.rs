//! A naive coordinator: maps of plain structs and the rules as the design states them.
//!
//! It is written independently of the kernel on purpose and shares none of its code: the operation
//! log holds strings instead of hashes, ranges are copied, and every search is linear. Answers are
//! strings, the names of outcomes and refusals. The model takes the ids of new shards from the
//! backend, since it cannot derive them.

use std::collections::{BTreeMap, BTreeSet};

use gossip_contracts::identity::{RunId, ShardId, ShardKey, TenantId};
use gossip_coordination::protocol::ReleaseMode;
use gossip_coordination::{Lease, OP_LOG_CAP, ParkReason, RunConfig, RunStatus, ShardStatus};

use super::Settings;

/// Result of an operation: its answer, or the name of its refusal.
pub(super) type Answer = Result<String, &'static str>;

/// The state of the model.
pub(super) struct Model {
    pub(super) limits: Settings,
    pub(super) homes: BTreeMap<TenantId, Home>,
}

/// The state of one tenant.
#[derive(Default)]
pub(super) struct Home {
    pub(super) runs: BTreeMap<RunId, Run>,
    pub(super) deleted: BTreeSet<RunId>,
}

/// A run with its shards.
pub(super) struct Run {
    pub(super) config: RunConfig,
    pub(super) status: RunStatus,
    pub(super) paused: bool,
    /// Operation log, oldest first.
    pub(super) log: Vec<(u64, String)>,
    pub(super) registration: Option<(u64, String)>,
    pub(super) roots: Vec<ShardId>,
    /// The fence floor; every shard has a copy.
    pub(super) floor: u64,
    pub(super) shards: BTreeMap<ShardId, Shard>,
}

/// A shard.
#[derive(Clone)]
pub(super) struct Shard {
    pub(super) start: Vec<u8>,
    pub(super) end: Vec<u8>,
    pub(super) cursor: Option<Vec<u8>>,
    pub(super) status: ShardStatus,
    pub(super) reason: Option<ParkReason>,
    pub(super) fence: u64,
    /// The floor of the run.
    pub(super) floor: u64,
    /// The handoff that raised the fence last, if the last change was a handoff.
    pub(super) moved_by: Option<u64>,
    /// Owner and deadline.
    pub(super) lease: Option<(u64, u64)>,
    pub(super) attempts: u32,
    pub(super) grants: u32,
    pub(super) parent: Option<ShardId>,
    pub(super) spawned: Vec<ShardId>,
    /// The split that created the shard.
    pub(super) made_by: Option<(u64, String)>,
    /// Operation log, oldest first.
    pub(super) log: Vec<(u64, String)>,
    /// The highest sequence executed since the last grant.
    pub(super) sequence: u64,
    pub(super) offer: Option<StandingOffer>,
    pub(super) request: Option<Request>,
}

/// An open offer.
#[derive(Clone)]
pub(super) struct StandingOffer {
    pub(super) id: u64,
    pub(super) to: u64,
    pub(super) until: u64,
    pub(super) what: String,
}

/// A pending request.
#[derive(Clone)]
pub(super) struct Request {
    pub(super) op: u64,
    pub(super) action: &'static str,
    pub(super) until: u64,
}

/// A split of `[start, end)` at a key.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cut<'c> {
    pub(super) start: &'c [u8],
    pub(super) at: &'c [u8],
    pub(super) end: &'c [u8],
    pub(super) parts: Parts<'c>,
}

/// The parts that a split creates.
#[derive(Clone, Copy, Debug)]
pub(super) enum Parts<'c> {
    /// The parent keeps the left part.
    Residual,
    /// Two children; the left one starts with this cursor.
    Children { carried: Option<&'c [u8]> },
}

impl Cut<'_> {
    /// Checks that the parts tile the shard and that its cursor is inherited.
    fn fits(&self, shard: &Shard) -> bool {
        let reached = shard.cursor.as_deref();
        let carries = match self.parts {
            Parts::Residual => true,
            Parts::Children { carried } => carried == reached,
        };
        let tiles = self.start == shard.start && self.end == shard.end;
        let between = self.start < self.at && self.at < self.end;
        tiles && between && carries && reached.is_none_or(|reached| reached < self.at)
    }
}

impl Shard {
    pub(super) fn new(start: &[u8], end: &[u8]) -> Self {
        Self {
            start: start.to_vec(),
            end: end.to_vec(),
            cursor: None,
            status: ShardStatus::Active,
            reason: None,
            fence: 1,
            floor: 0,
            moved_by: None,
            lease: None,
            attempts: 0,
            grants: 0,
            parent: None,
            spawned: Vec::new(),
            made_by: None,
            log: Vec::new(),
            sequence: 0,
            offer: None,
            request: None,
        }
    }

    pub(super) fn live(&self, now: u64) -> bool {
        self.lease.is_some_and(|(_, deadline)| now < deadline)
    }

    /// Returns `Replayed` if `op` is in the log, a conflict if it has another payload there.
    fn known(&self, op: u64, what: &str) -> Option<Answer> {
        let (_, done) = self.log.iter().find(|(known, _)| *known == op)?;
        Some(if done == what { Ok("Replayed".into()) } else { Err("OpIdConflict") })
    }

    fn remember(&mut self, op: u64, what: String) {
        self.log.push((op, what));
        if self.log.len() > OP_LOG_CAP {
            self.log.remove(0);
        }
    }

    fn ladder(&self, now: u64, tenant: TenantId, lease: &Lease) -> Result<(), &'static str> {
        if lease.tenant() != tenant {
            return Err("TenantMismatch");
        }
        if self.status != ShardStatus::Active {
            return Err("ShardTerminal");
        }
        match self.lease {
            _ if lease.fence().as_raw() != self.fence => Err("StaleFence"),
            None => Err("StaleFence"),
            Some((_, deadline)) if now >= deadline => Err("LeaseExpired"),
            Some((owner, _)) if owner != lease.owner().as_raw() => Err("StaleFence"),
            Some(_) if lease.fence().as_raw() < self.floor => Err("StaleFence"),
            Some(_) => Ok(()),
        }
    }

    /// A lease without a sequence is never overtaken.
    fn not_overtaken(&self, lease: &Lease) -> Result<(), &'static str> {
        match lease.sequence().as_raw() {
            1.. if lease.sequence().as_raw() <= self.sequence => Err("OperationTooOld"),
            _ => Ok(()),
        }
    }

    /// Records an operation of the lease holder.
    fn executed(&mut self, lease: &Lease, op: u64, what: String) {
        self.sequence = self.sequence.max(lease.sequence().as_raw());
        self.remember(op, what);
    }

    fn not_offered(&self) -> Result<(), &'static str> {
        if self.offer.is_some() { Err("Offered") } else { Ok(()) }
    }

    fn cursor_allows(&self, key: &[u8]) -> Result<(), &'static str> {
        if self.cursor.as_deref().is_some_and(|reached| key < reached) {
            return Err("CursorRegression");
        }
        if key < &self.start[..] || key >= &self.end[..] {
            return Err("CursorOutOfBounds");
        }
        Ok(())
    }

    fn advance(&mut self, key: &[u8]) {
        if self.cursor.as_deref().is_none_or(|reached| key > reached) {
            self.attempts = 0;
        }
        self.cursor = Some(key.to_vec());
    }

    fn drop_expired_request(&mut self, now: u64) {
        self.request = self.request.take().filter(|request| now < request.until);
    }

    fn drop_request(&mut self, fulfilled: &str) {
        self.request = self.request.take().filter(|request| request.action != fulfilled);
    }

    fn let_go(&mut self) {
        self.lease = None;
        self.offer = None;
        self.request = None;
    }

    pub(super) fn end(&mut self, status: ShardStatus) {
        self.status = status;
        self.let_go();
    }

    fn grant(&mut self, now: u64, by: u64, duration: u64) -> String {
        self.let_go();
        self.sequence = 0;
        self.fence = (self.fence + 1).max(self.floor);
        self.moved_by = None;
        self.grants += 1;
        let deadline = now.saturating_add(duration);
        self.lease = Some((by, deadline));
        grant_words(self.fence, deadline, self.attempts, self)
    }
}

/// Formats a grant; the backend's grant is formatted the same way.
pub(super) fn grant_words(fence: u64, deadline: u64, attempts: u32, shard: &Shard) -> String {
    let Shard { start, end, cursor, parent, spawned, .. } = shard;
    format!(
        "Granted fence {fence} until {deadline} attempt {attempts} \
         {start:?}..{end:?} at {cursor:?} of {parent:?} spawned {spawned:?}"
    )
}

impl Model {
    pub(super) fn new(limits: Settings) -> Self {
        Self { limits, homes: BTreeMap::new() }
    }

    pub(super) fn run(&self, tenant: TenantId, run: RunId) -> Option<&Run> {
        self.homes.get(&tenant)?.runs.get(&run)
    }

    pub(super) fn shard(&self, tenant: TenantId, key: ShardKey) -> Option<&Shard> {
        self.run(tenant, key.run())?.shards.get(&key.shard())
    }

    fn shard_mut(&mut self, tenant: TenantId, key: ShardKey) -> Result<&mut Shard, &'static str> {
        let run = self.homes.get_mut(&tenant).and_then(|home| home.runs.get_mut(&key.run()));
        run.and_then(|run| run.shards.get_mut(&key.shard())).ok_or("ShardNotFound")
    }

    fn run_of(&self, tenant: TenantId, key: ShardKey) -> Result<&Run, &'static str> {
        self.run(tenant, key.run()).ok_or("ShardNotFound")
    }

    fn run_not_over(&self, tenant: TenantId, key: ShardKey) -> Result<(), &'static str> {
        if self.run_of(tenant, key)?.status.is_terminal() { Err("RunTerminal") } else { Ok(()) }
    }

    fn run_starts(&self, tenant: TenantId, key: ShardKey) -> Result<RunConfig, &'static str> {
        self.run_not_over(tenant, key)?;
        let run = self.run_of(tenant, key)?;
        if run.paused { Err("RunPaused") } else { Ok(run.config) }
    }

    pub(super) fn room_for(&self, tenant: TenantId, more: usize) -> bool {
        let count = |home: &Home| home.runs.values().map(|run| run.shards.len()).sum::<usize>();
        let own = self.homes.get(&tenant).map_or(0, count);
        let all: usize = self.homes.values().map(count).sum();
        own + more <= self.limits.max_shards_per_tenant
            && all + more <= self.limits.max_total_shards
    }

    pub(super) fn acquire(&mut self, now: u64, tenant: TenantId, key: ShardKey, by: u64) -> Answer {
        self.shard_mut(tenant, key)?;
        let config = self.run_starts(tenant, key)?;
        let shard = self.shard_mut(tenant, key)?;
        if shard.status != ShardStatus::Active {
            return Err("ShardTerminal");
        }
        if shard.live(now) {
            return Err("AlreadyLeased");
        }
        if config.max_shard_retries().is_some_and(|max| shard.attempts > max) {
            shard.end(ShardStatus::Parked);
            shard.reason = Some(ParkReason::TooManyErrors);
            return Err("ShardTerminal");
        }
        shard.attempts += 1;
        Ok(shard.grant(now, by, config.lease_duration()))
    }

    pub(super) fn accept(
        &mut self,
        now: u64,
        tenant: TenantId,
        key: ShardKey,
        by: u64,
        id: u64,
    ) -> Answer {
        self.shard_mut(tenant, key)?;
        let config = self.run_starts(tenant, key)?;
        let shard = self.shard_mut(tenant, key)?;
        if shard.status != ShardStatus::Active {
            return Err("ShardTerminal");
        }
        match &shard.offer {
            Some(offer) if offer.id != id => return Err("NoOffer"),
            None => return Err("NoOffer"),
            Some(offer) if offer.to != by => return Err("NotDestination"),
            Some(offer) if now >= offer.until => return Err("OfferExpired"),
            Some(_) => {}
        }
        let granted = shard.grant(now, by, config.lease_duration());
        shard.moved_by = Some(id);
        Ok(granted)
    }

    pub(super) fn renew(&mut self, now: u64, tenant: TenantId, lease: &Lease) -> Answer {
        self.shard_mut(tenant, lease.key())?.ladder(now, tenant, lease)?;
        self.run_not_over(tenant, lease.key())?;
        let run = self.run_of(tenant, lease.key())?;
        let (paused, duration) = (run.paused, run.config.lease_duration());
        let shard = self.shard_mut(tenant, lease.key())?;
        shard.drop_expired_request(now);
        let mut wanted = now.saturating_add(duration);
        if let Some(offer) = &shard.offer {
            wanted = wanted.min(offer.until.saturating_add(duration));
        }
        let (owner, deadline) = shard.lease.ok_or("StaleFence")?;
        let deadline = deadline.max(wanted);
        shard.lease = Some((owner, deadline));
        let offer = shard.offer.as_ref().map(|offer| (offer.id, offer.until));
        let request = shard.request.as_ref().map(|request| (request.action, request.until));
        Ok(format!("Renewed until {deadline} offer {offer:?} request {request:?} paused {paused}"))
    }

    pub(super) fn checkpoint(
        &mut self,
        now: u64,
        tenant: TenantId,
        lease: &Lease,
        key: &[u8],
        op: u64,
    ) -> Answer {
        let what = format!("checkpoint {key:?}");
        let shard = self.shard_mut(tenant, lease.key())?;
        if let Some(answer) = shard.known(op, &what) {
            return answer;
        }
        shard.ladder(now, tenant, lease)?;
        shard.not_overtaken(lease)?;
        shard.not_offered()?;
        shard.cursor_allows(key)?;
        shard.advance(key);
        shard.drop_expired_request(now);
        shard.executed(lease, op, what);
        Ok("Executed".into())
    }

    pub(super) fn complete(
        &mut self,
        now: u64,
        tenant: TenantId,
        lease: &Lease,
        key: &[u8],
        op: u64,
    ) -> Answer {
        let what = format!("complete {key:?}");
        let shard = self.shard_mut(tenant, lease.key())?;
        if let Some(answer) = shard.known(op, &what) {
            return answer;
        }
        shard.ladder(now, tenant, lease)?;
        shard.not_overtaken(lease)?;
        shard.not_offered()?;
        shard.cursor_allows(key)?;
        shard.cursor = Some(key.to_vec());
        shard.end(ShardStatus::Done);
        shard.executed(lease, op, what);
        Ok("Executed".into())
    }

    pub(super) fn park(
        &mut self,
        now: u64,
        tenant: TenantId,
        lease: &Lease,
        reason: ParkReason,
        op: u64,
    ) -> Answer {
        let what = format!("park {reason:?}");
        let shard = self.shard_mut(tenant, lease.key())?;
        if let Some(answer) = shard.known(op, &what) {
            return answer;
        }
        shard.ladder(now, tenant, lease)?;
        shard.not_overtaken(lease)?;
        shard.not_offered()?;
        shard.end(ShardStatus::Parked);
        shard.reason = Some(reason);
        shard.executed(lease, op, what);
        Ok("Executed".into())
    }

    pub(super) fn release(
        &mut self,
        now: u64,
        tenant: TenantId,
        lease: &Lease,
        mode: ReleaseMode,
        op: u64,
    ) -> Answer {
        let what = format!("release {mode:?}");
        let shard = self.shard_mut(tenant, lease.key())?;
        if let Some(answer) = shard.known(op, &what) {
            return answer;
        }
        shard.ladder(now, tenant, lease)?;
        shard.not_overtaken(lease)?;
        shard.not_offered()?;
        if mode == ReleaseMode::Clean {
            shard.attempts = shard.attempts.saturating_sub(1);
        }
        shard.let_go();
        shard.executed(lease, op, what);
        Ok("Executed".into())
    }

    /// `terms` are the handoff, the destination and the deadline.
    pub(super) fn offer(
        &mut self,
        now: u64,
        tenant: TenantId,
        lease: &Lease,
        (id, to, until): (u64, u64, u64),
        key: Option<&[u8]>,
        op: u64,
    ) -> Answer {
        let what = format!("offer {id} to {to} until {until} at {key:?}");
        let shard = self.shard_mut(tenant, lease.key())?;
        if let Some(answer) = shard.known(op, &what) {
            return answer;
        }
        shard.ladder(now, tenant, lease)?;
        shard.not_overtaken(lease)?;
        self.run_not_over(tenant, lease.key())?;
        let lasts = self.run_of(tenant, lease.key())?.config.lease_duration();
        let shard = self.shard_mut(tenant, lease.key())?;
        match &shard.offer {
            Some(standing) if standing.what == what => return Ok("Replayed".into()),
            Some(_) => return Err("Offered"),
            None if shard.log.iter().any(|(_, done)| *done == format!("withdraw {id}")) => {
                return Err("Withdrawn");
            }
            None if to == lease.owner().as_raw() => return Err("InvalidDestination"),
            None if until <= now || until > now.saturating_add(4 * lasts) => {
                return Err("InvalidOfferDeadline");
            }
            None => {}
        }
        if let Some(key) = key {
            shard.cursor_allows(key)?;
            shard.advance(key);
        }
        shard.drop_request("hand-off");
        shard.offer = Some(StandingOffer { id, to, until, what: what.clone() });
        shard.executed(lease, op, what);
        Ok("Executed".into())
    }

    pub(super) fn withdraw(
        &mut self,
        now: u64,
        tenant: TenantId,
        lease: &Lease,
        id: u64,
        op: u64,
    ) -> Answer {
        let what = format!("withdraw {id}");
        let shard = self.shard_mut(tenant, lease.key())?;
        if let Some(answer) = shard.known(op, &what) {
            return answer;
        }
        shard.ladder(now, tenant, lease)?;
        shard.not_overtaken(lease)?;
        if shard.offer.as_ref().is_some_and(|offer| offer.id != id) {
            return Err("NoOffer");
        }
        shard.offer = None;
        shard.drop_request("withdraw");
        shard.executed(lease, op, what);
        Ok("Executed".into())
    }

    /// `made` are the ids that the backend gave the new shards.
    pub(super) fn split(
        &mut self,
        now: u64,
        tenant: TenantId,
        lease: &Lease,
        cut: Cut<'_>,
        op: u64,
        made: &[ShardId],
    ) -> Answer {
        let what = format!("{cut:?}");
        let parent = self.shard_mut(tenant, lease.key())?.clone();
        if let Some(answer) = parent.known(op, &what) {
            answer?;
            return Ok(format!("Replayed {:?}", self.made_by(tenant, lease.key(), op, &what)));
        }
        if let Parts::Residual = cut.parts
            && let Some(answer) = self.probe(tenant, lease.key(), op, &what)
        {
            return answer;
        }
        parent.ladder(now, tenant, lease)?;
        parent.not_overtaken(lease)?;
        self.run_not_over(tenant, lease.key())?;
        parent.not_offered()?;
        let count = match cut.parts {
            Parts::Residual => 1,
            Parts::Children { .. } => 2,
        };
        if !cut.fits(&parent) || !self.room_for(tenant, count) {
            return Err("SplitInvalid");
        }
        assert_eq!(made.len(), count, "the backend returns the ids of the new shards");
        self.make_parts(tenant, lease, cut, op, made);
        Ok(format!("Executed {made:?}"))
    }

    fn make_parts(
        &mut self,
        tenant: TenantId,
        lease: &Lease,
        cut: Cut<'_>,
        op: u64,
        made: &[ShardId],
    ) {
        let key = lease.key();
        let home = self.homes.get_mut(&tenant).expect("the shard was found above");
        let run = home.runs.get_mut(&key.run()).expect("the shard was found above");
        let limit = run.config.max_shard_retries().map_or(u32::MAX, |max| max.saturating_sub(1));
        let shard = run.shards.get_mut(&key.shard()).expect("the shard was found above");
        let mut parts = vec![Shard::new(cut.at, cut.end)];
        match cut.parts {
            Parts::Residual => {
                shard.end = cut.at.to_vec();
                shard.drop_request("split");
            }
            Parts::Children { .. } => {
                let left = Shard::new(cut.start, cut.at);
                parts.insert(0, Shard { cursor: shard.cursor.clone(), ..left });
                shard.end(ShardStatus::Split);
            }
        }
        let made_by = (op, format!("{cut:?}"));
        shard.spawned.extend(made);
        shard.executed(lease, op, made_by.1.clone());
        let (fence, floor) = (shard.fence, shard.floor);
        let attempts = shard.attempts.min(limit);
        for (id, part) in made.iter().zip(parts) {
            let (parent, made_by) = (Some(key.shard()), Some(made_by.clone()));
            let twin =
                run.shards.insert(*id, Shard { fence, floor, attempts, parent, made_by, ..part });
            assert!(twin.is_none() && id.is_derived(), "a new shard has a new, derived id");
        }
    }

    /// Returns the shards that an operation on `key` created.
    fn made_by(&self, tenant: TenantId, key: ShardKey, op: u64, what: &str) -> Vec<ShardId> {
        let Some(shard) = self.shard(tenant, key) else { return Vec::new() };
        let is_of = |id: &&ShardId| {
            let child = self.shard(tenant, ShardKey::new(key.run(), **id));
            let made_by = child.and_then(|child| child.made_by.as_ref());
            made_by.is_some_and(|(by, done)| *by == op && done == what)
        };
        shard.spawned.iter().filter(is_of).copied().collect()
    }

    /// Looks up a residual split by `op` in the child that it created.
    fn probe(&self, tenant: TenantId, key: ShardKey, op: u64, what: &str) -> Option<Answer> {
        let shard = self.shard(tenant, key)?;
        let children = shard.spawned.iter();
        let mut known = children.filter_map(|id| {
            let child = self.shard(tenant, ShardKey::new(key.run(), *id))?;
            let (by, done) = child.made_by.as_ref()?;
            (*by == op && done.contains("Residual")).then_some((id, done))
        });
        let (id, done) = known.next()?;
        Some(if done == what { Ok(format!("Replayed {:?}", [id])) } else { Err("OpIdConflict") })
    }

    pub(super) fn unpark(&mut self, tenant: TenantId, key: ShardKey, op: u64) -> Answer {
        let shard = self.shard_mut(tenant, key)?;
        if let Some(answer) = shard.known(op, "unpark") {
            return answer;
        }
        self.run_not_over(tenant, key)?;
        let shard = self.shard_mut(tenant, key)?;
        if shard.status != ShardStatus::Parked {
            return Err("NotParked");
        }
        shard.status = ShardStatus::Active;
        shard.reason = None;
        shard.attempts = 0;
        shard.fence += 1;
        shard.moved_by = None;
        shard.remember(op, "unpark".into());
        Ok("Executed".into())
    }

    pub(super) fn revoke(
        &mut self,
        tenant: TenantId,
        key: ShardKey,
        fence: Option<u64>,
        op: u64,
    ) -> Answer {
        let shard = self.shard_mut(tenant, key)?;
        let what = format!("revoke {fence:?}");
        if let Some(answer) = shard.known(op, &what) {
            return answer;
        }
        if shard.status != ShardStatus::Active {
            return Err("ShardTerminal");
        }
        if fence.is_some_and(|fence| fence != shard.fence) {
            return Err("StaleFence");
        }
        if shard.lease.is_none() {
            return Err("NotLeased");
        }
        shard.let_go();
        shard.fence += 1;
        shard.moved_by = None;
        shard.remember(op, what);
        Ok("Executed".into())
    }

    pub(super) fn request(
        &mut self,
        now: u64,
        tenant: TenantId,
        key: ShardKey,
        (action, until): (&'static str, u64),
        op: u64,
    ) -> Answer {
        let shard = self.shard_mut(tenant, key)?;
        if let Some(stored) = shard.request.as_ref().filter(|stored| stored.op == op) {
            let same = stored.action == action && stored.until == until;
            return if same { Ok("Replayed".into()) } else { Err("OpIdConflict") };
        }
        self.run_not_over(tenant, key)?;
        let shard = self.shard_mut(tenant, key)?;
        if shard.status != ShardStatus::Active {
            return Err("ShardTerminal");
        }
        if !shard.live(now) {
            return Err("NotLeased");
        }
        if shard.request.as_ref().is_some_and(|stored| now < stored.until) {
            return Err("RequestPending");
        }
        shard.request = Some(Request { op, action, until });
        Ok("Executed".into())
    }
}
