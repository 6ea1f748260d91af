//! What a command came to: a line for the reader and a label for the coverage matrix.

use std::fmt::Debug;

use gossip_coordination::{CapacityHint, IdempotentOutcome};

/// The operation happened now.
pub(super) const EXECUTED: &str = "executed";
/// It had happened before.
const REPLAYED: &str = "replayed";

/// Wrappers that say what a number is; the field's name says it too.
const WRAPPERS: [&str; 6] =
    ["FenceEpoch(", "LogicalTime(", "ShardId(", "RunId(", "OpId(", "HandoffId("];

/// Variants whose inner variant is a rule of its own.
const NESTED: [&str; 2] = ["SplitInvalid", "ManifestInvalid"];

/// What one operation answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    /// `executed`, `replayed`, or the refusal's variant.
    pub(super) label: String,
    pub(super) text: String,
}

impl Answer {
    /// Success of an operation that is not idempotent by id.
    pub(super) fn done(text: impl Into<String>) -> Self {
        Self { label: EXECUTED.to_owned(), text: text.into() }
    }

    pub(super) fn refused(error: &impl Debug) -> Self {
        let text = plain(&format!("{error:?}"));
        Self { label: label(&text), text: format!("refused {text}") }
    }

    /// An operation without a number of its own.
    pub(super) fn of<T, E: Debug>(result: Result<T, E>, show: impl FnOnce(T) -> String) -> Self {
        match result {
            Ok(value) => Self::done(show(value)),
            Err(error) => Self::refused(&error),
        }
    }

    /// An operation that is remembered by its number.
    pub(super) fn outcome<T, E: Debug>(
        result: Result<IdempotentOutcome<T>, E>,
        show: impl FnOnce(T) -> String,
    ) -> Self {
        match result {
            Ok(outcome) => {
                let label = if outcome.is_replay() { REPLAYED } else { EXECUTED };
                let text = format!("{label} {}", show(outcome.into_inner()));
                Self { label: label.to_owned(), text: text.trim_end().to_owned() }
            }
            Err(error) => Self::refused(&error),
        }
    }
}

/// `Debug` output without wrappers around numbers.
pub(super) fn plain(debug: &str) -> String {
    let mut text = debug.to_owned();
    for wrapper in WRAPPERS {
        while let Some(start) = text.find(wrapper) {
            let length = text[start..].find(')').unwrap_or(wrapper.len());
            let number = text[start + wrapper.len()..start + length].to_owned();
            text.replace_range(start..=start + length, &number);
        }
    }
    text
}

/// How a key is shown: as text if it is short, else by its length.
pub(super) fn key(bytes: &[u8]) -> String {
    const SHOWN_MAX: usize = 32;
    match std::str::from_utf8(bytes) {
        Ok(text) if bytes.len() <= SHOWN_MAX => text.to_owned(),
        _ => format!("<{} bytes>", bytes.len()),
    }
}

/// What a grant or a renewal says about waiting work.
pub(super) fn capacity(hint: CapacityHint) -> String {
    let next = hint.earliest_deadline.map_or_else(|| "none".to_owned(), |at| at.to_string());
    format!("available={} next={next}", hint.available_count)
}

/// The variant of a refusal, with what tells apart two rules that share it.
fn label(text: &str) -> String {
    let name = identifier(text);
    if NESTED.contains(&name) {
        return format!("{name}.{}", label(&text[name.len() + 1..]));
    }
    match detail(name, text) {
        Some(detail) => format!("{name}.{detail}"),
        None => name.to_owned(),
    }
}

/// What tells apart two rules that answer with the same variant.
fn detail<'t>(name: &str, text: &'t str) -> Option<&'t str> {
    let field = |field| text.split_once(field).map(|(_, rest)| identifier(rest));
    match name {
        // Zombies present an older fence; a lease that was given back or forged the current one.
        "StaleFence" => (field("presented: ") == field("current: ")).then_some("same"),
        "ShardLimitExceeded" => field("scope: "),
        "InvalidSpec" => field("reason: "),
        _ => None,
    }
}

/// The name at the beginning of `text`.
fn identifier(text: &str) -> &str {
    let end = text.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(text.len());
    &text[..end]
}
