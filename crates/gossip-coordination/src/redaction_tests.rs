//! Nothing that is printed shows a key, a token, an owner, a hash or another tenant.
//!
//! Canaries stand where secrets would be, and every error, event, record, command and change is
//! printed in every way. `InfraError` alone carries text of a store, and stores answer for theirs.

use std::error::Error;
use std::fmt::Debug;
use std::panic::catch_unwind;

use gossip_contracts::coordination::{
    CursorSemantics, CursorUpdate, InitialShardInput, ShardSpec, ShardSpecRef,
    plan_split_replace_at_points_with_cursor, plan_split_residual_at_point,
};
use gossip_contracts::identity::{OpId, Redacted, ShardId, TenantId};

use crate::error_samples_tests::{self as samples, SECRET_HASH, SECRET_KEY, SECRET_OWNER};
use crate::protocol::{
    Accept, Acquire, Checkpoint, Complete, CreateRun, Decision, DeleteRun, LeaseWatch, OfferShard,
    OfferTerms, OwnerEvidence, Park, RegisterShards, Release, ReleaseMode, Renew, Renewed,
    ReplyPath, RequestAction, RevokeLease, RunChange, RunInputs, RunTransition, RunTransitionKind,
    ShardChange, ShardInputs, ShardTransition, SplitReplace, SplitResidual, Tombstone, Unpark,
    Withdraw,
};
use crate::request::PendingRequest;
use crate::split_execution::{hash_split_replace, hash_split_residual};
use crate::test_fixtures::{
    RUN, TENANT, acquire, at, fence, key, op, run_config, two_shards, two_shards_async, worker,
};
use crate::{
    AcquireScratch, CheckpointResult, CoordinationBackend, CoordinatorRuntimeConfig,
    EventCollector, EventKind, FixedBuf, GrantToken, HandoffId, InMemoryCoordinator, Lease,
    LeaseHolder, Lineage, NewShard, Offer, OpKind, OpLog, OpLogEntry, ParkContext, ParkReason,
    RedactedKey, Registration, RunManagement, RunOpKind, RunOpLogEntry, RunProgress, RunRecord,
    SessionError, ShardAction, ShardFilter, ShardQuota, ShardView, SplitKey, StateTransitionEvent,
    Watermark, WorkerEntry, WorkerSession, WorkerState,
};

const SECRET_GRANT: u64 = 5_515_515_515_515_515_515;
const START: &[u8] = b"SECRET-a";
const MIDDLE: &[u8] = b"SECRET-m";
const END: &[u8] = b"SECRET-z";
const CURSOR: CursorUpdate<'static> = CursorUpdate::new(b"SECRET-c", b"SECRET-token");
const SPEC: ShardSpecRef<'static> = ShardSpecRef::new(START, END, b"SECRET-metadata");
const FOREIGN: TenantId = TenantId::from_bytes(*b"SECRET-foreign-tenant-SECRET-ten");
const MOVE: HandoffId = HandoffId::from_raw(5);
const TERMS: OfferTerms =
    OfferTerms { handoff: MOVE, destination: worker(SECRET_OWNER + 1), deadline: at(60) };

/// Traces of the canaries: text, lists of numbers, hexadecimal; numbers without their last digits,
/// so that neighbours of a canary are caught as well.
fn traces() -> Vec<String> {
    let bytes = ["secret", "83, 69, 67", "83,\n", "53, 45, 43", "534543"].map(str::to_owned);
    let numbers = [SECRET_OWNER, SECRET_HASH, SECRET_GRANT].into_iter().flat_map(number_traces);
    bytes.into_iter().chain(numbers).collect()
}

fn number_traces(number: u64) -> [String; 2] {
    [format!("{}", number / 100), format!("{:x}", number >> 8)]
}

#[track_caller]
fn assert_clean(text: &str) {
    let text = text.to_lowercase();
    let shown = traces().into_iter().find(|trace| text.contains(trace));
    assert_eq!(shown, None, "a canary shows");
}

/// Prints `value` in every way and looks for the canaries.
#[track_caller]
fn show(value: &impl Debug) {
    assert_clean(&format!("{value:?}"));
    assert_clean(&format!("{value:#?}"));
    assert_clean(&format!("{value:x?}"));
}

/// As [`show`], for values that carry this computed hash.
#[track_caller]
fn show_without(value: &impl Debug, hash: u64) {
    show(value);
    let text = format!("{value:?} {value:x?}");
    assert!(number_traces(hash).iter().all(|trace| !text.contains(trace)), "a hash shows");
}

