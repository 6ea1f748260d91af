//! Records in any store of the coordination layer: the same file or cluster that holds the shards.
//!
//! A record is one value; index entries tell whom it concerns for as long as it is not over, so a
//! worker that looks for its moves reads its own and nobody else's. Versions are revisions of the
//! store. What happens on a conflict or a lost reply is decided in the store layer
//! ([`gossip_coordination::store::save_handoff`]), once for the blocking and the asynchronous face.
//!
//! A record that cannot be read is told by its number, beside those that can: it stops nobody's
//! moves but its own.
//!
//! # Never
//! - tells a save as done that another did: each carries a mark of its own;
//! - takes a record for another one: the number of a move is a hash of its id, and whoever finds a
//!   record compares the id itself.

use gossip_contracts::identity::{CanonicalHasher, Domain, TenantId};
use gossip_coordination::store::{
    AsyncStore, HANDOFF_PAYLOAD_MAX, HandoffWrite, MovePage, SaveHandoffError, Store,
    StoredHandoff, fly, fly_async, forget_handoff, list_handoffs, list_moves, load_handoff,
    save_handoff,
};
use gossip_coordination::{HandoffId, InfraError};

use crate::record::{RECORD_LEN_MAX, Record, RecordId};
use crate::repository::{
    InProgress, Repository, RepositoryError, Stored, UNREADABLE_MAX, Version, check_over,
};

// The largest record fits into what the store layer takes.
const _: () = assert!(RECORD_LEN_MAX <= HANDOFF_PAYLOAD_MAX);

/// The number under which a record is stored, and by which the kernel knows the move.
#[must_use]
pub fn handoff_id(id: &RecordId) -> HandoffId {
    let mut hasher = CanonicalHasher::for_domain(Domain::HANDOFF_ID_V1);
    hasher.write_bytes_prefixed(id.as_str().as_bytes());
    HandoffId::from_raw(hasher.finalize_64())
}

/// The number by which the moves of `owner` are found.
fn party(owner: &str) -> u64 {
    let mut hasher = CanonicalHasher::for_domain(Domain::HANDOFF_PARTY_V1);
    hasher.write_bytes_prefixed(owner.as_bytes());
    hasher.finalize_64()
}

/// What both repositories remember.
#[derive(Clone, Copy, Debug)]
struct Handle {
    tenant: TenantId,
    /// No other handle of the store has it.
    nonce: u64,
    /// Saves of this handle.
    save_count: u64,
}

impl Handle {
    /// A number that no other save has. Nonces may be neighbours, so both go through the hash.
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

/// A record, unless another id has the same number.
fn found(id: &RecordId, loaded: Option<StoredHandoff>) -> Result<Stored, RepositoryError> {
    let stored = loaded.map(|loaded| stored(&loaded)).transpose()?;
    stored.filter(|stored| stored.record.id == *id).ok_or(RepositoryError::RecordNotFound)
}

fn stored(loaded: &StoredHandoff) -> Result<Stored, RepositoryError> {
    let record = Record::from_bytes(&loaded.payload)?;
    Ok(Stored { record, version: Version::from_raw(loaded.revision) })
}

/// A page on its way: the store is asked on until something can be told, or nothing is left.
#[derive(Default)]
struct Paging {
    page: InProgress,
    /// The last record that could be read: where the next page begins.
    last: Option<RecordId>,
}

impl Paging {
    /// Takes in what the store found and `fits`; behind which number to ask on, if that is needed.
    fn take_in(&mut self, moves: MovePage, fits: impl Fn(&Record) -> bool) -> Option<HandoffId> {
        self.unreadable(moves.damaged);
        for loaded in &moves.found {
            match stored(loaded) {
                Ok(stored) => {
                    self.last = Some(stored.record.id.clone());
                    self.page.found.extend(Some(stored).filter(|stored| fits(&stored.record)));
                }
                Err(_) => self.unreadable([loaded.handoff]),
            }
        }
        self.page.next = self.last.clone().filter(|_| moves.more.is_some());
        // A page of nothing but unreadable records has no place to go on from.
        moves.more.filter(|_| self.last.is_none())
    }

