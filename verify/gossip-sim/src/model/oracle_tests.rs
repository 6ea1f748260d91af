//! Doctored histories: each breaks one rule, and the oracle must reject it.

use gossip_coordination::{ParkReason, RunStatus, ShardStatus};
use rstest::rstest;

use super::check::{Strictness, tiles};
use super::configurations::{Scale, configuration};
use super::kernel::{Granted, Step, Verdict};
use super::oracle::{
    Asked, Holder, Learned, Observed, OracleRun, OracleShard, Remembered, Rule, Standing,
    Violation, Writer, check_command,
};
use super::oracle_runs::check_run_command;
use super::state::{Move, State};
use super::vocabulary::{
    Act, AdminAct, ClaimBy, Command, Cursor, LeaseRef, Op, RequestedAction, RunAct,
};
use super::world::World;

const WORKER: u8 = 0;
const OTHER: u8 = 1;
const FENCE: u8 = 2;
const DEADLINE: u8 = 3;
const LEASE: LeaseRef = LeaseRef { tenant: 0, shard: 0, worker: WORKER, fence: FENCE, from: 0 };

/// Returns a shard of three keys, held until the deadline, without progress.
fn shard() -> OracleShard {
    let holder = Some(Holder { worker: WORKER, fence: FENCE, deadline: DEADLINE });
    OracleShard { holder, ..OracleShard::newborn((0, 3), FENCE, 0, 1) }
}

fn run() -> OracleRun {
    OracleRun { status: Some(RunStatus::Active), roots: vec![(0, 3)], ..OracleRun::unmade(3) }
}

fn offered(until: u8) -> OracleShard {
    let cursor = Cursor::Absent;
    OracleShard { offer: Some(Standing { handoff: 1, to: OTHER, until, cursor }), ..shard() }
}

fn remembering(op_id: u16, payload: u32, answer: u32) -> OracleShard {
    OracleShard { remembered: vec![Remembered { op_id, payload, answer }], ..shard() }
}

