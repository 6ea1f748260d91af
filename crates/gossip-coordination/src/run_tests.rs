//! Runs: legal ways, invariants that stop what breaks them, progress and filters.

use gossip_contracts::coordination::CursorSemantics;
use gossip_contracts::identity::ShardId;
use rstest::rstest;

use crate::run::RunRecord;
use crate::test_fixtures::{RUN, TENANT, at, op, run_config};
use crate::{
    RUN_OP_LOG_CAP, RunConfig, RunConfigError, RunOpKind, RunOpLogEntry, RunProgress, RunStatus,
    RunTerminalEvaluation, ShardFilter, ShardStatus, evaluate_run_terminal,
};

fn entry(number: u64, ticks: u64) -> RunOpLogEntry {
    RunOpLogEntry::new(op(number), RunOpKind::PauseRun, 7, at(ticks))
}

fn active() -> RunRecord {
    let mut run = RunRecord::new(TENANT, RUN, run_config(), at(5));
    run.status = RunStatus::Active;
    run.root_shards = vec![ShardId::from_raw(1), ShardId::from_raw(2)];
    run
}

/// Breaks a healthy active run with `damage` and compares what it says about it.
#[track_caller]
fn assert_breaks(expected: &str, damage: impl FnOnce(&mut RunRecord)) {
    let mut run = active();
    run.assert_invariants();
    damage(&mut run);
    let check = std::panic::AssertUnwindSafe(|| run.assert_invariants());
    let panic = std::panic::catch_unwind(check).expect_err("the damage is noticed");
    assert_eq!(panic.downcast_ref::<String>().map(String::as_str), Some(expected));
}

/// FACTS 4.2: Initializing → Active | Cancelled; Active → Done | Failed | Cancelled.
#[test]
fn a_run_goes_only_the_legal_ways() {
    use RunStatus::{Active, Cancelled, Done, Failed, Initializing};
    let legal = [
        (Initializing, Active),
        (Initializing, Cancelled),
        (Active, Done),
        (Active, Failed),
        (Active, Cancelled),
    ];
    for from in RunStatus::ALL {
        for to in RunStatus::ALL {
            assert_eq!(from.may_become(to), legal.contains(&(from, to)), "{from:?} to {to:?}");
        }
        let ways_out = RunStatus::ALL.iter().any(|to| from.may_become(*to));
        assert_eq!(from.is_terminal(), !ways_out);
    }
}

#[test]
fn statuses_and_kinds_come_back_by_their_numbers() {
    for (number, status) in (0_u8..).zip(RunStatus::ALL) {
        assert_eq!((status as u8, RunStatus::from_u8(number)), (number, Some(status)));
    }
    assert_eq!(RunStatus::from_u8(5), None);
    for (number, kind) in (0_u8..).zip(RunOpKind::ALL) {
        assert_eq!((kind as u8, RunOpKind::from_u8(number)), (number, Some(kind)));
    }
    assert_eq!(RunOpKind::from_u8(6), None);
}

#[test]
fn settings_need_a_lease_that_lasts() {
    let refused = RunConfig::try_new(CursorSemantics::Completed, 0, None);
    assert_eq!(refused, Err(RunConfigError::ZeroLeaseDuration));
    let config = RunConfig::try_new(CursorSemantics::Dispatched, 1, Some(3)).unwrap();
    assert_eq!(config.cursor_semantics(), CursorSemantics::Dispatched);
    assert_eq!((config.lease_duration(), config.max_shard_retries()), (1, Some(3)));
}

#[test]
fn a_new_run_has_no_shards_and_no_past() {
    let run = RunRecord::new(TENANT, RUN, run_config(), at(5));
    run.assert_invariants();
    assert_eq!((run.tenant(), run.run(), run.config()), (TENANT, RUN, run_config()));
    assert_eq!((run.status(), run.is_paused()), (RunStatus::Initializing, false));
    assert_eq!((run.created_at(), run.completed_at()), (at(5), None));
    assert!(run.root_shards().is_empty() && run.registration().is_none());
    assert_eq!(run.op_log().len(), 0);
}

#[test]
#[should_panic(expected = "time zero means a broken clock")]
fn a_run_made_at_time_zero_is_a_bug() {
    let _ = RunRecord::new(TENANT, RUN, run_config(), at(0));
}

#[test]
fn roots_come_with_activity() {
    assert_breaks("an active run has shards", |run| run.root_shards.clear());
    assert_breaks("no shards while initializing", |run| run.status = RunStatus::Initializing);
    assert_breaks("root ids are unique", |run| run.root_shards.push(ShardId::from_raw(1)));
}

