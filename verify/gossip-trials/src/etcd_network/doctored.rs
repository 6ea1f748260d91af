//! Histories that are made wrong on purpose: each must be refused, or the check shows nothing.
//!
//! A kind of doctoring changes one result of a correct history so that no sequential shard has it.
//! The campaign doctors its own histories; the unit tests doctor one that is written by hand.

use super::linear::{Answer, Effect, Operation, Write};

/// Nanoseconds: a time that lies between two others.
const INSTANT: u64 = 1;

/// A way to make a history wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Doctoring {
    StaleCheckpointAccepted,
    StaleRenewalAccepted,
    CursorFalls,
    FenceTwice,
    FenceBackwards,
    FenceSkipped,
    AcknowledgedCheckpointLost,
    LiveLeaseTaken,
    GrantAfterCompletion,
    CurrentFenceRefused,
    ExecutedTwice,
    ReplayedWithoutExecution,
    WrittenAfterRelease,
    EffectBeforeCall,
    FinalCursorOlder,
    FinalFenceOlder,
}

impl Doctoring {
    pub(super) const ALL: [Self; 16] = [
        Self::StaleCheckpointAccepted,
        Self::StaleRenewalAccepted,
        Self::CursorFalls,
        Self::FenceTwice,
        Self::FenceBackwards,
        Self::FenceSkipped,
        Self::AcknowledgedCheckpointLost,
        Self::LiveLeaseTaken,
        Self::GrantAfterCompletion,
        Self::CurrentFenceRefused,
        Self::ExecutedTwice,
        Self::ReplayedWithoutExecution,
        Self::WrittenAfterRelease,
        Self::EffectBeforeCall,
        Self::FinalCursorOlder,
        Self::FinalFenceOlder,
    ];

    /// Returns a wrong history, or `None` if this one has nothing that can be doctored so.
    /// Histories with lost grants are left alone: one may explain a fence that was doctored.
    pub(super) fn apply(self, operations: &[Operation]) -> Option<Vec<Operation>> {
        if operations.iter().any(|it| it.effect == Effect::LostGrant) {
            return None;
        }
        let mut wrong = operations.to_vec();
        wrong.sort_by_key(|it| it.call);
        match self {
            Self::StaleCheckpointAccepted => {
                let (old, new) = takeover(&wrong)?;
                let write = Write::Checkpoint { cursor: u64::MAX };
                let effect = executed(old, write);
                wrong.push(after(&wrong[new], effect));
            }
            Self::StaleRenewalAccepted => {
                let (fence, new) = takeover(&wrong)?;
                let effect = Effect::Renew { fence, deadline: u64::MAX, now: 1 };
                wrong.push(after(&wrong[new], effect));
            }
            Self::CursorFalls => {
                let (index, _) = checkpoints(&wrong).into_iter().rev().find(|it| it.1 > 1)?;
                let Effect::Write { fence, .. } = wrong[index].effect else { return None };
                let effect = executed(fence, Write::Checkpoint { cursor: 0 });
                wrong.insert(index + 1, after(&wrong[index], effect));
            }
            Self::FenceTwice => change_last_grant(&mut wrong, |fence, _| *fence -= 1)?,
            Self::FenceBackwards => change_last_grant(&mut wrong, |fence, _| *fence = 0)?,
            Self::FenceSkipped => change_last_grant(&mut wrong, |fence, _| *fence += 1)?,
            Self::AcknowledgedCheckpointLost => {
                change_last_grant(&mut wrong, |_, cursor| *cursor = cursor.wrapping_sub(1))?;
            }
            Self::LiveLeaseTaken => take_live_lease(&mut wrong)?,
            Self::GrantAfterCompletion => {
                let grant = grant_after_completion(&wrong)?;
                wrong.push(grant);
            }
            Self::CurrentFenceRefused => {
                let (index, _) = *checkpoints(&wrong).first()?;
                let Effect::Write { fence, .. } = wrong[index].effect else { return None };
                wrong.push(after_grant(&wrong, fence, Effect::Stale { fence })?);
            }
            Self::ExecutedTwice => {
                let (index, _) = *checkpoints(&wrong).last()?;
                let again = wrong[index].effect.clone();
                wrong.push(after(&wrong[index], again));
            }
            Self::ReplayedWithoutExecution => {
                let (index, _) = *checkpoints(&wrong).last()?;
                let Effect::Write { answer, .. } = &mut wrong[index].effect else { return None };
                *answer = Answer::Replayed;
            }
            Self::WrittenAfterRelease => {
                let (index, _) = *checkpoints(&wrong).first()?;
                let Effect::Write { fence, .. } = wrong[index].effect else { return None };
                let release = executed(fence, Write::Release);
                wrong.push(after_grant(&wrong, fence, release)?);
            }
            Self::EffectBeforeCall => {
                let (index, _) = *checkpoints(&wrong).first()?;
                let last = wrong.iter().filter_map(|it| it.end).max()?;
                (wrong[index].call, wrong[index].end) = (last + INSTANT, Some(last + 2 * INSTANT));
            }
            Self::FinalCursorOlder => change_final(&mut wrong, |_, cursor| {
                *cursor = cursor.wrapping_sub(1);
            })?,
            Self::FinalFenceOlder => change_final(&mut wrong, |fence, _| *fence -= 1)?,
        }
        Some(wrong)
    }
}

