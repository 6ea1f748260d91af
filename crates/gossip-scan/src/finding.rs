//! Results of a scan: findings that do not show their secrets, and everything that was not read.

use std::fmt;
use std::sync::Arc;

use gossip_contracts::identity::{CanonicalHasher, Domain, NormHash, RuleFingerprint};

use crate::rule::Confidence;

/// Characters of a secret that a redacted text shows at most.
const SHOWN_MAX: usize = 4;
/// Shorter secrets show nothing: a few characters would be a large part of them.
const SHOWN_SECRET_MIN: usize = 16;

/// What a token says about itself, without a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Checksum {
    /// Nothing can be computed for this kind of token.
    None,
    /// The checksum or structure is wrong: an example, or a damaged token.
    Fail,
    /// The checksum or structure is right.
    Valid,
}

impl Checksum {
    /// Returns the name that reports use.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Fail => "fail",
            Self::Valid => "valid",
        }
    }
}

/// The bytes of a secret. `Debug` shows their number only.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Vec<u8>);

impl Secret {
    pub(crate) fn new(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }

    /// Returns the secret. For a terminal of a user who asked for it, and nothing else.
    #[must_use]
    pub fn expose(&self) -> &[u8] {
        &self.0
    }

    /// Returns a text that identifies the kind of the secret to a reader and not the secret: its
    /// first characters if it is long, and its length.
    #[must_use]
    pub fn redacted(&self) -> String {
        let is_shown = self.0.len() >= SHOWN_SECRET_MIN;
        let shown = if is_shown { &self.0[..SHOWN_MAX] } else { &[] };
        // The text goes to terminals and logs, where other bytes could be control characters.
        let is_text = shown.iter().all(u8::is_ascii_graphic);
        let start = if is_text { String::from_utf8_lossy(shown) } else { "".into() };
        format!("{start}…({} bytes)", self.0.len())
    }

    /// Returns the digest from which a tenant derives its secret hash.
    #[must_use]
    pub fn norm_hash(&self) -> NormHash {
        let mut hasher = CanonicalHasher::for_domain(Domain::NORM_HASH_V1);
        // Of the decoded bytes, so that one secret has one hash whatever encoding it was found in.
        hasher.write_bytes_prefixed(&self.0);
        NormHash::from_digest(hasher.finalize_32())
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secret({} bytes)", self.0.len())
    }
}

/// One secret at one place.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// The id of the rule that matched.
    pub rule: Arc<str>,
    /// The rule in the form in which it matched.
    pub fingerprint: RuleFingerprint,
    /// Start in bytes from the start of the item, or of the archive member. For an encoded secret,
    /// the start of its encoded form.
    pub offset: u64,
    /// Length in bytes, in the same form.
    pub length: u64,
    /// Line of the start, counted from one.
    pub line: u64,
    /// Column of the start in bytes, counted from one.
    pub column: u64,
    /// How likely it is a live secret.
    pub confidence: Confidence,
    /// What the token says about itself.
    pub checksum: Checksum,
    /// Decoding steps between the item and the secret.
    pub decoded: u8,
    /// A comment on its line accepts it, with a reason.
    pub allowed: bool,
    /// Facts read from the token, such as an account number; never secret.
    pub details: Vec<(&'static str, String)>,
    /// The path inside an archive, outermost first and joined by `!/`; `None` outside archives.
    pub member: Option<Arc<str>>,
    /// The secret.
    pub secret: Secret,
}

/// Why something was not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum UnreadReason {
    /// Its content is not text, and binaries were not asked for.
    Binary,
    /// Archives inside archives beyond the depth limit.
    Depth,
    /// More members than the limit.
    Entries,
    /// A member larger than the limit; its start was read.
    EntrySize,
    /// More unpacked bytes than the limit for one item; the start was read.
    TotalSize,
    /// More unpacked bytes per packed byte than the limit; the start was read.
    Ratio,
    /// A member that is encrypted.
    Encrypted,
    /// A compression method that is not supported.
    Method,
    /// Damaged or truncated data; the start may have been read.
    Malformed,
    /// More encoded text than the limit for decoding; all bytes were read.
    DecodeBudget,
    /// More work for patterns than the limit; rules with many hits were not applied to all of it.
    MatchBudget,
}

impl UnreadReason {
    /// Returns the name that reports use.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Binary => "binary",
            Self::Depth => "depth",
            Self::Entries => "entries",
            Self::EntrySize => "entry-size",
            Self::TotalSize => "total-size",
            Self::Ratio => "ratio",
            Self::Encrypted => "encrypted",
            Self::Method => "method",
            Self::Malformed => "malformed",
            Self::DecodeBudget => "decode-budget",
            Self::MatchBudget => "match-budget",
        }
    }
}

/// Something that was not read, or not completely.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Unread {
    /// The path inside an archive; `None` for the item.
    pub member: Option<Arc<str>>,
    /// Why.
    pub reason: UnreadReason,
}

/// The result of scanning one item besides its findings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// Bytes searched, unpacked members included.
    pub bytes: u64,
    /// Findings passed to the caller, allowed ones included.
    pub findings: u64,
    /// Findings among them that an inline comment allows.
    pub allowed: u64,
    /// Everything that was not read completely. Empty means the item was.
    pub unread: Vec<Unread>,
}
