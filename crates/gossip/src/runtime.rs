//! The worker of a run and what it reports: for programs that need more than [`Scan`](crate::Scan).
//!
//! Its sources are in [`sources`](crate::sources), its certificates in
//! [`certificate`](crate::certificate).

pub use gossip_scanner_runtime::{
    Accumulator, AccumulatorError, Broken, CELL_ROUNDING, Clock, ClockOffset, CommandFinding,
    CommandStatus, Cut, DEFAULT_SHARDS_MAX, Density, Drain, Eta, Event, EventLog, FailedItem,
    Finish, Host, INITIAL_SHARDS_MAX, ITEM_RESULTS_MAX, InitialShardsError, Inline, ItemFailure,
    ItemResult, ItemWatermark, Job, JobError, JobKey, LEASE_SHORTEST, Limits, LogEntry,
    MAX_JOB_SIZE, MAX_THREADS, Named, Observed, Observer, OpenRunError, OpenedRun, OpenedState,
    PartError, Parts, Presence, Processor, Progress, ProgressKind, ProgressMeter, ReadJobError,
    Report, ResultsError, RunLook, RunPlan, RunRequest, RunWorkerError, RuntimeToken,
    SHARDS_PER_THREAD, STORE_PATIENCE, Setting, Silence, Slice, SliceState, StartError, StoredJob,
    StoredResults, StreamFormat, SystemClock, SystemHost, TaskConfig, TaskOutcome, TokenError,
    UnreadableCommandFinding, Work, WorkerConfig, cells_touched, collect_abandoned, exec,
    for_each_result, fresh_op_id, initial_shards, job_of, list_failures, monotonic_ticks, open_run,
    revoke_orphan, spread, stored_job_of, work, worker_of,
};