#[track_caller]
fn show_error(error: &impl Error) {
    show(error);
    assert!(!error.to_string().is_empty(), "an error says something");
    assert_clean(&error.to_string());
    let mut source = error.source();
    while let Some(error) = source {
        assert_clean(&format!("{error} {error:?} {error:#?}"));
        source = error.source();
    }
}

/// The test of the tester: whatever leaks in a usual way is caught.
#[test]
fn a_leak_is_caught() {
    #[derive(Debug)]
    struct Leaks<T>(T);
    fn caught(value: &(impl Debug + std::panic::RefUnwindSafe)) -> bool {
        catch_unwind(|| show(value)).is_err()
    }
    assert!(caught(&Leaks(SECRET_KEY)));
    assert!(caught(&Leaks(String::from_utf8_lossy(SECRET_KEY))));
    assert!(caught(&Leaks(FOREIGN.as_bytes())));
    assert!(caught(&Leaks(worker(SECRET_OWNER))));
    assert!(caught(&Leaks(SECRET_HASH)));
    assert!(caught(&Leaks(SECRET_HASH + 1)));
    assert!(caught(&Leaks(SECRET_GRANT)));
    assert!(!caught(&Leaks(Redacted::new(SECRET_HASH))));
    assert!(catch_unwind(|| assert_clean(&format!("{SECRET_OWNER:#X}"))).is_err());
    assert!(catch_unwind(|| show_without(&Leaks(123_456_789), 123_456_789)).is_err());
}

#[test]
fn errors_show_no_secret() {
    samples::infra_errors().iter().for_each(|(_, error)| show_error(error));
    samples::coord_errors().iter().for_each(|(_, error)| show_error(error));
    samples::acquire_errors().iter().for_each(|(_, error)| show_error(error));
    samples::renew_errors().iter().for_each(|(_, error)| show_error(error));
    samples::checkpoint_errors().iter().for_each(|(_, error)| show_error(error));
    samples::complete_errors().iter().for_each(|(_, error)| show_error(error));
    samples::park_errors().iter().for_each(|(_, error)| show_error(error));
    samples::split_errors().iter().for_each(|(_, error)| show_error(error));
    samples::release_errors().iter().for_each(|(_, error)| show_error(error));
    samples::offer_errors().iter().for_each(|(_, error)| show_error(error));
    samples::accept_errors().iter().for_each(|(_, error)| show_error(error));
    samples::withdraw_errors().iter().for_each(|(_, error)| show_error(error));
    samples::create_run_errors().iter().for_each(|(_, error)| show_error(error));
    samples::register_errors().iter().for_each(|(_, error)| show_error(error));
    samples::get_run_errors().iter().for_each(|(_, error)| show_error(error));
    samples::run_transition_errors().iter().for_each(|(_, error)| show_error(error));
    samples::unpark_errors().iter().for_each(|(_, error)| show_error(error));
    samples::request_action_errors().iter().for_each(|(_, error)| show_error(error));
    samples::revoke_lease_errors().iter().for_each(|(_, error)| show_error(error));
    samples::delete_run_errors().iter().for_each(|(_, error)| show_error(error));
    samples::claim_errors().iter().for_each(|(_, error)| show_error(error));
    samples::worker_errors().iter().for_each(|(_, error)| show_error(error));
    samples::run_config_errors().iter().for_each(|(_, error)| show_error(error));
    samples::not_collected().iter().for_each(|(_, error)| show(error));
    show_error(&samples::run_conflict());
}

#[test]
fn events_show_no_secret() {
    let mut collector = EventCollector::new();
    for (_, kind) in samples::event_kinds() {
        show(&kind);
        let event = StateTransitionEvent { tenant: FOREIGN, run: RUN, at: at(1), kind };
        show(&event);
        assert!(collector.emit(event));
    }
    show(&collector);
    let EventKind::ShardCheckpointed { last_key, .. } = &samples::event_kinds()[1].1 else {
        unreachable!("the second sample is a checkpoint")
    };
    assert_eq!(last_key.as_bytes(), Some(SECRET_KEY), "the canary is really there");
    show(&RedactedKey::new(Some(SECRET_KEY)));
}

fn lease(owner: u64) -> Lease {
    let (fence, token) = (fence(2), GrantToken::from_raw(SECRET_GRANT));
    Lease::new(TENANT, key(0), worker(owner), fence, at(110), token)
}

