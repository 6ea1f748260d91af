//! Finds the value that text assigns to a name: `name = "value"`, `name: value`, `<name>value<`.
//!
//! A few bounded loops instead of a pattern, because context words are frequent and almost none of
//! them is assigned to. It knows no programming language; it accepts the operators most of them
//! share.

use super::View;

/// Rest of a name behind the context word.
const NAME_REST_MAX: usize = 40;
/// Blanks around the operator.
const BLANKS_MAX: usize = 24;
/// A type between `:` and `=`.
const TYPE_MAX: usize = 40;
/// Longest value; anything longer is a document.
const VALUE_MAX: usize = 4096;

/// The span of a value.
pub(super) struct Value {
    pub(super) start: usize,
    pub(super) end: usize,
}

/// Returns the value assigned to the name that contains `bytes[name_start..name_end]`.
pub(super) fn value_after(
    view: View<'_>,
    name_start: usize,
    name_end: usize,
    is_config: bool,
) -> Option<Value> {
    let bytes = view.bytes;
    let rest = run(bytes, name_end, NAME_REST_MAX, |it| {
        it.is_ascii_alphanumeric() || matches!(it, b'_' | b'-' | b'.')
    });
    // The quote or bracket that closes the name: `"name": …`, `obj['name'] = …`.
    let mut at = run(bytes, rest, 3, |it| matches!(it, b'"' | b'\'' | b'`' | b']' | b'\\'));
    at = blanks(bytes, at);
    let operator = *bytes.get(at)?;
    at = match operator {
        b'=' | b':' => run(bytes, at, 3, |it| matches!(it, b'=' | b':' | b'>' | b'~')),
        // Directly behind the name only: `name > value` is a comparison.
        b'>' if at == rest => return value_until(view, at + 1, b"<\n"),
        b'(' | b',' => at + 1,
        b' ' | b'\t' => at,
        _ => return None,
    };
    at = blanks(bytes, at);
    // Only a colon can be followed by a type; behind `=` the same bytes are the value.
    if operator == b':' {
        at = after_type(bytes, at);
    }
    let quote_at =
        run(bytes, at, 2, |it| matches!(it, b'\\' | b'@' | b'$' | b'b' | b'r' | b'f' | b'u'));
    if let Some(&quote @ (b'"' | b'\'' | b'`')) = bytes.get(quote_at) {
        let end_bytes = [quote, b'\n'];
        let mut value = value_until(view, quote_at + 1, &end_bytes)?;
        // A string that does not end on its line is none: the quote was an apostrophe or closed
        // another one.
        if bytes.get(value.end) != Some(&quote) {
            return None;
        }
        // An escaped quote closes a string inside a string.
        if bytes[value.end - 1] == b'\\' && value.end - 1 > value.start {
            value.end -= 1;
        }
        return Some(value);
    }
    let is_variable =
        matches!(operator, b'=' | b':') && (is_config || is_environment(bytes, name_start, rest));
    // Without quotes, what follows is an expression in most languages and a value only in these
    // places.
    if !is_variable {
        return None;
    }
    value_until(view, at, b" \t\r\n\"'`;,<>&|()")
}

/// The span up to the first of some bytes, or to the end of the input.
fn value_until(view: View<'_>, start: usize, ends: &[u8]) -> Option<Value> {
    let rest = view.bytes.get(start..)?;
    let len = rest.iter().take(VALUE_MAX).position(|byte| ends.contains(byte));
    let len = match len {
        Some(len) => len,
        // The value ends with the input.
        None if rest.len() < VALUE_MAX && !view.open_right => rest.len(),
        None => return None,
    };
    (len > 0).then_some(Value { start, end: start + len })
}

/// Skips a type annotation: `name: &str = "value"`.
fn after_type(bytes: &[u8], at: usize) -> usize {
    let is_type = |it: u8| {
        it.is_ascii_alphanumeric()
            || matches!(it, b'&' | b'_' | b'<' | b'>' | b'[' | b']' | b'?' | b' ' | b':')
    };
    let end = run(bytes, at, TYPE_MAX, is_type);
    // Without the `=` the bytes were the value itself, as in YAML.
    if end > at && bytes.get(end) == Some(&b'=') { blanks(bytes, end + 1) } else { at }
}

/// Returns whether a name is written as an environment variable: `NAME=`, `export NAME=`.
fn is_environment(bytes: &[u8], word_start: usize, name_end: usize) -> bool {
    let is_name = |it: &u8| it.is_ascii_uppercase() || it.is_ascii_digit() || *it == b'_';
    let before = bytes[..word_start].iter().rev().take(NAME_REST_MAX);
    let head = before.take_while(|it| is_name(it)).count();
    let previous = word_start.checked_sub(head + 1).map(|at| bytes[at]);
    bytes[word_start..name_end].iter().all(is_name)
        && previous.is_none_or(|it| matches!(it, b' ' | b'\t' | b'\n' | b'\r' | b'"' | b'\''))
}

fn blanks(bytes: &[u8], at: usize) -> usize {
    run(bytes, at, BLANKS_MAX, |it| matches!(it, b' ' | b'\t'))
}

/// The end of at most `max` bytes from `at` that satisfy a predicate.
fn run(bytes: &[u8], at: usize, max: usize, fits: impl Fn(u8) -> bool) -> usize {
    let rest = bytes.get(at..).unwrap_or_default();
    at + rest.iter().take(max).take_while(|byte| fits(**byte)).count()
}
