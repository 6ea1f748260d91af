//! Lifecycle events.

use gossip_contracts::coordination::{MAX_INITIAL_SHARDS, MAX_SPLIT_CHILDREN};
use gossip_contracts::identity::{
    FenceEpoch, LogicalTime, Redacted, RunId, ShardId, TenantId, WorkerId,
};

use super::fields::{Fields, Put, corrupt, flag_if};
use super::frame::{open, seal};
use crate::error::InfraError;
use crate::events::EventKind;
use crate::handoff::HandoffId;
use crate::record::{ParkReason, holds};
use crate::request::ShardAction;
use crate::store::key::Key;
use crate::stored_events::{EventWriter, StoredEvent};

const HAS_WORKER: u8 = 1;
const HAS_PREVIOUS: u8 = 2;
const EVENT_FLAGS: u8 = HAS_WORKER | HAS_PREVIOUS;

/// The kinds of stored events. The numbers are persisted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(in crate::store) enum EventCode {
    ShardAcquired = 0,
    ShardResidualCreated = 1,
    ShardUnparked = 2,
    ShardCompleted = 3,
    ShardParked = 4,
    ShardSplit = 5,
    ShardReleased = 6,
    ShardOffered = 7,
    ShardOfferWithdrawn = 8,
    ShardActionRequested = 9,
    ShardLeaseRevoked = 10,
    RunCreated = 11,
    RunActivated = 12,
    RunCompleted = 13,
    RunFailed = 14,
    RunCancelled = 15,
    RunPaused = 16,
    RunResumed = 17,
}

impl EventCode {
    /// Every kind, in the order of its number.
    pub(in crate::store) const ALL: [Self; 18] = [
        Self::ShardAcquired,
        Self::ShardResidualCreated,
        Self::ShardUnparked,
        Self::ShardCompleted,
        Self::ShardParked,
        Self::ShardSplit,
        Self::ShardReleased,
        Self::ShardOffered,
        Self::ShardOfferWithdrawn,
        Self::ShardActionRequested,
        Self::ShardLeaseRevoked,
        Self::RunCreated,
        Self::RunActivated,
        Self::RunCompleted,
        Self::RunFailed,
        Self::RunCancelled,
        Self::RunPaused,
        Self::RunResumed,
    ];

    /// The kind stored under `number`, if there is one.
    fn from_u8(number: u8) -> Option<Self> {
        // A number of a newer program is refused by the caller, not mapped to a known kind.
        Self::ALL.get(usize::from(number)).copied()
    }

    /// The kind of an event; `None` if such events are not stored.
    const fn of(kind: &EventKind) -> Option<Self> {
        Some(match kind {
            EventKind::ShardAcquired { .. } => Self::ShardAcquired,
            EventKind::ShardResidualCreated { .. } => Self::ShardResidualCreated,
            EventKind::ShardUnparked { .. } => Self::ShardUnparked,
            EventKind::ShardCompleted { .. } => Self::ShardCompleted,
            EventKind::ShardParked { .. } => Self::ShardParked,
            EventKind::ShardSplit { .. } => Self::ShardSplit,
            EventKind::ShardReleased { .. } => Self::ShardReleased,
            EventKind::ShardOffered { .. } => Self::ShardOffered,
            EventKind::ShardOfferWithdrawn { .. } => Self::ShardOfferWithdrawn,
            EventKind::ShardActionRequested { .. } => Self::ShardActionRequested,
            EventKind::ShardLeaseRevoked { .. } => Self::ShardLeaseRevoked,
            EventKind::RunCreated => Self::RunCreated,
            EventKind::RunActivated { .. } => Self::RunActivated,
            EventKind::RunCompleted => Self::RunCompleted,
            EventKind::RunFailed => Self::RunFailed,
            EventKind::RunCancelled => Self::RunCancelled,
            EventKind::RunPaused => Self::RunPaused,
            EventKind::RunResumed => Self::RunResumed,
            EventKind::ShardCheckpointed { .. }
            | EventKind::ShardLeaseRenewed { .. }
            | EventKind::RunDeleted => return None,
        })
    }
}

/// The requested actions, by the numbers that the hot part has for them.
const ACTIONS: [&str; 4] = [
    ShardAction::Split(None).label(),
    ShardAction::Release.label(),
    ShardAction::HandOff(None).label(),
    ShardAction::Withdraw.label(),
];

