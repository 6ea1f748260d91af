//! Whether the store is usable, as the threads of a worker find it.
//!
//! ```text
//!   usable ── a step fails ──► outage ── every failing part is answered ──► usable
//!                                │  ▲
//!                    retry due ──┘  └── fails again: longer wait, until the patience is used up
//! ```
//!
//! Every coordinator handle of the worker notes whether the store failed ([`Monitored`]), and each
//! part of the worker reports it after each of its steps. So there is one account of an outage for
//! all threads and all operations: one time since when, one time of the next retry, one message at
//! its beginning and one at its end. Parts ask [`StoreHealth::access`] before they use the store.
//!
//! [`Monitored`]: crate::monitored::Monitored

use std::collections::BTreeSet;

use gossip_contracts::identity::LogicalTime;

use super::sync::{Mutex, MutexGuard, PoisonError};
use crate::backoff::Backoff;
use crate::task::StoreAccess;

/// The first and the longest wait before a worker uses an unusable store again, in ticks. The first
/// is short because most outages are a change of the leader or a busy file; the longest bounds how
/// long a worker idles after the store has recovered.
const RETRY_FIRST: u64 = 100;
const RETRY_LONGEST: u64 = 5_000;

/// How long an outage lasts before it is announced, in ticks: a change of etcd's leader takes less.
const ANNOUNCED_AFTER: u64 = 1_000;

/// How long a draining worker tries to store its progress and release its shards, in ticks from the
/// beginning of the outage. After a longer outage each operation is tried once.
const DRAIN_TICKS: u64 = 2_000;

const _: () = assert!(RETRY_FIRST < RETRY_LONGEST);
const _: () = assert!(ANNOUNCED_AFTER < DRAIN_TICKS);

/// A part of a worker: a runner by its number, then the renewer, then the handoff thread.
pub(super) type Part = usize;

/// The account of all parts about the store.
#[derive(Debug)]
pub(super) struct StoreHealth(Mutex<State>);

#[derive(Debug)]
struct State {
    outage: Option<Outage>,
    backoff: Backoff,
}

/// A time in which the store is unusable.
#[derive(Debug)]
struct Outage {
    since: LogicalTime,
    /// The parts whose last step with the store failed.
    failing: BTreeSet<Part>,
    retry_at: LogicalTime,
    is_announced: bool,
    /// Whether the store answered a part since the last failure.
    is_answering: bool,
}

/// How long an outage has lasted, and whether that is to be reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lasting {
    /// In ticks.
    pub(super) ticks: u64,
    /// Whether this is the moment to announce it.
    pub(super) is_news: bool,
}

impl StoreHealth {
    pub(super) const fn new(seed: u64) -> Self {
        let backoff = Backoff::new(RETRY_FIRST, RETRY_LONGEST, seed);
        Self(Mutex::new(State { outage: None, backoff }))
    }

    /// Returns whether the store may be used at `now`. `draining` says that the worker does not
    /// wait for the end of an outage.
    pub(super) fn access(&self, now: LogicalTime, draining: bool) -> StoreAccess {
        let state = self.lock();
        let Some(outage) = &state.outage else { return StoreAccess::Usable };
        if draining && now >= outage.since.saturating_add(DRAIN_TICKS) {
            return StoreAccess::Last;
        }
        if now < outage.retry_at {
            return StoreAccess::Wait(outage.retry_at);
        }
        StoreAccess::Retry
    }

    /// Returns whether an outage has not ended.
    pub(super) fn is_unusable(&self) -> bool {
        self.lock().outage.is_some()
    }

    /// Returns whether the store has not answered anything since its last failure.
    pub(super) fn is_silent(&self) -> bool {
        self.lock().outage.as_ref().is_some_and(|outage| !outage.is_answering)
    }

    /// Records that the store answered every operation in a step of `part`. Returns how long the
    /// outage lasted if that ended it.
    pub(super) fn answered(&self, part: Part, now: LogicalTime) -> Option<Lasting> {
        let mut state = self.lock();
        let outage = state.outage.as_mut()?;
        outage.failing.remove(&part);
        outage.is_answering = true;
        // The others failed too and have not been answered since: one small commit may fit onto a
        // full disk that refuses theirs.
        if !outage.failing.is_empty() {
            return None;
        }
        let ended = state.outage.take()?;
        state.backoff.reset();
        Some(Lasting { ticks: ticks_between(ended.since, now), is_news: ended.is_announced })
    }

    /// Records that the store failed in a step of `part` from `begun` to `now`. Returns how long
    /// the outage has lasted.
    pub(super) fn failed(&self, part: Part, begun: LogicalTime, now: LogicalTime) -> Lasting {
        let state = &mut *self.lock();
        let outage = state.outage.get_or_insert_with(|| Outage {
            since: begun,
            failing: BTreeSet::new(),
            retry_at: now,
            is_announced: false,
            is_answering: false,
        });
        outage.failing.insert(part);
        outage.is_answering = false;
        // Several parts may fail in one retry, which counts once.
        if now >= outage.retry_at {
            outage.retry_at = now.saturating_add(state.backoff.wait());
        }
        let ticks = ticks_between(outage.since, now);
        let is_news = ticks >= ANNOUNCED_AFTER && !outage.is_announced;
        outage.is_announced |= is_news;
        Lasting { ticks, is_news }
    }

    /// Records that `part` has nothing to retry any more: its lease is lost, or it has ended. That
    /// does not end an outage, because nothing was answered. Returns whether it has to be found out
    /// otherwise ([`Self::needs_probe`]).
    pub(super) fn gave_up(&self, part: Part) -> bool {
        let mut state = self.lock();
        let Some(outage) = &mut state.outage else { return false };
        outage.failing.remove(&part) && outage.failing.is_empty()
    }

    /// Returns whether no part retries anything during an outage. Then the renewer, which always
    /// has something to write, finds out whether the store is usable.
    pub(super) fn needs_probe(&self) -> bool {
        self.lock().outage.as_ref().is_some_and(|outage| outage.failing.is_empty())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn ticks_between(since: LogicalTime, now: LogicalTime) -> u64 {
    now.as_raw().saturating_sub(since.as_raw())
}