#[test]
fn leases_logs_and_requests_show_no_secret() {
    let token = GrantToken::from_raw(SECRET_GRANT);
    let holder = LeaseHolder::new(worker(SECRET_OWNER), at(9), token);
    let entry = OpLogEntry::new(op(1), OpKind::Complete, SECRET_HASH, at(1));
    let mut log = OpLog::new();
    log.push(entry);
    show(&(token, holder, lease(SECRET_OWNER), entry, log));

    let run_entry = RunOpLogEntry::new(op(1), RunOpKind::PauseRun, SECRET_HASH, at(1));
    let registration = Registration { op_id: op(1), payload_hash: SECRET_HASH };
    let tombstone = Tombstone { op_id: op(1), payload_hash: SECRET_HASH };
    let mut run = RunRecord::new(FOREIGN, RUN, run_config(), at(1));
    run.registration = Some(registration);
    run.op_log.push_back_overwrite(run_entry);
    show(&(run_entry, registration, tombstone, &run));

    let split = ShardAction::Split(SplitKey::try_new(SECRET_KEY));
    let hand_off = ShardAction::HandOff(Some(worker(SECRET_OWNER)));
    let request = PendingRequest::new(op(1), SECRET_HASH, hand_off.clone(), at(9));
    show(&(SplitKey::try_new(SECRET_KEY), &split, &hand_off, &request));
    show(&CheckpointResult { request: Some(request.clone()) });
    let renewed =
        Renewed { new_deadline: at(9), offer: None, request: Some(request), run_paused: true };
    show(&renewed);
}

#[test]
fn offers_workers_lineages_and_progress_show_no_secret() {
    let destination = worker(SECRET_OWNER);
    let offer = Offer { handoff: MOVE, destination, deadline: at(9), payload_hash: SECRET_HASH };
    show(&(offer, offer.notice(), TERMS));
    show(&WorkerEntry::heard_of(worker(SECRET_OWNER), WorkerState::Idle, at(1)));
    show(&OwnerEvidence::Alive { owner: worker(SECRET_OWNER), max_clock_skew: 2 });
    let lineage = Lineage { parent: ShardId::from_raw(1), split_hash: SECRET_HASH };
    show(&lineage);
    show(&NewShard {
        shard: ShardId::from_raw(ShardId::DERIVED_BIT),
        spec: SPEC,
        cursor: CURSOR,
        fence: fence(1),
        attempts: 0,
        cursor_semantics: CursorSemantics::Completed,
        lineage: Some(lineage),
    });
    let watermark = Some(Watermark::new(SECRET_KEY));
    show(&RunProgress { watermark, ..RunProgress::default() });
    show(&FixedBuf::<16>::from_slice(SECRET_KEY, "it fits"));
}

fn coordinator() -> InMemoryCoordinator {
    let mut coordinator = InMemoryCoordinator::default();
    let shards = [InitialShardInput {
        shard_id: ShardId::from_raw(0),
        spec: SPEC,
        cursor: CursorUpdate::initial(),
    }];
    for tenant in [TENANT, FOREIGN] {
        let made =
            coordinator.create_run_with_shards(at(1), tenant, RUN, run_config(), &shards, op(9));
        made.unwrap();
        coordinator.register_worker(at(2), tenant, worker(SECRET_OWNER), None).unwrap();
    }
    coordinator
}

#[test]
fn coordinators_and_sessions_show_no_secret() {
    let mut backend = coordinator();
    let mut scratch = AcquireScratch::new();
    let owner = worker(SECRET_OWNER);
    let acquired = backend.acquire_and_restore_into(at(10), TENANT, key(0), owner, &mut scratch);
    let acquired = acquired.unwrap();
    show(&acquired);
    show(&acquired.snapshot);
    let mut session = WorkerSession::from_acquire_result(&mut backend, acquired);
    session.checkpoint(at(11), CURSOR, op(1)).unwrap();
    session.offer(at(12), TERMS, CURSOR, op(2)).unwrap();
    show(&session);
    let state = session.detach();
    show(&state);
    let session = WorkerSession::attach(&mut backend, state);
    let SessionError { session, error } = session.complete(at(13), CURSOR, op(3)).unwrap_err();
    show_error(&SessionError { session, error });
    show(&scratch);
    show(&backend);
    let shard = backend.shard(TENANT, key(0)).unwrap();
    assert_eq!(shard.cursor(), CURSOR, "the canary is really there");
    show(&shard);
    show(shard.record());

    let mut rows = Vec::new();
    backend.list_shards_into(at(14), TENANT, RUN, ShardFilter::all(), &mut rows).unwrap();
    show(&rows);
    let next = backend.accept(at(15), TENANT, key(0), TERMS.destination, MOVE, &mut scratch);
    show(&two_shards_async());
    show(&WorkerSession::from_acquire_result(&mut backend, next.unwrap()));
}

