//! Values of the store: one law for each kind that is not a part of a shard.

use gossip_contracts::identity::{CanonicalHasher, Domain, LogicalTime, ShardId, WorkerId};
use gossip_coordination::store::{
    Key, decode_allotment, decode_claim_entry, decode_count, decode_event, decode_failure,
    decode_handoff, decode_mover_entry, decode_owner, decode_parked_entry, decode_results,
    decode_roots, decode_run_head, decode_schema, decode_tombstone, decode_worker,
    encode_allotment, encode_claim_entry, encode_event, encode_failure, encode_handoff,
    encode_mover_entry, encode_owner, encode_parked_entry, encode_results, encode_roots,
    encode_run_head, encode_schema, encode_tenant_count, encode_tombstone, encode_worker,
};
use gossip_coordination::{EventWriter, HandoffId, StoredEvent};

use crate::seal::{RUN, TENANT, same_again, shard};

/// Parsing a key never panics, and a valid key has no other encoding.
pub(crate) fn key(data: &[u8]) -> bool {
    let Ok(key) = Key::parse(data) else { return false };
    assert_eq!(key.to_bytes().as_bytes(), data);
    true
}

/// Decoding a count, an allotment or the format of a store never panics, and what decodes is
/// written the same again.
pub(crate) fn counter(data: &[u8]) -> bool {
    let tenant = TENANT;
    if let [_] = data {
        return same_again(Key::SchemaVersion, data, |value, again| {
            decode_schema(value).map(|format| encode_schema(format, again)).is_ok()
        });
    }
    let count = same_again(Key::TenantCounter { tenant }, data, |value, again| {
        let read = decode_count(tenant, value);
        read.map(|count| encode_tenant_count(tenant, count, again)).is_ok()
    });
    let allotment = same_again(Key::Allotment { tenant }, data, |value, again| {
        let read = decode_allotment(tenant, value);
        read.map(|allotment| encode_allotment(tenant, allotment, again)).is_ok()
    });
    count && allotment
}

/// Decoding a lifecycle event never panics, and what decodes is written the same again.
///
/// The slot follows from the number of the event, so it is taken from the payload.
pub(crate) fn event(data: &[u8]) -> bool {
    let (tenant, run, writer) = (TENANT, RUN, EventWriter::from_raw(3));
    let number = data.get(2..10).and_then(|bytes| bytes.try_into().ok());
    let slot = StoredEvent::slot_of(number.map_or(0, u64::from_le_bytes));
    same_again(Key::Event { tenant, run, writer: writer.as_raw(), slot }, data, |value, again| {
        let read = decode_event(tenant, run, (writer, slot), value);
        read.map(|event| encode_event(tenant, run, &event, again)).is_ok()
    })
}

/// Decoding an entry of an index never panics, and what decodes is written the same again.
///
/// The three indexes have entries without a payload; the first byte chooses among them.
pub(crate) fn index_entry(data: &[u8]) -> bool {
    let Some((&first, data)) = data.split_first() else { return false };
    let (tenant, shard, party) = (TENANT, shard(false), 9);
    let (at, handoff) = (LogicalTime::from_raw(4), HandoffId::from_raw(6));
    match first % 3 {
        0 => same_again(Key::ClaimIndex { tenant, shard, at }, data, |value, again| {
            let read = decode_claim_entry(tenant, shard, at, value);
            read.map(|()| encode_claim_entry(tenant, shard, at, again)).is_ok()
        }),
        1 => same_again(Key::ParkedIndex { tenant, shard }, data, |value, again| {
            let read = decode_parked_entry(tenant, shard, value);
            read.map(|context| encode_parked_entry(tenant, shard, context, again)).is_ok()
        }),
        _ => same_again(Key::HandoffIndex { tenant, party, handoff }, data, |value, again| {
            let read = decode_mover_entry(tenant, party, handoff, value);
            read.map(|()| encode_mover_entry(tenant, party, handoff, again)).is_ok()
        }),
    }
}

/// Decoding the stored value of a handoff never panics, and it is written the same again.
pub(crate) fn move_value(data: &[u8]) -> bool {
    let (tenant, handoff) = (TENANT, HandoffId::from_raw(6));
    same_again(Key::Handoff { tenant, handoff }, data, |value, again| {
        let Ok(read) = decode_handoff(tenant, handoff, value) else { return false };
        encode_handoff(tenant, handoff, read, again).expect("a decoded value can be encoded");
        true
    })
}

