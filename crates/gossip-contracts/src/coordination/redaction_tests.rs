//! No key, token or metadata byte ever reaches a `Debug` or `Display` output.
//!
//! Every type is filled with a canary and printed in every way; every error is created from input
//! that contains it. The canary is searched for as text, as a list of numbers and as hexadecimal.

use std::fmt::{Debug, Display};

use gossip_stdx::{ByteSlab, SlabFull};

use super::{
    Cursor, CursorInputError, CursorSemantics, CursorUpdate, InitialShardInput, MAX_KEY_SIZE,
    ManifestValidationError, PlanSplitReplaceError, PlanSplitResidualError, PooledCursor,
    PooledShardSpec, PooledSpawned, PooledSpawnedError, RestoredShardState, ShardArena,
    ShardArenaTooLarge, ShardLimitScope, ShardSpec, ShardSpecInputError, ShardSpecRef, SplitChild,
    SplitReplacePlan, SplitReplacePlanError, SplitResidualPlan, SplitResidualPlanError,
    SplitValidationError, plan_split_replace_at_points_with_cursor, plan_split_residual_at_point,
    validate_manifest, validate_split_coverage,
};
use crate::identity::ShardId;

const CANARY: &[u8] = b"SECRET-canary";
/// A second key, above the first.
const CANARY_END: &[u8] = b"TSECRET-canary";
/// A point between the two.
const CANARY_POINT: &[u8] = b"SECRET-canary-m";

const SPEC: ShardSpecRef<'static> = ShardSpecRef::new(CANARY, CANARY_END, CANARY);
const CURSOR: CursorUpdate<'static> = CursorUpdate::new(CANARY, CANARY);

#[track_caller]
fn assert_clean(text: &str) {
    // Without white space, so that a list over several lines is found like one on a single line.
    let dense: String = text.split_whitespace().collect();
    let upper = dense.to_uppercase();
    // Text; decimal list; hexadecimal, concatenated and as a list.
    for trace in ["SECRET", "83,69,67", "534543", "0X53,0X45", "53,45,43"] {
        assert!(!upper.contains(trace), "the output contains the canary");
    }
}

#[track_caller]
fn assert_debug_clean(value: &impl Debug) {
    assert_clean(&format!("{value:?}"));
    assert_clean(&format!("{value:#?}"));
    assert_clean(&format!("{value:x?}"));
}

#[track_caller]
fn assert_error_clean(error: &(impl Debug + Display)) {
    assert_debug_clean(error);
    assert_clean(&format!("{error}"));
    assert!(!error.to_string().is_empty());
}

/// Tests the check itself: the output of a derived `Debug` is detected.
#[test]
fn the_canary_is_detected() {
    let caught = |text: String| std::panic::catch_unwind(|| assert_clean(&text)).is_err();
    assert!(caught(format!("{CANARY:?}")));
    assert!(caught(format!("{CANARY:x?}")));
    assert!(caught(format!("{CANARY:#?}")));
    assert!(caught(format!("{CANARY:#x?}")));
    assert!(caught(String::from_utf8_lossy(CANARY).into_owned()));
}

#[test]
fn specs_cursors_and_plans_show_lengths_only() {
    assert_eq!(
        format!("{SPEC:?}"),
        "ShardSpecRef { start: [13 bytes], end: [14 bytes], metadata: [13 bytes] }"
    );
    assert_eq!(
        format!("{CURSOR:?}"),
        "CursorUpdate { last_key: Some([13 bytes]), token: Some([13 bytes]) }"
    );
    assert_debug_clean(&SPEC);
    assert_debug_clean(&CURSOR);
    let spec = ShardSpec::try_from(SPEC).unwrap();
    assert_debug_clean(&spec);
    assert_debug_clean(&Cursor::from(CURSOR));
    let semantics = CursorSemantics::Completed;
    assert_debug_clean(&RestoredShardState::new(spec, CURSOR.into(), semantics));
    assert_debug_clean(&row());
    let points = [CANARY_POINT];
    let plan = plan_split_replace_at_points_with_cursor(SPEC, &points, CURSOR).unwrap();
    assert_debug_clean(&plan);
    assert_debug_clean(&plan_split_residual_at_point(SPEC, CANARY_POINT).unwrap());
}

#[test]
fn pooled_wrappers_and_the_arena_show_lengths_only() {
    let mut slab = ByteSlab::new(1024);
    let spec = PooledShardSpec::from_ref(SPEC, &mut slab).unwrap();
    let cursor = PooledCursor::from_update(CURSOR, &mut slab).unwrap();
    // An id whose bytes spell the canary.
    let id = ShardId::from_raw(u64::from_le_bytes(*b"SECRET-c"));
    let spawned = PooledSpawned::from_ids(&[id], &mut slab).unwrap();
    assert_debug_clean(&(&spec, &cursor, &spawned, &slab));
    spec.free(&mut slab);
    cursor.free(&mut slab);
    spawned.free(&mut slab);
    let mut arena = ShardArena::with_capacity(1, 1024);
    let handle = arena.alloc_spec(SPEC).unwrap();
    assert_debug_clean(&(&arena, handle, arena.view_spec(handle)));
}

