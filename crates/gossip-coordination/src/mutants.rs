//! Planted bugs of the engine: mistakes that others have made, each one line of production code
//! away.
//!
//! A bug stands where the code would be wrong, as `planted!(Name)`, which in a product is `false`
//! (`planted.rs`). With the switches, which only the tests of this crate and a build with
//! `--cfg planted_bugs` have:
//!
//! - [`with`] plants a bug for one call in one thread; `cargo xtask hall` goes through all of them
//!   so, with the model checker and the simulator, and each must be found;
//! - the variable `GOSSIP_PLANTED_BUG=Name` plants a bug in a whole process, with every guard in
//!   its place: then the ordinary tests must be red (`cargo xtask hall --broken`).
//!
//! The oracles know nothing of this list. To add a bug: a row below, with the story it comes from
//! and who looks for it, and `planted!` at the line that it breaks.

use std::cell::Cell;
#[cfg(any(test, planted_bugs))]
use std::sync::OnceLock;

/// Whether this build has switches at all.
pub const HAS_SWITCHES: bool = cfg!(any(test, planted_bugs));

/// Who looks for a bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "whoever hunts must know every place")]
pub enum Hunter {
    /// The model checker, in the world of this name.
    Model(&'static str),
    /// The simulator, in the worlds of its first seeds.
    Simulator,
    /// The simulator, in worlds that have the faults of this list and no others, and whose store
    /// ties keys to processes.
    Faults(&'static str),
}

/// Which part of the engine a bug is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "the parts that are searched")]
pub enum Part {
    /// The rules: `protocol`, `validation`, the records.
    Kernel,
    /// Flights, indexes, counters, keys.
    Store,
    /// Records as bytes.
    Codec,
}

macro_rules! mutants {
    ($($name:ident: $part:ident, $hunter:expr, $what:literal, $story:literal;)*) => {
        /// One planted bug.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[expect(clippy::exhaustive_enums, reason = "the list is what the hunts go through")]
        pub enum Mutant {
            $(#[doc = $what] $name,)*
        }

        impl Mutant {
            /// Every planted bug.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// Its name.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => stringify!($name),)* }
            }

            /// What is wrong.
            #[must_use]
            pub const fn what(self) -> &'static str {
                match self { $(Self::$name => $what,)* }
            }

            /// Where it comes from.
            #[must_use]
            pub const fn story(self) -> &'static str {
                match self { $(Self::$name => $story,)* }
            }

            /// Where it is.
            #[must_use]
            pub const fn part(self) -> Part {
                match self { $(Self::$name => Part::$part,)* }
            }

            /// Who looks for it.
            #[must_use]
            pub const fn hunter(self) -> Hunter {
                match self { $(Self::$name => $hunter,)* }
            }
        }
    };
}

const LEASE: Hunter = Hunter::Model("lease");
const SKEW: Hunter = Hunter::Model("skew");
const SPLITS: Hunter = Hunter::Model("splits");
const ATTEMPTS: Hunter = Hunter::Model("attempts");
const HANDOFF: Hunter = Hunter::Model("handoff");
const RUNS: Hunter = Hunter::Model("runs");
const REPLAY: Hunter = Hunter::Model("replay");
const TENANTS: Hunter = Hunter::Model("tenants");
const REQUESTS: Hunter = Hunter::Model("requests");
const SIM: Hunter = Hunter::Simulator;
const EARLY_REVOKE: Hunter = Hunter::Faults("early-revoke");

