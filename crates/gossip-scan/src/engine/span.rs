//! Spans of encoded text around a hit: how far they reach, and whether they were cut off.

use super::{DECODE_BEHIND, View};
use crate::anchors::Form;
use crate::decode;

/// Bytes from a hit within which an escape may be part of the secret.
const ESCAPE_REACH: usize = 256;
/// Characters of a line of wrapped base64: PEM has 64, MIME and `base64` have 76.
const WRAPPED_LEN_MIN: usize = 60;
const WRAPPED_LEN_MAX: usize = 76;
/// Bytes of a line break with the indentation of the next line.
const BREAK_LEN_MAX: usize = 20;

/// Forms that decode one span to the same bytes are equal: a span of base64 begins with a group.
pub(super) const fn form_class(form: Form) -> Form {
    match form {
        Form::Base64 { .. } => Form::Base64 { phase: 0 },
        other => other,
    }
}

/// Returns whether an escape is close enough to a hit to change the result.
pub(super) fn percent_may_hide(bytes: &[u8], at: usize) -> bool {
    let ahead = &bytes[at..bytes.len().min(at + ESCAPE_REACH)];
    let is_escaped = memchr::memchr(b'%', ahead).is_some_and(|found| {
        decode::percent_escape(&ahead[found..]).is_some()
            && ahead[..found].iter().all(|byte| is_url_byte(*byte))
    });
    // The last digit of an escape before the anchor looks like a longer word; decoded, it is none.
    is_escaped || at >= 3 && decode::percent_escape(&bytes[at - 3..at]).is_some()
}

/// Returns whether a span that was read up to `limit` may continue beyond its end.
pub(super) fn is_cut(view: View<'_>, end: usize, limit: usize) -> bool {
    end >= limit.min(view.bytes.len()) && (end < view.bytes.len() || view.open_right)
}

/// Returns the bytes that so many plain bytes need in a form.
pub(super) const fn encoded_len(form: Form, plain_len: usize) -> usize {
    match form {
        Form::Plain => plain_len,
        Form::Base64 { .. } => plain_len / 3 * 4 + 4,
        Form::Utf16Le | Form::Utf16Be => plain_len * 2,
        Form::Percent => plain_len * 3,
    }
}

const fn is_url_byte(byte: u8) -> bool {
    !matches!(byte, 0..=b' ' | b'"' | b'\'' | b'<' | b'>' | b'\\' | b'`' | b'{'..=b'}' | 127..=255)
}

/// Returns the span of text in one encoding around a hit, bounded on both sides.
pub(super) fn encoded_span(bytes: &[u8], at: usize, form: Form, reach: usize) -> (usize, usize) {
    let bytes = &bytes[..bytes.len().min(at + encoded_len(form, reach))];
    match form {
        Form::Base64 { phase } => {
            // Groups begin `phase` characters before the literal.
            let Some(start) = at.checked_sub(usize::from(phase)) else { return (at, at) };
            (base64_start(bytes, start, at), base64_end(bytes, at))
        }
        Form::Utf16Le | Form::Utf16Be => {
            // The place of the high byte, which is zero for all text that this crate searches for.
            let high = usize::from(form == Form::Utf16Le);
            let is_text = |unit: &[u8]| unit[high] == 0 && unit[1 - high] != 0;
            let mut start = at;
            while start >= 2 && at - start < DECODE_BEHIND && is_text(&bytes[start - 2..start]) {
                start -= 2;
            }
            (start, run_end(bytes, at, 2, is_text))
        }
        Form::Percent | Form::Plain => {
            let mut start = at;
            while start > 0 && at - start < DECODE_BEHIND && is_url_byte(bytes[start - 1]) {
                start -= 1;
            }
            (start, run_end(bytes, at, 1, |unit| is_url_byte(unit[0])))
        }
    }
}

/// Returns the end of the units from `at` that satisfy a predicate.
fn run_end(bytes: &[u8], at: usize, len: usize, fits: impl Fn(&[u8]) -> bool) -> usize {
    at + bytes[at..].chunks_exact(len).take_while(|unit| fits(unit)).count() * len
}

fn is_body(byte: u8) -> bool {
    decode::base64_value(byte).is_some()
}

/// Returns the start of the base64 around a group that begins at `start`, in whole groups.
fn base64_start(bytes: &[u8], mut start: usize, at: usize) -> usize {
    while at - start < DECODE_BEHIND {
        // Whole groups only: decoding from inside a group gives other bytes.
        if start >= 4 && bytes[start - 4..start].iter().all(|&byte| is_body(byte)) {
            start -= 4;
            continue;
        }
        let breaks = bytes[..start].iter().rev().take(BREAK_LEN_MAX);
        let end = start - breaks.take_while(|byte| decode::is_line_break(**byte)).count();
        if !is_wrapped(&bytes[..end], &bytes[end..start]) {
            break;
        }
        start = end;
    }
    start
}

/// Returns the end of the base64 around a position.
fn base64_end(bytes: &[u8], at: usize) -> usize {
    let mut end = run_end(bytes, at, 1, |unit| is_body(unit[0]));
    loop {
        let breaks = bytes[end..].iter().take(BREAK_LEN_MAX);
        let next = end + breaks.take_while(|byte| decode::is_line_break(**byte)).count();
        if !is_wrapped(&bytes[..end], &bytes[end..next]) {
            return end;
        }
        let next_end = run_end(bytes, next, 1, |unit| is_body(unit[0]));
        if next_end == next {
            return end;
        }
        end = next_end;
    }
}

/// Returns whether the line at the end of `before` is one of wrapped base64, and continues behind
/// the bytes of a line break.
fn is_wrapped(before: &[u8], line_break: &[u8]) -> bool {
    let line = before.iter().rev().take(WRAPPED_LEN_MAX + 1);
    let len = line.take_while(|byte| is_body(**byte)).count();
    line_break.iter().filter(|byte| **byte == b'\n').count() == 1
        && (WRAPPED_LEN_MIN..=WRAPPED_LEN_MAX).contains(&len)
        // Encoders break lines between groups; a line of another length is text that happens to be
        // base64.
        && len % 4 == 0
}
