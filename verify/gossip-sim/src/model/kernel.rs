//! The production kernel behind small numbers: load, decide, evolve, encode.
//!
//! A record is kept as its stored bytes, and every question decodes them, so the codec takes part
//! in every step. The kernel is a pure function of its input and therefore called once for each
//! distinct [`Question`]; the answer is a [`Step`].
//!
//! Rules are checked by the oracle, not here.

use std::any::Any;
use std::collections::BTreeSet;
use std::fmt::Debug;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use foldhash::fast::FixedState;
use gossip_contracts::coordination::{
    CursorSemantics, CursorUpdate, InitialShardInput, MAX_KEY_SIZE, MAX_SPLIT_CHILDREN,
    MAX_TOKEN_SIZE, ShardSpecRef, SplitChild, SplitReplacePlan, SplitResidualPlan,
};
use gossip_contracts::identity::{
    FenceEpoch, LogicalTime, OpId, RunId, ShardId, ShardKey, TenantId, WorkerId,
};
use gossip_coordination::protocol::{
    Accept, Acquire, Checkpoint, Complete, Decision, Grant, LeaseWatch, OfferShard, OfferTerms,
    OwnerEvidence, Park, Release, ReleaseMode, Renew, Renewed, ReplyPath, RequestAction,
    RevokeLease, ShardChange, ShardInputs, ShardTransition, SplitReplace, SplitResidual, Unpark,
    Withdraw, evolve,
};
use gossip_coordination::store::{decode_shard, encode_cold, encode_hot};
use gossip_coordination::{
    CheckpointResult, GrantToken, HandoffId, Lease, NewShard, OpSequence, ParkContext,
    PendingRequest, RecordPool, RunConfig, ShardAction, ShardQuota, ShardRecord, ShardStatus,
    ShardView, SplitReplaceResult, SplitResidualResult,
};
use hashbrown::HashMap;

use super::interner::Interner;
use super::runs::{RunFacts, RunValue};
use super::vocabulary::{
    Act, AdminAct, ClaimBy, Command, Cursor, KeyNo, LeaseRef, Mark, Op, RequestedAction, ShardNo,
    Tick,
};

/// The only run of a tenant. Tenants use the same ids, so that a mixed-up key is detected.
pub(super) const RUN: RunId = RunId::from_raw(1);

/// No record, or no run.
pub(super) const NOTHING: u32 = u32::MAX;

/// Bytes for every record that a step touches; a step frees the records it made.
const POOL_BYTES: usize = 1 << 16;

/// Settings of the kernel.
#[derive(Clone, Copy, Debug)]
pub(super) struct Settings {
    pub(super) lease: u64,
    pub(super) retries: Option<u32>,
    /// Ranges of the root shards, for each manifest.
    pub(super) manifests: &'static [&'static [(KeyNo, KeyNo)]],
    pub(super) shards_max: usize,
}

/// Everything that an answer can depend on.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Question {
    /// Number of the command.
    pub(super) command: u32,
    pub(super) now: Tick,
    /// Number of the shard's record.
    pub(super) record: u32,
    /// Number of the run's value.
    pub(super) run: u32,
    /// Number of shards of the tenant.
    pub(super) shard_count: u8,
    /// Number of active and parked shards of the run, for commands about runs.
    pub(super) unsettled: (u8, u8),
    /// The shards of the run and the splits that made them, for splits.
    pub(super) kin: u32,
}

/// The outcome of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Refused,
    Replayed,
    Executed,
    /// The change was committed and an error returned: an acquire that parks.
    GaveUp,
}

