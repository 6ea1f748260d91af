//! Lines for the events of the kernel.
//!
//! They name runs and shards by id, and never a key, an owner or a token.

use gossip::coordination::{EventKind, StateTransitionEvent};
use gossip::identity::ShardId;

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
    let of_run = |what: &str| Line::Lifecycle(format!("run {:016x}: {what}", event.run.as_raw()));
    let of_shard = |shard: &ShardId, what: &str| Line::Lifecycle(about(*shard, what));
    Some(match &event.kind {
        EventKind::ShardAcquired { shard, fence_epoch, .. } => {
            of_shard(shard, &format!("acquired, fence {}", fence_epoch.as_raw()))
        }
        EventKind::ShardCheckpointed { shard, .. } => Line::Frequent(about(*shard, "checkpoint")),
        EventKind::ShardLeaseRenewed { shard, .. } => {
            Line::Frequent(about(*shard, "lease renewed"))
        }
        EventKind::ShardResidualCreated { parent, residual } => {
            of_shard(parent, &format!("split off shard {:016x}", residual.as_raw()))
        }
        EventKind::ShardSplit { parent, children } => {
            let children = count(children.len() as u64, "shard");
            of_shard(parent, &format!("replaced by {children}"))
        }
        EventKind::ShardCompleted { shard } => of_shard(shard, "done"),
        EventKind::ShardParked { shard, reason } => {
            of_shard(shard, &format!("parked ({})", shards::reason_word(*reason)))
        }
        EventKind::ShardUnparked { shard, new_fence_epoch } => {
            of_shard(shard, &format!("unparked, fence {}", new_fence_epoch.as_raw()))
        }
        EventKind::ShardReleased { shard } => of_shard(shard, "released"),
        EventKind::ShardOffered { shard, .. } => of_shard(shard, "offered to another worker"),
        EventKind::ShardOfferWithdrawn { shard, .. } => of_shard(shard, "offer withdrawn"),
        EventKind::ShardActionRequested { shard, action } => {
            of_shard(shard, &format!("{action} requested"))
        }
        EventKind::ShardLeaseRevoked { shard, new_fence_epoch } => {
            of_shard(shard, &format!("lease revoked, fence {}", new_fence_epoch.as_raw()))
        }
        EventKind::RunCreated => of_run("created"),
        EventKind::RunActivated { shard_count } => {
            of_run(&format!("active, {}", count(*shard_count as u64, "shard")))
        }
        EventKind::RunCompleted => of_run("every shard is done"),
        EventKind::RunFailed => of_run("marked as failed"),
        EventKind::RunCancelled => of_run("cancelled"),
        EventKind::RunPaused => of_run("paused"),
        EventKind::RunResumed => of_run("resumed"),
        EventKind::RunDeleted => of_run("deleted"),
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
