//! The budget for the work of patterns in one item.
//!
//! A text may be made of anchors, and a rule may look far around each. The budget grows with the
//! position in the item, so that such a text costs a bounded time per byte; what it leaves out is
//! reported. It depends on hits and their positions only, and on no clock, so that the result is
//! the same on every machine and under every chunk size.

/// Pattern work in bytes allowed before any is earned by progress: tenths of a second.
const FREE: u64 = 4 << 20;
/// Pattern work in bytes allowed per byte of input. Texts that are not made to be slow use less
/// than one; a pattern that needs the slowest of its engines does some tens of megabytes per
/// second.
const PER_BYTE: u64 = 32;
/// Starts of a match that are compared with a table in the time of one byte of pattern work.
const STARTS_PER_BYTE: usize = 4;

/// Work done and work allowed.
#[derive(Debug, Default)]
pub(crate) struct Work {
    done: u64,
    allowed: u64,
    is_exceeded: bool,
}

impl Work {
    /// Notes the position of a hit; positions ascend, except by the length of a literal.
    pub(super) fn reach(&mut self, position: u64) {
        self.allowed = self.allowed.max(FREE.saturating_add(position.saturating_mul(PER_BYTE)));
    }

    /// Returns whether more work may be done; if not, something is left out.
    pub(super) fn is_left(&mut self) -> bool {
        self.is_exceeded |= self.done > self.allowed;
        self.done <= self.allowed
    }

    /// Notes that a pattern was applied to some bytes.
    pub(super) fn add(&mut self, bytes: usize) {
        self.done += bytes as u64;
    }

    /// Notes that some starts of a match were compared with a table.
    pub(super) fn add_starts(&mut self, starts: usize) {
        self.add(starts / STARTS_PER_BYTE);
    }

    /// Returns whether something was left out.
    pub(crate) fn is_exceeded(&self) -> bool {
        self.is_exceeded
    }
}