/// Decoding an owner key never panics, and what decodes is written the same again.
pub(crate) fn owner(data: &[u8]) -> bool {
    let (tenant, shard) = (TENANT, shard(false));
    same_again(Key::Owner { tenant, shard }, data, |value, again| {
        let read = decode_owner(tenant, shard, value);
        read.map(|owner| encode_owner(tenant, shard, &owner, again)).is_ok()
    })
}

/// Decoding the head of a run never panics, and what decodes is written the same again.
pub(crate) fn run_head(data: &[u8]) -> bool {
    let (tenant, run) = (TENANT, RUN);
    same_again(Key::RunHead { tenant, run }, data, |value, again| {
        let Ok(head) = decode_run_head(tenant, run, value) else { return false };
        let roots = head.roots();
        let count = if head.has_roots() { u64::from(roots.registered) } else { 0 };
        // Any roots will do: the head does not hold them.
        let record = head.into_record((0..count).map(ShardId::from_raw).collect());
        encode_run_head(&record.expect("as many unique roots as were counted"), roots, again);
        true
    })
}

/// Decoding a chunk of roots never panics, and what decodes is written the same again.
pub(crate) fn run_roots(data: &[u8]) -> bool {
    let (tenant, run, chunk) = (TENANT, RUN, 2);
    same_again(Key::RunRoots { tenant, run, chunk }, data, |value, again| {
        let mut ids = Vec::new();
        if decode_roots(tenant, run, chunk, value, &mut ids).is_err() {
            assert!(ids.is_empty(), "a refused chunk leaves nothing");
            return false;
        }
        encode_roots(tenant, run, chunk, &ids, again);
        true
    })
}

/// Decoding a tombstone never panics, and what decodes is written the same again.
pub(crate) fn tombstone(data: &[u8]) -> bool {
    let (tenant, run) = (TENANT, RUN);
    same_again(Key::Tombstone { tenant, run }, data, |value, again| {
        let read = decode_tombstone(tenant, run, value);
        read.map(|tombstone| encode_tombstone(tenant, run, &tombstone, again)).is_ok()
    })
}

/// Decoding an entry of the registry of workers never panics, and it is written the same again.
pub(crate) fn worker(data: &[u8]) -> bool {
    let (tenant, worker) = (TENANT, WorkerId::from_raw(5));
    same_again(Key::Worker { tenant, worker }, data, |value, again| {
        let read = decode_worker(tenant, worker, value);
        read.map(|entry| encode_worker(tenant, &entry, again)).is_ok()
    })
}

/// Decoding a side record never panics, and what decodes is written the same again.
///
/// The number of a failure follows from its item, so it is taken from the payload; the first byte
/// chooses between the kinds.
pub(crate) fn side_record(data: &[u8]) -> bool {
    let Some((&first, data)) = data.split_first() else { return false };
    let (tenant, shard) = (TENANT, shard(false));
    if first % 2 == 0 {
        let number = failure_number(data);
        return same_again(Key::Failure { tenant, shard, number }, data, |value, again| {
            let read = decode_failure(tenant, shard, number, value);
            read.map(|failure| encode_failure(tenant, shard, &failure, again)).is_ok()
        });
    }
    same_again(Key::ResultBlock { tenant, shard, block: 9 }, data, |value, again| {
        let read = decode_results(tenant, shard, 9, value);
        read.map(|block| encode_results(tenant, shard, &block, again)).is_ok()
    })
}

/// Returns the number of a failure with this payload, as far as it names an item.
fn failure_number(payload: &[u8]) -> u64 {
    let len = payload.get(18..20).map_or(0, |len| u16::from_le_bytes([len[0], len[1]]));
    let exit = payload.first().map_or(0, |flags| (flags & 3).count_ones() as usize * 4);
    let key = payload.get(28 + exit..).and_then(|rest| rest.get(..usize::from(len)));
    CanonicalHasher::for_domain(Domain::FAILURE_NUMBER_V1).finalize_64_with(key.unwrap_or(&[]))
}