/// Replaces `out` by an event of `run`.
///
/// # Panics
///
/// Panics if events of this kind are not stored, such as checkpoints.
pub fn encode_event(tenant: TenantId, run: RunId, event: &StoredEvent, out: &mut Vec<u8>) {
    let slot = StoredEvent::slot_of(event.sequence);
    let key = Key::Event { tenant, run, writer: event.writer.as_raw(), slot };
    seal(&key, out, |out| write_event(out, event));
}

/// Reads the event in a slot of a writer's ring.
///
/// # Errors
///
/// Returns [`InfraError::Corruption`] if the value is damaged.
pub fn decode_event(
    tenant: TenantId,
    run: RunId,
    (writer, slot): (EventWriter, u16),
    value: &[u8],
) -> Result<StoredEvent, InfraError> {
    let key = Key::Event { tenant, run, writer: writer.as_raw(), slot };
    let mut fields = open(&key, value)?;
    let flags = fields.flags("flags", EVENT_FLAGS)?;
    let code = fields.number("kind", EventCode::from_u8)?;
    let (sequence, earlier) = (fields.u64("sequence")?, fields.u64("earlier")?);
    let at = LogicalTime::from_raw(fields.u64("at")?);
    let mut by = |flag, field| {
        let id = flags.optional(flag, || fields.u64(field))?;
        Ok(id.map(|id| Redacted::new(WorkerId::from_raw(id))))
    };
    let (worker, previous) = (by(HAS_WORKER, "worker")?, by(HAS_PREVIOUS, "previous")?);
    // Each of them is another event, with a number below.
    fields.require(holds(earlier <= sequence, "fewer events than numbers are before it"))?;
    let kind = read_kind(code, worker, &mut fields)?;
    fields.finish()?;
    if StoredEvent::slot_of(sequence) != slot {
        // The checksum covers the slot, so only a writer of rings of another length gets here.
        return Err(corrupt(key.kind(), "the slot is not that of the number"));
    }
    Ok(StoredEvent { writer, sequence, earlier, at, worker, previous, kind })
}

fn read_kind(
    code: EventCode,
    worker: Option<Redacted<WorkerId>>,
    fields: &mut Fields<'_>,
) -> Result<EventKind, InfraError> {
    let mut id = |field| fields.u64(field).map(ShardId::from_raw);
    Ok(match code {
        EventCode::ShardAcquired => {
            let (shard, fence_epoch) = (id("shard")?, read_fence(fields)?);
            let worker = worker.ok_or_else(|| fields.refuse("worker", "a grant names none"))?;
            EventKind::ShardAcquired { shard, worker, fence_epoch }
        }
        EventCode::ShardResidualCreated => {
            EventKind::ShardResidualCreated { parent: id("shard")?, residual: id("residual")? }
        }
        EventCode::ShardUnparked => {
            EventKind::ShardUnparked { shard: id("shard")?, new_fence_epoch: read_fence(fields)? }
        }
        EventCode::ShardCompleted => EventKind::ShardCompleted { shard: id("shard")? },
        EventCode::ShardParked => EventKind::ShardParked {
            shard: id("shard")?,
            reason: fields.number("reason", ParkReason::from_u8)?,
        },
        EventCode::ShardSplit => {
            let parent = id("shard")?;
            let count = fields.len("child_count", MAX_SPLIT_CHILDREN)?;
            let child = |_| fields.u64("child.id").map(ShardId::from_raw);
            EventKind::ShardSplit {
                parent,
                children: (0..count).map(child).collect::<Result<_, _>>()?,
            }
        }
        EventCode::ShardReleased => EventKind::ShardReleased { shard: id("shard")? },
        EventCode::ShardOffered => {
            EventKind::ShardOffered { shard: id("shard")?, handoff: read_handoff(fields)? }
        }
        EventCode::ShardOfferWithdrawn => {
            EventKind::ShardOfferWithdrawn { shard: id("shard")?, handoff: read_handoff(fields)? }
        }
        EventCode::ShardActionRequested => {
            let action = |number: u8| ACTIONS.get(usize::from(number)).copied();
            EventKind::ShardActionRequested {
                shard: id("shard")?,
                action: fields.number("action", action)?,
            }
        }
        EventCode::ShardLeaseRevoked => EventKind::ShardLeaseRevoked {
            shard: id("shard")?,
            new_fence_epoch: read_fence(fields)?,
        },
        EventCode::RunCreated => EventKind::RunCreated,
        EventCode::RunActivated => {
            let shard_count = fields.len("shard_count", MAX_INITIAL_SHARDS)?;
            EventKind::RunActivated { shard_count }
        }
        EventCode::RunCompleted => EventKind::RunCompleted,
        EventCode::RunFailed => EventKind::RunFailed,
        EventCode::RunCancelled => EventKind::RunCancelled,
        EventCode::RunPaused => EventKind::RunPaused,
        EventCode::RunResumed => EventKind::RunResumed,
    })
}