fn step(op: Op, verdict: Verdict) -> Step {
    Step {
        op,
        verdict,
        outcome: 0,
        answer: 0,
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

fn held(act: Act) -> Command {
    Command::Held { tenant: 0, lease: LEASE, act, op_id: 7, sequence: 0 }
}

fn claim(worker: u8, way: ClaimBy) -> Command {
    Command::Claim { tenant: 0, shard: 0, worker, way }
}

const ACQUIRE: ClaimBy = ClaimBy::Acquire { alive: false };
const CHECKPOINT: Act = Act::Checkpoint(Cursor::At(1));

/// Checks at `now` that `command` was answered by `step`; its payload has number 1.
fn check(
    shard: &OracleShard,
    run: &OracleRun,
    command: Command,
    now: u8,
    outcome: &str,
    step: &Step,
) -> Result<Learned, Violation> {
    let (retries, lease) = (Some(1), 2);
    check_command(shard, run, Observed { command, payload: 1, now, step, outcome, retries, lease })
}

/// Checks an operation that took effect.
fn executed(shard: &OracleShard, command: Command, now: u8) -> Result<Learned, Violation> {
    let step = step(command.op(), Verdict::Executed);
    check(shard, &run(), command, now, "Executed", &step)
}

fn refused(shard: &OracleShard, command: Command, now: u8, outcome: &str) -> Option<Rule> {
    let step = step(command.op(), Verdict::Refused);
    rule(check(shard, &run(), command, now, outcome, &step))
}

fn rule<T>(result: Result<T, Violation>) -> Option<Rule> {
    result.err().map(|violation| violation.rule)
}

#[test]
fn an_honest_history_is_accepted() {
    let verdict = executed(&shard(), held(CHECKPOINT), 2).unwrap();
    assert_eq!(verdict.shard.done, 2);
    assert_eq!(verdict.shard.attempts, 0);
    assert!(verdict.run.is_covered((0, 2)) && !verdict.run.is_covered((2, 3)));
    assert_eq!(refused(&shard(), held(CHECKPOINT), DEADLINE, "LeaseExpired"), None);
}

#[rstest]
#[case::old_fence(LeaseRef { fence: 1, ..LEASE })]
#[case::other_worker(LeaseRef { worker: OTHER, ..LEASE })]
fn an_effect_from_an_old_grant_is_refused(#[case] lease: LeaseRef) {
    let command = Command::Held { tenant: 0, lease, act: CHECKPOINT, op_id: 7, sequence: 0 };
    assert_eq!(rule(executed(&shard(), command, 2)), Some(Rule::StaleFence));
}

#[rstest]
#[case(ShardStatus::Done)]
#[case(ShardStatus::Parked)]
#[case(ShardStatus::Split)]
fn an_effect_on_a_shard_that_ended_is_refused(#[case] status: ShardStatus) {
    let ended = OracleShard { status, holder: None, ..shard() };
    assert_eq!(rule(executed(&ended, held(CHECKPOINT), 2)), Some(Rule::StaleFence));
}

#[test]
fn an_effect_at_the_deadline_is_refused() {
    assert_eq!(rule(executed(&shard(), held(CHECKPOINT), DEADLINE - 1)), None);
    assert_eq!(rule(executed(&shard(), held(CHECKPOINT), DEADLINE)), Some(Rule::Expired));
}

#[test]
fn another_tenants_lease_is_refused() {
    let command = Command::Held { tenant: 1, lease: LEASE, act: CHECKPOINT, op_id: 7, sequence: 0 };
    assert_eq!(rule(executed(&shard(), command, 2)), Some(Rule::Tenants));
}

/// The expected grant of the shard above at time 3.
const GRANT: Granted =
    Granted { fence: FENCE + 1, deadline: 5, attempts: 2, range: (0, 3), done: 0 };

fn granted(shard: &OracleShard, way: ClaimBy, now: u8, grant: Granted) -> Option<Rule> {
    let command = claim(OTHER, way);
    let step = Step { grant: Some(grant), ..step(command.op(), Verdict::Executed) };
    rule(check(shard, &run(), command, now, "Executed", &step))
}

#[rstest]
#[case::honest(3, GRANT, None)]
#[case::early(2, GRANT, Some(Rule::TwoOwners))]
#[case::same_fence(3, Granted { fence: FENCE, ..GRANT }, Some(Rule::FenceFell))]
#[case::wrong_place(3, Granted { done: 1, ..GRANT }, Some(Rule::Acknowledged))]
#[case::wrong_range(3, Granted { range: (0, 2), ..GRANT }, Some(Rule::Acknowledged))]
#[case::long_lease(3, Granted { deadline: 6, ..GRANT }, Some(Rule::Acknowledged))]
#[case::miscounted(3, Granted { attempts: 1, ..GRANT }, Some(Rule::Attempts))]
fn a_takeover_waits_and_returns_the_stored_values(
    #[case] now: u8,
    #[case] grant: Granted,
    #[case] broken: Option<Rule>,
) {
    assert_eq!(granted(&shard(), ACQUIRE, now, grant), broken);
}

#[test]
fn a_shard_is_granted_and_parked_by_the_count_of_its_attempts() {
    let used_up = OracleShard { attempts: 2, ..shard() };
    let grant = Granted { attempts: 3, ..GRANT };
    assert_eq!(granted(&used_up, ACQUIRE, 3, grant), Some(Rule::Attempts));
    let gave_up = step(Op::Acquire, Verdict::GaveUp);
    let park = |shard| rule(check(shard, &run(), claim(OTHER, ACQUIRE), 3, "Parks", &gave_up));
    assert_eq!(park(&used_up), None);
    assert_eq!(park(&shard()), Some(Rule::Attempts));
}

#[rstest]
#[case::honest(offered(3), ClaimBy::Accept(1), 2, None)]
#[case::nothing_offered(shard(), ClaimBy::Accept(1), 2, Some(Rule::Handoff))]
#[case::another_move(offered(3), ClaimBy::Accept(2), 2, Some(Rule::Handoff))]
#[case::late(offered(2), ClaimBy::Accept(1), 2, Some(Rule::Handoff))]
fn a_move_is_accepted_as_it_was_offered(
    #[case] shard: OracleShard,
    #[case] way: ClaimBy,
    #[case] now: u8,
    #[case] broken: Option<Rule>,
) {
    let grant = Granted { deadline: now + 2, attempts: 1, ..GRANT };
    assert_eq!(granted(&shard, way, now, grant), broken);
}

#[test]
fn a_move_is_accepted_by_its_destination_only() {
    let command = claim(2, ClaimBy::Accept(1));
    let grant = Some(Granted { deadline: 4, attempts: 1, ..GRANT });
    let step = Step { grant, ..step(Op::Accept, Verdict::Executed) };
    let verdict = check(&offered(3), &run(), command, 2, "Executed", &step);
    assert_eq!(rule(verdict), Some(Rule::Handoff));
}

#[rstest]
#[case(CHECKPOINT)]
#[case(Act::Complete(Cursor::At(2)))]
#[case(Act::Park(ParkReason::Other))]
#[case(Act::Release { clean: true })]
#[case(Act::Residual { start: 0, cut: 1, end: 3 })]
fn a_frozen_source_does_nothing(#[case] act: Act) {
    assert_eq!(rule(executed(&offered(3), held(act), 2)), Some(Rule::FrozenSource));
}

#[test]
fn a_retry_is_answered_from_memory_and_as_before() {
    let replayed = |shard: &OracleShard, answer| {
        let step = Step { answer, ..step(Op::Checkpoint, Verdict::Replayed) };
        rule(check(shard, &run(), held(CHECKPOINT), 9, "Replayed", &step))
    };
    assert_eq!(replayed(&remembering(7, 1, 5), 5), None);
    assert_eq!(replayed(&remembering(7, 1, 5), 6), Some(Rule::Replay));
    assert_eq!(replayed(&shard(), 0), Some(Rule::Replay), "it never took effect");
    let again = executed(&remembering(7, 1, 0), held(CHECKPOINT), 2);
    assert_eq!(rule(again), Some(Rule::Replay), "it took effect twice");
    let shut_out = refused(&remembering(7, 1, 0), held(CHECKPOINT), 9, "StaleFence");
    assert_eq!(shut_out, Some(Rule::Replay), "the retry was rejected");
}

#[test]
fn a_retry_with_other_parameters_is_refused_for_that() {
    let known = remembering(7, 2, 0);
    assert_eq!(refused(&known, held(CHECKPOINT), 2, "OpIdConflict"), None);
    assert_eq!(refused(&known, held(CHECKPOINT), 2, "StaleFence"), Some(Rule::OpIdReused));
    assert_eq!(rule(executed(&known, held(CHECKPOINT), 2)), Some(Rule::OpIdReused));
}

#[rstest]
#[case::repeated(4)]
#[case::overtaken(3)]
fn an_operation_at_or_below_the_executed_sequence_is_not_executed(#[case] sequence: u8) {
    let (op_id, act) = (8, CHECKPOINT);
    let command = |sequence| Command::Held { tenant: 0, lease: LEASE, act, op_id, sequence };
    let shard = OracleShard { sequence: 4, ..shard() };
    assert_eq!(rule(executed(&shard, command(sequence), 2)), Some(Rule::Replay));
    assert_eq!(refused(&shard, command(sequence), 2, "OperationTooOld"), None);
    assert_eq!(rule(executed(&shard, command(5), 2)), None);
    assert_eq!(refused(&shard, command(5), 2, "OperationTooOld"), Some(Rule::OwnerShutOut));
    assert_eq!(rule(executed(&shard, command(0), 2)), None, "it has no sequence");
}

#[test]
fn a_residual_split_is_never_forgotten() {
    let act = Act::Residual { start: 0, cut: 1, end: 3 };
    let residuals = vec![Remembered { op_id: 7, payload: 1, answer: 0 }];
    let known = OracleShard { residuals, ..shard() };
    assert_eq!(rule(executed(&known, held(act), 2)), Some(Rule::Replay));
}

#[test]
fn progress_never_falls_and_stays_in_its_range() {
    let ahead = OracleShard { done: 3, ..shard() };
    assert_eq!(rule(executed(&ahead, held(CHECKPOINT), 2)), Some(Rule::ProgressFell));
    let outside = held(Act::Checkpoint(Cursor::At(5)));
    assert_eq!(rule(executed(&shard(), outside, 2)), Some(Rule::ProgressFell));
}

#[test]
fn a_sink_can_order_the_writers_of_a_key() {
    let written = |worker, fence| {
        let writer = Writer { shard: 0, worker, fence };
        let run = OracleRun { writers: vec![Some(writer), None, None], ..run() };
        let step = step(Op::Checkpoint, Verdict::Executed);
        rule(check(&shard(), &run, held(CHECKPOINT), 2, "Executed", &step))
    };
    assert_eq!(written(OTHER, FENCE - 1), None);
    assert_eq!(written(WORKER, FENCE), None);
    assert_eq!(written(OTHER, FENCE), Some(Rule::SinkOrder), "two writers under one fence");
    assert_eq!(written(OTHER, FENCE + 1), Some(Rule::SinkOrder), "a zombie writes last");
}

#[rstest]
#[case::not_its_range(Act::Residual { start: 0, cut: 1, end: 2 }, 0, Some(Rule::Tiling))]
#[case::through_progress(Act::Residual { start: 0, cut: 1, end: 3 }, 2, Some(Rule::ProgressFell))]
#[case::forgets(
    Act::Replace { start: 0, cut: 2, end: 3, carried: Cursor::Absent, hole: false },
    1,
    Some(Rule::ProgressFell)
)]
#[case::honest(
    Act::Replace { start: 0, cut: 2, end: 3, carried: Cursor::At(0), hole: false },
    1,
    None
)]
fn a_split_cuts_an_existing_shard(
    #[case] act: Act,
    #[case] done: u8,
    #[case] broken: Option<Rule>,
) {
    let shard = OracleShard { done, ..shard() };
    assert_eq!(rule(executed(&shard, held(act), 2)), broken);
}

