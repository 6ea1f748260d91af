//! Records in a store of the coordination layer, beside the shards.
//!
//! A record is one value. While the handoff is unfinished, two index entries list it under its
//! source and its destination, so a worker reads only its own moves. Versions are revisions of the
//! store. The store layer handles conflicts and lost replies
//! ([`gossip_coordination::store::save_handoff`]).
//!
//! An unreadable record is reported by its number beside the readable ones, so it blocks only its
//! own move.
//!
//! # Never
//! - reports the save of another process as its own: each save carries a unique mark;
//! - confuses two records whose ids have the same hash: the ids themselves are compared.

use gossip_contracts::identity::{CanonicalHasher, Domain, TenantId};
use gossip_coordination::store::{
    HANDOFF_PAYLOAD_MAX, HandoffWrite, MovePage, SaveHandoffError, Store, StoredHandoff, fly,
    forget_handoff, list_handoffs, list_moves, load_handoff, save_handoff,
};
use gossip_coordination::{HandoffId, InfraError, StoreRefusal};

use crate::record::{RECORD_LEN_MAX, Record, RecordId};
use crate::repository::{
    InProgress, Repository, RepositoryError, Stored, UNREADABLE_MAX, Version, check_over,
};

// The store layer accepts the largest record.
const _: () = assert!(RECORD_LEN_MAX <= HANDOFF_PAYLOAD_MAX);

/// Returns the number under which a record is stored, and by which the kernel identifies the move.
#[must_use]
pub(crate) fn handoff_id(id: &RecordId) -> HandoffId {
    let mut hasher = CanonicalHasher::for_domain(Domain::HANDOFF_ID_V1);
    hasher.write_bytes_prefixed(id.as_str().as_bytes());
    HandoffId::from_raw(hasher.finalize_64())
}

/// Returns the number under which the moves of `owner` are indexed.
fn party(owner: &str) -> u64 {
    let mut hasher = CanonicalHasher::for_domain(Domain::HANDOFF_PARTY_V1);
    hasher.write_bytes_prefixed(owner.as_bytes());
    hasher.finalize_64()
}

/// The state of a repository beside its store.
#[derive(Clone, Copy, Debug)]
struct Handle {
    tenant: TenantId,
    /// Unique among the handles of the store.
    nonce: u64,
    /// The number of saves of this handle.
    save_count: u64,
}

impl Handle {
    /// Returns a mark that no other save has. Nonces may be consecutive, so nonce and counter are
    /// hashed instead of added.
    fn fresh_mark(&mut self) -> u64 {
        self.save_count += 1;
        let mut hasher = CanonicalHasher::for_domain(Domain::HANDOFF_ID_V1);
        hasher.write_u64(self.nonce);
        hasher.write_u64(self.save_count);
        hasher.finalize_64()
    }

    fn write<'a>(
        &mut self,
        record: &Record,
        payload: &'a [u8],
        expected: Option<Version>,
    ) -> HandoffWrite<'a> {
        HandoffWrite {
            tenant: self.tenant,
            handoff: handoff_id(&record.id),
            payload,
            parties: [party(&record.from), party(&record.to)],
            is_over: record.state.is_terminal(),
            expected: expected.map(Version::as_raw),
            mark: self.fresh_mark(),
        }
    }
}

/// Returns the record if it is the one with `id`, and not another whose id has the same hash.
fn found(id: &RecordId, loaded: Option<StoredHandoff>) -> Result<Stored, RepositoryError> {
    let stored = loaded.map(|loaded| stored(&loaded)).transpose()?;
    // Records are stored under a hash of their id, and another id may have the same one.
    stored.filter(|stored| stored.record.id == *id).ok_or(RepositoryError::RecordNotFound)
}

fn stored(loaded: &StoredHandoff) -> Result<Stored, RepositoryError> {
    let record = Record::from_bytes(&loaded.payload)?;
    Ok(Stored { record, version: Version::from_raw(loaded.revision) })
}

/// Builds a page. The store is read until the page has a readable record or the end is reached.
#[derive(Default)]
struct Paging {
    page: InProgress,
    /// The last readable record: the next page begins after it.
    last: Option<RecordId>,
}

