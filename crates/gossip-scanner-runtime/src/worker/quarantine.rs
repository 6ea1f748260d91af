//! Which of a worker's threads may claim a shard that is on its last chance.
//!
//! Threads share their process, and so its death: a key that kills the process takes the shards of
//! all threads along, and each of them was granted once more without progress. Counted like that,
//! innocent shards would end up parked. So nobody is on its last chance in company:
//!
//! ```text
//!   open ──► wanted ──► alone ──► open
//!    │         │          └ the suspect has come forward, or is over
//!    │         └ the other threads record their progress and rest
//!    └ everybody claims what has chances left
//! ```
//!
//! # Invariants
//!
//! - A suspect, a shard on its last chance
//!   ([`TaskConfig::is_last_chance`](crate::task::TaskConfig::is_last_chance)), is granted only
//!   while no other thread of the process has anything under way, and none begins anything until
//!   the suspect has come forward or is over. So whoever dies with it dies of it.
//! - Threads that rest have come forward under their lease. A death finds no attempt to count.
//! - Together: neighbours make a shard a suspect at most, and never park it. A killer dies as often
//!   as it would alone, because it is its own attempts that bring it to its last chance.
//!
//! # Never
//! - robs anybody: a thread rests when what it has begun is finished;
//! - waits for ever: if the others do not come to rest in time they go on, for
//!   [`GO_ON_TIMES`] as long, and the next time is given twice the time.

use gossip_contracts::identity::LogicalTime;

use super::sync::{Mutex, MutexGuard, PoisonError};

/// How long the other threads are waited for at first, in ticks: most items are shorter.
pub(super) const PATIENCE_FIRST: u64 = 1_000;

/// The longest wait for them, in ticks. An item that takes longer is waited for only when nothing
/// else is left to do.
pub(super) const PATIENCE_LONGEST: u64 = 600_000;

/// After a wait in vain the others go on for so many times as long: resting in vain costs a fifth
/// of their time at most.
pub(super) const GO_ON_TIMES: u64 = 4;

/// How often a thread that waits looks again, in ticks; it is woken before.
pub(super) const LOOK: u64 = 20;

const _: () = assert!(LOOK < PATIENCE_FIRST && PATIENCE_FIRST < PATIENCE_LONGEST);

/// What the threads of a worker know of each other.
#[derive(Debug)]
pub(super) struct Quarantine(Mutex<State>);

#[derive(Debug)]
struct State {
    turn: Phase,
    /// Counts turns: rest in an earlier one says nothing about this one.
    turns: u64,
    threads: Vec<Doing>,
    patience: u64,
    /// Nobody asks the others to rest before this time.
    not_before: LogicalTime,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Open,
    /// A thread wants to be alone since this time.
    Wanted(usize, LogicalTime),
    Alone(usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Doing {
    /// It has no shard and is not about to get one.
    Nothing,
    /// It claims, or works.
    Something,
    /// It rests, and did so in this turn.
    Rest(u64),
}

/// How a thread without a shard may go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Entry {
    /// It may claim what is above suspicion.
    Shared,
    /// It may claim anything: nobody else has anything under way.
    Exclusive,
    /// It may claim nothing before this time.
    Wait(LogicalTime),
}

/// What a thread with a shard is told: whether to rest, and in which turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Word {
    pub(super) rest: bool,
    turn: u64,
}

impl Quarantine {
    pub(super) fn new(threads: usize) -> Self {
        Self(Mutex::new(State {
            turn: Phase::Open,
            turns: 0,
            threads: vec![Doing::Nothing; threads],
            patience: PATIENCE_FIRST,
            not_before: LogicalTime::ZERO,
        }))
    }

