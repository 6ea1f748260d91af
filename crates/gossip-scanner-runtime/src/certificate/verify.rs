//! Checking a certificate, line by line, in constant memory.

use std::io::BufRead;

use gossip_contracts::connector::Connector;

use super::differences::Differences;
use super::read::{
    LeafLine, Lines, Seal, StatedTotals, is_leaf, read_request, read_seal, read_totals,
};
use super::record::{LeafRecord, LeafStatus, Request};
use super::refusal::Refusal;
use super::seal::{SealHash, SigningKey};
use super::source_check::SourceCheck;
use super::tiling::Tiling;
use crate::accumulator::Accumulator;

/// What a certificate is checked against, beside itself.
#[derive(Clone, Copy, Default)]
#[non_exhaustive]
pub struct Against<'a> {
    /// Its signature must be of this key.
    pub(crate) key: Option<&'a SigningKey>,
    /// It must be for this request, and listing this source must give the stated keys.
    pub(crate) source: Option<(&'a Request, &'a dyn Connector)>,
}

impl<'a> Against<'a> {
    /// Nothing but itself.
    pub const ITSELF: Self = Self { key: None, source: None };

    /// Asks for a signature.
    #[must_use]
    pub const fn with_key(self, key: &'a SigningKey) -> Self {
        Self { key: Some(key), ..self }
    }

    /// Compares with a source, which is listed again. Run and settings of the request are not
    /// compared, nor where the source is: it may have been moved. The connector had better be that
    /// of [`recount`](super::recount): the one that the run used would leave out the same keys.
    #[must_use]
    pub const fn with_source(self, request: &'a Request, connector: &'a dyn Connector) -> Self {
        Self { source: Some((request, connector)), ..self }
    }
}

/// What a certificate that was not refused shows.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Verification {
    /// The request.
    pub request: Request,
    /// Who may have written it.
    pub trust: Trust,
    /// Leaves that are done.
    pub done: u64,
    /// Leaves that are parked.
    pub parked: u64,
    /// Keys at or below the cursors.
    pub keys: u64,
    /// Of those, how many were passed over unread.
    pub unread: u64,
    /// Whether the source was listed and compared.
    pub is_compared: bool,
}

impl Verification {
    /// Returns whether everything that was asked for was covered and read.
    #[must_use]
    pub const fn is_complete(&self) -> bool {
        self.parked == 0 && self.unread == 0
    }
}

/// Who may have written a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "a signature was checked or it was not")]
pub enum Trust {
    /// Anyone: no key was given, so no signature was checked.
    Consistent,
    /// Someone with the key.
    Signed,
}

/// Checks a certificate from its first byte to its last.
///
/// # Errors
///
/// The first thing that is wrong with the certificate itself; without one, the first leaf that
/// differs from the source.
pub fn verify(certificate: impl BufRead, against: Against<'_>) -> Result<Verification, Refusal> {
    verify_with_differences(certificate, against, &mut Differences::default())
}

/// As [`verify`]. Adds every leaf that differs from the source to `differences`.
///
/// # Errors
///
/// As [`verify`].
pub fn verify_with_differences(
    certificate: impl BufRead,
    against: Against<'_>,
    differences: &mut Differences,
) -> Result<Verification, Refusal> {
    let (mut lines, mut hash) = (Lines::new(certificate), SealHash::new());
    hash.add(lines.next()?);
    let (request, version) = read_request(lines.current()).map_err(|_| lines.malformed())?;
    let mut tiling = Tiling::new(&request)?;
    // Before any leaf: a certificate for another request would fail later with a misleading count.
    let mut source = SourceCheck::new(&request, against.source)?;
    let (mut sums, mut line) = (Sums::default(), LeafLine::new(version));
    while is_leaf(lines.next()?) {
        hash.add(lines.current());
        line.read(lines.current()).map_err(|_| lines.malformed())?;
        let number = tiling.add(&line)?;
        if let Some(source) = &mut source {
            source.compare(number, &line.leaf, differences)?;
        }
        sums.count(&line.leaf);
    }
    tiling.finish()?;
    // The line that ended the loop is that of the totals, which the hash covers too.
    hash.add(lines.current());
    sums.check(read_totals(lines.current()).map_err(|_| lines.malformed())?)?;
    let seal = read_seal(lines.next()?).map_err(|_| lines.malformed())?;
    // After the lines, so that a malformed one is reported with its number and not as a wrong
    // hash.
    let trust = check_seal(&hash, seal, against.key)?;
    lines.end()?;
    if let Some(refusal) = differences.refusal() {
        return Err(refusal);
    }
    Ok(Verification {
        request,
        trust,
        done: sums.done,
        parked: sums.parked,
        keys: sums.accumulator.count(),
        unread: sums.unread,
        is_compared: source.is_some(),
    })
}

/// Checks hash and signature alone, whatever the lines say.
///
/// # Errors
///
/// The file has no seal, or not the right one.
pub fn verify_seal(certificate: impl BufRead, key: Option<&SigningKey>) -> Result<Trust, Refusal> {
    let (mut lines, mut hash) = (Lines::new(certificate), SealHash::new());
    loop {
        let line = lines.next()?;
        if !line.starts_with(b"{\"hash\":") {
            hash.add(line);
            continue;
        }
        let seal = read_seal(line).map_err(|_| lines.malformed())?;
        let trust = check_seal(&hash, seal, key)?;
        lines.end()?;
        return Ok(trust);
    }
}

/// The sums of the leaves, computed independently of the writer.
#[derive(Default)]
struct Sums {
    done: u64,
    parked: u64,
    unread: u64,
    accumulator: Accumulator,
    /// Whether a number has reached its top, where it says nothing any more.
    is_full: bool,
}

impl Sums {
    fn count(&mut self, leaf: &LeafRecord) {
        self.done += u64::from(leaf.status == LeafStatus::Done);
        self.parked += u64::from(leaf.status != LeafStatus::Done);
        self.accumulator.merge(&leaf.accumulator);
        let unread = self.unread.checked_add(leaf.unread);
        // Saturated numbers could agree with forged totals.
        self.is_full |= unread.is_none() || self.accumulator.count() == u64::MAX;
        self.unread = unread.unwrap_or(u64::MAX);
    }

    fn check(&self, stated: StatedTotals) -> Result<(), Refusal> {
        let found = StatedTotals {
            leaves: self.done + self.parked,
            done: self.done,
            parked: self.parked,
            unread: self.unread,
            accumulator: self.accumulator,
            is_complete: self.parked == 0 && self.unread == 0,
        };
        if !self.is_full && stated == found { Ok(()) } else { Err(Refusal::TotalsDiffer) }
    }
}

fn check_seal(hash: &SealHash, seal: Seal, key: Option<&SigningKey>) -> Result<Trust, Refusal> {
    if hash.finish() != seal.hash {
        return Err(Refusal::HashDiffers);
    }
    let Some(key) = key else {
        return Ok(Trust::Consistent);
    };
    match seal.signature {
        None => Err(Refusal::NotSigned),
        Some(signature) if key.has_signed(&seal.hash, &signature) => Ok(Trust::Signed),
        Some(_) => Err(Refusal::SignatureDiffers),
    }
}
