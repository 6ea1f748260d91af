//! Planted bugs of the worker's loop, each one line of production code away.
//!
//! A bug stands where the code would be wrong, as `planted!(Name)` (`planted.rs`). [`with`] plants
//! one for one call in one thread. Simulated worlds must find each of [`Bug::ALL`], and schedules
//! of real threads (`worker/shuttle_tests.rs`) each of [`Bug::THREADED`], which a world that steps
//! its threads one after the other cannot meet. The oracle knows nothing of these lists. To add a
//! bug: a row below, and `planted!` at the line that it breaks.

use std::cell::Cell;

/// Whether this build has switches at all.
pub const HAS_SWITCHES: bool = cfg!(any(test, planted_bugs));

macro_rules! bugs {
    ($(@$list:ident, $found:literal: $($name:ident: $what:literal;)*)*) => {
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
        }
    };
}

bugs! {
    @ALL, "What simulated worlds find.":
    RecordsBeforeResults: "An item counts as done when it is given out, not when it is reported.";
    WatermarkIgnored: "The cursor moves to the last finished item, past one still under way.";
    GoesOnWithoutLease: "A task that was told that its lease is gone, or sees it end, goes on.";
    OffersUnderWay: "A shard is offered while items of it are under way.";
    LastPageUnread: "A shard is completed after its first page.";
    ReleasesUnrecorded: "A shard is given back without recording what was finished.";
    SplitNotHeard: "The owner of a shard that was split goes on to the old end of its range.";
    RetriesAnew: "An operation that may have happened is repeated under a new id.";
    CountsAnew: "A new owner counts from nothing what its predecessor had counted.";
    ParksTheRest: "A key that fails takes everything behind it along when it is set aside.";
    StandsForEver: "A shard whose move came to nothing is not told to go on.";
    RunsAhead: "Behind an item that waits for another try the whole page is done, unrecorded.";
    MovesBeforeRetry: "A shard is given back or moved while an item of it waits for another try.";

    @THREADED, "What schedules of threads find.":
    RingMissed: "Whoever is about to wait does not hear a ring from just before.";
    NotCalledHome: "The renewer does not look again before it rests whether all have gone.";
    NoteForAnother: "Word of a renewal is left for whoever sits in the seat by now.";
    LossNotTold: "The renewer hears that a lease is lost, and tells nobody.";
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