/// Decides `operation` about `shard` and prints the command and what it comes to.
#[track_caller]
fn show_decision<T>(operation: &T, shard: Option<ShardView<'_>>, run: &RunRecord)
where
    T: ShardTransition<Output: Debug, Error: Debug> + Debug,
{
    show(operation);
    let seen = ShardInputs {
        shard,
        run: Some(run.head()),
        quota: ShardQuota::UNLIMITED,
        owner: OwnerEvidence::Gone,
        watch: LeaseWatch::NONE,
        split_hash_of: &|_| None,
    };
    let decision = operation.decide(at(20), &seen);
    assert!(matches!(decision, Ok(Decision::Commit { .. })), "the operation is accepted");
    show(&decision);
}

#[test]
fn commands_and_changes_show_no_secret() {
    let (tenant, op_id, cursor) = (TENANT, op(77), CURSOR);
    let (worker, token) = (worker(SECRET_OWNER), GrantToken::from_raw(SECRET_GRANT));
    let mut backend = coordinator();
    let run = backend.get_run(TENANT, RUN).unwrap();
    let acquire = Acquire {
        tenant,
        key: key(0),
        worker,
        token,
        reply: ReplyPath::CanBeLost,
        spares_last_attempt: false,
    };
    show_decision(&acquire, backend.shard(TENANT, key(0)), &run);

    let mut scratch = AcquireScratch::new();
    let held = backend.acquire_and_restore_into(at(10), TENANT, key(0), worker, &mut scratch);
    let lease = &held.unwrap().lease;
    let shard = backend.shard(TENANT, key(0));
    show_decision(&Renew { tenant, lease }, shard, &run);
    show_decision(&Checkpoint { tenant, lease, cursor, op_id }, shard, &run);
    show_decision(&Complete { tenant, lease, cursor, op_id }, shard, &run);
    let context = ParkContext::new("SECRET-text");
    show_decision(&Park { tenant, lease, reason: ParkReason::Other, context, op_id }, shard, &run);
    show_decision(&Release { tenant, lease, mode: ReleaseMode::Clean, op_id }, shard, &run);
    show_decision(&OfferShard { tenant, lease, terms: TERMS, cursor, op_id }, shard, &run);
    show_decision(&Withdraw { tenant, lease, handoff: MOVE, op_id }, shard, &run);
    show_decision(&RevokeLease { tenant, key: key(0), expected_fence: None, op_id }, shard, &run);
    let action = ShardAction::Split(SplitKey::try_new(MIDDLE));
    show_decision(
        &RequestAction { tenant, key: key(0), action, expires_at: at(99), op_id },
        shard,
        &run,
    );

    backend.offer(at(11), TENANT, lease, TERMS, CURSOR, op(1)).unwrap();
    let accept = Accept { tenant, key: key(0), worker: TERMS.destination, handoff: MOVE, token };
    show_decision(&accept, backend.shard(TENANT, key(0)), &run);
    backend.withdraw(at(12), TENANT, lease, MOVE, op(2)).unwrap();
    backend.park_shard(at(13), TENANT, lease, ParkReason::Other, op(3)).unwrap();
    show_decision(&Unpark { tenant, key: key(0), op_id }, backend.shard(TENANT, key(0)), &run);
}

#[test]
fn splits_show_neither_keys_nor_their_hash() {
    let mut backend = coordinator();
    let run = backend.get_run(TENANT, RUN).unwrap();
    let mut scratch = AcquireScratch::new();
    let owner = worker(SECRET_OWNER);
    let held = backend.acquire_and_restore_into(at(10), TENANT, key(0), owner, &mut scratch);
    let lease = &held.unwrap().lease;
    backend.checkpoint(at(11), TENANT, lease, CURSOR, op(1)).unwrap();
    let shard = backend.shard(TENANT, key(0));
    let whole = ShardSpec::try_from(SPEC).unwrap();
    let (tenant, op_id) = (TENANT, OpId::from_raw(77));

    let plan =
        plan_split_replace_at_points_with_cursor(whole.as_spec_ref(), &[MIDDLE], CURSOR).unwrap();
    let split = SplitReplace { tenant, lease, plan: &plan, children_max: 8, op_id };
    show_decision(&split, shard, &run);
    let seen = ShardInputs {
        shard,
        run: Some(run.head()),
        quota: ShardQuota::UNLIMITED,
        owner: OwnerEvidence::Gone,
        watch: LeaseWatch::NONE,
        split_hash_of: &|_| None,
    };
    show_without(&split.decide(at(20), &seen), hash_split_replace(&plan));

    let plan = plan_split_residual_at_point(whole.as_spec_ref(), MIDDLE).unwrap();
    let split = SplitResidual { tenant, lease, plan: &plan, op_id };
    show_decision(&split, shard, &run);
    let decision = split.decide(at(20), &seen);
    let Ok(Decision::Commit { change: ShardChange::Shrink { residual, .. }, .. }) = &decision
    else {
        unreachable!("the split is accepted")
    };
    assert_eq!(
        residual.lineage.map(|lineage| lineage.split_hash),
        Some(hash_split_residual(&plan))
    );
    show_without(&decision, hash_split_residual(&plan));
}

#[test]
fn commands_about_runs_show_no_secret() {
    let (tenant, run, op_id) = (FOREIGN, RUN, op(1));
    let shards = [InitialShardInput { shard_id: ShardId::from_raw(0), spec: SPEC, cursor: CURSOR }];
    show(&CreateRun { tenant, run, config: run_config() });
    show(&RegisterShards { tenant, run, shards: &shards, op_id });
    show(&RunTransition { tenant, run, kind: RunTransitionKind::Pause, op_id });
    show(&DeleteRun { tenant, run, op_id });
    let record = RunRecord::new(FOREIGN, RUN, run_config(), at(1));
    let tombstone = Tombstone { op_id, payload_hash: SECRET_HASH };
    show(&RunChange::Create(Box::new(record.clone())));
    show(&RunChange::Delete(tombstone));
    show(&RunInputs {
        run: Some(&record),
        tombstone: Some(tombstone),
        active: 1,
        parked: 2,
        registered_at: at(1),
        quota: ShardQuota::UNLIMITED,
    });
}

/// A pool holds the logs of all tenants, so a view of one shard must not show it.
#[test]
fn a_view_of_one_shard_shows_no_operation_of_another_tenant() {
    let mut coordinator = two_shards();
    let lease = acquire(&mut coordinator, 10, 1, 1);
    let cursor = CursorUpdate::with_last_key(b"n");
    coordinator.checkpoint(at(11), TENANT, &lease, cursor, op(424_242)).unwrap();
    let shown = format!("{:?}", coordinator.shard(TENANT, key(0)).unwrap());
    assert!(shown.contains("ShardRecord"), "{shown}");
    assert!(!shown.contains("424242"), "{shown}");
}

#[test]
fn a_slab_too_large_to_address_is_refused() {
    let slab_capacity = u32::MAX as usize + 1;
    let config = CoordinatorRuntimeConfig { slab_capacity, ..CoordinatorRuntimeConfig::default() };
    assert!(InMemoryCoordinator::try_new(config).is_err());
}

/// Hiding everything would be redaction too: handwritten `Debug` output still identifies the value.
#[test]
fn what_hides_its_fields_still_says_what_it_is() {
    let (token, handoff) = (GrantToken::from_raw(3), HandoffId::from_raw(5));
    let acquire = Acquire {
        tenant: TENANT,
        key: key(0),
        worker: worker(1),
        token,
        reply: ReplyPath::CanBeLost,
        spares_last_attempt: false,
    };
    let accept = Accept { tenant: TENANT, key: key(0), worker: worker(1), handoff, token };
    let terms = OfferTerms { handoff, destination: worker(2), deadline: at(60) };
    let tombstone = Tombstone { op_id: op(9), payload_hash: 7 };
    let lineage = Lineage { parent: ShardId::from_raw(4), split_hash: 7 };
    let shown = [
        (format!("{acquire:?}"), "Acquire"),
        (format!("{accept:?}"), "HandoffId(5)"),
        (format!("{terms:?}"), "HandoffId(5)"),
        (format!("{tombstone:?}"), "OpId(9)"),
        (format!("{lineage:?}"), "ShardId(4)"),
    ];
    for (text, expected) in shown {
        assert!(text.contains(expected), "{text}");
    }
}
