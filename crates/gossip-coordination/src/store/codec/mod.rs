//! Values: one encoder and one decoder for each kind of record.
//!
//! Every value is framed the same way (`frame`): format version, kind, length, payload, checksum.
//! The checksum covers the key too, so a record found under another key is corruption.
//!
//! | file | owns |
//! |---|---|
//! | `frame` | header and checksum of every payload |
//! | `event` | lifecycle events |
//! | `fields` | named fields of a payload, in and out |
//! | `shard` | hot and cold part of a shard |
//! | `run` | head and roots of a run, tombstones |
//! | `writing` | the format in which values are written |
//! | `side` | failed items, blocks of results |
//! | `small` | owners, index entries, counts, allotments, workers, handoffs |
//!
//! # Laws
//! - Encoding and decoding are inverse to each other, byte for byte.
//! - An encoder replaces the content of its buffer and allocates only to make that larger.
//! - A decoder refuses truncation, trailing bytes, unknown versions, kinds, flags and numbers,
//!   counts beyond their bound, and broken invariants, by
//!   [`InfraError::Corruption`](crate::InfraError::Corruption).

mod checked;
mod event;
mod fields;
mod frame;
mod run;
mod shard;
mod side;
mod small;
mod writing;

pub use self::checked::make_room;
pub use self::event::{decode_event, encode_event};
pub use self::frame::FORMAT_VERSION;
pub(super) use self::frame::{FORMAT_FIRST, refuse_newer, upgraded};
pub use self::run::{
    RootProgress, RunHeadPart, decode_roots, decode_run_head, decode_tombstone, encode_roots,
    encode_run_head, encode_tombstone,
};
pub use self::shard::{
    ColdPart, DecodeShardError, HotPart, SpawnedIds, StoredOps, decode_cold, decode_hot,
    decode_shard, encode_cold, encode_hot, join_shard,
};
pub(super) use self::shard::{check_pair, decode_own_shard, peek_indexed_at};
pub use self::side::{decode_failure, decode_results, encode_failure, encode_results};
pub use self::small::{
    HANDOFF_PAYLOAD_MAX, HandoffTooLarge, OwnerBinding, decode_allotment, decode_claim_entry,
    decode_count, decode_handoff, decode_mover_entry, decode_owner, decode_parked_entry,
    decode_schema, decode_worker, encode_allotment, encode_claim_entry, encode_handoff,
    encode_mover_entry, encode_owner, encode_parked_entry, encode_schema, encode_tenant_count,
    encode_worker,
};

pub(super) use self::writing::{StoreFormat, within};

#[cfg(test)]
pub(super) use self::{
    event::{EventCode, write_event},
    fields::Put,
    frame::{CHECKSUM_LEN, HEAD_LEN, of_next_format, reseal},
    run::{write_roots, write_run_head, write_tombstone},
    shard::{write_cold, write_hot},
    side::{write_failure, write_results},
    small::{
        write_allotment, write_count, write_handoff, write_owner, write_parked_entry, write_schema,
        write_worker,
    },
};

#[cfg(test)]
mod checked_tests;