impl Paging {
    /// Adds the records of `moves` that `fits` accepts. Returns the number after which to continue,
    /// if the page needs more.
    fn take_in(&mut self, moves: MovePage, fits: impl Fn(&Record) -> bool) -> Option<HandoffId> {
        self.unreadable(moves.damaged);
        for loaded in &moves.found {
            match stored(loaded) {
                Ok(stored) => {
                    // Also of a record that does not fit, or the next page would read it again.
                    self.last = Some(stored.record.id.clone());
                    self.page.found.extend(Some(stored).filter(|stored| fits(&stored.record)));
                }
                Err(_) => self.unreadable([loaded.handoff]),
            }
        }
        self.page.next = self.last.clone().filter(|_| moves.more.is_some());
        // The next page starts after a readable id, so a page of unreadable records alone must be
        // extended.
        moves.more.filter(|_| self.last.is_none())
    }

    fn unreadable(&mut self, moves: impl IntoIterator<Item = HandoffId>) {
        // Bounded: a store full of damaged records must not fill the memory.
        let room = UNREADABLE_MAX - self.page.unreadable.len();
        self.page.unreadable.extend(moves.into_iter().take(room));
    }
}

fn not_saved(error: SaveHandoffError) -> RepositoryError {
    match error {
        SaveHandoffError::Conflict => RepositoryError::VersionConflict,
        SaveHandoffError::Store(error) => error.into(),
        // A checked record is never too large, so this is a failure kind added later.
        other => {
            let (operation, why) = ("handoff.save", StoreRefusal::TooLarge);
            InfraError::Refused { operation, why, message: other.to_string() }.into()
        }
    }
}

/// Records in a blocking store.
///
/// It is one handle. Several, in one process or in many, may use the same store.
#[derive(Debug)]
pub struct StoreRepository<S> {
    pub(crate) store: S,
    handle: Handle,
}

impl<S: Store> StoreRepository<S> {
    /// Returns a handle on the moves of `tenant` in `store`. `nonce` must be unique among the
    /// handles of the store.
    pub const fn new(store: S, tenant: TenantId, nonce: u64) -> Self {
        Self { store, handle: Handle { tenant, nonce, save_count: 0 } }
    }
}

impl<S: Store> Repository for StoreRepository<S> {
    fn save(
        &mut self,
        record: &Record,
        expected: Option<Version>,
    ) -> Result<Version, RepositoryError> {
        record.check()?;
        let payload = record.to_bytes();
        let write = self.handle.write(record, &payload, expected);
        let flight = save_handoff(self.store.limits(), write);
        fly(&mut self.store, flight).map(Version::from_raw).map_err(not_saved)
    }

    fn get(&mut self, id: &RecordId) -> Result<Stored, RepositoryError> {
        let flight = load_handoff(self.handle.tenant, handoff_id(id));
        found(id, fly(&mut self.store, flight)?)
    }

    fn in_progress_page(
        &mut self,
        owner: &str,
        after: Option<&RecordId>,
        limit: usize,
    ) -> Result<InProgress, RepositoryError> {
        let (limits, tenant) = (self.store.limits(), self.handle.tenant);
        // The index is by hash, so it may list records of another owner.
        let fits = |one: &Record| !one.state.is_terminal() && one.concerns(owner);
        let (mut paging, mut after) = (Paging::default(), after.map(handoff_id));
        loop {
            let flight = list_moves(limits, tenant, party(owner), after, limit);
            let moves = fly(&mut self.store, flight)?;
            after = paging.take_in(moves, fits);
            if after.is_none() {
                return Ok(paging.page);
            }
        }
    }

    fn page(
        &mut self,
        after: Option<&RecordId>,
        limit: usize,
    ) -> Result<InProgress, RepositoryError> {
        let (limits, tenant) = (self.store.limits(), self.handle.tenant);
        let (mut paging, mut after) = (Paging::default(), after.map(handoff_id));
        loop {
            let flight = list_handoffs(limits, tenant, after, limit);
            let moves = fly(&mut self.store, flight)?;
            after = paging.take_in(moves, |_| true);
            if after.is_none() {
                return Ok(paging.page);
            }
        }
    }

    fn forget(&mut self, over: &Stored) -> Result<(), RepositoryError> {
        check_over(over)?;
        let (id, version) = (handoff_id(&over.record.id), over.version.as_raw());
        let flight = forget_handoff(self.handle.tenant, id, version);
        fly(&mut self.store, flight).map_err(not_saved)
    }
}
