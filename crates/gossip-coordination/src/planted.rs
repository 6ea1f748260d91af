//! The switch of a planted bug.
//!
//! A bug stands where the code would be wrong, as `planted!(Name)`. In a product that is `false`,
//! and the compiler takes the rest away: no switch, no list of bugs. The switches are there in the
//! tests of this crate and in a build with `--cfg planted_bugs`; the list is `mutants.rs`.

/// Whether the bug of this name is planted here and now; `false` in a product.
#[cfg(any(test, planted_bugs))]
macro_rules! planted {
    ($name:ident) => {
        $crate::mutants::is_planted($crate::mutants::Mutant::$name)
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

/// Whether any bug is planted here and now.
#[cfg(any(test, planted_bugs))]
#[inline]
pub(crate) fn is_any() -> bool {
    crate::mutants::is_any_planted()
}

/// Whether any bug is planted here and now: never, in a product.
#[cfg(not(any(test, planted_bugs)))]
#[inline(always)]
pub(crate) const fn is_any() -> bool {
    false
}

/// Whether the guards of the kernel look. They stop most planted bugs before anything is stored,
/// so a hunt that asks what the oracles see puts them away.
#[cfg(any(test, planted_bugs))]
#[inline]
pub(crate) fn is_guarded() -> bool {
    crate::mutants::is_guarded()
}

/// Whether the guards of the kernel look: always, in a product.
#[cfg(not(any(test, planted_bugs)))]
#[inline(always)]
pub(crate) const fn is_guarded() -> bool {
    true
}