fn read_fence(fields: &mut Fields<'_>) -> Result<FenceEpoch, InfraError> {
    fields.nonzero_u64("fence").map(FenceEpoch::from_raw)
}

fn read_handoff(fields: &mut Fields<'_>) -> Result<HandoffId, InfraError> {
    fields.u64("handoff").map(HandoffId::from_raw)
}

pub(in crate::store) fn write_event(out: &mut impl Put, event: &StoredEvent) {
    let StoredEvent { writer: _, sequence, earlier, at, worker, previous, kind } = event;
    let code = EventCode::of(kind).expect("only lifecycle events are stored");
    let flags = flag_if(worker.is_some(), HAS_WORKER) | flag_if(previous.is_some(), HAS_PREVIOUS);
    out.put_u8("flags", flags);
    out.put_u8("kind", code as u8);
    out.put_u64("sequence", *sequence);
    out.put_u64("earlier", *earlier);
    out.put_u64("at", at.as_raw());
    if let Some(worker) = worker {
        out.put_u64("worker", worker.into_inner().as_raw());
    }
    if let Some(previous) = previous {
        out.put_u64("previous", previous.into_inner().as_raw());
    }
    write_kind(out, kind);
}

/// Writes what an event has besides the fields of all events.
fn write_kind(out: &mut impl Put, kind: &EventKind) {
    let shard = |out: &mut _, shard: &ShardId| Put::put_u64(out, "shard", shard.as_raw());
    match kind {
        // The worker is written before, because other events have one, too.
        EventKind::ShardAcquired { shard: id, worker: _, fence_epoch } => {
            shard(out, id);
            out.put_u64("fence", fence_epoch.as_raw());
        }
        EventKind::ShardResidualCreated { parent, residual } => {
            shard(out, parent);
            out.put_u64("residual", residual.as_raw());
        }
        EventKind::ShardUnparked { shard: id, new_fence_epoch }
        | EventKind::ShardLeaseRevoked { shard: id, new_fence_epoch } => {
            shard(out, id);
            out.put_u64("fence", new_fence_epoch.as_raw());
        }
        EventKind::ShardCompleted { shard: id } | EventKind::ShardReleased { shard: id } => {
            shard(out, id);
        }
        EventKind::ShardParked { shard: id, reason } => {
            shard(out, id);
            out.put_u8("reason", *reason as u8);
        }
        EventKind::ShardSplit { parent, children } => {
            assert!(children.len() <= MAX_SPLIT_CHILDREN, "a split is within its limit");
            shard(out, parent);
            out.put_len("child_count", children.len());
            children.iter().for_each(|child| out.put_u64("child.id", child.as_raw()));
        }
        EventKind::ShardOffered { shard: id, handoff }
        | EventKind::ShardOfferWithdrawn { shard: id, handoff } => {
            shard(out, id);
            out.put_u64("handoff", handoff.as_raw());
        }
        EventKind::ShardActionRequested { shard: id, action } => {
            let number = ACTIONS.iter().position(|known| known == action);
            let number = number.and_then(|number| u8::try_from(number).ok());
            shard(out, id);
            out.put_u8("action", number.expect("an action has one of the labels"));
        }
        EventKind::RunActivated { shard_count } => out.put_len("shard_count", *shard_count),
        EventKind::RunCreated
        | EventKind::RunCompleted
        | EventKind::RunFailed
        | EventKind::RunCancelled
        | EventKind::RunPaused
        | EventKind::RunResumed => {}
        EventKind::ShardCheckpointed { .. }
        | EventKind::ShardLeaseRenewed { .. }
        | EventKind::RunDeleted => unreachable!("only lifecycle events are stored"),
    }
}