mutants! {
    FenceIgnored: Kernel, LEASE,
        "The fence is not compared, only the owner's name.",
        "locks by name and lease: a client that paused beyond its lease wakes up and writes \
         (Kleppmann on Redlock; HBase once had it)";
    ExpiryInclusive: Kernel, LEASE,
        "A lease still counts at its deadline: `<=` for `<`.",
        "two sides that disagree about the last instant of a lease";
    TenantUnchecked: Kernel, TENANTS,
        "A lease of another tenant is as good as one's own.",
        "services that check whose an object is when it is listed, and not when it is used";
    HintForSafety: Kernel, EARLY_REVOKE,
        "A shard whose owner key is gone is taken over at once.",
        "etcd locks: the key of a live holder vanishes with a lease that was revoked early \
         (Jepsen, etcd 3.4.3)";
    StealsLiveLease: Kernel, LEASE,
        "Whoever asks gets the shard, also while its owner is alive.",
        "consumers of Kinesis and Event Hubs that steal from each other, back and forth, and never \
         settle";
    RenewRevives: Kernel, LEASE,
        "A renewal brings an expired lease back to life.",
        "a clock that stepped back, or a renewal that was late, revives what others may have taken";
    RenewShortens: Kernel, SKEW,
        "A renewal by a clock that lags makes the lease shorter.",
        "heartbeats that overwrite a deadline: after a step of the clock the owner loses what it \
         was promised";
    StaleSessionRenews: Kernel, LEASE,
        "A renewal is taken from an earlier grant of the same worker.",
        "CockroachDB's jobs: the resumer of an expired session goes on beside the new one, because \
         who runs a job was known by its node; the session became part of the claim";
    RenewalLost: Kernel, LEASE,
        "A renewal is acknowledged and not stored.",
        "a worker that renews in memory while the table says otherwise";
    CheckpointLost: Kernel, LEASE,
        "A checkpoint is acknowledged and its cursor not stored.",
        "acknowledged writes that were lost, in many of Jepsen's reports";
    CursorFalls: Kernel, LEASE,
        "A checkpoint may move the cursor back.",
        "progress that overwrites the resume point: a late report of a slow thread wins over a \
         newer one";
    StaleProgressWins: Kernel, LEASE,
        "A checkpoint under an old fence is taken if it is ahead of the cursor.",
        "CockroachDB's jobs: progress written by a resumer that had lost its claim, before updates \
         of a job compared who had claimed it";
    CursorOutside: Kernel, SIM,
        "A cursor may lie outside the shard's range.",
        "a scanner that ran over the end of its range says that it did, and nobody objects";
    CursorReset: Kernel, LEASE,
        "A new owner starts from nothing.",
        "resume that works once: the second owner starts over (Elasticsearch's reindex has no \
         resume at all)";
    ResumesOnce: Kernel, SIM,
        "The second owner finds the cursor, the third starts from nothing.",
        "resume that works once and loses everything the second time: backfills of CockroachDB, \
         scans of TruffleHog";
    ReplayAfterLease: Kernel, LEASE,
        "A retry of a checkpoint is answered only if the lease is still good.",
        "idempotency behind authorisation: the retry of what succeeded is told that it failed";
    ReplayForgotten: Kernel, SIM,
        "A retry is executed again.",
        "at-least-once delivery without a memory of what was done";
    PayloadIgnored: Kernel, REPLAY,
        "A retry with other parameters is answered as if they were the same.",
        "idempotency keys that are reused: the reason why payment interfaces compare parameters";
    TerminalEntryEvicted: Kernel, LEASE,
        "The log forgets the operation by which a shard ended.",
        "bounded deduplication that forgets the one request whose answer matters most";
    ChildLost: Kernel, SPLITS,
        "The last child of a replacing split is not made.",
        "resharding in Kinesis clients: children without a lease, which nobody reads until an \
         audit of hash ranges finds the hole";
    ResidualLost: Kernel, SPLITS,
        "The shard that takes the right part is not made.",
        "the same when a range is shortened first and its rest is queued second";
    ResidualOverlaps: Kernel, SPLITS,
        "The parent keeps the range that it gave away.",
        "two tasks over overlapping ranges: work is done twice, and counted twice";
    ChildFenceRestarts: Kernel, SPLITS,
        "Children start at the first fence instead of their parent's.",
        "a new object with a new counter: sinks that compare take a zombie's write for newer";
    ChildForgetsProgress: Kernel, SPLITS,
        "The child that contains the cursor starts from nothing.",
        "a split that redoes what was done";
    DerivedIdRepeats: Kernel, SPLITS,
        "Derived ids leave the child's number out, and a taken id is overwritten.",
        "names made by a hash of too little, and a put that does not ask whether there is one";
    LimitIgnored: Kernel, SPLITS,
        "The limit on shards is not looked at.",
        "one tenant that floods a service shared by all";
    AttemptsUncounted: Kernel, ATTEMPTS,
        "A grant does not count as an attempt.",
        "a poisoned record kills its consumer, is handed to the next, kills that, for ever";
    StandstillIsProgress: Kernel, ATTEMPTS,
        "A checkpoint that does not move the cursor clears the attempts.",
        "liveness probes that a stuck process passes";
    AttemptsSurviveUnpark: Kernel, ATTEMPTS,
        "An unparked shard keeps its attempts.",
        "a dead-letter queue that takes back at once what an operator put in again";
    FenceReusedAfterUnpark: Kernel, ATTEMPTS,
        "An unparked shard keeps its fence.",
        "a counter that belongs to the owner and not to the thing: a second life with the epoch of \
         the first";
    FenceReusedAfterRevoke: Kernel, ATTEMPTS,
        "A revoked shard keeps its fence.",
        "an administrator who unlocks, and the owner that was only slow goes on writing";
    DoneIsUnparked: Kernel, SIM,
        "A shard that is done can be unparked.",
        "jobs put back into their queue by a filter on their names: those that had finished run a \
         second time";
    DoneIsGranted: Kernel, LEASE,
        "A shard that is done is handed out again.",
        "whatever has no live owner is handed out: nobody asks whether its last owner had finished";
    AcceptedByAnybody: Kernel, HANDOFF,
        "Anybody may accept an offer.",
        "a handoff announced to all: two that hear it both begin";
    AcceptedLate: Kernel, HANDOFF,
        "An offer can be accepted after its deadline.",
        "a message that arrives after its sender gave up and went on";
    RollbackAfterAccept: Kernel, HANDOFF,
        "An accepted move is answered and not stored: the old owner goes on.",
        "rebalancing in Akka and Kinesis clients: rolled back after the other side was told, and \
         two own the shard";
    WithdrawUnchecked: Kernel, HANDOFF,
        "A withdrawal is taken from whoever sends it.",
        "the same from the source's side: a rollback after the acknowledgement";
    SourceNotFrozen: Kernel, HANDOFF,
        "An offer does not freeze its source.",
        "a source that goes on writing while its state is on the way";
    LateOfferStands: Kernel, HANDOFF,
        "A late offer stands although it was withdrawn.",
        "a cancelled request that was queued somewhere and arrives";
    WithdrawalForgotten: Kernel, HANDOFF,
        "A withdrawal is not remembered.",
        "cancellation that is done once and not known afterwards";
    OfferStrands: Kernel, HANDOFF,
        "A shard whose offer ran out is never free again.",
        "shards stranded between two phases of a handoff, until somebody edits the table";
    FrozenForEver: Kernel, SIM,
        "The owner of a frozen shard may renew without end.",
        "a handoff whose destination died, held open by heartbeats";
    DeadRunGrows: Kernel, RUNS,
        "Shards of a run that is over are handed out and split.",
        "jobs that go on after they were cancelled";
    PauseIgnored: Kernel, RUNS,
        "Shards of a paused run are handed out.",
        "a pause that stops what runs and not what starts";
    PausedShardAdopted: Kernel, SIM,
        "A shard whose owner is gone is handed out although its run is paused.",
        "CockroachDB's jobs: a paused job is found without a live owner and adopted again";
    RunEndsUnsettled: Kernel, RUNS,
        "A run completes whatever its shards do.",
        "jobs that report success with tasks left: the last report wins";
    RunIdReused: Kernel, RUNS,
        "A deleted run's id can be used again.",
        "a table dropped and made again under its name: old writers meet new counters";
    ShardNotCompared: Store, SIM,
        "The shard is not compared in the commit.",
        "read, decide, write: the lost update";
    RunNotCompared: Store, SIM,
        "The run is not compared in the commit.",
        "a check of one row and a write of another: write skew";
    LimitOutsideTransaction: Store, SIM,
        "Shards are counted outside the transaction that makes them.",
        "count, then insert: quotas that are exceeded by whoever races";
    RegistrationNotCompared: Store, SIM,
        "Operations on a run do not compare its head.",
        "two that create the same job, each with a list of its own";
    LostReplyIsFailure: Store, SIM,
        "A commit whose reply was lost is told as one that failed.",
        "a renewal that timed out and had succeeded: the owner gives up what it holds";
    LostReplyIsSuccess: Store, SIM,
        "A commit whose reply was lost is told as one that happened.",
        "an error that is swallowed: what PostgreSQL learnt about fsync in 2018";
    GrantByName: Store, SIM,
        "A lost reply is settled by whether anybody was granted the shard.",
        "two processes with one name, each sure to be the holder";
    ConflictIsSuccess: Store, SIM,
        "A commit that lost a race is told as one that happened.",
        "`UPDATE … WHERE version = …` whose number of rows nobody looks at";
    TornBatch: Store, SIM,
        "Newborn shards are stored without their second part.",
        "a batch of which half was written";
    IndexForgotten: Store, SIM,
        "A shard that becomes free is not put back into the claim index.",
        "a queue beside the table: what is lost in between is in neither";
    TenantMissingInKey: Store, SIM,
        "Keys leave the tenant out, so scans meet other tenants.",
        "a cache or index keyed by an id that is unique within one tenant only";
    SweepForgetsCount: Store, SIM,
        "Deleting shards does not give their count back.",
        "quotas that only grow, until nobody can begin anything";
    HalfDeletedForgotten: Store, SIM,
        "What a deletion left that broke off is never looked for.",
        "a job that deletes in steps and is killed: rows that no listing shows and a quota counts";
    GoodCursorRefused: Kernel, SIM,
        "One good checkpoint in a hundred is refused as a step back.",
        "positions compared as text: 10 comes before 9, now and then";
    RenewalToldOld: Kernel, SIM,
        "A renewal is stored, and its caller is told the deadline before it.",
        "an answer built from what was read and not from what was written";
    OfferAlwaysReplayed: Kernel, SIM,
        "Every offer is answered as one that was made before.",
        "retries made quiet by ignoring what already exists, whatever it says";
    RequestAlwaysReplayed: Kernel, REQUESTS,
        "Every request of an administrator is answered as one that stands already.",
        "a console that says done to whatever is clicked, because the last click was";
    RequestAlwaysConflicts: Kernel, REQUESTS,
        "Every request of an administrator is refused as another's id.",
        "a deduplication that takes every message for one it has seen, and drops it";
    RequestMixedUp: Kernel, REQUESTS,
        "Whatever is asked of an owner, that it give its shard back is stored.",
        "an enumeration with a default: what the reader does not know becomes its first value";
    RequestUnseen: Kernel, REQUESTS,
        "An owner is never shown what is asked of it.",
        "a drain that was ordered and never arrived: the flag is set in a table nobody reads";
    ParkReasonMixedUp: Kernel, SIM,
        "A shard is set aside for another reason than was given.",
        "an error that is logged as the one before it: a person looks for the wrong thing";
    TokenLost: Kernel, SIM,
        "A checkpoint stores the position and not the connector's token.",
        "resume by key alone: the page token is gone, and the source is listed from its start";
    MetadataLost: Kernel, SIM,
        "The children of a split are made without the connector's bytes.",
        "a copy that names each field, written before the last field was added";
    WorkerStateMixedUp: Store, SIM,
        "A worker that works is entered as one that drains.",
        "a registry that tells balancers to send nothing to whoever is idle";
    DoneCountedTwice: Store, SIM,
        "Progress counts shards that are done twice.",
        "a join that multiplies rows: dashboards beyond a hundred per cent";
    WorkersOfAllTenants: Store, SIM,
        "The list of workers is of all tenants.",
        "the one listing without the filter that all others have";
    LastWorkerUnlisted: Store, SIM,
        "The last worker is left out of the list.",
        "the last row of a page that nobody reads: off by one";
    PageEndLost: Store, SIM,
        "The last run of a full page is left out of it.",
        "a row more is read to know whether there is a next page, and it is in neither of the two";
    PageBeginsAtLast: Store, SIM,
        "A page of runs begins at the one that it was to begin behind.",
        "`>=` for `>` in a page by key: a row comes twice, and who walks by ones never ends";
    FilterIgnoresExpiry: Store, SIM,
        "A filter takes a lease that ran out for a live one.",
        "a console that shows dead nodes as owners: the column is set, and nobody asks since when";
    AlwaysInDoubt: Store, SIM,
        "Every failure says that it may have happened.",
        "unknown outcomes handed out for everything: callers can rely on nothing";
    RetriedShardFails: Kernel, SIM,
        "A shard that was tried twice before can never be claimed: the claim fails.",
        "a queue whose first entry is poisoned: every consumer takes it, fails and comes back";
    LongRunNeverEnds: Store, SIM,
        "Completing a run of many roots fails each time, as if it could be tried again.",
        "a scan that starts anew whenever its revision was compacted, longer than the interval";
    ChecksumWithoutKey: Codec, SIM,
        "The checksum is not bound to the key.",
        "misdirected reads and writes: a whole, valid record of somebody else";
    ChecksumUnchecked: Codec, SIM,
        "A checksum is written and not compared.",
        "checksums that nobody reads: found when it is too late";
}

