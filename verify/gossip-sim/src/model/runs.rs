//! The kernel's operations on runs, behind the same small numbers.
//!
//! A run is kept as it is stored: its head and root list, or its tombstone.

use std::fmt::Debug;

use gossip_contracts::coordination::InitialShardInput;
use gossip_contracts::identity::{OpId, RunId, TenantId};
use gossip_coordination::protocol::{
    CollectRun, CreateRun, Decision, DeleteRun, RegisterShards, RunChange, RunInputs,
    RunTransition, RunTransitionKind, RunTransitionRules, Tombstone, evolve_run,
};
use gossip_coordination::store::{
    RootProgress, decode_roots, decode_run_head, decode_tombstone, encode_roots, encode_run_head,
    encode_tombstone,
};
use gossip_coordination::{RunHead, RunOpResult, RunRecord, RunStatus};

use super::kernel::{
    AnswerText, Kernel, NOTHING, Question, RUN, Step, Verdict, join_value, root, split_value, time,
    variant,
};
use super::vocabulary::{RunAct, Tick};

/// The stored value of a run.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) enum RunValue {
    /// Head and roots.
    Record(Box<[u8]>),
    Tombstone(Box<[u8]>),
}

/// The values of a run.
#[derive(Clone, Copy, Debug)]
pub(super) struct RunFacts {
    /// Absent for a tombstone.
    pub(super) head: Option<RunHead>,
}

impl RunFacts {
    pub(super) fn status(&self) -> Option<RunStatus> {
        self.head.map(|head| head.status)
    }
}

impl Kernel {
    pub(super) fn run_step(&mut self, q: Question, by: u8, act: RunAct, op_id: u16) -> Step {
        let (tenant, run) = (*self.tenants[usize::from(by)], RUN);
        let op_id = OpId::from_raw(op_id.into());
        let transition = |kind| RunTransition { tenant, run, kind, op_id };
        let config = self.run_config();
        match act {
            RunAct::Create => self.ask_run(q, by, act, &CreateRun { tenant, run, config }),
            RunAct::Register(number) => {
                let ranges = self.settings.manifests[usize::from(number)];
                let shards: Vec<InitialShardInput<'_>> =
                    ranges.iter().enumerate().map(|(id, range)| root(id, *range)).collect();
                let register = RegisterShards { tenant, run, shards: &shards, op_id };
                self.ask_run(q, by, act, &register)
            }
            RunAct::Complete => self.ask_run(q, by, act, &transition(RunTransitionKind::Complete)),
            RunAct::Fail => self.ask_run(q, by, act, &transition(RunTransitionKind::Fail)),
            RunAct::Cancel => self.ask_run(q, by, act, &transition(RunTransitionKind::Cancel)),
            RunAct::Pause => self.ask_run(q, by, act, &transition(RunTransitionKind::Pause)),
            RunAct::Resume => self.ask_run(q, by, act, &transition(RunTransitionKind::Resume)),
            RunAct::Delete => self.ask_run(q, by, act, &DeleteRun { tenant, run, op_id }),
            RunAct::Collect(stale_after) => {
                let stale_after = stale_after.into();
                self.ask_run(q, by, act, &CollectRun { tenant, run, stale_after })
            }
        }
    }

    fn ask_run<T>(&mut self, q: Question, by: u8, act: RunAct, operation: &T) -> Step
    where
        T: RunTransitionRules,
        T::Output: AnswerText,
        T::Error: Debug,
    {
        let tenant = *self.tenants[usize::from(by)];
        let (record, roots, tombstone) = self.load_run(tenant, q.run);
        let seen = RunInputs {
            run: record.as_ref(),
            tombstone,
            active: q.unsettled.0.into(),
            parked: q.unsettled.1.into(),
            registered_at: roots.last_chunk_at,
            quota: self.quota(q.shard_count),
        };
        match operation.decide(time(q.now), &seen) {
            Err(error) => {
                let outcome = variant(&error);
                self.blank(act.op(), Verdict::Refused, &outcome)
            }
            Ok(Decision::Replay(answer)) => {
                let step = self.blank(act.op(), Verdict::Replayed, "Replayed");
                Step { answer: self.name(&answer.text()), ..step }
            }
            Ok(Decision::Commit { change, answer }) => {
                let answer = answer.expect("a commit about a run has an answer");
                let step = self.blank(act.op(), Verdict::Executed, "Executed");
                let step = Step { answer: self.name(&answer.text()), ..step };
                self.commit_run(q.now, by, step, record, roots, change)
            }
        }
    }

