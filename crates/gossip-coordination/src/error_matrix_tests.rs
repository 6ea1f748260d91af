//! The errors against the seeds' tables: which variants each one has, and which shared refusal
//! becomes which error.
//!
//! What the seeds do not have is written apart, so that an addition is seen as one.

use std::error::Error;
use std::fmt::{Debug, Write as _};
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::error_samples_tests as samples;
use crate::{
    CheckpointError, ClaimError, CompleteError, CoordError, CreateRunError, GetRunError,
    InfraError, ParkError, RegisterShardsError, RenewError, RunTransitionError, SplitError,
    StoreRefusal, UnparkError,
};

/// Section 2.3 of the seed.
const SEED_MATRIX: &str = "\
CoordError variant   Renew Checkpoint Complete Park Split
ShardNotFound        yes   yes        yes      yes  yes
TenantMismatch       yes   yes        yes      yes  yes
StaleFence           yes   yes        yes      yes  yes
LeaseExpired         yes   yes        yes      yes  yes
ShardTerminal        yes   yes        yes      yes  yes
OpIdConflict         --    yes        yes      yes  yes
CursorRegression     --    yes        yes      --   --
CursorOutOfBounds    --    yes        yes      --   --
CursorKeyTooLarge    --    yes        yes      --   --
CursorTokenTooLarge  --    yes        yes      --   --
SplitInvalid         --    --         --       --   yes
CheckpointMissingKey --    yes        yes      --   --
";

/// The row that DESIGN Q33 adds.
const ADDED_ROW: &str = "\
OperationTooOld      --    yes        yes      yes  yes
";

/// The checks of the lease ladder, shared by every operation under a lease.
const LADDER: &str = "ShardNotFound TenantMismatch StaleFence LeaseExpired ShardTerminal";
/// What a presented cursor can be refused for.
const CURSOR: &str = "CursorRegression CursorOutOfBounds CursorKeyTooLarge CursorTokenTooLarge";