#[rstest]
#[case(Some(RunStatus::Cancelled), false)]
#[case(Some(RunStatus::Active), true)]
#[case(None, false)]
fn a_run_that_is_over_or_paused_starts_nothing(
    #[case] status: Option<RunStatus>,
    #[case] paused: bool,
) {
    let run = OracleRun { status, paused, ..run() };
    let step = Step { grant: Some(GRANT), ..step(Op::Acquire, Verdict::Executed) };
    let verdict = check(&shard(), &run, claim(OTHER, ACQUIRE), 3, "Executed", &step);
    assert_eq!(rule(verdict), Some(Rule::RunOver));
}

#[test]
fn a_run_that_is_over_is_not_renewed_and_not_unparked() {
    let over = OracleRun { status: Some(RunStatus::Failed), ..run() };
    let renewed = Step { renewed_until: Some(4), ..step(Op::Renew, Verdict::Executed) };
    let verdict = check(&shard(), &over, held(Act::Renew), 2, "Executed", &renewed);
    assert_eq!(rule(verdict), Some(Rule::RunOver));
    let parked = OracleShard { status: ShardStatus::Parked, holder: None, ..shard() };
    let unpark = Command::Admin { tenant: 0, shard: 0, act: AdminAct::Unpark, op_id: 7 };
    let unparked = step(Op::Unpark, Verdict::Executed);
    let verdict = check(&parked, &over, unpark, 2, "Executed", &unparked);
    assert_eq!(rule(verdict), Some(Rule::RunOver));
}

