//! The oracle's ear for runs: they are made once, end once, and stay deleted.

use gossip_coordination::{RUN_OP_LOG_CAP, RunStatus};

use super::kernel::Verdict;
use super::oracle::{Heard, OracleRun, OracleShard, Remembered, Rule, Violation, require};
use super::vocabulary::{Command, KeyNo, RunAct, Tick};

/// The fence that a root starts with.
const FIRST_FENCE: u8 = 1;

/// Stands for the operation by which a collection cancels.
const COLLECTION: u16 = u16::MAX;

/// What the oracle makes of an answer about a run.
#[derive(Clone, Debug)]
pub(super) struct LearnedRun {
    pub(super) run: OracleRun,
    pub(super) born: Vec<OracleShard>,
    /// Whether the shards of the run are gone.
    pub(super) drops_shards: bool,
}

/// Hears one command about a run whose shards include `unsettled` that are active or parked.
///
/// # Errors
///
/// The rule that the answer breaks.
pub(super) fn hear_run(
    run: &OracleRun,
    unsettled: usize,
    manifests: &[&[(KeyNo, KeyNo)]],
    heard: Heard<'_>,
) -> Result<LearnedRun, Violation> {
    if let Some(fault) = &heard.step.fault {
        return Err(Violation { rule: Rule::Panicked, why: fault.clone() });
    }
    let Command::Run { act, op_id, .. } = heard.command else {
        unreachable!("commands about shards are heard elsewhere")
    };
    judge_replay(run, heard, act, op_id)?;
    let mut learned = LearnedRun { run: run.clone(), born: Vec::new(), drops_shards: false };
    if heard.step.verdict == Verdict::Executed {
        execute(&mut learned, unsettled, manifests, heard.now, act)?;
        remember(&mut learned.run, heard, act, op_id);
    }
    Ok(learned)
}

fn execute(
    learned: &mut LearnedRun,
    unsettled: usize,
    manifests: &[&[(KeyNo, KeyNo)]],
    now: Tick,
    act: RunAct,
) -> Result<(), Violation> {
    let run = &mut learned.run;
    let status = run.status;
    let from = |allowed: &[RunStatus]| {
        let may = status.is_some_and(|status| allowed.contains(&status));
        require(may, Rule::RunOver, "a run went where it cannot go")
    };
    match act {
        RunAct::Create => {
            let fresh = status.is_none() && !run.deleted;
            require(fresh, Rule::RunReborn, "a run was made that had been there before")?;
            run.status = Some(RunStatus::Initializing);
            run.made_at = now;
        }
        RunAct::Register(number) => {
            from(&[RunStatus::Initializing])?;
            run.status = Some(RunStatus::Active);
            run.roots = manifests[usize::from(number)].to_vec();
            run.manifest = Some(number);
            let newborn = |range: &(KeyNo, KeyNo)| OracleShard::newborn(*range, FIRST_FENCE, 0, 0);
            learned.born = run.roots.iter().map(newborn).collect();
        }
        RunAct::Complete => {
            from(&[RunStatus::Active])?;
            let settled = unsettled == 0;
            require(settled, Rule::RunUnsettled, "a run completed with shards left")?;
            run.status = Some(RunStatus::Done);
        }
        RunAct::Fail => {
            from(&[RunStatus::Active])?;
            run.status = Some(RunStatus::Failed);
        }
        RunAct::Cancel => {
            from(&[RunStatus::Initializing, RunStatus::Active])?;
            run.status = Some(RunStatus::Cancelled);
        }
        RunAct::Pause | RunAct::Resume => {
            from(&[RunStatus::Active])?;
            run.paused = act == RunAct::Pause;
        }
        RunAct::Delete => {
            from(&[RunStatus::Done, RunStatus::Failed, RunStatus::Cancelled])?;
            *run = OracleRun { deleted: true, ..OracleRun::unmade(0) };
            learned.drops_shards = true;
        }
        RunAct::Collect(stale_after) => {
            from(&[RunStatus::Initializing])?;
            let stale = run.made_at + stale_after <= now;
            require(stale, Rule::RunOver, "a run was collected that may still go on")?;
            run.status = Some(RunStatus::Cancelled);
        }
    }
    Ok(())
}

/// A run's log is bounded; its registration is remembered apart, and its deletion by a tombstone.
fn remember(run: &mut OracleRun, heard: Heard<'_>, act: RunAct, op_id: u16) {
    let entry = Remembered { op_id, payload: heard.payload, answer: heard.step.answer };
    match act {
        RunAct::Create | RunAct::Delete => {}
        RunAct::Register(_) => run.registered = Some(entry),
        RunAct::Collect(_) => run.remembered.push(Remembered { op_id: COLLECTION, ..entry }),
        RunAct::Complete | RunAct::Fail | RunAct::Cancel | RunAct::Pause | RunAct::Resume => {
            if run.remembered.len() == RUN_OP_LOG_CAP {
                run.remembered.remove(0);
            }
            run.remembered.push(entry);
        }
    }
}

fn judge_replay(
    run: &OracleRun,
    heard: Heard<'_>,
    act: RunAct,
    op_id: u16,
) -> Result<(), Violation> {
    let replayed = heard.step.verdict == Verdict::Replayed;
    let known = run.remembered.iter().rev().chain(&run.registered).find(|it| it.op_id == op_id);
    match (act, known) {
        (RunAct::Create, _) => {
            require(!replayed, Rule::Replay, "the making of a run has no memory")
        }
        (RunAct::Collect(_), _) => {
            let collected = run.remembered.iter().any(|it| it.op_id == COLLECTION);
            require(replayed == collected, Rule::Replay, "a collection is made once")
        }
        (RunAct::Delete, _) if run.deleted => {
            require(replayed, Rule::Replay, "a deletion was not answered from memory")
        }
        (_, Some(known)) if known.payload == heard.payload => {
            let same = replayed && known.answer == heard.step.answer;
            require(same, Rule::Replay, "a retry was not answered from memory")
        }
        (_, Some(_)) => {
            let refused = heard.outcome == "OpIdConflict";
            require(refused, Rule::OpIdReused, "an operation id was used twice")
        }
        (RunAct::Register(number), None) => {
            let same = run.manifest == Some(number) && run.status == Some(RunStatus::Active);
            require(replayed == same, Rule::Replay, "the same shards are registered once")
        }
        (_, None) => require(!replayed, Rule::Replay, "what never happened was replayed"),
    }
}
