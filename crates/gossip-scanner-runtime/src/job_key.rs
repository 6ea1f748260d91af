//! The key that proves who wrote the command of a run.
//!
//! A command in a store is data and not authority: everyone who can write the store can put one
//! there. A worker runs it unasked only if it carries the MAC of a key that lies outside the store
//! (DESIGN Q35). The MAC binds the job to its tenant and its run, so a job that is copied from
//! another run or tenant is not signed.
//!
//! # Never
//! - reads or writes a file: the caller holds the key;
//! - shows the key or a MAC, in an error or in `Debug`.

use std::fmt;

use gossip_contracts::identity::{RunId, TenantId};

/// The key under which jobs are signed.
#[derive(Clone)]
pub struct JobKey([u8; Self::LEN]);

impl JobKey {
    /// Bytes of a key.
    pub const LEN: usize = 32;

    /// Returns the key with these bytes, which must be random.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; Self::LEN]) -> Self {
        Self(bytes)
    }

    /// Signs the bytes of a job.
    pub(crate) fn sign(&self, tenant: TenantId, run: RunId, job: &[u8]) -> JobMac {
        let mut hasher = blake3::Hasher::new_keyed(&self.0);
        // Two fields of fixed width, so no two inputs give the same bytes.
        hasher.update(tenant.as_bytes()).update(&run.as_raw().to_le_bytes()).update(job);
        JobMac(hasher.finalize())
    }
}

impl fmt::Debug for JobKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JobKey")
    }
}

/// The MAC of a job. It is compared in constant time.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct JobMac(blake3::Hash);

impl JobMac {
    /// Bytes of a MAC.
    pub(crate) const LEN: usize = blake3::OUT_LEN;

    pub(crate) const fn from_bytes(bytes: [u8; Self::LEN]) -> Self {
        Self(blake3::Hash::from_bytes(bytes))
    }

    pub(crate) const fn as_bytes(&self) -> &[u8; Self::LEN] {
        self.0.as_bytes()
    }
}

impl fmt::Debug for JobMac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JobMac")
    }
}