#[rstest]
#[case::honest(shard(), 4, None)]
#[case::shorter(shard(), 2, Some(Rule::Acknowledged))]
#[case::longer(shard(), 5, Some(Rule::Acknowledged))]
#[case::frozen(offered(2), 4, None)]
#[case::frozen_for_longer(offered(1), 4, Some(Rule::Acknowledged))]
fn a_renewal_lasts_one_lease(
    #[case] shard: OracleShard,
    #[case] until: u8,
    #[case] broken: Option<Rule>,
) {
    let renewed = Step { renewed_until: Some(until), ..step(Op::Renew, Verdict::Executed) };
    let verdict = check(&shard, &run(), held(Act::Renew), 2, "Executed", &renewed);
    assert_eq!(rule(verdict), broken);
}

#[test]
fn owners_are_not_shut_out_and_free_shards_not_withheld() {
    assert_eq!(refused(&shard(), held(CHECKPOINT), 2, "StaleFence"), Some(Rule::OwnerShutOut));
    assert_eq!(refused(&shard(), held(CHECKPOINT), 2, "CursorRegression"), None);
    let claimed = |now| refused(&shard(), claim(OTHER, ACQUIRE), now, "AlreadyLeased");
    assert_eq!(claimed(2), None);
    assert_eq!(claimed(DEADLINE), Some(Rule::FreeShardWithheld));
}

