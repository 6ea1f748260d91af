//! Things that are large and that processes are lent, because they start often: the room for
//! claims, and the coordinator with its pool of records.

use std::cell::RefCell;
use std::ops::{Deref, DerefMut};
use std::rc::Rc;

/// What nobody uses at present.
pub(super) struct Pool<T>(Rc<RefCell<Vec<T>>>);

impl<T> Pool<T> {
    /// Lends what `make` makes, of something that nobody uses if there is such a thing.
    pub(super) fn take(&self, make: impl FnOnce(Option<T>) -> T) -> Pooled<T> {
        let unused = self.0.borrow_mut().pop();
        Pooled { it: Some(make(unused)), home: Self(Rc::clone(&self.0)) }
    }
}

impl<T> Default for Pool<T> {
    fn default() -> Self {
        Self(Rc::default())
    }
}

/// Something that goes home with the end of whoever was lent it.
pub(super) struct Pooled<T> {
    /// Absent only while it goes home.
    it: Option<T>,
    home: Pool<T>,
}

/// There is one from `lend` to `drop`.
const PRESENT: &str = "what is lent is there until it goes home";

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
        self.home.0.borrow_mut().extend(self.it.take());
    }
}
