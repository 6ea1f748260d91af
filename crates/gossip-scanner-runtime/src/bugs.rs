//! Planted bugs of the worker's loop, each one line of production code away.
//!
//! A bug stands where the code would be wrong, as `planted!(Name)` (`planted.rs`). [`with`] plants
//! one for one call in one thread. Simulated worlds must find each of [`Bug::ALL`], and schedules
//! of real threads (`worker/shuttle_tests.rs`) each of [`Bug::THREADED`], which a world that steps
//! its threads one after the other cannot meet. The oracle knows nothing of these lists. To add a
//! bug: a row below, with the story it comes from, and `planted!` at the line that it breaks.

use std::cell::Cell;

/// Whether this build has switches at all.
pub const HAS_SWITCHES: bool = cfg!(any(test, planted_bugs));

macro_rules! bugs {
    ($(@$list:ident, $found:literal: $($name:ident: $what:literal, $story:literal;)*)*) => {
        /// One planted bug.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[expect(clippy::exhaustive_enums, reason = "the list is what the hunt goes through")]
        pub enum Bug {
            $($(#[doc = $what] $name,)*)*
        }

        impl Bug {
            $(
                #[doc = $found]
                pub const $list: &[Self] = &[$(Self::$name,)*];
            )*

            /// Its name.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $($(Self::$name => stringify!($name),)*)* }
            }

            /// What is wrong.
            #[must_use]
            pub const fn what(self) -> &'static str {
                match self { $($(Self::$name => $what,)*)* }
            }

            /// Where it comes from.
            #[must_use]
            pub const fn story(self) -> &'static str {
                match self { $($(Self::$name => $story,)*)* }
            }
        }
    };
}

bugs! {
    @ALL, "What simulated worlds find.":
    RecordsBeforeResults:
        "An item counts as done when it is given out, not when it is reported.",
        "TruffleHog: a source sets its progress when it hands chunks on, so a resumed scan begins \
         behind some whose results never came out";
    WatermarkIgnored:
        "The cursor moves to the last finished item, past one still under way.",
        "objects of a bucket scanned side by side: the fastest sets the resume point and the \
         slower are skipped, which is why TruffleHog's S3 source keeps a mark without holes";
    GoesOnWithoutLease:
        "A task that was told that its lease is gone, or sees it end, goes on.",
        "Kinesis clients: a worker that lost its lease goes on, and checkpoints beside its \
         successor";
    OffersUnderWay:
        "A shard is offered while items of it are under way.",
        "rebalancing while work is in flight: both sides do it, or neither";
    LastPageUnread:
        "A shard is completed after its first page.",
        "a listing whose continuation nobody follows: all after the first thousand is missing";
    ReleasesUnrecorded:
        "A shard is given back without recording what was finished.",
        "a shutdown that gives up the shard before its last checkpoint: the next owner repeats it";
    SplitNotHeard:
        "The owner of a shard that was split goes on to the old end of its range.",
        "resharding that the running consumer does not hear of";
    RetriesAnew:
        "An operation that may have happened is repeated under a new id.",
        "retries that draw a new idempotency key each time";
    CountsAnew:
        "A new owner counts from nothing what its predecessor had counted.",
        "percentages that start over after a resume: CockroachDB's jobs, TruffleHog's scans";
    ParksTheRest:
        "A key that fails takes everything behind it along when it is set aside.",
        "one bad record, and the consumer skips what came with it in its batch";
    StandsForEver:
        "A shard whose move came to nothing is not told to go on.",
        "a consumer paused for a rebalance that came to nothing, and never resumed";
    RunsAhead:
        "Behind an item that waits for another try the whole page is done, unrecorded.",
        "reading ahead without end behind a record that is retried: a crash repeats all of it";
    MovesBeforeRetry:
        "A shard is given back or moved while an item of it waits for another try.",
        "a planned stop in the middle of a retry: the next owner starts the page over";

    @THREADED, "What schedules of threads find.":
    RingMissed:
        "Whoever is about to wait does not hear a ring from just before.",
        "the lost wake-up: a signal between the look at the condition and the wait";
    NotCalledHome:
        "The renewer does not look again before it rests whether all have gone.",
        "a background thread that sleeps once more after everybody has left, and is joined late";
    NoteForAnother:
        "Word of a renewal is left for whoever sits in the seat by now.",
        "an answer that arrives for the one before: a heartbeat credited to the next lease";
    LossNotTold:
        "The renewer hears that a lease is lost, and tells nobody.",
        "Kinesis clients: the renewing thread knows of the loss long before the one that works";
}

thread_local! {
    static PLANTED: Cell<Option<Bug>> = const { Cell::new(None) };
}

/// Calls with `bug` planted, in this thread and for this call.
pub(crate) fn with<T>(bug: Option<Bug>, call: impl FnOnce() -> T) -> T {
    PLANTED.set(bug);
    let told = call();
    PLANTED.set(None);
    told
}

/// Whether `bug` is planted in this thread.
#[cfg(any(test, planted_bugs))]
pub(crate) fn is_planted(bug: Bug) -> bool {
    PLANTED.get() == Some(bug)
}
