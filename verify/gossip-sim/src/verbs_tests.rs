//! Every operation of the public traits is simulated, or has a reason here why it is not.
//!
//! The names come from the operation lists, and those of methods that traits add to them from the
//! source: an operation that is added and not simulated fails a test.

use gossip_coordination::{for_each_run_operation, for_each_shard_operation};

use super::op::Verb;

const RUN_MANAGEMENT: &str =
    include_str!("../../../crates/gossip-coordination/src/run_management.rs");
const FACADE: &str = include_str!("../../../crates/gossip-coordination/src/facade.rs");

/// The method of each operation, in the order of [`Verb::ALL`].
const SIMULATED: [(&str, Verb); Verb::COUNT - 2] = [
    ("claim_next_available", Verb::Claim),
    ("acquire_and_restore_into", Verb::Acquire),
    ("renew", Verb::Renew),
    ("renew_many", Verb::RenewMany),
    ("checkpoint", Verb::Checkpoint),
    ("complete", Verb::Complete),
    ("park_shard", Verb::Park),
    ("split_replace", Verb::SplitReplace),
    ("split_residual", Verb::SplitResidual),
    ("release", Verb::Release),
    ("offer", Verb::Offer),
    ("accept", Verb::Accept),
    ("withdraw", Verb::Withdraw),
    ("unpark_shard", Verb::Unpark),
    ("request_action", Verb::RequestAction),
    ("revoke_lease", Verb::RevokeLease),
    ("create_run", Verb::CreateRun),
    ("register_shards", Verb::RegisterShards),
    ("complete_run", Verb::CompleteRun),
    ("fail_run", Verb::FailRun),
    ("cancel_run", Verb::CancelRun),
    ("pause_run", Verb::PauseRun),
    ("resume_run", Verb::ResumeRun),
    ("delete_run", Verb::DeleteRun),
    ("gc_stale_initializing_runs_into", Verb::CollectRuns),
    ("get_run", Verb::GetRun),
    ("get_run_progress", Verb::Progress),
    ("list_shards_into", Verb::ListShards),
    ("list_active_runs_into", Verb::ActiveRuns),
    ("register_worker", Verb::RegisterWorker),
    ("heartbeat", Verb::Heartbeat),
    ("list_workers_into", Verb::ListWorkers),
    ("list_runs_into", Verb::ListRuns),
];

/// Methods that are not simulated on their own, with the reason.
const LEFT_OUT: [(&str, &str); 13] = [
    (
        "create_run_with_shards",
        "makes a run and registers its shards, which are simulated one by one",
    ),
    ("park_shard_with_context", "is `park_shard` with a text that no rule reads"),
    ("checkpoint_with_records", "is `checkpoint` with records that no rule reads"),
    ("complete_with_records", "is `complete` with records that no rule reads"),
    ("park_shard_with_records", "is `park_shard_with_context` with records that no rule reads"),
    ("list_side_records_into", "reads records that no rule reads"),
    ("list_events_into", "reads records that no rule reads"),
    ("change_count", "wakes a waiting worker sooner, and no rule reads it"),
    ("collect_claim_candidates_into", "is the candidate scan of a claim"),
    ("probe_candidates_into", "is the first step of a claim"),
    ("reserve_claim", "is the first step of a claim"),
    ("acquire_sparing_last_attempt_into", "is `acquire_and_restore_into` with one more refusal"),
    ("claim_within", "is `claim_next_available` with such an acquire"),
];

/// The sources of the simulated programs.
const PROGRAMS: [&str; 4] = [
    include_str!("admin.rs"),
    include_str!("listings.rs"),
    include_str!("splits.rs"),
    include_str!("worker.rs"),
];

const SIM_COORDINATOR: &str = include_str!("user_coordinator.rs");

/// Kinds of operations that create, end or change runs: only the world may call them.
const REFUSED: [&str; 6] = ["on_shard", "on_run", "create", "transition", "delete", "collect"];

macro_rules! names_and_kinds {
    (() $(
        $(#[$doc:meta])*
        fn $name:ident $(<$life:lifetime>)? ($($arg:ident: $type:ty),*) -> $answer:ty
            = $kind:ident $how:tt;
    )*) => { vec![$((stringify!($name), stringify!($kind))),*] };
}

/// Returns name and kind of every operation of the lists.
fn listed() -> Vec<(&'static str, &'static str)> {
    let mut rows = for_each_shard_operation! { names_and_kinds () };
    rows.extend(for_each_run_operation! { names_and_kinds () });
    rows
}

/// Returns the names of the methods that a trait declares itself.
fn names(source: &'static str, opening: &str) -> Vec<&'static str> {
    let (_, rest) = source.split_once(&format!("\n{opening}")).expect("the trait is there");
    let (block, _) = rest.split_once("\n}").expect("the trait ends");
    let signatures = block.lines().filter_map(|line| line.trim_start().strip_prefix("fn "));
    signatures.filter_map(|it| it.split(['(', '<']).next()).collect()
}

#[test]
fn every_operation_is_simulated_or_left_out_for_a_reason() {
    let mut offered: Vec<&str> = listed().into_iter().map(|(name, _)| name).collect();
    offered.extend(names(RUN_MANAGEMENT, "pub trait AsyncRunManagement: "));
    offered.extend(names(FACADE, "pub trait AsyncShardClaiming: "));
    let simulated = SIMULATED.iter().map(|(method, _)| *method);
    let mut known: Vec<&str> =
        simulated.chain(LEFT_OUT.iter().map(|(method, _)| *method)).collect();
    offered.sort_unstable();
    known.sort_unstable();
    assert_eq!(offered, known);
    // `store::set_allotment` and `repair_shard` are for operators and belong to no trait.
    let mut verbs = SIMULATED.map(|(_, verb)| verb).to_vec();
    verbs.extend([Verb::SetAllotment, Verb::RepairShard]);
    assert_eq!(verbs, Verb::ALL);
}

#[test]
fn every_simulated_operation_is_called() {
    // Line breaks are irrelevant.
    let programs = PROGRAMS.map(|program| program.split_whitespace().collect::<String>());
    for (method, verb) in SIMULATED {
        let (call, name) = (format!("self.handle.{method}("), format!("Verb::{verb:?}"));
        let called = |program: &String| program.contains(&call) && program.contains(&name);
        assert!(programs.iter().any(called), "no program calls {method}");
    }
}

/// A user worker reports its operations under the same names, except for those it must not call.
#[test]
fn operations_of_a_user_worker_have_their_names() {
    let rows = listed();
    let is_refused = |method| rows.iter().any(|row| row.0 == method && REFUSED.contains(&row.1));
    for (method, verb) in SIMULATED.iter().filter(|(method, _)| !is_refused(*method)) {
        // The arm of a macro, or a method that no list has.
        let start = [
            format!("\n    ({method}("),
            format!("$self:ident, {method} update\n"),
            format!(" fn {method}<"),
            // A claim is this method with the widest scope.
            format!(" fn {}<", method.replace("claim_next_available", "claim_within")),
        ];
        let found = start.iter().find_map(|start| SIM_COORDINATOR.split_once(start.as_str()));
        let (_, rest) = found.expect("a user worker has every operation");
        let body = rest.split("\n    (").next().expect("a split has a first part");
        assert!(body.contains(&format!("Verb::{verb:?},")), "{method}");
    }
}