#[test]
fn an_end_comes_exactly_with_a_terminal_status() {
    assert_breaks("an end exactly when the run is over", |run| run.completed_at = Some(at(9)));
    assert_breaks("an end exactly when the run is over", |run| run.status = RunStatus::Done);
    assert_breaks("a run ends after it began", |run| {
        run.status = RunStatus::Failed;
        run.completed_at = Some(at(4));
    });
}

#[rstest]
#[case::same_id_twice(&[(1, 6), (1, 7)])]
#[case::time_falls(&[(1, 7), (2, 6)])]
#[case::time_falls_later(&[(1, 6), (2, 9), (3, 8)])]
fn a_log_keeps_ids_apart_and_times_in_order(#[case] entries: &[(u64, u64)]) {
    assert_breaks("operation ids are unique and times never fall", |run| {
        for (number, ticks) in entries {
            run.op_log.push_back_overwrite(entry(*number, *ticks));
        }
    });
}

#[test]
fn a_full_log_forgets_its_oldest_operation() {
    let mut run = active();
    for number in 0..=RUN_OP_LOG_CAP as u64 {
        run.op_log.push_back_overwrite(entry(number, 6 + number));
    }
    run.assert_invariants();
    assert_eq!((run.op_log().len(), RUN_OP_LOG_CAP), (8, 8));
    assert_eq!(run.op_log().next(), Some(&entry(1, 7)));
}

#[test]
#[should_panic(expected = "a payload hash is never zero")]
fn an_entry_without_a_hash_is_a_bug() {
    let _ = RunOpLogEntry::new(op(1), RunOpKind::FailRun, 0, at(1));
}

#[test]
#[should_panic(expected = "an operation has a time")]
fn an_entry_without_a_time_is_a_bug() {
    let _ = RunOpLogEntry::new(op(1), RunOpKind::FailRun, 1, at(0));
}

#[test]
fn stored_times_never_fall() {
    let mut run = active();
    assert_eq!((run.stored_time(at(3)), run.stored_time(at(8))), (at(5), at(8)));
    run.op_log.push_back_overwrite(entry(1, 9));
    assert_eq!((run.stored_time(at(8)), run.stored_time(at(10))), (at(9), at(10)));
}

#[test]
fn the_head_is_what_shards_look_at() {
    let mut run = active();
    run.paused = true;
    let head = run.head();
    assert_eq!((head.status, head.paused, head.config), (RunStatus::Active, true, run_config()));
}

#[rstest]
#[case(1, 0, RunTerminalEvaluation::StillActive)]
#[case(1, 1, RunTerminalEvaluation::StillActive)]
#[case(0, 1, RunTerminalEvaluation::HasFailures)]
#[case(0, 0, RunTerminalEvaluation::AllDone)]
fn a_run_is_judged_by_its_active_and_parked_shards(
    #[case] active: u64,
    #[case] parked: u64,
    #[case] expected: RunTerminalEvaluation,
) {
    let progress = RunProgress { total: 9, active, parked, done: 4, ..RunProgress::default() };
    assert_eq!(evaluate_run_terminal(&progress), expected);
    assert_eq!(progress.is_settled(), active == 0);
    assert_eq!(progress.is_success(), expected == RunTerminalEvaluation::AllDone);
    assert_eq!(progress.has_failures(), parked > 0);
}

#[rstest]
#[case::all(ShardFilter::all(), [true; 4])]
#[case::active(ShardFilter::active(), [true, true, false, true])]
#[case::available(ShardFilter::available(), [true, false, false, true])]
#[case::parked(ShardFilter::parked(), [false, false, true, false])]
#[case::roots(ShardFilter::all().roots(), [true, true, true, false])]
#[case::available_roots(ShardFilter::available().roots(), [true, false, false, false])]
fn a_filter_admits_what_meets_every_condition(
    #[case] filter: ShardFilter,
    #[case] expected: [bool; 4],
) {
    let (root, derived) = (ShardId::from_raw(1), ShardId::from_raw(ShardId::DERIVED_BIT));
    let shards = [
        (ShardStatus::Active, false, root),
        (ShardStatus::Active, true, root),
        (ShardStatus::Parked, false, root),
        (ShardStatus::Active, false, derived),
    ];
    let admitted = shards.map(|(status, leased, shard)| filter.admits(status, leased, shard));
    assert_eq!(admitted, expected);
}

#[test]
fn no_condition_is_the_default() {
    assert_eq!(ShardFilter::default(), ShardFilter::all());
}
