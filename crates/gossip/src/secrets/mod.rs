//! A scan for leaked secrets: detection by `gossip-scan`, items and durability by the worker.
//!
//! ```
//! use gossip::prelude::*;
//! use gossip::secrets::{RuleSet, SecretScan, TenantSecretKey};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // A program keeps its key in a file: ids of findings are the same only under the same key.
//! let secrets = SecretScan::new(&RuleSet::built_in(), TenantSecretKey::from_bytes([7; 32]))?;
//! let outcome = Scan::of("range:0..10").store("memory:").find_secrets(&secrets, |found| {
//!     println!("{}:{} {}", found.place(), found.finding.line, found.finding.rule);
//! })?;
//! assert_eq!(outcome.totals.findings, 0);
//! # Ok(())
//! # }
//! ```
//!
//! | piece | for |
//! |---|---|
//! | [`SecretScan`] | rules and options, compiled; the policy and identity of a run |
//! | [`ItemFindings`], [`StoredFinding`] | the stored part of an item: ids, places, redacted texts |
//! | [`FindingReport`] | the findings of a run in the order of places, each once |
//!
//! # Guarantees
//!
//! - The findings of an item are stored in the commit that moves the cursor past it, so each is in
//!   the report once, whatever crashed.
//! - A secret is never stored, only its first characters, its length and a hash under the tenant's
//!   key. No event and no error contains a part of one.
//! - A part that was not searched has a [`Gap`] in the report. Contents that are not text are
//!   passed over unless [`ScanOptions::binaries`] is set; that is the policy, and no gap.

mod item;
mod report;
mod stored;

#[cfg(test)]
mod secrets_tests;

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

pub use gossip_contracts::identity::TenantSecretKey;
use gossip_contracts::identity::{IdHashMode, NormHash, PolicyHash, SecretHash, TenantId};
pub use gossip_scan::{
    AllowList, Baseline, BaselineError, Checksum, Confidence, Rule, RuleError, RuleSet,
    ScanOptions, Scanner,
};

use gossip_scanner_runtime::connectors::Source;
use gossip_scanner_runtime::{Inline, ItemResult, Processor, Work};

pub use self::item::ItemScanner;
pub use self::report::{FindingReport, Found, ReportError};
pub use self::stored::{Gap, ItemFindings, StoredFinding, UnreadableFindings};

/// The beginning of the settings of a run that searches for secrets. A job of a command begins with
/// 0 or 1.
const SETTINGS_TAG: u8 = 2;

/// Items that a thread searches before it looks at its lease and at requests; it looks after a
/// millisecond in any case.
const BATCH: usize = 256;

/// Rules and options, compiled; shared by the threads of a worker.
pub struct SecretScan {
    scanner: Scanner,
    key: TenantSecretKey,
    policy: PolicyHash,
    /// Items and members of archives that this process passed over because they are not text.
    binaries: AtomicU64,
}

impl SecretScan {
    /// Compiles rules, with the usual options.
    ///
    /// # Errors
    ///
    /// A rule is wrong or would be slow.
    pub fn new(rules: &RuleSet, key: TenantSecretKey) -> Result<Self, RuleError> {
        Self::with_options(rules, ScanOptions::default(), key)
    }

    /// Compiles rules.
    ///
    /// # Errors
    ///
    /// A rule is wrong or would be slow.
    pub fn with_options(
        rules: &RuleSet,
        options: ScanOptions,
        key: TenantSecretKey,
    ) -> Result<Self, RuleError> {
        let scanner = Scanner::new(rules, options)?;
        let policy = scanner.policy_hash(IdHashMode::KeyedV1);
        Ok(Self { scanner, key, policy, binaries: AtomicU64::new(0) })
    }

    /// Returns a processor of the items of `source`, for one thread of a worker.
    pub fn processor<'s>(&'s self, tenant: TenantId, source: &Source) -> impl Processor + 's {
        let mut items = ItemScanner::new(self, tenant, source);
        Inline::new(move |work: Work<'_>, buffer: &mut Vec<u8>| match items.scan(&work, buffer) {
            Ok(None) => ItemResult::Done,
            Ok(Some(item)) => ItemResult::Results {
                // An item has about a thousand at most.
                findings: u32::try_from(item.findings.len()).unwrap_or(u32::MAX),
                content: item.encode().into(),
            },
            Err(error) => ItemResult::Unopened(error),
        })
        .with_batch(BATCH)
    }

    /// Returns how many contents this process passed over because they are not text.
    #[must_use]
    pub fn binaries_passed(&self) -> u64 {
        self.binaries.load(Ordering::Relaxed)
    }

    /// Returns the settings that distinguish its runs: the policy, and a check value of the key, so
    /// that two processes with different keys never write findings into one run.
    #[must_use]
    pub(crate) fn settings(&self) -> Vec<u8> {
        // The hash of a constant differs with the key and reveals nothing of it.
        let check = SecretHash::derive(&self.key, &NormHash::from_digest([0; 32]));
        [&[SETTINGS_TAG], &self.policy.as_bytes()[..], check.as_bytes()].concat()
    }
}

// Neither key nor rules: numbers only.
impl fmt::Debug for SecretScan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SecretScan").field("policy", &self.policy).finish_non_exhaustive()
    }
}