    fn commit_run(
        &mut self,
        now: Tick,
        by: u8,
        mut step: Step,
        record: Option<RunRecord>,
        roots: RootProgress,
        change: RunChange<'_>,
    ) -> Step {
        let tenant = *self.tenants[usize::from(by)];
        let value = match change {
            RunChange::Create(record) => run_value(&record, roots),
            RunChange::Delete(tombstone) => {
                step.drops_shards = true;
                tombstone_value(tenant, &tombstone)
            }
            RunChange::Activate { .. } | RunChange::End { .. } | RunChange::Pause { .. } => {
                let mut record = record.expect("a decision to change a run has read it");
                evolve_run(&mut record, &change);
                let mut roots = roots;
                if let RunChange::Activate { roots: newborn, .. } = change {
                    let count = u32::try_from(newborn.count()).expect("a manifest is bounded");
                    let last_chunk_at = time(now);
                    roots =
                        RootProgress { total: count, registered: count, chunks: 1, last_chunk_at };
                    for birth in newborn.new_shards() {
                        let born = self.create_shard(by, RUN, &birth);
                        step.born.push(born);
                    }
                }
                run_value(&record, roots)
            }
            other => unreachable!("the model makes no such change: {other:?}"),
        };
        step.run = Some(self.store_run(tenant, value));
        step
    }

    /// Returns the number of a run's value. A new value is decoded, and must encode to the same
    /// bytes.
    fn store_run(&mut self, tenant: TenantId, value: RunValue) -> u32 {
        let (number, is_new) = self.runs.intern(value);
        if is_new {
            let (record, roots, tombstone) = self.load_run(tenant, number);
            let again = match (&record, tombstone) {
                (Some(record), None) => run_value(record, roots),
                (None, Some(tombstone)) => tombstone_value(tenant, &tombstone),
                (Some(_), Some(_)) | (None, None) => unreachable!("a value is one or the other"),
            };
            assert!(again == *self.runs.get(number), "decoding and encoding gives the same bytes");
            self.run_facts.push(RunFacts { head: record.map(|record| record.head()) });
        }
        number
    }

    fn load_run(
        &self,
        tenant: TenantId,
        run: u32,
    ) -> (Option<RunRecord>, RootProgress, Option<Tombstone>) {
        if run == NOTHING {
            return (None, RootProgress::NONE, None);
        }
        match self.runs.get(run) {
            RunValue::Tombstone(value) => {
                let tombstone = decode_tombstone(tenant, RUN, value);
                let tombstone = tombstone.expect("the codec decodes its own output");
                (None, RootProgress::NONE, Some(tombstone))
            }
            RunValue::Record(value) => {
                let (record, roots) = decode_run(tenant, RUN, value);
                (Some(record), roots, None)
            }
        }
    }
}

impl AnswerText for RunOpResult {
    fn text(&self) -> String {
        format!("{self:?}")
    }
}

fn decode_run(tenant: TenantId, run: RunId, value: &[u8]) -> (RunRecord, RootProgress) {
    let (head, chunk) = split_value(value);
    let head = decode_run_head(tenant, run, head).expect("the codec decodes its own output");
    let progress = head.roots();
    let mut roots = Vec::new();
    if head.has_roots() {
        decode_roots(tenant, run, 0, chunk, &mut roots).expect("the codec decodes its own output");
    }
    (head.into_record(roots).expect("the roots are those of the run"), progress)
}

fn run_value(record: &RunRecord, roots: RootProgress) -> RunValue {
    let (mut head, mut chunk) = (Vec::new(), Vec::new());
    encode_run_head(record, roots, &mut head);
    if !record.root_shards().is_empty() {
        encode_roots(record.tenant(), record.run(), 0, record.root_shards(), &mut chunk);
    }
    RunValue::Record(join_value(&head, &chunk))
}

fn tombstone_value(tenant: TenantId, tombstone: &Tombstone) -> RunValue {
    let mut value = Vec::new();
    encode_tombstone(tenant, RUN, tombstone, &mut value);
    RunValue::Tombstone(value.into())
}
