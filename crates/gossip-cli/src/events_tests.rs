//! Every kind of event has its line, and no line has a key or an owner.

use gossip::coordination::{HandoffId, ParkReason, RedactedKey};
use gossip::identity::{LogicalTime, Redacted, RunId, TenantId, WorkerId};
use rstest::rstest;

use super::*;

const SHARD: ShardId = ShardId::from_raw(0x3f2a);
const OTHER: ShardId = ShardId::from_raw(0x77);
const FENCE: FenceEpoch = FenceEpoch::from_raw(7);
const HANDOFF: HandoffId = HandoffId::from_raw(0x5ec);

fn of(kind: EventKind) -> StateTransitionEvent {
    let (tenant, at) = (TenantId::from_bytes([6; 32]), LogicalTime::from_raw(1_234));
    StateTransitionEvent { tenant, run: RunId::from_raw(0xab), at, kind }
}

#[rstest]
#[case(
    EventKind::ShardAcquired {
        shard: SHARD,
        worker: Redacted::new(WorkerId::from_raw(0x00c0_ffee)),
        fence_epoch: FENCE,
    },
    "shard 0000000000003f2a: acquired, fence 7"
)]
#[case(
    EventKind::ShardResidualCreated { parent: SHARD, residual: OTHER },
    "shard 0000000000003f2a: split off shard 0000000000000077"
)]
#[case(
    EventKind::ShardSplit { parent: SHARD, children: vec![OTHER, SHARD] },
    "shard 0000000000003f2a: replaced by 2 shards"
)]
#[case(EventKind::ShardCompleted { shard: SHARD }, "shard 0000000000003f2a: done")]
#[case(
    EventKind::ShardParked { shard: SHARD, reason: ParkReason::NotFound },
    "shard 0000000000003f2a: parked (not found)"
)]
#[case(
    EventKind::ShardUnparked { shard: SHARD, new_fence_epoch: FENCE },
    "shard 0000000000003f2a: unparked, fence 7"
)]
#[case(EventKind::ShardReleased { shard: SHARD }, "shard 0000000000003f2a: released")]
#[case(
    EventKind::ShardOffered { shard: SHARD, handoff: HANDOFF },
    "shard 0000000000003f2a: offered to another worker"
)]
#[case(
    EventKind::ShardOfferWithdrawn { shard: SHARD, handoff: HANDOFF },
    "shard 0000000000003f2a: offer withdrawn"
)]
#[case(
    EventKind::ShardActionRequested { shard: SHARD, action: "split" },
    "shard 0000000000003f2a: split requested"
)]
#[case(
    EventKind::ShardLeaseRevoked { shard: SHARD, new_fence_epoch: FENCE },
    "shard 0000000000003f2a: lease revoked, fence 7"
)]
#[case(EventKind::RunCreated, "run 00000000000000ab: created")]
#[case(EventKind::RunActivated { shard_count: 1 }, "run 00000000000000ab: active, 1 shard")]
#[case(EventKind::RunCompleted, "run 00000000000000ab: every shard is done")]
#[case(EventKind::RunFailed, "run 00000000000000ab: marked as failed")]
#[case(EventKind::RunCancelled, "run 00000000000000ab: cancelled")]
#[case(EventKind::RunPaused, "run 00000000000000ab: paused")]
#[case(EventKind::RunResumed, "run 00000000000000ab: resumed")]
#[case(EventKind::RunDeleted, "run 00000000000000ab: deleted")]
fn lifecycle_event_has_a_line_with_ids_only(#[case] kind: EventKind, #[case] expected: &str) {
    assert_eq!(line(&of(kind)), Some(Line::Lifecycle(expected.to_owned())));
}

#[rstest]
#[case(
    EventKind::ShardCheckpointed { shard: SHARD, last_key: RedactedKey::new(Some(b"secret")) },
    "shard 0000000000003f2a: checkpoint"
)]
#[case(
    EventKind::ShardLeaseRenewed { shard: SHARD, new_deadline: LogicalTime::from_raw(99) },
    "shard 0000000000003f2a: lease renewed"
)]
fn checkpoints_and_renewals_are_frequent_and_show_no_key(
    #[case] kind: EventKind,
    #[case] expected: &str,
) {
    assert_eq!(line(&of(kind)), Some(Line::Frequent(expected.to_owned())));
}
