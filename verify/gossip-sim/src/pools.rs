//! Object pools for large objects of processes, which start often: claim buffers, and coordinators
//! with their record pools.

use std::cell::RefCell;
use std::ops::{Deref, DerefMut};
use std::rc::Rc;

/// A pool of unused objects.
pub(super) struct Pool<T>(Rc<RefCell<Vec<T>>>);

impl<T> Pool<T> {
    /// Returns the object that `make` makes, from an unused one if there is one.
    pub(super) fn take(&self, make: impl FnOnce(Option<T>) -> T) -> Pooled<T> {
        let unused = self.0.borrow_mut().pop();
        Pooled { it: Some(make(unused)), pool: Self(Rc::clone(&self.0)) }
    }
}

impl<T> Default for Pool<T> {
    fn default() -> Self {
        Self(Rc::default())
    }
}

/// An object that returns to its pool when dropped.
pub(super) struct Pooled<T> {
    /// Absent only while it is dropped.
    it: Option<T>,
    pool: Pool<T>,
}

/// Message of [`Deref`]: the object is present from `take` to `drop`.
const PRESENT: &str = "a pooled object is present until it is dropped";

impl<T> Deref for Pooled<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.it.as_ref().expect(PRESENT)
    }
}

impl<T> DerefMut for Pooled<T> {
    fn deref_mut(&mut self) -> &mut T {
        self.it.as_mut().expect(PRESENT)
    }
}

impl<T> Drop for Pooled<T> {
    fn drop(&mut self) {
        self.pool.0.borrow_mut().extend(self.it.take());
    }
}
