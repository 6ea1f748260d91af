//! Room for claims, which workers are lent: it is large, and workers start often.

use std::cell::RefCell;
use std::ops::{Deref, DerefMut};
use std::rc::Rc;

use crate::scratch::AcquireScratch;

/// What nobody uses at present.
#[derive(Clone, Default)]
pub(super) struct Scratches(Rc<RefCell<Vec<Box<AcquireScratch>>>>);

impl Scratches {
    pub(super) fn lend(&self) -> LentScratch {
        let scratch = self.0.borrow_mut().pop().unwrap_or_default();
        LentScratch { scratch: Some(scratch), home: self.clone() }
    }
}

/// A scratch that goes home with the worker's end. It may hold what another worker left in it, as
/// one that was used before may.
pub(super) struct LentScratch {
    /// Absent only while it goes home.
    scratch: Option<Box<AcquireScratch>>,
    home: Scratches,
}

/// There is one from `lend` to `drop`.
const LENT: &str = "a scratch is lent until it goes home";

impl Deref for LentScratch {
    type Target = AcquireScratch;

    fn deref(&self) -> &AcquireScratch {
        self.scratch.as_deref().expect(LENT)
    }
}

impl DerefMut for LentScratch {
    fn deref_mut(&mut self) -> &mut AcquireScratch {
        self.scratch.as_deref_mut().expect(LENT)
    }
}

impl Drop for LentScratch {
    fn drop(&mut self) {
        self.home.0.borrow_mut().extend(self.scratch.take());
    }
}
