//! Mints samples: valid tokens that exist nowhere, from a rule and a seed.
//!
//! A sample is a random match of the rule's pattern, after which a recipe sets the parts that a
//! validator computes. Tests and `rules test` use samples, so that no token is ever written down.
//! The seed is the only source of randomness.

mod recipes;

use regex_syntax::hir::{Class, Hir, HirKind};

use crate::compiled::{TailStep, parse, tail_step};
use crate::error::RuleError;
use crate::rule::Rule;

/// Most repetitions beyond the fewest that a sample has; long ones test nothing more.
const REPEAT_EXTRA_MAX: u32 = 3;
/// Bytes of a run in a tail.
const TAIL_RUN_LEN: usize = 40;
/// Samples are drawn until one passes the rule's own validator.
const DRAWS_MAX: u64 = 64;

/// A generator of pseudo-random numbers (SplitMix64).
pub(crate) struct Seeded(u64);

impl Seeded {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below `end`, which is not zero.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        (self.next() % (end.max(1) as u64)) as usize
    }

    /// Returns one of several bytes.
    pub(crate) fn pick(&mut self, bytes: &[u8]) -> u8 {
        bytes[self.below(bytes.len())]
    }

    pub(crate) fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.next() as u8).collect()
    }

    /// Returns random characters of an alphabet.
    pub(crate) fn text(&mut self, alphabet: &[u8], len: usize) -> Vec<u8> {
        (0..len).map(|_| self.pick(alphabet)).collect()
    }
}

/// Returns whether a recipe has this name.
pub(crate) fn is_recipe(name: &str) -> bool {
    recipes::by_name(name).is_some()
}

impl Rule {
    /// Returns a valid sample in the text that surrounds it, for a seed.
    ///
    /// # Errors
    ///
    /// If the rule's pattern cannot be read, or no sample passes the rule's own validator.
    pub fn mint(&self, seed: u64) -> Result<Vec<u8>, RuleError> {
        let secret = self.mint_secret(seed)?;
        let (before, after) = self.sample.split_once("{}").unwrap_or(("", ""));
        Ok([before.as_bytes(), &secret, after.as_bytes()].concat())
    }

    /// Returns a valid sample without the surrounding text.
    ///
    /// # Errors
    ///
    /// As [`Rule::mint`].
    pub fn mint_secret(&self, seed: u64) -> Result<Vec<u8>, RuleError> {
        let refused =
            |reason: &str| RuleError::Refused { id: self.id.clone(), reason: reason.to_owned() };
        let hir = parse(&self.regex).map_err(|reason| refused(&reason))?;
        let recipe =
            recipes::by_name(&self.mint).ok_or_else(|| refused("its recipe does not exist"))?;
        for draw in 0..DRAWS_MAX {
            // No two seeds share a draw, so samples of several seeds differ.
            let mut random = Seeded::new(seed.wrapping_mul(DRAWS_MAX).wrapping_add(draw));
            let mut text = Vec::new();
            generate(&hir, &mut random, &mut text);
            for step in &self.tail {
                generate_tail(
                    &tail_step(step).map_err(|reason| refused(&reason))?,
                    &mut random,
                    &mut text,
                );
            }
            if let Some(sample) = recipe(text, &mut random) {
                return Ok(sample);
            }
        }
        Err(refused("its recipe produced no valid sample"))
    }
}

/// Appends a random match of a pattern.
fn generate(hir: &Hir, random: &mut Seeded, out: &mut Vec<u8>) {
    match hir.kind() {
        HirKind::Empty | HirKind::Look(_) => {}
        HirKind::Literal(literal) => out.extend_from_slice(&literal.0),
        HirKind::Class(class) => out.extend(draw(class, random)),
        HirKind::Repetition(repetition) => {
            let extra = repetition.max.unwrap_or(u32::MAX) - repetition.min;
            // Sometimes more than the fewest, so that tests see matches of several lengths.
            let extra = random.below(extra.min(REPEAT_EXTRA_MAX) as usize + 1);
            for _ in 0..repetition.min as usize + extra {
                generate(&repetition.sub, random, out);
            }
        }
        HirKind::Capture(capture) => generate(&capture.sub, random, out),
        HirKind::Concat(parts) => parts.iter().for_each(|part| generate(part, random, out)),
        HirKind::Alternation(branches) => {
            generate(&branches[random.below(branches.len())], random, out);
        }
    }
}

/// Appends one step of a tail; a run has as many bytes as test that it is one.
fn generate_tail(step: &TailStep, random: &mut Seeded, out: &mut Vec<u8>) {
    match step {
        TailStep::Run(_) => out.extend(random.text(b"23456789ABCDEFGHabcdefgh", TAIL_RUN_LEN)),
        TailStep::Literal(literal) => out.extend_from_slice(literal),
    }
}

/// Draws a byte of a class, a printable one if there is any.
fn draw(class: &Class, random: &mut Seeded) -> Option<u8> {
    let mut bytes = Vec::new();
    match class {
        Class::Bytes(class) => {
            for range in class.ranges() {
                bytes.extend(range.start()..=range.end());
            }
        }
        Class::Unicode(class) => {
            for range in class.ranges() {
                let (start, end) = (u8::try_from(range.start()), u8::try_from(range.end()));
                bytes.extend(start.unwrap_or(u8::MAX)..=end.unwrap_or(127));
            }
        }
    }
    // A negated class may have control bytes, which would end the line around the sample.
    let printable: Vec<u8> = bytes.iter().copied().filter(u8::is_ascii_alphanumeric).collect();
    let bytes = if printable.is_empty() { bytes } else { printable };
    (!bytes.is_empty()).then(|| random.pick(&bytes))
}