/// The answer to a question.
#[derive(Clone, Debug)]
pub(super) struct Step {
    pub(super) op: Op,
    pub(super) verdict: Verdict,
    /// Number of the outcome's name.
    pub(super) outcome: u32,
    /// Number of the result, as far as a replay must return the same.
    pub(super) answer: u32,
    pub(super) grant: Option<Granted>,
    pub(super) renewed_until: Option<Tick>,
    /// The pending request that the result shows to the lease holder.
    pub(super) shown: Option<(RequestedAction, Tick)>,
    /// The shard's new record.
    pub(super) record: Option<u32>,
    pub(super) born: Vec<Born>,
    /// The run's new value.
    pub(super) run: Option<u32>,
    /// Whether the shards of the run are deleted.
    pub(super) drops_shards: bool,
    /// The kernel or the codec panicked, or rejected its own bytes.
    pub(super) fault: Option<String>,
}

/// The result of a grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Granted {
    pub(super) fence: u8,
    pub(super) deadline: Tick,
    pub(super) attempts: u8,
    pub(super) range: (KeyNo, KeyNo),
    pub(super) done: Mark,
}

/// A shard that a step created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Born {
    pub(super) shard: ShardNo,
    pub(super) record: u32,
}

/// The values of a record, in the model's numbers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Facts {
    pub(super) status: ShardStatus,
    pub(super) range: (KeyNo, KeyNo),
    pub(super) done: Mark,
    pub(super) fence: u8,
    /// Owner and deadline.
    pub(super) lease: Option<(u8, Tick)>,
    /// The stored request: its id, action and expiry.
    pub(super) request: Option<(u64, RequestedAction, Tick)>,
    /// The highest sequence executed since the last grant.
    pub(super) sequence: u8,
    /// Zero for roots.
    pub(super) split_hash: u64,
}

/// The kernel, and everything it has been called with.
pub(super) struct Kernel {
    pub(super) settings: Settings,
    pub(super) commands: Interner<Command>,
    pub(super) names: Interner<String>,
    pub(super) shard_keys: Interner<ShardKey>,
    pub(super) runs: Interner<RunValue>,
    pub(super) run_facts: Vec<RunFacts>,
    pub(super) kin: Interner<Vec<(ShardNo, u64)>>,
    pub(super) tenants: [Arc<TenantId>; 2],
    pub(super) pool: RecordPool,
    records: Interner<Box<[u8]>>,
    facts: Vec<Facts>,
    steps: Vec<Step>,
    memory: HashMap<Question, u32, FixedState>,
}

impl Kernel {
    pub(super) fn new(settings: Settings) -> Self {
        let mut shard_keys = Interner::default();
        // The first shard has a number before it is created, so that commands can name it.
        shard_keys.intern(ShardKey::new(RUN, ShardId::from_raw(0)));
        Self {
            settings,
            commands: Interner::default(),
            names: Interner::default(),
            shard_keys,
            runs: Interner::default(),
            run_facts: Vec::new(),
            kin: Interner::default(),
            tenants: [1, 2].map(|number| Arc::new(TenantId::from_bytes([number; 32]))),
            pool: RecordPool::new(POOL_BYTES),
            records: Interner::default(),
            facts: Vec::new(),
            steps: Vec::new(),
            memory: HashMap::default(),
        }
    }

    /// Returns the number of the answer to `question`.
    pub(super) fn ask(&mut self, question: Question) -> u32 {
        if let Some(known) = self.memory.get(&question) {
            return *known;
        }
        let step = catch_unwind(AssertUnwindSafe(|| self.compute(question)))
            .unwrap_or_else(|panic| self.broken(question, &panic_message(&*panic)));
        let number =
            u32::try_from(self.steps.len()).expect("memory is exhausted before numbers are");
        self.steps.push(step);
        self.memory.insert(question, number);
        number
    }

    pub(super) fn step(&self, number: u32) -> &Step {
        &self.steps[number as usize]
    }

    pub(super) fn facts(&self, record: u32) -> &Facts {
        &self.facts[record as usize]
    }

    /// Returns every pair of operation and outcome that was reached.
    pub(super) fn reached(&self) -> BTreeSet<(Op, String)> {
        let pair = |step: &Step| (step.op, self.names.get(step.outcome).clone());
        self.steps.iter().map(pair).collect()
    }