/// Returns the fence before a takeover, and the index of the grant.
fn takeover(operations: &[Operation]) -> Option<(u64, usize)> {
    let index = operations.iter().rposition(|it| is_takeover(operations, it))?;
    let Effect::Grant { fence, .. } = operations[index].effect else { return None };
    Some((fence - 1, index))
}

/// Returns whether an operation is a grant that follows another one.
fn is_takeover(operations: &[Operation], operation: &Operation) -> bool {
    let Effect::Grant { fence, .. } = operation.effect else { return false };
    let before =
        |it: &Operation| matches!(it.effect, Effect::Grant { fence: of, .. } if of < fence);
    operations.iter().any(before)
}

/// Returns the checkpoints that were executed, with their cursors.
fn checkpoints(operations: &[Operation]) -> Vec<(usize, u64)> {
    let mut found = Vec::new();
    for (index, it) in operations.iter().enumerate() {
        if let Effect::Write {
            write: Write::Checkpoint { cursor }, answer: Answer::Executed, ..
        } = it.effect
        {
            found.push((index, cursor));
        }
    }
    found
}

/// Returns a grant of a shard that was completed before.
fn grant_after_completion(operations: &[Operation]) -> Option<Operation> {
    operations.iter().find_map(|it| {
        let Effect::Write { fence, write: Write::Complete { cursor }, answer, .. } = it.effect
        else {
            return None;
        };
        let now = u64::MAX / 2;
        let grant = Effect::Grant { fence: fence + 1, cursor, deadline: now, now };
        (answer == Answer::Executed).then(|| after(it, grant))
    })
}

const fn executed(fence: u64, write: Write) -> Effect {
    Effect::Write { fence, op: u64::MAX, write, answer: Answer::Executed }
}

/// Returns an operation that was called when another one had returned.
fn after(other: &Operation, effect: Effect) -> Operation {
    let call = other.end.unwrap_or(other.call) + INSTANT;
    Operation { worker: other.worker, call, end: Some(call), effect }
}

/// Returns an operation right after the grant of a fence, before all others under it.
fn after_grant(operations: &[Operation], fence: u64, effect: Effect) -> Option<Operation> {
    let is_it =
        |it: &&Operation| matches!(it.effect, Effect::Grant { fence: of, .. } if of == fence);
    Some(after(operations.iter().find(is_it)?, effect))
}

fn change_last_grant(
    operations: &mut [Operation],
    change: impl FnOnce(&mut u64, &mut u64),
) -> Option<()> {
    let (_, index) = takeover(operations)?;
    let Effect::Grant { fence, cursor, .. } = &mut operations[index].effect else { return None };
    change(fence, cursor);
    Some(())
}

/// Makes every clock read a time before the first deadline, up to the first takeover of a lease
/// that was not given back.
fn take_live_lease(operations: &mut [Operation]) -> Option<()> {
    let is_release = |fence: u64, it: &Operation| {
        let Effect::Write { fence: written, write, .. } = it.effect else { return false };
        written == fence && write == Write::Release
    };
    let taken = operations.iter().position(|it| {
        let Effect::Grant { fence, .. } = it.effect else { return false };
        is_takeover(operations, it) && !operations.iter().any(|other| is_release(fence - 1, other))
    })?;
    for operation in &mut operations[..=taken] {
        if let Effect::Grant { now, deadline, .. } | Effect::Renew { now, deadline, .. } =
            &mut operation.effect
        {
            (*now, *deadline) = (1, 2);
        }
    }
    Some(())
}

fn change_final(
    operations: &mut [Operation],
    change: impl FnOnce(&mut u64, &mut u64),
) -> Option<()> {
    let is_final = |it: &&mut Operation| matches!(it.effect, Effect::Final { .. });
    let last = operations.iter_mut().find(is_final)?;
    let Effect::Final { fence, cursor, .. } = &mut last.effect else { return None };
    change(fence, cursor);
    Some(())
}
