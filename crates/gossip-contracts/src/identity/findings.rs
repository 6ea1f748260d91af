//! Ids of scan results: finding, occurrence, observation.
//!
//! ```text
//!  tenant ─┬─ item ─┬─ rule ─┬─ secret hash
//!          └────────┴────────┴──► FindingId ──┬─ version ─ offset ─ length
//!                                             └──► OccurrenceId ──┬─ tenant ─ policy
//!                                                                 └──► ObservationId
//! ```
//!
//! A scan that repeats work after a crash derives the same ids again, so its sink can distinguish a
//! repeated result from a new one. Inputs are structs with named fields, because four hashes as
//! positional arguments are easily swapped.

use super::{
    CanonicalBytes, CanonicalHasher, Domain, FindingId, ObjectVersionId, ObservationId,
    OccurrenceId, PolicyHash, RuleFingerprint, SecretHash, StableItemId, TenantId,
};

/// The inputs of a finding id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FindingIdInputs {
    /// The tenant that owns the finding.
    pub tenant: TenantId,
    /// The item that contains it.
    pub item: StableItemId,
    /// The rule that matched.
    pub rule: RuleFingerprint,
    /// The keyed hash of the secret.
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
    /// Returns the id of a finding.
    #[must_use]
    pub fn derive(inputs: &FindingIdInputs) -> Self {
        Self::from_bytes(Domain::FINDING_V1.digest(inputs))
    }
}

/// The inputs of an occurrence id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OccurrenceIdInputs {
    /// The finding that occurs.
    pub finding: FindingId,
    /// The version of the item that was read.
    pub version: ObjectVersionId,
    /// Start, in bytes from the start of the item.
    pub offset: u64,
    /// Length in bytes.
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
    /// Returns the id of an occurrence.
    #[must_use]
    pub fn derive(inputs: &OccurrenceIdInputs) -> Self {
        Self::from_bytes(Domain::OCCURRENCE_V1.digest(inputs))
    }
}

/// The inputs of an observation id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObservationIdInputs {
    /// The tenant that scanned.
    pub tenant: TenantId,
    /// The policy of the scan.
    pub policy: PolicyHash,
    /// The occurrence observed.
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
    /// Returns the id of an observation.
    #[must_use]
    pub fn derive(inputs: &ObservationIdInputs) -> Self {
        Self::from_bytes(Domain::OBSERVATION_V1.digest(inputs))
    }
}