    /// Returns the numbers of distinct records, run values and questions.
    pub(super) const fn sizes(&self) -> (usize, usize, usize) {
        (self.records.len(), self.runs.len(), self.steps.len())
    }

    pub(super) const fn run_config(&self) -> RunConfig {
        let semantics = CursorSemantics::Completed;
        match RunConfig::try_new(semantics, self.settings.lease, self.settings.retries) {
            Ok(config) => config,
            Err(_) => panic!("every configuration has a positive lease duration"),
        }
    }

    pub(super) fn quota(&self, shard_count: u8) -> ShardQuota {
        let count = usize::from(shard_count);
        let (max_per_tenant, max_total) = (self.settings.shards_max, self.settings.shards_max);
        ShardQuota { tenant_count: count, total_count: count, max_per_tenant, max_total }
    }

    pub(super) fn name(&mut self, name: &str) -> u32 {
        self.names.intern(name.to_owned()).0
    }

    /// Returns a step without changes.
    pub(super) fn blank(&mut self, op: Op, verdict: Verdict, outcome: &str) -> Step {
        Step {
            op,
            verdict,
            outcome: self.name(outcome),
            answer: self.name(""),
            grant: None,
            renewed_until: None,
            shown: None,
            record: None,
            born: Vec::new(),
            run: None,
            drops_shards: false,
            fault: None,
        }
    }

    fn broken(&mut self, question: Question, why: &str) -> Step {
        // The panic may have left records in the pool, and a dropped pool must be empty.
        std::mem::forget(std::mem::replace(&mut self.pool, RecordPool::new(POOL_BYTES)));
        let op = self.commands.get(question.command).op();
        let fault = Some(why.to_owned());
        Step { fault, ..self.blank(op, Verdict::Refused, "Fault") }
    }

    fn compute(&mut self, question: Question) -> Step {
        match *self.commands.get(question.command) {
            Command::Held { tenant, lease, act, op_id, sequence } => {
                let lease = self.lease(lease, sequence);
                self.held(question, tenant, &lease, act, OpId::from_raw(op_id.into()))
            }
            Command::Claim { tenant, shard, worker, way } => {
                self.claim(question, tenant, shard, worker, way)
            }
            Command::Admin { tenant, shard, act, op_id } => {
                self.administer(question, tenant, shard, act, OpId::from_raw(op_id.into()))
            }
            Command::Run { tenant, act, op_id } => self.run_step(question, tenant, act, op_id),
        }
    }

    fn held(&mut self, q: Question, by: u8, lease: &Lease, act: Act, op_id: OpId) -> Step {
        let tenant = *self.tenants[usize::from(by)];
        let long_key = vec![b'z'; MAX_KEY_SIZE + 1];
        let long_token = vec![b'z'; MAX_TOKEN_SIZE + 1];
        let cursor = |cursor: Cursor| match cursor {
            Cursor::Absent => CursorUpdate::initial(),
            Cursor::At(key) => CursorUpdate::with_last_key(key_bytes(key)),
            Cursor::LongKey => CursorUpdate::with_last_key(&long_key),
            Cursor::LongToken(key) => CursorUpdate::new(key_bytes(key), &long_token),
        };
        match act {
            Act::Renew => self.shard_step(q, by, &Renew { tenant, lease }),
            Act::Checkpoint(at) => {
                self.shard_step(q, by, &Checkpoint { tenant, lease, cursor: cursor(at), op_id })
            }
            Act::Complete(at) => {
                self.shard_step(q, by, &Complete { tenant, lease, cursor: cursor(at), op_id })
            }
            Act::Park(reason) => {
                let context = ParkContext::NONE;
                self.shard_step(q, by, &Park { tenant, lease, reason, context, op_id })
            }
            Act::Replace { start, cut, end, carried, hole } => {
                let carried = cursor(carried);
                let plan = &replace_plan((start, cut, end), carried, hole);
                let children_max = MAX_SPLIT_CHILDREN;
                self.shard_step(q, by, &SplitReplace { tenant, lease, plan, children_max, op_id })
            }
            Act::Residual { start, cut, end } => {
                let plan = SplitResidualPlan::try_new(spec(start, cut), spec(cut, end));
                let plan = &plan.expect("a menu cuts between its bounds");
                self.shard_step(q, by, &SplitResidual { tenant, lease, plan, op_id })
            }
            Act::Release { clean } => {
                let mode = if clean { ReleaseMode::Clean } else { ReleaseMode::Failed };
                self.shard_step(q, by, &Release { tenant, lease, mode, op_id })
            }
            Act::Offer { handoff, to, until, cursor: at } => {
                let handoff = HandoffId::from_raw(handoff.into());
                let destination = worker_id(to);
                let terms = OfferTerms { handoff, destination, deadline: time(until) };
                let cursor = cursor(at);
                self.shard_step(q, by, &OfferShard { tenant, lease, terms, cursor, op_id })
            }
            Act::Withdraw { handoff } => {
                let handoff = HandoffId::from_raw(handoff.into());
                self.shard_step(q, by, &Withdraw { tenant, lease, handoff, op_id })
            }
        }
    }

