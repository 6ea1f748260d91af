//! Things that are large and that processes are lent, because they start often: the room for
//! claims, and the coordinator with its pool of records.

use std::cell::RefCell;
use std::ops::{Deref, DerefMut};
use std::rc::Rc;

/// What nobody uses at present.
pub(super) struct Home<T>(Rc<RefCell<Vec<T>>>);

impl<T> Home<T> {
    /// Lends what `make` makes, of something that nobody uses if there is such a thing.
    pub(super) fn lend(&self, make: impl FnOnce(Option<T>) -> T) -> Lent<T> {
        let unused = self.0.borrow_mut().pop();
        Lent { it: Some(make(unused)), home: Self(Rc::clone(&self.0)) }
    }
}

impl<T> Default for Home<T> {
    fn default() -> Self {
        Self(Rc::default())
    }
}

/// Something that goes home with the end of whoever was lent it.
pub(super) struct Lent<T> {
    /// Absent only while it goes home.
    it: Option<T>,
    home: Home<T>,
}

/// There is one from `lend` to `drop`.
const LENT: &str = "what is lent is there until it goes home";

impl<T> Deref for Lent<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.it.as_ref().expect(LENT)
    }
}

impl<T> DerefMut for Lent<T> {
    fn deref_mut(&mut self) -> &mut T {
        self.it.as_mut().expect(LENT)
    }
}

impl<T> Drop for Lent<T> {
    fn drop(&mut self) {
        self.home.0.borrow_mut().extend(self.it.take());
    }
}
