//! Planted bugs of the worker's loop, each one line of production code away.
//!
//! A bug stands where the code would be wrong, as `planted!(Name)` (`planted.rs`). [`with`] plants
//! one for one call in one thread; simulated worlds must find each. The oracle knows nothing of
//! this list. To add a bug: a row below, with the story it comes from, and `planted!` at the line
//! that it breaks.

use std::cell::Cell;

/// Whether this build has switches at all.
pub const HAS_SWITCHES: bool = cfg!(any(test, planted_bugs));

macro_rules! bugs {
    ($($name:ident: $what:literal, $story:literal;)*) => {
        /// One planted bug.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[expect(clippy::exhaustive_enums, reason = "the list is what the hunt goes through")]
        pub enum Bug {
            $(#[doc = $what] $name,)*
        }

        impl Bug {
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
        }
    };
}

bugs! {
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