    fn claim(&mut self, q: Question, by: u8, shard: ShardNo, worker: u8, way: ClaimBy) -> Step {
        let tenant = *self.tenants[usize::from(by)];
        let key = *self.shard_keys.get(shard.into());
        let worker = worker_id(worker);
        // The kernel stores the token and never reads it; only a flight that lost a reply does.
        let token = GrantToken::from_raw(worker.as_raw());
        match way {
            ClaimBy::Acquire { .. } => {
                // A grant and its confirmation are one step: a model has no lost replies.
                let reply = ReplyPath::Certain;
                let spares_last_attempt = false;
                let acquire = Acquire { tenant, key, worker, token, reply, spares_last_attempt };
                self.shard_step(q, by, &acquire)
            }
            ClaimBy::Accept(handoff) => {
                let handoff = HandoffId::from_raw(handoff.into());
                self.shard_step(q, by, &Accept { tenant, key, worker, handoff, token })
            }
        }
    }

    fn administer(
        &mut self,
        q: Question,
        by: u8,
        shard: ShardNo,
        act: AdminAct,
        op_id: OpId,
    ) -> Step {
        let tenant = *self.tenants[usize::from(by)];
        let key = *self.shard_keys.get(shard.into());
        match act {
            AdminAct::Unpark => self.shard_step(q, by, &Unpark { tenant, key, op_id }),
            AdminAct::Revoke { fence } => {
                let expected_fence = fence.map(|fence| FenceEpoch::from_raw(fence.into()));
                self.shard_step(q, by, &RevokeLease { tenant, key, expected_fence, op_id })
            }
            AdminAct::Request { what, expires } => {
                let action = match what {
                    RequestedAction::Split => ShardAction::Split(None),
                    RequestedAction::Release => ShardAction::Release,
                    RequestedAction::HandOff => ShardAction::HandOff(None),
                    RequestedAction::Withdraw => ShardAction::Withdraw,
                };
                let expires_at = time(expires);
                self.shard_step(q, by, &RequestAction { tenant, key, action, expires_at, op_id })
            }
        }
    }

    /// Returns the lease as its holder presents it. Its deadline is only remembered by the holder.
    fn lease(&self, held: LeaseRef, sequence: u8) -> Lease {
        let tenant = *self.tenants[usize::from(held.tenant)];
        let key = *self.shard_keys.get(held.shard.into());
        let owner = worker_id(held.worker);
        let token = GrantToken::from_raw(owner.as_raw());
        let fence = FenceEpoch::from_raw(held.fence.into());
        let mut lease = Lease::new(tenant, key, owner, fence, time(1), token);
        let sequence = OpSequence::try_from_raw(sequence.into());
        lease.set_sequence(sequence.expect("a menu has few lines"));
        lease
    }

