//! What a command found, as it is stored with the cursor: one JSON text per finding item.
//!
//! JSON for the reason of the findings of a scan: the texts are few and small, and an operator can
//! read them without this program. Bytes that are not UTF-8 are an object with their hexadecimal
//! digits.

use std::fmt;
use std::num::NonZeroU32;

use serde_json::{Value, json};
use thiserror::Error;

/// The layout that this code writes and reads. The field is named `command`, so that the findings
/// of a scan are not mistaken for these.
const VERSION: u32 = 1;

/// Maximum bytes of the name of the item.
const PLACE_MAX: usize = 1 << 10;

/// What the command of an item found.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct CommandFinding {
    /// The item as the user knows it, such as `urls.txt:2`; empty if only its key is known.
    pub place: Box<str>,
    /// How many findings the item counts.
    pub findings: NonZeroU32,
    /// The exit status that means a finding; `None` if a program that keeps running replied.
    pub status: Option<u8>,
    /// How many items the process had. It is unknown which of them has the finding; it is stored
    /// with the first.
    pub items: u32,
    /// The end of the standard output of the process, or the message of the reply; empty if the
    /// output was not captured.
    pub text: Box<[u8]>,
    /// Whether the beginning of the output, or the end of the message, was left out.
    pub is_cut: bool,
}

/// Stored bytes that are no finding of a command in a layout that this version reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the stored finding of a command is not readable by this version")]
#[non_exhaustive]
pub struct UnreadableCommandFinding;

impl CommandFinding {
    /// Maximum number of bytes of output that are kept: as of the standard error of a failed item.
    /// A run stores so much for each item with findings.
    pub const TEXT_MAX: usize = 4096;

    /// Returns what a process found that ended with `status`. `output` is the end of `written`
    /// bytes.
    pub(crate) fn of_process(status: u8, items: usize, output: Vec<u8>, written: u64) -> Self {
        let cut = written > output.len() as u64;
        Self {
            place: Box::default(),
            findings: NonZeroU32::MIN,
            status: Some(status),
            items: u32::try_from(items).unwrap_or(u32::MAX),
            text: if cut { whole_characters(&output).into() } else { output.into() },
            is_cut: cut,
        }
    }

    /// Returns what a program found that keeps running, with at most `max` bytes of its message.
    pub(crate) fn of_reply(findings: NonZeroU32, message: &str, max: usize) -> Self {
        let text = clip(message, max);
        Self {
            place: Box::default(),
            findings,
            status: None,
            items: 1,
            text: text.as_bytes().into(),
            is_cut: text.len() < message.len(),
        }
    }

    /// Returns the text to store, for the item at `place`.
    pub(crate) fn encode(&self, place: &str) -> Box<[u8]> {
        let stored = json!({
            "command": VERSION,
            "place": clip(place, PLACE_MAX),
            "findings": self.findings.get(),
            "status": self.status,
            "items": self.items,
            "text": text_of(&self.text),
            "cut": self.is_cut,
        });
        stored.to_string().into_bytes().into()
    }

    /// Reads the stored results of an item.
    ///
    /// # Errors
    ///
    /// [`UnreadableCommandFinding`]: another processor than a command wrote them, or another
    /// version of this program.
    pub fn decode(content: &[u8]) -> Result<Self, UnreadableCommandFinding> {
        let stored: Option<Value> = serde_json::from_slice(content).ok();
        stored.as_ref().and_then(Self::of_stored).ok_or(UnreadableCommandFinding)
    }

    fn of_stored(stored: &Value) -> Option<Self> {
        let number = |name: &str| stored.get(name).and_then(Value::as_u64);
        if number("command")? != u64::from(VERSION) {
            return None;
        }
        let status = match stored.get("status")? {
            Value::Null => None,
            status => Some(u8::try_from(status.as_u64()?).ok()?),
        };
        Some(Self {
            place: stored.get("place")?.as_str()?.into(),
            findings: NonZeroU32::new(u32::try_from(number("findings")?).ok()?)?,
            status,
            items: u32::try_from(number("items")?).ok()?,
            text: bytes_of(stored.get("text")?)?,
            is_cut: stored.get("cut")?.as_bool()?,
        })
    }
}

// Sizes only: place and text belong to the user.
impl fmt::Debug for CommandFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CommandFinding")
            .field("findings", &self.findings)
            .field("status", &self.status)
            .field("text", &self.text.len())
            .finish_non_exhaustive()
    }
}

fn text_of(bytes: &[u8]) -> Value {
    match std::str::from_utf8(bytes) {
        Ok(text) => json!(text),
        // An object and not a text, so no text can be mistaken for digits.
        Err(_) => {
            let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            json!({ "hex": digits })
        }
    }
}

fn bytes_of(stored: &Value) -> Option<Box<[u8]>> {
    if let Some(text) = stored.as_str() {
        return Some(text.as_bytes().into());
    }
    let (pairs, rest) = stored.get("hex")?.as_str()?.as_bytes().as_chunks::<2>();
    let digit = |digit: u8| char::from(digit).to_digit(16);
    let byte = |[high, low]: &[u8; 2]| u8::try_from(digit(*high)? * 16 + digit(*low)?).ok();
    pairs.iter().map(byte).collect::<Option<_>>().filter(|_| rest.is_empty())
}

/// Removes the end of a character at the start, so that a text whose start was cut off is a text.
fn whole_characters(bytes: &[u8]) -> &[u8] {
    let is_rest = |byte: &&u8| **byte & 0xc0 == 0x80;
    &bytes[bytes.iter().take(3).take_while(is_rest).count()..]
}

/// Returns the start of a text, at most `max` bytes.
fn clip(text: &str, max: usize) -> &str {
    &text[..text.floor_char_boundary(max)]
}

#[cfg(test)]
#[path = "command_finding_tests.rs"]
mod tests;
