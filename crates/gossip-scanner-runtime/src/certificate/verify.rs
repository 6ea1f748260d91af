//! Checking a certificate, line by line, in constant memory.

use std::io::BufRead;

use gossip_contracts::connector::Connector;

use super::read::{
    LeafLine, Lines, Seal, StatedTotals, is_leaf, read_request, read_seal, read_totals,
};
use super::record::{Request, Totals};
use super::refusal::Refusal;
use super::seal::{SealHash, SigningKey};
use super::source_check::SourceCheck;
use super::tiling::Tiling;

/// What a certificate is checked against, beside itself.
#[derive(Clone, Copy, Default)]
#[non_exhaustive]
pub struct Against<'a> {
    /// Its signature must be of this key.
    pub key: Option<&'a SigningKey>,
    /// It must be for this request, and listing this source must give the stated keys.
    pub source: Option<(&'a Request, &'a dyn Connector)>,
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
    /// compared, nor where the source is: it may have been moved.
    #[must_use]
    pub const fn with_source(self, request: &'a Request, connector: &'a dyn Connector) -> Self {
        Self { source: Some((request, connector)), ..self }
    }
}

/// What a certificate that was not refused shows.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Verification {
    /// What was asked for.
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
    /// Whether everything that was asked for was covered and read.
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
/// The first thing that is wrong with it.
pub fn verify(certificate: impl BufRead, against: Against<'_>) -> Result<Verification, Refusal> {
    let (mut lines, mut hash) = (Lines::new(certificate), SealHash::new());
    hash.add(lines.next()?);
    let request = read_request(lines.current()).map_err(|_| lines.malformed())?;
    let mut tiling = Tiling::new(&request)?;
    let mut source = SourceCheck::new(&request, against.source)?;
    let (mut totals, mut line) = (Totals::default(), LeafLine::new());
    while is_leaf(lines.next()?) {
        hash.add(lines.current());
        line.read(lines.current()).map_err(|_| lines.malformed())?;
        let number = tiling.add(&line)?;
        if let Some(source) = &mut source {
            source.compare(number, &line.leaf)?;
        }
        totals.add(&line.leaf);
    }
    tiling.finish()?;
    hash.add(lines.current());
    check_totals(read_totals(lines.current()).map_err(|_| lines.malformed())?, &totals)?;
    let seal = read_seal(lines.next()?).map_err(|_| lines.malformed())?;
    let trust = check_seal(&hash, seal, against.key)?;
    lines.end()?;
    Ok(Verification {
        request,
        trust,
        done: totals.done,
        parked: totals.parked,
        keys: totals.accumulator.count(),
        unread: totals.unread,
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

fn check_totals(stated: StatedTotals, found: &Totals) -> Result<(), Refusal> {
    let expected = StatedTotals {
        leaves: found.leaves(),
        done: found.done,
        parked: found.parked,
        unread: found.unread,
        accumulator: found.accumulator,
        is_complete: found.is_complete(),
    };
    // A sum that reached its top says nothing any more.
    let is_exact = found.accumulator.count() < u64::MAX && found.unread < u64::MAX;
    if is_exact && stated == expected { Ok(()) } else { Err(Refusal::TotalsDiffer) }
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
