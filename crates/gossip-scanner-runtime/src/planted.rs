//! The switch of a planted bug.
//!
//! A bug stands where the worker would be wrong, as `planted!(Name)`. In a product that is `false`,
//! and the compiler takes the rest away. The switches are there in the tests of this crate and in a
//! build with `--cfg planted_bugs`; the list is `bugs.rs`.

/// Whether the bug of this name is planted here and now; `false` in a product.
#[cfg(any(test, planted_bugs))]
macro_rules! planted {
    ($name:ident) => {
        $crate::bugs::is_planted($crate::bugs::Bug::$name)
    };
}

/// Whether the bug of this name is planted here and now; `false` in a product.
#[cfg(not(any(test, planted_bugs)))]
macro_rules! planted {
    ($name:ident) => {
        $crate::planted::never()
    };
}

pub(crate) use planted;

/// No bug is planted in a product. A call, because a bare `false` in a condition looks like a
/// mistake to those who look for mistakes.
#[cfg(not(any(test, planted_bugs)))]
#[inline(always)]
pub(crate) const fn never() -> bool {
    false
}
