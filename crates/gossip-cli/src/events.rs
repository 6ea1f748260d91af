//! Lines for the events of the kernel.
//!
//! They name runs and shards by id, and never a key, an owner or a token.

use gossip::coordination::{EventKind, StateTransitionEvent};
use gossip::identity::{FenceEpoch, ShardId};

use crate::console::Console;
use crate::output::count;
use crate::shards;

/// Prints the line of an event: with `-v`, checkpoints and renewals with `-vv`.
pub(crate) fn print(console: &Console, event: &StateTransitionEvent) {
    match line(event) {
        Some(Line::Lifecycle(text)) => console.detail(&text),
        Some(Line::Frequent(text)) => console.debug(&text),
        None => {}
    }
}

/// A line, by how often its events occur.
#[derive(Debug, PartialEq, Eq)]
enum Line {
    /// A few times per shard.
    Lifecycle(String),
    /// For as long as a shard is held.
    Frequent(String),
}

/// Formats an event; `None` for a kind that this program does not know.
fn line(event: &StateTransitionEvent) -> Option<Line> {
    let what = describe(&event.kind)?;
    let text = match what.shard {
        Some(shard) => about(shard, &what.text),
        None => format!("run {:016x}: {}", event.run.as_raw(), what.text),
    };
    Some(if what.is_frequent { Line::Frequent(text) } else { Line::Lifecycle(text) })
}

/// What an event says, in words.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Described {
    /// `None` for an event of the run.
    pub(crate) shard: Option<ShardId>,
    /// The name of the kind, for programs.
    pub(crate) name: &'static str,
    pub(crate) text: String,
    is_frequent: bool,
}

/// Describes an event; `None` for a kind that this program does not know.
pub(crate) fn describe(kind: &EventKind) -> Option<Described> {
    let of = |shard: Option<ShardId>, name, text: String| Described {
        shard,
        name,
        text,
        is_frequent: false,
    };
    let of_run = |name, text: &str| of(None, name, text.to_owned());
    let of_shard = |shard: &ShardId, name, text: String| of(Some(*shard), name, text);
    let fence = |fence: &FenceEpoch| format!("fence {}", fence.as_raw());
    Some(match kind {
        EventKind::ShardAcquired { shard, fence_epoch, .. } => {
            of_shard(shard, "acquired", format!("acquired, {}", fence(fence_epoch)))
        }
        EventKind::ShardCheckpointed { shard, .. } => {
            let described = of_shard(shard, "checkpoint", "checkpoint".to_owned());
            Described { is_frequent: true, ..described }
        }
        EventKind::ShardLeaseRenewed { shard, .. } => {
            let described = of_shard(shard, "renewed", "lease renewed".to_owned());
            Described { is_frequent: true, ..described }
        }
        EventKind::ShardResidualCreated { parent, residual } => {
            let text = format!("split off shard {:016x}", residual.as_raw());
            of_shard(parent, "split_off", text)
        }
        EventKind::ShardSplit { parent, children } => {
            let text = format!("replaced by {}", count(children.len() as u64, "shard"));
            of_shard(parent, "replaced", text)
        }
        EventKind::ShardCompleted { shard } => of_shard(shard, "done", "done".to_owned()),
        EventKind::ShardParked { shard, reason } => {
            of_shard(shard, "parked", format!("parked ({})", shards::reason_word(*reason)))
        }
        EventKind::ShardUnparked { shard, new_fence_epoch } => {
            of_shard(shard, "unparked", format!("unparked, {}", fence(new_fence_epoch)))
        }
        EventKind::ShardReleased { shard } => of_shard(shard, "released", "released".to_owned()),
        EventKind::ShardOffered { shard, .. } => {
            of_shard(shard, "offered", "offered to another worker".to_owned())
        }
        EventKind::ShardOfferWithdrawn { shard, .. } => {
            of_shard(shard, "offer_withdrawn", "offer withdrawn".to_owned())
        }
        EventKind::ShardActionRequested { shard, action } => {
            of_shard(shard, "requested", format!("{action} requested"))
        }
        EventKind::ShardLeaseRevoked { shard, new_fence_epoch } => {
            of_shard(shard, "revoked", format!("lease revoked, {}", fence(new_fence_epoch)))
        }
        EventKind::RunCreated => of_run("run_created", "created"),
        EventKind::RunActivated { shard_count } => {
            let shards = count(*shard_count as u64, "shard");
            of(None, "run_active", format!("active, {shards}"))
        }
        EventKind::RunCompleted => of_run("run_done", "every shard is done"),
        EventKind::RunFailed => of_run("run_failed", "marked as failed"),
        EventKind::RunCancelled => of_run("run_cancelled", "cancelled"),
        EventKind::RunPaused => of_run("run_paused", "paused"),
        EventKind::RunResumed => of_run("run_resumed", "resumed"),
        EventKind::RunDeleted => of_run("run_deleted", "deleted"),
        // The coordinator's enum may grow.
        _ => return None,
    })
}

fn about(shard: ShardId, what: &str) -> String {
    format!("shard {:016x}: {what}", shard.as_raw())
}

#[cfg(test)]
#[path = "events_tests.rs"]
mod tests;
