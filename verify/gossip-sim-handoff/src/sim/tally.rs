//! What many schedules came to.

use std::ops::AddAssign;

/// How often what raced with a planned move.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Races {
    /// Offers that stood.
    pub offers: u64,
    /// Offers that were accepted.
    pub moves: u64,
    /// A shard was split while a move of it was under way.
    pub split: u64,
    /// A shard was taken by somebody else while a move of it was under way.
    pub expiry: u64,
    /// A shard was parked while a move of it was under way.
    pub park: u64,
    /// The run was cancelled while a move was under way.
    pub cancel: u64,
    /// A shard was offered that had moved before, or while an earlier move was not over.
    pub second: u64,
    /// An offer was withdrawn.
    pub withdrawn: u64,
}

impl Races {
    /// The kinds of races, with their names, and in how many of a thousand schedules each must be
    /// met on average for a campaign to have shown anything.
    #[must_use]
    pub const fn kinds(&self) -> [(&'static str, u64, u64); 6] {
        [
            ("split", self.split, 50),
            ("expiry", self.expiry, 50),
            ("park", self.park, 20),
            ("run cancel", self.cancel, 20),
            ("second handoff", self.second, 50),
            ("withdrawn offer", self.withdrawn, 50),
        ]
    }
}

impl AddAssign for Races {
    fn add_assign(&mut self, other: Self) {
        self.offers += other.offers;
        self.moves += other.moves;
        self.split += other.split;
        self.expiry += other.expiry;
        self.park += other.park;
        self.cancel += other.cancel;
        self.second += other.second;
        self.withdrawn += other.withdrawn;
    }
}

/// What was done to the store and to processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// Requests that never arrived.
    pub lost_requests: u64,
    /// Replies that never arrived.
    pub lost_replies: u64,
    /// Requests that arrived when nobody waited for them any more.
    pub delayed: u64,
    /// Requests that arrived twice.
    pub doubled: u64,
    /// Operations of which nothing more was heard.
    pub silences: u64,
    /// Processes that ended between or within operations.
    pub crashes: u64,
    /// Times that the clock jumped by a lease.
    pub jumps: u64,
    /// Worlds in which clocks differed.
    pub skewed: u64,
    /// Steps of others in the middle of an operation.
    pub meanwhile: u64,
}

impl AddAssign for Faults {
    fn add_assign(&mut self, other: Self) {
        self.lost_requests += other.lost_requests;
        self.lost_replies += other.lost_replies;
        self.delayed += other.delayed;
        self.doubled += other.doubled;
        self.silences += other.silences;
        self.crashes += other.crashes;
        self.jumps += other.jumps;
        self.skewed += other.skewed;
        self.meanwhile += other.meanwhile;
    }
}
