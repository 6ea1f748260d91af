//! The registry of hash domains.
//!
//! BLAKE3 in derive-key mode turns each context string into a separate hash function. This file is
//! the only place that contains such strings, so two uses cannot collide by accident. The rules for
//! the list are checked when this file is compiled (lengths, uniqueness) and by its tests (the
//! form).
//!
//! A string is `gossip/<subsystem>/v<N>`, optionally followed by `/<operation>`: lower-case ASCII
//! letters, digits, `-` and `/`, [`DOMAIN_LEN_MIN`] to [`DOMAIN_LEN_MAX`] bytes. To change the
//! input of a domain, register the next version and delete the old one.

use std::fmt;
use std::sync::LazyLock;

use blake3::hazmat::{ContextKey, hash_derive_key_context};

use super::{CanonicalBytes, CanonicalHasher};

/// The shortest possible domain: `gossip/x/v1`.
pub(crate) const DOMAIN_LEN_MIN: usize = 11;
/// A longer string would need a second block for each context key, for no benefit.
pub(crate) const DOMAIN_LEN_MAX: usize = 64;

const _: () = assert!(DOMAIN_LEN_MIN == "gossip/x/v1".len());
const _: () = assert!(DOMAIN_LEN_MAX == blake3::BLOCK_LEN);

/// One registered use of the hash function.
///
/// The constants below are the only values, so an unregistered string cannot be used for hashing.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Domain {
    /// Position in [`Domain::ALL`] and in the table of context keys.
    index: usize,
}

/// Generates the constants and the registry from one list: a domain with a constant but without a
/// registry entry, or with the wrong index, cannot be expressed.
macro_rules! registry {
    ($($(#[$doc:meta])* $name:ident = $value:literal;)*) => {
        #[expect(non_camel_case_types, reason = "the variants are the indices of the constants of the same name")]
        enum Position { $($name),* }

        /// Name and string of every domain, by index.
        const ENTRIES: [(&str, &str); [$($value),*].len()] = [$((stringify!($name), $value)),*];

        impl Domain {
            $($(#[$doc])* pub const $name: Self = Self { index: Position::$name as usize };)*

            /// Every registered domain.
            pub const ALL: [Self; ENTRIES.len()] = [$(Self::$name),*];
        }
    };
}

registry! {
    /// Ids of shards that a split derives.
    SPLIT_ID_V1 = "gossip/coord/v1/split-id";
    /// Payload hashes of operations, after a tag that names the operation.
    OP_PAYLOAD_V1 = "gossip/coord/v1/op-payload";
    /// Finding ids.
    FINDING_V1 = "gossip/finding/v1";
    /// Occurrence ids.
    OCCURRENCE_V1 = "gossip/occurrence/v1";
    /// Observation ids.
    OBSERVATION_V1 = "gossip/observation/v1";
    /// Secret hashes. The only domain whose string is data in keyed mode, not a context.
    SECRET_HASH_V1 = "gossip/secret-hash/v1";
    /// Stable item ids.
    ITEM_ID_V1 = "gossip/item-id/v1";
    /// Hashes of connector instance ids.
    CONNECTOR_INSTANCE_ID_V1 = "gossip/connector-instance-id/v1";
    /// Object version ids.
    OBJECT_VERSION_V1 = "gossip/object-version/v1";
    /// Fingerprints of rules.
    RULE_V1 = "gossip/rule/v1";
    /// Policy hashes.
    POLICY_HASH_V2 = "gossip/policy-hash/v2";
    /// The digest of all rules, which goes into a policy hash.
    RULES_DIGEST_V1 = "gossip/rules-digest/v1";
    /// Digests of the contents of items, from which versions are derived.
    CONTENT_V1 = "gossip/content/v1";
    /// Run ids that the runtime derives, so that the same command finds the same run.
    RUN_ID_V1 = "gossip/run-id/v1";
    /// Operation ids that the runtime derives from fence, grant token and sequence.
    RUNTIME_OP_ID_V1 = "gossip/runtime/v1/op-id";
    /// The hash over a whole certificate.
    CERTIFICATE_V1 = "gossip/certificate/v1";
    /// One element of a certificate's multiset hash: one key that was covered.
    CERTIFICATE_ITEM_V1 = "gossip/certificate/v1/item";
    /// The key that signs certificates, derived from the bytes the user gave as a key.
    CERTIFICATE_SIGNATURE_KEY_V1 = "gossip/certificate/v1/signature-key";
    /// Numbers of handoffs, from the ids of their records.
    HANDOFF_ID_V1 = "gossip/handoff/v1/id";
    /// Numbers of the parties to a handoff, from their names.
    HANDOFF_PARTY_V1 = "gossip/handoff/v1/party";
    /// Operation ids of a handoff, from its number, the fence and the step.
    HANDOFF_OP_ID_V1 = "gossip/handoff/v1/op-id";
    /// Checksums of stored records, over the storage key and the content.
    RECORD_CHECKSUM_V1 = "gossip/coord/v1/record-checksum";
    /// Numbers of failure records, from the keys of their items.
    FAILURE_NUMBER_V1 = "gossip/coord/v1/failure-number";
    /// Digests of normalised secrets, before a tenant's key makes them secret hashes.
    NORM_HASH_V1 = "gossip/norm-hash/v1";
}

// Loops with counters, because iterators are not available in constants.
const _: () = {
    let mut i = 0;
    while i < ENTRIES.len() {
        let len = ENTRIES[i].1.len();
        assert!(
            DOMAIN_LEN_MIN <= len && len <= DOMAIN_LEN_MAX,
            "a domain is too short or too long"
        );
        let mut j = 0;
        while j < i {
            assert!(!str_eq(ENTRIES[i].1, ENTRIES[j].1), "two domains share one string");
            j += 1;
        }
        i += 1;
    }
};

impl Domain {
    /// Returns the registered string.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        ENTRIES[self.index].1
    }

    /// Returns the name of the constant.
    #[must_use]
    pub(crate) const fn name(self) -> &'static str {
        ENTRIES[self.index].0
    }

    /// Returns the hash of one value in this domain.
    #[inline]
    pub(super) fn digest(self, value: &(impl CanonicalBytes + ?Sized)) -> [u8; 32] {
        let mut hasher = CanonicalHasher::for_domain(self);
        value.write_canonical(&mut hasher);
        hasher.finalize_32()
    }

    /// Returns the context key that derive-key mode computes from the string. That is half the cost
    /// of hashing a short input, so it is computed once per process, for all domains together.
    #[inline]
    pub(super) fn context_key(self) -> &'static ContextKey {
        static KEYS: LazyLock<[ContextKey; Domain::ALL.len()]> =
            LazyLock::new(|| Domain::ALL.map(|domain| hash_derive_key_context(domain.as_str())));
        &KEYS[self.index]
    }
}

impl fmt::Debug for Domain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Returns whether two strings are equal; `==` is not available in constants.
const fn str_eq(a: &str, b: &str) -> bool {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    let mut i = 0;
    while i < a.len() && i < b.len() && a[i] == b[i] {
        i += 1;
    }
    i == a.len() && i == b.len()
}