#[test]
fn a_panic_is_a_finding() {
    let fault = Some("INV-4: a real fence".to_owned());
    let step = Step { fault, ..step(Op::Checkpoint, Verdict::Refused) };
    let verdict = check(&shard(), &run(), held(CHECKPOINT), 2, "Fault", &step);
    assert_eq!(rule(verdict), Some(Rule::Panicked));
}

#[rstest]
#[case::unsettled(Some(RunStatus::Active), false, 1, RunAct::Complete, Some(Rule::RunUnsettled))]
#[case::settled(Some(RunStatus::Active), false, 0, RunAct::Complete, None)]
#[case::twice(Some(RunStatus::Done), false, 0, RunAct::Fail, Some(Rule::RunOver))]
#[case::reborn(None, true, 0, RunAct::Create, Some(Rule::RunReborn))]
#[case::made_twice(Some(RunStatus::Active), false, 0, RunAct::Create, Some(Rule::RunReborn))]
#[case::deleted_alive(Some(RunStatus::Active), false, 0, RunAct::Delete, Some(Rule::RunOver))]
#[case::paused_dead(Some(RunStatus::Done), false, 0, RunAct::Pause, Some(Rule::RunOver))]
fn a_run_is_made_once_and_ends_once(
    #[case] status: Option<RunStatus>,
    #[case] deleted: bool,
    #[case] unsettled: usize,
    #[case] act: RunAct,
    #[case] broken: Option<Rule>,
) {
    let run = OracleRun { status, deleted, ..run() };
    let command = Command::Run { tenant: 0, act, op_id: 7 };
    let step = step(act.op(), Verdict::Executed);
    let (now, outcome, retries, lease) = (2, "Executed", None, 2);
    let verdict = Observed { command, payload: 1, now, step: &step, outcome, retries, lease };
    assert_eq!(rule(check_run_command(&run, unsettled, &[], verdict)), broken);
}

#[rstest]
#[case(&[(0, 3)], &[(0, 3)], true)]
#[case(&[(0, 1), (1, 3)], &[(0, 3)], true)]
#[case(&[(0, 1), (2, 3)], &[(0, 1), (2, 3)], true)]
#[case(&[(0, 1), (2, 3)], &[(0, 3)], false)]
#[case(&[(0, 2), (1, 3)], &[(0, 3)], false)]
#[case(&[(0, 3), (0, 3)], &[(0, 3)], false)]
#[case(&[(0, 4)], &[(0, 3)], false)]
#[case(&[], &[(0, 3)], false)]
#[case(&[(0, 1)], &[], false)]
fn leaves_tile_the_roots_or_do_not(
    #[case] parts: &[(u8, u8)],
    #[case] roots: &[(u8, u8)],
    #[case] expected: bool,
) {
    assert_eq!(tiles(parts, roots), expected);
}

/// Returns a real state in which a worker has processed two keys, or all.
fn worked(act: Act) -> (World, State) {
    let config = configuration("lease", Scale::Short).expect("a configuration of that name");
    let mut world = World::new(config);
    let mut state = world.first().unwrap();
    for command in [claim(WORKER, ACQUIRE), held(act)] {
        let command = world.kernel.commands.intern(command).0;
        let deliver = Move::Deliver { command, at: 1, from: None };
        state = world.apply(&state, deliver).unwrap().expect("it changes the state");
    }
    assert_eq!(world.check(&state, Strictness::Records), Ok(()));
    (world, state)
}

