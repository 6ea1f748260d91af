//! The answer of a command: a line for the reader and a label for the coverage matrix.

use std::fmt::Debug;

use gossip_coordination::{CapacityHint, IdempotentOutcome};

/// The operation was executed now.
pub(super) const EXECUTED: &str = "executed";
/// The operation had been executed before.
const REPLAYED: &str = "replayed";

/// Newtype wrappers that are removed from output, because the field name already identifies them.
const WRAPPERS: [&str; 7] =
    ["FenceEpoch(", "LogicalTime(", "OpSequence(", "ShardId(", "RunId(", "OpId(", "HandoffId("];

/// Variants whose inner variant is a separate rule.
const NESTED: [&str; 2] = ["SplitInvalid", "ManifestInvalid"];

/// The answer of one operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    /// `executed`, `replayed`, or the variant of a refusal.
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

    /// The answer of an operation without an operation id.
    pub(super) fn of<T, E: Debug>(result: Result<T, E>, show: impl FnOnce(T) -> String) -> Self {
        match result {
            Ok(value) => Self::done(show(value)),
            Err(error) => Self::refused(&error),
        }
    }

    /// The answer of an operation that is idempotent by its operation id.
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

/// Removes the wrappers around numbers from `Debug` output.
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

/// Formats a key: as text if it is short, otherwise as its length.
pub(super) fn key(bytes: &[u8]) -> String {
    const SHOWN_MAX: usize = 32;
    match std::str::from_utf8(bytes) {
        Ok(text) if bytes.len() <= SHOWN_MAX => text.to_owned(),
        _ => format!("<{} bytes>", bytes.len()),
    }
}

/// Formats the capacity hint of a grant or renewal.
pub(super) fn capacity(hint: CapacityHint) -> String {
    let next = hint.earliest_deadline.map_or_else(|| "none".to_owned(), |at| at.to_string());
    format!("available={} next={next}", hint.available_count)
}

/// Returns the variant of a refusal, with a detail where two rules share the variant.
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

/// Returns the detail that distinguishes two rules with the same variant.
fn detail<'t>(name: &str, text: &'t str) -> Option<&'t str> {
    let field = |field| text.split_once(field).map(|(_, rest)| identifier(rest));
    match name {
        // A zombie presents an older fence; a released or forged lease presents the current one.
        "StaleFence" => (field("presented: ") == field("current: ")).then_some("same"),
        "ShardLimitExceeded" => field("scope: "),
        "InvalidSpec" => field("reason: "),
        _ => None,
    }
}

/// Returns the identifier at the start of `text`.
fn identifier(text: &str) -> &str {
    let end = text.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(text.len());
    &text[..end]
}
