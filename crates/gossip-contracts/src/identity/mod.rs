//! Ids, epochs and the hashes they are derived from.
//!
//! Ids, epochs and hashes are plain values of a few words and are `Copy`; a tenant's key and a
//! hasher are not. Every derivation is a pure function of its arguments over BLAKE3, in a domain of
//! its own ([`Domain`]).
//!
//! This module never generates an id (randomness and time belong to callers), never stores or
//! parses anything ([`CanonicalBytes`] is hash input, not a storage format), never allocates and
//! depends on no other layer of the project.
//!
//! Invariants:
//! - equal inputs give equal ids on every platform and in every process;
//! - two different inputs of one canonical type never produce the same hash input;
//! - two uses of the hash function never share a domain;
//! - changing the input of a derivation requires a new domain version. Old ids become orphans and
//!   all items are scanned again: no code reads two versions.

mod canonical;
mod digests;
mod domain;
mod error;
mod findings;
mod ids;
mod item;
mod policy;
mod redacted;
mod secrets;
mod time;

pub use canonical::{CanonicalBytes, CanonicalHasher};
pub use digests::{
    ConnectorInstanceIdHash, FindingId, ObjectVersionId, ObservationId, OccurrenceId, PolicyHash,
    RuleFingerprint, StableItemId, TenantId,
};
pub use domain::Domain;
pub use error::IdentityInputError;
pub use findings::{FindingIdInputs, ObservationIdInputs, OccurrenceIdInputs};
pub use ids::{JobId, OpId, RunId, ShardId, ShardKey, WorkerId};
pub use item::{ConnectorTag, ItemIdentityKey};
pub use policy::{IdHashMode, PolicyHashInputs};
pub use redacted::Redacted;
pub use secrets::{NormHash, SecretHash, TenantSecretKey};
pub use time::{FenceEpoch, LogicalTime};

#[cfg(test)]
mod canonical_tests;
#[cfg(test)]
mod derivation_tests;
#[cfg(test)]
mod domain_tests;
#[cfg(test)]
mod ids_tests;
#[cfg(test)]
mod item_tests;
#[cfg(test)]
mod secrets_tests;
