//! The store layer: what every durable backend shares, and the only place where records are bytes.
//!
//! | file | owns |
//! |---|---|
//! | `key` | the typed keys of the one logical keyspace, and their bytes |
//! | `range` | half-open ranges of keys, for scans |
//! | `codec` | values: framing, checksum, and one encoder and decoder for each kind |
//! | `txn` | one atomic write, and what can become of it |
//! | `engine` | what a store does: read, commit, wait |
//! | `map_store` | a model of a store, with faults on demand |
//! | `flight` | one operation on its way, without I/O |
//! | `index` | where a shard stands in the indexes of its run |
//! | `retry` | how often a flight tries again, and how long it waits |
//! | `memory` | what a handle remembers of the shards that it holds |
//! | `loaded`, `owner` | what an operation on a shard looks at; who holds the shard after it |
//! | `shard_flight`, `renewals`, `run_flight`, `sweep`, `worker_flight`, `queries` | what flights do |
//! | `core`, `routes` | what a handle remembers, and its operations as flights |
//! | `coordinator` | the blocking and the asynchronous driver, and the backends on them |
//! | `shard_operations`, `run_operations` | what both backends offer, listed once |
//!
//! `docs/storage-format.md` gives the same byte by byte, and a test holds it to this code.
//!
//! # Never
//! - opens a file or a socket, reads a clock, or names an engine: an engine sees bytes;
//! - decides a rule of the protocol: what it decodes it checks, and then the kernel decides;
//! - panics on stored bytes, or reserves memory by a length that it read from them;
//! - shows a byte of a key, token, owner or tenant in an error: lengths, numbers and names of
//!   fields only.

mod codec;
mod coordinator;
mod core;
mod engine;
mod flight;
mod index;
mod key;
mod loaded;
mod map_store;
mod memory;
mod owner;
mod queries;
mod range;
mod renewals;
mod retry;
mod routes;
mod run_flight;
mod run_operations;
mod shard_flight;
mod shard_operations;
mod sweep;
mod txn;
mod worker_flight;

pub use self::codec::{
    ColdPart, DecodeShardError, FORMAT_VERSION, HANDOFF_PAYLOAD_MAX, HandoffTooLarge, HotPart,
    OwnerBinding, RootProgress, RunHeadPart, SpawnedIds, decode_claim_entry, decode_cold,
    decode_count, decode_handoff, decode_hot, decode_owner, decode_parked_entry, decode_roots,
    decode_run_head, decode_shard, decode_tombstone, decode_worker, encode_claim_entry,
    encode_cold, encode_handoff, encode_hot, encode_owner, encode_parked_entry, encode_roots,
    encode_run_head, encode_tenant_count, encode_tombstone, encode_total_count, encode_worker,
};
pub use self::coordinator::{AsyncStoreCoordinator, StoreCoordinator};
pub use self::core::StoreConfig;
pub use self::engine::{Answer, AsyncStore, Page, Read, Store, StoreLimits};
pub use self::flight::{Flight, Step, Told};
pub use self::key::{KEY_LEN_MAX, Key, KeyBytes, KeyKind, MalformedKey};
pub use self::map_store::{Fault, MapStore};
pub use self::range::KeyRange;
pub use self::txn::{CommitOutcome, Compare, Conflict, Txn, Versioned, Write};
#[cfg(test)]
mod codec_tests;
#[cfg(test)]
mod coordinator_tests;
#[cfg(test)]
mod damage_tests;
#[cfg(test)]
mod differential_tests;
#[cfg(test)]
mod doubt_tests;
#[cfg(test)]
mod format_document_tests;
#[cfg(test)]
mod key_tests;
#[cfg(test)]
mod map_store_tests;
#[cfg(test)]
mod memory_tests;
#[cfg(test)]
mod owner_tests;
#[cfg(test)]
mod race_tests;
#[cfg(test)]
mod registration_tests;
#[cfg(test)]
mod renewals_tests;
#[cfg(test)]
mod samples;
#[cfg(test)]
mod split_race_tests;
