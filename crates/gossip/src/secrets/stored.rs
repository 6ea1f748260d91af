//! Findings as they are stored: one JSON text per item.
//!
//! JSON, because the texts are few and small, and an operator can read them without this program.
//! Bytes that are not UTF-8 are an object with their hexadecimal digits.

use gossip_contracts::identity::{
    FindingId, ObjectVersionId, ObservationId, ObservationIdInputs, OccurrenceId,
    OccurrenceIdInputs, PolicyHash, TenantId,
};
use gossip_scan::{Checksum, Confidence};
use serde::Deserialize;
use serde_json::{Value, json};
use thiserror::Error;

/// The layout that this code writes and reads.
const VERSION: u32 = 2;

/// The findings of one item, and the parts of it that were not read.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ItemFindings {
    /// The key of the item.
    pub key: Box<[u8]>,
    /// Its path: of a blob, the path at which it first appeared, of a row its number.
    pub path: Box<[u8]>,
    /// The commit in which a blob first appeared; empty for other items.
    pub revision: Box<str>,
    /// The content that was read.
    pub version: ObjectVersionId,
    /// The policy under which it was searched.
    pub policy: PolicyHash,
    /// The tenant.
    pub tenant: TenantId,
    /// In the order of their offsets, within each archive member.
    pub findings: Vec<StoredFinding>,
    /// Parts that were not read.
    pub gaps: Vec<Gap>,
}

/// One secret at one place, without the secret.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoredFinding {
    /// The id of the rule.
    pub rule: Box<str>,
    /// How likely it is a live secret.
    pub confidence: Confidence,
    /// What the token says about itself.
    pub checksum: Checksum,
    /// Start in bytes, in the item or the archive member.
    pub offset: u64,
    /// Length in bytes, in the same form.
    pub length: u64,
    /// Line, counted from one.
    pub line: u64,
    /// Column in bytes, counted from one.
    pub column: u64,
    /// Decoding steps between the item and the secret.
    pub decoded: u8,
    /// A comment on its line accepts it, with a reason.
    pub allowed: bool,
    /// The path inside an archive.
    pub member: Option<Box<str>>,
    /// Facts read from the token.
    pub details: Vec<(Box<str>, Box<str>)>,
    /// The first characters of the secret, and its length.
    pub redacted: Box<str>,
    /// The hash of the secret under the tenant's key: equal for equal secrets.
    pub secret: [u8; 32],
    /// The id of the finding: the same for as long as item, rule and secret are.
    pub id: FindingId,
}

/// A part of an item that was not read.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Gap {
    /// The path inside an archive; `None` for the item.
    pub member: Option<Box<str>>,
    /// Why, as a word.
    pub reason: Box<str>,
}

/// Stored bytes that are no findings of a layout that this version reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the stored findings of an item are not readable by this version")]
#[non_exhaustive]
pub struct UnreadableFindings;

impl ItemFindings {
    /// Returns the id of one of its findings at its place, in this version of the item.
    #[must_use]
    pub fn occurrence(&self, finding: &StoredFinding) -> OccurrenceId {
        OccurrenceId::derive(&OccurrenceIdInputs {
            finding: finding.id,
            version: self.version,
            offset: finding.offset,
            length: finding.length,
        })
    }

    /// Returns the id of one of its occurrences, as this policy saw it.
    #[must_use]
    pub fn observation(&self, finding: &StoredFinding) -> ObservationId {
        let (tenant, policy) = (self.tenant, self.policy);
        let occurrence = self.occurrence(finding);
        ObservationId::derive(&ObservationIdInputs { tenant, policy, occurrence })
    }

    /// Returns the text to store.
    #[must_use]
    pub(super) fn encode(&self) -> Vec<u8> {
        let findings: Vec<Value> = self.findings.iter().map(StoredFinding::to_json).collect();
        let gaps: Vec<Value> =
            self.gaps.iter().map(|it| json!({"member": it.member, "reason": it.reason})).collect();
        let item = json!({
            "v": VERSION,
            // As text where that is possible: an operator can read the record.
            "key": text_of(&self.key),
            "path": text_of(&self.path),
            "revision": self.revision,
            "version": hex(self.version.as_bytes()),
            "policy": hex(self.policy.as_bytes()),
            "findings": findings,
            "gaps": gaps,
        });
        item.to_string().into_bytes()
    }

