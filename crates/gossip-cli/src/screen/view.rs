//! What a frame shows, as plain data.

use std::time::Duration;

use gossip::runtime::Progress;

use super::map::Range;

/// How a run is named among others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Title {
    /// Its name, or the first digits of its id: for a line that shows more than that.
    pub(crate) short: String,
    /// Its name, id, source and command: for a line of its own.
    pub(crate) text: String,
}

/// Everything that a frame shows of one run.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct View {
    /// Shown above the map, if several runs are shown or it is not clear which one it is.
    pub(crate) title: Option<Title>,
    /// Progress of the whole run; `None` until it was read.
    pub(crate) progress: Option<Progress>,
    /// Keys that this process has done; shown while the progress of the run is not known.
    pub(crate) keys_here: u64,
    pub(crate) elapsed: Duration,
    /// Keys per second of the last seconds, of the whole run as far as it is known.
    pub(crate) rate: f64,
    /// Failed items.
    pub(crate) failed: u64,
    /// Why nothing is processed, if that is so.
    pub(crate) halted: Option<String>,
    /// The shards of the run in the order of their ranges.
    pub(crate) ranges: Vec<Range>,
    /// Workers with a lease, in the order of their numbers.
    pub(crate) workers: Vec<Worker>,
    /// Jobs with an item, the longest first.
    pub(crate) lanes: Vec<Lane>,
    /// Jobs of this process, with an item or without.
    pub(crate) jobs: usize,
    /// The newest failed item and why it failed, escaped.
    pub(crate) failure: Option<String>,
}

/// A worker that holds leases of the run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Worker {
    /// Selects its colour and its letter.
    pub(crate) number: usize,
    /// A few words that identify it.
    pub(crate) name: String,
    /// How many shards it holds.
    pub(crate) shards: usize,
    /// Set if it does not renew its leases.
    pub(crate) stalled: Option<Stall>,
}

/// A worker that does not renew its leases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stall {
    /// Until the last of its leases ends.
    pub(crate) left: Duration,
    /// Whether its process is known to be gone.
    pub(crate) is_gone: bool,
}

/// What one job works on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Lane {
    /// Its number, from 1.
    pub(crate) job: usize,
    /// The item that it has had for longest, escaped.
    pub(crate) item: String,
    /// For how long.
    pub(crate) lasted: Duration,
    /// Further items that it has.
    pub(crate) more: usize,
}
