//! Decides which thread of a worker may claim a shard that is on its last attempt.
//!
//! The threads of a process die together. A key that kills the process ends an attempt of every
//! shard that the process holds, not only of its own. If all of these attempts counted alike,
//! shards without a bad key would be parked. Therefore a shard on its last attempt is processed
//! alone:
//!
//! ```text
//!   open ──► wanted ──► exclusive ──► open
//!    │         │          └ the suspect has progressed, or is over
//!    │         └ the other threads checkpoint and pause
//!    └ every thread claims shards that have attempts left
//! ```
//!
//! # Invariants
//!
//! - A suspect, a shard on its last attempt
//!   ([`TaskConfig::is_last_chance`](crate::task::TaskConfig::is_last_chance)), is granted only
//!   while no other thread of the process has items in flight, and none starts an item until the
//!   suspect has progressed or is over. So if the process dies, the suspect is the cause.
//! - A paused thread has progressed under its lease, so a crash adds no attempt to its shard.
//! - It follows that other shards can make a shard a suspect, but cannot get it parked. A shard
//!   with a fatal key is parked after as many crashes as without other threads, because only its
//!   own attempts bring it to the last one.
//!
//! # Never
//! - interrupts an item: a thread pauses when its in-flight items are finished;
//! - waits for ever: if the other threads do not pause in time they continue, for
//!   [`CONTINUE_FACTOR`] times as long, and the next attempt waits twice as long.

use gossip_contracts::identity::LogicalTime;

use super::sync::{Mutex, MutexGuard, PoisonError};

/// How long a thread waits for the others to pause at first, in ticks: most items are shorter.
pub(super) const PATIENCE_FIRST: u64 = 1_000;

/// The longest such wait, in ticks. A longer item delays the exclusive phase until no other work is
/// left.
pub(super) const PATIENCE_LONGEST: u64 = 600_000;

/// After a failed wait the threads continue for this many times its duration, so fruitless pauses
/// cost at most a fifth of the time.
pub(super) const CONTINUE_FACTOR: u64 = 4;

/// How often a waiting thread checks again, in ticks; a notification wakes it earlier.
pub(super) const POLL_TICKS: u64 = 20;

const _: () = assert!(POLL_TICKS < PATIENCE_FIRST && PATIENCE_FIRST < PATIENCE_LONGEST);

/// The state of a worker's threads towards each other.
#[derive(Debug)]
pub(super) struct Quarantine(Mutex<State>);

#[derive(Debug)]
struct State {
    phase: Phase,
    /// Counts exclusive phases: a pause for an earlier one does not count for the current one.
    phases: u64,
    threads: Vec<ThreadState>,
    patience: u64,
    /// No exclusive phase is requested before this time.
    not_before: LogicalTime,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Open,
    /// A thread has requested the exclusive phase, at this time.
    Wanted(usize, LogicalTime),
    Exclusive(usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ThreadState {
    /// Has no shard and is not claiming one.
    Idle,
    /// Claims or processes a shard.
    Busy,
    /// Pauses for the exclusive phase with this number.
    Paused(u64),
}

/// What a thread without a shard may claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Entry {
    /// Shards that are not suspects.
    Shared,
    /// Any shard: no other thread has items in flight.
    Exclusive,
    /// Nothing before this time.
    Wait(LogicalTime),
}

/// Whether a thread with a shard must pause, and for which exclusive phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PauseSignal {
    pub(super) pause: bool,
    phase: u64,
}

impl Quarantine {
    pub(super) fn new(threads: usize) -> Self {
        Self(Mutex::new(State {
            phase: Phase::Open,
            phases: 0,
            threads: vec![ThreadState::Idle; threads],
            patience: PATIENCE_FIRST,
            not_before: LogicalTime::ZERO,
        }))
    }

