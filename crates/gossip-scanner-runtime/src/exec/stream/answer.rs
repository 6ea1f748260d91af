//! The lines of a program, as results of items.

use std::borrow::Cow;
use std::fmt;
use std::num::NonZeroU32;

use serde::Deserialize;
use serde::de::{Deserializer, Error as _, MapAccess, SeqAccess, Visitor};

use super::{MAX_LINE_BYTES, MAX_MESSAGE_BYTES};
use crate::processor::{ItemFailure, ItemResult};

/// How much of an invalid line an error quotes: enough to recognize it, on one line of a terminal.
const MAX_QUOTED_BYTES: usize = 80;

/// A line of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Line<'a> {
    /// With its line feed, if it has one.
    Whole(&'a [u8]),
    /// Longer than a line may be.
    TooLong,
}

/// Removes the first line from `bytes` and returns it; `None` if no line is complete.
///
/// The rest of an output that has `ended` is a line without a line feed.
pub(super) fn next_line<'a>(bytes: &mut &'a [u8], ended: bool) -> Option<Line<'a>> {
    let whole = match memchr::memchr(b'\n', bytes) {
        Some(at) => at + 1,
        // Before the end of the line arrives: a program that writes no line feed would fill the
        // memory.
        None if bytes.len() > MAX_LINE_BYTES => return Some(Line::TooLong),
        None if ended && !bytes.is_empty() => bytes.len(),
        None => return None,
    };
    if whole > MAX_LINE_BYTES {
        return Some(Line::TooLong);
    }
    let (line, rest) = bytes.split_at(whole);
    *bytes = rest;
    Some(Line::Whole(line))
}

/// One answer in JSON.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) id: u64,
    pub(super) result: ItemResult,
    /// What it says about its findings; empty without findings.
    pub(super) message: Box<str>,
}

impl Answer {
    /// Parses a line; `None` if it is no answer.
    pub(super) fn parse(line: &[u8]) -> Option<Self> {
        let Fields { kind, id, message, retry, findings } = serde_json::from_slice(line).ok()?;
        let Some(Field::Number(id)) = id else { return None };
        let Some(Field::Text(kind)) = kind else { return None };
        let mut said = Box::default();
        let result = match &*kind {
            "done" => {
                let result = done(findings)?;
                if let (ItemResult::Found(_), Some(Field::Text(message))) = (&result, &message) {
                    said = message.clone().into();
                }
                result
            }
            "error" => {
                let message = match &message {
                    Some(Field::Text(message)) => clip(message, MAX_MESSAGE_BYTES),
                    Some(Field::Number(_) | Field::Bool(_) | Field::Other) | None => "no message",
                };
                let failure = ItemFailure::new(message);
                match retry {
                    Some(Field::Bool(false)) => ItemResult::Hopeless(failure),
                    // Without a word about it, a retry is the safer assumption: the item is tried
                    // a bounded number of times.
                    Some(Field::Bool(true) | Field::Number(_) | Field::Text(_) | Field::Other)
                    | None => ItemResult::Failed(failure),
                }
            }
            // An unknown type may mean anything, so it is not taken for success.
            _ => return None,
        };
        Some(Self { id, result, message: said })
    }
}

/// Returns how much an item that is done says it found; `None` if that is no number.
fn done(findings: Option<Field<'_>>) -> Option<ItemResult> {
    match findings {
        None => Some(found(0)),
        Some(Field::Number(number)) => Some(found(number)),
        Some(Field::Text(_) | Field::Bool(_) | Field::Other) => None,
    }
}

fn found(number: u64) -> ItemResult {
    // A larger number stays a number of findings; it must not become "none".
    let number = NonZeroU32::new(u32::try_from(number).unwrap_or(u32::MAX));
    number.map_or(ItemResult::Done, ItemResult::Found)
}

