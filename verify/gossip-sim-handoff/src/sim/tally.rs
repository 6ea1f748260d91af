//! Counters over many schedules.

use std::ops::AddAssign;

/// Number of races with a handoff, by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Races {
    /// Stored offers.
    pub offers: u64,
    /// Accepted offers.
    pub moves: u64,
    /// A shard was split during its handoff.
    pub split: u64,
    /// A shard was acquired by another worker during its handoff.
    pub expiry: u64,
    /// A shard was parked during its handoff.
    pub park: u64,
    /// The run was cancelled during a handoff.
    pub cancel: u64,
    /// A shard was offered after or during an earlier handoff.
    pub second: u64,
    /// An offer was withdrawn.
    pub withdrawn: u64,
}

impl Races {
    /// Returns the kinds of races with their names and the required average number per thousand
    /// schedules.
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

/// Injected faults.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// Lost requests.
    pub lost_requests: u64,
    /// Lost replies.
    pub lost_replies: u64,
    /// Requests that arrived after their timeout.
    pub delayed: u64,
    /// Duplicated requests.
    pub doubled: u64,
    /// Operations without any further reply.
    pub silences: u64,
    /// Crashes of processes between or within operations.
    pub crashes: u64,
    /// Clock jumps by a lease duration.
    pub jumps: u64,
    /// Worlds in which clocks differed.
    pub skewed: u64,
    /// Steps of other participants within an operation.
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