    /// Runs one operation on a shard, as a coordinator does.
    fn shard_step<T>(&mut self, q: Question, by: u8, operation: &T) -> Step
    where
        T: ShardTransition,
        T::Output: AnswerText,
        T::Error: Debug,
    {
        let command = *self.commands.get(q.command);
        let (_, key) = operation.subject();
        let mut record = self.load(by, key, q.record);
        let run = self.run_facts.get(q.run as usize).and_then(|facts| facts.head);
        let kin = if T::MAKES_SHARDS { self.kin.get(q.kin).clone() } else { Vec::new() };
        let keys = &self.shard_keys;
        let split_hash_of = |id: ShardId| {
            let same = |(shard, _): &&(ShardNo, u64)| keys.get((*shard).into()).shard() == id;
            kin.iter().find(same).map(|(_, hash)| *hash)
        };
        let seen = ShardInputs {
            shard: record.as_ref().map(|record| ShardView::new(record, &self.pool)),
            run,
            quota: self.quota(q.shard_count),
            owner: evidence(command, record.as_ref()),
            watch: LeaseWatch::NONE,
            split_hash_of: &split_hash_of,
        };
        let decision = operation.decide(time(q.now), &seen);
        let step = match decision {
            Err(error) => {
                let outcome = variant(&error);
                self.blank(command.op(), Verdict::Refused, &outcome)
            }
            Ok(Decision::Replay(answer)) => {
                let step = self.blank(command.op(), Verdict::Replayed, "Replayed");
                Step { answer: self.name(&answer.text()), ..step }
            }
            Ok(Decision::Commit { change, answer }) => {
                let record = record.as_mut().expect("a decision to commit looked at a shard");
                self.commit(by, command, record, &change, answer)
            }
        };
        if let Some(record) = record {
            record.free(&mut self.pool);
        }
        step
    }

    fn commit<T: AnswerText, E: Debug>(
        &mut self,
        by: u8,
        command: Command,
        record: &mut ShardRecord,
        change: &ShardChange<'_>,
        answer: Result<T, E>,
    ) -> Step {
        let evolved = evolve(record, &mut self.pool, change);
        assert!(evolved.is_ok(), "the pool has quota for everything the model makes");
        let mut step = match &answer {
            Ok(answer) => {
                let step = self.blank(command.op(), Verdict::Executed, "Executed");
                Step { answer: self.name(&answer.text()), ..step }
            }
            Err(error) => {
                let outcome = format!("Parks, answers {}", variant(error));
                self.blank(command.op(), Verdict::GaveUp, &outcome)
            }
        };
        if let Ok(answer) = answer {
            step.renewed_until = answer.renewed_until();
            step.shown = answer.request().map(asked);
            step.grant = answer.grant().map(|grant| {
                let view = ShardView::new(record, &self.pool);
                granted(&grant, view)
            });
        }
        step.record = Some(self.store(record));
        for birth in change.new_shards() {
            step.born.push(self.create_shard(by, record.key().run(), &birth));
        }
        step
    }

    /// Creates a new shard and assigns its number.
    pub(super) fn create_shard(&mut self, tenant: u8, run: RunId, birth: &NewShard<'_>) -> Born {
        let owner = Arc::clone(&self.tenants[usize::from(tenant)]);
        let newborn = ShardRecord::new(owner, run, birth, &mut self.pool);
        let newborn = newborn.expect("the pool has quota for everything the model makes");
        let record = self.store(&newborn);
        let (shard, _) = self.shard_keys.intern(newborn.key());
        newborn.free(&mut self.pool);
        let shard = u8::try_from(shard).expect("a configuration has few shards");
        Born { shard, record }
    }