    /// Returns what a thread without a shard may claim. Unless the answer is [`Entry::Wait`], the
    /// thread reports the result with [`claimed`](Self::claimed), [`want`](Self::want) or
    /// [`left`](Self::left).
    pub(super) fn enter(&self, thread: usize, now: LogicalTime) -> Entry {
        let mut state = self.lock();
        // With a single thread there is nothing to pause.
        if state.threads.len() == 1 {
            return Entry::Exclusive;
        }
        match state.phase {
            Phase::Open => state.begin_claim(thread),
            Phase::Wanted(by, _) if by == thread && state.others_paused(thread) => {
                state.phase = Phase::Exclusive(thread);
                // The threads have paused in time, so the next phase starts with the short wait
                // again.
                state.patience = PATIENCE_FIRST;
                Entry::Exclusive
            }
            Phase::Wanted(by, since) if by == thread && state.has_timed_out(since, now) => {
                state.cancel_phase(now);
                state.begin_claim(thread)
            }
            Phase::Wanted(..) | Phase::Exclusive(_) => Entry::Wait(now.saturating_add(POLL_TICKS)),
        }
    }

    /// Records that a thread has claimed a shard. Returns whether other threads must be woken.
    pub(super) fn claimed(&self, thread: usize, shard: Suspicion) -> bool {
        let mut state = self.lock();
        state.threads[thread] = ThreadState::Busy;
        // In its exclusive phase the thread found a shard that is no suspect: the others need not
        // pause.
        shard != Suspicion::Suspect && state.open(thread)
    }

    /// Requests the exclusive phase for a thread that found only suspects. Returns whether it was
    /// granted.
    pub(super) fn want(&self, thread: usize, now: LogicalTime) -> bool {
        let mut state = self.lock();
        // One phase at a time; a second suspect waits for the first.
        let may = state.phase == Phase::Open && now >= state.not_before;
        if may {
            state.phase = Phase::Wanted(thread, now);
            state.phases += 1;
            state.threads[thread] = ThreadState::Idle;
        }
        may
    }

    /// Returns what a thread with a shard must do.
    pub(super) fn signal(&self, thread: usize) -> PauseSignal {
        let state = self.lock();
        let pause = match state.phase {
            Phase::Open => false,
            Phase::Wanted(by, _) | Phase::Exclusive(by) => by != thread,
        };
        PauseSignal { pause, phase: state.phases }
    }

    /// Records the result of a step that began with `signal`: whether the shard is paused, and
    /// whether it is still a suspect. Returns whether other threads must be woken.
    pub(super) fn stepped(
        &self,
        thread: usize,
        signal: PauseSignal,
        paused: bool,
        suspect: bool,
    ) -> bool {
        let mut state = self.lock();
        // The signal of the step's beginning counts: a phase that started during the step has not
        // been seen by the task.
        let current = if signal.pause && paused {
            ThreadState::Paused(signal.phase)
        } else {
            ThreadState::Busy
        };
        // Only a new pause can be the one that another thread waits for.
        let changed = state.threads[thread] != current && current != ThreadState::Busy;
        state.threads[thread] = current;
        (!suspect && state.open(thread)) || changed
    }

    /// Records that a thread has no shard any more. Returns whether other threads must be woken.
    pub(super) fn left(&self, thread: usize) -> bool {
        let mut state = self.lock();
        state.threads[thread] = ThreadState::Idle;
        state.open(thread) || state.phase != Phase::Open
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a shard that was just claimed is on its last attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Suspicion {
    None,
    Suspect,
}

impl State {
    fn begin_claim(&mut self, thread: usize) -> Entry {
        self.threads[thread] = ThreadState::Busy;
        Entry::Shared
    }

    fn others_paused(&self, thread: usize) -> bool {
        let phase = self.phases;
        self.threads.iter().enumerate().all(|(other, current)| {
            other == thread
                || matches!(current, ThreadState::Idle)
                // A pause for an earlier phase does not count: the thread may have continued since.
                || *current == ThreadState::Paused(phase)
        })
    }

    fn has_timed_out(&self, since: LogicalTime, now: LogicalTime) -> bool {
        now >= since.saturating_add(self.patience)
    }

    fn cancel_phase(&mut self, now: LogicalTime) {
        self.phase = Phase::Open;
        self.not_before = now.saturating_add(self.patience.saturating_mul(CONTINUE_FACTOR));
        self.patience = self.patience.saturating_mul(2).min(PATIENCE_LONGEST);
    }

    /// Ends the exclusive phase of `thread`, if it has one.
    fn open(&mut self, thread: usize) -> bool {
        let is_mine = match self.phase {
            Phase::Open => false,
            Phase::Wanted(by, _) | Phase::Exclusive(by) => by == thread,
        };
        if is_mine {
            self.phase = Phase::Open;
        }
        is_mine
    }
}
