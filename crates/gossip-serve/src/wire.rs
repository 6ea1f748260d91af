//! The JSON of the API. Times are milliseconds since 1970, durations milliseconds, ids 16
//! hexadecimal digits.

use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::buckets::Cells;

/// The status of a run whose record is damaged.
pub(crate) const UNREADABLE: &str = "unreadable";

/// The shards of a run by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, ToSchema)]
pub(crate) struct ShardCounts {
    pub(crate) done: u64,
    pub(crate) leased: u64,
    pub(crate) waiting: u64,
    pub(crate) parked: u64,
    pub(crate) damaged: u64,
}

/// A run in a list.
#[derive(Clone, Debug, Default, PartialEq, Serialize, ToSchema)]
pub(crate) struct RunSummary {
    pub(crate) run: String,
    pub(crate) name: Option<String>,
    /// initializing, active, paused, incomplete, done, failed, cancelled, or unreadable.
    pub(crate) status: String,
    pub(crate) is_over: bool,
    pub(crate) source: Option<String>,
    pub(crate) command: Option<String>,
    pub(crate) created_at: u64,
    pub(crate) completed_at: Option<u64>,
    /// Whether the shards were read; until then the counts are absent.
    pub(crate) is_read: bool,
    /// Stored values that were read of a run whose shards are being read.
    pub(crate) rows_read: Option<u64>,
    pub(crate) keys: Option<u64>,
    pub(crate) unread: Option<u64>,
    pub(crate) total: Option<u64>,
    /// exact, estimated or unknown.
    pub(crate) total_kind: Option<String>,
    /// From 0 to 1.
    pub(crate) fraction: Option<f64>,
    /// Keys per second, over the last ten seconds.
    pub(crate) rate: Option<f64>,
    pub(crate) left_ms: Option<u64>,
    pub(crate) left_error_ms: Option<u64>,
    pub(crate) shards: Option<ShardCounts>,
    pub(crate) workers: Option<u64>,
}

/// A page of runs.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct RunPage {
    pub(crate) runs: Vec<RunSummary>,
    /// For the next page; absent on the last one.
    pub(crate) next: Option<String>,
    /// Whether the list of runs has been read completely since the server started.
    pub(crate) is_complete: bool,
}

/// A worker of a run.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub(crate) struct Lane {
    /// Its number in the buckets.
    pub(crate) number: u16,
    pub(crate) worker: String,
    pub(crate) name: String,
    /// Leases that it holds.
    pub(crate) shards: u64,
    /// The shard of which most remains.
    pub(crate) shard: String,
    /// Keys seen since the server follows the run.
    pub(crate) keys: u64,
    /// Keys per second, over the last ten seconds.
    pub(crate) rate: Option<f64>,
    /// Until its leases end, if it does not renew them.
    pub(crate) stalled_ms: Option<u64>,
    /// Whether its process is known to be gone.
    pub(crate) is_gone: bool,
    /// Whether it has less than half of the median rate of the run's workers.
    pub(crate) is_slow: bool,
}

/// A lease that changed hands.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub(crate) struct Mark {
    pub(crate) at: u64,
    /// takeover or handoff.
    pub(crate) kind: &'static str,
    pub(crate) shard: String,
    pub(crate) from: u16,
    pub(crate) to: u16,
}

/// A run with its map.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct RunView {
    #[serde(flatten)]
    pub(crate) summary: RunSummary,
    /// The time of the snapshot.
    pub(crate) at: u64,
    /// Number of buckets, at most 512.
    pub(crate) buckets: usize,
    /// Equal neighbouring buckets: `[count, state, worker number, covered percent]`.
    #[schema(value_type = Vec<Vec<serde_json::Value>>)]
    pub(crate) cells: Cells,
    pub(crate) workers: Vec<Lane>,
    pub(crate) marks: Vec<Mark>,
}

/// A run at one time of its history.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct Column {
    pub(crate) at: u64,
    pub(crate) keys: u64,
    #[schema(value_type = Vec<Vec<serde_json::Value>>)]
    pub(crate) cells: Cells,
    /// Worker number, leases held, keys so far.
    pub(crate) workers: Vec<(u16, u64, u64)>,
}

/// The history of a run since the server follows it.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct History {
    pub(crate) run: String,
    pub(crate) buckets: usize,
    /// Time between columns.
    pub(crate) interval_ms: u64,
    /// At most 256.
    pub(crate) columns: Vec<Column>,
}

/// An item that failed or could not be read.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct Failure {
    /// failed or unread.
    pub(crate) kind: &'static str,
    /// The parked shard of a failed item; `retry` takes it.
    pub(crate) shard: Option<String>,
    pub(crate) item: String,
    pub(crate) reason: Option<&'static str>,
    pub(crate) exit_code: Option<i32>,
    pub(crate) signal: Option<i32>,
    pub(crate) tries: Option<u32>,
    pub(crate) at: Option<u64>,
    pub(crate) host: Option<String>,
    pub(crate) pid: Option<u32>,
    pub(crate) message: Option<String>,
    pub(crate) stderr: Option<String>,
}

