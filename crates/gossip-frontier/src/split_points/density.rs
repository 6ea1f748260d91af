//! Cuts of a sorted sample into parts of about as many keys.
//!
//! A cut can only fall on an *edge*: an index at which a new key begins, because equal keys cannot
//! be parted. 0 and the length of the sample count as edges as well.

use gossip_contracts::coordination::MAX_SPLIT_CHILDREN;

/// The first key of every part but the first, for `min(parts, different keys)` parts.
pub(super) fn cut<'k>(sorted: &[&'k [u8]], parts: usize) -> impl Iterator<Item = &'k [u8]> {
    let sample = Sample { keys: sorted };
    let mut edges = [0; MAX_SPLIT_CHILDREN];
    let count = sample.cut(parts, &mut edges);
    edges.into_iter().take(count).map(|edge| sorted[edge])
}

/// A sorted sample.
#[derive(Clone, Copy)]
struct Sample<'s, 'k> {
    keys: &'s [&'k [u8]],
}

impl Sample<'_, '_> {
    /// Writes the inner edges of the best cut and tells how many there are.
    ///
    /// The size of the largest part is found first. Then the parts are laid from left to right,
    /// each as near to the mean of what is left as the parts to the right of it permit: enough
    /// different keys must remain for them, and not more than they can hold.
    fn cut(self, parts: usize, edges: &mut [usize; MAX_SPLIT_CHILDREN]) -> usize {
        let latest = self.latest_starts(parts);
        let parts = latest.iter().take_while(|start| start.is_some()).count();
        if parts < 2 {
            return 0;
        }
        // Cutting a part in two never makes the largest one larger, so asking for this many parts
        // costs nothing.
        let largest = self.smallest_largest(parts);
        let earliest = self.earliest_starts(parts, largest);
        let mut from = 0;
        for (right, edge) in (1..parts).rev().zip(edges.iter_mut()) {
            // `right` parts lie to the right of this edge; the entry for them is one before.
            let low = self.edge_from(from + 1).max(earliest[right - 1]);
            let last = latest[right - 1].expect("counted among those present");
            let high = self.edge_until(from + largest).min(last);
            assert!(low <= high, "a cut with this largest part exists");
            // Of what is left, not of all: a part that had to be large leaves less to the others.
            let mean = (self.keys.len() - from) / (right + 1);
            *edge = self.edge_near(from + mean).clamp(low, high);
            from = *edge;
        }
        parts - 1
    }

    /// For 1, 2, … parts: the last edge with as many different keys behind it, if there is one.
    fn latest_starts(self, parts: usize) -> [Option<usize>; MAX_SPLIT_CHILDREN] {
        let mut starts = [None; MAX_SPLIT_CHILDREN];
        let mut behind = self.keys.len();
        for start in &mut starts[..parts] {
            let Some(last) = behind.checked_sub(1) else {
                break;
            };
            behind = self.edge_until(last);
            *start = Some(behind);
        }
        starts
    }

    /// For 1, 2, … parts: the first edge from which so many parts of at most `largest` keys reach
    /// the end of the sample.
    fn earliest_starts(self, parts: usize, largest: usize) -> [usize; MAX_SPLIT_CHILDREN] {
        let mut starts = [0; MAX_SPLIT_CHILDREN];
        let mut behind = self.keys.len();
        for start in &mut starts[..parts] {
            behind = self.edge_from(behind.saturating_sub(largest));
            *start = behind;
        }
        starts
    }

    /// The least number of keys that the largest of `parts` parts must hold, by bisection.
    fn smallest_largest(self, parts: usize) -> usize {
        let mut low = self.keys.len().div_ceil(parts);
        let mut high = self.keys.len();
        while low < high {
            let middle = low.midpoint(high);
            if self.fits(parts, middle) {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        low
    }

    /// Whether `parts` parts of at most `largest` keys hold the sample, filled one by one.
    fn fits(self, parts: usize, largest: usize) -> bool {
        let mut from = 0;
        // Equal keys that exceed `largest` stop it where it is.
        for _ in 0..parts {
            from = self.edge_until(from + largest);
        }
        from == self.keys.len()
    }

    /// The last edge at or before `at`.
    fn edge_until(self, at: usize) -> usize {
        match self.keys.get(at) {
            None => self.keys.len(),
            Some(key) => self.keys[..at].partition_point(|before| before < key),
        }
    }

    /// The first edge at or behind `at`.
    fn edge_from(self, at: usize) -> usize {
        match self.keys.get(at) {
            None => self.keys.len(),
            Some(_) if self.edge_until(at) == at => at,
            Some(key) => at + self.keys[at..].partition_point(|behind| behind <= key),
        }
    }

    /// The edge nearest to `at`.
    fn edge_near(self, at: usize) -> usize {
        let (before, behind) = (self.edge_until(at), self.edge_from(at));
        if at - before <= behind - at { before } else { behind }
    }
}
