//! The forms in which an anchor appears in encoded text.
//!
//! A secret inside base64 has one of three alignments. For each, the characters that depend on the
//! anchor alone are a literal that can be searched for without decoding anything; decoding happens
//! only around a hit. The same holds for UTF-16 and percent escapes. This module computes literals;
//! it never looks at input.

use crate::compiled::LITERAL_LEN_MIN;
use crate::decode::{BASE64, base64_value};

/// How a literal spells its anchor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Form {
    /// The bytes of the anchor.
    Plain,
    /// Inside base64; the number of characters between the start of a group and the literal.
    Base64 { phase: u8 },
    /// Two bytes per character, low byte first.
    Utf16Le,
    /// Two bytes per character, high byte first.
    Utf16Be,
    /// With percent escapes for reserved bytes.
    Percent,
}

/// Literals of base64 shorter than this occur everywhere; one partly known character is spelled out
/// to reach it.
const BASE64_LITERAL_MIN: usize = 4;

/// Returns every literal that shows an anchor, with its form. Literals of one form are distinct.
pub(crate) fn forms(anchor: &[u8]) -> Vec<(Form, Vec<u8>)> {
    let mut forms = vec![(Form::Plain, anchor.to_vec())];
    forms.extend(base64_forms(anchor));
    // The zero byte beside the first character is left out: it is the other order's.
    forms.push((Form::Utf16Le, anchor.iter().flat_map(|&byte| [byte, 0]).collect()));
    forms.push((Form::Utf16Be, anchor.iter().flat_map(|&byte| [0, byte]).collect()));
    for upper in [true, false] {
        let escaped = percent(anchor, upper);
        // Escapes without letters are the same in either case, and literals of one form are
        // distinct.
        if escaped != anchor && !forms.iter().any(|(_, literal)| *literal == escaped) {
            forms.push((Form::Percent, escaped));
        }
    }
    forms
}

/// Returns the literals of the three alignments.
pub(crate) fn base64_forms(anchor: &[u8]) -> Vec<(Form, Vec<u8>)> {
    (0..3).flat_map(|alignment| aligned(anchor, alignment)).collect()
}

/// The characters that an anchor alone decides when `alignment` bytes precede it in its group.
fn aligned(anchor: &[u8], alignment: usize) -> Vec<(Form, Vec<u8>)> {
    let bit_start = alignment * 8;
    let bit_end = bit_start + anchor.len() * 8;
    // Characters that share bits with a neighbour of the anchor are left out: they have many
    // spellings.
    let (first, last) = (bit_start.div_ceil(6), bit_end / 6);
    // Bit `index` of the group stream; bits outside the anchor are `None`.
    let bit = |index: usize| {
        let inside = index.checked_sub(bit_start).filter(|it| *it < anchor.len() * 8)?;
        Some((anchor[inside / 8] >> (7 - inside % 8)) & 1)
    };
    let spell = |index: usize| possible(std::array::from_fn(|it| bit(index * 6 + it)));
    let mut literals = vec![Vec::new()];
    for index in first..last {
        literals = extend(&literals, &spell(index));
    }
    let mut start = first;
    // Unknown bits in the character before and after: the side with fewer gives fewer spellings.
    let (head_unknown, tail_unknown) = (bit_start % 6, (6 - bit_end % 6) % 6);
    if last.saturating_sub(first) < BASE64_LITERAL_MIN {
        let head_is_better =
            head_unknown != 0 && (tail_unknown == 0 || head_unknown <= tail_unknown);
        if head_is_better {
            start = first - 1;
            let tails = &literals;
            let heads = spell(start).into_iter();
            literals = heads
                .flat_map(|head| tails.iter().map(move |tail| [&[head], &tail[..]].concat()))
                .collect();
        } else if tail_unknown != 0 {
            literals = extend(&literals, &spell(last));
        }
    }
    // The decoder needs to know where the group of the literal begins.
    let phase = u8::try_from(start % 4).unwrap_or(0);
    literals
        .into_iter()
        .flat_map(|it| both_alphabets(&it))
        .map(|it| (Form::Base64 { phase }, it))
        .collect()
}

fn extend(literals: &[Vec<u8>], tails: &[u8]) -> Vec<Vec<u8>> {
    literals
        .iter()
        .flat_map(|head| tails.iter().map(move |&it| [&head[..], &[it]].concat()))
        .collect()
}

/// The characters whose known bits are these.
fn possible(bits: [Option<u8>; 6]) -> Vec<u8> {
    let fits = |value: u8| {
        bits.iter().zip(0..).all(|(bit, at)| bit.is_none_or(|bit| (value >> (5 - at)) & 1 == bit))
    };
    (0_u8..64).filter(|value| fits(*value)).map(|value| BASE64[usize::from(value)]).collect()
}

/// A literal with `+` or `/` has a second spelling in the alphabet for URLs.
fn both_alphabets(literal: &[u8]) -> Vec<Vec<u8>> {
    let url: Vec<u8> = literal
        .iter()
        .map(|&character| match base64_value(character) {
            Some(62) => b'-',
            Some(63) => b'_',
            _ => character,
        })
        .collect();
    if url == literal { vec![url] } else { vec![literal.to_vec(), url] }
}

/// Escapes every byte that is reserved in a URL.
pub(crate) fn percent(bytes: &[u8], upper: bool) -> Vec<u8> {
    let digits = if upper { b"0123456789ABCDEF" } else { b"0123456789abcdef" };
    let mut text = Vec::with_capacity(bytes.len());
    for &byte in bytes {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'~') {
            text.push(byte);
        } else {
            text.extend([b'%', digits[usize::from(byte >> 4)], digits[usize::from(byte & 15)]]);
        }
    }
    text
}

/// Joints between the parts of a word: `api_key`, `api-key`, `api.key`, `apikey`.
const JOINTS: [&str; 4] = ["_", "-", ".", ""];
/// First parts of at most this many letters are also abbreviations: `APIKey`.
const ABBREVIATION_LEN_MAX: usize = 3;

/// Returns the spellings of a context word that occur in names. An underscore in the word separates
/// its parts, which names join in any of the usual ways: lower case, upper case and capitals, and
/// camel case.
pub(crate) fn spellings(word: &str) -> Vec<Vec<u8>> {
    let lower = word.to_ascii_lowercase();
    let parts: Vec<&str> = lower.split('_').filter(|part| !part.is_empty()).collect();
    let capitals: Vec<String> = parts.iter().map(|part| capitalised(part)).collect();
    // As the rule writes it, which may be a spelling that no rule below forms.
    let mut spellings = vec![word.to_owned()];
    for joint in JOINTS {
        let plain = parts.join(joint);
        spellings.push(capitalised(&plain));
        spellings.push(plain.to_ascii_uppercase());
        spellings.push(capitals.join(joint));
        spellings.push(plain);
    }
    if let [first, rest @ ..] = &parts[..]
        && !rest.is_empty()
    {
        let rest = capitals[1..].concat();
        spellings.push(format!("{first}{rest}"));
        if first.len() <= ABBREVIATION_LEN_MAX {
            spellings.push(format!("{}{rest}", first.to_ascii_uppercase()));
        }
    }
    // Parts that are joined by nothing may be too short to search for.
    spellings.retain(|it| it.len() >= LITERAL_LEN_MIN);
    spellings.sort();
    spellings.dedup();
    spellings.into_iter().map(String::into_bytes).collect()
}

fn capitalised(part: &str) -> String {
    let mut part = part.to_owned();
    if let Some(first) = part.get_mut(..1) {
        first.make_ascii_uppercase();
    }
    part
}
