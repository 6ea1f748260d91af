//! Runs the suite on the in-memory coordinator, and tests the suite itself.

use gossip_coordination::{
    CollectEvents, CoordinatorRuntimeConfig, EventCollector, InMemoryCoordinator,
    StateTransitionEvent,
};
use proptest::prelude::*;

use crate::{
    Ability, ConformanceTarget, Settings, all_cases, check_sequence, check_sequences, note_ability,
    run_all,
};

/// The in-memory coordinator, called directly.
struct InMemory;

/// The in-memory coordinator has one handle and cannot lose replies.
pub(crate) const ALONE: &[Ability] = &[Ability::Handles, Ability::Siblings, Ability::LostReplies];

/// Creates an in-memory coordinator with the limits of a case.
pub(crate) fn coordinator(settings: Settings) -> InMemoryCoordinator {
    InMemoryCoordinator::new(CoordinatorRuntimeConfig {
        max_shards_per_tenant: settings.max_shards_per_tenant,
        max_total_shards: settings.max_total_shards,
        claim_cooldown_interval: settings.claim_cooldown_interval,
        slab_capacity: 1 << 20,
    })
}

impl ConformanceTarget for InMemory {
    type Backend = InMemoryCoordinator;

    fn name(&self) -> &str {
        "the in-memory coordinator"
    }

    fn lacks(&self) -> &'static [Ability] {
        ALONE
    }

    fn fresh(&self, settings: Settings) -> InMemoryCoordinator {
        coordinator(settings)
    }

    fn with_events<R>(
        &self,
        backend: &mut InMemoryCoordinator,
        call: impl FnOnce(&mut InMemoryCoordinator) -> R,
    ) -> (R, Option<Vec<StateTransitionEvent>>) {
        let mut events = EventCollector::new();
        let result = backend.with_events(&mut events, call);
        (result, Some(events.drain()))
    }
}

#[test]
fn the_coordinator_in_memory_conforms() {
    let ran = run_all(&InMemory, &mut |case| println!("{}::{}", case.topic, case.name));
    println!("{ran} cases");
}

/// Answers that the sequences must produce; fewer would weaken the test.
const MET_BY_SEQUENCES: &[(&str, &str)] = &[
    (
        "Accept",
        "Granted NoOffer NotDestination OfferExpired RunPaused RunTerminal \
         ShardNotFound ShardTerminal",
    ),
    ("Acquire", "AlreadyLeased Granted RunPaused RunTerminal ShardNotFound ShardTerminal"),
    ("CancelRun", "Executed Replayed RunNotFound"),
    (
        "Checkpoint",
        "CursorOutOfBounds CursorRegression Executed LeaseExpired Offered \
         OpIdConflict OperationTooOld Replayed ShardNotFound ShardTerminal StaleFence \
         TenantMismatch",
    ),
    ("Claim", "Granted NoneAvailable RunNotFound RunPaused RunTerminal"),
    (
        "Complete",
        "CursorOutOfBounds CursorRegression Executed LeaseExpired Offered \
         OpIdConflict OperationTooOld Replayed ShardNotFound ShardTerminal StaleFence \
         TenantMismatch",
    ),
    ("CompleteRun", "NotSettled"),
    ("Create", "Created RunAlreadyExists"),
    ("Delete", "Executed NotTerminal RunNotFound"),
    ("FailRun", "Executed RunNotFound"),
    (
        "Offer",
        "CursorOutOfBounds CursorRegression Executed InvalidDestination \
         InvalidOfferDeadline LeaseExpired Offered OpIdConflict OperationTooOld Replayed \
         RunTerminal \
         ShardNotFound ShardTerminal StaleFence TenantMismatch Withdrawn",
    ),
    (
        "Park",
        "Executed LeaseExpired Offered OpIdConflict OperationTooOld Replayed ShardTerminal \
         StaleFence \
         TenantMismatch",
    ),
    ("PauseRun", "Executed Replayed RunNotFound RunTerminal WrongStatus"),
    ("Register", "Executed Replayed RunNotFound WrongStatus"),
    (
        "Release",
        "Executed LeaseExpired Offered OpIdConflict OperationTooOld Replayed ShardNotFound \
         ShardTerminal StaleFence TenantMismatch",
    ),
    (
        "Renew",
        "LeaseExpired Renewed RunTerminal ShardNotFound ShardTerminal StaleFence \
         TenantMismatch",
    ),
    (
        "Replace",
        "Executed LeaseExpired Offered OpIdConflict OperationTooOld Replayed RunTerminal \
         ShardNotFound ShardTerminal SplitInvalid StaleFence TenantMismatch",
    ),
    ("Request", "Executed NotLeased Replayed RunTerminal ShardNotFound ShardTerminal"),
    ("ResumeRun", "Executed Replayed RunNotFound RunTerminal"),
    ("Revoke", "Executed NotLeased Replayed ShardNotFound ShardTerminal StaleFence"),
    (
        "Shrink",
        "Executed LeaseExpired Offered OpIdConflict OperationTooOld Replayed RunTerminal \
         ShardNotFound ShardTerminal SplitInvalid StaleFence TenantMismatch",
    ),
    ("Unpark", "Executed NotParked Replayed RunTerminal ShardNotFound"),
    (
        "Withdraw",
        "Executed LeaseExpired NoOffer OpIdConflict OperationTooOld Replayed ShardNotFound \
         ShardTerminal StaleFence TenantMismatch",
    ),
];