    fn load(&mut self, tenant: u8, key: ShardKey, record: u32) -> Option<ShardRecord> {
        if record == NOTHING {
            return None;
        }
        let (hot, cold) = split_value(self.records.get(record));
        let owner = &self.tenants[usize::from(tenant)];
        let decoded = decode_shard(owner, key, hot, cold, &mut self.pool);
        Some(decoded.expect("the codec decodes its own output").0)
    }

    /// Returns the number of a record by its stored bytes. A new record is decoded, and must encode
    /// to the same bytes.
    fn store(&mut self, record: &ShardRecord) -> u32 {
        let value = encode(ShardView::new(record, &self.pool));
        let (number, is_new) = self.records.intern(value);
        if is_new {
            let owner = Arc::new(record.tenant());
            let (hot, cold) = split_value(self.records.get(number));
            let decoded = decode_shard(&owner, record.key(), hot, cold, &mut self.pool);
            let (copy, _) = decoded.expect("the codec decodes its own output");
            let again = encode(ShardView::new(&copy, &self.pool));
            assert!(
                again == *self.records.get(number),
                "decoding and encoding gives the same bytes"
            );
            self.facts.push(facts(ShardView::new(&copy, &self.pool)));
            copy.free(&mut self.pool);
        }
        number
    }
}

/// The parts of a result that the oracle checks.
pub(super) trait AnswerText {
    /// Returns the part that a replay must repeat.
    fn text(&self) -> String {
        String::new()
    }

    fn grant(&self) -> Option<Grant> {
        None
    }

    fn renewed_until(&self) -> Option<Tick> {
        None
    }

    fn request(&self) -> Option<&PendingRequest> {
        None
    }
}

impl AnswerText for () {}

/// The pending request is not part of the result of a checkpoint: a replay has none.
impl AnswerText for CheckpointResult {
    fn request(&self) -> Option<&PendingRequest> {
        self.request.as_ref()
    }
}

impl AnswerText for SplitReplaceResult {
    fn text(&self) -> String {
        format!("{self:?}")
    }
}

impl AnswerText for SplitResidualResult {
    fn text(&self) -> String {
        format!("{self:?}")
    }
}

impl AnswerText for Grant {
    fn grant(&self) -> Option<Grant> {
        Some(self.clone())
    }
}

impl AnswerText for Renewed {
    fn renewed_until(&self) -> Option<Tick> {
        Some(tick(self.new_deadline))
    }

    fn request(&self) -> Option<&PendingRequest> {
        self.request.as_ref()
    }
}

pub(super) fn time(tick: Tick) -> LogicalTime {
    LogicalTime::from_raw(tick.into())
}

pub(super) const fn spec(start: KeyNo, end: KeyNo) -> ShardSpecRef<'static> {
    ShardSpecRef::new(key_bytes(start), key_bytes(end), b"")
}

/// Returns a row of a manifest.
pub(super) fn root(id: usize, range: (KeyNo, KeyNo)) -> InitialShardInput<'static> {
    InitialShardInput {
        shard_id: ShardId::from_raw(id as u64),
        spec: spec(range.0, range.1),
        cursor: CursorUpdate::initial(),
    }
}

/// Returns the name of an error's variant.
pub(super) fn variant(error: &impl Debug) -> String {
    let text = format!("{error:?}");
    let end = text.find(|c: char| !c.is_alphanumeric()).unwrap_or(text.len());
    text[..end].to_owned()
}

pub(super) fn worker_id(worker: u8) -> WorkerId {
    WorkerId::from_raw(u64::from(worker) + 1)
}

/// Keys are single bytes.
const fn key_bytes(key: KeyNo) -> &'static [u8] {
    const KEYS: [[u8; 1]; 8] = [*b"a", *b"b", *b"c", *b"d", *b"e", *b"f", *b"g", *b"h"];
    &KEYS[key as usize]
}

fn key_no(key: &[u8]) -> KeyNo {
    key[0] - b'a'
}

fn tick(time: LogicalTime) -> Tick {
    Tick::try_from(time.as_raw()).expect("a configuration has few ticks")
}

