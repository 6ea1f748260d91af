//! Oracle rules for runs: they are created once, finish once, and stay deleted.

use gossip_coordination::{RUN_OP_LOG_CAP, RunStatus};

use super::kernel::Verdict;
use super::oracle::{Observed, OracleRun, OracleShard, Remembered, Rule, Violation, require};
use super::vocabulary::{Command, KeyNo, RunAct, Tick};

/// The initial fence of a root.
const FIRST_FENCE: u8 = 1;

/// Operation id of the cancellation by a garbage collection.
const COLLECTION: u16 = u16::MAX;

/// The history after an answer about a run.
#[derive(Clone, Debug)]
pub(super) struct LearnedRun {
    pub(super) run: OracleRun,
    pub(super) born: Vec<OracleShard>,
    /// Whether the shards of the run are deleted.
    pub(super) drops_shards: bool,
}

/// Checks one command about a run with `unsettled` active or parked shards.
///
/// # Errors
///
/// Returns the rule that the answer breaks.
pub(super) fn check_run_command(
    run: &OracleRun,
    unsettled: usize,
    manifests: &[&[(KeyNo, KeyNo)]],
    observed: Observed<'_>,
) -> Result<LearnedRun, Violation> {
    if let Some(fault) = &observed.step.fault {
        return Err(Violation { rule: Rule::Panicked, why: fault.clone() });
    }
    let Command::Run { act, op_id, .. } = observed.command else {
        unreachable!("commands about shards are checked elsewhere")
    };
    judge_replay(run, observed, act, op_id)?;
    let mut learned = LearnedRun { run: run.clone(), born: Vec::new(), drops_shards: false };
    if observed.step.verdict == Verdict::Executed {
        execute(&mut learned, unsettled, manifests, observed.now, act)?;
        remember(&mut learned.run, observed, act, op_id);
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
        require(may, Rule::RunOver, "a run made an invalid transition")
    };
    match act {
        RunAct::Create => {
            let fresh = status.is_none() && !run.deleted;
            require(fresh, Rule::RunReborn, "a run was created again")?;
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
            require(stale, Rule::RunOver, "a run was collected that was not stale")?;
            run.status = Some(RunStatus::Cancelled);
        }
    }
    Ok(())
}

/// Logs an operation. The log is bounded; the registration is recorded outside of it, and the
/// deletion by a tombstone.
fn remember(run: &mut OracleRun, observed: Observed<'_>, act: RunAct, op_id: u16) {
    let entry = Remembered { op_id, payload: observed.payload, answer: observed.step.answer };
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
    observed: Observed<'_>,
    act: RunAct,
    op_id: u16,
) -> Result<(), Violation> {
    let replayed = observed.step.verdict == Verdict::Replayed;
    let known = run.remembered.iter().rev().chain(&run.registered).find(|it| it.op_id == op_id);
    match (act, known) {
        (RunAct::Create, _) => {
            require(!replayed, Rule::Replay, "the creation of a run was replayed")
        }
        (RunAct::Collect(_), _) => {
            let collected = run.remembered.iter().any(|it| it.op_id == COLLECTION);
            require(
                replayed == collected,
                Rule::Replay,
                "a collection was not replayed exactly when repeated",
            )
        }
        (RunAct::Delete, _) if run.deleted => {
            require(replayed, Rule::Replay, "a deletion was not replayed from the tombstone")
        }
        (_, Some(known)) if known.payload == observed.payload => {
            let same = replayed && known.answer == observed.step.answer;
            require(same, Rule::Replay, "a retry was not replayed from the log")
        }
        (_, Some(_)) => {
            let refused = observed.outcome == "OpIdConflict";
            require(refused, Rule::OpIdReused, "an operation id was used twice")
        }
        (RunAct::Register(number), None) => {
            let same = run.manifest == Some(number) && run.status == Some(RunStatus::Active);
            require(
                replayed == same,
                Rule::Replay,
                "a registration was not replayed exactly when repeated",
            )
        }
        (_, None) => {
            require(!replayed, Rule::Replay, "an operation was replayed that never took effect")
        }
    }
}