#[test]
fn random_sequences_are_answered_as_the_model_answers() {
    let met = check_sequences(&InMemory, 0..300, 120);
    for ((operation, answer), count) in &met {
        println!("{operation:>12} {answer:<22} {count:>6}");
    }
    for (operation, answers) in MET_BY_SEQUENCES {
        for answer in answers.split(' ') {
            let key = ((*operation).to_owned(), answer.to_owned());
            assert!(met.contains_key(&key), "{operation} was never answered {answer}");
        }
    }
}

proptest! {
    #[test]
    fn any_sequence_is_answered_as_the_model_answers(
        numbers in proptest::collection::vec(any::<u64>(), 0..120),
    ) {
        check_sequence(&InMemory, "a sequence of proptest", numbers);
    }
}

#[test]
fn every_case_is_in_the_registry_of_its_topic() {
    let sources = [
        ("attempts", include_str!("attempts.rs")),
        ("claims", include_str!("claims.rs")),
        ("clocks", include_str!("clocks.rs")),
        ("cursors", include_str!("cursors.rs")),
        ("events", include_str!("events.rs")),
        ("fencing", include_str!("fencing.rs")),
        ("floors", include_str!("floors.rs")),
        ("handoff", include_str!("handoff.rs")),
        ("idempotency", include_str!("idempotency.rs")),
        ("limits", include_str!("limits.rs")),
        ("listing", include_str!("listing.rs")),
        ("parking", include_str!("parking.rs")),
        ("requests", include_str!("requests.rs")),
        ("runs", include_str!("runs.rs")),
        ("side_records", include_str!("side_records.rs")),
        ("splits", include_str!("splits.rs")),
        ("stored_events", include_str!("stored_events.rs")),
        ("tenants", include_str!("tenants.rs")),
        ("unknown", include_str!("unknown.rs")),
        ("run_collection", include_str!("run_collection.rs")),
        ("workers", include_str!("workers.rs")),
    ];
    let mut written: Vec<(&str, &str)> = Vec::new();
    for (topic, source) in sources {
        let functions = source.lines().filter_map(|line| line.strip_prefix("pub fn "));
        written.extend(functions.filter_map(|line| Some((topic, line.split_once('<')?.0))));
    }
    let cases = all_cases::<InMemory>();
    let mut listed: Vec<_> = cases.iter().map(|case| (case.topic, case.name)).collect();
    written.sort_unstable();
    listed.sort_unstable();
    assert_eq!(listed, written);
}

#[test]
fn a_failed_case_is_named_with_its_target() {
    let payload = std::panic::catch_unwind(|| run_all(&Broken, &mut |_| ()));
    let payload = payload.expect_err("a backend whose limits are wrong fails");
    let message = payload.downcast_ref::<String>().expect("a message");
    assert!(message.contains("failed on a broken one"), "{message}");
    assert!(message.contains("limits::a_tenant_may_fill_its_limit_and_not_one_more"), "{message}");
}

/// A missing hook, and an existing hook that is listed as lacking, both fail the suite.
#[test]
fn a_target_that_lacks_more_or_less_than_it_says_fails() {
    let failed = |target: &Lacking| {
        let payload = std::panic::catch_unwind(|| run_all(target, &mut |_| ()));
        let payload = payload.expect_err("the hooks differ from the list");
        payload.downcast_ref::<String>().expect("a message").clone()
    };
    let forgetful = failed(&Lacking(&[Ability::Handles]));
    assert!(forgetful.contains("Events of a lacking one: there is false"), "{forgetful}");
    assert!(forgetful.contains("LostReplies of a lacking one: there is false"), "{forgetful}");
    assert!(!forgetful.contains("Handles of"), "{forgetful}");
    let modest = std::panic::catch_unwind(|| note_ability(&InMemory, Ability::Handles, true));
    assert!(modest.is_err(), "it lists the ability as lacking");
}

/// A backend without hooks, with a configurable list of lacking abilities.
struct Lacking(&'static [Ability]);

impl ConformanceTarget for Lacking {
    type Backend = InMemoryCoordinator;

    fn name(&self) -> &str {
        "a lacking one"
    }

    fn lacks(&self) -> &'static [Ability] {
        self.0
    }

    fn fresh(&self, settings: Settings) -> InMemoryCoordinator {
        coordinator(settings)
    }
}

/// A backend that ignores limits, so that the suite must fail.
struct Broken;

impl ConformanceTarget for Broken {
    type Backend = InMemoryCoordinator;

    fn name(&self) -> &str {
        "a broken one"
    }

    fn lacks(&self) -> &'static [Ability] {
        &[Ability::Events, Ability::Handles, Ability::Siblings, Ability::LostReplies]
    }

    fn fresh(&self, _settings: Settings) -> InMemoryCoordinator {
        coordinator(Settings::default())
    }
}