thread_local! {
    /// What is planted in this thread, and whether the guards look.
    static PLANTED: Cell<Option<(Mutant, Guards)>> = const { Cell::new(None) };
}

/// What `GOSSIP_PLANTED_BUG` says, for the whole life of the process.
#[cfg(any(test, planted_bugs))]
static OF_THIS_PROCESS: OnceLock<Option<Mutant>> = OnceLock::new();

/// Whether the guards of the kernel look at what a planted bug does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "they look or they do not")]
pub enum Guards {
    /// As in a product.
    On,
    /// The bug has its way, and the oracles must find it.
    Off,
}

/// Calls `work` with `mutant` planted in this thread.
pub fn with<T>(mutant: Mutant, guards: Guards, work: impl FnOnce() -> T) -> T {
    let _before = Before(PLANTED.replace(Some((mutant, guards))));
    work()
}

/// Puts back what was planted before, also if `work` panics.
struct Before(Option<(Mutant, Guards)>);

impl Drop for Before {
    fn drop(&mut self) {
        PLANTED.set(self.0);
    }
}

/// Whether `mutant` is planted in this build or this thread.
#[cfg(any(test, planted_bugs))]
#[inline]
pub(crate) fn is_planted(mutant: Mutant) -> bool {
    PLANTED.get().is_some_and(|(planted, _)| planted == mutant)
        || *OF_THIS_PROCESS.get_or_init(of_environment) == Some(mutant)
}

/// Whether any bug is planted in this thread, or in this process.
#[cfg(any(test, planted_bugs))]
#[inline]
pub(crate) fn is_any_planted() -> bool {
    PLANTED.get().is_some() || OF_THIS_PROCESS.get_or_init(of_environment).is_some()
}

/// Whether the guards look in this thread.
#[cfg(any(test, planted_bugs))]
#[inline]
pub(crate) fn is_guarded() -> bool {
    PLANTED.get().is_none_or(|(_, guards)| guards == Guards::On)
}

/// The bug that the environment names. A name that does not exist is an error of whoever typed it.
#[cfg(any(test, planted_bugs))]
#[expect(clippy::disallowed_methods, reason = "a build with switches is no product")]
fn of_environment() -> Option<Mutant> {
    let name = std::env::var("GOSSIP_PLANTED_BUG").ok()?;
    let known = Mutant::ALL.iter().copied().find(|mutant| mutant.name() == name);
    Some(known.expect("GOSSIP_PLANTED_BUG is the name of a planted bug"))
}
