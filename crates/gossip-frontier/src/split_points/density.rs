//! Splits of a sorted sample into parts of about the same number of keys.
//!
//! A split can only occur at an *edge*: an index at which a new key starts, because equal keys
//! cannot be separated. 0 and the length of the sample are edges as well.

use gossip_contracts::coordination::MAX_SPLIT_CHILDREN;

/// Returns the first key of every part but the first, for `min(parts, distinct keys)` parts.
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
    /// Writes the inner edges of the best split and returns their number.
    ///
    /// The size of the largest part is computed first. Then the parts are placed from left to
    /// right, each as close to the mean of the remaining keys as the parts to its right permit:
    /// enough distinct keys must remain for them, and no more than they can hold.
    fn cut(self, parts: usize, edges: &mut [usize; MAX_SPLIT_CHILDREN]) -> usize {
        let latest = self.latest_starts(parts);
        let parts = latest.iter().take_while(|start| start.is_some()).count();
        if parts < 2 {
            return 0;
        }
        // Splitting a part in two never increases the largest one, so using this many parts costs
        // nothing.
        let largest = self.smallest_largest(parts);
        let earliest = self.earliest_starts(parts, largest);
        let mut from = 0;
        for (right, edge) in (1..parts).rev().zip(edges.iter_mut()) {
            // `right` parts lie to the right of this edge; their entry is at `right - 1`.
            let low = self.edge_from(from + 1).max(earliest[right - 1]);
            let last =
                latest[right - 1].expect("`parts` was limited to the entries that are present");
            let high = self.edge_until(from + largest).min(last);
            assert!(low <= high, "a cut with this largest part exists");
            // The mean of the remaining keys, not of all: a part that had to be large leaves fewer
            // to the others.
            let mean = (self.keys.len() - from) / (right + 1);
            *edge = self.edge_near(from + mean).clamp(low, high);
            from = *edge;
        }
        parts - 1
    }

    /// Returns, for 1, 2, … parts, the last edge with as many distinct keys after it, if there is
    /// one.
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

    /// Returns, for 1, 2, … parts, the first edge from which this many parts of at most `largest`
    /// keys reach the end of the sample.
    fn earliest_starts(self, parts: usize, largest: usize) -> [usize; MAX_SPLIT_CHILDREN] {
        let mut starts = [0; MAX_SPLIT_CHILDREN];
        let mut behind = self.keys.len();
        for start in &mut starts[..parts] {
            behind = self.edge_from(behind.saturating_sub(largest));
            *start = behind;
        }
        starts
    }

    /// Returns the minimum size of the largest of `parts` parts, by bisection.
    fn smallest_largest(self, parts: usize) -> usize {
        // The largest part is never below the mean, so the search begins there.
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

    /// Returns whether `parts` parts of at most `largest` keys can hold the sample, filled
    /// greedily.
    fn fits(self, parts: usize, largest: usize) -> bool {
        let mut from = 0;
        // A run of equal keys longer than `largest` makes no progress.
        for _ in 0..parts {
            from = self.edge_until(from + largest);
        }
        from == self.keys.len()
    }

    /// Returns the last edge at or before `at`.
    fn edge_until(self, at: usize) -> usize {
        match self.keys.get(at) {
            None => self.keys.len(),
            Some(key) => self.keys[..at].partition_point(|before| before < key),
        }
    }

    /// Returns the first edge at or after `at`.
    fn edge_from(self, at: usize) -> usize {
        match self.keys.get(at) {
            None => self.keys.len(),
            Some(_) if self.edge_until(at) == at => at,
            Some(key) => at + self.keys[at..].partition_point(|behind| behind <= key),
        }
    }

    /// Returns the edge nearest to `at`.
    fn edge_near(self, at: usize) -> usize {
        let (before, behind) = (self.edge_until(at), self.edge_from(at));
        if at - before <= behind - at { before } else { behind }
    }
}