/// A page of failures.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct FailurePage {
    pub(crate) failures: Vec<Failure>,
    pub(crate) next: Option<String>,
    /// Parked and damaged shards of the run.
    pub(crate) failed: u64,
    pub(crate) unread: u64,
}

/// An event of a run.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct EventRow {
    /// Its place in the order.
    pub(crate) id: String,
    /// By the clock of the process that wrote it.
    pub(crate) at: u64,
    /// As `gossip events` writes it.
    pub(crate) event: &'static str,
    /// What happened, in words.
    pub(crate) text: String,
    pub(crate) shard: Option<String>,
    pub(crate) worker: Option<String>,
    /// Host and process of the worker, if it is registered.
    pub(crate) name: Option<String>,
    /// The worker from which a grant took the shard over.
    pub(crate) previous_worker: Option<String>,
    pub(crate) previous_name: Option<String>,
}

/// A page of events, the newest first.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct EventPage {
    pub(crate) events: Vec<EventRow>,
    pub(crate) next: Option<String>,
    /// Events that are not stored any more, at least.
    pub(crate) lost: u64,
    /// Whether all stored events of the run are in the pages.
    pub(crate) is_complete: bool,
}

/// A worker of the tenant.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub(crate) struct WorkerRow {
    pub(crate) worker: String,
    pub(crate) host: Option<String>,
    pub(crate) pid: Option<u32>,
    pub(crate) version: Option<String>,
    /// working, idle, draining, silent, ending, gone or unknown.
    pub(crate) state: &'static str,
    pub(crate) jobs: Option<u16>,
    pub(crate) run: Option<String>,
    pub(crate) shards: u64,
    pub(crate) rate: Option<f64>,
    pub(crate) is_slow: bool,
    pub(crate) last_seen: Option<u64>,
}

/// The workers of the tenant.
#[derive(Clone, Debug, Default, PartialEq, Serialize, ToSchema)]
pub(crate) struct Workers {
    pub(crate) workers: Vec<WorkerRow>,
}

/// The store as this server sees it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, ToSchema)]
pub(crate) struct StoreHealth {
    pub(crate) place: String,
    pub(crate) is_readable: bool,
    pub(crate) error: Option<String>,
    /// Missing parts although the store can be read: damaged records, failures of this server.
    pub(crate) warnings: Vec<String>,
    /// When it could be read last.
    pub(crate) last_read: Option<u64>,
    pub(crate) format: Option<u8>,
    pub(crate) runs: u64,
    pub(crate) runs_unfinished: u64,
    pub(crate) requests: u64,
    pub(crate) errors: u64,
    /// Requests in the last second; at most 20.
    pub(crate) requests_per_second: u64,
    pub(crate) latency_median_us: u64,
    pub(crate) latency_p99_us: u64,
}

/// Who is asking, and whom.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct Session {
    pub(crate) tenant: String,
    /// read or operate.
    pub(crate) role: &'static str,
    /// Whether this session may change anything.
    pub(crate) may_change: bool,
    pub(crate) version: String,
}

/// A token that is traded for a cookie.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SignIn {
    pub(crate) token: String,
}

/// The length only: a token must not reach a log.
impl fmt::Debug for SignIn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SignIn({} bytes)", self.token.len())
    }
}

/// The kind of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Verb {
    Pause,
    Resume,
    Cancel,
    /// Make the items of these shards, or all failed items, claimable again.
    Retry,
    /// Make one parked shard claimable again.
    Unpark,
    /// Ask the lease holder to split the remaining range.
    Split,
    /// Ask the lease holder to hand the shard off.
    Handoff,
    /// Ask the lease holder to release the shard.
    Release,
}

/// A change.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Action {
    pub(crate) action: Verb,
    pub(crate) run: String,
    /// The shard of unpark, split, handoff and release; of retry the only one.
    #[serde(default)]
    pub(crate) shard: Option<String>,
    /// The worker of handoff; any idle one if absent.
    #[serde(default)]
    pub(crate) to: Option<String>,
    /// Whether to describe the change only.
    #[serde(default)]
    pub(crate) dry_run: bool,
}

/// What a change did.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct Done {
    /// What happened, in one sentence.
    pub(crate) message: String,
    /// The command that does the same.
    pub(crate) command: String,
    /// Whether the same request had been executed before.
    pub(crate) is_replay: bool,
}

/// What the verification of a certificate found.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct Verification {
    pub(crate) summary: String,
    pub(crate) is_complete: bool,
    /// The command that does the same.
    pub(crate) command: String,
}
