//! Items that count their constructions and drops, and can panic when dropped or cloned.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Once;

use proptest::test_runner::Config;

/// Returns a proptest configuration: fewer cases under Miri, which is some hundred times slower,
/// and no files of failed cases.
pub(crate) fn config(cases: u32) -> Config {
    let cases = if cfg!(miri) { cases.div_ceil(64) } else { cases };
    Config { cases, failure_persistence: None, ..Config::default() }
}

/// Returns the maximum number of steps of a random test; fewer under Miri.
pub(crate) const fn steps(count: usize) -> usize {
    if cfg!(miri) { count.div_ceil(8) } else { count }
}

/// Returns whether `action` panicked. An expected panic prints nothing, because printing is very
/// slow under Miri.
pub(crate) fn panics<R>(action: impl FnOnce() -> R) -> bool {
    static QUIET_HOOK: Once = Once::new();
    QUIET_HOOK.call_once(|| {
        let loud = take_hook();
        set_hook(Box::new(move |panic| {
            if !PANIC_EXPECTED.get() {
                loud(panic);
            }
        }));
    });
    PANIC_EXPECTED.set(true);
    let outcome = catch_unwind(AssertUnwindSafe(action));
    PANIC_EXPECTED.set(false);
    outcome.is_err()
}

thread_local! {
    static PANIC_EXPECTED: Cell<bool> = const { Cell::new(false) };
}

/// Counts how often each item was dropped; a clone is a separate item.
#[derive(Default)]
pub(crate) struct Register {
    drops: RefCell<BTreeMap<u32, u32>>,
    made: RefCell<u32>,
}

impl Register {
    /// Returns a new item, numbered from 0.
    pub(crate) fn item(&self) -> Item<'_> {
        let mut made = self.made.borrow_mut();
        *made += 1;
        Item { id: *made - 1, register: self, panics_on_drop: false, panics_on_clone: false }
    }

    pub(crate) fn items(&self, count: usize) -> Vec<Item<'_>> {
        (0..count).map(|_| self.item()).collect()
    }

    pub(crate) fn dropped(&self) -> usize {
        self.drops.borrow().len()
    }

    pub(crate) fn made(&self) -> usize {
        *self.made.borrow() as usize
    }

    /// Asserts that no item was dropped twice.
    pub(crate) fn assert_no_double_drop(&self) {
        assert!(self.drops.borrow().values().all(|drops| *drops == 1), "an item was dropped twice");
    }

    /// Asserts that every item created was dropped exactly once.
    pub(crate) fn assert_all_dropped_once(&self) {
        self.assert_no_double_drop();
        assert_eq!(self.dropped(), self.made(), "an item leaked");
    }
}

/// An item that a [`Register`] counts.
pub(crate) struct Item<'a> {
    pub(crate) id: u32,
    register: &'a Register,
    pub(crate) panics_on_drop: bool,
    pub(crate) panics_on_clone: bool,
}

impl Clone for Item<'_> {
    fn clone(&self) -> Self {
        assert!(!self.panics_on_clone, "this item panics on clone");
        self.register.item()
    }
}

impl Drop for Item<'_> {
    fn drop(&mut self) {
        *self.register.drops.borrow_mut().entry(self.id).or_insert(0) += 1;
        assert!(!self.panics_on_drop, "this item panics on drop");
    }
}
