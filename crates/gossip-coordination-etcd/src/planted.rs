//! The switches of planted bugs.
//!
//! A bug stands where a task would be wrong, as `planted!(Name)`. In a product that is `false`, and
//! the compiler takes the rest away. In the tests of this crate `with` plants one for one call in
//! one thread, and orders of tasks (`explorer_tests.rs`) must find it. To add a bug: a row in
//! `Bug`, and `planted!` at the line that it breaks.

/// Whether the bug of this name is planted here and now; `false` in a product.
#[cfg(test)]
macro_rules! planted {
    ($name:ident) => {
        $crate::planted::is_planted($crate::planted::Bug::$name)
    };
}

/// Whether the bug of this name is planted here and now; `false` in a product.
#[cfg(not(test))]
macro_rules! planted {
    ($name:ident) => {
        $crate::planted::never()
    };
}

pub(crate) use planted;

/// No bug is planted in a product. A call, because a bare `false` in a condition looks like a
/// mistake to those who look for mistakes.
#[cfg(not(test))]
#[inline(always)]
pub(crate) const fn never() -> bool {
    false
}

#[cfg(test)]
pub(crate) use self::switches::{Bug, is_planted, with};

#[cfg(test)]
mod switches {
    use std::cell::Cell;

    /// One planted bug.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) enum Bug {
        /// The outcomes of a batch are handed out in the wrong order.
        AnswersSwapped,
        /// A carrier that meets somebody who gave up ends, and nobody takes its place.
        CarrierLeaves,
        /// Who was sent past the queue keeps its place among the requests in flight.
        FlightKept,
        /// What nobody waits for any more is sent.
        GivenUpIsSent,
        /// Who waited while another was granted the lease asks for one again.
        GrantedTwice,
        /// Owners do not see that their keys may have vanished.
        LossNotCounted,
    }

    impl Bug {
        /// Every planted bug.
        pub(crate) const ALL: [Self; 6] = [
            Self::AnswersSwapped,
            Self::CarrierLeaves,
            Self::FlightKept,
            Self::GivenUpIsSent,
            Self::GrantedTwice,
            Self::LossNotCounted,
        ];
    }

    thread_local! {
        static PLANTED: Cell<Option<Bug>> = const { Cell::new(None) };
    }

    /// Calls with `bug` planted, in this thread and for this call.
    pub(crate) fn with<T>(bug: Bug, call: impl FnOnce() -> T) -> T {
        PLANTED.set(Some(bug));
        let told = call();
        PLANTED.set(None);
        told
    }

    /// Whether `bug` is planted in this thread.
    pub(crate) fn is_planted(bug: Bug) -> bool {
        PLANTED.get() == Some(bug)
    }
}