    fn unreadable(&mut self, moves: impl IntoIterator<Item = HandoffId>) {
        let room = UNREADABLE_MAX - self.page.unreadable.len();
        self.page.unreadable.extend(moves.into_iter().take(room));
    }
}

fn failed(error: InfraError) -> RepositoryError {
    RepositoryError::Failed { message: error.to_string() }
}

fn not_saved(error: SaveHandoffError) -> RepositoryError {
    match error {
        SaveHandoffError::Conflict => RepositoryError::VersionConflict,
        SaveHandoffError::Store(error) => failed(error),
        // A checked record fits, so only a kind of failure that is not known here is left.
        other => RepositoryError::Failed { message: other.to_string() },
    }
}

/// The two faces, written once: what follows the name of the driver is put behind its calls.
macro_rules! store_repository {
    ($name:ident over $engine:ident, $what:literal; $fly:ident $(.$await:tt)? $(; $async:tt)?) => {
        #[doc = $what]
        ///
        /// It is one handle: several, in one process or in many, may work on one store.
        #[derive(Debug)]
        pub struct $name<S> {
            store: S,
            handle: Handle,
        }

        impl<S: $engine> $name<S> {
            /// The moves of `tenant` in `store`. No other handle of the store has this `nonce`.
            pub const fn new(store: S, tenant: TenantId, nonce: u64) -> Self {
                Self { store, handle: Handle { tenant, nonce, save_count: 0 } }
            }

            /// The store itself.
            pub const fn store_mut(&mut self) -> &mut S {
                &mut self.store
            }

            $($async)? fn save_record(
                &mut self,
                record: &Record,
                expected: Option<Version>,
            ) -> Result<Version, RepositoryError> {
                record.check()?;
                let payload = record.to_bytes();
                let write = self.handle.write(record, &payload, expected);
                let flight = save_handoff(self.store.limits(), write);
                let saved = $fly(&mut self.store, flight)$(.$await)?;
                saved.map(Version::from_raw).map_err(not_saved)
            }

            $($async)? fn get_record(&mut self, id: &RecordId) -> Result<Stored, RepositoryError> {
                let flight = load_handoff(self.handle.tenant, handoff_id(id));
                let loaded = $fly(&mut self.store, flight)$(.$await)?;
                found(id, loaded.map_err(failed)?)
            }

            $($async)? fn page_of(
                &mut self,
                owner: &str,
                after: Option<&RecordId>,
                limit: usize,
            ) -> Result<InProgress, RepositoryError> {
                let (limits, tenant) = (self.store.limits(), self.handle.tenant);
                // Others may have the number of this owner, too.
                let fits = |one: &Record| !one.state.is_terminal() && one.concerns(owner);
                let (mut paging, mut after) = (Paging::default(), after.map(handoff_id));
                loop {
                    let flight = list_moves(limits, tenant, party(owner), after, limit);
                    let moves = $fly(&mut self.store, flight)$(.$await)?;
                    after = paging.take_in(moves.map_err(failed)?, fits);
                    if after.is_none() {
                        return Ok(paging.page);
                    }
                }
            }

            $($async)? fn page_of_all(
                &mut self,
                after: Option<&RecordId>,
                limit: usize,
            ) -> Result<InProgress, RepositoryError> {
                let (limits, tenant) = (self.store.limits(), self.handle.tenant);
                let (mut paging, mut after) = (Paging::default(), after.map(handoff_id));
                loop {
                    let flight = list_handoffs(limits, tenant, after, limit);
                    let moves = $fly(&mut self.store, flight)$(.$await)?;
                    after = paging.take_in(moves.map_err(failed)?, |_| true);
                    if after.is_none() {
                        return Ok(paging.page);
                    }
                }
            }

            $($async)? fn forget_record(&mut self, over: &Stored) -> Result<(), RepositoryError> {
                check_over(over)?;
                let (id, version) = (handoff_id(&over.record.id), over.version.as_raw());
                let flight = forget_handoff(self.handle.tenant, id, version);
                $fly(&mut self.store, flight)$(.$await)?.map_err(not_saved)
            }
        }
    };
}

store_repository!(StoreRepository over Store, "Records in a blocking store."; fly);
store_repository!(AsyncStoreRepository over AsyncStore, "Records in an asynchronous store.";
    fly_async.await; async);

impl<S: Store> Repository for StoreRepository<S> {
    fn save(
        &mut self,
        record: &Record,
        expected: Option<Version>,
    ) -> Result<Version, RepositoryError> {
        self.save_record(record, expected)
    }

    fn get(&mut self, id: &RecordId) -> Result<Stored, RepositoryError> {
        self.get_record(id)
    }

    fn in_progress_page(
        &mut self,
        owner: &str,
        after: Option<&RecordId>,
        limit: usize,
    ) -> Result<InProgress, RepositoryError> {
        self.page_of(owner, after, limit)
    }

    fn page(
        &mut self,
        after: Option<&RecordId>,
        limit: usize,
    ) -> Result<InProgress, RepositoryError> {
        self.page_of_all(after, limit)
    }

    fn forget(&mut self, over: &Stored) -> Result<(), RepositoryError> {
        self.forget_record(over)
    }
}

impl<S: AsyncStore> AsyncStoreRepository<S> {
    /// See [`Repository::save`].
    ///
    /// # Errors
    ///
    /// [`RepositoryError`].
    pub async fn save(
        &mut self,
        record: &Record,
        expected: Option<Version>,
    ) -> Result<Version, RepositoryError> {
        self.save_record(record, expected).await
    }

    /// See [`Repository::get`].
    ///
    /// # Errors
    ///
    /// [`RepositoryError`].
    pub async fn get(&mut self, id: &RecordId) -> Result<Stored, RepositoryError> {
        self.get_record(id).await
    }

    /// See [`Repository::in_progress_page`].
    ///
    /// # Errors
    ///
    /// [`RepositoryError`].
    pub async fn in_progress_page(
        &mut self,
        owner: &str,
        after: Option<&RecordId>,
        limit: usize,
    ) -> Result<InProgress, RepositoryError> {
        self.page_of(owner, after, limit).await
    }

    /// See [`Repository::page`].
    ///
    /// # Errors
    ///
    /// [`RepositoryError`].
    pub async fn page(
        &mut self,
        after: Option<&RecordId>,
        limit: usize,
    ) -> Result<InProgress, RepositoryError> {
        self.page_of_all(after, limit).await
    }

    /// See [`Repository::forget`].
    ///
    /// # Errors
    ///
    /// [`RepositoryError`].
    pub async fn forget(&mut self, over: &Stored) -> Result<(), RepositoryError> {
        self.forget_record(over).await
    }
}
