//! The run-time switch of a mutant: one mutant for the life of a process.
//!
//! A hunt runs every layer in a process of its own, so that a mutant can also be found by a layer
//! that hangs, aborts or starts threads.

use std::sync::OnceLock;

use crate::catalog;

/// Whether this is the copy, in which mutants can be active.
pub const HAS_SWITCHES: bool = false;

/// The environment variable with the name of the active mutant.
pub const VARIABLE: &str = "GOSSIP_MUTANT";

/// The environment variable that disables the kernel's own assertions, if it is [`OFF`].
pub const GUARDS_VARIABLE: &str = "GOSSIP_MUTANT_GUARDS";

/// The value of [`GUARDS_VARIABLE`] for a mutant that must reach the store.
pub const OFF: &str = "off";

/// The name of the active mutant, and whether the kernel's own assertions run.
static ACTIVE: OnceLock<(Option<&'static str>, bool)> = OnceLock::new();

/// Returns whether the mutant `name` is active in this process.
#[inline]
#[must_use]
pub fn is_active(name: &str) -> bool {
    active().0 == Some(name)
}

/// Returns whether the kernel's own assertions run.
#[inline]
#[must_use]
pub fn guards_enabled() -> bool {
    active().1
}

#[inline]
fn active() -> (Option<&'static str>, bool) {
    *ACTIVE.get_or_init(of_environment)
}

/// Reads the variables.
///
/// # Panics
///
/// If [`VARIABLE`] names no mutant: every test would pass, and the result would be wrong.
#[expect(clippy::disallowed_methods, reason = "called in the copy only")]
fn of_environment() -> (Option<&'static str>, bool) {
    let guards = std::env::var(GUARDS_VARIABLE).is_ok_and(|value| value == OFF);
    let name = std::env::var(VARIABLE).ok().map(|name| {
        let catalog = catalog::load().unwrap_or_else(|error| panic!("{error}"));
        let known = catalog.mutants.iter().find(|mutant| mutant.name == name);
        known.unwrap_or_else(|| panic!("{VARIABLE} names no mutant: {name}")).name
    });
    (name, name.is_none() || !guards)
}
