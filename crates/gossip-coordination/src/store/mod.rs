//! The store layer: shared by every durable backend, and the only code that encodes records.
//!
//! | file | owns |
//! |---|---|
//! | `key` | the typed keys of the one logical keyspace, and their bytes |
//! | `range` | half-open ranges of keys, for scans |
//! | `scatter` | the scattered order of the claim index |
//! | `codec` | values: framing, checksum, and one encoder and decoder for each kind |
//! | `txn` | an atomic transaction and its outcomes |
//! | `engine` | the traits of a store: read, commit, wait |
//! | `map_store` | an in-memory store for tests, with injectable faults |
//! | `flight` | one operation as a state machine without I/O |
//! | `index` | a shard's entries in the indexes of its run |
//! | `claim_stats`, `capacity` | how much of the claim index a scan reads; the capacity hint |
//! | `retry` | retry limits and backoff |
//! | `cache` | the record cache: leased shards and their revisions |
//! | `loaded`, `owner` | the loaded inputs of a shard operation; changes of the owner key |
//! | `shard_scan` | the shards of a run page by page, damaged ones included |
//! | `shard_repair`, `lost_range` | repair of a damaged shard; its range, from the other shards |
//! | `shard_flight`, `renewals`, `run_flight`, `purge`, `worker_flight`, `queries` | the flights |
//! | `side_records` | failures and results, in the commit that they describe |
//! | `deletion`, `gc` | deletion, also of damaged runs; garbage collection of abandoned runs |
//! | `lease_watches` | leases whose deadline lies too far ahead, watched until it is void |
//! | `floors` | fence floors of many runs at once; the list of tenants |
//! | `upgrade` | the format of a store, and its upgrade |
//! | `handoffs` | handoff records, with opaque payloads |
//! | `core`, `routes` | the state of a handle; its operations as flights |
//! | `coordinator` | the blocking and the asynchronous driver and their backends |
//! | `operations` | the methods of both coordinators, derived from the operation lists |
//!
//! # Round trips
//!
//! Reads that are requested together are sent together, and so are transactions. Round trips
//! without contention, on a handle with a warm record cache:
//!
//! | operation | trips | which |
//! |---|---|---|
//! | claim | 3 | scan, load, commit |
//! | acquire, accept | 2 | load, commit; the hint comes with the load |
//! | renew, renew_many | 2 | commit; the hint, once for each run |
//! | checkpoint, complete, park, release, offer, withdraw | 1 | commit |
//! | split_replace, split_residual | 3 | load, check for taken ids, commit |
//! | unpark, request_action, revoke_lease | 2 | load, commit |
//! | create_run, cancel_run, pause_run | 2 | load, commit |
//! | complete_run | 3 | load, scan for damaged shards, commit; one more scan per page |
//! | register_shards | 2 | load, commit; per chunk |
//! | delete_run | 10 | scan for newer formats, load, commit; then load and commit per batch |
//! | get_run, get_run_progress, list_shards, candidates | 1 | read; per page |
//! | register_worker, heartbeat | 2 | read, commit |
//! | list_workers, list_active_runs, list_runs | 1 | read; per page |
//!
//! A handle without a cached record loads it first: one more. A handle whose claim statistics are
//! out of date needs up to three more reads (`claim_stats`). A handle's first claim in a run also
//! needs three round trips, except for a chance of one in a thousand that its hint needs a fourth.
//! If owner keys are bound to a lease of the process, that lease is granted concurrently with the
//! read of the first owner key, at no extra round trip; after the lease was lost, the next
//! operation that writes an owner key needs one more.
//!
//! `docs/storage-format.md` documents the same byte by byte; a test compares it with this code.
//!
//! # Never
//! - opens a file or a socket, reads a clock, or depends on an engine: an engine handles bytes;
//! - decides a rule of the protocol: it validates decoded values, and the kernel decides;
//! - panics on stored bytes, or allocates by a length that it read from them;
//! - shows a byte of a key, token, owner or tenant in an error: lengths, numbers and names of
//!   fields only.

