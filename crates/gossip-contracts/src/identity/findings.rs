//! The ids of what a scan finds: finding, occurrence, observation.
//!
//! ```text
//!  tenant ─┬─ item ─┬─ rule ─┬─ secret hash
//!          └────────┴────────┴──► FindingId ──┬─ version ─ offset ─ length
//!                                             └──► OccurrenceId ──┬─ tenant ─ policy
//!                                                                 └──► ObservationId
//! ```
//!
//! A scan that repeats work after a crash derives the same ids again, so its sink can tell a
//! repeated result from a new one.
//! Inputs are structs with named fields, because four hashes in a row are easily swapped.

use super::{
    CanonicalBytes, CanonicalHasher, Domain, FindingId, ObjectVersionId, ObservationId,
    OccurrenceId, PolicyHash, RuleFingerprint, SecretHash, StableItemId, TenantId,
};

/// Everything that a finding id depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FindingIdInputs {
    /// Whose finding it is.
    pub tenant: TenantId,
    /// The item it was found in.
    pub item: StableItemId,
    /// The rule that found it.
    pub rule: RuleFingerprint,
    /// What was found.
    pub secret: SecretHash,
}

impl CanonicalBytes for FindingIdInputs {
    #[inline]
    fn write_canonical(&self, hasher: &mut CanonicalHasher) {
        self.tenant.write_canonical(hasher);
        self.item.write_canonical(hasher);
        self.rule.write_canonical(hasher);
        self.secret.write_canonical(hasher);
    }
}

impl FindingId {
    /// The id of a finding.
    #[must_use]
    pub fn derive(inputs: &FindingIdInputs) -> Self {
        Self::from_bytes(Domain::FINDING_V1.digest(inputs))
    }
}

/// Everything that an occurrence id depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OccurrenceIdInputs {
    /// What occurs.
    pub finding: FindingId,
    /// The version of the item that was read.
    pub version: ObjectVersionId,
    /// Where it begins, in bytes from the start of the item.
    pub offset: u64,
    /// How many bytes it spans.
    pub length: u64,
}

impl CanonicalBytes for OccurrenceIdInputs {
    #[inline]
    fn write_canonical(&self, hasher: &mut CanonicalHasher) {
        self.finding.write_canonical(hasher);
        self.version.write_canonical(hasher);
        hasher.write_u64(self.offset);
        hasher.write_u64(self.length);
    }
}

impl OccurrenceId {
    /// The id of an occurrence.
    #[must_use]
    pub fn derive(inputs: &OccurrenceIdInputs) -> Self {
        Self::from_bytes(Domain::OCCURRENCE_V1.digest(inputs))
    }
}

/// Everything that an observation id depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObservationIdInputs {
    /// Who looked.
    pub tenant: TenantId,
    /// What they were told to look for.
    pub policy: PolicyHash,
    /// What they saw.
    pub occurrence: OccurrenceId,
}

impl CanonicalBytes for ObservationIdInputs {
    #[inline]
    fn write_canonical(&self, hasher: &mut CanonicalHasher) {
        self.tenant.write_canonical(hasher);
        self.policy.write_canonical(hasher);
        self.occurrence.write_canonical(hasher);
    }
}

impl ObservationId {
    /// The id of an observation.
    #[must_use]
    pub fn derive(inputs: &ObservationIdInputs) -> Self {
        Self::from_bytes(Domain::OBSERVATION_V1.digest(inputs))
    }
}
