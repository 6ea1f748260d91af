//! What a transaction can do to the size of a database, whichever way its compares go.

use crate::proto::{Request, TxnRequest};

/// What a transaction can do to the size of the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Effect {
    /// It only reads, whichever way its compares go.
    None,
    /// It may delete, and writes nothing.
    Shrinks,
    /// It may write.
    Grows,
}

/// Returns the largest effect that any step of a transaction can have.
pub(crate) fn effect(request: &TxnRequest) -> Effect {
    // Both branches, because the server decides which one is executed.
    let steps = request.success.iter().chain(&request.failure);
    let effects = steps.map(|step| match &step.request {
        None | Some(Request::Range(_)) => Effect::None,
        Some(Request::DeleteRange(_)) => Effect::Shrinks,
        Some(Request::Put(_)) => Effect::Grows,
        Some(Request::Txn(inner)) => effect(inner),
    });
    effects.max().unwrap_or(Effect::None)
}