fn names<E>(samples: &[(&'static str, E)]) -> String {
    samples.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(" ")
}

/// The variants are those of the seed, in its order, and behind them the additions.
#[track_caller]
fn assert_variants<E>(list: Vec<(&'static str, E)>, seed: &str, seed_count: usize, added: &str) {
    assert_eq!(seed.split_whitespace().count(), seed_count, "the seed's own count");
    assert_eq!(names(&list), format!("{seed} {added}").trim_end());
}

/// What `error` becomes, or `None` where the conversion panics.
fn routed<E: From<CoordError>>(error: &CoordError) -> Option<E> {
    let error = error.clone();
    catch_unwind(AssertUnwindSafe(|| E::from(error))).ok()
}

/// One cell of the matrix. An accepted cell keeps its name and every field, hidden ones included.
fn cell<E>(name: &str, error: &CoordError, list: &[(&'static str, E)]) -> &'static str
where
    E: From<CoordError> + PartialEq + Debug,
{
    let wanted = list.iter().find(|(variant, _)| *variant == name).map(|(_, sample)| sample);
    let became = routed::<E>(error);
    assert_eq!(became.as_ref(), wanted, "{name} is routed one to one or not at all");
    if became.is_some() { "yes" } else { "--" }
}

fn matrix() -> String {
    let mut text = format!(
        "{:20} {:5} {:10} {:8} {:4} {}\n",
        "CoordError variant", "Renew", "Checkpoint", "Complete", "Park", "Split"
    );
    for (name, error) in samples::coord_errors() {
        let renew = cell(name, &error, &samples::renew_errors());
        let checkpoint = cell(name, &error, &samples::checkpoint_errors());
        let complete = cell(name, &error, &samples::complete_errors());
        let park = cell(name, &error, &samples::park_errors());
        let split = cell(name, &error, &samples::split_errors());
        writeln!(text, "{name:20} {renew:5} {checkpoint:10} {complete:8} {park:4} {split}")
            .expect("a string takes everything");
    }
    text
}

#[test]
fn shared_refusals_are_routed_as_the_seed_says() {
    let matrix = matrix();
    println!("{matrix}");
    assert_eq!(matrix, format!("{SEED_MATRIX}{ADDED_ROW}"));
}

#[test]
fn coord_errors_are_the_twelve_of_the_seed_and_one_added() {
    let seed = format!("{LADDER} OpIdConflict {CURSOR} SplitInvalid CheckpointMissingKey");
    assert_variants(samples::coord_errors(), &seed, 12, "OperationTooOld");
    assert_variants(samples::infra_errors(), "Transient Corruption", 2, "Refused Unresolved");
}

#[test]
fn errors_of_shard_operations_have_the_variants_of_the_seed() {
    let acquire = "ShardNotFound TenantMismatch ShardTerminal AlreadyLeased BackendError";
    assert_variants(samples::acquire_errors(), acquire, 5, "RunTerminal RunPaused LastAttempt");
    let renew = format!("{LADDER} BackendError");
    assert_variants(samples::renew_errors(), &renew, 6, "RunTerminal");
    let progress = format!(
        "{LADDER} OpIdConflict {CURSOR} CheckpointMissingKey ResourceExhausted BackendError"
    );
    assert_variants(samples::checkpoint_errors(), &progress, 13, "Offered OperationTooOld");
    assert_variants(samples::complete_errors(), &progress, 13, "Offered OperationTooOld");
    let park = format!("{LADDER} OpIdConflict BackendError");
    assert_variants(samples::park_errors(), &park, 7, "Offered OperationTooOld");
    let split = format!("{LADDER} OpIdConflict SplitInvalid ResourceExhausted BackendError");
    assert_variants(samples::split_errors(), &split, 9, "RunTerminal Offered OperationTooOld");
}

#[test]
fn errors_of_run_operations_have_the_variants_of_the_seed() {
    let create = "InvalidConfig RunAlreadyExists RegisterShardsFailed GetRunFailed \
                  ConfigMismatch BackendError";
    assert_variants(samples::create_run_errors(), create, 6, "");
    let register = "RunNotFound TenantMismatch WrongStatus ManifestInvalid OpIdConflict \
                    ShardLimitExceeded ResourceExhausted BackendError";
    assert_variants(samples::register_errors(), register, 8, "");
    assert_variants(samples::get_run_errors(), "RunNotFound TenantMismatch BackendError", 3, "");
    let transition = "RunNotFound TenantMismatch RunTerminal WrongStatus OpIdConflict BackendError";
    assert_variants(samples::run_transition_errors(), transition, 6, "NotSettled");
    let unpark = "ShardNotFound TenantMismatch RunTerminal NotParked OpIdConflict BackendError";
    assert_variants(samples::unpark_errors(), unpark, 6, "");
    let claim = "NoneAvailable RunNotFound TenantMismatch Throttled BackendError";
    assert_variants(samples::claim_errors(), claim, 5, "RunTerminal RunPaused OnlyLastAttempts");
    assert_variants(samples::run_config_errors(), "ZeroLeaseDuration", 1, "");
}

/// FACTS 4.9: like the errors of a seed's operation, with a few more.
#[test]
fn errors_of_added_operations_are_as_the_design_names_them() {
    let park = format!("{LADDER} OpIdConflict BackendError");
    assert_variants(samples::release_errors(), &park, 7, "Offered OperationTooOld");
    assert_variants(samples::withdraw_errors(), &park, 7, "NoOffer OperationTooOld");
    // A checkpoint's, without the rule that a key must be there.
    let progress = format!("{LADDER} OpIdConflict {CURSOR} ResourceExhausted BackendError");
    let offer = "RunTerminal Offered Withdrawn InvalidDestination InvalidOfferDeadline \
                 OperationTooOld";
    assert_variants(samples::offer_errors(), &progress, 12, offer);
    // An acquire's, without `AlreadyLeased`: an offered shard is always leased.
    let acquire = "ShardNotFound TenantMismatch ShardTerminal BackendError RunTerminal RunPaused";
    assert_variants(samples::accept_errors(), acquire, 6, "NoOffer NotDestination OfferExpired");
    // An unpark's, with `ShardTerminal` in the place of `NotParked`.
    let request = "ShardNotFound TenantMismatch RunTerminal ShardTerminal NotLeased \
                   RequestPending OpIdConflict BackendError";
    assert_variants(samples::request_action_errors(), request, 8, "");
    let revoke = "ShardNotFound TenantMismatch ShardTerminal NotLeased OpIdConflict BackendError";
    assert_variants(samples::revoke_lease_errors(), revoke, 6, "StaleFence");
    let delete = "RunNotFound TenantMismatch NotTerminal OpIdConflict BackendError";
    assert_variants(samples::delete_run_errors(), delete, 5, "");
    let workers = "NotRegistered TooManyWorkers BackendError";
    assert_variants(samples::worker_errors(), workers, 3, "");
}

#[test]
fn a_full_slab_becomes_exhaustion_where_bytes_are_stored() {
    let full = gossip_stdx::SlabFull { requested: 64, available: 32 };
    assert_eq!(CheckpointError::from(full), CheckpointError::ResourceExhausted(full));
    assert_eq!(CompleteError::from(full), CompleteError::ResourceExhausted(full));
    assert_eq!(SplitError::from(full), SplitError::ResourceExhausted(full));
}

#[test]
fn a_conflict_is_wrapped_whole_by_every_error_of_a_run() {
    let conflict = samples::run_conflict();
    assert_eq!(RegisterShardsError::from(conflict), RegisterShardsError::OpIdConflict(conflict));
    assert_eq!(RunTransitionError::from(conflict), RunTransitionError::OpIdConflict(conflict));
    assert_eq!(UnparkError::from(conflict), UnparkError::OpIdConflict(conflict));
}

#[test]
fn a_failed_look_at_a_run_fails_the_claim_alike() {
    for (name, error) in samples::get_run_errors() {
        let claims = samples::claim_errors();
        let wanted = claims.iter().find(|(variant, _)| *variant == name).map(|(_, error)| error);
        assert_eq!(Some(&ClaimError::from(error)), wanted);
    }
}

/// The seed wants infrastructure failures in the chain of sources.
#[test]
fn a_store_that_failed_is_the_source_of_the_error() {
    let infra = || InfraError::Transient { operation: "load", message: "timed out".to_owned() };
    let errors: [Box<dyn Error>; 8] = [
        Box::new(RenewError::BackendError(infra())),
        Box::new(CheckpointError::BackendError(infra())),
        Box::new(CompleteError::BackendError(infra())),
        Box::new(ParkError::BackendError(infra())),
        Box::new(SplitError::BackendError(infra())),
        Box::new(CreateRunError::BackendError(infra())),
        Box::new(GetRunError::BackendError(infra())),
        Box::new(ClaimError::BackendError(infra())),
    ];
    for error in errors {
        let source = error.source().and_then(|source| source.downcast_ref::<InfraError>());
        assert_eq!(source, Some(&infra()), "{error}");
    }
}

#[test]
fn damage_and_refusals_other_than_for_space_are_not_worth_a_retry() {
    let retryable: Vec<_> =
        samples::infra_errors().iter().map(|(_, error)| error.is_retryable()).collect();
    // The refusal among the samples is for space.
    assert_eq!(retryable, [true, false, true, true]);
    let final_ones = [
        StoreRefusal::TooLarge,
        StoreRefusal::ReadOnly,
        StoreRefusal::NotPermitted,
        StoreRefusal::NewerFormat,
        StoreRefusal::Unusable,
    ];
    for why in final_ones {
        let refused = InfraError::Refused { operation: "commit", why, message: String::new() };
        assert!(!refused.is_retryable(), "{why:?}");
    }
}