    /// Reads a stored text of this tenant.
    ///
    /// # Errors
    ///
    /// [`UnreadableFindings`].
    pub(super) fn decode(bytes: &[u8], tenant: TenantId) -> Result<Self, UnreadableFindings> {
        let item: Item = serde_json::from_slice(bytes).map_err(|_| UnreadableFindings)?;
        if item.v != VERSION {
            return Err(UnreadableFindings);
        }
        // One unreadable finding makes the item unreadable: a report that omits one would look
        // complete.
        let findings: Option<Vec<_>> = item.findings.into_iter().map(One::finding).collect();
        let gap = |gap: OneGap| Gap { member: gap.member, reason: gap.reason };
        let decoded = || {
            Some(Self {
                key: item.key.bytes()?,
                path: item.path.bytes()?,
                revision: item.revision,
                version: ObjectVersionId::from_bytes(bytes_of(&item.version)?),
                policy: PolicyHash::from_bytes(bytes_of(&item.policy)?),
                tenant,
                findings: findings?,
                gaps: item.gaps.into_iter().map(gap).collect(),
            })
        };
        decoded().ok_or(UnreadableFindings)
    }
}

// Counts only: paths belong to the user.
impl std::fmt::Debug for ItemFindings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ItemFindings")
            .field("findings", &self.findings.len())
            .field("gaps", &self.gaps.len())
            .finish_non_exhaustive()
    }
}

impl StoredFinding {
    /// Returns how many bytes it adds to the text of its item, with a comma. Measured and not
    /// estimated: an escape takes up to six bytes for one of a member's name.
    pub(super) fn encoded_len(&self) -> usize {
        self.to_json().to_string().len() + 1
    }

    fn to_json(&self) -> Value {
        json!({
            "rule": self.rule,
            "confidence": self.confidence.name(),
            "checksum": self.checksum.name(),
            "at": [self.offset, self.length, self.line, self.column],
            "decoded": self.decoded,
            "allowed": self.allowed,
            "member": self.member,
            "details": self.details,
            "redacted": self.redacted,
            "secret": hex(&self.secret),
            "id": hex(self.id.as_bytes()),
        })
    }
}

#[derive(Deserialize)]
struct Item {
    v: u32,
    key: Text,
    path: Text,
    revision: Box<str>,
    version: String,
    policy: String,
    findings: Vec<One>,
    gaps: Vec<OneGap>,
}

#[derive(Deserialize)]
struct One {
    rule: Box<str>,
    confidence: Confidence,
    checksum: String,
    at: [u64; 4],
    decoded: u8,
    allowed: bool,
    member: Option<Box<str>>,
    details: Vec<(Box<str>, Box<str>)>,
    redacted: Box<str>,
    secret: String,
    id: String,
}

#[derive(Deserialize)]
struct OneGap {
    member: Option<Box<str>>,
    reason: Box<str>,
}

impl One {
    fn finding(self) -> Option<StoredFinding> {
        let [offset, length, line, column] = self.at;
        let checksums = [Checksum::None, Checksum::Fail, Checksum::Valid];
        Some(StoredFinding {
            rule: self.rule,
            confidence: self.confidence,
            checksum: checksums.into_iter().find(|it| it.name() == self.checksum)?,
            offset,
            length,
            line,
            column,
            decoded: self.decoded,
            allowed: self.allowed,
            member: self.member,
            details: self.details,
            redacted: self.redacted,
            secret: bytes_of(&self.secret)?,
            id: FindingId::from_bytes(bytes_of(&self.id)?),
        })
    }
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Text {
    Utf8(String),
    Hex { hex: String },
}

impl Text {
    fn bytes(self) -> Option<Box<[u8]>> {
        match self {
            Self::Utf8(text) => Some(text.into_bytes().into()),
            Self::Hex { hex } => {
                let mut bytes = vec![0; hex.len() / 2];
                decode_hex(&hex, &mut bytes)?;
                Some(bytes.into())
            }
        }
    }
}

fn text_of(bytes: &[u8]) -> Value {
    match std::str::from_utf8(bytes) {
        Ok(text) => json!(text),
        // An object and not a text, so no text can be mistaken for digits.
        Err(_) => json!({"hex": hex(bytes)}),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn bytes_of<const LEN: usize>(digits: &str) -> Option<[u8; LEN]> {
    let mut bytes = [0; LEN];
    decode_hex(digits, &mut bytes)?;
    Some(bytes)
}

fn decode_hex(digits: &str, bytes: &mut [u8]) -> Option<()> {
    // A hash that is cut short must not be read as one that ends in zeros.
    if digits.len() != 2 * bytes.len() {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(digits.as_bytes().chunks_exact(2)) {
        let digit = |digit: u8| char::from(digit).to_digit(16);
        *byte = u8::try_from(digit(pair[0])? * 16 + digit(pair[1])?).ok()?;
    }
    Some(())
}