#[rstest]
#[case(CHECKPOINT, Rule::LostKey)]
#[case(Act::Complete(Cursor::At(0)), Rule::DoneUncovered)]
fn an_unassigned_key_is_found(#[case] act: Act, #[case] broken: Rule) {
    let (mut world, mut state) = worked(act);
    let mut run = world.runs.get(state.runs[0].oracle).clone();
    run.writers[1] = None;
    state.runs[0].oracle = world.runs.intern(run).0;
    assert_eq!(rule(world.check(&state, Strictness::Effects)), Some(broken));
}

#[test]
fn a_record_that_differs_from_the_acknowledged_one_is_found() {
    let (mut world, state) = worked(CHECKPOINT);
    let known = world.shards.get(state.shards[0].oracle).clone();
    let mut doctored = |shard: OracleShard| {
        let mut state = state.clone();
        state.shards[0].oracle = world.shards.intern(shard).0;
        rule(world.check(&state, Strictness::Records))
    };
    assert_eq!(doctored(OracleShard { fence: 9, ..known.clone() }), Some(Rule::FenceFell));
    assert_eq!(doctored(OracleShard { done: 3, ..known.clone() }), Some(Rule::ProgressFell));
    assert_eq!(doctored(OracleShard { holder: None, ..known.clone() }), Some(Rule::Acknowledged));
    assert_eq!(doctored(OracleShard { range: (0, 2), ..known }), Some(Rule::Acknowledged));
}

#[test]
fn a_missing_leaf_is_found() {
    let (world, mut state) = worked(CHECKPOINT);
    state.shards.clear();
    assert_eq!(rule(world.check(&state, Strictness::Effects)), Some(Rule::Tiling));
}

/// Returns a shard with a pending request to split: operation 7, with payload number `payload`.
fn asking(payload: u32) -> OracleShard {
    let asked = Asked { op_id: 7, payload, what: RequestedAction::Split, expires: 3 };
    OracleShard { request: Some(asked), ..shard() }
}

fn request(op_id: u16) -> Command {
    let act = AdminAct::Request { what: RequestedAction::Split, expires: 3 };
    Command::Admin { tenant: 0, shard: 0, act, op_id }
}

#[rstest]
#[case::known_again(asking(1), 7, Verdict::Replayed, "Replayed", None)]
#[case::refused(asking(1), 7, Verdict::Refused, "RequestPending", Some(Rule::Replay))]
#[case::done_again(asking(1), 7, Verdict::Executed, "Executed", Some(Rule::Replay))]
#[case::other_parameters(asking(2), 7, Verdict::Refused, "OpIdConflict", None)]
#[case::not_replayed(asking(2), 7, Verdict::Replayed, "Replayed", Some(Rule::OpIdReused))]
#[case::never_asked(shard(), 7, Verdict::Replayed, "Replayed", Some(Rule::Replay))]
#[case::id_is_new(shard(), 7, Verdict::Refused, "OpIdConflict", Some(Rule::Replay))]
#[case::in_the_way(asking(1), 8, Verdict::Executed, "Executed", Some(Rule::Acknowledged))]
fn a_pending_request_is_its_own_log(
    #[case] shard: OracleShard,
    #[case] op_id: u16,
    #[case] verdict: Verdict,
    #[case] outcome: &str,
    #[case] expected: Option<Rule>,
) {
    let step = step(Op::RequestAction, verdict);
    let verdict = check(&shard, &run(), request(op_id), 2, outcome, &step);
    assert_eq!(rule(verdict), expected);
}

#[rstest]
#[case::it(asking(1), Some((RequestedAction::Split, 3)), None)]
#[case::nothing(asking(1), None, Some(Rule::Acknowledged))]
#[case::another(asking(1), Some((RequestedAction::Release, 3)), Some(Rule::Acknowledged))]
#[case::not_pending(shard(), Some((RequestedAction::Split, 3)), Some(Rule::Acknowledged))]
fn a_checkpoint_shows_the_pending_request(
    #[case] shard: OracleShard,
    #[case] shown: Option<(RequestedAction, u8)>,
    #[case] expected: Option<Rule>,
) {
    let step = Step { shown, ..step(Op::Checkpoint, Verdict::Executed) };
    let verdict = check(&shard, &run(), held(CHECKPOINT), 2, "Executed", &step);
    assert_eq!(rule(verdict), expected);
}
