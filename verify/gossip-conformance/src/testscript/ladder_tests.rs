//! The ladder of every operation: its rules in the order in which they are checked.
//!
//! The coverage of the scripts is measured against this table. Some script must produce every
//! answer of a ladder, and some script must violate every two neighbouring rules at once, where
//! that is possible. The answers of an operation are read from the source of its error type.
//! [`UNREACHABLE`] lists the answers that the in-memory coordinator cannot produce, and
//! [`NEVER_BOTH`] the pairs that cannot be violated at once, each with its reason.

use super::{Cell, Order};

const SHARD_ERRORS: &str = include_str!("../../../../crates/gossip-coordination/src/error.rs");
const RUN_ERRORS: &str = include_str!("../../../../crates/gossip-coordination/src/run_errors.rs");
const FACADE: &str = include_str!("../../../../crates/gossip-coordination/src/facade.rs");
const WORKERS: &str = include_str!("../../../../crates/gossip-coordination/src/workers.rs");
const SPLIT_RULES: &str =
    include_str!("../../../../crates/gossip-contracts/src/coordination/coverage.rs");
const MANIFEST_RULES: &str =
    include_str!("../../../../crates/gossip-contracts/src/coordination/manifest.rs");

/// One operation.
pub(super) struct Ladder {
    pub(super) operation: &'static str,
    /// The source file and the name of its error type.
    error: (&'static str, &'static str),
    /// The answers of its rules in the order of the checks. A replay is an answer, too.
    rules: &'static [&'static [&'static str]],
}

/// An answer that no script can produce.
struct Unreachable {
    operation: &'static str,
    answer: &'static str,
    #[expect(dead_code, reason = "documents the row")]
    reason: &'static str,
}

/// Two rules that cannot be violated at once.
struct NeverBoth {
    first: &'static str,
    second: &'static str,
    #[expect(dead_code, reason = "documents the row")]
    reason: &'static str,
}

const fn ladder(
    operation: &'static str,
    error: (&'static str, &'static str),
    rules: &'static [&'static [&'static str]],
) -> Ladder {
    Ladder { operation, error, rules }
}

/// Idempotency, then the lease: the first checks of every operation with an operation id.
const REMEMBERED: &[&str] = &["ShardNotFound", "OpIdConflict", "replayed"];
const LEASE: &[&str] =
    &["TenantMismatch", "ShardTerminal", "StaleFence", "LeaseExpired", "StaleFence.same"];
const SEQUENCE: &[&str] = &["OperationTooOld"];
const KEY: &[&str] = &["CheckpointMissingKey"];
const CURSOR: &[&str] = &[
    "CursorKeyTooLarge",
    "CursorTokenTooLarge",
    "CursorRegression",
    "CursorOutOfBounds",
    "ResourceExhausted",
];
const COVERAGE: &[&str] = &[
    "SplitInvalid.StartMismatch",
    "SplitInvalid.EndMismatch",
    "SplitInvalid.BoundaryMismatch",
    "SplitInvalid.InvertedChild",
    "SplitInvalid.InvalidChildSpec",
];
const GROWTH: &[&str] = &[
    "SplitInvalid.SpawnLimitExceeded",
    "SplitInvalid.ShardLimitExceeded.PerTenant",
    "SplitInvalid.ShardLimitExceeded.Global",
    "ResourceExhausted",
];
const MANIFEST_SIZES: &[&str] = &[
    "ManifestInvalid.TooManyShards",
    "ManifestInvalid.InvalidSpec.KeyTooLarge",
    "ManifestInvalid.InvalidSpec.MetadataTooLarge",
    "ManifestInvalid.CursorKeyTooLarge",
    "ManifestInvalid.CursorTokenTooLarge",
];
const MANIFEST: &[&str] = &[
    "ManifestInvalid.Empty",
    "ManifestInvalid.DuplicateIds",
    "ManifestInvalid.UnboundedRange",
    "ManifestInvalid.InvalidSpec.InvertedRange",
    "ManifestInvalid.OverlappingRanges",
    "ManifestInvalid.CursorOutOfBounds",
    "ManifestInvalid.DerivedRootId",
    "ShardLimitExceeded.PerTenant",
    "ShardLimitExceeded.Global",
    "ResourceExhausted",
];
const RUN: &[&str] = &["RunNotFound", "OpIdConflict", "replayed", "RunTerminal"];

/// Every operation.
pub(super) const LADDERS: [Ladder; 33] = [
    ladder(
        "acquire",
        (SHARD_ERRORS, "AcquireError"),
        &[&[
            "ShardNotFound",
            "RunTerminal",
            "RunPaused",
            "ShardTerminal",
            "AlreadyLeased",
            "ShardTerminal.committed",
            "LastAttempt",
        ]],
    ),
    ladder("renew", (SHARD_ERRORS, "RenewError"), &[&["ShardNotFound"], LEASE, &["RunTerminal"]]),
    ladder(
        "renew_many",
        (SHARD_ERRORS, "RenewError"),
        &[&["ShardNotFound"], LEASE, &["RunTerminal"]],
    ),
    ladder(
        "checkpoint",
        (SHARD_ERRORS, "CheckpointError"),
        &[REMEMBERED, LEASE, SEQUENCE, &["Offered"], KEY, CURSOR],
    ),
    ladder(
        "complete",
        (SHARD_ERRORS, "CompleteError"),
        &[REMEMBERED, LEASE, SEQUENCE, &["Offered"], KEY, CURSOR],
    ),
    ladder("park", (SHARD_ERRORS, "ParkError"), &[REMEMBERED, LEASE, SEQUENCE, &["Offered"]]),
    ladder(
        "split_replace",
        (SHARD_ERRORS, "SplitError"),
        &[
            REMEMBERED,
            LEASE,
            SEQUENCE,
            &["RunTerminal", "Offered"],
            COVERAGE,
            &["SplitInvalid.ChildCursorInvalid"],
            GROWTH,
        ],
    ),
    ladder(
        "split_residual",
        (SHARD_ERRORS, "SplitError"),
        &[
            REMEMBERED,
            LEASE,
            SEQUENCE,
            &["RunTerminal", "Offered"],
            COVERAGE,
            &["SplitInvalid.ParentCursorOutOfBounds"],
            GROWTH,
        ],
    ),
    ladder("release", (SHARD_ERRORS, "ReleaseError"), &[REMEMBERED, LEASE, SEQUENCE, &["Offered"]]),
    ladder(
        "offer",
        (SHARD_ERRORS, "OfferError"),
        &[
            REMEMBERED,
            LEASE,
            SEQUENCE,
            &["RunTerminal", "Offered", "Withdrawn", "InvalidDestination", "InvalidOfferDeadline"],
            CURSOR,
        ],
    ),
    ladder(
        "accept",
        (SHARD_ERRORS, "AcceptError"),
        &[&[
            "ShardNotFound",
            "RunTerminal",
            "RunPaused",
            "ShardTerminal",
            "NoOffer",
            "NotDestination",
            "OfferExpired",
        ]],
    ),
    ladder(
        "withdraw",
        (SHARD_ERRORS, "WithdrawError"),
        &[REMEMBERED, LEASE, SEQUENCE, &["NoOffer"]],
    ),
    ladder(
        "claim",
        (FACADE, "ClaimError"),
        &[&[
            "Throttled",
            "RunNotFound",
            "RunTerminal",
            "RunPaused",
            "OnlyLastAttempts",
            "NoneAvailable",
            "NoneAvailable.committed",
        ]],
    ),
    ladder("create_run", (RUN_ERRORS, "CreateRunError"), &[&["InvalidConfig", "RunAlreadyExists"]]),
    ladder(
        "register_shards",
        (RUN_ERRORS, "RegisterShardsError"),
        &[MANIFEST_SIZES, &["RunNotFound", "OpIdConflict", "replayed", "WrongStatus"], MANIFEST],
    ),
    ladder(
        "create_run_with_shards",
        (RUN_ERRORS, "CreateRunError"),
        &[&[
            "InvalidConfig",
            "RunAlreadyExists",
            "ConfigMismatch",
            "replayed",
            "RegisterShardsFailed",
            "RegisterShardsFailed.committed",
        ]],
    ),
    ladder(
        "complete_run",
        (RUN_ERRORS, "RunTransitionError"),
        &[RUN, &["WrongStatus", "NotSettled"]],
    ),
    ladder("fail_run", (RUN_ERRORS, "RunTransitionError"), &[RUN, &["WrongStatus"]]),
    ladder("cancel_run", (RUN_ERRORS, "RunTransitionError"), &[RUN]),
    ladder("pause_run", (RUN_ERRORS, "RunTransitionError"), &[RUN, &["WrongStatus"]]),
    ladder("resume_run", (RUN_ERRORS, "RunTransitionError"), &[RUN, &["WrongStatus"]]),
    ladder(
        "delete_run",
        (RUN_ERRORS, "DeleteRunError"),
        &[&["replayed", "RunNotFound", "OpIdConflict", "NotTerminal"]],
    ),
    ladder("unpark", (RUN_ERRORS, "UnparkError"), &[REMEMBERED, &["RunTerminal", "NotParked"]]),
    ladder(
        "request_action",
        (RUN_ERRORS, "RequestActionError"),
        &[REMEMBERED, &["RunTerminal", "ShardTerminal", "NotLeased", "RequestPending"]],
    ),
    ladder(
        "revoke_lease",
        (RUN_ERRORS, "RevokeLeaseError"),
        &[REMEMBERED, &["ShardTerminal", "StaleFence", "NotLeased"]],
    ),
    ladder("raise_fence_floor", (RUN_ERRORS, "GetRunError"), &[&["RunNotFound"]]),
    ladder("get_run", (RUN_ERRORS, "GetRunError"), &[&["RunNotFound"]]),
    ladder("get_run_progress", (RUN_ERRORS, "GetRunError"), &[&["RunNotFound"]]),
    ladder("list_shards", (RUN_ERRORS, "GetRunError"), &[&["RunNotFound"]]),
    ladder("candidates", (RUN_ERRORS, "GetRunError"), &[&["RunNotFound"]]),
    ladder("register_worker", (WORKERS, "WorkerError"), &[&["TooManyWorkers"]]),
    ladder("heartbeat", (WORKERS, "WorkerError"), &[&["NotRegistered"]]),
    ladder("list_workers", (WORKERS, "WorkerError"), &[]),
];

const fn excused(
    operation: &'static str,
    answer: &'static str,
    reason: &'static str,
) -> Unreachable {
    Unreachable { operation, answer, reason }
}

const BY_TENANT: &str = "records are looked up by tenant, and no lease is presented";
const PLAN: &str = "a plan has at least two children, so no backend receives fewer";
const BOUNDED: &str = "needs an unbounded shard, and roots are bounded";
const OTHER_SPLIT: &str = "a rule of the other split";

/// Answers that no script can produce, with the reason.
const UNREACHABLE: &[Unreachable] = &[
    excused("*", "BackendError", "only a store returns it, the protocol does not"),
    excused("acquire", "TenantMismatch", BY_TENANT),
    excused("accept", "TenantMismatch", BY_TENANT),
    excused("claim", "TenantMismatch", BY_TENANT),
    excused("register_shards", "TenantMismatch", BY_TENANT),
    excused("complete_run", "TenantMismatch", BY_TENANT),
    excused("fail_run", "TenantMismatch", BY_TENANT),
    excused("cancel_run", "TenantMismatch", BY_TENANT),
    excused("pause_run", "TenantMismatch", BY_TENANT),
    excused("resume_run", "TenantMismatch", BY_TENANT),
    excused("delete_run", "TenantMismatch", BY_TENANT),
    excused("unpark", "TenantMismatch", BY_TENANT),
    excused("request_action", "TenantMismatch", BY_TENANT),
    excused("revoke_lease", "TenantMismatch", BY_TENANT),
    excused("raise_fence_floor", "TenantMismatch", BY_TENANT),
    excused("get_run", "TenantMismatch", BY_TENANT),
    excused("get_run_progress", "TenantMismatch", BY_TENANT),
    excused("list_shards", "TenantMismatch", BY_TENANT),
    excused("candidates", "TenantMismatch", BY_TENANT),
    excused("*", "SplitInvalid.NoChildren", PLAN),
    excused("*", "SplitInvalid.SingleChild", PLAN),
    excused("*", "SplitInvalid.OverlappingChild", BOUNDED),
    excused("*", "SplitInvalid.DerivedIdCollision", "needs two inputs of one 63-bit hash"),
    excused(
        "*",
        "SplitInvalid.BackendChildLimitExceeded",
        "the in-memory coordinator publishes any number of children at once",
    ),
    excused("split_replace", "SplitInvalid.ParentCursorOutOfBounds", OTHER_SPLIT),
    excused("split_residual", "SplitInvalid.ChildCursorInvalid", OTHER_SPLIT),
    excused("create_run", "RegisterShardsFailed", "registers nothing"),
    excused("create_run", "GetRunFailed", "reads nothing"),
    excused("create_run", "ConfigMismatch", "compares nothing"),
    excused("create_run_with_shards", "GetRunFailed", "only a store fails to read a run it has"),
    excused("cancel_run", "WrongStatus", "a run that is not over can be cancelled"),
    excused("fail_run", "NotSettled", "a run can be failed at any time"),
    excused("cancel_run", "NotSettled", "a run can be cancelled at any time"),
    excused("pause_run", "NotSettled", "only complete_run checks it"),
    excused("resume_run", "NotSettled", "only complete_run checks it"),
    excused("register_worker", "NotRegistered", "it registers"),
    excused("heartbeat", "TooManyWorkers", "it does not register"),
    excused("list_workers", "NotRegistered", "it only reads"),
    excused("list_workers", "TooManyWorkers", "it only reads"),
];

const fn never(first: &'static str, second: &'static str, reason: &'static str) -> NeverBoth {
    NeverBoth { first, second, reason }
}

const NO_RECORD: &str = "a missing record has no operation log and violates no other rule";
const ONE_MEMORY: &str = "an id was used either with the same parameters or with others";
const NO_KEY: &str = "a cursor without a key has no token and no position";
const NO_ROWS: &str = "an empty manifest has no row that violates a rule";
const REFUSED: &str = "a manifest that violates a rule was never registered";
const NO_LEASE: &str = "a finished shard has no lease";
const NO_OPERATION: &str =
    "the only operation in the log of a run without shards is its cancellation";
const NEW_RUN: &str = "a run either exists or is created by this call";
const ONE_STATUS: &str = "a run has one status";
const ONE_CELL: &str = "a deleted run is either missing or its deletion is replayed";

/// Pairs that cannot be violated at once, on any ladder.
const NEVER_BOTH: &[NeverBoth] = &[
    never("ShardNotFound", "OpIdConflict", NO_RECORD),
    never("ShardNotFound", "replayed", NO_RECORD),
    never("ShardNotFound", "NotLeased", NO_RECORD),
    never("RunNotFound", "OpIdConflict", NO_RECORD),
    never("RunNotFound", "replayed", NO_RECORD),
    never("RunNotFound", "RunTerminal", NO_RECORD),
    never("RunNotFound", "RunPaused", NO_RECORD),
    never("RunNotFound", "OnlyLastAttempts", NO_RECORD),
    never("RunNotFound", "NoneAvailable", NO_RECORD),
    never("RunNotFound", "NoneAvailable.committed", NO_RECORD),
    never("NoneAvailable", "NoneAvailable.committed", "a claim parks a candidate or has none"),
    never("OnlyLastAttempts", "NoneAvailable", "a spared shard is available"),
    never("OnlyLastAttempts", "NoneAvailable.committed", "a spared shard is available"),
    never("ShardTerminal.committed", "LastAttempt", "a shard has one number of attempts"),
    never("RunNotFound", "WrongStatus", NO_RECORD),
    never("RunNotFound", "NotSettled", NO_RECORD),
    never("RunNotFound", "NotTerminal", NO_RECORD),
    never("OpIdConflict", "replayed", ONE_MEMORY),
    never("CheckpointMissingKey", "CursorKeyTooLarge", NO_KEY),
    never("CheckpointMissingKey", "CursorTokenTooLarge", NO_KEY),
    never("ShardTerminal", "AlreadyLeased", NO_LEASE),
    never("ShardTerminal", "ShardTerminal.committed", "a parked shard is not parked again"),
    never("RunAlreadyExists", "ConfigMismatch", "a deleted run has no settings to compare"),
    never("RunAlreadyExists", "replayed", "a deleted run has no registration"),
    never("replayed", "RegisterShardsFailed", ONE_MEMORY),
    never("replayed", "RegisterShardsFailed.committed", NEW_RUN),
    never("ConfigMismatch", "RegisterShardsFailed.committed", NEW_RUN),
    never("RegisterShardsFailed", "RegisterShardsFailed.committed", NEW_RUN),
    never("ManifestInvalid.TooManyShards", "replayed", REFUSED),
    never("ManifestInvalid.InvalidSpec.KeyTooLarge", "replayed", REFUSED),
    never("ManifestInvalid.InvalidSpec.MetadataTooLarge", "replayed", REFUSED),
    never("ManifestInvalid.CursorKeyTooLarge", "replayed", REFUSED),
    never("ManifestInvalid.CursorTokenTooLarge", "replayed", REFUSED),
    never("ManifestInvalid.Empty", "ManifestInvalid.DuplicateIds", NO_ROWS),
    never("ManifestInvalid.Empty", "ManifestInvalid.UnboundedRange", NO_ROWS),
    never("ManifestInvalid.Empty", "ManifestInvalid.InvalidSpec.InvertedRange", NO_ROWS),
    never("ManifestInvalid.Empty", "ManifestInvalid.OverlappingRanges", NO_ROWS),
    never("ManifestInvalid.Empty", "ManifestInvalid.CursorOutOfBounds", NO_ROWS),
    never("ManifestInvalid.Empty", "ManifestInvalid.DerivedRootId", NO_ROWS),
    never("ManifestInvalid.Empty", "ShardLimitExceeded.PerTenant", NO_ROWS),
    never("ManifestInvalid.Empty", "ShardLimitExceeded.Global", NO_ROWS),
    never("ManifestInvalid.Empty", "ResourceExhausted", NO_ROWS),
    never("RunTerminal", "WrongStatus", ONE_STATUS),
    never("WrongStatus", "NotSettled", "a run without shards has none that is unfinished"),
    never("replayed", "RunNotFound", ONE_CELL),
    never("replayed", "NotTerminal", "a deleted run was terminal"),
    never("replayed", "OpIdConflict", ONE_MEMORY),
];

/// Pairs that cannot be violated at once on one ladder, but can on another.
const NEVER_BOTH_IN: &[(&str, NeverBoth)] = &[
    ("revoke_lease", never("ShardNotFound", "ShardTerminal", NO_RECORD)),
    ("revoke_lease", never("ShardNotFound", "StaleFence", NO_RECORD)),
    ("complete_run", never("OpIdConflict", "WrongStatus", NO_OPERATION)),
    ("complete_run", never("replayed", "WrongStatus", NO_OPERATION)),
    ("fail_run", never("OpIdConflict", "WrongStatus", NO_OPERATION)),
    ("fail_run", never("replayed", "WrongStatus", NO_OPERATION)),
    ("pause_run", never("OpIdConflict", "WrongStatus", NO_OPERATION)),
    ("pause_run", never("replayed", "WrongStatus", NO_OPERATION)),
    ("resume_run", never("OpIdConflict", "WrongStatus", NO_OPERATION)),
    ("resume_run", never("replayed", "WrongStatus", NO_OPERATION)),
];

impl Ladder {
    fn rules(&self) -> impl Iterator<Item = &'static str> + Clone {
        self.rules.iter().flat_map(|rules| rules.iter().copied())
    }

    /// Returns every answer that some script must produce.
    pub(super) fn cells(&self) -> impl Iterator<Item = Cell> {
        let operation = self.operation.to_owned();
        let cell = move |answer: &str| Cell { operation: operation.clone(), answer: answer.into() };
        std::iter::once("executed").chain(self.rules()).map(cell)
    }

    /// Pairs every rule with the nearest later rule, and with the nearest earlier rule, that can be
    /// violated at the same time.
    pub(super) fn orders(&self) -> Vec<Order> {
        let rules: Vec<&str> = self.rules().collect();
        let mut pairs = Vec::new();
        for (index, rule) in rules.iter().enumerate() {
            let behind = rules[index + 1..].iter().find(|other| self.both(rule, other));
            pairs.extend(behind.map(|other| (*rule, *other)));
            let before = rules[..index].iter().rev().find(|other| self.both(other, rule));
            pairs.extend(before.map(|other| (*other, *rule)));
        }
        let order = |(first, second): (&str, &str)| Order {
            operation: self.operation.to_owned(),
            first: first.to_owned(),
            second: second.to_owned(),
        };
        pairs.into_iter().map(order).collect()
    }

    /// Returns whether two rules can be violated at once.
    fn both(&self, first: &str, second: &str) -> bool {
        let is = |pair: &NeverBoth| pair.first == first && pair.second == second;
        let here = |(operation, pair): &(&str, NeverBoth)| *operation == self.operation && is(pair);
        !NEVER_BOTH.iter().any(is) && !NEVER_BOTH_IN.iter().any(here)
    }

    /// Returns whether some rule answers `variant`.
    fn has_rule(&self, variant: &str) -> bool {
        self.rules().any(|rule| {
            let rest = rule.strip_prefix(variant);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        })
    }

    /// Returns the variants of the operation's error, with nested variants.
    fn variants(&self) -> Vec<String> {
        let (source, name) = self.error;
        let expand = |variant: String| match variant.as_str() {
            "SplitInvalid" => inner(&variant, SPLIT_RULES, "SplitValidationError"),
            "ManifestInvalid" => inner(&variant, MANIFEST_RULES, "ManifestValidationError"),
            _ => vec![variant],
        };
        variants_of(source, name).into_iter().flat_map(expand).collect()
    }
}

impl Unreachable {
    fn excuses(&self, operation: &str, answer: &str) -> bool {
        (self.operation == "*" || self.operation == operation) && self.answer == answer
    }
}

fn inner(outer: &str, source: &str, name: &str) -> Vec<String> {
    variants_of(source, name).into_iter().map(|variant| format!("{outer}.{variant}")).collect()
}

/// Returns the variants of `pub enum name` in `source`: the capitalized words that begin a line or
/// follow a comma at the first indent of the enum.
fn variants_of(source: &str, name: &str) -> Vec<String> {
    let header = |line: &&str| {
        let rest = line.trim_start().strip_prefix("pub enum ").and_then(|it| it.strip_prefix(name));
        rest.is_some_and(|rest| rest.starts_with([' ', ':']))
    };
    let mut lines = source.lines().skip_while(|line| !header(line));
    let first = lines.next().expect("the source contains the enum");
    let indent = &first[..first.len() - first.trim_start().len()];
    let body = lines.take_while(|line| line.strip_prefix(indent) != Some("}"));
    let word = |piece: &str| {
        let word: String = piece.chars().take_while(char::is_ascii_alphanumeric).collect();
        word.starts_with(|c: char| c.is_ascii_uppercase()).then_some(word)
    };
    let variants = |line: &str| {
        let row = line.strip_prefix(indent).and_then(|line| line.strip_prefix("    "));
        let row = row.filter(|row| row.starts_with(|c: char| c.is_ascii_uppercase()));
        row.unwrap_or_default().split(", ").filter_map(word).collect::<Vec<_>>()
    };
    let found: Vec<String> = body.flat_map(variants).collect();
    assert!(!found.is_empty(), "no variant of {name} was found");
    found
}

#[test]
fn every_error_variant_is_on_its_ladder_or_listed_as_unreachable() {
    for ladder in &LADDERS {
        for variant in ladder.variants() {
            let listed = ladder.has_rule(&variant);
            let excused = UNREACHABLE.iter().any(|row| row.excuses(ladder.operation, &variant));
            let operation = ladder.operation;
            assert!(
                listed || excused,
                "{operation}: {variant} is neither on the ladder nor listed as unreachable"
            );
            assert!(
                !(listed && excused),
                "{operation}: {variant} is both on the ladder and listed as unreachable"
            );
        }
    }
}