/// Parses an answer to the oldest unanswered item, which has the number `id`; `None` if the line is
/// no answer.
pub(super) fn parse_plain(line: &[u8], id: u64) -> Option<Answer> {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    if line.is_empty() || line == b"ok" {
        return Some(Answer { id, result: ItemResult::Done, message: Box::default() });
    }
    let space = memchr::memchr(b' ', line).unwrap_or(line.len());
    let (word, text) = line.split_at(space);
    let text = String::from_utf8_lossy(text.trim_ascii());
    let failure = || match clip(&text, MAX_MESSAGE_BYTES) {
        "" => ItemFailure::new("no message"),
        message => ItemFailure::new(message),
    };
    let (result, message) = match word {
        b"found" => {
            let (number, message) = text.split_once(' ').unwrap_or((&text, ""));
            (found(number.parse().ok()?), message.trim_start())
        }
        b"retry" => (ItemResult::Failed(failure()), ""),
        b"error" => (ItemResult::Hopeless(failure()), ""),
        _ => return None,
    };
    Some(Answer { id, result, message: message.into() })
}

/// Describes a line that is not a reply to an item of the program. `is_json` says whether it should
/// be JSON.
pub(super) fn bad_line(line: Line<'_>, is_json: bool) -> String {
    let Line::Whole(line) = line else {
        return format!("handler wrote a line of more than {MAX_LINE_BYTES} bytes");
    };
    let what = match is_json && serde_json::from_slice::<Field<'_>>(line).is_err() {
        true => "handler wrote invalid JSON",
        false => "handler wrote an invalid reply",
    };
    let text = String::from_utf8_lossy(line);
    format!("{what}: `{}`", clip(text.trim_end(), MAX_QUOTED_BYTES))
}

fn clip(message: &str, max_bytes: usize) -> &str {
    let mut end = message.len().min(max_bytes);
    // Half a character would make the message invalid UTF-8.
    while !message.is_char_boundary(end) {
        end -= 1;
    }
    &message[..end]
}

/// The fields of an answer. Of a field that is there twice, the last counts.
#[derive(Default)]
struct Fields<'a> {
    kind: Option<Field<'a>>,
    id: Option<Field<'a>>,
    message: Option<Field<'a>>,
    retry: Option<Field<'a>>,
    findings: Option<Field<'a>>,
}

/// A value of JSON, as far as an answer needs it.
enum Field<'a> {
    /// A whole number that is not negative.
    Number(u64),
    Text(Cow<'a, str>),
    Bool(bool),
    Other,
}

impl<'de: 'a, 'a> Deserialize<'de> for Fields<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(FieldsVisitor)
    }
}

struct FieldsVisitor;

impl<'de> Visitor<'de> for FieldsVisitor {
    type Value = Fields<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut fields = Fields::default();
        while let Some((name, value)) = map.next_entry::<Field<'de>, Field<'de>>()? {
            let Field::Text(name) = name else { return Err(A::Error::custom("no name")) };
            match &*name {
                "type" => fields.kind = Some(value),
                "id" => fields.id = Some(value),
                "message" => fields.message = Some(value),
                "retry" => fields.retry = Some(value),
                "findings" => fields.findings = Some(value),
                _ => {}
            }
        }
        Ok(fields)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Field<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(FieldVisitor)
    }
}

struct FieldVisitor;

impl<'de> Visitor<'de> for FieldVisitor {
    type Value = Field<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_u64<E>(self, number: u64) -> Result<Self::Value, E> {
        Ok(Field::Number(number))
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(Field::Text(Cow::Borrowed(text)))
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Field::Text(Cow::Owned(text.to_owned())))
    }

    fn visit_bool<E>(self, value: bool) -> Result<Self::Value, E> {
        Ok(Field::Bool(value))
    }

    fn visit_i64<E>(self, _number: i64) -> Result<Self::Value, E> {
        Ok(Field::Other)
    }

    fn visit_f64<E>(self, _number: f64) -> Result<Self::Value, E> {
        Ok(Field::Other)
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(Field::Other)
    }

    // Read and not skipped, because a skipped value is not checked: a line is JSON or it is not.
    fn visit_seq<A: SeqAccess<'de>>(self, mut values: A) -> Result<Self::Value, A::Error> {
        while values.next_element::<Field<'de>>()?.is_some() {}
        Ok(Field::Other)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        while map.next_entry::<Field<'de>, Field<'de>>()?.is_some() {}
        Ok(Field::Other)
    }
}