fn replace_plan(
    (start, cut, end): (KeyNo, KeyNo, KeyNo),
    carried: CursorUpdate<'_>,
    hole: bool,
) -> SplitReplacePlan<'_> {
    let right = cut + u8::from(hole);
    let children = [
        SplitChild::new(spec(start, cut), carried),
        SplitChild::new(spec(right, end), CursorUpdate::initial()),
    ];
    SplitReplacePlan::try_new(children).expect("two children")
}

/// Returns the evidence of the owner's liveness: its key exists if the command says so.
fn evidence(command: Command, record: Option<&ShardRecord>) -> OwnerEvidence {
    let Command::Claim { way: ClaimBy::Acquire { alive: true }, .. } = command else {
        return OwnerEvidence::Gone;
    };
    match record.and_then(ShardRecord::lease_owner) {
        Some(owner) => OwnerEvidence::Alive { owner, max_clock_skew: 1 },
        None => OwnerEvidence::Gone,
    }
}

fn granted(grant: &Grant, view: ShardView<'_>) -> Granted {
    let facts = facts(view);
    Granted {
        fence: u8::try_from(grant.lease.fence().as_raw()).expect("fences are bounded"),
        deadline: tick(grant.lease.deadline()),
        attempts: u8::try_from(grant.attempts).expect("grants are bounded"),
        range: facts.range,
        done: facts.done,
    }
}

fn facts(view: ShardView<'_>) -> Facts {
    let record = view.record();
    let range = view.spec();
    let owner = |owner: WorkerId| u8::try_from(owner.as_raw() - 1).expect("few workers");
    Facts {
        status: record.status(),
        range: (key_no(range.start), key_no(range.end)),
        done: view.cursor().last_key().map_or(0, |key| key_no(key) + 1),
        fence: u8::try_from(record.fence_epoch().as_raw()).expect("fences are bounded"),
        lease: record.lease().map(|held| (owner(held.owner()), tick(held.deadline()))),
        request: record.request().map(|it| (it.op_id().as_raw(), asked(it).0, asked(it).1)),
        sequence: u8::try_from(view.op_log().sequence().as_raw()).expect("a menu has few lines"),
        split_hash: record.lineage().map_or(0, |lineage| lineage.split_hash),
    }
}

/// Converts a request to the model's numbers.
fn asked(request: &PendingRequest) -> (RequestedAction, Tick) {
    let what = match request.action() {
        ShardAction::Split(_) => RequestedAction::Split,
        ShardAction::Release => RequestedAction::Release,
        ShardAction::HandOff(_) => RequestedAction::HandOff,
        ShardAction::Withdraw => RequestedAction::Withdraw,
        other => unreachable!("the model does not request {}", other.label()),
    };
    (what, tick(request.expires_at()))
}

/// Encodes both parts of a shard; the length of the hot part goes first.
fn encode(view: ShardView<'_>) -> Box<[u8]> {
    let record = view.record();
    let active = record.status() == ShardStatus::Active;
    let indexed_at = active.then(|| record.lease_deadline().unwrap_or(LogicalTime::ZERO));
    let (mut hot, mut cold) = (Vec::new(), Vec::new());
    encode_hot(view, indexed_at, &mut hot);
    encode_cold(view, &mut cold);
    join_value(&hot, &cold)
}

pub(super) fn join_value(first: &[u8], second: &[u8]) -> Box<[u8]> {
    let len = u32::try_from(first.len()).expect("values are small");
    [&len.to_le_bytes(), first, second].concat().into()
}

pub(super) fn split_value(value: &[u8]) -> (&[u8], &[u8]) {
    let (len, rest) = value.split_first_chunk().expect("a joined value begins with a length");
    rest.split_at(u32::from_le_bytes(*len) as usize)
}

pub(crate) fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
    text.unwrap_or_else(|| "a panic without a message".to_owned())
}