    /// A thread without a shard wants one. Unless it is told to wait, it says how it went:
    /// [`claimed`](Self::claimed), [`want`](Self::want) or [`left`](Self::left).
    pub(super) fn enter(&self, thread: usize, now: LogicalTime) -> Entry {
        let mut state = self.lock();
        if state.threads.len() == 1 {
            return Entry::Exclusive;
        }
        match state.turn {
            Phase::Open => state.begin_claim(thread),
            Phase::Wanted(by, _) if by == thread && state.others_rest(thread) => {
                state.turn = Phase::Alone(thread);
                state.patience = PATIENCE_FIRST;
                Entry::Exclusive
            }
            Phase::Wanted(by, since) if by == thread && state.is_out_of_patience(since, now) => {
                state.give_up(now);
                state.begin_claim(thread)
            }
            Phase::Wanted(..) | Phase::Alone(_) => Entry::Wait(now.saturating_add(LOOK)),
        }
    }

    /// A thread has got a shard. Whether others should hear of it.
    pub(super) fn claimed(&self, thread: usize, shard: Suspicion) -> bool {
        let mut state = self.lock();
        state.threads[thread] = Doing::Something;
        shard != Suspicion::Suspect && state.open(thread)
    }

    /// A thread has passed over suspects and found nothing else: whether the others are asked to
    /// rest for it.
    pub(super) fn want(&self, thread: usize, now: LogicalTime) -> bool {
        let mut state = self.lock();
        let may = state.turn == Phase::Open && now >= state.not_before;
        if may {
            state.turn = Phase::Wanted(thread, now);
            state.turns += 1;
            state.threads[thread] = Doing::Nothing;
        }
        may
    }

    /// What a thread with a shard is to do.
    pub(super) fn word(&self, thread: usize) -> Word {
        let state = self.lock();
        let rest = match state.turn {
            Phase::Open => false,
            Phase::Wanted(by, _) | Phase::Alone(by) => by != thread,
        };
        Word { rest, turn: state.turns }
    }

    /// How a step went that began with `word`: whether the shard rests, and whether it is a suspect
    /// still. Whether others should hear of it.
    pub(super) fn stepped(&self, thread: usize, word: Word, still: bool, suspect: bool) -> bool {
        let mut state = self.lock();
        let doing = if word.rest && still { Doing::Rest(word.turn) } else { Doing::Something };
        let is_news = state.threads[thread] != doing && doing != Doing::Something;
        state.threads[thread] = doing;
        (!suspect && state.open(thread)) || is_news
    }

    /// A thread has no shard any more, or goes home. Whether others should hear of it.
    pub(super) fn left(&self, thread: usize) -> bool {
        let mut state = self.lock();
        state.threads[thread] = Doing::Nothing;
        state.open(thread) || state.turn != Phase::Open
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is known of a shard that was just claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Suspicion {
    None,
    Suspect,
}

impl State {
    fn begin_claim(&mut self, thread: usize) -> Entry {
        self.threads[thread] = Doing::Something;
        Entry::Shared
    }

    fn others_rest(&self, thread: usize) -> bool {
        let turn = self.turns;
        self.threads.iter().enumerate().all(|(other, doing)| {
            other == thread || matches!(doing, Doing::Nothing) || *doing == Doing::Rest(turn)
        })
    }

    fn is_out_of_patience(&self, since: LogicalTime, now: LogicalTime) -> bool {
        now >= since.saturating_add(self.patience)
    }

    fn give_up(&mut self, now: LogicalTime) {
        self.turn = Phase::Open;
        self.not_before = now.saturating_add(self.patience.saturating_mul(GO_ON_TIMES));
        self.patience = self.patience.saturating_mul(2).min(PATIENCE_LONGEST);
    }

    /// Ends the turn of `thread`, if it is its turn.
    fn open(&mut self, thread: usize) -> bool {
        let is_mine = match self.turn {
            Phase::Open => false,
            Phase::Wanted(by, _) | Phase::Alone(by) => by == thread,
        };
        if is_mine {
            self.turn = Phase::Open;
        }
        is_mine
    }
}