mod cache;
mod capacity;
mod claim_stats;
mod codec;
mod coordinator;
mod core;
mod deletion;
mod engine;
mod event_ring;
mod flight;
mod floors;
mod footprint;
mod gc;
mod handoffs;
mod index;
mod key;
mod lease_watches;
mod loaded;
mod lost_range;
mod map_store;
mod nonce;
mod operations;
mod owner;
mod purge;
mod queries;
mod quota;
mod range;
mod renewals;
mod retry;
mod routes;
mod run_flight;
mod scatter;
mod settings;
mod shard_flight;
mod shard_repair;
mod shard_scan;
mod side_records;
mod txn;
mod upgrade;
mod worker_flight;

pub use self::codec::{
    ColdPart, DecodeShardError, FORMAT_VERSION, HANDOFF_PAYLOAD_MAX, HandoffTooLarge, HotPart,
    OwnerBinding, RootProgress, RunHeadPart, SpawnedIds, StoredOps, decode_allotment,
    decode_claim_entry, decode_cold, decode_count, decode_event, decode_failure, decode_handoff,
    decode_hot, decode_mover_entry, decode_owner, decode_parked_entry, decode_results,
    decode_roots, decode_run_head, decode_schema, decode_shard, decode_tombstone, decode_worker,
    encode_allotment, encode_claim_entry, encode_cold, encode_event, encode_failure,
    encode_handoff, encode_hot, encode_mover_entry, encode_owner, encode_parked_entry,
    encode_results, encode_roots, encode_run_head, encode_schema, encode_tenant_count,
    encode_tombstone, encode_worker, join_shard, make_room,
};
pub use self::coordinator::{AsyncStoreCoordinator, StoreCoordinator, fly, fly_async};
pub use self::core::{ProcessState, StoreConfig};
pub use self::engine::{Answer, AsyncStore, Page, Read, Store, StoreLimits};
pub use self::flight::Flight;
#[cfg(test)]
pub(crate) use self::flight::{Reply, Step};
pub use self::footprint::Footprint;
pub use self::handoffs::{
    HandoffWrite, MovePage, SaveHandoffError, StoredHandoff, forget_handoff, list_handoffs,
    list_moves, load_handoff, save_handoff,
};
pub use self::key::{KEY_LEN_MAX, Key, KeyBytes, KeyKind, MalformedKey};
pub(crate) use self::key::{is_about_record, is_about_shard};
pub use self::loaded::OLDER;
pub use self::map_store::{Fault, MapBackup, MapStore};
pub use self::nonce::fresh_nonce;
pub use self::quota::{Allotment, TenantUsage, load_allotment, load_tenant_usage, set_allotment};
pub use self::range::KeyRange;
pub use self::scatter::ClaimSpot;
pub use self::settings::{
    CLAIM_COOLDOWN_MAX, DEFAULT_MAX_CLOCK_SKEW, SettingError, TlsChoice, TlsSettings, duration_of,
    number_of, parse_duration, settings_of, text_of, ticks,
};
pub use self::txn::{CommitOutcome, Compare, Conflict, Txn, Versioned, Write};
pub use self::upgrade::{UpgradedPage, announce_format, load_store_format, upgrade_page};
#[cfg(test)]
mod cache_tests;
#[cfg(test)]
mod claim_stats_tests;
#[cfg(test)]
mod codec_tests;
#[cfg(test)]
mod damage_tests;
#[cfg(test)]
mod deletion_tests;
#[cfg(test)]
mod event_ring_tests;
#[cfg(test)]
mod format_document_tests;
#[cfg(test)]
mod gc_tests;
#[cfg(test)]
mod handoffs_tests;
#[cfg(test)]
mod key_tests;
#[cfg(test)]
mod lease_watches_tests;
#[cfg(test)]
mod lost_grant_tests;
#[cfg(test)]
mod map_store_tests;
#[cfg(test)]
mod older_tests;
#[cfg(test)]
mod owner_tests;
#[cfg(test)]
mod panic_tests;
#[cfg(test)]
mod purge_tests;
#[cfg(test)]
mod quota_tests;
#[cfg(test)]
mod race_tests;
#[cfg(test)]
mod registration_tests;
#[cfg(test)]
mod renewals_tests;
#[cfg(test)]
mod round_trip_tests;
#[cfg(test)]
mod run_race_tests;
#[cfg(test)]
mod samples;
#[cfg(test)]
mod scatter_tests;
#[cfg(test)]
mod side_records_tests;
#[cfg(test)]
mod split_race_tests;
#[cfg(test)]
pub(crate) mod test_support;
#[cfg(test)]
mod unresolved_tests;
#[cfg(test)]
mod upgrade_tests;