fn row() -> InitialShardInput<'static> {
    InitialShardInput { shard_id: ShardId::from_raw(1), spec: SPEC, cursor: CURSOR }
}

/// Errors created from input that contains the canary.
#[test]
fn errors_from_canary_input_show_lengths_only() {
    let long_key = CANARY.repeat(MAX_KEY_SIZE);
    assert_error_clean(&CursorUpdate::try_with_last_key(&long_key).unwrap_err());
    assert_error_clean(&CursorUpdate::try_new(CANARY, &long_key).unwrap_err());
    assert_error_clean(&ShardSpec::try_new(&long_key, b"", b"").unwrap_err());
    assert_error_clean(&ShardSpec::try_new(b"", b"", &long_key).unwrap_err());
    assert_error_clean(&ShardSpec::try_new(CANARY_END, CANARY, b"").unwrap_err());
    assert_error_clean(&validate_split_coverage(SPEC, &[SPEC, SPEC]).unwrap_err());
    assert_error_clean(&plan_split_residual_at_point(SPEC, CANARY).unwrap_err());
    let outside = InitialShardInput { cursor: CursorUpdate::with_last_key(CANARY_END), ..row() };
    assert_error_clean(&validate_manifest(&[outside]).unwrap_err());
    assert_error_clean(&validate_manifest(&[row(), row()]).unwrap_err());
    assert_error_clean(&SplitReplacePlan::try_new([SplitChild::new(SPEC, CURSOR)]).unwrap_err());
    assert_error_clean(&SplitResidualPlan::try_new(SPEC, SPEC).unwrap_err());
}

/// Prints every variant: an error holds only numbers, and no message is empty.
#[test]
fn every_error_variant_is_printable_and_clean() {
    split_validation_errors().iter().for_each(assert_error_clean);
    manifest_errors().iter().for_each(assert_error_clean);
    let count = 1;
    let (size, max) = (5000, 4096);
    assert_error_clean(&CursorInputError::EmptyLastKey);
    assert_error_clean(&CursorInputError::KeyTooLarge { size, max });
    assert_error_clean(&CursorInputError::TokenTooLarge { size, max });
    assert_error_clean(&SplitReplacePlanError::TooFewChildren { count });
    assert_error_clean(&SplitReplacePlanError::TooManyChildren { count });
    assert_error_clean(&PlanSplitReplaceError::from(SplitReplacePlanError::TooFewChildren {
        count,
    }));
    assert_error_clean(&PlanSplitReplaceError::from(SplitValidationError::NoChildren));
    assert_error_clean(&PlanSplitResidualError::MissingCursor);
    assert_error_clean(&PlanSplitResidualError::NoSuccessor);
    assert_error_clean(&PlanSplitResidualError::from(SplitResidualPlanError::IdenticalSpecs));
    assert_error_clean(&PlanSplitResidualError::from(SplitValidationError::NoChildren));
    let full = SlabFull { requested: 16, available: 0 };
    assert_error_clean(&PooledSpawnedError::Full(full));
    assert_error_clean(&PooledSpawnedError::TooMany { current: 1, additional: 2, max: 2 });
    assert_error_clean(&ShardArenaTooLarge { slots: 1, bytes: 2 });
}

/// Builds the variants that only a coordinator returns; the others have their own tests.
fn split_validation_errors() -> [SplitValidationError; 6] {
    let limit = |scope| SplitValidationError::ShardLimitExceeded {
        current: 9,
        additional: 2,
        max: 10,
        scope,
    };
    [
        SplitValidationError::SpawnLimitExceeded { current: 1023, additional: 2, max: 1024 },
        SplitValidationError::BackendChildLimitExceeded { requested: 9, backend_max: 8 },
        limit(ShardLimitScope::PerTenant),
        limit(ShardLimitScope::Global),
        SplitValidationError::DerivedIdCollision { derived_id: ShardId::from_raw(7) },
        SplitValidationError::ChildCursorInvalid { child_index: 0 },
    ]
}

fn manifest_errors() -> [ManifestValidationError; 5] {
    let shard_id = ShardId::from_raw(7);
    let reason = ShardSpecInputError::InvertedRange { start_len: 2, end_len: 1 };
    [
        ManifestValidationError::Empty,
        ManifestValidationError::TooManyShards { count: 2, max: 1 },
        ManifestValidationError::InvalidSpec { shard_id, reason },
        ManifestValidationError::DerivedRootId { shard_id },
        ManifestValidationError::CursorTokenTooLarge { shard_id, size: 2, max: 1 },
    ]
}

/// Messages state both sides as numbers.
#[test]
fn messages_state_the_input_and_the_limit() {
    let [spawn, backend, tenant, global, collision, cursor] =
        split_validation_errors().map(|error| error.to_string());
    assert_eq!(spawn, "2 more children on top of 1023 exceed the limit of 1024 per shard");
    assert_eq!(backend, "9 children exceed this backend's limit of 8 per split");
    assert_eq!(tenant, "2 more shards on top of 9 exceed the per-tenant limit of 10");
    assert_eq!(global, "2 more shards on top of 9 exceed the global limit of 10");
    assert_eq!(collision, "the derived shard id 7 is already taken");
    assert_eq!(cursor, "child 0 does not carry the parent's progress");
}
